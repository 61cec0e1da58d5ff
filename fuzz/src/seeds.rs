//! Where fuzzing starts: one good packet of every kind that a lane knows, made with our own writers, and inputs for each
//! target made from them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane_stack::wire::{
    ArpOperation, ArpPacket, EtherType, EthernetHeader, GeneveHeader, GreHeader, Icmpv4Message,
    Icmpv6Message, IgmpMessage, IpProtocol, Ipv4Header, Ipv4Options, Ipv6Fragment, Ipv6Header, MacAddr,
    NdpMessage, NdpOptions, SeqNum, TcpFlags, TcpHeader, TcpOptions, Timestamps, UdpHeader, VlanTag,
    VxlanHeader, checksum, ipv6_ext, mld, tcp, udp,
};

use crate::lane::{Op, op};

/// The lanes' Ethernet address.
pub const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// The lanes' addresses.
pub const US_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The lanes' IPv6 address.
pub const US_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
/// Who talks to them.
pub const PEER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Who talks to them over IPv6.
pub const PEER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// The lanes' VLAN, when they have one.
pub const VLAN: u16 = 7;

const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PORT: u16 = 7;

/// Calls `f` with the packets: made once, always the same, as Ethernet frames.
pub fn packets<T>(f: impl FnOnce(&[Vec<u8>]) -> T) -> T {
    static ALL: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    f(ALL.get_or_init(make))
}

