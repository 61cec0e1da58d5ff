//! Deviations that the settings show by themselves: they changed during the check, contradict one another, or send answers by other queues than
//! packets arrive on.

use super::super::super::show::findings;
use super::super::causes::Causes;
use super::super::ours::Run;
use super::super::{Checked, Settings};
use super::processors::on;
use flowlane::card::Cpus;
use flowlane_sys::words::counted;
use std::collections::{BTreeMap, BTreeSet};

/// Settings that differ between start and end: another program changes them.
pub(super) fn changed(checked: &Checked, causes: &mut Causes) {
    let (before, after) = (&checked.before, &checked.after);
    let name = before.card.interface.name();
    let queues = |settings: &Settings| settings.around.receive.len();
    if queues(before) != queues(after) || before.card.channels.ok() != after.card.channels.ok() {
        causes.cause("channels", || {
            let what = format!(
                "the number of queues was changed while it was checked, from {} to {}: the table, interrupts and XPS may be others now",
                queues(before),
                queues(after)
            );
            (what, vec![format!("flowlane rss show {name}")])
        });
    }
    let mut parts = Vec::new();
    if let (Ok(a), Ok(b)) = (&before.card.rss, &after.card.rss) {
        let whole = [
            (a.key != b.key, "key"),
            (a.function != b.function || a.transform != b.transform, "function"),
            // A run of Flowlane changes slots when its lanes move.
            // Guard: `!checked.runs.iter().any(Run::changed_the_table)` as `true` fails
            // check::tests::lanes_that_move
            (a.table != b.table && !checked.runs.iter().any(Run::changed_the_table), "table"),
            // Guard: `a.fields != b.fields` as `false` fails check::tests::settings_that_change
            (a.fields != b.fields, "fields"),
        ];
        parts.extend(whole.iter().filter(|(differs, _)| *differs).map(|(_, part)| *part));
    }
    if before.card.rules.as_ref().ok() != after.card.rules.as_ref().ok() {
        parts.push("rules");
    }
    if !parts.is_empty() {
        causes.cause("changed", || {
            let parts = parts.join(", ");
            let what = format!(
                "the card's {parts} changed while it was checked: two programs set it, or a program and a person; stop one of them"
            );
            (what, vec![format!("flowlane rss restore {name}")])
        });
    }
}

/// Contradictions that `rss show` finds. Packets need not show them.
pub(super) fn contradictions(checked: &Checked, causes: &mut Causes) {
    let after = &checked.after;
    for finding in findings::of(&after.card, &after.around) {
        let code = match finding.code {
            "missing-queue" => "channels",
            "shared-cpu" | "far-node" => "interrupt",
            "xps" => "xps",
            "rfs" => "rfs",
            // Without interrupts, RPS to one processor is the only way to bind a queue to a processor.
            "rps"
                if after.around.receive.iter().any(|queue| {
                    on(&queue.rps).is_some_and(|cpus| !queue.interrupts.is_empty() || cpus.only().is_none())
                }) =>
            {
                "rps"
            }
            _ => continue,
        };
        causes.cause(code, || (finding.what, finding.mend));
    }
    // The table leaves out queues and is a driver's default for fewer: not its user's wish.
    let (Ok(rss), there) = (&after.card.rss, after.around.receive.len() as u32) else { return };
    let named: BTreeSet<u32> = rss.table.iter().copied().collect();
    let queues = after.card.rings.unwrap_or(there);
    let most = named.last().copied().unwrap_or(0) + 1;
    if !rss.table.is_empty() && most < queues && rss.is_default_table(most) && !rss.is_default_table(queues) {
        let name = after.card.interface.name();
        causes.cause("channels", || {
            let what = format!(
                "the table names {} only, and there are {queues}: the number of queues was changed after the table was made",
                counted(most as usize, "queue")
            );
            (what, vec![format!("ethtool -X {name} equal {queues}")])
        });
    }
}

/// XPS against the table: a processor receives packets of some queues and sends on none of them.
pub(super) fn transmit(checked: &Checked, causes: &mut Causes) {
    let name = checked.before.card.interface.name();
    let around = &checked.before.around;
    let mut received: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for seen in &checked.taken.seen {
        received.entry(seen.cpu).or_default().extend(seen.queue);
    }
    for (cpu, queues) in received {
        let sends: Vec<u32> = around
            .transmit
            .iter()
            .filter(|transmit| on(&transmit.xps_cpus).is_some_and(|cpus| cpus.0.contains(&cpu)))
            .map(|transmit| transmit.number)
            .collect();
        let there = queues.iter().any(|queue| around.transmit.iter().any(|t| t.number == *queue));
        // Guard: `sends.iter().any(|queue| queues.contains(queue))` as `false` fails
        // check::tests::nothing_is_off
        if sends.is_empty() || !there || sends.iter().any(|queue| queues.contains(queue)) {
            continue;
        }
        let first = queues.first().copied().unwrap_or(0);
        causes.cause("xps", || {
            let what = format!(
                "XPS: CPU {cpu} receives on queue {} and sends on queue {}",
                Cpus(queues.iter().copied().collect()),
                Cpus(sends)
            );
            let mask = format!("{:x}{}", 1u32 << (cpu % 32), ",00000000".repeat(cpu as usize / 32));
            (what, vec![format!("echo {mask} > /sys/class/net/{name}/queues/tx-{first}/xps_cpus")])
        });
    }
}
