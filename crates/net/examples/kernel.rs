//! The same sockets on the kernel's stack: no link, no address of our own, no privilege. A server in every lane, and a client that
//! knows nothing of Flowlane.
//!
//! ```text
//! cargo run --example kernel
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, OnceLock};

use flowlane::{Bucket, Host, Key, ListenOptions, Rss, Runtime, SocketError, TcpListener, TcpStream, spawn};

/// The first task of every lane: all lanes listen on the port that the first of them was given.
async fn serve(at: Arc<OnceLock<SocketAddr>>) -> Result<(), SocketError> {
    let port = at.get().map_or(0, SocketAddr::port);
    let listener = TcpListener::bind(Some([127, 0, 0, 1].into()), port, ListenOptions::default())?;
    let address = listener.local_addr()?;
    at.get_or_init(|| address);
    loop {
        let stream = listener.accept().await?;
        // A connection that ends badly concerns nobody else.
        let _ = spawn(async move {
            let _ = upper_case(stream).await;
        });
    }
}

async fn upper_case(stream: TcpStream) -> Result<(), SocketError> {
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        buffer[..n].make_ascii_uppercase();
        stream.write_all(&buffer[..n]).await?;
    }
}

/// Runs the example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = Runtime::builder();
    let at: Arc<OnceLock<SocketAddr>> = Arc::default();
    let told = at.clone();
    let host = builder
        .host(Host::kernel("server", Arc::new(Rss::new(Key::MICROSOFT, 1)), move || serve(told.clone())));
    // Every lane has begun when this returns.
    let runtime = builder.start()?;
    let at = *at.get().ok_or("no lane listens")?;
    let mut stream = std::net::TcpStream::connect(at)?;
    stream.write_all(b"hello")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    println!("{at} says {answer}");
    // A client inside a lane, begun from outside of it.
    let asked = runtime.handle().spawn_on(host, Bucket(0), async move {
        let stream = TcpStream::connect(at).await?;
        stream.write_all(b"and from a lane").await?;
        let mut buffer = [0; 64];
        let n = stream.read(&mut buffer).await?;
        Ok::<_, SocketError>(String::from_utf8_lossy(&buffer[..n]).into_owned())
    })?;
    println!("{at} says {}", flowlane::block_on(asked)??);
    drop(runtime.stop());
    if answer == "HELLO" { Ok(()) } else { Err("another answer".into()) }
}
