//! Requests a second of the server in memory, beside hyper's on the same link in the same run.
//!
//! Both ends on one core: a worker that holds the lanes of the server and of a client which costs next to nothing (it
//! counts bytes; all answers have the same length). So a core that had the server alone would do more.
//!
//! ```text
//! cargo bench -p flowlane-http --bench server                        # every case, in turns
//! valgrind --tool=callgrind target/release/deps/server-* --only ours 16 20000   # instructions: the difference of two lengths
//! ```
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on panics")]

use std::convert::Infallible;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flowlane::{Host, Interface, Key, PairConfig, Rss, Runtime, TcpListener, TcpStream, spawn};
use flowlane_http::server::{Options, Server};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

const REQUEST: &[u8] =
    b"GET /size/600 HTTP/1.1\r\nHost: 10.0.0.1\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";
/// Connections of each lane of the client.
const CONNECTIONS: usize = 32;
const LANES: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Ours,
    Hyper,
}

async fn page(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    static BODY: [u8; 600] = [b'x'; 600];
    let mut response = Response::new(Full::new(Bytes::from_static(&BODY)));
    let headers = response.headers_mut();
    headers.insert("server", hyper::header::HeaderValue::from_static("flowlane"));
    headers.insert("content-type", hyper::header::HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

async fn hyper_lane(listener: TcpListener) {
    while let Ok(stream) = listener.accept().await {
        let mut http = hyper::server::conn::http1::Builder::new();
        http.pipeline_flush(true);
        let connection = http.serve_connection(TokioIo::new(stream), service_fn(page));
        spawn(async { drop(connection.await) }).unwrap();
    }
}

/// Asks `n` times, `depth` requests under way.
async fn ask(n: usize, depth: usize) {
    let stream = TcpStream::connect("10.0.0.1:80".parse().unwrap()).await.unwrap();
    let mut buffer = vec![0; 1 << 16];
    stream.write_all(REQUEST).await.unwrap();
    let len = stream.read(&mut buffer).await.unwrap();
    assert!(buffer.starts_with(b"HTTP/1.1 200 OK\r\n") && len > 600, "{len} bytes");
    let batch = REQUEST.repeat(depth);
    let (mut asked, mut answered, mut bytes) = (depth.min(n), 0, 0);
    stream.write_all(&batch[..asked * REQUEST.len()]).await.unwrap();
    while answered < n {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "it ended");
        bytes += read;
        let done = bytes / len;
        let next = (done - answered).min(n - asked);
        answered = done;
        asked += next;
        if next > 0 {
            stream.write_all(&batch[..next * REQUEST.len()]).await.unwrap();
        }
    }
}

/// Requests a second.
fn run(which: Which, depth: usize, each: usize) -> f64 {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    assert_eq!(rss.buckets.len(), LANES);
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let config = PairConfig { checksum_offload: true, segmentation_offload: true, ..PairConfig::default() };
    let server = Server::new(Options::default(), LANES).unwrap();
    let mut builder = Runtime::builder().workers(1).pin(false);
    let serving = Host::new("server", rss.clone(), move || {
        let server = server.clone();
        async move {
            let listener = TcpListener::bind(None, 80, Server::listen_options()).unwrap();
            match which {
                Which::Ours => drop(server.serve(listener).await),
                Which::Hyper => hyper_lane(listener).await,
            }
        }
    });
    let serving = builder.host(serving.interface(on("10.0.0.1/24")));
    let (say, said) = mpsc::channel();
    let asking = Host::new("client", rss, move || {
        let say = say.clone();
        async move {
            for _ in 0..CONNECTIONS {
                let say = say.clone();
                spawn(async move {
                    ask(each, depth).await;
                    let _ = say.send(());
                })
                .unwrap();
            }
        }
    });
    let asking = builder.host(asking.interface(on("10.0.0.2/24")));
    builder.pair((asking, 0), (serving, 0), config);
    let began = Instant::now();
    let runtime = builder.start().unwrap();
    for _ in 0..CONNECTIONS * LANES {
        said.recv_timeout(Duration::from_secs(300)).unwrap();
    }
    let took = began.elapsed();
    drop(runtime.stop());
    (CONNECTIONS * LANES * each) as f64 / took.as_secs_f64()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == "--only") {
        let which = if arguments[at + 1] == "hyper" { Which::Hyper } else { Which::Ours };
        let rate = run(which, arguments[at + 2].parse().unwrap(), arguments[at + 3].parse().unwrap());
        println!("{which:?}: {rate:.0} requests/s");
        return;
    }
    for depth in [1, 16] {
        let mut rates = [Vec::new(), Vec::new()];
        // In turns, so that what disturbs the machine disturbs both.
        for _ in 0..7 {
            for (which, rates) in [Which::Ours, Which::Hyper].into_iter().zip(&mut rates) {
                rates.push(run(which, depth, 4000 * depth.min(4)));
            }
        }
        let mut medians = [0.0; 2];
        for ((name, rates), median) in ["ours", "hyper"].iter().zip(&mut rates).zip(&mut medians) {
            rates.sort_by(f64::total_cmp);
            *median = rates[3];
            println!(
                "{name:6} depth {depth:2}: {:9.0} requests/s (from {:.0} to {:.0})",
                rates[3], rates[0], rates[6]
            );
        }
        println!("ratio  depth {depth:2}: {:9.2}", medians[0] / medians[1]);
    }
}
