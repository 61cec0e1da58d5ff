//! The programs: by the flow's hash, and by the processor; and in front of either, by the lane that a datagram [names](named).
//!
//! A hash of RSS is linear: it is the exclusive or of one word for each bit that is set in the addresses and ports. So a program needs no
//! loop. It looks at each bit, and at most a few hundred of its instructions run, a tenth of a microsecond. The words are found by hashing
//! flows of a single bit, which holds for every rule that is linear, that of a card that was learned included. Whether a rule is, a few
//! flows show ([`Linear::of`]).

pub(super) mod named;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use flowlane_rss::{Flow, Protocol, Rss};
use flowlane_sys::kernel::select::{Instruction, NETWORK, PROCESSOR, code};

use super::Families;
use named::Named;

/// Where a program keeps the ports, a word that it looks at, and a number of the flow.
const PORTS: u32 = 0;
const WORD: u32 = 1;
const FLOW: u32 = 2;

/// Words of a flow of IPv4: source, destination, ports. Of IPv6 four times as much of each address.
const V4: usize = 3;
const V6: usize = 9;

/// A linear hash: the word for each bit of each word of the flow, and the hash of nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kernel) struct Linear {
    v4: (u32, Vec<[u32; 32]>),
    v6: (u32, Vec<[u32; 32]>),
}

