//! A client's cookies: RFC 6265 for a client that asks one host.
//!
//! Kept are name, value, path, and whether it is for https alone. A cookie of another domain is not taken; one that is over (Max-Age of 0
//! or less, Expires before the year 2000, as servers write it to delete one) goes. Other times are not waited for: a run is shorter. A
//! cookie without a path is for all paths. What a server may make a client keep is bounded.

use super::plan::Request;
use super::url::Url;

/// Most cookies, and most bytes of one: what a browser keeps at least (RFC 6265 §6.1).
const MOST: usize = 50;
const LONGEST: usize = 4096;

/// The cookies of a client.
#[derive(Debug, Default)]
pub(super) struct Jar {
    cookies: Vec<Cookie>,
}

#[derive(Debug, PartialEq, Eq)]
struct Cookie {
    name: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
    secure: bool,
}

impl Jar {
    pub(super) fn clear(&mut self) {
        self.cookies.clear();
    }

    /// Takes what a `Set-Cookie` field of an answer of `host` says (RFC 6265 §5.2).
    pub(super) fn take(&mut self, field: &[u8], host: &str) {
        // Guard: `field.len() > LONGEST` as `false` fails http::jar
        if field.len() > LONGEST || field.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f) {
            return;
        }
        let mut parts = field.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let Some((name, value)) = parts.next().and_then(|pair| split(pair, b'=')) else { return };
        if name.is_empty() {
            return;
        }
        let mut cookie =
            Cookie { name: name.to_vec(), value: value.to_vec(), path: b"/".to_vec(), secure: false };
        let mut over = false;
        for part in parts {
            let (name, value) = split(part, b'=').unwrap_or((part, b""));
            match name.to_ascii_lowercase().as_slice() {
                b"path" if value.first() == Some(&b'/') => cookie.path = value.to_vec(),
                b"secure" => cookie.secure = true,
                b"max-age" => {
                    let digits = value.strip_prefix(b"-").unwrap_or(value);
                    let number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
                    over = number && (value[0] == b'-' || digits.iter().all(|b| *b == b'0'));
                }
                b"expires" => over |= is_past(value),
                // Guard: `!is_of(host, value)` as `false` fails http::jar
                b"domain" if !is_of(host, value) => return,
                _ => {}
            }
        }
        self.cookies.retain(|other| other.name != cookie.name || other.path != cookie.path);
        if over {
            return;
        }
        // Guard: `self.cookies.len() == MOST` as `false` fails http::jar
        if self.cookies.len() == MOST {
            self.cookies.remove(0);
        }
        self.cookies.push(cookie);
    }

    /// The value of the `Cookie` field of a request (RFC 6265 §5.4): empty if there is none to send.
    pub(super) fn write(&self, path: &[u8], https: bool, out: &mut Vec<u8>) {
        let path = path.split(|b| *b == b'?').next().unwrap_or_default();
        for cookie in self.cookies.iter().filter(|c| (https || !c.secure) && c.is_for(path)) {
            if !out.is_empty() {
                out.extend_from_slice(b"; ");
            }
            out.extend_from_slice(&cookie.name);
            out.push(b'=');
            out.extend_from_slice(&cookie.value);
        }
    }

    /// Has a request that a redirect leads to `url` send what it should there: nothing, if that is another origin than the client's.
    pub(super) fn apply(&self, request: &mut Request, url: &Url, home: &Url) {
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("cookie"));
        // Guard: `url.is_of_one_origin_with(home)` as `true` fails http::jar
        if url.is_of_one_origin_with(home) {
            let mut value = Vec::new();
            self.write(url.path.as_bytes(), url.https, &mut value);
            if !value.is_empty() {
                request.headers.push(("Cookie".into(), String::from_utf8_lossy(&value).into_owned()));
            }
        }
    }
}

