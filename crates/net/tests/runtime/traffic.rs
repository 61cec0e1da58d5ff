//! A server that echoes and a client that checks every byte: per flow, all datagrams come back, once and in order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::card::Access;
use flowlane::link::LinkSpec;
use flowlane::link::pair::{self, EmulatedAccess};
use flowlane::{
    Bind, Bucket, BucketMap, Endpoint, HashConfig, Host, Indirection, Interface, Key, LinkId, PairConfig,
    Rss, Runtime, SendError, SocketError, Toeplitz, UdpFields, UdpSocket, current,
};

/// No test waits longer than this for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// A move waits for two threads to be given a processor, which takes 10 ms where they are alone and 150 where a dozen
/// others want it.
pub(crate) const PATIENCE_FOR_MOVES: Duration = Duration::from_secs(600);

pub(crate) const SERVER: usize = 0;
pub(crate) const CLIENT: usize = 1;

/// Steering with so many buckets over so many workers.
pub(crate) fn rss(key: Key, buckets: usize, workers: usize, udp: UdpFields) -> Arc<Rss> {
    let table = Indirection::new(128, buckets).unwrap();
    let map = BucketMap::new(buckets, workers).unwrap();
    Arc::new(Rss::from_parts(Toeplitz::new(&key), HashConfig::with_udp(udp), table, map))
}

/// What a flow's owner saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) sent: u32,
    pub(crate) received: u32,
    pub(crate) reordered: u32,
    pub(crate) damaged: u32,
    pub(crate) duplicates: u32,
    /// Digest of everything received, in order.
    pub(crate) digest: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) workers: usize,
    pub(crate) buckets: usize,
    pub(crate) udp: UdpFields,
    pub(crate) ipv6: bool,
    /// Flows of each client lane.
    pub(crate) flows: u32,
    /// Datagrams of each flow.
    pub(crate) datagrams: u32,
    /// Datagrams of one flow on their way at once.
    pub(crate) window: u32,
    pub(crate) size: usize,
    pub(crate) pair: PairConfig,
    /// Links of server and client, instead of a pair.
    pub(crate) ends: Option<[LinkSpec; 2]>,
    /// How server and client are steered, if not by `buckets`, `workers` and `udp`.
    pub(crate) steering: Option<[Arc<Rss>; 2]>,
    /// The runtime's access to an emulated card.
    pub(crate) access: fn(EmulatedAccess) -> Box<dyn Access>,
    /// Give up waiting for answers after so long without one.
    pub(crate) silence: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            workers: 2,
            buckets: 4,
            udp: UdpFields::Two,
            ipv6: false,
            flows: 16,
            datagrams: 200,
            window: 4,
            size: 64,
            pair: PairConfig::default(),
            ends: None,
            steering: None,
            access: |card| Box::new(card),
            silence: Duration::from_secs(20),
        }
    }
}

type Flows = BTreeMap<Endpoint, Flow>;

/// A running server and client.
pub(crate) struct Net {
    pub(crate) runtime: Runtime,
    results: mpsc::Receiver<Flows>,
    lanes: usize,
    /// Access to the cards of server and client, if the pair has some: for somebody else than the runtime.
    pub(crate) cards: Option<[EmulatedAccess; 2]>,
}

impl Plan {
    pub(crate) fn start(&self) -> Net {
        let mut builder = Runtime::builder().workers(self.workers).pin(false).seed(7).frames(8192);
        let interface = |own: &str, claimed: &[&str]| Interface {
            addresses: vec![own.parse().unwrap()],
            claimed: claimed.iter().map(|s| s.parse().unwrap()).collect(),
            ..Interface::default()
        };
        let (server_ip, client_ip, clients) = if self.ipv6 {
            ("fd00::1/32", "fd00::2/32", "fd00:0:1::/48")
        } else {
            ("10.0.0.1/8", "10.0.0.2/8", "10.1.0.0/16")
        };
        let ours =
            || [Key::MICROSOFT, Key::symmetric()].map(|key| rss(key, self.buckets, self.workers, self.udp));
        let [server_rss, client_rss] = self.steering.clone().unwrap_or_else(ours);
        let steering = [server_rss.clone(), client_rss.clone()];
        let server = Host::new("server", server_rss, echo);
        let server = builder.host(server.interface(interface(server_ip, &[])));
        assert_eq!(server, SERVER);
        let (report, results) = mpsc::channel();
        let plan = self.clone();
        let client = Host::new("client", client_rss, move || {
            let (plan, report) = (plan.clone(), report.clone());
            async move {
                let flows = client(&plan).await;
                let _ = report.send(flows);
            }
        });
        let client = builder.host(client.interface(interface(client_ip, &[clients])));
        assert_eq!(client, CLIENT);
        if let Some(ends) = self.ends.clone() {
            for (host, (link, rss)) in ends.into_iter().zip(steering).enumerate() {
                link.join(&mut builder, host, &[], None, &rss);
            }
            return Net { runtime: builder.start().unwrap(), results, lanes: self.buckets, cards: None };
        }
        let (open, cards) = pair::opener_with_access(self.pair.clone());
        let ends: [LinkId; 2] = builder.wire(open);
        // By number of the host.
        let cards = cards.map(|[client, server]| [server, client]);
        for (end, host) in ends.into_iter().zip([CLIENT, SERVER]) {
            builder.attach(end, host, 0);
            if let Some(cards) = &cards {
                builder.steer_card(end, (self.access)(cards[host].clone()));
            }
        }
        Net { runtime: builder.start().unwrap(), results, lanes: self.buckets, cards }
    }

