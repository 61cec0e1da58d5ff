//! The opening handshake (RFC 6455 §4): a request to change the protocol, and the answer that proves that it was understood.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY as SHA1, digest};

use super::deflate;
use crate::h1::Fields;

/// What a key is hashed with (§1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The version of the protocol.
pub const VERSION: &str = "13";

/// The key of a client: sixteen bytes that were drawn for this connection.
#[must_use]
pub fn key(nonce: [u8; 16]) -> String {
    BASE64_STANDARD.encode(nonce)
}

/// What a server answers to a key (§4.2.2).
#[must_use]
pub fn accept(key: &[u8]) -> String {
    BASE64_STANDARD.encode(digest(&SHA1, &[key, GUID].concat()))
}

/// Why a request is no opening handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRequest {
    /// It does not ask for WebSocket.
    Unasked,
    /// It asks for another version of it.
    Version,
    /// Its key is none.
    Key,
}

/// The answer's key to the request of a client, by its header fields.
///
/// # Errors
/// It is no opening handshake (§4.2.1).
pub fn asked<'a>(field: impl Fn(&'static str) -> Option<&'a [u8]>) -> Result<String, NoRequest> {
    let names = |name, token| field(name).is_some_and(|value| has_token(value, token));
    if !names("upgrade", "websocket") || !names("connection", "upgrade") {
        return Err(NoRequest::Unasked);
    }
    if field("sec-websocket-version") != Some(VERSION.as_bytes()) {
        return Err(NoRequest::Version);
    }
    let key = field("sec-websocket-key").ok_or(NoRequest::Key)?;
    match BASE64_STANDARD.decode(key) {
        // Guard: `nonce.len() == 16` as `true` fails ws::handshake::tests::requests
        Ok(nonce) if nonce.len() == 16 => Ok(accept(key)),
        _ => Err(NoRequest::Key),
    }
}

/// Why an answer opens no WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// Its status is another than 101.
    Status(u16),
    /// It does not change to WebSocket.
    Upgrade,
    /// It does not prove that the key was read.
    Accept,
    /// It wants an extension or a subprotocol that was not asked for.
    Unasked,
}

/// Looks at the answer to the key of a client (§4.1). `protocol`: the subprotocols that were asked for, separated by commas; `offered`: whether
/// [`deflate::OFFER`] was. Whether the server agrees to this.
///
/// # Errors
/// It opens no WebSocket.
pub fn answered(
    status: u16,
    fields: Fields<'_>,
    key: &str,
    protocol: Option<&str>,
    offered: bool,
) -> Result<bool, NoAnswer> {
    if status != 101 {
        return Err(NoAnswer::Status(status));
    }
    let names = |name, token| fields.get(name).is_some_and(|value| has_token(value, token));
    if !names("upgrade", "websocket") || !names("connection", "upgrade") {
        return Err(NoAnswer::Upgrade);
    }
    // Guard: `fields.get("sec-websocket-accept") != Some(accept(key.as_bytes()).as_bytes())` as `false` fails
    // ws::handshake::tests::answers
    if fields.get("sec-websocket-accept") != Some(accept(key.as_bytes()).as_bytes()) {
        return Err(NoAnswer::Accept);
    }
    let known = |chosen: &[u8]| {
        protocol.is_some_and(|asked| asked.split(',').any(|name| name.trim().as_bytes() == chosen))
    };
    let unasked = fields.get("sec-websocket-protocol").is_some_and(|chosen| !known(chosen));
    // Guard: `unasked` as `false` fails ws::handshake::tests::answers
    if unasked {
        return Err(NoAnswer::Unasked);
    }
    match fields.get("sec-websocket-extensions") {
        None => Ok(false),
        // Guard: `offered && deflate::agrees(answer)` as `deflate::agrees(answer)` fails ws::handshake::tests::answers
        Some(answer) if offered && deflate::agrees(answer) => Ok(true),
        Some(_) => Err(NoAnswer::Unasked),
    }
}

/// Whether a list has this token, in whichever case.
fn has_token(list: &[u8], token: &str) -> bool {
    list.split(|b| *b == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::{Limits, response};

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    /// RFC 6455 §1.3
    #[test]
    fn the_example_of_the_standard() {
        assert_eq!(accept(KEY.as_bytes()), ACCEPT);
        assert_eq!(key(*b"the sample nonce"), KEY);
    }

    #[test]
    fn requests() {
        let good = [
            ("upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", KEY),
        ];
        let ask = |but: &str, value: Option<&'static str>| {
            asked(|name| {
                let found = good.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
                if name == but { value } else { found }.map(str::as_bytes)
            })
        };
        assert_eq!(ask("", None), Ok(ACCEPT.to_owned()));
        for (name, value, fault) in [
            ("upgrade", None, NoRequest::Unasked),
            ("upgrade", Some("h2c"), NoRequest::Unasked),
            ("connection", Some("close"), NoRequest::Unasked),
            ("sec-websocket-version", Some("8"), NoRequest::Version),
            ("sec-websocket-version", None, NoRequest::Version),
            ("sec-websocket-key", None, NoRequest::Key),
            ("sec-websocket-key", Some("dGhlIHNhbXBsZSBub25j"), NoRequest::Key),
            ("sec-websocket-key", Some("no key"), NoRequest::Key),
        ] {
            assert_eq!(ask(name, value), Err(fault), "{name} {value:?}");
        }
    }

    #[test]
    fn answers() {
        let good = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n"
        );
        let hear_of = |from: &str, to: &str, protocol: Option<&str>, offered| {
            let text = good.replace(from, to) + "\r\n";
            let (head, _) = response(text.as_bytes(), &Limits::default()).unwrap().unwrap();
            answered(head.status, head.fields, KEY, protocol, offered)
        };
        let hear = |from: &str, to: &str, protocol: Option<&str>| hear_of(from, to, protocol, false);
        assert_eq!(hear("-", "-", None), Ok(false));
        assert_eq!(hear("101", "403", None), Err(NoAnswer::Status(403)));
        assert_eq!(hear("websocket", "h2c", None), Err(NoAnswer::Upgrade));
        assert_eq!(hear("s3pP", "S3pP", None), Err(NoAnswer::Accept));
        let with = |more: &str| format!("Upgrade: websocket\r\n{more}");
        let deflate = with(&format!("Sec-WebSocket-Extensions: {}", deflate::OFFER));
        assert_eq!(hear("Upgrade: websocket", &deflate, None), Err(NoAnswer::Unasked));
        assert_eq!(hear_of("Upgrade: websocket", &deflate, None, true), Ok(true));
        assert_eq!(hear_of("-", "-", None, true), Ok(false));
        let other = with("Sec-WebSocket-Extensions: permessage-deflate");
        assert_eq!(hear_of("Upgrade: websocket", &other, None, true), Err(NoAnswer::Unasked));
        let chat = with("Sec-WebSocket-Protocol: chat");
        assert_eq!(hear("Upgrade: websocket", &chat, None), Err(NoAnswer::Unasked));
        assert_eq!(hear("Upgrade: websocket", &chat, Some("a, chat")), Ok(false));
    }
}
