//! Every frame arrives at the worker of its lane, on a virtio card with RSS of 4 queues: with the card's own RSS, and with one of ours.
//!
//! The peer sends datagrams of many flows over both families and a few streams; what the run says at its end is judged.

use crate::guest::Guest;
use crate::peer;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const TARGETS: [&str; 2] = ["10.9.1.2:7", "[fd00:9:1::2]:7"];

/// The card as a freshly started guest has it, with 4 queues and nothing running.
pub(crate) fn tidy(guest: &mut Guest) {
    guest.run("finish flowlane KILL; finish kernel KILL; ip -4 addr flush dev virtio");
    guest.must("ip link set virtio mtu 1500 up; settle virtio");
    guest.must("ethtool -L virtio combined 4 && ethtool -X virtio default");
    peer::program("ip link set virtio mtu 1500");
}

pub(crate) fn serve(guest: &mut Guest, service: &str, more: &str) -> String {
    serve_on(guest, "af-xdp:virtio", service, more)
}

fn serve_on(guest: &mut Guest, link: &str, service: &str, more: &str) -> String {
    let done = guest.start(&format!(
        "serve {service} --link {link} --addr 10.9.1.2/24,fd00:9:1::2/64 --port 7 --no-pin --json {more}"
    ));
    assert_eq!(done.code, 0, "{service} {more}: {}", done.said);
    done.said
}

pub(crate) fn traffic() {
    for target in TARGETS {
        peer::datagrams(target.parse::<SocketAddr>().unwrap(), 1000);
    }
}

/// A number of the summary.
pub(crate) fn number(said: &str, name: &str) -> f64 {
    let summary = said
        .lines()
        .rev()
        .find(|line| line.contains("\"kind\":\"summary\""))
        .unwrap_or_else(|| panic!("{said}"));
    let (_, value) =
        summary.rsplit_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {summary}"));
    value.split([',', '}']).next().unwrap().parse().unwrap()
}

/// Ends the run: all of its frames were aligned, and none of the hashes foreign.
pub(crate) fn ends_aligned(guest: &mut Guest, what: &str) {
    let done = guest.finish();
    assert_eq!(done.code, 0, "{what}: {}", done.said);
    let counts = ["alignment", "misdirected", "foreign-hashes"].map(|name| number(&done.said, name));
    assert_eq!(counts, [1.0, 0.0, 0.0], "{what}: {}", done.said);
    assert!(number(&done.said, "received") >= 150.0, "{what}: {}", done.said);
}

pub(crate) fn settings(guest: &mut Guest) -> String {
    guest.must("card virtio; ethtool -x virtio; ethtool -n virtio rx-flow-hash udp4")
}

/// Without an option: one worker for each of 4 queues and processors, steered by the card as it is, whatever its key, table and fields.
#[test]
fn the_cards_own_rss() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    let key = "01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13:14:15:16:17:18:19:1a:1b:1c:1d:1e:1f:20:21:22:23:24:25:26:27:28";
    for (settings, workers) in [
        ("ethtool -X virtio default", ""),
        ("ethtool -X virtio weight 5 1 0 3", ""),
        (&format!("ethtool -X virtio hkey {key} equal 3"), ""),
        ("ethtool -X virtio equal 4", "--workers 2"),
        ("ethtool -X virtio equal 4", "--workers 3"),
        ("ethtool -N virtio rx-flow-hash udp4 sd", "--workers 2"),
        ("ethtool -N virtio rx-flow-hash udp4 sdfn", "--udp-4tuple"),
    ] {
        guest.must(settings);
        let said = serve(&mut guest, "udp-echo", workers);
        assert!(said.contains("steered by the card"), "{settings}: {said}");
        traffic();
        ends_aligned(&mut guest, settings);
    }
    // Two queues. This driver keeps the table, which names the other two still: that is said, and how it is mended.
    guest.must("ethtool -X virtio default && ethtool -L virtio combined 2");
    let said = serve(&mut guest, "udp-echo", "");
    assert!(said.contains("names queue 2, but 2 are served: 'ethtool -X virtio default'"), "{said}");
    assert_eq!(guest.finish().code, 0);
    serve(&mut guest, "udp-echo", "--rss set");
    traffic();
    ends_aligned(&mut guest, "two queues, a table of ours");
    guest.must("ethtool -X virtio default");
    serve(&mut guest, "udp-echo", "");
    traffic();
    ends_aligned(&mut guest, "two queues");
    tidy(&mut guest);
    serve(&mut guest, "tcp-echo", "");
    for target in TARGETS.iter().cycle().take(6) {
        peer::stream(target.parse().unwrap(), 20_000);
    }
    let done = guest.finish();
    assert_eq!((done.code, number(&done.said, "alignment")), (0, 1.0), "{}", done.said);
}

