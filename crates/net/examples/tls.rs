//! TLS on lanes: rustls, unchanged, on streams that never leave the core their packets arrive on. Server and client are in
//! one process, over a wire in memory; the certificate is made at the start and trusted by the client alone.
//!
//! ```text
//! cargo run -p flowlane-net --example tls
//! ```

use std::error::Error;
use std::sync::{Arc, mpsc};

use flowlane::{
    Host, Interface, Key, PairConfig, Prefix, Rss, Runtime, TcpListener, TcpStream, current, spawn,
};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Failure = Box<dyn Error + Send + Sync>;

/// Called once in every lane: its own listener, its own sessions, no locks.
async fn serve(tls: TlsAcceptor) {
    let Ok(listener) = TcpListener::on_port(443) else { return };
    while let Ok(stream) = listener.accept().await {
        let tls = tls.clone();
        let session = async move {
            if let Err(e) = greet(tls, stream).await {
                eprintln!("a session ended: {e}");
            }
        };
        if spawn(session).is_err() {
            return;
        }
    }
}

/// Answers each line with where it was read.
async fn greet(tls: TlsAcceptor, stream: TcpStream) -> Result<(), Failure> {
    let (_, _, bucket) = stream.flow()?;
    let mut session = tls.accept(stream).await?;
    let mut line = [0; 256];
    loop {
        let n = session.read(&mut line).await?;
        if n == 0 {
            break;
        }
        let said = String::from_utf8_lossy(&line[..n]);
        session
            .write_all(format!("{} was heard in bucket {}\n", said.trim_end(), bucket.0).as_bytes())
            .await?;
    }
    session.shutdown().await?;
    Ok(())
}

async fn ask(tls: TlsConnector) -> Result<String, Failure> {
    let stream = TcpStream::connect("10.11.2.1:443".parse()?).await?;
    let mut session = tls.connect(ServerName::try_from("lane.test")?, stream).await?;
    let lane = current()?.bucket.0;
    session.write_all(format!("hello from bucket {lane}\n").as_bytes()).await?;
    let mut answer = vec![0; 256];
    let n = session.read(&mut answer).await?;
    session.shutdown().await?;
    // The other side ends its own direction, with TLS's own farewell before the stream's.
    if session.read(&mut [0]).await? != 0 {
        return Err("more than was asked for".into());
    }
    Ok(String::from_utf8_lossy(&answer[..n]).into_owned())
}

fn main() -> Result<(), Failure> {
    let certified = rcgen::generate_simple_self_signed(vec!["lane.test".to_owned()])?;
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der())?;
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)?;
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone())?;
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let (acceptor, connector) = (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)));

    let mut entropy = Ok(());
    let key = Key::random(|bytes| entropy = flowlane::entropy::fill(bytes));
    entropy?;
    let rss = Arc::new(Rss::new(key, 2));
    let on = |address: Prefix| Interface { addresses: vec![address], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false);
    let server = Host::new("server", rss.clone(), move || serve(acceptor.clone()));
    let server = builder.host(server.interface(on("10.11.2.1/24".parse()?)));
    let (say, said) = mpsc::channel();
    let client = Host::new("client", rss.clone(), move || {
        let (say, connector) = (say.clone(), connector.clone());
        async move {
            let _ = say.send(ask(connector).await);
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
