//! A host of ours among others: behind a bridge that snoops, asked by the kernel for what every IPv6 host answers, and on a link
//! where the kernel has its address already.
//!
//! ```text
//!   namespace near: Flowlane on near0 ── port0 ┐ namespace far: br0 (snoops and queries) ┌ port1 ── far0 :namespace peer
//! ```

use crate::common::skip;
use flowlane::link::af_packet::{self, AfPacketOptions};
use flowlane::link::{Claim, OpenError};
use flowlane::{Host, Interface, Key, Rss, Runtime, StartError, UdpSocket};
use flowlane_testnet::{Namespace, eventually_or};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const OURS: &str = "fd00:11:7::2";

/// Three namespaces joined by a bridge.
struct Lan {
    near: Namespace,
    switch: Namespace,
    peer: Namespace,
}

impl Lan {
    fn new(label: &str) -> Self {
        let name = |part| format!("fl-{label}{part}-{}", std::process::id());
        let made = |part| Namespace::new(&name(part)).unwrap();
        let lan = Self { near: made("n"), switch: made("s"), peer: made("p") };
        let switch = |arguments: &str| lan.switch.ip(arguments).unwrap();
        switch(
            "link add br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_mld_version 2 mcast_startup_query_interval 100",
        );
        for (port, end, namespace) in [("port0", "near0", &lan.near), ("port1", "far0", &lan.peer)] {
            switch(&format!("link add {port} type veth peer name {end} netns {}", namespace.name()));
            switch(&format!("link set {port} master br0"));
            switch(&format!("link set {port} up"));
        }
        switch("link set br0 up");
        // The kernel under our link has no addresses there.
        lan.near.ip("link set near0 addrgenmode none").unwrap();
        lan.near.ip("link set near0 up").unwrap();
        // The peer asks from a link-local address that it may use at once: while an address is tentative, another is taken, and
        // what is asked of all nodes is then answered from another address of ours (RFC 6724 rule 2).
        lan.peer.ip("link set far0 addrgenmode none").unwrap();
        lan.peer.ip("link set far0 up").unwrap();
        lan.peer.ip("addr add fe80::9/64 dev far0 nodad").unwrap();
        lan
    }

    fn start(&self) -> Runtime {
        let echo = || async {
            let Ok(socket) = UdpSocket::bind(Default::default()) else { return };
            // Nothing comes; the socket keeps the lane's task alive.
            while socket.recv().await.is_ok() {}
        };
        let interface = Interface {
            addresses: vec!["10.11.7.2/24".parse().unwrap(), format!("{OURS}/64").parse().unwrap()],
            ..Interface::default()
        };
        let mut builder = Runtime::builder().workers(1).pin(false);
        let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
        let host = builder.host(Host::new("us", rss, echo).interface(interface));
        let open = |_: &_, workers| {
            let options = AfPacketOptions::new("near0", Claim::everything());
            af_packet::open(&options, workers).map_err(|e: OpenError| StartError::Link(e))
        };
        builder.link(host, 0, Box::new(open));
        self.near.run(|| builder.start()).unwrap().unwrap()
    }

    /// `ping` in the peer's namespace, again until an answer from `source` comes or patience ends: whether one came.
    ///
    /// `-L` keeps the peer from answering its own multicast, since its answer would end the run of `ping` before ours is read.
    fn ping(&self, to: &str, source: &str) -> bool {
        let run = || Command::new("ping").args(["-6", "-n", "-L", "-c", "1", "-W", "5", to]).output();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let output = self.peer.run(run).unwrap().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            println!("{said}{}", String::from_utf8_lossy(&output.stderr));
            if said.lines().any(|l| l.contains("bytes from") && l.contains(source)) {
                return true;
            }
        }
        false
    }
}

/// The groups that the bridge has written down for our port.
fn snooped(switch: &Namespace) -> Vec<String> {
    let show = || Command::new("bridge").args(["mdb", "show", "dev", "br0"]).output();
    let output = switch.run(show).unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let ours = said.lines().filter(|line| line.contains("port port0"));
    ours.filter_map(|line| Some(line.split_once("grp ")?.1.split(' ').next()?.to_owned())).collect()
}

/// Our link-local address: that of the interface's Ethernet address.
fn link_local(near: &Namespace) -> String {
    let mac = near.run(|| flowlane_sys::netdev::Interface::find("near0").unwrap().mac().unwrap()).unwrap();
    let [a, b, c, d, e, f] = mac;
    let word = |x: u8, y: u8| u16::from_be_bytes([x, y]);
    let parts = [0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f)];
    std::net::Ipv6Addr::from(parts).to_string()
}

/// A switch that snoops lets through what was asked for; the kernel's bridge writes down who asked.
#[test]
fn behind_a_bridge_that_snoops() {
    if skip() {
        return;
    }
    let lan = Lan::new("mld");
    lan.peer.ip("addr add fd00:11:7::1/64 dev far0 nodad").unwrap();
    let runtime = lan.start();
    let mut missing = vec!["ff02::1:ff00:2".to_owned()];
    let own = link_local(&lan.near);
    let last: std::net::Ipv6Addr = own.parse().unwrap();
    missing.push(format!("ff02::1:ff{:02x}:{:x}", last.octets()[13], last.segments()[7]));
    let deadline = Instant::now() + PATIENCE;
    while !missing.is_empty() {
        assert!(Instant::now() < deadline, "never joined: {missing:?}");
        let snooped = snooped(&lan.switch);
        missing.retain(|group| !snooped.contains(group));
    }
    let scoped = |a: &str| format!("{a}%far0");
    if Command::new("ping").arg("-V").output().is_ok() {
        assert!(lan.ping(OURS, OURS), "our address");
        assert!(lan.ping(&scoped(&own), &own), "our link-local address");
        assert!(lan.ping(&scoped("ff02::1"), &own), "all nodes");
    } else {
        flowlane_testnet::skipped("skipped, because there is no ping (its part only)");
    }
    // A report is sent again, in case that the first is lost (RFC 3810 section 9.14.1).
    let icmp6 = || runtime.handle().report().total(0).icmp6;
    eventually_or(|| format!("{:?}", icmp6()), || icmp6().group_reports_sent >= 2);
    assert_eq!(runtime.stop().total(0).arp.conflicts, 0);
}

/// The kernel has the address and says so; ours is not used from then on.
#[test]
fn an_address_that_the_kernel_has_is_left_to_it() {
    if skip() {
        return;
    }
    let lan = Lan::new("dad");
    lan.peer.ip(&format!("addr add {OURS}/64 dev far0 nodad")).unwrap();
    lan.peer.ip("addr add 10.11.7.2/24 dev far0").unwrap();
    let runtime = lan.start();
    let arp = || runtime.handle().report().total(0).arp;
    // A conflict for either address; the link-local one is ours alone. Announced is what is left: that one.
    eventually_or(|| format!("no conflict: {:?}", arp()), || arp().conflicts >= 2);
    eventually_or(|| format!("{:?}", arp()), || arp().announcements_sent >= 2);
    assert_eq!((arp().announcements_sent, arp().probes_sent), (2, 3));
}
