//! URLs of targets: `http://host:port/path?query`, `https://[fd00::1]/`, or `host:port` alone.
//!
//! The crate `http` parses them; this module also refuses credentials and port 0.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use hyper::Uri;

use crate::resolve::resolve;

/// A target's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether to use TLS.
    pub https: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, from the slash on.
    pub path: String,
}

/// Why a text is not a URL of a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': {what}")]
pub struct BadUrl {
    text: String,
    what: String,
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = |what: &str| BadUrl { text: text.to_owned(), what: what.to_owned() };
        if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(bad("a URL has no spaces and no control characters"));
        }
        // A query may contain another URL.
        let named = |scheme: &str| scheme.bytes().all(|b| b.is_ascii_alphanumeric());
        let whole = match text.split_once("://") {
            Some((scheme, _)) if named(scheme) => text.to_owned(),
            _ => format!("http://{text}"),
        };
        let https = match whole.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).as_deref() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad("only http:// and https:// are spoken")),
        };
        let uri: Uri = whole.parse().map_err(|e| bad(&format!("no URL: {e}")))?;
        let needed = || bad("host:port or [IPv6 address]:port is needed");
        let authority = uri.authority().ok_or_else(needed)?;
        if authority.as_str().contains('@') {
            return Err(bad("give credentials as a header: -H 'Authorization: ...'"));
        }
        let host = authority.host();
        let port = authority.as_str().strip_prefix(host).ok_or_else(needed)?;
        let bare = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(inside) if inside.parse::<Ipv6Addr>().is_ok() => inside,
            None if !host.is_empty() && !host.contains(['[', ']']) => host,
            _ => return Err(needed()),
        };
        let usual = if https { 443 } else { 80 };
        let port = match (port, port.strip_prefix(':').map(str::parse)) {
            ("", _) => usual,
            (_, Some(Ok(port))) if port > 0 => port,
            (_, Some(_)) => return Err(bad("the port is a number from 1 to 65535")),
            (_, None) => return Err(needed()),
        };
        // Without the fragment behind '#', which is not sent (RFC 9110 §4.2.5).
        let path = uri.path_and_query().map_or("/", |p| p.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { https, host: bare.to_owned(), port, path })
    }
}

impl Url {
    /// The value of the Host header: with the port only if it is not the default one.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => self.host.clone(),
        };
        let usual = if self.https { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// The addresses of the host, by the system's resolver; `localhost` is this machine. Blocks as long as the resolver does.
    ///
    /// # Errors
    /// The name cannot be resolved or has no address.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, BadUrl> {
        let bad = |what: String| BadUrl { text: self.to_string(), what };
        let mut found = resolve(&self.host, self.port)
            .map_err(|e| bad(format!("'{}' cannot be resolved: {e}", self.host)))?;
        // A resolver may give an address once for each kind of socket.
        found.dedup();
        if found.is_empty() {
            return Err(bad(format!("'{}' has no address", self.host)));
        }
        Ok(found)
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", if self.https { "https" } else { "http" }, self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_understood() {
        for (text, shown) in [
            ("http://a.example", "http://a.example/"),
            ("https://a.example:443/x?y=1#z", "https://a.example/x?y=1"),
            ("localhost:8080", "http://localhost:8080/"),
            ("HTTP://[fd00::1]:81/p", "http://[fd00::1]:81/p"),
            ("https://[::1]", "https://[::1]/"),
            ("http://h?q", "http://h/?q"),
        ] {
            assert_eq!(text.parse::<Url>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for text in [
            "",
            "http://",
            "ftp://a/",
            "http://a:b/",
            "http://a:0/",
            "http://a:70000/",
            "http://u@a/",
            "http://a b/",
            "http://[zz]/",
            "http://[::1]x/",
            "http://a:1:2/",
            "http://a/\r\nX: y",
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(!error.trim_start_matches(&format!("'{text}'")).contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_resolved_by_the_system() {
        let url: Url = "http://127.0.0.1:81/".parse().unwrap();
        assert_eq!(url.resolve().unwrap(), ["127.0.0.1:81".parse().unwrap()]);
        let url: Url = "http://no-such-host.invalid/".parse().unwrap();
        assert!(url.resolve().is_err());
    }
}
