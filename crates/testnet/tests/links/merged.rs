//! Streams between the kernel and AF_PACKET whose packets come merged: by a sender that leaves the cutting to a card that is
//! none, and by the receiving kernel (GRO).

use crate::common::skip;
use crate::tap_tcp::{bad_checksums, echo, queues, there_and_back};
use flowlane::link::Claim;
use flowlane::link::af_packet::{self, AfPacketOptions};
use flowlane::{
    BucketMap, HashConfig, Host, Indirection, Interface, Key, OpenLink, Rss, Runtime, StartError, Toeplitz,
};
use flowlane_stack::tcp::DropReason;
use flowlane_testnet::{Card, CardConfig, Namespace, Tagged};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

const US: [&str; 2] = ["10.11.2.2:7", "[fd00:11:2::2]:7"];
const VLAN: u16 = 5;

fn open(vlan: Option<u16>) -> OpenLink {
    let addresses = US.iter().map(|a| a.parse::<SocketAddr>().unwrap().ip());
    let claim = addresses.fold(Claim::none().on_vlan(vlan), Claim::address);
    Box::new(move |_, workers| {
        af_packet::open(&AfPacketOptions::new("near0", claim), workers).map_err(StartError::Link)
    })
}

fn start(card: &Card, vlan: Option<u16>) -> Runtime {
    let rss = Rss::from_parts(
        Toeplitz::new(&Key::MICROSOFT),
        HashConfig::default(),
        Indirection::new(128, 2).unwrap(),
        BucketMap::new(2, 1).unwrap(),
    );
    let interface = Interface {
        addresses: ["10.11.2.2/24", "fd00:11:2::2/64"].iter().map(|a| a.parse().unwrap()).collect(),
        vlan,
        ..Interface::default()
    };
    let mut builder = Runtime::builder().workers(1).pin(false).frames(8192);
    let host = builder.host(Host::new("us", Arc::new(rss), echo).interface(interface));
    builder.link(host, 0, open(vlan));
    card.in_near(|| builder.start()).unwrap().unwrap()
}

/// Whether `ethtool -K` takes these settings there.
fn ethtool(namespace: &Namespace, settings: &[&str]) -> bool {
    let run =
        Command::new("ip").args(["netns", "exec", namespace.name(), "ethtool", "-K"]).args(settings).output();
    run.is_ok_and(|o| o.status.success())
}

/// Exchanges short and long streams with both families; nothing is lost, and the long ones come merged.
fn streams(label: &str, vlan: Option<u16>, cut_by_sender: bool) {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test(label, 1)).unwrap();
    let settings: &[&str] = if cut_by_sender {
        &["far0", "tx", "off", "tso", "off", "gso", "off"]
    } else {
        &["far0", "tx", "on", "tso", "on"]
    };
    if !ethtool(card.far(), settings) || !ethtool(card.near().unwrap(), &["near0", "gro", "on"]) {
        flowlane_testnet::skipped("skipped, because ethtool cannot set the veth's offloads");
        return;
    }
    let far = card.far();
    let _tagged = vlan.map(|vlan| Tagged::new(far, "far0", &[(0x8100, vlan)]).unwrap());
    let runtime = start(&card, vlan);
    for us in US {
        there_and_back(far, us, 2_000);
        let before = queues(&runtime);
        there_and_back(far, us, 2_000_000);
        let after = queues(&runtime);
        let bytes = (after.rx_bytes - before.rx_bytes) / (after.rx_frames - before.rx_frames);
        println!("{us}: {bytes} bytes a packet received");
        // A merging kernel merges what one interrupt brings: on a busy machine that may be little, but never nothing.
        assert!(bytes > if cut_by_sender { 600 } else { 2_000 }, "{us}: {bytes} bytes a packet");
        assert_eq!((after.rx_bad, after.rx_ring_full, after.rx_no_frame), (0, 0, 0), "{after:?}");
    }
    assert_eq!(bad_checksums(far), 0);
    let report = runtime.stop();
    assert_eq!(report.total(0).tcp.dropped(DropReason::BadChecksum), 0);
    assert_eq!(report.total(0).tcp.resets_sent, 0);
}

#[test]
fn streams_that_the_sender_left_whole() {
    streams("mtso", None, false);
}

#[test]
fn streams_that_the_receiving_kernel_merged() {
    streams("mgro", None, true);
}

#[test]
fn tagged_streams_that_the_sender_left_whole() {
    streams("mvtso", Some(VLAN), false);
}

#[test]
fn tagged_streams_that_the_receiving_kernel_merged() {
    streams("mvgro", Some(VLAN), true);
}

#[test]
fn streams_of_jumbo_packets_in_small_frames() {
    if skip() {
        return;
    }
    for mtu in [9000, 65_535] {
        let card = Card::new(&CardConfig { mtu, ..CardConfig::for_test("mjmb", 1) }).unwrap();
        if !ethtool(card.far(), &["far0", "tx", "off", "tso", "off", "gso", "off"]) {
            flowlane_testnet::skipped("skipped, because ethtool cannot set the veth's offloads");
            return;
        }
        let runtime = start(&card, None);
        for us in US {
            let before = queues(&runtime);
            there_and_back(card.far(), us, 2_000_000);
            let after = queues(&runtime);
            let received = (after.rx_bytes - before.rx_bytes) / (after.rx_frames - before.rx_frames);
            let sent = (after.tx_bytes - before.tx_bytes) / (after.tx_frames - before.tx_frames);
            println!("MTU {mtu}, {us}: {received} bytes a packet received, {sent} sent");
            assert!(received > 2_000 && sent > 2_000, "{received} received and {sent} sent");
            assert_eq!((after.rx_bad, after.rx_ring_full, after.tx_failed), (0, 0, 0), "{after:?}");
        }
        assert_eq!(bad_checksums(card.far()), 0);
        assert_eq!(runtime.stop().total(0).tcp.dropped(DropReason::BadChecksum), 0);
    }
}
