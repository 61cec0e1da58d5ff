//! The client: one document from one instance, for commands that show it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::http::request::Builder;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::until;
use crate::metrics::text::Format;
use crate::trust::judge_peer;

/// Longer than any worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a request that changes something counts: what is begun by then ends before nobody waits any more.
const COUNTS: Duration = Duration::from_secs(8);
/// Largest document that is taken, bytes.
const LARGEST: usize = 256 << 20;

/// Why a document could not be had: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No instance answers.
    #[error("{}: no instance answers there ({source})", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The socket, or its directory, is another user's.
    #[error("{0}")]
    Distrusted(String),
    /// The instance answered with an error.
    #[error("the instance answers {0}")]
    Status(u16),
    /// The instance says why not.
    #[error("{0}")]
    Refused(String),
    /// Its answer cannot be parsed.
    #[error("the instance's answer cannot be understood: {0}")]
    Answer(String),
    /// It does not answer.
    #[error("{}: the instance there does not answer: it may be stopped (SIGCONT) or busy", .path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
}

/// Fetches the document `what` (`/v1/report`) of the instance at `path`. Blocks; not for use inside a lane.
///
/// # Errors
/// See [`ClientError`].
pub fn get<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T, ClientError> {
    exchange(path, Request::get(what), Bytes::new())
}

/// Fetches `/metrics` of the instance at `path` in the format OpenMetrics. Blocks; not for use inside a lane.
///
/// # Errors
/// See [`ClientError`].
pub fn get_text(path: &Path) -> Result<String, ClientError> {
    let accept = Format::OpenMetrics.content_type();
    let bytes = exchange_bytes(path, Request::get("/metrics").header(header::ACCEPT, accept), Bytes::new())?;
    String::from_utf8(bytes.to_vec()).map_err(|e| ClientError::Answer(e.to_string()))
}

/// Sends `body` to `what` (`/v1/move`) of the instance at `path`, and returns its answer. Blocks; not for use inside a lane.
///
/// # Errors
/// See [`ClientError`].
pub fn post<T: DeserializeOwned>(path: &Path, what: &str, body: &impl Serialize) -> Result<T, ClientError> {
    let body = serde_json::to_vec(body).map_err(|e| ClientError::Answer(e.to_string()))?;
    exchange(path, until::for_the_next(COUNTS, Request::post(what)), body.into())
}

fn exchange<T: DeserializeOwned>(path: &Path, request: Builder, body: Bytes) -> Result<T, ClientError> {
    let bytes = exchange_bytes(path, request, body)?;
    serde_json::from_slice(&bytes).map_err(|e| ClientError::Answer(e.to_string()))
}

fn exchange_bytes(path: &Path, request: Builder, body: Bytes) -> Result<Bytes, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| ClientError::Answer(e.to_string()))?;
    runtime.block_on(async {
        let silent = |_| ClientError::Silent { path: path.to_owned() };
        tokio::time::timeout(PATIENCE, fetch(path, request, body)).await.map_err(silent)?
    })
}

async fn fetch(path: &Path, request: Builder, body: Bytes) -> Result<Bytes, ClientError> {
    let other = |e: &dyn std::fmt::Display| ClientError::Answer(e.to_string());
    super::place::check_directory_of(path).map_err(|e| ClientError::Distrusted(e.to_string()))?;
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| ClientError::Connect { path: path.to_owned(), source })?;
    judge_peer(&stream).map_err(|e| ClientError::Distrusted(format!("{}: {e}", path.display())))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| other(&e))?;
    let driver = tokio::spawn(connection);
    let request = request.header(header::HOST, "flowlane").body(Full::new(body)).map_err(|e| other(&e))?;
    let response = sender.send_request(request).await.map_err(|e| other(&e))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST).collect().await.map_err(|e| other(&e))?;
    driver.abort();
    let body = body.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let why = serde_json::from_slice::<serde_json::Value>(&body).ok();
    Err(match why.as_ref().and_then(|document| document["error"].as_str()) {
        Some(why) => ClientError::Refused(why.to_owned()),
        None => ClientError::Status(status.as_u16()),
    })
}
