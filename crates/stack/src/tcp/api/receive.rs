//! RECEIVE (RFC 9293 §3.10.3), and the effect of reading on the window and the receive buffer.

use crate::packet::Cx;
use crate::tcp::Tcp;
use crate::tcp::connection::recv_buffer::Inflow;
use crate::tcp::connection::{Connection, Flags, Lists, State};
use crate::tcp::error::RecvError;
use crate::tcp::lane::Core;
use crate::tcp::table::ConnId;
use flowlane_sys::frame::Frame;

impl Tcp {
    /// Reads bytes (RFC 9293 §3.10.3); 0 at the end of the stream.
    ///
    /// # Errors
    /// [`RecvError::WouldBlock`] if there are none now.
    pub fn recv(&mut self, cx: &mut Cx<'_>, id: ConnId, into: &mut [u8]) -> Result<usize, RecvError> {
        let c = self.connections.get_mut(id).ok_or(RecvError::Stale)?;
        if into.is_empty() {
            return Ok(0);
        }
        if c.readable() == 0 {
            return c.nothing_to_read().map(|()| 0);
        }
        let Some(rx) = c.rx.get_mut() else { return Err(RecvError::WouldBlock) };
        let before = rx.holds();
        let n = rx.read(into);
        self.core.account(before, rx.holds());
        c.was_read(&mut self.core, cx, n);
        self.feed_starved();
        Ok(n)
    }

    /// As [`recv`](Self::recv), but the bytes stay.
    ///
    /// # Errors
    /// As for `recv`.
    pub fn peek(&mut self, id: ConnId, into: &mut [u8]) -> Result<usize, RecvError> {
        let c = self.connections.get_mut(id).ok_or(RecvError::Stale)?;
        match c.rx.get() {
            Some(rx) if rx.queued() > 0 => Ok(rx.peek(into)),
            _ => c.nothing_to_read().map(|()| 0),
        }
    }

    /// Takes the next received frame, payload only; `None` at the end of the stream.
    ///
    /// # Errors
    /// As for `recv`.
    pub fn recv_frame(&mut self, cx: &mut Cx<'_>, id: ConnId) -> Result<Option<Frame>, RecvError> {
        let c = self.connections.get_mut(id).ok_or(RecvError::Stale)?;
        let Some(rx) = c.rx.get_mut().filter(|rx| rx.queued() > 0) else {
            return c.nothing_to_read().map(|()| None);
        };
        let before = rx.holds();
        // Without a free frame for what was copied there is nothing to give now.
        let frame = rx.take(cx.frames).ok_or(RecvError::WouldBlock)?;
        self.core.account(before, rx.holds());
        c.was_read(&mut self.core, cx, frame.len());
        self.feed_starved();
        Ok(Some(frame))
    }
}

impl Connection {
    /// Nothing is queued: is it the end?
    fn nothing_to_read(&self) -> Result<(), RecvError> {
        // The stream was whole before whatever ended the connection.
        if self.has(Flags::FIN_RECEIVED) {
            return Ok(());
        }
        if let Some(failure) = self.failure() {
            return Err(RecvError::Failed(failure));
        }
        let over = matches!(self.state(), State::Closed | State::TimeWait);
        if over || self.has(Flags::READ_SHUT) { Ok(()) } else { Err(RecvError::WouldBlock) }
    }

    /// After the application took bytes: window, buffer size, memory.
    fn was_read(&mut self, core: &mut Core, cx: &Cx<'_>, n: usize) {
        self.pass_urgent_mark();
        self.tune_recv_buffer(core, cx, n as u32);
        if let Some(rx) = self.rx.get_mut().filter(|rx| rx.is_empty()) {
            core.give_spare(rx);
        }
        self.window_opened(core, cx);
        if let Some(rx) = self.rx.take_if(Inflow::is_idle) {
            core.give_inflow(rx);
        }
        // A wider window is all that reading can have to say.
        if self.has(Flags::ACK_NOW) && self.is_in(Lists::LINKED) {
            core.queue(self);
        }
    }

    /// The receive buffer follows what the application reads in a round trip: twice that, so that the sender's window can
    /// double each round as in slow start.
    fn tune_recv_buffer(&mut self, core: &Core, cx: &Cx<'_>, n: u32) {
        let round = self.rtt.srtt().max(1000);
        let Some(want) = self.rcv.tune(n, cx.now.as_micros() as u32, round) else { return };
        let want = want.min(core.config.recv_buffer.max).min(core.most_buffer());
        let fixed = || self.options().is_some_and(|o| o.recv_buffer.is_some());
        if want > self.rcv.limit() && !fixed() && !core.is_scarce(cx) {
            self.rcv.set_limit(want);
        }
    }
}
