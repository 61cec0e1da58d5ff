//! Every emulated card under a host that knows nothing of it, and under one that was given what was learned of it.

use std::sync::{Arc, mpsc};

use flowlane::card::Access;
use flowlane::link::pair;
use flowlane::metrics::steering::{self, Deviation};
use flowlane::stats::Strayed;
use flowlane::{Bucket, Host, Interface, Key, LinkId, PairConfig, Rss, Runtime, UdpFields};
use flowlane_rss::emulated::{CARDS, Card, CardOptions};
use flowlane_rss::learn::{Answer, LearnError, Learned, Options, learn};
use flowlane_rss::{BucketMap, Flow, HashType};
use flowlane_testnet::eventually_or;

use crate::streams::there_and_back;
use crate::tcp;
use crate::traffic::{CLIENT, PATIENCE_FOR_MOVES, Plan, SERVER, assert_perfect};

fn card(name: &str, slots: usize) -> Card {
    card_of(name, slots, 2)
}

fn card_of(name: &str, slots: usize, queues: u16) -> Card {
    Card::new(name, &CardOptions { seed: 3, slots, queues, ..CardOptions::default() }).unwrap()
}

fn learned(card: &Card, hashes: bool) -> Result<Learned, LearnError> {
    let mut probed = card.clone();
    let mut oracle = |flows: &[Flow]| {
        let answer = |flow: &Flow| {
            let got = probed.receive(flow);
            let hash = (got.hash_type != HashType::None).then_some(got.hash);
            Some(Answer { hash, queue: got.queue })
        };
        flows.iter().map(answer).collect()
    };
    learn(&Options { hashes, ..Options::new(2) }, &mut oracle)
}

/// Frames arrive on queues that the host does not expect, and are steered in software: every byte of every stream, once and in order.
#[test]
fn streams_arrive_whole_over_every_card() {
    const EACH: usize = 100_000;
    for (name, _) in CARDS {
        let pair = PairConfig { card: Some(card(name, 128)), ..PairConfig::default() };
        let (runtime, said) = tcp::start(pair, false, || there_and_back(tcp::server(), EACH));
        tcp::finish(&runtime, &said, EACH as u64);
        let report = runtime.stop();
        let steering = report.steering(SERVER);
        // This host has the published key.
        let believed = if name == "microsoft" { steering.hash_delivered } else { steering.hash_computed };
        assert!(believed > 0, "{name}: {steering:?}");
    }
}

/// What was learned, from hashes or from queues, is the steering of both hosts: nothing is handed over, and hashes that are the rule's are
/// believed.
#[test]
fn nothing_is_handed_over_once_a_card_is_learned() {
    let not_learned = ["jhash", "forgets", "misdirects", "table-ignored"];
    for (name, _) in CARDS.into_iter().filter(|(name, _)| !not_learned.contains(name)) {
        for hashes in [true, false] {
            let card = card(name, 64);
            let learned = match learned(&card, hashes) {
                Ok(learned) => learned,
                // A table whose size is no power of two cannot be learned from queues.
                Err(_) if !hashes && name == "odd-table" => continue,
                Err(error) => panic!("{name}: {error}"),
            };
            // A bucket for each queue, a worker for each bucket.
            let (config, map) = (learned.rule.config(), BucketMap::new(2, 2).unwrap());
            let rss = Arc::new(Rss::from_parts(learned.rule, config, learned.table, map));
            let plan = Plan {
                buckets: rss.buckets.len(),
                datagrams: 40,
                steering: Some([rss.clone(), rss]),
                pair: PairConfig { card: Some(card), ..PairConfig::default() },
                ..Plan::default()
            };
            let net = plan.start();
            let flows = net.finish();
            let report = net.runtime.stop();
            let whole = flows.values().all(|flow| (flow.received, flow.reordered) == (40, 0));
            assert!(whole, "{name}: {flows:?}");
            for host in [SERVER, CLIENT] {
                let steering = report.steering(host);
                // What has no flow comes on queue 0, whosever bucket 0 is.
                assert!(steering.redirected <= steering.no_flow, "{name}, hashes {hashes}: {steering:?}");
                assert_eq!(steering.misdirected, 0, "{name}, hashes {hashes}");
                assert_eq!(steering.hash_computed == 0, hashes, "{name}: {steering:?}");
            }
        }
    }
}

