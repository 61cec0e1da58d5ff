//! Neighbour discovery: what ARP, router discovery and redirects are to IPv6.
//!
//! RFC 4861 (§4 the messages, §6.1, §7.1 and §8.1 which of them to believe), RFC 4862 (what a prefix is for).
//!
//! A message is read whole, from its ICMPv6 header on, after [`Icmpv6Message`](super::Icmpv6Message) has recognised it and
//! verified its checksum. What the RFC demands of the message itself is checked here: the code is zero, no option has
//! length zero, a target is not a group. What it demands of the packet around it is the caller's: hop limit 255 above
//! all, a link-local source for routers, no link-layer option from the unspecified address.
//!
//! Options that are not known are skipped. A link-layer address that is not of Ethernet's length is skipped too. Of
//! prefixes, the first [`MAX_PREFIXES`] are kept.

use core::net::Ipv6Addr;
use core::ops::Range;

use super::icmpv6::fill_checksum;
use super::{MacAddr, Malformed, array_at, be16, be32, room, six, sixteen};

/// How many prefixes of one advertisement are kept.
pub const MAX_PREFIXES: usize = 4;
/// A buffer of this length holds any message that [`NdpMessage::emit`] writes.
pub const MAX_MESSAGE_LEN: usize = 40 + 8 + 8 + 8 + MAX_PREFIXES * 32;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
const OPTION_PREFIX: u8 = 3;
const OPTION_MTU: u8 = 5;

/// A prefix that a router advertises (RFC 4861 §4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrefixInformation {
    /// The prefix; bits past its length mean nothing.
    pub prefix: Ipv6Addr,
    /// Its length in bits, at most 128.
    pub prefix_len: u8,
    /// Addresses under it are on this link.
    pub on_link: bool,
    /// A host may make itself an address under it.
    pub autonomous: bool,
    /// Seconds for which it is valid; all ones means for ever.
    pub valid_lifetime: u32,
    /// Seconds for which addresses under it are preferred; all ones means for ever.
    pub preferred_lifetime: u32,
}

/// The options of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NdpOptions {
    /// The sender's Ethernet address.
    pub source: Option<MacAddr>,
    /// The target's Ethernet address.
    pub target: Option<MacAddr>,
    /// The link's MTU.
    pub mtu: Option<u32>,
    /// Prefixes, from the front.
    pub prefixes: [Option<PrefixInformation>; MAX_PREFIXES],
}

/// A message of neighbour discovery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NdpMessage {
    /// "Are there routers?"
    RouterSolicitation {
        /// The options.
        options: NdpOptions,
    },
    /// "I am a router."
    RouterAdvertisement {
        /// The hop limit to use; zero if the router does not say.
        hop_limit: u8,
        /// Addresses come from DHCPv6.
        managed: bool,
        /// Other configuration comes from DHCPv6.
        other: bool,
        /// Seconds for which it is a default router; zero if it is none.
        lifetime: u16,
        /// Milliseconds for which a neighbour counts as reachable; zero if the router does not say.
        reachable_time: u32,
        /// Milliseconds between solicitations; zero if the router does not say.
        retrans_timer: u32,
        /// The options.
        options: NdpOptions,
    },
    /// "Who has the target address?"
    NeighborSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// The options.
        options: NdpOptions,
    },
    /// "The target address is mine."
    NeighborAdvertisement {
        /// The sender is a router.
        router: bool,
        /// An answer to a solicitation.
        solicited: bool,
        /// Replaces what was known.
        overrides: bool,
        /// The address spoken of.
        target: Ipv6Addr,
        /// The options.
        options: NdpOptions,
    },
    /// "There is a better first hop."
    Redirect {
        /// The better first hop; the destination itself if that is on the link.
        target: Ipv6Addr,
        /// For packets to this destination.
        destination: Ipv6Addr,
        /// The options.
        options: NdpOptions,
    },
}

