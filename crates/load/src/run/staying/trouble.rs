//! How a connection ended that should not have.

use std::fmt::Debug;
use std::io;

use flowlane::{Failure, SocketError};

use crate::report::ErrorKind;

/// How a connection ended that should not have; `F`: what only this kind of connection has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble<F> {
    /// While connecting.
    Connect(SocketError),
    /// It failed.
    Socket(ErrorKind, String),
    /// The far side ended the stream.
    Closed,
    /// What was sent had no answer within the timeout.
    NoAnswer,
    /// The run was stopped: what was in flight has neither failed nor been answered.
    Stopped,
    /// In a way of its own.
    Own(F),
}

/// Ways to end that only one kind of connection has.
pub trait Fault: Debug + PartialEq + Send {
    /// That the far side ended the stream, in words.
    const CLOSED: &'static str;
    /// What kind of error it is in a report.
    fn kind(&self) -> ErrorKind;
    /// In words.
    fn words(&self) -> String;
    /// Whether the far side has said something wrong: that is an error even if nothing was in flight.
    fn is_said(&self) -> bool;
}

impl<F: Fault> Trouble<F> {
    /// What kind of error it is in a report.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(e) => match of_socket(*e) {
                ErrorKind::Timeout => ErrorKind::ConnectTimeout,
                ErrorKind::Other => ErrorKind::Local,
                kind => kind,
            },
            Self::Socket(kind, _) => *kind,
            Self::Closed => ErrorKind::Closed,
            Self::NoAnswer | Self::Stopped => ErrorKind::Timeout,
            Self::Own(fault) => fault.kind(),
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Connect(e) => format!("connecting: {e}"),
            Self::Socket(_, why) => why.clone(),
            Self::Closed => F::CLOSED.into(),
            Self::NoAnswer => "no answer within the timeout".into(),
            Self::Stopped => "still on its way when the run was stopped".into(),
            Self::Own(fault) => fault.words(),
        }
    }

    /// Whether the target said that nobody listens.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Connect(SocketError::Connection(Failure::Refused)))
    }
}

fn of_socket(error: SocketError) -> ErrorKind {
    if error == SocketError::NoDescriptor {
        ErrorKind::Local
    } else {
        ErrorKind::of_io(&io::Error::from(error))
    }
}

impl<F> From<SocketError> for Trouble<F> {
    fn from(e: SocketError) -> Self {
        Self::Socket(of_socket(e), e.to_string())
    }
}

impl<F> From<io::Error> for Trouble<F> {
    fn from(e: io::Error) -> Self {
        Self::Socket(ErrorKind::of_io(&e), e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::ConnectError;

    #[derive(Debug, PartialEq)]
    struct Never;

    impl Fault for Never {
        const CLOSED: &'static str = "closed";

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }

        fn words(&self) -> String {
            "never".into()
        }

        fn is_said(&self) -> bool {
            false
        }
    }

    #[test]
    fn troubles_have_kinds_and_words() {
        for (trouble, kind) in [
            (Trouble::Connect(Failure::Refused.into()), ErrorKind::Refused),
            (Trouble::Connect(Failure::TimedOut.into()), ErrorKind::ConnectTimeout),
            (Trouble::Connect(ConnectError::NoPort.into()), ErrorKind::Local),
            (Trouble::Connect(ConnectError::NoRoute.into()), ErrorKind::Unreachable),
            (Trouble::Connect(SocketError::NoDescriptor), ErrorKind::Local),
            (SocketError::from(Failure::Reset).into(), ErrorKind::Reset),
            (SocketError::from(Failure::TimedOut).into(), ErrorKind::Timeout),
            (io::Error::from(io::ErrorKind::ConnectionReset).into(), ErrorKind::Reset),
            (Trouble::Closed, ErrorKind::Closed),
            (Trouble::NoAnswer, ErrorKind::Timeout),
            (Trouble::Stopped, ErrorKind::Timeout),
            (Trouble::Own(Never), ErrorKind::Other),
        ] {
            assert_eq!(trouble.kind(), kind, "{trouble:?}");
            assert!(!trouble.words().is_empty());
            assert_eq!(trouble.is_refusal(), kind == ErrorKind::Refused);
        }
    }
}