/// Server and client on a card with 4 queues, 2 workers, each steered by the rule that was learned of the card, and by the table that its
/// driver shows.
fn steered(card: &Card, datagrams: u32) -> Plan {
    let learned = learned(card, true).unwrap();
    let slots: Vec<u16> = card.table().slots().iter().map(|queue| queue.0 % 4).collect();
    let config = learned.rule.config();
    let rss = Arc::new(Rss::of_card(learned.rule, config, &slots, 4, 2).unwrap());
    Plan {
        buckets: rss.buckets.len(),
        datagrams,
        window: 2,
        flows: 8,
        steering: Some([rss.clone(), rss]),
        pair: PairConfig { card: Some(card.clone()), queues: Some(4), ..PairConfig::default() },
        ..Plan::default()
    }
}

/// Frames that were handed over, and those without a flow, which may be.
fn redirected(runtime: &Runtime) -> (u64, u64) {
    let report = runtime.handle().counters();
    let of = |host| (report.steering(host).redirected, report.steering(host).no_flow);
    let (server, client) = (of(SERVER), of(CLIENT));
    (server.0 + client.0, server.1 + client.1)
}

/// On every card that does what its table says: when a move is over, the card sends the lane's frames to its new worker. None is lost or
/// overtaken meanwhile, and none handed over after.
// Long: twenty-four moves on every kind of card, and a second after each in which its old queue may bring something.
#[test]
fn the_cards_table_follows_lanes_that_move() {
    const MOVES: usize = 24;
    let others = ["jhash", "forgets", "misdirects", "table-ignored"];
    for (name, _) in CARDS.into_iter().filter(|(name, _)| !others.contains(name)) {
        // More in a queue at once than one look takes.
        let plan = Plan { window: 16, flows: 32, ..steered(&card_of(name, 128, 4), 150) };
        let net = plan.start();
        let handle = net.runtime.handle();
        let begun = std::time::Instant::now();
        for round in 0..MOVES {
            let bucket = Bucket((round % plan.buckets) as u16);
            let host = [SERVER, CLIENT][round / plan.buckets % 2];
            let to = 1 - handle.worker_of(host, bucket).unwrap();
            handle.move_lane(host, bucket, to).unwrap();
            assert!(begun.elapsed() < PATIENCE_FOR_MOVES, "{name}: {round} moves");
        }
        let before = redirected(&net.runtime);
        assert_perfect(&plan, &net.finish());
        let after = redirected(&net.runtime);
        assert!(
            after.0 - before.0 <= after.1 - before.1,
            "{name}: handed over, without a flow: {before:?} {after:?}"
        );
        let report = net.runtime.stop();
        for host in [SERVER, CLIENT] {
            let card = report.cards.iter().find(|card| card.host == host).unwrap();
            assert!(card.counts.slots_moved > 0, "{name}: {card:?}");
            assert_eq!(
                (card.counts.refused, card.counts.followed, card.counts.set_again),
                (0, 0, 0),
                "{name}: {card:?}"
            );
            assert_eq!(report.steering(host).misdirected, 0, "{name}");
        }
        assert!(report.workers.iter().all(|w| w.pool.move_overflow == 0 && w.netisr.dropped == 0), "{name}");
    }
}

