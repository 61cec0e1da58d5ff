//! Ethernet, IPv4, IPv6 and ICMP.

use flowlane_stack::wire::{
    EtherType, EthernetHeader, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Header, Ipv4Options, Ipv6Header,
    MacAddr, Malformed, Quote, icmpv4, icmpv6,
};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as smol;
use std::net::{Ipv4Addr, Ipv6Addr};

fn ipv4() -> impl Strategy<Value = Ipv4Header> {
    (any::<(u32, u32, u8, u8, u8, u16)>(), any::<(bool, bool, bool)>(), 0u16..8192, 0u16..100).prop_map(
        |(a, flags, offset, len)| Ipv4Header {
            src: a.0.into(),
            dst: a.1.into(),
            protocol: IpProtocol(a.2),
            ttl: a.3,
            tos: a.4,
            identification: a.5,
            dont_fragment: flags.0,
            more_fragments: flags.1,
            fragment_offset: offset * 8,
            payload_len: len,
            options: Ipv4Options { router_alert: flags.2, source_route: false },
        },
    )
}

/// Bytes that are an IPv4 packet often enough.
fn ipv4_bytes() -> impl Strategy<Value = Vec<u8>> {
    let header = (ipv4(), any::<[u8; 4]>(), 0usize..6, any::<prop::sample::Index>(), any::<u8>());
    let near = header.prop_map(|(header, more, options, at, value)| {
        let mut packet = vec![0; 200];
        header.emit(&mut packet);
        packet[0] = 0x45 + options as u8;
        for four in packet[20..20 + options * 4].chunks_mut(4) {
            four.copy_from_slice(&more);
        }
        packet[10..12].fill(0);
        let sum = flowlane_stack::wire::checksum::checksum(&packet[..20 + options * 4]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        // Half of them get one wrong byte.
        if value % 2 == 0 {
            packet[at.index(20)] = value;
        }
        packet
    });
    prop_oneof![4 => near, 1 => proptest::collection::vec(any::<u8>(), 0..80)]
}

proptest! {
    #[test]
    fn ethernet(dst in any::<[u8; 6]>(), src in any::<[u8; 6]>(), ethertype in any::<u16>()) {
        let header = EthernetHeader { dst: MacAddr(dst), src: MacAddr(src), ethertype: EtherType(ethertype), vlan: None };
        let mut frame = [0; 60];
        header.emit(&mut frame);
        let theirs = smol::EthernetFrame::new_checked(&frame[..]).unwrap();
        prop_assert_eq!(theirs.dst_addr().0, dst);
        prop_assert_eq!(theirs.src_addr().0, src);
        prop_assert_eq!(u16::from(theirs.ethertype()), ethertype);
    }

    #[test]
    fn ipv4_that_we_emit(header in ipv4()) {
        let mut packet = vec![0; 200];
        header.emit(&mut packet);
        let theirs = smol::Ipv4Packet::new_checked(&packet[..]).unwrap();
        prop_assert!(theirs.verify_checksum());
        prop_assert_eq!(theirs.version(), 4);
        prop_assert_eq!(usize::from(theirs.header_len()), header.header_len());
        prop_assert_eq!((theirs.src_addr(), theirs.dst_addr()), (header.src, header.dst));
        prop_assert_eq!(u8::from(theirs.next_header()), header.protocol.0);
        prop_assert_eq!((theirs.hop_limit(), theirs.ident()), (header.ttl, header.identification));
        prop_assert_eq!((theirs.dont_frag(), theirs.more_frags()), (header.dont_fragment, header.more_fragments));
        prop_assert_eq!(theirs.frag_offset(), header.fragment_offset);
        prop_assert_eq!(theirs.payload().len(), usize::from(header.payload_len));
        prop_assert_eq!(theirs.dscp() << 2 | theirs.ecn(), header.tos);
    }

    #[test]
    fn ipv4_that_anybody_emits(packet in ipv4_bytes()) {
        let ours = Ipv4Header::parse(&packet);
        // etherparse does not verify checksums, smoltcp does not look at the version when it only checks lengths.
        let smoltcp = smol::Ipv4Packet::new_checked(&packet[..]).is_ok_and(|p| p.version() == 4 && p.verify_checksum());
        let etherparse = etherparse::Ipv4HeaderSlice::from_slice(&packet);
        match ours {
            Ok((header, payload)) => {
                prop_assert!(smoltcp);
                let theirs = etherparse.unwrap();
                prop_assert_eq!(theirs.source_addr(), header.src);
                prop_assert_eq!(theirs.slice().len(), payload.start);
                prop_assert_eq!(theirs.payload_len().unwrap(), header.payload_len);
                prop_assert_eq!(theirs.fragments_offset().value() * 8, header.fragment_offset);
                prop_assert_eq!(theirs.is_fragmenting_payload(), header.is_fragment());
            }
            // Nobody else walks the options.
            Err(Malformed::Ipv4BadOption) => {}
            Err(_) => prop_assert!(!smoltcp),
        }
    }

    #[test]
    fn ipv6(src in any::<u128>(), dst in any::<u128>(), next in any::<u8>(), limit in any::<u8>(), tc in any::<u8>(),
            label in 0u32..1 << 20, len in 0u16..120) {
        let header = Ipv6Header {
            src: Ipv6Addr::from_bits(src), dst: Ipv6Addr::from_bits(dst), next_header: IpProtocol(next),
            hop_limit: limit, traffic_class: tc, flow_label: label, payload_len: len,
        };
        let mut packet = [0; 140];
        header.emit(&mut packet);
        let ours = Ipv6Header::parse(&packet);
        match smol::Ipv6Packet::new_checked(&packet[..]) {
            Ok(theirs) => {
                prop_assert_eq!(ours, Ok((header, 40..40 + usize::from(len))));
                prop_assert_eq!((theirs.src_addr(), theirs.dst_addr()), (header.src, header.dst));
                prop_assert_eq!((theirs.traffic_class(), theirs.flow_label()), (tc, label));
                prop_assert_eq!((u8::from(theirs.next_header()), theirs.hop_limit()), (next, limit));
                prop_assert_eq!(theirs.payload_len(), len);
            }
            Err(_) => prop_assert_eq!(ours, Err(Malformed::Ipv6PayloadLength)),
        }
    }

    #[test]
    fn icmpv4_echo(ident in any::<u16>(), seq in any::<u16>(), data in proptest::collection::vec(any::<u8>(), 0..80), reply in any::<bool>()) {
        let mut message = [&[0; 8][..], &data].concat();
        let ours = if reply { Icmpv4Message::EchoReply { ident, seq } } else { Icmpv4Message::EchoRequest { ident, seq } };
        ours.emit(&mut message);
        let caps = ChecksumCapabilities::default();
        let theirs = smol::Icmpv4Repr::parse(&smol::Icmpv4Packet::new_checked(&message[..]).unwrap(), &caps).unwrap();
        let want = if reply {
            smol::Icmpv4Repr::EchoReply { ident, seq_no: seq, data: &data }
        } else {
            smol::Icmpv4Repr::EchoRequest { ident, seq_no: seq, data: &data }
        };
        prop_assert_eq!(theirs, want);
        let mut again = vec![0; theirs.buffer_len()];
        theirs.emit(&mut smol::Icmpv4Packet::new_unchecked(&mut again), &caps);
        prop_assert_eq!(again, message);
    }

    #[test]
    fn icmpv6_echo(src in any::<u128>(), dst in any::<u128>(), ident in any::<u16>(), seq in any::<u16>(),
                   data in proptest::collection::vec(any::<u8>(), 0..80)) {
        let (src, dst) = (Ipv6Addr::from_bits(src), Ipv6Addr::from_bits(dst));
        let mut message = [&[0; 8][..], &data].concat();
        Icmpv6Message::EchoRequest { ident, seq }.emit(src, dst, &mut message);
        let packet = smol::Icmpv6Packet::new_checked(&message[..]).unwrap();
        let theirs = smol::Icmpv6Repr::parse(&src, &dst, &packet, &ChecksumCapabilities::default()).unwrap();
        prop_assert_eq!(theirs, smol::Icmpv6Repr::EchoRequest { ident, seq_no: seq, data: &data });
    }
}

#[test]
fn errors_quote_what_they_are_about() {
    let caps = ChecksumCapabilities::default();
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let data = [0x9c, 0x40, 0, 53, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let header = smol::Ipv4Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: smol::IpProtocol::Udp,
        payload_len: 16,
        hop_limit: 9,
    };
    let theirs = smol::Icmpv4Repr::DstUnreachable {
        reason: smol::Icmpv4DstUnreachable::PortUnreachable,
        header,
        data: &data,
    };
    let mut message = vec![0; theirs.buffer_len()];
    theirs.emit(&mut smol::Icmpv4Packet::new_unchecked(&mut message), &caps);
    let (ours, payload) = Icmpv4Message::parse(&message).unwrap();
    assert_eq!(ours, Icmpv4Message::Unreachable { code: icmpv4::unreachable::PORT, mtu: 0 });
    let quote = Quote::parse_v4(&message[payload]).unwrap();
    assert_eq!((quote.src, quote.dst, quote.ports()), (src.into(), dst.into(), Some((40_000, 53))));

    let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let header = smol::Ipv6Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: smol::IpProtocol::Udp,
        payload_len: 16,
        hop_limit: 9,
    };
    for (theirs, ours) in [
        (
            smol::Icmpv6Repr::DstUnreachable {
                reason: smol::Icmpv6DstUnreachable::PortUnreachable,
                header,
                data: &data,
            },
            Icmpv6Message::Unreachable { code: icmpv6::unreachable::PORT },
        ),
        (
            smol::Icmpv6Repr::PktTooBig { mtu: 1280, header, data: &data },
            Icmpv6Message::PacketTooBig { mtu: 1280 },
        ),
        (
            smol::Icmpv6Repr::ParamProblem {
                reason: smol::Icmpv6ParamProblem::UnrecognizedOption,
                pointer: 42,
                header,
                data: &data,
            },
            Icmpv6Message::ParameterProblem { code: 2, pointer: 42 },
        ),
    ] {
        let mut message = vec![0; theirs.buffer_len()];
        theirs.emit(&src, &dst, &mut smol::Icmpv6Packet::new_unchecked(&mut message), &caps);
        let (parsed, payload) = Icmpv6Message::parse(src, dst, &message).unwrap();
        assert_eq!(parsed, ours);
        let quote = Quote::parse_v6(&message[payload]).unwrap();
        assert_eq!((quote.src, quote.dst, quote.ports()), (src.into(), dst.into(), Some((40_000, 53))));
    }
}
