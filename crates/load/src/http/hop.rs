//! Where a redirect leads, and what is asked there (RFC 9110 §15.4): the rules, without a connection.
//!
//! A redirect is followed if the plan says so, at most so many times for a request, and only to hosts of the targets unless all are
//! allowed: what a server answers shall not send a load to somebody who was not named. 303 asks with GET, 301 and 302 make a POST a GET as
//! browsers do, 307 and 308 ask again as before. What is for the origin alone (Authorization, Cookie, a Host of one's own) does not go to
//! another.

use flowlane_http::h1::Response;

use super::plan::{Body, Follow, Pool, Request};
use super::url::Url;
use crate::report::ErrorKind;

/// Longest `Location`, bytes: connections keep one while they follow it.
const LONGEST: usize = 8 << 10;

/// Whether an answer with this status is a redirect that names where to ask (RFC 9110 §15.4). 300 offers a choice, 304 is none.
pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Where an answer of HTTP/1 leads, if it is such a redirect.
#[cold]
pub(super) fn location(head: &Response<'_>) -> Option<Box<[u8]>> {
    if is_redirect(head.status) { head.fields.get("location").map(Box::from) } else { None }
}

/// A request on its way from one URL to the next.
#[derive(Debug, Clone)]
pub(super) struct Course {
    pub(super) url: Url,
    pub(super) request: Request,
    hops: u32,
}

/// Why a redirect is not followed.
pub(super) type Stopped = (ErrorKind, String);

impl Course {
    /// The beginning: a request to a target.
    pub(super) fn begins(mut url: Url, request: Request) -> Self {
        if let Some(path) = &request.path {
            url.path.clone_from(path);
        }
        Self { url, request, hops: 0 }
    }

    /// Goes where an answer with this status leads.
    pub(super) fn goes(&mut self, pool: &Pool, status: u16, location: &[u8]) -> Result<(), Stopped> {
        let Follow { most, anywhere } = pool.follow.unwrap_or_default();
        // Guard: `self.hops >= most` as `false` fails http::hop
        if self.hops >= most {
            let why = format!("more than {most} redirects, the last of them to {}", shown(location));
            return Err((ErrorKind::RedirectLimit, why));
        }
        let url = self.target(location).map_err(|why| (ErrorKind::Malformed, why))?;
        let asked_for =
            |url: &Url| pool.targets.iter().any(|t| t.url.name().eq_ignore_ascii_case(url.name()));
        // Guard: `!anywhere && !asked_for(&url)` as `false` fails http::hop
        if !anywhere && !asked_for(&url) {
            let why = format!("{} is no host of the targets: --follow-anywhere goes there, too", url.name());
            return Err((ErrorKind::RedirectAway, why));
        }
        self.hops += 1;
        // Guard: no `self.change(status, !self.url.is_of_one_origin_with(&url));` fails http::hop
        self.change(status, !self.url.is_of_one_origin_with(&url));
        self.url = url;
        Ok(())
    }

    /// The URL that a `Location` names, seen from here.
    fn target(&self, location: &[u8]) -> Result<Url, String> {
        // Guard: `location.len() > LONGEST` as `false` fails http::hop
        if location.len() > LONGEST {
            return Err(format!("a Location of {} bytes, {LONGEST} at most", location.len()));
        }
        let mut text = String::with_capacity(location.len());
        for byte in location {
            match byte {
                // As browsers do with what no URL has.
                0..=b' ' | 0x7f.. => text.push_str(&format!("%{byte:02X}")),
                byte => text.push(char::from(*byte)),
            }
        }
        self.url.join(&text).map_err(|e| format!("a Location that leads nowhere: {e}"))
    }

    /// What changes in the request.
    fn change(&mut self, status: u16, other_origin: bool) {
        let request = &mut self.request;
        request.path = None;
        let becomes_get = match status {
            303 => !matches!(request.method.as_str(), "GET" | "HEAD"),
            301 | 302 => request.method == "POST",
            _ => false,
        };
        if becomes_get {
            request.method = "GET".into();
            request.body = Body::None;
            request.headers.retain(|(name, _)| !is_of_content(name));
        }
        // Guard: `other_origin` as `false` fails http::hop
        if other_origin {
            request.headers.retain(|(name, _)| !is_of_the_origin(name));
        }
    }
}

/// Fields that say something of a body (RFC 9110 §15.4, step 5).
fn is_of_content(name: &str) -> bool {
    let all = ["digest", "last-modified", "expect", "content-digest", "trailer"];
    name.get(..8).is_some_and(|begin| begin.eq_ignore_ascii_case("content-"))
        || all.iter().any(|of| name.eq_ignore_ascii_case(of))
}

/// Fields that are meant for one origin (RFC 9110 §15.4, steps 2 and 3).
fn is_of_the_origin(name: &str) -> bool {
    let all = ["authorization", "cookie", "host", "origin", "referer", "proxy-authorization"];
    all.iter().any(|of| name.eq_ignore_ascii_case(of))
}

