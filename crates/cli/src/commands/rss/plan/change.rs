//! `rss plan --change-to TABLE`: what another table would move.
//!
//! A slot moves when it names another queue, and with it all flows of that slot. Tables are written as ethtool(8) takes them, and dealt
//! out as it deals them: `equal N` in turn, `weight W0 W1 ...` in runs.

use super::super::documents::{ChangeLoad, MovedSlot, PlanChange};
use super::target::Target;
use super::{Plan, flows};
use crate::document::value;
use crate::rule_file::Rule;
use crate::stdout;
use anyhow::{Context, bail, ensure};
use flowlane_rss::{Bucket, Flow, Indirection, MAX_BUCKETS};
use std::io::Write;
use std::path::Path;

impl Plan {
    pub(super) fn change(&self, to: &str) -> anyhow::Result<()> {
        let target = Target::of(self.card.as_deref(), &self.rule, &self.steering, self.of, false)?;
        let before = &target.rss.table;
        let after = table(to, before.len())?;
        let flows = self.flows.as_deref().map(flows::read).transpose()?.unwrap_or_default();
        if let Some(flow) = flows.iter().find(|flow| !target.knows(flow)) {
            bail!(
                "--flows: {} -> {} ({}): the file of --rss does not tell this flow",
                flow.src,
                flow.dst,
                flow.protocol
            );
        }
        let moved: Vec<(usize, u16, u16)> = (0..before.len())
            .map(|slot| (slot, before.slots()[slot].0, after.slots()[slot].0))
            .filter(|(_, from, to)| from != to)
            .collect();
        let slot = |flow: &Flow| target.rss.steer(flow).slot;
        let queues =
            before.slots().iter().chain(after.slots()).map(|bucket| usize::from(bucket.0)).max().unwrap_or(0)
                + 1;
        let mut rows = vec![[0_usize; 4]; queues];
        for slot in 0..before.len() {
            rows[usize::from(before.slots()[slot].0)][0] += 1;
            rows[usize::from(after.slots()[slot].0)][1] += 1;
        }
        let mut moving = 0;
        for flow in &flows {
            let slot = slot(flow);
            let (from, to) = (before.slots()[slot], after.slots()[slot]);
            rows[usize::from(from.0)][2] += 1;
            rows[usize::from(to.0)][3] += 1;
            moving += usize::from(from != to);
        }
        let mut out = stdout::lock();
        if self.json {
            let slot = |&(slot, from, to): &(usize, u16, u16)| MovedSlot { slot, from, to };
            let row =
                |(number, &[slots_before, slots_after, flows_before, flows_after]): (usize, &[usize; 4])| {
                    ChangeLoad { number, slots_before, slots_after, flows_before, flows_after }
                };
            let document = PlanChange {
                version: 1,
                of: target.by.clone(),
                change_to: to.to_owned(),
                unit: target.unit(),
                slots: before.len(),
                moved_slots: moved.iter().map(slot).collect(),
                flows: flows.len(),
                moved_flows: moving,
                load: rows.iter().enumerate().map(row).collect(),
            };
            writeln!(out, "{}", value(document))?;
            return Ok(());
        }
        let share = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
        writeln!(out, "# {}", target.by.chars().take(76).collect::<String>())?;
        writeln!(
            out,
            "slots moved  {} of {} ({:.1} %)",
            moved.len(),
            before.len(),
            share(moved.len(), before.len())
        )?;
        if !flows.is_empty() {
            writeln!(out, "flows moved  {moving} of {} ({:.1} %)", flows.len(), share(moving, flows.len()))?;
        }
        writeln!(
            out,
            "{:>6}  {:>12}  {:>12}  {:>12}  {:>12}",
            target.unit(),
            "slots before",
            "slots after",
            "flows before",
            "flows after"
        )?;
        for (i, [a, b, c, d]) in rows.iter().enumerate().filter(|(_, row)| row.iter().any(|n| *n > 0)) {
            writeln!(out, "{i:>6}  {a:>12}  {b:>12}  {c:>12}  {d:>12}")?;
        }
        Ok(())
    }
}

/// `equal N`, `weight W0 W1 ...`, queues as in `0,1,2,3`, or the table of a learned rule, for so many slots.
fn table(text: &str, slots: usize) -> anyhow::Result<Indirection> {
    let said = || format!("--change-to '{text}'");
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |word: &str| word.parse::<u32>().ok().filter(|n| *n as usize <= MAX_BUCKETS);
    let queues: Vec<Bucket> = match words.as_slice() {
        ["equal", n] => {
            let queues = number(n).filter(|n| *n > 0);
            let queues = queues.with_context(|| format!("{}: not from 1 to {MAX_BUCKETS} queues", said()))?;
            (0..slots).map(|slot| Bucket((slot % queues as usize) as u16)).collect()
        }
        ["weight", rest @ ..] => {
            let weights: Option<Vec<u32>> = rest.iter().map(|word| number(word)).collect();
            let weights = weights.filter(|w| w.iter().any(|n| *n > 0) && w.len() <= MAX_BUCKETS);
            weighted(
                &weights
                    .with_context(|| format!("{}: no weights, numbers from 0 to {MAX_BUCKETS}", said()))?,
                slots,
            )
        }
        _ if Path::new(text).exists() => Rule::read(Path::new(text))?.table.slots().to_vec(),
        _ => {
            let list: Option<Vec<u32>> = text.split(',').map(|word| number(word.trim())).collect();
            let list = list.with_context(|| {
                format!("{}: neither 'equal N', 'weight W ...', queues such as 0,1,2,3, nor a file", said())
            })?;
            ensure!(
                list.iter().all(|queue| (*queue as usize) < MAX_BUCKETS),
                "{}: queues are 0 to {}",
                said(),
                MAX_BUCKETS - 1
            );
            list.into_iter().map(|queue| Bucket(queue as u16)).collect()
        }
    };
    ensure!(queues.len() == slots, "{}: {} slots, and the table has {slots}", said(), queues.len());
    Indirection::from_slots(queues).with_context(said)
}

/// As ethtool fills a table by weights: each queue a run of its share, rounded down where runs end.
fn weighted(weights: &[u32], slots: usize) -> Vec<Bucket> {
    let sum: usize = weights.iter().map(|weight| *weight as usize).sum();
    let mut queue = 0;
    let mut partial = weights[0] as usize;
    (0..slots)
        .map(|slot| {
            while slot >= slots * partial / sum {
                queue += 1;
                partial += weights[queue] as usize;
            }
            Bucket(queue as u16)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_as_ethtool_writes_them() {
        let queues = |text: &str, slots| -> Vec<u16> {
            table(text, slots).unwrap().slots().iter().map(|bucket| bucket.0).collect()
        };
        assert_eq!(queues("equal 3", 8), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(queues("weight 1 0 3", 8), [0, 0, 2, 2, 2, 2, 2, 2]);
        assert_eq!(queues("weight 5 1 0 3", 10), [0, 0, 0, 0, 0, 1, 3, 3, 3, 3]);
        assert_eq!(queues("0,1, 1,0", 4), [0, 1, 1, 0]);
        for bad in [
            "equal 0",
            "equal",
            "weight",
            "weight 0 0",
            "weight -1",
            "0,1",
            "0,x,1,1",
            "0,1,2,5000",
            "nonsense",
        ] {
            assert!(table(bad, 4).is_err(), "{bad}");
        }
    }
}
