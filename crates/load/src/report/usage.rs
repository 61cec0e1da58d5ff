//! Resources of the generator: processor time and memory of this process, as counted by the kernel.

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
}

impl Usage {
    /// The usage of this process now; zeros if /proc cannot be read.
    #[must_use]
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::parse(&stat, &status)
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
        Self { user: ticks(11), system: ticks(12), memory: kilobytes * 1024, wall: Duration::ZERO }
    }

    /// The usage since `before`; memory is the peak.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            memory: self.memory,
            wall: self.wall,
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
}

impl Generator {
    pub(super) fn new(usage: Usage, answered: u64) -> Self {
        let cpu = usage.user + usage.system;
        Self {
            cpu_user_seconds: usage.user.as_secs_f64(),
            cpu_system_seconds: usage.system.as_secs_f64(),
            cpu_ns_per_answer: (cpu.as_nanos() as u64).checked_div(answered).unwrap_or(0),
            seconds: super::model::rounded(usage.wall.as_secs_f64()),
            memory_bytes: usage.memory,
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
    }
}