/// The beginning of a `Location` for people; reports make it legible.
fn shown(location: &[u8]) -> String {
    String::from_utf8_lossy(&location[..location.len().min(100)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::plan::Target;

    fn pool(url: &str, follow: Follow, request: Request) -> Pool {
        let target = Target {
            url: url.parse().unwrap(),
            addresses: vec!["10.0.0.1:80".parse().unwrap()],
            weight: 1.0,
        };
        Pool { follow: Some(follow), requests: vec![request], ..Pool::new("p", target) }
    }

    fn begins(pool: &Pool) -> Course {
        Course::begins(pool.targets[0].url.clone(), pool.requests[0].clone())
    }

    fn anywhere() -> Follow {
        Follow { anywhere: true, ..Follow::default() }
    }

    #[test]
    fn methods_and_bodies_are_as_the_status_says() {
        for (status, method, then, body) in [
            (301, "GET", "GET", true),
            (301, "POST", "GET", false),
            (302, "POST", "GET", false),
            (302, "PUT", "PUT", true),
            (303, "POST", "GET", false),
            (303, "PUT", "GET", false),
            (303, "HEAD", "HEAD", true),
            (307, "POST", "POST", true),
            (308, "PUT", "PUT", true),
            (308, "HEAD", "HEAD", true),
        ] {
            let headers =
                [("Content-Type", "t"), ("content-length", "1"), ("Expect", "100-continue"), ("X-A", "b")];
            let request = Request {
                method: method.into(),
                path: Some("/from?q".into()),
                body: Body::Bytes(b"x"[..].into()),
                headers: headers.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec(),
                ..Request::default()
            };
            let pool = pool("http://a.example/", Follow::default(), request);
            let mut course = begins(&pool);
            assert_eq!(course.url.to_string(), "http://a.example/from?q");
            course.goes(&pool, status, b"/to").unwrap();
            let Course { url, request, .. } = course;
            assert_eq!((url.to_string().as_str(), &request.path), ("http://a.example/to", &None));
            let kept = if body { 4 } else { 1 };
            assert_eq!(
                (request.method.as_str(), !request.body.is_empty(), request.headers.len()),
                (then, body, kept),
                "{status} {method}"
            );
        }
    }

    #[test]
    fn what_is_for_one_origin_stays_there() {
        let names = ["Authorization", "Cookie", "HOST", "Origin", "Referer", "Proxy-Authorization", "X-A"];
        let headers = names.map(|n| (n.to_owned(), "v".to_owned())).to_vec();
        for (to, kept) in [
            ("/x", 7),
            ("http://A.example/x", 7),
            ("http://a.example:80/x", 7),
            ("https://a.example/x", 1),
            ("http://a.example:81/x", 1),
            ("//b.example/x", 1),
        ] {
            let request = Request { headers: headers.clone(), ..Request::default() };
            let pool = pool("http://a.example/", anywhere(), request);
            let mut course = begins(&pool);
            course.goes(&pool, 307, to.as_bytes()).unwrap();
            assert_eq!(course.request.headers.len(), kept, "{to}");
            // Nothing comes back with the way back.
            course.goes(&pool, 307, b"http://a.example/").unwrap();
            assert_eq!(course.request.headers.len(), kept, "{to}");
        }
    }

    #[test]
    fn a_load_goes_where_it_was_sent() {
        let pool = pool("http://a.example/", Follow::default(), Request::default());
        let to = |location: &[u8]| begins(&pool).goes(&pool, 302, location);
        for fine in ["/", "https://a.example/", "http://A.EXAMPLE:8080/", "?x", "//a.example/", ""] {
            assert_eq!(to(fine.as_bytes()), Ok(()), "{fine}");
        }
        for away in
            ["http://b.example/", "//127.0.0.1/", "http://a.example.b.example/", "https://xa.example/"]
        {
            let (kind, why) = to(away.as_bytes()).unwrap_err();
            assert!(kind == ErrorKind::RedirectAway && why.contains("--follow-anywhere"), "{away}: {why}");
        }
        for bad in
            ["ftp://a.example/", "http://", "http://u:p@a.example/", "javascript:x", "http://a.example:0/"]
        {
            assert_eq!(to(bad.as_bytes()).unwrap_err().0, ErrorKind::Malformed, "{bad}");
        }
        assert_eq!(to(&[b'a'; LONGEST]), Ok(()));
        assert_eq!(to(&[b'a'; LONGEST + 1]).unwrap_err().0, ErrorKind::Malformed);
    }

    #[test]
    fn a_loop_ends_at_the_limit() {
        let pool = pool("http://a.example/", Follow { most: 3, ..Follow::default() }, Request::default());
        let mut course = begins(&pool);
        for _ in 0..3 {
            course.goes(&pool, 308, b"/").unwrap();
        }
        let (kind, why) = course.goes(&pool, 308, b"/again").unwrap_err();
        assert_eq!(kind, ErrorKind::RedirectLimit);
        assert!(why.contains("more than 3 redirects") && why.contains("/again"), "{why}");
    }

    #[test]
    fn what_no_url_has_is_written_as_browsers_write_it() {
        let pool = pool("http://a.example/d/e?f", Follow::default(), Request::default());
        let mut course = begins(&pool);
        course.goes(&pool, 302, b"x y\xc3\xa4\t").unwrap();
        assert_eq!(course.url.to_string(), "http://a.example/d/x%20y%C3%A4%09");
    }
}
