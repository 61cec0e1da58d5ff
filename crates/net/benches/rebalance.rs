//! What lanes that move by themselves are worth to connections that live: latency under a load that is skewed over workers.
//!
//! ```text
//! cargo bench -p flowlane-net --bench rebalance [-- SECONDS [ROUNDS]]      5 seconds for each measurement, 3 rounds
//! ```
//!
//! A server and a client on a wire in memory, two workers, 32 buckets. 128 connections live for the whole measurement. Each asks at moments of
//! a Poisson process, and the server spends 100 us of its worker on each request. The connections whose lanes are on worker 0 at the start ask
//! three times as often as the others, in all for 70 % of both workers. Latency is from the moment that a request was due, so waiting counts.
//! In turns: lanes stay (`static`), and lanes move by `Even` (`even`). `balanced`: the same with an even load, where nothing should move.
//! `hot spot`: every 5 seconds those who ask more often are the others, for four times as long.
//!
//! Both workers need a processor to themselves. On a machine with other work: `chrt -f 50` before the command.

use std::error::Error;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use flowlane::rebalance::{Even, Rebalancer};
use flowlane::{
    BucketMap, HashConfig, Host, Indirection, Interface, Key, PairConfig, Prefix, Rss, Runtime, TcpListener,
    TcpStream, Toeplitz, current, now, precise_now, sleep_until, spawn,
};
use flowlane_stack::rng::Rng;

const WORKERS: usize = 2;
const BUCKETS: usize = 32;
/// For each lane of the client.
const CONNECTIONS: usize = 4;
const COST: Duration = Duration::from_micros(100);
/// Of both workers.
const LOAD: f64 = 0.7;
const PERIOD: Duration = Duration::from_millis(100);
/// Time after the end for what is late.
const PATIENCE: Duration = Duration::from_secs(1);
/// What is before is not measured.
const WARM_UP: Duration = Duration::from_secs(2);

type Failure = Box<dyn Error + Send + Sync>;

/// Answers each byte after [`COST`] of its worker's time. The first thing it says is which worker that is.
async fn server() -> Result<(), Failure> {
    let listener = TcpListener::on_port(80)?;
    loop {
        let stream = listener.accept().await?;
        let worker = current()?.worker as u8;
        let _ = spawn(async move {
            let mut asked = [0; 64];
            stream.write_all(&[worker]).await?;
            loop {
                let n = stream.read(&mut asked).await?;
                if n == 0 {
                    return Ok::<(), Failure>(());
                }
                for _ in 0..n {
                    let begin = Instant::now();
                    while begin.elapsed() < COST {
                        std::hint::spin_loop();
                    }
                }
                stream.write_all(&asked[..n]).await?;
            }
        });
    }
}

/// Latencies in nanoseconds.
type Times = Arc<Mutex<Vec<u64>>>;

/// How often connections ask.
#[derive(Debug, Clone, Copy)]
struct Options {
    /// The hot ones ask so many times as often as the others: those whose server was on worker 0 when they began.
    skew: f64,
    /// Afterwards, in turns, those and the others are the hot ones for so long.
    hops: Option<Duration>,
}

/// Asks for so long.
async fn ask(
    seed: u64,
    Options { skew, hops }: Options,
    lasts: Duration,
    times: Times,
) -> Result<(), Failure> {
    let stream = TcpStream::connect("10.0.0.1:80".parse()?).await?;
    stream.set_nodelay(true)?;
    let mut answer = [0];
    stream.read(&mut answer).await?;
    let turned = |since: Duration| hops.is_some_and(|every| since.as_nanos() / every.as_nanos() % 2 == 1);
    let first = answer[0] == 0;
    let rate = |since: Duration| {
        let mean = 2.0 / (1.0 + skew) * if first != turned(since) { skew } else { 1.0 };
        mean * LOAD * WORKERS as f64 / COST.as_secs_f64() / (BUCKETS * CONNECTIONS) as f64
    };
    let (mut rng, begun) = (Rng::new(seed), now()?);
    let (measured, end) = (begun + WARM_UP, begun + WARM_UP + lasts);
    let (mut due, mut mine) = (begun, Vec::new());
    loop {
        let uniform = (f64::from(rng.next_u32()) + 1.0) / 4_294_967_296.0;
        due += Duration::from_secs_f64(-uniform.ln() / rate(due.saturating_duration_since(begun)));
        if due >= end {
            break;
        }
        let at = precise_now()?;
        if at > end + PATIENCE {
            // What was due and is not asked any more has waited for so long at least.
            mine.push(at.saturating_duration_since(due).as_nanos() as u64);
            continue;
        }
        if due > at {
            sleep_until(due).await;
        }
        stream.write_all(b"?").await?;
        stream.read(&mut answer).await?;
        if due >= measured {
            mine.push(precise_now()?.saturating_duration_since(due).as_nanos() as u64);
        }
    }
    times.lock().map_err(|_| "a panic")?.extend(mine);
    Ok(())
}

