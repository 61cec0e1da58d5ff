//! A thread that serves HTTP/1.1 on a listener, with a small tokio runtime and hyper on it. Connections, request size and time are limited.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};

use super::until;

/// Bytes of a request's head. Hyper takes no less than 8192.
const HEAD: usize = 8192;
/// Time for a request's head.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// What is listened on.
#[derive(Debug)]
pub(super) enum Door {
    Unix(std::os::unix::net::UnixListener),
    Tcp(std::net::TcpListener),
}

/// How much is served.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections served at once; others wait to be accepted.
    pub(super) connections: usize,
    /// Time for a whole connection.
    pub(super) time: Duration,
    /// Whether a connection may have several requests.
    pub(super) keep_alive: bool,
}

/// A thread that serves. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Server {
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves with `answer` on a thread of this name.
    pub(super) fn start<A, R>(name: &str, door: Door, limits: Limits, answer: A) -> io::Result<Self>
    where
        A: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        match &door {
            Door::Unix(socket) => socket.set_nonblocking(true)?,
            Door::Tcp(socket) => socket.set_nonblocking(true)?,
        }
        let (stop, mut stopped) = watch::channel(());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Collecting a report waits for the workers: on a thread that may.
            .max_blocking_threads(2)
            .build()?;
        let body = move || {
            runtime.block_on(async move {
                let served = async {
                    match door {
                        Door::Unix(socket) => {
                            let listener = UnixListener::from_std(socket)?;
                            accept(async || Ok(listener.accept().await?.0), limits, answer).await;
                        }
                        Door::Tcp(socket) => {
                            let listener = TcpListener::from_std(socket)?;
                            accept(async || Ok(listener.accept().await?.0), limits, answer).await;
                        }
                    }
                    io::Result::Ok(())
                };
                tokio::select! {
                    ended = served => if let Err(e) = ended { tracing::error!("serving HTTP: {e}") },
                    _ = stopped.changed() => {}
                }
            });
            // Without waiting for a worker that does not answer.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(body)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts and serves for ever.
async fn accept<S, A, R>(next: impl AsyncFn() -> io::Result<S>, limits: Limits, answer: A)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let place = places.clone().acquire_owned().await;
        let Ok(stream) = next().await else {
            // No descriptors left, most likely: there may be some soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answered = (!until::is_over(&request)).then(|| answer(request));
                async move {
                    Ok::<_, Infallible>(match answered {
                        Some(answered) => answered.await,
                        None => too_late(),
                    })
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .max_buf_size(HEAD)
                .keep_alive(limits.keep_alive)
                .serve_connection(TokioIo::new(stream), service);
            // A client that goes away or writes nonsense is its own trouble.
            let _ = tokio::time::timeout(limits.time, connection).await;
            drop(place);
        });
    }
}

/// The answer to a request that is not done.
fn too_late() -> Response<Full<Bytes>> {
    let why = "the request came too late: who sent it has been told that there is no answer";
    let body = serde_json::json!({ "version": super::VERSION, "error": why });
    respond(StatusCode::CONFLICT, "application/json", body.to_string().into_bytes())
}

/// An answer with a body of this type, not to be kept.
pub(super) fn respond(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether the request's one `Host` line names this address, or `localhost` where that is a loopback address.
pub(super) fn names_us(request: &Request<Incoming>, address: SocketAddr) -> bool {
    let mut lines = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (lines.next(), lines.next()) else { return false };
    is_name_of(host.as_bytes(), address)
}

pub(super) fn is_name_of(host: &[u8], address: SocketAddr) -> bool {
    let Ok(host) = Authority::try_from(host) else { return false };
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    let ip = address.ip();
    let known = match name.parse::<IpAddr>() {
        Ok(named) => named.to_canonical() == ip.to_canonical(),
        Err(_) => ip.to_canonical().is_loopback() && name.eq_ignore_ascii_case("localhost"),
    };
    known && host.port_u16().unwrap_or(80) == address.port() && !host.as_str().contains('@')
}
