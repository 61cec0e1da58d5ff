//! A server of hyper's that keeps every request whole, and answers with what a test makes of it, over either version of HTTP.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::h2::InLane;
use super::kit::{Serve, serve};

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) fields: hyper::HeaderMap,
    pub(crate) body: String,
    /// Of the server's connections, from 1 on.
    pub(crate) connection: u64,
}

impl Asked {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

pub(crate) type Answer = hyper::Response<Full<Bytes>>;

/// What a server heard.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) asked: Mutex<Vec<Asked>>,
    connections: AtomicU64,
}

impl Log {
    pub(crate) fn all(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The paths that were asked for.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.all().into_iter().map(|asked| asked.path).collect()
    }
}

pub(crate) fn says(content: &str) -> Answer {
    hyper::Response::new(Full::new(content.to_owned().into()))
}

pub(crate) fn keeping<F>(log: &Arc<Log>, http2: bool, answer: F) -> Serve
where
    F: Fn(&Asked) -> Answer + Send + Sync + Clone + 'static,
{
    let log = log.clone();
    serve(move |stream| {
        let (log, answer) = (log.clone(), answer.clone());
        async move {
            let connection = log.connections.fetch_add(1, Ordering::Relaxed) + 1;
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let (log, answer) = (log.clone(), answer.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let asked = Asked {
                        method: head.method.to_string(),
                        path: head.uri.path_and_query().map_or("", |path| path.as_str()).to_owned(),
                        fields: head.headers,
                        body: String::from_utf8_lossy(&body).into_owned(),
                        connection,
                    };
                    let said = answer(&asked);
                    log.asked.lock().unwrap().push(asked);
                    Ok::<_, hyper::Error>(said)
                }
            });
            let io = TokioIo::new(stream);
            if http2 {
                let _ = hyper::server::conn::http2::Builder::new(InLane).serve_connection(io, service).await;
            } else {
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            }
        }
    })
}
