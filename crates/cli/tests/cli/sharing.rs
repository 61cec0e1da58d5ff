//! Several programs on one interface: one address is one program's, whichever links they use, and whatever becomes of the first.

use flowlane_testnet::{Card, CardConfig, Namespace, PATIENCE, Program};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn flowlane(namespace: &Namespace, link: &str, address: &str, more: &[&str]) -> Command {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_flowlane"));
    command
        .args(["serve", "udp-echo", "--link", link, "--addr", address, "--port", "7"])
        .args(["--workers", "1", "--no-pin", "--json"])
        .args(more)
        .stdin(Stdio::null());
    command
}

/// A server that is up. Killed on drop, as by `kill -9`.
fn serving(namespace: &Namespace, link: &str, address: &str, more: &[&str]) -> Program {
    let mut server = Program::start(flowlane(namespace, link, address, more));
    server.hear("udp-echo on");
    server
}

/// The one line that a server says that must not start.
fn refused(namespace: &Namespace, link: &str, address: &str, more: &[&str]) -> String {
    let Output { status, stderr, .. } = flowlane(namespace, link, address, more).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Asks until there is an answer.
fn echo(card: &Card, address: &str) {
    let ask = || {
        let socket = UdpSocket::bind("10.11.2.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sent = socket.send_to(b"there?", address);
            match sent.and_then(|_| socket.recv(&mut [0; 16])) {
                Ok(n) => return assert_eq!(n, 6),
                Err(e) => assert!(Instant::now() < deadline, "{address}: no answer: {e}"),
            }
        }
    };
    card.far().run(ask).unwrap();
}

#[test]
fn one_address_is_one_programs_and_others_are_others() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let card = Card::new(&CardConfig::for_test("share", 1)).unwrap();
    let near = card.near().unwrap();
    for (first, second) in [("af-packet", "af-packet"), ("af-packet", "af-xdp"), ("af-xdp", "af-packet")] {
        let (first, second) = (format!("{first}:near0"), format!("{second}:near0"));
        let server = serving(near, &first, "10.11.2.2/24", &[]);
        let said = refused(near, &second, "10.11.2.2/24", &[]);
        let owner = format!("10.11.2.2 is already served by process {}", server.id());
        assert!(said.contains(&owner) && said.contains("near0"), "{said}");
        // Nothing was taken from the first.
        echo(&card, "10.11.2.2:7");
        {
            let _beside = serving(near, &second, "10.11.2.3/24", &[]);
            echo(&card, "10.11.2.3:7");
            echo(&card, "10.11.2.2:7");
        }
        // Killed, without a chance to clean up: its address is free.
        drop(server);
        let _next = serving(near, &second, "10.11.2.2/24", &[]);
        echo(&card, "10.11.2.2:7");
    }
}

#[test]
fn a_vlan_has_addresses_of_its_own() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let card = Card::new(&CardConfig::for_test("shvl", 1)).unwrap();
    let near = card.near().unwrap();
    let _untagged = serving(near, "af-packet:near0", "10.11.2.2/24", &[]);
    let _tagged = serving(near, "af-packet:near0", "10.11.2.2/24", &["--vlan", "5"]);
    let said = refused(near, "af-packet:near0", "10.11.2.2/24", &["--vlan", "5"]);
    assert!(said.contains("10.11.2.2 on VLAN 5"), "{said}");
    echo(&card, "10.11.2.2:7");
}

#[test]
fn a_tap_interface_has_one_program_behind_it() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let near = Namespace::new(&format!("fl-shtap-{}", std::process::id())).unwrap();
    near.ip("tuntap add dev tap0 mode tap multi_queue vnet_hdr").unwrap();
    let server = serving(&near, "tap:tap0", "10.11.2.2/24", &[]);
    let said = refused(&near, "tap:tap0", "10.11.2.3/24", &[]);
    assert!(said.contains(&format!("already taken by process {}", server.id())), "{said}");
    // Its kernel's side is another matter.
    drop(serving(&near, "af-packet:tap0", "10.11.2.3/24", &[]));
    drop(server);
    drop(serving(&near, "tap:tap0", "10.11.2.3/24", &[]));
}
