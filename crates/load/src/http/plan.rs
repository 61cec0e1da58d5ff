//! What an HTTP run is to do: pools of clients, their targets, requests and pace, and the phases of the run.
//!
//! The command line makes a plan with one pool, a scenario file one with any number. A plan is checked as a whole before
//! anything is opened, see [`Plan::check`]; what is left to go wrong afterwards is counted by kind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flowlane_http::tls::Trust;

use super::check::Checks;
use super::choice::Think;
use super::url::Url;
use crate::clients::ClientRange;

/// A run: who does what, and when.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Groups of clients.
    pub pools: Vec<Pool>,
    /// The parts of the run, one after the other.
    pub phases: Vec<Phase>,
    /// How long a connection may make no progress, handshake included, before it counts as timed out.
    pub timeout: Duration,
    /// How long a request may take in all, from when it is sent to the end of its answer; without limit as long as there
    /// is progress.
    pub request_timeout: Option<Duration>,
    /// How long answers still on their way are waited for at the end.
    pub waiting: Duration,
    /// Longest body of a response, bytes; what is longer is given up.
    pub max_body: u64,
    /// For what is random.
    pub seed: u64,
}

/// A part of a run, during which the load goes evenly from one share of its nominal size to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Its name, for people.
    pub name: String,
    /// How long it lasts.
    pub duration: Duration,
    /// Share of the nominal rate (open loop) or connections (closed loop) at its begin; 1 is all of it.
    pub from: f64,
    /// The same at its end.
    pub to: f64,
    /// Whether its requests are in the figures.
    pub measured: bool,
}

impl Phase {
    /// The nominal load for a while, measured.
    #[must_use]
    pub fn hold(duration: Duration) -> Self {
        Self { name: "hold".into(), duration, from: 1.0, to: 1.0, measured: true }
    }
}

/// How requests follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Open loop: at moments fixed beforehand, whatever happens.
    Rate {
        /// Requests a second, all lanes together.
        per_second: f64,
        /// At independent moments instead of evenly.
        poisson: bool,
    },
    /// Closed loop: the next when the last was answered and thought about.
    Closed,
}

/// What clients are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// They ask and read the answers.
    #[default]
    Normal,
    /// They connect and then say nothing until the run ends.
    HalfOpen,
    /// They begin a connection and give it up before it stands.
    SynOnly,
}

/// How requests travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1 with at most so many requests on their way on a connection.
    Http1 {
        /// 1 is no pipelining.
        pipeline: u16,
    },
    /// HTTP/2 with at most so many streams at once on a connection.
    Http2 {
        /// Streams.
        streams: u16,
    },
}

/// Which bucket of the target connections are to hit.
#[derive(Debug, Clone)]
pub struct HttpAim {
    /// How the target is steered.
    pub rss: Arc<flowlane::Rss>,
    /// How we are steered ourselves; kernel sockets take answers on any port.
    pub home: Option<Arc<flowlane::Rss>>,
    /// The law.
    pub law: AimLaw,
}

/// How connections spread over the target's buckets.
#[derive(Debug, Clone, PartialEq)]
pub enum AimLaw {
    /// One after the other.
    Even,
    /// Bucket k (from 1) with a weight of 1 / k to this power.
    Zipf(f64),
    /// All onto this one.
    One(u16),
    /// All onto one, the next after each period.
    Moving(Duration),
}

/// A group of like clients.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Where requests go.
    pub targets: Vec<Target>,
    /// What is asked.
    pub requests: Vec<Request>,
    /// When.
    pub pace: Pace,
    /// Connections at once, all lanes together.
    pub connections: usize,
    /// New connections begun in 10 ms, all lanes together; one that replaces another is not counted.
    pub burst: usize,
    /// Time between an answer and the next request of a connection, in a closed loop.
    pub think: Think,
    /// Requests after which a connection is closed and another opened.
    pub requests_per_connection: Option<u64>,
    /// Requests in all.
    pub total_requests: Option<u64>,
    /// Connections in all.
    pub total_connections: Option<u64>,
    /// Bytes a second that each client reads.
    pub read_rate: Option<u64>,
    /// Bytes a second that each client writes.
    pub write_rate: Option<u64>,
    /// How requests travel.
    pub version: Version,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// Whose addresses connections come from; empty for the host's own.
    pub clients: Vec<ClientRange>,
    /// What clients are like.
    pub behaviour: Behaviour,
    /// Buckets of the target to hit.
    pub aim: Option<HttpAim>,
}

impl Pool {
    /// One connection to one target, closed loop.
    #[must_use]
    pub fn new(name: &str, target: Target) -> Self {
        Self {
            name: name.to_owned(),
            targets: vec![target],
            requests: vec![Request::default()],
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
            clients: Vec::new(),
            behaviour: Behaviour::Normal,
            aim: None,
        }
    }
}

/// Where requests go.
#[derive(Debug, Clone)]
pub struct Target {
    /// As it was named.
    pub url: Url,
    /// What the name stands for; connections take these in turn.
    pub addresses: Vec<SocketAddr>,
    /// How often it is chosen, next to the others.
    pub weight: f64,
}

/// What a request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    None,
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// So many bytes of a pattern, made while they are sent.
    Generated(u64),
}

impl Body {
    /// Its length, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Generated(length) => *length,
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// What reports call it; method and path if it has no name.
    pub name: Option<String>,
    /// GET, HEAD, POST, PUT, ...
    pub method: String,
    /// Path and query; the target's own if none is given.
    pub path: Option<String>,
    /// Headers besides Host, Content-Length and Connection; a Host given here replaces ours.
    pub headers: Vec<(String, String)>,
    /// What it carries.
    pub body: Body,
    /// What the answer must be.
    pub checks: Checks,
    /// How often it is chosen, next to the others.
    pub weight: f64,
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
        }
    }
}

