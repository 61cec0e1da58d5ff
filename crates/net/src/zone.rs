//! Zones of link-local IPv6 addresses: `fe80::1%eth0` (RFC 4007 §11, RFC 9844).
//!
//! Every link has its own fe80::1, so an address of this kind means nothing without the interface that it is on. Sockets of the kernel are
//! told which by its number, which a [`SocketAddr`] and an [`Endpoint`](crate::Endpoint) carry; people write its name. Packets have no zones,
//! so a host on a link of ours needs none: there the link is the zone.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use flowlane_sys::netdev::Interface;

/// Where the kernel lists the IPv6 addresses of this machine.
const ADDRESSES: &str = "/proc/thread-self/net/if_inet6";

/// Whether an address means nothing without its zone.
#[must_use]
pub fn is_needed(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local() || is_link_local_group(ip))
}

fn is_link_local_group(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xff0f == 0xff02
}

/// Parses an address with or without a zone, which is an interface's name or number: `10.0.0.1`, `fe80::1%eth0`. The number is 0 without one.
///
/// # Errors
/// Why it is none, in one line.
pub fn parse_ip(text: &str) -> Result<(IpAddr, u32), String> {
    let (bare, zone) = text.split_once('%').map_or((text, None), |(bare, zone)| (bare, Some(zone)));
    let ip: IpAddr = bare.parse().map_err(|_| format!("'{bare}' is no address"))?;
    let Some(zone) = zone else { return Ok((ip, 0)) };
    if !is_needed(ip) {
        return Err(format!("'{text}': only link-local addresses of IPv6 (fe80::) have a zone: give {ip}"));
    }
    Ok((ip, number(zone)?))
}

/// Parses an address and a port, with or without a zone: `10.0.0.1:80`, `[fe80::1%eth0]:80`.
///
/// # Errors
/// Why it is none, in one line: no interface has the zone's name, or the address is written otherwise.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let zoned =
        text.strip_prefix('[').and_then(|rest| rest.split_once("]:")).filter(|(ip, _)| ip.contains('%'));
    let Some((ip, port)) = zoned else {
        return text
            .parse()
            .map_err(|_| "give an address and a port, such as 10.0.0.2:80 or [fd00::2]:80".into());
    };
    let port = port.parse().map_err(|_| format!("'{port}' is not a port number"))?;
    let (ip, zone) = parse_ip(ip)?;
    Ok(with(ip, port, zone))
}

/// The number of the interface that a zone names.
///
/// # Errors
/// No interface has this name or number, in one line.
pub fn number(zone: &str) -> Result<u32, String> {
    let interface = match zone.parse() {
        Ok(number) => Interface::numbered(number),
        Err(_) => Interface::find(zone).ok(),
    };
    let found = interface.map(|interface| interface.index());
    found
        .ok_or_else(|| format!("no interface is called '{zone}', the zone behind '%' ('ip link' lists them)"))
}

/// An address and a port in a zone; 0 for none.
#[must_use]
pub fn with(ip: IpAddr, port: u16, zone: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, zone).into(),
        IpAddr::V4(_) => SocketAddr::new(ip, port),
    }
}

/// The zone of an address; 0 for none.
#[must_use]
pub fn of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

/// An address of ours in the zone that it needs to be bound to: `zone`, if that is known, or that of the one interface that has it.
pub(crate) fn ours(ip: IpAddr, port: u16, zone: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if is_needed(ip) && zone == 0 => {
            with(ip, port, if let [one] = having(v6)[..] { one } else { 0 })
        }
        IpAddr::V6(_) if is_needed(ip) => with(ip, port, zone),
        _ => SocketAddr::new(ip, port),
    }
}

/// The interfaces of this machine that have an address.
#[must_use]
pub fn having(ip: Ipv6Addr) -> Vec<u32> {
    zones_of(&fs::read_to_string(ADDRESSES).unwrap_or_default(), ip)
}

/// In the kernel's list each line has an address, the number of its interface, and more, in hexadecimal.
fn zones_of(list: &str, ip: Ipv6Addr) -> Vec<u32> {
    let wanted = format!("{:032x}", ip.to_bits());
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let found = words.next()? == wanted;
        found.then(|| u32::from_str_radix(words.next()?, 16).ok()).flatten()
    };
    list.lines().filter_map(line).collect()
}

/// An address and a port as people write them, the zone by its name.
#[must_use]
pub fn show(address: SocketAddr) -> impl fmt::Display {
    let name = match of(address) {
        0 => None,
        zone => Interface::numbered(zone),
    };
    match name {
        Some(interface) => format!("[{}%{}]:{}", address.ip(), interface.name(), address.port()),
        None => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_names_and_numbers_of_interfaces() {
        let lo = Interface::find("lo").unwrap().index();
        for text in ["[fe80::1%lo]:80".to_owned(), format!("[fe80::1%{lo}]:80")] {
            let address = parse(&text).unwrap();
            assert_eq!((of(address), address.port()), (lo, 80), "{text}");
            assert_eq!(show(address).to_string(), "[fe80::1%lo]:80");
        }
        assert_eq!(parse_ip("fe80::1%lo"), Ok(("fe80::1".parse().unwrap(), lo)));
        assert_eq!(parse_ip("ff02::1%lo").map(|(_, zone)| zone), Ok(lo));
        for text in ["10.0.0.1:80", "[fd00::1]:80", "[fe80::1]:80"] {
            let address = parse(text).unwrap();
            assert_eq!((of(address), show(address).to_string()), (0, text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_zone_is_said_in_a_line() {
        for (text, why) in [
            ("[fe80::1%nosuch0]:80", "nosuch0"),
            ("[fe80::1%]:80", "no interface"),
            ("[fe80::1%999999]:80", "999999"),
            ("[fd00::1%lo]:80", "give fd00::1"),
            ("[10.0.0.1%lo]:80", "give 10.0.0.1"),
            ("[fe80::1%lo]:99999", "port"),
            ("[fe80::1%lo]", "address and a port"),
            ("fe80::1%lo:80", "address and a port"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(why) && !said.contains('\n'), "{text}: {said}");
        }
    }

    #[test]
    fn our_own_address_is_in_the_zone_of_the_interface_that_has_it() {
        let list = "fe800000000000000000000000000001 02 40 20 80     eth0\n\
                    fe800000000000000000000000000002 03 40 20 80     eth1\n\
                    fe800000000000000000000000000002 1f 40 20 80     eth2\n";
        let zones = |ip: &str| zones_of(list, ip.parse().unwrap());
        assert_eq!(zones("fe80::1"), [2]);
        assert_eq!(zones("fe80::2"), [3, 31]);
        assert!(zones("fe80::3").is_empty());
        // What needs no zone gets none, and one that is known stays.
        assert_eq!(ours("fd00::1".parse().unwrap(), 7, 5), "[fd00::1]:7".parse().unwrap());
        assert_eq!(ours("10.0.0.1".parse().unwrap(), 7, 5), "10.0.0.1:7".parse().unwrap());
        assert_eq!(ours("fe80::1".parse().unwrap(), 7, 5), "[fe80::1%5]:7".parse().unwrap());
    }
}
