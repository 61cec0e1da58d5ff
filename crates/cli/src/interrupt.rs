//! ^C: the first ends the run with a report, the second ends the process at once. SIGTERM is the same.
//!
//! SIGHUP, which comes when a terminal or an ssh session goes away, ends the run in order, too, so that files are finished and sockets
//! removed. It may come several times (from the kernel and from the shell), so a second one changes nothing. Where it is ignored, as
//! with `nohup`, it stays so.

use std::os::raw::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the first signal has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in ends() {
            // Tested before it is set: the first signal only sets it, the second ends the process with the default action.
            if hurries(signal) {
                flag::register_conditional_shutdown(signal, 128 + signal, flag.clone())
                    .context("listening for signals")?;
            }
            flag::register(signal, flag.clone()).context("listening for signals")?;
        }
        Ok(Self(flag))
    }

    /// Whether the first signal has arrived.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The signals that end a command in order.
pub(crate) fn ends() -> Vec<c_int> {
    [SIGINT, SIGTERM].into_iter().chain(heeded(&[SIGHUP])).collect()
}

/// Those of the signals that this process does not ignore.
pub(crate) fn heeded(signals: &[c_int]) -> Vec<c_int> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    signals.iter().copied().filter(|signal| !ignores(&status, *signal)).collect()
}

/// Whether this signal ends a command at once that is ending already.
pub(crate) fn hurries(signal: c_int) -> bool {
    matches!(signal, SIGINT | SIGTERM)
}

/// Whether a process with this status, as /proc has it, ignores a signal.
fn ignores(status: &str, signal: c_int) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
