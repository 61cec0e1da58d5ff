//! gRPC: calls as requests of HTTP/2, with messages that have their length in front, and a status in the trailers.
//!
//! Source: the protocol's description, "gRPC over HTTP2". A call is a POST whose path is `/package.Service/Method`. A message is a flag, a length
//! of four bytes in network order, and the bytes. The messages of a request are sent at once; an answer may have any number. What answers hold
//! is not kept and not understood, so they take no memory.
//!
//! Not supported: compressed messages (none are offered, so a server that sends one breaks the protocol), deadlines (`grpc-timeout` may be
//! given as a header), messages of a stream that are sent at times of their own.

mod descriptors;
mod reading;

pub use descriptors::{Descriptors, Unfit};
pub(super) use reading::Reading;

use super::plan::{BadPlan, Body, Request};
use super::url::Url;

/// Most bytes of the messages of one request: they are kept in memory.
const MOST: u64 = 64 << 20;

/// How the body of a request becomes the messages of a call.
#[derive(Debug, Clone)]
pub struct Call {
    /// The body is JSON, of which they make the message; without them it is the message.
    pub descriptors: Option<Descriptors>,
    /// How often the message is sent: more than once for a method that takes a stream.
    pub messages: u32,
}

impl Call {
    /// The call that a request becomes, of the method that its path or those of its targets name.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn of(&self, request: Request, targets: &[&Url]) -> Result<Request, BadPlan> {
        let bad = |what: &str| Err(BadPlan(format!("gRPC: {what}")));
        let body = match &request.body {
            Body::None => &b""[..],
            Body::Bytes(bytes) => bytes,
            Body::Text(text) if self.descriptors.is_some() => text.as_bytes(),
            Body::Text(_) => {
                return bad(
                    "a message is binary: take it from a file (--body-file), or make it of JSON (--grpc-descriptors)",
                );
            }
            Body::Generated(_) => return bad("a pattern of bytes is no message"),
        };
        let Some(descriptors) = &self.descriptors else {
            let message = body.to_vec();
            return request.into_call(&message, self.messages);
        };
        let Ok(json) = std::str::from_utf8(body) else { return bad("the body is no JSON: it is binary") };
        let json = if json.is_empty() { "{}" } else { json };
        let mut made = None::<Vec<u8>>;
        for url in targets {
            let message = descriptors.message(request.path_at(url), json);
            let message = message.map_err(|e| BadPlan(format!("gRPC: {e}")))?;
            if *made.get_or_insert_with(|| message.clone()) != message {
                return bad("the targets' methods take different messages: one for each run");
            }
        }
        request.into_call(&made.unwrap_or_default(), self.messages)
    }
}

impl Request {
    /// Makes it a call whose request has this message so many times.
    fn into_call(mut self, message: &[u8], times: u32) -> Result<Self, BadPlan> {
        let bad = |what: String| Err(BadPlan(format!("gRPC: {what}")));
        let whole = (message.len() as u64 + 5) * u64::from(times);
        // Guard: `whole > MOST` as `false` fails grpc::tests::what_is_no_call
        if whole > MOST {
            return bad(format!("{times} messages of {} bytes are more than 64 MiB together", message.len()));
        }
        if !matches!(self.method.as_str(), "GET" | "POST") {
            return bad(format!("a call is a POST, not {}", self.method));
        }
        for given in ["content-type", "te"] {
            if self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(given)) {
                return bad(format!("the header '{given}' is that of a call: leave it out"));
            }
        }
        let mut body = Vec::with_capacity(whole as usize);
        for _ in 0..times {
            body.push(0);
            body.extend_from_slice(&(message.len() as u32).to_be_bytes());
            body.extend_from_slice(message);
        }
        self.method = "POST".into();
        self.body = Body::Bytes(body.into());
        self.headers.push(("content-type".into(), "application/grpc".into()));
        self.headers.push(("te".into(), "trailers".into()));
        self.grpc = true;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_messages_with_their_lengths() {
        let call = Request::default().into_call(b"abc", 2).unwrap();
        assert_eq!(call.body, Body::Bytes(b"\0\0\0\0\x03abc\0\0\0\0\x03abc"[..].into()));
        assert_eq!((call.method.as_str(), call.grpc), ("POST", true));
        assert_eq!(Request::default().into_call(b"", 1).unwrap().body, Body::Bytes([0; 5].into()));
        let none = Request::default().into_call(b"x", 0).unwrap();
        assert!(none.body.is_empty() && none.grpc);
    }

    #[test]
    fn what_is_no_call_is_refused() {
        let refused = |request: Request, times| request.into_call(&[0; 1024], times).unwrap_err().to_string();
        assert!(refused(Request { method: "PUT".into(), ..Request::default() }, 1).contains("a POST"));
        let headers = vec![("Content-Type".into(), "application/json".into())];
        assert!(refused(Request { headers, ..Request::default() }, 1).contains("content-type"));
        assert!(refused(Request::default(), 70_000).contains("64 MiB"));
    }

    #[test]
    fn a_body_is_the_message_if_nothing_describes_it() {
        let call = Call { descriptors: None, messages: 1 };
        let url: Url = "http://a.example/a.B/C".parse().unwrap();
        let of = |body| call.of(Request { body, ..Request::default() }, &[&url]);
        assert_eq!(of(Body::None).unwrap().body, Body::Bytes([0; 5].into()));
        assert_eq!(of(Body::Bytes(b"x"[..].into())).unwrap().body, Body::Bytes(b"\0\0\0\0\x01x"[..].into()));
        assert!(of(Body::Text("{}".into())).unwrap_err().to_string().contains("binary"));
        assert!(of(Body::Generated(9)).unwrap_err().to_string().contains("pattern"));
    }
}