impl NdpMessage {
    /// Reads a whole ICMPv6 message. The range is that of its options.
    ///
    /// # Errors
    /// [`Malformed::NdpMessage`], [`Malformed::NdpOption`].
    pub fn parse(message: &[u8]) -> Result<(NdpMessage, Range<usize>), Malformed> {
        let h = message.first_chunk::<8>().ok_or(Malformed::NdpMessage)?;
        if h[1] != 0 {
            return Err(Malformed::NdpMessage);
        }
        let address =
            |at| array_at::<16>(message, at).map(|a| Ipv6Addr::from(*a)).ok_or(Malformed::NdpMessage);
        let (parsed, options_at) = match h[0] {
            ROUTER_SOLICITATION => (NdpMessage::RouterSolicitation { options: read_options(message, 8)? }, 8),
            ROUTER_ADVERTISEMENT => {
                let h = message.first_chunk::<16>().ok_or(Malformed::NdpMessage)?;
                let parsed = NdpMessage::RouterAdvertisement {
                    hop_limit: h[4],
                    managed: h[5] & 0x80 != 0,
                    other: h[5] & 0x40 != 0,
                    lifetime: be16(h, 6),
                    reachable_time: be32(h, 8),
                    retrans_timer: be32(h, 12),
                    options: read_options(message, 16)?,
                };
                (parsed, 16)
            }
            NEIGHBOR_SOLICITATION => {
                let target = address(8)?;
                (NdpMessage::NeighborSolicitation { target, options: read_options(message, 24)? }, 24)
            }
            NEIGHBOR_ADVERTISEMENT => {
                let parsed = NdpMessage::NeighborAdvertisement {
                    router: h[4] & 0x80 != 0,
                    solicited: h[4] & 0x40 != 0,
                    overrides: h[4] & 0x20 != 0,
                    target: address(8)?,
                    options: read_options(message, 24)?,
                };
                (parsed, 24)
            }
            REDIRECT => {
                let (target, destination) = (address(8)?, address(24)?);
                (NdpMessage::Redirect { target, destination, options: read_options(message, 40)? }, 40)
            }
            _ => return Err(Malformed::NdpMessage),
        };
        match parsed {
            NdpMessage::NeighborSolicitation { target, .. }
            | NdpMessage::NeighborAdvertisement { target, .. }
                if target.is_multicast() =>
            {
                Err(Malformed::NdpMessage)
            }
            NdpMessage::Redirect { target, destination, .. }
                if target.is_multicast() || destination.is_multicast() =>
            {
                Err(Malformed::NdpMessage)
            }
            _ => Ok((parsed, options_at..message.len())),
        }
    }

    /// The message's options.
    #[inline]
    #[must_use]
    pub const fn options(&self) -> &NdpOptions {
        match self {
            NdpMessage::RouterSolicitation { options }
            | NdpMessage::RouterAdvertisement { options, .. }
            | NdpMessage::NeighborSolicitation { options, .. }
            | NdpMessage::NeighborAdvertisement { options, .. }
            | NdpMessage::Redirect { options, .. } => options,
        }
    }

    /// Length on the wire, options included.
    #[must_use]
    pub fn len(&self) -> usize {
        let fixed = match self {
            NdpMessage::RouterSolicitation { .. } => 8,
            NdpMessage::RouterAdvertisement { .. } => 16,
            NdpMessage::NeighborSolicitation { .. } | NdpMessage::NeighborAdvertisement { .. } => 24,
            NdpMessage::Redirect { .. } => 40,
        };
        let options = self.options();
        let eights = [options.source.is_some(), options.target.is_some(), options.mtu.is_some()];
        let eights = eights.iter().filter(|there| **there).count();
        fixed + eights * 8 + options.prefixes.iter().flatten().count() * 32
    }

