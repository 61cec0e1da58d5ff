//! Addresses: prefixes, ranges of addresses, and endpoints.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::str::FromStr;

/// An address with a prefix length: `10.11.2.1/24` is the address and names its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// Why a text is no prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixError {
    /// Not an IPv4 or IPv6 address.
    Address(String),
    /// The length is no number or too large for the family.
    Length(String),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(s) => write!(f, "'{s}' is not an IPv4 or IPv6 address"),
            Self::Length(s) => {
                write!(f, "'{s}' is not a prefix length (0 to 32 for IPv4, 0 to 128 for IPv6)")
            }
        }
    }
}

impl core::error::Error for PrefixError {}

impl Prefix {
    /// IPv6 addresses that mean something on one link only (RFC 4291 section 2.5.6).
    pub const LINK_LOCAL: Self =
        Self { address: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), len: 10 };

    /// `address`/`len`; `None` if `len` is too large for the family.
    #[must_use]
    pub const fn new(address: IpAddr, len: u8) -> Option<Self> {
        let max = if address.is_ipv4() { 32 } else { 128 };
        if len > max { None } else { Some(Self { address, len }) }
    }

    /// The single address.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        Self { address, len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The address as given, host bits included.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Length in bits.
    #[must_use]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// The same prefix with its host bits zero.
    #[must_use]
    pub fn network(self) -> Self {
        self.nth(0).map_or(self, |address| Self { address, len: self.len })
    }

    /// Whether the prefix covers a whole family.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bits of host part.
    const fn host_bits(&self) -> u32 {
        (if self.address.is_ipv4() { 32 } else { 128 }) - self.len as u32
    }

    /// First and last address as numbers.
    #[must_use]
    pub fn range(&self) -> (u128, u128) {
        let host = 1u128.checked_shl(self.host_bits()).map_or(u128::MAX, |n| n - 1);
        let first = number(self.address) & !host;
        (first, first | host)
    }

    /// Whether `address` is of this family and network.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let host = 32 - u32::from(self.len);
                (u64::from(u32::from(a) ^ u32::from(b)) >> host) == 0
            }
            (IpAddr::V6(_), IpAddr::V6(_)) => {
                let (first, last) = self.range();
                (first..=last).contains(&number(address))
            }
            _ => false,
        }
    }

    /// The directed broadcast address of an IPv4 network (RFC 919); none for /31 (RFC 3021), /32 and IPv6.
    #[must_use]
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(a) if self.len < 31 => {
                Some(Ipv4Addr::from(u32::from(a) | (u32::MAX.checked_shr(self.len.into()).unwrap_or(0))))
            }
            _ => None,
        }
    }

    /// Number of addresses, at most `u128::MAX`.
    #[must_use]
    pub fn count(&self) -> u128 {
        let (first, last) = self.range();
        (last - first).saturating_add(1)
    }

    /// Address number `index` of the network, counted from its first.
    #[must_use]
    pub fn nth(&self, index: u128) -> Option<IpAddr> {
        let (first, last) = self.range();
        let n = first.checked_add(index).filter(|n| *n <= last)?;
        Some(address(n, self.address.is_ipv4()))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// `ADDRESS/LENGTH`, or an address alone for that one address.
    fn from_str(s: &str) -> Result<Self, PrefixError> {
        let (address, len) = s.split_once('/').map_or((s, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Address(address.to_owned()))?;
        let Some(len) = len else { return Ok(Self::host(address)) };
        len.parse()
            .ok()
            .and_then(|n| Self::new(address, n))
            .ok_or_else(|| PrefixError::Length(len.to_owned()))
    }
}

/// The address as a number, IPv4 in the low 32 bits.
#[must_use]
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

/// The address of that number.
fn address(number: u128, ipv4: bool) -> IpAddr {
    if ipv4 { IpAddr::V4(Ipv4Addr::from(number as u32)) } else { IpAddr::V6(Ipv6Addr::from(number)) }
}

/// A set of addresses as sorted, disjoint ranges: membership in logarithmic time of the number of ranges configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl AddressSet {
    /// The union of some prefixes, whole networks each.
    #[must_use]
    pub fn new(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let mut set = Self::default();
        for p in prefixes {
            let (first, last) = p.range();
            if p.address.is_ipv4() {
                set.v4.push((first as u32, last as u32));
            } else {
                set.v6.push((first, last));
            }
        }
        merge(&mut set.v4);
        merge(&mut set.v6);
        set
    }

    /// This set and some prefixes more.
    #[must_use]
    pub fn with(&self, prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let mut set = Self::new(prefixes);
        set.v4.extend(&self.v4);
        set.v6.extend(&self.v6);
        merge(&mut set.v4);
        merge(&mut set.v6);
        set
    }

    /// Whether the set holds this IPv4 address.
    #[inline]
    #[must_use]
    pub fn contains_v4(&self, address: u32) -> bool {
        within(&self.v4, address)
    }

    /// Whether the set holds `address`.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => within(&self.v4, u32::from(a)),
            IpAddr::V6(a) => within(&self.v6, u128::from(a)),
        }
    }
}

