//! Heads of messages: the first line, and the header fields that frame the message and keep the connection open.
//!
//! The other fields are not copied; [`Fields`] iterates over them in place.
//!
//! A message of a later minor version, HTTP/1.2 and so on, is one of 1.1 (RFC 9110 §2.5). The parser knows 1.0 and 1.1 alone, so such a head,
//! which is rare, is copied with its version made 1.1, and what is found in the copy is at the same place in the original.

use std::mem::MaybeUninit;
use std::str;

use httparse::{Header, ParserConfig, Status};

use super::{Fault, Framing, Limits, MAX_FIELDS};

/// Versions that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// Head of a request (RFC 9112 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// `GET` and others; case matters.
    pub method: &'a str,
    /// The request target as received: usually a path and a query.
    pub target: &'a str,
    /// Version of the sender.
    pub version: Version,
    /// Value of the one `Host` field; `None` when there is none, or several.
    pub host: Option<&'a [u8]>,
    /// How the body is framed; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// Whether the sender wants to use the connection further (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Whether the sender waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// All header fields.
    pub fields: Fields<'a>,
}

/// Head of a response (RFC 9112 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// The status, 100 to 999.
    pub status: u16,
    /// Version of the sender.
    pub version: Version,
    /// How the body is framed if the request was not `HEAD`.
    pub framing: Framing,
    /// Whether the connection can be used further (RFC 9112 §9.3); never after a body [`Framing::UntilClose`].
    pub keep_alive: bool,
    /// All header fields.
    pub fields: Fields<'a>,
}

/// Header fields in order, names as they came, values without the white space around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields<'a> {
    /// Lines of a head that was found to be good, the first of them not yet passed if `first`.
    rest: &'a [u8],
    first: bool,
}

impl<'a> Fields<'a> {
    /// Empty lines before a head are no part of it (RFC 9112 §2.2).
    #[inline]
    fn of(head: &'a [u8]) -> Self {
        let begin = head.iter().position(|b| !matches!(b, b'\r' | b'\n')).unwrap_or(head.len());
        Self { rest: &head[begin..], first: true }
    }

    /// The value of the first field with this name, in whatever case.
    #[must_use]
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let end = self.rest.iter().position(|b| *b == b'\n')?;
            let (line, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            // The first line is no field, and the value of a folded one is that of its first line.
            if std::mem::take(&mut self.first) || line.first().is_some_and(|b| matches!(b, b' ' | b'\t')) {
                continue;
            }
            let colon = line.iter().position(|b| *b == b':')?;
            let name = str::from_utf8(line.get(..colon)?).ok()?;
            return Some((name, line.get(colon + 1..)?.trim_ascii()));
        }
    }
}

/// Parses the head of a request at the beginning of `bytes`. Returns the head and its length in bytes, or `None` if it is incomplete.
///
/// # Errors
/// What is wrong with it.
#[inline]
pub fn request<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Request<'a>, usize)>, Fault> {
    match parse_request(bytes, limits) {
        Err(Fault::BadVersion) => later_request(bytes, limits),
        parsed => parsed,
    }
}

/// A request of a later minor version.
#[cold]
fn later_request<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Request<'a>, usize)>, Fault> {
    let copy =
        as_http11(bytes, |line| line.len().saturating_sub(VERSION.len() + 1)).ok_or(Fault::BadVersion)?;
    let Some((head, len)) = parse_request(&copy, limits)? else { return Ok(None) };
    let place = |part: &[u8]| {
        let begin = part.as_ptr().addr().wrapping_sub(copy.as_ptr().addr());
        bytes.get(begin..begin.wrapping_add(part.len())).unwrap_or_default()
    };
    let text = |part: &str| str::from_utf8(place(part.as_bytes())).unwrap_or_default();
    let head = Request {
        method: text(head.method),
        target: text(head.target),
        host: head.host.map(place),
        fields: Fields::of(&bytes[..len]),
        version: head.version,
        framing: head.framing,
        keep_alive: head.keep_alive,
        expects_continue: head.expects_continue,
    };
    Ok(Some((head, len)))
}

