//! A server and a client in one runtime, joined by a wire in memory or by the loopback of the kernel.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::{
    BucketMap, Builder, HashConfig, Host, Indirection, Interface, Io, Key, PairConfig, Rss, Runtime, Toeplitz,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const SERVER: usize = 0;
pub(crate) const CLIENT: usize = 1;
/// Lanes of either host.
pub(crate) const LANES: usize = 4;

/// What joins client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Pair,
    Kernel(IpAddr),
    /// Sockets of the kernel by `io_uring`.
    Ring(IpAddr),
}

impl Over {
    /// Everything there is on this machine.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::Pair, Self::Kernel([127, 0, 0, 1].into())];
        if std::net::TcpListener::bind("[::1]:0").is_ok() {
            all.push(Self::Kernel("::1".parse().unwrap()));
        } else {
            flowlane_testnet::skipped("skipped, because ::1 cannot be bound (its part by IPv6)");
        }
        all.extend(Self::ring());
        all
    }

    /// Sockets of the kernel, of IPv4, by whatever serves them.
    pub(crate) fn kernels() -> Vec<Self> {
        std::iter::once(Self::Kernel([127, 0, 0, 1].into())).chain(Self::ring()).collect()
    }

    fn ring() -> Option<Self> {
        match flowlane_sys::kernel::uring::probe() {
            Ok(_) => Some(Self::Ring([127, 0, 0, 1].into())),
            Err(e) => {
                flowlane_testnet::skipped(format_args!("skipped, because {e} (its part by io_uring)"));
                None
            }
        }
    }

    /// What a runtime has to be told.
    pub(crate) fn io(self) -> Io {
        if matches!(self, Self::Ring(_)) { Io::Uring } else { Io::Epoll }
    }

    /// Where the server is, on a port that nobody has.
    pub(crate) fn server(self) -> SocketAddr {
        match self {
            Self::Pair => "10.0.0.1:7".parse().unwrap(),
            Self::Kernel(ip) | Self::Ring(ip) => SocketAddr::new(ip, free_port(ip)),
        }
    }
}

/// A port below those that the kernel gives away by itself.
pub(crate) fn free_port(ip: IpAddr) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 11_000 + (std::process::id() % 1900) as u16 * 10;
    for _ in 0..1000 {
        let port = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)).clamp(1024, 32_000);
        if std::net::TcpListener::bind((ip, port)).is_ok() && std::net::UdpSocket::bind((ip, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// Four lanes on so many workers.
pub(crate) fn rss(workers: usize) -> Arc<Rss> {
    let (table, map) = (Indirection::new(128, LANES).unwrap(), BucketMap::new(LANES, workers).unwrap());
    Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, map))
}

/// The same, with ports in the hash of datagrams.
pub(crate) fn rss_with_ports(workers: usize) -> Arc<Rss> {
    let (table, map) = (Indirection::new(128, LANES).unwrap(), BucketMap::new(LANES, workers).unwrap());
    let config = HashConfig::with_udp(flowlane::UdpFields::Four);
    Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), config, table, map))
}

fn on(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

/// What a lane of the client says at its end.
pub(crate) type Said = mpsc::Receiver<Result<u64, String>>;

/// Runs `server` in every lane of one host and `client` in every lane of the other.
pub(crate) fn start<S, SR, C, CR>(over: Over, workers: usize, server: S, client: C) -> (Runtime, Said)
where
    S: Fn() -> SR + Send + Sync + 'static,
    SR: Future<Output = ()> + Send + 'static,
    C: Fn() -> CR + Send + Sync + 'static,
    CR: Future<Output = Result<u64, String>> + Send + 'static,
{
    start_with(over, workers, server, client, |_| {})
}

/// As [`start`], with more hosts.
pub(crate) fn start_with<S, SR, C, CR>(
    over: Over,
    workers: usize,
    server: S,
    client: C,
    more: impl FnOnce(&mut Builder),
) -> (Runtime, Said)
where
    S: Fn() -> SR + Send + Sync + 'static,
    SR: Future<Output = ()> + Send + 'static,
    C: Fn() -> CR + Send + Sync + 'static,
    CR: Future<Output = Result<u64, String>> + Send + 'static,
{
    let mut builder: Builder =
        Runtime::builder().workers(workers).pin(false).seed(7).frames(32_768).io(over.io());
    let (say, said) = mpsc::channel();
    let client = move || {
        let (client, say) = (client(), say.clone());
        async move {
            let _ = say.send(client.await);
        }
    };
    match over {
        Over::Pair => {
            builder.host(Host::new("server", rss(workers), server).interface(on("10.0.0.1/24")));
            builder.host(Host::new("client", rss(workers), client).interface(on("10.0.0.2/24")));
            builder.pair((SERVER, 0), (CLIENT, 0), PairConfig::default());
        }
        Over::Kernel(_) | Over::Ring(_) => {
            builder.host(Host::kernel("server", rss(workers), server));
            builder.host(Host::kernel("client", rss(workers), client));
        }
    }
    more(&mut builder);
    (builder.start().unwrap(), said)
}

/// Waits until every lane of the client has said the same.
pub(crate) fn finish(runtime: &Runtime, said: &Said, each: u64) {
    for _ in 0..LANES {
        match said.recv_timeout(PATIENCE) {
            Ok(result) => assert_eq!(result, Ok(each)),
            Err(e) => panic!("{e}\n{:#?}", runtime.handle().report()),
        }
    }
}
