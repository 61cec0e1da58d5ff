//! ICMP for IPv4: echo, and errors about packets we sent.
//!
//! RFC 792 (the messages), RFC 1122 §3.2.2 (what a host does with them), RFC 1191 (the MTU in "fragmentation needed"),
//! RFC 1812 §4.3 (the codes a router uses), RFC 4443's namesake for IPv6 is in [`icmpv6`](super::icmpv6).
//!
//! Every message has eight bytes of header here: kind, code, checksum, and four bytes whose meaning depends on the kind.
//! What follows is an echo's data, or the quoted packet of an error: see [`Quote`](super::Quote).

use core::net::Ipv4Addr;
use core::ops::Range;

use super::{Malformed, Sum, be16, four, room};

/// Length of the header.
pub const HEADER_LEN: usize = 8;

/// Codes of a Destination Unreachable message.
pub mod unreachable {
    /// No route to the network.
    pub const NET: u8 = 0;
    /// The host does not answer.
    pub const HOST: u8 = 1;
    /// The host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// No listener or socket on the port.
    pub const PORT: u8 = 3;
    /// The packet is too long for the next link and may not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route could not be followed.
    pub const SOURCE_ROUTE: u8 = 5;
    /// Forbidden by an administrator.
    pub const PROHIBITED: u8 = 13;
}

/// Code of a Time Exceeded message: the time to live ran out on the way.
pub const TTL_EXCEEDED: u8 = 0;
/// Code of a Time Exceeded message: not all fragments came in time.
pub const REASSEMBLY_TIMEOUT: u8 = 1;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const REDIRECT: u8 = 5;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// The header of an ICMP message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Icmpv4Message {
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
        /// The next link's MTU, meaningful with [`FRAGMENTATION_NEEDED`](unreachable::FRAGMENTATION_NEEDED); zero from old routers.
        mtu: u16,
    },
    /// There is a better first hop.
    Redirect {
        /// For which packets.
        code: u8,
        /// The better first hop.
        gateway: Ipv4Addr,
    },
    /// A packet or its fragments took too long.
    TimeExceeded {
        /// [`TTL_EXCEEDED`] or [`REASSEMBLY_TIMEOUT`].
        code: u8,
    },
    /// A packet's header was wrong.
    ParameterProblem {
        /// Zero if `pointer` says where.
        code: u8,
        /// The offending byte of the quoted packet.
        pointer: u8,
    },
    /// Any other kind; it reads, and writes as zeros behind kind and code.
    Other {
        /// The message's kind.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

impl Icmpv4Message {
    /// Reads a message and verifies its checksum, which covers all of `message`.
    ///
    /// # Errors
    /// [`Malformed::IcmpShort`], [`Malformed::IcmpChecksum`].
    #[inline]
    pub fn parse(message: &[u8]) -> Result<(Icmpv4Message, Range<usize>), Malformed> {
        let parsed = Icmpv4Message::parse_trusted(message)?;
        if Sum::EMPTY.add_bytes(message).is_intact() { Ok(parsed) } else { Err(Malformed::IcmpChecksum) }
    }

    /// Parses a message whose checksum has been verified already.
    ///
    /// # Errors
    /// [`Malformed::IcmpShort`].
    #[inline]
    pub fn parse_trusted(message: &[u8]) -> Result<(Icmpv4Message, Range<usize>), Malformed> {
        let Some(h) = message.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::IcmpShort);
        };
        let (kind, code) = (h[0], h[1]);
        let parsed = match kind {
            ECHO_REQUEST => Icmpv4Message::EchoRequest { ident: be16(h, 4), seq: be16(h, 6) },
            ECHO_REPLY => Icmpv4Message::EchoReply { ident: be16(h, 4), seq: be16(h, 6) },
            UNREACHABLE => Icmpv4Message::Unreachable { code, mtu: be16(h, 6) },
            REDIRECT => Icmpv4Message::Redirect { code, gateway: four(h, 4).into() },
            TIME_EXCEEDED => Icmpv4Message::TimeExceeded { code },
            PARAMETER_PROBLEM => Icmpv4Message::ParameterProblem { code, pointer: h[4] },
            _ => Icmpv4Message::Other { kind, code },
        };
        Ok((parsed, HEADER_LEN..message.len()))
    }

    /// Whether this is an error: no error may be sent about it (RFC 1122 §3.2.2).
    #[inline]
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(
            self,
            Icmpv4Message::Unreachable { .. }
                | Icmpv4Message::Redirect { .. }
                | Icmpv4Message::TimeExceeded { .. }
                | Icmpv4Message::ParameterProblem { .. }
                | Icmpv4Message::Other { kind: 4, .. }
        )
    }

    /// Writes the header to the front of `message`, behind which the payload already stands, and the checksum over all of
    /// `message`. Returns the length of the header.
    ///
    /// # Panics
    /// If `message` is shorter than 8 bytes.
    #[inline]
    pub fn emit(&self, message: &mut [u8]) -> usize {
        let h = room::<HEADER_LEN>(message);
        let (kind, code, rest) = match *self {
            Icmpv4Message::EchoRequest { ident, seq } => (ECHO_REQUEST, 0, pair(ident, seq)),
            Icmpv4Message::EchoReply { ident, seq } => (ECHO_REPLY, 0, pair(ident, seq)),
            Icmpv4Message::Unreachable { code, mtu } => (UNREACHABLE, code, pair(0, mtu)),
            Icmpv4Message::Redirect { code, gateway } => (REDIRECT, code, gateway.octets()),
            Icmpv4Message::TimeExceeded { code } => (TIME_EXCEEDED, code, [0; 4]),
            Icmpv4Message::ParameterProblem { code, pointer } => {
                (PARAMETER_PROBLEM, code, [pointer, 0, 0, 0])
            }
            Icmpv4Message::Other { kind, code } => (kind, code, [0; 4]),
        };
        h[0..4].copy_from_slice(&[kind, code, 0, 0]);
        h[4..8].copy_from_slice(&rest);
        let checksum = super::checksum::checksum(message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        HEADER_LEN
    }
}

