//! Every parser on any bytes: no panic, ranges inside the input, and what was read can be written and read again.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use flowlane_stack::wire::{
    ArpPacket, EthernetHeader, GeneveHeader, GreHeader, Icmpv4Message, Icmpv6Message, IgmpMessage,
    IpProtocol, Ipv4Header, Ipv6Header, MldQuery, NdpMessage, Quote, Sum, TcpHeader, TcpOptions, UdpHeader,
    VxlanHeader, checksum, igmp, ipv6_ext, tcp, udp,
};

const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DST: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// The bytes, read as each of the formats.
pub fn run(data: &[u8]) {
    sums(data);
    ethernet(data);
    ip(data);
    icmp(data);
    discovery(data);
    transport(data);
    tunnels(data);
}

fn inside(range: &Range<usize>, data: &[u8]) {
    assert!(range.start <= range.end && range.end <= data.len(), "{range:?} of {} bytes", data.len());
}

/// A sum is the same however the bytes are cut, and updating one word is as good as adding everything up again.
fn sums(data: &[u8]) {
    let whole = checksum::checksum(data);
    let cut = data.first().map_or(0, |b| usize::from(*b) % (data.len() + 1));
    let (front, back) = data.split_at(cut);
    assert_eq!(Sum::EMPTY.add_bytes(front).add_bytes_at(cut, back).finish(), whole, "cut at {cut}");
    if data.len() >= 4 {
        let mut changed = data.to_vec();
        let old = u16::from_be_bytes([data[0], data[1]]);
        let new = u16::from_be_bytes([data[2], data[3]]);
        changed[..2].copy_from_slice(&new.to_be_bytes());
        let (updated, again) = (checksum::update_u16(whole, old, new), checksum::checksum(&changed));
        // Zero and all ones are the same number in ones-complement.
        let same = updated == again || (matches!(updated, 0 | 0xffff) && matches!(again, 0 | 0xffff));
        assert!(same, "{updated:#06x} for {again:#06x}");
    }
}

fn ethernet(data: &[u8]) {
    if let Ok((header, payload)) = EthernetHeader::parse(data) {
        inside(&payload, data);
        let mut bytes = [0; 18];
        let n = header.emit(&mut bytes);
        assert_eq!((n, &bytes[..n]), (payload.start, &data[..n]));
    }
    if let Ok((arp, range)) = ArpPacket::parse(data) {
        let mut bytes = [0; 28];
        assert_eq!(arp.emit(&mut bytes), range.len());
        assert_eq!(bytes, data[range]);
    }
}

fn ip(data: &[u8]) {
    let strict = Ipv4Header::parse(data);
    if let Ok((header, payload)) = Ipv4Header::parse_trusted(data) {
        inside(&payload, data);
        if let Ok(strict) = &strict {
            assert_eq!(strict, &(header, payload.clone()));
        }
        if !header.options.source_route {
            let mut bytes = vec![0; header.header_len() + payload.len()];
            let n = header.emit(&mut bytes);
            assert_eq!(n, header.header_len());
            assert_eq!(Ipv4Header::parse(&bytes), Ok((header, n..bytes.len())));
        }
    } else {
        assert!(strict.is_err());
    }
    if let Ok((header, payload)) = Ipv6Header::parse(data) {
        inside(&payload, data);
        let mut bytes = vec![0; 40 + payload.len()];
        assert_eq!(header.emit(&mut bytes), 40);
        assert_eq!(bytes[..40], data[..40]);
        let packet = &data[..payload.end];
        if let Ok(upper) = ipv6_ext::walk(packet, header.next_header) {
            assert!((40..=packet.len()).contains(&upper.offset), "walked to {}", upper.offset);
        }
    }
    for quote in [Quote::parse_v4(data), Quote::parse_v6(data)].into_iter().flatten() {
        assert!(quote.start.is_some() || quote.ports().is_none());
        let _ = (quote.tcp_seq(), quote.echo());
    }
}

fn icmp(data: &[u8]) {
    if let Ok((message, payload)) = Icmpv4Message::parse_trusted(data) {
        inside(&payload, data);
        let mut bytes = data.to_vec();
        message.emit(&mut bytes);
        assert_eq!(Icmpv4Message::parse(&bytes), Ok((message, payload)));
    } else {
        assert!(Icmpv4Message::parse(data).is_err());
    }
    if let Ok((message, payload)) = Icmpv6Message::parse_trusted(data) {
        inside(&payload, data);
        if !matches!(message, Icmpv6Message::Ndp | Icmpv6Message::Mld) {
            let mut bytes = data.to_vec();
            message.emit(SRC, DST, &mut bytes);
            assert_eq!(Icmpv6Message::parse(SRC, DST, &bytes), Ok((message, payload)));
        }
    } else {
        assert!(Icmpv6Message::parse(SRC, DST, data).is_err());
    }
}

