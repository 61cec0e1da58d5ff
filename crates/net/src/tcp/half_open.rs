//! SYNs without connections, for generators of half-open clients: see [`flowlane_stack::tcp::SynAnswer`].

use std::task::{Context, Poll};

use flowlane_stack::address::Endpoint;
use flowlane_stack::tcp::SynAnswer;

use crate::context::LaneRef;
use crate::error::SocketError;

/// The half-open clients of one lane. The mode lasts as long as the lane.
#[derive(Debug)]
pub struct TcpHalfOpen {
    lane: LaneRef,
}

impl TcpHalfOpen {
    /// Begins in the lane of the calling task. `quiet`: what answers gets nothing back, neither an acknowledgement nor a
    /// reset; otherwise it is reset.
    ///
    /// # Errors
    /// [`SocketError::Unsupported`] on kernel sockets, [`SocketError::WrongLane`] outside a lane.
    pub fn open(quiet: bool) -> Result<Self, SocketError> {
        let lane = LaneRef::current()?;
        lane.with(|slot, _, _| {
            if slot.own_kernel().is_some() {
                return Err(SocketError::Unsupported("send a SYN without a connection: use a link"));
            }
            slot.lane.tcp_mut().half_open(quiet);
            Ok(())
        })??;
        Ok(Self { lane })
    }

    /// Sends a SYN with that sequence number; `false` when there is no room now, or no route.
    ///
    /// # Errors
    /// On another lane.
    pub fn try_send_syn(&self, local: Endpoint, remote: Endpoint, seq: u32) -> Result<bool, SocketError> {
        self.lane.with(|slot, now, frames| Ok(slot.lane.tcp_send_syn(now, frames, local, remote, seq)))?
    }

    /// Appends received answers to `into`, or registers the task to be woken by the next one. Returns the number of answers lost because
    /// they were not taken in time.
    ///
    /// # Errors
    /// On another lane.
    pub fn poll_heard(
        &self,
        cx: &mut Context<'_>,
        into: &mut Vec<SynAnswer>,
    ) -> Poll<Result<u64, SocketError>> {
        let before = into.len();
        let taken = self.lane.with(|slot, _, _| {
            let missed = slot.lane.tcp_mut().syn_answers(into);
            if into.len() == before && missed == 0 {
                slot.lane.tcp_mut().wake_on_syn_answer(cx.waker());
            }
            missed
        });
        match taken {
            Err(e) => Poll::Ready(Err(e.into())),
            Ok(0) if into.len() == before => Poll::Pending,
            Ok(missed) => Poll::Ready(Ok(missed)),
        }
    }
}
