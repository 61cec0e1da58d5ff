//! Everything else of the project on the driver of Intel's cards, in zero copy: fragments, many flows, VLANs, tunnels, lanes that move, the
//! switch, the relay, captures, kernel sockets behind the card, the generator. What the guest cannot be asked of, the peer's `flowlane` is.

use super::{CARDS, Metal, ends};
use crate::alignment::{self, number};
use crate::guest::Guest;
use crate::peer;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};

/// The guest with igb in order.
fn igb() -> Option<(std::sync::MutexGuard<'static, Guest>, Metal)> {
    let mut guest = Guest::newer()?;
    let [card, _] = CARDS;
    card.tidy(&mut guest);
    Some((guest, card))
}

/// Another `flowlane`, on the other side of the cards, runs to its end: what it said. Its exit code says also whether it kept to its
/// schedule, which a busy machine keeps it from.
fn flowlane(arguments: &str) -> String {
    let binary = std::env::var("FLOWLANE_GUEST_BINARY").unwrap();
    let output = std::process::Command::new(binary).args(arguments.split_whitespace()).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Everything that the generator sent was answered.
fn all_answered(said: &str) {
    let count = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{said}"));
        line.split_whitespace().next().map(str::to_owned)
    };
    let (sent, answered) = (count("sent "), count("answered "));
    assert!(sent == answered && sent.is_some_and(|n| n != "0"), "{said}");
}

/// 2,000 flows, each at its worker; datagrams in six fragments; a capture has what came.
#[test]
fn many_flows_and_fragments_and_a_capture() {
    let Some((mut guest, card)) = igb() else { return };
    let before = card.settings(&mut guest);
    card.serve(&mut guest, "udp-echo", "", "--rss set --capture /run/capture.pcapng,snap=64");
    peer::flows(card.targets()[0], 2000, 100);
    let ended = ends(&mut guest);
    assert_eq!(number(&ended, "alignment"), 1.0, "{ended}");
    let seen = guest.must("grep -ao 'received; worker' /run/capture.pcapng | wc -l; rm /run/capture.pcapng");
    assert!(seen.trim().parse::<u32>().unwrap() >= 2000, "{seen}");
    card.serve(&mut guest, "udp-echo", "", "--rss set");
    for target in card.targets() {
        peer::datagrams(target, 8000);
    }
    let ended = ends(&mut guest);
    assert_eq!(number(&ended, "dropped"), 0.0, "{ended}");
    assert_eq!(before, card.settings(&mut guest));
}

/// A VLAN, whose tag the card would take off, and a tunnel.
#[test]
fn vlans_and_tunnels() {
    let Some((mut guest, card)) = igb() else { return };
    let before = card.settings(&mut guest);
    let done = guest.start(
        "serve udp-echo --link af-xdp:igb --addr 10.9.40.2/24,fd00:9:40::2/64 --port 7 --vlan 78 --no-pin --json",
    );
    assert_eq!(done.code, 0, "{}", done.said);
    for target in ["10.9.40.2:7", "[fd00:9:40::2]:7"] {
        peer::tagged("igb", target.parse().unwrap(), 78);
    }
    ends(&mut guest);
    assert_eq!(before, card.settings(&mut guest), "after a VLAN");
    card.serve(
        &mut guest,
        "udp-echo",
        "",
        "--tunnel vxlan,vni=7,local=10.9.4.2,remote=10.9.4.3,addr=192.168.9.1/24",
    );
    all_answered(&flowlane(
        "load udp 192.168.9.1:7 --link af-packet:igb --addr 10.9.4.3/24 --tunnel vxlan,vni=7,local=10.9.4.3,remote=10.9.4.2,addr=192.168.9.2/24 \
         --no-pin --rate 500 -d 300ms",
    ));
    ends(&mut guest);
}

/// A lane that moves takes its slots of the table along, and the table is put back.
#[test]
fn lanes_move_with_their_slots() {
    let Some((mut guest, card)) = igb() else { return };
    let before = card.settings(&mut guest);
    card.serve(&mut guest, "udp-echo", "", "--rss set --control");
    peer::flows(card.targets()[0], 100, 100);
    let moves: String = (0..8).map(|b| format!("flowlane lanes move {b} {};", (b + 1) % 2)).collect();
    let said = guest.must(&format!("{moves} flowlane lanes --interval 10ms; flowlane stat"));
    assert!(said.contains("slots moved"), "{said}");
    for target in card.targets() {
        peer::flows(target, 100, 100);
    }
    let ended = ends(&mut guest);
    let counts = ["misdirected", "refused", "dropped"].map(|name| number(&ended, name));
    assert_eq!(counts, [0.0; 3], "{ended}");
    assert!(number(&ended, "alignment") > 0.97 && number(&ended, "slots-moved") > 8.0, "{ended}");
    assert_eq!(before, card.settings(&mut guest));
}

