use std::sync::Arc;

use flowlane_rss::{Bucket, BucketMap, HashConfig, Indirection, Key, Toeplitz, UdpFields};

use super::super::{Bound, Steer, Steering};
use super::*;

/// What the kernel's machine does with a program for a packet that arrived on a processor.
fn run(program: &[Instruction], packet: &[u8], cpu: u32) -> u32 {
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [None; 16], 0);
    loop {
        let Instruction { code, if_true, if_false, operand: k } = program[at];
        at += 1;
        let payload = if packet[0] >> 4 == 4 { usize::from(packet[0] & 15) * 4 } else { 40 } + 8;
        let load = |offset: u32, len: usize| {
            let from = if offset < NETWORK { payload + offset as usize } else { (offset - NETWORK) as usize };
            packet[from..from + len].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
        };
        let mut branch = |is: bool| at += usize::from(if is { if_true } else { if_false });
        match code {
            code::LD if k == PROCESSOR => a = cpu,
            code::LD => a = load(k, 4),
            code::LDH => a = load(k, 2),
            code::LDB => a = load(k, 1),
            code::LD_LENGTH => a = (packet.len() - payload) as u32,
            code::LD_INDEXED => a = load(k.wrapping_add(x), 4),
            code::LDH_INDEXED => a = load(k.wrapping_add(x), 2),
            code::LD_MEMORY => a = memory[k as usize].expect("written before"),
            code::LDX_CONSTANT => x = k,
            code::LDX_HEADER_LENGTH => x = (load(k, 1) & 15) * 4,
            code::ST => memory[k as usize] = Some(a),
            code::ADD_X => a = a.wrapping_add(x),
            code::MUL => a = a.wrapping_mul(k),
            code::RSH => a >>= k,
            code::AND => a &= k,
            code::MOD => a %= k,
            code::XOR => a ^= k,
            code::TAX => x = a,
            code::TXA => a = x,
            code::JA => at += k as usize,
            code::JEQ => branch(a == k),
            code::JGE => branch(a >= k),
            code::JSET => branch(a & k != 0),
            code::RET => return k,
            other => panic!("no instruction {other:#x}"),
        }
    }
}

/// The network header and what follows of a packet of this flow, with `options` words of options in IPv4.
fn packet(flow: &Flow, options: usize) -> Vec<u8> {
    let mut packet = match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = vec![0; 20 + 4 * options];
            header[0] = 0x45 + options as u8;
            header[12..16].copy_from_slice(&src.octets());
            header[16..20].copy_from_slice(&dst.octets());
            header
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = vec![0; 40];
            header[0] = 0x60;
            header[8..24].copy_from_slice(&src.octets());
            header[24..40].copy_from_slice(&dst.octets());
            header
        }
        _ => unreachable!(),
    };
    packet.extend(flow.src_port.to_be_bytes());
    packet.extend(flow.dst_port.to_be_bytes());
    packet
}

fn flows(protocol: Protocol) -> impl Iterator<Item = Flow> {
    let mut random = 0x1234_5678_9abc_def1u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 32) as u32
    };
    (0..400).map(move |n| {
        let words: Vec<u32> = (0..if n % 2 == 0 { V4 } else { V6 }).map(|_| next()).collect();
        flow(&words, protocol)
    })
}

fn steering(by: Steer, config: HashConfig, slots: usize, cpus: &[usize], workers: usize) -> Steering {
    let (table, map) = (Indirection::new(slots, 8).unwrap(), BucketMap::new(8, workers).unwrap());
    let rss = Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), config, table, map);
    Steering::new(by, Arc::new(rss), 100, cpus, workers)
}

/// Sockets of all lanes, in an order of chance.
fn sockets(workers: usize) -> Vec<Bound> {
    let lanes = [3u16, 0, 7, 1, 2, 6, 5, 4];
    lanes.iter().map(|n| Bound { lane: 100 + n, slot: 1, worker: n % workers as u16, ids: 0 }).collect()
}

const BOTH: Families = Families { v4: true, v6: true };

#[test]
fn the_program_finds_the_lane_of_the_bucket() {
    for (config, slots) in [
        (HashConfig::default(), 128),
        (HashConfig::with_udp(UdpFields::Two), 128),
        (HashConfig::with_udp(UdpFields::Four), 128),
        (HashConfig::default(), 8),
        (HashConfig::default(), 100),
    ] {
        let steering = steering(Steer::Hash, config, slots, &[], 2);
        for (tcp, protocol) in [(false, Protocol::UDP), (true, Protocol::TCP)] {
            let sockets = sockets(2);
            let program = steering.program(tcp, BOTH, &sockets).unwrap();
            // What `net.core.optmem_max` of Linux 6.1 has room for, with some to spare.
            assert!(program.len() < 2300, "{} instructions", program.len());
            for flow in flows(protocol) {
                let families = Families { v4: flow.src.is_ipv4(), v6: flow.src.is_ipv6() };
                let alone = steering.program(tcp, families, &sockets).unwrap();
                for options in [0, 3] {
                    let number = run(&program, &packet(&flow, options), 0);
                    let lane = sockets[number as usize].lane - 100;
                    assert_eq!(lane, steering.rss.steer(&flow).bucket.0, "{flow:?}");
                    assert_eq!(run(&alone, &packet(&flow, options), 0), number);
                }
            }
        }
    }
}

