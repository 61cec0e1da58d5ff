//! Puts a recording together from requests as they are found: what is kept of each, what is not replayed, and when each is due.
//!
//! A recording has 64M requests at most, and 1 GiB of texts and bodies. A request that comes again is found by its hash, whose seed is the
//! process's own.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;

use super::reason::{Reason, Skipped};
use super::recording::{Asked, Recording};
use super::{Format, Wishes};

/// Most requests, and most bytes of texts and bodies.
const MOST_REQUESTS: usize = 64 << 20;
const MOST_BYTES: u64 = 1 << 30;
/// Largest body.
pub(super) const LARGEST_BODY: usize = 64 << 20;
/// Most methods that are told from one another.
const MOST_METHODS: usize = 32;
/// A longer replay is a mistake in its dates.
const LONGEST: u64 = 366 * 86_400 * SECOND;
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
        // Guard: `path.bytes().any(|b| b <= b' ' || b == 0x7f)` as `false` fails
        // replay::tests::hostile_logs_cost_nothing
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
            // Guard: `of_connection` as `false` fails replay::tests::a_har_is_replayed_with_its_fields
            // Guard: `!good` as `false` fails replay::tests::a_har_is_replayed_with_its_fields
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
            // Guard: `*last > LONGEST` as `false` fails replay::tests::a_replay_is_as_fast_and_as_long
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
