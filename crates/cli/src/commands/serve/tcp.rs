//! TCP services: a listener in each lane, a task for each connection.

use super::flows::Flows;
use super::plan::Plan;
use super::{Event, Service};
use flowlane::{Host, SocketError, TcpListener, TcpStream};
use std::net::Shutdown;
use std::sync::mpsc::Sender;

/// Bytes read at once.
const BUFFER: usize = 1 << 16;

/// The host that serves.
pub(super) fn host(plan: &Plan, flows: Option<Flows>, events: Sender<Event>) -> Host {
    let (port, service) = (plan.port, plan.service);
    plan.host(move || {
        let (flows, events) = (flows.clone(), events.clone());
        async move {
            let listener = match TcpListener::on_port(port) {
                Ok(listener) => listener,
                Err(e) => {
                    let _ = events.send(Event::Failed(e));
                    return;
                }
            };
            let _ = events.send(Event::Ready);
            drop(events);
            // Ends when the runtime does.
            let _ = lane(listener, service, flows).await;
        }
    })
}

async fn lane(listener: TcpListener, service: Service, flows: Option<Flows>) -> Result<(), SocketError> {
    loop {
        let stream = listener.accept().await?;
        if let (Some(flows), Ok((hash, kind, bucket))) = (&flows, stream.flow()) {
            flows.connection(bucket.0, hash, kind.as_u8());
        }
        // A connection that ends badly concerns nobody else.
        let serve = async move {
            let _ = connection(&stream, service).await;
        };
        if flowlane::spawn(serve).is_err() {
            return Ok(());
        }
    }
}

/// Holds a buffer only while there is something to read: idle connections are many.
async fn connection(stream: &TcpStream, service: Service) -> Result<(), SocketError> {
    loop {
        stream.readable().await?;
        let mut buffer = vec![0; BUFFER];
        while let Some(n) = stream.try_read(&mut buffer)? {
            if n == 0 {
                return stream.shutdown(Shutdown::Write);
            }
            if service == Service::TcpEcho {
                stream.write_all(&buffer[..n]).await?;
            }
        }
    }
}
