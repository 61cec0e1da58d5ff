//! TCP services: a listener in each lane, a task for each connection.

use super::flows::Flows;
use super::plan::Plan;
use super::{Event, Service};
use flowlane::{Bucket, FastOpenListen, Host, ListenOptions, SocketError, SocketOptions, TcpListener};
use flowlane_load::tcp::service;
use std::net::IpAddr;
use std::sync::mpsc::Sender;

/// TCP Fast Open of the listeners, if it is asked for.
pub(super) fn fast_open(plan: &Plan) -> Option<FastOpenListen> {
    plan.fast_open.map(|pending| FastOpenListen { pending, ..FastOpenListen::default() })
}

/// The host that serves.
pub(super) fn host(plan: &Plan, flows: Option<Flows>, events: Sender<Event>) -> Host {
    let (bind, port, service, listen) = (plan.bind(), plan.port, plan.service, plan.listen.clone());
    let fast_open = fast_open(plan);
    plan.host(move || {
        let (flows, events, listen) = (flows.clone(), events.clone(), listen.clone());
        async move {
            // Nagle's algorithm and the peer's delayed acknowledgements would delay the echo.
            let socket = SocketOptions { nodelay: service == Service::TcpEcho, ..SocketOptions::default() };
            let options = ListenOptions { socket, fast_open, ..ListenOptions::default() };
            let listener = open(listen.as_deref(), bind, port, options, &events);
            drop(events);
            match listener {
                Some(listener) => lane(listener, service, flows).await,
                None => Ok(()),
            }
        }
    })
}

async fn lane(listener: TcpListener, service: Service, flows: Option<Flows>) -> Result<(), SocketError> {
    loop {
        let stream = listener.accept().await?;
        if let Some(flows) = &flows
            && let Ok((hash, kind, bucket)) = stream.flow()
        {
            flows.connection(bucket.0, hash, kind.as_u8());
        }
        // An error of one connection does not affect the others.
        let serve = async move {
            let _ = match service {
                Service::TcpEcho => service::echo(&stream).await,
                Service::TcpSource(size, total) => service::source(&stream, size, total).await,
                _ => service::discard(&stream).await,
            };
        };
        if flowlane::spawn(serve).is_err() {
            return Ok(());
        }
    }
}

/// Opens the listener of this lane, if it should have one, and reports the result to the main thread.
pub(super) fn open(
    buckets: Option<&[Bucket]>,
    bind: Option<IpAddr>,
    port: u16,
    options: ListenOptions,
    events: &Sender<Event>,
) -> Option<TcpListener> {
    let listener = match buckets {
        None => TcpListener::bind(bind, port, options).map(Some),
        Some(buckets) => TcpListener::bind_in(buckets, bind, port, options),
    };
    opened(listener, events)
}

/// Reports to the main thread what became of the listener of this lane.
pub(super) fn opened(
    listener: Result<Option<TcpListener>, SocketError>,
    events: &Sender<Event>,
) -> Option<TcpListener> {
    match listener {
        Ok(listener) => {
            let _ = events.send(Event::Ready);
            listener
        }
        Err(e) => {
            let _ = events.send(Event::Failed(e));
            None
        }
    }
}
