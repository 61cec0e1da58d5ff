//! A machine of two NUMA nodes, each with four processors and half of the memory, and igb at the second of them.

use super::{CARDS, ends};
use crate::guest::Guest;
use crate::peer;

/// What `rss show` says of the node, and of interrupts that are handled at the other one; `rss tune` brings them to the card's.
/// The workers of a run are at its processors, and its frames in its memory.
#[test]
fn workers_interrupts_and_frames_are_at_the_cards_node() {
    let Some(mut guest) = Guest::numa() else { return };
    let guest = &mut *guest;
    let [card, _] = CARDS;
    card.tidy(guest);
    assert_eq!(guest.must("cat /sys/class/net/igb/device/numa_node"), "1");
    let interrupts =
        "for q in 0 1 2 3; do irq=$(sed -n \"s/ *\\([0-9]*\\):.*igb-rx-$q\\$/\\1/p\" /proc/interrupts)";
    guest.must(&format!("{interrupts}; echo $q >/proc/irq/$irq/smp_affinity_list; done"));
    // An interrupt whose processors were changed moves when it fires.
    guest.must("ip addr add 10.9.4.2/24 dev igb");
    peer::ping(card.targets()[0].ip());
    let shown = guest.must("flowlane rss show igb");
    println!("{shown}");
    assert!(shown.contains("NUMA node 1 (CPUs 4-7)"), "{shown}");
    let in_a_line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        in_a_line.contains("queue 0 is handled by CPU 0, and the card is at node 1 (CPUs 4-7)"),
        "{shown}"
    );
    println!("{}", guest.must("flowlane rss tune igb --apply --queues 4"));
    let now = guest.must(&format!("{interrupts}; cat /proc/irq/$irq/smp_affinity_list; done"));
    let mut processors: Vec<&str> = now.lines().collect();
    processors.sort_unstable();
    assert_eq!(processors, ["4", "5", "6", "7"], "interrupts by queue");
    guest.must("ip -4 addr flush dev igb");
    let done =
        guest.start("serve udp-echo --link af-xdp:igb --addr 10.9.4.2/24,fd00:9:4::2/64 --port 7 --json");
    assert_eq!(done.code, 0, "{}", done.said);
    for target in card.targets() {
        peer::flows(target, 100, 700);
    }
    let bound = guest.must(
        "for t in /proc/[0-9]*/task/*/status; do n=$(grep Name: $t | cut -f2); \
         case $n in flowlane-[0-9]*) grep Cpus_allowed_list: $t | cut -f2;; esac; done",
    );
    let mut bound: Vec<&str> = bound.lines().collect();
    bound.sort_unstable();
    assert_eq!(bound, ["4", "5", "6", "7"], "workers");
    let maps = guest.must("cat /proc/$(cat /run/flowlane.pid)/numa_maps");
    // Frames and what is known of each, and the rings of the sockets.
    for (what, of) in [("prefer:1", 2), ("file=socket:", 16)] {
        let touched = |line: &&str| line.contains(what) && (line.contains(" N0=") || line.contains(" N1="));
        let lines: Vec<&str> = maps.lines().filter(touched).collect();
        assert!(lines.len() >= of, "{what}: {maps}");
        assert!(lines.iter().all(|line| !line.contains(" N0=")), "{what}: {lines:?}");
    }
    ends(guest);
    guest.must("flowlane rss restore igb");
}
