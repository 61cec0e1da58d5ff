//! What was recorded, as it is kept during a run: when each request is due, and each different request once.
//!
//! **Memory**: 12 bytes for each request, and for each different one 24 bytes, its text (path and header fields) and its body. While a file
//! is read it is 16 bytes for each, and 8 more for each different one. A recording has 64M requests at most, and 1 GiB of texts and bodies.
//!
//! A request is written when it is sent, into memory that its connection keeps: the line, `Host`, the recorded fields, `Content-Length`.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;

use super::reason::{Reason, Skipped};
use super::{Format, Wishes};
use crate::http::plan;
use crate::http::proxy::Proxy;
use crate::http::url::Url;

/// Most requests, and most bytes of texts and bodies.
const MOST_REQUESTS: usize = 64 << 20;
const MOST_BYTES: u64 = 1 << 30;
/// Largest body.
pub(super) const LARGEST_BODY: usize = 64 << 20;
/// Most methods that are told from one another.
const MOST_METHODS: usize = 32;
/// A longer replay is a mistake in its dates.
const LONGEST: u64 = 366 * 86_400 * SECOND;
/// Bodies up to this length, bytes, directly follow their head in memory, so that one write sends both.
pub(crate) const MOST_TOGETHER: usize = 64 << 10;
const SECOND: u64 = 1_000_000_000;

/// Fields that are about a connection, or that are made anew.
const NOT_KEPT: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "priority",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The body of a request that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body<'a> {
    Bytes(&'a [u8]),
    /// The recording has none, whether there was one or not.
    Unknown,
}

/// A request that was found.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) method: &'a str,
    /// A path, or a URL.
    pub(super) target: &'a str,
    /// The host, unless the target has it.
    pub(super) host: Option<&'a [u8]>,
    pub(super) fields: &'a [(&'a str, &'a [u8])],
    pub(super) body: Body<'a>,
}

/// A request, once for all times that it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    /// Where its text begins; it has the path, and then the fields.
    text: u64,
    path: u32,
    fields: u32,
    /// The number of its body, from 1 on; 0 without one.
    body: u32,
    method: u16,
    has_agent: bool,
}

/// Requests and their times.
#[derive(Debug)]
pub struct Recording {
    due: Arc<[u64]>,
    which: Box<[u32]>,
    asked: Box<[Asked]>,
    text: Box<[u8]>,
    bodies: Box<[Arc<[u8]>]>,
    methods: Vec<String>,
    has_host: bool,
    format: Format,
    speed: f64,
    skipped: Skipped,
    without_body: u64,
    spread: u64,
}

/// What a request to one target has besides what was recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    /// What comes before the path: for a proxy scheme and host, and the path of the target.
    before: Vec<u8>,
    /// Fields.
    host: Vec<u8>,
    proxy: Vec<u8>,
}

impl Lines {
    /// For a target; `proxy`: to which requests go, if that is named in them.
    pub(crate) fn new(url: &Url, proxy: Option<&Proxy>) -> Self {
        let authority = url.authority();
        let base = url.path.trim_end_matches('/');
        let before = if proxy.is_some() { format!("http://{authority}{base}") } else { base.to_owned() };
        let login = proxy.and_then(Proxy::authorization);
        Self {
            before: before.into_bytes(),
            host: format!("Host: {authority}\r\n").into_bytes(),
            proxy: login.map_or(Vec::new(), |login| format!("Proxy-Authorization: {login}\r\n").into_bytes()),
        }
    }
}

