//! The emulated card of `--card`: what the hosts know of it, and so by what they steer.
//!
//! A user of a card of unknown make runs `rss learn` and gives the file to `serve`. The demo does the same in one step: it learns the card's
//! rule from probes, and both hosts steer by it. A card whose rule cannot be learned is said to be one; the hosts then steer in software, by a
//! key of their own.

use anyhow::Context;
use flowlane_rss::emulated::{Card, CardOptions};
use flowlane_rss::learn::{Answer, Finding, Learned, Options, learn};
use flowlane_rss::{Flow, HashType, Rss};
use serde::Serialize;

/// What is known of the card.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Known {
    /// Its name.
    name: &'static str,
    /// Whether the hosts steer by the card's rule.
    learned: bool,
    /// Packets that were sent to learn it.
    probes: usize,
    /// What else was noticed, or why nothing was learned.
    findings: Vec<String>,
    /// Whether the card delivers packets of one flow on several queues.
    misdirects: bool,
}

/// An emulated card, the steering that fits it if its rule can be learned, and what is known of it.
pub(super) struct Emulated {
    pub(super) card: Card,
    pub(super) steering: Option<Rss>,
    pub(super) known: Known,
}

impl Emulated {
    /// The card of this name; `options.queues` workers, one a queue, serve it.
    pub(super) fn new(name: &str, options: &CardOptions) -> anyhow::Result<Self> {
        let card = Card::new(name, options).context("--card")?;
        let mut probed = card.clone();
        let mut probes = 0;
        let mut oracle = |flows: &[Flow]| {
            probes += flows.len();
            let answer = |flow| {
                let got = probed.receive(flow);
                let hash = (got.hash_type != HashType::None).then_some(got.hash);
                Some(Answer { hash, queue: got.queue })
            };
            flows.iter().map(answer).collect()
        };
        let learned = learn(&Options::new(options.seed), &mut oracle);
        let (steering, findings, misdirects) = match &learned {
            Ok(learned) => {
                let misdirects = learned.findings.iter().any(|f| matches!(f, Finding::Misdirects { .. }));
                let findings = learned.findings.iter().map(ToString::to_string).collect();
                (Some(steering(learned, options.queues.into())?), findings, misdirects)
            }
            Err(e) => (None, vec![e.to_string()], false),
        };
        let known = Known { name: card.name(), learned: steering.is_some(), probes, findings, misdirects };
        Ok(Self { card, steering, known })
    }
}

/// The card's rule and table, with worker i at queue i.
fn steering(learned: &Learned, queues: usize) -> anyhow::Result<Rss> {
    let slots: Vec<u16> = learned.table.slots().iter().map(|queue| queue.0).collect();
    Ok(Rss::of_card(learned.rule.clone(), learned.rule.config(), &slots, queues, queues)?)
}

impl Known {
    /// Why packets of one flow are out of order although the hosts keep their order, if the card does that. `set_again`: how often the card
    /// forgot its settings in the run.
    pub(super) fn reorders(&self, set_again: u64) -> Option<&'static str> {
        match (self.misdirects, set_again) {
            (true, _) => Some("the card delivers packets of one flow on several queues"),
            (false, 1..) => Some("packets were under way on other queues while the card was set again"),
            (false, 0) => None,
        }
    }

    /// For people: lines of the report.
    pub(super) fn lines(&self, set_again: u64) -> Vec<String> {
        let how = if self.learned {
            format!("rule learned by {} probes, hosts steer by it", self.probes)
        } else {
            "rule not learned, hosts steer in software".to_owned()
        };
        let mut lines = vec![format!("{}, {how}", self.name)];
        lines.extend(self.findings.iter().cloned());
        lines.extend((set_again > 0).then(|| match set_again {
            1 => "packets came on other queues: settings set again once".to_owned(),
            n => format!("packets came on other queues: settings set again {n} times"),
        }));
        lines
    }
}
