//! `/metrics` over TCP, for Prometheus and programs like it: what is read for each request, in a program without a runtime (`flowlane rss
//! export`) or [with one](super::metrics).
//!
//! Whoever can connect can read these numbers, and nothing else. A request that names another host than the address is refused, as for the
//! [page](super::web), so that a page of somebody else cannot read them by a name that leads here (DNS rebinding).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::listening::{ListenError, Listening};
use super::serving::{Door, Limits, Server, names_us, respond};
use crate::metrics::Metric;
use crate::metrics::text::{Format, write};

/// A reader is served once a connection, and then closed.
const LIMITS: Limits = Limits { connections: 4, time: Duration::from_secs(15), keep_alive: false };
const WORDS: &str = "text/plain; charset=utf-8";

/// Answers at `address` with the metrics that `read` returns; it is called for each request, on a thread of its own. Port 0 is any free port.
///
/// # Errors
/// See [`ListenError`].
pub fn export<F>(address: SocketAddr, read: F) -> Result<Exported, ListenError>
where
    F: Fn() -> Vec<Metric> + Send + Sync + 'static,
{
    serve(Listening::open("metrics", address)?, "flowlane-export", Arc::new(read))
}

/// What is read for each request.
pub(super) type Read = dyn Fn() -> Vec<Metric> + Send + Sync;

/// Answers at a socket that is open, on a thread of this name.
pub(super) fn serve(listening: Listening, thread: &str, read: Arc<Read>) -> Result<Exported, ListenError> {
    let (refused, address) = (listening.refused(), listening.address);
    let answer = move |request| answer(request, address, read.clone());
    let server = Server::start(thread, Door::Tcp(listening.socket), LIMITS, answer).map_err(refused)?;
    Ok(Exported { _server: server, address })
}

/// Metrics that are served. Dropping it stops that.
#[derive(Debug)]
pub struct Exported {
    _server: Server,
    address: SocketAddr,
}

impl Exported {
    /// Where they are.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn answer(request: Request<Incoming>, address: SocketAddr, read: Arc<Read>) -> Response<Full<Bytes>> {
    let words = |status, words: &str| respond(status, WORDS, words.as_bytes().to_vec());
    // Guard: `!names_us(&request, address)` as `false` fails
    // exported::tests::only_its_own_name_leads_to_the_metrics
    if !names_us(&request, address) {
        return words(
            StatusCode::MISDIRECTED_REQUEST,
            &format!("the metrics are at http://{address}/metrics only\n"),
        );
    }
    if request.method() != Method::GET {
        let mut response = words(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    if request.uri().path() != "/metrics" {
        return words(StatusCode::NOT_FOUND, "try /metrics\n");
    }
    written(&request, move || read()).await
}

/// The metrics in the format that the request asks for.
pub(super) async fn written(
    request: &Request<Incoming>,
    read: impl FnOnce() -> Vec<Metric> + Send + 'static,
) -> Response<Full<Bytes>> {
    let accept: Vec<&str> =
        request.headers().get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok()).collect();
    let format = Format::accepted(&accept.join(","));
    match tokio::task::spawn_blocking(move || write(&read(), format)).await {
        Ok(text) => respond(StatusCode::OK, format.content_type(), text.into_bytes()),
        Err(_) => {
            respond(StatusCode::INTERNAL_SERVER_ERROR, WORDS, b"the numbers could not be read\n".to_vec())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::metrics::{Kind, Sample};
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn read() -> Vec<Metric> {
        let samples = vec![Sample { labels: Default::default(), value: 7.0 }];
        let (name, help) = ("flowlane_seven".to_owned(), "Seven.".to_owned());
        vec![Metric { name, kind: Kind::Gauge, unit: String::new(), help, samples }]
    }

    #[test]
    fn only_its_own_name_leads_to_the_metrics() {
        let exported = export("127.0.0.1:0".parse().unwrap(), read).unwrap();
        let ask = |method: &str, path: &str, host: &str| {
            let mut stream = TcpStream::connect(exported.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let own = exported.address().to_string();
        let answer = ask("GET", "/metrics", &own);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\nflowlane_seven 7\n"), "{answer}");
        for (method, path, host, status) in [
            ("GET", "/metrics", "evil.example", 421),
            ("GET", "/metrics", "evil.example:80", 421),
            ("GET", "/", own.as_str(), 404),
            ("POST", "/metrics", own.as_str(), 405),
        ] {
            let answer = ask(method, path, host);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path} {host}: {answer}");
            assert!(!answer.contains("seven"), "{answer}");
        }
        let everywhere = export("0.0.0.0:0".parse().unwrap(), read).unwrap_err();
        assert!(matches!(everywhere, ListenError::Everywhere { .. }), "{everywhere}");
    }
}
