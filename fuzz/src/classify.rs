//! Classification, which never fails and reads little, against the parsers, which check everything: where they find a
//! whole packet, they must agree on its flow.

use core::net::IpAddr;

use flowlane_stack::wire::{
    Classified, EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, UdpHeader, classify,
    classify_ip, tcp::TcpHeader,
};

/// The first byte chooses between a frame and a bare packet.
pub fn run(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    if choice & 1 == 1 {
        let flow = classify_ip(data);
        if let Some(flow) = &flow {
            assert_eq!(flow.l3_offset, 0);
        }
        check(data, flow.map(|f| (f.addresses.src(), f.addresses.dst(), f.ports, f.fragment, f.protocol)));
        return;
    }
    let class = classify(data);
    let Ok((header, payload)) = EthernetHeader::parse(data) else {
        assert!(
            !matches!(class, Classified::Ip(_)) || data.len() >= 14,
            "a flow in {} bytes of frame",
            data.len()
        );
        return;
    };
    if let Some(flow) = class.flow() {
        let at = usize::from(flow.l3_offset);
        assert!(at < data.len() && (14..=22).contains(&at), "IP at {at}");
        assert_eq!(
            classify_ip(&data[at..]).map(|f| (f.addresses, f.ports)),
            Some((flow.addresses, flow.ports))
        );
    }
    // A packet of the other family than the type says is nobody's.
    let version = data.get(payload.start).map(|b| b >> 4);
    if matches!((header.ethertype, version), (EtherType::IPV4, Some(4)) | (EtherType::IPV6, Some(6))) {
        let flow = class.flow();
        check(
            &data[payload],
            flow.map(|f| (f.addresses.src(), f.addresses.dst(), f.ports, f.fragment, f.protocol)),
        );
    }
}

type Seen = (IpAddr, IpAddr, Option<(u16, u16)>, bool, IpProtocol);

fn check(packet: &[u8], seen: Option<Seen>) {
    if let Ok((ip, payload)) = Ipv4Header::parse_trusted(packet) {
        let Some((src, dst, ports, fragment, protocol)) = seen else { panic!("{ip:?} has no flow") };
        assert_eq!((src, dst), (ip.src.into(), ip.dst.into()));
        assert_eq!(fragment, ip.is_fragment());
        assert_eq!(protocol, ip.protocol);
        if fragment {
            assert_eq!(ports, None, "ports of a fragment");
        } else {
            check_ports(ip.protocol, &packet[payload], ports);
        }
    } else if let Ok((ip, payload)) = Ipv6Header::parse(packet) {
        let Some((src, dst, ports, fragment, _)) = seen else { panic!("{ip:?} has no flow") };
        assert_eq!((src, dst), (ip.src.into(), ip.dst.into()));
        if fragment {
            assert_eq!(ports, None, "ports of a fragment");
        } else if matches!(ip.next_header, IpProtocol::TCP | IpProtocol::UDP) {
            check_ports(ip.next_header, &packet[payload], ports);
        }
    }
}

fn check_ports(protocol: IpProtocol, payload: &[u8], seen: Option<(u16, u16)>) {
    let real = match protocol {
        IpProtocol::TCP => TcpHeader::parse(payload).ok().map(|(h, _)| (h.src_port, h.dst_port)),
        IpProtocol::UDP => UdpHeader::parse(payload).ok().map(|(h, _)| (h.src_port, h.dst_port)),
        _ => {
            assert_eq!(seen, None, "ports of {protocol}");
            return;
        }
    };
    if real.is_some() {
        assert_eq!(seen, real);
    }
}