fn ethernet(dst: MacAddr, ethertype: EtherType, vlan: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let header = EthernetHeader { dst, src: PEER_MAC, ethertype, vlan: vlan.map(VlanTag::new) };
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn v4_to(
    dst: Ipv4Addr,
    protocol: IpProtocol,
    change: impl FnOnce(&mut Ipv4Header),
    payload: &[u8],
) -> Vec<u8> {
    let mut header = Ipv4Header {
        src: PEER_V4,
        dst,
        protocol,
        ttl: 64,
        tos: 0,
        identification: 0x1234,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        payload_len: payload.len() as u16,
        options: Ipv4Options::default(),
    };
    change(&mut header);
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn v4(protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    ethernet(OUR_MAC, EtherType::IPV4, None, &v4_to(US_V4, protocol, |_| {}, payload))
}

fn v6_packet(dst: Ipv6Addr, next_header: IpProtocol, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let header = Ipv6Header {
        src: PEER_V6,
        dst,
        next_header,
        hop_limit,
        traffic_class: 0,
        flow_label: 0,
        payload_len,
    };
    let mut bytes = vec![0; 40];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn v6(next: IpProtocol, payload: &[u8]) -> Vec<u8> {
    ethernet(OUR_MAC, EtherType::IPV6, None, &v6_packet(US_V6, next, 255, payload))
}

fn udp_to(port: u16, payload: &[u8]) -> Vec<u8> {
    let header = UdpHeader { src_port: 9, dst_port: port, len: 8 + payload.len() as u16, checksum: 0 };
    let mut bytes = vec![0; 8];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn tcp_segment(flags: TcpFlags, seq: u32, ack: u32, options: &TcpOptions, payload: &[u8]) -> Vec<u8> {
    let header = TcpHeader {
        src_port: 9,
        dst_port: PORT,
        seq: SeqNum(seq),
        ack: SeqNum(ack),
        flags,
        window: 4096,
        urgent: 0,
    };
    let mut bytes = vec![0; 20 + options.len()];
    header.emit(options, &mut bytes);
    bytes.extend(payload);
    bytes
}

fn icmp4(message: Icmpv4Message, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend(payload);
    message.emit(&mut bytes);
    bytes
}

fn icmp6(message: Icmpv6Message, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend(payload);
    message.emit(PEER_V6, US_V6, &mut bytes);
    bytes
}

fn ndp(message: NdpMessage) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(PEER_V6, US_V6, &mut bytes);
    bytes
}

/// The packets, checksums right. Their order is part of the corpus: add at the end.
fn make() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    link_layer(&mut all);
    datagrams(&mut all);
    errors(&mut all);
    pieces(&mut all);
    segments(&mut all);
    tunnels(&mut all);
    for packet in &mut all {
        fix_checksums(packet);
    }
    all
}

fn link_layer(all: &mut Vec<Vec<u8>>) {
    for operation in [ArpOperation::Request, ArpOperation::Reply] {
        let arp = ArpPacket {
            operation,
            sender_mac: PEER_MAC,
            sender_ip: PEER_V4,
            target_mac: if operation == ArpOperation::Request { MacAddr::ZERO } else { OUR_MAC },
            target_ip: US_V4,
        };
        let mut bytes = [0; 28];
        arp.emit(&mut bytes);
        all.push(ethernet(MacAddr::BROADCAST, EtherType::ARP, None, &bytes));
    }
    let options = |source| NdpOptions { source, ..NdpOptions::default() };
    let target = NdpOptions { target: Some(PEER_MAC), ..NdpOptions::default() };
    for message in [
        NdpMessage::NeighborSolicitation { target: US_V6, options: options(Some(PEER_MAC)) },
        NdpMessage::NeighborAdvertisement {
            router: false,
            solicited: true,
            overrides: true,
            target: PEER_V6,
            options: target,
        },
        NdpMessage::RouterSolicitation { options: options(None) },
        NdpMessage::RouterAdvertisement {
            hop_limit: 64,
            managed: false,
            other: false,
            lifetime: 1800,
            reachable_time: 0,
            retrans_timer: 0,
            options: NdpOptions { mtu: Some(1500), ..options(Some(PEER_MAC)) },
        },
        NdpMessage::Redirect { target: PEER_V6, destination: PEER_V6, options: target },
    ] {
        all.push(v6(IpProtocol::ICMPV6, &ndp(message)));
    }
}

fn datagrams(all: &mut Vec<Vec<u8>>) {
    let datagram = udp_to(PORT, b"lanes");
    all.push(v4(IpProtocol::UDP, &datagram));
    all.push(v6(IpProtocol::UDP, &datagram));
    all.push(v4(IpProtocol::UDP, &udp_to(8, b"nobody")));
    all.push(v6(IpProtocol::UDP, &udp_to(8, b"nobody")));
    let packet = v4_to(US_V4, IpProtocol::UDP, |_| {}, &datagram);
    all.push(ethernet(OUR_MAC, EtherType::IPV4, Some(VLAN), &packet));
    let broadcast = v4_to(Ipv4Addr::new(10, 0, 0, 255), IpProtocol::UDP, |_| {}, &datagram);
    all.push(ethernet(MacAddr::BROADCAST, EtherType::IPV4, None, &broadcast));
    let group = Ipv4Addr::new(239, 0, 0, 1);
    let multicast = v4_to(group, IpProtocol::UDP, |_| {}, &datagram);
    all.push(ethernet(MacAddr::for_ipv4_multicast(group), EtherType::IPV4, None, &multicast));
    // Destination options with nothing in them but padding.
    let mut padded = vec![IpProtocol::UDP.0, 0, 1, 4, 0, 0, 0, 0];
    padded.extend(&datagram);
    all.push(v6(IpProtocol::DESTINATION_OPTIONS, &padded));
    all.push(v4(IpProtocol::ICMP, &icmp4(Icmpv4Message::EchoRequest { ident: 1, seq: 2 }, b"echo")));
    all.push(v6(IpProtocol::ICMPV6, &icmp6(Icmpv6Message::EchoRequest { ident: 1, seq: 2 }, b"echo")));
}

fn errors(all: &mut Vec<Vec<u8>>) {
    let ours = UdpHeader { src_port: PORT, dst_port: 9, len: 8, checksum: 0 };
    let mut datagram = [0; 8];
    ours.emit(&mut datagram);
    let quoted4 = v4_to(
        PEER_V4,
        IpProtocol::UDP,
        |h| {
            h.src = US_V4;
        },
        &datagram,
    );
    for message in [
        Icmpv4Message::Unreachable { code: 3, mtu: 0 },
        Icmpv4Message::Unreachable { code: 4, mtu: 576 },
        Icmpv4Message::TimeExceeded { code: 0 },
    ] {
        all.push(v4(IpProtocol::ICMP, &icmp4(message, &quoted4)));
    }
    let mut quoted6 = v6_packet(PEER_V6, IpProtocol::UDP, 64, &datagram);
    quoted6[8..24].copy_from_slice(&US_V6.octets());
    for message in [Icmpv6Message::Unreachable { code: 4 }, Icmpv6Message::PacketTooBig { mtu: 1280 }] {
        all.push(v6(IpProtocol::ICMPV6, &icmp6(message, &quoted6)));
    }
    // Who listens to what?
    let mut igmp = [0x11, 100, 0, 0, 0, 0, 0, 0];
    let sum = checksum::checksum(&igmp);
    igmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let hosts = Ipv4Addr::new(224, 0, 0, 1);
    let query = v4_to(
        hosts,
        IpProtocol::IGMP,
        |h| {
            h.ttl = 1;
            h.options.router_alert = true;
        },
        &igmp,
    );
    all.push(ethernet(MacAddr::for_ipv4_multicast(hosts), EtherType::IPV4, None, &query));
    let mut report = [0; 8];
    IgmpMessage::Report { group: Ipv4Addr::new(239, 0, 0, 1) }.emit(&mut report);
    all.push(v4(IpProtocol::IGMP, &report));
    let mut mld_query = ipv6_ext::router_alert(IpProtocol::ICMPV6).to_vec();
    let mut message = [0; 28];
    message[0] = 130;
    mld_query.extend(message);
    all.push(v6(IpProtocol::HOP_BY_HOP, &mld_query));
    let mut bytes = vec![0; 28];
    let group = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1);
    mld::emit_v2_report(PEER_V6, US_V6, &[(group, flowlane_stack::wire::GroupChange::Join)], &mut bytes);
    all.push(v6(IpProtocol::ICMPV6, &bytes));
}

/// A datagram in two fragments, each order being a matter of the operations.
fn pieces(all: &mut Vec<Vec<u8>>) {
    let datagram = udp_to(PORT, &[0x42; 56]);
    let (first, second) = datagram.split_at(32);
    let piece = |offset: u16, more: bool, bytes: &[u8]| {
        let change = |h: &mut Ipv4Header| {
            h.fragment_offset = offset;
            h.more_fragments = more;
        };
        ethernet(OUR_MAC, EtherType::IPV4, None, &v4_to(US_V4, IpProtocol::UDP, change, bytes))
    };
    all.push(piece(0, true, first));
    all.push(piece(32, false, second));
    for (offset, more, bytes) in [(0, true, first), (32, false, second), (0, false, &datagram[..])] {
        let header = Ipv6Fragment { next_header: IpProtocol::UDP, offset, more, identification: 0x1234_5678 };
        let mut packet = vec![0; 8];
        header.emit(&mut packet);
        packet.extend(bytes);
        all.push(v6(IpProtocol::FRAGMENT, &packet));
    }
}

fn segments(all: &mut Vec<Vec<u8>>) {
    let syn = TcpOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 1, echo: 0 }),
        ..TcpOptions::default()
    };
    let later = TcpOptions { timestamps: Some(Timestamps { value: 2, echo: 1 }), ..TcpOptions::default() };
    let (ack, push) = (TcpFlags::ACK, TcpFlags(TcpFlags::ACK.0 | TcpFlags::PSH.0));
    for segment in [
        tcp_segment(TcpFlags::SYN, 1000, 0, &syn, &[]),
        tcp_segment(ack, 1001, 1, &later, &[]),
        tcp_segment(push, 1001, 1, &later, b"segment"),
        tcp_segment(TcpFlags(ack.0 | TcpFlags::FIN.0), 1008, 1, &later, &[]),
        tcp_segment(TcpFlags::RST, 1008, 0, &TcpOptions::default(), &[]),
    ] {
        all.push(v4(IpProtocol::TCP, &segment));
        all.push(v6(IpProtocol::TCP, &segment));
    }
}

