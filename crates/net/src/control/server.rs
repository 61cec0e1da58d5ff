//! What the control socket answers.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::ALLOW;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::captures::{self, CaptureRequest, CaptureView};
use super::exported::written;
use super::flows::{self, FlowsView, WatchRequest};
use super::live::{Additions, LiveView};
use super::load::{LoadRequest, LoadView, Turn};
use super::serving::{Door, Limits, Server};
use super::view::{MetricsView, MoveRequest, MoveView, ReportView};
use crate::metrics::{Instance, Snapshot};
use crate::socket_file::SocketFile;
use crate::{Bucket, Handle};

const LIMITS: Limits = Limits { connections: 16, time: Duration::from_secs(60), keep_alive: true };
/// Bytes of a request's body.
const BODY: usize = 16 << 10;

/// A control socket that answers. Dropping it stops it and removes its file.
#[derive(Debug)]
pub struct Control {
    _server: Server,
    file: Arc<SocketFile>,
}

impl Control {
    pub(super) fn start(
        socket: std::os::unix::net::UnixListener,
        file: Arc<SocketFile>,
        handle: Handle,
        name: &str,
        (more, turn): Own,
    ) -> io::Result<Self> {
        let served = Arc::new(Served { handle, instance: Instance::new(name), more, turn });
        let answer = move |request| answer(request, served.clone());
        let server = Server::start("flowlane-control", Door::Unix(socket), LIMITS, answer)?;
        Ok(Self { _server: server, file })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

/// What a program adds to the numbers of its runtime.
type More = dyn Fn() -> Additions + Send + Sync;

/// That, and how its load is changed, if it has one that can be.
pub(super) type Own = (Box<More>, Option<Box<Turn>>);

struct Served {
    handle: Handle,
    instance: Instance,
    more: Box<More>,
    turn: Option<Box<Turn>>,
}

async fn answer(request: Request<Incoming>, served: Arc<Served>) -> Response<Full<Bytes>> {
    if request.method() == Method::POST {
        match request.uri().path() {
            "/v1/move" => return posted(request, served, moved).await,
            "/v1/load" => return posted(request, served, turned).await,
            "/v1/flows" => return posted(request, served, watched).await,
            "/v1/capture" => return posted(request, served, captured).await,
            _ => {}
        }
    }
    if request.method() != Method::GET {
        let mut response = failure(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET"));
        return response;
    }
    if request.uri().path() == "/metrics" {
        let (handle, instance) = (served.handle.clone(), served.instance.clone());
        return written(&request, move || Snapshot::take(&handle, &instance).metrics()).await;
    }
    let most = flows::wanted(request.uri().query());
    let Some(what) = request.uri().path().strip_prefix("/v1/").map(str::to_owned) else {
        return failure(StatusCode::NOT_FOUND, "no such document: try /v1/report");
    };
    let collected = tokio::task::spawn_blocking(move || document(&what, most, &served)).await;
    match collected {
        Ok(Some(Ok(text))) => respond(StatusCode::OK, text),
        Ok(None) => failure(StatusCode::NOT_FOUND, "no such document: try /v1/report"),
        Ok(Some(Err(_))) | Err(_) => {
            failure(StatusCode::INTERNAL_SERVER_ERROR, "the report could not be made")
        }
    }
}

/// Does what was asked for. No further permission is checked, since a user who may connect may also stop the process.
async fn posted<A, V>(
    request: Request<Incoming>,
    served: Arc<Served>,
    act: fn(&A, &Served) -> Result<V, String>,
) -> Response<Full<Bytes>>
where
    A: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
{
    let body = Limited::new(request.into_body(), BODY).collect().await.ok().map(Collected::to_bytes);
    let Some(asked) = body.and_then(|body| serde_json::from_slice::<A>(&body).ok()) else {
        return failure(StatusCode::BAD_REQUEST, "that request is not understood");
    };
    let acted = tokio::task::spawn_blocking(move || act(&asked, &served)).await;
    match acted {
        Ok(Ok(view)) => match serde_json::to_vec(&view) {
            Ok(text) => respond(StatusCode::OK, text),
            Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made"),
        },
        Ok(Err(why)) => failure(StatusCode::CONFLICT, &why),
        Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "that could not be done"),
    }
}

/// Changes the load.
fn turned(asked: &LoadRequest, served: &Served) -> Result<LoadView, String> {
    let none =
        || format!("this instance ({}) is no load that can be changed while it runs", served.instance.name);
    served.turn.as_ref().ok_or_else(none)?(asked)
}

/// Starts or ends a capture, or tells how it goes.
fn captured(asked: &CaptureRequest, served: &Served) -> Result<CaptureView, String> {
    captures::capture(asked, &served.handle)
}

/// Switches the watching of flows on or off.
fn watched(asked: &WatchRequest, served: &Served) -> Result<FlowsView, String> {
    flows::watch(asked, &served.handle)?;
    Ok(FlowsView::take(&served.handle, &served.instance, 0))
}

/// Moves a lane.
fn moved(asked: &MoveRequest, served: &Served) -> Result<MoveView, String> {
    let handle = &served.handle;
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

fn document(what: &str, most: usize, served: &Served) -> Option<serde_json::Result<Vec<u8>>> {
    let Served { handle, instance, more, .. } = served;
    if what == "live" {
        return Some(serde_json::to_vec(&LiveView::of(&Snapshot::take(handle, instance), more())));
    }
    if what == "metrics" {
        let now = Snapshot::take(handle, instance);
        let (version, metrics) = (super::VERSION, now.metrics());
        return Some(serde_json::to_vec(&MetricsView { version, instance: now.instance, metrics }));
    }
    if what == "flows" {
        return Some(serde_json::to_vec(&FlowsView::take(handle, instance, most)));
    }
    if !["report", "stats", "netisr", "sockets", "rss", "workers"].contains(&what) {
        return None;
    }
    let report = ReportView::of(&Snapshot::with_sockets(handle, instance));
    Some(match what {
        "stats" => serde_json::to_vec(&report.stats),
        "netisr" => serde_json::to_vec(&report.netisr),
        "sockets" => serde_json::to_vec(&report.sockets),
        "rss" => serde_json::to_vec(&report.rss),
        "workers" => serde_json::to_vec(&report.workers),
        _ => serde_json::to_vec(&report),
    })
}

pub(super) fn failure(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({ "version": super::VERSION, "error": why });
    respond(status, body.to_string().into_bytes())
}

pub(super) fn respond(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    super::serving::respond(status, "application/json", body)
}
