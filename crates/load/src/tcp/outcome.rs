//! What a run over TCP came to: what became of every connection, bytes, histograms, and the generator's own lateness.

use std::time::Duration;

use flowlane::{ConnectError, Failure, SocketError};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::outcome::{histogram, per_second, slip_budget, slipped};

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counts of a lane, or of a run.
        ///
        /// Every connection that was begun ends in exactly one way: completed, unfinished, or one of the failures.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub struct TcpCounts { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl TcpCounts {
            /// Adds another lane's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }

            /// A count by its name in reports, words joined by hyphens.
            #[must_use]
            pub fn by_name(&self, name: &str) -> Option<u64> {
                let name = name.replace('-', "_");
                [$((stringify!($name), self.$name),)+].iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
            }
        }
    };
}

counts! {
    /// Connections begun.
    begun,
    /// Of them, established.
    connected,
    /// Of them, those that did all they were to do.
    completed,
    /// Connections that stood when the time was over.
    standing,
    /// Refused by the far side.
    refused,
    /// Reset by the far side.
    reset,
    /// Given up for want of an answer, when connecting or later.
    timed_out,
    /// The network says that the far side cannot be reached.
    unreachable,
    /// Connected, and the answer did not come in time.
    no_answer,
    /// No port was free whose replies come to the lane, or another local reason.
    not_begun,
    /// The far side ended the stream before its time.
    closed_early,
    /// Bytes came back that are not those that were sent.
    corrupt,
    /// Neither completed nor failed when the run was over.
    unfinished,
    /// Messages written: requests, or pieces of a stream.
    messages,
    /// Messages that came back whole; when writing, those that the socket took, when reading, those that came.
    answers,
    /// Answers, of those counted, that took longer than the timeout.
    late,
    /// What was due and not begun, because the generator did not keep up or was stopped.
    unsent,
    /// Times a connection waited because as many as allowed were open.
    held_up,
    /// Bytes written to sockets.
    bytes_written,
    /// Bytes read from sockets.
    bytes_read,
    /// Segments sent again.
    retransmits,
}

/// How a connection ended badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Socket(SocketError),
    NoAnswer,
    ClosedEarly,
    Corrupt,
    Unfinished,
}

impl From<SocketError> for Trouble {
    fn from(e: SocketError) -> Self {
        Self::Socket(e)
    }
}

impl TcpCounts {
    /// Connections that ended badly.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.refused
            + self.reset
            + self.timed_out
            + self.unreachable
            + self.no_answer
            + self.not_begun
            + self.closed_early
            + self.corrupt
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) {
        let count = match trouble {
            Trouble::Socket(SocketError::Connection(failure)) => match failure {
                Failure::Refused => &mut self.refused,
                Failure::TimedOut => &mut self.timed_out,
                Failure::Unreachable => &mut self.unreachable,
                _ => &mut self.reset,
            },
            Trouble::Socket(SocketError::Connect(ConnectError::NoRoute)) => &mut self.unreachable,
            Trouble::Socket(SocketError::Closed | SocketError::ShutDown) => &mut self.closed_early,
            Trouble::Socket(_) => &mut self.not_begun,
            Trouble::NoAnswer => &mut self.no_answer,
            Trouble::ClosedEarly => &mut self.closed_early,
            Trouble::Corrupt => &mut self.corrupt,
            Trouble::Unfinished => &mut self.unfinished,
        };
        *count += 1;
    }
}

/// The times of a lane, or of a run, nanoseconds.
#[derive(Debug, Clone)]
pub struct TcpTimes {
    /// From the moment a connection was to be begun until it stood.
    pub connect: Histogram<u64>,
    /// From the moment the first message was to be sent until the first byte came; when reading, from the connection.
    pub first_byte: Histogram<u64>,
    /// From the moment a message was to be sent until all of it was back; when writing, until the socket had taken it.
    pub latency: Histogram<u64>,
    /// Own lateness, from the moment something was to be done until it was.
    pub slip: Histogram<u64>,
}

impl Default for TcpTimes {
    fn default() -> Self {
        Self { connect: histogram(), first_byte: histogram(), latency: histogram(), slip: histogram() }
    }
}

