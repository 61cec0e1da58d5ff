//! Streams between Flowlane and the kernel over AF_XDP and AF_PACKET with checksum and segmentation left to the interface,
//! which cuts nothing itself: to one that leaves sums out, as a veth does by default, and to one that does not.

use crate::common::skip;
use crate::tap_tcp::{bad_checksums, echo, queues, there_and_back};
use flowlane::link::af_packet::{self, AfPacketOptions};
use flowlane::link::af_xdp::{self, AfXdpOptions};
use flowlane::link::{Claim, OpenError};
use flowlane::{
    BucketMap, HashConfig, Host, Indirection, Interface, Key, OpenLink, Rss, Runtime, StartError, Toeplitz,
};
use flowlane_stack::tcp::DropReason;
use flowlane_testnet::{Card, CardConfig};
use std::sync::Arc;

const US: [&str; 2] = ["10.11.2.2:7", "[fd00:11:2::2]:7"];
const BYTES: usize = 4_000_000;

fn open(xdp: bool) -> OpenLink {
    let prefixes = [US[0], US[1]].map(|a| a.parse::<std::net::SocketAddr>().unwrap().ip());
    let claim = prefixes.iter().fold(Claim::none(), |claim, ip| claim.address(*ip));
    Box::new(move |memory, workers| {
        let opened = if xdp {
            let options = AfXdpOptions { offload: true, ..AfXdpOptions::new("near0", claim) };
            af_xdp::open(&options, memory)
        } else {
            let options = AfPacketOptions { offload: true, ..AfPacketOptions::new("near0", claim) };
            af_packet::open(&options, workers)
        };
        opened.map_err(|e: OpenError| StartError::Link(e))
    })
}

fn streams(label: &str, xdp: bool) {
    if skip() {
        return;
    }
    for sums_left_out in [true, false] {
        let card = Card::new(&CardConfig::for_test(label, 1)).unwrap();
        let near = || flowlane_sys::netdev::Interface::find("near0").unwrap();
        card.in_near(|| near().set_transmit_checksum(sums_left_out)).unwrap().unwrap();
        let rss = Rss::from_parts(
            Toeplitz::new(&Key::MICROSOFT),
            HashConfig::default(),
            Indirection::new(128, 2).unwrap(),
            BucketMap::new(2, 1).unwrap(),
        );
        let interface = Interface {
            addresses: ["10.11.2.2/24", "fd00:11:2::2/64"].iter().map(|a| a.parse().unwrap()).collect(),
            ..Interface::default()
        };
        let mut builder = Runtime::builder().workers(1).pin(false).frames(8192);
        let host = builder.host(Host::new("us", Arc::new(rss), echo).interface(interface));
        builder.link(host, 0, open(xdp));
        let runtime = card.in_near(|| builder.start()).unwrap().unwrap();
        for us in US {
            there_and_back(card.far(), us, BYTES);
        }
        let stats = queues(&runtime);
        let sent = stats.tx_bytes / stats.tx_frames;
        println!("{sent} bytes a frame sent, sums left out by the interface: {sums_left_out}");
        assert!(sent > 1514, "{sent} bytes a frame");
        assert_eq!(bad_checksums(card.far()), 0);
        let report = runtime.stop();
        assert_eq!(report.total(0).tcp.dropped(DropReason::BadChecksum), 0);
        assert_eq!(report.total(0).tcp.resets_sent, 0);
    }
}

#[test]
fn streams_over_af_xdp_with_offload() {
    streams("xofl", true);
}

#[test]
fn streams_over_af_packet_with_offload() {
    streams("pofl", false);
}
