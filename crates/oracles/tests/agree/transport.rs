//! UDP, TCP and its options.

use flowlane_stack::wire::{
    IpProtocol, SackBlock, SeqNum, Sum, TcpFlags, TcpHeader, TcpOptions, Timestamps, UdpHeader, tcp, udp,
};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as smol;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn pseudo(src: IpAddr, dst: IpAddr, protocol: IpProtocol, len: usize) -> Sum {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Sum::pseudo_v4(src, dst, protocol, len as u16),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Sum::pseudo_v6(src, dst, protocol, len as u32),
        _ => unreachable!(),
    }
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| (Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into())),
        any::<(u128, u128)>()
            .prop_map(|(a, b)| (Ipv6Addr::from_bits(a).into(), Ipv6Addr::from_bits(b).into())),
    ]
}

fn options() -> impl Strategy<Value = TcpOptions> {
    let blocks = proptest::collection::vec(any::<(u32, u32)>(), 0..=3);
    let scale = proptest::option::of(0u8..=14);
    (any::<Option<u16>>(), scale, any::<bool>(), any::<Option<(u32, u32)>>(), blocks).prop_map(
        |(mss, window_scale, sack_permitted, ts, blocks)| {
            let timestamps = ts.map(|(value, echo)| Timestamps { value, echo });
            let mut options =
                TcpOptions { mss, window_scale, sack_permitted, timestamps, ..TcpOptions::default() };
            // All of them together would not fit.
            for (left, right) in
                blocks.into_iter().take(if mss.is_some() || window_scale.is_some() { 2 } else { 3 })
            {
                options.sack.push(SackBlock { left: SeqNum(left), right: SeqNum(right) });
            }
            options
        },
    )
}

/// Reads an option list with smoltcp's reader of single options; `None` if it gives up.
fn read_with_smoltcp(bytes: &[u8]) -> Option<TcpOptions> {
    let mut options = TcpOptions::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (next, option) = smol::TcpOption::parse(rest).ok()?;
        match option {
            smol::TcpOption::EndOfList => break,
            smol::TcpOption::NoOperation | smol::TcpOption::Unknown { .. } => {}
            smol::TcpOption::MaxSegmentSize(mss) => options.mss = Some(mss),
            smol::TcpOption::WindowScale(shift) => options.window_scale = Some(shift.min(14)),
            smol::TcpOption::SackPermitted => options.sack_permitted = true,
            smol::TcpOption::SackRange(ranges) => {
                options.sack = Default::default();
                for (left, right) in ranges.into_iter().flatten() {
                    options.sack.push(SackBlock { left: SeqNum(left), right: SeqNum(right) });
                }
            }
            smol::TcpOption::TimeStamp { tsval, tsecr } => {
                options.timestamps = Some(Timestamps { value: tsval, echo: tsecr });
            }
        }
        rest = next;
    }
    Some(options)
}

