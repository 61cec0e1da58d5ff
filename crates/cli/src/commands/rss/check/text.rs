//! The report as a page of text.

use super::super::words::line;
use super::Checked;
use super::causes::Cause;
use super::judge::Judged;
use crate::wrap::{WIDTH, wrapped};
use flowlane::card::Cpus;
use flowlane_rss::Flow;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// Most processors that are listed.
const CORES: usize = 64;

/// The page.
pub(super) fn page(checked: &Checked, judged: &Judged) -> String {
    let mut page = String::new();
    let taken = &checked.taken;
    let card = &checked.before.card;
    let _ = writeln!(
        page,
        "{}: {}, looked at for {:.1} s",
        card.interface.name(),
        card.driver.as_ref().map_or("no driver known", |driver| &driver.name),
        taken.seconds
    );
    let received = taken.after.received.saturating_sub(taken.before.received);
    let others =
        if taken.others > 0 { format!(", and {} that are not IP", taken.others) } else { String::new() };
    line(&mut page, "packets", &format!("{received} received, {} sampled{others}", judged.sampled));
    let share = |of: usize| 100.0 * of as f64 / judged.sampled.max(1) as f64;
    if judged.sampled > 0 {
        line(
            &mut page,
            "aligned",
            &format!("{} of {}, {:.2} %", judged.aligned, judged.sampled, share(judged.aligned)),
        );
        let [queue, cpu, thread] = judged.known.map(share);
        line(
            &mut page,
            "judged",
            &format!("queue of {queue:.0} %, processor of {cpu:.0} %, threads of {thread:.0} %"),
        );
    }
    for run in &checked.runs {
        let percent = 100.0 * run.aligned as f64 / run.received.max(1) as f64;
        let said = format!(
            "{} (process {}), host {}: {} frames, {percent:.2} % aligned, {} redirected, {} misdirected, {} with a foreign hash",
            run.name, run.pid, run.host, run.received, run.redirected, run.misdirected, run.foreign
        );
        line(&mut page, "Flowlane", &said);
    }
    let cost = 100.0 * taken.own_seconds / taken.seconds.max(1e-9);
    line(&mut page, "cost", &format!("{cost:.2} % of one processor for this program"));
    cores(&mut page, judged);
    causes(&mut page, &judged.causes);
    match judged.verdict() {
        None if judged.sampled == 0 => page += "\nNothing is off in what Flowlane itself counted.\n",
        None => page += "\nNothing is off.\n",
        Some(_) => {}
    }
    if !judged.unseen.is_empty() {
        page += "\nNot seen:\n";
        for what in &judged.unseen {
            for (i, part) in wrapped(what, WIDTH - 4).into_iter().enumerate() {
                let _ = writeln!(page, "{} {part}", if i == 0 { "  -" } else { "   " });
            }
        }
    }
    page
}

fn cores(page: &mut String, judged: &Judged) {
    if judged.cores.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "\n  {:>4} {:>9} {:>9}  {:<10} {:>11} {:>9} {:>7} {:>7}",
        "CPU", "sampled", "aligned", "queues", "interrupts", "softirqs", "by RPS", "dropped"
    );
    for (cpu, core) in judged.cores.iter().take(CORES) {
        let aligned = match core.packets {
            0 => "-".to_owned(),
            packets => format!("{:.2} %", 100.0 * core.aligned as f64 / packets as f64),
        };
        let queues = Cpus(core.queues.iter().copied().collect()).to_string();
        let queues = if queues.len() > 10 { format!("{}...", &queues[..7]) } else { queues };
        let of = &core.counters;
        let _ = writeln!(
            page,
            "  {cpu:>4} {:>9} {aligned:>9}  {queues:<10} {:>11} {:>9} {:>7} {:>7}",
            core.packets, of.interrupts, of.softirqs, of.by_rps, of.dropped
        );
    }
}

fn causes(page: &mut String, causes: &[Cause]) {
    if !causes.is_empty() {
        page.push_str("\nWhat is off, and what mends it:\n");
    }
    for cause in causes {
        let count =
            if cause.packets > 0 { format!(" ({} of the samples)", cause.packets) } else { String::new() };
        for (i, part) in
            wrapped(&format!("{}: {}{count}", cause.code, cause.what), WIDTH - 4).into_iter().enumerate()
        {
            let _ = writeln!(page, "{} {part}", if i == 0 { "  *" } else { "   " });
        }
        for example in &cause.examples {
            let _ = writeln!(page, "      {}", flow(&example.flow));
            for part in wrapped(&format!("expected {}; seen {}", example.expected, example.seen), WIDTH - 8) {
                let _ = writeln!(page, "        {part}");
            }
        }
        for said in &cause.said {
            for part in wrapped(said, WIDTH - 6) {
                let _ = writeln!(page, "      {part}");
            }
        }
        for command in &cause.mend {
            // A command is not wrapped, so that it can be copied.
            let _ = writeln!(page, "      {command}");
        }
    }
}

/// A flow on one line, or on two where two addresses of IPv6 are wider than a terminal.
fn flow(flow: &Flow) -> String {
    let ports =
        matches!(flow.protocol, flowlane_rss::Protocol::TCP | flowlane_rss::Protocol::UDP) && !flow.fragment;
    let end = |ip, port| if ports { SocketAddr::new(ip, port).to_string() } else { ip.to_string() };
    let fragment = if flow.fragment { ", a fragment" } else { "" };
    let (from, to) = (end(flow.src, flow.src_port), end(flow.dst, flow.dst_port));
    let said = format!("{from} -> {to}, {}{fragment}", flow.protocol);
    if said.len() <= WIDTH - 6 { said } else { format!("{from} ->\n      {to}, {}{fragment}", flow.protocol) }
}
