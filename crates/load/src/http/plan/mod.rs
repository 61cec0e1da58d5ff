//! The plan of an HTTP run: pools of clients with their targets, requests and pace, and the phases of the run.
//!
//! The command line makes a plan with one pool, a scenario file one with any number. A plan is checked as a whole before a link is opened,
//! see [`Plan::check`] in `validity`; errors after that are counted by kind.

mod method;
mod validity;

pub(super) use method::method_of;
pub use validity::BadPlan;

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flowlane_http::tls::{ClientIdentity, Trust, Versions};

use super::check::Checks;
use super::choice::Think;
use super::credentials::Aws;
use super::events::EventStream;
use super::replay::{Parts, Recording};
use super::url::Url;
use super::via::Via;
use crate::fill::{Capture, Data};
use crate::run::clients::ClientRange;
use crate::run::timeline::Phase;

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Groups of clients.
    pub pools: Vec<Pool>,
    /// The parts of the run, one after the other.
    pub phases: Vec<Phase>,
    /// Time without progress, handshake included, after which a connection has timed out.
    pub timeout: Duration,
    /// Limit for a whole request, from sending it to the end of its answer. `None`: no limit while there is progress.
    pub request_timeout: Option<Duration>,
    /// Time to wait at the end for outstanding answers.
    pub waiting: Duration,
    /// Largest body of a response, bytes; a longer response is an error.
    pub max_body: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Open loop: at times fixed in advance, independent of answers.
    Rate {
        /// Requests per second over all lanes.
        per_second: f64,
        /// Poisson arrivals in place of evenly spaced ones.
        poisson: bool,
    },
    /// Closed loop: the next request after the answer and the think time.
    Closed,
}

/// How redirects are followed (RFC 9110 §15.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Follow {
    /// Most redirects of one request.
    pub most: u32,
    /// To any host; otherwise only to hosts of the targets.
    pub anywhere: bool,
}

impl Default for Follow {
    fn default() -> Self {
        Self { most: Self::MOST, anywhere: false }
    }
}

impl Follow {
    /// Most redirects of one request if nobody says how many.
    pub const MOST: u32 = 10;
}

/// Behaviour of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// They send requests and read the answers.
    #[default]
    Normal,
    /// They connect, and send nothing until the run ends.
    HalfOpen,
    /// They begin a connection and abort it after a millisecond.
    SynOnly,
}

/// Version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1.
    Http1 {
        /// Most requests in flight on a connection; 1 is no pipelining.
        pipeline: u16,
    },
    /// HTTP/2.
    Http2 {
        /// Most concurrent streams on a connection.
        streams: u16,
    },
    /// HTTP/3, over QUIC.
    Http3 {
        /// Most concurrent streams on a connection.
        streams: u16,
    },
}

/// Buckets of the target that connections hit.
#[derive(Debug, Clone)]
pub struct HttpAim {
    /// The target's steering.
    pub rss: Arc<flowlane::Rss>,
    /// Our steering; `None` for kernel sockets, which receive answers on any port.
    pub home: Option<Arc<flowlane::Rss>>,
    /// The distribution.
    pub law: AimLaw,
}

/// Distribution of connections over the target's buckets.
#[derive(Debug, Clone, PartialEq)]
pub enum AimLaw {
    /// All buckets in turn.
    Even,
    /// Zipf: bucket k (from 1) has the weight 1 / k to this power.
    Zipf(f64),
    /// All to this bucket.
    One(u16),
    /// All to one bucket, and to the next after each period.
    Moving(Duration),
}

