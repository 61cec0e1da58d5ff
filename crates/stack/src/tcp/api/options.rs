//! The options of a connection's socket.

use crate::packet::Cx;
use crate::tcp::Tcp;
use crate::tcp::config::SocketOptions;
use crate::tcp::connection::Flags;
use crate::tcp::error::StaleError;
use crate::tcp::table::ConnId;

impl Tcp {
    /// The socket's options.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn options(&self, id: ConnId) -> Result<SocketOptions, StaleError> {
        let c = self.connections.get(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        let plain = SocketOptions {
            nodelay: c.has(Flags::NODELAY),
            cork: c.has(Flags::CORK),
            tos: c.tos(),
            ..SocketOptions::default()
        };
        Ok(c.options().map_or(plain, |o| SocketOptions { nodelay: plain.nodelay, ..*o }))
    }

    /// Sends acknowledgements at once (`on`), or delays them so that they can go with our data, until the pattern of the exchange changes
    /// that. A delayed acknowledgement is sent now.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn quick_ack(&mut self, id: ConnId, on: bool) -> Result<(), StaleError> {
        let c = self.connections.get_mut(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        c.set_interactive(!on);
        if on && c.has(Flags::ACK_DELAYED) {
            c.ack_at_once();
        }
        self.core.settle(c);
        Ok(())
    }

    /// Changes the socket's options.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn set_options(
        &mut self,
        cx: &mut Cx<'_>,
        id: ConnId,
        options: &SocketOptions,
    ) -> Result<(), StaleError> {
        let c = self.connections.get_mut(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        let uncorked = c.has(Flags::CORK) && !options.cork || !c.has(Flags::NODELAY) && options.nodelay;
        c.apply(options);
        c.fit_model(&mut self.core, cx.now);
        if uncorked {
            c.set_more(false);
            c.set_force(c.unsent() > 0);
        }
        if c.state().is_synchronized() {
            if options.keepalive.is_some() {
                c.arm_keepalive(cx.now);
            } else if !c.has(Flags::DETACHED) {
                c.timers.stop_life();
            }
        }
        self.core.settle(c);
        Ok(())
    }
}
