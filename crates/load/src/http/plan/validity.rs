//! Which plans can be carried out: limits of single values, and what does not go together.

use std::net::SocketAddr;

use super::{Behaviour, Pace, Plan, Pool, Request, Version};
use crate::fill::Template;
use crate::run::clients::ClientRange;

/// Headers that HTTP/3 has not (RFC 9114 §4.2).
const OF_CONNECTIONS: [&str; 5] =
    ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"];

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPlan(pub String);

impl Plan {
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
        if !self.phases.iter().any(|phase| phase.measured && !phase.duration.is_zero()) {
            return bad(
                "no phase is measured, so there would be no figures: write measured = true in one".into()
            );
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
    pub(in crate::http) fn check(&self) -> Result<(), BadPlan> {
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
            Version::Http1 { pipeline: 0 }
            | Version::Http2 { streams: 0 }
            | Version::Http3 { streams: 0 } => {
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
        self.via.check().or_else(bad)?;
        if self.via.unix_socket.is_some() && (!self.clients.is_empty() || self.aim.is_some()) {
            return bad("over a Unix socket there are no client addresses and no buckets");
        }
        self.check_follow()?;
        self.check_aws()?;
        self.check_fast_open()?;
        self.check_http3()?;
        self.check_sessions()?;
        self.check_fill()?;
        self.check_grpc()?;
        self.check_replay()?;
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

    /// Refuses what a replay decides itself, or what needs requests that are known before.
    fn check_replay(&self) -> Result<(), BadPlan> {
        let Some(recording) = &self.replay else { return Ok(()) };
        let bad = |what: &str| Err(BadPlan(format!("pool '{}': a replay {what}", self.name)));
        let methods = self.requests.iter().map(|request| &request.method);
        // Guard: `!methods.eq(recording.methods())` as `false` fails
        // load/http::replay::what_does_not_go_with_a_replay
        if !methods.eq(recording.methods()) {
            return bad("has one request for each method of the recording, in their order");
        }
        match self.version {
            Version::Http1 { pipeline: 2.. } => {
                return bad("is one request at a time on its connection: not with pipelining");
            }
            _ if self.behaviour != Behaviour::Normal => return bad("is for clients that send requests"),
            _ if self.follow.is_some() => {
                return bad("follows no redirects: what they led to is in the recording");
            }
            _ if self.cookies => return bad("has the cookies of the recording: none are kept"),
            _ if self.fast_open || self.steps || self.data.is_some() => {
                return bad("has no steps, no rows of a file and no Fast Open");
            }
            _ => {}
        }
        if self.pace == Pace::Closed {
            return bad("is an open loop");
        }
        if let Some(target) = self.targets.iter().find(|t| t.url.path.contains(['?', '#'])) {
            return bad(&format!("has paths of its own: {} may have none with a query", target.url));
        }
        Ok(())
    }

    /// Refuses to follow redirects where a request is not alone on its connection, or has to stay with a bucket.
    fn check_follow(&self) -> Result<(), BadPlan> {
        let bad = |what: &str| Err(BadPlan(format!("pool '{}': following redirects {what}", self.name)));
        match (self.follow, self.version) {
            (None, _) => Ok(()),
            (Some(follow), _) if !(1..=1000).contains(&follow.most) => bad("needs a limit from 1 to 1000"),
            (_, Version::Http1 { pipeline: 2.. }) => bad("is for one request at a time: not with pipelining"),
            _ if self.behaviour != Behaviour::Normal => bad("is for clients that send requests"),
            _ if self.aim.is_some() => bad("leaves the bucket that --aim chose: one or the other"),
            _ if self.fast_open => bad("asks a second time on a connection: not with Fast Open"),
            _ => Ok(()),
        }
    }

    /// Refuses what there is not over QUIC, or not yet.
    fn check_http3(&self) -> Result<(), BadPlan> {
        let bad = |what: String| Err(BadPlan(format!("pool '{}': HTTP/3 {what}", self.name)));
        if !matches!(self.version, Version::Http3 { .. }) {
            return Ok(());
        }
        if let Some(target) = self.targets.iter().find(|t| !t.url.https) {
            return bad(format!("is always encrypted: {} is to begin with https://", target.url));
        }
        if self.via.proxy.is_some() || self.via.unix_socket.is_some() {
            return bad(
                "is over UDP, straight to the target: not through a proxy, nor over a Unix socket".into()
            );
        }
        if self.read_rate.is_some() || self.write_rate.is_some() {
            return bad("has no slow readers and writers: these speak HTTP/1.1".into());
        }
        if self.behaviour != Behaviour::Normal {
            return bad("is for clients that send requests".into());
        }
        if self.aim.is_some() {
            return bad("is not aimed at buckets of the target: --aim is for TCP".into());
        }
        for (name, value) in self.requests.iter().flat_map(|r| &r.headers) {
            let name = name.to_ascii_lowercase();
            // Guard: `OF_CONNECTIONS.contains(&name.as_str()) || (name == "te" && value != "trailers")` as
            // `false` fails http::plan::validity::
            if OF_CONNECTIONS.contains(&name.as_str()) || (name == "te" && value != "trailers") {
                return bad(format!(
                    "has no header '{name}: {value}', which is about a connection of HTTP/1"
                ));
            }
        }
        Ok(())
    }

    /// Refuses to take up sessions where there are none.
    fn check_sessions(&self) -> Result<(), BadPlan> {
        let bad = |what: &str| Err(BadPlan(format!("pool '{}': {what}", self.name)));
        if self.resume && !self.targets.iter().any(|t| t.url.https) {
            return bad("resuming sessions is for https: URLs");
        }
        if self.early_data && !matches!(self.version, Version::Http3 { .. }) {
            return bad("early data is sent over HTTP/3");
        }
        if self.early_data && !self.resume {
            return bad("early data goes with a session that is resumed");
        }
        Ok(())
    }

    /// Refuses calls of gRPC where there is no HTTP/2, or no method that is called.
    fn check_grpc(&self) -> Result<(), BadPlan> {
        let bad = |what: String| Err(BadPlan(format!("pool '{}': gRPC {what}", self.name)));
        for request in self.requests.iter().filter(|request| request.grpc) {
            // Guard: `!matches!(self.version, Version::Http2 { .. })` as `false` fails
            // load/http::grpc::a_call_needs_http2
            if !matches!(self.version, Version::Http2 { .. }) {
                return bad("is spoken over HTTP/2".into());
            }
            if self.follow.is_some() {
                return bad("follows no redirects".into());
            }
            for target in &self.targets {
                let path =
                    Template::bare(request.path_at(&target.url)).map_err(|e| BadPlan(e.to_string()))?;
                super::method_of(&path).map(drop).or_else(|e| bad(format!("calls a method: {e}")))?;
            }
        }
        Ok(())
    }

    /// Refuses Fast Open where a connection has anything to do before its first request, or has no request.
    fn check_fast_open(&self) -> Result<(), BadPlan> {
        let bad = |what: &str| Err(BadPlan(format!("pool '{}': Fast Open {what}", self.name)));
        if !self.fast_open {
            return Ok(());
        }
        // Guard: `self.targets.iter().any(|t| t.url.https)` as `false` fails http::plan
        if self.targets.iter().any(|t| t.url.https) {
            return bad("is for http: URLs: with https: the TLS handshake comes before the request");
        }
        if self.behaviour != Behaviour::Normal {
            return bad("is for clients that send requests");
        }
        if self.via.unix_socket.is_some() || self.via.proxy.is_some() {
            return bad("is for TCP straight to the target: not through a proxy, nor over a Unix socket");
        }
        if !matches!(self.version, Version::Http1 { .. }) {
            return bad("is for HTTP/1.1: with HTTP/2 connections are kept");
        }
        // Guard: `self.requests_per_connection != Some(1)` as `false` fails http::plan
        if self.requests_per_connection != Some(1) {
            return bad("is for a connection for each request (keep-alive = false, --no-keepalive)");
        }
        if self.write_rate.is_some() {
            return bad("is not for slow writers: the SYN takes as much of a request as fits");
        }
        Ok(())
    }
}

impl Request {
    /// Checks method, path and headers, with whatever stands in the place of their placeholders.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn check(&self) -> Result<(), BadPlan> {
        let bare = |text: &String| Template::bare(text).map_err(|e| BadPlan(e.to_string()));
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            headers.push((name.clone(), bare(value)?));
        }
        let path = self.path.as_ref().map(bare).transpose()?;
        Self { path, headers, method: self.method.clone(), ..Self::default() }.check_as_it_is()
    }

    /// The same without placeholders.
    pub(in crate::http) fn check_as_it_is(&self) -> Result<(), BadPlan> {
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
            // With a second framing two readers see two bodies (RFC 9112 §6.1).
            // Guard: `name.eq_ignore_ascii_case("transfer-encoding")` as `false` fails
            // validity::tests::a_body_has_one_framing
            if name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(BadPlan(format!(
                    "'{name}: {value}': bodies are sent with their length, not chunked: leave this header out"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::plan::Target;
    use crate::http::url::Url;

    #[test]
    fn a_body_has_one_framing() {
        for name in ["Transfer-Encoding", "transfer-encoding"] {
            let request = Request { headers: vec![(name.into(), "chunked".into())], ..Request::default() };
            assert!(request.check().unwrap_err().to_string().contains("with their length"), "{name}");
        }
    }

    #[test]
    fn http3_says_what_it_has_not() {
        let url: Url = "https://a.example/".parse().unwrap();
        let target = Target { url, addresses: vec!["10.0.0.1:443".parse().unwrap()], weight: 1.0 };
        let fine = Pool { version: Version::Http3 { streams: 4 }, ..Pool::new("p", target.clone()) };
        let refused = |pool: Pool| pool.check().unwrap_err().to_string();
        assert_eq!(fine.check(), Ok(()));
        let plain = Target { url: "http://a.example/".parse().unwrap(), ..target };
        let mut proxied = fine.clone();
        proxied.via.proxy = Some("http://127.0.0.1:3128".parse().unwrap());
        let mut upgraded = fine.clone();
        upgraded.requests[0].headers.push(("Upgrade".into(), "x".into()));
        let mut call = fine.clone();
        call.requests[0].grpc = true;
        for (pool, why) in [
            (Pool { targets: vec![plain], ..fine.clone() }, "always encrypted"),
            (proxied, "proxy"),
            (upgraded, "'upgrade: x'"),
            (call, "over HTTP/2"),
            (Pool { read_rate: Some(1), ..fine.clone() }, "slow readers"),
            (Pool { behaviour: Behaviour::HalfOpen, ..fine.clone() }, "send requests"),
            (Pool { version: Version::Http3 { streams: 0 }, ..fine.clone() }, "at least one request"),
        ] {
            assert!(refused(pool).contains(why), "{why}");
        }
    }

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
