//! Transmission in slots: a cycle of a common clock is divided into slots of one length, and who has a slot sends in it only (TDMA).
//!
//! ```text
//!   0            length         2 length                         cycle
//!   ├─── slot 0 ────┼─── slot 1 ────┼── ... ──┼─── slot n-1 ────┤ slot 0 ...
//!   │  open  │guard │
//! ```
//!
//! Cycles begin at multiples of their length since the clock's epoch, so senders that read the same clock agree without a word. The clock
//! is the caller's, in nanoseconds: `CLOCK_TAI`, which leap seconds do not disturb. In the guard time at the end of a slot nothing begins
//! to be sent, so what is late, or a clock that is off by less, does not reach into the next slot.
//!
//! [`Slots`] says when; [`Edges`] keeps count of how well it was done.

use flowlane_stack::stats::Histogram;

/// Why slots make no sense: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotsError {
    /// It is not how a cycle is written.
    #[error("'{0}' is not a cycle such as 8x2ms: the number of slots, and the length of each")]
    Cycle(String),
    /// There is no such slot.
    #[error("slot {slot}: a cycle of {slots} has slots 0 to {}", .slots - 1)]
    NoSuchSlot {
        /// The one given.
        slot: u32,
        /// How many there are.
        slots: u32,
    },
    /// Nothing of the slot is left.
    #[error("a guard time of {guard} ns leaves nothing of a slot of {length} ns")]
    Guard {
        /// The guard time, nanoseconds.
        guard: u64,
        /// The slot's length, nanoseconds.
        length: u64,
    },
}

/// A cycle of slots: `8x2ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// How many slots, at least 1.
    pub slots: u32,
    /// Length of each, nanoseconds, at least 1.
    pub length: u64,
}

impl Cycle {
    /// Most slots of a cycle, and the longest cycle, nanoseconds: an hour.
    const MOST: u32 = 1 << 16;
    const LONGEST: u64 = 3_600_000_000_000;

    /// Of `slots` slots of `length` nanoseconds; `None` if there are none, too many, or if it is longer than an hour.
    #[must_use]
    pub fn new(slots: u32, length: u64) -> Option<Self> {
        let fits = (1..=Self::MOST).contains(&slots)
            && length > 0
            && length.checked_mul(u64::from(slots)).is_some_and(|all| all <= Self::LONGEST);
        fits.then_some(Self { slots, length })
    }

    fn all(self) -> u64 {
        self.length * u64::from(self.slots)
    }
}

impl std::fmt::Display for Cycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (number, unit) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")]
            .into_iter()
            .find(|(by, _)| self.length.is_multiple_of(*by))
            .map_or((self.length, "ns"), |(by, unit)| (self.length / by, unit));
        write!(f, "{}x{number}{unit}", self.slots)
    }
}

impl std::str::FromStr for Cycle {
    type Err = SlotsError;

    fn from_str(text: &str) -> Result<Self, SlotsError> {
        let parsed = || {
            let (slots, length) = text.split_once('x')?;
            let unit = length.find(|c: char| !c.is_ascii_digit())?;
            let number: u64 = length[..unit].parse().ok()?;
            let by = match &length[unit..] {
                "ns" => 1,
                "us" => 1000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                _ => return None,
            };
            Self::new(slots.parse().ok()?, number.checked_mul(by)?)
        };
        parsed().ok_or_else(|| SlotsError::Cycle(text.to_owned()))
    }
}

/// One sender's share of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    cycle: Cycle,
    slot: u32,
    guard: u64,
}

/// When a slot is open, nanoseconds of the common clock: from `opens` until before `closes`. It ends a guard time later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First moment.
    pub opens: u64,
    /// First moment at which nothing may begin to be sent any more.
    pub closes: u64,
    /// First moment of the next slot.
    pub ends: u64,
}

