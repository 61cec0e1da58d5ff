//! What is counted of each direction and queue.
//!
//! A worker counts in plain numbers of its own, and after each turn that did something it stores them where others may read
//! ([`Published`]): nobody else writes there, and nobody reads unless somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $field:ident: $name:literal $words:literal;)+) => {
        /// Counters of one direction, or of one queue of it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub struct LineCounts {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        /// How many there are.
        const COUNTERS: usize = [$($name),+].len();

        impl LineCounts {
            fn values(&self) -> [u64; COUNTERS] {
                [$(self.$field),+]
            }

            fn of([$($field),+]: [u64; COUNTERS]) -> Self {
                Self { $($field),+ }
            }

            /// Calls `f` with the name of each counter, words for people, and its value.
            pub fn each(&self, f: &mut dyn FnMut(&'static str, &'static str, u64)) {
                $(f($name, $words, self.$field);)+
            }

            /// Adds those of another queue.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

counts! {
    /// Packets that the far kernel has received; one that is to be segmented counts as one.
    packets: "packets" "packets passed on";
    /// Their bytes, with the Ethernet header.
    bytes: "bytes" "bytes";
    /// What these packets are on a wire: packets, or the segments they become.
    segments: "segments" "segments on a wire";
    /// Packets cut into segments here, because the fate of each segment counts.
    cut: "cut" "packets cut into segments here";
    /// Packets that came on another queue than their hash names; they are delivered on that which it names.
    requeued: "requeued" "came on another queue than their hash names";
    /// Held so that later packets overtake them.
    reordered: "reordered" "held for reordering";
    /// Sent twice.
    duplicated: "duplicated" "duplicated";
    /// With a flipped bit.
    corrupted: "corrupted" "corrupted";
    /// Dropped: lost on purpose.
    lost: "lost" "dropped: loss";
    /// Dropped: too many bytes waited.
    queue_full: "queue-full" "dropped: queue-full";
    /// Dropped: longer than the far MTU, its header and a tag.
    oversize: "oversize" "dropped: oversize";
    /// Dropped: the far interface is down.
    far_down: "far-down" "dropped: far-down";
    /// Dropped: the far kernel refused it, for a senseless header or want of memory.
    refused: "refused" "dropped: refused";
    /// Dropped: shorter than an Ethernet header, or longer than any packet.
    bad_length: "bad-length" "dropped: bad-length";
    /// Packets that wait now.
    waiting: "waiting" "waiting now";
    /// Reads, writes and waits: system calls.
    system_calls: "system-calls" "system calls";
}

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
        LineCounts::of(std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded() {
        let counts = LineCounts::of(std::array::from_fn(|i| i as u64 + 1));
        let published = Published::default();
        published.store(&counts);
        assert_eq!(published.load(), counts);
        let mut names = Vec::new();
        counts.each(&mut |name, words, value| {
            assert!(words.len() < 48, "{words}");
            names.push((name, value));
        });
        assert_eq!(names.len(), COUNTERS);
        assert!(names.iter().enumerate().all(|(i, (_, value))| *value == i as u64 + 1));
        let mut twice = counts;
        twice.add(&counts);
        assert_eq!(twice.dropped(), 2 * counts.dropped());
    }
}
