//! Accurate ECN (RFC 9768) with a kernel that has it: the guest's, behind a router that marks packets.
//!
//! The router is the namespace in which this runs; our stack is in one behind it. What the router marked, what the receiver's feedback says
//! and what the sender made of it has to be one number, in either direction.

use super::{CARDS, Metal};
use crate::guest::Guest;
use crate::peer;
use flowlane_testnet::{Namespace, Program, Scratch};
use serde_json::Value;
use std::process::Command;

/// The router, and our stack behind it.
struct Router {
    ours: Namespace,
}

/// Where our stack is.
const OURS: &str = "10.9.90.2";
/// Where the guest's kernel is.
const KERNEL: &str = "10.9.4.2";

impl Router {
    /// Packets go on from the guest to ours and back, one by one as they would on a wire.
    fn new() -> Self {
        let ours = Namespace::new(&format!("fl-marks-{}", std::process::id())).unwrap();
        let to = ours.name();
        peer::program(&format!("ip link add marks type veth peer name ours netns {to}"));
        ours.ip("link set ours up").unwrap();
        peer::program("ip link set marks up");
        peer::program("ip addr add 10.9.90.1/24 dev marks");
        for interface in ["marks", "igb"] {
            peer::program(&format!("ethtool -K {interface} tso off gso off gro off"));
        }
        peer::program(&format!("ip netns exec {to} ethtool -K ours tso off gso off gro off tx off"));
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        Self { ours }
    }

    /// Every eleventh packet that `to` gets and that says `ect` is marked from now on, and counted.
    fn mark(&self, to: &str, ect: &str) {
        for line in [
            "add table ip marks".to_owned(),
            "add chain ip marks forward { type filter hook forward priority 0; }".to_owned(),
            "flush chain ip marks forward".to_owned(),
            format!(
                "add rule ip marks forward ip daddr {to} ip ecn {ect} numgen inc mod 11 10 counter ip ecn set ce"
            ),
        ] {
            let done = Command::new("nft").arg(&line).output().unwrap();
            assert!(done.status.success(), "{line}: {done:?}");
        }
    }

    /// How many were.
    fn marked(&self) -> u64 {
        let rules = peer::program("nft list table ip marks");
        let count = rules.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{rules}"))
    }

    /// Our stack behind it.
    fn flowlane(&self, arguments: &str) -> Command {
        let binary = std::env::var("FLOWLANE_GUEST_BINARY").unwrap();
        let mut command = self.ours.command(&binary);
        command.args(arguments.split_whitespace()).args([
            "--link",
            "af-packet:ours",
            "--addr",
            &format!("{OURS}/24"),
            "--gateway",
            "10.9.90.1",
            "--ecn",
            "accurate",
        ]);
        command
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "ip", "marks"]).output();
        let _ = Command::new("ip").args(["link", "del", "marks"]).output();
    }
}

/// A kernel's counter of TCP, by its name in `/proc/net/netstat`.
fn counter(guest: &mut Guest, name: &str) -> u64 {
    let said = guest.must("grep ^TcpExt: /proc/net/netstat");
    let mut lines = said.lines().map(|line| line.split_whitespace());
    let at = lines.next().and_then(|mut names| names.position(|n| n == name));
    let at = at.unwrap_or_else(|| panic!("{name}: {said}"));
    lines.next().and_then(|mut values| values.nth(at)?.parse().ok()).unwrap()
}

/// The guest's kernel asks for accurate ECN and takes it, and sends one packet at a time.
fn kernel() -> Option<std::sync::MutexGuard<'static, Guest>> {
    let mut guest = Guest::newer()?;
    if Command::new("nft").arg("--version").output().is_err() {
        flowlane_testnet::skipped(
            "skipped, because there is no nft (Debian's package nftables), which marks packets",
        );
        return None;
    }
    let card: Metal = CARDS[0];
    card.tidy(&mut guest);
    guest.must(&format!("ip addr add {KERNEL}/24 dev igb; ip route add 10.9.90.0/24 via 10.9.4.1"));
    guest.must("ethtool -K igb tso off gso off gro off");
    guest.must("echo 3 >/proc/sys/net/ipv4/tcp_ecn");
    Some(guest)
}

fn restore(guest: &mut Guest) {
    guest.must(
        "echo 2 >/proc/sys/net/ipv4/tcp_ecn; ip addr flush dev igb; ethtool -K igb tso on gso on gro on",
    );
}

/// Sixty answers of 100,000 bytes, over three connections.
const ASK: &str = "-n 60 -c 3 --no-pin --json -q";

/// All of them came.
fn all_came(said: &str) {
    let report: Value = serde_json::from_str(said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let counts = &report["total"]["counts"];
    assert_eq!((&counts["answered"], &counts["failed"]), (&60.into(), &0.into()), "{counts}");
}

/// The sender's count is that of the router. Of each connection the packet that ends it may be marked, too, whose acknowledgement finds no sender any more.
fn is_told(told: u64, marked: u64) {
    assert!(
        marked > 200 && (marked - 3..=marked).contains(&told),
        "{marked} packets were marked, and the sender knows of {told}"
    );
}

/// Our data is marked, the kernel counts, and our sender knows the number.
fn the_kernel_counts(congestion: &str, ect: &str) {
    let Some(mut guest) = kernel() else { return };
    let router = Router::new();
    router.mark(KERNEL, ect);
    let scratch = Scratch::new("marks");
    let control = scratch.path("control.sock");
    let server = router
        .flowlane(&format!("serve http --port 80 --no-pin --congestion {congestion} --control {control}"));
    let server = Program::ready(server, " port 80");
    all_came(&guest.must(&format!("flowlane load http http://{OURS}/size/100000 {ASK}")));
    let binary = std::env::var("FLOWLANE_GUEST_BINARY").unwrap();
    let counters = peer::program(&format!("{binary} stat --control {control} -p tcp"));
    server.interrupt();
    restore(&mut guest);
    let of = |what: &str| {
        let line =
            counters.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {counters}"));
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((of("handshakes of accurate ECN"), of("stopped sending ECN-capable")), (3, 0), "{counters}");
    is_told(of("peers with accurate ECN received with CE"), router.marked());
}

#[test]
fn a_kernel_tells_us_how_many_of_our_packets_were_marked() {
    the_kernel_counts("cubic", "ect0");
}

/// Prague's data says that it is of L4S: ECT(1).
#[test]
fn a_kernel_tells_prague() {
    the_kernel_counts("prague", "ect1");
}

/// The kernel's data is marked, we count, and the kernel's sender knows the number.
#[test]
fn we_tell_a_kernel_how_many_of_its_packets_were_marked() {
    let Some(mut guest) = kernel() else { return };
    let router = Router::new();
    router.mark(OURS, "ect0");
    let done = guest.start("serve http --port 80 --no-pin");
    assert_eq!(done.code, 0, "{}", done.said);
    let before = counter(&mut guest, "TCPDeliveredCE");
    let load = router.flowlane(&format!("load http http://{KERNEL}/size/100000 {ASK}")).output().unwrap();
    let told = counter(&mut guest, "TCPDeliveredCE") - before;
    guest.must("finish flowlane");
    restore(&mut guest);
    all_came(&String::from_utf8_lossy(&load.stdout));
    is_told(told, router.marked());
}
