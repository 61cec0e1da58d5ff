//! Every emulated card is learned from hashes and from queues, within so many probes, and predicted right; what cannot be learned is named.

use super::*;
use crate::emulated::{CARDS, Card, CardOptions};
use crate::random::Random;
use crate::{HashType, UdpFields};

fn answer(card: &mut Card, flow: &Flow) -> Answer {
    let got = card.receive(flow);
    Answer { hash: (got.hash_type != HashType::None).then_some(got.hash), queue: got.queue }
}

fn learn_from(card: &mut Card, options: &Options) -> Result<Learned, LearnError> {
    let mut oracle = |flows: &[Flow]| flows.iter().map(|flow| Some(answer(card, flow))).collect();
    learn(options, &mut oracle)
}

fn flow(random: &mut Random, kind: PacketKind) -> Flow {
    let mut bytes = random.bytes::<36>();
    bytes[kind.bits() / 8..].fill(0);
    crate::packet::Tuple { kind, bytes }.flow()
}

/// Packets that the learner has not seen, hash and queue; those that a card misdirects are not counted.
fn wrong_of(card: &Card, learned: &Learned, n: usize) -> usize {
    let mut random = Random::new(77);
    let table = card.table().clone();
    (0..n)
        .filter(|i| {
            let flow = flow(&mut random, PacketKind::ALL[i % 6]);
            let (hash, _) = card.hash(&flow);
            let queue = if card.name() == "table-ignored" { Bucket(0) } else { table.bucket_of(hash) };
            let (predicted, at) = learned.predict(&flow);
            queue != Bucket(at) || (learned.hashes && predicted != Some(hash))
        })
        .count()
}

const NOT_LEARNED: [&str; 2] = ["jhash", "forgets"];

#[test]
fn every_card_from_hashes() {
    for (name, _) in CARDS.into_iter().filter(|(name, _)| !NOT_LEARNED.contains(name)) {
        for (slots, queues, udp) in
            [(128, 4, UdpFields::Two), (128, 3, UdpFields::Four), (8, 2, UdpFields::Two)]
        {
            for seed in 1..3 {
                let mut card = Card::new(name, &CardOptions { seed, slots, queues, udp }).unwrap();
                let learned =
                    learn_from(&mut card, &Options::new(seed)).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(learned.hashes);
                assert!(learned.probes <= 1000 || name == "misdirects", "{name}: {} probes", learned.probes);
                let unseen = if (slots, seed) == (128, 1) { 100_000 } else { 10_000 };
                assert_eq!(wrong_of(&card, &learned, unseen), 0, "{name}, {slots} slots, {queues} queues");
                let one = learned.findings.contains(&Finding::OneQueue(0));
                assert_eq!(one, name == "table-ignored", "{name}: {:?}", learned.findings);
                let misdirects = learned.findings.iter().any(|f| matches!(f, Finding::Misdirects { .. }));
                assert_eq!(misdirects, name == "misdirects", "{name}: {:?}", learned.findings);
            }
        }
    }
}

#[test]
fn every_card_from_queues() {
    for (name, _) in CARDS
        .into_iter()
        .filter(|(name, _)| !["jhash", "forgets", "table-ignored", "odd-table"].contains(name))
    {
        for (slots, queues, udp) in
            [(128, 4, UdpFields::Two), (64, 3, UdpFields::Four), (8, 2, UdpFields::Two)]
        {
            let mut card = Card::new(name, &CardOptions { seed: 5, slots, queues, udp }).unwrap();
            let options = Options { hashes: false, ..Options::new(3) };
            let learned = learn_from(&mut card, &options).unwrap_or_else(|e| panic!("{name}, {slots}: {e}"));
            assert!(!learned.hashes && learned.probes <= 10_000);
            let unseen = if slots == 128 { 100_000 } else { 10_000 };
            assert_eq!(wrong_of(&card, &learned, unseen), 0, "{name}, {slots} slots, {queues} queues");
        }
    }
}

/// The largest tables, with any content and with two queues, where each probe says least.
#[test]
fn large_tables_from_queues() {
    let rows =
        [("random-table", 2048, 4), ("random-table", 2048, 2), ("random", 2048, 16), ("random", 512, 7)];
    for (name, slots, queues) in rows {
        let mut card = Card::new(name, &CardOptions { seed: 8, slots, queues, udp: UdpFields::Two }).unwrap();
        let options = Options { hashes: false, ..Options::new(4) };
        let learned = learn_from(&mut card, &options).unwrap_or_else(|e| panic!("{name}, {slots}: {e}"));
        assert_eq!(wrong_of(&card, &learned, 20_000), 0, "{name}, {slots} slots, {queues} queues");
    }
}

