//! UDP services: one socket in each lane, datagrams in batches.

use super::Service;
use super::opening::{self, Seen, Told};
use super::plan::Plan;
use flowlane::{Bind, Host, SendError, SocketError, UdpSocket};
use std::time::Duration;

/// Most datagrams received in one batch.
const BATCH: usize = 64;
/// Pause before frames are tried again.
const SOON: Duration = Duration::from_millis(1);

/// The host that serves.
pub(super) fn host(plan: &Plan, told: Told) -> Host {
    let (bind, service) = (Bind { local_ip: plan.bind(), ..Bind::port(plan.port) }, plan.service);
    let serve = move |socket, seen| lane(socket, service, seen);
    opening::host(plan, told, move || UdpSocket::bind(bind), serve)
}

async fn lane(socket: UdpSocket, service: Service, seen: Seen) -> Result<(), SocketError> {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        match socket.recv_batch(&mut batch, BATCH).await {
            Ok(_) => {}
            // Kernel sockets only: all frames are in use.
            Err(SocketError::Send(SendError::NoFrame)) => {
                flowlane::sleep(SOON).await;
                continue;
            }
            Err(e) => return Err(e),
        }
        seen.datagrams(&batch);
        match service {
            Service::UdpEcho => {
                socket.reply_batch(&mut batch).await?;
            }
            _ => batch.clear(),
        }
    }
}
