//! TCP services: a listener in each lane, a task for each connection.

use super::Service;
use super::opening::{self, Listening, Seen, Told};
use super::plan::Plan;
use flowlane::{Host, ListenOptions, SocketError, SocketOptions, TcpListener};
use flowlane_load::tcp::service;

/// The host that serves.
pub(super) fn host(plan: &Plan, told: Told) -> Host {
    let service = plan.service;
    // Nagle's algorithm and the peer's delayed acknowledgements would delay the echo.
    let socket = SocketOptions { nodelay: service == Service::TcpEcho, ..SocketOptions::default() };
    let listening = Listening::of(plan, ListenOptions { socket, ..ListenOptions::default() });
    let serve = move |listener: Option<TcpListener>, seen| async move {
        match listener {
            Some(listener) => lane(listener, service, seen).await,
            None => Ok(()),
        }
    };
    opening::host(plan, told, move || listening.open(), serve)
}

async fn lane(listener: TcpListener, service: Service, seen: Seen) -> Result<(), SocketError> {
    loop {
        let stream = listener.accept().await?;
        seen.connection(&stream);
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