/// What a version of HTTP/1 is without its minor number.
const VERSION: &[u8] = b"HTTP/1.";

/// A copy of a head with version 1.1, if its version is 1.2 to 1.9; `at` says where in the first line the version is.
fn as_http11(bytes: &[u8], at: impl Fn(&[u8]) -> usize) -> Option<Vec<u8>> {
    let begin = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n'))?;
    let line = bytes[begin..].split(|b| *b == b'\n').next()?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let at = at(line);
    let minor = line.get(at..)?.strip_prefix(VERSION)?.first()?;
    matches!(minor, b'2'..=b'9').then(|| {
        let mut copy = bytes.to_vec();
        copy[begin + at + VERSION.len()] = b'1';
        copy
    })
}

#[inline]
fn parse_request<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Request<'a>, usize)>, Fault> {
    let mut storage = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_FIELDS];
    let storage = &mut storage[..usize::from(limits.fields).min(MAX_FIELDS)];
    let mut parsed = httparse::Request::new(&mut []);
    let status = ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, bytes, storage);
    let Some(len) = length(status, bytes, limits)? else { return Ok(None) };
    let seen = Seen::of(parsed.headers)?;
    let version = version(parsed.version);
    let framing = seen.request_framing(version)?;
    let head = Request {
        method: parsed.method.unwrap_or_default(),
        target: parsed.path.unwrap_or_default(),
        version,
        // Guard: `seen.hosts == 1` as `true` fails h1:: server::
        host: if seen.hosts == 1 { seen.host } else { None },
        framing,
        keep_alive: seen.keep_alive(version),
        expects_continue: seen.expects_continue && version == Version::Http11 && framing != Framing::None,
        fields: Fields::of(&bytes[..len]),
    };
    Ok(Some((head, len)))
}

/// Parses the head of a response at the beginning of `bytes`. Returns the head and its length in bytes, or `None` if it is incomplete.
///
/// # Errors
/// What is wrong with it.
#[inline]
pub fn response<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Response<'a>, usize)>, Fault> {
    match parse_response(bytes, limits) {
        Err(Fault::BadVersion) => {
            let copy = as_http11(bytes, |_| 0).ok_or(Fault::BadVersion)?;
            let Some((head, len)) = parse_response(&copy, limits)? else { return Ok(None) };
            let Response { status, version, framing, keep_alive, .. } = head;
            Ok(Some((
                Response { status, version, framing, keep_alive, fields: Fields::of(&bytes[..len]) },
                len,
            )))
        }
        parsed => parsed,
    }
}

#[inline]
fn parse_response<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Response<'a>, usize)>, Fault> {
    let mut storage = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_FIELDS];
    let storage = &mut storage[..usize::from(limits.fields).min(MAX_FIELDS)];
    let mut parsed = httparse::Response::new(&mut []);
    let mut config = ParserConfig::default();
    // A client reads a folded line as a space (RFC 9112 §5.2).
    config.allow_obsolete_multiline_headers_in_responses(true);
    let status = config.parse_response_with_uninit_headers(&mut parsed, bytes, storage);
    let Some(len) = length(status, bytes, limits)? else { return Ok(None) };
    // Guard: `*code >= 100` as `true` fails h1::
    let status = parsed.code.filter(|code| *code >= 100).ok_or(Fault::BadStatus)?;
    let seen = Seen::of(parsed.headers)?;
    let version = version(parsed.version);
    let framing = seen.response_framing(status, version)?;
    let head = Response {
        status,
        version,
        framing,
        keep_alive: framing != Framing::UntilClose && !seen.both() && seen.keep_alive(version),
        fields: Fields::of(&bytes[..len]),
    };
    Ok(Some((head, len)))
}

fn version(minor: Option<u8>) -> Version {
    if minor == Some(0) { Version::Http10 } else { Version::Http11 }
}

