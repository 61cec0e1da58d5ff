//! How long a lane with many connections stalls when it moves, as a client of it sees that.
//!
//! ```text
//! cargo bench -p flowlane-net --bench moves [-- CONNECTIONS [MOVES]]      10,000 connections in each lane, 1,000 moves
//! ```
//!
//! A server and a client on a wire in memory, two workers, a card with 4 queues at each end whose table follows the lanes. Each server lane
//! holds the connections, which are idle. One client task sends a datagram to the lane that is moved and waits for its echo, again and again;
//! the longest of these round trips that overlaps a move is what the move cost. Both workers and the caller share the machine's processors, so
//! with fewer than three of them a move waits for the scheduler as well: compare with the line without moves.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use flowlane::{
    Bucket, HashConfig, Host, Interface, Key, PairConfig, Rss, Runtime, TcpListener, TcpStream, Toeplitz,
    UdpFields, UdpSocket, spawn,
};
use flowlane_rss::emulated::{Card, CardOptions};

const QUEUES: usize = 4;
const WORKERS: usize = 2;

/// Echoes datagrams, and keeps whoever connects.
async fn server() -> Result<(), flowlane::SocketError> {
    let listener = TcpListener::on_port(80)?;
    let _ = spawn(async move {
        let mut kept = Vec::new();
        while let Ok(stream) = listener.accept().await {
            kept.push(stream);
        }
    });
    let socket = UdpSocket::on_port(7)?;
    let mut batch = Vec::new();
    loop {
        socket.recv_batch(&mut batch, 64).await?;
        socket.reply_batch(&mut batch).await?;
    }
}

/// One round trip: when it began and how long it took, nanoseconds.
type Trips = Arc<Mutex<Vec<(u64, u64)>>>;

/// The first task of a client's lane.
async fn ask(
    connections: usize,
    say: mpsc::Sender<()>,
    trips: Trips,
    asked: Arc<AtomicU64>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut kept = Vec::new();
    while kept.len() < connections {
        kept.push(TcpStream::connect("10.0.0.1:80".parse()?).await?);
    }
    let _ = say.send(());
    if flowlane::current()?.bucket != Bucket(0) {
        std::future::pending::<()>().await;
    }
    let socket = UdpSocket::connect("10.0.0.1:7".parse()?)?;
    loop {
        let begun = flowlane::precise_now()?;
        socket.send(b"?").await?;
        socket.recv().await?;
        let took = flowlane::precise_now()?.saturating_duration_since(begun);
        if asked.load(SeqCst) > 0
            && let Ok(mut trips) = trips.lock()
        {
            trips.push((begun.as_nanos(), took.as_nanos() as u64));
        }
    }
}

fn quantile(sorted: &[u64], q: f64) -> f64 {
    sorted
        .get(((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1)))
        .map_or(0.0, |n| *n as f64 / 1e3)
}

