//! The flow of a sampled packet, and the inner flow of a tunnel's packet.

use flowlane_rss::{Flow, Protocol};
use flowlane_stack::wire::{self, classify, classify_ip};
use flowlane_sys::packet::sample::Sample;

/// A packet that was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands::rss) struct Seen {
    /// Nanoseconds of the monotonic clock.
    pub(in crate::commands::rss) at: u64,
    pub(in crate::commands::rss) flow: Flow,
    /// The flow of the whole datagram, with its ports, if the packet is the first fragment.
    pub(in crate::commands::rss) whole: Option<Flow>,
    /// The inner flow of a tunnel's packet.
    pub(in crate::commands::rss) inner: Option<Flow>,
    pub(in crate::commands::rss) queue: Option<u32>,
    /// The queue whose RPS and RFS settings the kernel applies: the recorded one, or 0.
    pub(in crate::commands::rss) rps_queue: u32,
    pub(in crate::commands::rss) hash: u32,
    /// The processor on which the kernel's stack received it.
    pub(in crate::commands::rss) cpu: u32,
}

/// The packet of a sample; `None` if it is not IP.
///
/// Drivers record the number of the queue plus 1. A veth (`from_zero`) leaves the number of the sender's queue in this field, which is also
/// that of the receiving queue. When the kernel looks for RPS, it takes this number for a recorded one.
pub(in crate::commands::rss) fn of(sample: &Sample, from_zero: bool) -> Option<Seen> {
    let found = classify(&sample.bytes).flow()?;
    let rest = sample.bytes.get(usize::from(found.l3_offset)..)?;
    let flow = flow(&found);
    let payload = payload(rest);
    let whole = payload.filter(|_| flow.fragment && starts(rest)).and_then(|payload| {
        let ported = matches!(flow.protocol, Protocol::TCP | Protocol::UDP);
        let ports = payload.first_chunk::<4>().filter(|_| ported)?;
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        Some(Flow { src_port: port(0), dst_port: port(2), fragment: false, ..flow })
    });
    let inner = payload.filter(|_| !flow.fragment).and_then(|payload| inside(&flow, payload));
    Some(Seen {
        at: sample.nanoseconds,
        flow,
        whole,
        inner,
        queue: match (sample.queue, from_zero) {
            (Some(queue), false) => Some(u32::from(queue)),
            (None, false) => None,
            (queue, true) => Some(queue.map_or(0, |queue| u32::from(queue) + 1)),
        },
        rps_queue: sample.queue.map_or(0, u32::from),
        hash: sample.hash,
        cpu: sample.cpu,
    })
}

fn flow(found: &wire::Flow) -> Flow {
    let (src_port, dst_port) = found.ports.unwrap_or((0, 0));
    Flow {
        src: found.addresses.src(),
        dst: found.addresses.dst(),
        src_port,
        dst_port,
        protocol: Protocol(found.protocol.0),
        fragment: found.fragment,
    }
}

/// The payload of an IP packet. With IPv6 it is found behind no extension header, or behind a fragment header.
fn payload(ip: &[u8]) -> Option<&[u8]> {
    const FRAGMENT: u8 = 44;
    match ip.first()? >> 4 {
        4 => ip.get(usize::from(ip[0] & 15) * 4..),
        _ if *ip.get(6)? == FRAGMENT => ip.get(48..),
        _ => ip.get(40..),
    }
}

/// Whether a fragment is the first one of its datagram.
fn starts(ip: &[u8]) -> bool {
    let (at, mask) = if ip.first().is_some_and(|b| b >> 4 == 4) { (6, 0x1fff) } else { (42, 0xfff8) };
    ip.get(at..at + 2).is_some_and(|b| u16::from_be_bytes([b[0], b[1]]) & mask == 0)
}

