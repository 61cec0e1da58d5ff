//! What others do to a card while we run on it: its settings, its queues, its driver, and the machine's processors.

use super::{CARDS, Metal, each, ends};
use crate::alignment::number;
use crate::guest::Guest;
use crate::peer;

/// Some flows of both families, all answered.
fn answers(card: Metal) {
    for target in card.targets() {
        peer::flows(target, 32, 700);
    }
}

/// `ethtool` by somebody else, taken or refused: every datagram of later flows is answered. At the end the table is theirs, as a line says;
/// what nobody else has touched is as it was.
#[test]
fn somebody_else_changes_the_settings() {
    each(|guest, card| {
        let name = card.name;
        let before = card.settings(guest);
        card.serve(guest, "udp-echo", "", "--rss set");
        answers(card);
        for change in [
            "-L NAME combined 2",
            "-L NAME combined 4",
            "-K NAME gro off",
            "-K NAME gro on",
            "-G NAME rx 512",
            "-G NAME rx 256",
            "-N NAME rx-flow-hash udp4 sd",
            "-N NAME rx-flow-hash udp4 sdfn",
            "-X NAME equal 2",
        ] {
            let done = guest.run(&format!("ethtool {}", change.replace("NAME", name)));
            let taken = !change.contains("-L NAME combined 2") && !change.contains("-G");
            assert!(done.code == 0 || !taken, "{card:?}: {change}: {}", done.said);
            guest.must(&format!("settle {name}"));
            answers(card);
        }
        let table = format!("ethtool -x {name} | sed '/hash key/,$d'");
        let theirs = guest.must(&table);
        let ended = ends(guest);
        assert!(ended.contains(&format!("{name}: somebody changed the table since")), "{ended}");
        assert_eq!(ended.matches("left alone").count(), 1, "{ended}");
        assert_eq!(guest.must(&table), theirs, "the table is theirs");
        guest.must(&format!("ethtool -X {name} default"));
        assert_eq!(before, card.settings(guest), "key and fields are as they were");
        guest.must(&format!("flowlane rss restore {name} --force"));
        assert_eq!(before, card.settings(guest));
    });
}

/// A table that somebody else sets is followed: lanes move to where their frames come.
#[test]
fn somebody_elses_table_is_followed() {
    each(|guest, card| {
        let name = card.name;
        guest.must(&format!("ethtool -N {name} rx-flow-hash udp4 sdfn"));
        card.serve(guest, "udp-echo", "", "");
        answers(card);
        guest.must(&format!("ethtool -X {name} weight 0 0 0 1"));
        for _ in 0..6 {
            peer::flows(card.targets()[0], 64, 100);
        }
        let ended = ends(guest);
        assert!(ended.contains("somebody changed the card's table: lanes move"), "{card:?}: {ended}");
        assert_eq!([number(&ended, "followed"), number(&ended, "dropped")], [1.0, 0.0], "{card:?}: {ended}");
        if name == "igb" {
            guest.must("ethtool -N igb rx-flow-hash udp4 sd");
        }
    });
}

/// The driver lets the card go under a running program, which ends with a line, in zero copy and copied; then the card is there again.
#[test]
fn the_driver_lets_the_card_go() {
    let Some(mut guest) = Guest::newer() else { return };
    let [card, _] = CARDS;
    for link in ["", ",copy"] {
        card.tidy(&mut guest);
        card.serve(&mut guest, "udp-echo", link, "");
        answers(card);
        let done = guest.run(
            "bus=$(basename $(readlink /sys/class/net/igb/device)); echo $bus >/sys/bus/pci/drivers/igb/unbind; \
             wait $(cat /run/flowlane.pid); code=$?; rm /run/flowlane.pid; cat /run/flowlane.err; (exit $code)",
        );
        assert_eq!(done.code, 1, "{link}: {}", done.said);
        assert_eq!(
            done.said.matches("af-xdp:igb: the interface is gone").count(),
            1,
            "{link}: {}",
            done.said
        );
        assert!(!done.said.contains("panicked"), "{link}: {}", done.said);
        guest.must(
            "echo $bus >/sys/bus/pci/drivers/igb/bind; name=$(ls /sys/bus/pci/devices/$bus/net); ip link set $name name igb; \
             echo 1 >/proc/sys/net/ipv6/conf/igb/disable_ipv6; ip link set igb up; settle igb",
        );
        card.serve(&mut guest, "udp-echo", link, "");
        answers(card);
        ends(&mut guest);
    }
}

/// A processor is taken away and comes back under pinned workers, and a cpuset takes two of them: everything is answered.
#[test]
fn processors_go_and_come_back() {
    let Some(mut guest) = Guest::newer() else { return };
    let [card, _] = CARDS;
    card.tidy(&mut guest);
    let arguments = "serve udp-echo --link af-xdp:igb --addr 10.9.4.2/24,fd00:9:4::2/64 --port 7 --json";
    let done = guest.start(arguments);
    assert_eq!(done.code, 0, "{}", done.said);
    answers(card);
    for online in [0, 1] {
        guest.must(&format!("echo {online} >/sys/devices/system/cpu/cpu3/online"));
        answers(card);
    }
    guest.must(
        "mkdir -p /run/cgroup; mountpoint -q /run/cgroup || mount -t cgroup2 none /run/cgroup; echo +cpuset >/run/cgroup/cgroup.subtree_control; \
         mkdir -p /run/cgroup/two; echo 0-1 >/run/cgroup/two/cpuset.cpus; cat /run/flowlane.pid >/run/cgroup/two/cgroup.procs",
    );
    answers(card);
    ends(&mut guest);
    // A start with two processors: as many workers, on these. The card's table names four queues, which a table of ours does not.
    let done = guest.run(&format!(
        "cp /proc/self/cgroup /run/was; echo $$ >/run/cgroup/two/cgroup.procs; start flowlane flowlane {arguments} --rss set; code=$?; \
         echo $$ >/run/cgroup/cgroup.procs; (exit $code)"
    ));
    assert_eq!(done.code, 0, "{}", done.said);
    assert!(done.said.contains("workers 2,"), "{}", done.said);
    for target in card.targets() {
        peer::flows(target, 100, 100);
    }
    let ended = ends(&mut guest);
    assert_eq!(number(&ended, "alignment"), 1.0, "{ended}");
    // The kernel has moved the interrupts of a processor that went.
    Metal::interrupts(&mut guest);
}
