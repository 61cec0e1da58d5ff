//! What workers and the watchdog noticed: tasks that took long, stalls, events of processor and kernel.

use std::fmt;
use std::time::Duration;

use flowlane_stack::stats::Figure;
use flowlane_stack::time::Time;
use flowlane_sys::figures;
use serde::{Deserialize, Serialize};

/// Tasks that held one worker for longer than they may ([`Builder::task_budget`](crate::Builder::task_budget)).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LongTasks {
    /// Nanoseconds that a task may take.
    pub budget_nanos: u64,
    /// By the line of the program that began them: the first 32 lines.
    pub tasks: Vec<LongTask>,
    /// Turns that took long in tasks, of which none is known: several ran, or the list was full.
    pub unnamed: u64,
}

/// Tasks that one line of the program began.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LongTask {
    /// The line, as file, line and column: `src/main.rs:12:5`. The first task of a lane has the line that made its host.
    pub task: String,
    /// Times that one took too long.
    pub times: u64,
    /// The longest time, nanoseconds. Time in which the machine took the processor away counts as well.
    pub longest_nanos: u64,
    /// Number of the lane it was in last, among those of all hosts.
    pub lane: u32,
}

impl LongTasks {
    /// Times that a task took too long.
    #[must_use]
    pub fn times(&self) -> u64 {
        self.unnamed + self.tasks.iter().map(|task| task.times).sum::<u64>()
    }

    /// Calls `f` with each counter.
    pub fn each(&self, f: &mut dyn FnMut(Figure)) {
        f(Figure::count(
            "long-tasks",
            "times a task held the worker for longer than its budget",
            self.times(),
        ));
        let longest = self.tasks.iter().map(|task| task.longest_nanos).max().unwrap_or(0);
        f(Figure::peak("longest-task-nanos", "nanoseconds of the longest such time", longest));
    }
}

/// What processor and kernel counted for a worker's thread ([`Builder::perf_events`](crate::Builder::perf_events)). `None` for what is not
/// counted here.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PerfReport {
    /// Nanoseconds for which it had a processor.
    pub task_clock_nanos: Option<u64>,
    /// Times it gave its processor up or lost it.
    pub context_switches: Option<u64>,
    /// Times it was given another processor.
    pub migrations: Option<u64>,
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Cycles.
    pub cycles: Option<u64>,
    /// Instructions.
    pub instructions: Option<u64>,
    /// Cycles in which nothing could be issued.
    pub stalled_cycles: Option<u64>,
    /// Accesses that missed the last-level cache.
    pub cache_misses: Option<u64>,
    /// Some counters took turns, so their values are scaled.
    pub shared: bool,
    /// What the kernel did for the thread is not in the processor's counts.
    pub without_kernel: bool,
    /// Why something is missing: each reason in a line.
    pub missing: Vec<String>,
}

/// Figures made of the counts. `None` where one of the counts is missing, or would be divided by 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Derived {
    /// Instructions in a cycle.
    pub instructions_per_cycle: Option<f64>,
    /// Share of cycles that were stalled, 0 to 1.
    pub stalled_share: Option<f64>,
    /// Cycles for a packet.
    pub cycles_per_packet: Option<f64>,
    /// Instructions for a packet.
    pub instructions_per_packet: Option<f64>,
    /// Misses of the last-level cache for a packet.
    pub misses_per_packet: Option<f64>,
}

impl PerfReport {
    /// What was counted since `then`.
    #[must_use]
    pub fn since(&self, then: &Self) -> Self {
        let rise = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            task_clock_nanos: rise(self.task_clock_nanos, then.task_clock_nanos),
            context_switches: rise(self.context_switches, then.context_switches),
            migrations: rise(self.migrations, then.migrations),
            page_faults: rise(self.page_faults, then.page_faults),
            cycles: rise(self.cycles, then.cycles),
            instructions: rise(self.instructions, then.instructions),
            stalled_cycles: rise(self.stalled_cycles, then.stalled_cycles),
            cache_misses: rise(self.cache_misses, then.cache_misses),
            ..self.clone()
        }
    }

    /// Figures made of the counts, where the worker received and sent so many packets.
    #[must_use]
    pub fn derived(&self, packets: u64) -> Derived {
        let ratio = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) if b > 0 => Some(a as f64 / b as f64),
            _ => None,
        };
        Derived {
            instructions_per_cycle: ratio(self.instructions, self.cycles),
            stalled_share: ratio(self.stalled_cycles, self.cycles),
            cycles_per_packet: ratio(self.cycles, Some(packets)),
            instructions_per_packet: ratio(self.instructions, Some(packets)),
            misses_per_packet: ratio(self.cache_misses, Some(packets)),
        }
    }

    /// Calls `f` with each counter that there is.
    pub fn each(&self, f: &mut dyn FnMut(Figure)) {
        let mut count = |name: &'static str, text: &'static str, value: Option<u64>| {
            if let Some(value) = value {
                f(Figure::count(name, text, value));
            }
        };
        count("task-clock-nanos", "nanoseconds for which the thread had a processor", self.task_clock_nanos);
        count("context-switches", "times the thread gave its processor up or lost it", self.context_switches);
        count("migrations", "times the thread was given another processor", self.migrations);
        count("page-faults", "page faults", self.page_faults);
        count("cycles", "cycles of the processor", self.cycles);
        count("instructions", "instructions", self.instructions);
        count("stalled-cycles", "cycles in which nothing could be issued", self.stalled_cycles);
        count("cache-misses", "accesses that missed the last-level cache", self.cache_misses);
    }
}

/// What a [watchdog](crate::watchdog) counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchdogReport {
    /// A worker that has not turned for so long stands still.
    pub limit: Duration,
    /// By worker.
    pub workers: Vec<StallCounts>,
    /// The last stalls, the newest first, at most 8.
    pub last: Vec<Stall>,
}

figures! {
    /// Stalls of one worker.
    pub struct StallCounts {
        stalls: count "times the worker stood still";
        starved: count "times the worker was given no processor";
        longest_nanos as "longest-stall-nanos": peak "the longest stall of the worker";
    }
}

/// A worker that stands still, or stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The worker.
    pub worker: usize,
    /// When it was seen last to begin a turn, on the runtime's clock.
    pub began: Time,
    /// For how long it has stood still.
    pub lasted: Duration,
    /// It has turned since.
    pub is_over: bool,
    /// Step of the turn: `receive`, `stack`, `tasks`, `netisr`, `transmit`.
    pub step: &'static str,
    /// Host and bucket of the lane whose task runs.
    pub lane: Option<(String, u16)>,
    /// The line of the program that began the task.
    pub task: Option<String>,
    /// What the kernel says of the thread, for people.
    pub thread: String,
    /// Functions on its stack, the innermost first.
    pub trace: Vec<String>,
    /// Why there are none.
    pub no_trace: Option<String>,
}

/// In one line, without the trace.
impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, step, thread, .. } = self;
        write!(f, "worker {worker} has not turned for {:.1?}: in {step}", self.lasted)?;
        if let Some((host, bucket)) = &self.lane {
            write!(f, " of lane {bucket} of {host}")?;
        }
        if let Some(task) = &self.task {
            write!(f, ", task of {task}")?;
        }
        write!(f, ", {thread}")
    }
}
