//! One push to a receiver: a connection, a request, and what its answer means.

use std::time::Duration;

use flowlane_http::tls::{ClientTls, Stream};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::otlp;
use super::target::{Header, Protocol, Target, VERSION};
use crate::resolve::resolve;

/// How long a connection may take to each address of a receiver.
const CONNECT: Duration = Duration::from_secs(3);
/// Most bytes read of an answer.
const MOST: usize = 64 << 10;
/// Most characters of a receiver's words that are kept.
const WORDS: usize = 160;

/// Why a push was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// In words.
    pub(super) why: String,
    /// Whether the same may be tried again, and after how long if the receiver says so.
    pub(super) again: Option<Option<Duration>>,
}

impl Refused {
    /// It never got an answer, so that it may be tried again.
    pub(super) fn unanswered(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: Some(None) }
    }
}

/// A receiver, and what goes with each push to it.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) target: Target,
    pub(super) headers: Vec<Header>,
    /// For https.
    pub(super) tls: Option<ClientTls>,
}

impl Post {
    /// Pushes a request.
    pub(super) async fn send(&self, body: Vec<u8>) -> Result<(), Refused> {
        let stream = self.connect().await?;
        let request = self.request(body).map_err(|e| Refused { why: e.to_string(), again: None })?;
        let lost = |e: &dyn std::error::Error| Refused::unanswered(in_full(e));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| lost(&e))?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(|e| lost(&e))?;
            let (head, body) = answer.into_parts();
            // Of an answer that is too long the beginning would say little.
            let body =
                Limited::new(body, MOST).collect().await.map_or_else(|_| Bytes::new(), Collected::to_bytes);
            let after =
                head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            self.judge(head.status, after.map(Duration::from_secs), &body)
        };
        tokio::pin!(exchange);
        // The connection is driven here, so that nothing is left of a push that is given up.
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            _ = connection => exchange.await,
        }
    }

    async fn connect(&self) -> Result<Stream<TcpStream>, Refused> {
        let url = &self.target.url;
        let (host, port) = (url.host.clone(), url.port);
        let found = tokio::task::spawn_blocking(move || resolve(&host, port)).await;
        let found = found.map_err(|e| Refused::unanswered(e.to_string()))?;
        let addresses = found.map_err(|e| Refused::unanswered(format!("'{}': {e}", url.host)))?;
        let mut why = format!("'{}' has no address", url.host);
        for address in addresses {
            match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return self.secure(stream).await,
                Ok(Err(e)) => why = format!("{address}: {e}"),
                Err(_) => why = format!("{address}: no connection within {CONNECT:?}"),
            }
        }
        Err(Refused::unanswered(why))
    }

    async fn secure(&self, stream: TcpStream) -> Result<Stream<TcpStream>, Refused> {
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(stream)) };
        let name = ClientTls::name(self.target.url.name());
        let name = name.map_err(|e| Refused { why: e.to_string(), again: None })?;
        // A certificate that is not trusted may be another one soon.
        tls.connect(stream, name).await.map_err(|e| Refused::unanswered(e.to_string()))
    }

    fn request(&self, body: Vec<u8>) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let url = &self.target.url;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&url.path)
            .header(HOST, url.authority())
            .header(USER_AGENT, concat!("flowlane/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(CONNECTION, "close")
            .header(ACCEPT_ENCODING, "identity");
        if self.target.protocol == Protocol::RemoteWrite {
            request = request.header(CONTENT_ENCODING, "snappy").header(VERSION, "0.1.0");
        }
        if let Some(basic) = &self.target.basic {
            request = request.header(AUTHORIZATION, basic);
        }
        for Header { name, value } in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(Bytes::from(body)))
    }

    /// What an answer means.
    fn judge(&self, status: StatusCode, after: Option<Duration>, body: &[u8]) -> Result<(), Refused> {
        let otlp = self.target.protocol == Protocol::Otlp;
        if status.is_success() {
            let rejected = if otlp { otlp::rejected(body) } else { None };
            // "The client MUST NOT retry the request when it receives a partial success response."
            return rejected.map_or(Ok(()), |why| Err(Refused { why: short(&why), again: None }));
        }
        let words = if otlp { otlp::message(body) } else { None };
        let words = words.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
        let words = if words.is_empty() { String::new() } else { format!(": {}", short(&words)) };
        let again = may_be_tried_again(self.target.protocol, status);
        Err(Refused { why: format!("answer {}{words}", status.as_u16()), again: again.then_some(after) })
    }
}

/// Whether a push with this answer may be made again.
fn may_be_tried_again(protocol: Protocol, status: StatusCode) -> bool {
    match protocol {
        // OTLP, "Retryable Response Codes".
        Protocol::Otlp => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        // Remote write, "Retries & Backoff": "MUST retry" 5xx, "MAY retry" 429, "MUST NOT" another 4xx.
        Protocol::RemoteWrite => status.is_server_error() || status.as_u16() == 429,
    }
}

/// Words of others, in one line and not too many of them.
fn short(words: &str) -> String {
    let line = words.lines().next().unwrap_or_default();
    line.chars().take(WORDS).collect()
}

/// An error with its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(target: &str, status: u16) -> bool {
        let post = Post { target: target.parse().unwrap(), headers: Vec::new(), tls: None };
        let status = StatusCode::from_u16(status).unwrap();
        let refused = post.judge(status, Some(Duration::from_secs(7)), b"no\nmore").unwrap_err();
        assert_eq!(refused.why, format!("answer {}: no", status.as_u16()));
        assert!(refused.again.is_none_or(|after| after == Some(Duration::from_secs(7))));
        refused.again.is_some()
    }

    #[test]
    fn what_may_be_tried_again_depends_on_the_protocol() {
        for (status, otlp, remote_write) in [
            (301, false, false),
            (400, false, false),
            (401, false, false),
            (429, true, true),
            (500, false, true),
            (502, true, true),
            (503, true, true),
            (504, true, true),
            (507, false, true),
        ] {
            let found = (again("otlp=http://a", status), again("prometheus=http://a", status));
            assert_eq!(found, (otlp, remote_write), "{status}");
        }
    }
}
