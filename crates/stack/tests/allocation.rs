//! The hot path allocates nothing: once a lane is warm, a datagram comes in, is delivered, answered and put out without
//! one call of the allocator, over either family. An allocation inside the closure ends the test process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use assert_no_alloc::{AllocDisabler, assert_no_alloc};
use flowlane_rss::{Bucket, Key, Rss};
use flowlane_stack::steering::steer;
use flowlane_stack::time::Time;
use flowlane_stack::tunnel::{TunnelConfig, TunnelKind};
use flowlane_stack::udp::{Bind, Datagram, UdpConfig, UdpHandle};
use flowlane_stack::wire::MacAddr;
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

fn lane(mac: u8, addresses: &[&str]) -> Lane {
    let interface = InterfaceConfig::new(
        MacAddr([2, 0, 0, 0, 0, mac]),
        addresses.iter().map(|a| a.parse().unwrap()).collect(),
    );
    Lane::new(&LaneConfig {
        bucket: Bucket(0),
        rss: Arc::new(Rss::new(Key::MICROSOFT, 1)),
        interfaces: vec![interface],
        routes: vec![],
        tunnels: tunnels(mac),
        ip: Default::default(),
        udp: UdpConfig::default(),
        tcp: Default::default(),
        reassembly: Default::default(),
        seed: [1, 2, 3, mac.into()],
    })
}

/// Tunnels of two kinds to the other lane, as lane `me` has them.
fn tunnels(me: u8) -> Vec<TunnelConfig> {
    let kinds = [TunnelKind::vxlan(5), TunnelKind::Gre { key: Some(5), ethernet: false }];
    let make = |(i, kind): (usize, TunnelKind)| {
        let outside = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut t = TunnelConfig::new(kind, outside(me), outside(3 - me));
        t.addresses.push(format!("10.{}.0.{me}/24", 8 + i).parse().unwrap());
        t
    };
    kinds.into_iter().enumerate().map(make).collect()
}

/// Carries what one lane puts out to the other.
fn carry(now: Time, pool: &Pool, from: &mut Lane, to: &mut Lane, rss: &Rss, frames: &mut Vec<Frame>) {
    from.drain_output(now, pool, usize::MAX, frames);
    for mut frame in frames.drain(..) {
        frame.meta_mut().interface = 0;
        frame.meta_mut().hash_type = 0;
        let _ = steer(rss, &mut frame);
        to.input(now, pool, frame, Class::Ethernet);
    }
}

struct Pair {
    client: Lane,
    server: Lane,
    socket: UdpHandle,
    echo: UdpHandle,
    rss: Rss,
    pool: Pool,
    frames: Vec<Frame>,
    batch: Vec<Datagram>,
}

impl Pair {
    /// A burst of datagrams there and back.
    fn round(&mut self, now: Time, to: SocketAddr) -> usize {
        for i in 0..32u8 {
            let payload = [i; 64];
            self.client.udp_send(now, &self.pool, self.socket, &payload, None, Some(to.into())).unwrap();
        }
        let Self { client, server, pool, rss, frames, batch, .. } = self;
        for _ in 0..4 {
            carry(now, pool, client, server, rss, frames);
            server.udp_receive_batch(self.echo, batch, 64);
            for datagram in batch.drain(..) {
                assert!(server.udp_reply(now, pool, self.echo, datagram).is_ok());
            }
            carry(now, pool, server, client, rss, frames);
        }
        let n = client.udp_receive_batch(self.socket, batch, 64);
        batch.clear();
        n
    }
}

#[test]
fn a_warm_lane_allocates_nothing() {
    let memory =
        FrameMemory::new(&MemoryConfig { frames_per_home: 1024, lock: false, ..Default::default() }).unwrap();
    let (mut client, mut server) =
        (lane(1, &["10.0.0.1/24", "fd00::1/64"]), lane(2, &["10.0.0.2/24", "fd00::2/64"]));
    let mut pair = Pair {
        socket: client.udp_bind(Bind::default()).unwrap(),
        echo: server.udp_bind(Bind::port(7)).unwrap(),
        client,
        server,
        rss: Rss::new(Key::MICROSOFT, 1),
        pool: memory.attach(0).unwrap(),
        frames: Vec::with_capacity(256),
        batch: Vec::with_capacity(256),
    };
    // On the link, and through the tunnels.
    for ip in ["10.0.0.2", "fd00::2", "10.8.0.2", "10.9.0.2"] {
        let to = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 7);
        let now = Time::from_secs(1);
        // Neighbours are found and queues reach their size.
        for _ in 0..8 {
            pair.round(now, to);
        }
        let answered = assert_no_alloc(|| (0..300).map(|_| pair.round(now, to)).sum::<usize>());
        assert_eq!(answered, 300 * 32, "{ip}");
    }
}
