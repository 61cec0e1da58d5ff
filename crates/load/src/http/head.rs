//! The head of a request, as text.

use std::fmt::Write;

use super::plan::{Pool, Request, Version};
use super::proxy::Proxy;
use super::tunnel::Tunnel;
use super::url::Url;

/// The proxy to which requests to a URL go: through a tunnel it sees none.
pub(super) fn proxy_of<'a>(pool: &'a Pool, url: &Url) -> Option<&'a Proxy> {
    let http2 = matches!(pool.version, Version::Http2 { .. });
    pool.via.proxy.as_ref().filter(|proxy| !Tunnel::is_needed(proxy, url, http2))
}

/// A head; `length` is that of the body, in digits.
pub(super) fn head(
    url: &Url,
    request: &Request,
    path: &str,
    proxy: Option<&Proxy>,
    length: &str,
    close: bool,
) -> String {
    let authority = url.authority();
    let mut head = match proxy {
        None => format!("{} {path} HTTP/1.1\r\n", request.method),
        // The whole URL, for a proxy that is to ask the target itself (RFC 9112 §3.2.2).
        Some(_) => format!("{} http://{authority}{path} HTTP/1.1\r\n", request.method),
    };
    // Writing to a string cannot fail.
    let given = |name: &str| request.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !given("host") {
        let _ = write!(head, "Host: {authority}\r\n");
    }
    if !given("user-agent") {
        head.push_str("User-Agent: flowlane\r\n");
    }
    for (name, value) in &request.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if let Some(login) = proxy.and_then(Proxy::authorization).filter(|_| !given("proxy-authorization")) {
        let _ = write!(head, "Proxy-Authorization: {login}\r\n");
    }
    let says_length = !request.body.is_empty() || matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    if says_length && !given("content-length") {
        let _ = write!(head, "Content-Length: {length}\r\n");
    }
    if close && !given("connection") {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    head
}
