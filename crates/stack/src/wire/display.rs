//! Headers as one line of text each, in the style of `tcpdump`: for logs, tests and debugging.
//!
//! Fields with their usual value (no VLAN, no options, no fragment) are left out.

use core::fmt::{Display, Formatter, Result};

use super::arp::{ArpOperation, ArpPacket};
use super::ethernet::{EthernetHeader, VlanTag};
use super::geneve::GeneveHeader;
use super::gre::GreHeader;
use super::icmpv4::Icmpv4Message;
use super::icmpv6::Icmpv6Message;
use super::igmp::IgmpMessage;
use super::ipv4::Ipv4Header;
use super::ipv6::Ipv6Header;
use super::ipv6_ext::Ipv6Fragment;
use super::mld::MldQuery;
use super::ndp::NdpMessage;
use super::tcp::TcpHeader;
use super::tcp_options::{FastOpenOption, SackBlock, SackBlocks, TcpOptions, Timestamps};
use super::udp::UdpHeader;
use super::vxlan::VxlanHeader;

impl Display for VlanTag {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "vlan {}", self.vid())?;
        let priority = self.priority();
        if priority > 0 { write!(f, ", p {priority}") } else { Ok(()) }
    }
}

impl Display for EthernetHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} > {}", self.src, self.dst)?;
        if let Some(vlan) = self.vlan {
            write!(f, ", {vlan}")?;
        }
        write!(f, ", {}", self.ethertype)
    }
}

impl Display for ArpPacket {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.operation {
            ArpOperation::Request => write!(f, "ARP who-has {} tell {}", self.target_ip, self.sender_ip),
            ArpOperation::Reply => write!(f, "ARP reply {} is-at {}", self.sender_ip, self.sender_mac),
        }
    }
}

impl Display for Ipv4Header {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { src, dst, protocol, ttl, payload_len, .. } = self;
        write!(f, "{src} > {dst}: {protocol}, {payload_len} bytes, ttl {ttl}")?;
        if self.tos != 0 {
            write!(f, ", tos {:#04x}", self.tos)?;
        }
        if self.dont_fragment {
            f.write_str(", DF")?;
        }
        if self.more_fragments || self.fragment_offset > 0 {
            let more = if self.more_fragments { "+" } else { "" };
            write!(f, ", fragment {} at {}{more}", self.identification, self.fragment_offset)?;
        }
        if self.options.source_route {
            f.write_str(", source route")?;
        }
        if self.options.router_alert {
            f.write_str(", router alert")?;
        }
        Ok(())
    }
}

impl Display for Ipv6Header {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { src, dst, next_header, hop_limit, payload_len, .. } = self;
        write!(f, "{src} > {dst}: {next_header}, {payload_len} bytes, hlim {hop_limit}")?;
        if self.traffic_class != 0 {
            write!(f, ", class {:#04x}", self.traffic_class)?;
        }
        if self.flow_label != 0 {
            write!(f, ", flowlabel {:#07x}", self.flow_label)?;
        }
        Ok(())
    }
}

impl Display for Ipv6Fragment {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let more = if self.more { "+" } else { "" };
        write!(f, "{}, fragment {} at {}{more}", self.next_header, self.identification, self.offset)
    }
}

impl Display for UdpHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        // The length field counts the header.
        let data = self.len.saturating_sub(super::udp::HEADER_LEN as u16);
        write!(f, "UDP {} > {}, {data} bytes", self.src_port, self.dst_port)?;
        if self.has_no_checksum() { f.write_str(", no checksum") } else { Ok(()) }
    }
}

impl Display for TcpHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { src_port, dst_port, seq, ack, flags, window, urgent } = self;
        write!(f, "TCP {src_port} > {dst_port}, {flags}, seq {seq}, ack {ack}, win {window}")?;
        if *urgent > 0 { write!(f, ", urg {urgent}") } else { Ok(()) }
    }
}

impl Display for Timestamps {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "TS val {} ecr {}", self.value, self.echo)
    }
}

impl Display for SackBlock {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}:{}", self.left, self.right)
    }
}

impl Display for SackBlocks {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("sack")?;
        self.as_slice().iter().try_for_each(|block| write!(f, " {block}"))
    }
}

