//! What is said on one connection: requests from bytes, their answers, and what is left to do when there is no room for more.

use super::ahead::{self, Gets};
use super::majority::Majority;
use super::round::Round;
use super::shard::Shard;
use crate::answer::stats::{self, About, Kind};
use crate::answer::{answer, get};
use crate::protocol::{Command, GET_LINE, LINE, ONE_GET, Parsed, Request, Words, parse};
use crate::store::KeyHash;

/// Bytes of a request that are waited for without asking whether there is memory for them.
const SMALL: usize = 16 << 10;

/// A `get` that goes on when its answers so far have been sent.
#[derive(Debug)]
struct Get {
    keys: Vec<u8>,
    at: usize,
    cas: bool,
    touch: Option<i32>,
}

/// The state of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// Bytes that are to be skipped.
    skip: usize,
    get: Option<Get>,
    round: Option<Box<Round>>,
    /// The connection ends when what was answered has been sent.
    closing: bool,
    /// Bytes that must be there before it is worth looking again.
    want: usize,
    /// Bytes that were looked at and have no end of line.
    looked_at: usize,
    /// Which other lane its keys are in, if its connection may move there.
    majority: Majority,
}

impl Talk {
    /// Of a connection that may move to another lane.
    pub(crate) fn free() -> Self {
        Self { majority: Majority::free(), ..Self::default() }
    }

    /// The lane that its connection is to move to, if nothing is half asked or half answered.
    pub(crate) fn far(&self) -> Option<usize> {
        // Guard: `self.is_idle()` as `true` fails cache/moving::answers_are_as_if
        self.majority.far().filter(|_| self.is_idle() && !self.closing)
    }

    /// Its connection moves: gives back the place where other lanes' answers come, which is the lane's.
    pub(crate) fn moved(&mut self) -> Option<usize> {
        self.majority.moved();
        self.round.take().map(|round| round.desk)
    }