/// Our key, table and fields on the card, which is left as it was: after a clean end, and after it was killed.
#[test]
fn an_rss_of_ours_on_the_card() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    guest.must("ethtool -X virtio weight 1 2 3 4");
    let before = settings(&mut guest);
    for more in ["", "--workers 2", "--workers 3 --udp-4tuple"] {
        let said = serve(&mut guest, "udp-echo", &format!("--rss set {more}"));
        assert!(said.contains("steered by the card"), "{said}");
        assert_ne!(settings(&mut guest), before, "our key is on the card");
        traffic();
        ends_aligned(&mut guest, more);
        assert_eq!(settings(&mut guest), before, "after the end");
    }
    // A table that its user sets meanwhile is the user's, and so is not put back unasked.
    serve(&mut guest, "udp-echo", "--rss set");
    guest.must("ethtool -X virtio weight 1 1 0 0");
    let theirs = guest.must("ethtool -x virtio | sed '/hash key/,$d'");
    assert_eq!(guest.finish().code, 0);
    assert_eq!(guest.must("ethtool -x virtio | sed '/hash key/,$d'"), theirs);
    guest.must("flowlane rss restore virtio --force");
    assert_eq!(settings(&mut guest), before, "put back when it was asked for");
    serve(&mut guest, "udp-echo", "--rss set");
    guest.run("finish flowlane KILL; until ! pidof flowlane; do usleep 10000; done");
    assert_eq!(settings(&mut guest), before, "after it was killed");
}

/// What happens to the card while we run: the link goes down and comes back, and every frame is aligned still. Its table is changed: that is
/// said, every datagram is answered, and the lanes move to where their frames come. At the end the card is as its user has set it.
#[test]
fn what_others_do_to_the_card() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    serve(&mut guest, "udp-echo", "");
    traffic();
    guest.must("ip link set virtio down && ip link set virtio up && settle virtio");
    traffic();
    // This driver does not change its queues while an XDP program is there.
    assert_ne!(guest.run("ethtool -L virtio combined 2").code, 0);
    traffic();
    ends_aligned(&mut guest, "down and up");
    serve(&mut guest, "udp-echo", "");
    guest.must("ethtool -X virtio weight 0 0 0 1");
    let theirs = guest.must("ethtool -x virtio");
    traffic();
    for _ in 0..5 {
        traffic();
    }
    let done = guest.finish();
    assert_eq!(done.code, 0, "{}", done.said);
    assert!(done.said.contains("somebody changed the card's table: lanes move"), "{}", done.said);
    let [aligned, strayed] = ["alignment", "misdirected"].map(|name| number(&done.said, name));
    assert!(aligned > 0.6 && strayed >= 64.0, "{}", done.said);
    let counts = ["dropped", "followed", "set-again", "slots-moved"].map(|name| number(&done.said, name));
    assert_eq!(counts, [0.0, 1.0, 0.0, 0.0], "{}", done.said);
    assert_eq!(guest.must("ethtool -x virtio"), theirs, "its user's table stays");
}

