//! Routing of requests to answers, for both versions of HTTP.

use std::time::Duration;

use super::Site;
use super::events::{Events, LARGEST, MOST, STREAM};
use super::files;
use super::reply::{BYTES, Body, LINE, Reply, TEXT};
use crate::h1::is_host;
use crate::ws::deflate;
use crate::ws::handshake::{self, NoRequest};

/// Methods that all endpoints answer.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// Longest delay of `/delay`.
const MAX_DELAY: u64 = 3_600_000;

const HELP: &str = "\
flowlane serve http

/size/N            N bytes, with their length; ?chunked in chunks
/size?size=N       the same in chunks
/line              16 chunks of a line
/status/N          an answer with this status, 200 to 599
/delay/MS          an answer after so many milliseconds; ?size=N
/echo              the request's body
/ws                a WebSocket: every message is sent back
/events/N/MS       N server-sent events, so many milliseconds after the head and
                   after each other; ?first=MS, ?size=BYTES, ?end=[DONE]
";

/// What the answer depends on.
pub(crate) struct RequestView<'a, F> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    /// Finds a header field by its name in lower case.
    pub(crate) field: F,
}

/// Answers.
pub(crate) fn answer<'a, F>(site: &Site, asked: &RequestView<'a, F>) -> Reply
where
    F: Fn(&'static str) -> Option<&'a [u8]>,
{
    match asked.method {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" => {}
        "OPTIONS" => return Reply::status(204).with("Allow", ALLOW),
        _ => return Reply::status(501),
    }
    let Some(target) = origin(asked.target) else { return Reply::status(400) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    endpoint(path, query).unwrap_or_else(|| match &site.dir {
        _ if path == "/ws" => websocket(site, asked),
        Some(dir) => files::answer(dir, path, asked),
        None if path == "/" => Reply::ok(TEXT, Body::Text(HELP.into())),
        None => Reply::status(404),
    })
}

/// The path and query of a target, which may be a whole URL (RFC 9112 §3.2.2). `None` if it is no target of a request for
/// a resource: `*`, or an URL without a host, or with a user in it (RFC 9110 §4.2.1, §4.2.4).
fn origin(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return Some(target);
    }
    let (scheme, rest) = target.split_once("://")?;
    if !["http", "https"].iter().any(|s| scheme.eq_ignore_ascii_case(s)) {
        return None;
    }
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let good = !host.is_empty() && !host.starts_with(':') && is_host(host.as_bytes());
    match path {
        _ if !good => None,
        "" => Some("/"),
        path => Some(path),
    }
}

fn endpoint(path: &str, query: &str) -> Option<Reply> {
    let (name, argument) = match path.strip_prefix('/')?.split_once('/') {
        Some((name, argument)) => (name, Some(argument)),
        None => (&path[1..], None),
    };
    let chunked = flag(query, "chunked");
    let reply = match (name, argument) {
        ("size", Some(n)) => number(n).map(|n| Reply { chunked, ..sized(n) }),
        ("size", None) => value(query, "size").and_then(number).map(|n| Reply { chunked: true, ..sized(n) }),
        ("line", None) => Some(Reply { chunked: true, ..Reply::ok(TEXT, Body::Lines(16)) }),
        ("status", Some(n)) => {
            let status = number(n).filter(|n| (200..600).contains(n)).and_then(|n| u16::try_from(n).ok());
            status.map(|status| {
                let reply = Reply::status(status);
                if matches!(status, 301 | 302 | 303 | 307 | 308) {
                    reply.with("Location", "/")
                } else {
                    reply
                }
            })
        }
        ("delay", Some(ms)) => number(ms).filter(|ms| *ms <= MAX_DELAY).and_then(|ms| {
            let body = match value(query, "size") {
                Some(n) => sized(number(n)?),
                None => Reply::ok(TEXT, Body::Text(LINE.into())),
            };
            Some(Reply { delay: Duration::from_millis(ms), chunked, ..body })
        }),
        ("events", Some(of)) => events(of, query),
        ("echo", None) => Some(Reply::ok(BYTES, Body::Echo)),
        _ => return None,
    };
    Some(reply.unwrap_or_else(|| Reply::status(400)))
}

/// The opening handshake of a WebSocket (RFC 6455 §4.2).
#[cold]
fn websocket<'a, F>(site: &Site, asked: &RequestView<'a, F>) -> Reply
where
    F: Fn(&'static str) -> Option<&'a [u8]>,
{
    match handshake::asked(&asked.field) {
        Ok(accept) if asked.method == "GET" => {
            let offers = (asked.field)("sec-websocket-extensions").filter(|_| site.ws_deflate);
            let deflate = offers.and_then(deflate::agree);
            Reply { status: 101, ..Reply::ok(TEXT, Body::WebSocket { accept, deflate }) }
        }
        Err(NoRequest::Key) => Reply::status(400),
        _ => Reply::status(426).with("Sec-WebSocket-Version", handshake::VERSION),
    }
}

/// `N/MS`, and what the query says.
fn events(of: &str, query: &str) -> Option<Reply> {
    let (count, gap) = of.split_once('/')?;
    let count = number(count).filter(|n| (1..=MOST).contains(n))?;
    let pause = |ms| number(ms).filter(|ms| *ms <= MAX_DELAY).map(Duration::from_millis);
    let gap = pause(gap)?;
    let first = value(query, "first").map_or(Some(gap), pause)?;
    let size = value(query, "size").map_or(Some(16), number).filter(|n| *n <= LARGEST)?;
    let end = value(query, "end").map(str::to_owned);
    let events = Events::new(count, first, gap, usize::try_from(size).ok()?, end);
    let reply = Reply::ok(STREAM, Body::Events(Box::new(events))).with("Cache-Control", "no-store");
    Some(Reply { chunked: true, ..reply })
}

fn sized(n: u64) -> Reply {
    Reply::ok(BYTES, Body::Pattern(n))
}

fn flag(query: &str, name: &str) -> bool {
    !query.is_empty() && query.split('&').any(|part| part == name || part.strip_suffix("=1") == Some(name))
}

fn value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// Digits only, below 2^53.
fn number(digits: &str) -> Option<u64> {
    // Guard: `digits.len() > 15` as `false` fails server::route
    if digits.is_empty() || digits.len() > 15 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, target: &str) -> Reply {
        let none: fn(&'static str) -> Option<&'static [u8]> = |_| None;
        answer(&Site { dir: None, ws_deflate: false }, &RequestView { method, target, field: none })
    }

    fn get(target: &str) -> (u16, Option<u64>, bool) {
        let reply = ask("GET", target);
        (reply.status, reply.len(), reply.chunked)
    }

    #[test]
    fn endpoints() {
        assert_eq!(get("/size/600"), (200, Some(600), false));
        assert_eq!(get("/size/0?chunked"), (200, Some(0), true));
        assert_eq!(get("/size?size=7"), (200, Some(7), true));
        assert_eq!(get("/size?a=b&size=7&c"), (200, Some(7), true));
        assert_eq!(get("/line"), (200, Some(128), true));
        assert_eq!(get("/status/503").0, 503);
        assert_eq!(get("/status/204"), (204, Some(0), false));
        assert_eq!(get("/status/205"), (205, Some(0), false));
        assert_eq!(ask("GET", "/status/302").fields, [("Location", "/".to_owned())]);
        let slow = ask("GET", "/delay/1500?size=9");
        assert_eq!((slow.delay, slow.len()), (Duration::from_millis(1500), Some(9)));
        assert!(matches!(ask("POST", "/echo").body, Body::Echo));
        for (target, there) in [
            ("/events/3/20", true),
            ("/events/1/0?first=5&size=65536&end=[DONE]", true),
            ("/events/0/20", false),
            ("/events/1000001/20", false),
            ("/events/3", false),
            ("/events/3/3600001", false),
            ("/events/3/1?first=x", false),
            ("/events/3/1?size=65537", false),
        ] {
            assert_eq!(matches!(ask("POST", target).body, Body::Events(_)), there, "{target}");
        }
        assert_eq!(get("/").0, 200);
        assert_eq!(get("http://x:80/size/3").1, Some(3));
        assert_eq!(get("http://x").0, 200);
        assert_eq!(get("HTTPS://[::1]:80/size/4").1, Some(4));
    }

    #[test]
    fn what_is_not_answered() {
        for (target, status) in [
            ("/size/", 400),
            ("/size/-1", 400),
            ("/size/1e3", 400),
            ("/size/9999999999999999", 400),
            ("/size", 400),
            ("/size?size=", 400),
            ("/status/199", 400),
            ("/status/600", 400),
            ("/delay/3600001", 400),
            ("/delay/1?size=x", 400),
            ("/sizes", 404),
            ("/line/2", 404),
            ("", 400),
            ("*", 400),
            ("size/1", 400),
            ("http:///size/1", 400),
            ("http://:80/", 400),
            ("http://u:p@x/", 400),
            ("ftp://x/size/1", 400),
        ] {
            assert_eq!(get(target).0, status, "{target}");
        }
        assert_eq!(ask("BREW", "/").status, 501);
        assert_eq!(ask("CONNECT", "x:1").status, 501);
        let options = ask("OPTIONS", "*");
        assert_eq!((options.status, options.fields[0].0), (204, "Allow"));
    }
}
