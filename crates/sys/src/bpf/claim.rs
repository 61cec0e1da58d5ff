//! Programs that take the packets for our addresses and no others.
//!
//! One decision in three programs: `xdp_claim` redirects our packets to AF_XDP and passes the rest to the kernel, so that ssh on the same
//! interface keeps working; `filter_claim` keeps other packets out of an AF_PACKET socket; `tcx_claim` drops our packets before the
//! kernel's own stack, which would otherwise process them beside the copy for the AF_PACKET socket.
//!
//! Our packets are: IP packets whose destination is in a claimed prefix (multicast groups and broadcast addresses are claimed like any
//! other); ARP packets whose target address is; IPv6 neighbour solicitations and advertisements whose target is, whatever group they were
//! sent to, since a host that already has a claimed address advertises it to all nodes. Fragments count like whole packets. Everything else
//! is the kernel's.
//!
//! A frame may have one 802.1Q tag; [`Tags`] says which. Frames with two tags or with an 802.1ad tag are the kernel's, since no interface
//! of ours is on such a network. The kernel keeps the outermost tag beside a socket buffer, not in it.

use super::asm::{Assembler, If, Label, Op, Reg::*, Size, helper};
use super::parse::{ARP, ARP_LEN, IPV4, IPV4_LEN, IPV6, IPV6_LEN, Source, VLAN, network};
use super::{Map, MapKind, Program, ProgramKind};
use crate::error::{Error, Result};
use std::net::IpAddr;

/// Prefixes at most, of each family.
const MAX_PREFIXES: usize = 4096;
/// Counters are kept apart for this many queues; higher ones share.
const COUNTED_QUEUES: usize = 256;
const COUNTER_LINE: usize = 64;

/// Stack places: headers for socket buffers, and the key of a lookup.
const HEADER: i16 = -64;
const KEY: i16 = -88;

/// Whose the packets to a prefix are: values of the maps.
const ALONE: u32 = 1;
const SHARED: u32 = 2;

/// Space that `xdp_claim` with the hash puts before the packet: the hash and its type, 32 bits each, machine order.
/// A type of [`NO_HASH`] means that the driver gave none.
pub const METADATA_LEN: usize = 8;
/// See [`METADATA_LEN`].
pub const NO_HASH: u32 = u32::MAX;

/// The VLAN of our packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tags {
    /// Whatever tag there is, or none.
    #[default]
    Any,
    /// No tag, or a priority tag only (VLAN 0).
    Untagged,
    /// A tag with this number, 1 to 4094.
    Vlan(u16),
}

/// The claimed prefixes, in the kernel. Can be changed while packets flow.
#[derive(Debug)]
pub struct Claims {
    /// Every frame is ours, and the maps are not asked.
    all: bool,
    tags: Tags,
    v4: Map,
    v6: Map,
    counters: Map,
}

/// How many packets `xdp_claim` has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClaimCounters {
    /// Were ours. If a queue has no socket the kernel got them all the same.
    pub taken: u64,
    /// Were left to the kernel.
    pub passed: u64,
}

impl Claims {
    /// Claims `prefixes`, address and length, of packets with these tags.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a length beyond the address's; the maps' errors.
    pub fn new(prefixes: &[(IpAddr, u8)], tags: Tags) -> Result<Self> {
        let claims = Self {
            all: false,
            tags,
            v4: Map::new(MapKind::LpmTrie, "flowlane_v4", 8, 4, MAX_PREFIXES)?,
            v6: Map::new(MapKind::LpmTrie, "flowlane_v6", 20, 4, MAX_PREFIXES)?,
            counters: Map::block("flowlane_seen", COUNTED_QUEUES * COUNTER_LINE)?,
        };
        for &(address, len) in prefixes {
            claims.add(address, len)?;
        }
        Ok(claims)
    }

    /// Claims every frame, whatever it carries.
    ///
    /// # Errors
    /// The maps' errors.
    pub fn everything() -> Result<Self> {
        Ok(Self { all: true, ..Self::new(&[], Tags::Any)? })
    }

