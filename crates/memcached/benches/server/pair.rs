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
        let counting = done.clone();
        let filled = Arc::new(Mutex::new(false));
        let asking = move || {
            let (done, filled) = (counting.clone(), filled.clone());
            async move {
                let lane = usize::from(flowlane::current().unwrap().bucket.0);
                let first = !std::mem::replace(&mut *filled.lock().unwrap(), true);
                if first {
                    store().await;
                }
                for n in 0..CONNECTIONS / 2 {
                    let done = done.clone();
                    let _ = flowlane::spawn(async move { ask(n as u64 + 1, &done[lane]).await });
                }
            }
        };
        let client = builder.host(Host::new("client", on_worker(1), asking).interface(on("10.0.0.2/24")));
        builder.pair((client, 0), (server, 0), PairConfig::default());
        let runtime = builder.start().unwrap();
        let count = || done.iter().map(|n| n.load(Relaxed)).sum::<u64>();
        // Once all keys are there.
        std::thread::sleep(time);
        let (before, began) = (count(), std::time::Instant::now());
        std::thread::sleep(time);
        rates.push((count() - before) as f64 / began.elapsed().as_secs_f64());
        drop(runtime.stop());
    }
    rates.sort_by(f64::total_cmp);
    println!("{:.0} gets/s ({:.0} to {:.0})", rates[rates.len() / 2], rates[0], rates[rates.len() - 1]);
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

/// Asks for ever.
async fn ask(seed: u64, done: &AtomicU64) {
    let stream = connect().await;
    let mut random = Random::new();
    (0..seed * 1000).for_each(|_| _ = random.below(2));
    let (mut request, mut answer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        request.clear();
        for _ in 0..DEPTH {
            request.extend_from_slice(format!("get key:{:028}\r\n", random.below(KEYS)).as_bytes());
        }
        if stream.write_all(&request).await.is_err() {
            return;
        }
        let (mut ends, mut tail) = (0, [0u8; 2]);
        while ends < DEPTH {
            let n = match stream.read(&mut answer).await {
                Ok(n) if n > 0 => n,
                _ => return,
            };
            // "END", which no value of digits has; it may be cut.
            let seen = [&tail[..], &answer[..n]].concat();
            ends += seen.windows(3).filter(|three| three == b"END").count();
            tail.copy_from_slice(&seen[seen.len() - 2..]);
        }
        done.fetch_add(DEPTH as u64, Relaxed);
    }
}
