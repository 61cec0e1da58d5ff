//! How each message and each connection ended.

use flowlane_http::ws::Fault as BadFrame;
use flowlane_http::ws::handshake::NoAnswer;

use crate::report::ErrorKind;
use crate::run::outcome::{Outcome, counts};
use crate::run::staying;

counts! {
    /// Counts of a lane, or of a run.
    ///
    /// Every message ends in exactly one way: answered, timed out, lost with its connection, or unfinished.
    WsCounts;
    /// Messages sent.
    messages,
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
    /// Answers that are not the message that was sent.
    wrong,
    /// Answers that came in fragments.
    fragmented,
    /// Answers that came compressed.
    deflated,
    /// Messages for which no message of ours waited.
    unasked,
    /// Pings of the server, answered.
    pings,
    /// Messages due and not sent, since the generator did not keep up, no connection was free, or it was stopped.
    unsent,
    /// Times that a due message waited for a connection.
    held_up,
    /// WebSockets opened, those of before the run included.
    connected,
    /// WebSockets that could not be opened, likewise.
    not_connected,
    /// Of those, refused by the target.
    connections_refused,
    /// Of those, that failed after the connection stood: TLS, or the opening handshake.
    handshakes_failed,
    /// WebSockets whose server agreed to compressed messages.
    deflating,
    /// WebSockets that ended before the run did.
    broken,
    /// Of those, closed by the server with a close frame.
    closed_by_server,
    /// WebSockets that ended with a close frame of both sides, ours first.
    closed,
    /// WebSockets whose close frame the server did not answer.
    unclosed,
    /// Bytes written to sockets in the run.
    bytes_written,
    /// Bytes read from sockets in the run.
    bytes_read,
}

/// Result of a run.
pub type WsOutcome = Outcome<WsCounts>;

/// Why a connection did not become a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOpened {
    /// TLS, in its words.
    Tls(String),
    /// The connection failed.
    Lost(ErrorKind, String),
    /// The server closed before it answered.
    Closed,
    /// It did not answer in time.
    TooLate,
    /// What it said is no answer of HTTP/1.
    NotHttp(String),
    /// Its answer opens no WebSocket.
    Answer(NoAnswer),
}

impl NotOpened {
    /// Its name in a report, for its count.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Tls(_) => "handshake-tls",
            Self::Lost(..) | Self::Closed => "handshake-closed",
            Self::TooLate => "handshake-timeout",
            Self::NotHttp(_) => "handshake-not-http",
            Self::Answer(NoAnswer::Status(_)) => "handshake-status",
            Self::Answer(NoAnswer::Upgrade) => "handshake-no-upgrade",
            Self::Answer(NoAnswer::Accept) => "handshake-bad-accept",
            Self::Answer(NoAnswer::Unasked) => "handshake-unasked",
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Tls(_) => ErrorKind::Tls,
            Self::Lost(kind, _) => *kind,
            Self::Closed => ErrorKind::Closed,
            Self::TooLate => ErrorKind::Timeout,
            Self::Answer(NoAnswer::Status(_)) => ErrorKind::Status,
            Self::NotHttp(_) | Self::Answer(_) => ErrorKind::Malformed,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Tls(why) => why.clone(),
            Self::Lost(_, why) => format!("opening handshake: {why}"),
            Self::Closed => "the server closed before it answered the opening handshake".into(),
            Self::TooLate => "no answer to the opening handshake within the timeout".into(),
            Self::NotHttp(why) => format!("the answer to the opening handshake is no HTTP/1: {why}"),
            Self::Answer(NoAnswer::Status(status)) => {
                format!("the answer to the opening handshake is {status}, not 101: is this path a WebSocket?")
            }
            Self::Answer(NoAnswer::Upgrade) => "the answer 101 does not change to WebSocket".into(),
            Self::Answer(NoAnswer::Accept) => {
                "Sec-WebSocket-Accept of the answer does not belong to the key that was sent".into()
            }
            Self::Answer(NoAnswer::Unasked) => {
                "the answer wants an extension or a subprotocol that was not asked for".into()
            }
        }
    }
}

/// How far a connection's end is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    No,
    /// Our close frame is on its way.
    Told,
    /// The server's has come; its end of the stream follows (RFC 6455 §7.1.1).
    Said,
}

/// How a connection ended that should not have.
pub(super) type Trouble = staying::Trouble<Fault>;

/// Ways to end that only WebSockets have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// While it became a WebSocket.
    Opening(NotOpened),
    /// The far side closed, with this code.
    CloseFrame(Option<u16>),
    /// The far side's frames are wrong.
    Frame(BadFrame),
}

impl staying::Fault for Fault {
    const CLOSED: &'static str = "the server ended the connection without a close frame";

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Opening(why) => why.kind(),
            Self::CloseFrame(_) => ErrorKind::Closed,
            Self::Frame(BadFrame::TooLong) => ErrorKind::TooLong,
            Self::Frame(_) => ErrorKind::Malformed,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Opening(why) => why.words(),
            Self::CloseFrame(Some(code)) => format!("the server closed with code {code}"),
            Self::CloseFrame(None) => "the server closed without a code".into(),
            Self::Frame(fault) => format!("the server sent {}", fault.words()),
        }
    }

    fn is_said(&self) -> bool {
        matches!(self, Self::Frame(_))
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Own(fault)
    }
}

impl WsCounts {
    /// Messages that failed; each once.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.timed_out + self.lost + self.wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_have_kinds_and_words() {
        let answer = |why| Fault::Opening(NotOpened::Answer(why));
        for (fault, kind) in [
            (Fault::Opening(NotOpened::Tls("x".into())), ErrorKind::Tls),
            (Fault::Opening(NotOpened::Lost(ErrorKind::Reset, "x".into())), ErrorKind::Reset),
            (Fault::Opening(NotOpened::Closed), ErrorKind::Closed),
            (Fault::Opening(NotOpened::TooLate), ErrorKind::Timeout),
            (Fault::Opening(NotOpened::NotHttp("x".into())), ErrorKind::Malformed),
            (answer(NoAnswer::Status(403)), ErrorKind::Status),
            (answer(NoAnswer::Upgrade), ErrorKind::Malformed),
            (answer(NoAnswer::Accept), ErrorKind::Malformed),
            (answer(NoAnswer::Unasked), ErrorKind::Malformed),
            (Fault::CloseFrame(Some(1011)), ErrorKind::Closed),
            (Fault::CloseFrame(None), ErrorKind::Closed),
            (Fault::Frame(BadFrame::Masked), ErrorKind::Malformed),
            (Fault::Frame(BadFrame::TooLong), ErrorKind::TooLong),
        ] {
            let trouble = Trouble::from(fault);
            assert_eq!(trouble.kind(), kind, "{trouble:?}");
            assert!(!trouble.words().is_empty());
        }
    }
}
