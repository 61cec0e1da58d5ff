//! Input of fragments: checks before a fragment is kept, and the end of datagrams that are not completed in time.
//!
//! | | IPv4 | IPv6 |
//! |---|---|---|
//! | empty, or not the last and no multiple of 8 bytes | dropped | dropped, Parameter Problem |
//! | ends beyond 65535 bytes | dropped | dropped, Parameter Problem |
//! | first, without its whole headers | TCP: dropped (RFC 1858 section 3) | dropped, Parameter Problem (RFC 7112 section 5) |
//! | whole but called a fragment | cannot be | handled alone (RFC 6946) |
//! | not completed in time | Time Exceeded if the first came (RFC 1122 section 3.3.2) | the same (RFC 8200 section 4.5) |

use core::net::IpAddr;

use flowlane_sys::frame::Frame;

use super::{Inbound, Ip};
use crate::interface::Destination;
use crate::packet::{Cx, IpInput, IpMeta};
use crate::reassembly::{Expired, Fragment, Key, Verdict};
use crate::stats::DropReason;
use crate::wire::icmpv6::{self, Icmpv6Message};
use crate::wire::ipv6_ext::{ERRONEOUS_FIELD, ExtensionProblem, FRAGMENT_HEADER_LEN, resume};
use crate::wire::{Icmpv4Message, IpProtocol, Ipv4Header, Ipv6Header, Ipv6Upper, icmpv4, ipv4, tcp, udp};

/// Timed-out datagrams handled in one call: a flood that ends must not hold up the lane; the rest is due at once.
const EXPIRED_AT_ONCE: usize = 64;
/// Parameter Problem: first fragment with an incomplete header chain (RFC 7112 section 5).
const INCOMPLETE_HEADERS: u8 = 3;
/// Where the IPv6 header says how long its payload is.
const PAYLOAD_LENGTH_AT: u32 = 4;
/// Longest payload of a packet, bytes.
const LONGEST: usize = 65_535;

impl Ip {
    /// Takes in a fragment whose data starts behind its header of `header_len` bytes.
    pub(super) fn fragment_v4(
        &mut self,
        cx: &mut Cx<'_>,
        frame: Frame,
        header: &Ipv4Header,
        header_len: u16,
    ) -> Inbound {
        self.stats.ip.fragments += 1;
        let len = usize::from(header.payload_len);
        if len == 0 || (header.more_fragments && len % 8 != 0) {
            self.stats.ip.too_short += 1;
            return self.bad_fragment(false, DropReason::FragmentInvalid);
        }
        if usize::from(header.fragment_offset) + len > LONGEST - ipv4::HEADER_LEN {
            self.stats.ip.too_long += 1;
            return self.bad_fragment(false, DropReason::FragmentTooLong);
        }
        // Without it the rest of a TCP header could hide what a filter on the way looked for.
        if header.fragment_offset == 0 && header.protocol == IpProtocol::TCP && len < tcp::HEADER_LEN {
            return self.bad_fragment(false, DropReason::FragmentTiny);
        }
        let fragment = Fragment {
            frame,
            key: Key::v4(header.src, header.dst, header.protocol, header.identification),
            header_len,
            offset: header.fragment_offset,
            more: header.more_fragments,
            ecn: header.tos,
        };
        self.fragment(cx, fragment)
    }

    /// Takes in a fragment whose data starts at the IPv6 header; `upper` is where its fragment header ended the walk.
    pub(super) fn fragment_v6(
        &mut self,
        cx: &mut Cx<'_>,
        mut frame: Frame,
        mut ip: IpMeta,
        upper: &Ipv6Upper,
    ) -> Inbound {
        self.stats.ip6.fragments += 1;
        let (Some(part), IpAddr::V6(src), IpAddr::V6(dst)) = (upper.fragment, ip.src, ip.dst) else {
            return self.bad_fragment(true, DropReason::FragmentInvalid);
        };
        let len = frame.chain_len().saturating_sub(upper.offset);
        if len == 0 || (part.more && len % 8 != 0) {
            self.tell_problem(cx, IpInput { frame, ip }, ERRONEOUS_FIELD, PAYLOAD_LENGTH_AT);
            return self.bad_fragment(true, DropReason::FragmentInvalid);
        }
        if usize::from(part.offset) + len > LONGEST {
            let offset_at = upper.offset - FRAGMENT_HEADER_LEN + 2;
            self.tell_problem(cx, IpInput { frame, ip }, ERRONEOUS_FIELD, offset_at as u32);
            return self.bad_fragment(true, DropReason::FragmentTooLong);
        }
        if part.offset == 0 {
            match headers_of_first(frame.data(), upper) {
                Ok(()) => {}
                Err(First::Nested) => return self.bad_fragment(true, DropReason::FragmentNested),
                Err(First::Incomplete) => {
                    self.tell_problem(cx, IpInput { frame, ip }, INCOMPLETE_HEADERS, 0);
                    return self.bad_fragment(true, DropReason::FragmentTiny);
                }
                Err(First::Problem(problem)) => {
                    self.stats.ip6.fragments_dropped += 1;
                    return self.bad_extension(cx, IpInput { frame, ip }, problem);
                }
            }
        }
        ip.header_len = upper.offset as u16;
        // The walk ended inside these bytes, and something follows.
        if !frame.trim_front(upper.offset) {
            return self.bad_fragment(true, DropReason::FragmentInvalid);
        }
        let fragment = Fragment {
            frame,
            key: Key::v6(src, dst, part.identification),
            header_len: ip.header_len,
            offset: part.offset,
            more: part.more,
            ecn: ip.traffic_class,
        };
        self.fragment(cx, fragment)
    }