impl TcpTimes {
    fn add(&mut self, other: &Self) {
        // Same bounds everywhere: they always fit.
        let _ = self.connect.add(&other.connect);
        let _ = self.first_byte.add(&other.first_byte);
        let _ = self.latency.add(&other.latency);
        let _ = self.slip.add(&other.slip);
    }
}

/// What a lane came to.
#[derive(Debug, Clone, Default)]
pub struct TcpLaneOutcome {
    /// The lane's bucket.
    pub bucket: u16,
    /// Its counts.
    pub counts: TcpCounts,
    /// Its times.
    pub times: TcpTimes,
    /// What it did while it was measured: after the ramp, before the end.
    pub measured: Measured,
    /// What ended it before its time.
    pub failure: Option<String>,
}

/// What was done while it was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// From when to when, nanoseconds on the runtime's clock.
    pub span: (u64, u64),
    /// Bytes written.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
    /// Answers.
    pub answers: u64,
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct TcpOutcome {
    /// Counts of all lanes.
    pub counts: TcpCounts,
    /// Times of all lanes.
    pub times: TcpTimes,
    /// What all lanes did while they were measured.
    pub measured: Measured,
    /// The lanes, by bucket.
    pub lanes: Vec<TcpLaneOutcome>,
    /// What ended it before its time.
    pub failure: Option<String>,
}

impl TcpOutcome {
    /// Joins what the lanes came to.
    #[must_use]
    pub fn merge(mut lanes: Vec<TcpLaneOutcome>) -> Self {
        lanes.sort_by_key(|l| l.bucket);
        let mut outcome = Self::default();
        let m = &mut outcome.measured;
        m.span = (u64::MAX, 0);
        for lane in &lanes {
            outcome.counts.add(&lane.counts);
            outcome.times.add(&lane.times);
            m.span = (m.span.0.min(lane.measured.span.0), m.span.1.max(lane.measured.span.1));
            m.written += lane.measured.written;
            m.read += lane.measured.read;
            m.answers += lane.measured.answers;
            if outcome.failure.is_none() {
                outcome.failure.clone_from(&lane.failure);
            }
        }
        outcome.lanes = lanes;
        outcome
    }

    /// How long was measured.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.measured.span.1.saturating_sub(self.measured.span.0))
    }

    /// Bits a second from us and to us, payload only, while it was measured.
    #[must_use]
    pub fn bits_per_second(&self) -> (f64, f64) {
        let rate = |bytes: u64| per_second(bytes * 8, self.elapsed());
        (rate(self.measured.written), rate(self.measured.read))
    }

    /// Answers a second, while it was measured.
    #[must_use]
    pub fn answer_rate(&self) -> f64 {
        per_second(self.measured.answers, self.elapsed())
    }

    /// The slip that p99.9 may reach: a millisecond, or 1 % of the median latency if that is more.
    #[must_use]
    pub fn slip_budget(&self) -> u64 {
        slip_budget(&self.times.latency)
    }

    /// Whether the generator was late itself more than its budget allows.
    #[must_use]
    pub fn slipped(&self) -> bool {
        slipped(&self.times.slip, self.slip_budget())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_is_one_failure() {
        for trouble in [
            Trouble::Socket(Failure::Refused.into()),
            Trouble::Socket(Failure::Reset.into()),
            Trouble::Socket(Failure::TimedOut.into()),
            Trouble::Socket(Failure::Unreachable.into()),
            Trouble::Socket(ConnectError::NoPort.into()),
            Trouble::Socket(ConnectError::NoRoute.into()),
            Trouble::Socket(SocketError::Closed),
            Trouble::NoAnswer,
            Trouble::ClosedEarly,
            Trouble::Corrupt,
        ] {
            let mut counts = TcpCounts::default();
            counts.trouble(trouble);
            assert_eq!((counts.failed(), counts.unfinished), (1, 0), "{trouble:?}");
        }
        assert_eq!(TcpCounts { no_answer: 7, ..TcpCounts::default() }.by_name("no-answer"), Some(7));
        assert_eq!(TcpCounts::default().by_name("nothing"), None);
    }
}
