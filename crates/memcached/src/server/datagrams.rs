//! Requests in datagrams: a task of each lane takes a batch of them, answers those of the lane's keys, asks other lanes for theirs, and goes on when all are answered.
//!
//! ```text
//!   batch ▸ header ▸ talk ─ our keys ──────▶ answer, in the request's own frame ─────────────┐
//!                      └─ another's keys ▶ a round for the whole batch ═▶ other lanes ═▶ ... ▶ replies
//! ```
//!
//! A datagram's requests have one answer, cut into as many datagrams as it takes ([`crate::protocol::udp`]). Answers of different datagrams are sent as they are
//! there, in no order. Memory is bounded: a batch, and an answer of at most [`Datagrams::most`] bytes, in place of which an error is sent.
//! What is dropped has a counter: `udp_bad`, `udp_parts`, `udp_incomplete`, `udp_too_long`, `udp_unsent`.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use flowlane::{Datagram, Endpoint, SendError, SocketError, UdpSocket};

use super::round::Taken;
use super::shard::Shard;
use super::talk::Talk;
use super::{Lane, ahead};
use crate::protocol::udp::{self, DATAGRAM, HEADER, Header, NoRequest};
use crate::store::AT_ONCE;

/// Most datagrams received at once.
const BATCH: usize = 64;
/// Pause before frames are tried again.
const SOON: Duration = Duration::from_millis(1);
/// Memory that is kept for the next answers, bytes.
const KEEP: usize = 64 << 10;
/// Bytes of requests in one turn; then other tasks run.
const TURN: usize = 64 << 10;
/// Instead of an answer that is too long.
const TOO_LONG: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";

/// The requests under way, and their answers.
struct Datagrams<'a> {
    lane: &'a Lane,
    talk: Talk,
    /// What came. One that has been answered is gone.
    batch: Vec<Option<Datagram>>,
    /// The first that has not been asked, and where it goes on if it has begun.
    next: usize,
    begun: Option<usize>,
    /// A datagram's bytes, if they are in several pieces.
    flat: Vec<u8>,
    /// The answer that is put together now; `true`: it is too long, and dropped.
    answer: Vec<u8>,
    too_long: bool,
    /// Answers of one datagram, in the requests' frames.
    replies: Vec<Datagram>,
    /// Longer ones: from where, to where, and their datagrams in `bytes`.
    long: Vec<(Endpoint, Endpoint, Range<usize>)>,
    bytes: Vec<u8>,
    /// Bytes of memory that the lane's connections are counted with for this.
    held: usize,
}

/// Serves a socket; see [`super::ServerLane::serve_datagrams`].
pub(super) async fn serve(
    lane: &Lane,
    socket: &UdpSocket,
    mut each: impl FnMut(&[Datagram]) + Send,
) -> Result<(), SocketError> {
    let serving = async {
        let mut stopping = pin!(lane.at.stopping());
        let mut came = Vec::with_capacity(BATCH);
        let mut work = Datagrams::new(lane);
        loop {
            let received = {
                let mut receiving = pin!(socket.recv_batch(&mut came, BATCH));
                poll_fn(|cx| match receiving.as_mut().poll(cx) {
                    Poll::Pending => stopping.as_mut().poll(cx).map(|()| None),
                    done => done.map(Some),
                })
                .await
            };
            match received {
                None => return Ok(()),
                Some(Ok(_)) => {}
                // Kernel sockets only: all frames are in use.
                Some(Err(SocketError::Send(SendError::NoFrame))) => {
                    flowlane::sleep(SOON).await;
                    continue;
                }
                Some(Err(e)) => return Err(e),
            }
            each(&came);
            work.batch.extend(came.drain(..).map(Some));
            work.answer_all(socket).await?;
        }
    };
    lane.at.until_reset(serving).await.unwrap_or(Ok(()))
}

impl<'a> Datagrams<'a> {
    fn new(lane: &'a Lane) -> Self {
        Self {
            lane,
            talk: Talk::default(),
            batch: Vec::with_capacity(BATCH),
            next: 0,
            begun: None,
            flat: Vec::new(),
            answer: Vec::new(),
            too_long: false,
            replies: Vec::with_capacity(BATCH),
            long: Vec::new(),
            bytes: Vec::new(),
            held: 0,
        }
    }

