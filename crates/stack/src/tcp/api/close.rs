//! CLOSE and ABORT (RFC 9293 §3.10.4, §3.10.5), and ending one direction.

use core::net::IpAddr;

use crate::packet::Cx;
use crate::tcp::Tcp;
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::error::{Failure, StaleError};
use crate::tcp::lane::flow_records::FlowEnd;
use crate::tcp::table::ConnId;
use crate::time::Time;

impl Tcp {
    /// Closes one direction or both, keeping the handle. Closing the sending direction of a connection that is not established and has no
    /// data to send aborts it (RFC 9293 §3.10.4, SYN-SENT): reads and writes return [`Failure::GivenUp`].
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn shutdown(
        &mut self,
        cx: &mut Cx<'_>,
        id: ConnId,
        how: std::net::Shutdown,
    ) -> Result<(), StaleError> {
        use std::net::Shutdown::{Both, Read, Write};
        let c = self.connections.get_mut(id).ok_or(StaleError)?;
        if matches!(how, Read | Both) {
            c.shut_reading();
            if let Some(rx) = c.rx.get_mut() {
                let before = rx.holds();
                rx.forget();
                self.core.account(before, rx.holds());
            }
            c.wake_read();
        }
        if matches!(how, Write | Both) {
            c.close_send(&mut self.core);
            if c.state() == State::SynSent && !c.has(Flags::FIN_QUEUED) {
                // Guard: `Some(Failure::GivenUp)` as `None` fails handshake::who_gives_up
                self.core.kill(c, cx.now, FlowEnd::GivenUp, Some(Failure::GivenUp));
            }
            c.wake_write();
        }
        let slot = id.slot;
        self.finish(slot);
        Ok(())
    }

    /// Gives the handle up: what was written is still sent, then FIN (RFC 9293 §3.10.4), as `linger` says.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn close(&mut self, cx: &mut Cx<'_>, id: ConnId) -> Result<(), StaleError> {
        let c = self.connections.get_mut(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        c.close(&mut self.core, cx);
        if let Some(over) = self.core.settled(c) {
            self.forget(over);
        }
        self.feed_starved();
        Ok(())
    }

    /// Takes no new connections, and ends those there are: FIN behind what was written, or a reset if `at_once`. Handles stay.
    pub fn end_all(&mut self, cx: &mut Cx<'_>, at_once: bool) {
        self.core.take_no_more();
        let slots: Vec<u32> = self.connections.iter().map(|c| c.id().slot).collect();
        for slot in slots {
            let Some(c) = self.connections.get_slot_mut(slot) else { continue };
            match (at_once, c.state()) {
                (_, State::Closed | State::TimeWait) => {}
                (true, _) => c.abort(&mut self.core, cx),
                (false, State::SynSent) => self.core.kill(c, cx.now, FlowEnd::GivenUp, None),
                (false, _) => {
                    c.close_send(&mut self.core);
                    c.wake_write();
                }
            }
            self.finish(slot);
        }
    }

    /// An address is not ours any more: connections from it fail, without a word to their peers, who could not trust it. How many.
    pub fn lose_address(&mut self, now: Time, address: IpAddr) -> usize {
        let of = |c: &&Connection| c.local() == address && c.state() != State::Closed;
        let slots: Vec<u32> = self.connections.iter().filter(of).map(|c| c.id().slot).collect();
        for slot in &slots {
            if let Some(c) = self.connections.get_slot_mut(*slot) {
                self.core.kill(c, now, FlowEnd::AddressLost, Some(Failure::AddressLost));
            }
            self.finish(*slot);
        }
        slots.len()
    }

    /// Connections that the peer still knows of.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.connections.iter().filter(|c| !matches!(c.state(), State::Closed | State::TimeWait)).count()
    }

    /// Gives the handle up and resets the connection (RFC 9293 §3.10.5).
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn abort(&mut self, cx: &mut Cx<'_>, id: ConnId) -> Result<(), StaleError> {
        let slot = self.handle_mut(id)?.id().slot;
        if let Some(c) = self.connections.get_slot_mut(slot) {
            c.detach();
            if c.state() != State::Closed {
                c.abort(&mut self.core, cx);
            }
        }
        self.finish(slot);
        Ok(())
    }
}
