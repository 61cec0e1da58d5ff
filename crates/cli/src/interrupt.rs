//! ^C: once to end with what there is, twice to end at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether somebody asked for the end.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Looked at before it is set: the first signal passes, the second ends the process as if nobody listened.
            flag::register_conditional_shutdown(signal, 128 + signal, flag.clone())
                .context("listening for signals")?;
            flag::register(signal, flag.clone()).context("listening for signals")?;
        }
        Ok(Self(flag))
    }

    /// Whether the first signal came.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
