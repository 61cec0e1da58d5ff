//! The PROXY protocol: a header in front of a connection that says between which ends it was before a relay had it.
//!
//! Read `proxy-protocol.txt` of HAProxy: [`v1`] is its section 2.1, a line of text; [`v2`] its section 2.2, binary, in network byte order. A
//! header that comes from a client is hostile: at most [`LONGEST`] bytes of it are held, each byte is looked at once it is there, and
//! nothing that is malformed is passed on. Addresses of sockets of Unix, and what follows the addresses, are skipped.

mod v1;
mod v2;

use std::net::SocketAddr;

/// Bytes of a header that is taken at most; of version 1 it has 107, of version 2 more only for what follows the addresses.
pub(super) const LONGEST: usize = 4096;

/// The version of a header that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    /// Who connected.
    pub(super) from: SocketAddr,
    /// To what.
    pub(super) to: SocketAddr,
}

/// A header that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The ends it tells; `None`: those of the connection itself count.
    pub(super) ends: Option<Ends>,
    /// Its length in bytes. The rest is the client's.
    pub(super) len: usize,
}

/// This is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The header in front of `bytes`; `None` if more of it is needed.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    match bytes.first() {
        None => Ok(None),
        Some(first) if *first == v2::SIGNATURE[0] => v2::parse(bytes),
        Some(_) => v1::parse(bytes),
    }
}

/// A header that tells these ends.
pub(super) fn header(version: Proxy, ends: &Ends) -> Vec<u8> {
    match version {
        Proxy::V1 => v1::header(ends),
        Proxy::V2 => v2::header(ends),
    }
}

/// A header that says that the connection is the relay's own.
pub(super) fn local(version: Proxy) -> Vec<u8> {
    match version {
        Proxy::V1 => v1::UNKNOWN.to_vec(),
        Proxy::V2 => v2::local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(from: &str, to: &str) -> Ends {
        Ends { from: from.parse().unwrap(), to: to.parse().unwrap() }
    }

    #[test]
    fn what_is_told_is_understood() {
        for told in [
            ends("192.0.2.1:65535", "198.51.100.2:1"),
            ends("[2001:db8::1]:1024", "[2001:db8::2]:443"),
            ends("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "[::1]:65535"),
        ] {
            for version in [Proxy::V1, Proxy::V2] {
                let mut bytes = header(version, &told);
                let len = bytes.len();
                assert!(len <= 107);
                for cut in 0..len {
                    assert_eq!(parse(&bytes[..cut]), Ok(None), "{version:?} of {cut} bytes");
                }
                bytes.extend(b"hello");
                assert_eq!(parse(&bytes), Ok(Some(Header { ends: Some(told), len })), "{version:?}");
            }
        }
        // Two families, as of an address mapped into the other: the ends cannot be told.
        let mixed = ends("192.0.2.1:1", "[::1]:2");
        assert_eq!(header(Proxy::V1, &mixed), b"PROXY UNKNOWN\r\n");
        for version in [Proxy::V1, Proxy::V2] {
            let bytes = header(version, &mixed);
            assert_eq!(parse(&bytes), Ok(Some(Header { ends: None, len: bytes.len() })));
        }
    }

    /// No byte makes it panic or ask for more than it holds.
    #[test]
    fn each_byte_may_be_any() {
        let told = ends("192.0.2.1:65535", "198.51.100.2:1");
        for version in [Proxy::V1, Proxy::V2] {
            let good = header(version, &told);
            for at in 0..good.len() {
                for value in 0..=255u8 {
                    let mut bytes = good.clone();
                    bytes[at] = value;
                    bytes.resize(LONGEST, b'x');
                    assert_ne!(parse(&bytes), Ok(None), "{version:?}: byte {at} is {value}");
                }
            }
        }
    }
}
