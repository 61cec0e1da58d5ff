//! The page for people: changes in groups that have one reason, old and new value of each.

use super::super::words::line;
use super::Tuning;
use crate::wrap::{WIDTH, wrapped};
use flowlane::card::Cpus;
use flowlane::card::tune::{Setting, Step};
use flowlane_sys::words::counted;
use std::fmt::Write as _;

/// Changes of a group that are printed.
const ROWS: usize = 256;

/// The page.
pub(super) fn page(tuning: &Tuning) -> String {
    let Tuning { card, around, plan, done } = tuning;
    let mut page =
        format!("{}: {}", tuning.name(), card.driver.as_ref().map_or("no driver known", |d| &d.name));
    if let Some(node) = around.node {
        let near = around.near.as_ref().map_or(String::new(), |near| format!(" (CPUs {near})"));
        let _ = write!(page, ", NUMA node {node}{near}");
    }
    page.push('\n');
    line(&mut page, "queues", &homes(plan.queues, &plan.cpus));
    let rows: Vec<(&Step, Option<&String>)> = match done {
        Some(done) => done.iter().map(|done| (&done.step, done.refused.as_ref())).collect(),
        None => plan.steps.iter().map(|step| (step, None)).collect(),
    };
    let mut rest = rows.as_slice();
    while let Some((first, _)) = rest.first() {
        let len = rest.iter().take_while(|row| same_group(first, row.0)).count();
        let (rows, behind) = rest.split_at(len);
        group(&mut page, first, rows);
        rest = behind;
    }
    page.push('\n');
    let name = tuning.name();
    let refused = tuning.refused();
    let end = match (done, rows.len()) {
        (_, 0) => "Everything fits together: nothing to change.".to_owned(),
        (None, n) => {
            format!("Nothing was changed. 'flowlane rss tune {name} --apply' makes {}.", counted(n, "change"))
        }
        (Some(_), n) => format!(
            "{} made{}. 'flowlane rss restore {name}' takes {} back.",
            counted(n - refused, "change"),
            if refused > 0 { format!(", {refused} refused") } else { String::new() },
            if n - refused == 1 { "it" } else { "them" },
        ),
    };
    wrapped(&end, WIDTH).iter().for_each(|line| page += &format!("{line}\n"));
    for note in &plan.notes {
        for (i, part) in wrapped(note, WIDTH - 4).into_iter().enumerate() {
            let _ = writeln!(page, "{} {part}", if i == 0 { "  *" } else { "   " });
        }
    }
    page
}

/// Queues and their processors.
fn homes(queues: u32, cpus: &[u32]) -> String {
    let mut list = cpus.to_vec();
    list.sort_unstable();
    list.dedup();
    let each = if list.len() == cpus.len() { "" } else { ", in turn" };
    match queues {
        0 => "none are known".to_owned(),
        1 => "1".to_owned(),
        _ => format!("{queues}, at {} {}{each}", if list.len() == 1 { "CPU" } else { "CPUs" }, Cpus(list)),
    }
}

/// Whether two changes have one heading: one kind of setting, and one reason.
fn same_group(a: &Step, b: &Step) -> bool {
    heading(a.setting) == heading(b.setting) && a.why == b.why
}

fn heading(setting: Setting) -> &'static str {
    match setting {
        Setting::Queues => "queues",
        Setting::Fields(_) => "hash fields",
        Setting::Table => "table",
        Setting::Interrupt(_) => "interrupts",
        Setting::SendInterrupt(_) => "interrupts for sending",
        Setting::Xps(_) | Setting::XpsQueues(_) => "XPS",
        Setting::Rps(_) => "RPS",
        Setting::Rfs(_) => "RFS",
    }
}

fn group(page: &mut String, first: &Step, rows: &[(&Step, Option<&String>)]) {
    page.push('\n');
    let head = format!("{}: {}", heading(first.setting), first.why);
    for (i, part) in wrapped(&head, WIDTH - 4).into_iter().enumerate() {
        let _ = writeln!(page, "  {}{part}", if i == 0 { "" } else { "  " });
    }
    for (step, refused) in rows.iter().take(ROWS) {
        let what = match step.setting {
            Setting::Queues => "queues".to_owned(),
            Setting::Table => "table".to_owned(),
            Setting::Fields(kind) => kind.to_string(),
            Setting::XpsQueues(queue) => format!("queue {queue}, of queues"),
            Setting::Interrupt(queue)
            | Setting::SendInterrupt(queue)
            | Setting::Xps(queue)
            | Setting::Rps(queue)
            | Setting::Rfs(queue) => format!("queue {queue}"),
        };
        let was = step.was.as_ref().map_or("new".to_owned(), ToString::to_string);
        let _ = writeln!(page, "    {what:<18} {was:>16} ─▶ {}", step.to);
        if let Some(why) = refused {
            wrapped(&format!("refused: {why}"), WIDTH - 8).iter().for_each(|part| {
                let _ = writeln!(page, "        {part}");
            });
        }
    }
    if rows.len() > ROWS {
        let _ = writeln!(page, "    ... and {} more", rows.len() - ROWS);
    }
}
