//! `rss plan --find-key`: a key under which given flows spread over the card as its table does.
//!
//! Keys are drawn at random, and the one whose fullest queue has least beyond its share of the table wins. What is printed is counted once
//! more with the general form of the hash, which shares no code with the fast one that the search uses.

use super::super::documents::{KeyLoad, PlanKey};
use super::target::Target;
use super::{Plan, flows};
use crate::document::value;
use crate::stdout;
use crate::steering;
use anyhow::{Context, bail, ensure};
use flowlane_rss::{Arrangement, Flow, General, Key, PacketKind, Rss, Toeplitz};
use flowlane_stack::rng::Rng;
use std::io::Write;

impl Plan {
    pub(super) fn find_key(&self) -> anyhow::Result<()> {
        let path = self.flows.as_deref().context("--find-key: for which flows? --flows FILE")?;
        ensure!((1..=1_000_000).contains(&self.tries), "--tries {}: must be 1 to 1000000", self.tries);
        let target = Target::of(self.card.as_deref(), &self.rule, &self.steering, self.of, false)?;
        let length = match (target.rss.hasher().key(), self.card.is_some()) {
            (Some(key), _) => key.as_bytes().len(),
            (None, true) => bail!(
                "--find-key: the card's hash is not Toeplitz under one key, so another key cannot be tried"
            ),
            (None, false) => bail!(
                "--find-key: the rule in the file is not Toeplitz under one key, so another key cannot be tried"
            ),
        };
        let flows = flows::read(path)?;
        let shares = shares(&target);
        let before = target.load(&flows);
        let mut best: Option<(f64, Key, Vec<usize>)> = None;
        let mut tried = 0;
        let mut rng = Rng::new(steering::seed(self.seed)?);
        while tried < self.tries {
            tried += 1;
            let mut bytes = vec![0; length];
            bytes.fill_with(|| rng.next_u64() as u8);
            let key = Key::new(&bytes)?;
            let load = with(&target, Toeplitz::new(&key)).load(&flows);
            let over = excess(&load, &shares, flows.len());
            if best.as_ref().is_none_or(|(least, ..)| over < *least) {
                let perfect = load
                    .iter()
                    .zip(&shares)
                    .all(|(n, share)| *n as f64 <= (share * flows.len() as f64).ceil());
                // Only keys that serve other flows as well.
                if key.judge(&target.rss.table).require_useful(&target.rss.config).is_ok() {
                    best = Some((over, key, load));
                    if perfect {
                        break;
                    }
                }
            }
        }
        let (_, key, load) = best.context("no useful key among those tried: try more (--tries)")?;
        let affine = General::toeplitz(&key, &target.rss.config, Arrangement::Plain);
        let again = count(&target.rss, &affine, &flows);
        ensure!(
            again == load,
            "two forms of the hash count the flows differently: this is a fault of this program"
        );
        self.print_key(&target, &key, &flows, tried, [&before, &load])
    }

    fn print_key(
        &self,
        target: &Target,
        key: &Key,
        flows: &[Flow],
        tried: usize,
        [before, load]: [&Vec<usize>; 2],
    ) -> anyhow::Result<()> {
        let mut out = stdout::lock();
        let interface = self.card.as_deref().unwrap_or("IFACE");
        let bytes: Vec<String> = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let shares = shares(target);
        if self.json {
            let row = |i: usize| KeyLoad { number: i, share: shares[i], before: before[i], flows: load[i] };
            let document = PlanKey {
                version: 1,
                key: key.to_string(),
                hkey: bytes.join(":"),
                of: target.by.clone(),
                tried,
                flows: flows.len(),
                unit: target.unit(),
                load: (0..load.len()).map(row).collect(),
            };
            writeln!(out, "{}", value(document))?;
            return Ok(());
        }
        writeln!(out, "# {} flows, table of {}", flows.len(), clipped(&target.by))?;
        writeln!(out, "# the best of {tried} keys")?;
        writeln!(out, "{:>6}  {:>7}  {:>9}  {:>9}", target.unit(), "share", "flows now", "with it")?;
        for (i, share) in shares.iter().enumerate() {
            writeln!(out, "{i:>6}  {:>5.1} %  {:>9}  {:>9}", share * 100.0, before[i], load[i])?;
        }
        // Two lines of 26 bytes at most; a shell reads them as one word.
        writeln!(out, "ethtool -X {interface} hkey \\")?;
        let lines: Vec<String> = bytes.chunks(26).map(|line| line.join(":")).collect();
        writeln!(out, "{}", lines.join(":\\\n"))?;
        Ok(())
    }
}

/// The target with another key.
fn with(target: &Target, hasher: Toeplitz) -> Target {
    let rss = &target.rss;
    Target::plain(Rss::from_parts(hasher, rss.config, rss.table.clone(), rss.buckets.clone()))
}

/// Flows on each queue by another form of the hash.
fn count(rss: &Rss, rule: &General, flows: &[Flow]) -> Vec<usize> {
    let most = rss.table.slots().iter().map(|bucket| bucket.0).max().unwrap_or(0);
    let mut load = vec![0; usize::from(most) + 1];
    for flow in flows {
        let hash = PacketKind::of(flow).and_then(|_| rule.hash(flow)).unwrap_or(0);
        load[usize::from(rss.table.bucket_of(hash).0)] += 1;
    }
    load
}

/// The part of the table's slots that names each queue.
fn shares(target: &Target) -> Vec<f64> {
    let slots = target.rss.table.slots();
    let of = |i: usize| slots.iter().filter(|bucket| usize::from(bucket.0) == i).count();
    (0..target.units()).map(|i| of(i) as f64 / slots.len() as f64).collect()
}

/// By how much the fullest queue is over its share, and a little for how uneven the rest is.
fn excess(load: &[usize], shares: &[f64], flows: usize) -> f64 {
    let used = load.iter().zip(shares).filter(|(_, share)| **share > 0.0);
    let over = used.map(|(n, share)| *n as f64 / (share * flows as f64));
    let (most, squares) =
        over.fold((0.0_f64, 0.0), |(most, sum), over| (most.max(over), sum + (over - 1.0).powi(2)));
    most + squares * 1e-3
}

/// At most so many characters that the line fits.
fn clipped(text: &str) -> String {
    text.chars().take(48).collect()
}
