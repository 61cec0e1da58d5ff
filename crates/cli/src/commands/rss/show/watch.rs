//! `rss show --watch`: packets and bytes of each queue now.
//!
//! The counts are the kernel's or the driver's ([`card::queue_counts`]), so this needs no privileges and looks at no packet. The first page has the
//! counts as they are, later ones what was added, a second; ^C ends it with what was added in all.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use flowlane::card::{self, CountedBy, QueueCount, QueueCounts, Told};
use serde_json::Value;

use crate::document::{document, value};
use crate::interrupt::Interrupt;
use crate::stdout;
use crate::units::show_count;

/// Time between two looks at whether ^C came.
const LOOK: Duration = Duration::from_millis(20);
/// Columns of the bar of a queue that has all packets.
const BAR: usize = 16;
/// Lines of queues.
const QUEUES: usize = 256;

/// Shows the queues of `interface` until ^C.
pub(super) fn run(interface: &str, every: Duration, json: bool) -> anyhow::Result<()> {
    ensure!(every >= Duration::from_millis(10), "--watch: must be at least 10ms");
    let interrupt = Interrupt::listen()?;
    let begun = Instant::now();
    let first = counts(interface)?;
    let terminal = !json && io::stdout().is_terminal();
    let show = |counts: &QueueCounts, over: Over| {
        let text = if json {
            format!("{}\n", document(interface, counts, over))
        } else {
            page(interface, counts, over)
        };
        let mut out = stdout::lock();
        if terminal && !matches!(over, Over::Watch(_)) {
            write!(out, "\x1b[H\x1b[2J")?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()
    };
    show(&first, Over::Always)?;
    let (mut before, mut at, mut sum) = (first.clone(), begun, zero(&first));
    loop {
        let next = at + every;
        while !interrupt.came() && Instant::now() < next {
            std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
        }
        let (now, read) = (counts(interface), Instant::now());
        if let Ok(now) = &now {
            let added = since(&before, now);
            add(&mut sum, &added);
            if !interrupt.came() {
                show(&added, Over::Interval(read - at))?;
            }
        }
        // What was counted until a card went away is not lost with it.
        if interrupt.came() || now.is_err() {
            show(&sum, Over::Watch(read - begun))?;
            return now.map(drop);
        }
        before = now?;
        at = read;
    }
}

/// What the counts of a page were added up over.
#[derive(Debug, Clone, Copy)]
enum Over {
    /// All the time since the driver began to count.
    Always,
    /// The time since the last page.
    Interval(Duration),
    /// The whole watch.
    Watch(Duration),
}

fn counts(interface: &str) -> anyhow::Result<QueueCounts> {
    let told: Told<QueueCounts> = card::queue_counts(interface)?;
    match told {
        Ok(counts) => Ok(counts),
        Err(card::Untold::Unsupported) => bail!(
            "{interface}: neither the kernel nor the driver counts the packets of single queues; 'ip -s link show {interface}' has the \
             sum of all, 'flowlane rss check {interface}' samples packets"
        ),
        Err(why) => Err(why).with_context(|| format!("{interface}: its counts cannot be read")),
    }
}

fn zero(of: &QueueCounts) -> QueueCounts {
    QueueCounts { source: of.source, receive: Vec::new(), transmit: Vec::new() }
}

/// What was added between two readings. A queue that is new, or whose counts went back since its driver began anew, has what it shows now.
fn since(before: &QueueCounts, now: &QueueCounts) -> QueueCounts {
    let one = |before: &[QueueCount], now: &QueueCount| {
        let old = before.iter().find(|old| old.queue == now.queue).copied().unwrap_or_default();
        let less =
            |now: Option<u64>, old: Option<u64>| now.map(|n| n.checked_sub(old.unwrap_or(0)).unwrap_or(n));
        QueueCount {
            queue: now.queue,
            packets: less(now.packets, old.packets),
            bytes: less(now.bytes, old.bytes),
            drops: less(now.drops, old.drops),
        }
    };
    QueueCounts {
        source: now.source,
        receive: now.receive.iter().map(|count| one(&before.receive, count)).collect(),
        transmit: now.transmit.iter().map(|count| one(&before.transmit, count)).collect(),
    }
}

fn add(sum: &mut QueueCounts, more: &QueueCounts) {
    let plus = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    };
    for (sum, more) in [(&mut sum.receive, &more.receive), (&mut sum.transmit, &more.transmit)] {
        for count in more {
            let at = sum.iter().position(|have| have.queue == count.queue).unwrap_or_else(|| {
                sum.push(QueueCount { queue: count.queue, ..QueueCount::default() });
                sum.len() - 1
            });
            let have = sum[at];
            sum[at] = QueueCount {
                queue: count.queue,
                packets: plus(have.packets, count.packets),
                bytes: plus(have.bytes, count.bytes),
                drops: plus(have.drops, count.drops),
            };
        }
    }
}