impl Recording {
    /// Number of requests.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.due.len()
    }

    /// Number of different requests.
    #[must_use]
    pub fn different(&self) -> usize {
        self.asked.len()
    }

    /// When each is due from the start of the replay, nanoseconds.
    #[must_use]
    pub fn due(&self) -> &Arc<[u64]> {
        &self.due
    }

    /// How long the replay takes, to its last request.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.due.last().copied().unwrap_or(0))
    }

    /// Its methods, by their numbers.
    #[must_use]
    pub fn methods(&self) -> &[String] {
        &self.methods
    }

    /// What was left out.
    #[must_use]
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The recording in words.
    #[must_use]
    pub fn words(&self) -> String {
        let count = |n: u64| crate::units::show_count(n);
        let mut words = format!(
            "{} requests, {} different",
            count(self.requests() as u64),
            count(self.different() as u64)
        );
        if self.speed != 1.0 {
            words = format!("{words}, at {} times the speed", self.speed);
        }
        if self.spread > 0 {
            words = format!("{words}, times of whole seconds spread over them");
        }
        if self.without_body > 0 {
            words =
                format!("{words}; {} sent without the body that they may have had", count(self.without_body));
        }
        match self.skipped.is_empty() {
            true => words,
            false => format!("{words}; not replayed: {}", self.skipped),
        }
    }

    /// The format that it was in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    fn asked(&self, number: usize) -> &Asked {
        &self.asked[self.which[number] as usize]
    }

    /// The number of a request's method.
    pub(crate) fn method(&self, number: usize) -> u16 {
        self.asked(number).method
    }

    fn texts(&self, asked: &Asked) -> (&[u8], &[u8]) {
        let begin = asked.text as usize;
        let path = begin + asked.path as usize;
        (&self.text[begin..path], &self.text[path..path + asked.fields as usize])
    }

    fn body(&self, asked: &Asked) -> Option<&Arc<[u8]>> {
        self.bodies.get((asked.body as usize).checked_sub(1)?)
    }

    /// Writes a request for HTTP/1, with its body if that is small; returns the body that is to follow.
    pub(crate) fn write(&self, number: usize, lines: &Lines, last: bool, out: &mut Vec<u8>) -> plan::Body {
        let asked = self.asked(number);
        let ((path, fields), body) = (self.texts(asked), self.body(asked));
        let method = &self.methods[usize::from(asked.method)];
        out.clear();
        for piece in [method.as_bytes(), b" ", &lines.before, path, b" HTTP/1.1\r\n"] {
            out.extend_from_slice(piece);
        }
        if !self.has_host {
            out.extend_from_slice(&lines.host);
        }
        if !asked.has_agent {
            out.extend_from_slice(b"User-Agent: flowlane\r\n");
        }
        out.extend_from_slice(fields);
        out.extend_from_slice(&lines.proxy);
        let length = body.map_or(0, |body| body.len());
        if length > 0 || matches!(method.as_str(), "POST" | "PUT" | "PATCH") {
            // Writing to memory cannot fail.
            let _ = write!(out, "Content-Length: {length}\r\n");
        }
        if last {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        match body {
            Some(body) if body.len() > MOST_TOGETHER => plan::Body::Bytes(body.clone()),
            Some(body) => {
                out.extend_from_slice(body);
                plan::Body::None
            }
            None => plan::Body::None,
        }
    }

    /// A request in the form of the plan, for HTTP/2.
    pub(crate) fn request(&self, number: usize, lines: &Lines, of: &plan::Request) -> plan::Request {
        let asked = self.asked(number);
        let (path, fields) = self.texts(asked);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = fields.split(|b| *b == b'\n').filter_map(|line| {
            let (name, value) = line.strip_suffix(b"\r")?.split_at(line.iter().position(|b| *b == b':')?);
            Some((text(name), text(value.get(2..)?)))
        });
        plan::Request {
            method: self.methods[usize::from(asked.method)].clone(),
            path: Some(text(&[&lines.before, path].concat())),
            headers: fields.collect(),
            body: self.body(asked).map_or(plan::Body::None, |body| plan::Body::Bytes(body.clone())),
            ..of.clone()
        }
    }
}

/// Takes requests as they are found.
pub(super) struct Builder {
    format: Format,
    host: Option<String>,
    /// Fields of every request, and their names.
    given: Vec<(String, String)>,
    found: Vec<(u64, u32)>,
    asked: Vec<Asked>,
    text: Vec<u8>,
    bodies: Vec<Arc<[u8]>>,
    methods: Vec<String>,
    texts: HashTable<u32>,
    known_bodies: HashTable<u32>,
    hasher: RandomState,
    body_bytes: u64,
    skipped: Skipped,
    without_body: u64,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("found", &self.found.len()).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(format: Format, wishes: &Wishes) -> Self {
        Self {
            format,
            host: wishes.host.clone(),
            given: wishes.fields.clone(),
            found: Vec::new(),
            asked: Vec::new(),
            text: Vec::new(),
            bodies: Vec::new(),
            methods: Vec::new(),
            texts: HashTable::new(),
            known_bodies: HashTable::new(),
            hasher: RandomState::new(),
            body_bytes: 0,
            skipped: Skipped::default(),
            without_body: 0,
        }
    }

    /// Whether nothing was found yet.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Counts what is not replayed.
    pub(super) fn skip(&mut self, reason: Reason) {
        self.skipped.add(reason, 1);
    }