impl Display for FastOpenOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.is_request() {
            return f.write_str("tfo cookiereq");
        }
        f.write_str("tfo cookie ")?;
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Display for TcpOptions {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut any = false;
        let mut put = |f: &mut Formatter<'_>, what: &dyn Display| {
            let comma = if core::mem::replace(&mut any, true) { ", " } else { "" };
            write!(f, "{comma}{what}")
        };
        if let Some(mss) = self.mss {
            put(f, &format_args!("mss {mss}"))?;
        }
        if self.sack_permitted {
            put(f, &"sackOK")?;
        }
        if let Some(timestamps) = &self.timestamps {
            put(f, timestamps)?;
        }
        if let Some(shift) = self.window_scale {
            put(f, &format_args!("wscale {shift}"))?;
        }
        if !self.sack.is_empty() {
            put(f, &self.sack)?;
        }
        if let Some(option) = &self.fast_open {
            put(f, option)?;
        }
        if self.broken {
            put(f, &"broken")?;
        }
        Ok(())
    }
}

impl Display for Icmpv4Message {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::EchoRequest { ident, seq } => write!(f, "ICMP echo request, id {ident}, seq {seq}"),
            Self::EchoReply { ident, seq } => write!(f, "ICMP echo reply, id {ident}, seq {seq}"),
            Self::Unreachable { code: 4, mtu } => write!(f, "ICMP unreachable, need to frag, mtu {mtu}"),
            Self::Unreachable { code, .. } => write!(f, "ICMP unreachable, code {code}"),
            Self::Redirect { code, gateway } => write!(f, "ICMP redirect to {gateway}, code {code}"),
            Self::TimeExceeded { code } => write!(f, "ICMP time exceeded, code {code}"),
            Self::ParameterProblem { code, pointer } => {
                write!(f, "ICMP parameter problem at {pointer}, code {code}")
            }
            Self::Other { kind, code } => write!(f, "ICMP type {kind}, code {code}"),
        }
    }
}

impl Display for Icmpv6Message {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::EchoRequest { ident, seq } => write!(f, "ICMP6 echo request, id {ident}, seq {seq}"),
            Self::EchoReply { ident, seq } => write!(f, "ICMP6 echo reply, id {ident}, seq {seq}"),
            Self::Unreachable { code } => write!(f, "ICMP6 unreachable, code {code}"),
            Self::PacketTooBig { mtu } => write!(f, "ICMP6 packet too big, mtu {mtu}"),
            Self::TimeExceeded { code } => write!(f, "ICMP6 time exceeded, code {code}"),
            Self::ParameterProblem { code, pointer } => {
                write!(f, "ICMP6 parameter problem at {pointer}, code {code}")
            }
            Self::Ndp => f.write_str("ICMP6 neighbour discovery"),
            Self::Mld => f.write_str("ICMP6 multicast listener discovery"),
            Self::Other { kind, code } => write!(f, "ICMP6 type {kind}, code {code}"),
        }
    }
}

impl Display for GreHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "GRE {}", self.protocol)?;
        if let Some(key) = self.key {
            write!(f, ", key {key}")?;
        }
        if let Some(sequence) = self.sequence {
            write!(f, ", seq {sequence}")?;
        }
        if self.checksum { f.write_str(", checksum") } else { Ok(()) }
    }
}

impl Display for GeneveHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "Geneve vni {}, {}", self.vni, self.protocol)?;
        if self.control { f.write_str(", control") } else { Ok(()) }
    }
}

impl Display for VxlanHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "VXLAN vni {}", self.vni)
    }
}

impl Display for IgmpMessage {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Query { group, version, .. } if group.is_unspecified() => {
                write!(f, "IGMP v{version} general query")
            }
            Self::Query { group, version, .. } => write!(f, "IGMP v{version} query of {group}"),
            Self::Report { group } => write!(f, "IGMP report of {group}"),
            Self::Leave { group } => write!(f, "IGMP leave of {group}"),
            Self::Other { kind } => write!(f, "IGMP type {kind}"),
        }
    }
}

impl Display for MldQuery {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { group, version, .. } = self;
        if group.is_unspecified() {
            write!(f, "MLD v{version} general query")
        } else {
            write!(f, "MLD v{version} query of {group}")
        }
    }
}

