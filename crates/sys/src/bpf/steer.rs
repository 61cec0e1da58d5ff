//! Choosing a queue as a card with RSS would: `filter_rss` and `tcx_rss`.
//!
//! Both compute Toeplitz over the packet's addresses, and its ports where the rules say so, look the result up in an
//! indirection table, and differ in what they do with the queue: a filter returns it (TAP steering, AF_PACKET
//! fanout); on the egress of the far end of a veth the packet is marked with it and with the hash, and veth then
//! delivers it to that receive queue of the near end.
//!
//! ```text
//!   map entry    0 ┌──────────────────────────────────────────┐
//!                  │ 36 tables of 256 words: what byte value v │  made from the key; the hash of n bytes
//!                  │ at place p of the input adds to the hash  │  is n words xor-ed together
//!             9216 ├──────────────────────────────────────────┤
//!                  │ one word a slot: its queue                │  may be rewritten while packets flow
//!                  └──────────────────────────────────────────┘
//! ```
//!
//! Each word is looked up by its number, and none is reached by adding a number to the address of another: without `CAP_PERFMON` the
//! verifier follows each such addition on two paths, what the processor computes and what it may guess, and 36 of them in a row are
//! more paths than it will ever follow.
//!
//! Which fields go in: TCP addresses and ports; UDP the same if [`SteeringRules::udp_ports`], else addresses; every
//! fragment, every transport header cut short and every other IP packet addresses. IPv6 extension headers (hop-by-hop,
//! routing, destination options, authentication, and a fragment header that is the only fragment) are looked through,
//! up to eight; behind more of them only the addresses count. What is not IP goes to queue 0. The stack's own
//! classification of flows draws the same lines.

use super::asm::{Assembler, If, Label, Op, Reg, Reg::*, Size, helper};
use super::parse::{IPV4, IPV4_LEN, IPV6, IPV6_LEN, Source, network};
use super::{Map, MapKind, Program, ProgramKind};
use crate::error::{Error, Result};

/// A card's RSS configuration, as plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeringRules {
    /// Toeplitz key, 16 to 52 bytes. Input beyond the key's length meets zeros.
    pub key: Vec<u8>,
    /// Queue of each slot, 2 to 2048 slots. The slot is the low bits of the hash if the length is a power of two, else
    /// the remainder of its division by the length.
    pub table: Vec<u16>,
    /// Hash UDP over addresses and ports instead of addresses alone.
    pub udp_ports: bool,
}

/// Places of the longest input: two IPv6 addresses and two ports.
const PLACES: usize = 36;
/// Words before those of the slots.
const TABLES: usize = PLACES * 256;
const MAX_EXTENSION_HEADERS: usize = 8;

/// Where headers are put on the program's stack, so that addresses and ports come to lie in one row.
const HEADER: i16 = -64;
const V4_INPUT: i16 = HEADER + 12;
const V6_INPUT: i16 = HEADER + 8;
const SCRATCH: i16 = -72;
/// The number of the word to look up.
const KEY: i16 = -80;

const TCP: i32 = 6;
const TCP_LEN: i32 = 20;
const UDP: i32 = 17;
const UDP_LEN: i32 = 8;

/// What a program does with the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Returns it.
    Return,
    /// Marks the packet with it and with the hash, and passes it on.
    Mark,
    /// Returns the hash itself; 0 when there is none. For tests.
    #[cfg_attr(not(test), allow(dead_code, reason = "for tests"))]
    ReturnHash,
}

/// The tables of one RSS configuration in the kernel, for any number of programs.
#[derive(Debug)]
pub struct Steering {
    map: Map,
    table: std::sync::Mutex<Vec<u16>>,
    slots: usize,
    udp_ports: bool,
}

impl Steering {
    /// Computes the tables and puts them into a map.
    ///
    /// # Errors
    /// [`Error::Invalid`] for lengths out of range; the map's errors.
    pub fn new(rules: &SteeringRules) -> Result<Self> {
        if !(16..=52).contains(&rules.key.len()) {
            return Err(Error::Invalid(format!("RSS key of {} bytes: from 16 to 52", rules.key.len())));
        }
        if !(2..=2048).contains(&rules.table.len()) {
            return Err(Error::Invalid(format!(
                "indirection table of {} slots: from 2 to 2048",
                rules.table.len()
            )));
        }
        let table = &rules.table;
        let map = Map::new(MapKind::Array, "flowlane_rss", 4, 4, TABLES + table.len())?;
        let steering =
            Self { map, table: table.clone().into(), slots: table.len(), udp_ports: rules.udp_ports };
        let words = contributions(&rules.key).into_iter().chain(table.iter().map(|&queue| u32::from(queue)));
        for (number, word) in words.enumerate() {
            steering.store(number, word)?;
        }
        Ok(steering)
    }

