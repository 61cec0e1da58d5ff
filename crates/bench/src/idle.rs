//! Memory of an idle connection with everything that belongs to it (TCP, socket, a task that waits to read), at both ends, over a pair
//! link on one worker; and how soon it answers ([`super::answers`]).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flowlane::{
    Connect, Endpoint, Host, Interface, Key, PairConfig, Protocol, Rss, Runtime, TcpConfig, TcpListener,
    TcpStream, spawn, yield_now,
};
use flowlane_load::{ClientRange, FlowWish, flows};
use hdrhistogram::Histogram;

use super::Common;
use super::GATEWAY;
use super::answers::{self, ask, hold, reserve, serve};
use super::machine::resident;
use super::table::Report;

const PORT: u16 = 7;
/// Connections opened at once.
const BATCH: usize = 64;
/// Seed of the random choice of connections.
const SEED: u64 = 1;
/// Connections of the small case.
const FEW: usize = 10;
/// Limit for opening a connection, and for a round of requests.
const PATIENCE: Duration = Duration::from_secs(60);
/// What each connection adds to the limit for opening all of them: a slow machine opens 25,000 a second.
const EACH: Duration = Duration::from_micros(40);
/// Twice what a lane counts for a connection, since connections may have half of its memory; a quarter more, since lanes do not have equally many.
const COUNTED: usize = 2 * 512 * 5 / 4;

/// State shared by the lanes of a run.
#[derive(Debug, Default)]
struct Run {
    /// Set to continue after the first batch.
    go: AtomicBool,
    /// Connections that the server has accepted.
    served: AtomicUsize,
    /// Set when all connections are established: one lane sends requests.
    ask: AtomicBool,
    /// Set by the lane that sends requests.
    asker: AtomicBool,
}

/// Opens a lane's connections in batches; reports when the first batch and when all are established.
async fn begin(flows: Arc<Vec<Endpoint>>, target: Endpoint, told: mpsc::Sender<usize>, run: Arc<Run>) {
    let standing = Arc::new(AtomicUsize::new(0));
    reserve(flows.len());
    let mut begun = 0;
    for batch in flows.chunks(BATCH) {
        for from in batch {
            let standing = standing.clone();
            let connect = Connect { local_ip: Some(from.ip), local_port: from.port, ..Connect::to(target) };
            let connected = async move {
                let Ok(stream) = TcpStream::connect_with(connect, Some(PATIENCE)).await else { return };
                standing.fetch_add(1, Ordering::Relaxed);
                hold(stream);
            };
            let _ = spawn(connected);
        }
        let first = begun == 0;
        begun += batch.len();
        while standing.load(Ordering::Relaxed) < begun {
            yield_now().await;
        }
        if first {
            let _ = told.send(begun);
            while !run.go.load(Ordering::Relaxed) {
                yield_now().await;
            }
        }
    }
    let _ = told.send(begun);
}

/// The measurement of one number of connections.
struct Measured {
    connections: usize,
    /// Bytes of one end; 0 for fewer connections than one batch in each lane.
    each: f64,
    /// Latencies in nanoseconds, by round.
    answers: Vec<Histogram<u64>>,
}

/// Measures, and adds the rows.
pub(crate) fn rows(report: &mut Report, common: &Common, connections: usize) -> anyhow::Result<()> {
    // Many first: memory left by another run would distort the figure.
    let many = measure(connections, common.rounds)?;
    let few = measure(FEW, common.rounds)?;
    report.row(
        format!("idle connection among {}, one end, with its socket and a task that waits", many.connections),
        "bytes",
        &[many.each],
        None,
    );
    answers::rows(report, (many.connections, &many.answers), (few.connections, &few.answers));
    Ok(())
}

fn measure(connections: usize, rounds: u32) -> anyhow::Result<Measured> {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let target = Endpoint::new([10, 77, 0, 1].into(), PORT);
    let ranges: [ClientRange; 1] = ["10.77.128.0/17".parse()?];
    let wish = FlowWish {
        target,
        clients: &ranges,
        flows: connections,
        protocol: Protocol::TCP,
        rss: &rss,
        aim: None,
        start: 0,
    };
    let by_lane: Vec<_> = flows::choose(&wish)?.into_iter().map(Arc::new).collect();
    let lanes = by_lane.iter().filter(|flows| !flows.is_empty()).count();
    let (told, seen) = mpsc::channel();
    let run = Arc::new(Run::default());
    let counted = run.clone();
    let server = Host::new("server", rss.clone(), move || {
        let run = counted.clone();
        async move {
            let Ok(listener) = TcpListener::on_port(PORT) else { return };
            while let Ok(stream) = listener.accept().await {
                run.served.fetch_add(1, Ordering::Relaxed);
                serve(stream);
            }
        }
    });
    let (results, answered) = mpsc::channel();
    let by_bucket = (by_lane, told, run.clone(), results);
    let client = Host::new("client", rss, move || {
        let (by_lane, told, run, results) = by_bucket.clone();
        async move {
            let Ok(here) = flowlane::current() else { return };
            let mine = by_lane[usize::from(here.bucket.0)].clone();
            if mine.is_empty() {
                return;
            }
            begin(mine, target, told, run.clone()).await;
            while !run.ask.load(Ordering::Relaxed) {
                yield_now().await;
            }
            if !run.asker.swap(true, Ordering::Relaxed) {
                ask(rounds, SEED, results).await;
            }
        }
    });
    let interface = |address: &str, claimed: &[ClientRange]| -> anyhow::Result<Interface> {
        let claimed = claimed.iter().flat_map(ClientRange::prefixes).collect();
        Ok(Interface { addresses: vec![address.parse()?], claimed, vlan: None })
    };
    let memory = (connections * COUNTED).max(1 << 30);
    let tcp = TcpConfig { max_connections: connections + 1, max_memory: memory, ..TcpConfig::default() };
    let mut builder = Runtime::builder().workers(1).frames(1 << 14).tcp_memory(2 * memory);
    let server =
        builder.host(server.interface(interface("10.77.0.1/24", &[])?).gateway(GATEWAY).tcp(tcp.clone()));
    let client = builder.host(client.interface(interface("10.77.0.2/24", &ranges)?).tcp(tcp));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start()?;
    let patience = PATIENCE + EACH * connections as u32;
    let told = || seen.recv_timeout(patience).context("a connection could not be made");
    let mut first = 0;
    for _ in 0..lanes {
        first += told()?;
    }
    let before = resident()?;
    run.go.store(true, Ordering::Relaxed);
    let mut all = 0;
    for _ in 0..lanes {
        all += told()?;
    }
    let begin = Instant::now();
    while run.served.load(Ordering::Relaxed) < all && begin.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    ensure!(run.served.load(Ordering::Relaxed) == all, "the server lacks connections");
    let wakers = std::mem::size_of::<Waker>() * (all - first);
    let grown = resident()?.saturating_sub(before).saturating_sub(wakers as u64);
    run.ask.store(true, Ordering::Relaxed);
    let answers = (0..rounds)
        .map(|_| answered.recv_timeout(PATIENCE).context("a connection did not answer"))
        .collect::<Result<_, _>>()?;
    drop(runtime.stop());
    Ok(Measured { connections: all, each: grown as f64 / (2 * (all - first)).max(1) as f64, answers })
}
