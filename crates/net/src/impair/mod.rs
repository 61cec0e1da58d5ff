//! Impairments: what a bad line does to packets, done on purpose. Loss, corruption, duplication, a rate, delay, jitter, reordering, and
//! transmission in slots of a common clock.
//!
//! ```text
//!   offer ▸ loss ▸ corruption ▸ duplication ▸ rate ▸ delay and jitter ▸ reordering ▸ held ▸ (slot) ▸ release
//! ```
//!
//! This is sans-I/O: packets and the time come in as arguments, and randomness from a seed, so a run can be repeated. An [`Impairer`]
//! belongs to one sender; those of one direction share a [`Wire`], which has the rate. What waits is copied into a ring of bytes
//! (`held`), which is the bound, and is named `queue-full` when it is not enough: no memory is allocated for a packet.
//!
//! **Order is kept** whatever the jitter: a packet never leaves before one that was offered earlier, unless it is chosen for reordering.
//! netem's jitter reorders; this one does not.
//!
//! Packets have the virtio-net header of [`flowlane_sys::tun`] in front, and may be longer than the MTU, to be segmented. Such a packet is
//! charged as the segments it becomes ([`Offload::wire_bytes`]). Where the fate of each segment counts, it has to be cut into them before
//! it is offered: [`Impairments::cuts`] says when, [`Offload::cut`] does it.
//!
//! The faults of the [pair link](crate::Quirks) are another thing: those of a card in a test, counted in flushes and not in time, some of
//! which no line could make.

mod clock;
mod held;
mod segments;
mod slots;
#[cfg(test)]
mod tests;
mod wire;

pub use clock::common_clock;
pub use segments::{Offload, Segments};
pub use slots::{Cycle, EdgeCounts, Edges, Slots, SlotsError, Window};
pub use wire::Wire;

use std::sync::Arc;

use flowlane_stack::rng::Rng;
use flowlane_sys::tun::HEADER;
use held::Held;

/// How much later than its time a packet leaves that is to be overtaken, nanoseconds.
pub const OVERTAKEN: u64 = 1_000_000;
/// A packet that would take longer than this on the wire is cut into its segments first, nanoseconds: it would leave as one burst.
const LONG: u64 = 1_000_000;
/// Bytes of packets that wait in one ring, usually.
pub const USUAL_LIMIT: usize = 16 << 20;

/// How likely something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chance(u64);

impl Chance {
    const ONE: u64 = 1 << 32;

    /// Of a probability from 0 to 1; `None` for another number.
    #[must_use]
    pub fn new(probability: f64) -> Option<Self> {
        (0.0..=1.0).contains(&probability).then(|| Self((probability * Self::ONE as f64).round() as u64))
    }

    /// The probability, 0 to 1.
    #[must_use]
    pub fn probability(self) -> f64 {
        self.0 as f64 / Self::ONE as f64
    }

    /// Whether it can happen at all.
    #[must_use]
    pub fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Throws the dice, if there is a need.
    #[inline]
    fn happens(self, rng: &mut Rng) -> bool {
        self.0 > 0 && u64::from(rng.next_u32()) < self.0
    }
}

/// What is done to the packets of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impairments {
    /// A packet is lost.
    pub loss: Chance,
    /// One bit behind the Ethernet header is flipped, after the checksum has been completed.
    pub corrupt: Chance,
    /// A packet comes twice.
    pub duplicate: Chance,
    /// A packet leaves [`OVERTAKEN`] later than it would.
    pub reorder: Chance,
    /// Time under way, nanoseconds.
    pub delay: u64,
    /// The delay varies by up to this much to either side, evenly, nanoseconds.
    pub jitter: u64,
    /// Bits a second that pass, with Ethernet headers and without preamble, checksum and gap.
    pub rate: Option<u64>,
    /// Bytes of packets that may wait, with 16 bytes of bookkeeping each; as many again of those that are to be overtaken.
    pub limit: usize,
    /// Packets leave in slots only.
    pub slots: Option<Slots>,
}

