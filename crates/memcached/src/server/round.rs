//! Requests of one connection that several lanes answer, put together again in the order in which they were asked.
//!
//! From the first request for another lane's key on, what is answered here waits for its turn, too. A round ends when all has been
//! answered; until then the connection reads no more. So requests on keys of different lanes run side by side within a round, and
//! those on one key in order.
//!
//! Requests of datagrams share a round, several clients' at once: an answer begins with [`Round::begin`] and ends with [`Round::end`], and is taken by itself.

use std::collections::VecDeque;
use std::task::Waker;

use super::parcel::Parcel;
use super::shard::Shard;
use crate::answer::stats::{self, About, Kind};
use crate::store::{Snapshot, Store};

/// Requests of one round.
const PIECES: usize = 1024;
/// Bytes of requests of one round; one request may be longer.
const ASKED: usize = 64 << 10;
/// Memory that a parcel keeps for the next round, bytes each way.
const KEEP: usize = 1 << 10;

/// A part of the answer.
#[derive(Debug)]
enum Piece {
    /// So many bytes that were answered here.
    Here(usize),
    /// The next answer of this lane.
    There(usize),
    /// One answer when all lanes have dropped their items; none if it is not wanted.
    Flush { quiet: bool },
    /// What all lanes count, with what this one does.
    Stats(Kind, Box<Snapshot>),
    /// The end of the answer to one datagram, which its reader knows by this number.
    End(usize),
}

/// How far the answers were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All of them.
    All,
    /// As far as they have come: the rest is to be sent again.
    SoFar,
    /// To the end of this datagram's.
    To(usize),
}

/// A connection's requests to other lanes.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) desk: usize,
    /// By lane. One that is under way is `None`.
    parcels: Vec<Option<Parcel>>,
    away: usize,
    pieces: VecDeque<Piece>,
    here: Vec<u8>,
    taken: usize,
    asked: usize,
}

impl Round {
    pub(crate) fn new(shard: &mut Shard) -> Self {
        let (desk, visit) = shard.open_desk();
        let parcel = || Some(Parcel::new(desk, visit));
        Self {
            desk,
            parcels: (0..shard.lanes()).map(|_| parcel()).collect(),
            away: 0,
            pieces: VecDeque::new(),
            here: Vec::new(),
            taken: 0,
            asked: 0,
        }
    }