/// The link goes down and comes back while lanes move, and also while the card is being changed: every datagram of later flows is answered,
/// every frame comes to its lane's worker, and the card is left as it was.
#[test]
fn the_link_goes_down_while_lanes_move() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    let before = settings(&mut guest);
    for more in ["", "--rss set --workers 2"] {
        serve(&mut guest, "udp-echo", &format!("--control {more}"));
        traffic();
        let workers = if more.is_empty() { 4 } else { 2 };
        for round in 1..3 {
            let moves: String =
                (0..8).map(|b| format!("flowlane lanes move {b} {};", (b + round) % workers)).collect();
            guest.must(&format!(
                "({moves}) & ip link set virtio down; ip link set virtio up; usleep 100000; ip link set virtio down; ip link set virtio up; \
                 wait $!; settle virtio"
            ));
            traffic();
        }
        let done = guest.finish();
        assert_eq!(done.code, 0, "{more}: {}", done.said);
        let counts = ["misdirected", "refused", "foreign-hashes"].map(|name| number(&done.said, name));
        assert_eq!(counts, [0.0; 3], "{more}: {}", done.said);
        assert!(number(&done.said, "alignment") > 0.97, "{more}: {}", done.said);
        assert!(number(&done.said, "slots-moved") > 8.0, "{more}: {}", done.said);
        assert_eq!(settings(&mut guest), before, "{more}");
    }
}

/// The second process, which changes the card's table, is stopped for a while and then killed, alone. While it is stopped a move waits;
/// when it is gone lanes move all the same, and their packets are handed over. The command puts the card back.
#[test]
fn the_second_process_alone_is_stopped_and_killed() {
    const SECOND: &str = "$(grep -l 'restore-car[d]' /proc/[0-9]*/cmdline | cut -d/ -f3)";
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    let before = settings(&mut guest);
    for more in ["", "--rss set"] {
        serve(&mut guest, "udp-echo", &format!("--control {more}"));
        traffic();
        // Bucket 0 is told to move three times while nobody answers: a later move is refused while
        // an earlier one waits, else it is the next. Its packets are answered.
        guest.must(&format!("kill -STOP {SECOND}"));
        guest.must(
            ": >/run/said; for w in 1 2 3; do flowlane lanes move 0 $w >>/run/said 2>&1 & echo $!; done >/run/moving",
        );
        traffic();
        let said = guest.must(&format!("kill -CONT {SECOND}; wait $(cat /run/moving); cat /run/said"));
        let known =
            |line: &&str| line.contains("is being moved already") || line.contains("moved from worker");
        assert_eq!(said.lines().filter(known).count(), 3, "{more}: {said}");
        traffic();
        guest.must(&format!("kill -9 {SECOND}"));
        let moves: String = (0..8).map(|b| format!("flowlane lanes move {b} {};", (b + 1) % 4)).collect();
        guest.must(&moves);
        let said = guest.must("flowlane stat");
        traffic();
        let done = guest.finish();
        assert_eq!(done.code, 0, "{more}: {}", done.said);
        assert!(done.said.contains("'flowlane rss restore virtio' does"), "{more}: {}", done.said);
        assert!(
            done.said.contains("the card refused to send them to its new queue"),
            "{more}: {}",
            done.said
        );
        let counts = ["misdirected", "dropped", "foreign-hashes"].map(|name| number(&done.said, name));
        assert_eq!(counts, [0.0; 3], "{more}: {}{said}", done.said);
        assert!(number(&done.said, "refused") > 0.0, "{more}: {}", done.said);
        guest.must("flowlane rss restore virtio");
        assert_eq!(settings(&mut guest), before, "{more}");
    }
}

/// `--rebalance`: a table by weights gives one worker most of the load. Lanes leave it, the card's table follows them, connections live on, and
/// the table is put back.
#[test]
fn lanes_that_move_by_themselves_take_their_slots_along() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    guest.must("ethtool -X virtio weight 13 1 1 1");
    let before = settings(&mut guest);
    serve(&mut guest, "tcp-echo", "--rebalance --control");
    until_lanes_move(&mut guest, TARGETS[0].parse().unwrap());
    assert_eq!(settings(&mut guest), before);
    tidy(&mut guest);
}

