//! The client: one document from one instance, for commands that show it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// Longer than any worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Largest document that is taken, bytes.
const LARGEST: usize = 256 << 20;

/// Why a document could not be had: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is nobody.
    #[error("{}: no instance answers there ({source})", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The instance answered with an error.
    #[error("the instance answers {0}")]
    Status(u16),
    /// What it answered cannot be understood.
    #[error("the instance's answer cannot be understood: {0}")]
    Answer(String),
    /// It does not answer.
    #[error("the instance does not answer")]
    Silent,
}

/// Fetches the document `what` (`/v1/report`) of the instance at `path`. Blocks; not for use inside a lane.
///
/// # Errors
/// See [`ClientError`].
pub fn get<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T, ClientError> {
    let other = |e: &dyn std::fmt::Display| ClientError::Answer(e.to_string());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| other(&e))?;
    runtime.block_on(async {
        let bytes =
            tokio::time::timeout(PATIENCE, fetch(path, what)).await.map_err(|_| ClientError::Silent)??;
        serde_json::from_slice(&bytes).map_err(|e| other(&e))
    })
}

async fn fetch(path: &Path, what: &str) -> Result<Bytes, ClientError> {
    let other = |e: &dyn std::fmt::Display| ClientError::Answer(e.to_string());
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| ClientError::Connect { path: path.to_owned(), source })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| other(&e))?;
    let driver = tokio::spawn(connection);
    let request = Request::get(what)
        .header(header::HOST, "flowlane")
        .body(Empty::<Bytes>::new())
        .map_err(|e| other(&e))?;
    let response = sender.send_request(request).await.map_err(|e| other(&e))?;
    let status = response.status();
    if !status.is_success() {
        return Err(ClientError::Status(status.as_u16()));
    }
    let body = Limited::new(response.into_body(), LARGEST).collect().await.map_err(|e| other(&e))?;
    driver.abort();
    Ok(body.to_bytes())
}
