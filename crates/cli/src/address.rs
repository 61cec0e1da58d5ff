//! The values of `--addr`: one of our addresses with its prefix length, `10.11.2.2/24`.
//!
//! The prefix length tells which hosts are on the same network. Without it the network would be the address alone, and no host on the
//! link could be answered, so a link of ours requires it. Kernel sockets use the kernel's routes and need none.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use anyhow::{bail, ensure};
use flowlane::link::LinkSpec;
use flowlane::{Prefix, zone};
use flowlane_stack::address::PrefixError;
use flowlane_sys::netdev::Interface;

/// An address, with or without a prefix length; a link-local one for kernel sockets may have its zone: `fe80::1%eth0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    prefix: Prefix,
    alone: bool,
    zone: u32,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (zoned, len) = text.split_once('/').map_or((text, None), |(zoned, len)| (zoned, Some(len)));
        let (bare, zone) = match zoned.contains('%') {
            true => zone::parse_ip(zoned).map(|(ip, zone)| (ip.to_string(), zone))?,
            false => (zoned.to_owned(), 0),
        };
        let prefix = len.map_or_else(|| bare.clone(), |len| format!("{bare}/{len}"));
        let prefix = prefix.parse().map_err(|e: PrefixError| e.to_string())?;
        Ok(Self { prefix, alone: len.is_none(), zone })
    }
}

impl Address {
    /// The prefix; of an address without a length, one of full length.
    pub(crate) fn prefix(self) -> Prefix {
        self.prefix
    }

    /// The number of the interface that a link-local address was said to be on; 0 if none was.
    pub(crate) fn zone(self) -> u32 {
        self.zone
    }

    /// The prefix, if a length was given.
    pub(crate) fn with_network(self) -> Result<Prefix, String> {
        let address = self.prefix.address();
        if self.zone != 0 {
            return Err(format!(
                "{address}: leave out the zone behind '%': on a link of ours the link is the zone"
            ));
        }
        let usual = if address.is_ipv4() { 24 } else { 64 };
        if self.alone {
            return Err(format!(
                "{address}: the prefix length is missing: give {address}/{usual}, or the length that its network has"
            ));
        }
        Ok(self.prefix)
    }
}

/// The prefixes of addresses on a link of ours.
///
/// # Errors
/// An address without a prefix length.
pub(crate) fn on_link(addresses: &[Address]) -> anyhow::Result<Vec<Prefix>> {
    let networks = addresses.iter().map(|a| a.with_network());
    networks.collect::<Result<_, _>>().map_err(|why| anyhow::anyhow!("--addr {why}"))
}

/// Refuses a peer that kernel sockets cannot reach as it is given.
///
/// # Errors
/// A link-local address of IPv6 without its zone: it means nothing without the interface that it is on.
pub(crate) fn for_kernel(peer: SocketAddr) -> anyhow::Result<()> {
    ensure!(
        !zone::is_needed(peer.ip()) || zone::of(peer) != 0,
        "{0} is link-local: say on which interface it is, as {0}%eth0",
        peer.ip()
    );
    Ok(())
}

/// Refuses an address of this machine to which kernel sockets cannot be bound as it is given.
///
/// # Errors
/// A link-local address of IPv6 that the interface does not have, or that several have.
pub(crate) fn ours_for_kernel(ip: IpAddr, on: u32) -> anyhow::Result<()> {
    let IpAddr::V6(v6) = ip else { return Ok(()) };
    if !v6.is_unicast_link_local() {
        return Ok(());
    }
    let having = zone::having(v6);
    match having[..] {
        [_] if on == 0 => Ok(()),
        [] => bail!("{ip}: no interface of this machine has this address"),
        _ if on == 0 => bail!("{ip}: several interfaces have this address: say which, as {ip}%eth0"),
        _ if having.contains(&on) => Ok(()),
        _ => bail!("{}: the interface does not have this address", zoned(ip, on)),
    }
}

/// A peer as a link of ours reaches it: without its zone.
///
/// # Errors
/// The zone names another interface than the link's.
pub(crate) fn on_ours(link: &LinkSpec, peer: SocketAddr) -> anyhow::Result<SocketAddr> {
    let on = zone::of(peer);
    if on != 0 {
        let links = link.interface().and_then(|name| zone::number(name).ok());
        ensure!(
            links == Some(on),
            "{}: the zone is not the interface of {link}: leave it out",
            zone::show(peer)
        );
    }
    Ok(SocketAddr::new(peer.ip(), peer.port()))
}