    /// Claims one prefix more.
    ///
    /// # Errors
    /// As [`Claims::new`].
    pub fn add(&self, address: IpAddr, len: u8) -> Result<()> {
        let (map, key) = self.key(address, len)?;
        map.update(&key, &ALONE.to_ne_bytes())
            .map_err(|e| Error::from_io(e, format!("claiming {address}/{len}"), "CAP_BPF"))
    }

    /// Takes packets to a multicast group or an address. A packet socket gets a copy of them and the kernel keeps its own; XDP cannot
    /// copy, so there the kernel gets none of them any more.
    ///
    /// # Errors
    /// As [`Claims::new`].
    pub fn join(&self, group: IpAddr) -> Result<()> {
        let (map, key) = self.key(group, if group.is_ipv4() { 32 } else { 128 })?;
        // One that is claimed already stays ours alone.
        if map.lookup(&key).is_ok() {
            return Ok(());
        }
        map.update(&key, &SHARED.to_ne_bytes())
            .map_err(|e| Error::from_io(e, format!("joining {group}"), "CAP_BPF"))
    }

    /// Gives one prefix back to the kernel.
    ///
    /// # Errors
    /// As [`Claims::new`], and when it was not claimed.
    pub fn remove(&self, address: IpAddr, len: u8) -> Result<()> {
        let (map, key) = self.key(address, len)?;
        map.delete(&key).map_err(|e| Error::from_io(e, format!("giving up {address}/{len}"), "CAP_BPF"))
    }

    fn key(&self, address: IpAddr, len: u8) -> Result<(&Map, Vec<u8>)> {
        let (map, bits, octets) = match address {
            IpAddr::V4(a) => (&self.v4, 32, a.octets().to_vec()),
            IpAddr::V6(a) => (&self.v6, 128, a.octets().to_vec()),
        };
        if len > bits {
            return Err(Error::Invalid(format!("{address}/{len}: the prefix is longer than the address")));
        }
        Ok((map, [u32::from(len).to_ne_bytes().to_vec(), octets].concat()))
    }

    /// Counters of `xdp_claim` on one receive queue.
    #[must_use]
    pub fn counters(&self, queue: u32) -> ClaimCounters {
        let line = queue as usize % COUNTED_QUEUES * COUNTER_LINE;
        let Ok(all) = self.counters.lookup(&0u32.to_ne_bytes()) else { return ClaimCounters::default() };
        let word = |at: usize| all[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        ClaimCounters { taken: word(line), passed: word(line + 8) }
    }

    /// `xdp_claim`: packets that are ours go to the socket of their queue in `sockets`, or to the kernel where there
    /// is none. `hash` names the driver's hash function ([`super::kfunc`]) and the interface's number, to have the
    /// hash put before each packet.
    ///
    /// # Errors
    /// As [`Program::load`]; with `hash`, drivers without the function refuse.
    pub fn xdp(&self, sockets: &Map, hash: Option<(u32, u32)>) -> Result<Program> {
        let code = self.xdp_code(sockets, hash.map(|(function, _)| function));
        match hash {
            Some((_, interface)) => Program::load_xdp_bound("flowlane_claim", code, interface),
            None => Program::load_xdp("flowlane_claim", code),
        }
    }

    fn xdp_code(&self, sockets: &Map, hash: Option<u32>) -> Assembler {
        const PASS: i32 = 2;
        let mut asm = Assembler::new();
        let a = &mut asm;
        let (ours, others) = (a.label(), a.label());
        self.decide(a, Source::Xdp, ours, others);
        a.bind(ours);
        if let Some(function) = hash {
            let done = a.label();
            a.copy(R1, R6).set(R2, -(METADATA_LEN as i32)).call(helper::XDP_ADJUST_META);
            a.jump_if(If::NotEqual, R0, 0, others);
            // The function writes a hash and a type to the stack; they are copied from there.
            a.store_value(Size::D, R10, KEY, 0);
            a.copy(R1, R6).copy(R2, R10).alu(Op::Add, R2, i32::from(KEY));
            a.copy(R3, R10).alu(Op::Add, R3, i32::from(KEY) + 4).call_kfunc(function);
            a.jump_if(If::Equal, R0, 0, done);
            a.store_value(Size::W, R10, KEY + 4, NO_HASH as i32);
            a.bind(done);
            a.load(Size::W, R1, R6, 8).load(Size::W, R2, R6, 0); // metadata, data
            a.copy(R3, R1).alu(Op::Add, R3, METADATA_LEN as i32).jump_if_reg(If::Greater, R3, R2, others);
            a.load(Size::W, R2, R10, KEY).store(Size::W, R1, 0, R2);
            a.load(Size::W, R2, R10, KEY + 4).store(Size::W, R1, 4, R2);
        }
        self.count(a, 0);
        a.load_map(R1, sockets).load(Size::W, R2, R6, XDP_QUEUE).set(R3, PASS);
        a.call(helper::REDIRECT_MAP).exit();
        a.bind(others);
        self.count(a, 8);
        a.exit_with(PASS);
        asm
    }

    /// `counters[queue].at += 1`.
    fn count(&self, a: &mut Assembler, at: i16) {
        a.load(Size::W, R1, R6, XDP_QUEUE).alu(Op::And, R1, COUNTED_QUEUES as i32 - 1);
        a.alu(Op::Mul, R1, COUNTER_LINE as i32).load_map_value(R2, &self.counters, 0).alu_reg(
            Op::Add,
            R1,
            R2,
        );
        a.set(R2, 1).atomic_add(R1, at, R2);
    }

    /// `filter_claim`: keeps ours whole and leaves out the rest.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn filter(&self) -> Result<Program> {
        Program::load(ProgramKind::SocketFilter, "filter_claim", self.skb_code(-1, 0, false))
    }