#[inline]
fn length(status: httparse::Result<usize>, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Fault> {
    match status? {
        // Guard: `len > limits.head_bytes()` as `false` fails h1::
        Status::Complete(len) if len > limits.head_bytes() => Err(Fault::HeadTooLong),
        Status::Complete(len) => Ok(Some(len)),
        // Guard: `bytes.len() >= limits.head_bytes()` as `false` fails h1::
        Status::Partial if bytes.len() >= limits.head_bytes() => Err(Fault::HeadTooLong),
        Status::Partial => Ok(None),
    }
}

/// The header fields that concern framing and the connection.
#[derive(Debug, Default)]
struct Seen<'a> {
    length: Option<u64>,
    /// A transfer coding was given.
    coded: bool,
    /// The last coding is `chunked`.
    chunked: bool,
    /// There is another coding, or `chunked` twice.
    unknown_coding: bool,
    close: bool,
    keep: bool,
    expects_continue: bool,
    host: Option<&'a [u8]>,
    hosts: usize,
}

impl<'a> Seen<'a> {
    #[inline]
    fn of(headers: &[Header<'a>]) -> Result<Self, Fault> {
        let mut seen = Self::default();
        for header in headers {
            let name = header.name;
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => {
                    seen.host = Some(header.value);
                    seen.hosts += 1;
                }
                6 if name.eq_ignore_ascii_case("expect") => {
                    seen.expects_continue |= header.value.eq_ignore_ascii_case(b"100-continue");
                }
                10 if name.eq_ignore_ascii_case("connection") => seen.connection(header.value),
                14 if name.eq_ignore_ascii_case("content-length") => seen.content_length(header.value)?,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => seen.coding(header.value),
                _ => {}
            }
        }
        Ok(seen)
    }

    fn connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// The same length given again is one length (RFC 9110 §8.6).
    fn content_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        for element in value.split(|b| *b == b',') {
            let length = number(element.trim_ascii()).ok_or(Fault::BadLength)?;
            // Guard: `self.length.is_some_and(|before| before != length)` as `false` fails h1::
            if self.length.is_some_and(|before| before != length) {
                return Err(Fault::ConflictingLengths);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) {
        self.coded = true;
        for coding in list(value) {
            self.unknown_coding |= self.chunked;
            self.chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.unknown_coding |= !self.chunked;
        }
        self.unknown_coding |= !self.chunked;
    }

    fn both(&self) -> bool {
        self.coded && self.length.is_some()
    }

    fn request_framing(&self, version: Version) -> Result<Framing, Fault> {
        // Guard: `self.both()` as `false` fails h1::
        if self.both() {
            return Err(Fault::LengthAndCoding);
        }
        // A coding in a message of 1.0 means that its framing is faulty (RFC 9112 §6.1).
        // Guard: `self.unknown_coding` as `false` fails h1::
        if self.unknown_coding || self.coded && version == Version::Http10 {
            return Err(Fault::UnknownCoding);
        }
        Ok(match self.length {
            _ if self.chunked => Framing::Chunked,
            None | Some(0) => Framing::None,
            Some(n) => Framing::Length(n),
        })
    }

    fn response_framing(&self, status: u16, version: Version) -> Result<Framing, Fault> {
        // Guard: `status == 204 || status == 304` as `false` fails h1::
        if status < 200 || status == 204 || status == 304 {
            return Ok(Framing::None);
        }
        if self.unknown_coding || self.coded && version == Version::Http10 {
            return Err(Fault::UnknownCoding);
        }
        Ok(match self.length {
            _ if self.chunked => Framing::Chunked,
            None => Framing::UntilClose,
            Some(0) => Framing::None,
            Some(n) => Framing::Length(n),
        })
    }

    fn keep_alive(&self, version: Version) -> bool {
        // Guard: `!self.close` as `true` fails h1::
        !self.close && (self.keep || version == Version::Http11)
    }
}

/// Elements of a list (RFC 9110 §5.6.1), without the empty ones.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Digits only: no sign, no space, nothing that is not there.
fn number(digits: &[u8]) -> Option<u64> {
    // Guard: `!digits.iter().all(u8::is_ascii_digit)` as `false` fails h1::
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