fn tunnels(all: &mut Vec<Vec<u8>>) {
    let inner = v4_to(US_V4, IpProtocol::UDP, |_| {}, &udp_to(PORT, b"inner"));
    let inner_frame = ethernet(OUR_MAC, EtherType::IPV4, None, &inner);
    all.push(v4(IpProtocol::IPV4, &inner));
    all.push(v6(IpProtocol::IPV4, &inner));
    let gre = GreHeader { protocol: EtherType::IPV4, checksum: true, key: Some(1), sequence: Some(2) };
    let mut packet = vec![0; gre.header_len()];
    packet.extend(&inner);
    gre.emit(&mut packet);
    all.push(v4(IpProtocol::GRE, &packet));
    let mut vxlan = vec![0; 8];
    VxlanHeader { vni: 5 }.emit(&mut vxlan);
    vxlan.extend(&inner_frame);
    all.push(v4(IpProtocol::UDP, &udp_to(4789, &vxlan)));
    let mut geneve = vec![0; 8];
    GeneveHeader { protocol: EtherType::TRANSPARENT_ETHERNET, vni: 5, control: false }.emit(&mut geneve);
    geneve.extend(&inner_frame);
    all.push(v6(IpProtocol::UDP, &udp_to(6081, &geneve)));
}

/// Puts the checksums of a frame right, as far as it can be read: so changed bytes get past the first check.
pub fn fix_checksums(frame: &mut [u8]) {
    let Ok((header, payload)) = EthernetHeader::parse(frame) else { return };
    let packet = &mut frame[payload];
    match header.ethertype {
        EtherType::IPV4 => {
            let Ok((ip, range)) = Ipv4Header::parse_trusted(packet) else { return };
            packet[10..12].fill(0);
            let sum = checksum::checksum(&packet[..range.start]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            if !ip.is_fragment() {
                fix_transport(ip.protocol, ip.src.into(), ip.dst.into(), &mut packet[range]);
            }
        }
        EtherType::IPV6 => {
            let Ok((ip, range)) = Ipv6Header::parse(packet) else { return };
            let packet = &mut packet[..range.end];
            let Ok(upper) = ipv6_ext::walk(packet, ip.next_header) else { return };
            if upper.fragment.is_none_or(|f| f.is_atomic()) {
                fix_transport(upper.protocol, ip.src.into(), ip.dst.into(), &mut packet[upper.offset..]);
            }
        }
        _ => {}
    }
}

fn fix_transport(protocol: IpProtocol, src: IpAddr, dst: IpAddr, payload: &mut [u8]) {
    use flowlane_stack::wire::Sum;
    // UDP's own length counts, not that of the packet.
    let udp_len = match (protocol, UdpHeader::parse(payload)) {
        (IpProtocol::UDP, Ok((_, range))) => range.end,
        _ => payload.len(),
    };
    let payload = &mut payload[..udp_len];
    let pseudo = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Sum::pseudo_v4(src, dst, protocol, payload.len() as u16),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Sum::pseudo_v6(src, dst, protocol, payload.len() as u32),
        _ => return,
    };
    let place = match protocol {
        IpProtocol::UDP if payload.len() >= 8 => return udp::fill_checksum(pseudo, payload),
        IpProtocol::TCP if payload.len() >= 20 => return tcp::fill_checksum(pseudo, payload),
        IpProtocol::ICMP | IpProtocol::IGMP if payload.len() >= 8 => (Sum::EMPTY, 2..4),
        IpProtocol::ICMPV6 if payload.len() >= 8 => (pseudo, 2..4),
        _ => return,
    };
    let (start, range) = place;
    payload[range.clone()].fill(0);
    let sum = start.add_bytes(payload).finish();
    payload[range].copy_from_slice(&sum.to_be_bytes());
}

