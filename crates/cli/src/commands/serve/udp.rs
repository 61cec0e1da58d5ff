//! UDP services: one socket in each lane, datagrams in batches.

use super::flows::Flows;
use super::plan::Plan;
use super::{Event, Service};
use flowlane::{Bind, Host, SendError, SocketError, UdpSocket};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Most datagrams received in one batch.
const BATCH: usize = 64;
/// Pause before frames are tried again.
const SOON: Duration = Duration::from_millis(1);

/// The host that serves.
pub(super) fn host(plan: &Plan, flows: Option<Flows>, events: Sender<Event>) -> Host {
    let (bind, service) = (Bind { local_ip: plan.bind(), ..Bind::port(plan.port) }, plan.service);
    plan.host(move || {
        let (flows, events) = (flows.clone(), events.clone());
        async move {
            let socket = match UdpSocket::bind(bind) {
                Ok(socket) => socket,
                Err(e) => {
                    let _ = events.send(Event::Failed(e));
                    return Ok(());
                }
            };
            let _ = events.send(Event::Ready);
            drop(events);
            lane(socket, service, flows).await
        }
    })
}

async fn lane(socket: UdpSocket, service: Service, flows: Option<Flows>) -> Result<(), SocketError> {
    let bucket = flowlane::current().map(|lane| lane.bucket.0).unwrap_or_default();
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
        if let Some(flows) = &flows {
            flows.count(bucket, &batch);
        }
        match service {
            Service::UdpEcho => {
                socket.reply_batch(&mut batch).await?;
            }
            _ => batch.clear(),
        }
    }
}
