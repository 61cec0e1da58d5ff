//! One connection: reading, writing, waiting for other lanes, and its end.
//!
//! The future is written by hand. It reads and answers in buffers that all connections of a worker share, and keeps only bytes of a request that is not
//! whole and answers that its peer has no room for; while it keeps any of those, it reads nothing. What all connections of a lane keep is
//! counted, and the more there is, the less each may keep ([`Shard::allowance`]).
//!
//! A connection most of whose requests are for one other lane ([`Placement`](super::Placement)) moves between two rounds, with what it keeps, if that is not more than it may keep
//! in any lane: so no lane comes to hold more than its share and this of each connection.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use flowlane::service::Phase;
use flowlane::{Departed, Sleep, SocketError, TcpStream, Time, sleep_until};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::round::Taken;
use super::shard::{LEAST, Shard};
use super::talk::Talk;
use super::{Lane, Placement};

/// Most rounds in one turn; then other tasks run.
const ROUNDS: u32 = 16;
/// Bytes read at once.
const INPUT: usize = 64 << 10;

/// Buffers of one thread, borrowed for one poll of one task.
struct Scratch {
    input: Box<[u8]>,
    output: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { input: vec![0; INPUT].into_boxed_slice(), output: Vec::with_capacity(INPUT) });
}

/// How a connection ended in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It goes to this one.
    Move(usize),
    /// By its peer, by `quit`, or with the service.
    Orderly,
    /// The peer or the network ended it badly.
    Lost,
    /// Nothing was asked for too long.
    Idle,
    /// Nothing was read for too long.
    Slow,
}

/// What becomes of a connection that has no more to do in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Ended,
    /// It is to go to this lane.
    Move(usize),
}

/// One connection, over TCP or what is over that.
pub(crate) struct Connection<S> {
    lane: Lane,
    stream: S,
    talk: Talk,
    /// What was written may still wait to be sent, as records of TLS do.
    flushing: bool,
    /// Bytes of requests that are not answered yet.
    unread: Vec<u8>,
    /// Answers that the peer has no room for yet; the first `sent` bytes have been sent.
    kept: Vec<u8>,
    sent: usize,
    /// Bytes of memory that it is counted with.
    held: usize,
    /// Bytes received and sent that are not counted yet.
    moved: [u64; 2],
    timer: Option<Sleep>,
    /// The peer is told of the end in words, as TLS has them.
    says_end: bool,
    /// When something last came or went.
    active: Time,
}

impl<S: AsyncRead + AsyncWrite + AsRef<TcpStream> + AsMut<TcpStream> + Unpin> Connection<S> {
    pub(crate) fn new(lane: Lane, stream: S) -> Self {
        let active = flowlane::now().unwrap_or(Time::ZERO);
        let free = lane.server.options.placement == Placement::Move;
        Self {
            lane,
            stream,
            talk: if free { Talk::free() } else { Talk::default() },
            flushing: false,
            unread: Vec::new(),
            kept: Vec::new(),
            sent: 0,
            held: 0,
            moved: [0; 2],
            timer: None,
            says_end: false,
            active,
        }
    }

    /// Tells the peer of the end in words of the protocol between connection and requests, as TLS has them.
    pub(crate) fn ends_in_words(mut self) -> Self {
        self.says_end = true;
        self
    }

