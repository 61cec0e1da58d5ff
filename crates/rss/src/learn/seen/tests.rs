//! Emulated cards under traffic as it comes: clients of a few networks that talk to a few servers. What is said to be known is right,
//! and what is not known is said.

use super::*;
use crate::emulated::{CARDS, Card, CardOptions};
use crate::{HashType, Protocol, UdpFields};
use core::net::SocketAddr;

/// One packet of clients in some /16 networks to servers of one /24, both families, both protocols.
fn traffic(random: &mut Random, networks: usize) -> Flow {
    let (net, host) = (random.below(networks) as u8, random.next() as u16);
    let (port, service) = (32_768 + random.below(28_000) as u16, [53, 80, 443, 8080][random.below(4)]);
    let server = random.below(200) as u8;
    let [high, low] = host.to_be_bytes();
    let protocol = if service == 53 { Protocol::UDP } else { Protocol::TCP };
    if random.below(2) == 0 {
        let from = SocketAddr::from(([81, net.wrapping_mul(17), high, low], port));
        return Flow::new(from, SocketAddr::from(([192, 0, 2, server], service)), protocol);
    }
    let from = SocketAddr::from(([0x2001, 0xdb8, u16::from(net) * 257, 7, 0, 0, host, port ^ host], port));
    Flow::new(from, SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(server)], service)), protocol)
}

fn seen(card: &mut Card, flow: Flow, hashes: bool) -> Seen {
    let got = card.receive(&flow);
    let hash = (hashes && got.hash_type != HashType::None).then_some(got.hash);
    Seen { flow, hash, queue: Some(got.queue) }
}

/// Predictions within what is known that are wrong, and how many flows are predicted, of this many.
fn wrong(card: &Card, learned: &Learned, gaps: &Gaps, random: &mut Random, n: usize) -> (usize, usize) {
    let (mut wrong, mut predicted) = (0, 0);
    for _ in 0..n {
        let flow = traffic(random, 12);
        let known = gaps.extents.iter().any(|extent| extent.span.contains(&flow));
        let (hash, queue) = learned.predict(&flow);
        let unseen = gaps.unseen.as_ref().unwrap().contains(learned.table.slot_of(hash.unwrap_or(0)));
        if !known || unseen {
            continue;
        }
        predicted += 1;
        let (right, _) = card.hash(&flow);
        let at = if card.name() == "table-ignored" { 0 } else { card.table().bucket_of(right).0 };
        wrong += usize::from(queue != at || (learned.hashes && hash != Some(right)));
    }
    (wrong, predicted)
}

// Long: every emulated card is learned from thousands of packets and asked about ten times as many.
#[test]
fn every_card_with_hashes() {
    for (name, _) in CARDS {
        for (slots, queues, udp) in [(128, 4, UdpFields::Two), (64, 3, UdpFields::Four)] {
            let mut card = Card::new(name, &CardOptions { seed: 9, slots, queues, udp }).unwrap();
            let mut random = Random::new(7);
            let packets: Vec<Seen> =
                (0..2000).map(|_| traffic(&mut random, 3)).map(|flow| seen(&mut card, flow, true)).collect();
            let told = learn_seen(&packets, &SeenOptions::new());
            if name == "jhash" {
                assert!(matches!(told, Err(LearnError::NotAffine { .. })), "{told:?}");
                continue;
            }
            let (learned, gaps) = told.unwrap_or_else(|e| panic!("{name}: {e}"));
            let (wrong, predicted) = wrong(&card, &learned, &gaps, &mut random, 20_000);
            assert_eq!(wrong, 0, "{name}: {:?}", learned.findings);
            // Of the networks that were seen everything, of the others what follows.
            assert!(predicted > 4000, "{name}: {predicted} {:?}", learned.findings);
            let open = learned.findings.iter().filter(|f| matches!(f, Finding::Undetermined { .. })).count();
            assert_eq!(open, gaps.extents.iter().filter(|e| !e.span.is_whole()).count(), "{name}");
            let misdirects = learned.findings.iter().any(|f| matches!(f, Finding::Misdirects { .. }));
            assert_eq!(misdirects, name == "misdirects", "{name}: {:?}", learned.findings);
        }
    }
}

