//! The page for people, 80 columns wide.

use super::super::words::line;
use super::findings::by_cpu;
use super::{Shown, queues, slots_of};
use crate::wrap::{WIDTH, wrapped};
use flowlane::card::{Card, CardRss, Cpus, Features, FlowKind, Surroundings, Told, Untold, Way};
use flowlane_sys::words::counted;
use std::fmt::Write as _;

/// Columns of the page.
/// Slots in a line of the picture, and lines of it at most.
const ROW: usize = 64;
const ROWS: usize = 32;
/// Columns of a bar that stands for all slots.
const BAR: usize = 40;
/// Lines of queues.
const QUEUES: usize = 256;

/// The page.
pub(super) fn page(shown: &Shown) -> String {
    let Shown { card, around, .. } = shown;
    let mut page = head(shown);
    if let Ok(rss) = &card.rss
        && !rss.table.is_empty()
    {
        page += &picture(rss);
    }
    page += &chain(card, around);
    page += &found(shown);
    page
}

fn told<T>(told: &Told<T>, say: impl FnOnce(&T) -> String) -> String {
    match told {
        Ok(value) => say(value),
        Err(Untold::Unsupported) => "not told by the driver".to_owned(),
        Err(why) => why.to_string(),
    }
}

fn head(shown: &Shown) -> String {
    let Shown { card, around, .. } = shown;
    let mut page = String::new();
    let driver = told(&card.driver, |driver| {
        let at = if driver.bus.is_empty() { String::new() } else { format!(" at {}", driver.bus) };
        format!("{}{at}", driver.name)
    });
    let way = match card.way {
        Way::Netlink => "netlink",
        Way::Ioctl => "ioctl",
    };
    let near = around.near.as_ref().map_or(String::new(), |near| format!(" (CPUs {near})"));
    let node = around.node.map_or(String::new(), |node| format!(", NUMA node {node}{near}"));
    let read = if card.rss.is_ok() { format!(", read by {way}") } else { String::new() };
    let _ = writeln!(page, "{}: {driver}{node}{read}", card.interface.name());
    let most = card.channels.map(|channels| channels.most.receiving()).ok().filter(|&n| n > 0);
    let most = most.map_or(String::new(), |most| format!(", {most} at most"));
    line(&mut page, "queues", &format!("{} to receive{most}", queues(card, around)));
    match &card.rss {
        Err(why) => line(&mut page, "RSS", &told::<()>(&Err(*why), |()| String::new())),
        Ok(rss) => spreading(&mut page, rss, shown.key),
    }
    if card.rss.is_ok() {
        let contexts = told(&card.contexts, |contexts| match contexts.as_slice() {
            [] => "none beside the card's own table".to_owned(),
            list => list
                .iter()
                .map(|context| format!("{} ({})", context.id, counted(context.rss.table.len(), "slot")))
                .collect::<Vec<_>>()
                .join(", "),
        });
        line(&mut page, "contexts", &contexts);
        line(
            &mut page,
            "rules",
            &told(&card.rules, |rules| match rules.count {
                0 => "none".to_owned(),
                n => format!("{n}"),
            }),
        );
    }
    for rule in card.rules.iter().flat_map(|rules| rules.list.iter().take(16)) {
        line(&mut page, "", &format!("{}: {} to {}", rule.location, rule.what, rule.action));
    }
    let offloads = told(&card.offloads, |offloads| {
        let one = |(name, offload): (&str, flowlane::card::Offload)| {
            let fixed = if offload.fixed { " (fixed)" } else { "" };
            format!("{name} {}{fixed}", if offload.on { "on" } else { "off" })
        };
        offloads.iter().map(one).collect::<Vec<_>>().join(", ")
    });
    line(&mut page, "offloads", &offloads);
    line(&mut page, "AF_XDP", &told(&shown.features, zero_copy));
    page
}

