//! The plan of an HTTP run: pools of clients with their targets, requests and pace, and the phases of the run.
//!
//! The command line makes a plan with one pool, a scenario file one with any number. A plan is checked as a whole before a link is opened,
//! see [`Plan::check`]; errors after that are counted by kind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flowlane_http::tls::Trust;

use super::check::Checks;
use super::choice::Think;
use super::url::Url;
use crate::clients::ClientRange;

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

/// A part of a run, during which the load changes linearly between two shares of the nominal load.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Its name in reports.
    pub name: String,
    /// Its length.
    pub duration: Duration,
    /// Share of the nominal rate (open loop) or connections (closed loop) at its start; 1 is all of it.
    pub from: f64,
    /// The same at its end.
    pub to: f64,
    /// Whether its requests are in the figures.
    pub measured: bool,
}

impl Phase {
    /// A measured phase with the nominal load.
    #[must_use]
    pub fn hold(duration: Duration) -> Self {
        Self { name: "hold".into(), duration, from: 1.0, to: 1.0, measured: true }
    }
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
    /// The requests.
    pub requests: Vec<Request>,
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
    /// Client addresses; empty for the host's own.
    pub clients: Vec<ClientRange>,
    /// Behaviour of clients.
    pub behaviour: Behaviour,
    /// Buckets of the target to hit.
    pub aim: Option<HttpAim>,
    /// TCP Fast Open (RFC 7413): each request goes with the SYN of its connection, where the target's cookie is known. For requests that may
    /// be repeated, each on a connection of its own.
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
    /// This many bytes of a pattern, generated while they are sent.
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

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A request.
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
    /// Name in reports.
    #[must_use]
    pub fn title(&self) -> String {
        let made = || format!("{} {}", self.method, self.path.as_deref().unwrap_or("(the target's path)"));
        self.name.clone().unwrap_or_else(made)
    }

    /// Checks method, path and headers.
    ///
    /// # Errors
    /// What is wrong, in one line.
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
    /// Length of all phases together.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(|p| p.duration).sum()
    }

    /// Checks the whole plan.
    ///
    /// # Errors
    /// What is wrong and how to fix it, in one line.
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
    /// Whether all connections are opened before the first request; not if each request has its own.
    pub(super) fn connects_first(&self) -> bool {
        let http1 = matches!(self.version, Version::Http1 { .. });
        self.behaviour == Behaviour::Normal && self.requests_per_connection != Some(1) && http1
    }

    /// Refuses Fast Open where a connection has anything to do before its first request, or has no request.
    fn check_fast_open(&self) -> Result<(), BadPlan> {
        let bad = |what: &str| Err(BadPlan(format!("pool '{}': Fast Open {what}", self.name)));
        if !self.fast_open {
            return Ok(());
        }
        if self.targets.iter().any(|t| t.url.https) {
            return bad("is for http: URLs: with https: the TLS handshake comes before the request");
        }
        if self.behaviour != Behaviour::Normal {
            return bad("is for clients that send requests");
        }
        if !matches!(self.version, Version::Http1 { .. }) {
            return bad("is for HTTP/1.1: with HTTP/2 connections are kept");
        }
        if self.requests_per_connection != Some(1) {
            return bad("is for a connection for each request (--no-keepalive)");
        }
        if self.write_rate.is_some() {
            return bad("is not for slow writers: the SYN takes as much of a request as fits");
        }
        Ok(())
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
        self.check_fast_open()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_open_is_for_a_connection_for_each_request() {
        let url: Url = "http://a.example/".parse().unwrap();
        let target = Target { url, addresses: vec!["10.0.0.1:80".parse().unwrap()], weight: 1.0 };
        let fine =
            Pool { fast_open: true, requests_per_connection: Some(1), ..Pool::new("p", target.clone()) };
        let refused = |pool: Pool| pool.check().unwrap_err().to_string();
        assert_eq!(fine.check(), Ok(()));
        for (kept, pool) in [
            (None, Pool { requests_per_connection: None, ..fine.clone() }),
            (Some(2), Pool { requests_per_connection: Some(2), ..fine.clone() }),
        ] {
            assert!(refused(pool).contains("a connection for each request"), "{kept:?}");
        }
        let secure = Target { url: "https://a.example/".parse().unwrap(), ..target };
        assert!(refused(Pool { targets: vec![secure], ..fine.clone() }).contains("TLS"));
        assert!(refused(Pool { behaviour: Behaviour::HalfOpen, ..fine.clone() }).contains("send requests"));
        assert!(refused(Pool { write_rate: Some(9), ..fine.clone() }).contains("slow writers"));
        let http2 = Pool { version: Version::Http2 { streams: 2 }, requests_per_connection: None, ..fine };
        assert!(refused(http2).contains("HTTP/1.1"));
    }
}