/// Has connections be busy until lanes have moved by themselves and their slots with them; then each is alive, and the run ends well.
pub(crate) fn until_lanes_move(guest: &mut Guest, target: SocketAddr) {
    let mut streams: Vec<_> = (0..48).map(|_| peer::Stream::open(target)).collect();
    let begun = std::time::Instant::now();
    let moved = AtomicBool::new(false);
    // The load goes on while the guest is asked, which takes seconds.
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            while !moved.load(Relaxed) && begun.elapsed().as_secs() < 90 {
                peer::Stream::all_echo(&mut streams, 1000);
            }
        });
        while !guest.must("flowlane stat").contains("slots moved") {
            assert!(begun.elapsed().as_secs() < 60, "no lane has moved: {}", guest.must("flowlane lanes"));
            assert!(!busy.is_finished(), "the streams have ended");
        }
        moved.store(true, Relaxed);
    });
    // Frames that were on their way while lanes moved are few beside what comes then.
    for _ in 0..20 {
        peer::Stream::all_echo(&mut streams, 1000);
    }
    drop(streams);
    let done = guest.finish();
    assert_eq!(done.code, 0, "{}", done.said);
    // Segments that a slow peer repeated are dropped as such.
    let counts = ["misdirected", "refused", "foreign-hashes"].map(|name| number(&done.said, name));
    assert_eq!(counts, [0.0; 3], "{}", done.said);
    assert!(number(&done.said, "moves") > 0.0 && number(&done.said, "slots-moved") > 0.0, "{}", done.said);
    assert!(number(&done.said, "alignment") > 0.95, "{}", done.said);
}

/// Two programs on one card: the first has set its RSS, so the second takes that over, or is told why it cannot set its own.
#[test]
fn two_programs_on_one_card() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    let before = settings(&mut guest);
    serve(&mut guest, "udp-echo", "--rss set");
    // AF_XDP takes one program a card; what fails changes nothing for the first.
    for more in ["", "--rss set"] {
        let second = guest.run(&format!(
            "flowlane serve udp-echo --link af-xdp:virtio --addr 10.9.1.4/24 --port 7 --no-pin --json {more}"
        ));
        assert_eq!(second.code, 2, "{}", second.said);
    }
    traffic();
    ends_aligned(&mut guest, "beside a second");
    assert_eq!(settings(&mut guest), before);
}

/// The generator over the card: what answers to its flows, from ports of each lane's own, comes to the lane that sent them.
#[test]
fn the_generators_answers_come_home() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    guest.must("ethtool -X virtio weight 1 2 3 4");
    let before = settings(&mut guest);
    let echo = UdpSocket::bind("10.9.1.1:9007").unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((n, from)) = echo.recv_from(&mut datagram) {
            let _ = echo.send_to(&datagram[..n], from);
        }
    });
    for more in ["", "--rss set", "--rss set --workers 2"] {
        let said = guest
            .run(&format!(
                "flowlane load udp 10.9.1.1:9007 --link af-xdp:virtio --addr 10.9.1.2/24 --no-pin --rate 500 -d 1s --flows 64 --json --quiet {more}"
            ))
            .said;
        let value = |name: &str| -> f64 {
            let (_, value) = said.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{said}"));
            value
                .split([',', '}'])
                .next()
                .unwrap()
                .trim()
                .parse()
                .unwrap_or_else(|_| panic!("{name}: {said}"))
        };
        assert_eq!(value("alignment"), 1.0, "{more}: {said}");
        assert!(value("answered") > 100.0, "{more}: {said}");
    }
    assert_eq!(settings(&mut guest), before, "put back");
}