fn line(what: &str, mut times: Vec<u64>) {
    times.sort_unstable();
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| quantile(&times, q));
    let most = times.last().map_or(0.0, |n| *n as f64 / 1e3);
    println!("{what:<34} {:>8} {p50:>9.1} {p90:>9.1} {p99:>9.1} {most:>9.1}", times.len());
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let (connections, moves) =
        (numbers.first().copied().unwrap_or(10_000), numbers.get(1).copied().unwrap_or(1_000));
    let card = Card::new(
        "microsoft",
        &CardOptions { queues: QUEUES as u16, udp: UdpFields::Four, ..Default::default() },
    )?;
    let slots: Vec<u16> = card.table().slots().iter().map(|queue| queue.0).collect();
    let config = HashConfig::with_udp(UdpFields::Four);
    let rss = Arc::new(Rss::of_card(Toeplitz::new(&Key::MICROSOFT), config, &slots, QUEUES, WORKERS)?);
    let lanes = rss.buckets.len();
    let on = |address: &str, claimed: &[&str]| -> Result<Interface, Box<dyn Error>> {
        let claimed =
            claimed.iter().map(|c| c.parse().map_err(|_| format!("{c}?"))).collect::<Result<_, _>>()?;
        Ok(Interface {
            addresses: vec![address.parse().map_err(|_| "an address")?],
            claimed,
            ..Interface::default()
        })
    };
    let mut builder = Runtime::builder().workers(WORKERS).pin(false).frames(65_536);
    let host = builder.host(Host::new("server", rss.clone(), server).interface(on("10.0.0.1/8", &[])?));
    let (say, said) = mpsc::channel::<()>();
    let trips: Trips = Arc::default();
    let asked: Arc<AtomicU64> = Arc::default();
    // Each client lane begins its share of the connections; lane 0 asks as well.
    let (record, measured) = (trips.clone(), asked.clone());
    let client =
        Host::new("client", rss, move || ask(connections, say.clone(), record.clone(), measured.clone()));
    let client = builder.host(client.interface(on("10.0.0.2/8", &[])?));
    let pair = PairConfig { card: Some(card), queues: Some(QUEUES), ..PairConfig::default() };
    builder.pair((host, 0), (client, 0), pair);
    let runtime = builder.start()?;
    for _ in 0..lanes {
        said.recv_timeout(Duration::from_secs(120))?;
    }
    let handle = runtime.handle();
    // The lane that echoes: the one whose datagrams grow.
    let delivered =
        || handle.counters().lanes(host).iter().map(|lane| lane.stats.udp.delivered).collect::<Vec<_>>();
    let before = delivered();
    std::thread::sleep(Duration::from_millis(200));
    let grown = delivered().iter().zip(&before).map(|(now, was)| now - was).collect::<Vec<_>>();
    let lane = Bucket((0..lanes).max_by_key(|lane| grown[*lane]).unwrap_or(0) as u16);
    let held = handle.counters().lanes(host)[usize::from(lane.0)].counts.connections;
    println!("{held} connections in the lane that moves, {lanes} lanes, {WORKERS} workers");
    println!("{:<34} {:>8} {:>9} {:>9} {:>9} {:>9}", "microseconds", "times", "p50", "p90", "p99", "most");
    asked.store(1, SeqCst);
    std::thread::sleep(Duration::from_secs(2));
    let quiet = std::mem::take(&mut *trips.lock().map_err(|_| "a panic")?);
    line("a round trip, without moves", quiet.iter().map(|trip| trip.1).collect());
    let mut windows = Vec::new();
    for _ in 0..moves {
        let to = 1 - handle.worker_of(host, lane).ok_or("no such lane")?;
        let (begun, clock) = (handle.now().as_nanos(), Instant::now());
        handle.move_lane(host, lane, to)?;
        windows.push((begun, clock.elapsed().as_nanos() as u64));
        std::thread::sleep(Duration::from_millis(2));
    }
    asked.store(0, SeqCst);
    let mut all = std::mem::take(&mut *trips.lock().map_err(|_| "a panic")?);
    all.sort_unstable();
    let longest = |(begun, took): &(u64, u64)| {
        let overlaps = |trip: &&(u64, u64)| trip.0 < begun + took && trip.0 + trip.1 > *begun;
        let first = all.partition_point(|trip| trip.0 + 1_000_000_000 < *begun);
        all[first..].iter().take_while(|trip| trip.0 < begun + took).filter(overlaps).map(|trip| trip.1).max()
    };
    line("the longest of a move", windows.iter().filter_map(longest).collect());
    line("a move, until the card sends there", windows.iter().map(|window| window.1).collect());
    let report = runtime.stop();
    println!(
        "slots moved {}, refused {}",
        report.cards.iter().map(|c| c.counts.slots_moved).sum::<u64>(),
        report.cards.iter().map(|c| c.counts.refused).sum::<u64>()
    );
    Ok(())
}