/// What AF_XDP can do with the driver, before anything is bound.
pub(super) fn zero_copy(features: &Features) -> String {
    let copies = match (features.native(), features.zero_copy()) {
        (false, _) => {
            return "generic mode only, frames are copied: the driver runs no XDP programs".to_owned();
        }
        (true, false) => "native mode, frames are copied: the driver has no zero copy".to_owned(),
        (true, true) => {
            let most = features.zero_copy_segments.unwrap_or(1);
            let whole = if most > 1 { format!(" (packets of up to {most} buffers)") } else { String::new() };
            format!("native mode, zero copy{whole}")
        }
    };
    let hash = if features.hash() { "the card's hash comes with the packets" } else { "no hash of the card" };
    format!("{copies}; {hash}")
}

fn spreading(page: &mut String, rss: &CardRss, key: bool) {
    line(page, "hash", &format!("{}, transform {}", rss.function, rss.transform));
    let bytes = rss.key.0.len();
    match (bytes, key) {
        (0, _) => line(page, "key", "not told by the driver"),
        (_, false) => line(page, "key", &format!("{bytes} bytes (--key shows them)")),
        // A colon is where a line may end.
        (_, true) => {
            let text: Vec<String> = rss.key.0.iter().map(|byte| format!("{byte:02x}")).collect();
            for (i, part) in text.chunks(20).enumerate() {
                let more = if (i + 1) * 20 < bytes { ":" } else { "" };
                line(page, if i == 0 { "key" } else { "" }, &format!("{}{more}", part.join(":")));
            }
        }
    }
    // Kinds with the same fields share a line.
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for kind in FlowKind::ALL {
        let fields = match rss.fields_of(kind) {
            Err(Untold::Unsupported) => "not told".to_owned(),
            other => told(&other, ToString::to_string),
        };
        match groups.iter_mut().find(|group| group.0 == fields) {
            Some((_, kinds)) => kinds.push(kind.name()),
            None => groups.push((fields, vec![kind.name()])),
        }
    }
    for (i, (fields, kinds)) in groups.iter().enumerate() {
        line(page, if i == 0 { "fields" } else { "" }, &format!("{}: {fields}", kinds.join(" ")));
    }
    let table = match rss.table.len() {
        0 => "not told by the driver".to_owned(),
        slots => format!(
            "{slots} slots, the slot is the hash {}",
            match slots.is_power_of_two() {
                true => format!("& {}", slots - 1),
                false => format!("% {slots}"),
            }
        ),
    };
    line(page, "table", &table);
}

/// The character of a queue: 0 to 9, a to z, A to Z, then '+'.
fn figure(queue: u32) -> char {
    const FIGURES: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    FIGURES.get(queue as usize).map_or('+', |&byte| char::from(byte))
}

/// The table with a character for each slot.
fn picture(rss: &CardRss) -> String {
    let mut page = String::from("\n  slot       the queue of each slot\n");
    for (i, row) in rss.table.chunks(ROW).take(ROWS).enumerate() {
        let text: String = row.iter().map(|&queue| figure(queue)).collect();
        let _ = writeln!(page, "  {:<9}  {text}", i * ROW);
    }
    if rss.table.len() > ROW * ROWS {
        let _ = writeln!(page, "             ... and {} more", rss.table.len() - ROW * ROWS);
    }
    if rss.table.iter().any(|&queue| queue > 9) {
        let _ = writeln!(page, "             (a is queue 10, A queue 36, + one from 62 on)");
    }
    page
}

fn bar(share: f64) -> String {
    let columns = (share * BAR as f64).round() as usize;
    "█".repeat(if share > 0.0 { columns.max(1) } else { 0 })
}

