//! A control socket of a program that is no runtime: the program says itself what it answers. As [`Control`](super::Control) otherwise.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};

use super::server::{failure, respond};
use super::serving::{Door, Limits, Server};
use super::{ControlError, Listener};
use crate::socket_file::SocketFile;

const LIMITS: Limits = Limits { connections: 16, time: Duration::from_secs(60), keep_alive: true };
/// Bytes of a request's body: words for a switch of 64 ports and 4,094 VLANs fit.
const BODY: usize = 1 << 20;

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query<'a> {
    /// A document, by its path.
    Get(&'a str),
    /// A change, by its path, with what was sent.
    Post(&'a str, &'a [u8]),
}

/// The answer: a document in JSON, or a line that says why there is none.
pub type Answer = Result<Vec<u8>, String>;

/// A control socket that answers with documents. Dropping it stops it and removes its file.
#[derive(Debug)]
pub struct Documents {
    _server: Server,
    file: Arc<SocketFile>,
}

impl Documents {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Listener {
    /// Starts to answer by `answer`, which may block; `None`: there is no such document.
    ///
    /// # Errors
    /// [`ControlError::System`] when no thread can be had.
    pub fn serve_documents(
        self,
        answer: impl Fn(Query<'_>) -> Option<Answer> + Send + Sync + 'static,
    ) -> Result<Documents, ControlError> {
        let (socket, path) = (self.socket, self.file.path().to_owned());
        let answer = Arc::new(answer);
        let start = |socket| -> io::Result<Server> {
            let respond = move |request| answered(request, answer.clone());
            Server::start("flowlane-control", Door::Unix(socket), LIMITS, respond)
        };
        let server = start(socket).map_err(|source| ControlError::System { path, source })?;
        Ok(Documents { _server: server, file: self.file })
    }
}

async fn answered<F>(request: Request<Incoming>, answer: Arc<F>) -> Response<Full<Bytes>>
where
    F: Fn(Query<'_>) -> Option<Answer> + Send + Sync + 'static,
{
    let (post, path) = (request.method() == Method::POST, request.uri().path().to_owned());
    if !post && request.method() != Method::GET {
        return failure(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST are understood");
    }
    let Ok(body) = Limited::new(request.into_body(), BODY).collect().await.map(Collected::to_bytes) else {
        return failure(StatusCode::BAD_REQUEST, "the request is too long or cut short");
    };
    let asked = move || answer(if post { Query::Post(&path, &body) } else { Query::Get(&path) });
    match tokio::task::spawn_blocking(asked).await {
        Ok(Some(Ok(document))) => respond(StatusCode::OK, document),
        Ok(Some(Err(why))) => failure(StatusCode::CONFLICT, &why),
        Ok(None) => failure(StatusCode::NOT_FOUND, "no such document"),
        Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made"),
    }
}