/// Writes a target's first inputs into the directory that `FLOWLANE_FUZZ_SEEDS` names, if it does, before the fuzzer reads it: a
/// program of their own would need the fuzzer's runtime without its `main`.
pub fn write(target: &str) {
    let Some(dir) = std::env::var_os("FLOWLANE_FUZZ_SEEDS").map(std::path::PathBuf::from) else { return };
    for (i, bytes) in inputs(target).iter().enumerate() {
        let file = dir.join(format!("seed-{i:03}"));
        std::fs::write(&file, bytes).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }
}

/// The inputs that a target starts from.
#[must_use]
pub fn inputs(target: &str) -> Vec<Vec<u8>> {
    match target {
        "lane" => lane_inputs(),
        "wire" => packets(|all| all.iter().flat_map(|p| layers(p)).collect()),
        "classify" => packets(|all| {
            all.iter().flat_map(|p| [[&[0], &p[..]].concat(), [&[1], &p[14..]].concat()]).collect()
        }),
        "reassembly" => reassembly_inputs(),
        "tcp" => tcp_inputs(),
        "rss_key_hex" => key_inputs(),
        "http1" => http1_inputs(),
        "switch" => switch_inputs(),
        "proxy" => crate::proxy::inputs(),
        "memcached" => crate::memcached::inputs(),
        "websocket" => crate::websocket::inputs(),
        "http3" => crate::http3::inputs(),
        _ => Vec::new(),
    }
}

