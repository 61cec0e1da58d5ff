//! The servers that are measured: ours, which is this program again, and Debian's memcached. Each is a process, of which the kernel tells time and memory.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane::link::LinkSpec;
use flowlane::{
    Bind, BucketMap, HashConfig, Host, Indirection, Interface, Io, Key, Rss, Runtime, Steer, TcpListener,
    Toeplitz, UdpFields, UdpSocket,
};
use flowlane_memcached::server::{Options, Placement, Server};

/// A server to be measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    /// Connections move to the lane of their keys.
    OursMoving,
    /// Clients ask each lane for its own keys.
    OursAtHome,
    /// By io_uring.
    OursByRing,
    /// On our own stack.
    OursOverXdp,
    Memcached,
    /// The program that the variable `POGOCACHE` names.
    Pogocache,
    /// With `-N`: connections go to the thread of their card's queue.
    MemcachedByQueue,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "flowlane",
            Self::OursMoving => "flowlane, move",
            Self::OursAtHome => "flowlane, at home",
            Self::OursByRing => "flowlane, io_uring",
            Self::OursOverXdp => "flowlane, AF_XDP",
            Self::Memcached => "memcached",
            Self::Pogocache => "Pogocache",
            Self::MemcachedByQueue => "memcached -N",
        }
    }
}

/// So many lanes on as many workers.
pub(crate) fn rss(lanes: usize) -> Rss {
    let map = BucketMap::new(lanes, lanes).unwrap();
    let table = Indirection::new(128, lanes).unwrap();
    Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::with_udp(UdpFields::Four), table, map)
}

/// Serves for ever, on TCP and UDP of one port: on kernel sockets of the loopback, or on our own stack over a link.
pub(crate) fn serve(
    port: u16,
    workers: usize,
    memory: usize,
    (placement, io): (Placement, Io),
    link: Option<&str>,
) {
    let (memory, own) = (memory << 20, link.is_some());
    let options = Options { port, udp_port: port, workers, memory, placement, ..Options::default() };
    let server = Server::new(options, workers).unwrap();
    let main = move || {
        let server = server.clone();
        async move {
            let here = Some(Ipv4Addr::LOCALHOST.into()).filter(|_| !own);
            let lane = Arc::new(server.begin()?);
            let listener = TcpListener::bind(here, port, Server::listen_options())?;
            let socket = UdpSocket::bind(Bind { local_ip: here, ..Bind::port(port) })?;
            let datagrams = lane.clone();
            let _ = flowlane::spawn(async move { datagrams.serve_datagrams(socket, |_| {}).await });
            lane.serve(listener, |_| {}).await
        }
    };
    let mut builder = Runtime::builder().workers(workers).pin(false).io(io);
    let rss = Arc::new(rss(workers));
    if let Some(link) = link {
        let ours = format!("{}/24", crate::xdp::SERVER).parse().unwrap();
        let interface = Interface { addresses: vec![ours], ..Interface::default() };
        let host = builder.host(Host::new("server", rss.clone(), main).interface(interface));
        link.parse::<LinkSpec>().unwrap().join(&mut builder, host, &[ours], None, &rss);
    } else {
        let steer = if workers > 1 { Steer::Hash } else { Steer::None };
        builder.host(Host::kernel("server", rss, main).steer(steer));
    }
    drop(builder.start().unwrap().join());
}

/// A server's process, which ends with this.
pub(crate) struct Running(Child, SocketAddr);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn start(kind: Kind, port: u16, workers: usize, memory: usize) -> Self {
        let (port_too, threads, megabytes) = (port.to_string(), workers.to_string(), memory.to_string());
        let command = if matches!(kind, Kind::Ours | Kind::OursMoving | Kind::OursAtHome | Kind::OursByRing) {
            let mut own = Command::new(std::env::current_exe().unwrap());
            own.args(["--serve", &port_too, "--workers", &threads, "--memory", &megabytes]);
            if kind == Kind::OursMoving {
                own.arg("--move");
            }
            if kind == Kind::OursByRing {
                own.arg("--uring");
            }
            own
        } else if kind == Kind::Pogocache {
            let mut peer = Command::new(std::env::var_os("POGOCACHE").unwrap());
            peer.args(["-p", &port_too, "--threads", &threads, "--maxmemory", &format!("{memory}mb")]);
            peer.stdout(Stdio::null()).stderr(Stdio::null());
            peer
        } else {
            let mut peer = Command::new("memcached");
            peer.args(["-u", "nobody", "-l", "127.0.0.1", "-p", &port_too, "-U", &port_too]);
            peer.args(["-t", &threads, "-m", &megabytes]);
            if kind == Kind::MemcachedByQueue {
                peer.args(["-N", &threads]);
            }
            peer
        };
        Self::spawn(command, (Ipv4Addr::LOCALHOST, port).into())
    }

    /// Runs a command until it serves at this address.
    pub(crate) fn spawn(mut command: Command, address: SocketAddr) -> Self {
        let running = Self(command.stdin(Stdio::null()).spawn().unwrap(), address);
        let (until, soon) = (Instant::now() + Duration::from_secs(10), Duration::from_secs(1));
        while TcpStream::connect_timeout(&address, soon).is_err() {
            assert!(Instant::now() < until, "no server at {address}");
            std::thread::yield_now();
        }
        running
    }

    /// Where it serves.
    pub(crate) fn address(&self) -> SocketAddr {
        self.1
    }

    /// Nanoseconds of processor time so far, of all its threads, as the scheduler counts them.
    pub(crate) fn time(&self) -> f64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        let time = |thread: std::io::Result<std::fs::DirEntry>| {
            let counted = std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
            counted.split_whitespace().next().unwrap().parse::<f64>().unwrap()
        };
        threads.map(time).sum()
    }

    /// KiB of memory that it has now.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    }
}
