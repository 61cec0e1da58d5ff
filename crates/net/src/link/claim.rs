//! Claims: the packets that a link takes from an interface shared with the kernel.

use std::net::IpAddr;

use flowlane_sys::bpf::claim::Tags;

/// A set of prefixes. Packets to an address in one of them go to the link, and so do requests (ARP, neighbour solicitation) for such an
/// address; all others stay with the kernel.
///
/// Broadcast addresses and multicast groups must be claimed like other addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    frames: bool,
    tags: Tags,
    prefixes: Vec<(IpAddr, u8)>,
}

impl Claim {
    /// Nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Every IP packet, of either family.
    #[must_use]
    pub fn everything() -> Self {
        Self::none().prefix(IpAddr::from([0; 4]), 0).prefix(IpAddr::from([0; 16]), 0)
    }

    /// Every frame, whatever it carries, as a switch needs it. The interface is promiscuous while the link is open, and the kernel's own
    /// stack receives nothing on it any more.
    #[must_use]
    pub fn every_frame() -> Self {
        Self { frames: true, ..Self::default() }
    }

    pub(super) fn is_every_frame(&self) -> bool {
        self.frames
    }

    /// And this address.
    #[must_use]
    pub fn address(self, address: IpAddr) -> Self {
        let whole = if address.is_ipv4() { 32 } else { 128 };
        self.prefix(address, whole)
    }

    /// And every address that begins with the first `len` bits of `address`.
    #[must_use]
    pub fn prefix(mut self, address: IpAddr, len: u8) -> Self {
        self.prefixes.push((address, len));
        self
    }

    /// Only packets with the tag of this VLAN, 1 to 4094; `None`: only those without tag. A claim that does not say takes either. Packets
    /// with two tags, or with one of 802.1ad, are left to the kernel in any case.
    #[must_use]
    pub fn on_vlan(mut self, vlan: Option<u16>) -> Self {
        self.tags = vlan.map_or(Tags::Untagged, Tags::Vlan);
        self
    }

    pub(super) fn tags(&self) -> Tags {
        self.tags
    }

    /// The prefixes, in the order they were claimed.
    #[must_use]
    pub fn prefixes(&self) -> &[(IpAddr, u8)] {
        &self.prefixes
    }
}
