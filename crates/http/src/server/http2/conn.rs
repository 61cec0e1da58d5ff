//! State shared by the parts of one HTTP/2 connection: since when it waits for what, the memory of its answers, and how many frames without
//! content the peer may still send.
//!
//! The byte stream is inside the library, and the streams of requests are tasks; all run in one lane, so these cells are never contended.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flowlane::Time;

use crate::server::Lane;
use crate::server::memory::LEAST;
use crate::server::options::Timeouts;

/// Frames without content that a connection may send in a burst.
const CREDIT: u64 = 10_000;
/// Frames without content that a connection may send per second in the long run.
const CREDIT_PER_SECOND: u64 = 100;
/// Time for which we read after our last frame, so that it arrives (RFC 9112 §9.6, for HTTP/2).
const LINGER: Duration = Duration::from_secs(5);

const NEVER: u64 = u64::MAX;

/// Since when the connection waits for what, nanoseconds.
#[derive(Debug)]
pub(super) struct Moments {
    /// Idle: no request is being answered.
    idle: AtomicU64,
    /// A frame or a header block is incomplete.
    partial: AtomicU64,
    /// The peer takes no bytes that we send.
    blocked: AtomicU64,
    /// Our side is closed.
    closing: AtomicU64,
    /// Requests that are being answered.
    open: AtomicU32,
}

/// Which timeout has expired, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Idle,
    Partial,
    Blocked,
    Leaving,
    Closing,
}

impl Moments {
    pub(super) fn new(now: Time) -> Self {
        Self {
            idle: AtomicU64::new(now.as_nanos()),
            partial: AtomicU64::new(NEVER),
            blocked: AtomicU64::new(NEVER),
            closing: AtomicU64::new(NEVER),
            open: AtomicU32::new(0),
        }
    }

    /// The earliest timeout and its kind. `leaving`: since when the connection is being shut down (GOAWAY sent).
    pub(super) fn due(&self, timeouts: &Timeouts, leaving: Option<Time>) -> (Time, Due) {
        let end = |since: u64, time: Duration| match since {
            NEVER => Time::MAX,
            since => Time::from_nanos(since).checked_add(time).unwrap_or(Time::MAX),
        };
        let open = self.open.load(Relaxed) > 0;
        let idle = match leaving {
            _ if open => (Time::MAX, Due::Idle),
            None => (end(self.idle.load(Relaxed), timeouts.idle), Due::Idle),
            // The time for the peer to answer our GOAWAY.
            Some(since) => (end(since.as_nanos(), timeouts.head), Due::Leaving),
        };
        let all = [
            idle,
            (end(self.partial.load(Relaxed), timeouts.head), Due::Partial),
            (end(self.blocked.load(Relaxed), timeouts.write), Due::Blocked),
            (end(self.closing.load(Relaxed), timeouts.body.min(LINGER)), Due::Closing),
        ];
        all.into_iter().min_by_key(|(time, _)| *time).unwrap_or(idle)
    }

    /// A request has arrived.
    pub(super) fn begin(&self) {
        self.open.store(self.open.load(Relaxed) + 1, Relaxed);
    }

    /// A request is answered.
    pub(super) fn end(&self, now: Time) {
        self.open.store(self.open.load(Relaxed).saturating_sub(1), Relaxed);
        self.idle.store(now.as_nanos(), Relaxed);
    }

    /// Whether a frame is incomplete now; `anew`: a different one than before.
    pub(super) fn partial(&self, partial: bool, anew: bool, now: Time) {
        let since = match self.partial.load(Relaxed) {
            _ if !partial => NEVER,
            since if since != NEVER && !anew => since,
            _ => now.as_nanos(),
        };
        self.partial.store(since, Relaxed);
    }

    /// The peer takes nothing, or something.
    pub(super) fn blocked(&self, blocked: bool, now: Time) {
        match self.blocked.load(Relaxed) {
            NEVER if blocked => self.blocked.store(now.as_nanos(), Relaxed),
            NEVER => {}
            _ if blocked => {}
            _ => self.blocked.store(NEVER, Relaxed),
        }
    }

