//! Classification against a parser that takes its time.

use etherparse::{EtherType, LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use flowlane_stack::wire::{Classified, Flow, classify};
use proptest::prelude::*;

/// Frames of all kinds: parts that are plausible in an order that mostly is.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![0x81, 0, 0x20, 5]),
        1 => Just(vec![0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]),
    ];
    let v4 = (
        any::<[u8; 20]>(),
        0u8..3,
        prop_oneof![3 => Just(0u16), 1 => any::<u16>()],
        prop_oneof![Just(6u8), Just(17), any::<u8>()],
    );
    let v4 = v4.prop_map(|(mut header, options, fragment, protocol)| {
        header[0] = 0x45 + options;
        header[2..4].copy_from_slice(&(60 + u16::from(options) * 4).to_be_bytes());
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        header[9] = protocol;
        let mut packet = vec![8, 0];
        packet.extend(header);
        packet.extend(vec![1; usize::from(options) * 4]);
        (packet, protocol)
    });
    let extension = (
        prop_oneof![Just(0u8), Just(43), Just(44), Just(51), Just(60)],
        0u8..3,
        any::<[u8; 32]>(),
        any::<bool>(),
    );
    let v6 = (
        any::<[u8; 40]>(),
        proptest::collection::vec(extension, 0..4),
        prop_oneof![Just(6u8), Just(17), any::<u8>()],
    );
    let v6 = v6.prop_map(|(mut header, extensions, protocol)| {
        let mut chain = Vec::new();
        let mut names: Vec<u8> = extensions.iter().map(|(kind, ..)| *kind).collect();
        names.push(protocol);
        for ((kind, len, bytes, atomic), next) in extensions.iter().zip(&names[1..]) {
            // The three kinds of length field: none, units of eight, units of four less two.
            let (size, len) = match kind {
                44 => (8, 0),
                51 => (8 + usize::from(*len) * 8, len * 2),
                _ => (8 + usize::from(*len) * 8, *len),
            };
            let start = chain.len();
            chain.extend(&bytes[..size]);
            chain[start] = *next;
            chain[start + 1] = len;
            if *kind == 44 && *atomic {
                chain[start + 2..start + 4].fill(0);
            } else if *kind == 51 {
                chain[start + 1] = len.max(1);
                if len == 0 {
                    chain.extend([0; 4]);
                }
            }
        }
        header[0] = 0x60;
        header[4..6].copy_from_slice(&(chain.len() as u16 + 40).to_be_bytes());
        header[6] = names[0];
        let mut packet = vec![0x86, 0xdd];
        packet.extend(header);
        packet.extend(chain);
        (packet, protocol)
    });
    (any::<[u8; 12]>(), tags, prop_oneof![v4, v6], any::<[u8; 40]>(), 0usize..60).prop_map(
        |(macs, tags, (packet, protocol), mut payload, cut)| {
            if protocol == 17 {
                payload[4..6].copy_from_slice(&40u16.to_be_bytes());
            }
            payload[12] = 0x50 | payload[12] & 0x0f;
            let mut frame = [&macs[..], &tags, &packet, &payload].concat();
            if cut < 20 {
                frame.truncate(frame.len() - cut);
            }
            frame
        },
    )
}

fn check(frame: &[u8]) -> Result<(), TestCaseError> {
    let ours = classify(frame);
    let Ok(theirs) = SlicedPacket::from_ethernet(frame) else { return Ok(()) };
    // It takes the 0x9100 of before 802.1ad for a tag, where we (and FreeBSD) see a protocol we do not know.
    let outer = theirs.link.iter().filter_map(LinkSlice::ether_payload);
    let behind_tags = theirs.link_exts.iter().filter_map(LinkExtSlice::ether_payload);
    if outer.chain(behind_tags).any(|payload| payload.ether_type == EtherType::VLAN_DOUBLE_TAGGED_FRAME) {
        return Ok(());
    }
    let (src, dst, fragment) = match &theirs.net {
        Some(NetSlice::Ipv4(ip)) => {
            // It looks through authentication headers of IPv4, where we (and FreeBSD) do not.
            if ip.header().protocol() == etherparse::IpNumber::AUTHENTICATION_HEADER {
                return Ok(());
            }
            (
                ip.header().source_addr().into(),
                ip.header().destination_addr().into(),
                ip.is_payload_fragmented(),
            )
        }
        Some(NetSlice::Ipv6(ip)) => (
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
            ip.is_payload_fragmented(),
        ),
        _ => {
            prop_assert!(!matches!(ours, Classified::Ip(_)) || theirs.link_exts.len() > 2);
            return Ok(());
        }
    };
    let Classified::Ip(Flow { addresses, ports, fragment: our_fragment, .. }) = ours else {
        return Err(TestCaseError::fail(format!("{ours:?} where etherparse sees {theirs:?}")));
    };
    let their_ports = match &theirs.transport {
        Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
        Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
        _ => None,
    };
    prop_assert_eq!((addresses.src(), addresses.dst()), (src, dst));
    prop_assert_eq!(our_fragment, fragment, "{:?}", theirs);
    prop_assert_eq!(ports, their_ports, "{:?}", theirs);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn plausible_frames(frame in frame()) {
        check(&frame)?;
    }

    #[test]
    fn plausible_frames_with_a_wrong_byte(mut frame in frame(), at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let at = at.index(frame.len());
        frame[at] = value;
        check(&frame)?;
    }
}