/// Commands of each kind, and between them frames of every port to every other, with and without tags.
fn switch_inputs() -> Vec<Vec<u8>> {
    let commands = [
        "config vlan_mode dot1q vlangroup 10 members p0,p1t,p2 port p0 pvid 10 port p2 pvid 10",
        "config vlan_mode qinq learning shared reserved pass vlangroup 20 members 0t,1t,2t,3t,4t port p1 doubletag pvid 1",
        "config vlan_mode port vlangroup 0 members 0,1 vlangroup 1 members 0,1,2,3,4 port p2 mtu 68",
        "config vlan_mode dot1q port p0 priority 3 striptag port p1 droptagged port p2 dropuntagged port p3 addtag -ingress",
        "port p2 pvid 0 vlangroup 10 members 0,1",
        "fdb flush all fdb flush port p1 fdb flush vlan 10",
        "fdb static 02:00:00:00:00:01 vlan 0 port p1",
        "config snooping on querier on query_interval 2 igmp 2 mld 1 port p1 addresses 4",
        "config snooping on probe 1 block 2 moves 3 port p1 storm unknown 100 addresses 4 mirror from 0,1 to p4",
    ];
    let command = |words: &str| -> Vec<u8> {
        let words: Vec<u8> =
            words.split(' ').map(|word| crate::switch::word(word).expect("a word of a command")).collect();
        [&[0, words.len() as u8][..], &words].concat()
    };
    // A word of a generator of its own for each choice, so that they do not go in step.
    let mut random = 1u64;
    let mut next = |below: u8| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u8 % below
    };
    let frames: Vec<u8> = (0..150)
        .flat_map(|_| {
            let tags = next(3);
            let mut frame = vec![
                1,
                next(5),
                tags + 48 * next(2),
                [next(8), next(8), 170, 200, 255][usize::from(next(5))],
                next(8),
            ];
            // Few VLANs, mostly of 802.1Q.
            (0..tags).for_each(|_| frame.extend([1 + next(3), 16 * next(16) + 8 * (next(4) / 3)]));
            frame.push(next(60));
            frame
        })
        .collect();
    let one =
        |words: &[&str]| words.iter().flat_map(|words| [&command(words)[..], &frames[..]].concat()).collect();
    let mut all: Vec<Vec<u8>> = commands.iter().map(|words| one(&[words])).collect();
    all.push(one(&commands));
    // Addresses stay where a VLAN's ports change.
    all.push(one(&[commands[0], commands[4], commands[0]]));
    all
}

/// Conversations of both sides, with every framing, whole and with each kind of fault.
fn http1_inputs() -> Vec<Vec<u8>> {
    let requests = [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /a?b HTTP/1.0\r\nConnection: keep-alive, x\r\n\r\n",
        "\r\nPOST /a HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbodyHEAD / HTTP/1.1\r\n\r\n",
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n0\r\nT: t\r\n\r\n",
        "GET / HTTP/1.1\nA: b\nC:\t d \n\nx",
        "POST / HTTP/1.1\r\nContent-Length: 5, 5\r\nContent-Length: 6\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    let responses = [
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 204 \r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nHTTP/1.0 200\r\n\r\nuntil the end",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.1 101 Switching\r\n\r\n",
    ];
    let with = |side: u8, text: &str| [&[side, 2, 7, 30], text.as_bytes()].concat();
    let sides = |texts: &[&str], sides: &[u8]| -> Vec<Vec<u8>> {
        texts.iter().flat_map(|text| sides.iter().map(move |side| with(*side, text))).collect()
    };
    [sides(&requests, &[0, 2]), sides(&responses, &[1, 3, 5])].concat()
}

