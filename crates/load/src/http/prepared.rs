//! Requests as bytes, built once before the run: for each target and request, with and without `Connection: close`. One with placeholders
//! ([`super::filled`]) is written anew for each time it is sent, into memory that its connection keeps.

use std::sync::{Arc, OnceLock};

use flowlane_http::h3::{self, Block};
use hyper::body::Bytes;

use super::filled::{self, Filled, Names};
use super::head::{head, proxy_of};
use super::plan::{BadPlan, Body, Pool, Request};
use super::proxy::Proxy;
use super::replay::{Lines, MOST_TOGETHER, Recording};
use super::url::Url;
use crate::fill::Vars;

/// Bodies up to this length, bytes, directly follow their head in memory, so that one write sends both.
const TOGETHER: usize = MOST_TOGETHER;
/// Length of the pattern that generated bodies repeat, bytes.
const PATTERN: usize = 16 << 10;

/// A request of one target.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    /// The head, and the body if it is small.
    head: Vec<u8>,
    /// The same with `Connection: close`.
    last: Vec<u8>,
    /// A body that is too large to follow the head.
    body: Body,
    /// The body for HTTP/2, once it was asked for.
    whole: OnceLock<Bytes>,
    /// What is sent over HTTP/3, once it was asked for.
    third: OnceLock<Third>,
    /// Its form, if it has placeholders.
    pub(super) filled: Option<Arc<Filled>>,
    /// Whether the answer has no body (HEAD).
    pub(super) to_head: bool,
    /// Whether sending it and reading its answer is all there is to do: no placeholders, no content to be looked at, no steps.
    pub(super) plain: bool,
}

impl Prepared {
    /// A request of a pool to a URL.
    pub(super) fn of(pool: &Pool, url: &Url, request: &Request) -> Result<Self, BadPlan> {
        Self::new(url, request, proxy_of(pool, url))
    }

    /// `proxy`: to which it goes, if that is named in it.
    fn new(url: &Url, request: &Request, proxy: Option<&Proxy>) -> Result<Self, BadPlan> {
        request.check_as_it_is()?;
        Ok(Self::as_it_is(url, request, proxy))
    }

    /// The same of a request that was checked, or made of what was.
    pub(super) fn as_it_is(url: &Url, request: &Request, proxy: Option<&Proxy>) -> Self {
        let path = request.path.as_deref().unwrap_or(&url.path);
        let small = match &request.body {
            Body::Bytes(bytes) if bytes.len() <= TOGETHER => Some(bytes.to_vec()),
            Body::Text(text) => Some(text.as_bytes().to_vec()),
            Body::Generated(length) if *length <= TOGETHER as u64 => {
                Some((0..*length).map(|i| pattern_at(i as usize)).collect())
            }
            _ => None,
        };
        let bytes = |close: bool| {
            let length = request.body.len().to_string();
            let mut bytes = head(url, request, path, proxy, &length, close).into_bytes();
            bytes.extend_from_slice(small.as_deref().unwrap_or_default());
            bytes.shrink_to_fit();
            bytes
        };
        Self {
            head: bytes(false),
            last: bytes(true),
            body: if small.is_some() { Body::None } else { request.body.clone() },
            whole: OnceLock::new(),
            third: OnceLock::new(),
            filled: None,
            to_head: request.method == "HEAD",
            plain: false,
        }
    }

