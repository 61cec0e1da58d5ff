//! The counterpart of examples/udp_echo.c and examples/tcp_echo.c in Rust, for benches/run: rust_echo udp|tcp ADDRESS:PORT WORKERS
//!
//! It says when it serves, and serves until it is killed.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use flowlane::{Bind, Host, Key, ListenOptions, Rss, Runtime, SocketError, TcpListener, UdpSocket, spawn};

async fn datagrams(at: SocketAddr) -> Result<(), SocketError> {
    let bind = Bind { local_ip: Some(at.ip()), local_port: at.port(), ..Bind::default() };
    let socket = UdpSocket::bind(bind)?;
    let mut batch = Vec::new();
    loop {
        socket.recv_batch(&mut batch, 64).await?;
        socket.reply_batch(&mut batch).await?;
    }
}

async fn streams(at: SocketAddr) -> Result<(), SocketError> {
    let listener = TcpListener::bind(Some(at.ip()), at.port(), ListenOptions::default())?;
    loop {
        let stream = listener.accept().await?;
        // Of its lane, which is here.
        let _ = spawn(async move {
            let mut buffer = vec![0; 16384];
            loop {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) if stream.write_all(&buffer[..n]).await.is_err() => return,
                    Ok(_) => {}
                }
            }
        });
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, address, workers] = &arguments[..] else { return Err("udp|tcp ADDRESS:PORT WORKERS".into()) };
    let (address, workers): (SocketAddr, usize) = (address.parse()?, workers.parse()?);
    let rss = Arc::new(Rss::new(Key::MICROSOFT, workers));
    let host = match kind.as_str() {
        "tcp" => Host::kernel("echo", rss, move || streams(address)),
        _ => Host::kernel("echo", rss, move || datagrams(address)),
    };
    let mut builder = Runtime::builder().workers(workers);
    builder.host(host);
    let runtime = builder.start()?;
    eprintln!("serves {kind} at {address}");
    runtime.join()?;
    Ok(())
}
