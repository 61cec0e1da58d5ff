//! What workers and the watchdog noticed: long tasks, stalls, events of processor and kernel.

use std::io::{self, Write};

use flowlane::control::{WatchdogView, WorkerView};
use flowlane_sys::words::counted;

use crate::units::show_nanos;

/// Tasks that took longer than they may: nothing if there are none.
pub(super) fn long_tasks(out: &mut impl Write, workers: &[WorkerView]) -> io::Result<()> {
    let Some(budget) = workers.iter().find(|w| w.long_tasks.times() > 0).map(|w| w.long_tasks.budget_nanos)
    else {
        return Ok(());
    };
    writeln!(out, "\nTasks that held their worker for longer than {}:", show_nanos(budget))?;
    writeln!(out, "{:>6} {:>9} {:>9}  task", "worker", "times", "longest")?;
    for worker in workers {
        let mut tasks: Vec<_> = worker.long_tasks.tasks.iter().collect();
        tasks.sort_by_key(|task| std::cmp::Reverse(task.longest_nanos));
        for task in tasks {
            let longest = show_nanos(task.longest_nanos);
            writeln!(out, "{:>6} {:>9} {longest:>9}  {}", worker.worker, task.times, end(&task.task))?;
        }
        if worker.long_tasks.unnamed > 0 {
            let times = worker.long_tasks.unnamed;
            writeln!(out, "{:>6} {times:>9} {:>9}  one of several in a turn", worker.worker, "-")?;
        }
    }
    Ok(())
}

/// The end of a long path, so that a line fits a terminal.
fn end(task: &str) -> String {
    const ROOM: usize = 52;
    let long = task.chars().count();
    if long <= ROOM {
        task.to_owned()
    } else {
        format!("...{}", task.chars().skip(long + 3 - ROOM).collect::<String>())
    }
}

/// What the watchdog found.
pub(super) fn watchdog(out: &mut impl Write, dog: &WatchdogView) -> io::Result<()> {
    let sum = |of: fn(&flowlane::control::StallsView) -> u64| dog.workers.iter().map(of).sum::<u64>();
    let longest = dog.workers.iter().map(|w| w.longest_ms).max().unwrap_or(0);
    let stalls = counted(sum(|w| w.stalls) as usize, "stall");
    let limit = show_nanos(dog.limit_ms * 1_000_000);
    write!(out, "\nWatchdog ({limit}): {stalls}")?;
    if longest > 0 {
        write!(out, ", the longest {}", show_nanos(longest * 1_000_000))?;
    }
    let starved = sum(|w| w.starved);
    if starved > 0 {
        write!(out, ", {starved} times no processor")?;
    }
    writeln!(out)?;
    for stall in &dog.last {
        let now = if stall.is_over {
            format!("lasted {}", show_nanos(stall.lasted_ms * 1_000_000))
        } else {
            "lasts".into()
        };
        for (i, part) in folded(&format!("{} ({now})", stall.text)).iter().enumerate() {
            writeln!(out, "{}{part}", if i == 0 { "  " } else { "    " })?;
        }
    }
    Ok(())
}

/// A line in parts that fit a terminal.
fn folded(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in text.split(' ') {
        let last = parts.last().map_or(0, |part| part.chars().count());
        if last > 0 && last + 1 + word.chars().count() > 74 {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(if part.is_empty() { "" } else { " " });
            part.push_str(word);
        }
    }
    parts
}

/// `--perf`: what processor and kernel counted, and figures made of it.
pub(super) fn perf(out: &mut impl Write, workers: &[WorkerView]) -> io::Result<()> {
    if workers.iter().all(|w| w.perf.is_none()) {
        return writeln!(out, "no events are counted: start the instance with --perf-events");
    }
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), short);
    let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
    writeln!(out, "\nEvents of the kernel:")?;
    writeln!(
        out,
        "{:>6} {:>12} {:>12} {:>12} {:>12}",
        "worker", "ran", "switches", "migrations", "page faults"
    )?;
    for (worker, perf) in workers.iter().filter_map(|w| Some((w.worker, w.perf.as_ref()?))) {
        let ran = perf.task_clock_nanos.map_or_else(|| "-".to_owned(), show_nanos);
        let (switches, migrations) = (number(perf.context_switches), number(perf.migrations));
        writeln!(
            out,
            "{worker:>6} {ran:>12} {switches:>12} {migrations:>12} {:>12}",
            number(perf.page_faults)
        )?;
    }
    if workers.iter().flat_map(|w| &w.perf).any(|perf| perf.cycles.is_some() || perf.instructions.is_some()) {
        writeln!(out, "\nEvents of the processor:")?;
        writeln!(
            out,
            "{:>6} {:>9} {:>9} {:>9} {:>9} {:>6} {:>7} {:>9} {:>8}",
            "worker", "cycles", "instr", "stalled", "misses", "IPC", "stall %", "instr/pkt", "miss/pkt"
        )?;
        for (worker, perf) in workers.iter().filter_map(|w| Some((w, w.perf.as_ref()?))) {
            let derived = perf.derived(worker.packets());
            writeln!(
                out,
                "{:>6} {:>9} {:>9} {:>9} {:>9} {:>6} {:>7} {:>9} {:>8}",
                worker.worker,
                number(perf.cycles),
                number(perf.instructions),
                number(perf.stalled_cycles),
                number(perf.cache_misses),
                figure(derived.instructions_per_cycle),
                figure(derived.stalled_share.map(|share| share * 100.0)),
                figure(derived.instructions_per_packet),
                figure(derived.misses_per_packet),
            )?;
        }
    }
    let mut said: Vec<&str> = Vec::new();
    for perf in workers.iter().flat_map(|w| &w.perf) {
        said.extend(perf.missing.iter().map(String::as_str));
        if perf.shared {
            said.push(
                "The processor has fewer counters than events: they took turns, and the counts are scaled.",
            );
        }
        if perf.without_kernel {
            said.push("The processor's events are those outside the kernel: more is not permitted.");
        }
    }
    let mut told: Vec<&str> = Vec::new();
    for words in said {
        if !told.contains(&words) {
            told.push(words);
            folded(words).iter().try_for_each(|part| writeln!(out, "{part}"))?;
        }
    }
    Ok(())
}