/// A lane that moves takes its slots of the card's table along: its packets come to its new worker. At the end, and after `kill -9`, the table
/// is as it was.
#[test]
fn moved_lanes_take_their_slots_along() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    let before = settings(&mut guest);
    for (more, killed) in [("", false), ("--rss set", false), ("--workers 2", true), ("--rss set", true)] {
        serve(&mut guest, "udp-echo", &format!("--control {more}"));
        traffic();
        let running = settings(&mut guest);
        let moves: String = (0..8).map(|b| format!("flowlane lanes move {b} {};", (b + 1) % 2)).collect();
        let said = guest.must(&format!("{moves} flowlane lanes --interval 10ms; flowlane stat"));
        assert!(said.contains("slots moved"), "{more}: {said}");
        assert_ne!(settings(&mut guest), running, "{more}: the card's table has changed");
        traffic();
        if killed {
            guest.run("finish flowlane KILL; until ! pidof flowlane; do usleep 10000; done");
        } else {
            let done = guest.finish();
            let counts = ["misdirected", "refused", "dropped"].map(|name| number(&done.said, name));
            assert_eq!(counts, [0.0; 3], "{more}: {}", done.said);
            // ARP has no flow, comes on queue 0, and is handed over to where the first lane is.
            assert!(number(&done.said, "alignment") > 0.97, "{more}: {}", done.said);
            assert!(number(&done.said, "slots-moved") > 8.0, "{more}: {}", done.said);
        }
        assert_eq!(settings(&mut guest), before, "{more}, killed {killed}");
    }
}

/// Workers are bound to the processors that handle their queues' interrupts.
#[test]
fn workers_are_near_their_interrupts() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    let interrupts = |guest: &mut Guest, cpu_of_queue: &str| {
        guest.must(&format!(
            "for q in 0 1 2 3; do irq=$(grep \"input.$q\" /proc/interrupts | cut -d: -f1 | tr -d ' '); \
             echo $(({cpu_of_queue})) > /proc/irq/$irq/smp_affinity_list; done"
        ));
    };
    interrupts(&mut guest, "3 - $q");
    let done =
        guest.start("serve udp-echo --link af-xdp:virtio --addr 10.9.1.2/24,fd00:9:1::2/64 --port 7 --json");
    assert_eq!(done.code, 0, "{}", done.said);
    let bound = guest.must(
        "for t in /proc/[0-9]*/task/*/status; do n=$(grep Name: $t | cut -f2); \
         case $n in flowlane-[0-9]*) echo $n on $(grep Cpus_allowed_list: $t | cut -f2);; esac; done",
    );
    for worker in 0..4 {
        assert!(bound.contains(&format!("flowlane-{worker} on {}", 3 - worker)), "{bound}");
    }
    traffic();
    ends_aligned(&mut guest, "near the interrupts");
    interrupts(&mut guest, "$q");
}

/// Two of the card's four queues: with a table that names them, the card's or ours, everything is aligned, also after lanes have moved.
#[test]
fn some_of_the_queues() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    let link = "af-xdp:virtio,queues=0-1";
    let said = serve_on(&mut guest, link, "udp-echo", "");
    assert!(said.contains("names queue 2, but 2 are served: '--rss set'"), "{said}");
    assert_eq!(guest.finish().code, 0);
    let before = settings(&mut guest);
    serve_on(&mut guest, link, "udp-echo", "--rss set");
    traffic();
    ends_aligned(&mut guest, "a table of ours");
    assert_eq!(settings(&mut guest), before);
    guest.must("ethtool -X virtio weight 3 1 0 0");
    let before = settings(&mut guest);
    serve_on(&mut guest, link, "udp-echo", "--control");
    traffic();
    guest.must(
        "flowlane lanes move 0 1; flowlane lanes move 1 0; flowlane lanes move 2 1; flowlane lanes move 3 0",
    );
    traffic();
    let done = guest.finish();
    let counts = ["misdirected", "refused", "dropped"].map(|name| number(&done.said, name));
    assert_eq!((done.code, counts), (0, [0.0; 3]), "{}", done.said);
    assert!(
        number(&done.said, "alignment") > 0.97 && number(&done.said, "slots-moved") > 0.0,
        "{}",
        done.said
    );
    assert_eq!(settings(&mut guest), before);
    // What this card does not hash comes on queue 0.
    let said = serve_on(&mut guest, "af-xdp:virtio,queues=1-2", "udp-echo", "");
    assert!(said.contains("names queue 0, but 1 to 2 are served") && said.contains("ARP"), "{said}");
    assert_eq!(guest.finish().code, 0);
    let said =
        guest.run("flowlane serve udp-echo --link af-xdp:virtio,queues=3-4 --addr 10.9.1.2/24 --port 7");
    assert_eq!((said.code, said.said.lines().count()), (2, 1), "{}", said.said);
    tidy(&mut guest);
}

