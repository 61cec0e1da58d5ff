//! A port moves to another worker, with all its queues, and no frame is lost or overtaken.
//!
//! ```text
//!   handle            worker that has queues                          worker that gets them
//!   Release ────────▶ receives nothing more; sends until all links
//!                     have taken what it forwarded
//!                     queues, and the rings to them ─────────────────▶ Adopt: receives
//!   Repoint ────────▶ (all others) their rings wake the new worker
//! ```
//!
//! What the first worker forwarded has left before the second forwards what comes next, so a flow keeps its order. What comes meanwhile waits in
//! the interface. Rings of workers without a queue move along, with what is in them. If a link takes nothing for [`PATIENCE`], the port stays
//! where it is, and that is said.

use std::sync::Arc;
use std::time::Duration;

use flowlane_stack::time::Time;
use flowlane_switch::PortId;

use super::ask::{Ask, Leaving, Moved};
use super::worker::Worker;
use crate::runtime::relay::relay;

/// How long links may take to send what was forwarded before.
const PATIENCE: Duration = Duration::from_secs(1);

impl Worker {
    /// Gives the port away if all that was forwarded is over. `false`: there is none to give.
    pub(super) fn go_on_leaving(&mut self, over: bool, now: Time) -> bool {
        let Some(leaving) = &mut self.leaving else { return false };
        let since = *leaving.since.get_or_insert(now);
        // Guard: `over` as `true` fails switch::moving::tests::a_port_leaves
        if over {
            let Some(Leaving { port, to, done, .. }) = self.leaving.take() else { return false };
            let (near, far) = relay(Arc::clone(&to.wake));
            let (queues, mut relays) = self.ports[port.index()].give(near);
            relays.push(far);
            to.ask(Ask::Adopt(port, Moved { queues, relays }));
            let _ = done.send(Ok(()));
        } else if now.saturating_duration_since(since) > PATIENCE {
            let Some(Leaving { port, done, .. }) = self.leaving.take() else { return false };
            let config = self.switch.config();
            let slow: Vec<_> = self.output.used().map(|port| config.name(port).to_owned()).collect();
            let slow = if slow.is_empty() { String::new() } else { format!(" (port {})", slow.join(", ")) };
            let _ = done.send(Err(format!(
                "port {} stays where it is: frames from it wait for a link that takes none{slow}; try again",
                config.name(port)
            )));
        }
        true
    }

    /// Takes a port that another worker gave away.
    pub(super) fn adopt(&mut self, port: PortId, moved: Moved) {
        if let Some(egress) = self.ports.get_mut(port.index()) {
            egress.take(moved.queues, moved.relays);
        }
    }
}

#[cfg(test)]
mod tests;
