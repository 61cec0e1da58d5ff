//! How each connection of a TCP run ended.

use flowlane::{ConnectError, Failure, SocketError};
use flowlane_sys::words::said;

use crate::report::ErrorKind;
use crate::run::outcome::{Outcome, counts};

counts! {
    /// Counts of a lane, or of a run.
    ///
    /// Every connection ends in exactly one way: completed, unfinished, or one of the failures.
    TcpCounts;
    /// Connections begun.
    begun,
    /// Of them, established.
    connected,
    /// Of them, those that did all their work.
    completed,
    /// Connections established when the run ended.
    standing,
    /// Refused by the far side.
    refused,
    /// Reset by the far side.
    reset,
    /// Timed out in TCP, when connecting or later.
    timed_out,
    /// Ended by an ICMP error: the far side cannot be reached.
    unreachable,
    /// Connected, but without an answer within the timeout, or with bytes that the far side did not take or did not read.
    no_answer,
    /// Not opened: no free port whose replies arrive in the lane, or another local reason.
    not_begun,
    /// The far side closed the stream too early.
    closed_early,
    /// Received bytes differ from those sent.
    corrupt,
    /// Neither completed nor failed when the run was over.
    unfinished,
    /// Messages written: requests, or pieces of a stream.
    messages,
    /// Messages echoed completely; when writing, those that the socket accepted; when reading, those received.
    answers,
    /// Answers, of those counted, that took longer than the timeout.
    late,
    /// Messages or connections due and not started, since the generator did not keep up or was stopped.
    unsent,
    /// Times that a connection waited because the most allowed were open.
    held_up,
    /// Bytes written to sockets.
    bytes_written,
    /// Bytes read from sockets.
    bytes_read,
    /// Segments retransmitted.
    retransmits,
    /// Connections whose SYN data the far side accepted (Fast Open).
    syn_data,
    /// Connections that sent data with the SYN and had to retransmit it.
    syn_data_resent,
}

/// The first bytes of what somebody said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct First {
    bytes: [u8; Self::MOST],
    len: usize,
}

impl First {
    const MOST: usize = 32;

    pub(super) fn of(came: &[u8]) -> Self {
        let (mut bytes, len) = ([0; Self::MOST], came.len().min(Self::MOST));
        bytes[..len].copy_from_slice(&came[..len]);
        Self { bytes, len }
    }
}

/// How a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// While connecting.
    Connect(SocketError),
    Socket(SocketError),
    NoAnswer,
    /// Bytes that are only written waited for the far side to take any until the timeout after the end.
    Stuck,
    /// Bytes that are only written were all acknowledged, and the far side did not end the stream, as who reads to its end does.
    Unread,
    ClosedEarly,
    /// Other bytes came than were sent; the first, if they are.
    Corrupt(Option<First>),
    Unfinished,
}

impl Trouble {
    /// What kind of error it is in a report; `None` if it is none.
    pub(super) fn kind(self) -> Option<ErrorKind> {
        Some(match self {
            Self::Unfinished => return None,
            Self::NoAnswer | Self::Stuck | Self::Unread => ErrorKind::Timeout,
            Self::ClosedEarly => ErrorKind::Closed,
            Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::Connect(SocketError::Connection(Failure::TimedOut)) => ErrorKind::ConnectTimeout,
            Self::Connect(SocketError::Connect(ConnectError::NoRoute)) => ErrorKind::Unreachable,
            Self::Connect(SocketError::Connection(failure))
            | Self::Socket(SocketError::Connection(failure)) => match failure {
                Failure::Refused => ErrorKind::Refused,
                Failure::TimedOut => ErrorKind::Timeout,
                Failure::Unreachable => ErrorKind::Unreachable,
                _ => ErrorKind::Reset,
            },
            Self::Socket(SocketError::Closed | SocketError::ShutDown) => ErrorKind::Closed,
            Self::Connect(_) | Self::Socket(_) => ErrorKind::Local,
        })
    }

    /// In words.
    pub(super) fn words(self) -> String {
        match self {
            Self::Connect(e) => format!("connecting: {e}"),
            Self::Socket(e) => e.to_string(),
            Self::NoAnswer => "no answer within the timeout".into(),
            Self::Stuck => "the far side takes no more bytes".into(),
            Self::Unread => "the far side's TCP has all bytes, and nobody there read them to the end".into(),
            Self::ClosedEarly => "the far side ended the stream before its time".into(),
            Self::Corrupt(None) => "other bytes came back than were sent".into(),
            Self::Corrupt(Some(First { bytes, len })) => {
                format!("it sends other bytes than it was sent: {}", said(&bytes[..len]))
            }
            Self::Unfinished => "not done when the run was over".into(),
        }
    }
}

impl From<SocketError> for Trouble {
    fn from(e: SocketError) -> Self {
        Self::Socket(e)
    }
}

impl TcpCounts {
    /// Connections that failed.
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

    pub(super) fn note(&mut self, trouble: Trouble) {
        let count = match trouble {
            Trouble::Connect(SocketError::Connection(failure))
            | Trouble::Socket(SocketError::Connection(failure)) => match failure {
                Failure::Refused => &mut self.refused,
                Failure::TimedOut => &mut self.timed_out,
                Failure::Unreachable => &mut self.unreachable,
                _ => &mut self.reset,
            },
            Trouble::Connect(SocketError::Connect(ConnectError::NoRoute)) => &mut self.unreachable,
            Trouble::Socket(SocketError::Closed | SocketError::ShutDown) => &mut self.closed_early,
            Trouble::Connect(_) | Trouble::Socket(_) => &mut self.not_begun,
            Trouble::NoAnswer | Trouble::Stuck | Trouble::Unread => &mut self.no_answer,
            Trouble::ClosedEarly => &mut self.closed_early,
            Trouble::Corrupt(_) => &mut self.corrupt,
            Trouble::Unfinished => &mut self.unfinished,
        };
        *count += 1;
    }
}

/// Result of a run.
pub type TcpOutcome = Outcome<TcpCounts>;

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
            Trouble::Connect(Failure::TimedOut.into()),
            Trouble::Connect(ConnectError::NoPort.into()),
            Trouble::Connect(ConnectError::NoRoute.into()),
            Trouble::Socket(SocketError::Closed),
            Trouble::NoAnswer,
            Trouble::Stuck,
            Trouble::Unread,
            Trouble::ClosedEarly,
            Trouble::Corrupt(None),
            Trouble::Corrupt(Some(First::of(b"SSH-2.0"))),
        ] {
            let mut counts = TcpCounts::default();
            counts.note(trouble);
            assert_eq!((counts.failed(), counts.unfinished), (1, 0), "{trouble:?}");
            assert!(trouble.kind().is_some() && !trouble.words().is_empty(), "{trouble:?}");
        }
    }
}