    fn store(&self, number: usize, word: u32) -> Result<()> {
        self.map
            .update(&(number as u32).to_ne_bytes(), &word.to_ne_bytes())
            .map_err(|e| Error::from_io(e, "filling the RSS tables", "CAP_BPF"))
    }

    /// Rewrites the indirection table while packets flow.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the length differs from the first table's.
    pub fn set_table(&self, table: &[u16]) -> Result<()> {
        if table.len() != self.slots {
            return Err(Error::Invalid(format!("the indirection table keeps its {} slots", self.slots)));
        }
        let mut stored = self.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (slot, (before, &queue)) in stored.iter_mut().zip(table).enumerate() {
            if *before != queue {
                self.store(TABLES + slot, u32::from(queue))?;
                *before = queue;
            }
        }
        Ok(())
    }

    /// `filter_rss` for TAP steering: returns the queue.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn tap(&self) -> Result<Program> {
        let code = self.program(Source::SocketBuffer, Outcome::Return);
        Program::load(ProgramKind::SocketFilter, "filter_rss", code)
    }

    /// `filter_rss` for AF_PACKET fanout: returns the queue.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn fanout(&self) -> Result<Program> {
        let code = self.program(Source::Network, Outcome::Return);
        Program::load(ProgramKind::SocketFilter, "filter_rss", code)
    }

    /// `tcx_rss`: marks packets with queue and hash. For the egress of the far end of a veth.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn egress(&self) -> Result<Program> {
        Program::load(ProgramKind::SchedCls, "tcx_rss", self.program(Source::SocketBuffer, Outcome::Mark))
    }

    /// Registers as in [`super::parse`]; `R7` is not used.
    pub(super) fn program(&self, source: Source, outcome: Outcome) -> Assembler {
        let mut asm = Assembler::new();
        let a = &mut asm;
        let (unhashed, v6, steer) = (a.label(), a.label(), a.label());
        source.ethernet(a, SCRATCH, unhashed);
        a.jump_if(If::Equal, R9, network(IPV6), v6);
        a.jump_if(If::NotEqual, R9, network(IPV4), unhashed);

        // IPv4. R9 becomes the offset of the transport header.
        let addresses = a.label();
        source.header(a, R8, IPV4_LEN, HEADER, unhashed);
        a.load(Size::B, R9, R10, HEADER).copy(R1, R9).alu(Op::ShiftRight, R1, 4);
        a.jump_if(If::NotEqual, R1, 4, unhashed);
        a.alu(Op::And, R9, 15).jump_if(If::Less, R9, 5, unhashed);
        a.alu(Op::ShiftLeft, R9, 2).alu_reg(Op::Add, R9, R8);
        a.load(Size::H, R1, R10, HEADER + 6).jump_if(If::AnySet, R1, network(0x3fff), addresses);
        a.load(Size::B, R1, R10, HEADER + 9);
        self.ports(source, a, R9, V4_INPUT + 8, addresses);
        self.hash(a, V4_INPUT, 12, unhashed);
        a.jump(steer);
        a.bind(addresses);
        self.hash(a, V4_INPUT, 8, unhashed);
        a.jump(steer);

        // IPv6. R8 becomes the offset of the header after the current one, R9 that header's kind.
        let addresses = a.label();
        a.bind(v6);
        source.header(a, R8, IPV6_LEN, HEADER, unhashed);
        a.load(Size::B, R1, R10, HEADER).alu(Op::ShiftRight, R1, 4).jump_if(If::NotEqual, R1, 6, unhashed);
        a.load(Size::B, R9, R10, HEADER + 6).alu(Op::Add, R8, IPV6_LEN);
        extension_headers(source, a, addresses);
        a.copy(R1, R9);
        self.ports(source, a, R8, V6_INPUT + 32, addresses);
        self.hash(a, V6_INPUT, 36, unhashed);
        a.jump(steer);
        a.bind(addresses);
        self.hash(a, V6_INPUT, 32, unhashed);

        a.bind(steer);
        self.finish(a, outcome, unhashed);
        a.bind(unhashed);
        match outcome {
            Outcome::Return | Outcome::ReturnHash => a.exit_with(0),
            Outcome::Mark => a.set(R1, 1).store(Size::W, R6, SKB_QUEUE, R1).exit_with(TCX_NEXT),
        };
        asm
    }

    /// Puts the ports of the transport header at `from` on the stack, if the protocol in `R1` is hashed with them and
    /// its header is whole; else goes to `addresses`.
    fn ports(&self, source: Source, a: &mut Assembler, from: Reg, to: i16, addresses: Label) {
        let (udp, done) = (a.label(), a.label());
        if self.udp_ports {
            a.jump_if(If::Equal, R1, UDP, udp);
        }
        a.jump_if(If::NotEqual, R1, TCP, addresses);
        source.header(a, from, TCP_LEN, to, addresses);
        if self.udp_ports {
            a.jump(done).bind(udp);
            source.header(a, from, UDP_LEN, to, addresses);
        }
        a.bind(done);
    }

    /// `R9 = Toeplitz of the len bytes at stack offset from`. Goes to `nowhere` if a word is not found, which cannot be.
    fn hash(&self, a: &mut Assembler, from: i16, len: i16, nowhere: Label) {
        a.set(R9, 0);
        for place in 0..len {
            a.load(Size::B, R1, R10, from + place).alu(Op::Add, R1, i32::from(place) * 256);
            self.look_up(a, nowhere);
            a.alu_reg(Op::Xor, R9, R0);
        }
    }

    /// `R0 = the word of number R1`.
    fn look_up(&self, a: &mut Assembler, nowhere: Label) {
        a.store(Size::W, R10, KEY, R1).load_map(R1, &self.map).copy(R2, R10).alu(Op::Add, R2, i32::from(KEY));
        a.call(helper::MAP_LOOKUP).jump_if(If::Equal, R0, 0, nowhere).load(Size::W, R0, R0, 0);
    }

    /// The end: the hash is in `R9`.
    fn finish(&self, a: &mut Assembler, outcome: Outcome, nowhere: Label) {
        if outcome == Outcome::ReturnHash {
            a.copy(R0, R9).exit();
            return;
        }
        let slots = self.slots as i32;
        a.copy(R1, R9);
        if self.slots.is_power_of_two() {
            a.alu(Op::And, R1, slots - 1);
        } else {
            a.alu(Op::Mod, R1, slots);
        }
        a.alu(Op::Add, R1, TABLES as i32);
        self.look_up(a, nowhere);
        if outcome == Outcome::Return {
            a.exit();
            return;
        }
        // The mark is the queue plus one; zero is "none".
        a.alu(Op::Add, R0, 1).store(Size::W, R6, SKB_QUEUE, R0);
        a.copy(R1, R6).copy(R2, R9).call(helper::SET_HASH).exit_with(TCX_NEXT);
    }
}

