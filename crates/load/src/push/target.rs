//! Where figures are pushed to, and with which header lines.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderName, HeaderValue};

use crate::http::Url;

/// How figures are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OpenTelemetry's, over HTTP in binary.
    Otlp,
    /// Prometheus' remote write 1.0.
    RemoteWrite,
}

impl Protocol {
    /// Its name as `--push` takes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Otlp => "otlp",
            Self::RemoteWrite => "prometheus",
        }
    }

    /// The usual path of a receiver, for a URL without one.
    fn path(self) -> &'static str {
        match self {
            Self::Otlp => "/v1/metrics",
            Self::RemoteWrite => "/api/v1/write",
        }
    }
}

/// A receiver: `otlp=URL` or `prometheus=URL`. Shown without name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Where it is.
    pub url: Url,
    pub(super) basic: Option<HeaderValue>,
}

/// Why a text names no receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTarget(String);

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.protocol.name(), self.url)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let expected =
            || BadTarget("KIND=URL, as otlp=http://localhost:4318 or prometheus=https://...".into());
        let (kind, url) = text.split_once('=').ok_or_else(expected)?;
        let protocol = match kind {
            "otlp" => Protocol::Otlp,
            "prometheus" => Protocol::RemoteWrite,
            _ => return Err(expected()),
        };
        let (url, user) = without_user(url);
        let mut parsed: Url = url.parse().map_err(|e: crate::http::BadUrl| BadTarget(e.to_string()))?;
        if parsed.path == "/" {
            protocol.path().clone_into(&mut parsed.path);
        }
        let basic = user.map(|user| basic(&user)).transpose()?;
        Ok(Self { protocol, url: parsed, basic })
    }
}

/// A URL without its name and password, and these, decoded (RFC 3986 §3.2.1).
fn without_user(url: &str) -> (String, Option<Vec<u8>>) {
    let Some((scheme, rest)) = url.split_once("://") else { return (url.to_owned(), None) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((user, host)) => (format!("{scheme}://{host}{}", &rest[end..]), Some(decoded(user))),
        None => (url.to_owned(), None),
    }
}

/// The line of basic authentication (RFC 7617 §2).
fn basic(user: &[u8]) -> Result<HeaderValue, BadTarget> {
    if !user.contains(&b':') {
        return Err(BadTarget("name and password are needed before '@': http://NAME:PASSWORD@HOST".into()));
    }
    let line = format!("Basic {}", STANDARD.encode(user));
    let mut value = HeaderValue::from_str(&line).map_err(|e| BadTarget(e.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Bytes for which `%` and two digits stand, and all others as they are.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let two = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = two.filter(|_| *first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    bytes
}

/// A header line for receivers. Its value may be a secret and is not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
}

/// Why a text is no header line for receivers. It does not repeat the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadHeader(String);

impl FromStr for Header {
    type Err = BadHeader;

    fn from_str(line: &str) -> Result<Self, BadHeader> {
        let (name, value) =
            line.split_once(':').ok_or_else(|| BadHeader("a header is 'NAME: VALUE'".into()))?;
        Self::new(name.trim(), value.trim().as_bytes())
    }
}

impl Header {
    fn new(name: &str, value: &[u8]) -> Result<Self, BadHeader> {
        let bad = |what: &str| BadHeader(format!("header '{name}': {what}"));
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("this is no name"))?;
        let ours = [
            header::HOST,
            header::CONTENT_LENGTH,
            header::CONTENT_TYPE,
            header::CONTENT_ENCODING,
            header::TRANSFER_ENCODING,
            header::CONNECTION,
        ];
        if ours.contains(&parsed) || parsed == VERSION {
            return Err(bad("it says what is pushed, and cannot be chosen"));
        }
        let mut value = HeaderValue::from_bytes(value).map_err(|_| bad("this value cannot be sent"))?;
        value.set_sensitive(true);
        Ok(Self { name: parsed, value })
    }
}

/// The header of remote write that has its version.
pub(super) const VERSION: &str = "x-prometheus-remote-write-version";

/// Header lines from a list `NAME=VALUE,NAME=VALUE` with percent-encoded values, as [`OTEL_EXPORTER_OTLP_HEADERS`][spec] has them.
///
/// [spec]: https://opentelemetry.io/docs/specs/otel/protocol/exporter/#specifying-headers-via-environment-variables
///
/// # Errors
/// Which of them is none.
pub fn headers_of(list: &str) -> Result<Vec<Header>, BadHeader> {
    let given = list.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    given
        .map(|pair| {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| BadHeader("headers are NAME=VALUE,NAME=VALUE".into()))?;
            Header::new(name.trim(), &decoded(value.trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn receivers_have_usual_paths_and_no_password_in_words() {
        for (text, shown) in [
            ("otlp=http://localhost:4318", "otlp http://localhost:4318/v1/metrics"),
            ("otlp=http://localhost:4318/other", "otlp http://localhost:4318/other"),
            ("prometheus=https://a.example/", "prometheus https://a.example/api/v1/write"),
            ("prometheus=https://me:s%40cret@a.example/x?y=@", "prometheus https://a.example/x?y=@"),
        ] {
            assert_eq!(
                (target(text).to_string(), format!("{:?}", target(text))),
                (shown.into(), shown.into())
            );
        }
        // RFC 7617 §2 has this example.
        let basic = target("otlp=http://Aladdin:open%20sesame@h").basic.unwrap();
        assert_eq!(basic, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn what_is_no_receiver_is_refused() {
        for text in [
            "",
            "http://localhost",
            "otlp",
            "otlp=",
            "otlp=localhost:4318",
            "otlp=ftp://a",
            "grpc=http://a",
            "otlp=http://me@a",
            "prometheus=http://a:0",
            "prometheus=http://a b",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn headers_are_read_and_kept_to_themselves() {
        let header: Header = "X-Scope-OrgID:  team:1 ".parse().unwrap();
        assert_eq!((header.name.as_str(), header.value.as_bytes()), ("x-scope-orgid", &b"team:1"[..]));
        assert!(!format!("{header:?}").contains("team"));
        let list = headers_of("api-key=a%3Db, x=1,").unwrap();
        assert_eq!(list.iter().map(|h| h.value.as_bytes()).collect::<Vec<_>>(), [&b"a=b"[..], b"1"]);
        for wrong in [
            "secret",
            "a b: c",
            "Host: x",
            "content-type: x",
            "X-Prometheus-Remote-Write-Version: 2",
            "a: \u{7f}",
        ] {
            let why = wrong.parse::<Header>().unwrap_err().to_string();
            assert!(!why.contains("secret"), "{why}");
        }
        assert!(headers_of("a").is_err());
    }
}
