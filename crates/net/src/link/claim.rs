//! What a link takes from an interface that it shares with the kernel.

use std::net::IpAddr;

/// A set of prefixes. Packets to an address in one of them are the link's, and so are the questions (ARP, neighbour
/// solicitation) for such an address; everything else stays with the kernel.
///
/// Broadcast addresses and multicast groups are claimed like other addresses: they are nobody's by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
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

    /// The prefixes, in the order they were claimed.
    #[must_use]
    pub fn prefixes(&self) -> &[(IpAddr, u8)] {
        &self.prefixes
    }
}
