//! Server-sent events at a known pace (`/events/N/MS`), so that what measures them can be proved: event n is due so long after the head,
//! whatever became of those before it.

use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use flowlane::{Sleep, Time, sleep_until};

/// The content type of a stream of events.
pub(crate) const STREAM: &str = "text/event-stream";
/// Most events of a stream, and most bytes of an event.
pub(crate) const MOST: u64 = 1_000_000;
pub(crate) const LARGEST: u64 = 64 << 10;

/// A stream of events that is to be sent.
#[derive(Debug)]
pub(crate) struct Events {
    /// Events in all, and sent.
    count: u64,
    sent: u64,
    /// From the head to the first, and from one to the next.
    first: Duration,
    gap: Duration,
    /// Bytes of the data of each.
    size: usize,
    /// Data of an event behind the last.
    end: Option<String>,
    begun: Option<Time>,
    sleep: Option<Sleep>,
}

impl Events {
    pub(crate) fn new(count: u64, first: Duration, gap: Duration, size: usize, end: Option<String>) -> Self {
        Self { count, sent: 0, first, gap, size, end, begun: None, sleep: None }
    }

    /// Whether all are sent.
    pub(crate) fn is_over(&self) -> bool {
        self.sent == self.count
    }

    /// When the next is due.
    pub(crate) fn due(&mut self, now: Time) -> Time {
        let begun = *self.begun.get_or_insert(now);
        let gaps = u32::try_from(self.sent).unwrap_or(u32::MAX);
        begun + self.first + self.gap.saturating_mul(gaps)
    }

    /// Whether the next is not due yet; the task is woken when it is.
    pub(crate) fn is_early(&mut self, cx: &mut Context<'_>) -> bool {
        let Ok(now) = flowlane::now() else { return false };
        let due = self.due(now);
        if due <= now {
            return false;
        }
        let sleep = self.sleep.get_or_insert_with(|| sleep_until(due));
        let early = Pin::new(sleep).poll(cx).is_pending();
        if !early {
            self.sleep = None;
        }
        early
    }

    /// Writes the next event, and behind the last of all the one that ends the stream.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) {
        let begin = out.len() + b"data: ".len();
        // Writing to memory cannot fail.
        let _ = write!(out, "data: {} ", self.sent);
        out.resize((begin + self.size).max(out.len()), b'.');
        out.extend_from_slice(b"\n\n");
        self.sent += 1;
        self.sleep = None;
        if self.is_over()
            && let Some(end) = &self.end
        {
            let _ = write!(out, "data: {end}\n\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_due_by_the_head_and_are_as_long_as_they_say() {
        let ms = Duration::from_millis;
        let mut events = Events::new(3, ms(50), ms(20), 8, Some("[DONE]".into()));
        let (begun, mut out) = (Time::from_nanos(7), Vec::new());
        for (n, late) in [(0, 0), (1, 500), (2, 0)] {
            assert_eq!(events.due(begun + ms(late)), begun + ms(50 + 20 * n));
            events.write(&mut out);
        }
        assert!(events.is_over());
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "data: 0 ......\n\ndata: 1 ......\n\ndata: 2 ......\n\ndata: [DONE]\n\n");
    }
}
