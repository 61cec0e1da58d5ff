//! `/metrics` over TCP, for Prometheus and programs like it. Nothing listens unless it is asked for.
//!
//! Whoever can connect can read counters, and nothing else: there is no key, no address of a peer and nothing to change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::listening::{ListenError, Listening};
use super::serving::{Door, Limits, Server, respond};
use crate::Handle;
use crate::metrics::text::{Format, write};
use crate::metrics::{Instance, Snapshot};

/// A reader is served once a connection, and then closed.
const LIMITS: Limits = Limits { connections: 4, time: Duration::from_secs(15), keep_alive: false };

/// Listens at `address` before a runtime exists, so that privileges can be given up in between. Port 0 is any free port.
///
/// # Errors
/// See [`ListenError`].
pub fn listen_for_metrics(address: SocketAddr) -> Result<MetricsListener, ListenError> {
    Listening::open("metrics", address).map(MetricsListener)
}

/// A socket for `/metrics` that is open and does not answer yet.
#[derive(Debug)]
pub struct MetricsListener(Listening);

impl MetricsListener {
    /// Starts to answer for a runtime. `name` says what kind of program this is.
    ///
    /// # Errors
    /// [`ListenError::System`] when no thread can be had.
    pub fn serve(self, handle: Handle, name: &str) -> Result<Metrics, ListenError> {
        let (refused, address) = (self.0.refused(), self.0.address);
        let served = Arc::new((handle, Instance::new(name)));
        let answer = move |request| answer(request, served.clone());
        let server =
            Server::start("flowlane-metrics", Door::Tcp(self.0.socket), LIMITS, answer).map_err(refused)?;
        Ok(Metrics { _server: server, address })
    }
}

/// A `/metrics` that answers. Dropping it stops it.
#[derive(Debug)]
pub struct Metrics {
    _server: Server,
    address: SocketAddr,
}

impl Metrics {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn answer(request: Request<Incoming>, served: Arc<(Handle, Instance)>) -> Response<Full<Bytes>> {
    let words = |status, words: &str| respond(status, "text/plain; charset=utf-8", words.as_bytes().to_vec());
    if request.method() != Method::GET {
        let mut response = words(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    if request.uri().path() != "/metrics" {
        return words(StatusCode::NOT_FOUND, "try /metrics\n");
    }
    exposed(&request, served.0.clone(), served.1.clone()).await
}

/// The metrics in the format that the request asks for.
pub(super) async fn exposed(
    request: &Request<Incoming>,
    handle: Handle,
    instance: Instance,
) -> Response<Full<Bytes>> {
    let accept: Vec<&str> =
        request.headers().get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok()).collect();
    let format = Format::accepted(&accept.join(","));
    let text = move || write(&Snapshot::take(&handle, &instance).metrics(), format);
    match tokio::task::spawn_blocking(text).await {
        Ok(text) => respond(StatusCode::OK, format.content_type(), text.into_bytes()),
        Err(_) => respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", Vec::new()),
    }
}
