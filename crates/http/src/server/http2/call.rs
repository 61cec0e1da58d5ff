//! Calls of gRPC: `/flowlane.Echo/Call` sends the messages of a call back as they come, with status 0 behind them.
//!
//! Source: the protocol's description, "gRPC over HTTP2". Messages are not looked at, so they may be of any kind, and a call may have any number.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, request};

use crate::server::reply::{Body, Reply};

/// The content type of a call.
pub(super) const KIND: &str = "application/grpc";
const STATUS: &str = "grpc-status";
/// There is no such method.
const UNIMPLEMENTED: &str = "12";

/// Whether a request is a call.
pub(super) fn is_call(head: &request::Parts) -> bool {
    let rest = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(KIND.as_bytes()));
    // Guard: `rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))` as `rest.is_some()`
    // fails http2::call::tests::a_call_says
    head.method == Method::POST && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// What a call of this path is answered.
pub(super) fn answer(path: &str) -> Reply {
    match path {
        "/flowlane.Echo/Call" => Reply::ok(KIND, Body::Echo),
        // A head alone has the status itself.
        _ => Reply { chunked: true, ..Reply::ok(KIND, Body::Text("".into())) }
            .with(STATUS, UNIMPLEMENTED)
            .with("grpc-message", "there is /flowlane.Echo/Call"),
    }
}

/// The end of an answer.
pub(super) fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static(STATUS), HeaderValue::from_static("0"))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_what_it_is() {
        let asks = |method: Method, kind: &'static str| {
            let request =
                http::Request::builder().method(method).header(CONTENT_TYPE, kind).body(()).unwrap();
            is_call(&request.into_parts().0)
        };
        assert!(asks(Method::POST, "application/grpc") && asks(Method::POST, "application/grpc+proto"));
        assert!(!asks(Method::GET, "application/grpc") && !asks(Method::POST, "application/grpc-web"));
        assert!(!asks(Method::POST, "application/json"));
    }
}
