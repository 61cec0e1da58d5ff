//! SEND (RFC 9293 §3.10.2): bytes copied in or given away, and where records end.

use crate::packet::Cx;
use crate::tcp::Tcp;
use crate::tcp::connection::{Flags, PLAIN, State};
use crate::tcp::error::{SendError, StaleError};
use crate::tcp::table::ConnId;
use crate::tcp::write::Source;
use flowlane_sys::block::OwnedBytes;

/// Fewer bytes than that are copied in any case: it costs less than to keep an owner.
const WORTH_OWNING: usize = 2048;

impl Tcp {
    /// Queues bytes to be sent (RFC 9293 §3.10.2); how many were taken.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if none could be taken now.
    pub fn send(&mut self, cx: &mut Cx<'_>, id: ConnId, bytes: &[u8]) -> Result<usize, SendError> {
        self.send_with(cx, id, bytes, false)
    }

    /// As [`send`](Self::send); with `more`, a last small segment waits for what follows (`MSG_MORE`).
    ///
    /// # Errors
    /// As for `send`.
    pub fn send_with(
        &mut self,
        cx: &mut Cx<'_>,
        id: ConnId,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        self.send_from(cx, id, Source::Copied(bytes), more)
    }

    /// As [`send`](Self::send), without copying: segments refer to the bytes in place, and their owner is kept until all are acknowledged.
    /// Accepted bytes are removed from `bytes`.
    ///
    /// # Errors
    /// As for `send`.
    pub fn send_owned(
        &mut self,
        cx: &mut Cx<'_>,
        id: ConnId,
        bytes: &mut OwnedBytes,
    ) -> Result<usize, SendError> {
        if bytes.len() >= WORTH_OWNING {
            return self.send_from(cx, id, Source::Owned(bytes), false);
        }
        let n = self.send(cx, id, bytes.data())?;
        drop(bytes.split_to(n));
        Ok(n)
    }

    fn send_from(
        &mut self,
        cx: &mut Cx<'_>,
        id: ConnId,
        bytes: Source<'_>,
        more: bool,
    ) -> Result<usize, SendError> {
        self.connections.prefetch(id.slot, PLAIN);
        let c = self.connections.get_mut(id).ok_or(SendError::Stale)?;
        if let Some(failure) = c.failure() {
            return Err(SendError::Failed(failure));
        }
        if !c.state().may_send() || c.has(Flags::FIN_QUEUED | Flags::DETACHED) {
            return Err(SendError::Closed);
        }
        if matches!(c.state(), State::SynSent | State::SynReceived) && !c.is_early() {
            return Err(SendError::WouldBlock);
        }
        if bytes.len() == 0 {
            return Ok(0);
        }
        let push = c.tx.get().and_then(|tx| tx.writes.last());
        let taken = c.take_for_sending(&mut self.core, cx.now, bytes);
        if taken == 0 {
            return Err(SendError::WouldBlock);
        }
        c.set_more(more);
        if let (true, Some(tx)) = (more, c.tx.get_mut()) {
            // No PSH here: the write is not over.
            tx.writes.end_at(push);
        }
        self.core.settle(c);
        Ok(taken)
    }

    /// Ends a record (`MSG_EOR`): bytes written after this share no segment with bytes written before. At most 4096 ends
    /// are kept for a connection.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn end_record(&mut self, id: ConnId) -> Result<(), StaleError> {
        let c = self.connections.get_mut(id).ok_or(StaleError)?;
        let end = c.data_seq() + c.buffered();
        if let Some(tx) = c.tx.get_mut().filter(|_| end > c.snd.nxt()) {
            tx.writes.end_record(end);
        }
        Ok(())
    }
}
