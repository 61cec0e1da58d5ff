//! A pair on a page of 80 columns.

use crate::units::{show_count, show_nanos};
use crate::wrap::listed;
use flowlane::epair::{DirectionReport, EpairReport, ImpairmentsView};
use flowlane::stats::Figures;
use std::fmt::Write as _;

/// The interfaces, and what passed each way; each queue, too, with `queues`.
pub(super) fn page(report: &EpairReport, queues: bool) -> String {
    let mut page = String::new();
    let seconds = report.uptime_ms as f64 / 1e3;
    // Writing to a string succeeds.
    let _ = writeln!(
        page,
        "epair, queues {}, workers {}, seed {}, for {seconds:.1} s",
        report.queues, report.workers, report.seed
    );
    for end in &report.ends {
        let name = match &end.name {
            Some(name) if *name == end.made_as => name.clone(),
            Some(name) => format!("{name} (made as {})", end.made_as),
            None => format!("{} (removed)", end.made_as),
        };
        let state = if end.up { "up" } else { "down" };
        let _ = writeln!(page, "  {name}: {state}, MTU {}", end.mtu);
    }
    for (direction, arrow) in report.directions.iter().zip(arrows(report)) {
        let _ = writeln!(page, "{}", listed(&format!("{arrow}:"), &in_words(&direction.impairments)));
        counters(&mut page, direction);
        if queues {
            for (number, queue) in direction.queues.iter().enumerate() {
                let _ = writeln!(
                    page,
                    "    queue {number}: packets {}, bytes {}, dropped {}, waiting {}",
                    queue.packets,
                    queue.bytes,
                    queue.dropped(),
                    queue.waiting
                );
            }
        }
    }
    page
}

/// The impairments of both directions, each from a line of its own on.
pub(super) fn impairments(report: &EpairReport) -> String {
    let lines = report.directions.iter().zip(arrows(report));
    lines
        .map(|(direction, arrow)| listed(&format!("{arrow}:"), &in_words(&direction.impairments)) + "\n")
        .collect()
}

fn arrows(report: &EpairReport) -> [String; 2] {
    let name = |number: usize| {
        let end = &report.ends[number];
        end.name.clone().unwrap_or_else(|| end.made_as.clone())
    };
    let (a, b) = (name(0), name(1));
    [format!("{a} to {b}"), format!("{b} to {a}")]
}

/// What was counted, without what was never.
fn counters(page: &mut String, direction: &DirectionReport) {
    direction.total.each(&mut |figure| {
        if figure.value > 0 || figure.name == "packets" {
            let _ = writeln!(page, "  {:>16} {}", show_count(figure.value), figure.text);
        }
    });
    if direction.interface_full > 0 {
        let full = show_count(direction.interface_full);
        let _ = writeln!(page, "  {full:>16} dropped: interface-full, not read in time");
    }
    if let Some(slots) = &direction.slots {
        let times = slots.late_us.map(|us| us.map_or("-".to_owned(), |us| show_nanos(u64::from(us) * 1000)));
        let [middle, most, nearly] = times;
        let _ = writeln!(page, "  {:>16} sent within their slot", show_count(slots.inside));
        let _ = writeln!(page, "  {:>16} sent outside of it", show_count(slots.outside));
        let _ = writeln!(page, "  {:>16} slots used", show_count(slots.used));
        let latest = show_nanos(slots.latest_ns);
        let _ =
            writeln!(page, "  late at the edge: p50 {middle}, p99 {most}, p99.9 {nearly}, at most {latest}");
    }
}

/// Impairments by the names of their options.
fn in_words(of: &ImpairmentsView) -> Vec<String> {
    let mut words = Vec::new();
    let share = |probability: f64| format!("{:.6}", probability * 100.0);
    for (name, value) in
        [("loss", of.loss), ("duplicate", of.duplicate), ("reorder", of.reorder), ("corrupt", of.corrupt)]
    {
        if value > 0.0 {
            let share = share(value);
            words.push(format!("{name} {} %", share.trim_end_matches('0').trim_end_matches('.')));
        }
    }
    for (name, value) in [("delay", of.delay_ns), ("jitter", of.jitter_ns)] {
        if value > 0 {
            words.push(format!("{name} {}", show_nanos(value)));
        }
    }
    if let Some(rate) = of.rate {
        words.push(format!("rate {} bit/s", show_count(rate)));
    }
    if let Some((cycle, slot, guard)) = &of.slots {
        words.push(format!("slot {slot} of {cycle}, guard {}", show_nanos(*guard)));
    }
    if words.is_empty() { vec!["no impairments".to_owned()] } else { words }
}
