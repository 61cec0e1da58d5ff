//! What was recorded, as it is kept during a run: when each request is due, and each different request once.
//!
//! **Memory**: 12 bytes for each request, and for each different one 24 bytes, its text (path and header fields) and its body. While a file
//! is read ([`super::builder`]) it is 16 bytes for each, and 8 more for each different one.
//!
//! A request is written when it is sent, into memory that its connection keeps: the line, `Host`, the recorded fields, `Content-Length`.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::Format;
use super::reason::Skipped;
use crate::http::proxy::Proxy;
use crate::http::url::Url;

/// Bodies up to this length, bytes, directly follow their head in memory, so that one write sends both.
pub(crate) const MOST_TOGETHER: usize = 64 << 10;

/// A request, once for all times that it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// Where its text begins; it has the path, and then the fields.
    pub(super) text: u64,
    pub(super) path: u32,
    pub(super) fields: u32,
    /// The number of its body, from 1 on; 0 without one.
    pub(super) body: u32,
    pub(super) method: u16,
    pub(super) has_agent: bool,
}

/// Requests and their times.
#[derive(Debug)]
pub struct Recording {
    pub(super) due: Arc<[u64]>,
    pub(super) which: Box<[u32]>,
    pub(super) asked: Box<[Asked]>,
    pub(super) text: Box<[u8]>,
    pub(super) bodies: Box<[Arc<[u8]>]>,
    pub(super) methods: Vec<String>,
    pub(super) has_host: bool,
    pub(super) format: Format,
    pub(super) speed: f64,
    pub(super) skipped: Skipped,
    pub(super) without_body: u64,
    pub(super) spread: u64,
}

/// What a request to one target has besides what was recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    /// What comes before the path: for a proxy scheme and host, and the path of the target.
    before: Vec<u8>,
    /// The path of the target.
    base: String,
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
            base: base.to_owned(),
            before: before.into_bytes(),
            host: format!("Host: {authority}\r\n").into_bytes(),
            proxy: login.map_or(Vec::new(), |login| format!("Proxy-Authorization: {login}\r\n").into_bytes()),
        }
    }
}

/// A request in its parts.
pub(crate) struct Parts {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Arc<[u8]>>,
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

    /// Writes a request for HTTP/1, with its body if that is small; returns the body that is to follow, if one is.
    pub(crate) fn write(
        &self,
        number: usize,
        lines: &Lines,
        last: bool,
        out: &mut Vec<u8>,
    ) -> Option<Arc<[u8]>> {
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
            Some(body) if body.len() > MOST_TOGETHER => Some(body.clone()),
            Some(body) => {
                out.extend_from_slice(body);
                None
            }
            None => None,
        }
    }

    /// A request in its parts, for HTTP/2 and to be signed.
    pub(crate) fn parts(&self, number: usize, lines: &Lines) -> Parts {
        let asked = self.asked(number);
        let (path, fields) = self.texts(asked);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = fields.split(|b| *b == b'\n').filter_map(|line| {
            let (name, value) = line.strip_suffix(b"\r")?.split_at(line.iter().position(|b| *b == b':')?);
            Some((text(name), text(value.get(2..)?)))
        });
        Parts {
            method: self.methods[usize::from(asked.method)].clone(),
            path: text(&[lines.base.as_bytes(), path].concat()),
            headers: fields.collect(),
            body: self.body(asked).cloned(),
        }
    }
}
