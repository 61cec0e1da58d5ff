//! A page for people that shows what runs as it runs, over HTTP. Nothing listens unless it is asked for.
//!
//! | path | what |
//! |---|---|
//! | `/` | the page |
//! | `/page/...` | its style and its programs, from this binary |
//! | `/v1/change` | what happened since a reading (`readings.rs`): the page asks for it once a second while somebody looks at it |
//! | `/v1/live` | the numbers of this moment ([`LiveView`]) |
//!
//! Whoever can connect can read counters, and nothing else: there is no key, no address of a peer and nothing to change. The page loads
//! nothing from elsewhere, and its `Content-Security-Policy` lets it do nothing else. A request that names another host than the address
//! is refused, so that a page of somebody else cannot read the numbers by a name that leads here (DNS rebinding).

mod readings;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY};
use hyper::header::{X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};

use self::readings::Readings;
use super::listening::{ListenError, Listening};
use super::live::{Additions, LiveView};
use super::serving::{Door, Limits, Server, names_us, respond};
use crate::Handle;
use crate::metrics::{Instance, Snapshot};

/// A browser opens up to six connections.
const LIMITS: Limits = Limits { connections: 16, time: Duration::from_secs(60), keep_alive: true };

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const WORDS: &str = "text/plain; charset=utf-8";

macro_rules! page {
    ($($path:literal: $kind:ident $file:literal,)+) => { &[$(($path, $kind, include_bytes!(concat!("page/", $file)))),+] };
}

/// The files of the page: path, type, bytes.
const PAGE: &[(&str, &str, &[u8])] = page! {
    "/": HTML "index.html",
    "/page/style.css": CSS "style.css",
    "/page/icon.svg": SVG "icon.svg",
    "/page/main.js": JAVASCRIPT "main.js",
    "/page/reading.js": JAVASCRIPT "reading.js",
    "/page/words.js": JAVASCRIPT "words.js",
    "/page/lanes.js": JAVASCRIPT "lanes.js",
    "/page/charts.js": JAVASCRIPT "charts.js",
    "/page/times.js": JAVASCRIPT "times.js",
    "/page/tables.js": JAVASCRIPT "tables.js",
};

/// What the page may do: run its own programs, and ask where it comes from.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Listens at `address` before a runtime exists, so that privileges can be given up in between. Port 0 is any free port.
///
/// # Errors
/// See [`ListenError`].
pub fn listen_for_web(address: SocketAddr) -> Result<WebListener, ListenError> {
    Listening::open("web page", address).map(WebListener)
}

/// A socket for the page that is open and does not answer yet.
#[derive(Debug)]
pub struct WebListener(Listening);

impl WebListener {
    /// Starts to answer for a runtime. `name` says what kind of program this is.
    ///
    /// # Errors
    /// [`ListenError::System`] when no thread can be had.
    pub fn serve(self, handle: Handle, name: &str) -> Result<WebPage, ListenError> {
        self.serve_with(handle, name, Additions::default)
    }

    /// As [`serve`](Self::serve), with what the program itself counts: `more` is called for every reading, on a thread of the page's own.
    ///
    /// # Errors
    /// [`ListenError::System`] when no thread can be had.
    pub fn serve_with<F>(self, handle: Handle, name: &str, more: F) -> Result<WebPage, ListenError>
    where
        F: Fn() -> Additions + Send + Sync + 'static,
    {
        let (refused, address) = (self.0.refused(), self.0.address);
        let served = Arc::new(Served {
            handle,
            instance: Instance::new(name),
            address,
            more: Box::new(more),
            readings: Readings::default(),
        });
        let answer = move |request| answer(request, served.clone());
        let server =
            Server::start("flowlane-web", Door::Tcp(self.0.socket), LIMITS, answer).map_err(refused)?;
        Ok(WebPage { _server: server, address })
    }
}

/// A page that answers. Dropping it stops it.
#[derive(Debug)]
pub struct WebPage {
    _server: Server,
    address: SocketAddr,
}

