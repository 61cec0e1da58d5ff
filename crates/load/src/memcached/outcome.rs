//! How each request and each connection ended.

use std::io;

use flowlane::SocketError;
use flowlane_memcached::client::Malformed;
use flowlane_memcached::map::MapError;
use serde::{Deserialize, Serialize};

use crate::report::ErrorKind;
use crate::run::outcome::{Account, Outcome};

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counts of a lane, or of a run.
        ///
        /// Every request ends in exactly one way: answered, timed out, or lost with its connection.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", default)]
        pub struct MemcachedCounts { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Account for MemcachedCounts {
            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counts! {
    /// Requests sent: gets and sets, those that fill not included.
    requests,
    /// Of them, answered, whatever the answer.
    answered,
    /// Of them, without an answer within the timeout.
    timed_out,
    /// Of them, in flight on a connection that ended.
    lost,
    /// Answers, of those counted, that took longer than the timeout from the intended moment.
    late,
    /// Gets sent.
    gets,
    /// Sets sent.
    sets,
    /// Keys that answered gets asked for.
    keys,
    /// Of them, those with a value.
    hits,
    /// Of them, those without.
    misses,
    /// Sets that were stored.
    stored,
    /// Answers that say that it was not done: an error, or not stored.
    refused,
    /// Answers with a value that is not the one of its key.
    wrong,
    /// Items stored before the run.
    filled,
    /// Requests due and not sent, since the generator did not keep up, no connection was free, or it was stopped.
    unsent,
    /// Times that a due request waited for a connection.
    held_up,
    /// Connections established, those of before the run included.
    connected,
    /// Connections that could not be established, likewise.
    not_connected,
    /// Of those, refused by the target.
    connections_refused,
    /// Connections that ended before the run did.
    broken,
    /// Bytes written to sockets in the run.
    bytes_written,
    /// Bytes read from sockets in the run.
    bytes_read,
}

/// Result of a run.
pub type MemcachedOutcome = Outcome<MemcachedCounts>;

/// How a connection ended that should not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// While connecting.
    Connect(SocketError),
    Socket(SocketError),
    /// The far side ended the stream.
    Closed,
    Malformed(Malformed),
    /// What was said is an answer, but none to what was asked.
    OutOfTurn(&'static str),
    /// An error that no request waited for, such as that there are too many connections.
    Unasked(String),
    /// A request had no answer within the timeout.
    NoAnswer,
    /// The server has no lanes, of which it is to tell.
    NoLanes(MapError),
    /// So many lanes, and fewer connections: their keys would not be asked for.
    ManyLanes(usize),
}

impl Trouble {
    /// What kind of error it is in a report.
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(e) => match of_socket(*e) {
                ErrorKind::Timeout => ErrorKind::ConnectTimeout,
                ErrorKind::Other => ErrorKind::Local,
                kind => kind,
            },
            Self::Socket(e) => of_socket(*e),
            Self::Closed => ErrorKind::Closed,
            Self::Malformed(Malformed::LineTooLong) => ErrorKind::TooLong,
            Self::Malformed(_) | Self::OutOfTurn(_) | Self::NoLanes(_) => ErrorKind::Malformed,
            Self::ManyLanes(_) => ErrorKind::Local,
            Self::Unasked(_) => ErrorKind::Status,
            Self::NoAnswer => ErrorKind::Timeout,
        }
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Connect(e) => format!("connecting: {e}"),
            Self::Socket(e) => e.to_string(),
            Self::Closed => "the far side closed the connection".into(),
            Self::Malformed(why) => why.words().into(),
            Self::OutOfTurn(why) => (*why).into(),
            Self::Unasked(line) => line.clone(),
            Self::NoAnswer => "no answer within the timeout".into(),
            Self::NoLanes(why) => format!("--by-lane: {why}"),
            Self::ManyLanes(n) => {
                format!("--by-lane: the server has {n} lanes: at least as many --connections")
            }
        }
    }
}

fn of_socket(error: SocketError) -> ErrorKind {
    if error == SocketError::NoDescriptor {
        ErrorKind::Local
    } else {
        ErrorKind::of_io(&io::Error::from(error))
    }
}

impl From<SocketError> for Trouble {
    fn from(e: SocketError) -> Self {
        Self::Socket(e)
    }
}

impl MemcachedCounts {
    /// Requests that failed; each once.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.timed_out + self.lost + self.refused + self.wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::{ConnectError, Failure};

    #[test]
    fn troubles_have_kinds_and_words() {
        for (trouble, kind) in [
            (Trouble::Connect(Failure::Refused.into()), ErrorKind::Refused),
            (Trouble::Connect(Failure::TimedOut.into()), ErrorKind::ConnectTimeout),
            (Trouble::Connect(ConnectError::NoPort.into()), ErrorKind::Local),
            (Trouble::Connect(ConnectError::NoRoute.into()), ErrorKind::Unreachable),
            (Trouble::Connect(SocketError::NoDescriptor), ErrorKind::Local),
            (Trouble::Socket(Failure::Reset.into()), ErrorKind::Reset),
            (Trouble::Socket(Failure::TimedOut.into()), ErrorKind::Timeout),
            (Trouble::Closed, ErrorKind::Closed),
            (Trouble::Malformed(Malformed::Line), ErrorKind::Malformed),
            (Trouble::Malformed(Malformed::LineTooLong), ErrorKind::TooLong),
            (Trouble::OutOfTurn("x"), ErrorKind::Malformed),
            (Trouble::Unasked("ERROR Too many open connections".into()), ErrorKind::Status),
            (Trouble::NoAnswer, ErrorKind::Timeout),
        ] {
            assert_eq!(trouble.kind(), kind, "{trouble:?}");
            assert!(!trouble.words().is_empty());
        }
    }
}
