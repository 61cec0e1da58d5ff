//! Reports as text, in the columns and words of `netstat` where they exist there.

use super::{frames, tcp_words, times, watched};
use crate::steering;
use flowlane::KernelStats;
use flowlane::control::{ArrivalView, NetisrView, ReportView, SocketRow, SocketsView, StatsHost, StatsView};
use flowlane::metrics::steering as arrivals;
use flowlane::stack_stats::LaneStats;
use flowlane::stats::{Figures, RelayStats, TargetStats};
use flowlane_memcached::counts::Counts;
use flowlane_sys::words::counted;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The counter group of kernel sockets; only hosts on kernel sockets have it.
const KERNEL: &str = "kernel";
/// That of a relay; only hosts that are one have it, and another for each target, named `relay ADDR:PORT`.
const RELAY: &str = "relay";
/// That of a cache; only hosts that are one have it.
const MEMCACHED: &str = "memcached";

/// Whether a group of counters is the one asked for, or one of its targets.
pub(super) fn is_group(name: &str, asked: &str) -> bool {
    name == asked || name.strip_prefix(asked).is_some_and(|rest| rest.starts_with(' '))
}

/// Names of the groups of counters, in the order of display.
pub(super) fn groups() -> Vec<&'static str> {
    let mut names = Vec::new();
    LaneStats::default().groups(&mut |name, _| names.push(name));
    names.extend([KERNEL, RELAY, MEMCACHED]);
    names
}

/// Names and words of every group's counters of a host, in the order of display.
fn words(host: &StatsHost) -> Vec<(&str, Vec<(&'static str, &'static str)>)> {
    fn of(group: &dyn Figures) -> Vec<(&'static str, &'static str)> {
        let mut counters = Vec::new();
        group.each(&mut |c| counters.push((c.name, c.text)));
        counters
    }
    let mut all = Vec::new();
    LaneStats::default().groups(&mut |name, group| all.push((name, of(group))));
    if host.protocols.contains_key(KERNEL) {
        all.push((KERNEL, of(&KernelStats::default())));
    }
    for name in host.protocols.keys().filter(|name| is_group(name, RELAY)) {
        let words =
            if name.as_str() == RELAY { of(&RelayStats::default()) } else { of(&TargetStats::default()) };
        all.push((name, words));
    }
    if host.protocols.contains_key(MEMCACHED) {
        all.push((MEMCACHED, of(&Counts::default())));
    }
    all
}

/// `-s`.
pub(super) fn protocols(
    mut out: impl Write,
    stats: &StatsView,
    only: Option<&str>,
    hide_zeros: bool,
) -> io::Result<()> {
    let none = BTreeMap::new();
    for host in &stats.hosts {
        if stats.hosts.len() > 1 {
            writeln!(out, "host {}", host.host)?;
        }
        let words = words(host);
        // What the kernel keeps to itself would be zeros here.
        let kernels = host.protocols.contains_key(KERNEL);
        for (group, counters) in words.iter().filter(|(name, _)| only.is_none_or(|only| is_group(name, only)))
        {
            if kernels && only.is_some() && !host.protocols.contains_key(*group) {
                writeln!(
                    out,
                    "{group}: {}'s sockets are the kernel's, which counts for all programs: nstat -a",
                    host.host
                )?;
                continue;
            }
            let own = [KERNEL, RELAY, MEMCACHED].iter().any(|own| is_group(group, own));
            let hide_zeros = hide_zeros || (kernels && !own);
            let values = host.protocols.get(*group).unwrap_or(&none);
            if hide_zeros && values.values().all(|value| *value == 0) {
                continue;
            }
            writeln!(out, "{group}:")?;
            if *group == "tcp" {
                tcp_words::print(&mut out, values, counters, hide_zeros)?;
                continue;
            }
            let known = counters.iter().filter_map(|(name, text)| Some((*text, *values.get(*name)?)));
            // A newer instance may have counters without words here.
            let unknown = values
                .iter()
                .filter(|(name, _)| !counters.iter().any(|(known, _)| known == name))
                .map(|(name, value)| (name.as_str(), *value));
            for (text, value) in known.chain(unknown).filter(|(_, value)| !hide_zeros || *value > 0) {
                writeln!(out, "\t{value} {text}")?;
            }
        }
    }
    Ok(())
}

