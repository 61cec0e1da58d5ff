//! A client: many connections at once, a limit to each, and an error that reaches `main`.
//!
//! ```text
//! cargo run --example client                           to a server in this process, over a wire in memory
//! cargo run --example client -- 127.0.0.1:8080         to any server that echoes, over sockets of the kernel
//! ```

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flowlane::{
    Host, Interface, Key, PairConfig, Rss, Runtime, SocketError, TcpListener, TcpStream, spawn, timeout,
};

/// The first task of every lane of the server.
async fn serve() -> Result<(), SocketError> {
    let listener = TcpListener::on_port(7)?;
    loop {
        let stream = listener.accept().await?;
        // A connection that ends badly concerns nobody else.
        let _ = spawn(async move {
            let _ = echo(stream).await;
        });
    }
}

async fn echo(stream: TcpStream) -> Result<(), SocketError> {
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..n]).await?;
    }
}

/// One question, and its answer.
async fn ask(to: SocketAddr, n: usize) -> io::Result<()> {
    let stream = TcpStream::connect(to).await?;
    let words = format!("hello for the {n}th time\n");
    stream.write_all(words.as_bytes()).await?;
    let mut answer = vec![0; words.len()];
    let mut got = 0;
    while got < answer.len() {
        match stream.read(&mut answer[got..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => got += more,
        }
    }
    if answer == words.as_bytes() { Ok(()) } else { Err(io::Error::other("another answer")) }
}

/// The first task of every lane of the client. Its error ends the program.
async fn client(to: SocketAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
    let asked: Result<Vec<_>, _> =
        (0..20).map(|n| spawn(timeout(Duration::from_secs(10), ask(to, n)))).collect();
    for task in asked? {
        // The task panicked; it took too long; something was wrong with the connection.
        task.await???;
    }
    println!("lane {}: answered", flowlane::current()?.bucket.0);
    Ok(())
}

/// Runs the example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let mut builder = Runtime::builder();
    if let Some(to) = std::env::args().nth(1).and_then(|to| to.parse().ok()) {
        builder.host(Host::kernel("client", rss, move || client(to)));
        // Until all lanes have ended, or one has failed.
        builder.start()?.join()?;
        return Ok(());
    }
    let on = |address: &str| {
        Ok::<_, Box<dyn Error>>(Interface { addresses: vec![address.parse()?], ..Interface::default() })
    };
    let server = builder.host(Host::new("server", rss.clone(), serve).interface(on("10.0.0.1/24")?));
    let to = "10.0.0.1:7".parse()?;
    // The server never ends: what ends is told by a channel.
    let (ended, ends) = std::sync::mpsc::channel();
    let main = move || {
        let ended = ended.clone();
        async move {
            let _ = ended.send(client(to).await);
        }
    };
    let asking = builder.host(Host::new("client", rss.clone(), main).interface(on("10.0.0.2/24")?));
    builder.pair((server, 0), (asking, 0), PairConfig::default());
    let runtime = builder.start()?;
    for _ in 0..rss.buckets.len() {
        ends.recv()?.map_err(|e| e.to_string())?;
    }
    drop(runtime.stop());
    Ok(())
}