impl Slots {
    /// The share `slot` of a cycle, with a guard time in nanoseconds at its end.
    ///
    /// # Errors
    /// There is no such slot, or the guard time is as long as a slot.
    pub fn new(cycle: Cycle, slot: u32, guard: u64) -> Result<Self, SlotsError> {
        if slot >= cycle.slots {
            return Err(SlotsError::NoSuchSlot { slot, slots: cycle.slots });
        }
        if guard >= cycle.length {
            return Err(SlotsError::Guard { guard, length: cycle.length });
        }
        Ok(Self { cycle, slot, guard })
    }

    /// The cycle.
    #[must_use]
    pub fn cycle(&self) -> Cycle {
        self.cycle
    }

    /// Which slot of it.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The guard time, nanoseconds.
    #[must_use]
    pub fn guard(&self) -> u64 {
        self.guard
    }

    /// The window that is open at `clock` or, if none is, the next one.
    #[inline]
    #[must_use]
    pub fn window(&self, clock: u64) -> Window {
        let all = self.cycle.all();
        let begins = clock - clock % all + self.cycle.length * u64::from(self.slot);
        let opens = if clock >= begins + self.cycle.length - self.guard { begins + all } else { begins };
        let ends = opens + self.cycle.length;
        Window { opens, closes: ends - self.guard, ends }
    }

    /// When the last slot began that has begun by `clock`.
    fn began(&self, clock: u64) -> u64 {
        let all = self.cycle.all();
        let begins = clock - clock % all + self.cycle.length * u64::from(self.slot);
        if begins > clock { begins.saturating_sub(all) } else { begins }
    }

    /// Whether `clock` is in the slot, its guard time included.
    #[inline]
    #[must_use]
    pub fn holds(&self, clock: u64) -> bool {
        clock % self.cycle.all() / self.cycle.length == u64::from(self.slot)
    }
}

/// How well slots were kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edges {
    counts: EdgeCounts,
    /// Microseconds from a slot's opening to the first packet of those that had waited for it.
    late: Histogram,
    /// The opening of the slot that was used last.
    last: Option<u64>,
}

/// Packets sent in slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeCounts {
    /// Packets sent within their slot, its guard time included.
    pub inside: u64,
    /// Packets that were sent when their slot was over.
    pub outside: u64,
    /// Slots in which something was sent.
    pub used: u64,
    /// The latest that the first packet was which had waited for a slot, nanoseconds.
    pub latest: u64,
}

impl Edges {
    /// Counts a packet that could be sent from `ready` on, began to be sent at `begun` and had been sent at `done`, by the common clock.
    #[inline]
    pub fn sent(&mut self, slots: &Slots, ready: u64, begun: u64, done: u64) {
        // Guard: `slots.holds(done)` as `true` fails impair::tests::what_is_sent_outside
        let inside = slots.holds(begun) && slots.holds(done);
        self.counts.inside += u64::from(inside);
        self.counts.outside += u64::from(!inside);
        let opens = slots.began(begun);
        if self.last == Some(opens) {
            return;
        }
        self.last = Some(opens);
        self.counts.used += 1;
        if ready <= opens {
            let late = begun.saturating_sub(opens);
            self.counts.latest = self.counts.latest.max(late);
            self.late.count(u32::try_from(late.div_ceil(1000)).unwrap_or(u32::MAX));
        }
    }

    /// The counts.
    #[must_use]
    pub fn counts(&self) -> EdgeCounts {
        self.counts
    }

    /// Lateness at the edges, microseconds.
    #[must_use]
    pub fn late(&self) -> &Histogram {
        &self.late
    }

    /// Adds those of another sender.
    pub fn add(&mut self, other: &Self) {
        self.counts.inside += other.counts.inside;
        self.counts.outside += other.counts.outside;
        self.counts.used += other.counts.used;
        self.counts.latest = self.counts.latest.max(other.counts.latest);
        self.late.add(&other.late);
    }

    /// The lateness that so large a share of edges did not exceed, microseconds, to half of it; `None` without any.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u32> {
        let all: u64 = self.late.counts().iter().sum();
        let wanted = (share * all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let class = self.late.counts().iter().position(|n| {
            seen += n;
            seen >= wanted
        })?;
        Some(Histogram::bound(class).unwrap_or(u32::MAX))
    }
}
