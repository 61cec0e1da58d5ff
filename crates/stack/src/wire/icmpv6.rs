//! ICMPv6: echo, errors, and the envelope of neighbour and listener discovery.
//!
//! RFC 4443 (the messages and §2.4, when not to send one), RFC 8200 §8.1 (the checksum covers a pseudo-header).
//!
//! As in IPv4 the header is eight bytes, but the checksum also covers the addresses, so every function that touches it
//! needs them. Messages of neighbour discovery and of multicast listener discovery are recognised here and read by
//! [`ndp`](super::ndp) and [`mld`](super::mld) from the whole message.

use core::net::Ipv6Addr;
use core::ops::Range;

use super::{IpProtocol, Malformed, Sum, be16, be32, room};

/// Length of the header.
pub const HEADER_LEN: usize = 8;

/// Codes of a Destination Unreachable message.
pub mod unreachable {
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by an administrator.
    pub const PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The host does not answer.
    pub const ADDRESS: u8 = 3;
    /// No listener or socket on the port.
    pub const PORT: u8 = 4;
}

/// Code of a Time Exceeded message: the hop limit ran out on the way.
pub const HOP_LIMIT_EXCEEDED: u8 = 0;
/// Code of a Time Exceeded message: not all fragments came in time.
pub const REASSEMBLY_TIMEOUT: u8 = 1;

const UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// Multicast listener query (RFC 2710, RFC 3810).
pub(crate) const MLD_QUERY: u8 = 130;
/// Multicast listener report of version 1 (RFC 2710).
pub(super) const MLD_REPORT_V1: u8 = 131;
/// Multicast listener done of version 1 (RFC 2710).
pub(super) const MLD_DONE_V1: u8 = 132;
/// Router solicitation (RFC 4861).
pub(super) const ROUTER_SOLICITATION: u8 = 133;
/// Redirect (RFC 4861).
pub(super) const REDIRECT: u8 = 137;
/// Multicast listener report of version 2 (RFC 3810).
pub const MLD_REPORT_V2: u8 = 143;

/// The header of an ICMPv6 message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Icmpv6Message {
    /// "Send this back."
    EchoRequest {
        /// Which program asks.
        ident: u16,
        /// Which of its requests this is.
        seq: u16,
    },
    /// "Here it is."
    EchoReply {
        /// As in the request.
        ident: u16,
        /// As in the request.
        seq: u16,
    },
    /// A packet did not get there.
    Unreachable {
        /// Why: see [`mod@unreachable`].
        code: u8,
    },
    /// A packet is longer than the next link's MTU.
    PacketTooBig {
        /// The next link's MTU.
        mtu: u32,
    },
    /// A packet or its fragments took too long.
    TimeExceeded {
        /// [`HOP_LIMIT_EXCEEDED`] or [`REASSEMBLY_TIMEOUT`].
        code: u8,
    },
    /// A packet's headers were wrong.
    ParameterProblem {
        /// In which way: the codes in [`ipv6_ext`](super::ipv6_ext).
        code: u8,
        /// The offending byte of the quoted packet.
        pointer: u32,
    },
    /// A message of neighbour discovery: read the whole message with [`NdpMessage`](super::NdpMessage). Never emitted.
    Ndp,
    /// A message of multicast listener discovery: read the whole message with [`mld`](super::mld). Never emitted.
    Mld,
    /// Any other kind; it reads, and writes as zeros behind kind and code.
    Other {
        /// The message's kind.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

impl Icmpv6Message {
    /// Reads a message and verifies its checksum, which covers all of `message` and the addresses of its packet.
    ///
    /// # Errors
    /// [`Malformed::Icmpv6Short`], [`Malformed::Icmpv6Checksum`].
    #[inline]
    pub fn parse(
        src: Ipv6Addr,
        dst: Ipv6Addr,
        message: &[u8],
    ) -> Result<(Icmpv6Message, Range<usize>), Malformed> {
        let parsed = Icmpv6Message::parse_trusted(message)?;
        if pseudo_sum(src, dst, message).add_bytes(message).is_intact() {
            Ok(parsed)
        } else {
            Err(Malformed::Icmpv6Checksum)
        }
    }

    /// Parses a message whose checksum has been verified already.
    ///
    /// # Errors
    /// [`Malformed::Icmpv6Short`].
    #[inline]
    pub fn parse_trusted(message: &[u8]) -> Result<(Icmpv6Message, Range<usize>), Malformed> {
        let Some(h) = message.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::Icmpv6Short);
        };
        let (kind, code) = (h[0], h[1]);
        let parsed = match kind {
            ECHO_REQUEST => Icmpv6Message::EchoRequest { ident: be16(h, 4), seq: be16(h, 6) },
            ECHO_REPLY => Icmpv6Message::EchoReply { ident: be16(h, 4), seq: be16(h, 6) },
            UNREACHABLE => Icmpv6Message::Unreachable { code },
            PACKET_TOO_BIG => Icmpv6Message::PacketTooBig { mtu: be32(h, 4) },
            TIME_EXCEEDED => Icmpv6Message::TimeExceeded { code },
            PARAMETER_PROBLEM => Icmpv6Message::ParameterProblem { code, pointer: be32(h, 4) },
            ROUTER_SOLICITATION..=REDIRECT => Icmpv6Message::Ndp,
            MLD_QUERY | MLD_REPORT_V1 | MLD_DONE_V1 | MLD_REPORT_V2 => Icmpv6Message::Mld,
            _ => Icmpv6Message::Other { kind, code },
        };
        Ok((parsed, HEADER_LEN..message.len()))
    }

    /// Whether this is an error, known or not (RFC 4443 §2.1): no error may be sent about it, nor about a redirect.
    #[inline]
    #[must_use]
    pub const fn is_error(&self) -> bool {
        match self {
            Icmpv6Message::Unreachable { .. }
            | Icmpv6Message::PacketTooBig { .. }
            | Icmpv6Message::TimeExceeded { .. }
            | Icmpv6Message::ParameterProblem { .. } => true,
            Icmpv6Message::Other { kind, .. } => *kind < 128,
            _ => false,
        }
    }

    /// Writes the header to the front of `message`, behind which the payload already stands, and the checksum over all of
    /// `message` and the addresses. Returns the length of the header.
    ///
    /// # Panics
    /// If `message` is shorter than 8 bytes, or if this is [`Ndp`](Icmpv6Message::Ndp) or [`Mld`](Icmpv6Message::Mld).
    #[inline]
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, message: &mut [u8]) -> usize {
        let h = room::<HEADER_LEN>(message);
        let (kind, code, rest) = match *self {
            Icmpv6Message::EchoRequest { ident, seq } => {
                (ECHO_REQUEST, 0, u32::from(ident) << 16 | u32::from(seq))
            }
            Icmpv6Message::EchoReply { ident, seq } => {
                (ECHO_REPLY, 0, u32::from(ident) << 16 | u32::from(seq))
            }
            Icmpv6Message::Unreachable { code } => (UNREACHABLE, code, 0),
            Icmpv6Message::PacketTooBig { mtu } => (PACKET_TOO_BIG, 0, mtu),
            Icmpv6Message::TimeExceeded { code } => (TIME_EXCEEDED, code, 0),
            Icmpv6Message::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, pointer),
            Icmpv6Message::Other { kind, code } => (kind, code, 0),
            Icmpv6Message::Ndp | Icmpv6Message::Mld => {
                panic!("discovery messages have emitters of their own")
            }
        };
        h[0..4].copy_from_slice(&[kind, code, 0, 0]);
        h[4..8].copy_from_slice(&rest.to_be_bytes());
        fill_checksum(src, dst, message);
        HEADER_LEN
    }
}