    /// Puts these bytes in the place of as many in its head.
    pub(super) fn patch(&mut self, at: usize, bytes: &[u8]) {
        for head in [&mut self.head, &mut self.last] {
            head[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The request at this place of a pool to a URL, and what is special about it. With placeholders it has no bytes yet.
    fn at(pool: &Pool, names: &Names, url: &Url, place: usize) -> Result<Self, BadPlan> {
        let request = &pool.requests[place];
        let plain = !pool.steps && pool.replay.is_none() && pool.aws.is_none() && request.is_plain();
        match Filled::of(pool, names, url, place)? {
            None => Ok(Self { plain: plain && request.method != "HEAD", ..Self::of(pool, url, request)? }),
            Some(filled) => Ok(Self {
                head: Vec::new(),
                last: Vec::new(),
                body: filled::behind(&filled, request),
                whole: OnceLock::new(),
                third: OnceLock::new(),
                filled: Some(Arc::new(filled)),
                to_head: request.method == "HEAD",
                plain: false,
            }),
        }
    }

    /// One that has no bytes yet, to be written by [`Prepared::fill`].
    pub(super) fn empty() -> Self {
        Self {
            head: Vec::new(),
            last: Vec::new(),
            body: Body::None,
            whole: OnceLock::new(),
            third: OnceLock::new(),
            filled: None,
            to_head: false,
            plain: false,
        }
    }

    /// Writes `form`, a request with placeholders, as it is with these values. `last`: with `Connection: close`.
    pub(super) fn fill(&mut self, form: &Self, vars: &Vars, last: bool, scratch: &mut Vec<u8>) {
        let Some(filled) = &form.filled else { return };
        let out = if last { &mut self.last } else { &mut self.head };
        filled.write(vars, last, scratch, out);
        self.body.clone_from(&form.body);
        self.to_head = form.to_head;
    }

    /// Writes a request of a recording. `last`: with `Connection: close`.
    pub(super) fn replay(&mut self, recording: &Recording, number: usize, lines: &Lines, last: bool) {
        let out = if last { &mut self.last } else { &mut self.head };
        self.body = recording.write(number, lines, last, out).map_or(Body::None, Body::Bytes);
    }

    /// The request for HTTP/2, in hyper's form.
    pub(super) fn http2(
        &self,
        url: &Url,
        request: &Request,
    ) -> Result<hyper::Request<http_body_util::Full<Bytes>>, String> {
        let path = request.path.as_deref().unwrap_or(&url.path);
        let scheme = if url.https { "https" } else { "http" };
        let mut builder = hyper::Request::builder()
            .method(request.method.as_str())
            .uri(format!("{scheme}://{}{path}", url.authority()))
            .version(hyper::Version::HTTP_2)
            .header("user-agent", "flowlane");
        for (name, value) in request.headers.iter().filter(|(n, _)| !n.eq_ignore_ascii_case("host")) {
            builder = builder.header(name, value);
        }
        // Made once: requests share it.
        let body = self.whole.get_or_init(|| whole(&request.body));
        builder.body(http_body_util::Full::new(body.clone())).map_err(|e| e.to_string())
    }

    /// The request for HTTP/3. Made once: all that are sent share it.
    pub(super) fn http3(&self, url: &Url, request: &Request) -> &Third {
        self.third.get_or_init(|| Third::of(url, request))
    }

    /// Its length on the wire.
    #[inline]
    pub(super) fn len(&self, last: bool) -> u64 {
        self.first(last).len() as u64 + self.body.len()
    }

    /// Head and small body.
    #[inline]
    pub(super) fn first(&self, last: bool) -> &[u8] {
        if last { &self.last } else { &self.head }
    }

    /// A piece of it from byte `at` on: not empty before its end.
    #[inline]
    pub(super) fn piece(&self, at: u64, last: bool) -> &[u8] {
        let first = self.first(last);
        let Some(behind) = at.checked_sub(first.len() as u64) else { return &first[at as usize..] };
        match &self.body {
            Body::None | Body::Text(_) => &[],
            Body::Bytes(bytes) => &bytes[(behind as usize).min(bytes.len())..],
            Body::Generated(length) => {
                let from = (behind % PATTERN as u64) as usize;
                let most = (length - behind.min(*length)).min((PATTERN - from) as u64) as usize;
                &pattern()[from..from + most]
            }
        }
    }
}

/// A request of HTTP/3: the frame of its head with the beginning of that of its content, and the content.
#[derive(Debug, Clone)]
pub(super) struct Third {
    pub(super) head: Bytes,
    pub(super) body: Bytes,
}

impl Third {
    /// The request to a URL.
    pub(super) fn of(url: &Url, request: &Request) -> Self {
        let mut block = Block::new();
        let given = |name: &str| request.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        block.field(b":method", request.method.as_bytes());
        block.field(b":scheme", b"https");
        let authority = given("host").map_or_else(|| url.authority().to_string(), |(_, host)| host.clone());
        block.field(b":authority", authority.as_bytes());
        block.field(b":path", request.path_at(url).as_bytes());
        if given("user-agent").is_none() {
            block.field(b"user-agent", b"flowlane");
        }
        for (name, value) in request.headers.iter().filter(|(n, _)| !n.eq_ignore_ascii_case("host")) {
            block.field(name.to_ascii_lowercase().as_bytes(), value.as_bytes());
        }
        let body = whole(&request.body);
        let posts = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
        if (posts || !body.is_empty()) && given("content-length").is_none() {
            block.field(b"content-length", body.len().to_string().as_bytes());
        }
        let mut head = Vec::new();
        h3::headers(block.bytes(), &mut head);
        if !body.is_empty() {
            h3::data(body.len() as u64, &mut head);
        }
        Self { head: head.into(), body }
    }
}

/// A body in one piece.
fn whole(body: &Body) -> Bytes {
    match body {
        Body::None => Bytes::new(),
        Body::Bytes(bytes) => Bytes::copy_from_slice(bytes),
        Body::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        Body::Generated(length) => (0..*length).map(|i| pattern_at(i as usize)).collect(),
    }
}

/// Gives a body piece by piece.
pub(super) fn pieces(body: &Body, mut piece: impl FnMut(&[u8])) {
    match body {
        Body::None => {}
        Body::Bytes(bytes) => piece(bytes),
        Body::Text(text) => piece(text.as_bytes()),
        Body::Generated(length) => {
            let mut left = *length;
            while left > 0 {
                let most = left.min(PATTERN as u64);
                piece(&pattern()[..most as usize]);
                left -= most;
            }
        }
    }
}

/// All requests of a pool: request r to target t at index `t * requests + r`.
pub(super) fn prepare(pool: &Pool) -> Result<Vec<Prepared>, BadPlan> {
    let names = Names::of(pool);
    let pairs = pool.targets.iter().flat_map(|t| (0..pool.requests.len()).map(move |r| (t, r)));
    pairs.map(|(target, place)| Prepared::at(pool, &names, &target.url, place)).collect()
}

fn pattern_at(i: usize) -> u8 {
    // Letters and digits, so that a capture can be read; 62 does not divide the pattern's length, which is harmless.
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[i % PATTERN % 62]
}

fn pattern() -> &'static [u8] {
    static ONCE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    ONCE.get_or_init(|| (0..PATTERN).map(pattern_at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::plan::Target;

    fn prepared(request: Request) -> Prepared {
        let url: crate::http::Url = "http://a.example:81/x".parse().unwrap();
        let target = Target { url, addresses: vec!["10.0.0.1:81".parse().unwrap()], weight: 1.0 };
        let pool = Pool { requests: vec![request], ..Pool::new("p", target) };
        prepare(&pool).unwrap().remove(0)
    }

    fn bytes_of(prepared: &Prepared, last: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < prepared.len(last) {
            let piece = prepared.piece(bytes.len() as u64, last);
            assert!(!piece.is_empty());
            bytes.extend_from_slice(&piece[..piece.len().min(1000)]);
        }
        assert!(prepared.piece(bytes.len() as u64, last).is_empty());
        bytes
    }

    #[test]
    fn requests_are_as_written() {
        let get = prepared(Request::default());
        assert_eq!(
            bytes_of(&get, false),
            b"GET /x HTTP/1.1\r\nHost: a.example:81\r\nUser-Agent: flowlane\r\n\r\n"
        );
        assert!(bytes_of(&get, true).ends_with(b"\r\nConnection: close\r\n\r\n"));
        let headers = vec![("host".into(), "h".into()), ("User-Agent".into(), "u".into())];
        let post = Request { method: "POST".into(), path: Some("/p".into()), headers, ..Request::default() };
        assert_eq!(
            bytes_of(&prepared(post), false),
            b"POST /p HTTP/1.1\r\nhost: h\r\nUser-Agent: u\r\nContent-Length: 0\r\n\r\n"
        );
    }

    #[test]
    fn a_proxy_that_sees_requests_is_told_the_whole_url() {
        let whole_of = |proxy: &str, url: &str| {
            let target = Target {
                url: url.parse().unwrap(),
                addresses: vec!["10.0.0.1:81".parse().unwrap()],
                weight: 1.0,
            };
            let mut pool = Pool::new("p", target);
            pool.via.proxy = Some(proxy.parse().unwrap());
            String::from_utf8(bytes_of(&prepare(&pool).unwrap()[0], false)).unwrap()
        };
        assert_eq!(
            whole_of("http://u:p@127.0.0.1:3128", "http://a.example:81/x?y"),
            "GET http://a.example:81/x?y HTTP/1.1\r\nHost: a.example:81\r\nUser-Agent: flowlane\r\n\
             Proxy-Authorization: Basic dTpw\r\n\r\n"
        );
        for (proxy, url) in [("http://u:p@p", "https://a.example/"), ("socks5h://u:p@p", "http://a.example/")]
        {
            let whole = whole_of(proxy, url);
            assert!(whole.starts_with("GET / HTTP/1.1\r\n") && !whole.contains("Proxy"), "{whole}");
        }
    }

    #[test]
    fn bodies_small_and_large() {
        for length in [0usize, 1, 61, 62, 63, TOGETHER, TOGETHER + 1, 200_000] {
            let expected: Vec<u8> = (0..length).map(pattern_at).collect();
            for body in [Body::Generated(length as u64), Body::Bytes(expected.clone().into())] {
                let put = prepared(Request { method: "PUT".into(), body, ..Request::default() });
                let bytes = bytes_of(&put, false);
                assert!(bytes.ends_with(&expected), "{length}");
                let head = String::from_utf8_lossy(&bytes[..bytes.len() - length]).into_owned();
                assert!(head.ends_with(&format!("Content-Length: {length}\r\n\r\n")), "{head}");
            }
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let with = |f: fn(&mut Request)| {
            let mut request = Request::default();
            f(&mut request);
            request.check()
        };
        assert!(with(|r| r.method = "GE T".into()).is_err());
        assert!(with(|r| r.method.clear()).is_err());
        assert!(with(|r| r.path = Some("x".into())).is_err());
        assert!(with(|r| r.path = Some("/a b".into())).is_err());
        assert!(with(|r| r.headers = vec![("a".into(), "b\r\nc: d".into())]).is_err());
        assert!(with(|r| r.headers = vec![("a b".into(), "c".into())]).is_err());
    }
}
