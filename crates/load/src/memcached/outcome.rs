//! How each request and each connection ended.

use flowlane_memcached::client::Malformed;
use flowlane_memcached::map::MapError;

use crate::report::ErrorKind;
use crate::run::outcome::{Outcome, counts};
use crate::run::staying;

counts! {
    /// Counts of a lane, or of a run.
    ///
    /// Every request ends in exactly one way: answered, timed out, lost with its connection, or unfinished.
    MemcachedCounts;
    /// Requests sent: gets and sets, those that fill not included.
    requests,
    /// Of them, answered, whatever the answer.
    answered,
    /// Of them, without an answer within the timeout.
    timed_out,
    /// Of them, in flight on a connection that ended.
    lost,
    /// Of them, in flight when the run was stopped.
    unfinished,
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
pub(super) type Trouble = staying::Trouble<Fault>;

/// Ways to end that only connections to a memcached have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No answer can be read of this.
    Malformed(Malformed, String),
    /// What was said is an answer, but none to what was asked.
    OutOfTurn(&'static str),
    /// An error that no request waited for, such as that there are too many connections.
    Unasked(String),
    /// The server has no lanes, of which it is to tell.
    NoLanes(MapError),
    /// So many lanes, and fewer connections: their keys would not be asked for.
    ManyLanes(usize),
}

impl staying::Fault for Fault {
    const CLOSED: &'static str = "the far side closed the connection";

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(Malformed::LineTooLong, _) => ErrorKind::TooLong,
            Self::Malformed(..) | Self::OutOfTurn(_) | Self::NoLanes(_) => ErrorKind::Malformed,
            Self::ManyLanes(_) => ErrorKind::Local,
            Self::Unasked(_) => ErrorKind::Status,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Malformed(why, came) => format!("{}: {came}", why.words()),
            Self::OutOfTurn(why) => (*why).into(),
            Self::Unasked(line) => line.clone(),
            Self::NoLanes(why) => format!("--by-lane: {why}"),
            Self::ManyLanes(n) => {
                format!("--by-lane: the server has {n} lanes: at least as many --connections")
            }
        }
    }

    fn is_said(&self) -> bool {
        matches!(self, Self::Malformed(..) | Self::OutOfTurn(_) | Self::Unasked(_))
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Own(fault)
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

    #[test]
    fn troubles_have_kinds_and_words() {
        for (fault, kind) in [
            (Fault::Malformed(Malformed::Line, "x".into()), ErrorKind::Malformed),
            (Fault::Malformed(Malformed::LineTooLong, "x".into()), ErrorKind::TooLong),
            (Fault::OutOfTurn("x"), ErrorKind::Malformed),
            (Fault::Unasked("ERROR Too many open connections".into()), ErrorKind::Status),
            (Fault::ManyLanes(64), ErrorKind::Local),
        ] {
            let trouble = Trouble::from(fault);
            assert_eq!(trouble.kind(), kind, "{trouble:?}");
            assert!(!trouble.words().is_empty());
        }
    }
}
