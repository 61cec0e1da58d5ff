//! What is paced, with BBR and with Prague, while its lane moves to another worker, and over a link that merges what it has received.

use super::bbr::streams;
use super::lossy::Net;
use super::prague::{LINK, STEP, net};
use super::*;

/// Part of the link that was read of one stream, and the longest that a packet waited, microseconds.
fn over(net: &mut Net, algorithm: Algorithm) -> (f64, u32) {
    let read = streams(net, &[algorithm], Duration::from_secs(3), Duration::from_secs(9));
    (read[0] as f64 / (LINK.rate * 6) as f64, net.waited.iter().copied().max().unwrap())
}

/// A lane that moves for half a millisecond costs nothing, and one that takes long costs little more than that time: what its pace let go meanwhile does
/// not follow at once, and nobody is forgotten.
#[test]
fn lanes_that_move() {
    for (algorithm, waits_us) in [(Algorithm::Bbr, 25_000), (Algorithm::Prague, 4000)] {
        for (takes_us, least) in [(500, 0.92), (20_000, 0.7)] {
            let mut net = net(7, LINK, STEP);
            net.moves = [100_000, takes_us];
            let (full, longest) = over(&mut net, algorithm);
            println!("{algorithm:?}, {takes_us} us: {full:.3} of the link, {longest} us");
            // BBR's own probes make a queue of more than a round trip.
            let most = if takes_us > 500 { waits_us } else { 30_000 };
            assert!(full > least && longest < most, "{algorithm:?}, {takes_us} us: {full} {longest}");
            assert_eq!(net.hosts[0].tcp.stats().retransmit_timeouts, 0);
        }
    }
}

/// A card that merges what came within a millisecond, which is more than a burst: the path is full. It says of a merged packet that it was marked if
/// one of its segments was, and the sender is told of all of them: more than were marked, never fewer. So the queue is not longer for it.
#[test]
fn a_link_that_merges() {
    for (algorithm, merges_us, least) in
        [(Algorithm::Bbr, 4000, 0.92), (Algorithm::Prague, 500, 0.92), (Algorithm::Prague, 1000, 0.9)]
    {
        let mut net = net(7, LINK, STEP);
        net.merges_us = merges_us;
        let (full, longest) = over(&mut net, algorithm);
        let stats = net.hosts[0].tcp.stats();
        let (told, marked, as_marked) = (stats.accecn_marks, net.marked[0], net.as_marked);
        println!(
            "{algorithm:?}, {merges_us} us: {full:.3}, {longest} us, {told} told, {marked} marked, {as_marked} with others"
        );
        assert!(full > least && net.merged > 5000, "{full}, {} merged", net.merged);
        assert_eq!(stats.packets_retransmitted, 0);
        if algorithm == Algorithm::Prague {
            // The last ones are under way.
            assert!(
                as_marked > marked && as_marked - told < 20,
                "{told} of {as_marked}, {marked} were marked"
            );
            assert!(longest < 4000 || net.waited.len() < 100, "{longest}");
        }
    }
}
