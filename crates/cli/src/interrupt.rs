//! ^C: the first ends the run with a report, the second ends the process at once. SIGTERM is the same.
//!
//! What comes within [`ECHO`] of the first is no second one: `timeout` of coreutils sends its signal to the child and then to the group,
//! and both reach the child.
//!
//! SIGHUP, which comes when a terminal or an ssh session goes away, ends the run in order, too, so that files are finished and sockets
//! removed. It may come several times (from the kernel and from the shell), so a second one changes nothing. Where it is ignored, as
//! with `nohup`, it stays so.

use std::os::raw::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;
use flowlane_sys::privilege;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// A signal that comes so soon after the first is the same one, sent twice.
const ECHO: Duration = Duration::from_millis(200);

/// The number of the signal that has arrived, 0 before the first.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicUsize::new(0));
        // The handlers set the flag, so that the first signal does not depend on the thread.
        for signal in ends() {
            flag::register_usize(signal, flag.clone(), signal.unsigned_abs() as usize)
                .context("listening for signals")?;
        }
        let quit = heeded(&[SIGQUIT]);
        let mut signals = Signals::new(ends().iter().chain(&quit)).context("listening for signals")?;
        let (ready, is_ready) = mpsc::channel::<()>();
        std::thread::Builder::new()
            .name("flowlane-signals".into())
            .spawn(move || {
                // It needs no privilege, and is there before the others give up theirs. The kernel is not expected to refuse.
                let _ = privilege::drop_all();
                drop(ready);
                let mut second = Second::default();
                for signal in signals.forever() {
                    if signal == SIGQUIT {
                        // It ends the process as it would without us, but a display gives the terminal back first.
                        crate::terminal::restore();
                        let _ = signal_hook::low_level::emulate_default_handler(signal);
                    }
                    if second.is(signal) {
                        // Whatever hangs.
                        signal_hook::low_level::exit(128 + signal);
                    }
                }
            })
            .context("starting a thread")?;
        // An error is the end of the channel, which says so.
        let _ = is_ready.recv();
        Ok(Self(flag))
    }

    /// Whether the first signal has arrived.
    pub(crate) fn came(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that has arrived.
    pub(crate) fn signal(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
    }
}

/// The signals that end a command in order.
pub(crate) fn ends() -> Vec<c_int> {
    [SIGINT, SIGTERM].into_iter().chain(heeded(&[SIGHUP])).collect()
}

/// Those of the signals that this process does not ignore.
pub(crate) fn heeded(signals: &[c_int]) -> Vec<c_int> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // Guard: `!ignores(&status, *signal)` as `true` fails cli/ends::what_is_to_outlive_its_terminal_does
    signals.iter().copied().filter(|signal| !ignores(&status, *signal)).collect()
}

/// Tells the second signal, which ends a command at once, from the first and its echo.
#[derive(Debug, Default)]
pub(crate) struct Second {
    first: Option<Instant>,
}

impl Second {
    /// Whether this signal, one of [`ends`] that comes now, ends a command at once that is ending already.
    pub(crate) fn is(&mut self, signal: c_int) -> bool {
        let first = *self.first.get_or_insert_with(Instant::now);
        // Guard: `first.elapsed() >= ECHO` as `true` fails
        // cli/ends::a_signal_that_comes_twice_at_once_ends_in_order
        matches!(signal, SIGINT | SIGTERM) && first.elapsed() >= ECHO
    }
}

/// Whether a process with this status, as /proc has it, ignores a signal.
fn ignores(status: &str, signal: c_int) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