#[inline]
fn pair(high: u16, low: u16) -> [u8; 4] {
    (u32::from(high) << 16 | u32::from(low)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_message() -> impl Strategy<Value = Icmpv4Message> {
        prop_oneof![
            any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv4Message::EchoRequest { ident, seq }),
            any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv4Message::EchoReply { ident, seq }),
            any::<(u8, u16)>().prop_map(|(code, mtu)| Icmpv4Message::Unreachable { code, mtu }),
            any::<(u8, u32)>().prop_map(|(code, to)| Icmpv4Message::Redirect { code, gateway: to.into() }),
            any::<u8>().prop_map(|code| Icmpv4Message::TimeExceeded { code }),
            any::<(u8, u8)>().prop_map(|(code, pointer)| Icmpv4Message::ParameterProblem { code, pointer }),
            (13u8..=255, any::<u8>()).prop_map(|(kind, code)| Icmpv4Message::Other { kind, code }),
        ]
    }

    #[test]
    fn a_known_echo_request() {
        let mut message = [0; 12];
        message[8..].copy_from_slice(b"ping");
        Icmpv4Message::EchoRequest { ident: 1, seq: 2 }.emit(&mut message);
        // 0800 + 0001 + 0002 + 7069 + 6e67 = e6d3
        assert_eq!(message[..8], [8, 0, 0x19, 0x2c, 0, 1, 0, 2]);
    }

    #[test]
    fn every_truncated_length_is_refused() {
        for cut in 0..8 {
            assert_eq!(Icmpv4Message::parse(&[0; 8][..cut]), Err(Malformed::IcmpShort));
        }
        assert_eq!(Icmpv4Message::parse(&[0; 8]), Err(Malformed::IcmpChecksum));
    }

    #[test]
    fn errors_are_known_as_errors() {
        assert!(Icmpv4Message::Unreachable { code: unreachable::PORT, mtu: 0 }.is_error());
        assert!(Icmpv4Message::Other { kind: 4, code: 0 }.is_error());
        assert!(!Icmpv4Message::EchoReply { ident: 0, seq: 0 }.is_error());
        assert!(!Icmpv4Message::Other { kind: 13, code: 0 }.is_error());
    }

    proptest! {
        #[test]
        fn round_trip(header in any_message(), data in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut message = [&[0xa5; 8][..], &data].concat();
            header.emit(&mut message);
            prop_assert_eq!(Icmpv4Message::parse(&message), Ok((header, 8..message.len())));
            message[1] ^= 1;
            prop_assert_eq!(Icmpv4Message::parse(&message), Err(Malformed::IcmpChecksum));
        }

        #[test]
        fn any_bytes(message in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (Icmpv4Message::parse(&message), Icmpv4Message::parse_trusted(&message));
        }
    }
}
