//! Packets that the device refuses.
//!
//! A device or its queueing discipline without room refuses a packet (`NET_XMIT_DROP`, the call ends with `ENOBUFS`), the kernel leaves it in
//! the ring, and the next call tries again. A veth refuses what is longer than the MTU of its far end in the same way, and does so every
//! time. So a packet waits for so long and is then given up. Longer ones than one that was given up are not waited for again, until one
//! of that length passes. A short one fits every far end: that is for want of room, and it waits longer.

use std::time::{Duration, Instant};

/// How long a device may have no room: a far side whose processor is taken away has it again by then.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long it may have none for a short packet: an emulated card stands still while its host is busy.
const MORE_PATIENCE: Duration = Duration::from_millis(500);
/// Bytes that every link takes: a datagram of 576, which RFC 791 has every host take, behind an Ethernet header with a tag.
const SHORT: usize = 594;

/// What one queue knows of them.
#[derive(Debug)]
pub(super) struct Refused {
    /// The slot that is tried again, and since when.
    first: Option<(u32, Instant)>,
    /// Packets of so many bytes and more are hopeless.
    hopeless: usize,
}

impl Default for Refused {
    fn default() -> Self {
        Self { first: None, hopeless: usize::MAX }
    }
}

impl Refused {
    /// Whether the packet of `len` bytes in this slot, which was refused now, is to be given up.
    pub(super) fn is_hopeless(&mut self, slot: u32, len: usize, now: impl FnOnce() -> Instant) -> bool {
        // Guard: `len >= self.hopeless` as `false` fails refused::tests::a_packet_waits_and_is_given_up
        if len >= self.hopeless {
            return true;
        }
        let now = now();
        match self.first {
            Some((first, since)) if first == slot => {
                // Guard: `if len > SHORT { PATIENCE } else { MORE_PATIENCE }` as `PATIENCE` fails
                // refused::tests::a_short_packet_waits_longer
                let patience = if len > SHORT { PATIENCE } else { MORE_PATIENCE };
                // Guard: `now.duration_since(since) >= patience` as `false` fails
                // refused::tests::a_packet_waits_and_is_given_up
                let is_hopeless = now.duration_since(since) >= patience;
                if is_hopeless {
                    self.hopeless = len;
                }
                is_hopeless
            }
            _ => {
                self.first = Some((slot, now));
                false
            }
        }
    }

    /// Whether it matters that a packet passes.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.first.is_some() || self.hopeless != usize::MAX
    }

    /// A packet of `len` bytes was sent; 0 for one that was given up.
    pub(super) fn passed(&mut self, len: usize) {
        self.first = None;
        if len >= self.hopeless {
            // Guard: no `self.hopeless = usize::MAX;` fails refused::tests::a_packet_waits_and_is_given_up
            self.hopeless = usize::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_waits_and_is_given_up() {
        let (mut refused, begin) = (Refused::default(), Instant::now());
        let at = |ms| move || begin + Duration::from_millis(ms);
        assert!(!refused.is_any() && !refused.is_hopeless(7, 1000, at(0)));
        assert!(refused.is_any() && !refused.is_hopeless(7, 1000, at(49)));
        assert!(refused.is_hopeless(7, 1000, at(50)));
        refused.passed(0);
        // As long, and longer: at once. Shorter ones wait.
        assert!(refused.is_hopeless(8, 1000, at(51)) && refused.is_hopeless(9, 1400, at(51)));
        assert!(!refused.is_hopeless(10, 999, at(51)) && !refused.is_hopeless(11, 600, at(200)));
        assert!(refused.is_hopeless(11, 600, at(250)), "it waits from its own first try on");
        assert!(refused.is_hopeless(12, 600, at(250)));
        // The MTU is larger again.
        refused.passed(0);
        assert!(!refused.is_hopeless(13, 599, at(300)));
        refused.passed(1400);
        assert!(!refused.is_any());
        assert!(!refused.is_hopeless(14, 1400, at(301)));
    }

    #[test]
    fn a_short_packet_waits_longer() {
        let (mut refused, begin) = (Refused::default(), Instant::now());
        let at = |ms| move || begin + Duration::from_millis(ms);
        assert!(!refused.is_hopeless(7, SHORT, at(0)) && !refused.is_hopeless(7, SHORT, at(499)));
        assert!(refused.is_hopeless(7, SHORT, at(500)));
    }

    #[test]
    fn a_shorter_packet_that_passes_changes_nothing_for_longer_ones() {
        let (mut refused, begin) = (Refused::default(), Instant::now());
        assert!(!refused.is_hopeless(1, 1000, || begin));
        assert!(refused.is_hopeless(1, 1000, || begin + PATIENCE));
        assert!(!refused.is_hopeless(2, 99, || begin + PATIENCE));
        refused.passed(99);
        assert!(refused.is_hopeless(3, 1000, || begin + PATIENCE));
    }
}
