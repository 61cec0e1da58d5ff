//! `bench tcp`: streams and connections between two hosts in one process, on one core, against the kernel over loopback.
//!
//! Ours: one worker with both hosts on a pair link, with Ethernet, IP, TCP, sockets and tasks of both ends and the generator of `load
//! tcp`. The kernel's: two threads over loopback, which computes no checksums and does not segment, so compare it with our line with
//! offload. Figures are per second of processor time, ours of the process and the kernel's of both threads, so they are figures of one
//! core and remain valid on a busy machine.
//!
//! The cost of many connections is measured without links and tasks ([`super::many`]).

use std::io::{Read, Write};
use std::net::{TcpListener as KernelListener, TcpStream as KernelStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use flowlane::{
    Endpoint, Host, Interface, Key, PairConfig, Protocol, Rss, Runtime, TcpConfig, TcpListener, spawn,
};
use flowlane_load::Phase;
use flowlane_load::tcp::{Mode, Sources, TcpProgress, service};
use flowlane_load::{ClientRange, FlowWish, TcpLoad, TcpLoadConfig, TcpOutcome, flows};

use super::machine::{process_time, thread_time};
use super::table::Report;
use super::{Common, GATEWAY, floods, idle, many};
use flowlane::metrics::drops;

const PORT: u16 = 7;
/// Bytes of one write.
const CHUNK: usize = 1 << 16;
/// Bytes of a request and of its answer.
const REQUEST: usize = 64;

#[derive(Debug, Args, Clone)]
pub(crate) struct Options {
    /// Concurrent connections while connections per second are measured.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: u32,
    /// Established connections while the cost of many is measured.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10..=1_500_000))]
    many: u32,
    /// Also measure this many connections that all echo data, through whole lanes: 70000.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    active: Option<u32>,
    /// Idle connections while the memory of a connection with its socket and task is measured, and how soon one of them answers: ten million take 9 GB.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..=20_000_000))]
    idle: u32,
    /// Parts to measure, separated by commas [default: all parts].
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Values of `--only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput of one stream.
    Bulk,
    /// Connections per second.
    Connections,
    /// Memory and cost of many connections, TCP alone.
    Many,
    /// Memory of idle connections with sockets and tasks, and how soon one answers.
    Idle,
    /// Effect of a flood of SYNs or acknowledgements on a busy core.
    Floods,
    /// Many busy connections: needs --active.
    Active,
}

/// A load between two hosts.
struct Wanted {
    mode: Mode,
    connections: usize,
    size: usize,
    rate: Option<u64>,
    pair: PairConfig,
    duration: Duration,
}

fn clients() -> anyhow::Result<ClientRange> {
    Ok("10.77.128.0/17".parse()?)
}

/// Progress of a run at two times, with the processor time used until then, seconds.
#[derive(Debug, Default)]
struct Seen {
    first: Option<(TcpProgress, f64)>,
    last: Option<(TcpProgress, f64)>,
}

impl Seen {
    fn look(&mut self, progress: TcpProgress) {
        let known = self.last.or(self.first).map(|(p, _)| p).unwrap_or_default();
        // Lanes report their progress every 50 ms.
        if progress != known && progress.answers > 0 {
            let place = if self.first.is_none() { &mut self.first } else { &mut self.last };
            *place = Some((progress, process_time()));
        }
    }

    /// The counts in between, per second of processor time.
    fn rate(&self, what: impl Fn(&TcpProgress) -> u64) -> Option<f64> {
        let ((first, from), (last, to)) = (self.first.as_ref()?, self.last.as_ref()?);
        Some((what(last) - what(first)) as f64 / (to - from).max(1e-9))
    }
}

/// Repeats the run with longer rounds until one has enough progress reports; on a busy machine a round may be too short.
fn rate(mut wanted: Wanted, what: impl Fn(&TcpProgress) -> u64) -> anyhow::Result<f64> {
    for _ in 0..6 {
        if let Some(rate) = run_load(&wanted)?.1.rate(&what) {
            return Ok(rate);
        }
        wanted.duration *= 2;
    }
    anyhow::bail!("nothing was to be seen in {:?}: give a longer --round-ms", wanted.duration / 2)
}

/// Runs the load on one worker.
fn run_load(wanted: &Wanted) -> anyhow::Result<(TcpOutcome, Seen)> {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let target = Endpoint::new([10, 77, 0, 1].into(), PORT);
    let ranges = [clients()?];
    let sources = if wanted.mode == Mode::Connect {
        Sources::Addresses { clients: ranges.to_vec(), lanes: rss.buckets.len() }
    } else {
        let n = wanted.connections;
        let wish = FlowWish {
            target,
            clients: &ranges,
            flows: n,
            protocol: Protocol::TCP,
            rss: &rss,
            aim: None,
            start: 0,
        };
        Sources::Flows(flows::choose(&wish)?)
    };
    let load = TcpLoad::new(TcpLoadConfig {
        target,
        mode: wanted.mode,
        sources,
        connections: wanted.connections,
        rate: wanted.rate,
        poisson: false,
        size: wanted.size,
        total: None,
        opening: 20_000,
        phases: vec![Phase::hold(wanted.duration)],
        timeout: Duration::from_secs(20),
        nodelay: true,
        verify: false,
        reset: false,
        fast_open: false,
        exact: true,
        seed: 1,
        snapshots: None,
    })?;
    let echo = wanted.mode.needs_echo();
    let server = Host::new("server", rss.clone(), move || async move {
        let Ok(listener) = TcpListener::on_port(PORT) else { return };
        while let Ok(stream) = listener.accept().await {
            let serve = async move {
                let _ = if echo { service::echo(&stream).await } else { service::discard(&stream).await };
            };
            if spawn(serve).is_err() {
                return;
            }
        }
    });
    let interface = |address: &str, claimed: &[ClientRange]| -> anyhow::Result<Interface> {
        let claimed = claimed.iter().flat_map(ClientRange::prefixes).collect();
        Ok(Interface { addresses: vec![address.parse()?], claimed, vlan: None })
    };
    // Connections that are opened and closed leave many TIME-WAIT records.
    let tcp = TcpConfig { max_time_wait: 1 << 18, ..TcpConfig::default() };
    let frames = (wanted.connections * 2).clamp(1 << 15, 1 << 18);
    let mut builder = Runtime::builder().workers(1).frames(frames);
    let server =
        builder.host(server.interface(interface("10.77.0.1/24", &[])?).gateway(GATEWAY).tcp(tcp.clone()));
    let client = Host::new("client", rss, load.main());
    let client = builder.host(client.interface(interface("10.77.0.2/24", &ranges)?).tcp(tcp));
    builder.pair((server, 0), (client, 0), wanted.pair.clone());
    let runtime = builder.start()?;
    let mut seen = Seen::default();
    let outcome = load.wait(Duration::from_millis(5), |progress| {
        seen.look(progress);
        true
    });
    let counted = runtime.stop();
    if let Some(failure) = &outcome.failure {
        anyhow::bail!("{failure}");
    }
    let c = &outcome.counts;
    ensure!(
        c.failed() == 0,
        "{} of {} connections failed: {c:?}, {:?}",
        c.failed(),
        c.begun,
        [server, client].map(|host| drops::of_host(&counted, host))
    );
    Ok((outcome, seen))
}

fn bulk(common: &Common, pair: PairConfig) -> anyhow::Result<f64> {
    let wanted =
        Wanted { mode: Mode::Write, connections: 1, size: CHUNK, rate: None, pair, duration: common.round() };
    Ok(rate(wanted, |p| p.written)? * 8.0 / 1e9)
}

fn connections(common: &Common, options: &Options) -> anyhow::Result<f64> {
    let wanted = Wanted {
        mode: Mode::Connect,
        connections: options.connections as usize,
        size: REQUEST,
        rate: None,
        pair: PairConfig::default(),
        duration: common.round(),
    };
    Ok(rate(wanted, |p| p.answers)? / 1e3)
}

/// The kernel's throughput over loopback, Gbit per second of processor time of both ends.
fn kernel_bulk(time: Duration) -> anyhow::Result<f64> {
    let listener = KernelListener::bind("127.0.0.1:0")?;
    let mut out = KernelStream::connect(listener.local_addr()?)?;
    let (mut inward, _) = listener.accept()?;
    let reader = std::thread::spawn(move || {
        let (mut buffer, mut bytes) = (vec![0; CHUNK], 0);
        while let Ok(n @ 1..) = inward.read(&mut buffer) {
            bytes += n;
        }
        (bytes, thread_time())
    });
    let begin = (Instant::now(), thread_time());
    let data = vec![7; CHUNK];
    while begin.0.elapsed() < time {
        out.write_all(&data)?;
    }
    drop(out);
    let (bytes, theirs) = reader.join().ok().context("the reading thread")?;
    Ok(bytes as f64 * 8.0 / 1e9 / (thread_time() - begin.1 + theirs))
}

/// The kernel's short connections over loopback, thousands per second of processor time of both ends.
fn kernel_connections(time: Duration) -> anyhow::Result<f64> {
    let listener = KernelListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || {
        let mut buffer = [0; REQUEST];
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { break };
            match stream.read_exact(&mut buffer) {
                Ok(()) => drop(stream.write_all(&buffer)),
                // The last connection sends nothing.
                Err(_) => break,
            }
        }
        thread_time()
    });
    let begin = (Instant::now(), thread_time());
    let (mut n, mut buffer) = (0u64, [7; REQUEST]);
    while begin.0.elapsed() < time {
        let mut stream = KernelStream::connect(address)?;
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        n += 1;
    }
    drop(KernelStream::connect(address)?);
    let theirs = server.join().ok().context("the serving thread")?;
    Ok(n as f64 / 1e3 / (thread_time() - begin.1 + theirs))
}

pub(crate) fn run(common: &Common, options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::new("tcp");
    if options.wants(Part::Bulk) {
        bulk_rows(&mut report, common)?;
    }
    if options.wants(Part::Connections) {
        connection_rows(&mut report, common, options)?;
    }
    if options.wants(Part::Many) {
        many::rows(&mut report, common, options.many as usize)?;
    }
    if options.wants(Part::Idle) {
        idle::rows(&mut report, common, options.idle as usize)?;
    }
    if options.wants(Part::Floods) {
        floods::rows(&mut report, common)?;
    }
    if let (Some(n), true) = (options.active, options.wants(Part::Active)) {
        active(&mut report, n as usize)?;
    }
    report.note("rates are for each second of processor time, of both ends together, so of one core");
    Ok(report)
}

fn bulk_rows(report: &mut Report, common: &Common) -> anyhow::Result<()> {
    let (mut plain, mut offloaded, mut kernel) = (Vec::new(), Vec::new(), Vec::new());
    let offload = PairConfig { checksum_offload: true, segmentation_offload: true, ..PairConfig::default() };
    for _ in 0..common.rounds {
        plain.push(bulk(common, PairConfig::default())?);
        offloaded.push(bulk(common, offload.clone())?);
        kernel.push(kernel_bulk(common.round())?);
    }
    let peer = Some(("the kernel", &kernel[..]));
    report.row("one stream, MSS 1460, checksums", "Gbit/s", &plain, peer);
    report.row("one stream, checksums and segmentation offloaded", "Gbit/s", &offloaded, peer);
    report.row("kernel over loopback", "Gbit/s", &kernel, None);
    Ok(())
}

fn connection_rows(report: &mut Report, common: &Common, options: &Options) -> anyhow::Result<()> {
    let (mut short, mut kernel_short) = (Vec::new(), Vec::new());
    for _ in 0..common.rounds {
        short.push(connections(common, options)?);
        kernel_short.push(kernel_connections(common.round())?);
    }
    let name = format!("connections with {REQUEST} bytes there and back, {} at once", options.connections);
    report.row(name, "k/s", &short, Some(("the kernel", &kernel_short)));
    report.row("kernel over loopback, one at a time", "k/s", &kernel_short, None);
    Ok(())
}

/// Many concurrent connections, each of which echoes a message every 2 s.
fn active(report: &mut Report, connections: usize) -> anyhow::Result<()> {
    let wanted = Wanted {
        mode: Mode::Hold,
        connections,
        size: 1000,
        rate: Some(connections as u64 / 2),
        pair: PairConfig::default(),
        duration: Duration::from_secs(10),
    };
    let (mut outcome, _) = run_load(&wanted)?;
    let c = &outcome.counts;
    ensure!(
        c.standing == connections as u64 && c.completed == connections as u64,
        "{} of {connections} stood until the end, {} completed",
        c.standing,
        c.completed
    );
    let total = outcome.take_total();
    let ms = |q: f64| total.latency.at(q) as f64 / 1e6;
    let name = format!("{connections} connections, all echoing 1000 bytes every 2 s: answers");
    report.row(name, "k/s", &[total.rates.answered / 1e3], None);
    report.row("their latency, p50", "ms", &[ms(0.5)], None);
    report.row("their latency, p99.9", "ms", &[ms(0.999)], None);
    Ok(())
}