    /// Answers the batch.
    async fn answer_all(&mut self, socket: &UdpSocket) -> Result<(), SocketError> {
        let lane = self.lane;
        loop {
            let second = lane.second();
            let waits = lane.own.with(|shard| {
                shard.store.tick(second);
                self.ask(shard);
                self.talk.send(shard);
                self.account(shard);
                self.talk.is_waiting()
            })?;
            self.send(socket).await?;
            if waits {
                self.wait().await?;
                lane.own.with(|shard| self.take(shard))?;
            } else if self.next == self.batch.len() {
                break;
            } else {
                flowlane::yield_now().await;
            }
        }
        self.batch.clear();
        self.next = 0;
        lane.own.with(|shard| self.account(shard))
    }

    /// Bytes of the longest answer: the largest item has room.
    fn most(shard: &Shard) -> usize {
        (shard.store.limits().item + KEEP).min(udp::LONGEST)
    }

    /// Asks what the datagrams ask, until other lanes have to answer before more can be asked, or there are long answers to be sent.
    fn ask(&mut self, shard: &mut Shard) {
        if self.talk.is_waiting() {
            return;
        }
        let (most, mut asked) = (Self::most(shard), 0);
        while self.next < self.batch.len()
            && asked < TURN
            && self.bytes.len() < most
            && !self.talk.is_full(most, &[])
        {
            let Some(mut at) = self.begun.take().or_else(|| self.begin(shard)) else {
                self.batch[self.next] = None;
                self.next += 1;
                continue;
            };
            let Self { lane, talk, batch, next, flat, answer, .. } = self;
            let Some(datagram) = &batch[*next] else { return };
            let payload = if datagram.is_chained() { &flat[..] } else { datagram.payload() };
            let used = talk.input(shard, &|| lane.about(), &payload[at..], (most, answer));
            (at, asked) = (at + used, asked + used);
            let left = payload.len() - at;
            if talk.can_use(left) && !talk.is_closing() {
                if answer.len() < most && talk.is_waiting() {
                    // The rest of it when the round has been answered.
                    self.begun = Some(at);
                    return;
                }
                self.too_long = true;
            } else if left > 0 && !talk.is_closing() {
                shard.store.counts_mut().udp_incomplete += 1;
            }
            let next = self.next;
            self.next += 1;
            if self.talk.end_datagram(next, &mut self.answer) {
                self.answered(shard, next);
            } else if !self.answer.is_empty() || self.too_long {
                // What is there of it must not be mixed with another's.
                return;
            }
        }
    }

    /// Where the requests of the next datagram begin. `None`: there are none in it.
    fn begin(&mut self, shard: &mut Shard) -> Option<usize> {
        if self.next.is_multiple_of(AT_ONCE) {
            let texts = self.batch[self.next..].iter().flatten();
            ahead::datagrams(shard, texts.map(|one| one.payload().get(HEADER..).unwrap_or_default()));
        }
        let datagram = self.batch[self.next].as_ref()?;
        let counts = shard.store.counts_mut();
        counts.bytes_read += datagram.len() as u64;
        let mut start = [0; HEADER + 1];
        let length = datagram.read(&mut start);
        match Header::of_request(&start[..length]) {
            Ok(_) => counts.udp_requests += 1,
            Err(why) => {
                *match why {
                    NoRequest::Short => &mut counts.udp_bad,
                    NoRequest::Part => &mut counts.udp_parts,
                } += 1;
                return None;
            }
        }
        if datagram.is_chained() {
            self.flat.resize(datagram.len(), 0);
            datagram.read(&mut self.flat);
        }
        self.talk.begin_datagram(shard);
        Some(HEADER)
    }

