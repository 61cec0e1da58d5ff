//! What is counted of each direction and queue.
//!
//! A worker counts in plain numbers of its own, and after each turn that did something it stores them where others may read
//! ([`Published`]): nobody else writes there, and nobody reads unless somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};

use flowlane_sys::figures;
use serde::{Deserialize, Serialize};

use crate::stats::Figures;

figures! {
    /// Counters of one direction, or of one queue of it.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct LineCounts {
        /// Packets that the far kernel has received; one that is to be segmented counts as one.
        packets: count "packets passed on";
        /// Their bytes, with the Ethernet header.
        bytes: count "bytes";
        /// What these packets are on a wire: packets, or the segments they become.
        segments: count "segments on a wire";
        /// Packets cut into segments here, because the fate of each segment counts.
        cut: count "packets cut into segments here";
        /// Packets that came on another queue than their hash names; they are delivered on that which it names.
        requeued: count "came on another queue than their hash names";
        /// Held so that later packets overtake them.
        reordered: count "held for reordering";
        /// Sent twice.
        duplicated: count "duplicated";
        /// With a flipped bit.
        corrupted: count "corrupted";
        /// Dropped: lost on purpose.
        lost: count "dropped: loss";
        /// Dropped: too many bytes waited.
        queue_full: count "dropped: queue-full";
        /// Dropped: longer than the far MTU, its header and a tag.
        oversize: count "dropped: oversize";
        /// Dropped: the far interface is down.
        far_down: count "dropped: far-down";
        /// Dropped: the far kernel refused it, for a senseless header or want of memory.
        refused: count "dropped: refused";
        /// Dropped: shorter than an Ethernet header, or longer than any packet.
        bad_length: count "dropped: bad-length";
        /// Packets that wait now.
        waiting: gauge "waiting now";
        /// Reads, writes and waits: system calls.
        system_calls: count "system calls";
    }
}

/// How many there are.
const COUNTERS: usize = LineCounts::FIELDS.len();

impl LineCounts {
    /// Packets dropped for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lost + self.queue_full + self.oversize + self.far_down + self.refused + self.bad_length
    }
}

/// The counters of one queue where others may read them, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Published([AtomicU64; COUNTERS]);

impl Published {
    /// To be called by the worker of the queue only.
    #[inline]
    pub(super) fn store(&self, counts: &LineCounts) {
        for (to, from) in self.0.iter().zip(counts.values()) {
            to.store(from, Ordering::Relaxed);
        }
    }

    pub(super) fn load(&self) -> LineCounts {
        let (mut counts, mut cells) = (LineCounts::default(), self.0.iter());
        counts.each_with(&LineCounts::default(), &mut |_, value, _| {
            *value = cells.next().map_or(0, |cell| cell.load(Ordering::Relaxed));
        });
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded() {
        let (mut counts, mut n) = (LineCounts::default(), 0);
        counts.each_with(&LineCounts::default(), &mut |_, value, _| {
            n += 1;
            *value = n;
        });
        let published = Published::default();
        published.store(&counts);
        assert_eq!(published.load(), counts);
        let mut names = Vec::new();
        counts.each(&mut |figure| {
            assert!(figure.text.len() < 48, "{}", figure.text);
            names.push((figure.name, figure.value));
        });
        assert_eq!(names.len(), COUNTERS);
        assert!(names.iter().enumerate().all(|(i, (_, value))| *value == i as u64 + 1));
        let mut twice = counts;
        twice.add(&counts);
        assert_eq!(twice.dropped(), 2 * counts.dropped());
    }
}