impl Default for Impairments {
    fn default() -> Self {
        let never = Chance::default();
        Self {
            loss: never,
            corrupt: never,
            duplicate: never,
            reorder: never,
            delay: 0,
            jitter: 0,
            rate: None,
            limit: USUAL_LIMIT,
            slots: None,
        }
    }
}

impl Impairments {
    /// Whether nothing is done to packets.
    #[must_use]
    pub fn is_none(&self) -> bool {
        Self { limit: self.limit, ..Self::default() } == *self
    }

    /// Whether rate, delay and jitter are those of `other`, so that what waits leaves at the same times with both.
    #[must_use]
    pub fn keeps_the_times_of(&self, other: &Self) -> bool {
        let times = |rules: &Self| (rules.rate, rules.delay, rules.jitter);
        times(self) == times(other)
    }

    /// Whether packets can have to wait.
    fn holds(&self) -> bool {
        self.delay > 0
            || self.jitter > 0
            || self.rate.is_some()
            || self.slots.is_some()
            || !self.reorder.is_never()
    }

    /// Whether a packet that takes `bytes` on the wire is to be cut into its segments before it is offered.
    #[must_use]
    pub fn cuts(&self, bytes: u64) -> bool {
        let each = [self.loss, self.corrupt, self.duplicate, self.reorder].into_iter().any(|c| !c.is_never());
        each || self.rate.is_some_and(|rate| wire::nanos(bytes, rate) > LONG)
    }
}

/// What happened to packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImpairCounts {
    /// Lost on purpose.
    pub lost: u64,
    /// With a flipped bit.
    pub corrupted: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held so that others overtake.
    pub reordered: u64,
    /// Dropped because too much waited.
    pub full: u64,
}

/// What became of a packet that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It leaves now, so many times.
    Pass(u8),
    /// It was copied and leaves later; its twin, if it has one, too.
    Held,
    /// It is lost on purpose.
    Lost,
    /// It is dropped: too much waits already.
    Full,
}

/// The impairments of one direction as one sender applies them.
#[derive(Debug)]
pub struct Impairer {
    rules: Impairments,
    rng: Rng,
    wire: Arc<Wire>,
    held: Held,
    late: Held,
    /// When the last packet leaves.
    last: u64,
    counts: ImpairCounts,
}

impl Impairer {
    /// With randomness from `seed`. All senders of a direction have the same `wire`.
    #[must_use]
    pub fn new(rules: Impairments, seed: u64, wire: Arc<Wire>) -> Self {
        let mut new = Self {
            rules: Impairments::default(),
            rng: Rng::new(seed),
            wire,
            held: Held::default(),
            late: Held::default(),
            last: 0,
            counts: ImpairCounts::default(),
        };
        let wire = new.wire.clone();
        new.set(0, rules, wire);
        new
    }

    /// Changes the impairments at the time `now`, nanoseconds. What waits already leaves before what comes.
    ///
    /// All senders of a direction are given the same `wire`. The one that they have already says that what waits leaves as it was to. A new
    /// one goes with a change of [times](Impairments::keeps_the_times_of): what waits leaves as though it came now, unless that is later.
    pub fn set(&mut self, now: u64, rules: Impairments, wire: Arc<Wire>) {
        if rules.holds() {
            self.held.grow(rules.limit);
        }
        if !rules.reorder.is_never() {
            self.late.grow(rules.limit);
        }
        self.rules = rules;
        if !Arc::ptr_eq(&self.wire, &wire) {
            self.wire = wire;
            // Guard: no `self.time_anew(now);` fails impair::tests::what_waits_is_timed_anew_with_other_times
            self.time_anew(now);
        }
    }

    /// What waits leaves when the rules have it leave from now on, or when it was to: whichever is earlier. The order stays.
    fn time_anew(&mut self, now: u64) {
        let Self { rules, wire, held, late, last, .. } = self;
        *last = 0;
        let mut again = |due: u64, packet: &[u8]| {
            let passed = match rules.rate {
                Some(rate) => {
                    let alone = packet.len().saturating_sub(HEADER) as u64;
                    let bytes = Offload::of(packet).map_or(alone, |offload| offload.wire_bytes());
                    wire.charge_again(now, bytes, rate, due)
                }
                None => now,
            };
            let due = due.min(passed.saturating_add(rules.delay).saturating_add(rules.jitter));
            *last = due.max(*last);
            due
        };
        held.retime(&mut again);
        late.retime(|due, packet| again(due.saturating_sub(OVERTAKEN), packet) + OVERTAKEN);
    }