/// The flow that these words make up, as they stand in a packet.
fn flow(words: &[u32], protocol: Protocol) -> Flow {
    let (ports, addresses) = words.split_last().map_or((0, words), |(ports, rest)| (*ports, rest));
    let (src, dst) = addresses.split_at(addresses.len() / 2);
    let ip = |words: &[u32]| match *words {
        [a] => IpAddr::V4(Ipv4Addr::from(a)),
        [a, b, c, d] => {
            let high = u128::from(a) << 96 | u128::from(b) << 64;
            IpAddr::V6(Ipv6Addr::from(high | u128::from(c) << 32 | u128::from(d)))
        }
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    let (from, to) = ((ports >> 16) as u16, ports as u16);
    Flow::new(SocketAddr::new(ip(src), from), SocketAddr::new(ip(dst), to), protocol)
}

impl Linear {
    /// The hash of a host's steering; `None` if it is not linear.
    pub(super) fn of(rss: &Rss, protocol: Protocol) -> Option<Self> {
        let family = |words: usize| {
            let hash = |flow: &[u32]| rss.software_hash(&self::flow(flow, protocol)).0;
            let nothing = hash(&vec![0; words]);
            let windows: Vec<[u32; 32]> = (0..words)
                .map(|word| {
                    std::array::from_fn(|bit| {
                        let mut one = vec![0; words];
                        one[word] = 1 << (31 - bit);
                        hash(&one) ^ nothing
                    })
                })
                .collect();
            let linear = (nothing, windows);
            let mut random = 0x9e37_79b9_u32;
            let agrees = (0..64).all(|_| {
                let words: Vec<u32> = (0..words)
                    .map(|_| {
                        random = random.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
                        random ^ random >> 15
                    })
                    .collect();
                hash(&words) == combine(&linear, &words)
            });
            // Guard: `agrees.then_some(linear)` as `Some((nothing, vec![[0; 32]; words]))` fails
            // kernel::steer
            agrees.then_some(linear)
        };
        Some(Self { v4: family(V4)?, v6: family(V6)? })
    }
}

fn combine((nothing, windows): &(u32, Vec<[u32; 32]>), words: &[u32]) -> u32 {
    let bits = words.iter().zip(windows).flat_map(|(word, windows)| {
        windows.iter().enumerate().filter(move |(bit, _)| word << bit >> 31 == 1).map(|(_, window)| *window)
    });
    bits.fold(*nothing, |hash, window| hash ^ window)
}

/// A program as it grows.
#[derive(Debug, Default)]
struct Program(Vec<Instruction>);

impl Program {
    fn put(&mut self, code: u16, operand: u32) {
        self.jump(code, operand, 0, 0);
    }

    fn jump(&mut self, code: u16, operand: u32, if_true: u8, if_false: u8) {
        self.0.push(Instruction { code, if_true, if_false, operand });
    }

    /// A jump to where [`Program::here`] will say.
    fn away(&mut self) -> usize {
        self.put(code::JA, 0);
        self.0.len() - 1
    }

    /// Jumps from there come here.
    fn here(&mut self, from: usize) {
        self.0[from].operand = (self.0.len() - from - 1) as u32;
    }

    /// Runs `v4` for packets of IPv4 and `v6` for those of IPv6, as far as there are both.
    fn by_family(&mut self, families: Families, v4: impl FnOnce(&mut Self), v6: impl FnOnce(&mut Self)) {
        match families {
            Families { v4: true, v6: false } => v4(self),
            Families { v4: false, .. } => v6(self),
            Families { .. } => {
                self.put(code::LDB, NETWORK);
                self.put(code::RSH, 4);
                self.jump(code::JEQ, 4, 1, 0);
                let six = self.away();
                v4(self);
                let end = self.away();
                self.here(six);
                v6(self);
                self.here(end);
            }
        }
    }

    /// Puts the ports of a packet of IPv4, behind options if it has any, into A.
    fn ports_v4(&mut self, load: u16) {
        self.put(code::LDX_HEADER_LENGTH, NETWORK);
        self.put(load, NETWORK);
    }

    /// Computes a hash into A; `words` are offsets of the flow's words in the network header, and the ports are in memory.
    fn hash(&mut self, (nothing, windows): &(u32, Vec<[u32; 32]>), words: &[u32]) {
        self.put(code::LDX_CONSTANT, *nothing);
        for (nth, windows) in windows.iter().enumerate().filter(|(_, w)| w.iter().any(|word| *word != 0)) {
            match words.get(nth) {
                Some(at) => {
                    self.put(code::LD, NETWORK + at);
                    self.put(code::ST, WORD);
                }
                None => self.put(code::LD_MEMORY, PORTS),
            }
            let place = if nth < words.len() { WORD } else { PORTS };
            for (bit, window) in windows.iter().enumerate().filter(|(_, window)| **window != 0) {
                // A has the word and X the hash: if the bit is set, they change places for a moment.
                // Guard: `4` as `2` fails kernel::steer
                self.jump(code::JSET, 1 << (31 - bit), 0, 4);
                self.put(code::TXA, 0);
                self.put(code::XOR, *window);
                self.put(code::TAX, 0);
                self.put(code::LD_MEMORY, place);
            }
        }
        self.put(code::TXA, 0);
    }

    /// Returns what the first of the pairs in which A is has as its second: a search by halves, since programs of many buckets are long.
    fn choose(&mut self, pairs: &[(u32, u32)]) {
        if pairs.len() <= 4 {
            for (value, number) in pairs {
                self.jump(code::JEQ, *value, 0, 1);
                self.put(code::RET, *number);
            }
            return self.put(code::RET, u32::MAX);
        }
        let (low, high) = pairs.split_at(pairs.len() / 2);
        self.jump(code::JGE, high[0].0, 0, 1);
        let far = self.away();
        self.choose(low);
        self.here(far);
        self.choose(high);
    }
}

/// The socket of a flow's hash. `slots`: of each slot of the table, the number of the socket.
pub(super) fn by_hash(
    families: Families,
    linear: &Linear,
    slots: &[u32],
    named: Option<&Named>,
) -> Vec<Instruction> {
    // A table that repeats itself is as good as its shortest part.
    let repeats = |n: &usize| {
        slots.len().is_multiple_of(*n) && slots.iter().zip(slots.iter().cycle().skip(*n)).all(|(a, b)| a == b)
    };
    let part = (1..=slots.len()).find(repeats).unwrap_or(slots.len()).max(1);
    let pairs: Vec<(u32, u32)> = (0..).zip(slots[..part.min(slots.len())].iter().copied()).collect();
    let mut program = Program::default();
    let shared = named.and_then(|named| program.by_name(named, &pairs));
    program.by_family(
        families,
        |p| {
            p.ports_v4(code::LD_INDEXED);
            p.put(code::ST, PORTS);
            p.hash(&linear.v4, &[12, 16]);
        },
        |p| {
            p.put(code::LD, NETWORK + 40);
            p.put(code::ST, PORTS);
            p.hash(&linear.v6, &[8, 12, 16, 20, 24, 28, 32, 36]);
        },
    );
    program.put(code::MOD, slots.len().max(1) as u32);
    if part < slots.len() {
        program.put(code::MOD, part as u32);
    }
    if let Some(from) = shared {
        program.here(from);
    }
    program.choose(&pairs);
    program.0
}

/// A socket of the worker that is nearest to the processor. `near`: of each processor, the worker; `lanes`: of each worker, its sockets, of
/// which a flow keeps to one. A worker without any leaves the choice to the kernel.
pub(super) fn by_processor(
    families: Families,
    near: &[u16],
    lanes: &[Vec<u32>],
    named: Option<&Named>,
) -> Vec<Instruction> {
    let mut program = Program::default();
    if let Some(named) = named {
        program.by_name(named, &[]);
    }
    if lanes.iter().any(|lanes| lanes.len() > 1) {
        // Not a hash against anybody's will, but one that spreads the ports of a client over a worker's lanes.
        program.by_family(families, |p| p.ports_v4(code::LDH_INDEXED), |p| p.put(code::LDH, NETWORK + 40));
        program.put(code::TAX, 0);
        let low = if families.v4 { NETWORK + 12 } else { NETWORK + 20 };
        program.put(code::LD, low);
        program.put(code::ADD_X, 0);
        program.put(code::MUL, 0x9e37_79b1);
        program.put(code::RSH, 16);
        program.put(code::ST, FLOW);
    }
    program.put(code::LD, PROCESSOR);
    let mut ways = Vec::new();
    for (cpu, worker) in near.iter().enumerate() {
        program.jump(code::JEQ, cpu as u32, 0, 1);
        ways.push((program.away(), *worker));
    }
    program.put(code::RET, u32::MAX);
    for (worker, lanes) in lanes.iter().enumerate() {
        ways.iter().filter(|(_, to)| usize::from(*to) == worker).for_each(|(from, _)| program.here(*from));
        match lanes.as_slice() {
            [] => program.put(code::RET, u32::MAX),
            [only] => program.put(code::RET, *only),
            several => {
                program.put(code::LD_MEMORY, FLOW);
                program.put(code::MOD, several.len() as u32);
                let pairs: Vec<(u32, u32)> = (0..).zip(several.iter().copied()).collect();
                program.choose(&pairs);
            }
        }
    }
    program.0
}

#[cfg(test)]
mod tests;