/// `-Q`.
pub(super) fn netisr(mut out: impl Write, netisr: &NetisrView) -> io::Result<()> {
    let c = &netisr.configuration;
    writeln!(out, "Configuration:")?;
    writeln!(out, "{:<24} {:>12} {:>12}", "Setting", "Current", "Limit")?;
    writeln!(out, "{:<24} {:>12} {:>12}", "Thread count", c.threads, c.max_threads)?;
    writeln!(out, "{:<24} {:>12} {:>12}", "Default queue limit", c.queue_limit, "n/a")?;
    writeln!(out, "{:<24} {:>12} {:>12}", "Dispatch policy", c.dispatch_policy, "n/a")?;
    let bound = if c.bound { "enabled" } else { "disabled" };
    writeln!(out, "{:<24} {:>12} {:>12}", "Threads bound to CPUs", bound, "n/a")?;
    writeln!(out, "\nProtocols:")?;
    writeln!(out, "{:<8} {:>5} {:>6} {:<6} {:<8} Flags", "Name", "Proto", "QLimit", "Policy", "Dispatch")?;
    for p in &netisr.protocols {
        writeln!(
            out,
            "{:<8} {:>5} {:>6} {:<6} {:<8} {}",
            p.name, p.protocol, p.queue_limit, p.policy, p.dispatch, p.flags
        )?;
    }
    writeln!(out, "\nWorkstreams:")?;
    writeln!(
        out,
        "{:>4} {:>3}  {:<5} {:>5} {:>5} {:>10} {:>10} {:>8} {:>10} {:>10}",
        "WSID", "CPU", "Name", "Len", "WMark", "Disp'd", "HDisp'd", "QDrops", "Queued", "Handled"
    )?;
    for w in &netisr.workstreams {
        writeln!(
            out,
            "{:>4} {:>3}  {:<5} {:>5} {:>5} {:>10} {:>10} {:>8} {:>10} {:>10}",
            w.workstream,
            w.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
            w.name,
            w.length,
            w.watermark,
            w.dispatched,
            w.hybrid_dispatched,
            w.queue_drops,
            w.queued,
            w.handled,
        )?;
    }
    writeln!(out, "\nWhere workers meet:")?;
    writeln!(
        out,
        "{:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "WSID", "Rung", "Woke", "Woken", "Waited", "HeldBack", "RoomWait", "Returned"
    )?;
    for w in &netisr.workstreams {
        let m = &w.meeting;
        writeln!(
            out,
            "{:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            w.workstream, m.rung, m.woke, m.woken, m.waited, m.held_back, m.room_waits, m.frames_came_home,
        )?;
    }
    Ok(())
}

/// `-a` and `-R`.
pub(super) fn sockets(
    mut out: impl Write,
    sockets: &SocketsView,
    only: Option<&str>,
    all: bool,
    flows: bool,
) -> io::Result<()> {
    // Sockets without a peer are shown with -a, and with -R, since a wildcard socket receives flows as well.
    let wanted =
        |s: &&SocketRow| (all || flows || s.connected) && only.is_none_or(|p| s.proto.starts_with(p));
    let rows: Vec<&SocketRow> = sockets.sockets.iter().filter(wanted).collect();
    writeln!(out, "Active sockets{}", if all { " (including servers)" } else { "" })?;
    // Columns are as wide as their content. Flows replace queues and state, so that a line fits a terminal.
    let width = |head: &str, of: fn(&SocketRow) -> &str| {
        rows.iter().map(|s| of(s).len()).chain([head.len()]).max().unwrap_or_default()
    };
    let (local, foreign) = (width("Local Address", |s| &s.local), width("Foreign Address", |s| &s.foreign));
    let kind = width("type", |s| &s.flowtype_name);
    if flows {
        writeln!(
            out,
            "{:<5} {:<local$} {:<foreign$} {:<8} {:<kind$} {:>6} {:>6}",
            "Proto", "Local Address", "Foreign Address", "flowid", "type", "bucket", "worker"
        )?;
    } else {
        writeln!(
            out,
            "{:<5} {:>6} {:>6} {:<local$} {:<foreign$} {:<11} {:>6}",
            "Proto", "Recv-Q", "Send-Q", "Local Address", "Foreign Address", "(state)", "bucket"
        )?;
    }
    for s in rows {
        if flows {
            writeln!(
                out,
                "{:<5} {:<local$} {:<foreign$} {:08x} {:<kind$} {:>6} {:>6}",
                s.proto, s.local, s.foreign, s.flowid, s.flowtype_name, s.bucket, s.worker
            )?;
        } else {
            writeln!(
                out,
                "{:<5} {:>6} {:>6} {:<local$} {:<foreign$} {:<11} {:>6}",
                s.proto, s.receive_queue, s.send_queue, s.local, s.foreign, s.state, s.bucket
            )?;
        }
    }
    if all {
        arriving(&mut out, &sockets.sockets)?;
    }
    if sockets.left_out > 0 {
        writeln!(
            out,
            "and {} more: at most 1024 of UDP and of TCP are listed for each lane",
            sockets.left_out
        )?;
    }
    if only.is_none_or(|p| p == "tcp") && !sockets.tcp_states.is_empty() {
        states(&mut out, sockets)?;
    }
    Ok(())
}

