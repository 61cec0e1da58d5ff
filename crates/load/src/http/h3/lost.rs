//! Why a connection was lost: its kind for the figures, and in words.

use std::io;

use flowlane_http::h3::code;
use flowlane_http::quic::Lost;
use quinn_proto::ConnectionError;

use crate::http::way::HINT;
use crate::report::ErrorKind;

/// The alert that says that no protocol is common to both (RFC 7301 §3.2), as a code of QUIC.
const NO_PROTOCOL: u64 = 0x100 + 120;

/// Kind and words.
pub(super) fn in_words(lost: &Lost) -> (ErrorKind, String) {
    let hint = if lost.is_untrusted() { HINT } else { "" };
    match lost {
        Lost::Begin(_) => (ErrorKind::Tls, lost.to_string()),
        Lost::Socket(e) => {
            let kind = match ErrorKind::of_io(&io::Error::from(*e)) {
                ErrorKind::Timeout => ErrorKind::ConnectTimeout,
                kind => kind,
            };
            (kind, e.to_string())
        }
        Lost::Fault(_) | Lost::NoControl => (ErrorKind::Http3, lost.to_string()),
        _ if code_of(lost) == Some(NO_PROTOCOL) => {
            (ErrorKind::Tls, "the server speaks QUIC, but not HTTP/3".to_owned())
        }
        _ if lost.is_tls() => (ErrorKind::Tls, format!("{hint}{}", legible(lost))),
        Lost::Silent | Lost::Connection(ConnectionError::TimedOut) => {
            (ErrorKind::Timeout, "the server says nothing any longer".to_owned())
        }
        Lost::Connection(ConnectionError::Reset) => {
            (ErrorKind::Reset, "the server knows nothing of the connection (stateless reset)".to_owned())
        }
        Lost::Connection(ConnectionError::ApplicationClosed(close)) => {
            let close_code = u64::from(close.error_code);
            let kind =
                if close_code == u64::from(code::NO_ERROR) { ErrorKind::Closed } else { ErrorKind::Http3 };
            (kind, format!("the server closed the connection: code {close_code:#x}"))
        }
        _ => (ErrorKind::Http3, legible(lost)),
    }
}

/// Whether the server ended the connection without an error.
pub(super) fn is_end(lost: &Lost) -> bool {
    in_words(lost).0 == ErrorKind::Closed
}

/// The peer's words without what a terminal would take for orders.
fn legible(lost: &Lost) -> String {
    flowlane_sys::words::legible(&lost.to_string()).to_string()
}

fn code_of(lost: &Lost) -> Option<u64> {
    match lost {
        Lost::Connection(ConnectionError::TransportError(e)) => Some(e.code.into()),
        Lost::Connection(ConnectionError::ConnectionClosed(close)) => Some(close.error_code.into()),
        _ => None,
    }
}
