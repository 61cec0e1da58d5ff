//! What a body of 1 MiB from memory costs: sent copied (`write_all`) and from where it is (`send_zc`), in turns in one process.
//!
//! ```text
//! cargo bench -p flowlane-net --bench zerocopy [-- ROUNDS]
//! ```
//!
//! Processor time of both ends together, for each MiB: over the link in memory (with segmentation left to it, and without), where the
//! reader takes frames and copies nothing, and over the kernel's loopback, which copies whatever it is asked.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on may stop")]

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowlane::{
    Host, Interface, Key, ListenOptions, PairConfig, Rss, Runtime, SendPool, TcpListener, TcpStream, current,
    spawn,
};
use rustix::time::{ClockId, clock_gettime};

const BODY: usize = 1 << 20;
/// Bodies of one measurement.
const BODIES: u64 = 2000;

fn processor_nanos() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads whatever comes, as cheaply as the stack allows.
async fn sink(listener: TcpListener) {
    while let Ok(stream) = listener.accept().await {
        spawn(async move {
            let (mut frames, mut buffer) = (Vec::new(), vec![0; 1 << 18]);
            loop {
                let more = if stream.is_kernel_socket() {
                    stream.read(&mut buffer).await.is_ok_and(|n| n > 0)
                } else {
                    frames.clear();
                    stream.read_frames(&mut frames, 64).await.is_ok_and(|n| n > 0)
                };
                if !more {
                    return;
                }
            }
        })
        .unwrap();
    }
}

/// Sends the bodies; nanoseconds of processor for each.
async fn send(stream: &TcpStream, in_place: bool) -> u64 {
    let pool = SendPool::new(2, BODY);
    let body = vec![7; BODY];
    let begin = processor_nanos();
    for _ in 0..BODIES {
        if in_place {
            let buffer = pool.take().await;
            // Two are on their way at once.
            drop(stream.queue_zc(buffer).await.unwrap());
        } else {
            stream.write_all(&body).await.unwrap();
        }
    }
    (processor_nanos() - begin) / BODIES
}

/// Both ways in turns, so often.
fn measure(rounds: usize, offload: Option<bool>) -> Vec<(u64, u64)> {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let (say, said) = mpsc::channel();
    let (tell, told) = mpsc::channel::<SocketAddr>();
    let (tell, told, say) = (Mutex::new(tell), Arc::new(Mutex::new(told)), Mutex::new(say));
    let kernel = offload.is_none();
    let server = move || {
        let tell = tell.lock().unwrap().clone();
        async move {
            let here: SocketAddr = if kernel { "127.0.0.1:0" } else { "10.0.0.1:7" }.parse().unwrap();
            let listener = TcpListener::bind(Some(here.ip()), here.port(), ListenOptions::default()).unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            sink(listener).await;
        }
    };
    let client = move || {
        let (told, say) = (told.clone(), say.lock().unwrap().clone());
        async move {
            if current().unwrap().bucket.0 > 0 {
                return;
            }
            // On one worker the servers' first tasks run in turn with this one.
            let at = loop {
                if let Ok(at) = told.lock().unwrap().try_recv() {
                    break at;
                }
                flowlane::yield_now().await;
            };
            let stream = TcpStream::connect(at).await.unwrap();
            send(&stream, false).await;
            for round in 0..rounds {
                let first = send(&stream, round % 2 == 0).await;
                let second = send(&stream, round % 2 == 1).await;
                let pair = if round % 2 == 0 { (first, second) } else { (second, first) };
                say.send(pair).unwrap();
            }
        }
    };
    let mut builder = Runtime::builder().workers(1).pin(false).frames(32_768);
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    match offload {
        None => {
            builder.host(Host::kernel("server", rss.clone(), server));
            builder.host(Host::kernel("client", rss, client));
        }
        Some(segmentation_offload) => {
            builder.host(Host::new("server", rss.clone(), server).interface(on("10.0.0.1/24")));
            builder.host(Host::new("client", rss, client).interface(on("10.0.0.2/24")));
            let config = PairConfig { segmentation_offload, checksum_offload: true, ..PairConfig::default() };
            builder.pair((0, 0), (1, 0), config);
        }
    }
    let runtime = builder.start().unwrap();
    let pairs = (0..rounds).map(|_| said.recv_timeout(Duration::from_secs(120)).unwrap()).collect();
    if let Some(stats) = runtime.stop().kernel(1) {
        println!(
            "  kernel: {} sends in place, {} of them copied by it, {} copied at once, {} refused",
            stats.zerocopy_sends, stats.zerocopy_copied, stats.zerocopy_skipped, stats.zerocopy_refused
        );
    }
    pairs
}

fn median(mut numbers: Vec<f64>) -> (f64, f64, f64) {
    numbers.sort_by(f64::total_cmp);
    (numbers[numbers.len() / 2], numbers[0], numbers[numbers.len() - 1])
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(7);
    println!("processor time of both ends for a body of 1 MiB, {rounds} pairs of {BODIES} bodies");
    for (name, offload) in [
        ("memory, segments cut by the link", Some(true)),
        ("memory, segments cut by us", Some(false)),
        ("kernel, loopback (copies whatever it is asked)", None),
    ] {
        let pairs = measure(rounds, offload);
        let ratio = median(pairs.iter().map(|(zc, copied)| *zc as f64 / *copied as f64).collect());
        let micros =
            |f: fn(&(u64, u64)) -> u64| median(pairs.iter().map(|pair| f(pair) as f64 / 1000.0).collect()).0;
        println!(
            "{name}: send_zc {:.1} us, write_all {:.1} us, ratio {:.2} ({:.2} to {:.2})",
            micros(|pair| pair.0),
            micros(|pair| pair.1),
            ratio.0,
            ratio.1,
            ratio.2
        );
    }
}
