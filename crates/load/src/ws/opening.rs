//! How a connection becomes a WebSocket: TLS if the URL is one of `wss`, then the opening handshake (RFC 6455 §4.1).

use std::future::poll_fn;
use std::pin::Pin;

use flowlane::TcpStream;
use flowlane_http::h1::{Limits, MOST_INTERIM, response};
use flowlane_http::tls::{ClientTls, ServerName, Stream};
use flowlane_http::ws::deflate::OFFER;
use flowlane_http::ws::handshake::{self, VERSION};
use flowlane_sys::words::said;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::outcome::NotOpened;
use crate::report::ErrorKind;
use crate::run::clock;

/// Limits of the head of an answer.
const LIMITS: Limits = Limits { head: 16 << 10, fields: 100 };
/// Bytes that are read at once.
const READ: usize = 2048;

/// How a connection becomes a WebSocket.
#[derive(Debug)]
pub struct Opening {
    tls: Option<(ClientTls, ServerName<'static>)>,
    /// The request up to the key.
    request: Vec<u8>,
    protocol: Option<String>,
    deflate: bool,
}

/// A connection that has become one.
#[derive(Debug)]
pub struct Opened {
    pub(super) stream: Stream<TcpStream>,
    /// What came behind the answer.
    pub(super) rest: Vec<u8>,
    /// Whether messages may be compressed.
    pub(super) deflates: bool,
    /// How long TLS's handshake took, nanoseconds.
    pub(super) tls: Option<u64>,
}

impl Opening {
    /// A request for `path` at `authority` with these further fields, of which a subprotocol is one. `tls`: with whom, if it is made; `deflate`:
    /// offer compressed messages.
    #[must_use]
    pub fn new(
        tls: Option<(ClientTls, ServerName<'static>)>,
        authority: &str,
        path: &str,
        fields: &[(String, String)],
        deflate: bool,
    ) -> Self {
        let host = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = host.map_or(authority, |(_, value)| value);
        let mut request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: {VERSION}\r\n"
        );
        let named = |name: &str| fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !named("user-agent") {
            request.push_str("User-Agent: flowlane\r\n");
        }
        let mut protocols = Vec::new();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case("sec-websocket-protocol") {
                protocols.push(value.as_str());
            }
            if !name.eq_ignore_ascii_case("host") {
                for part in [name, ": ", value, "\r\n"] {
                    request.push_str(part);
                }
            }
        }
        if deflate {
            for part in ["Sec-WebSocket-Extensions: ", OFFER, "\r\n"] {
                request.push_str(part);
            }
        }
        request.push_str("Sec-WebSocket-Key: ");
        let protocol = (!protocols.is_empty()).then(|| protocols.join(","));
        Self { tls, request: request.into_bytes(), protocol, deflate }
    }

    /// Makes a WebSocket of a connection that stands.
    pub(super) async fn open(&self, stream: TcpStream, nonce: [u8; 16]) -> Result<Opened, NotOpened> {
        let mut took = None;
        let mut stream = match &self.tls {
            None => Stream::Plain(stream),
            Some((tls, name)) => {
                let begun = clock();
                let encrypted = tls.connect(stream, name.clone()).await;
                took = Some(clock().saturating_sub(begun));
                encrypted.map_err(|e| NotOpened::Tls(e.in_words("ws")))?
            }
        };
        let key = handshake::key(nonce);
        let request = [&self.request[..], key.as_bytes(), b"\r\n\r\n"].concat();
        write(&mut stream, &request).await?;
        let (mut held, mut buffer, mut interim) = (Vec::new(), vec![0; READ], 0);
        loop {
            let n = read(&mut stream, &mut buffer).await?;
            if n == 0 {
                return Err(NotOpened::Closed);
            }
            held.extend_from_slice(&buffer[..n]);
            while let Some((answer, len)) =
                response(&held, &LIMITS).map_err(|e| NotOpened::NotHttp(format!("{e}: {}", said(&held))))?
            {
                // Others may precede it (RFC 9110 §15.2).
                // Guard: `matches!(answer.status, 100 | 102..=199) && interim < MOST_INTERIM` as `false`
                // fails load/ws::wrong::interim_answers
                if matches!(answer.status, 100 | 102..=199) && interim < MOST_INTERIM {
                    interim += 1;
                    held.drain(..len);
                    continue;
                }
                let protocol = self.protocol.as_deref();
                let deflates =
                    handshake::answered(answer.status, answer.fields, &key, protocol, self.deflate)
                        .map_err(NotOpened::Answer)?;
                return Ok(Opened { stream, rest: held.split_off(len), deflates, tls: took });
            }
        }
    }
}

fn lost(e: &std::io::Error) -> NotOpened {
    NotOpened::Lost(ErrorKind::of_io(e), e.to_string())
}

async fn write(stream: &mut Stream<TcpStream>, bytes: &[u8]) -> Result<(), NotOpened> {
    let mut at = 0;
    while at < bytes.len() {
        let n = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, &bytes[at..])).await;
        at += n.map_err(|e| lost(&e))?;
    }
    poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await.map_err(|e| lost(&e))
}

async fn read(stream: &mut Stream<TcpStream>, buffer: &mut [u8]) -> Result<usize, NotOpened> {
    let mut into = ReadBuf::new(buffer);
    poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut into)).await.map_err(|e| lost(&e))?;
    Ok(into.filled().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_what_it_needs_once() {
        let fields = [("Origin", "http://a"), ("host", "b"), ("Sec-WebSocket-Protocol", "chat, x")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let opening = Opening::new(None, "c:7", "/p?q", &fields, false);
        let request = String::from_utf8(opening.request).unwrap();
        let head = "GET /p?q HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
        let rest = "Sec-WebSocket-Version: 13\r\nUser-Agent: flowlane\r\nOrigin: http://a\r\n";
        assert_eq!(request, format!("{head}{rest}Sec-WebSocket-Protocol: chat, x\r\nSec-WebSocket-Key: "));
        assert_eq!(opening.protocol.as_deref(), Some("chat, x"));
        let offers = String::from_utf8(Opening::new(None, "c", "/", &[], true).request).unwrap();
        assert!(offers.contains(&format!("\r\nSec-WebSocket-Extensions: {OFFER}\r\n")), "{offers}");
    }
}
