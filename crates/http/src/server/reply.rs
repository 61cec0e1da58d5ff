//! An answer before it is written in either version of HTTP.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use bytes::Bytes;

use super::events::Events;
use crate::ws::deflate::Agreed;

/// What to answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// `Content-Type`.
    pub(crate) kind: &'static str,
    /// Further header fields.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: Body,
    /// Leave the length out, so that HTTP/1 sends chunks.
    pub(crate) chunked: bool,
    /// Wait so long first.
    pub(crate) delay: Duration,
}

/// Where a body comes from.
#[derive(Debug)]
pub(crate) enum Body {
    Text(Cow<'static, str>),
    /// So many bytes of [`pattern`].
    Pattern(u64),
    /// The same eight bytes, in so many chunks.
    Lines(u32),
    /// The request's body.
    Echo,
    /// No body: from here on the connection is a WebSocket.
    WebSocket {
        /// The answer's key.
        accept: String,
        /// What is agreed on about compressed messages.
        deflate: Option<Agreed>,
    },
    /// Events, one after the other.
    Events(Box<Events>),
    File(Part),
    /// A small file, or part of one.
    Kept(Bytes),
}

/// Part of a file.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) file: File,
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// What the head says about it.
    pub(crate) version: Version,
}

/// Which content a file had: its length and the time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    len: u64,
    changed: (i64, i64),
}

impl Version {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), changed: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

impl Part {
    /// Whether the bytes sent are those of which the head told. A file that has become longer has them still; another one under its name is
    /// no change of this one.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|now| {
            let now = Version::of(&now);
            // Guard: `now.len > self.version.len` as `false` fails
            // server/files::a_file_that_is_replaced_or_grows
            now == self.version || now.len > self.version.len
        })
    }
}

/// What [`Body::Lines`] repeats.
pub(crate) const LINE: &str = "foobar\r\n";

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const BYTES: &str = "application/octet-stream";

impl Reply {
    pub(crate) fn ok(kind: &'static str, body: Body) -> Self {
        Self { status: 200, kind, fields: Vec::new(), body, chunked: false, delay: Duration::ZERO }
    }

    /// The status in words.
    pub(crate) fn status(status: u16) -> Self {
        // 205 has a length, which is 0 (RFC 9110 §15.3.6).
        let body = if has_body(status) && status != 205 {
            format!("{status} {}\n", reason(status))
        } else {
            String::new()
        };
        Self { status, ..Self::ok(TEXT, Body::Text(body.into())) }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Length of the body, but for an echo.
    pub(crate) fn len(&self) -> Option<u64> {
        match &self.body {
            Body::Text(text) => Some(text.len() as u64),
            Body::Pattern(len) => Some(*len),
            Body::Lines(n) => Some(u64::from(*n) * LINE.len() as u64),
            Body::Echo | Body::Events(_) | Body::WebSocket { .. } => None,
            Body::File(part) => Some(part.len),
            Body::Kept(bytes) => Some(bytes.len() as u64),
        }
    }
}

/// Whether an answer with this status may have a body (RFC 9112 §6.3).
pub(crate) fn has_body(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

/// Bytes of `/size`: lines of text, so that people see where they are.
pub(crate) fn pattern() -> &'static [u8; PATTERN] {
    &BLOCK
}

/// Bytes of [`pattern`], after which it begins again.
pub(crate) const PATTERN: usize = 1 << 16;

/// Bytes of one of its lines; all are the same.
pub(crate) const LINE_OF_PATTERN: usize = 64;

static BLOCK: [u8; PATTERN] = {
    let mut block = [0; PATTERN];
    let mut i = 0;
    while i < PATTERN {
        block[i] = if i % 64 == 63 { b'\n' } else { b'0' + (i % 64 % 10) as u8 };
        i += 1;
    }
    block
};

/// Words for a status (RFC 9110 §15; RFC 6585).
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        410 => "Gone",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        418 => "I'm a teapot",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}
