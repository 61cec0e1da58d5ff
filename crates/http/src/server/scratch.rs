//! State shared by the connections of a worker, used by one at a time: buffers, and the part of an answer that changes once a second.
//!
//! It belongs to the thread and is borrowed for one poll of one task, so lanes may move between workers.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flowlane::Time;
use http::HeaderValue;

use super::date;

/// Bytes read at once.
pub(crate) const INPUT: usize = 64 << 10;
/// Answers are sent when there are this many bytes of them.
pub(crate) const OUTPUT: usize = 64 << 10;

/// Buffers of one thread.
pub(crate) struct Scratch {
    pub(crate) input: Box<[u8]>,
    pub(crate) output: Vec<u8>,
    pub(crate) prepared: Prepared,
}

/// Parts of answers that change once a second.
pub(crate) struct Prepared {
    /// `Server` and `Date`, whole lines.
    pub(crate) common: Vec<u8>,
    /// The same after the first line of an answer 200.
    pub(crate) ok: Vec<u8>,
    /// The value of `Date`.
    pub(crate) date: HeaderValue,
    until: Time,
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// Calls `f` with this thread's buffers. Must not be nested.
pub(crate) fn with<R>(now: Time, f: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        let scratch = scratch.get_or_insert_with(|| Scratch {
            input: vec![0; INPUT].into_boxed_slice(),
            output: Vec::with_capacity(2 * OUTPUT),
            prepared: Prepared::none(),
        });
        if now >= scratch.prepared.until {
            scratch.prepared.renew(now);
        }
        f(scratch)
    })
}

impl Prepared {
    fn none() -> Self {
        let date = HeaderValue::from_static("");
        Self { common: Vec::new(), ok: Vec::new(), date, until: Time::ZERO }
    }

    fn renew(&mut self, now: Time) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.until = now + (Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into()));
        let date = date::write(since.as_secs());
        self.common = format!("Server: flowlane\r\nDate: {date}\r\n").into_bytes();
        self.date = HeaderValue::try_from(date).unwrap_or_else(|_| HeaderValue::from_static(""));
        self.ok = [b"HTTP/1.1 200 OK\r\n", &self.common[..]].concat();
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let common = b"Date: x\r\n".to_vec();
        Self { ok: [b"HTTP/1.1 200 OK\r\n", &common[..]].concat(), common, until: Time::MAX, ..Self::none() }
    }
}
