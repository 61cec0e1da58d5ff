//! The two ends of a connection, packed: very many streams stand idle, and a pair of [`SocketAddr`] takes 64 bytes.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Addresses and ports of a stream: 16 bytes. Those of IPv6, which take 56, stand aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ends {
    /// Of IPv4. Our end is all zeros if it is not known.
    V4 { local: Ipv4Addr, local_port: u16, remote_port: u16, remote: Ipv4Addr },
    /// Ours, if known, and the peer's.
    Wide(Box<(Option<SocketAddr>, SocketAddr)>),
}

/// Our end is not known yet.
const UNKNOWN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

impl Ends {
    /// Both ends, or the peer's alone.
    pub(super) fn new(local: Option<SocketAddr>, remote: SocketAddr) -> Self {
        let v4 = match (local, remote) {
            (None, SocketAddr::V4(remote)) => Some((UNKNOWN, remote)),
            (Some(SocketAddr::V4(local)), SocketAddr::V4(remote)) => Some((local, remote)),
            _ => None,
        };
        let Some((local, remote)) = v4 else { return Self::Wide(Box::new((local, remote))) };
        Self::V4 {
            local: *local.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
            remote: *remote.ip(),
        }
    }

    /// Our end, if known.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        match *self {
            Self::V4 { local, local_port, .. } => {
                let local = SocketAddrV4::new(local, local_port);
                (local != UNKNOWN).then(|| local.into())
            }
            Self::Wide(ref wide) => wide.0,
        }
    }

    /// The peer's.
    pub(super) fn remote(&self) -> SocketAddr {
        match *self {
            Self::V4 { remote, remote_port, .. } => (remote, remote_port).into(),
            Self::Wide(ref wide) => wide.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for (local, remote) in [
            ("10.0.0.1:80", "10.0.0.2:1024"),
            ("[fd00::1]:80", "[fe80::2%3]:65535"),
            ("[::ffff:10.0.0.1]:80", "[::ffff:10.0.0.2]:9"),
        ] {
            let [local, remote] = [local, remote].map(|at| at.parse::<SocketAddr>().expect("an address"));
            let ends = Ends::new(Some(local), remote);
            assert_eq!((ends.local(), ends.remote()), (Some(local), remote));
            let ends = Ends::new(None, remote);
            assert_eq!((ends.local(), ends.remote()), (None, remote));
        }
        assert_eq!(size_of::<Ends>(), 16);
    }

    /// Very many streams stand idle, each in a task that waits to read.
    #[test]
    fn a_stream_is_small_and_waiting_adds_little() {
        use crate::tcp::TcpStream;
        fn size<F: Future>(_: impl FnOnce(TcpStream) -> F) -> usize {
            size_of::<F>()
        }
        assert_eq!(size_of::<TcpStream>(), 48);
        let waiting = size(|stream| async move { stream.readable().await });
        assert!(waiting <= size_of::<TcpStream>() + 16, "{waiting}");
    }
}