    /// Never: the shortest message has eight bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the whole message, with the checksum for a packet between these addresses, to the front of `buffer` and
    /// returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`len`](NdpMessage::len).
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, buffer: &mut [u8]) -> usize {
        let len = self.len();
        let message = &mut buffer[..len];
        let h = room::<8>(message);
        h.fill(0);
        let options_at = match *self {
            NdpMessage::RouterSolicitation { .. } => {
                h[0] = ROUTER_SOLICITATION;
                8
            }
            NdpMessage::RouterAdvertisement {
                hop_limit,
                managed,
                other,
                lifetime,
                reachable_time,
                retrans_timer,
                ..
            } => {
                h[0] = ROUTER_ADVERTISEMENT;
                h[4] = hop_limit;
                h[5] = u8::from(managed) << 7 | u8::from(other) << 6;
                h[6..8].copy_from_slice(&lifetime.to_be_bytes());
                message[8..12].copy_from_slice(&reachable_time.to_be_bytes());
                message[12..16].copy_from_slice(&retrans_timer.to_be_bytes());
                16
            }
            NdpMessage::NeighborSolicitation { target, .. } => {
                h[0] = NEIGHBOR_SOLICITATION;
                message[8..24].copy_from_slice(&target.octets());
                24
            }
            NdpMessage::NeighborAdvertisement { router, solicited, overrides, target, .. } => {
                h[0] = NEIGHBOR_ADVERTISEMENT;
                h[4] = u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(overrides) << 5;
                message[8..24].copy_from_slice(&target.octets());
                24
            }
            NdpMessage::Redirect { target, destination, .. } => {
                h[0] = REDIRECT;
                message[8..24].copy_from_slice(&target.octets());
                message[24..40].copy_from_slice(&destination.octets());
                40
            }
        };
        write_options(self.options(), &mut message[options_at..]);
        fill_checksum(src, dst, message);
        len
    }
}

fn read_options(message: &[u8], at: usize) -> Result<NdpOptions, Malformed> {
    let mut options = NdpOptions::default();
    let mut prefixes = options.prefixes.iter_mut();
    let mut rest = message.get(at..).ok_or(Malformed::NdpMessage)?;
    while !rest.is_empty() {
        let start = rest.first_chunk::<8>().ok_or(Malformed::NdpOption)?;
        let len = usize::from(start[1]) * 8;
        if len == 0 || len > rest.len() {
            return Err(Malformed::NdpOption);
        }
        match (start[0], len) {
            (OPTION_SOURCE, 8) => options.source = Some(MacAddr(six(start, 2))),
            (OPTION_TARGET, 8) => options.target = Some(MacAddr(six(start, 2))),
            (OPTION_MTU, 8) => options.mtu = Some(be32(start, 4)),
            (OPTION_PREFIX, 32) => {
                if let (Some(o), Some(place)) = (rest.first_chunk::<32>(), prefixes.next()) {
                    *place = Some(PrefixInformation {
                        prefix: sixteen(o, 16).into(),
                        prefix_len: o[2].min(128),
                        on_link: o[3] & 0x80 != 0,
                        autonomous: o[3] & 0x40 != 0,
                        valid_lifetime: be32(o, 4),
                        preferred_lifetime: be32(o, 8),
                    });
                }
            }
            _ => {}
        }
        rest = &rest[len..];
    }
    Ok(options)
}

