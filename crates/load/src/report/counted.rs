//! Times while a lane counts them: a [`Times`] whose entries have 32 bits, which is half of its memory.
//!
//! An entry of 32 bits is full after four thousand million times. [`Counted::settle`] moves what is counted into a whole [`Times`] long before
//! that; the recorder calls it with every snapshot, so that recording a time looks at nothing.

use hdrhistogram::Histogram;

use super::times::{LONGEST, Times};

/// Times that are counted here at most, before they are settled; no entry can have more.
const FULL: u64 = 1 << 31;

/// Times in nanoseconds, as in [`Times`].
#[derive(Debug, Clone)]
pub(super) struct Counted {
    now: Histogram<u32>,
    settled: Option<Box<Times>>,
}

impl Default for Counted {
    fn default() -> Self {
        let now = Histogram::new(3).unwrap_or_else(|_| unreachable!("the number of digits is a constant"));
        Self { now, settled: None }
    }
}

impl From<Times> for Counted {
    fn from(times: Times) -> Self {
        Self { settled: Some(Box::new(times)), ..Self::default() }
    }
}

impl Counted {
    /// Records a time; 0 counts as one nanosecond.
    #[inline]
    pub(super) fn record(&mut self, nanos: u64) {
        // It grows as far as a minute needs.
        let _ = self.now.record_n(nanos.clamp(1, LONGEST), 1);
    }

    /// Records a time `count` times.
    pub(super) fn record_n(&mut self, nanos: u64, count: u64) {
        match u32::try_from(count) {
            Ok(few) if count < FULL => {
                let _ = self.now.record_n(nanos.clamp(1, LONGEST), few);
                self.settle();
            }
            _ => self.settled.get_or_insert_default().record_n(nanos, count),
        }
    }

    /// Moves what is counted away if it is much. At most 2^31 times may be recorded between two calls.
    pub(super) fn settle(&mut self) {
        // Guard: `self.now.len() >= FULL` as `false` fails report::counted
        if self.now.len() >= FULL {
            add(&self.now, self.settled.get_or_insert_default());
            self.now.reset();
        }
    }

    /// Adds all that was recorded to `sum`.
    pub(super) fn add_to(&self, sum: &mut Times) {
        if let Some(settled) = &self.settled {
            sum.add(&settled.0);
        }
        add(&self.now, sum);
    }
}

fn add(counted: &Histogram<u32>, sum: &mut Times) {
    for value in counted.iter_recorded() {
        sum.record_n(value.value_iterated_to(), u64::from(value.count_at_value()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_histogram() {
        let (mut counted, mut times) = (Counted::default(), Times::default());
        let mut rng = flowlane_stack::rng::Rng::new(3);
        for nanos in (0..20_000).map(|_| u64::from(rng.below(u32::MAX)) >> rng.below(32)).chain([0, u64::MAX])
        {
            counted.record(nanos);
            times.record(nanos);
        }
        let mut sum = Times::default();
        counted.add_to(&mut sum);
        assert_eq!(sum, times);
        Counted::from(times.clone()).add_to(&mut sum);
        assert_eq!(sum.count(), 2 * times.count());
    }

    #[test]
    fn more_than_an_entry_holds_is_counted() {
        let mut counted = Counted::default();
        for _ in 0..5 {
            counted.record_n(70, FULL - 1);
        }
        counted.record_n(70, 1 << 40);
        let mut sum = Times::default();
        counted.add_to(&mut sum);
        assert_eq!((sum.count(), sum.max()), (5 * (FULL - 1) + (1 << 40), 70));
        assert!(counted.now.len() < 2 * FULL);
    }
}
