//! A relay of UDP: a connected socket to a target for each flow, which is a client and the address that it asked.
//!
//! ```text
//!   client ─▶ socket of the lane ─▶ table ─▶ connected socket of the flow ─▶ target
//!   client ◀─ socket of the lane ◀── task of the flow ◀──────────────────────┘
//! ```
//!
//! The lane that receives a flow's first datagram has the flow: the table belongs to the task that receives, and needs no lock. A task for
//! each flow waits for answers, for its time to be over, and for the end of the service. What it leaves behind is put on a list
//! ([`Shared`]), from which the table is cleaned.
//!
//! * `flow`: what a flow is, and what tasks share. `front`: the table, and what clients send. `answers`: what targets send.
//! * `reach`: which target a flow gets.
//!
//! Nobody waits for room: what finds none is dropped and counted, so that one slow direction stops no other flow.

mod answers;
mod flow;
mod front;
mod reach;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flowlane_stack::udp::Datagram;

use super::Relay;
use crate::error::SocketError;
use crate::service::InLane;
use crate::task::keep;
use crate::udp::UdpSocket;

use flow::{LaneGoes, Shared};
use front::Front;

/// Pause before frames are tried again.
const SOON: Duration = Duration::from_millis(1);

impl Relay {
    /// Relays the datagrams of a socket until the service is stopped, and ends all flows then. Call it in every lane, each with its own
    /// socket on the port of the service; `each` is shown every batch.
    ///
    /// Of the configuration, what concerns connecting, health checks and the PROXY protocol means nothing here. Flows end after
    /// [`RelayConfig::idle`](super::RelayConfig::idle), or after a minute if it is `None`.
    ///
    /// # Errors
    /// The socket cannot receive, or the call is outside a lane.
    pub async fn serve_datagrams(
        &self,
        socket: UdpSocket,
        each: impl FnMut(&[Datagram]) + Send,
    ) -> Result<(), SocketError> {
        let base = self.begin()?;
        let at = self.0.service.here()?;
        let shared = Arc::new(Shared::new(socket, self.0.targets.len()));
        keep(LaneGoes(shared.clone())).map_err(|_| SocketError::WrongLane)?;
        let mut front = Front::new(InOneLane { relay: self.clone(), base, at: at.clone(), shared });
        let (mut stopping, mut serving) = (pin!(at.stopping()), pin!(front.serve(each)));
        poll_fn(|cx| match stopping.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => serving.as_mut().poll(cx),
        })
        .await
    }
}

/// The relay in one lane.
#[derive(Debug, Clone)]
struct InOneLane {
    relay: Relay,
    /// Place of the counters of the first target.
    base: usize,
    at: InLane,
    shared: Arc<Shared>,
}