/// Queues that do not begin at 0. This card hashes IPv6 that is neither TCP nor UDP by addresses, so that neighbours are found there, too; ARP
/// comes on queue 0 and is the kernel's.
#[test]
fn queues_that_do_not_begin_at_0() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    guest.must("ethtool -X virtio weight 0 0 3 1");
    let before = settings(&mut guest);
    let target = TARGETS[1].parse::<SocketAddr>().unwrap();
    for (more, moves) in [("", true), ("--rss set", false), ("--rss set", true)] {
        let said = serve_on(&mut guest, "af-xdp:virtio,queues=2-3", "udp-echo", &format!("--control {more}"));
        assert!(said.contains("steered by the card") && said.contains("ARP"), "{said}");
        peer::datagrams(target, 1000);
        if moves {
            let moved: String = (0..4).map(|b| format!("flowlane lanes move {b} {};", (b + 1) % 2)).collect();
            guest.must(&moved);
            let table = guest.must("ethtool -x virtio | sed '/hash key/,$d' | grep ': *[0-9]'");
            assert!(
                !table.split(':').skip(1).any(|row| row.lines().next().unwrap().contains(['0', '1'])),
                "{table}"
            );
            peer::datagrams(target, 1000);
        }
        let done = guest.finish();
        let counts =
            ["misdirected", "refused", "dropped", "foreign-hashes"].map(|name| number(&done.said, name));
        assert_eq!((done.code, counts), (0, [0.0; 4]), "{more}: {}", done.said);
        assert!(number(&done.said, "alignment") > 0.97, "{more}: {}", done.said);
        assert_eq!(number(&done.said, "slots-moved") > 0.0, moves, "{more}: {}", done.said);
        assert_eq!(settings(&mut guest), before, "{more}");
    }
    tidy(&mut guest);
}

/// A file says what the card does. Where it has the table that the driver shows, that follows lanes that move; where it has another one, a
/// line says that it does not.
#[test]
fn a_card_steered_by_a_file() {
    let Some(mut guest) = Guest::get() else { return };
    tidy(&mut guest);
    guest.must("ethtool -X virtio equal 4");
    let before = settings(&mut guest);
    let key = guest.must("ethtool -x virtio | sed -n '/hash key/{n;s/://g;p}'");
    let queues = vec!["0,1,2,3"; 32].join(",");
    let rule = format!(
        "{{\"version\":1,\"what\":\"for a test\",\"learned-from\":\"a test\",\"findings\":[],\"hashes\":true,\"kinds\":[\"ipv4\",\
         \"tcp-ipv4\",\"udp-ipv4\",\"ipv6\",\"tcp-ipv6\",\"udp-ipv6\"],\"arrangement\":\"plain\",\"key\":\"{}\",\
         \"udp-ports\":true,\"maps\":[],\"queues\":[{queues}]}}",
        key.trim()
    );
    guest.must(&format!("echo '{rule}' >/run/rule"));
    let said = serve(&mut guest, "udp-echo", "--control --rss /run/rule");
    assert!(said.contains("steered by the card") && !said.contains("does not follow"), "{said}");
    traffic();
    let moves: String = (0..8).map(|b| format!("flowlane lanes move {b} {};", (b + 1) % 2)).collect();
    guest.must(&moves);
    traffic();
    let done = guest.finish();
    let counts = ["misdirected", "refused", "dropped", "foreign-hashes"].map(|name| number(&done.said, name));
    assert_eq!((done.code, counts), (0, [0.0; 4]), "{}", done.said);
    assert!(number(&done.said, "alignment") > 0.97, "{}", done.said);
    assert!(number(&done.said, "slots-moved") > 8.0, "{}", done.said);
    assert_eq!(settings(&mut guest), before);
    guest.must("ethtool -X virtio weight 5 1 0 3");
    let said = serve(&mut guest, "udp-echo", "--rss /run/rule");
    assert!(
        said.contains("its table does not follow lanes that move")
            && said.contains("another one than the file"),
        "{said}"
    );
    assert_eq!(guest.finish().code, 0);
    tidy(&mut guest);
}
