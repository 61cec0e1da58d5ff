//! Lanes that move while they serve: an echo of TCP and UDP on port 7 whose lanes go to the other worker in turn.
//!
//! ```text
//! cargo run --example moving                                       a client in this process, over a wire in memory
//! cargo run --example moving -- af-packet:eth0 10.11.2.1/24 500    the server alone, a move each 500 ms, until standard input ends
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use flowlane::link::LinkSpec;
use flowlane::stats::{Report, counter_groups};
use flowlane::{
    Bucket, Handle, Host, Interface, Key, PairConfig, Prefix, Rss, Runtime, SocketError, TcpListener,
    TcpStream, UdpSocket, spawn, timeout,
};

const WORKERS: usize = 2;

/// The first task of every lane of the server.
async fn serve() -> Result<(), SocketError> {
    let listener = TcpListener::on_port(7)?;
    // Fails only when the lane ends.
    let _ = spawn(async move {
        while let Ok(stream) = listener.accept().await {
            let _ = spawn(echo(stream));
        }
    });
    let socket = UdpSocket::on_port(7)?;
    let mut batch = Vec::new();
    loop {
        socket.recv_batch(&mut batch, 64).await?;
        socket.reply_batch(&mut batch).await?;
    }
}

/// Ends when the peer has no more to say, or is gone.
async fn echo(stream: TcpStream) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(n) = stream.read(&mut bytes).await {
        if n == 0 || stream.write_all(&bytes[..n]).await.is_err() {
            break;
        }
    }
}

/// Asks the server `times` times over one connection, and compares what comes back.
async fn ask(times: u8) -> Result<(), Box<dyn Error + Send + Sync>> {
    let stream = TcpStream::connect("10.0.0.1:7".parse()?).await?;
    for i in 0..times {
        let (question, mut answer) = (vec![i; 40_000], vec![0; 40_000]);
        stream.write_all(&question).await?;
        let mut read = 0;
        while read < answer.len() {
            match timeout(Duration::from_secs(10), stream.read(&mut answer[read..])).await?? {
                0 => return Err("the server has no more to say".into()),
                n => read += n,
            }
        }
        if question != answer {
            return Err("another answer came back".into());
        }
    }
    Ok(())
}

/// Moves the lanes of `host` in turn until `until` says something; how many moves were made, and not made.
fn move_lanes(handle: &Handle, host: usize, every: Duration, until: &mpsc::Receiver<()>) -> (u64, u64) {
    let lanes = handle.hosts()[host].rss.buckets.len();
    let (mut moved, mut not_moved) = (0, 0);
    for turn in 0.. {
        if !matches!(until.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
            break;
        }
        // The first round takes each lane to the other worker, the second takes it back.
        let bucket = Bucket((turn % lanes) as u16);
        let worker = (turn + turn / lanes) % WORKERS;
        match handle.move_lane(host, bucket, worker) {
            Ok(()) => moved += 1,
            Err(e) => {
                eprintln!("lane {} was not moved: {e}", bucket.0);
                not_moved += 1;
            }
        }
    }
    (moved, not_moved)
}

/// Every counter of drops, those of frames between workers too, in one line of JSON.
fn summary(moves: (u64, u64), report: &Report, host: usize) -> String {
    let groups = counter_groups(&report.total(host));
    let drops: Vec<String> = groups
        .get("drops")
        .into_iter()
        .flat_map(|drops| drops.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name:?}:{n}")))
        .collect();
    let between: u64 = report.workers.iter().map(|worker| worker.netisr.dropped).sum();
    let (moved, not_moved) = moves;
    format!(
        r#"{{"moved":{moved},"not-moved":{not_moved},"netisr-dropped":{between},"drops":{{{}}}}}"#,
        drops.join(",")
    )
}

fn on(address: Prefix) -> Interface {
    Interface { addresses: vec![address], ..Interface::default() }
}

/// Runs the example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, WORKERS));
    let mut builder = Runtime::builder().workers(WORKERS).pin(false);
    let (end, ended) = mpsc::channel();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [link, address, every] = &arguments[..] {
        let (link, address): (LinkSpec, Prefix) = (link.parse()?, address.parse()?);
        let host = builder.host(Host::new("server", rss.clone(), serve).interface(on(address)));
        link.join(&mut builder, host, &[Prefix::host(address.address())], None, &rss);
        let runtime = builder.start()?;
        eprintln!("echo on {address} port 7, lanes move; ends with standard input");
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = end.send(());
        });
        let moves = move_lanes(&runtime.handle(), host, Duration::from_millis(every.parse()?), &ended);
        println!("{}", summary(moves, &runtime.stop_within(Duration::from_secs(2)), host));
        return Ok(());
    }
    let server = builder.host(Host::new("server", rss.clone(), serve).interface(on("10.0.0.1/24".parse()?)));
    let client = Host::new("client", rss, || async {}).interface(on("10.0.0.2/24".parse()?));
    let client = builder.host(client);
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start()?;
    let handle = runtime.handle();
    let asked = handle.spawn_on(client, Bucket(0), async move {
        let answer = ask(200).await;
        let _ = end.send(());
        answer.map_err(|e| e.to_string())
    })?;
    let moves = move_lanes(&handle, server, Duration::from_millis(1), &ended);
    flowlane::block_on(asked)??;
    println!("{}", summary(moves, &runtime.stop_within(Duration::from_secs(2)), server));
    Ok(())
}
