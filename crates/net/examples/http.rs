//! A web server on lanes: hyper, unchanged, on streams that never leave the core their packets arrive on.
//!
//! ```text
//! cargo run -p flowlane-net --example http                           # server and client in one process, over a wire in memory
//! sudo cargo run -p flowlane-net --example http -- web0 10.11.2.1/24 # over a TAP; then, in another shell:
//!     sudo ip addr add 10.11.2.2/24 dev web0; sudo ip link set web0 up; curl http://10.11.2.1/
//! ```

use std::error::Error;
use std::sync::{Arc, mpsc};

use flowlane::link::tap::{self, TapOptions};
use flowlane::{
    Host, Interface, Key, PairConfig, Prefix, Rss, Runtime, StartError, TcpListener, TcpStream, current,
    spawn,
};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

type Failure = Box<dyn Error + Send + Sync>;

/// Called once in every lane: its own listener, its own connections, no locks.
async fn serve() {
    let Ok(listener) = TcpListener::on_port(80) else { return };
    while let Ok(stream) = listener.accept().await {
        let http = hyper::server::conn::http1::Builder::new();
        let connection = http.serve_connection(TokioIo::new(stream), service_fn(page));
        let served = spawn(async move {
            if let Err(e) = connection.await {
                eprintln!("a connection ended: {e}");
            }
        });
        if served.is_err() {
            return;
        }
    }
}

async fn page(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failure> {
    let lane = current()?;
    let text = format!("{} from bucket {} on worker {}\n", request.uri().path(), lane.bucket.0, lane.worker);
    Ok(Response::new(Full::new(text.into())))
}

async fn get(path: &str) -> Result<String, Failure> {
    let stream = TcpStream::connect("10.11.2.1:80".parse()?).await?;
    let (mut requests, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    spawn(async { drop(connection.await) })?;
    let request = Request::get(path).header("host", "10.11.2.1").body(Empty::<Bytes>::new())?;
    let body = requests.send_request(request).await?.into_body().collect().await?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

fn main() -> Result<(), Failure> {
    let mut entropy = Ok(());
    let key = Key::random(|bytes| entropy = flowlane::entropy::fill(bytes));
    entropy?;
    let rss = Arc::new(Rss::new(key, 2));
    let on = |address: Prefix| Interface { addresses: vec![address], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false);

    let mut arguments = std::env::args().skip(1);
    if let (Some(name), Some(address)) = (arguments.next(), arguments.next()) {
        let server = builder.host(Host::new("server", rss, serve).interface(on(address.parse()?)));
        builder.link(
            server,
            0,
            Box::new(move |memory, workers| {
                tap::open(&TapOptions::new(&name), memory, workers).map_err(StartError::Link)
            }),
        );
        let _runtime = builder.start()?;
        eprintln!("serving on {address} port 80; ^C to stop");
        loop {
            std::thread::park();
        }
    }

    let server = builder.host(Host::new("server", rss.clone(), serve).interface(on("10.11.2.1/24".parse()?)));
    let (say, said) = mpsc::channel();
    let client = Host::new("client", rss.clone(), move || {
        let say = say.clone();
        async move {
            let path = current().map(|lane| format!("/from-lane-{}", lane.bucket.0)).unwrap_or_default();
            let _ = say.send(get(&path).await);
        }
    });
    let client = builder.host(client.interface(on("10.11.2.2/24".parse()?)));
    builder.pair((client, 0), (server, 0), PairConfig::default());
    let runtime = builder.start()?;
    for _ in 0..rss.buckets.len() {
        print!("{}", said.recv()??);
    }
    drop(runtime);
    Ok(())
}
