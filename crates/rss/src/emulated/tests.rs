//! Emulated cards against published values and against what their names say.

use super::hashes::crc32c;
use super::*;
use crate::{General, PacketKind, Protocol};

fn card(name: &str) -> Card {
    Card::new(name, &CardOptions::default()).unwrap()
}

fn flows(seed: u64, n: usize) -> Vec<Flow> {
    let mut random = Random::new(seed);
    (0..n)
        .map(|i| {
            let kind = PacketKind::ALL[i % 6];
            let mut bytes = random.bytes::<36>();
            bytes[kind.bits() / 8..].fill(0);
            Tuple { kind, bytes }.flow()
        })
        .collect()
}

/// RFC 3720 appendix B.4, and the check value of every catalogue of such codes.
#[test]
fn crc32c_by_its_vectors() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
}

#[test]
fn the_published_vector() {
    let flow = Flow::new(
        "66.9.149.187:2794".parse().unwrap(),
        "161.142.100.80:1766".parse().unwrap(),
        Protocol::TCP,
    );
    let got = card("microsoft").receive(&flow);
    assert_eq!(got, Received { hash: 0x51cc_c178, hash_type: HashType::TcpIpv4, queue: 120 % 4 });
    let udp = card("microsoft").receive(&Flow { protocol: Protocol::UDP, ..flow });
    assert_eq!((udp.hash, udp.hash_type), (0x323e_8fc2, HashType::Ipv4));
}

#[test]
fn names_and_numbers_that_are_wrong_are_refused() {
    let options = CardOptions::default();
    let error = Card::new("e1000", &options).unwrap_err();
    assert!(
        error.to_string().starts_with("no emulated card 'e1000': there are microsoft, random,"),
        "{error}"
    );
    let none = CardOptions { queues: 0, ..options };
    assert_eq!(Card::new("xor", &none).unwrap_err(), CardError::Queues(0));
    for (name, _) in CARDS {
        for slots in [0, 1, 4096] {
            let made = Card::new(name, &CardOptions { slots, ..options });
            let known = name == "odd-table" && slots < 2;
            assert_eq!(made.is_err(), !known, "{name} with {slots} slots");
        }
    }
}

/// Every card is deterministic but the one that throws dice, uses all queues unless its name says otherwise, and reports a
/// hash.
#[test]
fn cards_do_what_their_names_say() {
    for (name, _) in CARDS {
        let (mut one, mut two) = (card(name), card(name).reseeded(9));
        let mut seen = [0; 4];
        let mut differ = 0;
        for flow in flows(1, 3000) {
            let (a, b) = (one.receive(&flow), two.receive(&flow));
            seen[usize::from(a.queue)] += 1;
            assert_eq!((a.hash, a.hash_type), (b.hash, b.hash_type));
            differ += usize::from(a.queue != b.queue);
            let symmetric = one.hash(&flow) == one.hash(&flow.reply());
            let named = name.starts_with("symmetric") || name == "sorted-pair";
            // Exclusive or is symmetric in the addresses alone.
            assert!(symmetric == named || name == "xor", "{name}: {flow:?}");
        }
        assert_eq!(differ > 0, name == "misdirects", "{name}");
        assert_eq!(seen.contains(&0), name == "table-ignored", "{name}: {seen:?}");
        one.disturb();
        let after = flows(2, 50).iter().filter(|flow| one.receive(flow).hash_type != HashType::None).count();
        assert_eq!(after == 0, name == "forgets", "{name}");
        one.restore();
        assert!(flows(2, 50).iter().any(|flow| one.receive(flow).hash_type != HashType::None));
    }
}

#[test]
fn the_general_rule_says_the_same_where_it_is_known() {
    let options = CardOptions { udp: UdpFields::Four, ..CardOptions::default() };
    let config = HashConfig::with_udp(UdpFields::Four);
    let key = Key::random(|bytes| Random::new(1).fill(bytes));
    let rows = [
        ("random", General::toeplitz(&key, &config, Arrangement::Plain)),
        ("sorted-pair", General::toeplitz(&key, &config, Arrangement::Sorted)),
        ("symmetric-or-xor", General::toeplitz(&key, &config, Arrangement::OrXor)),
        ("symmetric-xor", General::symmetric_xor(&key, &config)),
    ];
    for (name, rule) in rows {
        let card = Card::new(name, &options).unwrap();
        for flow in flows(3, 600) {
            assert_eq!(rule.hash(&flow), Some(card.hash(&flow).0), "{name}: {flow:?}");
        }
    }
}