/// Where connections on kernel sockets arrive, and why that is not where their workers are.
fn arriving(out: &mut impl Write, sockets: &[SocketRow]) -> io::Result<()> {
    let arrived: Vec<(&SocketRow, &ArrivalView)> =
        sockets.iter().filter_map(|s| Some((s, s.arrival.as_ref()?))).collect();
    if arrived.is_empty() {
        return Ok(());
    }
    writeln!(out, "Where connections arrive")?;
    let width = |head: &str, of: fn(&SocketRow) -> &str| {
        arrived.iter().map(|(s, _)| of(s).len()).chain([head.len()]).max().unwrap_or_default()
    };
    let (local, foreign) = (width("Local Address", |s| &s.local), width("Foreign Address", |s| &s.foreign));
    writeln!(
        out,
        "{:<local$} {:<foreign$} {:>4} {:>6} elsewhere",
        "Local Address", "Foreign Address", "cpu", "worker"
    )?;
    let mut reasons = BTreeMap::new();
    for (s, a) in arrived {
        let why = a.elsewhere.as_deref().unwrap_or("aligned");
        if let (Some(why), Some(words)) = (&a.elsewhere, &a.why) {
            reasons.insert(why, words);
        }
        writeln!(
            out,
            "{:<local$} {:<foreign$} {:>4} {:>6} {why}",
            s.local, s.foreign, a.processor, a.worker_processor
        )?;
    }
    for (name, words) in reasons {
        writeln!(out, "{name}: {words}")?;
    }
    Ok(())
}

/// TCP by state, in the order of a connection's life.
fn states(out: &mut impl Write, sockets: &SocketsView) -> io::Result<()> {
    const LIFE: [&str; 11] = [
        "CLOSED",
        "LISTEN",
        "SYN_SENT",
        "SYN_RCVD",
        "ESTABLISHED",
        "CLOSE_WAIT",
        "FIN_WAIT_1",
        "CLOSING",
        "LAST_ACK",
        "FIN_WAIT_2",
        "TIME_WAIT",
    ];
    let counted = LIFE.iter().filter_map(|state| Some((state, sockets.tcp_states.get(*state)?)));
    let counts: Vec<String> = counted.map(|(state, n)| format!("{n} {state}")).collect();
    writeln!(out, "TCP by state: {}", counts.join(", "))?;
    Ok(())
}

/// The overview without an option: the instance, its workers and the lanes' share of the work.
pub(super) fn overview(mut out: impl Write, report: &ReportView) -> io::Result<()> {
    let i = &report.instance;
    writeln!(out, "{}, process {}, up {:.1} s", i.name, i.pid, i.uptime_ms as f64 / 1000.0)?;
    for (host, counters) in report.rss.hosts.iter().zip(&report.stats.hosts) {
        let s = &host.steering;
        let alignment = if s.received == 0 { 100.0 } else { s.aligned as f64 * 100.0 / s.received as f64 };
        writeln!(
            out,
            "{}: {}, {}, {}",
            host.host,
            counted(host.workers.len(), "bucket"),
            counted(host.table.len(), "slot"),
            host.types.join(" "),
        )?;
        match counters.protocols.get(KERNEL) {
            Some(kernel) => writeln!(out, "{}: {}", host.host, on_kernel_sockets(kernel))?,
            None => writeln!(
                out,
                "{}: {}, alignment {alignment:.1} %, {} misdirected",
                host.host,
                counted(s.received as usize, "frame"),
                s.misdirected,
            )?,
        }
        if s.foreign_hash > 0 {
            let hashes = counted(s.foreign_hash as usize, "foreign hash");
            writeln!(out, "{}: {hashes}, so hashes are computed", host.host)?;
        }
        if let Some(card) = host.card.as_ref().and_then(|c| {
            steering::card_in_words([
                c.counts.slots_moved,
                c.counts.refused,
                c.counts.followed,
                c.counts.set_again,
            ])
        }) {
            writeln!(out, "{}: card: {card}", host.host)?;
        }
        if !host.links.is_empty() {
            writeln!(out, "{}: over {}", host.host, host.links.join(" and "))?;
        }
        for given in &host.addresses {
            let server = given.server.as_ref().map_or_else(String::new, |server| format!(" from {server}"));
            let left = given.seconds_left.map_or_else(|| "for ever".to_owned(), |s| format!("for {s} s"));
            let ready = if given.ready { "" } else { ", being probed" };
            writeln!(out, "{}: {} by {}{server}, {left}{ready}", host.host, given.address, given.origin)?;
        }
        // An instance older than this command does not say.
        if !host.arrivals.is_empty() {
            write!(out, "\n{}", arrivals::table(&host.arrivals))?;
        }
    }
    for change in &report.rss.changed {
        writeln!(out, "{change}")?;
    }
    writeln!(
        out,
        "\n{:>6} {:<9} {:>6} {:>11} {:>11} {:>11} {:>11} {:>8}",
        "worker", "host", "bucket", "delivered", "sent", "aligned", "redirected", "dropped"
    )?;
    for worker in &report.workers.workers {
        for (host, lane) in worker.hosts.iter().flat_map(|h| h.lanes.iter().map(move |l| (&h.host, l))) {
            writeln!(
                out,
                "{:>6} {:<9} {:>6} {:>11} {:>11} {:>11} {:>11} {:>8}",
                worker.worker,
                host,
                lane.bucket,
                lane.delivered,
                lane.sent,
                lane.counts.aligned,
                lane.counts.redirected,
                lane.dropped,
            )?;
        }
    }
    frames::table(&mut out, &report.workers)?;
    times::table(&mut out, &report.workers)?;
    watched::long_tasks(&mut out, &report.workers.workers)?;
    if let Some(dog) = &report.watchdog {
        watched::watchdog(&mut out, dog)?;
    }
    lost(&mut out, report)
}

