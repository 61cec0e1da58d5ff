//! Opening a card's filters for our addresses: the card's filters have the kernel's addresses and VLANs, not ours.
//!
//! A packet socket may join groups or promiscuous mode (packet(7), `PACKET_ADD_MEMBERSHIP`). The kernel undoes it when the socket is
//! closed, however the process ends. No privilege is needed once the socket is open, so groups can be joined later.
//!
//! Joined groups are: all IPv6 nodes and all IPv4 hosts; the solicited-node group of each claimed IPv6 address (RFC 4291 section 2.7.1),
//! without which neighbours cannot resolve it; claimed multicast groups. A wide claimed prefix has more solicited-node groups than a card
//! can filter; then all multicast is received. There is no such request for VLAN filters: a card learns a VLAN from a VLAN interface of
//! the kernel. Without one, the card is made promiscuous.

use super::{set_option, socket};
use crate::bpf::claim::Tags;
use crate::error::{Error, Result};
use crate::netdev::Interface;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

/// Most addresses of a prefix whose solicited-node groups are joined one by one.
const FEW: u32 = 64;

/// Groups that a card lets through for a link, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Memberships {
    socket: OwnedFd,
    index: i32,
    promiscuous: bool,
    everybody: Vec<IpAddr>,
}

impl Memberships {
    /// Asks for what packets of these claims need.
    ///
    /// # Errors
    /// No packet socket is to be had. A card that cannot filter for more groups is asked for all of them; one that refuses that,
    /// too, is left as it is.
    pub(crate) fn new(
        interface: &Interface,
        claims: &[(IpAddr, u8)],
        tags: Tags,
        filters_vlans: Option<bool>,
    ) -> Result<Self> {
        let mut this = Self {
            socket: socket()?,
            index: interface.index() as i32,
            promiscuous: false,
            everybody: Vec::new(),
        };
        let mut groups = Vec::new();
        let mut all = false;
        for &(address, len) in claims {
            let everybody = match address {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)),
            };
            if !this.everybody.contains(&everybody) {
                this.everybody.push(everybody);
                groups.push(ethernet_group(everybody));
            }
            match address {
                _ if address.is_multicast() => groups.push(ethernet_group(address)),
                IpAddr::V6(a) if 128 - u32::from(len.min(128)) <= FEW.ilog2() => {
                    let count = 1u128 << (128 - u32::from(len));
                    let first = u128::from(a) & !(count - 1);
                    groups.extend((0..count).map(|n| ethernet_group(solicited(Ipv6Addr::from(first + n)))));
                }
                IpAddr::V6(_) => all = true,
                IpAddr::V4(_) => {}
            }
        }
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            all |= this.ask(libc::PACKET_MR_MULTICAST, Some(group)).is_err();
        }
        if all {
            let _ = this.ask(libc::PACKET_MR_ALLMULTI, None);
        }
        if let Tags::Vlan(vid) = tags {
            if filters_vlans.unwrap_or_else(|| interface.filters_vlans()) && !has_vlan(interface, vid) {
                this.everything(interface)?;
            }
        }
        Ok(this)
    }

    /// Asks for frames to every address.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn everything(&mut self, interface: &Interface) -> Result<()> {
        self.ask(libc::PACKET_MR_PROMISC, None).map_err(|e| {
            Error::from_io(e, format!("{}: promiscuous mode", interface.name()), "CAP_NET_RAW")
        })?;
        self.promiscuous = true;
        Ok(())
    }

    /// The groups that every host of the claimed families is in.
    pub(crate) fn of_everybody(&self) -> impl Iterator<Item = IpAddr> {
        self.everybody.iter().copied()
    }

    /// Whether the card was made promiscuous, the only way to open its VLAN filter.
    pub(crate) fn is_promiscuous(&self) -> bool {
        self.promiscuous
    }

    /// Asks for a multicast group more, until the link closes; for a unicast address, for the group by which it is found.
    pub(crate) fn join(&self, address: IpAddr) -> io::Result<()> {
        let group = match address {
            _ if address.is_multicast() => address,
            IpAddr::V4(_) => return Ok(()),
            IpAddr::V6(address) => solicited(address),
        };
        self.ask(libc::PACKET_MR_MULTICAST, Some(ethernet_group(group)))
            .or_else(|_| self.ask(libc::PACKET_MR_ALLMULTI, None))
    }

    fn ask(&self, kind: i32, address: Option<[u8; 6]>) -> io::Result<()> {
        let mut request = libc::packet_mreq {
            mr_ifindex: self.index,
            mr_type: kind as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        if let Some(address) = address {
            request.mr_alen = 6;
            request.mr_address[..6].copy_from_slice(&address);
        }
        set_option(self.socket.as_fd(), libc::PACKET_ADD_MEMBERSHIP, &request)
    }
}

/// The solicited-node group of an address (RFC 4291 section 2.7.1).
fn solicited(address: Ipv6Addr) -> IpAddr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low))
}

/// The Ethernet address of a multicast group (RFC 1112 section 6.4, RFC 2464 section 7).
fn ethernet_group(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(a) => {
            let [_, b, c, d] = a.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(a) => {
            let [.., w, x, y, z] = a.octets();
            [0x33, 0x33, w, x, y, z]
        }
    }
}

/// Whether the kernel has an interface of this VLAN on `interface`, so that the card lets it through.
fn has_vlan(interface: &Interface, vid: u16) -> bool {
    // "eth0.5         | 5  | eth0"
    let all = std::fs::read_to_string("/proc/thread-self/net/vlan/config").unwrap_or_default();
    all.lines().any(|line| {
        let mut parts = line.split('|').skip(1).map(str::trim);
        parts.next().and_then(|v| v.parse().ok()) == Some(vid) && parts.next() == Some(interface.name())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_ethernet_addresses_of_their_rfcs() {
        let group = |text: &str| ethernet_group(text.parse().unwrap());
        assert_eq!(group("224.0.0.1"), [0x01, 0, 0x5e, 0, 0, 1]);
        assert_eq!(group("239.129.2.3"), [0x01, 0, 0x5e, 1, 2, 3], "23 bits of the address");
        assert_eq!(group("ff02::1"), [0x33, 0x33, 0, 0, 0, 1]);
        // The example of RFC 4291 section 2.7.1.
        let node = solicited("4037::1:800:200e:8c6c".parse().unwrap());
        assert_eq!(node, "ff02::1:ff0e:8c6c".parse::<IpAddr>().unwrap());
        assert_eq!(ethernet_group(node), [0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]);
    }
}
