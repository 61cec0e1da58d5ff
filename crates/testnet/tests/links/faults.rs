//! Queues whose interface goes down, comes back, or vanishes: what the descriptor says, what is lost, and that closing
//! gives every frame back all the same.

use crate::common::*;
use flowlane_sys::frame::{FrameMemory, Pool};
use flowlane_sys::netdev::Interface;
use flowlane_sys::netdev::watch::{LinkState, LinkWatch};
use flowlane_sys::packet::{self, PacketOptions};
use flowlane_sys::poll::wait_readable;
use flowlane_sys::queue::Queue;
use flowlane_sys::tun::{self, TapOptions};
use flowlane_sys::xdp::{self, XdpOptions};
use flowlane_testnet::{Card, CardConfig, Namespace};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const LONG: u64 = 20_000_000_000;
const SHORT: u64 = 20_000_000;

/// Whether waiting for packets is possible, once what there was has been taken: a descriptor with an error that stays
/// would end every wait at once.
fn settles(queue: &mut impl Queue, pool: &Pool) -> bool {
    (0..100).any(|_| {
        if wait_readable(&[queue.fd().unwrap()], Some(SHORT)).unwrap() == 0 {
            return true;
        }
        queue.receive(pool, &mut Vec::new(), 64);
        queue.clear_error();
        false
    })
}

fn goes_down_and_up_and_away(near: &Namespace, far: &Namespace, mut queue: impl Queue, memory: &FrameMemory) {
    let pool = memory.attach(0).unwrap();
    let mut watch = near.run(|| LinkWatch::new(&Interface::find("near0").unwrap()).unwrap()).unwrap();
    let there = far.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    // Until one comes through: the kernel may still be asking for the neighbour.
    let mut frames = Vec::new();
    let mut hear = |queue: &mut dyn Queue| {
        frames.clear();
        let deadline = Instant::now() + Duration::from_secs(20);
        while frames.is_empty() {
            assert!(Instant::now() < deadline, "packets come");
            let _ = there.send_to(b"there?", (near_addresses()[0], 7));
            wait_readable(&[queue.fd().unwrap()], Some(SHORT)).unwrap();
            queue.receive(&pool, &mut frames, 64);
        }
        frames.clear();
    };
    hear(&mut queue);
    for _ in 0..2 {
        near.ip("link set near0 down").unwrap();
        assert_eq!(watch.wait(Some(LONG)), Some(LinkState::Down));
        queue.receive(&pool, &mut Vec::new(), 64);
        assert!(settles(&mut queue, &pool), "an interface that is down does not keep us awake");
        // What is sent now is lost, and said to be, or waits for its turn; it is in nobody's way.
        let mut frame = pool.alloc().unwrap();
        assert!(frame.extend_from_slice(&[0xff; 60]));
        let mut out = vec![frame];
        queue.transmit(&mut out);
        queue.flush();
        near.ip("link set near0 up").unwrap();
        let mut state = watch.wait(Some(LONG));
        if state == Some(LinkState::NoCarrier) {
            state = watch.wait(Some(LONG));
        }
        assert_eq!(state, Some(LinkState::Up));
        hear(&mut queue);
    }
    near.ip("link del near0").unwrap();
    let mut last = None;
    while let Some(state) = watch.wait(Some(LONG)) {
        last = Some(state);
    }
    assert_eq!(last, Some(LinkState::Gone));
    assert_eq!(queue.receive(&pool, &mut frames, 64), 0);
    let mut out: Vec<_> = (0..3).filter_map(|_| pool.alloc()).collect();
    for frame in &mut out {
        assert!(frame.extend_from_slice(&[0xff; 60]));
    }
    queue.transmit(&mut out);
    queue.flush();
    out.clear();
    let before = queue.stats();
    assert!(before.rx_frames >= 3, "{before:?}");
    if queue.clear_error() {
        assert!(settles(&mut queue, &pool), "an interface that is gone does not keep us awake");
    }
    drop(queue);
    pool.flush();
    assert_eq!(pool.free(), FRAMES, "every frame came back");
}

fn on_a_card<Q: Queue>(label: &str, open: impl FnOnce(&FrameMemory) -> Q + Send) {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test(label, 1)).unwrap();
    card.add_neighbour(near_addresses()[0]).unwrap();
    let memory = memory(1);
    let queue = card.in_near(|| open(&memory)).unwrap();
    goes_down_and_up_and_away(card.near().unwrap(), card.far(), queue, &memory);
}

#[test]
fn af_packet_survives_its_interface() {
    on_a_card("fpkt", |_| packet::open(&PacketOptions::new("near0", 1, claims())).unwrap().remove(0));
}

#[test]
fn af_xdp_survives_its_interface() {
    on_a_card("fxdp", |memory| xdp::open(&XdpOptions::new("near0", 1, claims()), memory).unwrap().remove(0));
}

#[test]
fn tap_survives_its_interface() {
    if skip() {
        return;
    }
    let namespace = Namespace::new(&format!("ftap{}", std::process::id())).unwrap();
    let memory = memory(1);
    let open = || tun::open(&TapOptions::new("near0", 1), &memory).unwrap().remove(0);
    let queue = namespace.run(open).unwrap();
    namespace.ip("addr add 10.11.2.1/24 dev near0").unwrap();
    // Down takes neighbours with it, and nobody here answers questions for one.
    namespace.ip("link set near0 arp off").unwrap();
    goes_down_and_up_and_away(&namespace, &namespace, queue, &memory);
}
