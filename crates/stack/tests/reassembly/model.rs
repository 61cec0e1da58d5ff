//! Random fragments of one datagram against a model that knows nothing but bytes.

use proptest::prelude::*;

use flowlane_stack::reassembly::ReassemblyConfig;

use crate::kit::{Bench, Name, pattern};

/// What the documentation promises, byte by byte.
#[derive(Default)]
struct Model {
    bytes: Vec<Option<u8>>,
    seen: Vec<(usize, usize)>,
    end: Option<usize>,
    given_up: bool,
}

impl Model {
    fn put(&mut self, at: usize, new: &[u8], more: bool) -> Option<Vec<u8>> {
        if self.given_up {
            return None;
        }
        let ends = at + new.len();
        let held_to = self.bytes.iter().rposition(Option::is_some).map_or(0, |p| p + 1);
        let beyond = match self.end {
            Some(end) => ends > end || (!more && ends != end),
            None => !more && ends < held_to,
        };
        if beyond {
            return None;
        }
        if self.bytes.len() < ends {
            self.bytes.resize(ends, None);
        }
        let there = &mut self.bytes[at..ends];
        if there.iter().any(Option::is_some) {
            let same =
                self.seen.contains(&(at, new.len())) && there.iter().zip(new).all(|(a, b)| *a == Some(*b));
            self.given_up = !same;
            return None;
        }
        for (place, &byte) in there.iter_mut().zip(new) {
            *place = Some(byte);
        }
        self.seen.push((at, new.len()));
        if !more {
            self.end = Some(ends);
        }
        let end = self.end?;
        let whole: Option<Vec<u8>> = self.bytes[..end].iter().copied().collect();
        if whole.is_some() {
            *self = Self::default();
        }
        whole
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// Pieces of any length at any multiple of eight, true to one datagram or not.
    #[test]
    fn overlaps_end_as_the_model_says(
        v6 in any::<bool>(),
        len in 1usize..80,
        steps in proptest::collection::vec((0u16..10, 1usize..6, 0u32..12, any::<bool>()), 1..40),
    ) {
        let data = pattern(len, 1);
        let mut b = Bench::new(ReassemblyConfig::default(), 64);
        let mut model = Model::default();
        for (id, (at, eights, kind, more)) in steps.into_iter().enumerate() {
            let name = Name { v6, host: 1, id: 1 };
            let at = usize::from(at) * 8;
            // Mostly pieces of the datagram itself; sometimes any bytes of any length.
            let (bytes, more) = if kind < 10 && at < len {
                let end = (at + eights * 8).min(len);
                (data[at..end].to_vec(), end < len)
            } else {
                (pattern(eights * 8 - usize::from(!more) * (kind as usize % 8), id as u32), more)
            };
            let want = model.put(at, &bytes, more);
            prop_assert_eq!(b.put(name, at as u16, &bytes, more), want);
            b.check();
        }
    }
}