/// A group of clients of the same kind.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The targets.
    pub targets: Vec<Target>,
    /// The requests: each time one of them by its weight, or with `steps` all of them, one after the other.
    pub requests: Vec<Request>,
    /// Whether the requests are the steps of a flow, which a client takes in this order; the pace is then that of flows.
    pub steps: bool,
    /// Whether clients keep cookies: with steps for a flow, otherwise for the run.
    pub cookies: bool,
    /// Rows that fill in the requests.
    pub data: Option<Arc<Data>>,
    /// What is replayed, if that is a recording: its requests at their times. `requests` then has one for each of its methods, in their order,
    /// for what is checked of answers and for the figures; the pace is its mean rate.
    pub replay: Option<Arc<Recording>>,
    /// When requests are sent.
    pub pace: Pace,
    /// Concurrent connections over all lanes.
    pub connections: usize,
    /// Most connections to open per 10 ms over all lanes; one that replaces another is not counted.
    pub burst: usize,
    /// Time between an answer and the next request of a connection, in a closed loop.
    pub think: Think,
    /// Requests after which a connection is closed and another opened.
    pub requests_per_connection: Option<u64>,
    /// Total number of requests.
    pub total_requests: Option<u64>,
    /// Total number of connections.
    pub total_connections: Option<u64>,
    /// Slow clients: bytes per second that each connection reads.
    pub read_rate: Option<u64>,
    /// Slow clients: bytes per second that each connection writes.
    pub write_rate: Option<u64>,
    /// Version of HTTP.
    pub version: Version,
    /// Trusted certificates.
    pub trust: Trust,
    /// The clients' own certificate, for servers that ask for one.
    pub identity: Option<ClientIdentity>,
    /// Versions of TLS to offer.
    pub tls: Versions,
    /// Sessions of TLS are taken up again; without it every handshake is a full one, as a new client's.
    pub resume: bool,
    /// Over HTTP/3, requests that may be repeated go before the handshake is complete (0-RTT) where a session allows it.
    pub early_data: bool,
    /// How connections get to the targets.
    pub via: Via,
    /// Client addresses; empty for the host's own.
    pub clients: Vec<ClientRange>,
    /// Redirects are followed; without it they are answers as others are.
    pub follow: Option<Follow>,
    /// Requests are signed for AWS.
    pub aws: Option<Aws>,
    /// Behaviour of clients.
    pub behaviour: Behaviour,
    /// Buckets of the target to hit.
    pub aim: Option<HttpAim>,
    /// TCP Fast Open (RFC 7413): each request goes with the SYN of its connection, where the target's cookie is known. For requests that
    /// may be repeated, each on a connection of its own.
    pub fast_open: bool,
}

impl Pool {
    /// One connection to one target, closed loop.
    #[must_use]
    pub fn new(name: &str, target: Target) -> Self {
        Self {
            name: name.to_owned(),
            targets: vec![target],
            requests: vec![Request::default()],
            steps: false,
            cookies: false,
            data: None,
            replay: None,
            pace: Pace::Closed,
            connections: 1,
            burst: 1000,
            think: Think::None,
            requests_per_connection: None,
            total_requests: None,
            total_connections: None,
            read_rate: None,
            write_rate: None,
            version: Version::Http1 { pipeline: 1 },
            trust: Trust::Native,
            identity: None,
            tls: Versions::default(),
            resume: false,
            early_data: false,
            via: Via::default(),
            clients: Vec::new(),
            follow: None,
            aws: None,
            behaviour: Behaviour::Normal,
            aim: None,
            fast_open: false,
        }
    }
}

/// A target.
#[derive(Debug, Clone)]
pub struct Target {
    /// The URL as given.
    pub url: Url,
    /// The resolved addresses; connections use them in turn.
    pub addresses: Vec<SocketAddr>,
    /// Relative frequency with which it is chosen.
    pub weight: f64,
}

/// Body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// No body.
    None,
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// This text, in which placeholders are filled in.
    Text(Arc<str>),
    /// This many bytes of a pattern, generated while they are sent.
    Generated(u64),
}

fn too_large() -> io::Error {
    io::Error::other("larger than 1 GiB, the most that a body may be read from a file")
}

impl Body {
    /// Most bytes that a file may have: it is kept in memory.
    pub const LARGEST_FILE: u64 = 1 << 30;

