//! The programs against plain Rust: every random packet, run in the kernel by `BPF_PROG_TEST_RUN`, must give what a
//! parser and a bitwise Toeplitz written separately here give.

use super::claim::{Claims, Tags};
use super::parse::Source;
use super::steer::{Outcome, Steering, SteeringRules};
use super::*;
use crate::privilege;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A small generator of numbers (xorshift64*), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], n: usize| bytes.get(n / 8).is_some_and(|b| b << (n % 8) & 0x80 != 0);
    let mut hash = 0;
    for i in (0..input.len() * 8).filter(|&i| bit(input, i)) {
        for j in (0..32).filter(|&j| bit(key, i + j)) {
            hash ^= 1 << (31 - j);
        }
    }
    hash
}

/// The input of the hash as the rules want it; `None` for what is not IP.
fn hash_input(frame: &[u8], udp_ports: bool) -> Option<Vec<u8>> {
    let mut at = 12;
    for _ in 0..2 {
        if matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
            frame.get(at + 5)?;
            at += 4;
        }
    }
    let kind = u16::from_be_bytes(frame.get(at..at + 2)?.try_into().unwrap());
    let ip = &frame[at + 2..];
    let (addresses, protocol, ports) = match kind {
        0x0800 if ip.len() >= 20 && ip[0] >> 4 == 4 && ip[0] & 15 >= 5 => {
            let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
            let header = usize::from(ip[0] & 15) * 4;
            (&ip[12..20], (!fragment).then_some(ip[9]), header)
        }
        0x86dd if ip.len() >= 40 && ip[0] >> 4 == 6 => {
            let (mut next, mut at, mut fragment) = (ip[6], 40, false);
            for _ in 0..8 {
                let Some(header) = ip.get(at..) else { break };
                match next {
                    0 | 43 | 60 if header.len() >= 2 => {
                        next = header[0];
                        at += (usize::from(header[1]) + 1) * 8;
                    }
                    51 if header.len() >= 2 => {
                        next = header[0];
                        at += (usize::from(header[1]) + 2) * 4;
                    }
                    44 if header.len() >= 8 && u16::from_be_bytes([header[2], header[3]]) & 0xfff9 == 0 => {
                        next = header[0];
                        at += 8;
                    }
                    44 => fragment = true,
                    _ => break,
                }
            }
            (&ip[8..40], (!fragment).then_some(next), at)
        }
        _ => return None,
    };
    let with_ports = matches!(protocol, Some(6)) || udp_ports && matches!(protocol, Some(17));
    let mut input = addresses.to_vec();
    if with_ports {
        let need = if protocol == Some(6) { 20 } else { 8 };
        input.extend(ip.get(ports..ports + need).unwrap_or_default().iter().take(4));
    }
    Some(input)
}

fn random_frame(random: &mut Random) -> Vec<u8> {
    let mut frame = random.bytes(12);
    for _ in 0..random.one_of(&[0, 0, 0, 1, 2]) {
        frame.extend(random.one_of(&[[0x81, 0x00], [0x88, 0xa8]]));
        frame.extend(random.bytes(2));
    }
    let transport = random.one_of(&[6u8, 17, 17, 1, 58]);
    match random.below(10) {
        0..=4 => {
            frame.extend([0x08, 0x00]);
            let words = random.one_of(&[5u8, 5, 5, 6, 15]);
            let mut ip = random.bytes(usize::from(words) * 4);
            ip[0] = 0x40 | words;
            let fragment = random.one_of(&[[0, 0], [0, 0], [0x40, 0], [0x20, 0], [0x00, 0x17]]);
            ip[6..8].copy_from_slice(&fragment);
            ip[9] = transport;
            frame.extend(ip);
        }
        5..=8 => {
            frame.extend([0x86, 0xdd]);
            let mut ip = random.bytes(40);
            ip[0] = 0x60;
            let kinds: Vec<u8> = (0..random.one_of(&[0, 0, 0, 1, 2, 8, 9]))
                .map(|_| random.one_of(&[0, 43, 60, 44, 51]))
                .collect();
            ip[6] = *kinds.first().unwrap_or(&transport);
            for (i, kind) in kinds.iter().enumerate() {
                let mut header = random.bytes(8);
                header[0] = *kinds.get(i + 1).unwrap_or(&transport);
                header[1] = random.one_of(&[0, 1]);
                let fragment = random.one_of(&[[0, 0], [0, 6], [0, 1], [0x10, 0]]);
                if *kind == 44 {
                    header[2..4].copy_from_slice(&fragment);
                } else {
                    let unit = if *kind == 51 { 4 } else { 8 };
                    header.resize(8 + usize::from(header[1]) * unit, 0);
                }
                ip.extend(header);
            }
            frame.extend(ip);
        }
        _ => frame.extend(random.one_of(&[[0x08, 0x06], [0x12, 0x34]])),
    }
    frame.extend(random.bytes(24));
    if random.below(5) == 0 {
        frame.truncate(15 + random.below(frame.len() as u64 - 14) as usize);
    }
    frame
}