    /// Takes a request of this time, nanoseconds since 1970 or since anything else; or says why it is not replayed.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn add(&mut self, at: u64, found: &Found<'_>) -> Result<Result<(), Reason>, String> {
        let (path, host) = match self.place(found) {
            Ok(place) => place,
            Err(reason) => return Ok(Err(reason)),
        };
        if self.host.as_deref().is_some_and(|wanted| !is_host(host, wanted)) {
            return Ok(Err(Reason::OtherHost));
        }
        let body = match found.body {
            Body::Bytes(bytes) if bytes.len() > LARGEST_BODY => return Ok(Err(Reason::LongBody)),
            Body::Bytes(bytes) => bytes,
            Body::Unknown => &[],
        };
        let Some(method) = self.method(found.method) else { return Ok(Err(Reason::Malformed)) };
        if self.found.len() >= MOST_REQUESTS {
            return Err("it has more than 64M requests: replay a part of it".into());
        }
        let body = self.body(body)?;
        let which = self.intern(method, path, found.fields, body)?;
        self.without_body +=
            u64::from(found.body == Body::Unknown && matches!(found.method, "POST" | "PUT" | "PATCH"));
        self.found.push((at, which));
        Ok(Ok(()))
    }

    /// The path and the host of a request.
    fn place<'a>(&self, found: &Found<'a>) -> Result<(&'a str, Option<&'a [u8]>), Reason> {
        if found.method == "CONNECT" {
            return Err(Reason::Connect);
        }
        let upgrade = found.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
        if upgrade.is_some_and(|(_, value)| value.to_ascii_lowercase().starts_with(b"websocket")) {
            return Err(Reason::Upgrade);
        }
        let of_field = found.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = found.host.or(of_field.map(|(_, value)| *value));
        let (mut path, mut host) = (found.target, host);
        if !path.starts_with('/') {
            let (scheme, rest) = path.split_once("://").ok_or(Reason::NoPath)?;
            if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
                return Err(if scheme.to_ascii_lowercase().starts_with("ws") {
                    Reason::Upgrade
                } else {
                    Reason::NotHttp
                });
            }
            let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            host = Some(&rest.as_bytes()[..at]);
            path = &rest[at..];
        }
        // A fragment is the browser's own.
        path = path.split('#').next().unwrap_or_default();
        if path.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(Reason::NoPath);
        }
        Ok((path, host))
    }

    fn method(&mut self, name: &str) -> Option<u16> {
        if let Some(known) = self.methods.iter().position(|method| method == name) {
            return u16::try_from(known).ok();
        }
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty()
            || name.len() > 32
            || !name.bytes().all(token)
            || self.methods.len() >= MOST_METHODS
        {
            return None;
        }
        self.methods.push(name.to_owned());
        u16::try_from(self.methods.len() - 1).ok()
    }

    /// The number of a body, from 1 on.
    fn body(&mut self, bytes: &[u8]) -> Result<u32, String> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let (hasher, bodies) = (&self.hasher, &self.bodies);
        let hash = hasher.hash_one(bytes);
        if let Some(number) = self.known_bodies.find(hash, |n| *bodies[*n as usize] == *bytes) {
            return Ok(number + 1);
        }
        self.body_bytes += bytes.len() as u64;
        self.check_room()?;
        let number = self.bodies.len() as u32;
        self.bodies.push(bytes.into());
        let bodies = &self.bodies;
        self.known_bodies.insert_unique(hash, number, |n| hasher.hash_one(&bodies[*n as usize][..]));
        Ok(number + 1)
    }

    fn check_room(&self) -> Result<(), String> {
        if self.text.len() as u64 + self.body_bytes > MOST_BYTES {
            return Err("its different requests have more than 1 GiB: replay a part of it".into());
        }
        Ok(())
    }

    /// The number of a request with this text, which is kept once.
    fn intern(
        &mut self,
        method: u16,
        path: &str,
        fields: &[(&str, &[u8])],
        body: u32,
    ) -> Result<u32, String> {
        let begin = self.text.len();
        if !path.starts_with('/') {
            self.text.push(b'/');
        }
        self.text.extend_from_slice(path.as_bytes());
        let behind_path = self.text.len();
        let has_agent = self.write_fields(fields);
        let asked = Asked {
            text: begin as u64,
            path: (behind_path - begin) as u32,
            fields: (self.text.len() - behind_path) as u32,
            body,
            method,
            has_agent,
        };
        let (hasher, text, all) = (&self.hasher, &self.text, &self.asked);
        let bytes = |a: &Asked| &text[a.text as usize..a.text as usize + a.path as usize + a.fields as usize];
        let hash_of = |a: &Asked| hasher.hash_one((a.method, a.body, a.path, bytes(a)));
        let same = |a: &Asked| {
            (a.method, a.body, a.path) == (asked.method, asked.body, asked.path) && bytes(a) == bytes(&asked)
        };
        let hash = hash_of(&asked);
        let found = self.texts.find(hash, |n| same(&all[*n as usize])).copied();
        if let Some(number) = found {
            self.text.truncate(begin);
            return Ok(number);
        }
        let number = all.len() as u32;
        self.asked.push(asked);
        let all = &self.asked;
        self.texts.insert_unique(hash, number, |n| hash_of(&all[*n as usize]));
        self.check_room()?;
        Ok(number)
    }

    /// Writes the fields that are kept, and those that are given; whether one of them is the agent's.
    fn write_fields(&mut self, fields: &[(&str, &[u8])]) -> bool {
        let mut has_agent = false;
        let named = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
        let named: Vec<&[u8]> =
            named.flat_map(|(_, value)| value.split(|b| *b == b',')).map(<[u8]>::trim_ascii).collect();
        let given = |name: &str| self.given.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        for (name, value) in fields {
            let of_connection = NOT_KEPT.iter().any(|not| name.eq_ignore_ascii_case(not))
                || named.iter().any(|not| name.as_bytes().eq_ignore_ascii_case(not));
            let good = !name.is_empty()
                && name.bytes().all(token)
                && !value.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f);
            if of_connection || !good || given(name) {
                continue;
            }
            has_agent |= name.eq_ignore_ascii_case("user-agent");
            for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
                self.text.extend_from_slice(piece);
            }
        }
        for (name, value) in &self.given {
            has_agent |= name.eq_ignore_ascii_case("user-agent");
            for piece in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                self.text.extend_from_slice(piece);
            }
        }
        has_agent
    }

    /// The recording.
    ///
    /// # Errors
    /// There is nothing to replay.
    pub(super) fn finish(mut self, wishes: &Wishes) -> Result<Recording, String> {
        (self.texts, self.known_bodies) = (HashTable::new(), HashTable::new());
        // Logs are written when answers end. What has the same time keeps its order.
        self.found.sort_by_key(|(at, _)| *at);
        let spread = if self.format == Format::Log { spread(&mut self.found) } else { 0 };
        let first = self.found.first().map_or(0, |(at, _)| *at);
        let speed = if wishes.speed > 0.0 { wishes.speed } else { 1.0 };
        let within =
            wishes.within.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let all = self.found.len();
        for (at, _) in &mut self.found {
            *at = ((*at - first) as f64 / speed) as u64;
        }
        let kept = self.found.partition_point(|(at, _)| *at < within);
        let kept = kept.min(wishes.most.map_or(all, |most| usize::try_from(most).unwrap_or(all)));
        self.skipped.add(Reason::Later, (all - kept) as u64);
        self.found.truncate(kept);
        match self.found.last() {
            None if self.skipped.is_empty() => return Err("it has no requests".into()),
            None => return Err(format!("nothing in it can be replayed: {}", self.skipped)),
            Some((last, _)) if *last > LONGEST => {
                let days = last / SECOND / 86_400;
                return Err(format!(
                    "from its first request to its last it is {days} days: a --duration has the first part of it, --speed makes it faster"
                ));
            }
            Some(_) => {}
        }
        let given = |name: &str| self.given.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        Ok(Recording {
            due: self.found.iter().map(|(at, _)| *at).collect(),
            which: self.found.iter().map(|(_, which)| *which).collect(),
            has_host: given("host"),
            asked: self.asked.into(),
            text: self.text.into(),
            bodies: self.bodies.into(),
            methods: self.methods,
            format: self.format,
            speed,
            skipped: self.skipped,
            without_body: self.without_body,
            spread,
        })
    }
}

/// Spreads the requests of one second evenly over it; returns how many were moved.
fn spread(found: &mut [(u64, u32)]) -> u64 {
    let mut moved = 0;
    for second in found.chunk_by_mut(|a, b| a.0 == b.0) {
        let all = second.len() as u64;
        for (n, (at, _)) in second.iter_mut().enumerate() {
            *at += n as u64 * SECOND / all;
        }
        moved += all - 1;
    }
    moved
}

/// Whether a `Host` is this one; without a port any port will do.
fn is_host(host: Option<&[u8]>, wanted: &str) -> bool {
    let Some(host) = host else { return false };
    let without_port = match host.iter().rposition(|b| *b == b':') {
        Some(colon) if !host.ends_with(b"]") => &host[..colon],
        _ => host,
    };
    [host, without_port].iter().any(|host| host.eq_ignore_ascii_case(wanted.as_bytes()))
}
