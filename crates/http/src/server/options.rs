//! Options of a server.

use std::path::PathBuf;
use std::time::Duration;

use flowlane::Time;

use crate::h1::Limits;
use crate::tls::ServerTls;

/// Options of a server. The default serves the endpoints over cleartext, HTTP/1 and HTTP/2.
#[derive(Debug, Clone)]
pub struct Options {
    /// Limits of a request's head.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Largest body of a request, bytes.
    pub max_body: u64,
    /// Largest message of a WebSocket, bytes.
    pub max_message: u64,
    /// Agree to messages of a WebSocket that are compressed, if a client offers it.
    pub ws_deflate: bool,
    /// Most requests on one connection before it is closed; HTTP/1 only.
    pub requests_per_connection: u64,
    /// Most open connections in one lane; further ones are closed and counted.
    pub connections_per_lane: u64,
    /// Bytes that the server keeps for peers that do not read, divided equally among the lanes. Beyond that a connection may still keep
    /// 4 KiB, so that a peer that reads makes progress.
    pub memory: u64,
    /// Periodic stalls, to test load generators.
    pub stall: Option<Stall>,
    /// Serve the files below this directory.
    pub dir: Option<PathBuf>,
    /// Serve over TLS.
    pub tls: Option<ServerTls>,
    /// Speak HTTP/2 on cleartext connections that begin with its preface.
    pub http2: bool,
    /// Speak HTTP/3 on the UDP sockets of [`Server::serve_datagrams`](super::Server::serve_datagrams). Needs TLS.
    pub http3: bool,
    /// Take requests in early data (0-RTT) over HTTP/3, of methods that do nothing but ask; others are answered 425 (RFC 8470 §5.2).
    pub early_data: bool,
    /// From so many handshakes of HTTP/3 in a lane that are not complete, clients are to prove their addresses (Retry, RFC 9000 §8.1.2).
    pub retry_above: u64,
    /// What answers over TCP say of it: the value of `Alt-Svc` (RFC 7838).
    pub alt_svc: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            max_body: 1 << 30,
            max_message: 1 << 20,
            ws_deflate: false,
            requests_per_connection: u64::MAX,
            connections_per_lane: 1 << 20,
            memory: 256 << 20,
            stall: None,
            dir: None,
            tls: None,
            http2: true,
            http3: false,
            early_data: false,
            retry_above: 1000,
            alt_svc: None,
        }
    }
}

/// Timeouts of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a TLS handshake, the HTTP/2 preface and each HTTP/2 frame, and for a head from its first to its last byte, however slowly the
    /// bytes arrive.
    pub head: Duration,
    /// Between requests.
    pub idle: Duration,
    /// Without any byte of a request's body.
    pub body: Duration,
    /// Without the peer taking any byte that we send; with HTTP/2 also without room for any byte of one answer.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { head: secs(10), idle: secs(75), body: secs(30), write: secs(30) }
    }
}

/// A known stall to test measuring instruments with: for `length` at the end of every `every` nothing is answered.
///
/// Requests that arrive meanwhile are answered after it. All lanes stall together, by the runtime's clock: a request at a random time waits
/// with probability `length / every`, and then for a time uniformly distributed from zero to `length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// The period.
    pub every: Duration,
    /// The part of it in which nothing is answered.
    pub length: Duration,
}

impl Stall {
    /// The end of the stall at `now`, if there is one.
    #[must_use]
    pub fn until(&self, now: Time) -> Option<Time> {
        let every = u64::try_from(self.every.as_nanos()).ok().filter(|every| *every > 0)?;
        let left = Duration::from_nanos(every - now.as_nanos() % every);
        (left <= self.length).then(|| now + left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_the_last_part_of_each_period() {
        let stall = Stall { every: Duration::from_millis(100), length: Duration::from_millis(30) };
        let at = Time::from_millis;
        assert_eq!(stall.until(at(0)), None);
        assert_eq!(stall.until(at(69)), None);
        assert_eq!(stall.until(at(70)), Some(at(100)));
        assert_eq!(stall.until(at(199)), Some(at(200)));
        assert_eq!(stall.until(at(200)), None);
        assert_eq!(Stall { every: Duration::ZERO, ..stall }.until(at(1)), None);
    }
}