/// Runs once, and prints a line.
fn measure(what: &str, wish: Options, moves: bool, lasts: Duration) -> Result<(), Failure> {
    let table = Indirection::new(128, BUCKETS)?;
    let map = BucketMap::new(BUCKETS, WORKERS)?;
    let rss = Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, map);
    let rss = Arc::new(rss);
    let on = |address: &str| -> Result<Interface, Failure> {
        let address: Prefix = address.parse().map_err(|_| "an address")?;
        Ok(Interface { addresses: vec![address], ..Interface::default() })
    };
    let times = Times::default();
    let record = times.clone();
    let (done, ended) = mpsc::channel();
    let client = Host::new("client", rss.clone(), move || {
        let (times, done) = (record.clone(), done.clone());
        async move {
            let lane = u64::from(current()?.bucket.0);
            let tasks: Vec<_> = (0..CONNECTIONS as u64)
                .map(|n| spawn(ask(lane * 1000 + n, wish, lasts, times.clone())))
                .collect();
            for task in tasks {
                task?.await??;
            }
            done.send(())?;
            Ok::<(), Failure>(())
        }
    });
    let mut builder = Runtime::builder().workers(WORKERS).pin(false);
    let server = builder.host(Host::new("server", rss, server).interface(on("10.0.0.1/8")?));
    let client = builder.host(client.interface(on("10.0.0.2/8")?));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start()?;
    let rebalancer =
        if moves { Some(Rebalancer::start(runtime.handle(), Box::<Even>::default(), PERIOD)?) } else { None };
    // The lanes of the server never end.
    for _ in 0..BUCKETS {
        ended.recv_timeout(WARM_UP + lasts + Duration::from_secs(60))?;
    }
    let counts = rebalancer.as_ref().map(Rebalancer::counts).unwrap_or_default();
    drop(rebalancer);
    drop(runtime);
    let mut times = std::mem::take(&mut *times.lock().map_err(|_| "a panic")?);
    times.sort_unstable();
    let at = |q: f64| times.get((times.len() as f64 * q) as usize).map_or(0.0, |n| *n as f64 / 1e3);
    println!(
        "{what:<18} {:>8} {:>10.0} {:>10.0} {:>10.0} {:>6} {:>6}",
        times.len(),
        at(0.5),
        at(0.95),
        at(0.99),
        counts.moves,
        counts.failed
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let lasts = Duration::from_secs(numbers.first().copied().unwrap_or(5));
    println!(
        "{:<18} {:>8} {:>10} {:>10} {:>10} {:>6} {:>6}",
        "microseconds", "answers", "p50", "p95", "p99", "moves", "failed"
    );
    for _ in 0..numbers.get(1).copied().unwrap_or(3) {
        let skewed = Options { skew: 3.0, hops: None };
        measure("skewed, static", skewed, false, lasts)?;
        measure("skewed, even", skewed, true, lasts)?;
        let hops = Options { hops: Some(Duration::from_secs(5)), ..skewed };
        measure("hot spot, static", hops, false, lasts * 4)?;
        measure("hot spot, even", hops, true, lasts * 4)?;
        let even = Options { skew: 1.0, hops: None };
        measure("balanced, static", even, false, lasts)?;
        measure("balanced, even", even, true, lasts)?;
    }
    Ok(())
}