/// A key needs tens of flows where a general map needs hundreds.
#[test]
fn a_hundred_flows_tell_a_key() {
    let mut card = Card::new("random", &CardOptions { slots: 16, ..CardOptions::default() }).unwrap();
    let mut random = Random::new(2);
    let packets: Vec<Seen> =
        (0..100).map(|_| traffic(&mut random, 256)).map(|flow| seen(&mut card, flow, true)).collect();
    let (learned, gaps) = learn_seen(&packets, &SeenOptions::new()).unwrap();
    assert_eq!(wrong(&card, &learned, &gaps, &mut random, 5000).0, 0);
    assert_eq!((learned.probes, gaps.extents.len()), (100, 4));
}

#[test]
fn queues_alone() {
    let mut random = Random::new(3);
    // A published key, and queues that are the low bits of a hash under any key.
    for (name, slots, queues) in
        [("microsoft", 128, 3), ("symmetric", 128, 6), ("random", 128, 4), ("reversed", 64, 8)]
    {
        let mut card = Card::new(name, &CardOptions { slots, queues, ..CardOptions::default() }).unwrap();
        let packets: Vec<Seen> =
            (0..4000).map(|_| traffic(&mut random, 12)).map(|flow| seen(&mut card, flow, false)).collect();
        let (learned, gaps) =
            learn_seen(&packets, &SeenOptions::new()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (wrong, predicted) = wrong(&card, &learned, &gaps, &mut random, 5000);
        assert!(wrong == 0 && predicted > 4000 && !learned.hashes, "{name}: {wrong} of {predicted}");
    }
    // A secret key with three queues: not by looking.
    let mut card = Card::new("random", &CardOptions { queues: 3, ..CardOptions::default() }).unwrap();
    let packets: Vec<Seen> =
        (0..4000).map(|_| traffic(&mut random, 12)).map(|flow| seen(&mut card, flow, false)).collect();
    let error = learn_seen(&packets, &SeenOptions::new()).unwrap_err();
    assert!(error.to_string().contains("send probes"), "{error}");
    // Unless it is told.
    let crate::Hasher::Toeplitz(toeplitz) = crate::Hasher::from(key_of(&packets, &card)) else { panic!() };
    let keys = vec![*toeplitz.key()];
    let (learned, gaps) = learn_seen(&packets, &SeenOptions { keys, ..SeenOptions::new() }).unwrap();
    assert_eq!(wrong(&card, &learned, &gaps, &mut random, 5000).0, 0);
    // Four queues under a keyed hash that is not affine: no rule, and none made up.
    let mut card = Card::new("jhash", &CardOptions::default()).unwrap();
    let packets: Vec<Seen> =
        (0..4000).map(|_| traffic(&mut random, 12)).map(|flow| seen(&mut card, flow, false)).collect();
    assert!(learn_seen(&packets, &SeenOptions::new()).is_err());
}

/// The card's key, out of its hashes of all kinds.
fn key_of(packets: &[Seen], card: &Card) -> General {
    let mut random = Random::new(1);
    let mut any = |kind: PacketKind| {
        let mut bytes = random.bytes::<36>();
        bytes[kind.bits() / 8..].fill(0);
        let flow = Tuple { kind, bytes }.flow();
        Seen { flow, hash: Some(card.hash(&flow).0), queue: None }
    };
    let all: Vec<Seen> = (0..600).map(|i| any(PacketKind::ALL[i % 6])).collect();
    let (learned, gaps) = learn_seen(&all, &SeenOptions::new()).unwrap();
    assert!(gaps.extents.iter().all(|extent| extent.span.is_whole()) && gaps.unseen.is_none());
    assert!(packets.iter().all(|packet| learned.rule.hash(&packet.flow) == Some(card.hash(&packet.flow).0)));
    learned.rule
}

/// One hash in four hundred is wrong.
#[test]
fn captures_are_not_clean() {
    for name in ["random", "crc32c"] {
        let mut card = Card::new(name, &CardOptions::default()).unwrap();
        let mut random = Random::new(5);
        let packets: Vec<Seen> = (0..4000)
            .map(|i| {
                let flow = traffic(&mut random, 3);
                let mut packet = seen(&mut card, flow, true);
                if i % 400 == 0 {
                    packet.hash = packet.hash.map(|hash| hash ^ 0x55);
                }
                packet
            })
            .collect();
        let (learned, gaps) =
            learn_seen(&packets, &SeenOptions::new()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(wrong(&card, &learned, &gaps, &mut random, 5000).0, 0, "{name}");
        assert!(
            learned.findings.iter().any(|f| matches!(f, Finding::WrongHashes { .. })),
            "{:?}",
            learned.findings
        );
    }
}

/// However few flows there are: a rule that comes out of them has predicted two hashes of others at least.
#[test]
fn a_rule_of_few_flows_is_verified() {
    for name in ["random", "crc32c", "jhash"] {
        let mut learned = 0;
        for seed in 0..24 {
            let mut card = Card::new(name, &CardOptions::default()).unwrap();
            let mut random = Random::new(seed);
            let flows: Vec<Seen> = (0..16 + 6 * seed)
                .map(|_| traffic(&mut random, 3))
                .map(|flow| seen(&mut card, flow, true))
                .collect();
            if let Ok((rule, _)) = learn_seen(&flows, &SeenOptions::new()) {
                assert!(rule.verified >= 2, "{name}, {} flows: {} verified", flows.len(), rule.verified);
                learned += 1;
            }
        }
        assert!((learned > 0) == (name != "jhash"), "{name}: {learned}");
    }
}

#[test]
fn what_tells_nothing_is_said() {
    let mut card = Card::new("random", &CardOptions::default()).unwrap();
    let mut random = Random::new(6);
    let mut some = |n: usize, hashes: bool| -> Vec<Seen> {
        (0..n).map(|_| traffic(&mut random, 3)).map(|flow| seen(&mut card, flow, hashes)).collect()
    };
    let options = SeenOptions::new();
    assert!(matches!(learn_seen(&[], &options), Err(LearnError::TooFew { flows: 0, .. })));
    for hashes in [true, false] {
        let error = learn_seen(&some(12, hashes), &options).unwrap_err();
        assert!(matches!(error, LearnError::TooFew { flows: 12, .. }), "{error}");
    }
    // The key is known, but no two flows share a slot of 2048: any number of slots would fit.
    let mut large =
        Card::new("random-table", &CardOptions { slots: 2048, ..CardOptions::default() }).unwrap();
    let mut other = Random::new(8);
    let spread: Vec<Seen> =
        (0..90).map(|_| traffic(&mut other, 256)).map(|flow| seen(&mut large, flow, true)).collect();
    let error = learn_seen(&spread, &options).unwrap_err();
    assert!(error.to_string().contains("share a slot"), "{error}");
    let none = SeenOptions { kinds: Vec::new(), ..SeenOptions::new() };
    assert_eq!(learn_seen(&some(12, true), &none).unwrap_err(), LearnError::NoKinds);
    // One flow, seen often, is one flow; one that is everywhere is no rule.
    let one = some(1, true)[0];
    assert!(matches!(learn_seen(&vec![one; 5000], &options), Err(LearnError::TooFew { flows: 1, .. })));
    let mut both = some(300, true);
    let other: Vec<Seen> = both.iter().map(|p| Seen { queue: p.queue.map(|q| q + 1), ..*p }).collect();
    both.extend(other);
    assert!(matches!(learn_seen(&both, &options), Err(LearnError::Unsteady { .. })));
    let off: Vec<Seen> = some(300, false).iter().map(|p| Seen { queue: Some(0), ..*p }).collect();
    assert_eq!(learn_seen(&off, &options).unwrap_err(), LearnError::Off { queue: 0 });
}