/// Says why and returns `true` when programs cannot be loaded here.
fn cannot_load() -> bool {
    let missing = !privilege::has(privilege::CAP_BPF);
    if missing {
        crate::skipped("skipped, because loading BPF programs needs CAP_BPF");
    }
    missing
}

#[test]
fn reference_gives_the_published_value() {
    let key = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    let input = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
    assert_eq!(toeplitz(&key, &input), 0x51cc_c178);
}

#[test]
fn steering_equals_the_reference_on_random_packets() {
    if cannot_load() {
        return;
    }
    let mut random = Random(0x5eed);
    let mut compared = 0;
    for round in 0..12 {
        let rules = SteeringRules {
            key: {
                let n = 16 + random.below(37) as usize;
                random.bytes(n)
            },
            table: (0..random.one_of(&[2u16, 3, 128, 100, 512, 2048])).map(|i| i * 7 % 5).collect(),
            udp_ports: round % 2 == 0,
        };
        let steering = Steering::new(&rules).unwrap();
        // The test runner starts the data of a socket filter where fanout does, and those of tcx where TAP does.
        steering.egress().unwrap();
        steering.tap().unwrap();
        let filter = steering.fanout().unwrap();
        let code = steering.program(Source::SocketBuffer, Outcome::ReturnHash);
        let hash = Program::load(ProgramKind::SchedCls, "hash", code).unwrap();
        for _ in 0..400 {
            let frame = random_frame(&mut random);
            let expected = hash_input(&frame, rules.udp_ports).map(|i| toeplitz(&rules.key, &i));
            // The kernel's test runner wants a whole IP header behind its Ethernet header, where it sees one.
            let (Ok(got), Ok(queue)) = (hash.test_run(&frame, 1), filter.test_run(&frame, 1)) else {
                continue;
            };
            assert_eq!(got.value, expected.unwrap_or(0), "{frame:02x?}");
            let slot = expected.map(|h| rules.table[h as usize % rules.table.len()]);
            assert_eq!(queue.value, u32::from(slot.unwrap_or(0)));
            compared += 1;
        }
    }
    assert!(compared > 4000, "{compared} packets compared");
}

#[test]
fn a_table_can_be_rewritten_in_place() {
    if cannot_load() {
        return;
    }
    let rules = SteeringRules { key: vec![1; 40], table: vec![3; 128], udp_ports: true };
    let steering = Steering::new(&rules).unwrap();
    let filter = steering.fanout().unwrap();
    let mut frame = vec![0u8; 60];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    assert_eq!(filter.test_run(&frame, 1).unwrap().value, 3);
    steering.set_table(&[5; 128]).unwrap();
    assert_eq!(filter.test_run(&frame, 1).unwrap().value, 5);
    assert!(steering.set_table(&[0; 64]).is_err());
}

#[test]
fn lengths_out_of_range_are_refused() {
    for (key, slots) in [(15, 128), (53, 128), (40, 1), (40, 2049)] {
        let rules = SteeringRules { key: vec![1; key], table: vec![0; slots], udp_ports: false };
        assert!(matches!(Steering::new(&rules), Err(Error::Invalid(_))), "{key} {slots}");
    }
}

use crate::error::Error;

