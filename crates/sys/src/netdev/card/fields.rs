//! Kinds of flows as drivers tell them apart, and which fields of their packets go into the hash.
//!
//! There is no kind for fragments: cards hash them as `ip4` or `ip6`, on addresses.

use super::ethtool::{Ethtool, long};
use super::{Told, Untold};
use std::io;

const GET_FIELDS: u32 = 0x29;
const SET_FIELDS: u32 = 0x2a;
/// In the number of a flow's kind: a context's fields are meant.
const OF_CONTEXT: u32 = 0x2000_0000;

/// Bytes up to the word with the context's number, in `struct ethtool_rxnfc`.
pub(super) const CONTEXT_AT: usize = 184;
/// Words of `struct ethtool_rxnfc`.
pub(super) const RXNFC_WORDS: usize = 48;

/// A kind of flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowKind {
    /// TCP over IPv4.
    Tcp4,
    /// UDP over IPv4.
    Udp4,
    /// SCTP over IPv4.
    Sctp4,
    /// Everything else over IPv4, and fragments.
    Ip4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv6.
    Udp6,
    /// SCTP over IPv6.
    Sctp6,
    /// Everything else over IPv6, and fragments.
    Ip6,
    /// IPsec's authentication header over IPv4.
    Ah4,
    /// IPsec's payload over IPv4.
    Esp4,
    /// IPsec's authentication header over IPv6.
    Ah6,
    /// IPsec's payload over IPv6.
    Esp6,
}

impl FlowKind {
    /// Every kind, the usual ones of IPv4 first.
    pub const ALL: [Self; 12] = [
        Self::Tcp4,
        Self::Udp4,
        Self::Sctp4,
        Self::Ip4,
        Self::Tcp6,
        Self::Udp6,
        Self::Sctp6,
        Self::Ip6,
        Self::Ah4,
        Self::Esp4,
        Self::Ah6,
        Self::Esp6,
    ];

    /// Its name in `ethtool -n IFACE rx-flow-hash NAME`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp4 => "tcp4",
            Self::Udp4 => "udp4",
            Self::Sctp4 => "sctp4",
            Self::Ip4 => "ip4",
            Self::Tcp6 => "tcp6",
            Self::Udp6 => "udp6",
            Self::Sctp6 => "sctp6",
            Self::Ip6 => "ip6",
            Self::Ah4 => "ah4",
            Self::Esp4 => "esp4",
            Self::Ah6 => "ah6",
            Self::Esp6 => "esp6",
        }
    }

    /// The kind of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// `*_FLOW` of linux/ethtool.h.
    fn number(self) -> u32 {
        match self {
            Self::Tcp4 => 0x01,
            Self::Udp4 => 0x02,
            Self::Sctp4 => 0x03,
            Self::Tcp6 => 0x05,
            Self::Udp6 => 0x06,
            Self::Sctp6 => 0x07,
            Self::Ah4 => 0x09,
            Self::Esp4 => 0x0a,
            Self::Ah6 => 0x0b,
            Self::Esp6 => 0x0c,
            Self::Ip4 => 0x10,
            Self::Ip6 => 0x11,
        }
    }

    /// `ETHTOOL_A_FLOW_*` of linux/ethtool_netlink_generated.h.
    pub(super) fn attribute(self) -> u16 {
        match self {
            Self::Ip4 => 2,
            Self::Ip6 => 3,
            Self::Tcp4 => 4,
            Self::Tcp6 => 5,
            Self::Udp4 => 6,
            Self::Udp6 => 7,
            Self::Sctp4 => 8,
            Self::Sctp6 => 9,
            Self::Ah4 => 10,
            Self::Ah6 => 11,
            Self::Esp4 => 12,
            Self::Esp6 => 13,
        }
    }
}

impl std::fmt::Display for FlowKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of fields: the bits `RXH_*` of linux/ethtool.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields(pub u64);

impl Fields {
    /// None: such packets are not hashed.
    pub const NONE: Self = Self(0);
    /// Source and destination address.
    pub const ADDRESSES: Self = Self(1 << 4 | 1 << 5);
    /// Addresses and ports.
    pub const FOUR: Self = Self(Self::ADDRESSES.0 | 1 << 6 | 1 << 7);

