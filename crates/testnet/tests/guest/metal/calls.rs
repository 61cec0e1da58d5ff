//! System calls of a run, as the kernel counts them (the tracepoint `raw_syscalls`), in zero copy and copied. An emulated processor has no
//! counter of instructions.
//!
//! The program is stopped while datagrams arrive, so that it finds them all at once: what is counted is not how often it slept.

use super::{CARDS, Metal, ends};
use crate::guest::Guest;
use crate::peer;
use std::collections::BTreeMap;

const FLOWS: usize = 16;
/// Datagrams of each flow in a round. The kernel keeps the answers of one flow, and the run those of all.
const EACH: usize = 64;
const ROUNDS: usize = 4;

/// Calls that the run's worker made for [`ROUNDS`] times [`FLOWS`] times [`EACH`] datagrams, by name.
fn calls(guest: &mut Guest, card: Metal, link: &str) -> BTreeMap<String, usize> {
    card.tidy(guest);
    card.serve(guest, "udp-echo", link, "--workers 1");
    let [target, _] = card.targets();
    let batch = peer::Batch::of(target, FLOWS);
    batch.send(64);
    batch.receive(1);
    let trace = "/sys/kernel/tracing";
    guest.must(&format!(
        "grep -l '^flowlane-[0-9]' /proc/$(cat /run/flowlane.pid)/task/*/comm | cut -d/ -f5 >{trace}/set_event_pid; \
         echo 0 >{trace}/tracing_on; echo 1 >{trace}/events/raw_syscalls/sys_enter/enable; echo >{trace}/trace"
    ));
    let received = "cat /sys/class/net/igb/statistics/rx_packets";
    for _ in 0..ROUNDS {
        guest.must(&format!("kill -STOP $(cat /run/flowlane.pid); {received} >/run/received"));
        // The card's ring has 256 places.
        for sent in 1..=EACH / 8 {
            (0..8).for_each(|_| batch.send(64));
            let wanted = sent * 8 * FLOWS;
            guest.must(&format!(
                "until [ $(($({received}) - $(cat /run/received))) -ge {wanted} ]; do usleep 10000; done"
            ));
        }
        guest.must(&format!("echo 1 >{trace}/tracing_on; kill -CONT $(cat /run/flowlane.pid)"));
        batch.receive(EACH);
        guest.must(&format!("echo 0 >{trace}/tracing_on"));
    }
    let numbers = guest.must(&format!(
        "sed -n 's/.*sys_enter: NR \\([0-9]*\\).*/\\1/p' {trace}/trace | sort | uniq -c; \
         echo 0 >{trace}/events/raw_syscalls/sys_enter/enable; echo >{trace}/set_event_pid; echo 1 >{trace}/tracing_on"
    ));
    let ended = ends(guest);
    assert!(ended.contains("\"drops\":{}"), "{ended}");
    // By Linux's table of x86-64.
    let name = |number: &str| match number {
        "44" => "sendto".to_owned(),
        "219" => "restart_syscall".to_owned(),
        "45" => "recvfrom".to_owned(),
        "7" | "271" => "poll".to_owned(),
        "232" | "281" | "441" => "epoll_wait".to_owned(),
        other => other.to_owned(),
    };
    let words = numbers.lines().filter_map(|line| line.trim().split_once(' '));
    words.map(|(count, number)| (name(number.trim()), count.parse().unwrap())).collect()
}

/// At most one call for 32 datagrams that come at once. In zero copy the driver is told of packets no more often than the kernel is in copy mode,
/// but for a frame or two that came first.
#[test]
fn no_more_in_zero_copy_than_copied() {
    let Some(mut guest) = Guest::newer() else { return };
    let guest = &mut *guest;
    let [card, _] = CARDS;
    let datagrams = ROUNDS * EACH * FLOWS;
    let [zero_copy, copied] = ["", ",copy"].map(|link| {
        let by_name = calls(guest, card, link);
        let all: usize = by_name.values().sum();
        println!(
            "igb{link}: {all} system calls for {datagrams} datagrams echoed, {:.2} for 32: {by_name:?}",
            all as f64 * 32.0 / datagrams as f64
        );
        assert!(all > 0 && all <= datagrams / 32, "{link}: {by_name:?} for {datagrams} datagrams");
        ["sendto", "recvfrom"].iter().filter_map(|name| by_name.get(*name)).sum::<usize>()
    });
    assert!(zero_copy <= copied + ROUNDS, "{zero_copy} calls for packets in zero copy, {copied} copied");
}