    /// Our side has sent everything.
    pub(super) fn closing(&self, now: Time) {
        if self.closing.load(Relaxed) == NEVER {
            self.closing.store(now.as_nanos(), Relaxed);
            self.partial.store(NEVER, Relaxed);
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) lane: Lane,
    pub(super) moments: Moments,
    /// Frames without content that may still arrive, and since when they are counted.
    credit: AtomicU64,
    credited: AtomicU64,
    /// Whether more of them arrived.
    flooded: AtomicBool,
    /// Whether to end with a reset.
    abort: AtomicBool,
    /// Bytes that wait to be sent.
    held: AtomicUsize,
    /// Streams that wait for some of them to go.
    waiting: Mutex<Vec<Waker>>,
}

impl Conn {
    pub(super) fn new(lane: Lane, now: Time) -> Self {
        Self {
            lane,
            moments: Moments::new(now),
            credit: AtomicU64::new(CREDIT),
            credited: AtomicU64::new(now.as_nanos()),
            flooded: AtomicBool::new(false),
            abort: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Allows `frames` more frames, since we sent something that the peer answers with so many.
    pub(super) fn credit(&self, frames: u64) {
        self.credit.store((self.credit.load(Relaxed) + frames).min(CREDIT), Relaxed);
    }

    /// Counts received frames without content.
    pub(super) fn charge(&self, frames: u64, now: Time) {
        let before = self.credited.load(Relaxed);
        let seconds = now.as_nanos().saturating_sub(before) / 1_000_000_000;
        if seconds > 0 {
            self.credited.store(before + seconds * 1_000_000_000, Relaxed);
            self.credit(seconds.saturating_mul(CREDIT_PER_SECOND).min(CREDIT));
        }
        let credit = self.credit.load(Relaxed);
        self.credit.store(credit.saturating_sub(frames), Relaxed);
        if frames > credit {
            self.flooded.store(true, Relaxed);
        }
    }

    pub(super) fn is_flooded(&self) -> bool {
        self.flooded.load(Relaxed)
    }

    /// The connection is to be reset when it is let go.
    pub(super) fn abort(&self) {
        self.abort.store(true, Relaxed);
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.abort.load(Relaxed)
    }

    /// Returns room for bytes to send, at least one and at most `want`, or waits until bytes were sent.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>, want: usize) -> Poll<usize> {
        let held = self.held.load(Relaxed);
        let room = self.lane.memory().allowance().saturating_sub(held);
        // Pieces of a few bytes have more overhead than content.
        if room >= want.min(LEAST) {
            return Poll::Ready(room.min(want));
        }
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// So many bytes are held from now on.
    pub(super) fn hold(&self, bytes: usize) {
        self.held.store(self.held.load(Relaxed) + bytes, Relaxed);
        self.lane.memory().add(bytes);
    }

    /// So many bytes are gone.
    pub(super) fn let_go(&self, bytes: usize) {
        self.held.store(self.held.load(Relaxed).saturating_sub(bytes), Relaxed);
        self.lane.memory().sub(bytes);
        let waiting = self.waiting.lock().map(|mut waiting| std::mem::take(&mut *waiting));
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
        body: Duration::from_secs(30),
        write: Duration::from_secs(20),
    };

    #[test]
    fn idle_is_idle_for_as_long_as_it_says() {
        let (at, moments) = (Time::from_secs, Moments::new(Time::from_secs(100)));
        assert_eq!(moments.due(&TIMEOUTS, None), (at(175), Due::Idle));
        moments.begin();
        moments.begin();
        assert_eq!(moments.due(&TIMEOUTS, None).0, Time::MAX, "answers may take what they take");
        moments.end(at(110));
        assert_eq!(moments.due(&TIMEOUTS, None).0, Time::MAX);
        moments.end(at(120));
        assert_eq!(moments.due(&TIMEOUTS, None), (at(195), Due::Idle));
        // Frames that carry no request change nothing.
        moments.partial(true, true, at(130));
        moments.partial(false, true, at(131));
        assert_eq!(moments.due(&TIMEOUTS, None), (at(195), Due::Idle));
        assert_eq!(moments.due(&TIMEOUTS, Some(at(195))), (at(205), Due::Leaving));
        moments.closing(at(196));
        assert_eq!(moments.due(&TIMEOUTS, Some(at(195))), (at(201), Due::Closing));
    }

    #[test]
    fn a_frame_has_the_time_of_a_head() {
        let (at, moments) = (Time::from_secs, Moments::new(Time::from_secs(100)));
        moments.partial(true, true, at(100));
        moments.partial(true, false, at(109));
        assert_eq!(moments.due(&TIMEOUTS, None), (at(110), Due::Partial), "bytes do not buy time");
        moments.partial(true, true, at(109));
        assert_eq!(moments.due(&TIMEOUTS, None), (at(119), Due::Partial), "the next frame has its own");
        moments.partial(false, true, at(109));
        assert_eq!(moments.due(&TIMEOUTS, None), (at(175), Due::Idle));
    }

    #[test]
    fn who_takes_nothing_is_waited_for_since_the_last_byte() {
        let (at, moments) = (Time::from_secs, Moments::new(Time::from_secs(100)));
        moments.begin();
        moments.blocked(true, at(100));
        moments.blocked(true, at(110));
        assert_eq!(moments.due(&TIMEOUTS, None), (at(120), Due::Blocked));
        moments.blocked(false, at(115));
        assert_eq!(moments.due(&TIMEOUTS, None).0, Time::MAX);
    }
}
