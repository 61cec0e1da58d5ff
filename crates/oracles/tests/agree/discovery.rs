//! ARP, neighbour discovery, and membership of groups.

use flowlane_stack::wire::{
    ArpOperation, ArpPacket, GroupChange, Icmpv6Message, IgmpMessage, MacAddr, Malformed, NdpMessage,
    NdpOptions, PrefixInformation, igmp, mld, ndp,
};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as smol;
use std::net::{Ipv4Addr, Ipv6Addr};

const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DST: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What smoltcp makes of a whole ICMPv6 message.
fn read_with_smoltcp(message: &[u8]) -> smol::Icmpv6Repr<'_> {
    let packet = smol::Icmpv6Packet::new_checked(message).expect("long enough");
    smol::Icmpv6Repr::parse(&SRC, &DST, &packet, &ChecksumCapabilities::default()).expect("well formed")
}

fn mac(address: &[u8; 6]) -> smol::RawHardwareAddress {
    smol::EthernetAddress(*address).into()
}

proptest! {
    #[test]
    fn arp(bytes in any::<[u8; 28]>(), good in any::<bool>(), operation in 0u8..4) {
        let mut bytes = bytes;
        if good {
            bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
        }
        let theirs = smol::ArpPacket::new_checked(&bytes[..]).and_then(|packet| smol::ArpRepr::parse(&packet));
        match (ArpPacket::parse(&bytes), theirs) {
            (Ok((ours, _)), Ok(smol::ArpRepr::EthernetIpv4 {
                operation, source_hardware_addr, source_protocol_addr, target_hardware_addr, target_protocol_addr,
            })) => {
                let request = operation == smol::ArpOperation::Request;
                prop_assert_eq!(ours.operation, if request { ArpOperation::Request } else { ArpOperation::Reply });
                prop_assert_eq!(ours.sender_mac.0, source_hardware_addr.0);
                prop_assert_eq!(ours.target_mac.0, target_hardware_addr.0);
                prop_assert_eq!((ours.sender_ip, ours.target_ip), (source_protocol_addr, target_protocol_addr));
            }
            // smoltcp lets operations through that it does not know; its address lengths are variable.
            (Err(Malformed::ArpUnsupported), Ok(smol::ArpRepr::EthernetIpv4 { operation, .. })) => {
                prop_assert!(matches!(operation, smol::ArpOperation::Unknown(_)));
            }
            (ours, theirs) => prop_assert!(ours.is_err() && theirs.is_err(), "{ours:?}, {theirs:?}"),
        }
    }

    #[test]
    fn solicitations_and_advertisements(target in any::<u128>(), address in any::<[u8; 6]>(), bits in 0u8..8) {
        let target = Ipv6Addr::from_bits(target);
        prop_assume!(!target.is_multicast());
        let mut buffer = [0; ndp::MAX_MESSAGE_LEN];
        let options = NdpOptions { source: Some(MacAddr(address)), ..NdpOptions::default() };
        let len = NdpMessage::NeighborSolicitation { target, options }.emit(SRC, DST, &mut buffer);
        let want = smol::NdiscRepr::NeighborSolicit { target_addr: target, lladdr: Some(mac(&address)) };
        prop_assert_eq!(read_with_smoltcp(&buffer[..len]), smol::Icmpv6Repr::Ndisc(want));

        let advertisement = NdpMessage::NeighborAdvertisement {
            router: bits & 4 != 0, solicited: bits & 2 != 0, overrides: bits & 1 != 0, target,
            options: NdpOptions { target: Some(MacAddr(address)), ..NdpOptions::default() },
        };
        let theirs = smol::Icmpv6Repr::Ndisc(smol::NdiscRepr::NeighborAdvert {
            flags: smol::NdiscNeighborFlags::from_bits_truncate(bits << 5), target_addr: target, lladdr: Some(mac(&address)),
        });
        let len = advertisement.emit(SRC, DST, &mut buffer);
        prop_assert_eq!(&read_with_smoltcp(&buffer[..len]), &theirs);

        // And the other way.
        let mut message = vec![0; theirs.buffer_len()];
        theirs.emit(&SRC, &DST, &mut smol::Icmpv6Packet::new_unchecked(&mut message), &ChecksumCapabilities::default());
        prop_assert_eq!(Icmpv6Message::parse(SRC, DST, &message).unwrap().0, Icmpv6Message::Ndp);
        prop_assert_eq!(NdpMessage::parse(&message).unwrap().0, advertisement);
    }

    #[test]
    fn router_advertisements(hop_limit in any::<u8>(), flags in 0u8..4, times in any::<(u16, u32, u32)>(), mtu in any::<u32>(),
                             prefix in any::<u64>(), prefix_len in 0u8..=128, lifetimes in any::<(u32, u32)>()) {
        let information = PrefixInformation {
            prefix: Ipv6Addr::from_bits(u128::from(prefix) << 64), prefix_len, on_link: flags & 1 != 0, autonomous: flags & 2 != 0,
            valid_lifetime: lifetimes.0, preferred_lifetime: lifetimes.1,
        };
        let advertisement = NdpMessage::RouterAdvertisement {
            hop_limit, managed: flags & 2 != 0, other: flags & 1 != 0, lifetime: times.0, reachable_time: times.1,
            retrans_timer: times.2,
            options: NdpOptions { mtu: Some(mtu), prefixes: [Some(information), None, None, None], ..NdpOptions::default() },
        };
        let mut buffer = [0; ndp::MAX_MESSAGE_LEN];
        let len = advertisement.emit(SRC, DST, &mut buffer);
        let smol::Icmpv6Repr::Ndisc(smol::NdiscRepr::RouterAdvert {
            hop_limit: their_limit, flags: their_flags, router_lifetime, reachable_time, retrans_time, lladdr: None,
            mtu: their_mtu, prefix_info: Some(their_prefix),
        }) = read_with_smoltcp(&buffer[..len]) else { return Err(TestCaseError::fail("another message")) };
        prop_assert_eq!((their_limit, their_mtu), (hop_limit, Some(mtu)));
        prop_assert_eq!(their_flags.bits(), flags << 6);
        prop_assert_eq!(router_lifetime.secs(), u64::from(times.0));
        prop_assert_eq!((reachable_time.total_millis(), retrans_time.total_millis()), (u64::from(times.1), u64::from(times.2)));
        prop_assert_eq!((their_prefix.prefix, their_prefix.prefix_len), (information.prefix, prefix_len));
        prop_assert_eq!(their_prefix.flags.bits(), u8::from(information.on_link) << 7 | u8::from(information.autonomous) << 6);
        prop_assert_eq!(their_prefix.valid_lifetime.secs(), u64::from(lifetimes.0));
        prop_assert_eq!(their_prefix.preferred_lifetime.secs(), u64::from(lifetimes.1));
    }

    #[test]
    fn igmp_version_2(group in 0xe000_0000u32..0xf000_0000) {
        let group = Ipv4Addr::from(group);
        let mut buffer = [0; 8];
        IgmpMessage::Report { group }.emit(&mut buffer);
        let packet = smol::IgmpPacket::new_checked(&buffer[..]).unwrap();
        prop_assert!(packet.verify_checksum());
        let want = smol::IgmpRepr::MembershipReport { group_addr: group, version: smol::IgmpVersion::Version2 };
        prop_assert_eq!(smol::IgmpRepr::parse(&packet).unwrap(), want);
        IgmpMessage::Leave { group }.emit(&mut buffer);
        let packet = smol::IgmpPacket::new_checked(&buffer[..]).unwrap();
        prop_assert_eq!(smol::IgmpRepr::parse(&packet).unwrap(), smol::IgmpRepr::LeaveGroup { group_addr: group });
    }
}

#[test]
fn igmp_version_3() {
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let mut buffer = [0; 16];
    let len = igmp::emit_v3_report(&[(group, GroupChange::Join)], &mut buffer);
    let theirs = etherparse::IgmpSlice::from_slice(&buffer[..len]).unwrap();
    assert_eq!(theirs.type_u8(), 0x22);
    assert_eq!(flowlane_stack::wire::checksum::checksum(&buffer), 0);
}

#[test]
fn mld_version_2() {
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 7);
    let mut buffer = [0; 28];
    let len = mld::emit_v2_report(SRC, DST, &[(group, GroupChange::Join)], &mut buffer);
    let smol::Icmpv6Repr::Mld(smol::MldRepr::Report { nr_mcast_addr_rcrds, data }) =
        read_with_smoltcp(&buffer[..len])
    else {
        panic!("another message");
    };
    assert_eq!(nr_mcast_addr_rcrds, 1);
    let record =
        smol::MldAddressRecordRepr::parse(&smol::MldAddressRecord::new_checked(data).unwrap()).unwrap();
    assert_eq!(record.mcast_addr, group);
    assert_eq!(record.record_type, smol::MldRecordType::ChangeToExclude);
    assert_eq!(record.num_srcs, 0);
}
