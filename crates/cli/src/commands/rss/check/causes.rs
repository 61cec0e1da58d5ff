//! The causes of deviations, and the samples that each cause explains.

use super::packet::Seen;
use flowlane_rss::Flow;
use std::collections::BTreeSet;

/// Examples that are kept of each cause.
const EXAMPLES: usize = 3;

/// A packet that deviates: what was expected of it, and what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Example {
    pub(super) flow: Flow,
    pub(super) expected: String,
    pub(super) seen: String,
}

/// The cause of a deviation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    /// Its name, as JSON and the page print it.
    pub(super) code: &'static str,
    /// The description.
    pub(super) what: String,
    /// Samples that it explains.
    pub(super) packets: usize,
    pub(super) examples: Vec<Example>,
    /// Further examples, as a run of Flowlane words them.
    pub(super) said: Vec<String>,
    /// Commands that remove it.
    pub(super) mend: Vec<String>,
}

impl Cause {
    pub(super) fn new(code: &'static str, what: String, mend: Vec<String>) -> Self {
        Self { code, what, packets: 0, examples: Vec::new(), said: Vec::new(), mend }
    }
}

/// The causes found so far, and the samples that deviate.
#[derive(Debug, Default)]
pub(super) struct Causes {
    pub(super) list: Vec<Cause>,
    off: BTreeSet<usize>,
}

impl Causes {
    /// The cause of this code. `make` gives description and commands of a new one.
    pub(super) fn cause(
        &mut self,
        code: &'static str,
        make: impl FnOnce() -> (String, Vec<String>),
    ) -> &mut Cause {
        let at = self.list.iter().position(|cause| cause.code == code).unwrap_or_else(|| {
            let (what, mend) = make();
            self.list.push(Cause::new(code, what, mend));
            self.list.len() - 1
        });
        &mut self.list[at]
    }

    /// Counts sample `number` as deviating for this cause. A sample that deviates already keeps its first cause.
    pub(super) fn hit(
        &mut self,
        (number, seen): (usize, &Seen),
        code: &'static str,
        make: impl FnOnce() -> (String, Vec<String>),
        found: (String, String),
    ) {
        // Guard: `!self.off.insert(number)` as `false` fails check::tests::a_packet_is_off_once
        if !self.off.insert(number) {
            return;
        }
        let cause = self.cause(code, make);
        cause.packets += 1;
        if cause.examples.len() < EXAMPLES && cause.examples.iter().all(|example| example.flow != seen.flow) {
            cause.examples.push(Example { flow: seen.flow, expected: found.0, seen: found.1 });
        }
    }

    pub(super) fn is_off(&self, number: usize) -> bool {
        self.off.contains(&number)
    }
}