#[test]
fn large_tables_from_hashes() {
    for (name, slots, most) in [
        ("random", 2048, 1000),
        ("random-table", 512, 1100),
        ("weighted-table", 2048, 1000),
        ("weighted-table", 1024, 1000),
        // Each slot says something that no other says: a probe for each, and those that solved for the hash.
        ("random-table", 2048, 2300),
        ("odd-table", 48, 1000),
        ("odd-table", 2000, 1000),
    ] {
        let mut card = Card::new(name, &CardOptions { slots, ..CardOptions::default() }).unwrap();
        let learned =
            learn_from(&mut card, &Options::new(4)).unwrap_or_else(|e| panic!("{name}, {slots}: {e}"));
        assert!(learned.probes <= most, "{name}, {slots} slots: {} probes", learned.probes);
        assert_eq!(wrong_of(&card, &learned, 20_000), 0, "{name}, {slots} slots");
    }
}

#[test]
fn what_is_not_affine_is_named() {
    let mut card = Card::new("jhash", &CardOptions::default()).unwrap();
    let error = learn_from(&mut card, &Options::new(1)).unwrap_err();
    let LearnError::NotAffine { kind: PacketKind::TcpIpv6, probes, wrong, of } = error else {
        panic!("{error}")
    };
    assert!(probes <= 1000 && wrong > 10 && wrong < of, "{probes} probes, {wrong} of {of}");
    let error = learn_from(&mut card, &Options { hashes: false, ..Options::new(1) }).unwrap_err();
    assert!(matches!(error, LearnError::NotAffineQueues { probes, .. } if probes <= 1000), "{error}");
    // A table whose size is no power of two needs hashes.
    let mut card = Card::new("odd-table", &CardOptions { queues: 5, ..CardOptions::default() }).unwrap();
    let error = learn_from(&mut card, &Options { hashes: false, ..Options::new(1) }).unwrap_err();
    assert!(matches!(error, LearnError::NotAffineQueues { probes, .. } if probes <= 1400), "{error}");
}

/// With any seed, key, number of slots and queues dealt in turn.
#[test]
fn what_is_not_affine_is_named_early() {
    for seed in 1..25 {
        let (slots, queues) = ([128, 64, 2048, 512][seed as usize % 4], [4, 2, 8, 3, 16][seed as usize % 5]);
        let mut card = Card::new("jhash", &CardOptions { seed, slots, queues, udp: UdpFields::Two }).unwrap();
        for hashes in [true, false] {
            let error = learn_from(&mut card, &Options { hashes, ..Options::new(seed) }).unwrap_err();
            let probes = match error {
                LearnError::NotAffine { probes, .. } | LearnError::NotAffineQueues { probes, .. } => probes,
                other => panic!("{other}"),
            };
            // Pairs of two queues are on different ones half of the time only.
            let most = if hashes || queues > 2 { 1000 } else { 1150 };
            assert!(probes <= most, "seed {seed}, {queues} queues, hashes {hashes}: {probes} probes");
        }
    }
}

#[test]
fn rss_that_is_off_or_goes_off_is_named() {
    for hashes in [false, true] {
        let mut card = Card::new("forgets", &CardOptions::default()).unwrap();
        card.disturb();
        let options = Options { hashes, ..Options::new(1) };
        assert_eq!(learn_from(&mut card, &options).unwrap_err(), LearnError::Off { queue: 0 });
        card.restore();
        assert!(learn_from(&mut card, &options).is_ok());
        for after in [100, 350, 500] {
            card.restore();
            let mut seen = 0;
            let mut oracle = |flows: &[Flow]| {
                let mut one = |flow| {
                    seen += 1;
                    if seen == after {
                        card.disturb();
                    }
                    Some(answer(&mut card, flow))
                };
                flows.iter().map(&mut one).collect()
            };
            let error = learn(&options, &mut oracle).unwrap_err();
            assert!(matches!(error, LearnError::Changed { .. }), "after {after}, hashes {hashes}: {error}");
        }
    }
    // The table is ignored and no hash is reported: nothing tells it from RSS that is off.
    let mut card = Card::new("table-ignored", &CardOptions::default()).unwrap();
    let error = learn_from(&mut card, &Options { hashes: false, ..Options::new(1) }).unwrap_err();
    assert!(matches!(error, LearnError::NoTable { .. }), "{error}");
}

