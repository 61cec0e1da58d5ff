//! `bench udp`: a datagram is received, looked up, passed to a task, echoed and sent, on one core.
//!
//! Ours: one worker with a link in memory that always has datagrams, with Ethernet, IP, UDP, sockets and tasks. The kernel's: a
//! `recvmmsg`/`sendmmsg` echo over loopback, which pays for system calls and for half of the client's work as well. The comparison shows
//! what a stack inside the application can save, not which UDP code is better.

use std::net::UdpSocket as KernelSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Args;
use flowlane::{
    Bind, Host, Idle, Interface, Key, Rss, Runtime, UdpConfig, UdpFields, UdpSocket, WatchFlows, current,
    spawn,
};
use flowlane_sys::mmsg::Batch;

use super::Common;
use super::source::{self, Source};
use super::table::Report;

const PORT: u16 = 7;

#[derive(Debug, Args, Clone)]
pub(crate) struct Options {
    /// Payload of a datagram in bytes.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(0..=1472))]
    size: u16,
    /// Number of flows.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,
    /// Use a connected socket and a task for each flow.
    #[arg(long)]
    sockets: bool,
    /// Handle this many datagrams, print the count and stop: for instruction counters.
    #[arg(long)]
    pub(crate) packets: Option<u64>,
    /// Keep the flows with most packets and bytes, so many of each in every lane, as 'serve --top-flows' does.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    top_flows: Option<u32>,
}

/// A worker that echoes the datagrams of a [`source`](super::source) link.
struct Echo {
    runtime: Runtime,
    returned: Arc<AtomicU64>,
}

impl Echo {
    fn start(options: &Options, packets: Option<u64>) -> anyhow::Result<Self> {
        let fields = if options.sockets { UdpFields::Four } else { UdpFields::Two };
        let mut rss = Rss::new(Key::MICROSOFT, 1);
        rss.config = flowlane::HashConfig::with_udp(fields);
        let rss = Arc::new(rss);
        let (ready, bound) = mpsc::channel();
        let sockets = options.sockets.then_some(options.flows as usize);
        let host = Host::new("bench", rss.clone(), move || {
            let ready = ready.clone();
            async move {
                match sockets {
                    None => {
                        let socket = UdpSocket::on_port(PORT);
                        let _ = ready.send(socket.as_ref().err().copied());
                        if let Ok(socket) = socket {
                            echo(socket).await;
                        }
                    }
                    Some(n) => {
                        let _ = ready.send(bind_all(n).err());
                    }
                }
            }
        });
        let interface = Interface { addresses: vec!["10.0.0.1/24".parse()?], ..Interface::default() };
        let limits = UdpConfig { lane_queue: 1 << 16, ..UdpConfig::default() };
        let host = host.interface(interface).gateway("10.0.0.2".parse()?).udp(limits);
        let returned = Arc::new(AtomicU64::new(0));
        // Instructions of idle polling would be counted as well.
        let idle = if packets.is_some() { Idle::Adaptive(Duration::ZERO) } else { Idle::Spin };
        let mut builder = Runtime::builder().workers(1).idle(idle).frames(16_384);
        let number = builder.host(host);
        let link = Source::link(
            &rss,
            options.flows as usize,
            usize::from(options.size),
            PORT,
            packets,
            returned.clone(),
        );
        builder.link(number, 0, Box::new(move |_, _| Ok((link.0, vec![link.1]))));
        let runtime = builder.start()?;
        if let Some(n) = options.top_flows {
            runtime.handle().watch_flows(Some(WatchFlows::default().flows(n as usize)))?;
        }
        for _ in 0..rss.buckets.len() {
            if let Some(e) = bound.recv()? {
                return Err(e.into());
            }
        }
        Ok(Self { runtime, returned })
    }