    /// Does what can be done.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Done> {
        // Never polled outside a lane.
        let Ok(now) = flowlane::now() else { return Poll::Ready(Done::Ended) };
        let polled = SCRATCH.with_borrow_mut(|scratch| self.rounds(cx, now, scratch));
        let held = self.keeps() + self.talk.bytes();
        let (moved, before) = (std::mem::take(&mut self.moved), std::mem::replace(&mut self.held, held));
        if moved != [0; 2] || held != before || polled.is_ready() {
            let _ = self.lane.own.with(|shard| {
                shard.held = (shard.held + held).saturating_sub(before);
                let counts = shard.store.counts_mut();
                counts.bytes_read += moved[0];
                counts.bytes_written += moved[1];
                match polled {
                    Poll::Ready(End::Lost) => counts.lost_connections += 1,
                    Poll::Ready(End::Idle) => counts.idle_kicks += 1,
                    Poll::Ready(End::Slow) => counts.slow_readers += 1,
                    _ => {}
                }
            });
        }
        polled.map(|end| if let End::Move(lane) = end { Done::Move(lane) } else { Done::Ended })
    }

    /// Bytes of requests that are not answered and of answers that are not sent, and those that are to come before a request is whole.
    fn keeps(&self) -> usize {
        self.unread.capacity().max(self.talk.reserved()) + self.kept.capacity()
    }

    /// The lane to go to now, if most requests are for one and little is kept.
    fn goes(&self) -> Option<usize> {
        let lane = self.talk.far()?;
        // Guard: `self.keeps() <= LEAST` as `true` fails cache/moving::half_of_a_large_request
        (self.keeps() <= LEAST && self.lane.at.phase() == Phase::Serving).then_some(lane)
    }

    /// Takes it out of its lane, if that can be done.
    pub(crate) fn leave(&mut self) -> Option<Departed> {
        let departed = self.stream.as_mut().depart().ok()?;
        self.timer = None;
        let (desk, held) = (self.talk.moved(), std::mem::take(&mut self.held));
        let _ = self.lane.own.with(|shard| {
            shard.held = shard.held.saturating_sub(held);
            desk.into_iter().for_each(|desk| shard.close_desk(desk));
        });
        Some(departed)
    }

    /// It could not leave, and does not try again.
    pub(crate) fn stay(&mut self) {
        self.talk.stay();
        let _ = self.lane.own.with(|shard| shard.store.counts_mut().moves_refused += 1);
    }

    /// Goes on in the lane of the calling task, which is this one.
    pub(crate) fn arrive(&mut self, lane: Lane, departed: Departed) -> Result<(), SocketError> {
        *self.stream.as_mut() = departed.arrive()?;
        self.lane = lane;
        self.lane.own.with(|shard| shard.store.counts_mut().moved_connections += 1)
    }

    fn rounds(&mut self, cx: &mut Context<'_>, now: Time, scratch: &mut Scratch) -> Poll<End> {
        if self.lane.at.phase() == Phase::Resetting {
            let _ = self.stream.as_ref().abort();
            return Poll::Ready(End::Orderly);
        }
        for _ in 0..ROUNDS {
            scratch.output.clear();
            match self.round(cx, now, scratch) {
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Ok(Some(end))) => return Poll::Ready(end),
                Poll::Ready(Err(_)) => return Poll::Ready(End::Lost),
                Poll::Pending => return self.wait(cx, now),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// One step: writes what is kept, or takes what other lanes answered, or answers what was read, or reads. `None`: there may be more to do.
    fn round(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        scratch: &mut Scratch,
    ) -> Poll<io::Result<Option<End>>> {
        if self.flushing {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.flushing = false;
        }
        if !self.kept.is_empty() {
            ready!(self.write_kept(cx, now))?;
            return Poll::Ready(Ok(None));
        }
        let Scratch { input, output } = scratch;
        if self.talk.is_waiting() {
            if !self.take_answers(cx, output)? {
                return Poll::Pending;
            }
            self.write(cx, now, output)?;
            return Poll::Ready(Ok(self.goes().map(End::Move)));
        } else if self.talk.is_closing() {
            return Poll::Ready(Ok(Some(End::Orderly)));
        } else if self.talk.can_use(self.unread.len()) {
            let unread = std::mem::take(&mut self.unread);
            let used = self.answer(&unread, output)?;
            self.unread = unread;
            self.unread.drain(..used);
            if self.unread.is_empty() {
                self.unread = Vec::new();
            }
        } else {
            let stopping = self.lane.at.is_stopping() && self.talk.is_idle();
            let mut into = ReadBuf::new(input);
            match Pin::new(&mut self.stream).poll_read(cx, &mut into) {
                Poll::Pending if stopping => return Poll::Ready(Ok(Some(End::Orderly))),
                polled => ready!(polled)?,
            }
            let read = into.filled().len();
            if read == 0 {
                return Poll::Ready(Ok(Some(End::Orderly)));
            }
            (self.active, self.moved[0]) = (now, self.moved[0] + read as u64);
            if self.unread.is_empty() {
                let used = self.answer(&input[..read], output)?;
                self.unread.extend_from_slice(&input[used..read]);
            } else {
                self.unread.extend_from_slice(&input[..read]);
            }
        }
        self.write(cx, now, output)?;
        Poll::Ready(Ok(None))
    }

    /// Answers requests; returns the bytes used.
    fn answer(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> io::Result<usize> {
        let Self { lane, talk, .. } = self;
        let second = lane.second();
        let used = lane.own.with(|shard| {
            shard.store.tick(second);
            let most = shard.allowance();
            let used = talk.input(shard, &|| lane.about(), bytes, (most, output));
            talk.send(shard);
            used
        })?;
        Ok(used)
    }

    /// Takes what other lanes answered, if all of it has come; what they had no room for is asked again.
    fn take_answers(&mut self, cx: &mut Context<'_>, output: &mut Vec<u8>) -> io::Result<bool> {
        let Self { lane, talk, .. } = self;
        let Some(round) = talk.round() else { return Ok(true) };
        let index = lane.at.index();
        let came = lane.own.with(|shard| {
            let all = round.collect(shard, cx.waker())?;
            if all && round.take_answers(index, || lane.about(), output) == Taken::SoFar {
                let room = shard.allowance() / shard.lanes();
                round.send(shard, room);
            }
            Some(all)
        })?;
        // A lane that is gone ends its service, and with it this connection.
        Ok(came.ok_or(SocketError::Closed)?)
    }

    /// Writes answers, and keeps what the peer has no room for.
    fn write(&mut self, cx: &mut Context<'_>, now: Time, output: &mut Vec<u8>) -> io::Result<()> {
        let mut at = 0;
        while at < output.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &output[at..])? {
                Poll::Ready(n) => at += n,
                Poll::Pending => {
                    self.kept.extend_from_slice(&output[at..]);
                    self.sent = 0;
                    break;
                }
            }
        }
        if at > 0 {
            (self.active, self.moved[1]) = (now, self.moved[1] + at as u64);
            self.flushing = Pin::new(&mut self.stream).poll_flush(cx)?.is_pending();
        }
        if output.capacity() > 4 * INPUT {
            output.clear();
            output.shrink_to(INPUT);
        }
        Ok(())
    }

    fn write_kept(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<io::Result<()>> {
        while self.sent < self.kept.len() {
            let n = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.kept[self.sent..]))?;
            self.sent += n;
            (self.active, self.moved[1]) = (now, self.moved[1] + n as u64);
        }
        (self.kept, self.sent, self.flushing) = (Vec::new(), 0, true);
        Poll::Ready(Ok(()))
    }

    /// Tells the peer that this is the end, if it can be told at once.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.says_end {
            let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
        }
        Poll::Ready(())
    }

    /// Ends the connection if it has waited for too long, else has the timer wake it then.
    fn wait(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<End> {
        let Some(idle) = self.lane.server.options.idle else { return Poll::Pending };
        let until = self.active + idle;
        // Other lanes' answers are not taken as long as there is no room for those before them: then the peer is waited for all the same.
        let slow = self.flushing || !self.kept.is_empty();
        // Guard: `now >= until` as `false` fails cache/bad::idle_connections_are_closed
        if now >= until && (slow || !self.talk.is_waiting()) {
            return Poll::Ready(if slow { End::Slow } else { End::Idle });
        }
        // It is not moved with each request: when it rings too early, it is set anew.
        let timer = self.timer.get_or_insert_with(|| sleep_until(until));
        if Pin::new(&mut *timer).poll(cx).is_ready() {
            let again = if until > now { until } else { now + idle };
            self.timer = Some(sleep_until(again));
            if let Some(timer) = &mut self.timer
                && Pin::new(timer).poll(cx).is_ready()
            {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        let (held, desk) = (self.held, self.talk.round().map(|round| round.desk));
        // A lane that has ended has nothing to be told.
        let _ = self.lane.own.with(|shard: &mut Shard| {
            shard.held = shard.held.saturating_sub(held);
            desk.into_iter().for_each(|desk| shard.close_desk(desk));
        });
    }
}
