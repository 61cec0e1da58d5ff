//! A card's settings: read, changed, put back, shown. Most of it are tests of `links`, which run inside; here is what the command says.

use crate::guest::Guest;

/// The virtio card with four queues and the kernel's table.
fn four_queues(guest: &mut Guest) {
    guest.run("finish flowlane KILL; finish kernel KILL; finish hold KILL; rm -rf /run/flowlane");
    guest.must(
        "ip link set virtio up; settle virtio; ethtool -X virtio default && ethtool -L virtio combined 4",
    );
    guest.must("ethtool -X virtio default");
}

#[test]
fn a_card_is_read_set_and_put_back() {
    let Some(mut guest) = Guest::get() else { return };
    four_queues(&mut guest);
    let done = guest.run("FLOWLANE_CARD=virtio links --test-threads 1 --show-output card:: 2>&1");
    println!("{}", done.said);
    assert_eq!(done.code, 0, "{}", done.said);
    let passed = done.passed();
    assert!(passed >= 7, "{passed} of them ran");
}

/// A run that changed the card is killed: the command puts it back, and so does the next start, each with a line.
#[test]
fn what_a_killed_run_left_is_put_back_by_the_command_and_by_the_next_start() {
    let Some(mut guest) = Guest::get() else { return };
    four_queues(&mut guest);
    let before = guest.must("card virtio");
    let line = leave_changed(&mut guest);
    assert_ne!(before, guest.must("card virtio"), "the run changed it");
    assert_eq!(guest.must("flowlane rss restore"), line);
    assert_eq!(before, guest.must("card virtio"));
    assert_eq!(guest.must("flowlane rss restore virtio"), "virtio: nothing to put back");

    let line = leave_changed(&mut guest);
    let done = guest
        .start("serve udp-echo --link af-xdp:virtio --addr 10.9.1.2/24 --port 7 --workers 4 --no-pin --json");
    assert_eq!(done.code, 0, "{}", done.said);
    assert!(done.said.lines().any(|said| said.ends_with(&line)), "{line}: {}", done.said);
    let done = guest.finish();
    assert_eq!(done.code, 0, "{}", done.said);
    assert_eq!(before, guest.must("card virtio"));

    let file = "/run/flowlane/card-$(stat -Lc %i /proc/self/ns/net)-virtio";
    guest.must(&format!("mkdir -m 700 -p /run/flowlane; (umask 77; echo nonsense >{file})"));
    let done = guest.run("flowlane rss restore virtio");
    assert_eq!((done.code, done.said.lines().count()), (2, 1), "{}", done.said);
    let done = guest.start("serve udp-echo --link af-xdp:virtio --addr 10.9.1.2/24 --port 7 --no-pin --json");
    assert_eq!(done.code, 0, "{}", done.said);
    assert_eq!(done.said.matches("nothing is put back").count(), 1, "it is said once: {}", done.said);
    guest.finish();
    guest.must(&format!("rm {file}"));
}

/// Has a run change the card and be killed: the line that says that it was put back.
fn leave_changed(guest: &mut Guest) -> String {
    guest.must(
        "rm -f /run/hold /run/hold.out; mkfifo /run/hold; exec 7<>/run/hold; FLOWLANE_CARD=virtio FLOWLANE_CARD_HOLD=/run/flowlane \
         links --exact card::holds_until_it_is_killed --nocapture <&7 >/run/hold.out 2>&1 & echo $! >/run/hold.pid",
    );
    guest.must(
        "until grep -q 'is held' /run/hold.out; do kill -0 $(cat /run/hold.pid) || break; usleep 10000; done; cat /run/hold.out; \
         grep -q 'is held' /run/hold.out",
    );
    let running = guest.run("flowlane rss restore virtio");
    assert_eq!(running.code, 1, "{}", running.said);
    assert!(running.said.contains("still runs"), "{}", running.said);
    let pid = guest.must("cat /run/hold.pid");
    guest.must("kill -9 $(cat /run/hold.pid); wait $(cat /run/hold.pid); rm /run/hold.pid; exec 7>&-");
    format!("virtio: RSS is as it was before process {} changed it", pid.trim())
}

/// Does what `rss show` says that mends the card, until it says no more; its last page.
fn mend(guest: &mut Guest) -> String {
    for _ in 0..4 {
        let said = guest.must("flowlane rss show virtio");
        let faults = said.split("Good to know").next().unwrap().split_once("What does not fit together");
        let lines = faults.iter().flat_map(|(_, faults)| faults.lines());
        let commands: Vec<_> = lines.filter_map(|line| line.strip_prefix("      ")).collect();
        if commands.is_empty() {
            return said;
        }
        for command in commands {
            guest.must(command);
        }
    }
    guest.must("flowlane rss show virtio")
}

#[test]
fn cards_are_shown() {
    let Some(mut guest) = Guest::get() else { return };
    four_queues(&mut guest);
    let said = guest.must("flowlane rss show virtio");
    println!("{said}");
    for words in [
        "virtio_net at 0000:",
        "4 to receive, 4 at most",
        "toeplitz, transform none",
        "128 slots",
        "0123012301230123",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    for queue in 0..4 {
        assert!(
            said.lines().any(|l| l.contains(" 32  25.0 % ") && l.contains(&format!("-input.{queue} "))),
            "{said}"
        );
    }
    // What this machine's interrupts are by themselves is mended first, by the commands that are shown.
    let mended = mend(&mut guest);
    assert!(mended.contains("Nothing was found that does not fit together"), "{mended}");
    let irq = |queue: u32| format!("$(sed -n 's/ *\\([0-9]*\\):.*-input.{queue}$/\\1/p' /proc/interrupts)");
    let moved = format!(
        "cat /proc/irq/{}/smp_affinity_list >/run/cpu; cat /run/cpu >/proc/irq/{}/smp_affinity_list",
        irq(2),
        irq(3)
    );
    let faults = [
        ("echo 3 >/sys/class/net/virtio/queues/rx-1/rps_cpus", "RPS moves packets of queue 1"),
        ("ethtool -N virtio rx-flow-hash udp4 sd", "UDP is spread by addresses"),
        (&moved, "the interrupts of queues 2 and 3"),
        (&format!("ethtool -X virtio hkey {}", ["6d:5a"; 20].join(":")), "the key repeats itself"),
    ];
    for (fault, _) in faults {
        guest.must(fault);
    }
    let said = guest.must("flowlane rss show virtio");
    for (_, words) in faults {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(
        said.matches("  * ").count(),
        faults.len() + 1,
        "nothing else, but that virtio forgets: {said}"
    );
    let mended = mend(&mut guest);
    assert!(mended.contains("Nothing was found that does not fit together"), "{mended}");
    let json = guest.must("flowlane rss show virtio --json");
    assert!(
        json.starts_with('{') && json.contains("\"key\":null") && json.contains("\"key-bytes\":40"),
        "{json}"
    );
    let said = guest.must("flowlane rss show vmxnet3");
    println!("{said}");
    assert!(said.contains("vmxnet3 at 0000:") && said.contains("ignores its table"), "{said}");
    let said = guest.must("flowlane rss show e1000e");
    println!("{said}");
    assert!(said.contains("e1000e at 0000:") && said.contains("1 to receive"), "{said}");
    let done = guest.run("flowlane rss show none");
    assert_eq!((done.code, done.said.lines().count()), (2, 1), "{}", done.said);
    guest.must("ethtool -X virtio default; ethtool -K virtio rxhash off");
}