    fn server(&self) -> Endpoint {
        let ip: IpAddr = if self.ipv6 { "fd00::1" } else { "10.0.0.1" }.parse().unwrap();
        Endpoint::new(ip, 7)
    }
}

impl Net {
    /// Waits until every client lane is done; the flows of all.
    pub(crate) fn finish(&self) -> Flows {
        let mut all = Flows::new();
        self.wait(&mut all, 0);
        all
    }

    /// Waits for the client lanes that are not among the `reported` ones.
    pub(crate) fn wait(&self, into: &mut Flows, reported: usize) {
        for _ in reported..self.lanes {
            match self.results.recv_timeout(PATIENCE) {
                Ok(flows) => into.extend(flows),
                Err(e) => panic!("a client lane did not finish: {e}\n{:#?}", self.runtime.handle().report()),
            }
        }
    }

    /// Takes what client lanes have reported, without waiting.
    pub(crate) fn collect(&self, into: &mut Flows, reported: &mut usize) {
        while let Ok(flows) = self.results.try_recv() {
            into.extend(flows);
            *reported += 1;
        }
    }
}

pub(crate) async fn echo() {
    let socket = UdpSocket::on_port(7).unwrap();
    let mut batch = Vec::new();
    while socket.recv_batch(&mut batch, 64).await.is_ok() {
        socket.reply_batch(&mut batch).await.unwrap();
    }
}

/// Client addresses whose answers come to this lane.
fn sources(socket: &UdpSocket, plan: &Plan, bucket: Bucket) -> Vec<Endpoint> {
    let address = |i: u32| -> IpAddr {
        if plan.ipv6 {
            Ipv6Addr::from(0xfd00_0000_0001_0000_0000_0000_0000_0000u128 + u128::from(i)).into()
        } else {
            Ipv4Addr::from(0x0a01_0000 + i).into()
        }
    };
    (1..60_000)
        .map(|i| Endpoint::new(address(i), 2000 + (i % 5000) as u16))
        .filter(|source| socket.reply_bucket(*source, plan.server()).unwrap() == bucket)
        .take(plan.flows as usize)
        .collect()
}

/// Payload of datagram `n` of a flow: anyone can tell whether it is whole.
fn payload(source: Endpoint, n: u32, size: usize) -> Vec<u8> {
    let mut p = Vec::with_capacity(size.max(4));
    p.extend_from_slice(&n.to_be_bytes());
    let mut x = u64::from(n) ^ u64::from(source.port) << 32 ^ 0x9e37_79b9_7f4a_7c15;
    while p.len() < size {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        p.push((x >> 56) as u8);
    }
    p
}

async fn client(plan: &Plan) -> Flows {
    let bucket = current().unwrap().bucket;
    let socket = UdpSocket::bind(Bind { any_port: true, ..Bind::default() }).unwrap();
    let mut flows: Flows =
        sources(&socket, plan, bucket).into_iter().map(|source| (source, Flow::default())).collect();
    // Which datagrams have come, of whom and by number.
    let mut came = BTreeSet::new();
    assert_eq!(flows.len(), plan.flows as usize);
    let server = plan.server();
    let mut batch = Vec::new();
    let mut last = flowlane::now().unwrap();
    // Whether a flow may have something to send: one has been answered, or was refused.
    let mut changed = true;
    loop {
        if std::mem::take(&mut changed) {
            let mut open = false;
            for (source, flow) in &mut flows {
                let done = flow.received + flow.damaged - flow.duplicates;
                open |= done < plan.datagrams;
                // The first datagram of a flow has its next hops looked up; the others follow when it is back.
                let window = if flow.received == 0 && flow.damaged == 0 { 1 } else { plan.window };
                while flow.sent < plan.datagrams && flow.sent < done + window {
                    let data = payload(*source, flow.sent, plan.size);
                    match socket.try_send(&data, Some(*source), Some(server)) {
                        Ok(()) => flow.sent += 1,
                        Err(SocketError::Send(SendError::Full | SendError::NoFrame)) => {
                            changed = true;
                            break;
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
            }
            if !open {
                return flows;
            }
        }
        socket.try_recv_batch(&mut batch, 256).unwrap();
        let now = flowlane::now().unwrap();
        if batch.is_empty() {
            if now.saturating_duration_since(last) > plan.silence {
                return flows;
            }
            flowlane::yield_now().await;
            continue;
        }
        (last, changed) = (now, true);
        for datagram in batch.drain(..) {
            let flow = flows.get_mut(&datagram.destination).expect("a flow of this lane");
            let n = u32::from_be_bytes(datagram.payload()[..4].try_into().unwrap());
            if datagram.payload() != payload(datagram.destination, n, plan.size) {
                flow.damaged += 1;
                continue;
            }
            flow.duplicates += u32::from(!came.insert((datagram.destination, n)));
            flow.reordered += u32::from(n != flow.received);
            flow.received += 1;
            for b in datagram.payload() {
                flow.digest = (flow.digest ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
}

/// Every flow complete and in order.
pub(crate) fn assert_perfect(plan: &Plan, flows: &Flows) {
    assert_eq!(flows.len(), plan.buckets * plan.flows as usize);
    for (source, flow) in flows {
        assert_eq!(
            (flow.sent, flow.received, flow.reordered, flow.damaged),
            (plan.datagrams, plan.datagrams, 0, 0),
            "{source}: {flow:?}"
        );
    }
}
