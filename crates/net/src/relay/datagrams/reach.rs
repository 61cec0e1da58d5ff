//! Which target a flow gets, and a socket to it. A target that refused a moment ago gets none while there are others.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use flowlane_stack::packet::IcmpErrorKind;
use flowlane_stack::udp::BindError;

use super::InOneLane;
use super::flow::{Flow, Key, micros};
use crate::error::SocketError;
use crate::relay::{Balance, TRIES, count_none};
use crate::udp::UdpSocket;

/// For so long a target that refused gets no flows while there are others.
const SHUNNED: Duration = Duration::from_secs(1);

impl InOneLane {
    /// Targets that refused a moment ago, a bit for each.
    fn shunned(&self) -> u64 {
        let now = micros();
        let shunned = self.shared.shunned.iter().enumerate().filter(|(_, until)| now < until.load(Relaxed));
        shunned.fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// The network said that a flow's target cannot be reached; whether the flow is to go to another.
    pub(super) fn refused(&self, flow: &Flow, kind: IcmpErrorKind) -> bool {
        self.relay.count(self.base + flow.target, |t| match kind {
            IcmpErrorKind::PortUnreachable => t.refused += 1,
            _ => t.unreachable += 1,
        });
        let until = micros() + SHUNNED.as_micros() as u64;
        self.shared.shunned[flow.target].store(until, Relaxed);
        let shunned = self.shunned();
        let targets = self.relay.0.targets.iter().enumerate();
        // Guard: `shunned & 1 << at == 0 && t.is_up()` as `false` fails
        // runtime/relay::datagrams::a_target_that_refuses
        targets.filter(|(at, t)| shunned & 1 << at == 0 && t.is_up()).count() > 0
    }

    /// A socket to a target; `None` if there is none to be had, which is counted.
    pub(super) fn reach(&self, key: &Key) -> Option<(usize, UdpSocket)> {
        let (targets, config) = (&self.relay.0.targets, &self.relay.0.config);
        let hash = if config.balance == Balance::Hash && targets.len() > 1 { key.hash() } else { 0 };
        let (mut tried, shunned) = (0, self.shunned());
        for _ in 0..TRIES {
            let Some(at) = self.relay.next_target(self.base, hash, tried, shunned) else { break };
            tried |= 1 << at;
            let error = match self.connect(targets[at].address) {
                Ok(socket) => return Some((at, socket)),
                Err(error) => error,
            };
            self.relay.count(self.base + at, |t| match error {
                SocketError::Bind(BindError::NoRoute) => t.unreachable += 1,
                SocketError::NoDescriptor => t.no_descriptor += 1,
                _ => t.connect_failed += 1,
            });
            if error == SocketError::NoDescriptor {
                // Another target needs one, too.
                break;
            }
        }
        count_none(tried);
        None
    }

    fn connect(&self, to: SocketAddr) -> Result<UdpSocket, SocketError> {
        if self.relay.0.config.by_kernel { UdpSocket::connect_by_kernel(to) } else { UdpSocket::connect(to) }
    }
}