impl Display for NdpMessage {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::RouterSolicitation { .. } => f.write_str("NDP router solicitation"),
            Self::RouterAdvertisement { lifetime, hop_limit, .. } => {
                write!(f, "NDP router advertisement, lifetime {lifetime} s, hop limit {hop_limit}")
            }
            Self::NeighborSolicitation { target, .. } => write!(f, "NDP who-has {target}"),
            Self::NeighborAdvertisement { target, options, .. } => {
                write!(f, "NDP {target}")?;
                options.target.map_or(Ok(()), |mac| write!(f, " is-at {mac}"))
            }
            Self::Redirect { target, destination, .. } => {
                write!(f, "NDP redirect of {destination} to {target}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{EtherType, MacAddr, SeqNum, TcpFlags};

    /// Headers as they come from the wire, each as the line that it is.
    #[test]
    fn a_line_for_each_header() {
        let syn = TcpHeader {
            src_port: 40_000,
            dst_port: 80,
            seq: SeqNum(7),
            ack: SeqNum(0),
            flags: TcpFlags::SYN,
            window: 65_535,
            urgent: 0,
        };
        let mut sack = SackBlocks::EMPTY;
        sack.push(SackBlock { left: SeqNum(10), right: SeqNum(20) });
        sack.push(SackBlock { left: SeqNum(30), right: SeqNum(40) });
        let lines = [
            (syn.to_string(), "TCP 40000 > 80, SYN, seq 7, ack 0, win 65535"),
            (
                TcpHeader { urgent: 3, ..syn }.to_string(),
                "TCP 40000 > 80, SYN, seq 7, ack 0, win 65535, urg 3",
            ),
            (TcpOptions::default().to_string(), ""),
            (
                TcpOptions {
                    mss: Some(1460),
                    sack_permitted: true,
                    timestamps: Some(Timestamps { value: 5, echo: 6 }),
                    window_scale: Some(7),
                    ..TcpOptions::default()
                }
                .to_string(),
                "mss 1460, sackOK, TS val 5 ecr 6, wscale 7",
            ),
            (
                TcpOptions { sack, broken: true, ..TcpOptions::default() }.to_string(),
                "sack 10:20 30:40, broken",
            ),
            (
                UdpHeader { src_port: 1, dst_port: 2, len: 108, checksum: 0 }.to_string(),
                "UDP 1 > 2, 100 bytes, no checksum",
            ),
            (
                EthernetHeader {
                    dst: MacAddr([2, 0, 0, 0, 0, 1]),
                    src: MacAddr([2, 0, 0, 0, 0, 2]),
                    ethertype: EtherType::IPV4,
                    vlan: Some(VlanTag { tpid: EtherType(0x8100), tci: 3 << 13 | 42 }),
                }
                .to_string(),
                "02:00:00:00:00:02 > 02:00:00:00:00:01, vlan 42, p 3, ipv4",
            ),
            (
                Icmpv4Message::Unreachable { code: 4, mtu: 1400 }.to_string(),
                "ICMP unreachable, need to frag, mtu 1400",
            ),
            (Icmpv6Message::EchoRequest { ident: 1, seq: 2 }.to_string(), "ICMP6 echo request, id 1, seq 2"),
            (VxlanHeader { vni: 77 }.to_string(), "VXLAN vni 77"),
            (IgmpMessage::Leave { group: [224, 0, 1, 1].into() }.to_string(), "IGMP leave of 224.0.1.1"),
            (
                NdpMessage::NeighborSolicitation { target: 1.into(), options: Default::default() }
                    .to_string(),
                "NDP who-has ::1",
            ),
        ];
        for (line, want) in lines {
            assert_eq!(line, want);
        }
    }

    /// What is parsed from a packet says what the packet is.
    #[test]
    fn a_parsed_packet_reads_as_it_was_built() {
        let mut packet = [0; 28];
        packet[..20]
            .copy_from_slice(&[0x45, 2, 0, 28, 0x12, 0x34, 0x20, 5, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = crate::wire::Sum::default().add_bytes(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let (header, _) = Ipv4Header::parse(&packet).expect("a packet");
        assert_eq!(
            header.to_string(),
            "10.0.0.1 > 10.0.0.2: udp, 8 bytes, ttl 64, tos 0x02, fragment 4660 at 40+"
        );
    }
}