fn merge<T: Ord + Copy>(ranges: &mut Vec<(T, T)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| {
        let overlaps = next.0 <= kept.1;
        if overlaps {
            kept.1 = kept.1.max(next.1);
        }
        overlaps
    });
}

#[inline(always)]
fn within<T: Ord + Copy>(ranges: &[(T, T)], n: T) -> bool {
    // Nearly all that are asked for are before the first or behind the last.
    match ranges {
        [] => false,
        [first, ..] if n <= first.1 => n >= first.0,
        [.., last] if n >= last.0 => n <= last.1,
        [_, _] => false,
        _ => within_some(ranges, n),
    }
}

fn within_some<T: Ord + Copy>(ranges: &[(T, T)], n: T) -> bool {
    let i = ranges.partition_point(|r| r.0 <= n);
    i > 0 && n <= ranges[i - 1].1
}

/// An address and a port, smaller than a `SocketAddr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub ip: IpAddr,
    /// The port, host byte order.
    pub port: u16,
    /// The zone of a link-local IPv6 address (RFC 4007): the number of the kernel's interface that it is on, for sockets of the kernel. 0
    /// elsewhere: no packet has one.
    pub zone: u32,
}

impl Endpoint {
    /// An endpoint.
    #[must_use]
    pub const fn new(ip: IpAddr, port: u16) -> Self {
        Self { ip, port, zone: 0 }
    }

    /// As a packet has it: without a zone.
    #[must_use]
    pub const fn without_zone(self) -> Self {
        Self { zone: 0, ..self }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(a: SocketAddr) -> Self {
        let zone = match a {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(v6) => v6.scope_id(),
        };
        Self { ip: a.ip(), port: a.port(), zone }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(e: Endpoint) -> Self {
        match e.ip {
            IpAddr::V4(ip) => Self::V4(SocketAddrV4::new(ip, e.port)),
            IpAddr::V6(ip) => Self::V6(SocketAddrV6::new(ip, e.port, 0, e.zone)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> Prefix {
        s.parse().unwrap()
    }

    #[test]
    fn prefixes_parse_and_print() {
        assert_eq!(p("10.11.2.1/24").to_string(), "10.11.2.1/24");
        assert_eq!(p("fd00::1").to_string(), "fd00::1/128");
        for bad in
            ["", "10.0.0.1/33", "fd00::/129", "10.0.0/8", "10.0.0.0/-1", "host/24", "1.2.3.4/", "1.2.3.4/x"]
        {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_endpoint_keeps_its_zone_and_has_none_in_a_packet() {
        for text in ["10.0.0.1:7", "[fd00::1]:7", "[fe80::1%3]:7"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(SocketAddr::from(Endpoint::from(address)), address);
            assert_eq!(Endpoint::from(address).to_string(), text);
            assert_eq!(Endpoint::from(address).without_zone(), Endpoint::new(address.ip(), 7));
        }
        assert!(size_of::<Endpoint>() <= 24);
    }

    #[test]
    fn membership_and_broadcast() {
        assert!(p("10.11.2.1/24").contains("10.11.2.255".parse().unwrap()));
        assert!(!p("10.11.2.1/24").contains("10.11.3.0".parse().unwrap()));
        assert!(p("0.0.0.0/0").contains("255.255.255.255".parse().unwrap()));
        assert!(!p("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(p("::/0").contains("ffff::".parse().unwrap()));
        assert!(p("fd00::/64").contains("fd00::ffff:ffff:ffff:ffff".parse().unwrap()));
        assert!(!p("fd00::/64").contains("fd00:0:0:1::".parse().unwrap()));
        assert_eq!(p("10.11.2.1/24").broadcast(), Some("10.11.2.255".parse().unwrap()));
        assert_eq!(p("10.0.0.0/0").broadcast(), Some(Ipv4Addr::BROADCAST));
        assert_eq!(p("10.11.2.1/31").broadcast(), None);
        assert_eq!(p("10.0.0.0/8").count(), 1 << 24);
        assert_eq!(p("::/0").count(), u128::MAX);
        assert_eq!(p("10.1.2.3/30").nth(3), Some("10.1.2.3".parse().unwrap()));
        assert_eq!(p("10.1.2.3/30").nth(4), None);
    }

    #[test]
    fn sets_hold_the_union_of_their_prefixes() {
        let prefixes = ["10.0.0.0/24", "10.0.0.128/25", "10.0.2.0/23", "192.168.1.7", "fd00::/64", "fd01::5"];
        let prefixes: Vec<_> = prefixes.iter().map(|s| p(s)).collect();
        let set = AddressSet::new(prefixes.iter().copied());
        let mut rng = crate::rng::Rng::new(1);
        for _ in 0..20_000 {
            let base = prefixes[rng.below(6) as usize];
            let near = number(base.address()).wrapping_add(u128::from(rng.below(2048))).wrapping_sub(1024);
            let a = address(near, base.address().is_ipv4());
            assert_eq!(set.contains(a), prefixes.iter().any(|q| q.contains(a)), "{a}");
        }
        assert!(!AddressSet::default().contains("0.0.0.0".parse().unwrap()));
    }
}