/// Queues of both directions in one list, by rising number.
fn lines(counts: &QueueCounts) -> Vec<(u32, Option<QueueCount>, Option<QueueCount>)> {
    let mut numbers: Vec<u32> =
        counts.receive.iter().chain(&counts.transmit).map(|count| count.queue).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let of = |list: &[QueueCount], queue| list.iter().find(|count| count.queue == queue).copied();
    numbers
        .into_iter()
        .map(|queue| (queue, of(&counts.receive, queue), of(&counts.transmit, queue)))
        .collect()
}

fn sum_of(list: &[QueueCount], field: fn(&QueueCount) -> Option<u64>) -> Option<u64> {
    list.iter().filter_map(field).fold(None, |sum, n| Some(sum.unwrap_or(0u64).saturating_add(n)))
}

fn page(interface: &str, counts: &QueueCounts, over: Over) -> String {
    let by = match counts.source {
        CountedBy::Netdev => "the kernel's netdev family",
        CountedBy::Statistics => "the driver's statistics",
    };
    let (title, seconds) = match over {
        Over::Always => (format!("since the driver began to count, by {by}"), None),
        Over::Interval(time) => {
            (format!("a second, over the last {:.1} s", time.as_secs_f64()), Some(time.as_secs_f64()))
        }
        Over::Watch(time) => (format!("in all, in {:.1} s", time.as_secs_f64()), None),
    };
    let number = |count: Option<u64>| match (count, seconds) {
        (None, _) => "-".to_owned(),
        (Some(n), None) => short(n),
        (Some(n), Some(seconds)) => short((n as f64 / seconds.max(1e-3)).round() as u64),
    };
    let all = sum_of(&counts.receive, |count| count.packets).unwrap_or(0);
    let mut page = format!("{interface}: {title}\n");
    page += &format!(
        "  {:>5} {:>9} {:>9} {:>7}  {:<BAR$} {:>9} {:>9} {:>6}\n",
        "queue", "received", "bytes", "share", "", "sent", "bytes", "drops"
    );
    let line = |name: &str, share: Option<f64>, receive: [Option<u64>; 3], transmit: [Option<u64>; 3]| {
        let drops = match (receive[2], transmit[2]) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        format!(
            "  {name:>5} {:>9} {:>9} {:>7}  {:<BAR$} {:>9} {:>9} {:>6}\n",
            number(receive[0]),
            number(receive[1]),
            share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            share.map_or(String::new(), bar),
            number(transmit[0]),
            number(transmit[1]),
            number(drops),
        )
    };
    let of = |count: Option<QueueCount>| {
        count.map_or([None; 3], |count| [count.packets, count.bytes, count.drops])
    };
    let list = lines(counts);
    for (queue, receive, transmit) in list.iter().take(QUEUES) {
        let packets = receive.and_then(|count| count.packets).filter(|_| all > 0);
        let share = packets.map(|n| n as f64 / all as f64);
        page += &line(&queue.to_string(), share, of(*receive), of(*transmit));
    }
    if list.len() > QUEUES {
        page += &format!("  ... and {} more\n", list.len() - QUEUES);
    }
    let sums = |list: &[QueueCount]| {
        [sum_of(list, |c| c.packets), sum_of(list, |c| c.bytes), sum_of(list, |c| c.drops)]
    };
    page += &line("all", None, sums(&counts.receive), sums(&counts.transmit));
    page.lines().map(|line| format!("{}\n", line.trim_end())).chain([String::from("\n")]).collect()
}

fn bar(share: f64) -> String {
    let columns = (share * BAR as f64).round() as usize;
    "█".repeat(if share > 0.0 { columns.max(1) } else { 0 })
}

/// A number in at most nine columns.
fn short(n: u64) -> String {
    match n {
        0..1_000_000 => show_count(n),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        1_000_000_000..1_000_000_000_000 => format!("{:.2} G", n as f64 / 1e9),
        1_000_000_000_000..1_000_000_000_000_000 => format!("{:.2} T", n as f64 / 1e12),
        _ => format!("{:.1} P", n as f64 / 1e15),
    }
}