/// An address with its zone by name.
fn zoned(ip: IpAddr, on: u32) -> String {
    Interface::numbered(on).map_or_else(|| ip.to_string(), |interface| format!("{ip}%{}", interface.name()))
}

/// Refuses the number behind an address, or alone, that is no port.
///
/// # Errors
/// In one line what a port is.
pub(crate) fn port_of(text: &str) -> Result<(), String> {
    let port = text.rsplit_once(':').map_or(text, |(_, port)| port);
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    // Behind the last colon of an address of IPv6 alone stands no port.
    // Guard: `is_number && port.parse::<u16>().is_err()` as `false` fails address::tests::a_number_that_is_no_port
    if is_number && port.parse::<u16>().is_err() {
        return Err(format!("{port} is no port: it is a number from 1 to 65535"));
    }
    Ok(())
}

/// Where to listen for those who watch: an address with its port, or a port of the loopback address.
pub(crate) fn listening(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    port_of(text)?;
    if text.contains('%') {
        return zone::parse(text);
    }
    text.parse().map_err(|_| "give an address and a port, such as 127.0.0.1:9464".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_port_is_named() {
        for text in ["10.0.0.1:70000", "[fd00::1]:65536", "name:99999999999999999999", "70000"] {
            assert!(port_of(text).unwrap_err().ends_with("is a number from 1 to 65535"), "{text}");
        }
        for text in ["10.0.0.1:80", "fd00::1", "[fe80::1%eth0]:65535", "name", "80", "fd00::8000", ""] {
            assert_eq!(port_of(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_link_needs_the_network_and_the_kernel_does_not() {
        for (text, mend) in [("10.0.0.1", "10.0.0.1/24"), ("fd00::1", "fd00::1/64")] {
            let alone: Address = text.parse().unwrap();
            assert_eq!(alone.prefix().address().to_string(), text);
            let said = on_link(&[alone]).unwrap_err().to_string();
            assert!(said.contains(mend) && !said.contains('\n'), "{said}");
            let with_network = |text: &str| text.parse::<Address>().unwrap().with_network();
            assert!(with_network(text).is_err());
            let whole =
                format!("{text}/128").replace("1/128", if text.contains(':') { "1/128" } else { "1/32" });
            assert!(with_network(&whole).is_ok(), "an address alone on purpose: {whole}");
            assert_eq!(with_network(mend).unwrap(), mend.parse().unwrap());
        }
        assert!("10.0.0.1/33".parse::<Address>().unwrap_err().contains("33"));
    }

    #[test]
    fn a_link_local_address_needs_its_zone_on_kernel_sockets_and_has_none_on_ours() {
        let lo = zone::number("lo").unwrap();
        let ours: Address = "fe80::1%lo/64".parse().unwrap();
        assert_eq!((ours.zone(), ours.prefix()), (lo, "fe80::1/64".parse().unwrap()));
        assert!(ours.with_network().unwrap_err().contains("leave out the zone"));
        assert!("fe80::1%nosuch0".parse::<Address>().unwrap_err().contains("nosuch0"));
        let peer = |text| zone::parse(text).unwrap();
        assert!(for_kernel(peer("[fe80::1]:7")).unwrap_err().to_string().contains("fe80::1%eth0"));
        for fine in ["[fe80::1%lo]:7", "[fd00::1]:7", "10.0.0.1:7"] {
            for_kernel(peer(fine)).unwrap();
        }
        let link: LinkSpec = "af-packet:lo".parse().unwrap();
        assert_eq!(on_ours(&link, peer("[fe80::1%lo]:7")).unwrap(), peer("[fe80::1]:7"));
        assert_eq!(on_ours(&link, peer("[fe80::1]:7")).unwrap(), peer("[fe80::1]:7"));
        let other: LinkSpec = "af-packet:nosuch0".parse().unwrap();
        let said = on_ours(&other, peer("[fe80::1%lo]:7")).unwrap_err().to_string();
        assert!(said.contains("fe80::1%lo") && !said.contains('\n'), "{said}");
        // Nobody has it: the loopback interface has no link-local address.
        let said = ours_for_kernel("fe80::dead:beef".parse().unwrap(), lo).unwrap_err().to_string();
        assert!(said.contains("fe80::dead:beef"), "{said}");
        ours_for_kernel("fd00::1".parse().unwrap(), 0).unwrap();
    }
}