    /// Datagrams per second over `time`.
    fn rate(&self, time: Duration) -> f64 {
        let (from, begin) = (self.returned.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(time);
        let to = self.returned.load(Ordering::Relaxed);
        (to - from) as f64 / begin.elapsed().as_secs_f64()
    }
}

async fn echo(socket: UdpSocket) {
    let mut batch = Vec::with_capacity(64);
    while socket.recv_batch(&mut batch, 64).await.is_ok() {
        if socket.reply_batch(&mut batch).await.is_err() {
            return;
        }
    }
}

/// A connected socket and a task for each flow of this lane.
fn bind_all(flows: usize) -> Result<(), flowlane::SocketError> {
    let Ok(lane) = current() else { return Ok(()) };
    let server = flowlane::Endpoint::new(std::net::Ipv4Addr::from(source::SERVER).into(), PORT);
    let probe = UdpSocket::bind(Bind { any_port: true, ..Bind::default() })?;
    for i in 0..flows {
        let client = source::client(i);
        if probe.reply_bucket(server, client)? != lane.bucket {
            continue;
        }
        let bind =
            Bind { local_ip: Some(server.ip), local_port: PORT, remote: Some(client), ..Bind::default() };
        let socket = UdpSocket::bind(bind)?;
        let _ = spawn(echo(socket));
    }
    Ok(())
}

/// Handles exactly this many datagrams.
pub(crate) fn exactly(options: &Options, packets: u64) -> anyhow::Result<u64> {
    let echo = Echo::start(options, Some(packets))?;
    while echo.returned.load(Ordering::Relaxed) < packets {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(echo.runtime.stop());
    Ok(packets)
}

/// The kernel's echo: a server thread, and a client with a window of datagrams in flight.
struct Kernel {
    stop: Arc<AtomicBool>,
    echoed: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Kernel {
    fn start(size: usize) -> anyhow::Result<Self> {
        let server = KernelSocket::bind("127.0.0.1:0")?;
        let client = KernelSocket::bind("127.0.0.1:0")?;
        client.connect(server.local_addr()?)?;
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let echoed = Arc::new(AtomicU64::new(0));
        let (s, e) = (stop.clone(), echoed.clone());
        let echo = std::thread::spawn(move || {
            let mut batch = Batch::new(32, 2048);
            while !s.load(Ordering::Relaxed) {
                if batch.receive(&server).is_ok()
                    && let Ok(n) = batch.send(&server)
                {
                    e.fetch_add(n as u64, Ordering::Relaxed);
                }
            }
        });
        let s = stop.clone();
        let flood = std::thread::spawn(move || {
            let (mut out, mut back) = (Batch::new(32, 2048), Batch::new(64, 2048));
            out.fill(&vec![0x5a; size]);
            let mut window = 0;
            while !s.load(Ordering::Relaxed) {
                while window < 256 {
                    window += out.send(&client).unwrap_or(0);
                }
                // The kernel dropped datagrams of the window: start a new window.
                window = back.receive(&client).map_or(0, |n| window.saturating_sub(n));
            }
        });
        Ok(Self { stop, echoed, threads: vec![echo, flood] })
    }

    fn rate(&self, time: Duration) -> f64 {
        let (from, begin) = (self.echoed.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(time);
        (self.echoed.load(Ordering::Relaxed) - from) as f64 / begin.elapsed().as_secs_f64()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

pub(crate) fn run(common: &Common, options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::new("udp");
    let (mut ours, mut kernel) = (Vec::new(), Vec::new());
    for _ in 0..common.rounds {
        let echo = Echo::start(options, None)?;
        let _warm = echo.rate(common.round() / 4);
        ours.push(echo.rate(common.round()) / 1e6);
        drop(echo.runtime.stop());
        let peer = Kernel::start(usize::from(options.size))?;
        let _warm = peer.rate(common.round() / 4);
        kernel.push(peer.rate(common.round()) / 1e6);
    }
    let what = if options.sockets { "connected sockets" } else { "flows" };
    let name = format!("flowlane, {} {what}, {} bytes", options.flows, options.size);
    report.row(name, "Mpps", &ours, Some(("the kernel", &kernel)));
    report.row("kernel recvmmsg/sendmmsg over loopback", "Mpps", &kernel, None);
    report.note("ours is one core and includes the generator; the kernel's client runs on another core");
    Ok(report)
}