impl Request {
    /// What reports call it.
    #[must_use]
    pub fn title(&self) -> String {
        let made = || format!("{} {}", self.method, self.path.as_deref().unwrap_or("(the target's path)"));
        self.name.clone().unwrap_or_else(made)
    }

    /// Says what would make it no request.
    ///
    /// # Errors
    /// One line that says what.
    pub fn check(&self) -> Result<(), BadPlan> {
        let request = self;
        let token = |s: &str| {
            !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
        };
        if !token(&request.method) {
            return Err(BadPlan(format!("'{}' is no method: GET, HEAD, POST, PUT, ...", request.method)));
        }
        if let Some(path) = &request.path
            && (!path.starts_with('/') || path.bytes().any(|b| b <= b' ' || b == 0x7f))
        {
            return Err(BadPlan(format!("'{path}' is no path: it begins with / and has no spaces")));
        }
        for (name, value) in &request.headers {
            if !token(name) || value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
                return Err(BadPlan(format!("'{name}: {value}' is no header")));
            }
        }
        Ok(())
    }
}

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPlan(pub String);

impl Plan {
    /// How long all phases last.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(|p| p.duration).sum()
    }

    /// Says what is wrong with it.
    ///
    /// # Errors
    /// One line that says what and how to mend it.
    pub fn check(&self) -> Result<(), BadPlan> {
        let bad = |what: String| Err(BadPlan(what));
        if self.pools.is_empty() {
            return bad("there is no pool of clients".into());
        }
        if self.duration().is_zero() {
            return bad("the run lasts no time: give a duration".into());
        }
        if self.timeout.is_zero() {
            return bad("a timeout of nothing lets nobody answer".into());
        }
        if self.request_timeout.is_some_and(|t| t.is_zero()) {
            return bad("a request timeout of nothing lets nobody answer".into());
        }
        for phase in &self.phases {
            if !(0.0..=1000.0).contains(&phase.from) || !(0.0..=1000.0).contains(&phase.to) {
                return bad(format!("phase '{}': shares of the load are from 0 to 1000", phase.name));
            }
        }
        self.pools.iter().try_for_each(Pool::check)
    }
}

impl Pool {
    /// Whether all its connections stand before the first request; not when each request has its own.
    pub(super) fn connects_first(&self) -> bool {
        let http1 = matches!(self.version, Version::Http1 { .. });
        self.behaviour == Behaviour::Normal && self.requests_per_connection != Some(1) && http1
    }

    fn check(&self) -> Result<(), BadPlan> {
        let bad = |what: &str| Err(BadPlan(format!("pool '{}': {what}", self.name)));
        let weights = |w: &mut dyn Iterator<Item = f64>| {
            let (mut sum, mut fine) = (0.0, true);
            w.for_each(|w| {
                fine &= w.is_finite() && w >= 0.0;
                sum += w;
            });
            fine && sum > 0.0
        };
        if self.targets.is_empty() || self.targets.iter().any(|t| t.addresses.is_empty()) {
            return bad("it has no target, or one without an address");
        }
        if self.requests.is_empty() {
            return bad("it asks for nothing");
        }
        if !weights(&mut self.targets.iter().map(|t| t.weight))
            || !weights(&mut self.requests.iter().map(|r| r.weight))
        {
            return bad("weights are numbers from 0 on, not all of them 0");
        }
        if self.connections == 0 || self.connections > 16_000_000 {
            return bad("connections are from 1 to 16M");
        }
        if self.burst == 0 {
            return bad("a burst of 0 opens no connection: at least 1");
        }
        if let Pace::Rate { per_second, .. } = self.pace
            && !(per_second.is_finite() && per_second > 0.0 && per_second <= 1e9)
        {
            return bad("a rate is more than 0 and at most 1G a second");
        }
        if self.requests_per_connection == Some(0) || self.total_requests == Some(0) {
            return bad("at least one request must be allowed");
        }
        if self.read_rate == Some(0) || self.write_rate == Some(0) {
            return bad("who reads or writes 0 bytes a second never ends: at least 1");
        }
        match self.version {
            Version::Http1 { pipeline: 0 } | Version::Http2 { streams: 0 } => {
                return bad("at least one request must be allowed on a connection at once");
            }
            Version::Http1 { pipeline }
                if pipeline > 1 && self.requests.iter().any(|r| !r.body.is_empty()) =>
            {
                return bad("pipelining is for requests without a body");
            }
            Version::Http2 { .. } if self.read_rate.is_some() || self.write_rate.is_some() => {
                return bad("slow readers and writers speak HTTP/1.1");
            }
            Version::Http2 { .. } if self.behaviour != Behaviour::Normal => {
                return bad("clients that do not ask do not speak HTTP/2");
            }
            Version::Http2 { .. } if self.requests_per_connection.is_some() => {
                return bad("with HTTP/2 connections are kept");
            }
            _ => {}
        }
        if let Some(family) = self.clients.first().map(ClientRange::is_ipv4) {
            let other = |a: &SocketAddr| a.is_ipv4() != family;
            if self.clients.iter().all(|c| c.is_ipv4() == family)
                && self.targets.iter().any(|t| t.addresses.iter().all(other))
            {
                return bad("no client address is of the same family as a target");
            }
        }
        Ok(())
    }
}
