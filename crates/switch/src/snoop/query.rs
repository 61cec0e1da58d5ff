//! Writing queries: IGMP versions 2 and 3, MLD versions 1 and 2, each in a packet with a router alert and a lifetime of one hop.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use flowlane_stack::wire::{
    EtherType, IpProtocol, Ipv4Header, Ipv4Options, Ipv6Header, MacAddr, MldQuery, igmp, ipv6_ext,
};

use super::querier::{LAST_MEMBER, ROBUSTNESS};

/// Bytes of the longest: an Ethernet header, IPv6 with a router alert, a query of MLD's version 2.
pub(super) const LONGEST: usize = 14 + 40 + ipv6_ext::ROUTER_ALERT_LEN + 28;
/// Bytes of the shortest frame.
const SHORTEST: usize = 60;
/// Traffic of networks' own control (RFC 2474 §4.2.2.2: class selector 6).
const CONTROL: u8 = 0xc0;

/// What all queries of a switch have in common.
pub(super) struct Style {
    /// Their sources.
    pub(super) own: (Ipv4Addr, Ipv6Addr),
    /// Versions of IGMP and MLD.
    pub(super) versions: (u8, u8),
    /// Between two general queries, and the time to answer one.
    pub(super) times: (Duration, Duration),
}

/// Writes a frame without tag that asks for `group`, or for all groups of its family if that is unspecified. Returns its length.
pub(super) fn write(group: IpAddr, source: [u8; 6], style: &Style, frame: &mut [u8; LONGEST]) -> usize {
    frame.fill(0);
    frame[6..12].copy_from_slice(&source);
    let (interval, general) = style.times;
    let response = if group.is_unspecified() { general } else { LAST_MEMBER };
    let len = match group {
        IpAddr::V4(group) => {
            // A general query is for all hosts, one for a group goes there (RFC 3376 §4.1.12).
            let dst = if group.is_unspecified() { Ipv4Addr::new(224, 0, 0, 1) } else { group };
            frame[..6].copy_from_slice(&MacAddr::for_ipv4_multicast(dst).0);
            frame[12..14].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
            let more = (ROBUSTNESS, interval);
            let message =
                igmp::emit_query(group, response, style.versions.0, more, &[], &mut frame[14 + 24..]);
            let header = Ipv4Header {
                src: style.own.0,
                dst,
                protocol: IpProtocol::IGMP,
                ttl: 1,
                tos: CONTROL,
                identification: 0,
                dont_fragment: false,
                more_fragments: false,
                fragment_offset: 0,
                payload_len: message as u16,
                options: Ipv4Options { router_alert: true, ..Ipv4Options::default() },
            };
            14 + header.emit(&mut frame[14..]) + message
        }
        IpAddr::V6(group) => {
            let dst = if group.is_unspecified() { Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) } else { group };
            frame[..6].copy_from_slice(&MacAddr::for_ipv6_multicast(dst).0);
            frame[12..14].copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
            let (alert, src) = (ipv6_ext::router_alert(IpProtocol::ICMPV6), style.own.1);
            let (version, max_response) = (style.versions.1, response);
            let query =
                MldQuery { group, max_response, version, robustness: ROBUSTNESS, interval, sources: 0 };
            let message = query.emit(src, dst, &[], &mut frame[14 + 40 + alert.len()..]);
            let header = Ipv6Header {
                src,
                dst,
                next_header: IpProtocol::HOP_BY_HOP,
                hop_limit: 1,
                traffic_class: CONTROL,
                flow_label: 0,
                payload_len: (alert.len() + message) as u16,
            };
            let at = 14 + header.emit(&mut frame[14..]);
            frame[at..at + alert.len()].copy_from_slice(&alert);
            at + alert.len() + message
        }
    };
    len.max(SHORTEST)
}