document! {
    /// Packets and bytes of each queue.
    Document {
        /// 1.
        version: u32,
        /// The card's interface.
        interface: String,
        /// The kernel's netdev family, or the driver's own statistics (`ethtool -S`).
        #[cfg_attr(test, schemars(extend("enum" = ["netdev", "statistics"])))]
        counted_by: &'static str,
        /// `begin`: the counts as they are; `interval`: what was added since the line before; `end`: what was added in all.
        #[cfg_attr(test, schemars(extend("enum" = ["begin", "interval", "end"])))]
        kind: &'static str,
        /// The time over which it was added; null for `begin`.
        seconds: Option<f64>,
        /// Queues that receive.
        receive: Vec<Count>,
        /// Queues that send.
        transmit: Vec<Count>,
    }
    /// A queue.
    Count {
        /// Its number.
        queue: u32,
        /// Packets; null where they are not counted.
        packets: Option<u64>,
        /// Their bytes.
        bytes: Option<u64>,
        /// Packets that the card or its driver dropped at this queue.
        drops: Option<u64>,
    }
}

fn document(interface: &str, counts: &QueueCounts, over: Over) -> Value {
    let (kind, seconds) = match over {
        Over::Always => ("begin", None),
        Over::Interval(time) => ("interval", Some(time.as_secs_f64())),
        Over::Watch(time) => ("end", Some(time.as_secs_f64())),
    };
    let one = |c: &QueueCount| Count { queue: c.queue, packets: c.packets, bytes: c.bytes, drops: c.drops };
    value(Document {
        version: 1,
        interface: interface.to_owned(),
        counted_by: match counts.source {
            CountedBy::Netdev => "netdev",
            CountedBy::Statistics => "statistics",
        },
        kind,
        seconds,
        receive: counts.receive.iter().map(one).collect(),
        transmit: counts.transmit.iter().map(one).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(receive: &[(u32, u64, u64)]) -> QueueCounts {
        let count = |&(queue, packets, bytes): &(u32, u64, u64)| QueueCount {
            queue,
            packets: Some(packets),
            bytes: Some(bytes),
            drops: None,
        };
        let receive: Vec<QueueCount> = receive.iter().map(count).collect();
        QueueCounts { source: CountedBy::Netdev, transmit: receive[..1].to_vec(), receive }
    }

    #[test]
    fn pages_have_shares_and_rates() {
        let added = counts(&[(0, 300, 30_000), (1, 100, 10_000), (2, 0, 0)]);
        let text = page("eth0", &added, Over::Interval(Duration::from_secs(2)));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "eth0: a second, over the last 2.0 s");
        assert_eq!(
            rows[2],
            "      0       150    15 000  75.0 %  ████████████           150    15 000      -"
        );
        assert_eq!(rows[3].split_whitespace().collect::<Vec<_>>()[..3], ["1", "50", "5"]);
        assert!(rows[4].contains(" 0.0 %") && !rows[4].contains('█'), "{text}");
        assert!(rows[5].trim_start().starts_with("all       200    20 000"), "{text}");
        let most = counts(&[(4095, u64::MAX, u64::MAX), (4094, 123_456_789_012_345, 999_999)]);
        for line in page("a-name-of-fifte", &most, Over::Watch(Duration::from_secs(86_400))).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn counts_that_begin_anew_are_not_taken_for_great_ones() {
        let before = counts(&[(0, 300, 30_000), (1, 100, 10_000)]);
        let now = counts(&[(0, 310, 30_100), (1, 7, 700), (2, 5, 500)]);
        let added = since(&before, &now);
        let packets: Vec<_> = added.receive.iter().map(|c| (c.packets, c.bytes)).collect();
        assert_eq!(packets, [(Some(10), Some(100)), (Some(7), Some(700)), (Some(5), Some(500))]);
        let mut sum = zero(&added);
        add(&mut sum, &added);
        add(&mut sum, &since(&now, &now));
        assert_eq!(sum, added);
    }

    #[test]
    fn schema_of_rss_watch() {
        let title = "A line of flowlane rss show --watch --json, version 1";
        let about = "Packets and bytes of each queue. New members may be added.";
        flowlane_schema::Made::new("rss-watch-v1", title, about).form::<Document>().keep();
    }

    #[test]
    fn documents_fit_their_schema() {
        let added = counts(&[(0, 300, 30_000)]);
        for over in
            [Over::Always, Over::Interval(Duration::from_secs(1)), Over::Watch(Duration::from_secs(9))]
        {
            assert_eq!(
                flowlane_schema::faults("rss-watch-v1", &document("eth0", &added, over)),
                Vec::<String>::new()
            );
        }
    }
}
