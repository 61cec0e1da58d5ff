//! Reading reports and queries: IGMP versions 1 to 3 (RFC 2236, RFC 3376), MLD versions 1 and 2 (RFC 2710, RFC 3810).
//!
//! Sources of groups are not distinguished: whoever wants some source of a group gets the group. What cannot be read is no message, and the frame
//! is forwarded like any other.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane_stack::wire::{EtherType, IgmpMessage, IpProtocol, Ipv4Header, Ipv6Header, Sum};

use super::{Heard, number};

const V3_REPORT: u8 = 0x22;
const MLD_QUERY: u8 = 130;
const MLD_REPORT: u8 = 131;
const MLD_DONE: u8 = 132;
const MLD_REPORT_V2: u8 = 143;

/// Reads a message in `packet`, the payload of a frame of this type, and tells `heard` what it says. `Some(v4)` if it is a report: that is for
/// routers alone.
pub(crate) fn read(kind: u16, packet: &[u8], heard: &mut dyn FnMut(Heard)) -> Option<bool> {
    match EtherType(kind) {
        EtherType::IPV4 => read_v4(packet, heard),
        EtherType::IPV6 => read_v6(packet, heard),
        _ => None,
    }
}

fn read_v4(packet: &[u8], heard: &mut dyn FnMut(Heard)) -> Option<bool> {
    // Most frames are no IGMP: one look.
    if *packet.get(9)? != IpProtocol::IGMP.0 {
        return None;
    }
    let (header, payload) = Ipv4Header::parse(packet).ok()?;
    let message = packet.get(payload)?;
    match IgmpMessage::parse(message).ok()?.0 {
        IgmpMessage::Query { .. } => {
            heard(Heard::Query(header.src.into()));
            return None;
        }
        IgmpMessage::Report { group } if group.is_multicast() => heard(Heard::Join(number(group.into()))),
        IgmpMessage::Leave { group } if group.is_multicast() => heard(Heard::Leave(group.into())),
        IgmpMessage::Other { kind: V3_REPORT } => records(message, 4, &mut |kind, some, group| {
            let group = Ipv4Addr::from(<[u8; 4]>::try_from(group).unwrap_or_default());
            if group.is_multicast() {
                record(kind, some, group.into(), heard);
            }
        }),
        _ => return None,
    }
    Some(true)
}

fn read_v6(packet: &[u8], heard: &mut dyn FnMut(Heard)) -> Option<bool> {
    // The router alert is in a hop-by-hop header, the first.
    if *packet.get(6)? != IpProtocol::HOP_BY_HOP.0 {
        return None;
    }
    let (header, payload) = Ipv6Header::parse(packet).ok()?;
    let payload = packet.get(payload)?;
    let [next, len] = *payload.first_chunk::<2>()?;
    if next != IpProtocol::ICMPV6.0 {
        return None;
    }
    let message = payload.get((usize::from(len) + 1) * 8..)?;
    let sum = Sum::pseudo_v6(header.src, header.dst, IpProtocol::ICMPV6, message.len() as u32);
    if !sum.add_bytes(message).is_intact() {
        return None;
    }
    let group =
        || Some(Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?)).filter(Ipv6Addr::is_multicast);
    match *message.first()? {
        MLD_QUERY if message.len() >= 24 => {
            heard(Heard::Query(header.src.into()));
            return None;
        }
        MLD_REPORT => heard(Heard::Join(number(group()?.into()))),
        MLD_DONE => heard(Heard::Leave(group()?.into())),
        MLD_REPORT_V2 => records(message, 16, &mut |kind, some, group| {
            let group = Ipv6Addr::from(<[u8; 16]>::try_from(group).unwrap_or_default());
            if group.is_multicast() {
                record(kind, some, group.into(), heard);
            }
        }),
        _ => return None,
    }
    Some(false)
}

/// The records of a report of IGMP version 3 or MLD version 2, whose addresses have `size` bytes: kind, whether it names sources, group.
fn records(message: &[u8], size: usize, f: &mut dyn FnMut(u8, bool, &[u8])) {
    let Some(header) = message.first_chunk::<8>() else { return };
    let count = u16::from_be_bytes([header[6], header[7]]);
    let mut rest = &message[8..];
    for _ in 0..count {
        let Some(&[kind, auxiliary, hi, lo]) = rest.first_chunk::<4>() else { return };
        let sources = usize::from(u16::from_be_bytes([hi, lo]));
        let Some(group) = rest.get(4..4 + size) else { return };
        f(kind, sources > 0, group);
        let len = 4 + size + sources * size + usize::from(auxiliary) * 4;
        let Some(next) = rest.get(len..) else { return };
        rest = next;
    }
}

/// One record (RFC 3376 §4.2.12): to include no source is to leave.
fn record(kind: u8, some_sources: bool, group: IpAddr, heard: &mut dyn FnMut(Heard)) {
    match (kind, some_sources) {
        (1 | 3, false) => heard(Heard::Leave(group)),
        (1 | 3, true) | (2 | 4, _) | (5, true) => heard(Heard::Join(number(group))),
        _ => {}
    }
}