/// The flow inside a packet of a tunnel: IP in IP, GRE, VXLAN, Geneve.
fn inside(outer: &Flow, payload: &[u8]) -> Option<Flow> {
    const IPIP: u8 = 4;
    const IPV6: u8 = 41;
    const GRE: u8 = 47;
    let frame = |bytes: &[u8]| classify(bytes).flow();
    let found = match (outer.protocol.0, outer.dst_port) {
        (IPIP | IPV6, _) => classify_ip(payload)?,
        (GRE, _) => {
            let flags = payload.first()?;
            // Version 0; checksum, key and sequence number take four bytes each.
            if payload.get(1)? & 7 != 0 {
                return None;
            }
            let more = [0x80, 0x20, 0x10].iter().filter(|&&bit| flags & bit != 0).count() * 4;
            let inner = payload.get(4 + more..)?;
            match [*payload.get(2)?, *payload.get(3)?] {
                [0x08, 0x00] | [0x86, 0xdd] => classify_ip(inner)?,
                [0x65, 0x58] => frame(inner)?,
                _ => return None,
            }
        }
        // VXLAN: its assigned port, and the one that Linux used before that.
        (17, 4789 | 8472) => frame(payload.get(16..)?)?,
        // Geneve: the length of its options is in words of 4 bytes.
        (17, 6081) => frame(payload.get(16 + usize::from(payload.get(8)? & 0x3f) * 4..)?)?,
        _ => return None,
    };
    Some(flow(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet without options.
    fn ip(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet.extend(payload);
        packet
    }

    fn ethernet(payload: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &[8, 0], payload].concat()
    }

    fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
        [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0, 0, 0, 0], payload].concat()
    }

    fn seen(bytes: Vec<u8>) -> Option<Seen> {
        let sample = Sample { nanoseconds: 5, len: 60, queue: Some(2), hash: 7, cpu: 3, tag: None, bytes };
        of(&sample, false)
    }

    #[test]
    fn flows_and_first_fragments() {
        let plain = seen(ethernet(&ip(17, 0, &udp(5, 6, b"data")))).unwrap();
        assert_eq!((plain.flow.src_port, plain.flow.dst_port, plain.flow.protocol), (5, 6, Protocol::UDP));
        assert_eq!((plain.queue, plain.hash, plain.cpu, plain.inner), (Some(2), 7, 3, None));
        let first = seen(ethernet(&ip(17, 0x2000, &udp(5, 6, b"data")))).unwrap();
        assert!(first.flow.fragment);
        assert_eq!(first.whole, Some(plain.flow));
        let later = seen(ethernet(&ip(17, 0x2001, &udp(5, 6, b"data")))).unwrap();
        assert_eq!((later.flow.fragment, later.whole), (true, None));
        assert_eq!(seen(vec![2; 60]), None);
        let veth = |queue| {
            let bytes = ethernet(&ip(17, 0, &udp(5, 6, b"data")));
            let sample = Sample { nanoseconds: 5, len: 60, queue, hash: 7, cpu: 3, tag: None, bytes };
            of(&sample, true).map(|seen| (seen.queue, seen.rps_queue))
        };
        assert_eq!((veth(None), veth(Some(1))), (Some((Some(0), 0)), Some((Some(2), 1))));
    }

    #[test]
    fn tunnels() {
        let inner = ip(17, 0, &udp(7, 8, b"inside"));
        let wanted = seen(ethernet(&inner)).unwrap().flow;
        let framed = ethernet(&inner);
        let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 1, 0][..], &[9, 9, 9, 9], &framed].concat();
        let gre = [&[0x20, 0, 8, 0, 0, 0, 0, 1][..], &inner].concat();
        for outer in [
            ip(4, 0, &inner),
            ip(47, 0, &gre),
            ip(47, 0, &[&[0, 0, 0x65, 0x58][..], &framed].concat()),
            ip(17, 0, &udp(1, 4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &framed].concat())),
            ip(17, 0, &udp(1, 6081, &geneve)),
        ] {
            assert_eq!(seen(ethernet(&outer)).unwrap().inner, Some(wanted));
            // Cut off at any length: no other flow is found.
            for len in 0..outer.len() + 14 {
                let mut bytes = ethernet(&outer);
                bytes.truncate(len);
                let found = seen(bytes).and_then(|seen| seen.inner);
                assert!(found.is_none_or(|flow| flow.src == wanted.src));
            }
        }
    }
}