impl WebPage {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

struct Served {
    handle: Handle,
    instance: Instance,
    address: SocketAddr,
    more: Box<dyn Fn() -> Additions + Send + Sync>,
    readings: Readings,
}

async fn answer(request: Request<Incoming>, served: Arc<Served>) -> Response<Full<Bytes>> {
    let mut response = answered(&request, served).await;
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(CONTENT_SECURITY_POLICY, POLICY);
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(X_FRAME_OPTIONS, "DENY");
    set(REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

async fn answered(request: &Request<Incoming>, served: Arc<Served>) -> Response<Full<Bytes>> {
    let words = |status, words: String| respond(status, WORDS, words.into_bytes());
    if !names_us(request, served.address) {
        let why = format!("this page is at http://{}/ only\n", served.address);
        return words(StatusCode::MISDIRECTED_REQUEST, why);
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = words(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let path = request.uri().path();
    match path {
        "/v1/live" => return document(served, |_, now| serde_json::to_vec(&now)).await,
        "/v1/change" => {
            let since = readings::since(request.uri().query());
            return document(served, move |served, now| {
                serde_json::to_vec(&served.readings.change(since, now))
            })
            .await;
        }
        _ => {}
    }
    match PAGE.iter().find(|(at, ..)| *at == path) {
        Some((_, kind, bytes)) => respond(StatusCode::OK, kind, bytes.to_vec()),
        None => words(StatusCode::NOT_FOUND, "try /\n".to_owned()),
    }
}

/// A document of the numbers of this moment.
async fn document<F>(served: Arc<Served>, written: F) -> Response<Full<Bytes>>
where
    F: FnOnce(&Served, LiveView) -> serde_json::Result<Vec<u8>> + Send + 'static,
{
    let document = move || {
        let now = Snapshot::take(&served.handle, &served.instance);
        written(&served, LiveView::of(&now, (served.more)()))
    };
    match tokio::task::spawn_blocking(document).await {
        Ok(Ok(text)) => respond(StatusCode::OK, "application/json", text),
        _ => respond(StatusCode::INTERNAL_SERVER_ERROR, WORDS, b"the numbers could not be read\n".to_vec()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::super::serving::is_name_of;
    use super::*;

    #[test]
    fn only_its_own_names_lead_to_the_page() {
        let own: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let six: SocketAddr = "[::1]:80".parse().unwrap();
        for (host, address, known) in [
            ("127.0.0.1:8080", own, true),
            ("localhost:8080", own, true),
            ("LocalHost:8080", own, true),
            ("127.0.0.1", own, false),
            ("127.0.0.1:8081", own, false),
            ("127.0.0.2:8080", own, false),
            ("evil.example:8080", own, false),
            ("localhost.evil.example:8080", own, false),
            ("localhost@127.0.0.1:8080", own, false),
            ("", own, false),
            ("::1:8080", own, false),
            ("[::1]", six, true),
            ("[::1]:80", six, true),
            ("localhost", six, true),
            ("localhost", "192.0.2.1:80".parse().unwrap(), false),
            ("192.0.2.1", "192.0.2.1:80".parse().unwrap(), true),
        ] {
            assert_eq!(is_name_of(host.as_bytes(), address), known, "{host} at {address}");
        }
    }

    /// What the issue asks of it: less than 200 KB, and nothing from anywhere else.
    #[test]
    fn the_page_is_small_and_needs_nothing_else() {
        let bytes: usize = PAGE.iter().map(|(.., bytes)| bytes.len()).sum();
        assert!(bytes < 200_000, "{bytes}");
        for (path, _, bytes) in PAGE {
            let text = std::str::from_utf8(bytes).unwrap();
            let elsewhere = text.match_indices("://").filter(|(at, _)| {
                !text[..*at].ends_with("http") || !text[*at..].starts_with("://www.w3.org/")
            });
            assert_eq!(elsewhere.count(), 0, "{path} names another place");
        }
    }
}