    /// The impairments.
    #[must_use]
    pub fn rules(&self) -> &Impairments {
        &self.rules
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> ImpairCounts {
        self.counts
    }

    /// How many packets wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.held.len() + self.late.len()
    }

    /// Offers a packet with its header at the time `now` (nanoseconds), for the far side's `queue`. `bytes`: what it takes on the wire.
    #[inline]
    pub fn offer(&mut self, now: u64, packet: &mut [u8], queue: u16, bytes: u64) -> Fate {
        if self.rules.loss.happens(&mut self.rng) {
            self.counts.lost += 1;
            return Fate::Lost;
        }
        if self.rules.corrupt.happens(&mut self.rng) {
            self.counts.corrupted += u64::from(segments::corrupt(packet, &mut self.rng));
        }
        let twice = self.rules.duplicate.happens(&mut self.rng);
        // Guard: `self.held.is_empty()` as `true` fails impair::tests::what_waits_leaves_before
        if !self.rules.holds() && self.held.is_empty() {
            self.counts.duplicated += u64::from(twice);
            return Fate::Pass(1 + u8::from(twice));
        }
        let fate = self.hold(now, packet, queue, bytes);
        if !twice {
            return fate;
        }
        match (fate, self.hold(now, packet, queue, bytes)) {
            (Fate::Pass(n), Fate::Pass(m)) => {
                self.counts.duplicated += 1;
                Fate::Pass(n + m)
            }
            (first, Fate::Held) => {
                self.counts.duplicated += 1;
                first
            }
            (first, _) => first,
        }
    }

    /// Finds out when it leaves, and keeps it until then.
    fn hold(&mut self, now: u64, packet: &[u8], queue: u16, bytes: u64) -> Fate {
        let late = self.rules.reorder.happens(&mut self.rng);
        let ring = if late { &mut self.late } else { &mut self.held };
        // Before the wire is charged: what is dropped takes none of it.
        // Guard: `!ring.has_room(packet.len())` as `false` fails impair::tests::what_does_not_fit
        if !ring.has_room(packet.len()) {
            self.counts.full += 1;
            return Fate::Full;
        }
        let mut due = match self.rules.rate {
            Some(rate) => self.wire.charge(now, bytes, rate),
            None => now,
        };
        due += self.rules.delay;
        if self.rules.jitter > 0 {
            let span = 2 * self.rules.jitter + 1;
            let shift = ((u128::from(self.rng.next_u64()) * u128::from(span)) >> 64) as u64;
            due = (due + shift).saturating_sub(self.rules.jitter).max(now);
        }
        // Guard: `due.max(self.last)` as `due` fails impair::tests::jitter_keeps_the_order
        due = due.max(self.last);
        self.last = due;
        // Guard: `self.held.is_empty()` as `true` fails impair::tests::what_waits_leaves_before
        if !late && due <= now && self.held.is_empty() && self.rules.slots.is_none() {
            return Fate::Pass(1);
        }
        self.counts.reordered += u64::from(late);
        let ring = if late { &mut self.late } else { &mut self.held };
        ring.push(if late { due + OVERTAKEN } else { due }, queue, packet);
        Fate::Held
    }

    /// When the first of the packets that wait may leave; `None` if none waits. In slots it leaves at that time or in the next slot after.
    #[must_use]
    #[inline]
    pub fn next_due(&self) -> Option<u64> {
        match (self.held.due(), self.late.due()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next packet that leaves at the time `now`, with the time at which it was due, and its queue.
    #[inline]
    pub fn release(&mut self, now: u64) -> Option<(u64, u16, &[u8])> {
        let ring = match (self.held.due(), self.late.due()) {
            (Some(a), Some(b)) if b < a => &mut self.late,
            (None, Some(_)) => &mut self.late,
            _ => &mut self.held,
        };
        if ring.due()? > now { None } else { ring.pop() }
    }
}