    /// The content of a regular file or of a pipe.
    ///
    /// # Errors
    /// It cannot be read, is something else (a device such as `/dev/zero` has no end), or is larger than [`Body::LARGEST_FILE`].
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?;
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !kind.is_file() && !kind.file_type().is_fifo() {
            return Err(io::Error::other("neither a file nor a pipe: a device may have no end"));
        }
        if kind.len() > Self::LARGEST_FILE {
            return Err(too_large());
        }
        let file = File::open(path)?;
        flowlane::written::note_read(&file).keep();
        Self::of_input(file)
    }

    /// What is read to its end.
    ///
    /// # Errors
    /// It cannot be read, or is larger than [`Body::LARGEST_FILE`].
    pub fn of_input(input: impl Read) -> io::Result<Self> {
        let mut content = Vec::new();
        input.take(Self::LARGEST_FILE + 1).read_to_end(&mut content)?;
        if content.len() as u64 > Self::LARGEST_FILE {
            return Err(too_large());
        }
        Ok(Self::Bytes(content.into()))
    }

    /// Its length, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Text(text) => text.len() as u64,
            Self::Generated(length) => *length,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A request. Path, values of headers and a body of text may have placeholders ([`crate::fill::Template`]).
#[derive(Debug, Clone)]
pub struct Request {
    /// Name in reports; method and path if `None`.
    pub name: Option<String>,
    /// GET, HEAD, POST, PUT, ...
    pub method: String,
    /// Path and query; `None` for those of the target's URL.
    pub path: Option<String>,
    /// Headers besides Host, Content-Length and Connection; a Host given here replaces ours.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
    /// Conditions that the answer must meet.
    pub checks: Checks,
    /// Relative frequency with which it is chosen.
    pub weight: f64,
    /// What a step takes from its answer for the steps after it.
    pub captures: Vec<Capture>,
    /// Time between the answer of a step and the next step.
    pub pause: Think,
    /// The answer is a stream of events, whose times are measured.
    pub events: Option<EventStream>,
    /// It is a call of gRPC ([`super::grpc::Call`]); with `events` the times of its messages are measured.
    pub grpc: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            name: None,
            method: "GET".into(),
            path: None,
            headers: Vec::new(),
            body: Body::None,
            checks: Checks::default(),
            weight: 1.0,
            captures: Vec::new(),
            pause: Think::None,
            events: None,
            grpc: false,
        }
    }
}

impl Request {
    /// Whether nothing but the status and the length of its answer is looked at.
    pub(super) fn is_plain(&self) -> bool {
        !self.checks.content() && self.captures.is_empty() && self.events.is_none() && !self.grpc
    }

    /// Its texts that may have placeholders.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let body = match &self.body {
            Body::Text(text) => Some(&**text),
            _ => None,
        };
        self.path
            .as_deref()
            .into_iter()
            .chain(self.headers.iter().map(|(_, value)| value.as_str()))
            .chain(body)
    }

    /// Whether something is looked for in its answer beside what is checked.
    pub(super) fn is_watched(&self) -> bool {
        !self.captures.is_empty() || self.events.is_some() || self.grpc
    }

    /// A recorded request; what is checked of its answer is as in this one.
    pub(super) fn recorded(&self, parts: Parts) -> Self {
        Self {
            method: parts.method,
            path: Some(parts.path),
            headers: parts.headers,
            body: parts.body.map_or(Body::None, Body::Bytes),
            ..self.clone()
        }
    }

    /// The path of a request to a target.
    pub(super) fn path_at<'a>(&'a self, url: &'a Url) -> &'a str {
        self.path.as_deref().unwrap_or(&url.path)
    }

    /// Name in reports.
    #[must_use]
    pub fn title(&self) -> String {
        let made = || format!("{} {}", self.method, self.path.as_deref().unwrap_or("(the target's path)"));
        self.name.clone().unwrap_or_else(made)
    }
}

impl Plan {
    /// Length of all phases together.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(|p| p.duration).sum()
    }
}

impl Pool {
    /// Whether all connections are opened before the first request; not if each request has its own.
    pub(super) fn connects_first(&self) -> bool {
        let http1 = matches!(self.version, Version::Http1 { .. });
        self.behaviour == Behaviour::Normal && self.requests_per_connection != Some(1) && http1
    }
}
