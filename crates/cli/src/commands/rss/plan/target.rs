//! Whose steering a plan is for: a card's as its driver tells it, a learned rule's, or the one that the options describe.

use super::super::way::Spread;
use crate::rss_options::{DefaultKey, Steering};
use crate::rule_file::{Rule, RuleOption};
use anyhow::{Context, bail};
use flowlane_rss::{Flow, Rss};

/// A steering, and what it is in words.
pub(super) struct Target {
    pub(super) rss: Rss,
    /// In place of the key's words.
    pub(super) by: String,
    /// Buckets are queues of a card.
    pub(super) queues: bool,
    rule: Option<Rule>,
}

impl Target {
    /// Of these options; `of` is the number of buckets where no card has queues.
    pub(super) fn of(
        card: Option<&str>,
        rule: &RuleOption,
        steering: &Steering,
        of: Option<usize>,
        useful: bool,
    ) -> anyhow::Result<Self> {
        if let Some(interface) = card {
            if of.is_some() {
                bail!("--of: with --card buckets are the card's queues");
            }
            let told = crate::lab_card::read(interface)?;
            let spread = Spread::of(&told, None).map_err(|why| {
                anyhow::anyhow!("--card {interface}: {why}; 'flowlane rss learn' makes a file for --rss")
            })?;
            let rss = spread.by_queue().with_context(|| format!("--card {interface}"))?;
            return Ok(Self { rss, by: format!("{interface}: {}", spread.by), queues: true, rule: None });
        }
        if let Some(read) = rule.read()? {
            if of.is_some() {
                bail!("--of: with --rss buckets are the card's queues");
            }
            let by = rule.in_words().unwrap_or_default();
            return Ok(Self { rss: read.steering()?, by, queues: true, rule: Some(read) });
        }
        let rss = steering.build(of, DefaultKey::Microsoft, useful)?;
        Ok(Self { rss, by: steering.key_in_words(), queues: false, rule: None })
    }

    /// Of a steering alone.
    pub(super) fn plain(rss: Rss) -> Self {
        Self { rss, by: String::new(), queues: false, rule: None }
    }

    /// Whether the file tells what becomes of such a packet; a key tells it of all.
    pub(super) fn knows(&self, flow: &Flow) -> bool {
        self.rule.as_ref().is_none_or(|rule| rule.knows(flow))
    }

    /// Refuses kinds of packets that the file says nothing of.
    pub(super) fn must_know_kind(&self, flow: &Flow) -> anyhow::Result<()> {
        self.rule.as_ref().map_or(Ok(()), |rule| rule.must_know_kind(flow))
    }

    /// What buckets are.
    pub(super) fn unit(&self) -> &'static str {
        if self.queues { "queue" } else { "bucket" }
    }

    /// How many of them there are: those that slots name.
    pub(super) fn units(&self) -> usize {
        let most = self.rss.table.slots().iter().map(|bucket| bucket.0).max().unwrap_or(0);
        usize::from(most) + 1
    }

    /// Flows on each of them.
    pub(super) fn load(&self, flows: &[Flow]) -> Vec<usize> {
        let mut load = vec![0; self.units()];
        flows.iter().for_each(|flow| load[usize::from(self.rss.steer(flow).bucket.0)] += 1);
        load
    }
}
