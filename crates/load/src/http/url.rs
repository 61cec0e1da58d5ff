//! URLs of targets: `http://host:port/path?query`, `https://[fd00::1]/`.
//!
//! The crate `http` parses them; this module also refuses credentials, port 0, a URL without a scheme, and numbers that are no address. So
//! the value of an option that is not ours (`-q 100`) never becomes a target.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use hyper::Uri;

use crate::resolve::{is_number, resolve};

/// A target's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether to use TLS.
    pub https: bool,
    /// Name or address, without brackets; a link-local address has its zone, `fe80::1%eth0`.
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

impl BadUrl {
    /// What is wrong with this URL.
    pub(super) fn new(url: &Url, what: String) -> Self {
        Self { text: url.to_string(), what }
    }
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
        let scheme = text.split_once("://").map(|(scheme, _)| scheme).filter(|scheme| named(scheme));
        let https = match scheme.map(str::to_ascii_lowercase).as_deref() {
            None if is_plausible_host(text) => {
                return Err(bad(&format!("a URL begins with its scheme: http://{text}")));
            }
            None => return Err(bad("no URL: http://HOST:PORT/PATH or https://... is needed")),
            Some("http") => false,
            Some("https") => true,
            Some("ws" | "wss") => return Err(bad("a WebSocket: flowlane load ws has these")),
            _ => return Err(bad("only http:// and https:// are spoken")),
        };
        let named = text.split_once("://").map_or("", |(_, rest)| rest);
        let named = named.split(['/', '?', '#']).next().unwrap_or_default();
        if named.is_empty() {
            return Err(bad("the host is missing: HOST or HOST:PORT"));
        }
        // Without brackets its last part might be a port.
        if without_zone(named).parse::<Ipv6Addr>().is_ok() {
            return Err(bad(&format!("an address of IPv6 stands in brackets: [{named}]")));
        }
        let uri: Uri = text.parse().map_err(|e| bad(&format!("no URL: {e}")))?;
        let needed = || bad("host:port or [IPv6 address]:port is needed");
        let authority = uri.authority().ok_or_else(needed)?;
        if authority.as_str().contains('@') {
            return Err(bad("give credentials as a header: -H 'Authorization: ...'"));
        }
        let host = authority.host();
        let port = authority.as_str().strip_prefix(host).ok_or_else(needed)?;
        let bare = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(inside) if without_zone(inside).parse::<Ipv6Addr>().is_ok() => inside,
            None if !host.is_empty() && !host.contains(['[', ']', '%']) => host,
            _ => return Err(needed()),
        };
        // Guard: `is_number(bare)` as `false` fails url::tests::what_was_not_meant
        if is_number(bare) {
            return Err(bad(&format!(
                "'{bare}' is a number and no address: write all four parts, as 10.0.0.1"
            )));
        }
        let usual = if https { 443 } else { 80 };
        let port = match (port, port.strip_prefix(':').map(str::parse)) {
            ("", _) => usual,
            // Guard: `port > 0` as `true` fails http::url
            (_, Some(Ok(port))) if port > 0 => port,
            (_, Some(_)) => return Err(bad("the port is a number from 1 to 65535")),
            (_, None) => return Err(needed()),
        };
        // Without the fragment behind '#', which is not sent (RFC 9110 §4.2.5).
        let path = uri.path_and_query().map_or("/", |p| p.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        // In a URI the sign before a zone may be written as %25 (RFC 6874 §2).
        let host = match bare.split_once("%25") {
            Some((ip, zone)) if !zone.is_empty() => format!("{ip}%{zone}"),
            _ => bare.to_owned(),
        };
        Ok(Self { https, host, port, path })
    }
}

/// A path without `.` and `..` (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." => {}
            ".." => drop(kept.pop()),
            part => {
                kept.push(part);
                continue;
            }
        }
        // A directory stays one.
        if last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

/// An address without its zone.
fn without_zone(host: &str) -> &str {
    host.split('%').next().unwrap_or_default()
}

/// Whether a text without a scheme looks like a host, so that the scheme is all that is missing.
fn is_plausible_host(text: &str) -> bool {
    let host = text.split(['/', '?', '#']).next().unwrap_or_default();
    host.contains(['.', ':', '['])
        && !host.starts_with('.')
        && host.bytes().any(|b| b.is_ascii_alphanumeric())
        || host.eq_ignore_ascii_case("localhost")
}

impl Url {
    /// The value of the Host header: with the port only if it is not the default one, and without the zone, which means something on this
    /// machine only (RFC 6874 §4).
    #[must_use]
    pub fn authority(&self) -> String {
        self.authority_of(self.name())
    }

    /// The host as the server knows it: without a zone.
    #[must_use]
    pub fn name(&self) -> &str {
        without_zone(&self.host)
    }

