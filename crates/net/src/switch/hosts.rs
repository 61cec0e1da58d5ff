//! Hosts of the switch itself, on ports `host:ADDRESS/LEN`.
//!
//! Such a port is one to plug into, and its host plugs in as any other does. Whoever starts the switch starts the hosts, too ([`StartHost`](super::StartHost)): the switch
//! asks for one when its port is there, and drops it when the port is removed or the switch ends.

use flowlane_stack::address::Prefix;

use super::error::SwitchError;
use super::handle::Handle;
use super::slot::Slot;

impl Handle {
    /// Whether hosts of the switch itself can be started.
    pub(super) fn can_host(&self, name: &str) -> Result<(), SwitchError> {
        let why =
            || SwitchError::Config(format!("port {name}: this switch has no hosts of its own: give 'plug'"));
        self.hosts.as_ref().map(|_| ()).ok_or_else(why)
    }

    /// Starts the host on a port. What the switch knows must not be held: the host asks for its port.
    pub(super) fn start_host(&self, slot: Slot, name: &str, addresses: &[Prefix]) -> Result<(), SwitchError> {
        self.can_host(name)?;
        let Some(start) = &self.hosts else { return Ok(()) };
        let failed = |why: &str| SwitchError::Host(format!("port {name}: its host: {why}"));
        let host = start(name, addresses).map_err(|why| failed(&why))?;
        let mut state = self.state();
        // Guard: `!state.has(slot)` as `false` fails runtime/switch_hosts::a_port_that_is_removed
        if !state.has(slot) {
            drop(state);
            return Err(failed("the port has just been removed"));
        }
        state.hosts.push((slot, host));
        Ok(())
    }

    /// Ends all hosts.
    pub(super) fn end_hosts(&self) {
        let hosts = std::mem::take(&mut self.state().hosts);
        // Guard: `drop(hosts);` as `std::mem::forget(hosts);` fails runtime/switch_hosts::a_host_lives
        drop(hosts);
    }
}
