//! Two hosts on a wire, each with some lanes, on a virtual clock.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use flowlane_rss::{Bucket, BucketMap, HashConfig, Indirection, Key, Rss, Toeplitz, UdpFields};
use flowlane_stack::address::{Endpoint, Prefix};
use flowlane_stack::packet::Offload;
use flowlane_stack::reassembly::ReassemblyConfig;
use flowlane_stack::steering::steer;
use flowlane_stack::tcp::TcpConfig;
use flowlane_stack::time::Time;
use flowlane_stack::tunnel::TunnelConfig;
use flowlane_stack::udp::{Bind, Datagram, UdpConfig, UdpElsewhere, UdpHandle};
use flowlane_stack::wire::MacAddr;
use flowlane_stack::{Class, InterfaceConfig, IpConfig, Lane, LaneConfig, Route};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

pub(crate) fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

pub(crate) fn end(s: &str) -> Endpoint {
    s.parse::<std::net::SocketAddr>().unwrap().into()
}

pub(crate) fn pool() -> Pool {
    FrameMemory::new(&MemoryConfig {
        frames_per_home: 4096,
        lock: false,
        huge_pages: false,
        ..Default::default()
    })
    .unwrap()
    .attach(0)
    .unwrap()
}

pub(crate) fn rss(buckets: usize, udp: UdpFields) -> Arc<Rss> {
    let table = Indirection::new(128, buckets).unwrap();
    let map = BucketMap::new(buckets, 1).unwrap();
    Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::with_udp(udp), table, map))
}

/// A host: lanes that share addresses.
pub(crate) struct Host {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) rss: Arc<Rss>,
    pub(crate) mac: MacAddr,
}

/// What a test says of a host.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) mac: u8,
    pub(crate) addresses: Vec<&'static str>,
    pub(crate) claimed: Vec<&'static str>,
    pub(crate) buckets: usize,
    pub(crate) udp: UdpFields,
    pub(crate) vlan: Option<u16>,
    pub(crate) mtu: u16,
    pub(crate) gateway: Option<&'static str>,
    pub(crate) ip: IpConfig,
    pub(crate) limits: UdpConfig,
    pub(crate) tcp: TcpConfig,
    pub(crate) reassembly: ReassemblyConfig,
    pub(crate) offload: Offload,
    pub(crate) tunnels: Vec<TunnelConfig>,
    /// Lanes tell one another about connected UDP sockets.
    pub(crate) shared: bool,
}

impl Plan {
    pub(crate) fn new(mac: u8, addresses: &[&'static str]) -> Self {
        Self {
            mac,
            addresses: addresses.to_vec(),
            claimed: vec![],
            buckets: 1,
            udp: UdpFields::Two,
            vlan: None,
            mtu: 1500,
            gateway: None,
            ip: IpConfig::default(),
            limits: UdpConfig::default(),
            tcp: TcpConfig::default(),
            reassembly: ReassemblyConfig::default(),
            offload: Offload::default(),
            tunnels: Vec::new(),
            shared: true,
        }
    }

    pub(crate) fn host(&self) -> Host {
        let mac = MacAddr([2, 0, 0, 0, 0, self.mac]);
        let rss = rss(self.buckets, self.udp);
        let prefixes = |list: &[&str]| list.iter().map(|s| s.parse::<Prefix>().unwrap()).collect::<Vec<_>>();
        let config = InterfaceConfig {
            mac,
            mtu: self.mtu,
            addresses: prefixes(&self.addresses),
            claimed: prefixes(&self.claimed),
            vlan: self.vlan,
            offload: self.offload,
        };
        let default = if self.gateway.is_some_and(|g| g.contains(':')) { "::/0" } else { "0.0.0.0/0" };
        let routes = self.gateway.map(|g| Route {
            prefix: default.parse().unwrap(),
            gateway: Some(ip(g)),
            interface: 0,
        });
        let elsewhere = UdpElsewhere::new(self.buckets);
        let lanes = (0..self.buckets)
            .map(|b| {
                let mut lane = Lane::new(&LaneConfig {
                    bucket: Bucket(b as u16),
                    rss: rss.clone(),
                    interfaces: vec![config.clone()],
                    routes: routes.into_iter().collect(),
                    tunnels: self.tunnels.clone(),
                    ip: self.ip,
                    udp: self.limits,
                    tcp: self.tcp.clone(),
                    reassembly: self.reassembly,
                    seed: [b as u64, 2, 3, self.mac.into()],
                });
                if self.shared {
                    lane.share_udp(elsewhere.clone());
                }
                lane
            })
            .collect();
        Host { lanes, rss, mac }
    }
}

impl Host {
    /// Takes in a frame as its card and worker would.
    pub(crate) fn input(&mut self, now: Time, pool: &Pool, mut frame: Frame) {
        frame.meta_mut().interface = 0;
        frame.meta_mut().hash_type = 0;
        frame.meta_mut().checksum = Default::default();
        let (bucket, _) = steer(&self.rss, &mut frame);
        self.lanes[usize::from(bucket.0)].input(now, pool, frame, Class::Ethernet);
    }

