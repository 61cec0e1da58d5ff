//! Flows of packets made by hand and by the emitters.

use super::*;
use crate::wire::{
    EthernetHeader, Ipv4Header, Ipv4Options, Ipv6Fragment, Ipv6Header, MacAddr, TcpHeader, TcpOptions,
    UdpHeader, VlanTag,
};
use proptest::prelude::*;

const SRC4: [u8; 4] = [10, 11, 2, 1];
const DST4: [u8; 4] = [10, 11, 2, 2];
const SRC6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const DST6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

fn ethernet(ethertype: EtherType, vlan: Option<VlanTag>, packet: &[u8]) -> Vec<u8> {
    let header = EthernetHeader { dst: MacAddr::BROADCAST, src: MacAddr::ZERO, ethertype, vlan };
    let mut frame = vec![0; header.header_len()];
    header.emit(&mut frame);
    frame.extend(packet);
    frame
}

fn transport(protocol: IpProtocol) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    match protocol {
        IpProtocol::UDP => {
            UdpHeader { src_port: 4000, dst_port: 53, len: 20, checksum: 0 }.emit(&mut bytes);
        }
        IpProtocol::TCP => {
            let (header, _) =
                TcpHeader::parse(&[15, 160, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0])
                    .unwrap();
            header.emit(&TcpOptions::default(), &mut bytes);
        }
        _ => {}
    }
    bytes
}

fn v4(protocol: IpProtocol, more_fragments: bool, fragment_offset: u16, router_alert: bool) -> Vec<u8> {
    let header = Ipv4Header {
        src: SRC4.into(),
        dst: DST4.into(),
        protocol,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        more_fragments,
        fragment_offset,
        payload_len: 20,
        options: Ipv4Options { router_alert, source_route: false },
    };
    let mut packet = vec![0; header.header_len()];
    header.emit(&mut packet);
    packet.extend(transport(protocol));
    packet
}

fn v6(next_header: IpProtocol, between: &[u8], protocol: IpProtocol) -> Vec<u8> {
    let header = Ipv6Header {
        src: SRC6.into(),
        dst: DST6.into(),
        next_header,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        payload_len: 20 + between.len() as u16,
    };
    let mut packet = vec![0; 40];
    header.emit(&mut packet);
    packet.extend(between);
    packet.extend(transport(protocol));
    packet
}

fn flow4(protocol: IpProtocol, ports: Option<(u16, u16)>) -> Flow {
    let addresses = Addresses::V4 { src: SRC4, dst: DST4 };
    Flow { addresses, ports, protocol, fragment: false, l3_offset: 14 }
}

fn flow6(protocol: IpProtocol, ports: Option<(u16, u16)>) -> Flow {
    Flow { addresses: Addresses::V6 { src: SRC6, dst: DST6 }, ..flow4(protocol, ports) }
}

fn frame4(packet: &[u8]) -> Option<Flow> {
    classify(&ethernet(EtherType::IPV4, None, packet)).flow()
}

fn frame6(packet: &[u8]) -> Option<Flow> {
    classify(&ethernet(EtherType::IPV6, None, packet)).flow()
}

const PORTS: Option<(u16, u16)> = Some((4000, 53));

#[test]
fn ports_belong_to_udp_and_tcp() {
    for (protocol, ports) in [(IpProtocol::UDP, PORTS), (IpProtocol::TCP, PORTS), (IpProtocol::ICMP, None)] {
        for alert in [false, true] {
            assert_eq!(frame4(&v4(protocol, false, 0, alert)), Some(flow4(protocol, ports)));
        }
        assert_eq!(frame6(&v6(protocol, &[], protocol)), Some(flow6(protocol, ports)));
    }
    let flow = flow4(IpProtocol::UDP, PORTS);
    assert_eq!(flow.addresses.src(), Ipv4Addr::from(SRC4));
    assert_eq!(flow.addresses.dst(), Ipv4Addr::from(DST4));
    assert!(!flow.is_ipv6());
    let flow = flow6(IpProtocol::UDP, PORTS);
    assert_eq!((flow.addresses.src(), flow.addresses.dst()), (IpAddr::from(SRC6), IpAddr::from(DST6)));
    assert!(flow.is_ipv6());
}

#[test]
fn fragments_are_known_by_their_addresses() {
    for alert in [false, true] {
        for (more, offset) in [(true, 0), (true, 8), (false, 8), (false, 65_528)] {
            let want = Flow { fragment: true, ..flow4(IpProtocol::UDP, None) };
            assert_eq!(frame4(&v4(IpProtocol::UDP, more, offset, alert)), Some(want));
        }
    }
    let mut header = [0; 8];
    for (offset, more) in [(0, true), (8, true), (8, false)] {
        Ipv6Fragment { next_header: IpProtocol::UDP, offset, more, identification: 1 }.emit(&mut header);
        let want = Flow { fragment: true, ..flow6(IpProtocol::FRAGMENT, None) };
        assert_eq!(frame6(&v6(IpProtocol::FRAGMENT, &header, IpProtocol::UDP)), Some(want));
    }
}

