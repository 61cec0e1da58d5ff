//! UDP services: one socket in each lane, datagrams in batches.

use super::flows::Flows;
use super::plan::Plan;
use super::{Event, Service};
use flowlane::{Bind, Host, SocketError, UdpSocket};
use std::sync::mpsc::Sender;

/// Datagrams handled at once.
const BATCH: usize = 64;

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
                    return;
                }
            };
            let _ = events.send(Event::Ready);
            drop(events);
            // Ends when the runtime does.
            let _ = lane(socket, service, flows).await;
        }
    })
}

async fn lane(socket: UdpSocket, service: Service, flows: Option<Flows>) -> Result<(), SocketError> {
    let bucket = flowlane::current().map(|lane| lane.bucket.0).unwrap_or_default();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        socket.recv_batch(&mut batch, BATCH).await?;
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