/// Offset of `queue_mapping` in `struct __sk_buff`.
const SKB_QUEUE: i16 = 12;
/// Leave the packet to the next program, or to go its way.
const TCX_NEXT: i32 = -1;

/// Walks IPv6 extension headers. `R8` and `R9` end at the transport header and its kind; fragments, too many headers
/// and packets cut short go to `addresses`.
fn extension_headers(source: Source, a: &mut Assembler, addresses: Label) {
    const HOP_BY_HOP: i32 = 0;
    const ROUTING: i32 = 43;
    const FRAGMENT: i32 = 44;
    const AUTHENTICATION: i32 = 51;
    const OPTIONS: i32 = 60;
    let done = a.label();
    for _ in 0..MAX_EXTENSION_HEADERS {
        let (options, fragment, next) = (a.label(), a.label(), a.label());
        for kind in [HOP_BY_HOP, ROUTING, OPTIONS] {
            a.jump_if(If::Equal, R9, kind, options);
        }
        a.jump_if(If::Equal, R9, FRAGMENT, fragment);
        a.jump_if(If::NotEqual, R9, AUTHENTICATION, done);
        // Length in units of 4 bytes, two of them not counted.
        source.header(a, R8, 2, SCRATCH, addresses);
        a.load(Size::B, R9, R10, SCRATCH).load(Size::B, R1, R10, SCRATCH + 1);
        a.alu(Op::Add, R1, 2).alu(Op::ShiftLeft, R1, 2).alu_reg(Op::Add, R8, R1).jump(next);
        a.bind(fragment);
        // Offset and "more" both zero: the only fragment.
        source.header(a, R8, 8, SCRATCH, addresses);
        a.load(Size::H, R1, R10, SCRATCH + 2).jump_if(If::AnySet, R1, network(0xfff9), addresses);
        a.load(Size::B, R9, R10, SCRATCH).alu(Op::Add, R8, 8).jump(next);
        a.bind(options);
        // Length in units of 8 bytes, one of them not counted.
        source.header(a, R8, 2, SCRATCH, addresses);
        a.load(Size::B, R9, R10, SCRATCH).load(Size::B, R1, R10, SCRATCH + 1);
        a.alu(Op::Add, R1, 1).alu(Op::ShiftLeft, R1, 3).alu_reg(Op::Add, R8, R1);
        a.bind(next);
    }
    a.bind(done);
}

/// For each place and byte value, the xor of the 32-bit windows of the key that its set bits select.
fn contributions(key: &[u8]) -> Vec<u32> {
    let bit = |n: usize| key.get(n / 8).map_or(0, |b| u32::from(b >> (7 - n % 8) & 1));
    let window = |n: usize| (0..32).fold(0, |w, i| w << 1 | bit(n + i));
    (0..PLACES)
        .flat_map(|place| {
            let windows: [u32; 8] = std::array::from_fn(|i| window(place * 8 + i));
            (0..256usize)
                .map(move |v| (0..8).filter(|i| v >> (7 - i) & 1 == 1).fold(0, |h, i| h ^ windows[i]))
        })
        .collect()
}