/// Whether `frame` is for one of `prefixes`, the plain way.
fn is_claimed(frame: &[u8], prefixes: &[(IpAddr, u8)], tags: Tags) -> bool {
    let mut at = 12;
    let mut vid = None;
    if let Some([0x81, 0x00, a, b]) = frame.get(at..at + 4) {
        vid = Some(u16::from_be_bytes([*a, *b]) & 0xfff);
        at += 4;
    }
    let right = match tags {
        Tags::Any => true,
        Tags::Untagged => vid.unwrap_or(0) == 0,
        Tags::Vlan(wanted) => vid == Some(wanted),
    };
    if !right {
        return false;
    }
    let Some(kind) = frame.get(at..at + 2) else { return false };
    let ip = &frame[at + 2..];
    let inside = |octets: &[u8]| {
        prefixes.iter().any(|(address, len)| {
            let address = match address {
                IpAddr::V4(a) => a.octets().to_vec(),
                IpAddr::V6(a) => a.octets().to_vec(),
            };
            address.len() == octets.len()
                && (0..usize::from(*len)).all(|i| (address[i / 8] ^ octets[i / 8]) << (i % 8) & 0x80 == 0)
        })
    };
    match kind {
        [0x08, 0x00] => ip.len() >= 20 && inside(&ip[16..20]),
        [0x08, 0x06] => ip.len() >= 28 && ip[2..4] == [8, 0] && inside(&ip[24..28]),
        [0x86, 0xdd] if ip.len() >= 40 => {
            let solicitation = ip[24] == 0xff && ip[6] == 58 && ip.len() >= 64 && matches!(ip[40], 135 | 136);
            inside(&ip[24..40]) || solicitation && inside(&ip[48..64])
        }
        _ => false,
    }
}

#[test]
fn claims_equal_the_reference_on_random_packets() {
    if cannot_load() {
        return;
    }
    for tags in [Tags::Any, Tags::Untagged, Tags::Vlan(5)] {
        compare_claims(tags);
    }
}

fn compare_claims(tags: Tags) {
    let mut random = Random(0xc1a1);
    let group: Ipv6Addr = "ff02::1:ff00:7".parse().unwrap();
    let prefixes: Vec<(IpAddr, u8)> = vec![
        (IpAddr::V4(Ipv4Addr::new(10, 11, 2, 0)), 24),
        (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)), 32),
        ("fd00:11::".parse().unwrap(), 64),
        ("ff02::1".parse().unwrap(), 128),
    ];
    let claims = Claims::new(&prefixes, tags).unwrap();
    let sockets = Map::new(MapKind::XskMap, "sockets", 4, 4, 4).unwrap();
    let (xdp, drop) = (claims.xdp(&sockets, None).unwrap(), claims.ingress_drop().unwrap());
    // The same code as of another kind: the test runner starts the data of a socket filter elsewhere.
    claims.filter().unwrap();
    let filter = Program::load(ProgramKind::SchedCls, "filter", claims.skb_code(-1, 0, false)).unwrap();
    let (mut ours, mut passed) = (0, 0);
    for _ in 0..6000 {
        let v4 = random.one_of(&[[10, 11, 2, 9], [10, 11, 3, 9], [224, 0, 0, 1], [224, 0, 0, 2]]);
        let v6: Ipv6Addr =
            random.one_of(&["fd00:11::5", "fd00:12::5", "ff02::1", "ff02::2"]).parse().unwrap();
        let mut frame = random.bytes(12);
        for _ in 0..random.one_of(&[0, 0, 1, 2]) {
            // The number of VLAN 5 with a priority, of another, none; and the tag of a service provider.
            let tag = [
                [0x81, 0, 0, 5],
                [0x81, 0, 0xe0, 5],
                [0x81, 0, 0, 6],
                [0x81, 0, 0x20, 0],
                [0x88, 0xa8, 0, 5],
            ];
            frame.extend(random.one_of(&tag));
        }
        let mut rest = random.bytes(66);
        rest[..4].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        match random.below(4) {
            0 => rest[18..22].copy_from_slice(&v4),
            1 => {
                rest[..6].copy_from_slice(&[0x08, 0x06, 0, 1, random.one_of(&[8, 8, 9]), 0]);
                rest[26..30].copy_from_slice(&v4);
            }
            2 => {
                rest[..3].copy_from_slice(&[0x86, 0xdd, 0x60]);
                rest[26..42].copy_from_slice(&v6.octets());
            }
            _ => {
                rest[..3].copy_from_slice(&[0x86, 0xdd, 0x60]);
                rest[8] = random.one_of(&[58, 58, 58, 17]);
                rest[26..42].copy_from_slice(&group.octets());
                rest[42] = random.one_of(&[135, 135, 136]);
                rest[50..66].copy_from_slice(&v6.octets());
            }
        }
        frame.extend(rest);
        if random.below(4) == 0 {
            frame.truncate(15 + random.below(frame.len() as u64 - 14) as usize);
        }
        let expected = is_claimed(&frame, &prefixes, tags);
        if let Ok(run) = filter.test_run(&frame, 1) {
            assert_eq!(run.value, if expected { u32::MAX } else { 0 }, "{frame:02x?}");
        }
        if let Ok(run) = drop.test_run(&frame, 1) {
            assert_eq!(run.value, if expected { 2 } else { u32::MAX }, "{frame:02x?}");
        }
        if let Ok(run) = xdp.test_run(&frame, 1) {
            assert_eq!(run.value, 2, "a queue without socket leaves everything to the kernel");
            ours += u64::from(expected);
            passed += u64::from(!expected);
        }
    }
    let counted = claims.counters(0);
    assert_eq!((counted.taken, counted.passed), (ours, passed), "the decision shows in the counters");
    assert!(ours > 150 && passed > 1000, "{tags:?}: {ours} and {passed}");

    let group = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));
    let mut frame = random.bytes(12);
    if let Tags::Vlan(vid) = tags {
        frame.extend([[0x81, 0], vid.to_be_bytes()].concat());
    }
    frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 11, 2, 1, 239, 1, 2, 3]);
    frame.resize(80, 0);
    for (joined, value) in [(false, 0), (true, u32::MAX)] {
        if joined {
            claims.join(group).unwrap();
        }
        assert_eq!(filter.test_run(&frame, 1).unwrap().value, value);
        assert_eq!(drop.test_run(&frame, 1).unwrap().value, u32::MAX, "the kernel keeps its copy");
    }

    claims.remove(IpAddr::V4(Ipv4Addr::new(10, 11, 2, 0)), 24).unwrap();
    assert!(claims.remove(IpAddr::V4(Ipv4Addr::new(10, 11, 2, 0)), 24).is_err(), "it is gone");
    assert!(claims.add(IpAddr::V4(Ipv4Addr::LOCALHOST), 33).is_err());
}