    #[inline]
    fn fragment(&mut self, cx: &Cx<'_>, fragment: Fragment) -> Inbound {
        match self.reassembly.input(cx.now, fragment, &mut self.stats) {
            Verdict::Held | Verdict::Dropped => Inbound::Done,
            Verdict::Whole(packet) => Inbound::Whole(packet),
        }
    }

    #[cold]
    fn bad_fragment(&mut self, v6: bool, reason: DropReason) -> Inbound {
        let ip = if v6 { &mut self.stats.ip6 } else { &mut self.stats.ip };
        ip.fragments_dropped += 1;
        self.drop(reason)
    }

    /// Tells the sender of a fragment, whose data still starts at the IPv6 header, what is wrong with it.
    #[cold]
    fn tell_problem(&mut self, cx: &mut Cx<'_>, mut packet: IpInput, code: u8, pointer: u32) {
        let len = usize::from(packet.ip.header_len).min(packet.frame.len());
        let _ = packet.frame.trim_front(len);
        self.error_v6(cx, packet, Icmpv6Message::ParameterProblem { code, pointer }, false);
    }

    /// Drops datagrams whose time is over and tells their senders.
    pub(super) fn reassembly_timeouts(&mut self, cx: &mut Cx<'_>) {
        for _ in 0..EXPIRED_AT_ONCE {
            let Some(expired) = self.reassembly.expire(cx.now, &mut self.stats) else { return };
            let v6 = expired.v6;
            if let Some(packet) = self.first_of(expired) {
                if v6 {
                    let code = icmpv6::REASSEMBLY_TIMEOUT;
                    self.error_v6(cx, packet, Icmpv6Message::TimeExceeded { code }, false);
                } else {
                    let code = icmpv4::REASSEMBLY_TIMEOUT;
                    self.error_v4(cx, packet, Icmpv4Message::TimeExceeded { code });
                }
            }
        }
    }

    /// The first fragment of a datagram, if an error may be sent about it: it is no error itself.
    fn first_of(&self, expired: Expired) -> Option<IpInput> {
        let mut frame = expired.first?;
        let header_len = usize::from(expired.header_len);
        let bytes = frame.push_front(header_len)?;
        let (src, dst, protocol, upper_at) = if expired.v6 {
            let (header, _) = Ipv6Header::parse_first(bytes, usize::MAX).ok()?;
            let next = *bytes.get(header_len.checked_sub(FRAGMENT_HEADER_LEN)?)?;
            let upper = resume(bytes, behind_fragment_header(IpProtocol(next), header_len)).ok()?;
            (IpAddr::V6(header.src), IpAddr::V6(header.dst), upper.protocol, upper.offset)
        } else {
            let (header, payload) = Ipv4Header::parse_first_trusted(bytes, usize::MAX).ok()?;
            (IpAddr::V4(header.src), IpAddr::V4(header.dst), header.protocol, payload.start)
        };
        let upper = bytes.get(upper_at..)?;
        let is_error = match protocol {
            IpProtocol::ICMP => Icmpv4Message::parse_trusted(upper).map_or(true, |(m, _)| m.is_error()),
            // Errors are the messages below 128 (RFC 4443 section 2.1).
            IpProtocol::ICMPV6 => upper.first().is_none_or(|&kind| kind < 128),
            _ => false,
        };
        if is_error || !frame.trim_front(header_len) {
            return None;
        }
        let interface = frame.meta().interface;
        let config = self.interfaces.get(usize::from(interface))?;
        let ip = IpMeta {
            src,
            dst,
            protocol: protocol.0,
            hop_limit: 0,
            traffic_class: 0,
            header_len: expired.header_len,
            interface,
            mtu: config.config.mtu,
            unicast: config.destination(dst) == Destination::Unicast,
        };
        Some(IpInput { frame, ip })
    }
}

/// What can be wrong with the headers of a first fragment.
enum First {
    /// They continue in the next fragment.
    Incomplete,
    /// There is another fragment header among them.
    Nested,
    /// As for a whole packet.
    Problem(ExtensionProblem),
}

/// Whether a first fragment has all headers up to and including that of the transport (RFC 7112 section 5).
fn headers_of_first(packet: &[u8], upper: &Ipv6Upper) -> Result<(), First> {
    let last = match resume(packet, Ipv6Upper { fragment: None, ..*upper }) {
        Ok(last) => last,
        Err(ExtensionProblem::Malformed(crate::wire::Malformed::Ipv6ExtensionHeader)) => {
            return Err(First::Incomplete);
        }
        Err(problem) => return Err(First::Problem(problem)),
    };
    if last.fragment_at != upper.fragment_at {
        return Err(First::Nested);
    }
    let need = match last.protocol {
        IpProtocol::TCP => tcp::HEADER_LEN,
        IpProtocol::UDP => udp::HEADER_LEN,
        IpProtocol::ICMPV6 => icmpv6::HEADER_LEN,
        _ => 0,
    };
    if packet.len() - last.offset.min(packet.len()) < need { Err(First::Incomplete) } else { Ok(()) }
}

/// Where a walk stands that has passed a fragment header.
fn behind_fragment_header(protocol: IpProtocol, offset: usize) -> Ipv6Upper {
    Ipv6Upper {
        protocol,
        offset,
        next_header_at: offset - FRAGMENT_HEADER_LEN,
        fragment: None,
        fragment_at: Some(offset - FRAGMENT_HEADER_LEN),
        atomic_fragment: false,
        router_alert: false,
    }
}
