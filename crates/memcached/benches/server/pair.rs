//! On our own stack, without a kernel: a server and a client in one process over a link in memory, one worker for each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowlane::{
    Bucket, BucketMap, HashConfig, Host, Indirection, Interface, Key, PairConfig, Rss, Runtime, TcpListener,
    TcpStream, Toeplitz, UdpFields, Worker,
};
use flowlane_memcached::server::{Options, Server};

use crate::client::{KEYS, Random, set};

const CONNECTIONS: usize = 16;
/// Requests that a connection has under way.
const DEPTH: usize = 16;
/// Bytes of an answer: a line with the key, the value, and the end.
const ANSWER: usize = "VALUE key: 0 100\r\n\r\nEND\r\n".len() + 28 + 100;

/// One lane on this worker of two.
fn on_worker(worker: u16) -> Arc<Rss> {
    let mut map = BucketMap::new(2, 2).unwrap();
    map.assign(Bucket(0), Worker(worker));
    map.assign(Bucket(1), Worker(worker));
    let table = Indirection::new(128, 2).unwrap();
    let config = HashConfig::with_udp(UdpFields::Two);
    Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), config, table, map))
}

fn on(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

/// Gets a second, for so long.
pub(crate) fn run(turns: usize, time: Duration) {
    println!("own stack in memory, a worker each end, {CONNECTIONS} connections with {DEPTH} gets under way");
    let mut rates = Vec::new();
    for _ in 0..turns {
        let server = Server::new(Options::default(), 2).unwrap();
        let mut builder = Runtime::builder().workers(2);
        let serving = move || {
            let server = server.clone();
            async move {
                let lane = server.begin()?;
                let listener = TcpListener::bind(None, 11211, Server::listen_options())?;
                lane.serve(listener, |_| {}).await
            }
        };
        let server = builder.host(Host::new("server", on_worker(0), serving).interface(on("10.0.0.1/24")));
        let done: Arc<[AtomicU64; 2]> = Arc::default();
        let requests = requests();
        let counting = done.clone();
        let filled = Arc::new(Mutex::new(false));
        let asking = move || {
            let (done, filled, requests) = (counting.clone(), filled.clone(), requests.clone());
            async move {
                let lane = usize::from(flowlane::current().unwrap().bucket.0);
                let first = !std::mem::replace(&mut *filled.lock().unwrap(), true);
                if first {
                    store().await;
                }
                for n in 0..CONNECTIONS / 2 {
                    let (done, requests) = (done.clone(), requests.clone());
                    let _ = flowlane::spawn(async move { ask(n as u64 + 1, requests, &done[lane]).await });
                }
            }
        };
        let client = builder.host(Host::new("client", on_worker(1), asking).interface(on("10.0.0.2/24")));
        builder.pair((client, 0), (server, 0), PairConfig::default());
        let runtime = builder.start().unwrap();
        let count = || done.iter().map(|n| n.load(Relaxed)).sum::<u64>();
        // Once all keys are there.
        std::thread::sleep(time);
        let (before, began, busy) = (count(), std::time::Instant::now(), workers());
        std::thread::sleep(time);
        let (gets, took) = ((count() - before) as f64, began.elapsed().as_secs_f64());
        rates.push(gets / took);
        let mut now = workers();
        now.iter_mut()
            .for_each(|(name, time)| *time -= busy.iter().find(|b| b.0 == *name).map_or(0.0, |b| b.1));
        let busy: Vec<String> =
            now.iter().map(|(name, time)| format!("{name} {:.0} %", time / took / 1e7)).collect();
        println!("{:.0} gets/s; of a processor: {}", gets / took, busy.join(", "));
        drop(runtime.stop());
    }
    rates.sort_by(f64::total_cmp);
    println!("{:.0} gets/s ({:.0} to {:.0})", rates[rates.len() / 2], rates[0], rates[rates.len() - 1]);
}

/// Nanoseconds of processor time that each worker's thread has had.
fn workers() -> Vec<(String, f64)> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        let path = thread.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?.trim().to_owned();
        let counted = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let time = counted.split_whitespace().next()?.parse().ok()?;
        name.starts_with("flowlane").then_some((name, time))
    };
    let mut all: Vec<(String, f64)> = threads.filter_map(of).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

async fn connect() -> TcpStream {
    loop {
        if let Ok(stream) = TcpStream::connect("10.0.0.1:11211".parse().unwrap()).await {
            return stream;
        }
        flowlane::yield_now().await;
    }
}

/// Stores all keys.
async fn store() {
    let stream = connect().await;
    for from in (0..KEYS).step_by(100) {
        let mut sets = Vec::new();
        (from..from + 100).for_each(|n| set(&mut sets, n));
        stream.write_all(&sets).await.unwrap();
        let mut answers = [0; 800];
        let mut len = 0;
        while len < answers.len() {
            len += stream.read(&mut answers[len..]).await.unwrap();
        }
    }
}

/// All requests, one after another.
fn requests() -> Arc<Vec<u8>> {
    Arc::new((0..KEYS).flat_map(|n| format!("get key:{n:028}\r\n").into_bytes()).collect())
}

/// Asks for ever. Requests are ready, and all answers are of one length: what is measured at this end is the stack.
async fn ask(seed: u64, requests: Arc<Vec<u8>>, done: &AtomicU64) {
    let stream = connect().await;
    let mut random = Random::new();
    (0..seed * 1000).for_each(|_| _ = random.below(2));
    let each = requests.len() / KEYS as usize;
    let answers = DEPTH * ANSWER;
    let (mut request, mut answer) = (Vec::with_capacity(DEPTH * each), vec![0; answers]);
    loop {
        request.clear();
        for _ in 0..DEPTH {
            let at = random.below(KEYS) as usize * each;
            request.extend_from_slice(&requests[at..at + each]);
        }
        if stream.write_all(&request).await.is_err() {
            return;
        }
        let mut came = 0;
        while came < answers {
            match stream.read(&mut answer[came..]).await {
                Ok(n) if n > 0 => came += n,
                _ => return,
            }
        }
        // Each of them a hit, and in its place.
        assert!(
            answer.chunks(ANSWER).all(|one| one.starts_with(b"VALUE key:") && one.ends_with(b"\r\nEND\r\n"))
        );
        done.fetch_add(DEPTH as u64, Relaxed);
    }
}