/// One answer in ten is lost, and one in a hundred is about another packet.
#[test]
fn lost_and_wrong_answers() {
    for hashes in [true, false] {
        for name in ["random", "sorted-pair", "crc32c"] {
            let mut card = Card::new(name, &CardOptions::default()).unwrap();
            let mut random = Random::new(5);
            let mut oracle = |flows: &[Flow]| {
                let mut one = |asked: &Flow| {
                    let other = flow(&mut random, PacketKind::TcpIpv6);
                    let told = answer(&mut card, if random.below(100) == 0 { &other } else { asked });
                    (random.below(10) > 0).then_some(told)
                };
                flows.iter().map(&mut one).collect()
            };
            let options = Options { hashes, ..Options::new(6) };
            let learned = learn(&options, &mut oracle).unwrap_or_else(|e| panic!("{name}, {hashes}: {e}"));
            let card = Card::new(name, &CardOptions::default()).unwrap();
            assert_eq!(wrong_of(&card, &learned, 20_000), 0, "{name}, hashes {hashes}");
        }
    }
}

#[test]
fn a_path_that_loses_all_and_a_budget_too_small() {
    let mut none = |flows: &[Flow]| vec![None; flows.len()];
    assert!(matches!(learn(&Options::new(1), &mut none), Err(LearnError::NoAnswer { asked: 288, lost: 72 })));
    let mut card = Card::new("random", &CardOptions::default()).unwrap();
    let options = Options { probes: 200, ..Options::new(1) };
    assert_eq!(
        learn_from(&mut card, &options).unwrap_err(),
        LearnError::Probes { limit: 200, doing: "solving for the hash" }
    );
    let nothing = Options { kinds: Vec::new(), ..Options::new(1) };
    assert_eq!(learn_from(&mut card, &nothing).unwrap_err(), LearnError::NoKinds);
}

/// Any affine rule behind any arrangement, another for each kind or one for all, and any table.
#[test]
fn any_rule_and_any_table() {
    let mut random = Random::new(21);
    for round in 0..40 {
        let arrangement = crate::Arrangement::ALL[round % 4];
        let key = crate::Key::random(|bytes| random.fill(bytes));
        let config = crate::HashConfig::with_udp(UdpFields::Four);
        let start = random.next() as u32;
        let plain = General::toeplitz(&key, &config, arrangement);
        let rule = General::new(
            arrangement,
            PacketKind::ALL.map(|kind| plain.map(kind).map(|map| crate::Affine::new(map.columns(), start))),
        );
        let (slots, queues) = (2 << random.below(9), 2 + random.below(6));
        let table: Vec<Bucket> = (0..slots).map(|_| Bucket(random.below(queues) as u16)).collect();
        let table = Indirection::from_slots(table).unwrap();
        if table.slots().iter().all(|queue| *queue == table.slots()[0]) {
            continue;
        }
        for hashes in [true, false] {
            let mut oracle = |flows: &[Flow]| {
                let told = |flow: &Flow| {
                    let hash = rule.hash(flow).unwrap();
                    Some(Answer { hash: Some(hash), queue: table.bucket_of(hash).0 })
                };
                flows.iter().map(told).collect()
            };
            let options = Options { hashes, ..Options::new(round as u64) };
            let told = learn(&options, &mut oracle);
            let learned =
                told.unwrap_or_else(|e| panic!("round {round}, hashes {hashes}, {slots} slots: {e}"));
            let wrong = (0..5000).filter(|i| {
                let flow = flow(&mut random, PacketKind::ALL[i % 6]);
                let hash = rule.hash(&flow).unwrap();
                let (predicted, queue) = learned.predict(&flow);
                table.bucket_of(hash).0 != queue || (hashes && predicted != Some(hash))
            });
            assert_eq!(wrong.count(), 0, "round {round}, hashes {hashes}, {slots} slots, {queues} queues");
        }
    }
}

/// A card that is one while it is learned and another when that is confirmed, and one again when it is asked whether it changed:
/// only the fresh packets see it.
#[test]
fn fresh_packets_decide() {
    for hashes in [true, false] {
        let options = Options { hashes, ..Options::new(6) };
        let mut card = Card::new("random", &CardOptions::default()).unwrap();
        let last = learn_from(&mut card, &options).unwrap().probes;
        let fresh = if hashes { 96 } else { 160 };
        let mut other = Card::new("random", &CardOptions { seed: 2, ..CardOptions::default() }).unwrap();
        let mut seen = 0;
        let mut oracle = |flows: &[Flow]| {
            let mut one = |flow| {
                seen += 1;
                let confirms = (last - fresh + 1..=last).contains(&seen);
                Some(answer(if confirms { &mut other } else { &mut card }, flow))
            };
            flows.iter().map(&mut one).collect()
        };
        let error = learn(&options, &mut oracle).unwrap_err();
        assert!(
            matches!(error, LearnError::Unverified { wrong, of } if wrong > fresh / 4 && of == fresh),
            "{error}"
        );
    }
}