    /// `tcx_claim`: drops our packets and leaves the rest to the next program. For the receive side.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn ingress_drop(&self) -> Result<Program> {
        const NEXT: i32 = -1;
        const DROP: i32 = 2;
        Program::load(ProgramKind::SchedCls, "tcx_claim", self.skb_code(DROP, NEXT, true))
    }

    /// `alone`: what is shared with the kernel is none of ours here.
    pub(super) fn skb_code(&self, if_ours: i32, if_not: i32, alone: bool) -> Assembler {
        let mut asm = Assembler::new();
        let (ours, others) = (asm.label(), asm.label());
        self.decide(&mut asm, Source::SocketBuffer, ours, others);
        asm.bind(ours);
        if alone && !self.all {
            asm.load(Size::W, R1, R0, 0).jump_if(If::Equal, R1, SHARED as i32, others);
        }
        asm.exit_with(if_ours);
        asm.bind(others).exit_with(if_not);
        asm
    }

    /// Goes on behind the tag if it is as it should be, else to `others`. A second tag is left standing as the EtherType, which is
    /// none of ours.
    fn tag(&self, a: &mut Assembler, source: Source, others: Label) {
        let vid: i32 = match self.tags {
            Tags::Any => -1,
            Tags::Untagged => 0,
            Tags::Vlan(vid) => i32::from(vid),
        };
        let (tagged, done) = (a.label(), a.label());
        if source != Source::Xdp {
            let not_beside = a.label();
            a.load(Size::W, R1, R6, SKB_VLAN_PRESENT).jump_if(If::Equal, R1, 0, not_beside);
            a.load(Size::W, R1, R6, SKB_VLAN_PROTOCOL).jump_if(If::NotEqual, R1, network(VLAN), others);
            if vid >= 0 {
                a.load(Size::W, R1, R6, SKB_VLAN_TCI).alu(Op::And, R1, 0x0fff);
                a.jump_if(If::NotEqual, R1, vid, others);
            }
            a.jump(done).bind(not_beside);
        }
        a.jump_if(If::Equal, R9, network(VLAN), tagged);
        a.jump(if vid > 0 { others } else { done });
        a.bind(tagged);
        let (base, at) = source.header(a, R8, 4, HEADER, others);
        if vid >= 0 {
            a.load(Size::H, R1, base, at).alu(Op::And, R1, network(0x0fff));
            a.jump_if(If::NotEqual, R1, network(vid as u16), others);
        }
        a.load(Size::H, R9, base, at + 2).alu(Op::Add, R8, 4);
        a.bind(done);
    }

    /// Goes to `ours`, with the address of the prefix's value in `R0`, or to `others`.
    fn decide(&self, a: &mut Assembler, source: Source, ours: Label, others: Label) {
        let (v4, v6, look_v4) = (a.label(), a.label(), a.label());
        source.ethertype(a, HEADER, others);
        if self.all {
            if source != Source::Xdp {
                // What leaves is shown to packet sockets too. A fanout group knows no `PACKET_IGNORE_OUTGOING` before Linux 5.17.
                a.load(Size::W, R1, R6, SKB_PACKET_TYPE).jump_if(If::Equal, R1, OUTGOING, others);
            }
            a.jump(ours);
            return;
        }
        self.tag(a, source, others);
        a.jump_if(If::Equal, R9, network(IPV4), v4);
        a.jump_if(If::Equal, R9, network(IPV6), v6);
        a.jump_if(If::NotEqual, R9, network(ARP), others);

        // ARP: the target's protocol address.
        let (base, at) = source.header(a, R8, ARP_LEN, HEADER, others);
        a.load(Size::H, R1, base, at + 2).jump_if(If::NotEqual, R1, network(IPV4), others);
        a.load(Size::W, R1, base, at + 24).jump(look_v4);

        a.bind(v4);
        let (base, at) = source.header(a, R8, IPV4_LEN, HEADER, others);
        a.load(Size::W, R1, base, at + 16);
        a.bind(look_v4);
        a.store_value(Size::W, R10, KEY, 32).store(Size::W, R10, KEY + 4, R1);
        look_up(a, &self.v4);
        a.jump_if(If::NotEqual, R0, 0, ours);
        a.jump(others);

        // IPv6: the destination; for a solicitation to a group, its target. R9 remembers whether that is left to do.
        a.bind(v6);
        let (base, at) = source.header(a, R8, IPV6_LEN, HEADER, others);
        copy_address(a, base, at + 24);
        let plain = a.label();
        a.load(Size::B, R1, base, at + 24).load(Size::B, R2, base, at + 6).set(R9, 0);
        a.jump_if(If::NotEqual, R1, 0xff, plain).jump_if(If::NotEqual, R2, ICMPV6, plain).set(R9, 1);
        a.bind(plain);
        look_up(a, &self.v6);
        a.jump_if(If::NotEqual, R0, 0, ours);
        a.jump_if(If::Equal, R9, 0, others);
        a.set(R9, 0).alu(Op::Add, R8, IPV6_LEN);
        let (base, at) = source.header(a, R8, 24, HEADER, others);
        // Solicitations and, one above, advertisements. Lower types wrap round.
        a.load(Size::B, R1, base, at).alu(Op::Add, R1, -NEIGHBOUR_SOLICITATION);
        a.jump_if(If::Greater, R1, 1, others);
        copy_address(a, base, at + 8);
        look_up(a, &self.v6);
        a.jump_if(If::NotEqual, R0, 0, ours);
        a.jump(others);
    }
}