/// Four digits and a letter at most.
fn short(n: u64) -> String {
    match n {
        0..100_000 => n.to_string(),
        100_000..10_000_000 => format!("{:.1} k", n as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.1} G", n as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::control::{StallView, StallsView};
    use flowlane::stats::{LongTask, LongTasks, PerfReport};

    fn worker(perf: Option<PerfReport>, long_tasks: LongTasks) -> WorkerView {
        let text = r#"{"worker":1,"turns":1,"busy-turns":1,"sleeps":0,"frames-free":1,"frames-exhausted":0,"frames-allocated":1,
            "move-overflow":0,"queues":[{"host":"h","interface":0,"queue":0,"counters":{"rx-frames":600,"tx-frames":400}}],"hosts":[],
            "misdirected":[]}"#;
        let worker: WorkerView = serde_json::from_str(text).unwrap();
        WorkerView { perf: perf.map(Box::new), long_tasks, ..worker }
    }

    fn fits(text: &str) {
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_processor_that_counts_and_one_that_does_not() {
        let counted = PerfReport {
            task_clock_nanos: Some(1_500_000_000),
            context_switches: Some(12),
            migrations: Some(0),
            page_faults: Some(345),
            cycles: Some(4_000_000),
            instructions: Some(10_000_000),
            stalled_cycles: Some(1_000_000),
            cache_misses: Some(250),
            shared: true,
            ..PerfReport::default()
        };
        let mut text = Vec::new();
        perf(&mut text, &[worker(Some(counted), LongTasks::default())]).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = "     1  4000.0 k    10.0 M  1000.0 k       250   2.50   25.00  10000.00     0.25\n";
        assert!(text.contains(line) && text.contains("they took turns"), "{text}");
        fits(&text);
        let missing = "events of the processor: not available here, because this machine's processor does not count them".to_owned();
        let none = PerfReport { context_switches: Some(3), missing: vec![missing], ..PerfReport::default() };
        let (mut text, mut off) = (Vec::new(), Vec::new());
        let workers =
            [worker(Some(none.clone()), LongTasks::default()), worker(Some(none), LongTasks::default())];
        perf(&mut text, &workers).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches("not available here").count(), 1, "{text}");
        assert!(!text.contains("IPC"), "{text}");
        fits(&text);
        perf(&mut off, &[worker(None, LongTasks::default())]).unwrap();
        assert!(String::from_utf8(off).unwrap().contains("--perf-events"));
    }

    #[test]
    fn long_tasks_and_stalls() {
        let task =
            LongTask { task: "x".repeat(100) + "/main.rs:3:9", times: 7, longest_nanos: 31_000_000, lane: 2 };
        let found = LongTasks { budget_nanos: 1_000_000, tasks: vec![task], unnamed: 2 };
        let mut text = Vec::new();
        long_tasks(&mut text, &[worker(None, LongTasks::default()), worker(None, found)]).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("longer than 1.00 ms") && text.contains("/main.rs:3:9\n"), "{text}");
        assert!(text.contains("         2         -  one of several in a turn"), "{text}");
        fits(&text);
        let mut none = Vec::new();
        long_tasks(&mut none, &[worker(None, LongTasks::default())]).unwrap();
        assert!(none.is_empty());
        let stall = StallView {
            text: "worker 1 has not turned for 1.0s: in tasks of lane 3 of server, task of src/main.rs:120:9, running".into(),
            lasted_ms: 1300,
            is_over: true,
            trace: Vec::new(),
            no_trace: None,
        };
        let counts = StallsView { worker: 0, stalls: 1, starved: 4, longest_ms: 1300 };
        let mut text = Vec::new();
        watchdog(&mut text, &WatchdogView { limit_ms: 1000, workers: vec![counts], last: vec![stall] })
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("Watchdog (1.00 s): 1 stall, the longest 1.30 s, 4 times no processor"),
            "{text}"
        );
        assert!(text.contains("(lasted 1.30 s)"), "{text}");
        fits(&text);
    }
}