/// Streams in every lane of a client, on every card, while lanes of both hosts move all the time: every byte there and back, once and in order.
/// Where the card does what its table says, the table follows; on the others frames are handed over.
#[test]
fn streams_stay_whole_while_lanes_move_on_every_card() {
    const EACH: usize = 300_000;
    let others = ["jhash", "forgets", "misdirects", "table-ignored"];
    for (name, _) in CARDS {
        let card = card_of(name, 128, 4);
        // Hosts that do not know their card's rule steer in software.
        let rss = match others.contains(&name) {
            true => crate::traffic::rss(Key::MICROSOFT, 8, 2, UdpFields::Two),
            false => steered(&card, 1).steering.unwrap()[SERVER].clone(),
        };
        let buckets = rss.buckets.len();
        let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
        let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(32_768);
        let host = Host::new("server", rss.clone(), || crate::streams::echo(tcp::server()));
        assert_eq!(builder.host(host.interface(on("10.0.0.1/24"))), SERVER);
        let (say, said) = mpsc::channel();
        let host = Host::new("client", rss, move || {
            let say = say.clone();
            async move {
                let _ = say.send(there_and_back(tcp::server(), EACH).await);
            }
        });
        assert_eq!(builder.host(host.interface(on("10.0.0.2/24"))), CLIENT);
        let pair = PairConfig { card: Some(card), queues: Some(4), ..PairConfig::default() };
        let (open, access) = pair::opener_with_access(pair);
        let ends: [LinkId; 2] = builder.wire(open);
        for ((host, end), access) in [SERVER, CLIENT].into_iter().zip(ends).zip(access.unwrap()) {
            builder.attach(end, host, 0);
            builder.steer_card(end, Box::new(access));
        }
        let runtime = builder.start().unwrap();
        let handle = runtime.handle();
        let begun = std::time::Instant::now();
        let (mut whole, mut moves) = (0, 0);
        while whole < buckets || moves < 2 * buckets {
            let bucket = Bucket((moves % buckets) as u16);
            let host = [SERVER, CLIENT][moves / buckets % 2];
            if let Some(at) = handle.worker_of(host, bucket) {
                handle.move_lane(host, bucket, 1 - at).unwrap();
                moves += 1;
            }
            for result in said.try_iter() {
                assert_eq!(result, Ok(EACH as u64), "{name}");
                whole += 1;
            }
            assert!(begun.elapsed() < PATIENCE_FOR_MOVES, "{name}: {whole} streams, {moves} moves");
        }
        let report = runtime.stop();
        for host in [SERVER, CLIENT] {
            let steering = report.steering(host);
            let why = steering::queues(&report, host);
            assert_eq!(report.total(host).tcp.resets_received, 0, "{name}");
            let card = report.cards.iter().find(|card| card.host == host);
            if !others.contains(&name) {
                assert!(card.unwrap().counts.slots_moved > 0, "{name}: {card:?}");
                assert_eq!(steering.misdirected, 0, "{name}: {why:?}");
                let known = steering.redirected_no_flow + steering.redirected_away + steering.redirected_late;
                assert_eq!(steering.redirected, known, "{name}: {why:?}");
            }
            // Each frame that was handed over has a cause, queue by queue.
            for queue in &why {
                let told = queue.causes.iter().filter(|cause| cause.what == Deviation::Redirected);
                assert_eq!(
                    told.map(|cause| cause.frames).sum::<u64>(),
                    queue.redirected,
                    "{name}: {queue:?}"
                );
            }
            assert_eq!(why.iter().map(|queue| queue.received).sum::<u64>(), steering.received, "{name}");
        }
    }
}

/// A card that takes no change.
struct Refuses(Box<dyn Access>);
impl Access for Refuses {
    fn rss(&mut self) -> Result<flowlane::card::CardRss, String> {
        self.0.rss()
    }
    fn set_slots(&mut self, _: &[(usize, u32)]) -> Result<(), String> {
        Err("not permitted".to_owned())
    }
    fn set_again(&mut self) -> Result<(), String> {
        Err("not permitted".to_owned())
    }
}

/// A card that does not let its table be changed: lanes move all the same, and their frames are handed over, in order.
#[test]
fn lanes_move_where_the_card_refuses() {
    let plan = Plan {
        access: |card| Box::new(Refuses(Box::new(card))),
        ..steered(&card_of("random", 128, 4), 1500)
    };
    let net = plan.start();
    let handle = net.runtime.handle();
    for bucket in 0..plan.buckets as u16 {
        let to = 1 - handle.worker_of(SERVER, Bucket(bucket)).unwrap();
        handle.move_lane(SERVER, Bucket(bucket), to).unwrap();
    }
    assert_perfect(&plan, &net.finish());
    let report = net.runtime.stop();
    let card = report.cards.iter().find(|card| card.host == SERVER).unwrap();
    assert!(card.counts.refused > 0 && card.counts.slots_moved == 0, "{card:?}");
    let why =
        steering::queues(&report, SERVER).into_iter().flat_map(|queue| queue.causes).collect::<Vec<_>>();
    assert!(why.iter().any(|cause| cause.why.contains("the card refused")), "{why:?}");
    assert_eq!(report.steering(SERVER).misdirected, 0, "frames come where the card's table says");
}

