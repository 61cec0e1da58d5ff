//! ^C: the first ends the run with a report, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the first signal has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Tested before it is set: the first signal only sets it, the second ends the process with the default action.
            flag::register_conditional_shutdown(signal, 128 + signal, flag.clone())
                .context("listening for signals")?;
            flag::register(signal, flag.clone()).context("listening for signals")?;
        }
        Ok(Self(flag))
    }

    /// Whether the first signal has arrived.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
