//! Resources of the generator: processor time and memory of this process, and what kept it waiting, as counted by the kernel.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Unit of process times in `/proc`: a hundredth of a second (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// Processor time and memory of a process since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Peak resident memory, bytes.
    pub memory: u64,
    /// Elapsed time in which it was used, if known; else 0.
    pub wall: Duration,
    /// Time that its threads that are alive were ready and waited for a processor.
    pub waited: Duration,
    /// Time of all processors of the machine that its host took, if it is a virtual one.
    pub stolen: Duration,
    /// Time of all processors of the machine in which they were idle.
    pub idle: Duration,
    /// Processors that it may use; 0 if not known.
    pub processors: usize,
}

impl Usage {
    /// The usage of this process now; zeros if /proc cannot be read.
    #[must_use]
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let machine = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let (idle, stolen) = of_machine(&machine);
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        Self { waited: waited(), idle, stolen, processors, ..Self::parse(&stat, &status) }
    }

    fn parse(stat: &str, status: &str) -> Self {
        // The second field is the command's name, which may hold anything, parentheses too.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_ascii_whitespace().collect());
        let ticks = |i: usize| {
            let ticks: u32 = fields.get(i).and_then(|f| f.parse().ok()).unwrap_or(0);
            TICK * ticks
        };
        let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes: u64 = peak.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
        Self { user: ticks(11), system: ticks(12), memory: kilobytes * 1024, ..Self::default() }
    }

    /// The usage since `before`; memory is the peak.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            waited: self.waited.saturating_sub(before.waited),
            stolen: self.stolen.saturating_sub(before.stolen),
            idle: self.idle.saturating_sub(before.idle),
            memory: self.memory,
            wall: self.wall,
            processors: self.processors,
        }
    }
}

/// Time that the threads of this process waited for a processor (Documentation/scheduler/sched-stats.rst); 0 if the kernel does not count it.
fn waited() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_thread = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split_ascii_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
    };
    Duration::from_nanos(threads.map(of_thread).sum())
}

/// Idle time and steal of all processors, of `/proc/stat`.
fn of_machine(stat: &str) -> (Duration, Duration) {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = all.split_ascii_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
    // More than a u32 holds, on many processors.
    let at = |i: usize| Duration::from_millis(ticks.get(i).copied().unwrap_or(0).saturating_mul(10));
    // user nice system idle iowait irq softirq steal
    (at(3) + at(4), at(7))
}

impl std::ops::Add for Usage {
    type Output = Self;

    /// The usage of two processes at once.
    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            memory: self.memory + other.memory,
            wall: self.wall.max(other.wall),
            waited: self.waited + other.waited,
            stolen: self.stolen + other.stolen,
            idle: self.idle + other.idle,
            processors: self.processors + other.processors,
        }
    }
}

impl Usage {
    /// The same usage with the elapsed time `wall`.
    #[must_use]
    pub fn within(self, wall: Duration) -> Self {
        Self { wall, ..self }
    }
}

/// Resources of the generator in a report.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Generator {
    /// Processor time in the program, seconds.
    pub cpu_user_seconds: f64,
    /// Processor time in the kernel, seconds.
    pub cpu_system_seconds: f64,
    /// Processor time per answer, nanoseconds.
    pub cpu_ns_per_answer: u64,
    /// Elapsed time, seconds, including opening connections and the wait at the end; 0 if not known.
    #[serde(default)]
    pub seconds: f64,
    /// Most resident memory, bytes.
    pub memory_bytes: u64,
    /// Time that its threads were ready and waited for a processor, seconds.
    #[serde(default)]
    pub waited_seconds: f64,
    /// Time that the host of a virtual machine took from all its processors, seconds.
    #[serde(default)]
    pub stolen_seconds: f64,
    /// Time in which the machine's processors were idle, seconds.
    #[serde(default)]
    pub idle_seconds: f64,
    /// Processors that the generator could use; 0 if not known.
    #[serde(default)]
    pub processors: usize,
}

impl Generator {
    /// What was used for so many answers.
    #[must_use]
    pub fn new(usage: Usage, answered: u64) -> Self {
        let cpu = usage.user + usage.system;
        Self {
            cpu_user_seconds: usage.user.as_secs_f64(),
            cpu_system_seconds: usage.system.as_secs_f64(),
            cpu_ns_per_answer: (cpu.as_nanos() as u64).checked_div(answered).unwrap_or(0),
            seconds: super::model::rounded(usage.wall.as_secs_f64()),
            memory_bytes: usage.memory,
            waited_seconds: super::model::rounded(usage.waited.as_secs_f64()),
            stolen_seconds: super::model::rounded(usage.stolen.as_secs_f64()),
            idle_seconds: super::model::rounded(usage.idle.as_secs_f64()),
            processors: usage.processors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read() {
        let stat = "7 (a) R 1) S 1 7 7 0 -1 4194304 100 0 0 0 250 75 0 0 20 0 1 0 100 0 0";
        let usage = Usage::parse(stat, "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n");
        assert_eq!(usage.user, Duration::from_millis(2500));
        assert_eq!(usage.system, Duration::from_millis(750));
        assert_eq!(usage.memory, 2 << 20);
        assert_eq!(Usage::parse("", ""), Usage::default());
        assert!(Usage::now().memory > 0);
        let machine = "cpu  100 0 50 700 30 1 2 5 0 0\ncpu0 50 0 25 350 15 0 1 2 0 0\n";
        assert_eq!(of_machine(machine), (Duration::from_millis(7300), Duration::from_millis(50)));
        assert_eq!(of_machine(""), (Duration::ZERO, Duration::ZERO));
    }
}
