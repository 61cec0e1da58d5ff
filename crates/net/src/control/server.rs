//! The server: a thread with a small tokio runtime, and hyper on it.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};

use super::place::SocketFile;
use super::view::{Instance, MoveRequest, MoveView, ReportView};
use crate::{Bucket, Handle};

/// Connections served at once; others wait to be accepted.
const CONNECTIONS: usize = 16;
/// Bytes of a request's head. Hyper takes no less than 8192.
const HEAD: usize = 8192;
/// Bytes of a request's body.
const BODY: usize = 1024;
/// Time for a request's head, and for a whole connection.
const HEAD_TIME: Duration = Duration::from_secs(5);
const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// A control socket that answers. Dropping it stops it and removes its file.
#[derive(Debug)]
pub struct Control {
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    file: SocketFile,
}

impl Control {
    pub(super) fn start(
        socket: std::os::unix::net::UnixListener,
        file: SocketFile,
        handle: Handle,
        name: &str,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let instance = Instance::new(name);
        let (stop, stopped) = watch::channel(());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Collecting a report waits for the workers: on a thread that may.
            .max_blocking_threads(2)
            .build()?;
        let body = move || {
            runtime.block_on(async move {
                match UnixListener::from_std(socket) {
                    Ok(listener) => accept(listener, Arc::new((handle, instance)), stopped).await,
                    Err(e) => tracing::error!("control socket: {e}"),
                }
            });
            // Without waiting for a worker that does not answer.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("flowlane-control".into()).spawn(body)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), file })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Served = Arc<(Handle, Instance)>;

async fn accept(listener: UnixListener, served: Served, mut stopped: watch::Receiver<()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            _ = stopped.changed() => return,
        };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        let Ok((stream, _)) = stream else {
            // No descriptors left, most likely: there may be some soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let served = served.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, served.clone()));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .max_buf_size(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            // A client that goes away or writes nonsense is its own trouble.
            let _ = tokio::time::timeout(CONNECTION_TIME, connection).await;
            drop(place);
        });
    }
}

async fn answer(request: Request<Incoming>, served: Served) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/v1/move" && request.method() == Method::POST {
        return Ok(move_lane(request, served).await);
    }
    if request.method() != Method::GET {
        let mut response = failure(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET"));
        return Ok(response);
    }
    let Some(what) = request.uri().path().strip_prefix("/v1/").map(str::to_owned) else {
        return Ok(failure(StatusCode::NOT_FOUND, "no such document: try /v1/report"));
    };
    let collected = tokio::task::spawn_blocking(move || document(&what, &served)).await;
    Ok(match collected {
        Ok(Some(Ok(text))) => respond(StatusCode::OK, text),
        Ok(None) => failure(StatusCode::NOT_FOUND, "no such document: try /v1/report"),
        Ok(Some(Err(_))) | Err(_) => {
            failure(StatusCode::INTERNAL_SERVER_ERROR, "the report could not be made")
        }
    })
}

/// Moves a lane. No further permission is checked, since a user who may connect may also stop the process.
async fn move_lane(request: Request<Incoming>, served: Served) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), BODY).collect().await.ok().map(Collected::to_bytes);
    let asked = body.and_then(|body| serde_json::from_slice::<MoveRequest>(&body).ok());
    let Some(asked) = asked else {
        return failure(StatusCode::BAD_REQUEST, "that is no request to move a lane");
    };
    let moved = tokio::task::spawn_blocking(move || moved(&asked, &served.0)).await;
    match moved {
        Ok(Ok(view)) => match serde_json::to_vec(&view) {
            Ok(text) => respond(StatusCode::OK, text),
            Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made"),
        },
        Ok(Err(why)) => failure(StatusCode::CONFLICT, &why),
        Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "the lane could not be moved"),
    }
}

fn moved(asked: &MoveRequest, handle: &Handle) -> Result<MoveView, String> {
    let hosts = handle.hosts();
    let names = || hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ");
    let host = match &asked.host {
        None if hosts.len() == 1 => 0,
        None => return Err(format!("there are several hosts, name one: {}", names())),
        Some(name) => hosts
            .iter()
            .position(|host| host.name == *name)
            .ok_or_else(|| format!("there is no host '{name}', but {}", names()))?,
    };
    let bucket = Bucket(asked.bucket);
    let buckets = hosts[host].rss.buckets.len();
    let from = handle
        .worker_of(host, bucket)
        .ok_or_else(|| format!("there is no bucket {}: they are 0 to {}", bucket.0, buckets - 1))?;
    if asked.worker >= handle.workers() {
        return Err(format!("there is no worker {}: they are 0 to {}", asked.worker, handle.workers() - 1));
    }
    handle.move_lane(host, bucket, asked.worker).map_err(|e| e.to_string())?;
    let (host, version) = (hosts[host].name.clone(), super::VERSION);
    Ok(MoveView { version, host, bucket: bucket.0, from, worker: asked.worker })
}

fn document(what: &str, served: &(Handle, Instance)) -> Option<serde_json::Result<Vec<u8>>> {
    if !["report", "stats", "netisr", "sockets", "rss", "workers"].contains(&what) {
        return None;
    }
    let report = ReportView::collect(&served.0, &served.1);
    Some(match what {
        "stats" => serde_json::to_vec(&report.stats),
        "netisr" => serde_json::to_vec(&report.netisr),
        "sockets" => serde_json::to_vec(&report.sockets),
        "rss" => serde_json::to_vec(&report.rss),
        "workers" => serde_json::to_vec(&report.workers),
        _ => serde_json::to_vec(&report),
    })
}

fn failure(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({ "version": super::VERSION, "error": why });
    respond(status, body.to_string().into_bytes())
}

fn respond(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, hyper::header::HeaderValue::from_static("no-store"));
    response
}
