//! What this process takes of the machine.

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread, seconds.
pub(crate) fn thread_time() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// Processor time of this process, seconds.
pub(crate) fn process_time() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let t = clock_gettime(clock);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Resident memory of this process, bytes.
pub(crate) fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = status.split(' ').nth(1).context("/proc/self/statm")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