/// When one socket is closed, the last takes its number; only flows of the closed one go elsewhere.
#[test]
fn flows_of_other_lanes_stay() {
    let steering = steering(Steer::Hash, HashConfig::default(), 128, &[], 2);
    let (before, mut after) = (sockets(2), sockets(2));
    let closed = after.swap_remove(2);
    let old = steering.program(false, BOTH, &before).unwrap();
    let new = steering.program(false, BOTH, &after).unwrap();
    for flow in flows(Protocol::UDP) {
        let packet = packet(&flow, 0);
        let was = before[run(&old, &packet, 0) as usize];
        match after.get(run(&new, &packet, 0) as usize) {
            Some(is) => assert_eq!(*is, was),
            None => assert_eq!(was, closed, "left to the kernel"),
        }
    }
}

#[test]
fn the_program_finds_a_lane_of_the_processors_worker() {
    let steering = steering(Steer::Cpu, HashConfig::default(), 128, &[2, 0, 1], 3);
    let sockets = sockets(3);
    let program = steering.program(true, BOTH, &sockets).unwrap();
    let mut hit = vec![0; sockets.len()];
    for flow in flows(Protocol::TCP) {
        for (cpu, worker) in [(2, 0), (0, 1), (1, 2)] {
            let number = run(&program, &packet(&flow, 1), cpu) as usize;
            assert_eq!(sockets[number].worker, worker);
            assert_eq!(run(&program, &packet(&flow, 1), cpu) as usize, number, "a flow keeps to one lane");
            hit[number] += 1;
        }
    }
    assert!(hit.iter().all(|n| *n > 80), "all lanes get some: {hit:?}");
    // A processor that nobody knew of is the kernel's affair.
    assert_eq!(run(&program, &packet(&flows(Protocol::TCP).next().unwrap(), 0), 60_000), u32::MAX);
    // With one lane a worker nothing of the packet is looked at.
    let one: Vec<Bound> = (0..3).map(|n| Bound { worker: n, ..sockets[usize::from(n)] }).collect();
    assert!(steering.program(true, BOTH, &one).unwrap().iter().all(|i| i.code != code::LDB));
}

/// A datagram of this flow.
fn datagram(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    [&packet(flow, 0), &[0; 4][..], payload].concat()
}

/// What a client of QUIC sends goes to the lane that its ID names, whatever its addresses, ports and processor; and what names none goes as
/// it would without.
#[test]
fn a_datagram_reaches_the_lane_that_it_names() {
    let short = |lane: u16| [&[0x5a][..], &lane.to_be_bytes(), b"random and more"].concat();
    let open = |lane: u16| [&[0x1a][..], &lane.to_be_bytes(), b"random"].concat();
    let handshake = |lane: u16| [&[0xe3, 0, 0, 0, 1, 8][..], &lane.to_be_bytes(), b"random"].concat();
    for by in [Steer::Hash, Steer::Cpu] {
        // A table that names lanes in their order, of which the programs have one choice for both; and one of another order.
        for turned in [false, true] {
            let mut steering = steering(by, HashConfig::default(), 128, &[2, 0], 2);
            if turned {
                let slots = (0..128).map(|slot| Bucket(7 - slot % 8)).collect();
                let table = Indirection::from_slots(slots).unwrap();
                let buckets = BucketMap::new(8, 2).unwrap();
                let hasher = Toeplitz::new(&Key::MICROSOFT);
                let rss = Rss::from_parts(hasher, HashConfig::default(), table, buckets);
                steering = Steering::new(by, Arc::new(rss), 100, &[2, 0], 2);
            }
            let without = sockets(2);
            let named: Vec<Bound> = without.iter().map(|s| Bound { ids: 8, ..*s }).collect();
            let old = steering.program(false, BOTH, &without).unwrap();
            let new = steering.program(false, BOTH, &named).unwrap();
            for flow in flows(Protocol::UDP).take(40) {
                for lane in 0..8 {
                    for payload in [short(lane), open(lane), handshake(lane)] {
                        let number = run(&new, &datagram(&flow, &payload), 2) as usize;
                        assert_eq!(named[number].lane, 100 + lane, "{by:?}, {payload:x?}");
                    }
                }
                let (mut initial, mut longer) = (handshake(3), handshake(3));
                initial[0] = 0xc3;
                longer[5] = 9;
                let nothing = [
                    short(8),
                    short(u16::MAX),
                    handshake(8),
                    handshake(u16::MAX),
                    initial,
                    longer,
                    short(3)[..8].to_vec(),
                    handshake(3)[..13].to_vec(),
                    Vec::new(),
                ];
                for payload in nothing {
                    let packet = datagram(&flow, &payload);
                    for cpu in [0, 2] {
                        assert_eq!(run(&new, &packet, cpu), run(&old, &packet, cpu), "{by:?}, {payload:x?}");
                    }
                }
            }
        }
    }
}

/// Datagrams are what names lanes: a kernel's choice stays its own.
#[test]
fn without_steering_nothing_is_looked_at() {
    let named: Vec<Bound> = sockets(2).iter().map(|s| Bound { ids: 8, ..*s }).collect();
    let steering = steering(Steer::None, HashConfig::default(), 128, &[2, 0], 2);
    assert!(steering.program(false, BOTH, &named).is_none());
}

#[test]
fn workers_that_are_not_bound_are_found_by_hash() {
    assert_eq!(steering(Steer::Cpu, HashConfig::default(), 128, &[0], 2).by, Steer::Hash);
    assert!(
        steering(Steer::None, HashConfig::default(), 128, &[0, 1], 2)
            .program(true, BOTH, &sockets(2))
            .is_none()
    );
}
