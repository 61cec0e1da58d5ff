//! Datagrams: a server that echoes in batches, and a client that asks in every lane.
//!
//! ```text
//! cargo run --example udp                              both in this process, over a wire in memory
//! cargo run --example udp -- tap:t0 10.11.2.1/24       the server alone, over a link
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use flowlane::link::LinkSpec;
use flowlane::{
    Bucket, Host, Interface, Key, PairConfig, Prefix, Rss, Runtime, SocketError, UdpSocket, timeout,
};

/// The first task of every lane of the server.
async fn serve() -> Result<(), SocketError> {
    let socket = UdpSocket::on_port(7)?;
    let mut batch = Vec::new();
    loop {
        socket.recv_batch(&mut batch, 64).await?;
        // Each datagram goes back in the frame that it came in.
        socket.reply_batch(&mut batch).await?;
    }
}

/// Asks once, from any lane.
async fn ask() -> Result<String, Box<dyn Error + Send + Sync>> {
    let socket = UdpSocket::connect("10.0.0.1:7".parse()?)?;
    socket.send(b"hello").await?;
    let answer = timeout(Duration::from_secs(10), socket.recv()).await??;
    Ok(String::from_utf8(answer.payload().to_vec())?)
}

fn on(address: Prefix) -> Interface {
    Interface { addresses: vec![address], ..Interface::default() }
}

/// Runs the example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let mut builder = Runtime::builder();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [link, address] = &arguments[..] {
        let (link, address): (LinkSpec, Prefix) = (link.parse()?, address.parse()?);
        let host = builder.host(Host::new("server", rss.clone(), serve).interface(on(address)));
        link.join(&mut builder, host, &[Prefix::host(address.address())], None, &rss);
        // Until a lane fails.
        builder.start()?.join()?;
        return Ok(());
    }
    let server = builder.host(Host::new("server", rss.clone(), serve).interface(on("10.0.0.1/24".parse()?)));
    let client = Host::new("client", rss.clone(), || async {}).interface(on("10.0.0.2/24".parse()?));
    let client = builder.host(client);
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start()?;
    for bucket in 0..rss.buckets.len() {
        // Into a lane from outside, and its result back.
        let asked = runtime.handle().spawn_on(client, Bucket(bucket as u16), ask())?;
        let answer = flowlane::block_on(asked)?.map_err(|e| e.to_string())?;
        println!("lane {bucket} was told {answer}");
    }
    drop(runtime.stop());
    Ok(())
}
