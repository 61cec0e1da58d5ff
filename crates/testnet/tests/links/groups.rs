//! What a link asks a card to let through. A veth filters nothing, so the witness is the kernel's list of what the card was told.

use crate::common::*;
use flowlane::link::af_packet::{self, AfPacketOptions};
use flowlane::link::{Claim, OpenError};
use flowlane::{
    Bind, BucketMap, HashConfig, Host, Indirection, Interface, Key, Rss, Runtime, StartError, Toeplitz,
    UdpSocket,
};
use flowlane_sys::bpf::claim::Tags;
use flowlane_sys::packet::{self, PacketOptions};
use flowlane_sys::xdp::{self, XdpOptions};
use flowlane_testnet::{Card, CardConfig, Namespace};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

const SOLICITED: &str = "3333ff000002";
const ALL_NODES: &str = "333300000001";

/// The groups that the card was told of by anybody, as hexadecimal digits.
fn told(near: &Namespace) -> Vec<String> {
    let text = near.run(|| std::fs::read_to_string("/proc/thread-self/net/dev_mcast")).unwrap().unwrap();
    let ours = text.lines().filter(|line| line.split_whitespace().nth(1) == Some("near0"));
    ours.filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect()
}

/// Waits for what the kernel undoes when a link's socket is closed. A child that another test starts has that socket, too, from its fork
/// to its exec, and the last of the two to close it counts.
fn soon(is_so: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

fn is_promiscuous(near: &Namespace) -> bool {
    let flags = || std::process::Command::new("ip").args(["-d", "link", "show", "near0"]).output();
    let text = String::from_utf8(near.run(flags).unwrap().unwrap().stdout).unwrap();
    !text.contains("promiscuity 0")
}

#[test]
fn a_card_is_told_of_our_groups_for_as_long_as_the_link_is_open() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("grp", 1)).unwrap();
    let near = card.near().unwrap();
    let has = |group: &str| told(near).iter().any(|told| told == group);
    assert!(!has(SOLICITED));
    let queues = card.in_near(|| packet::open(&PacketOptions::new("near0", 1, claims()))).unwrap().unwrap();
    assert!(has(SOLICITED) && has(ALL_NODES), "{:?}", told(near));
    assert!(!is_promiscuous(near));
    drop(queues);
    assert!(soon(|| !has(SOLICITED)), "{:?}", told(near));

    let memory = memory(1);
    let queues =
        card.in_near(|| xdp::open(&XdpOptions::new("near0", 1, claims()), &memory)).unwrap().unwrap();
    assert!(has(SOLICITED) && has(ALL_NODES), "{:?}", told(near));
    drop(queues);
    assert!(soon(|| !has(SOLICITED)), "{:?}", told(near));
}

#[test]
fn a_card_that_filters_vlans_is_promiscuous_for_as_long_as_the_link_is_open() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("grpv", 1)).unwrap();
    let near = card.near().unwrap();
    for (tags, filters, promiscuous) in [
        (Tags::Vlan(5), Some(true), true),
        (Tags::Vlan(5), Some(false), false),
        (Tags::Vlan(5), None, false),
        (Tags::Untagged, Some(true), false),
    ] {
        let options =
            PacketOptions { tags, filters_vlans: filters, ..PacketOptions::new("near0", 1, claims()) };
        let queues = card.in_near(|| packet::open(&options)).unwrap().unwrap();
        assert_eq!(queues[0].shared().is_promiscuous(), promiscuous);
        assert_eq!(is_promiscuous(near), promiscuous, "{tags:?} {filters:?}");
        drop(queues);
        assert!(soon(|| !is_promiscuous(near)));
    }
}

#[test]
fn a_group_that_a_socket_joins_reaches_the_card_and_its_packets_the_socket() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("grpj", 1)).unwrap();
    let near = card.near().unwrap();
    let group: IpAddr = "239.1.2.3".parse().unwrap();
    let rss = Rss::from_parts(
        Toeplitz::new(&Key::MICROSOFT),
        HashConfig::default(),
        Indirection::new(128, 2).unwrap(),
        BucketMap::new(2, 1).unwrap(),
    );
    let (joined, news) = sync_channel(8);
    let main = move || {
        let joined = joined.clone();
        async move {
            let socket = UdpSocket::bind(Bind { local_port: 7000, ..Bind::default() }).unwrap();
            // Without any privilege left.
            joined.send(socket.join(0, group).map(|_| Vec::new()).map_err(|e| e.to_string())).unwrap();
            while let Ok(datagram) = socket.recv().await {
                joined.send(Ok(datagram.payload().to_vec())).unwrap();
            }
        }
    };
    let interface = Interface { addresses: vec!["10.11.2.2/24".parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(1).pin(false);
    let host = builder.host(Host::new("us", Arc::new(rss), main).interface(interface));
    let claim = Claim::none().address("10.11.2.2".parse().unwrap());
    builder.link(
        host,
        0,
        Box::new(move |_, workers| {
            let opened = af_packet::open(&AfPacketOptions::new("near0", claim), workers);
            opened.map_err(|e: OpenError| StartError::Link(e))
        }),
    );
    builder.before_start(|| {
        flowlane_sys::privilege::drop_all().map(drop).map_err(|e| StartError::Other(e.to_string()))
    });
    let runtime = card.in_near(|| builder.start()).unwrap().unwrap();
    let patience = Duration::from_secs(20);
    // Two lanes.
    for _ in 0..2 {
        assert_eq!(news.recv_timeout(patience).unwrap(), Ok(Vec::new()));
    }
    assert!(told(near).iter().any(|told| told == "01005e010203"), "{:?}", told(near));
    card.far().ip("route add 239.0.0.0/8 dev far0").unwrap();
    let socket = card.far().run(|| std::net::UdpSocket::bind("10.11.2.1:0").unwrap()).unwrap();
    let deadline = Instant::now() + patience;
    let heard = loop {
        socket.send_to(b"all of you", "239.1.2.3:7000").unwrap();
        if let Ok(heard) = news.recv_timeout(Duration::from_millis(100)) {
            break heard;
        }
        assert!(Instant::now() < deadline, "nothing is heard of the group");
    };
    assert_eq!(heard, Ok(b"all of you".to_vec()));
    let _ = runtime.stop();
    assert!(!told(near).iter().any(|told| told == "01005e010203"), "{:?}", told(near));
}
