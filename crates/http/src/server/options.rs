//! How a server is set up.

use std::path::PathBuf;
use std::time::Duration;

use flowlane::Time;

use crate::h1::Limits;
use crate::tls::ServerTls;

/// How a server is set up; the default serves the endpoints over cleartext, HTTP/1 and HTTP/2.
#[derive(Debug, Clone)]
pub struct Options {
    /// What a head may hold.
    pub limits: Limits,
    /// How long a peer may take.
    pub timeouts: Timeouts,
    /// Most bytes of a request's body.
    pub max_body: u64,
    /// Requests that one connection may make; then it is closed. HTTP/1 only.
    pub requests_per_connection: u64,
    /// Connections that one lane holds at once; further ones are closed at once and counted.
    pub connections_per_lane: u64,
    /// Bytes that the server keeps for peers that do not read, an equal part in each lane. A connection beyond may
    /// still keep 4 KiB, so that whoever reads goes on.
    pub memory: u64,
    /// Stop answering now and then.
    pub stall: Option<Stall>,
    /// Serve the files below this directory.
    pub dir: Option<PathBuf>,
    /// Serve inside TLS.
    pub tls: Option<ServerTls>,
    /// Speak HTTP/2 to whoever begins with its preface on cleartext.
    pub http2: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            max_body: 1 << 30,
            requests_per_connection: u64::MAX,
            connections_per_lane: 1 << 20,
            memory: 256 << 20,
            stall: None,
            dir: None,
            tls: None,
            http2: true,
        }
    }
}

/// How long a peer may take until it is taken for one that only wants to occupy us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a TLS handshake, HTTP/2's preface and each of its frames, and for a head from its first byte to its last,
    /// however they drip in.
    pub head: Duration,
    /// Between requests.
    pub idle: Duration,
    /// Without any byte of a body that it is sending.
    pub body: Duration,
    /// Without taking any byte of what we send; over HTTP/2 also without room for any byte of one answer.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { head: secs(10), idle: secs(75), body: secs(30), write: secs(30) }
    }
}

/// A known fault for measuring instruments to find: for `length` at the end of every `every` nothing is answered.
///
/// Requests that come meanwhile are answered when it is over. All lanes stall together, by the runtime's clock: a
/// request that comes at a random moment waits with probability `length / every`, and then a time that is evenly
/// spread from zero to `length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// The period.
    pub every: Duration,
    /// The part of it in which nothing is answered.
    pub length: Duration,
}

impl Stall {
    /// Until when nothing is answered, if that is so at `now`.
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