    /// Redirects and news between the lanes, until there are none: what one lane hands over may make another hand over.
    pub(crate) fn settle(&mut self, now: Time, pool: &Pool) {
        for _ in 0..100 {
            if !self.settle_once(now, pool) {
                return;
            }
        }
        panic!("packets go from lane to lane for ever");
    }

    fn settle_once(&mut self, now: Time, pool: &Pool) -> bool {
        let mut redirected = false;
        for i in 0..self.lanes.len() {
            while let Some(r) = self.lanes[i].poll_redirect() {
                redirected = true;
                self.lanes[usize::from(r.bucket.0)].input(now, pool, r.frame, r.class);
            }
            while let Some(event) = self.lanes[i].poll_event() {
                for (j, lane) in self.lanes.iter_mut().enumerate() {
                    if i != j {
                        lane.tell(now, event);
                    }
                }
            }
        }
        redirected
    }

    /// Everything that the host wants to send.
    pub(crate) fn output(&mut self, now: Time, pool: &Pool) -> Vec<Frame> {
        self.settle(now, pool);
        self.lanes.iter_mut().flat_map(|l| std::iter::from_fn(|| l.poll_output(now, pool))).collect()
    }

    /// A socket on `port` in every lane.
    pub(crate) fn bind_all(&mut self, port: u16) -> Vec<UdpHandle> {
        self.lanes.iter_mut().map(|l| l.udp_bind(Bind::port(port)).unwrap()).collect()
    }

    /// Everything that waits in one socket a lane.
    pub(crate) fn receive_all(&mut self, sockets: &[UdpHandle]) -> Vec<(usize, Datagram)> {
        let mut all = Vec::new();
        for (i, (lane, socket)) in self.lanes.iter_mut().zip(sockets).enumerate() {
            while let Some(d) = lane.udp_receive(*socket) {
                all.push((i, d));
            }
        }
        all
    }

    /// Answers everything that waits; returns how many.
    pub(crate) fn echo(&mut self, now: Time, pool: &Pool, sockets: &[UdpHandle]) -> usize {
        let mut n = 0;
        for (lane, socket) in self.lanes.iter_mut().zip(sockets) {
            while let Some(d) = lane.udp_receive(*socket) {
                assert!(lane.udp_reply(now, pool, *socket, d).is_ok());
                n += 1;
            }
        }
        n
    }
}

/// Two hosts and the wire between them.
pub(crate) struct Net {
    pub(crate) a: Host,
    pub(crate) b: Host,
    pub(crate) now: Time,
    pub(crate) pool: Pool,
    /// Frames that went over the wire.
    pub(crate) frames: usize,
}

impl Net {
    pub(crate) fn new(a: &Plan, b: &Plan) -> Self {
        Self { a: a.host(), b: b.host(), now: Time::from_secs(1), pool: pool(), frames: 0 }
    }

    /// Carries frames to and fro until nobody has anything to say.
    pub(crate) fn run(&mut self) {
        for _ in 0..100 {
            let to_b = self.a.output(self.now, &self.pool);
            let to_a = self.b.output(self.now, &self.pool);
            if to_a.is_empty() && to_b.is_empty() {
                return;
            }
            self.frames += to_a.len() + to_b.len();
            for f in to_b {
                self.b.input(self.now, &self.pool, f);
            }
            for f in to_a {
                self.a.input(self.now, &self.pool, f);
            }
        }
        panic!("the two do not stop talking");
    }

    /// Lets time pass, with the timers that fall due on the way.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let lanes = || self.a.lanes.iter().chain(&self.b.lanes);
            match lanes().filter_map(Lane::poll_at).min() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
            for lane in self.a.lanes.iter_mut().chain(&mut self.b.lanes) {
                lane.on_timer(self.now, &self.pool);
            }
            self.run();
        }
        self.now = end;
    }
}
