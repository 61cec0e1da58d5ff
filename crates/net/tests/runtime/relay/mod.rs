//! Relays of TCP and UDP on our own stack and on kernel sockets. Here are the hosts that the tests have in common.

mod datagrams;
mod from_kernel;
mod short;
mod streams;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};

use flowlane::relay::{Relay, RelayConfig};
use flowlane::stats::{RelayCounts, Report};
use flowlane::{Builder, Host, Interface, Io, Key, PairConfig, Rss, Runtime, SocketError, Steer, UdpFields};

use crate::traffic::{PATIENCE, rss};

/// Buckets of every host here.
const BUCKETS: usize = 4;
/// The relay's port on our own stack.
const FRONT: u16 = 80;

/// The relay's address on our own stack in each family, a second one, and that of the peer.
fn address(last: u8, ipv6: bool) -> IpAddr {
    if ipv6 {
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)])
    } else {
        IpAddr::from([10, 0, 0, last])
    }
}

/// A port of the peer.
fn peer(port: u16) -> SocketAddr {
    (address(2, false), port).into()
}

fn on(last: &[u8]) -> Interface {
    let of = |last: &u8| {
        [(false, 24), (true, 64)]
            .map(|(ipv6, len)| format!("{}/{len}", address(*last, ipv6)).parse().unwrap())
    };
    Interface { addresses: last.iter().flat_map(of).collect(), ..Interface::default() }
}

/// By what kernel sockets can be served here.
fn each_io() -> Vec<Io> {
    match flowlane_sys::kernel::uring::probe() {
        Ok(()) => vec![Io::Epoll, Io::Uring],
        Err(e) => {
            flowlane_testnet::skipped(format_args!("skipped, because {e} (its part by io_uring)"));
            vec![Io::Epoll]
        }
    }
}

/// A relay that runs.
struct Relaying {
    runtime: Runtime,
    relay: Relay,
    /// Its host.
    at: usize,
}

impl Relaying {
    /// A relay in a host on our own stack, and what runs in every lane of a peer at the other end of a pair.
    fn ours<F, S, G, P>(config: RelayConfig, udp: UdpFields, serve: F, run: G) -> Self
    where
        F: Fn(Relay) -> S + Send + Sync + 'static,
        S: Future<Output = Result<(), SocketError>> + Send + 'static,
        G: Fn() -> P + Send + Sync + 'static,
        P: Future<Output = Result<(), SocketError>> + Send + 'static,
    {
        let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(16_384);
        let by_kernel = config.by_kernel;
        let relay = Relay::new(config, BUCKETS);
        let serving = relay.clone();
        let host = Host::new("relay", rss(Key::MICROSOFT, BUCKETS, 2, udp), move || serve(serving.clone()));
        let host = if by_kernel { host.beside_kernel() } else { host };
        let at = join(&mut builder, host, udp, run);
        Self { runtime: builder.start().unwrap(), relay, at }
    }

    /// The same with clients that come to kernel sockets, which the relay's lanes have by the hash of flows.
    fn from_kernel<F, S, G, P>(io: Io, config: RelayConfig, udp: UdpFields, serve: F, run: G) -> Self
    where
        F: Fn(Relay) -> S + Send + Sync + 'static,
        S: Future<Output = Result<(), SocketError>> + Send + 'static,
        G: Fn() -> P + Send + Sync + 'static,
        P: Future<Output = Result<(), SocketError>> + Send + 'static,
    {
        let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(16_384).io(io);
        let relay = Relay::new(config, BUCKETS);
        let serving = relay.clone();
        let host = Host::new("relay", rss(Key::MICROSOFT, BUCKETS, 2, udp), move || serve(serving.clone()));
        let at = join(&mut builder, host.beside_kernel().steer(Steer::Hash), udp, run);
        Self { runtime: builder.start().unwrap(), relay, at }
    }

    /// A relay on kernel sockets, with one lane that serves; `serve` tells the address.
    fn kernel<F, S>(io: Io, config: RelayConfig, serve: F) -> (Self, SocketAddr)
    where
        F: Fn(Relay, mpsc::Sender<SocketAddr>) -> S + Send + Sync + 'static,
        S: Future<Output = Result<(), SocketError>> + Send + 'static,
    {
        let relay = Relay::new(config, 1);
        let (say, said) = mpsc::channel();
        let serving = relay.clone();
        let host = Host::kernel("relay", Arc::new(Rss::new(Key::MICROSOFT, 1)), move || {
            let served = serve(serving.clone(), say.clone());
            async move { if is_first_lane() { served.await } else { Ok(()) } }
        });
        let mut builder = Runtime::builder().pin(false).io(io);
        let at = builder.host(host);
        let runtime = builder.start().unwrap();
        let address = said.recv_timeout(PATIENCE).unwrap();
        (Self { runtime, relay, at }, address)
    }

    /// Stops it once all is over.
    fn stop(self) -> (RelayCounts, Report) {
        self.relay.stop_within(PATIENCE);
        let report = self.runtime.stop();
        (report.relay(self.at).unwrap_or_default(), report)
    }
}

/// A relay's host, and a peer at the other end of a pair.
fn join<G, P>(builder: &mut Builder, relay: Host, udp: UdpFields, run: G) -> usize
where
    G: Fn() -> P + Send + Sync + 'static,
    P: Future<Output = Result<(), SocketError>> + Send + 'static,
{
    let at = builder.host(relay.interface(on(&[1, 3])));
    let peer = Host::new("peer", rss(Key::symmetric(), BUCKETS, 2, udp), run);
    let peer = builder.host(peer.interface(on(&[2])));
    builder.pair((at, 0), (peer, 0), PairConfig::default());
    at
}

fn is_first_lane() -> bool {
    flowlane::current().is_ok_and(|lane| lane.bucket.0 == 0)
}
