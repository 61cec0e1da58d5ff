//! What is refused, with one line and before anything exists.

use super::kit::*;
use flowlane_testnet::{Namespace, Scratch};
use std::process::{Command, Stdio};

#[test]
fn bad_arguments_are_refused() {
    for (more, says) in [
        ("--queues 0", "--queues 0: must be from 1 to 256"),
        ("--queues 257", "--queues 257: must be from 1 to 256"),
        ("--workers 0", "--workers 0"),
        ("--queues 2 --workers 3", "--workers 3: must be from 1 to the number of queues, 2"),
        ("--mtu 67", "--mtu 67"),
        ("--mtu 65522", "--mtu 65522"),
        ("--rss 00", "--rss"),
        ("--queues 2 --rss 00000000000000000000000000000000", "--rss"),
        ("--a-to-b loss", "--a-to-b"),
        ("--b-to-a slots=4x1ms,slot=4", "--b-to-a"),
        ("--limit 1k", "--limit 1000"),
        ("--slots 4x1ms --slot 4", "slot 4"),
        ("--slots 4x1ms --slot 1 --guard 1ms", "guard"),
        ("--delay 2h", "hour"),
        ("--rate 1", "--rate 1: must be at least 1212 bits a second"),
        ("--a-to-b rate=7k --mtu 9000", "--a-to-b: --rate 7000: must be at least 7212 bits a second"),
    ] {
        let said = refused(&format!("epair up fl-a fl-b {more}"));
        assert!(said.contains(says), "{more}: {said}");
    }
    assert!(refused("epair up fl-a fl-a").contains("twice"));
    // Of these clap says more than a line.
    for more in ["--loss 101%", "--loss x", "--rate fast", "--slots 4x1ms", "--slot 1", "--slots 4 --slot 1"]
    {
        let output = flowlane(&format!("epair up fl-a fl-b {more}"));
        assert_eq!(output.status.code(), Some(2), "{more}");
    }
    assert!(refused("epair set --control /nowhere/at/all").contains("nothing to set"));
    let said = refused("epair show --control /nowhere/at/all");
    assert!(said.contains("no instance answers there"), "{said}");
}

/// Without a pair there is nothing to ask, which is a matter of what was typed: 2, as of `stat` and `switch`.
#[test]
fn no_pair_to_ask() {
    let scratch = Scratch::new("no-pair");
    for what in ["show", "down", "set --loss 1%"] {
        let output =
            command(&format!("epair {what}")).env("XDG_RUNTIME_DIR", scratch.dir()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{what}: {said}");
        assert!(said.contains("no pair of this user answers"), "{what}: {said}");
    }
}

#[test]
fn names_and_namespaces_that_are_none() {
    if !can() {
        return;
    }
    let said = refused("epair up fl-a a-name-that-is-too-long");
    assert!(said.contains("1 to 15 characters"), "{said}");
    let said = refused("epair up fl-a fl-b --netns-b fl-no-such-namespace");
    assert!(said.contains("there is no network namespace /run/netns/fl-no-such-namespace"), "{said}");
    for path in ["/dev/null", "/proc/self/ns/uts"] {
        let said = refused(&format!("epair up fl-a fl-b --netns-a {path}"));
        assert!(said.contains(&format!("{path}: not a network namespace")), "{said}");
    }
    let said = refused("epair up lo fl-b");
    assert!(said.contains("'lo' is taken"), "{said}");
    let space = Namespace::new(&format!("fl-epn-{}", std::process::id())).unwrap();
    for name in ["fl-a", "fl-b"] {
        assert_eq!(state(&space, name), "gone");
    }
}

/// As root without capabilities.
#[test]
fn without_rights_it_says_which() {
    if !can() {
        return;
    }
    for (kept, names) in [("-all", "CAP_NET_ADMIN"), ("-all,+sys_admin", "CAP_NET_ADMIN")] {
        let output = Command::new("setpriv")
            .args(["--no-new-privs", "--inh-caps=-all", &format!("--bounding-set={kept}")])
            .arg(env!("CARGO_BIN_EXE_flowlane"))
            .args(["epair", "up", "fl-na", "fl-nb"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(names), "{said}");
    }
}