proptest! {
    #[test]
    fn udp_datagrams((src, dst) in addresses(), ports in any::<(u16, u16)>(), data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let len = 8 + data.len();
        let mut datagram = [&[0; 8][..], &data].concat();
        UdpHeader { src_port: ports.0, dst_port: ports.1, len: len as u16, checksum: 0 }.emit(&mut datagram);
        udp::fill_checksum(pseudo(src, dst, IpProtocol::UDP, len), &mut datagram);
        let theirs = smol::UdpPacket::new_checked(&datagram[..]).unwrap();
        prop_assert!(theirs.verify_checksum(&src.into(), &dst.into()));
        prop_assert_eq!((theirs.src_port(), theirs.dst_port()), ports);
        prop_assert_eq!(theirs.payload(), &data[..]);
        prop_assert!(theirs.checksum() != 0);
    }

    #[test]
    fn udp_lengths(mut datagram in proptest::collection::vec(any::<u8>(), 0..40), len in 0u8..48) {
        if datagram.len() >= 6 {
            datagram[4..6].copy_from_slice(&[0, len]);
        }
        let ours = UdpHeader::parse(&datagram).map(|(_, payload)| payload.len()).ok();
        let theirs = smol::UdpPacket::new_checked(&datagram[..]).ok().map(|p| p.payload().len());
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn tcp_segments((src, dst) in addresses(), a in any::<(u16, u16, u32, u32, u16, u16)>(), flags in 0u16..512, options in options(),
                    data in proptest::collection::vec(any::<u8>(), 0..100)) {
        let header = TcpHeader {
            src_port: a.0, dst_port: a.1, seq: SeqNum(a.2), ack: SeqNum(a.3), flags: TcpFlags(flags), window: a.4, urgent: a.5,
        };
        let mut segment = vec![0; 20 + options.len()];
        prop_assert_eq!(header.emit(&options, &mut segment), segment.len());
        segment.extend(&data);
        tcp::fill_checksum(pseudo(src, dst, IpProtocol::TCP, segment.len()), &mut segment);

        let theirs = smol::TcpPacket::new_checked(&segment[..]).unwrap();
        prop_assert!(theirs.verify_checksum(&src.into(), &dst.into()));
        prop_assert_eq!((theirs.src_port(), theirs.dst_port()), (a.0, a.1));
        prop_assert_eq!((theirs.seq_number().0 as u32, theirs.ack_number().0 as u32), (a.2, a.3));
        prop_assert_eq!((theirs.window_len(), theirs.urgent_at()), (a.4, a.5));
        prop_assert_eq!(theirs.payload(), &data[..]);
        let seen = [theirs.fin(), theirs.syn(), theirs.rst(), theirs.psh(), theirs.ack(), theirs.urg(), theirs.ece(), theirs.cwr(), theirs.ns()];
        prop_assert!(seen.iter().enumerate().all(|(bit, set)| *set == (flags >> bit & 1 == 1)));
        prop_assert_eq!(read_with_smoltcp(theirs.options()), Some(options));

        let theirs = etherparse::TcpSlice::from_slice(&segment).unwrap();
        prop_assert_eq!(theirs.header_len(), 20 + options.len());
        prop_assert_eq!(theirs.payload(), &data[..]);
        prop_assert!(theirs.options_iterator().all(|option| option.is_ok()));
    }

    #[test]
    fn tcp_that_smoltcp_emits((src, dst) in addresses(), a in any::<(u16, u16, u32, u32, u16)>(), mss in any::<Option<u16>>(),
                              ts in any::<Option<(u32, u32)>>(), data in proptest::collection::vec(any::<u8>(), 0..100)) {
        prop_assume!(a.0 != 0 && a.1 != 0);
        let repr = smol::TcpRepr {
            src_port: a.0, dst_port: a.1, control: smol::TcpControl::Syn, seq_number: smol::TcpSeqNumber(a.2 as i32),
            ack_number: Some(smol::TcpSeqNumber(a.3 as i32)), window_len: a.4, window_scale: Some(7), max_seg_size: mss,
            sack_permitted: true, sack_ranges: [None; 3],
            timestamp: ts.map(|(value, echo)| smol::TcpTimestampRepr::new(value, echo)), payload: &data,
        };
        let mut segment = vec![0; repr.buffer_len()];
        repr.emit(&mut smol::TcpPacket::new_unchecked(&mut segment), &src.into(), &dst.into(), &ChecksumCapabilities::default());
        prop_assert!(tcp::intact(pseudo(src, dst, IpProtocol::TCP, segment.len()), &segment));
        let (header, payload) = TcpHeader::parse(&segment).unwrap();
        prop_assert_eq!((header.src_port, header.dst_port, header.seq.0, header.ack.0, header.window), a);
        prop_assert_eq!(header.flags, TcpFlags::SYN | TcpFlags::ACK);
        let options = TcpOptions::parse(&segment[20..payload.start]);
        prop_assert_eq!(&segment[payload], &data[..]);
        prop_assert_eq!((options.mss, options.window_scale, options.sack_permitted), (mss, Some(7), true));
        prop_assert_eq!(options.timestamps.map(|t| (t.value, t.echo)), ts);
    }

    #[test]
    fn option_lists_of_any_kind(bytes in proptest::collection::vec(prop_oneof![Just(1u8), 0u8..12, any::<u8>()], 0..=40)) {
        // smoltcp gives up on an option of the wrong length, where we skip it, keeps three of four blocks, and does not
        // know Fast Open.
        if let Some(theirs) = read_with_smoltcp(&bytes) {
            let ours = TcpOptions::parse(&bytes);
            prop_assert_eq!(TcpOptions { sack: theirs.sack, fast_open: None, ..ours }, theirs);
            prop_assert!(ours.sack.as_slice().starts_with(theirs.sack.as_slice()));
        }
    }

    #[test]
    fn tcp_lengths(mut segment in proptest::collection::vec(any::<u8>(), 0..80), offset in 0u8..16) {
        if segment.len() > 12 {
            segment[12] = offset << 4;
        }
        let ours = TcpHeader::parse(&segment).map(|(_, payload)| payload.start).ok();
        let theirs = smol::TcpPacket::new_checked(&segment[..]).ok().map(|p| usize::from(p.header_len()));
        prop_assert_eq!(ours, theirs);
    }
}
