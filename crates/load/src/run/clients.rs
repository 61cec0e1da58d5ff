//! Ranges of client addresses: `10.1.0.0/16`, `10.1.0.5-10.1.0.90`, `fd00:1::/64`, or one address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use flowlane::Prefix;
use flowlane_stack::address::number;

/// Addresses from the first to the last, of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientRange {
    first: u128,
    last: u128,
    ipv4: bool,
    /// The network, if the range was given as one.
    network: Option<Prefix>,
}

/// Why a text is not a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': {what}")]
pub struct BadRange {
    text: String,
    what: String,
}

impl FromStr for ClientRange {
    type Err = BadRange;

    fn from_str(text: &str) -> Result<Self, BadRange> {
        let bad = |what: String| BadRange { text: text.to_owned(), what };
        if let Some((first, last)) = text.split_once('-') {
            let parse = |s: &str| s.trim().parse::<IpAddr>().map_err(|_| bad(format!("'{s}' is no address")));
            let (first, last) = (parse(first)?, parse(last)?);
            if first.is_ipv4() != last.is_ipv4() {
                return Err(bad("both ends must be of one family".into()));
            }
            if number(first) > number(last) {
                return Err(bad("the first address comes after the last".into()));
            }
            return Ok(Self {
                first: number(first),
                last: number(last),
                ipv4: first.is_ipv4(),
                network: None,
            });
        }
        let prefix: Prefix =
            text.trim().parse().map_err(|e: flowlane_stack::address::PrefixError| bad(e.to_string()))?;
        Ok(Self::within(&prefix))
    }
}

impl From<IpAddr> for ClientRange {
    fn from(address: IpAddr) -> Self {
        Self { first: number(address), last: number(address), ipv4: address.is_ipv4(), network: None }
    }
}

impl ClientRange {
    /// The host addresses of a network: without the network and broadcast addresses of IPv4, and without the first address of IPv6, which
    /// is the subnet-router anycast address (RFC 4291 §2.6.1).
    #[must_use]
    pub fn within(prefix: &Prefix) -> Self {
        let (first, last) = prefix.range();
        let ipv4 = prefix.address().is_ipv4();
        let hosts = match (ipv4, last - first) {
            (_, 0 | 1) => (first, last),
            (true, _) => (first + 1, last - 1),
            (false, _) => (first + 1, last),
        };
        Self { first: hosts.0, last: hosts.1, ipv4, network: Some(*prefix) }
    }

    /// Whether the addresses are IPv4.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.ipv4
    }

    /// Number of addresses.
    #[must_use]
    pub fn count(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Address number `index`, modulo the number of addresses.
    #[must_use]
    pub fn nth(&self, index: u128) -> IpAddr {
        self.address(self.first + index % self.count())
    }

    /// `count` of its addresses, from number `from` on.
    #[must_use]
    pub(crate) fn slice(&self, from: u128, count: u128) -> Self {
        let first = self.first.saturating_add(from).min(self.last);
        let last = first.saturating_add(count.saturating_sub(1)).min(self.last);
        let network = self.network.filter(|_| first == self.first && last == self.last);
        Self { first, last, ipv4: self.ipv4, network }
    }

    /// Whether `address` is in the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.ipv4 && (self.first..=self.last).contains(&number(address))
    }

    /// Whether all its addresses are in `prefix`.
    #[must_use]
    pub fn is_within(&self, prefix: &Prefix) -> bool {
        prefix.contains(self.address(self.first)) && prefix.contains(self.address(self.last))
    }

    /// The networks to claim for the range: the network it was given as, or the fewest networks that cover it exactly.
    #[must_use]
    pub fn prefixes(&self) -> Vec<Prefix> {
        // The cost of a lookup grows with the number of claims: a whole network is one claim, without its ends it would be a dozen.
        if let Some(network) = self.network {
            return vec![network];
        }
        let bits: u8 = if self.ipv4 { 32 } else { 128 };
        let mut prefixes = Vec::new();
        let mut at = self.first;
        loop {
            // The largest network that begins here and does not pass the end.
            let mut host = (at.trailing_zeros() as u8).min(bits);
            while host > 0 && (host == 128 || at + ((1u128 << host) - 1) > self.last) {
                host -= 1;
            }
            if let Some(prefix) = Prefix::new(self.address(at), bits - host) {
                prefixes.push(prefix);
            }
            match at.checked_add(1u128 << host) {
                Some(next) if next <= self.last => at = next,
                _ => return prefixes,
            }
        }
    }

    fn address(&self, number: u128) -> IpAddr {
        if self.ipv4 { Ipv4Addr::from(number as u32).into() } else { Ipv6Addr::from(number).into() }
    }
}

impl std::fmt::Display for ClientRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = (self.address(self.first), self.address(self.last));
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> ClientRange {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_are_understood() {
        assert_eq!(range("10.1.0.0/24").to_string(), "10.1.0.1-10.1.0.254");
        assert_eq!(range("10.1.0.0/31").count(), 2);
        assert_eq!(range("10.1.0.7").count(), 1);
        assert_eq!(range("10.1.0.5-10.1.0.9").nth(6).to_string(), "10.1.0.6");
        assert_eq!(range("fd00:1::/64").count(), (1 << 64) - 1);
        assert!(range("10.1.0.0/24").is_within(&"10.0.0.0/8".parse().unwrap()));
        assert!(!range("10.1.0.0/24").is_within(&"10.1.0.0/25".parse().unwrap()));
        for bad in ["", "10.0.0.9-10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.0/40", "a-b", "10.0.0.1-"] {
            assert!(bad.parse::<ClientRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn prefixes_are_exactly_the_range() {
        for (text, expected) in [
            ("10.0.0.1-10.0.0.6", "10.0.0.1/32 10.0.0.2/31 10.0.0.4/31 10.0.0.6/32"),
            ("10.0.0.0-10.0.1.255", "10.0.0.0/23"),
            ("255.255.255.254-255.255.255.255", "255.255.255.254/31"),
            ("0.0.0.0-255.255.255.255", "0.0.0.0/0"),
            ("fd00::1", "fd00::1/128"),
            ("10.77.128.0/17", "10.77.128.0/17"),
            ("fd00:1::/64", "fd00:1::/64"),
        ] {
            let prefixes: Vec<String> = range(text).prefixes().iter().map(ToString::to_string).collect();
            assert_eq!(prefixes.join(" "), expected, "{text}");
        }
    }
}
