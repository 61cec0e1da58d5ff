//! What the instruments of a running instance cost a packet: two hosts on a wire in memory, one worker, requests and answers of 64 bytes.
//!
//! ```text
//! cargo bench -p flowlane-net --bench instruments -- udp|tcp v4|v6 AT_ONCE ROUNDS [INSTRUMENT ...]
//! ```
//!
//! In each round AT_ONCE requests are made, and answered; of TCP each on a connection of its own. The line that is printed says how many packets
//! the links took. Under callgrind, which counts the worker alone, two numbers of rounds give the instructions of a packet: `benches/instruments.sh`.
//! Both hosts have the instruments, and each packet leaves one lane and enters another: it is counted twice.

use std::error::Error;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::capture::CaptureOptions;
use flowlane::watchdog::Watchdog;
use flowlane::{
    BucketMap, FlowRecords, HashConfig, Host, Idle, Indirection, Interface, Key, PairConfig, Rss, Runtime,
    TcpListener, TcpStream, Toeplitz, UdpSocket, WatchFlows, spawn,
};

type Failure = Box<dyn Error + Send + Sync>;

const PORT: u16 = 7;
const REQUEST: [u8; 64] = [7; 64];

#[derive(Debug, Clone)]
struct Options {
    tcp: bool,
    v6: bool,
    at_once: usize,
    rounds: usize,
}

async fn server(tcp: bool) -> Result<(), Failure> {
    if !tcp {
        let (socket, mut batch) = (UdpSocket::on_port(PORT)?, Vec::new());
        loop {
            socket.recv_batch(&mut batch, 64).await?;
            socket.reply_batch(&mut batch).await?;
        }
    }
    let listener = TcpListener::on_port(PORT)?;
    loop {
        let stream = listener.accept().await?;
        let _ = spawn(async move {
            let mut asked = [0; 64];
            while let Ok(n @ 1..) = stream.read(&mut asked).await {
                stream.write_all(&asked[..n]).await?;
            }
            Ok::<(), Failure>(())
        });
    }
}

async fn client(wish: Options) -> Result<(), Failure> {
    let server = if wish.v6 { "[fd00::1]:7" } else { "10.0.0.1:7" }.parse()?;
    if wish.tcp {
        let mut streams = Vec::new();
        for _ in 0..wish.at_once {
            let stream = TcpStream::connect(server).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let mut answer = [0; 64];
        for _ in 0..wish.rounds {
            for stream in &streams {
                stream.write_all(&REQUEST).await?;
            }
            for stream in &streams {
                let mut left = REQUEST.len();
                while left > 0 {
                    left -= stream.read(&mut answer[..left]).await?;
                }
            }
        }
        return Ok(());
    }
    let (socket, mut batch) = (UdpSocket::connect(server)?, Vec::new());
    for _ in 0..wish.rounds {
        for _ in 0..wish.at_once {
            socket.send(&REQUEST).await?;
        }
        let mut left = wish.at_once;
        while left > 0 {
            left -= socket.recv_batch(&mut batch, left).await?;
            batch.clear();
        }
    }
    Ok(())
}

/// All flows are of one lane.
fn one_bucket() -> Result<Arc<Rss>, Failure> {
    let (table, map) = (Indirection::new(128, 1)?, BucketMap::new(1, 1)?);
    Ok(Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, map)))
}

fn measure(wish: &Options, instruments: &[String]) -> Result<(), Failure> {
    let has = |name: &str| instruments.iter().any(|instrument| instrument == name);
    let on = |n: u8| -> Result<Interface, Failure> {
        let addresses = vec![format!("10.0.0.{n}/24").parse()?, format!("fd00::{n}/64").parse()?];
        Ok(Interface { addresses, ..Interface::default() })
    };
    let (done, ended) = mpsc::channel();
    let tcp = wish.tcp;
    let asks = wish.clone();
    let ask = move || {
        let (wish, done) = (asks.clone(), done.clone());
        async move { Ok::<(), Failure>(done.send(client(wish).await)?) }
    };
    let mut server = Host::new("server", one_bucket()?, move || server(tcp)).interface(on(1)?);
    let mut client = Host::new("client", one_bucket()?, ask).interface(on(2)?);
    // An exporter would take them by another thread.
    let records = FlowRecords::new(1000).active_timeout(Duration::from_secs(1));
    if has("records") {
        (server, client) = (server.flows(&records), client.flows(&records));
    }
    // Instructions of idle polling would be counted as well.
    let mut builder =
        Runtime::builder().workers(1).pin(false).idle(Idle::Adaptive(Duration::ZERO)).frames(16_384);
    if !has("budget") {
        builder = builder.task_budget(Duration::ZERO);
    }
    builder = builder.perf_events(has("perf"));
    let (server, client) = (builder.host(server), builder.host(client));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let file = std::env::temp_dir().join(format!("flowlane-instruments-{}.pcapng", std::process::id()));
    if has("capture") {
        let mut options = CaptureOptions::new(&file);
        // Nobody's.
        options.flow = Some("udp 10.9.9.9:9 -> *".parse()?);
        builder.capture(options);
    }
    let runtime = builder.start()?;
    let handle = runtime.handle();
    if has("top") {
        handle.watch_flows(Some(WatchFlows::default()))?;
    }
    let watchdog =
        has("watchdog").then(|| Watchdog::new(Duration::from_secs(10)).start(handle)).transpose()?;
    let outcome = ended.recv_timeout(Duration::from_secs(600))?;
    drop(watchdog);
    let report = runtime.stop();
    let _ = std::fs::remove_file(file);
    outcome?;
    let received: u64 = [server, client].iter().map(|host| report.total(*host).ethernet.received).sum();
    println!("{received} packets");
    Ok(())
}

fn main() -> Result<(), Failure> {
    const KNOWN: [&str; 6] = ["records", "budget", "perf", "capture", "top", "watchdog"];
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [protocol, family, at_once, rounds, instruments @ ..] = &words[..] else {
        println!("instruments: udp|tcp v4|v6 AT_ONCE ROUNDS [{}]", KNOWN.join("|"));
        return Ok(());
    };
    if let Some(other) = instruments.iter().find(|word| !KNOWN.contains(&word.as_str())) {
        return Err(format!("{other}: no instrument; there are {}", KNOWN.join(", ")).into());
    }
    let wish = Options {
        tcp: protocol == "tcp",
        v6: family == "v6",
        at_once: at_once.parse()?,
        rounds: rounds.parse()?,
    };
    measure(&wish, instruments)
}