    /// Its connection cannot move.
    pub(crate) fn stay(&mut self) {
        self.majority.stay();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether nothing was asked that is not answered, whatever came of the next request.
    pub(crate) fn is_idle(&self) -> bool {
        self.get.is_none() && self.skip == 0 && !self.is_waiting()
    }

    /// Whether other lanes have to answer first.
    pub(crate) fn is_waiting(&self) -> bool {
        self.round.as_ref().is_some_and(|round| round.is_open())
    }

    /// Whether it can go on with so many bytes.
    pub(crate) fn can_use(&self, bytes: usize) -> bool {
        self.get.is_some() || bytes > 0 && (self.skip > 0 || bytes >= self.want)
    }

    pub(crate) fn round(&mut self) -> Option<&mut Round> {
        self.round.as_deref_mut()
    }

    /// Sends what other lanes have to answer, if that is anything.
    pub(crate) fn send(&mut self, shard: &mut Shard) {
        if let Some(round) = self.round.as_mut().filter(|round| round.is_open()) {
            let room = shard.allowance() / shard.lanes();
            round.send(shard, room);
        }
    }

    /// The requests of another datagram follow: nothing of those before is left but what other lanes have to answer.
    pub(crate) fn begin_datagram(&mut self, shard: &mut Shard) {
        (self.skip, self.get, self.closing, self.want, self.looked_at) = (0, None, false, 0, 0);
        if shard.lanes() > 1 {
            self.way(shard).begin();
        }
    }

    /// The requests of the datagram with this number have been asked. `true`: `out` has the whole answer; else other lanes have a part in it.
    pub(crate) fn end_datagram(&mut self, number: usize, out: &mut Vec<u8>) -> bool {
        let Some(round) = self.round.as_mut().filter(|round| round.is_begun()) else { return true };
        if round.take_own(out) {
            return true;
        }
        round.end(number);
        false
    }

    /// Bytes of the request that is not whole, with those that are still to come if there must be memory for them.
    pub(crate) fn reserved(&self) -> usize {
        if self.want > SMALL { self.want } else { 0 }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let get = self.get.as_ref().map_or(0, |get| get.keys.capacity());
        get + self.round.as_ref().map_or(0, |round| size_of::<Round>() + round.bytes())
    }

    /// Takes requests from the front of `bytes` and answers them, until it needs more bytes, there is no room for more answers, of which there may be `most`
    /// bytes, or other lanes have to answer ([`Talk::send`]). Returns the bytes that were used.
    pub(crate) fn input(
        &mut self,
        shard: &mut Shard,
        about: &impl Fn() -> About,
        bytes: &[u8],
        (most, out): (usize, &mut Vec<u8>),
    ) -> usize {
        if self.has_no_end(bytes) {
            return 0;
        }
        let item_max = shard.store.limits().item;
        let (mut at, mut looked) = (0, 1);
        self.want = 0;
        while !self.closing && !self.is_full(most, out) {
            if self.get.is_some() {
                self.go_on_with_get(shard, most, out);
                continue;
            }
            let skipped = self.skip.min(bytes.len() - at);
            (self.skip, at) = (self.skip - skipped, at + skipped);
            let rest = &bytes[at..];
            if rest.is_empty() {
                break;
            }
            let gets = Gets::read(shard, rest);
            if !gets.keys().is_empty() {
                at += self.gets(shard, gets.keys(), (most, &mut *out));
                continue;
            }
            // The first request is answered: others came with it.
            if at >= looked {
                looked = at + ahead::requests(shard, rest);
            }
            match parse(rest, item_max) {
                Parsed::More(want) if want > SMALL && want > rest.len() + 1 && !fits(shard, want) => {
                    at += self.refuse(shard, rest, out);
                }
                Parsed::More(want) => {
                    self.want = want;
                    self.looked_at = if want == rest.len() + 1 { rest.len() } else { 0 };
                    break;
                }
                Parsed::TooLong => {
                    shard.store.counts_mut().bad_lines += 1;
                    self.closing = true;
                }
                Parsed::Request(request, used) => {
                    self.skip = request.skip;
                    self.request(shard, about, &request, &rest[..used], (most, &mut *out));
                    at += used;
                }
            }
        }
        at
    }

    /// Whether these bytes are still a line without an end, of which only what is new is looked at: a long one may come byte by byte.
    fn has_no_end(&mut self, bytes: &[u8]) -> bool {
        let known = std::mem::take(&mut self.looked_at);
        let longer = known > LINE && bytes.len() < GET_LINE;
        if !longer || bytes.get(known..).is_none_or(|new| new.contains(&b'\n')) {
            return false;
        }
        (self.looked_at, self.want) = (bytes.len(), bytes.len() + 1);
        true
    }

    pub(crate) fn is_full(&self, most: usize, out: &[u8]) -> bool {
        out.len() >= most || self.round.as_ref().is_some_and(|round| round.is_full(most))
    }

    /// The way for requests to other lanes.
    fn way(&mut self, shard: &mut Shard) -> &mut Round {
        self.round.get_or_insert_with(|| Box::new(Round::new(shard)))
    }

    /// Answers here, in its turn.
    fn here(&mut self, shard: &mut Shard, out: &mut Vec<u8>, answer: impl FnOnce(&mut Shard, &mut Vec<u8>)) {
        match self.round.as_mut().filter(|round| round.is_begun()) {
            Some(round) => round.here(|out| answer(shard, out)),
            None => answer(shard, out),
        }
    }

    fn request(
        &mut self,
        shard: &mut Shard,
        about: &impl Fn() -> About,
        request: &Request<'_>,
        bytes: &[u8],
        (most, out): (usize, &mut Vec<u8>),
    ) {
        match &request.command {
            Command::Get { keys, cas, touch } => self.get(shard, keys.clone(), (*cas, *touch), most, out),
            Command::Quit => self.closing = true,
            Command::Flush(delay) if shard.lanes() == 1 => {
                shard.store.flush(*delay);
                if !request.quiet {
                    out.extend_from_slice(b"OK\r\n");
                }
            }
            Command::Flush(delay) => {
                let index = shard.index;
                self.way(shard).flush(index, &mut shard.store, *delay, request.quiet);
            }
            Command::Stats(words) => match Kind::of(words) {
                None => self.here(shard, out, |_, out| out.extend_from_slice(b"ERROR\r\n")),
                Some(Kind::Lanes) => {
                    self.here(shard, out, |_, out| about().lanes.write(out));
                }
                Some(kind) if shard.lanes() == 1 => {
                    stats::write(kind, &shard.store.snapshot(), &about(), out);
                    if kind == Kind::Reset {
                        shard.store.reset_counts();
                    }
                }
                Some(kind) => {
                    let index = shard.index;
                    self.way(shard).stats(index, &mut shard.store, kind);
                }
            },
            command => {
                let hash = command.key().map(|key| shard.hash.of(key));
                let lane = hash.map_or(shard.index, |hash| KeyHash::lane(hash, shard.lanes()));
                if lane == shard.index {
                    if hash.is_some() {
                        self.majority.here();
                    }
                    self.here(shard, out, |shard, out| {
                        answer(&mut shard.store, hash.unwrap_or(0), request, out);
                    });
                } else {
                    self.majority.there(lane);
                    self.way(shard).there(lane, bytes.len(), |parcel| parcel.ask_request(bytes));
                }
            }
        }
    }

    /// Answers gets for one key each, as far as there is room. Returns the bytes of those answered.
    fn gets(
        &mut self,
        shard: &mut Shard,
        keys: &[(&[u8], u64)],
        (most, out): (usize, &mut Vec<u8>),
    ) -> usize {
        let mut used = 0;
        for (key, hash) in keys {
            if self.is_full(most, out) {
                break;
            }
            self.key(shard, (key, *hash), (false, None), out);
            self.here(shard, out, |_, out| out.extend_from_slice(b"END\r\n"));
            used += key.len() + ONE_GET;
        }
        used
    }

    /// Answers the keys of a `get`, as far as there is room; the rest is kept.
    fn get(
        &mut self,
        shard: &mut Shard,
        mut keys: Words<'_>,
        (cas, touch): (bool, Option<i32>),
        most: usize,
        out: &mut Vec<u8>,
    ) {
        let mut looked = 1;
        while !self.is_full(most, out) {
            let Some(key) = keys.next() else {
                return self.here(shard, out, |_, out| out.extend_from_slice(b"END\r\n"));
            };
            self.key(shard, (key, shard.hash.of(key)), (cas, touch), out);
            looked -= 1;
            if looked == 0 && !keys.rest().is_empty() {
                looked = ahead::keys(shard, &keys).max(1);
            }
        }
        self.get = Some(Get { keys: keys.rest().to_vec(), at: 0, cas, touch });
    }

    fn go_on_with_get(&mut self, shard: &mut Shard, most: usize, out: &mut Vec<u8>) {
        let Some(mut get) = self.get.take() else { return };
        let how = (get.cas, get.touch);
        let mut keys = Words::of(&get.keys[get.at..]);
        while !self.is_full(most, out) {
            let Some(key) = keys.next() else {
                return self.here(shard, out, |_, out| out.extend_from_slice(b"END\r\n"));
            };
            self.key(shard, (key, shard.hash.of(key)), how, out);
        }
        get.at = get.keys.len() - keys.rest().len();
        self.get = Some(get);
    }

    /// One key of a `get`, with its hash.
    #[inline]
    fn key(
        &mut self,
        shard: &mut Shard,
        (key, hash): (&[u8], u64),
        (cas, touch): (bool, Option<i32>),
        out: &mut Vec<u8>,
    ) {
        let lane = KeyHash::lane(hash, shard.lanes());
        if lane == shard.index {
            self.majority.here();
            self.here(shard, out, |shard, out| get(&mut shard.store, hash, key, cas, touch, out));
        } else {
            self.majority.there(lane);
            self.way(shard).there(lane, key.len(), |parcel| parcel.ask_get(key, cas, touch));
        }
    }

    /// Refuses a value for which the connections have no memory, and skips it; what the key had is dropped where it is, as memcached does.
    #[cold]
    fn refuse(&mut self, shard: &mut Shard, rest: &[u8], out: &mut Vec<u8>) -> usize {
        // Every value is too large for this.
        let Parsed::Request(request, used) = parse(rest, 0) else {
            self.closing = true;
            return 0;
        };
        shard.store.counts_mut().store_no_memory += 1;
        if let Command::TooLarge { key, forget: true } = &request.command {
            let hash = shard.hash.of(key);
            if KeyHash::lane(hash, shard.lanes()) == shard.index {
                shard.store.forget(hash, key);
            } else {
                let ask = [b"delete ", &key[..], b" noreply\r\n"].concat();
                self.way(shard)
                    .there(KeyHash::lane(hash, shard.lanes()), ask.len(), |parcel| parcel.ask_request(&ask));
            }
        }
        if !request.quiet {
            self.here(shard, out, |_, out| {
                out.extend_from_slice(b"SERVER_ERROR out of memory storing object\r\n");
            });
        }
        self.skip = request.skip;
        used
    }
}

/// Whether the connections may keep so many bytes more.
fn fits(shard: &Shard, bytes: usize) -> bool {
    shard.held + bytes <= shard.share
}
