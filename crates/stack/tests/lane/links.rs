//! A host with two links: what is for one that has no room stands in nobody's way, and leaves when there is some.

use std::time::Duration;

use flowlane_stack::tcp::{ConnId, ListenOptions};
use flowlane_stack::time::Time;
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::MacAddr;
use flowlane_stack::{Class, Connect, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::Pool;

use crate::net::{Plan, end, pool};

/// A lane with a link to each of two hosts.
struct Fork {
    lane: Lane,
    hosts: [Lane; 2],
    now: Time,
    pool: Pool,
    /// Frames that left on each link.
    left: [usize; 2],
}

impl Fork {
    fn new() -> Self {
        let interface = |link: u8| {
            InterfaceConfig::new(
                MacAddr([2, 0, 0, 0, 9, link]),
                vec![format!("10.0.{link}.1/24").parse().unwrap()],
            )
        };
        let plan = |address| Plan::new(7, &[address]).host().lanes.remove(0);
        let mut hosts = [plan("10.0.0.2/24"), plan("10.0.1.2/24")];
        for host in &mut hosts {
            host.tcp_listen(None, 80, ListenOptions::default()).unwrap();
        }
        let lane = Lane::new(&LaneConfig::new(
            flowlane_rss::Bucket(0),
            crate::net::rss(1, flowlane_rss::UdpFields::Two),
            vec![interface(0), interface(1)],
            [1, 2, 3, 4],
        ));
        Self { lane, hosts, now: Time::from_nanos(1_000_000_000), pool: pool(), left: [0; 2] }
    }

    /// Lets everything cross that finds room, for `ms` milliseconds. Each link has so much room in each of them.
    fn run(&mut self, ms: u64, room: [usize; 2]) {
        for _ in 0..ms {
            let mut left = room;
            while let Some(mut frame) = self.lane.poll_output_to(self.now, &self.pool, &left) {
                let link = usize::from(frame.meta().interface);
                assert!(left[link] > 0, "a frame for a link without room");
                left[link] -= 1;
                self.left[link] += 1;
                frame.meta_mut().interface = 0;
                frame.meta_mut().hash_type = 0;
                self.hosts[link].input(self.now, &self.pool, frame, Class::Ethernet);
            }
            for (link, host) in self.hosts.iter_mut().enumerate() {
                while let Some(mut frame) = host.poll_output(self.now, &self.pool) {
                    frame.meta_mut().interface = link as u8;
                    frame.meta_mut().hash_type = 0;
                    self.lane.input(self.now, &self.pool, frame, Class::Ethernet);
                }
            }
            self.now += Duration::from_millis(1);
            for lane in self.hosts.iter_mut().chain([&mut self.lane]) {
                if lane.poll_at().is_some_and(|at| at <= self.now) {
                    lane.on_timer(self.now, &self.pool);
                }
            }
        }
    }

    fn connect(&mut self, to: &str) -> ConnId {
        self.lane.tcp_connect(self.now, &self.pool, Connect::to(end(to))).unwrap()
    }

    fn write(&mut self, id: ConnId, bytes: usize) {
        assert_eq!(
            self.lane.with_tcp(self.now, &self.pool, |tcp, cx| tcp.send(cx, id, &vec![1; bytes])),
            Ok(bytes)
        );
    }

    fn heard(&self, link: usize) -> u64 {
        self.hosts[link].stats().tcp.packets_received
    }
}

const OPEN: [usize; 2] = [64, 64];

#[test]
fn connections_of_a_link_without_room_wait_and_the_others_do_not() {
    let mut net = Fork::new();
    let ids: Vec<_> =
        (0..40).map(|i| net.connect(if i % 2 == 0 { "10.0.0.2:80" } else { "10.0.1.2:80" })).collect();
    net.run(50, OPEN);
    for id in &ids {
        assert!(net.lane.tcp().readiness(*id).unwrap().writable, "{id:?} does not stand");
    }
    let before = [net.heard(0), net.heard(1)];
    for id in &ids {
        net.write(*id, 10_000);
    }
    // The first link is full; less than the timeout after which anything would be sent again.
    net.run(20, [0, 64]);
    assert_eq!(net.heard(0), before[0], "sent on a full link");
    assert!(net.heard(1) >= before[1] + 20 * 7, "{} segments on the open link", net.heard(1) - before[1]);
    assert!(net.lane.has_output(), "forgotten");
    // A little room at a time is used, all of it.
    let (left, heard) = (net.left, net.heard(0));
    net.run(5, [3, 64]);
    assert_eq!(net.left[0] - left[0], 15);
    assert_eq!(net.heard(0) - heard, 15);
    net.run(100, OPEN);
    for id in &ids {
        let info = net.lane.tcp().info(*id).unwrap();
        assert_eq!((info.unsent, info.outstanding), (0, 0), "{info:?}");
    }
    assert!(!net.lane.has_output());
}

#[test]
fn datagrams_for_a_full_link_fill_its_own_queue_only() {
    let mut net = Fork::new();
    let socket = net.lane.udp_bind(Bind::port(9)).unwrap();
    net.run(1, OPEN);
    let send =
        |net: &mut Fork, to: &str| net.lane.udp_send(net.now, &net.pool, socket, b"all", None, Some(end(to)));
    let mut queued = 0;
    while send(&mut net, "10.0.0.255:9").is_ok() {
        queued += 1;
    }
    assert_eq!(queued, 2048);
    for _ in 0..1000 {
        send(&mut net, "10.0.1.255:9").unwrap();
    }
    net.run(20, [0, 64]);
    assert_eq!(net.left, [0, 1000]);
    // Who waits for the full link is not woken by the other's.
    let (full, open) = (waker(), waker());
    net.lane.wake_on_room(end("10.0.0.255:9").ip, &full.clone().into());
    net.lane.wake_on_room(end("10.0.1.255:9").ip, &open.clone().into());
    send(&mut net, "10.0.1.255:9").unwrap();
    net.run(1, [0, 64]);
    assert_eq!((full.count(), open.count()), (0, 1));
    net.run(1, [1, 64]);
    assert_eq!((full.count(), open.count()), (1, 1));
    net.run(40, OPEN);
    assert_eq!(net.left, [2048, 1001]);
}

/// Connections that end while they wait for a link that is down leave nothing behind.
#[test]
fn what_waits_for_a_dead_link_does_not_pile_up() {
    let mut net = Fork::new();
    net.run(1, OPEN);
    for round in 0..2000 {
        let id = net.connect("10.0.0.2:80");
        net.run(1, [0, 64]);
        net.lane.with_tcp(net.now, &net.pool, |tcp, cx| tcp.abort(cx, id)).unwrap();
        assert!(
            net.lane.tcp().waiting_for_links() <= 128,
            "{} in round {round}",
            net.lane.tcp().waiting_for_links()
        );
    }
    net.run(3, OPEN);
    assert_eq!(net.lane.tcp().waiting_for_links(), 0);
}

#[derive(Default)]
struct Count(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Count {
    fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

fn waker() -> std::sync::Arc<Count> {
    std::sync::Arc::default()
}