    /// The answer to this datagram is whole: it is to be sent, if there is one.
    fn answered(&mut self, shard: &mut Shard, number: usize) {
        let Some(mut datagram) = self.batch.get_mut(number).and_then(Option::take) else { return };
        let counts = shard.store.counts_mut();
        if std::mem::take(&mut self.too_long) {
            counts.udp_too_long += 1;
            self.answer.clear();
            self.answer.extend_from_slice(TOO_LONG);
        }
        let mut start = [0; 2];
        datagram.read(&mut start);
        let request = u16::from_be_bytes(start);
        let length = self.answer.len();
        counts.bytes_written += (length + length.div_ceil(udp::TEXT) * HEADER) as u64;
        let short = length <= udp::TEXT && !datagram.is_chained() && datagram.len() >= HEADER;
        if length == 0 {
            return;
        }
        if short {
            datagram.truncate(HEADER);
            let header = Header { request, sequence: 0, datagrams: 1 }.bytes();
            datagram.payload_mut().copy_from_slice(&header);
            if datagram.frame_mut().extend_from_slice(&self.answer) {
                self.answer.clear();
                return self.replies.push(datagram);
            }
        }
        let from = self.bytes.len();
        udp::write(request, &self.answer, &mut self.bytes);
        self.answer.clear();
        self.long.push((datagram.destination, datagram.source, from..self.bytes.len()));
    }

    /// Waits for the other lanes.
    async fn wait(&mut self) -> Result<(), SocketError> {
        let Self { lane, talk, .. } = self;
        poll_fn(|cx| {
            let Some(round) = talk.round() else { return Poll::Ready(Ok(())) };
            match lane.own.with(|shard| round.collect(shard, cx.waker())) {
                Ok(Some(true)) => Poll::Ready(Ok(())),
                Ok(Some(false)) => Poll::Pending,
                // A lane that is gone ends its service.
                Ok(None) => Poll::Ready(Err(SocketError::Closed)),
                Err(e) => Poll::Ready(Err(e)),
            }
        })
        .await
    }

    /// Takes what other lanes have answered.
    fn take(&mut self, shard: &mut Shard) {
        let (index, most) = (shard.index, Self::most(shard));
        loop {
            let Self { lane, talk, answer, .. } = self;
            let Some(round) = talk.round() else { return };
            let taken = round.take_answers(index, || lane.about(), answer);
            // Guard: `answer.len() > most` as `false` fails cache/datagrams::long_answers
            if answer.len() > most {
                self.too_long = true;
            }
            if self.too_long {
                self.answer.clear();
            }
            match taken {
                Taken::To(number) => self.answered(shard, number),
                Taken::All | Taken::SoFar => return,
            }
        }
    }

    /// Sends the answers that are there.
    async fn send(&mut self, socket: &UdpSocket) -> Result<(), SocketError> {
        let mut unsent = 0;
        if !self.replies.is_empty() {
            let all = self.replies.len();
            unsent += (all - socket.reply_batch(&mut self.replies).await?.min(all)) as u64;
        }
        for (ours, theirs, at) in self.long.drain(..) {
            // Nobody can send from a group.
            let source = Some(ours).filter(|ours| !ours.ip.is_multicast());
            match socket.send_segments(&self.bytes[at], DATAGRAM, source, Some(theirs)).await {
                Ok(()) => {}
                Err(e @ (SocketError::Closed | SocketError::WrongLane)) => return Err(e),
                Err(_) => unsent += 1,
            }
        }
        self.bytes.clear();
        if unsent > 0 {
            self.lane.own.with(|shard| shard.store.counts_mut().udp_unsent += unsent)?;
        }
        Ok(())
    }

    /// Keeps no more memory than is usual, and has the lane count what there is.
    fn account(&mut self, shard: &mut Shard) {
        if !self.talk.is_waiting() {
            let idle = [&mut self.bytes, &mut self.answer].into_iter();
            idle.filter(|buffer| buffer.is_empty()).for_each(|buffer| buffer.shrink_to(KEEP));
        }
        let buffers = self.flat.capacity() + self.bytes.capacity() + self.answer.capacity();
        let before = std::mem::replace(&mut self.held, buffers + self.talk.bytes());
        shard.held = (shard.held + self.held).saturating_sub(before);
    }
}

impl Drop for Datagrams<'_> {
    fn drop(&mut self) {
        let (held, desk) = (self.held, self.talk.round().map(|round| round.desk));
        // A lane that has ended has nothing to be told.
        let _ = self.lane.own.with(|shard| {
            shard.held = shard.held.saturating_sub(held);
            desk.into_iter().for_each(|desk| shard.close_desk(desk));
        });
    }
}