/// `--rebalance`: a table by weights gives one worker most of the load. Lanes leave it, the card's table follows them, connections live on,
/// and the table is put back.
#[test]
fn lanes_move_by_themselves() {
    let Some((mut guest, card)) = igb() else { return };
    guest.must("ethtool -X igb weight 13 1 1 1");
    let before = card.settings(&mut guest);
    card.serve(&mut guest, "tcp-echo", "", "--rebalance --control");
    alignment::until_lanes_move(&mut guest, card.targets()[0]);
    assert_eq!(before, card.settings(&mut guest));
}

/// The relay's two sides over the card: a stream to the peer's kernel and back through it, by digest.
#[test]
fn a_relay() {
    let Some((mut guest, card)) = igb() else { return };
    let listener = TcpListener::bind("10.9.4.1:9008").unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut writing = stream.try_clone().unwrap();
        let mut bytes = vec![0; 65536];
        while let Ok(n @ 1..) = stream.read(&mut bytes) {
            writing.write_all(&bytes[..n]).unwrap();
        }
    });
    card.serve(&mut guest, "relay", "", "--to 10.9.4.1:9008");
    let took = peer::stream(card.targets()[0], 2_000_000);
    println!("2 MB through the relay and back in {took:?}");
    echo.join().unwrap();
    ends(&mut guest);
}

/// A switch of the guest joins igb in zero copy and e1000e: a generator on the one side, its target on the other.
#[test]
fn a_switch_between_two_cards() {
    let Some((mut guest, _)) = igb() else { return };
    guest.must("settle e1000e");
    let done = guest.run(
        "flowlane switch up --port p1=af-xdp:igb --port p2=af-xdp:e1000e >/run/switch.out 2>&1 & echo $! >/run/switch.pid; \
         i=0; until flowlane switch show >/run/switch.show 2>&1; do kill -0 $(cat /run/switch.pid) || break; usleep 50000; done; \
         cat /run/switch.out /run/switch.show; kill -0 $(cat /run/switch.pid) && settle igb",
    );
    assert_eq!(done.code, 0, "{}", done.said);
    let binary = std::env::var("FLOWLANE_GUEST_BINARY").unwrap();
    let serve =
        "serve udp-echo --link af-packet:e1000e --addr 10.9.77.7/24 --port 7 --workers 1 --no-pin --json";
    let mut target = std::process::Command::new(binary).args(serve.split_whitespace()).spawn().unwrap();
    let said = flowlane(
        "load udp 10.9.77.7:7 --link af-packet:igb --addr 10.9.77.6/24 --workers 1 --no-pin --rate 500 -d 1s",
    );
    target.kill().unwrap();
    target.wait().unwrap();
    let shown = guest
        .run("flowlane switch show; flowlane switch down; wait $(cat /run/switch.pid); cat /run/switch.out");
    println!("{}", shown.said);
    all_answered(&said);
}

/// Kernel sockets behind the card, and the generator on it: each packet at its lane's worker.
#[test]
fn kernel_sockets_and_the_generator() {
    let Some((mut guest, card)) = igb() else { return };
    let before = card.settings(&mut guest);
    guest.must("ip addr add 10.9.4.2/24 dev igb; ethtool -N igb rx-flow-hash udp4 sdfn");
    for steer in ["cpu", "hash"] {
        let done = guest.start(&format!("serve udp-echo --link kernel:igb --steer {steer} --port 7 --json"));
        assert_eq!(done.code, 0, "{}", done.said);
        peer::flows(card.targets()[0], 200, 100);
        let ended = ends(&mut guest);
        assert_eq!(number(&ended, "alignment"), 1.0, "{steer}: {ended}");
    }
    guest.must("ip -4 addr flush dev igb; ethtool -N igb rx-flow-hash udp4 sd");
    let echo = UdpSocket::bind("10.9.4.1:9007").unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((n, from)) = echo.recv_from(&mut datagram) {
            let _ = echo.send_to(&datagram[..n], from);
        }
    });
    let said = guest.run(
        "flowlane load udp 10.9.4.1:9007 --link af-xdp:igb --addr 10.9.4.2/24 --no-pin --rate 500 -d 1s --flows 64 --json --quiet --rss set \
         2>/dev/null | grep -E '\"(alignment|answered)\"'",
    );
    let answered = said.said.lines().find_map(|line| line.trim().strip_prefix("\"answered\": "));
    assert!(answered.is_some_and(|n| n != "0,"), "{}", said.said);
    assert!(said.said.contains("\"alignment\": 1.0"), "{}", said.said);
    assert_eq!(before, card.settings(&mut guest));
}
