//! Where the frames are: with the driver, ring by ring, free, or with the program.

use std::io::{self, Write};

use flowlane::control::{QueueView, WorkersView};
use flowlane::link::Outstanding;

/// A line for each queue that hands frames over, and what they and the others add up to; nothing without such a queue.
pub(super) fn table(mut out: impl Write, workers: &WorkersView) -> io::Result<()> {
    let all = || workers.workers.iter().flat_map(|w| w.queues.iter().map(move |q| (w.worker, q)));
    if all().all(|(_, queue)| queue.outstanding.is_none()) {
        return Ok(());
    }
    writeln!(out, "\nFrames with driver and kernel:")?;
    let heads: String = Outstanding::NAMES.iter().map(|head| format!(" {head:>9}")).collect();
    writeln!(out, "{:>5} {:<6}{heads} {:>7}", "queue", "worker", "all")?;
    let mut held = 0;
    for (worker, queue) in all() {
        let Some(values) = values(queue) else { continue };
        let number = queue.queue.map_or("-".to_owned(), |number| number.to_string());
        let places: String = values.iter().map(|n| format!(" {n:>9}")).collect();
        let sum: u64 = values.iter().sum();
        held += sum;
        writeln!(out, "{number:>5} {worker:<6}{places} {sum:>7}")?;
    }
    let of =
        |count: fn(&flowlane::control::WorkerView) -> u64| workers.workers.iter().map(count).sum::<u64>();
    let (frames, free) = (of(|w| w.pool.frames), of(|w| w.pool.frames_free));
    // Workers answer one after the other, so a frame on its way may be seen twice.
    let others = frames.saturating_sub(free + held);
    writeln!(out, "{frames} frames: {held} there, {free} free, {others} with the program")
}

/// The numbers of a queue, in the order of the headings.
fn values(queue: &QueueView) -> Option<Vec<u64>> {
    let places = queue.outstanding.as_ref()?;
    Some(Outstanding::NAMES.iter().map(|name| places.get(*name).copied().unwrap_or(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(outstanding: &str) -> WorkersView {
        let worker = format!(
            r#"{{"worker":1,"turns":1,"busy-turns":1,"sleeps":0,"frames":8192,"frames-free":6000,"frames-exhausted":0,
            "frames-allocated":1,"move-overflow":0,"queues":[{{"host":"h","interface":0,"queue":3,"counters":{{}}{outstanding}}}],
            "hosts":[],"misdirected":[]}}"#
        );
        serde_json::from_str(&format!(r#"{{"version":1,"workers":[{worker}]}}"#)).unwrap()
    }

    fn text(outstanding: &str) -> String {
        let mut out = Vec::new();
        table(&mut out, &workers(outstanding)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn frames_add_up_to_all_of_them() {
        let said = text(
            r#","outstanding":{"posted":2000,"receiving":40,"received":8,"queued":30,"sending":20,"sent":2}"#,
        );
        let wanted = [
            "",
            "Frames with driver and kernel:",
            "queue worker    posted receiving  received    queued   sending      sent     all",
            "    3 1           2000        40         8        30        20         2    2100",
            "8192 frames: 2100 there, 6000 free, 92 with the program",
        ];
        assert_eq!(said.lines().collect::<Vec<_>>(), wanted);
        assert!(said.lines().all(|line| line.len() <= 80), "{said}");
    }

    #[test]
    fn links_that_copy_have_no_table() {
        assert_eq!((text(""), text(r#","outstanding":null"#)), (String::new(), String::new()));
    }
}