/// The driver shows another key than at the start: somebody has set it, so nothing is set again, and frames are handed over.
#[test]
fn a_key_of_somebody_else_is_left_alone() {
    struct Rekeyed(Box<dyn Access>, bool);
    impl Access for Rekeyed {
        fn rss(&mut self) -> Result<flowlane::card::CardRss, String> {
            let mut rss = self.0.rss()?;
            if std::mem::replace(&mut self.1, true) {
                rss.key.0.push(1);
            }
            Ok(rss)
        }
        fn set_slots(&mut self, slots: &[(usize, u32)]) -> Result<(), String> {
            self.0.set_slots(slots)
        }
        fn set_again(&mut self) -> Result<(), String> {
            self.0.set_again()
        }
    }
    let access = |card| -> Box<dyn Access> { Box::new(Rekeyed(Box::new(card), false)) };
    let plan = Plan { access, ..steered(&card_of("table-ignored", 128, 4), 800) };
    let net = plan.start();
    assert_perfect(&plan, &net.finish());
    let report = net.runtime.stop();
    let card = report.cards.iter().find(|card| card.host == SERVER).unwrap();
    assert_eq!((card.counts.set_again, card.counts.followed, card.counts.slots_moved), (0, 0, 0), "{card:?}");
    assert_eq!(card.strayed, Some(Strayed::Key));
    assert!(report.steering(SERVER).misdirected > 0);
}

/// Somebody gives the card another table: lanes go to the workers whose queues their frames come on.
#[test]
fn lanes_follow_a_table_of_somebody_else() {
    let plan = steered(&card_of("random", 128, 4), 1500);
    let net = plan.start();
    let handle = net.runtime.handle();
    // Queue 1 is worker 1's.
    let all: Vec<(usize, u32)> = (0..128).map(|slot| (slot, 1)).collect();
    net.cards.as_ref().unwrap()[SERVER].clone().set_slots(&all).unwrap();
    let said = || format!("{:?}", handle.counters().cards);
    eventually_or(said, || (0..plan.buckets as u16).all(|b| handle.worker_of(SERVER, Bucket(b)) == Some(1)));
    let flows = net.finish();
    assert_eq!(flows.values().filter(|flow| flow.received != plan.datagrams).count(), 0);
    let report = net.runtime.stop();
    let card = report.cards.iter().find(|card| card.host == SERVER).unwrap();
    assert_eq!((card.counts.followed, card.counts.set_again, card.counts.slots_moved), (1, 0, 0));
    assert_eq!(card.strayed, Some(Strayed::Table));
}

/// It is noticed although nothing is sent any more: the card is looked at once a second.
#[test]
fn a_table_of_somebody_else_is_noticed_without_a_packet() {
    let plan = steered(&card_of("random", 128, 4), 40);
    let net = plan.start();
    assert_perfect(&plan, &net.finish());
    let handle = net.runtime.handle();
    let all: Vec<(usize, u32)> = (0..128).map(|slot| (slot, 1)).collect();
    net.cards.as_ref().unwrap()[SERVER].clone().set_slots(&all).unwrap();
    let said = || format!("{:?}", handle.counters().cards);
    eventually_or(said, || (0..plan.buckets as u16).all(|b| handle.worker_of(SERVER, Bucket(b)) == Some(1)));
    let report = net.runtime.stop();
    let card = report.cards.iter().find(|card| card.host == SERVER).unwrap();
    assert_eq!((card.counts.followed, card.counts.set_again, card.strayed), (1, 0, Some(Strayed::Table)));
    assert_eq!(report.steering(SERVER).misdirected, 0, "no frame told of it");
}

