//! Impairments of a pair, with traffic of the kernel: what was done is counted, and TCP mends it.

use super::kit::*;
use flowlane_testnet::eventually;
use std::time::Instant;

/// Sends datagrams from A to B, and waits until each has been passed on or dropped: the queue of A's kernel holds no more than 1000.
fn datagrams(pair: &Pair, count: u64) {
    const AT_ONCE: u64 = 500;
    let [a, b, _] = &pair.spaces;
    let (here, _there) = (socket(a, ADDRESSES[0][0], 7300), socket(b, ADDRESSES[0][1], 7400));
    let done = || {
        let total = pair.report().directions[0].total;
        total.packets - total.duplicated + total.dropped()
    };
    let before = done();
    for sent in (AT_ONCE..=count).step_by(AT_ONCE as usize) {
        for _ in 0..AT_ONCE {
            here.send_to(&[7; 100], (ADDRESSES[0][1], 7400)).unwrap();
        }
        let deadline = Instant::now() + PATIENCE;
        while done() - before < sent {
            assert!(Instant::now() < deadline, "{} of {sent}", done() - before);
        }
    }
}

#[test]
fn losses_and_twins_are_counted_and_a_seed_repeats_them() {
    if !can() {
        return;
    }
    let mut losses = Vec::new();
    for _ in 0..2 {
        let pair = Pair::up("i", "--a-to-b loss=20%,duplicate=10% --seed 7");
        // No neighbour to ask for, so that the dice are thrown for datagrams only.
        pair.neighbours();
        let before = pair.report().directions[0].total;
        datagrams(&pair, 2000);
        let total = pair.report().directions[0].total;
        let (lost, twice) = (total.lost - before.lost, total.duplicated - before.duplicated);
        // Five standard deviations around a fifth of all, and around a tenth of the rest.
        assert!((310..=490).contains(&lost), "{lost} lost, seed 7");
        assert!((100..=220).contains(&twice), "{twice} twice, seed 7");
        losses.push(lost);
    }
    assert!(
        losses[0].abs_diff(losses[1]) <= 2,
        "the same seed, but for a few packets of the kernel's own: {losses:?}"
    );
}

#[test]
fn a_delay_is_the_least_that_a_packet_takes() {
    if !can() {
        return;
    }
    let pair = Pair::up("y", "--delay 20ms --queues 2");
    let [a, b, _] = &pair.spaces;
    let (here, there) = (socket(a, ADDRESSES[1][0], 7500), socket(b, ADDRESSES[1][1], 7600));
    let rounds = |count: usize| {
        for _ in 0..count {
            here.send_to(b"there", (ADDRESSES[1][1], 7600)).unwrap();
            let (_, from) = there.recv_from(&mut [0; 10]).unwrap();
            there.send_to(b"back", from).unwrap();
            here.recv(&mut [0; 10]).unwrap();
        }
    };
    let began = Instant::now();
    rounds(5);
    assert!(began.elapsed().as_millis() >= 200, "{:?} for five times there and back", began.elapsed());
    // While it runs: the delay of one direction goes, the other stays.
    assert_eq!(pair.ask("set --a-to-b delay=0"), "a to b: no impairments\nb to a: delay 20.0 ms\n");
    eventually("nothing waits", || pair.report().directions[0].total.waiting == 0);
    rounds(3);
    // By the MTU that the ends have now; nothing is changed.
    a.ip("link set dev a mtu 9000").unwrap();
    eventually("the MTU is known", || pair.report().ends[0].mtu == 9000);
    assert!(pair.refuses("set --a-to-b rate=7k").contains("must be at least 7212 bits a second"));
    assert_eq!(pair.report().directions[0].impairments.rate, None);
    assert_eq!(pair.ask("set --clear"), "a to b: no impairments\nb to a: no impairments\n");
    rounds(100);
}

/// What waits behind a bad line comes as soon as the line is good again.
#[test]
fn a_good_line_again_lets_go_what_waits() {
    if !can() {
        return;
    }
    let pair = Pair::up("z", "");
    pair.neighbours();
    let [a, b, _] = &pair.spaces;
    let (here, there) = (socket(a, ADDRESSES[1][0], 7510), socket(b, ADDRESSES[1][1], 7610));
    for bad in ["--delay 1h", "--rate 10k"] {
        pair.ask(&format!("set {bad}"));
        for n in 0..50 {
            here.send_to(&[n; 1400], (ADDRESSES[1][1], 7610)).unwrap();
        }
        eventually("they wait", || pair.report().directions[0].total.waiting >= 45);
        pair.ask("set --clear");
        here.send_to(&[50; 1400], (ADDRESSES[1][1], 7610)).unwrap();
        for n in 0..=50 {
            let mut packet = [0; 1400];
            there.recv(&mut packet).unwrap();
            assert_eq!(packet[0], n, "{bad}");
        }
        assert_eq!(pair.report().directions[0].total.waiting, 0);
    }
}

#[test]
fn a_stream_survives_everything_at_once() {
    if !can() {
        return;
    }
    let pair = Pair::up(
        "e",
        "--loss 0.5% --duplicate 1% --reorder 1% --corrupt 0.5% --delay 1ms --jitter 500us --rate 400M --seed 3",
    );
    let [a, b, _] = &pair.spaces;
    stream(a, b, ADDRESSES[0][1], 2 << 20);
    stream(b, a, ADDRESSES[1][0], 2 << 20);
    let report = pair.report();
    for direction in &report.directions {
        let total = direction.total;
        // Packets with many segments were cut, since each of them has a fate of its own.
        assert!(total.segments == total.packets, "{total:?}");
        assert!(total.lost > 0 && total.duplicated > 0 && total.reordered > 0 && total.corrupted > 0);
    }
    assert!(report.directions[0].total.cut > 0 && report.directions[1].total.cut > 0);
}

/// Each packet is sent in the slot or beside it, and counted so.
#[test]
fn what_leaves_in_a_slot_is_counted_by_it() {
    if !can() {
        return;
    }
    let pair = Pair::up("g", "--slots 4x5ms --slot 2 --guard 1ms");
    let [a, b, _] = &pair.spaces;
    let (here, there) = (socket(a, ADDRESSES[0][0], 7700), socket(b, ADDRESSES[0][1], 7800));
    for _ in 0..20 {
        here.send_to(b"there", (ADDRESSES[0][1], 7800)).unwrap();
        there.recv(&mut [0; 10]).unwrap();
    }
    let report = pair.report();
    let slots = report.directions[0].slots.clone().unwrap();
    let total = report.directions[0].total;
    assert_eq!(slots.inside + slots.outside, total.packets, "{slots:?} {total:?}");
    assert!(slots.used >= 1 && slots.inside > 0, "{slots:?}");
    assert!(pair.ask("show").contains("slot 2 of 4x5ms, guard 1.00 ms"));
}