/// What is known of a host on kernel sockets, which shows no frames; of alignment only where workers are bound to processors.
fn on_kernel_sockets(counters: &BTreeMap<String, u64>) -> String {
    let of = |name: &str| counters.get(name).copied().unwrap_or(0);
    let mut words = vec!["kernel sockets".to_owned()];
    let mut add = |n: u64, one: &str, what: &str| {
        if n > 0 {
            words.push(format!("{}{what}", counted(n as usize, one)));
        }
    };
    add(of("accepted"), "connection", " accepted");
    add(of("connected"), "connection", " opened");
    add(of("datagrams-received"), "datagram", " received");
    add(of("datagrams-sent"), "datagram", " sent");
    let (aligned, elsewhere) = (of("aligned"), of("elsewhere"));
    if aligned + elsewhere > 0 {
        let share = aligned as f64 * 100.0 / (aligned + elsewhere) as f64;
        words.push(format!("{share:.1} % on their worker's processor"));
    }
    words.join(", ")
}

/// Losses outside the lanes: a line for each counter that is not zero.
fn lost(out: &mut impl Write, report: &ReportView) -> io::Result<()> {
    const LINK: [(&str, &str); 5] = [
        ("rx-no-frame", "times there was no free frame for a packet"),
        ("rx-ring-full", "packets found the receive ring or buffer full"),
        ("rx-bad", "received packets were too long, truncated or malformed"),
        ("tx-failed", "packets to be sent were refused"),
        ("tx-far-full", "packets found the far side's receive queue full"),
    ];
    for w in &report.workers.workers {
        for q in &w.queues {
            for (name, words) in LINK {
                let count = q.counters.get(name).copied().unwrap_or(0);
                if count > 0 {
                    writeln!(
                        out,
                        "worker {}, link {} of {}: {count} {words}",
                        w.worker, q.interface, q.host
                    )?;
                }
            }
        }
        if w.pool.move_overflow > 0 {
            let count = w.pool.move_overflow;
            writeln!(
                out,
                "worker {}: {count} packets arrived for a moving lane that already held too many",
                w.worker
            )?;
        }
    }
    for w in &report.netisr.workstreams {
        for (count, words) in [
            (w.queue_drops, "packets found the ring to another worker full"),
            (w.no_lane, "packets were for a lane that is at no worker"),
        ] {
            if count > 0 {
                writeln!(out, "worker {}: {count} {words}", w.workstream)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{StatsHost, words};

    /// How many counters a group has.
    fn groups_of(all: &[(&str, Vec<(&str, &str)>)], name: &str) -> usize {
        all.iter().find(|(group, _)| *group == name).map_or(0, |(_, counters)| counters.len())
    }

    /// A tabulator, a number of seven digits, a space and the words are one line of a terminal. TCP's stand in lines of their own.
    #[test]
    fn words_of_counters_fit_a_terminal() {
        let long = |text: &str| 8 + 7 + 1 + text.len() > 80;
        let groups = ["kernel", "relay", "relay 10.0.0.2:80", "memcached"]
            .map(|name| (name.to_owned(), Default::default()));
        let host = StatsHost { host: String::new(), protocols: groups.into() };
        let all = words(&host);
        assert!(
            groups_of(&all, "relay 10.0.0.2:80") > groups_of(&all, "relay"),
            "a target has its own words"
        );
        let long: Vec<_> = all.iter().flat_map(|(_, c)| c).filter(|(_, text)| long(text)).collect();
        assert!(long.is_empty(), "{long:#?}");
    }
}