/// The sum over the pseudo-header of an ICMPv6 message.
#[inline]
pub(super) fn pseudo_sum(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> Sum {
    Sum::pseudo_v6(src, dst, IpProtocol::ICMPV6, message.len() as u32)
}

/// Computes the checksum of a message whose header stands at its front, and writes it there.
///
/// # Panics
/// If `message` is shorter than 4 bytes.
#[inline]
pub(super) fn fill_checksum(src: Ipv6Addr, dst: Ipv6Addr, message: &mut [u8]) {
    room::<4>(message)[2..4].fill(0);
    let checksum = pseudo_sum(src, dst, message).add_bytes(message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    fn any_message() -> impl Strategy<Value = Icmpv6Message> {
        prop_oneof![
            any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv6Message::EchoRequest { ident, seq }),
            any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv6Message::EchoReply { ident, seq }),
            any::<u8>().prop_map(|code| Icmpv6Message::Unreachable { code }),
            any::<u32>().prop_map(|mtu| Icmpv6Message::PacketTooBig { mtu }),
            any::<u8>().prop_map(|code| Icmpv6Message::TimeExceeded { code }),
            any::<(u8, u32)>().prop_map(|(code, pointer)| Icmpv6Message::ParameterProblem { code, pointer }),
            (5u8..128, any::<u8>()).prop_map(|(kind, code)| Icmpv6Message::Other { kind, code }),
        ]
    }

    #[test]
    fn every_truncated_length_is_refused() {
        for cut in 0..8 {
            assert_eq!(Icmpv6Message::parse(SRC, DST, &[0; 8][..cut]), Err(Malformed::Icmpv6Short));
        }
    }

    #[test]
    fn errors_and_discovery_are_recognised() {
        let kind = |kind| Icmpv6Message::parse_trusted(&[kind, 0, 0, 0, 0, 0, 0, 0]).unwrap().0;
        for k in 133..=137 {
            assert_eq!(kind(k), Icmpv6Message::Ndp);
        }
        for k in [130, 131, 132, 143] {
            assert_eq!(kind(k), Icmpv6Message::Mld);
        }
        assert!((0..128).all(|k| kind(k).is_error()));
        assert!(!(128..=255).any(|k| kind(k).is_error()));
    }

    #[test]
    #[should_panic(expected = "emitters of their own")]
    fn discovery_is_not_emitted_here() {
        Icmpv6Message::Ndp.emit(SRC, DST, &mut [0; 8]);
    }

    proptest! {
        #[test]
        fn round_trip(header in any_message(), data in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut message = [&[0xa5; 8][..], &data].concat();
            header.emit(SRC, DST, &mut message);
            prop_assert_eq!(Icmpv6Message::parse(SRC, DST, &message), Ok((header, 8..message.len())));
            prop_assert_eq!(Icmpv6Message::parse(SRC, Ipv6Addr::LOCALHOST, &message), Err(Malformed::Icmpv6Checksum));
        }

        #[test]
        fn any_bytes(message in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (Icmpv6Message::parse(SRC, DST, &message), Icmpv6Message::parse_trusted(&message));
        }
    }
}