#[test]
fn the_metadata_function_is_in_this_kernel() {
    match kfunc("bpf_xdp_metadata_rx_hash") {
        Ok(id) => assert!(id > 0),
        Err(e) => crate::skipped(format_args!("skipped, because {e}")),
    }
}

#[test]
fn a_wrong_program_comes_back_with_the_verifiers_words() {
    if cannot_load() {
        return;
    }
    let mut a = asm::Assembler::new();
    a.load(asm::Size::W, asm::Reg::R0, asm::Reg::R9, 0).exit();
    let error = Program::load(ProgramKind::SocketFilter, "wrong", a).unwrap_err();
    assert!(matches!(&error, Error::Verifier { log, .. } if log.contains("R9")), "{error}");
}

/// Every program that we load, with the capabilities in effect.
fn every_program() -> Vec<(String, Program)> {
    let mut programs = Vec::new();
    for udp_ports in [false, true] {
        for slots in [128, 100, 2048] {
            let rules = SteeringRules { key: vec![1; 40], table: vec![0; slots], udp_ports };
            let steering = Steering::new(&rules).unwrap();
            let name = |what| format!("{what}, {slots} slots, UDP by ports: {udp_ports}");
            programs.push((name("fanout"), steering.fanout().unwrap()));
            programs.push((name("tap"), steering.tap().unwrap()));
            programs.push((name("egress"), steering.egress().unwrap()));
        }
    }
    let sockets = Map::new(MapKind::XskMap, "sockets", 4, 4, 4).unwrap();
    for tags in [Tags::Any, Tags::Untagged, Tags::Vlan(5)] {
        let claims = Claims::new(&[("10.11.2.0".parse().unwrap(), 24)], tags).unwrap();
        programs.push((format!("xdp {tags:?}"), claims.xdp(&sockets, None).unwrap()));
        programs.push((format!("filter {tags:?}"), claims.filter().unwrap()));
        programs.push((format!("drop {tags:?}"), claims.ingress_drop().unwrap()));
    }
    programs
}

/// Without `CAP_PERFMON` the verifier also follows what a processor does by mistake, and takes fewer paths for equal. A program that
/// does not heed this takes it seconds, until it gives up after a million instructions.
#[test]
fn the_verifier_is_soon_content_without_cap_perfmon() {
    if cannot_load() {
        return;
    }
    // On a thread of its own: capabilities are per thread, and other tests need them.
    let programs = std::thread::spawn(|| {
        privilege::drop_all_but_these(1 << privilege::CAP_BPF | 1 << privilege::CAP_NET_ADMIN).unwrap();
        every_program()
    });
    for (name, program) in programs.join().unwrap() {
        match program.verified_instructions() {
            Some(n) => assert!(n < 60_000, "{name}: {n} instructions"),
            None => {
                crate::skipped(
                    "skipped, because the kernel does not tell how long the verifier took (Linux 5.16)",
                );
            }
        }
    }
}