/// A connection with data both ways and its end, under several configurations; packets lost, doubled, late, changed and
/// forged; simultaneous opens; silence.
fn tcp_inputs() -> Vec<Vec<u8>> {
    use crate::tcp::{Op, op};
    let far = 8;
    let open = [op(Op::Connect, 0, &[0]), op(Op::Settle, 2, &[]), op(Op::Accept, far, &[])].concat();
    let talk = [
        op(Op::Write, 0, &[0x20, 0]),
        op(Op::Settle, 3, &[]),
        op(Op::Read, far, &[0x20, 0]),
        op(Op::Write, far, &[1, 0]),
        op(Op::Settle, 1, &[]),
        op(Op::Read, 0, &[1, 0]),
    ]
    .concat();
    let end =
        [op(Op::Close, 0, &[0]), op(Op::Settle, 1, &[]), op(Op::Close, far, &[0]), op(Op::Settle, 2, &[])];
    let bad = [
        op(Op::Write, 0, &[0x30, 0]),
        op(Op::Lose, 0, &[1]),
        op(Op::Double, 0, &[2]),
        op(Op::Arrive, 0, &[3]),
        op(Op::Arrive, 0, &[0]),
        op(Op::Wait, 0, &[1, 0]),
    ]
    .concat();
    let hostile = [
        op(Op::Change, 1, &[0, 13, 4, 254, 3]),
        op(Op::Forge, 0, &[0x10, 0x10, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1, 0, 9]),
        op(Op::Forge, 0, &[1, 2, 0, 0, 0, 0, 1, 0, 0, 0]),
        op(Op::Icmp, 0, &[0, 100]),
        op(Op::Options, 0, &[0x1f, 50]),
        op(Op::Hold, 7, &[]),
        op(Op::Wait, 0, &[0xff, 0xff]),
        op(Op::Hold, 0, &[]),
        op(Op::Listen, far, &[]),
    ]
    .concat();
    let begins = [[0, 0, 0], [0xff, 0x0f, 1], [0x40, 0x40, 6], [0x80, 0xa0, 2], [7, 0x18, 5]];
    let mut all = Vec::new();
    for begin in begins {
        all.push([&begin[..], &open, &talk, &end.concat()].concat());
        all.push([&begin[..], &open, &bad, &talk, &bad, &talk].concat());
        all.push([&begin[..], &open, &talk, &hostile, &talk, &hostile].concat());
    }
    // Fast Open, without and with cookies: the second connection brings data.
    let again = [op(Op::Connect, 0, &[0x29]), op(Op::Arrive, 0, &[0]), op(Op::Accept, far, &[])].concat();
    let early =
        [op(Op::Read, far | 1, &[4, 0]), op(Op::Write, far | 1, &[4, 0]), op(Op::Settle, 2, &[])].concat();
    for begin in [[0, 0, 8], [0, 1, 16], [0x40, 0x20, 9], [0x80, 0x10, 20]] {
        all.push([&begin[..], &open, &again, &early, &talk, &end.concat()].concat());
        all.push([&begin[..], &open, &again, &bad, &early, &talk].concat());
        all.push([&begin[..], &open, &again, &hostile, &early, &hostile].concat());
        // The answer, written early, is too big for the path.
        let narrow =
            [op(Op::Write, far | 1, &[4, 0]), op(Op::Icmp, far, &[1, 84]), op(Op::Icmp, far, &[2, 84])]
                .concat();
        all.push([&begin[..], &open, &again, &narrow, &early, &talk].concat());
    }
    let both = [op(Op::Listen, 0, &[]), op(Op::Connect, 0, &[0]), op(Op::Connect, far, &[1])].concat();
    all.push([&[0, 0, 0], &both[..], &op(Op::Settle, 3, &[]), &op(Op::Close, 1, &[2])].concat());
    all
}

/// Datagrams in three pieces: in order, last first, interleaved, one repeated, one overlapping, one too late.
fn reassembly_inputs() -> Vec<Vec<u8>> {
    let limits = [9, 19, 23, 7];
    let piece = |name: u8, which: usize| [[name, 0, 64, 1], [name, 8, 64, 1], [name, 16, 20, 0]][which];
    let with = |operations: &[[u8; 4]]| [&limits[..], &operations.concat()].concat();
    let orders: [[usize; 3]; 2] = [[0, 1, 2], [2, 1, 0]];
    let mut all: Vec<Vec<u8>> =
        [0, 8].iter().flat_map(|&n| orders.map(|o| with(&o.map(|which| piece(n, which))))).collect();
    all.push(with(&[piece(0, 0), piece(9, 2), piece(0, 1), piece(9, 0), piece(0, 2), piece(9, 1)]));
    all.push(with(&[piece(0, 0), piece(0, 0), [0, 4, 64, 1], piece(0, 2), [0, 0, 64, 255]]));
    all.push(with(&[piece(0, 0), piece(8, 0), [255, 101, 0, 0], piece(0, 1), [255, 255, 0, 0]]));
    all.push((0..=249).flat_map(|name| piece(name, usize::from(name) % 3)).collect());
    all
}