fn discovery(data: &[u8]) {
    if let Ok((message, options)) = NdpMessage::parse(data) {
        inside(&options, data);
        let mut bytes = vec![0; message.len()];
        assert_eq!(message.emit(SRC, DST, &mut bytes), bytes.len());
        assert!(Icmpv6Message::parse(SRC, DST, &bytes).is_ok());
        assert_eq!(NdpMessage::parse(&bytes).map(|(m, _)| m), Ok(message));
    }
    if let Ok(Some(query)) = MldQuery::parse(data) {
        let sources: Vec<_> = if query.version == 2 { MldQuery::sources(data).collect() } else { Vec::new() };
        assert_eq!(sources.len(), usize::from(query.sources));
        let mut bytes = vec![0; 28 + 16 * sources.len()];
        let len = query.emit(SRC, DST, &sources, &mut bytes);
        assert_eq!(MldQuery::parse(&bytes[..len]), Ok(Some(query)));
    }
    if let Ok((message, _)) = IgmpMessage::parse(data)
        && let IgmpMessage::Query { group, max_response, version, robustness, interval, sources } = message
    {
        let listed: Vec<_> = if version == 3 { igmp::sources(data).collect() } else { Vec::new() };
        assert_eq!(listed.len(), usize::from(sources));
        let mut bytes = vec![0; 12 + 4 * listed.len()];
        let len = igmp::emit_query(group, max_response, version, (robustness, interval), &listed, &mut bytes);
        assert_eq!(IgmpMessage::parse(&bytes[..len]).map(|(m, _)| m), Ok(message));
    }
    if let Ok((message, _)) = IgmpMessage::parse(data)
        && matches!(message, IgmpMessage::Report { .. } | IgmpMessage::Leave { .. })
    {
        let mut bytes = [0; 8];
        message.emit(&mut bytes);
        assert_eq!(IgmpMessage::parse(&bytes).map(|(m, _)| m), Ok(message));
    }
}

fn transport(data: &[u8]) {
    if let Ok((header, payload)) = UdpHeader::parse(data) {
        inside(&payload, data);
        let mut bytes = data[..payload.end].to_vec();
        let pseudo = Sum::pseudo_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST, IpProtocol::UDP, header.len);
        header.emit_with_checksum(pseudo, &mut bytes);
        assert!(udp::intact(pseudo, &bytes));
        let Ok((again, range)) = UdpHeader::parse(&bytes) else { panic!("{header:?} cannot be read again") };
        assert!(!again.has_no_checksum(), "a computed checksum is never sent as zero");
        assert_eq!((UdpHeader { checksum: header.checksum, ..again }, range), (header, payload));
    }
    if let Ok((header, payload)) = TcpHeader::parse(data) {
        inside(&payload, data);
        let options = TcpOptions::parse(&data[20..payload.start]);
        options_again(&options);
        let mut bytes = vec![0; 20 + options.len()];
        bytes.extend(&data[payload.clone()]);
        let pseudo = Sum::pseudo_v6(SRC, DST, IpProtocol::TCP, bytes.len() as u32);
        let n = header.emit_with_checksum(&options, pseudo, &mut bytes);
        assert!(tcp::intact(pseudo, &bytes));
        assert_eq!(TcpHeader::parse(&bytes), Ok((header, n..bytes.len())));
    }
    options_again(&TcpOptions::parse(&data[..data.len().min(40)]));
}

fn options_again(options: &TcpOptions) {
    let mut bytes = [0; 40];
    let n = options.emit(&mut bytes);
    assert!(n == options.len() && n.is_multiple_of(4), "{options:?}");
    let again = TcpOptions::parse(&bytes[..n]);
    assert!(!again.broken);
    assert!(options.sack.as_slice().starts_with(again.sack.as_slice()), "{options:?}");
    assert_eq!(TcpOptions { sack: options.sack, broken: options.broken, ..again }, *options);
}

fn tunnels(data: &[u8]) {
    if let Ok((header, payload)) = GreHeader::parse(data) {
        inside(&payload, data);
        assert_eq!(header.header_len(), payload.start);
        let mut bytes = data.to_vec();
        header.emit(&mut bytes);
        assert_eq!(GreHeader::parse(&bytes), Ok((header, payload)));
    }
    if let Ok((header, payload)) = VxlanHeader::parse(data) {
        inside(&payload, data);
        let mut bytes = [0; 8];
        header.emit(&mut bytes);
        assert_eq!(VxlanHeader::parse(&bytes), Ok((header, 8..8)));
    }
    if let Ok((header, payload)) = GeneveHeader::parse(data) {
        inside(&payload, data);
        let mut bytes = [0; 8];
        header.emit(&mut bytes);
        assert_eq!(GeneveHeader::parse(&bytes), Ok((header, 8..8)));
    }
}