impl Cookie {
    /// RFC 6265 §5.1.4.
    fn is_for(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(&self.path[..]);
        rest.is_some_and(|rest| rest.is_empty() || self.path.ends_with(b"/") || rest[0] == b'/')
    }
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|b| *b == at)?;
    Some((text[..at].trim_ascii(), text[at + 1..].trim_ascii()))
}

/// Whether a host is of a domain (RFC 6265 §5.1.3).
fn is_of(host: &str, domain: &[u8]) -> bool {
    let domain = domain.strip_prefix(b".").unwrap_or(domain).to_ascii_lowercase();
    let host = host.to_ascii_lowercase();
    let rest = host.as_bytes().strip_suffix(&domain[..]);
    domain.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(b"."))
}

/// Whether a date is before the year 2000.
fn is_past(date: &[u8]) -> bool {
    let numbers = date.split(|b| !b.is_ascii_digit()).filter(|digits| digits.len() == 4);
    let year = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u16>().ok();
    numbers.filter_map(year).any(|year| year < 2000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jar(fields: &[&str]) -> Jar {
        let mut jar = Jar::default();
        fields.iter().for_each(|field| jar.take(field.as_bytes(), "www.a.example"));
        jar
    }

    fn sent(jar: &Jar, path: &str, https: bool) -> String {
        let mut out = Vec::new();
        jar.write(path.as_bytes(), https, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cookies_come_back_where_they_belong() {
        let jar = jar(&[
            "a=1; HttpOnly; SameSite=Lax",
            "b = \"x y\" ; Path=/shop",
            "c=3; Secure; Max-Age=60; Expires=Wed, 09 Jun 2021 10:18:14 GMT",
            "d=4; Domain=.A.example; path=odd",
            "e=5; Domain=b.example",
            "f=6; domain=xa.example",
            "=7",
            "g",
            "a=8",
        ]);
        assert_eq!(sent(&jar, "/", false), "d=4; a=8");
        assert_eq!(sent(&jar, "/shop?x=/", true), "b=\"x y\"; c=3; d=4; a=8");
        assert_eq!(sent(&jar, "/shop/1", false), "b=\"x y\"; d=4; a=8");
        assert_eq!(sent(&jar, "/shopping", false), "d=4; a=8");
    }

    #[test]
    fn cookies_go() {
        for over in [
            "a=; Max-Age=0",
            "a=x; max-age=-5",
            "a=; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "a=; expires=Thu, 01-Jan-1970 00:00:01 GMT",
        ] {
            assert_eq!(sent(&jar(&["a=1", "b=2", over]), "/", false), "b=2", "{over}");
        }
        for stays in ["a=1; Max-Age=100", "a=1; Max-Age=x", "a=1; Expires=never"] {
            assert_eq!(sent(&jar(&["a=0", stays]), "/", false), "a=1", "{stays}");
        }
    }

    #[test]
    fn what_a_server_makes_a_client_keep_is_bounded() {
        let many: Vec<String> = (0..200).map(|n| format!("n{n}=1")).collect();
        let full = jar(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(full.cookies.len(), MOST);
        assert!(sent(&full, "/", false).starts_with("n150=1; "));
        assert_eq!(jar(&[&format!("a={}", "x".repeat(LONGEST))]).cookies, []);
        assert_eq!(jar(&["a=b\r\nX: y", "a=\u{1}"]).cookies, []);
    }

    #[test]
    fn another_origin_gets_none() {
        let jar = jar(&["a=1", "b=2; Path=/x"]);
        let url = |text: &str| -> Url { text.parse().unwrap() };
        let home = url("http://www.a.example/");
        let mut request = Request { headers: vec![("cookie".into(), "old=1".into())], ..Request::default() };
        jar.apply(&mut request, &url("http://www.a.example/x"), &home);
        assert_eq!(request.headers, [("Cookie".to_owned(), "a=1; b=2".to_owned())]);
        jar.apply(&mut request, &url("https://www.a.example/x"), &home);
        assert_eq!(request.headers, []);
    }
}
