//! `flowlane rss` on the driver of Intel's cards.

use super::{CARDS, Metal};
use crate::guest::Guest;
use crate::peer;
use std::process::{Command, Stdio};

/// The fields of UDP are shown, set for the run and put back; the queues' packets are counted; one flow is followed.
#[test]
fn shown_set_watched_and_put_back() {
    let Some(mut guest) = Guest::newer() else { return };
    let [card, _] = CARDS;
    card.tidy(&mut guest);
    Metal::interrupts(&mut guest);
    let before = card.settings(&mut guest);
    let udp = |guest: &mut Guest| {
        ["udp4", "udp6"]
            .map(|kind| guest.must(&format!("ethtool -n igb rx-flow-hash {kind}")).contains("dst port"))
    };
    let shown = guest.must("flowlane rss show igb");
    for words in [
        "igb at 0000:",
        "4 to receive, 8 at most",
        "128 slots",
        "UDP is spread by addresses alone",
        "native mode, zero copy",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(udp(&mut guest), [false, false], "as the driver has it");
    card.serve(&mut guest, "udp-echo", "", "--rss set --control");
    assert_eq!(udp(&mut guest), [true, true], "set for the run");
    guest.must("rm -f /run/watch; flowlane rss show igb --watch --json >/run/watch & echo $! >/run/watch.pid; until [ -s /run/watch ]; do usleep 20000; done");
    peer::flows(card.targets()[0], 200, 100);
    let watched =
        guest.must("kill -INT $(cat /run/watch.pid); wait $(cat /run/watch.pid); tail -1 /run/watch");
    let sum: serde_json::Value = serde_json::from_str(watched.lines().last().unwrap()).unwrap();
    let queues = sum["receive"].as_array().unwrap_or_else(|| panic!("{watched}"));
    let received =
        |queue: &serde_json::Value| queue["packets"].as_u64().unwrap_or_else(|| panic!("{watched}"));
    assert_eq!(queues.len(), 4, "{watched}");
    assert!(queues.iter().all(|queue| received(queue) > 0), "{watched}");
    assert!(queues.iter().map(received).sum::<u64>() >= 200, "{watched}");
    let why = guest.must("flowlane rss why 10.9.4.1:40000 10.9.4.2:7 igb");
    assert!(why.contains("igb") && why.contains("queue") && why.contains("worker"), "{why}");
    let busy = peer::Noise::to(card.targets()[0]);
    let check = guest.run("flowlane rss check igb --for 1s");
    assert!(busy.answered() > 0, "{}", check.said);
    assert_eq!(check.code, 0, "{}", check.said);
    // Killed, and put back by the command.
    guest.run("finish flowlane KILL; until ! pidof flowlane; do usleep 10000; done");
    guest.run("flowlane rss restore igb");
    assert_eq!(udp(&mut guest), [false, false], "put back");
    assert_eq!(before, card.settings(&mut guest));
}

/// Everything is made to fit together, and killed when some of it is made: what was made is put back by the command.
#[test]
fn tuning_that_is_killed_is_put_back() {
    let Some(mut guest) = Guest::newer() else { return };
    let [card, _] = CARDS;
    card.tidy(&mut guest);
    guest.must("ethtool -L igb combined 2; ethtool -X igb default; settle igb");
    let settings = |guest: &mut Guest| {
        let around = "for irq in $(grep igb /proc/interrupts | cut -d: -f1); do cat /proc/irq/$irq/smp_affinity_list; done; \
                      cat /sys/class/net/igb/queues/tx-*/xps_cpus";
        card.settings(guest) + &guest.must(around)
    };
    let before = settings(&mut guest);
    // The number of queues is changed first, which is seen at once; later changes are not made yet then, or not all of them.
    let in_the_middle = (0..5).any(|_| {
        guest.must(
            "flowlane rss tune igb --apply >/run/tune 2>&1 & tune=$!; until [ -e /sys/class/net/igb/queues/rx-3 ]; do kill -0 $tune || break; done; \
             kill -9 $tune; wait $tune; settle igb",
        );
        let left = guest.run("flowlane rss tune igb");
        assert_ne!(before, settings(&mut guest), "something was changed");
        let said = guest.must("flowlane rss restore igb");
        assert_eq!(said, "igb: is as it was before 'rss tune'");
        assert_eq!(before, settings(&mut guest), "{}", left.said);
        left.code == 1
    });
    assert!(in_the_middle, "it had always been done already");
    // Not killed, all of it is made, and put back.
    guest.must("flowlane rss tune igb --apply");
    guest.must("flowlane rss tune igb");
    assert_eq!(guest.must("flowlane rss restore igb"), "igb: is as it was before 'rss tune'");
    assert_eq!(before, settings(&mut guest));
    card.tidy(&mut guest);
}

/// The rule is learned from probes of the peer: the hash and the table that the driver shows. Ports are planned by both, as many for each queue.
#[test]
fn learned_and_planned() {
    let Some(mut guest) = Guest::newer() else { return };
    let [card, _] = CARDS;
    card.tidy(&mut guest);
    let binary = std::env::var("FLOWLANE_GUEST_BINARY").unwrap();
    let probes = ["rss", "probes", "igb", "--seed", "42"];
    let mut probes = Command::new(binary).args(probes).stdout(Stdio::null()).spawn().unwrap();
    let learned = guest.run("rm -f /run/rule; flowlane rss learn igb --far-probes 42 -o /run/rule");
    probes.kill().unwrap();
    probes.wait().unwrap();
    assert_eq!(learned.code, 0, "{}", learned.said);
    for words in ["Toeplitz under one key", "slots, 4 queues"] {
        assert!(learned.said.contains(words), "{words}: {}", learned.said);
    }
    for rule in ["--card igb", "--rss /run/rule"] {
        let plan =
            guest.must(&format!("flowlane rss plan --to 10.9.4.2:80 --from 10.9.4.1 --streams 16 {rule}"));
        for queue in 0..4 {
            let of = |line: &&str| line.trim_start().starts_with(&format!("{queue}      {queue} "));
            assert_eq!(plan.lines().filter(of).count(), 4, "{rule}: queue {queue}: {plan}");
        }
    }
}