    /// Whether something was asked that is not part of the answer yet.
    pub(crate) fn is_open(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Whether what is answered here has to wait for what was asked before it on the same connection, or in the same datagram.
    pub(crate) fn is_begun(&self) -> bool {
        !matches!(self.pieces.back(), None | Some(Piece::End(_)))
    }

    /// An answer of its own begins.
    pub(crate) fn begin(&mut self) {
        self.pieces.push_back(Piece::Here(0));
    }

    /// The answer begun last ends.
    pub(crate) fn end(&mut self, number: usize) {
        self.pieces.push_back(Piece::End(number));
    }

    /// Takes the answer begun last if no other lane has a part in it; `false` if one has.
    pub(crate) fn take_own(&mut self, out: &mut Vec<u8>) -> bool {
        let alone = self.pieces.iter().rev().nth(1).is_none_or(|piece| matches!(piece, Piece::End(_)));
        let Some(&Piece::Here(len)) = self.pieces.back().filter(|_| alone) else { return false };
        self.pieces.pop_back();
        let from = self.here.len() - len;
        out.extend_from_slice(&self.here[from..]);
        self.here.truncate(from);
        true
    }

    /// Whether no more should be asked before this is answered. `most`: bytes that may wait here.
    pub(crate) fn is_full(&self, most: usize) -> bool {
        self.pieces.len() >= PIECES || self.asked >= ASKED || self.here.len() >= most
    }

    /// Bytes of memory that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let parcels: usize = self.parcels.iter().flatten().map(Parcel::bytes).sum();
        parcels + self.here.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Answers something here, in its turn.
    pub(crate) fn here(&mut self, answer: impl FnOnce(&mut Vec<u8>)) {
        let before = self.here.len();
        answer(&mut self.here);
        let more = self.here.len() - before;
        match self.pieces.back_mut() {
            Some(Piece::Here(len)) => *len += more,
            _ => self.pieces.push_back(Piece::Here(more)),
        }
    }

    /// Asks another lane.
    pub(crate) fn there(&mut self, lane: usize, bytes: usize, ask: impl FnOnce(&mut Parcel)) {
        if let Some(parcel) = &mut self.parcels[lane] {
            ask(parcel);
            self.asked += bytes;
            self.pieces.push_back(Piece::There(lane));
        }
    }

    /// Has every lane drop its items.
    pub(crate) fn flush(&mut self, index: usize, store: &mut Store, delay: i32, quiet: bool) {
        store.flush(delay);
        self.others(index).for_each(|parcel| parcel.ask_flush(delay));
        self.pieces.push_back(Piece::Flush { quiet });
    }

    /// Asks every lane what it counts.
    pub(crate) fn stats(&mut self, index: usize, store: &mut Store, kind: Kind) {
        let snapshot = Box::new(store.snapshot());
        let reset = kind == Kind::Reset;
        if reset {
            store.reset_counts();
        }
        self.others(index).for_each(|parcel| parcel.ask_snapshot(reset));
        self.pieces.push_back(Piece::Stats(kind, snapshot));
    }

    fn others(&mut self, index: usize) -> impl Iterator<Item = &mut Parcel> {
        self.parcels.iter_mut().enumerate().filter(move |(n, _)| *n != index).filter_map(|(_, p)| p.as_mut())
    }

    /// Sends what is to be asked. `room`: bytes of answers that there is room for.
    pub(crate) fn send(&mut self, shard: &mut Shard, room: usize) {
        for lane in 0..self.parcels.len() {
            let ready = |parcel: &mut Parcel| parcel.waiting() > 0 && !parcel.has_next();
            if let Some(mut parcel) = self.parcels[lane].take_if(ready) {
                parcel.again();
                parcel.room = room;
                self.away += 1;
                shard.store.counts_mut().handed_over += parcel.requests();
                shard.send(lane, parcel);
            }
        }
    }

    /// Takes what came back. `Some(true)`: everything. `None`: something never will.
    pub(crate) fn collect(&mut self, shard: &mut Shard, waker: &Waker) -> Option<bool> {
        for (lane, parcel) in shard.collect(self.desk, waker)? {
            self.parcels[lane] = Some(parcel);
            self.away -= 1;
        }
        Some(self.away == 0)
    }

    /// Appends what has been answered, in order, to the end of a datagram's answer at most.
    pub(crate) fn take_answers(
        &mut self,
        index: usize,
        about: impl Fn() -> About,
        out: &mut Vec<u8>,
    ) -> Taken {
        while let Some(piece) = self.pieces.front() {
            match piece {
                Piece::Here(len) => {
                    out.extend_from_slice(&self.here[self.taken..self.taken + len]);
                    self.taken += len;
                }
                Piece::There(lane) => match self.parcels[*lane].as_mut().and_then(Parcel::next) {
                    Some(answer) => out.extend_from_slice(answer),
                    None => return Taken::SoFar,
                },
                Piece::Flush { .. } | Piece::Stats(..) => {
                    let ready = |(n, parcel): (usize, &Option<Parcel>)| {
                        n == index || parcel.as_ref().is_some_and(Parcel::has_next)
                    };
                    if !self.parcels.iter().enumerate().all(ready) {
                        return Taken::SoFar;
                    }
                    self.others(index).for_each(|parcel| _ = parcel.next());
                }
                Piece::End(_) => {}
            }
            match self.pieces.pop_front() {
                Some(Piece::Flush { quiet: false }) => out.extend_from_slice(b"OK\r\n"),
                Some(Piece::Stats(kind, mut sum)) => {
                    for more in self.others(index).filter_map(Parcel::snapshot) {
                        sum.add(&more);
                    }
                    stats::write(kind, &sum, &about(), out);
                }
                Some(Piece::End(number)) => return Taken::To(number),
                _ => {}
            }
        }
        // Everything is answered: the memory is used again, if it is not much.
        self.parcels.iter_mut().flatten().for_each(|parcel| parcel.clear(KEEP));
        self.here.clear();
        self.here.shrink_to(KEEP);
        (self.taken, self.asked) = (0, 0);
        Taken::All
    }
}
