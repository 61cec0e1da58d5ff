//! What is counted of each direction and queue.
//!
//! A worker counts in plain numbers of its own, and after each turn that did something it stores them where others may read
//! ([`Published`]): nobody else writes there, and nobody reads unless somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};

use flowlane_sys::figures;
use serde::{Deserialize, Serialize};

use crate::stats::Figures;

figures! {
    /// Packets of one direction, or of one queue of it, since the start. Each that came is passed on, dropped for one reason, or waiting; a
    /// twin is one more.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct LineCounts {
        /// The far kernel has received them; one that is to be segmented counts as one.
        packets: count "packets passed on";
        /// With the Ethernet header.
        bytes: count "bytes";
        /// Packets, or what they become.
        segments: count "segments on a wire";
        /// The fate of each segment counts then.
        cut: count "packets cut into segments here";
        /// They are delivered on that which it names.
        requeued: count "came on another queue than their hash names";
        /// Later packets overtake them.
        reordered: count "held for reordering";
        /// They are sent twice.
        duplicated: count "duplicated";
        /// A bit of them is flipped.
        corrupted: count "corrupted";
        /// They are lost on purpose.
        lost: count "dropped: loss";
        /// Too many bytes waited.
        queue_full: count "dropped: queue-full";
        /// Longer than the far MTU, its header and a tag.
        oversize: count "dropped: oversize";
        /// The far interface is down.
        far_down: count "dropped: far-down";
        /// The far kernel refused them, for a senseless header or want of memory.
        refused: count "dropped: refused";
        /// Shorter than an Ethernet header, or longer than any packet.
        bad_length: count "dropped: bad-length";
        waiting: gauge "waiting now";
        /// Reads, writes and waits.
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
