//! The two ends of a connection, packed: very many streams stand idle, and a pair of [`SocketAddr`] takes 64 bytes.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Addresses and ports of a stream: 41 bytes. Both ends are of one family; IPv4 addresses take the first four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: u16,
    remote_port: u16,
    /// The peer's zone, as kernel sockets have them for link-local addresses.
    scope: [u8; 4],
    v4: bool,
}

/// Our end is not known yet.
const UNKNOWN: u16 = 0;

fn bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96).to_be_bytes(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Ends {
    /// Both ends, or the peer's alone.
    pub(super) fn new(local: Option<SocketAddr>, remote: SocketAddr) -> Self {
        let scope = match remote {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(v6) => v6.scope_id(),
        };
        Self {
            local: local.map_or([0; 16], |at| bytes(at.ip())),
            remote: bytes(remote.ip()),
            local_port: local.map_or(UNKNOWN, |at| at.port()),
            remote_port: remote.port(),
            scope: scope.to_ne_bytes(),
            v4: remote.is_ipv4(),
        }
    }

    fn unpacked(&self, ip: [u8; 16], port: u16, scope: u32) -> SocketAddr {
        if let (true, [a, b, c, d, ..]) = (self.v4, ip) {
            return ([a, b, c, d], port).into();
        }
        SocketAddrV6::new(ip.into(), port, 0, scope).into()
    }

    /// Our end, if known.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        (self.local_port != UNKNOWN).then(|| self.unpacked(self.local, self.local_port, 0))
    }

    /// The peer's.
    pub(super) fn remote(&self) -> SocketAddr {
        self.unpacked(self.remote, self.remote_port, u32::from_ne_bytes(self.scope))
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
        assert!(size_of::<Ends>() <= 42);
    }

    /// Very many streams stand idle, each in a task that waits to read.
    #[test]
    fn a_stream_is_small_and_waiting_adds_little() {
        use crate::tcp::TcpStream;
        fn size<F: Future>(_: impl FnOnce(TcpStream) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size_of::<TcpStream>() <= 72);
        let waiting = size(|stream| async move { stream.readable().await });
        assert!(waiting <= size_of::<TcpStream>() + 24, "{waiting}");
    }
}