/// A frame, the packet in it, and what is in that.
fn layers(frame: &[u8]) -> Vec<Vec<u8>> {
    let header = if frame[14] >> 4 == 6 { 40 } else { 20 };
    [0, 14, 14 + header, 14 + header + 8]
        .iter()
        .filter_map(|at| frame.get(*at..))
        .map(<[u8]>::to_vec)
        .collect()
}

fn lane_inputs() -> Vec<Vec<u8>> {
    let socket = |kind: u8| op(Op::Bind, &[kind, 0, PORT as u8]);
    let count = packets(<[Vec<u8>]>::len) as u8;
    let mut all = Vec::new();
    for number in 0..count {
        // Through tunnels, there and back.
        let through = [vec![8], socket(0x30), op(Op::Packet, &[number]), op(Op::Packet, &[number])].concat();
        let answer = [op(Op::Send, &[6 | 64 | number << 3, 0, 200]), op(Op::Reflect, &[])].concat();
        all.push([through, answer, op(Op::Receive, &[]), op(Op::Output, &[])].concat());
        // Bare, and with sockets in both lanes, time passing and an answer.
        all.push([vec![0], op(Op::Packet, &[number]), op(Op::Output, &[])].concat());
        let lane_1 = [vec![Op::Bind as u8 | 0x10], vec![0x30, 0, PORT as u8]].concat();
        let receive = [vec![Op::Receive as u8 | 0x10], vec![Op::Receive as u8 | 0x30]].concat();
        all.push(
            [
                vec![number & 1],
                socket(0x30),
                lane_1,
                op(Op::Packet, &[0]),
                op(Op::Packet, &[3]),
                op(Op::Packet, &[number]),
                op(Op::Direct, &[number]),
                receive,
                op(Op::Send, &[number, 0, 100]),
                op(Op::Output, &[]),
                op(Op::Wait, &[4, 0]),
            ]
            .concat(),
        );
    }
    let mut raw = vec![2];
    packets(|packets| {
        for p in packets {
            raw.extend(op(Op::Raw, &(p.len() as u16).to_be_bytes()));
            raw.extend(p);
        }
    });
    all.push(raw);
    // A pool that runs dry, a neighbour that does not answer, groups, and our own words coming back.
    let mut dry = [vec![4], socket(0x30), vec![Op::Hold as u8 | 0xf0]].concat();
    for to in 0..8 {
        dry.extend(op(Op::Send, &[to, 5, 0]));
        dry.extend(op(Op::Packet, &[to]));
    }
    dry.extend([
        Op::Hold as u8,
        Op::Group as u8,
        Op::Group as u8 | 0x10,
        Op::Reflect as u8,
        Op::Wait as u8,
        255,
        255,
    ]);
    dry.extend([Op::Group as u8 | 0x20, Op::Reflect as u8, Op::Close as u8]);
    all.push(dry);
    all
}

fn key_inputs() -> Vec<Vec<u8>> {
    let hex: String = (0..40u8).map(|i| format!("{:02x}", i.wrapping_mul(37) ^ 0x6d)).collect();
    let pairs: Vec<String> =
        (0..16u8).map(|i| format!("{:02X}", if i % 2 == 0 { 0x6d } else { 0x5a })).collect();
    let tuple: Vec<u8> = (0..36).collect();
    let with = |text: &str, tuple: &[u8]| [text.as_bytes(), &[0], tuple].concat();
    vec![
        with(&hex, &tuple),
        with(&hex, &tuple[..17]),
        with(&pairs.join(":"), &tuple[..12]),
        with(&pairs.join(" "), &[127]),
        with(&pairs.join("-"), &[]),
        with(&hex[..78], &tuple),
        with(&format!("{hex}{}", &hex[..24]), &tuple),
        with(&format!("{hex}{}", &hex[..26]), &tuple),
        with("not a key", &[]),
    ]
}
