//! Addresses made of prefixes that routers advertise (RFC 4862 section 5.5), with interface identifiers of the Ethernet address or opaque
//! ones (RFC 7217).
//!
//! The lane of bucket 0 makes them, whichever lane heard the router, and gives them to all. An address is deprecated at the end of its
//! preferred lifetime, which puts it behind the others as a source, and taken at the end of its valid one. A router that is believed in
//! nothing else cannot shorten a valid lifetime below two hours (section 5.5.3 e). An opaque identifier that somebody else has is
//! followed by another, three times (RFC 7217 section 6). Temporary addresses (RFC 8981) are not made.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use super::{Ip, RouterNews, Slaac};
use crate::address::Prefix;
use crate::packet::Cx;
use crate::rng::{Keyed, Rng};
use crate::time::Time;
use crate::wire::MacAddr;

/// Addresses made, of all interfaces.
const ADDRESSES: usize = 8;
/// A valid lifetime is not made shorter than this by a message that nobody has signed.
const TWO_HOURS: u64 = 7200;
/// Identifiers that are tried for a prefix (`IDGEN_RETRIES` after the first).
const IDENTIFIERS: u8 = 4;
/// Bits of an interface identifier on Ethernet, and so of a prefix (RFC 2464 section 4).
const IDENTIFIER: u8 = 64;

/// An address that was made.
#[derive(Debug, Clone, Copy)]
struct Made {
    interface: u8,
    prefix: Prefix,
    address: Ipv6Addr,
    valid: Time,
    preferred: Time,
    deprecated: bool,
    /// How many identifiers somebody else had (`DAD_Counter`).
    taken: u8,
}

/// The addresses that the host has made itself.
#[derive(Debug, Default)]
pub(super) struct Autoconf {
    made: Vec<Made>,
}

impl Autoconf {
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let next = |m: &Made| if m.deprecated { m.valid } else { m.preferred.min(m.valid) };
        self.made.iter().map(next).filter(|at| *at != Time::MAX).min()
    }
}

/// The end of a lifetime in seconds; all ones means none.
fn until(now: Time, lifetime: u32) -> Time {
    if lifetime == u32::MAX { Time::MAX } else { now + Duration::from_secs(lifetime.into()) }
}

/// The address under a prefix; `None` where none is to be made.
fn address(how: Slaac, prefix: Prefix, mac: MacAddr, taken: u8) -> Option<Ipv6Addr> {
    let IpAddr::V6(network) = prefix.network().address() else { return None };
    let network = u128::from(network);
    let identifier = match how {
        Slaac::Off => return None,
        Slaac::Eui64 if taken > 0 => return None,
        Slaac::Eui64 => u128::from(mac.link_local()) as u64,
        Slaac::Stable([a, b]) => {
            let mut what = network.to_be_bytes().to_vec();
            what.extend(mac.0);
            what.push(taken);
            let identifier = Keyed::new(a, b).hash(&what);
            // Subnet-router anycast, and what RFC 5453 reserves, is nobody's.
            if identifier == 0 || identifier >= 0xfdff_ffff_ffff_ff80 {
                identifier ^ 1 << 32 ^ 1 << 63
            } else {
                identifier
            }
        }
    };
    Some(Ipv6Addr::from(network | u128::from(identifier)))
}

impl Ip {
    /// Makes addresses of an advertisement's prefixes, and renews those that were made.
    pub(super) fn slaac_learn(&mut self, now: Time, news: &RouterNews, rng: &mut Rng) {
        if !self.speaks || self.config.slaac == Slaac::Off {
            return;
        }
        for (prefix, valid, preferred) in news.autonomous.iter().flatten().copied() {
            if prefix.len() != IDENTIFIER || preferred > valid {
                continue;
            }
            let known = |m: &&mut Made| (m.interface, m.prefix) == (news.interface, prefix);
            if let Some(made) = self.slaac.made.iter_mut().find(known) {
                let left = made.valid.saturating_duration_since(now).as_secs();
                // Guard: `u64::from(valid) > TWO_HOURS || u64::from(valid) > left` as `true` fails
                // lane/addresses::an_address_of_an_advertised_prefix
                if u64::from(valid) > TWO_HOURS || u64::from(valid) > left {
                    made.valid = until(now, valid);
                } else if left > TWO_HOURS {
                    made.valid = now + Duration::from_secs(TWO_HOURS);
                }
                made.preferred = until(now, preferred);
                made.deprecated &= preferred == 0;
                let (address, until) =
                    (Prefix::host(IpAddr::V6(made.address)), (made.deprecated, made.valid));
                self.give_address(now, rng, news.interface, address, until);
            } else if valid > 0 && self.slaac.made.len() < ADDRESSES {
                self.make(now, (news.interface, prefix), (valid, preferred), 0, rng);
            }
        }
    }

    fn make(
        &mut self,
        now: Time,
        (interface, prefix): (u8, Prefix),
        (valid, preferred): (u32, u32),
        taken: u8,
        rng: &mut Rng,
    ) {
        let made = Made {
            interface,
            prefix,
            address: Ipv6Addr::UNSPECIFIED,
            valid: until(now, valid),
            preferred: until(now, preferred),
            deprecated: false,
            taken,
        };
        self.put_made(now, made, rng);
    }

    /// Gives the host an address with the identifier whose turn it is.
    fn put_made(&mut self, now: Time, made: Made, rng: &mut Rng) {
        let Some(mac) = self.interfaces.get(usize::from(made.interface)).map(|i| i.config.mac) else {
            return;
        };
        let Some(address) = address(self.config.slaac, made.prefix, mac, made.taken) else { return };
        // Whether the network is on the link says the router apart from this.
        self.give_address(
            now,
            rng,
            made.interface,
            Prefix::host(IpAddr::V6(address)),
            (made.deprecated, made.valid),
        );
        self.slaac.made.push(Made { address, ..made });
    }

    /// Somebody else has an address: if it was made here, another takes its place.
    pub(super) fn slaac_duplicate(&mut self, now: Time, interface: u8, address: IpAddr, rng: &mut Rng) {
        let is = |m: &Made| m.interface == interface && IpAddr::V6(m.address) == address;
        let Some(at) = self.slaac.made.iter().position(is) else { return };
        let made = self.slaac.made.swap_remove(at);
        if made.taken + 1 < IDENTIFIERS {
            self.put_made(now, Made { taken: made.taken + 1, ..made }, rng);
        }
    }

    /// Lifetimes that end.
    pub(super) fn slaac_due(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        while let Some(at) = self.slaac.made.iter().position(|m| m.valid <= now) {
            let made = self.slaac.made.swap_remove(at);
            self.take_address(now, made.interface, IpAddr::V6(made.address));
        }
        let ends = |m: &mut Made| !m.deprecated && m.preferred <= now;
        let mut deprecated = Vec::new();
        for made in self.slaac.made.iter_mut().filter_map(|m| ends(m).then_some(m)) {
            made.deprecated = true;
            deprecated.push((made.interface, made.address, made.valid));
        }
        for (interface, address, valid) in deprecated {
            self.give_address(now, cx.rng, interface, Prefix::host(IpAddr::V6(address)), (true, valid));
        }
    }
}
