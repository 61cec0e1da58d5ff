//! A proxy between clients and targets: HTTP (RFC 9110 §7.3.2, §9.3.6) or SOCKS 5 (RFC 1928, RFC 1929).
//!
//! Only what the command line or a scenario names is used. The variables of the environment that other programs follow (`http_proxy`) are not
//! read: a load that goes to somebody else's proxy because of a line in a profile measures that proxy, and hurts it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use base64::Engine as _;

use crate::resolve::{is_number, resolve};

/// The port of a proxy that names none, as with curl.
const PORT: u16 = 1080;
/// Most bytes of a name, a user and a password in SOCKS, each.
const LONGEST: usize = 255;

/// How a proxy is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    /// HTTP/1.1: the whole URL in the request for `http:`, `CONNECT` for `https:` and HTTP/2.
    Http,
    /// SOCKS 5; names are resolved here.
    Socks5,
    /// SOCKS 5; names are resolved by the proxy.
    Socks5Name,
}

/// A proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// How it is spoken to.
    pub kind: ProxyKind,
    host: String,
    port: u16,
    pub(super) login: Option<Login>,
}

/// Who we are at the proxy.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Vec<u8>,
    pub(super) password: Vec<u8>,
}

impl fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

impl FromStr for Proxy {
    type Err = String;

    /// `[SCHEME://][USER:PASSWORD@]HOST[:PORT]`, with the schemes `http`, `socks5` and `socks5h`. Errors do not repeat the text, which may have
    /// a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "a proxy is http://HOST:PORT, socks5://HOST:PORT or socks5h://HOST:PORT".to_owned();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let kind = match scheme.to_ascii_lowercase().as_str() {
            "http" => ProxyKind::Http,
            "socks5" => ProxyKind::Socks5,
            "socks5h" => ProxyKind::Socks5Name,
            "https" => return Err(
                "TLS to a proxy is not spoken: http://HOST:PORT, and https: targets are tunnelled through it"
                    .into(),
            ),
            "socks" | "socks4" | "socks4a" => return Err("SOCKS 4 is not spoken: socks5://HOST:PORT".into()),
            _ => return Err(bad()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(Login::read(login)?), place),
            None => (None, rest),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(inside) => inside.split_once(']').ok_or_else(bad)?,
            None => place.find(':').map_or((place, ""), |at| place.split_at(at)),
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => PORT,
            Some(port) => port.parse().ok().filter(|p| *p > 0).ok_or_else(bad)?,
            None => return Err(bad()),
        };
        let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'/' | b'?' | b'#' | b'@');
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(bad());
        }
        if is_number(host) {
            return Err(format!("'{host}' is a number and no address: write all four parts, as 10.0.0.1"));
        }
        Ok(Self { kind, host: host.to_owned(), port, login })
    }
}

impl Login {
    fn read(text: &str) -> Result<Self, String> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decoded = |text| {
            // Guard: `bytes.len() <= LONGEST` as `true` fails http::proxy
            decode(text).filter(|bytes| bytes.len() <= LONGEST).ok_or("user and password of a proxy have at most 255 bytes each, and %XX for what is special in a URL")
        };
        let (user, password) = (decoded(user)?, decoded(password)?);
        if user.is_empty() {
            return Err("a login at a proxy is USER:PASSWORD".into());
        }
        Ok(Self { user, password })
    }
}

/// A text of a URL without its percent signs (RFC 3986 §2.1).
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(if byte == b'%' { (digit()? << 4 | digit()?) as u8 } else { byte });
    }
    Some(out)
}

impl Proxy {
    /// Its addresses. Blocks as long as the resolver does.
    ///
    /// # Errors
    /// In one line: it cannot be resolved, or has no address.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let mut found = resolve(&self.host, self.port)
            .map_err(|e| format!("the proxy '{}' cannot be resolved: {e}", self.host))?;
        found.dedup();
        if found.is_empty() {
            return Err(format!("the proxy '{}' has no address", self.host));
        }
        Ok(found)
    }

    /// The value of `Proxy-Authorization` (RFC 7617 §2), if there is a login.
    pub(super) fn authorization(&self) -> Option<String> {
        let Login { user, password } = self.login.as_ref()?;
        let both = [user, &b":"[..], password].concat();
        Some(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(both)))
    }

    /// Whether names of targets are resolved by the proxy.
    pub(super) fn resolves(&self) -> bool {
        self.kind != ProxyKind::Socks5
    }
}

impl fmt::Display for Proxy {
    /// Without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            ProxyKind::Http => "http",
            ProxyKind::Socks5 => "socks5",
            ProxyKind::Socks5Name => "socks5h",
        };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_understood() {
        for (text, shown, login) in [
            ("http://127.0.0.1:3128", "http://127.0.0.1:3128", None),
            ("proxy.example:8080", "http://proxy.example:8080", None),
            ("proxy.example", "http://proxy.example:1080", None),
            ("HTTP://proxy.example/", "http://proxy.example:1080", None),
            ("socks5://[::1]:9050", "socks5://[::1]:9050", None),
            ("socks5h://u:p@a.example", "socks5h://a.example:1080", Some("Basic dTpw")),
            // The example of RFC 7617, and what is special in a URL.
            ("http://Aladdin:open%20sesame@a:1", "http://a:1", Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")),
            ("http://u:p%40%3A@a:1", "http://a:1", Some("Basic dTpwQDo=")),
            ("http://u@a:1", "http://a:1", Some("Basic dTo=")),
        ] {
            let proxy: Proxy = text.parse().unwrap();
            assert_eq!(
                (proxy.to_string().as_str(), proxy.authorization().as_deref()),
                (shown, login),
                "{text}"
            );
            assert!(!format!("{proxy:?}").contains("sesame"));
        }
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_its_password() {
        for text in [
            "",
            "http://",
            "ftp://a",
            "http://a:0",
            "http://a:x",
            "http://a:70000",
            "http://[::1",
            "http://[::1]x",
            "http://a b:1",
            "http://secret:%zz@a:1",
            "http://:secret@a:1",
            "http://secret@a/b:1",
            "https://secret@a:1",
            "socks4://secret@a",
            "http://u:secret@100:1",
            "http://u:secret@:1",
        ] {
            let why = text.parse::<Proxy>().unwrap_err();
            assert!(!why.contains("secret") && !why.contains('\n'), "{text}: {why}");
        }
        let long = format!("http://{}:p@a", "u".repeat(256));
        assert!(long.parse::<Proxy>().unwrap_err().contains("255"));
        assert!(long.replacen('u', "", 1).parse::<Proxy>().is_ok());
    }
}
