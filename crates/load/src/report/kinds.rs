//! Kinds of errors of a request or connection: a closed list, so that counting needs no allocation.

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum ErrorKind {
    /// The target's name has no address.
    Resolve,
    /// The target refused the connection.
    Refused,
    /// The target cannot be reached.
    Unreachable,
    /// The connection was not established in time.
    ConnectTimeout,
    /// The target ended the connection with a reset.
    Reset,
    /// The target closed the connection before the answer was complete.
    Closed,
    /// The answer was not complete in time.
    Timeout,
    /// The answer violates the protocol.
    Malformed,
    /// An answer's head or body is longer than the limit.
    TooLong,
    /// The TLS handshake failed: certificate, version, alert.
    Tls,
    /// A proxy has opened no way to the target: it refused, wants a login, or speaks otherwise.
    Proxy,
    /// HTTP/2: the stream or the connection ended with an error code.
    Http2,
    /// HTTP/3: the stream or the connection ended with an error code.
    Http3,
    /// A request was redirected more often than allowed: in a loop, for one.
    RedirectLimit,
    /// A redirect leads to a host that was not asked for.
    RedirectAway,
    /// The answer's status is not an expected one.
    Status,
    /// The answer's length is not the expected one.
    Length,
    /// The answer's content fails a check: digest or substring.
    Content,
    /// The answer has not what is to be captured from it.
    Capture,
    /// The answer is no stream of events, or one that ended early.
    Events,
    /// A call of gRPC has another status than 0, or an answer that is none.
    Grpc,
    /// Never answered.
    Lost,
    /// Answered, damaged.
    Corrupt,
    /// A resource of this machine is exhausted: descriptors, ports, memory.
    Local,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// All of them, in order.
    pub const ALL: [Self; 25] = [
        Self::Resolve,
        Self::Refused,
        Self::Unreachable,
        Self::ConnectTimeout,
        Self::Reset,
        Self::Closed,
        Self::Timeout,
        Self::Malformed,
        Self::TooLong,
        Self::Tls,
        Self::Proxy,
        Self::Http2,
        Self::Http3,
        Self::RedirectLimit,
        Self::RedirectAway,
        Self::Status,
        Self::Length,
        Self::Content,
        Self::Capture,
        Self::Events,
        Self::Grpc,
        Self::Lost,
        Self::Corrupt,
        Self::Local,
        Self::Other,
    ];

    /// Those of an answer that is complete and wrong: the request counts as answered as well.
    pub const OF_ANSWERS: [Self; 6] =
        [Self::Status, Self::Length, Self::Content, Self::Capture, Self::Events, Self::Grpc];

    /// Its name in reports and thresholds.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::ConnectTimeout => "connect-timeout",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::TooLong => "too-long",
            Self::Tls => "tls",
            Self::Proxy => "proxy",
            Self::Http2 => "http2",
            Self::Http3 => "http3",
            Self::RedirectLimit => "redirect-limit",
            Self::RedirectAway => "redirect-away",
            Self::Status => "status",
            Self::Length => "length",
            Self::Content => "content",
            Self::Capture => "capture",
            Self::Events => "events",
            Self::Grpc => "grpc",
            Self::Lost => "lost",
            Self::Corrupt => "corrupt",
            Self::Local => "local",
            Self::Other => "other",
        }
    }

    /// The kind of an error of the operating system or of a socket.
    #[must_use]
    pub fn of_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        // After the handshake, too: a server that wants another certificate says so then (RFC 8446 §6.2).
        if error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>) {
            return Self::Tls;
        }
        match error.kind() {
            Io::ConnectionRefused => Self::Refused,
            Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe => Self::Reset,
            Io::UnexpectedEof | Io::NotConnected => Self::Closed,
            Io::TimedOut => Self::Timeout,
            // A Unix socket whose file is gone is not there, either.
            Io::HostUnreachable | Io::NetworkUnreachable | Io::NetworkDown | Io::NotFound => {
                Self::Unreachable
            }
            Io::InvalidData => Self::Malformed,
            Io::AddrInUse | Io::AddrNotAvailable | Io::OutOfMemory | Io::PermissionDenied => Self::Local,
            // EMFILE and ENFILE, which have no kind of their own.
            _ if matches!(error.raw_os_error(), Some(24 | 23)) => Self::Local,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_in_their_places_and_have_names_of_their_own() {
        let mut names = std::collections::BTreeSet::new();
        for (i, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i);
            assert!(names.insert(kind.name()));
        }
    }

    #[test]
    fn errors_of_the_system_have_kinds() {
        for (code, kind) in [
            (111, ErrorKind::Refused),
            (104, ErrorKind::Reset),
            (32, ErrorKind::Reset),
            (110, ErrorKind::Timeout),
            (113, ErrorKind::Unreachable),
            (101, ErrorKind::Unreachable),
            (24, ErrorKind::Local),
            (99, ErrorKind::Local),
            (5, ErrorKind::Other),
        ] {
            assert_eq!(ErrorKind::of_io(&std::io::Error::from_raw_os_error(code)), kind, "{code}");
        }
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        let alert = std::io::Error::new(std::io::ErrorKind::InvalidData, alert);
        assert_eq!(ErrorKind::of_io(&alert), ErrorKind::Tls);
    }
}
