//! Lanes that move all the time under load: every stream arrives as it was sent.
//!
//! ```text
//! cargo bench -p flowlane-net --bench move_soak [-- MOVES [PER-SECOND]]      10,000 moves, 200 a second
//! ```
//!
//! A server and a client on a wire in memory, two workers, 32 buckets. Lane `n` of the client sends in proportion to `1 / (n + 1)` (Zipf), so most
//! of the load is that of a few lanes. Each of its 4 connections sends messages at moments of a Poisson process; the server spends 100 us of
//! its worker on each message and sends it back; in all for 80 % of both workers. Meanwhile lanes of both hosts, chosen at random, move to the other
//! worker, many at once. Three digests of each stream are compared at its end: of what the client sent, of what the server got, and of what
//! came back. A stream that differs, is cut short or does not end is an error.
//!
//! The processors need no quiet: nothing here is a time. What share of the load was reached is printed.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use flowlane::{
    Bucket, BucketMap, Handle, HashConfig, Host, Indirection, Interface, Key, PairConfig, Prefix, Rss,
    Runtime, TcpListener, TcpStream, Toeplitz, current, now, precise_now, sleep_until, spawn,
};
use flowlane_stack::rng::Rng;

const WORKERS: usize = 2;
const BUCKETS: usize = 32;
/// For each lane of the client.
const CONNECTIONS: usize = 4;
const COST: Duration = Duration::from_micros(100);
/// Of both workers.
const LOAD: f64 = 0.8;
const MESSAGE: usize = 700;

type Failure = Box<dyn Error + Send + Sync>;

/// FNV-1a of a stream, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Digest(u64, u64);

impl Digest {
    const NOTHING: Self = Self(0xcbf2_9ce4_8422_2325, 0);

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.1 += bytes.len() as u64;
    }
}

/// Sends back what comes after [`COST`] for each message; when the client has ended, the digest of what came.
async fn server() -> Result<(), Failure> {
    let listener = TcpListener::on_port(80)?;
    loop {
        let stream = listener.accept().await?;
        let _ = spawn(async move {
            let (mut came, mut digest, mut charged) = ([0; 4096], Digest::NOTHING, 0);
            loop {
                let n = stream.read(&mut came).await?;
                if n == 0 {
                    break;
                }
                digest.add(&came[..n]);
                while charged < digest.1 / MESSAGE as u64 {
                    charged += 1;
                    let begin = Instant::now();
                    while begin.elapsed() < COST {
                        std::hint::spin_loop();
                    }
                }
                stream.write_all(&came[..n]).await?;
            }
            stream.write_all(&digest.0.to_le_bytes()).await?;
            stream.shutdown(std::net::Shutdown::Write)?;
            Ok::<(), Failure>(())
        });
    }
}

#[derive(Debug, Default)]
struct Sums {
    streams: u64,
    bytes: u64,
    /// Messages that were answered more than a second after they were due.
    late: u64,
}

