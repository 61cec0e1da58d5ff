//! The key of a datagram while its fragments arrive, and its sender's network.
//!
//! IPv4: source, destination, protocol and 16-bit identification (RFC 791 section 3.2). IPv6: source, destination and
//! 32-bit identification, no protocol (RFC 8200 section 4.5). Both are five words, so that comparing two keys is the
//! same straight line for either family.

use core::hash::{BuildHasher, Hasher};
use core::net::{Ipv4Addr, Ipv6Addr};

use foldhash::fast::FixedState;

use crate::wire::IpProtocol;

/// Bit of the last word: the key is of IPv6.
const V6: u64 = 1;
/// Sets the prefixes of IPv4 apart from those of IPv6, of which none that may send starts with `ff`.
const V4_PREFIX: u64 = 0xff << 56;

/// Names a datagram.
#[derive(Debug, Clone, Copy, Eq)]
pub struct Key {
    /// IPv4: source and destination in the first word, the next three zero.
    words: [u64; 4],
    /// Identification, protocol, family.
    rest: u64,
}

impl PartialEq for Key {
    /// Word by word: a key that was just made is in registers or in the store buffer, and wider loads of it would wait.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.words, other.words);
        self.rest == other.rest && a == e && b == f && c == g && d == h
    }
}

impl Key {
    /// A datagram over IPv4.
    #[inline]
    #[must_use]
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, identification: u16) -> Self {
        let addresses = u64::from(u32::from(src)) << 32 | u64::from(u32::from(dst));
        let rest = u64::from(identification) << 16 | u64::from(protocol.0) << 8;
        Self { words: [addresses, 0, 0, 0], rest }
    }

    /// A datagram over IPv6.
    #[inline]
    #[must_use]
    pub fn v6(src: Ipv6Addr, dst: Ipv6Addr, identification: u32) -> Self {
        let halves = |a: Ipv6Addr| [(u128::from(a) >> 64) as u64, u128::from(a) as u64];
        let ([a, b], [c, d]) = (halves(src), halves(dst));
        Self { words: [a, b, c, d], rest: u64::from(identification) << 16 | V6 }
    }

    /// Whether the datagram is of IPv6.
    #[inline]
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.rest & V6 != 0
    }

    #[inline]
    pub(super) fn hash(&self, hasher: &FixedState) -> u64 {
        let mut h = hasher.build_hasher();
        h.write_u64(self.words[0]);
        if self.is_v6() {
            for &word in &self.words[1..] {
                h.write_u64(word);
            }
        }
        h.write_u64(self.rest);
        h.finish()
    }

    /// The network that the sender is counted in: /24 for IPv4, /64 for IPv6.
    #[inline]
    pub(super) fn source(&self) -> u64 {
        if self.is_v6() { self.words[0] } else { V4_PREFIX | self.words[0] >> 40 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_tells_datagrams_apart() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let (c, d): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let e: Ipv6Addr = "fd01::2".parse().unwrap();
        let keys = [
            Key::v4(a, b, IpProtocol::UDP, 1),
            Key::v4(b, a, IpProtocol::UDP, 1),
            Key::v4(a, b, IpProtocol::TCP, 1),
            Key::v4(a, b, IpProtocol::UDP, 2),
            Key::v6(c, d, 1),
            Key::v6(d, c, 1),
            Key::v6(c, d, 1 << 16),
            Key::v6(c, e, 1),
            Key::v6(Ipv6Addr::from(0x0a00_0001_0a00_0002_u128 << 64), Ipv6Addr::UNSPECIFIED, 1),
        ];
        let hasher = FixedState::with_seed(7);
        for (i, x) in keys.iter().enumerate() {
            for (j, y) in keys.iter().enumerate() {
                assert_eq!(x == y, i == j);
                assert_eq!(x.hash(&hasher) == y.hash(&hasher), i == j, "{i} {j}");
            }
        }
    }

    #[test]
    fn sources_are_networks() {
        let v4 = |s: &str| Key::v4(s.parse().unwrap(), Ipv4Addr::BROADCAST, IpProtocol::UDP, 1).source();
        assert_eq!(v4("10.1.2.3"), v4("10.1.2.250"));
        assert_ne!(v4("10.1.2.3"), v4("10.1.3.3"));
        let v6 = |s: &str| Key::v6(s.parse().unwrap(), Ipv6Addr::LOCALHOST, 1).source();
        assert_eq!(v6("fd00:1:2:3::1"), v6("fd00:1:2:3:ffff::2"));
        assert_ne!(v6("fd00:1:2:3::1"), v6("fd00:1:2:4::1"));
        assert_ne!(v4("0.0.0.0"), v6("::"));
    }
}