    /// Bits and their words; the letters of `ethtool -N` are m v t s d f n, and e, l for the last.
    const WORDS: [(u64, &'static str); 10] = [
        (1 << 1, "destination MAC"),
        (1 << 2, "VLAN"),
        (1 << 3, "protocol"),
        (1 << 4, "source address"),
        (1 << 5, "destination address"),
        (1 << 6, "source port"),
        (1 << 7, "destination port"),
        (1 << 8, "GTP tunnel"),
        (1 << 9, "flow label"),
        (1 << 31, "discarded"),
    ];

    /// Whether all of these fields are in the set.
    #[must_use]
    pub fn contains(self, fields: Self) -> bool {
        self.0 & fields.0 == fields.0
    }
}

impl std::fmt::Display for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::NONE => return f.write_str("nothing"),
            Self::ADDRESSES => return f.write_str("addresses"),
            Self::FOUR => return f.write_str("addresses, ports"),
            _ => {}
        }
        let mut rest = self.0;
        let mut words: Vec<String> = Vec::new();
        for (bit, word) in Self::WORDS {
            if rest & bit != 0 {
                words.push(word.to_owned());
                rest &= !bit;
            }
        }
        if rest != 0 {
            words.push(format!("fields {rest:#x}"));
        }
        f.write_str(&words.join(", "))
    }
}

impl Ethtool {
    /// The fields of a kind of flow, in context 0 or another one.
    pub(super) fn fields(&self, kind: FlowKind, context: u32) -> Told<Fields> {
        let mut block = [0; RXNFC_WORDS];
        (block[0], block[1]) = (GET_FIELDS, kind.number());
        if context == 0 {
            // The kernel reads and writes the short form of the block.
            self.call(&mut block[..])?;
        } else {
            block[1] |= OF_CONTEXT;
            block[CONTEXT_AT / 4] = context;
            self.call(&mut block)?;
        }
        Ok(Fields(long(&block[2..4])))
    }

    /// The fields of all kinds of flow.
    pub(super) fn all_fields(&self, context: u32) -> Vec<(FlowKind, Told<Fields>)> {
        FlowKind::ALL.iter().map(|&kind| (kind, self.fields(kind, context))).collect()
    }

    /// Sets the fields of a kind of flow, in context 0.
    pub(in super::super) fn set_fields(&self, kind: FlowKind, fields: Fields) -> io::Result<()> {
        let mut block = [0; RXNFC_WORDS];
        (block[0], block[1]) = (SET_FIELDS, kind.number());
        let halves = fields.0.to_ne_bytes();
        block[2..4].copy_from_slice(&super::ethtool::words(&halves));
        self.call(&mut block)
    }
}

/// Fields that a driver tells.
pub(super) fn told(fields: &[(FlowKind, Told<Fields>)], kind: FlowKind) -> Told<Fields> {
    fields.iter().find(|(found, _)| *found == kind).map_or(Err(Untold::Unsupported), |(_, fields)| *fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_fields_in_words() {
        assert_eq!(Fields::FOUR.to_string(), "addresses, ports");
        assert_eq!(Fields(0).to_string(), "nothing");
        assert_eq!(
            Fields(1 << 4 | 1 << 6 | 1 << 40).to_string(),
            "source address, source port, fields 0x10000000000"
        );
        assert!(Fields::FOUR.contains(Fields::ADDRESSES) && !Fields::ADDRESSES.contains(Fields::FOUR));
    }

    #[test]
    fn kinds_have_names_and_numbers_of_their_own() {
        for (i, kind) in FlowKind::ALL.into_iter().enumerate() {
            assert_eq!(FlowKind::named(kind.name()), Some(kind));
            for other in &FlowKind::ALL[..i] {
                assert!(kind.number() != other.number() && kind.attribute() != other.attribute());
            }
        }
        assert_eq!(FlowKind::named("tcp5"), None);
    }
}