/// One stream, until `over`.
async fn stream(seed: u64, rate: f64, over: Arc<AtomicBool>, sums: Arc<Mutex<Sums>>) -> Result<(), Failure> {
    let stream = TcpStream::connect("10.0.0.1:80".parse()?).await?;
    stream.set_nodelay(true)?;
    let mut rng = Rng::new(seed);
    let (mut sent, mut back) = (Digest::NOTHING, Digest::NOTHING);
    let (mut due, mut late, mut message, mut came) = (now()?, 0, [0; MESSAGE], [0; MESSAGE]);
    while !over.load(Relaxed) {
        let uniform = (f64::from(rng.next_u32()) + 1.0) / 4_294_967_296.0;
        due += Duration::from_secs_f64(-uniform.ln() / rate);
        let at = precise_now()?;
        if due > at {
            sleep_until(due.min(at + Duration::from_millis(500))).await;
        } else if at > due + Duration::from_secs(1) {
            // The processors are not ours alone: what cannot be done in time is not asked for later.
            (due, late) = (at, late + 1);
        }
        if due > precise_now()? {
            continue;
        }
        for chunk in message.chunks_mut(4) {
            chunk.copy_from_slice(&rng.next_u32().to_le_bytes()[..chunk.len()]);
        }
        sent.add(&message);
        stream.write_all(&message).await?;
        let mut have = 0;
        while have < MESSAGE {
            let n = stream.read(&mut came[have..]).await?;
            if n == 0 {
                return Err("a stream was cut short".into());
            }
            back.add(&came[have..have + n]);
            have += n;
        }
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut theirs = Vec::new();
    loop {
        let n = stream.read(&mut came).await?;
        if n == 0 {
            break;
        }
        theirs.extend_from_slice(&came[..n]);
    }
    let theirs = u64::from_le_bytes(theirs.as_slice().try_into().map_err(|_| "no digest came")?);
    if sent != back || sent.0 != theirs {
        return Err(
            format!("a stream differs: sent {sent:x?}, back {back:x?}, the server got {theirs:x}").into()
        );
    }
    let mut sums = sums.lock().map_err(|_| "a panic")?;
    (sums.streams, sums.bytes, sums.late) = (sums.streams + 1, sums.bytes + sent.1, sums.late + late);
    Ok(())
}

#[derive(Debug, Default)]
struct Moved {
    made: u64,
    longest: Duration,
    refused: u64,
}

/// Moves lanes of these hosts, chosen at random, four at once, until so many moves are made or a stream has failed.
fn move_lanes(
    handle: &Handle,
    hosts: &[usize; 2],
    moves: u64,
    every: Duration,
    ended: &mpsc::Receiver<Result<(), String>>,
) -> Result<Moved, Failure> {
    let (mut rng, begun, mut moved) = (Rng::new(7), Instant::now(), Moved::default());
    while moved.made < moves {
        let mut under_way = Vec::new();
        for _ in 0..4 {
            let host = hosts[rng.next_u32() as usize % 2];
            let bucket = Bucket((rng.next_u32() % BUCKETS as u32) as u16);
            let Some(from) = handle.worker_of(host, bucket) else { continue };
            match handle.begin_move(host, bucket, 1 - from) {
                Ok(one) => under_way.push(one),
                Err(_) => moved.refused += 1,
            }
        }
        for one in under_way {
            let began = Instant::now();
            flowlane::block_on(one)?;
            moved.longest = moved.longest.max(began.elapsed());
            moved.made += 1;
        }
        let due = every * u32::try_from(moved.made)?;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        if let Ok(Err(why)) = ended.try_recv() {
            return Err(format!("after {} moves: {why}", moved.made).into());
        }
    }
    Ok(moved)
}

fn main() -> Result<(), Failure> {
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let moves = numbers.first().copied().unwrap_or(10_000);
    let every = Duration::from_secs(1) / numbers.get(1).map_or(200, |n| (*n).clamp(1, 100_000) as u32);
    let table = Indirection::new(128, BUCKETS)?;
    let rss = Rss::from_parts(
        Toeplitz::new(&Key::MICROSOFT),
        HashConfig::default(),
        table,
        BucketMap::new(BUCKETS, WORKERS)?,
    );
    let rss = Arc::new(rss);
    let on = |address: &str| -> Result<Interface, Failure> {
        let address: Prefix = address.parse().map_err(|_| "an address")?;
        Ok(Interface { addresses: vec![address], ..Interface::default() })
    };
    let harmonic: f64 = (1..=BUCKETS).map(|rank| 1.0 / rank as f64).sum();
    let whole = LOAD * WORKERS as f64 / COST.as_secs_f64();
    let (over, sums) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Sums>>::default());
    let (ends, record) = (over.clone(), sums.clone());
    let (done, ended) = mpsc::channel();
    let client = Host::new("client", rss.clone(), move || {
        let (done, over, sums) = (done.clone(), ends.clone(), record.clone());
        async move {
            let lane = u64::from(current()?.bucket.0);
            let rate = whole / (lane + 1) as f64 / harmonic / CONNECTIONS as f64;
            let tasks: Vec<_> = (0..CONNECTIONS as u64)
                .map(|n| spawn(stream(lane * 1000 + n + 1, rate, over.clone(), sums.clone())))
                .collect();
            for task in tasks {
                // An error is that of the stream.
                let ran = async { task?.await? };
                done.send(ran.await.map_err(|e: Failure| e.to_string()))?;
            }
            Ok::<(), Failure>(())
        }
    });
    let mut builder = Runtime::builder().workers(WORKERS).pin(false);
    let server = builder.host(Host::new("server", rss, server).interface(on("10.0.0.1/8")?));
    let client = builder.host(client.interface(on("10.0.0.2/8")?));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start()?;
    let begun = Instant::now();
    let moved = move_lanes(&runtime.handle(), &[server, client], moves, every, &ended)?;
    let took = begun.elapsed();
    over.store(true, Relaxed);
    for _ in 0..BUCKETS * CONNECTIONS {
        ended.recv_timeout(Duration::from_secs(120))??;
    }
    let report = runtime.stop();
    let sums = sums.lock().map_err(|_| "a panic")?;
    let again: u64 = [server, client].map(|host| report.total(host).tcp.packets_retransmitted).iter().sum();
    let reached = sums.bytes as f64 / MESSAGE as f64 / took.as_secs_f64() / (whole / LOAD);
    println!(
        "{} moves of lanes in {:.1} s, the longest {:.1} ms, {} not begun because the lane moved already",
        moved.made,
        took.as_secs_f64(),
        moved.longest.as_secs_f64() * 1e3,
        moved.refused
    );
    println!(
        "{} streams with {} bytes each way, every digest equal; {again} segments sent again; load {:.0} % of both workers, {} messages late",
        sums.streams,
        sums.bytes,
        reached * 100.0,
        sums.late
    );
    if sums.streams != (BUCKETS * CONNECTIONS) as u64 {
        return Err("a stream is missing".into());
    }
    Ok(())
}