/// A card that forgets its settings when it is disturbed gets them again, and frames come aligned from then on.
// Long: 1,500 datagrams a flow, handed over from the wrong worker until the card is set again.
#[test]
fn a_card_that_forgets_is_set_again() {
    let plan = steered(&card_of("forgets", 128, 4), 1500);
    let net = plan.start();
    let flows = net.finish();
    assert_eq!(flows.values().filter(|flow| flow.received != plan.datagrams).count(), 0);
    let report = net.runtime.stop();
    for host in [SERVER, CLIENT] {
        let card = report.cards.iter().find(|card| card.host == host).unwrap();
        assert_eq!((card.counts.set_again, card.counts.followed), (1, 0), "{card:?}");
        // Each of the two senders has the card forget at a frame of its own, and it is set again once.
        assert!(matches!(card.strayed, Some(Strayed::Forgotten | Strayed::AnotherRule)), "{card:?}");
        let steering = report.steering(host);
        assert!(steering.misdirected > 0 && steering.alignment() > 0.5, "{steering:?}");
    }
}

/// A card that goes on sending frames elsewhere: it is set again once, and its frames are handed over.
#[test]
fn a_card_that_does_what_it_likes_is_left_alone() {
    for name in ["misdirects", "table-ignored"] {
        let plan = steered(&card_of(name, 128, 4), 800);
        let net = plan.start();
        let flows = net.finish();
        let report = net.runtime.stop();
        assert_eq!(flows.values().filter(|flow| flow.received != plan.datagrams).count(), 0, "{name}");
        let card = report.cards.iter().find(|card| card.host == SERVER).unwrap();
        assert_eq!(
            (card.counts.set_again, card.counts.followed, card.counts.slots_moved),
            (1, 0, 0),
            "{name}: {card:?}"
        );
        assert!(report.steering(SERVER).misdirected > 0, "{name}");
        // That it did not help is said after a second, which the run may not last.
        assert!(matches!(card.strayed, Some(Strayed::AnotherRule | Strayed::Forgotten)), "{name}: {card:?}");
    }
}

/// A host with two links, each with a card of its own: both tables follow its lanes, or, where one card refuses, neither does.
#[test]
fn the_cards_of_a_host_follow_together() {
    let card = card_of("random", 128, 4);
    let plan = steered(&card, 1);
    let rss = plan.steering.unwrap()[SERVER].clone();
    for refused in [None, Some(0), Some(1)] {
        let mut builder = Runtime::builder().workers(2).pin(false);
        let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
        let host = |name: &str, last: u8| {
            let host = Host::new(name, rss.clone(), || async {});
            host.interface(on(&format!("10.0.0.{last}/24"))).interface(on(&format!("10.0.1.{last}/24")))
        };
        let (ours, theirs) = (builder.host(host("ours", 1)), builder.host(host("theirs", 2)));
        let mut cards = Vec::new();
        for interface in 0..2 {
            let pair = PairConfig { card: Some(card.clone()), queues: Some(4), ..PairConfig::default() };
            let (open, access) = pair::opener_with_access(pair);
            let ends: [LinkId; 2] = builder.wire(open);
            builder.attach(ends[0], ours, interface);
            builder.attach(ends[1], theirs, interface);
            let [card, _] = access.unwrap();
            let access: Box<dyn Access> = Box::new(card.clone());
            let refuses = refused == Some(interface);
            builder.steer_card(ends[0], if refuses { Box::new(Refuses(access)) } else { access });
            cards.push(card);
        }
        let runtime = builder.start().unwrap();
        let handle = runtime.handle();
        let mut workers = || cards.iter_mut().map(|card| card.rss().unwrap().table).collect::<Vec<_>>();
        let before = workers();
        for bucket in (0..plan.buckets as u16).map(Bucket) {
            handle.move_lane(ours, bucket, 1 - handle.worker_of(ours, bucket).unwrap()).unwrap();
        }
        let after = workers();
        let counted = &runtime.stop().cards;
        assert_eq!(counted.len(), 1, "the cards of one host: {counted:?}");
        if refused.is_some() {
            assert_eq!(after, before, "what one had taken is put back");
            assert_eq!((counted[0].counts.refused, counted[0].counts.slots_moved), (plan.buckets as u64, 0));
        } else {
            let other = |(a, b): (&u32, &u32)| a % 2 != b % 2;
            assert!(before[0].iter().zip(&after[0]).all(other), "{before:?} {after:?}");
            assert_eq!(after[0], after[1]);
            assert_eq!((counted[0].counts.refused, counted[0].counts.slots_moved), (0, 256));
        }
    }
}