const ICMPV6: i32 = 58;
/// And an advertisement is one more.
const NEIGHBOUR_SOLICITATION: i32 = 135;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const XDP_QUEUE: i16 = 16;
/// Offset in `struct __sk_buff` of the kind of packet, and the kind that leaves (`PACKET_OUTGOING`).
const SKB_PACKET_TYPE: i16 = 4;
const OUTGOING: i32 = 4;
/// Offsets in `struct __sk_buff`: whether there is a tag, its contents (host byte order) and its protocol (as on the wire).
const SKB_VLAN_PRESENT: i16 = 20;
const SKB_VLAN_TCI: i16 = 24;
const SKB_VLAN_PROTOCOL: i16 = 28;

/// Puts the IPv6 address at `base + at` into the key, with the longest prefix.
fn copy_address(a: &mut Assembler, base: super::asm::Reg, at: i16) {
    a.store_value(Size::W, R10, KEY, 128);
    for word in 0..4 {
        a.load(Size::W, R1, base, at + word * 4).store(Size::W, R10, KEY + 4 + word * 4, R1);
    }
}

/// `R0 = value of the key on the stack in map`, or zero.
fn look_up(a: &mut Assembler, map: &Map) {
    a.load_map(R1, map).copy(R2, R10).alu(Op::Add, R2, i32::from(KEY)).call(helper::MAP_LOOKUP);
}