#[test]
fn atomic_fragments_and_extension_headers_are_looked_through() {
    let chain = [
        &[IpProtocol::ROUTING.0, 0, 1, 4, 0, 0, 0, 0][..],
        &[AUTHENTICATION.0, 0, 0, 0, 0, 0, 0, 0],
        &[IpProtocol::FRAGMENT.0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9, 9],
        &[IpProtocol::DESTINATION_OPTIONS.0, 0, 0, 6, 0, 0, 0, 9],
        &[IpProtocol::TCP.0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let packet = v6(IpProtocol::HOP_BY_HOP, &chain, IpProtocol::TCP);
    assert_eq!(frame6(&packet), Some(flow6(IpProtocol::TCP, PORTS)));
    // Cut short anywhere in the chain, the addresses remain.
    for cut in 40..packet.len() {
        assert_eq!(
            frame6(&packet[..cut]).map(|flow| (flow.addresses, flow.ports)),
            Some((flow6(IpProtocol::TCP, None).addresses, None))
        );
    }
}

#[test]
fn the_walk_is_bounded() {
    let chain = |n: usize| {
        let mut chain = [60, 0, 1, 4, 0, 0, 0, 0].repeat(n);
        chain[(n - 1) * 8] = IpProtocol::UDP.0;
        v6(IpProtocol::DESTINATION_OPTIONS, &chain, IpProtocol::UDP)
    };
    assert_eq!(frame6(&chain(MAX_EXTENSIONS)), Some(flow6(IpProtocol::UDP, PORTS)));
    assert_eq!(frame6(&chain(MAX_EXTENSIONS + 1)).map(|flow| flow.ports), Some(None));
}

#[test]
fn tags_are_skipped() {
    let packet = v4(IpProtocol::UDP, false, 0, false);
    let tagged = ethernet(EtherType::IPV4, Some(VlanTag::new(7)), &packet);
    let want = Flow { l3_offset: 18, ..flow4(IpProtocol::UDP, PORTS) };
    assert_eq!(classify(&tagged), Classified::Ip(want));
    let mut double = tagged.clone();
    double.splice(12..12, [0x88, 0xa8, 0, 9]);
    assert_eq!(classify(&double), Classified::Ip(Flow { l3_offset: 22, ..want }));
    double.splice(12..12, [0x88, 0xa8, 0, 9]);
    assert_eq!(classify(&double), Classified::Other(EtherType::VLAN));
    assert_eq!(classify(&tagged[..17]), Classified::Short);
}

#[test]
fn every_truncated_length_still_has_what_is_there() {
    for protocol in [IpProtocol::UDP, IpProtocol::TCP] {
        let need = if protocol == IpProtocol::UDP { 8 } else { 20 };
        for vlan in [None, Some(VlanTag::new(1))] {
            let start = if vlan.is_some() { 18 } else { 14 };
            let frame = ethernet(EtherType::IPV4, vlan, &v4(protocol, false, 0, false));
            for cut in 0..frame.len() {
                let got = classify(&frame[..cut]);
                let ports = if cut >= start + 20 + need { PORTS } else { None };
                let flow = Flow { l3_offset: start as u8, ..flow4(protocol, ports) };
                let want = match cut {
                    _ if cut < start => Classified::Short,
                    _ if cut < start + 20 => Classified::Other(EtherType::IPV4),
                    _ => Classified::Ip(flow),
                };
                assert_eq!(got, want, "{protocol} cut at {cut}");
            }
        }
    }
}

#[test]
fn what_is_not_ip_has_no_flow() {
    assert_eq!(classify(&ethernet(EtherType::ARP, None, &[0; 46])), Classified::Other(EtherType::ARP));
    let packet = v4(IpProtocol::UDP, false, 0, false);
    assert_eq!(classify(&ethernet(EtherType::IPV6, None, &packet)), Classified::Other(EtherType::IPV6));
    for first in [0x44, 0x05, 0x55] {
        let mut bad = packet.clone();
        bad[0] = first;
        assert_eq!(frame4(&bad), None, "{first:x}");
        assert_eq!(classify_ip(&bad), None, "{first:x}");
    }
    assert_eq!(classify_ip(&[]), None);
    assert_eq!(classify_ip(&packet), Some(Flow { l3_offset: 0, ..flow4(IpProtocol::UDP, PORTS) }));
}

proptest! {
    #[test]
    fn any_bytes(mut frame in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..6, fields in any::<(u8, u8)>()) {
        let starts: [&[u8]; 6] = [&[8, 0, 0x45], &[8, 0, 0x46], &[0x86, 0xdd, 0x60], &[0x81, 0, 0, 1, 8, 0, 0x45],
                                  &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 1, 0x86, 0xdd, 0x60], &[]];
        for (byte, value) in frame.iter_mut().skip(12).zip(starts[usize::from(kind)]) {
            *byte = *value;
        }
        if kind == 2 && frame.len() > 55 {
            frame[20] = [0, 43, 44, 51, 60, 17, 6, 58][usize::from(fields.0 % 8)];
            frame[54] = [0, 43, 44, 51, 60, 17, 6, 58][usize::from(fields.1 % 8)];
            frame[55] %= 3;
        }
        // The fast path and the general way agree.
        prop_assert_eq!(classify(&frame), classify_unusual(&frame));
        if let Classified::Ip(flow) = classify(&frame) {
            prop_assert!(usize::from(flow.l3_offset) < frame.len());
            prop_assert_eq!(classify_ip(&frame[usize::from(flow.l3_offset)..]), Some(Flow { l3_offset: 0, ..flow }));
            prop_assert!(!(flow.fragment && flow.ports.is_some()));
        }
    }
}