/// Bucket, queue, interrupt, processor.
fn chain(card: &Card, around: &Surroundings) -> String {
    let mut page = String::new();
    if around.receive.is_empty() {
        return page;
    }
    let slots = card.rss.as_ref().map_or(0, |rss| rss.table.len());
    let share = |queue: u32| if slots == 0 { 0.0 } else { slots_of(card, queue) as f64 / slots as f64 };
    let _ = writeln!(
        page,
        "\n  {:>5} {:>6} {:>7}    {:<25} {:>6} {:>6} {:>5} {:>6}",
        "queue", "slots", "share", "interrupt", "CPU", "RPS", "RFS", "XPS"
    );
    for queue in around.receive.iter().take(QUEUES) {
        let interrupt = queue.interrupts.first().map_or("-".to_owned(), |interrupt| {
            format!("{} {}", interrupt.number, interrupt.name).chars().take(25).collect()
        });
        let cpus = queue
            .interrupts
            .first()
            .map_or("-".to_owned(), |interrupt| interrupt.cpus().map_or("?".to_owned(), ToString::to_string));
        let set = |cpus: &Option<Cpus>| cpus.as_ref().map_or("?".to_owned(), ToString::to_string);
        let transmit = around.transmit.iter().find(|transmit| transmit.number == queue.number);
        let xps = transmit.and_then(|transmit| transmit.xps_cpus.as_ref());
        let (count, part) = match slots {
            0 => ("-".to_owned(), "-".to_owned()),
            _ => (slots_of(card, queue.number).to_string(), format!("{:.1} %", share(queue.number) * 100.0)),
        };
        let _ = writeln!(
            page,
            "  {:>5} {count:>6} {part:>7} ─▶ {interrupt:<25} {cpus:>6} {:>6} {:>5} {:>6}",
            queue.number,
            set(&queue.rps),
            queue.rps_flows.map_or("?".to_owned(), |flows| if flows == 0 {
                "-".to_owned()
            } else {
                flows.to_string()
            }),
            xps.map_or("-".to_owned(), ToString::to_string),
        );
    }
    if around.receive.len() > QUEUES {
        let _ = writeln!(page, "  ... and {} more", around.receive.len() - QUEUES);
    }
    let cpus = by_cpu(around);
    if slots > 0 && !cpus.is_empty() {
        page += "\n    CPU   share  of the slots\n";
        for (cpu, queues) in cpus.iter().take(QUEUES) {
            let part: f64 = queues.iter().map(|&queue| share(queue)).sum();
            let list = Cpus(queues.clone());
            let name = if queues.len() == 1 { "queue" } else { "queues" };
            let _ = writeln!(page, "  {cpu:>5} {:>5.1} %  {:<BAR$}  {name} {list}", part * 100.0, bar(part));
        }
    }
    page
}

fn found(shown: &Shown) -> String {
    let mut page = String::new();
    let mut section = |title: &str, notes: bool| {
        let list: Vec<_> = shown.findings.iter().filter(|finding| finding.note == notes).collect();
        if !list.is_empty() {
            let _ = writeln!(page, "\n{title}");
        }
        for finding in list {
            for (i, part) in wrapped(&finding.what, WIDTH - 4).into_iter().enumerate() {
                let _ = writeln!(page, "{} {part}", if i == 0 { "  *" } else { "   " });
            }
            for command in &finding.mend {
                // A command is not wrapped, so that it can be copied.
                let _ = writeln!(page, "      {command}");
            }
        }
    };
    section("What does not fit together, and what mends it:", false);
    section("Good to know:", true);
    if !shown.findings.iter().any(|finding| !finding.note) && shown.card.rss.is_ok() {
        page += "\nNothing was found that does not fit together.\n";
    }
    if !shown.around.unseen.is_empty() {
        let _ = writeln!(page, "\nNot seen for lack of permission (try it as root):");
        for unseen in shown.around.unseen.iter().take(8) {
            let _ = writeln!(page, "    {}", unseen.path.display());
        }
        if shown.around.unseen.len() > 8 {
            let _ = writeln!(page, "    ... and {} more", shown.around.unseen.len() - 8);
        }
    }
    page
}