    /// Whether both are of one origin: scheme, host and port (RFC 6454 §4).
    pub(super) fn is_of_one_origin_with(&self, other: &Self) -> bool {
        (self.https, self.port) == (other.https, other.port) && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// The URL that a reference names, seen from this one (RFC 3986 §5.2). What follows `#` is not sent.
    pub(super) fn join(&self, reference: &str) -> Result<Self, BadUrl> {
        let reference = reference.split('#').next().unwrap_or_default();
        let first = reference.split(['/', '?']).next().unwrap_or_default();
        if first.contains(':') {
            return reference.parse();
        }
        if let Some(rest) = reference.strip_prefix("//") {
            return format!("{}://{rest}", if self.https { "https" } else { "http" }).parse();
        }
        let (base, _) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let path = match reference.bytes().next() {
            None => self.path.clone(),
            Some(b'?') => format!("{base}{reference}"),
            Some(b'/') => reference.to_owned(),
            Some(_) => format!("{}{reference}", &base[..=base.rfind('/').unwrap_or(0)]),
        };
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path.as_str(), None),
        };
        let mut path = without_dots(path);
        if let Some(query) = query {
            path = format!("{path}?{query}");
        }
        if path.parse::<Uri>().is_err() {
            return Err(BadUrl { text: reference.to_owned(), what: "no path of a URL".to_owned() });
        }
        Ok(Self { path, ..self.clone() })
    }

    /// Host and port, whichever the port is.
    pub(super) fn place(&self) -> String {
        match self.name().parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]:{}", self.port),
            _ => format!("{}:{}", self.name(), self.port),
        }
    }

    fn authority_of(&self, host: &str) -> String {
        let host = match self.name().parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{}]", host.replacen(self.name(), &ip.to_string(), 1)),
            _ => host.to_owned(),
        };
        let usual = if self.https { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// The addresses of the host, by the system's resolver; `localhost` is this machine. Blocks as long as the resolver does.
    ///
    /// # Errors
    /// The name cannot be resolved or has no address.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, BadUrl> {
        let bad = |what: String| BadUrl::new(self, what);
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
        write!(
            f,
            "{}://{}{}",
            if self.https { "https" } else { "http" },
            self.authority_of(&self.host),
            self.path
        )
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
            ("http://localhost:8080", "http://localhost:8080/"),
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080/"),
            ("http://3.example.com", "http://3.example.com/"),
            ("HTTP://[fd00::1]:81/p", "http://[fd00::1]:81/p"),
            ("https://[::1]", "https://[::1]/"),
            ("http://[fe80::1%eth0]:81/p", "http://[fe80::1%eth0]:81/p"),
            ("http://[fe80:0::1%25eth0]/", "http://[fe80::1%eth0]/"),
            ("http://[fe80::1%25]/", "http://[fe80::1%25]/"),
            ("http://h?q", "http://h/?q"),
        ] {
            assert_eq!(text.parse::<Url>().unwrap().to_string(), shown, "{text}");
        }
    }

    /// The examples of RFC 3986 §5.4, for the schemes that are spoken, and without what follows '#'.
    #[test]
    fn references_are_seen_from_where_they_stand() {
        let base: Url = "http://a/b/c/d;p?q".parse().unwrap();
        for (reference, url) in [
            ("https://g", "https://g/"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g#s", "http://a/b/c/g"),
            (";x", "http://a/b/c/;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/../h", "http://a/b/c/h"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("/a:b", "http://a/a:b"),
        ] {
            assert_eq!(base.join(reference).unwrap().to_string(), url, "{reference}");
        }
        for bad in ["g:h", "mailto:x@y", "http:g", "//", "//u@h/", "//g:0/"] {
            assert!(base.join(bad).is_err(), "{bad}");
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
            "http://[zz%eth0]/",
            "http://a%eth0/",
            "http://a:1:2/",
            "http://a/\r\nX: y",
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(!error.trim_start_matches(&format!("'{text}'")).contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn what_was_not_meant_as_a_target_is_none() {
        // The values of options that other programs have, and what the resolver would take for an address: 100 is 0.0.0.100.
        for text in [
            "100",
            "10s",
            "true",
            "a",
            "-",
            "1.5",
            "http://100/",
            "http://0x7f000001",
            "http://127.1:80/",
            "http://1.2.3",
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(
                error.contains("no URL") || error.contains("is a number") || text == "1.5",
                "{text}: {error}"
            );
        }
        for text in ["localhost:8080", "127.0.0.1:80/x", "[::1]:80", "a.example/?u=http://b/", "localhost"] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("http://{text}")), "{text}: {error}");
        }
    }

    #[test]
    fn a_zone_is_for_this_machine_and_not_for_the_server() {
        let url: Url = "http://[fe80::1%lo]:81/".parse().unwrap();
        assert_eq!((url.authority().as_str(), url.name()), ("[fe80::1]:81", "fe80::1"));
        let found = url.resolve().unwrap();
        assert!(matches!(found[..], [SocketAddr::V6(v6)] if v6.scope_id() != 0), "{found:?}");
        let url: Url = "http://[fe80::1%nosuch0]:81/".parse().unwrap();
        let said = url.resolve().unwrap_err().to_string();
        assert!(said.contains("nosuch0") && !said.contains('\n'), "{said}");
    }

    #[test]
    fn names_are_resolved_by_the_system() {
        let url: Url = "http://127.0.0.1:81/".parse().unwrap();
        assert_eq!(url.resolve().unwrap(), ["127.0.0.1:81".parse().unwrap()]);
        let url: Url = "http://no-such-host.invalid/".parse().unwrap();
        assert!(url.resolve().is_err());
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, what) in [
            ("http://", "the host is missing"),
            ("http:///x", "the host is missing"),
            ("http://::1/", "in brackets: [::1]"),
            ("http://fd00::1?q", "in brackets: [fd00::1]"),
            ("https://fe80::1%eth0", "in brackets: [fe80::1%eth0]"),
            // Nobody can say whether the last part is a port.
            ("http://::1:8080/", "in brackets: [::1:8080]"),
        ] {
            let said = text.parse::<Url>().unwrap_err().to_string();
            assert!(said.contains(what), "{text}: {said}");
        }
    }
}