fn write_options(options: &NdpOptions, bytes: &mut [u8]) {
    let mut rest = bytes;
    for (kind, address) in [(OPTION_SOURCE, options.source), (OPTION_TARGET, options.target)] {
        if let Some(MacAddr(address)) = address {
            let (o, after) = rest.split_at_mut(8);
            o[..2].copy_from_slice(&[kind, 1]);
            o[2..].copy_from_slice(&address);
            rest = after;
        }
    }
    if let Some(mtu) = options.mtu {
        let (o, after) = rest.split_at_mut(8);
        o[..4].copy_from_slice(&[OPTION_MTU, 1, 0, 0]);
        o[4..].copy_from_slice(&mtu.to_be_bytes());
        rest = after;
    }
    for p in options.prefixes.iter().flatten() {
        let (o, after) = rest.split_at_mut(32);
        o.fill(0);
        o[..4].copy_from_slice(&[
            OPTION_PREFIX,
            4,
            p.prefix_len,
            u8::from(p.on_link) << 7 | u8::from(p.autonomous) << 6,
        ]);
        o[4..8].copy_from_slice(&p.valid_lifetime.to_be_bytes());
        o[8..12].copy_from_slice(&p.preferred_lifetime.to_be_bytes());
        o[16..].copy_from_slice(&p.prefix.octets());
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Icmpv6Message;
    use super::*;
    use proptest::prelude::*;

    const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const DST: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

    fn all() -> Vec<NdpMessage> {
        let options = NdpOptions { source: Some(MacAddr([2, 0, 0, 0, 0, 9])), ..NdpOptions::default() };
        let prefix = PrefixInformation {
            prefix: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
            prefix_len: 64,
            on_link: true,
            autonomous: false,
            valid_lifetime: u32::MAX,
            preferred_lifetime: 3600,
        };
        let rich = NdpOptions { mtu: Some(1400), prefixes: [Some(prefix); 4], ..options };
        let to = NdpOptions { target: options.source, source: None, ..options };
        vec![
            NdpMessage::RouterSolicitation { options },
            NdpMessage::RouterAdvertisement {
                hop_limit: 64,
                managed: false,
                other: true,
                lifetime: 1800,
                reachable_time: 30_000,
                retrans_timer: 1000,
                options: rich,
            },
            NdpMessage::NeighborSolicitation { target: TARGET, options },
            NdpMessage::NeighborAdvertisement {
                router: false,
                solicited: true,
                overrides: true,
                target: TARGET,
                options: to,
            },
            NdpMessage::Redirect { target: SRC, destination: TARGET, options: to },
        ]
    }

    #[test]
    fn round_trip_and_every_truncated_length() {
        for ndp in all() {
            let mut buffer = [0xa5; MAX_MESSAGE_LEN];
            let len = ndp.emit(SRC, DST, &mut buffer);
            let message = &buffer[..len];
            assert_eq!(NdpMessage::parse(message).map(|(parsed, _)| parsed), Ok(ndp));
            assert_eq!(
                Icmpv6Message::parse(SRC, DST, message).map(|(parsed, _)| parsed),
                Ok(Icmpv6Message::Ndp)
            );
            let (_, options) = NdpMessage::parse(message).unwrap();
            for cut in 0..len {
                match NdpMessage::parse(&message[..cut]) {
                    // Without its last options a message is still a message.
                    Ok((_, range)) => assert!(cut >= options.start && range.end == cut),
                    Err(reason) => assert!(matches!(reason, Malformed::NdpMessage | Malformed::NdpOption)),
                }
                assert!(cut >= options.start || NdpMessage::parse(&message[..cut]).is_err());
            }
        }
    }

    #[test]
    fn what_the_rfc_forbids_is_refused() {
        let mut buffer = [0; 32];
        let solicitation = NdpMessage::NeighborSolicitation {
            target: TARGET,
            options: NdpOptions { source: Some(MacAddr::ZERO), ..NdpOptions::default() },
        };
        solicitation.emit(SRC, DST, &mut buffer);
        for (at, value, want) in [
            (1, 1, Malformed::NdpMessage),
            (0, 138, Malformed::NdpMessage),
            (8, 0xff, Malformed::NdpMessage),
            (25, 0, Malformed::NdpOption),
            (25, 2, Malformed::NdpOption),
        ] {
            let mut bad = buffer;
            bad[at] = value;
            assert_eq!(NdpMessage::parse(&bad), Err(want), "byte {at}");
        }
        buffer[24] = 200;
        let (parsed, _) = NdpMessage::parse(&buffer).unwrap();
        assert_eq!(*parsed.options(), NdpOptions::default());
    }

    #[test]
    fn prefixes_past_the_fourth_are_left_out() {
        let (mut buffer, mut message) = ([0; MAX_MESSAGE_LEN], Vec::new());
        let len = all()[1].emit(SRC, DST, &mut buffer);
        message.extend(&buffer[..len]);
        message.extend(&buffer[len - 32..len]);
        assert_eq!(NdpMessage::parse(&message).unwrap().0, all()[1]);
    }

    proptest! {
        #[test]
        fn any_bytes(kind in 133u8..138, mut message in proptest::collection::vec(any::<u8>(), 0..100)) {
            if message.len() > 2 {
                message[0] = kind;
                message[1] = 0;
            }
            if let Ok((parsed, _)) = NdpMessage::parse(&message) {
                let mut buffer = [0; MAX_MESSAGE_LEN];
                let len = parsed.emit(SRC, DST, &mut buffer);
                prop_assert_eq!(NdpMessage::parse(&buffer[..len]).unwrap().0, parsed);
            }
        }
    }
}
