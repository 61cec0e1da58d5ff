//! URLs as people type them: `http://host:port/path?query`, `https://[fd00::1]/`, or `host:port` alone.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A target as it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether it is spoken to over TLS.
    pub https: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, from the slash on.
    pub path: String,
}

/// Why a text is no URL.
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
        let (https, rest) = match text.split_once("://") {
            None => (false, text),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return Err(bad("only http:// and https:// are spoken")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(bad("give credentials as a header: -H 'Authorization: ...'"));
        }
        let (host, port) =
            split_port(authority).ok_or_else(|| bad("host:port or [IPv6 address]:port is needed"))?;
        let port = match port {
            None => {
                if https {
                    443
                } else {
                    80
                }
            }
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(bad("the port is a number from 1 to 65535")),
            },
        };
        // What stands behind '#' is not sent (RFC 9110 §4.2.5).
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { https, host: host.to_owned(), port, path })
    }
}

/// Host and port of an authority; brackets are taken off. `None` if there is no host.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    let (host, port) = authority.split_once(':').map_or((authority, None), |(h, p)| (h, Some(p)));
    (!host.is_empty() && !port.is_some_and(|p| p.contains(':'))).then_some((host, port))
}

impl Url {
    /// What the Host header says: the port only when it is not the usual one.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => self.host.clone(),
        };
        let usual = if self.https { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// What the name stands for, by the system's resolver. May take as long as the resolver does.
    ///
    /// # Errors
    /// When it stands for nothing.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, BadUrl> {
        let bad = |what: String| BadUrl { text: self.to_string(), what };
        let mut found: Vec<SocketAddr> = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|e| bad(format!("'{}' cannot be resolved: {e}", self.host)))?
            .collect();
        // A resolver may give an address once for each kind of socket.
        found.dedup();
        if found.is_empty() {
            return Err(bad(format!("'{}' stands for no address", self.host)));
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
