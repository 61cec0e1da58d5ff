//! Every emulated card under a host that knows nothing of it, and under one that was given what was learned of it.

use std::sync::Arc;

use flowlane::{PairConfig, Rss};
use flowlane_rss::emulated::{CARDS, Card, CardOptions};
use flowlane_rss::learn::{Answer, Options, learn};
use flowlane_rss::{BucketMap, Flow, HashType};

use crate::streams::there_and_back;
use crate::tcp;
use crate::traffic::{CLIENT, Plan, SERVER};

fn card(name: &str, slots: usize) -> Card {
    Card::new(name, &CardOptions { seed: 3, slots, queues: 2, ..CardOptions::default() }).unwrap()
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
            let mut probed = card.clone();
            let mut oracle = |flows: &[Flow]| {
                let answer = |flow: &Flow| {
                    let got = probed.receive(flow);
                    let hash = (got.hash_type != HashType::None).then_some(got.hash);
                    Some(Answer { hash, queue: got.queue })
                };
                flows.iter().map(answer).collect()
            };
            let learned = match learn(&Options { hashes, ..Options::new(2) }, &mut oracle) {
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
