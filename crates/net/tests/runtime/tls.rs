//! TLS by rustls, server and client, on streams of lanes: neither knows that it does not run on the kernel's sockets.

use std::sync::{Arc, mpsc};

use flowlane::{
    Host, Interface, Key, PairConfig, Quirk, Quirks, Runtime, TcpListener, TcpStream, UdpFields, spawn,
};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::traffic::{PATIENCE, rss};

/// A server and a client that trusts it.
fn both_sides() -> (TlsAcceptor, TlsConnector) {
    let certified = rcgen::generate_simple_self_signed(vec!["lane.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let chain = vec![certified.cert.der().clone()];
    let server = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
}

async fn echo(tls: TlsAcceptor) {
    let listener = TcpListener::on_port(443).unwrap();
    while let Ok(stream) = listener.accept().await {
        let tls = tls.clone();
        spawn(async move {
            // Who is not trusted is turned away in the handshake.
            let Ok(mut session) = tls.accept(stream).await else { return };
            let mut buffer = vec![0; 1 << 15];
            while let Ok(n @ 1..) = session.read(&mut buffer).await {
                session.write_all(&buffer[..n]).await.unwrap();
            }
            session.shutdown().await.unwrap();
        })
        .unwrap();
    }
}

/// Messages of growing size there and back in one session, and its proper end; how many bytes came.
async fn talk(tls: TlsConnector, name: &'static str) -> Result<usize, String> {
    let stream = TcpStream::connect("10.0.0.1:443".parse().unwrap()).await.map_err(|e| e.to_string())?;
    let name = ServerName::try_from(name).unwrap();
    let mut session = tls.connect(name, stream).await.map_err(|e| e.to_string())?;
    let mut total = 0;
    for size in [1, 100, 20_000, 300_000] {
        let sent: Vec<u8> = (0..size).map(|n: usize| (n * 7 + size) as u8).collect();
        let (mut reader, mut writer) = tokio::io::split(session);
        let out = sent.clone();
        let writing = spawn(async move {
            writer.write_all(&out).await.unwrap();
            writer.flush().await.unwrap();
            writer
        });
        let mut back = vec![0; size];
        reader.read_exact(&mut back).await.map_err(|e| format!("after {total} bytes: {e}"))?;
        session = reader.unsplit(writing.unwrap().await.unwrap());
        if back != sent {
            return Err(format!("a message of {size} bytes came back as another"));
        }
        total += size;
    }
    session.shutdown().await.map_err(|e| e.to_string())?;
    // A stream that just ended would be an error here: the farewell of TLS came first.
    match session.read(&mut [0]).await {
        Ok(0) => Ok(total),
        other => Err(format!("the end: {other:?}")),
    }
}

fn run(quirks: Quirks, name: &'static str) -> Vec<Result<usize, String>> {
    let (acceptor, connector) = both_sides();
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false).seed(3);
    let server =
        Host::new("server", rss(Key::MICROSOFT, 4, 2, UdpFields::Two), move || echo(acceptor.clone()));
    let server = builder.host(server.interface(on("10.0.0.1/24")));
    let (say, said) = mpsc::channel();
    let client = Host::new("client", rss(Key::symmetric(), 4, 2, UdpFields::Two), move || {
        let (say, connector) = (say.clone(), connector.clone());
        async move {
            let _ = say.send(talk(connector, name).await);
        }
    });
    let client = builder.host(client.interface(on("10.0.0.2/24")));
    builder.pair((client, 0), (server, 0), PairConfig { quirks, ..PairConfig::default() });
    let runtime = builder.start().unwrap();
    let results = (0..4).map(|_| said.recv_timeout(PATIENCE).unwrap()).collect();
    drop(runtime);
    results
}

#[test]
fn rustls_runs_on_a_lane() {
    for quirks in [Quirks::default(), Quirks::new(9).with(Quirk::Drop, 60).with(Quirk::Reorder, 60)] {
        for result in run(quirks, "lane.test") {
            assert_eq!(result, Ok(320_101));
        }
    }
}

#[test]
fn a_stranger_is_not_talked_to() {
    let connector_says = |results: Vec<Result<usize, String>>| {
        assert!(results.iter().all(|r| r.as_ref().is_err_and(|e| e.contains("certificate"))), "{results:?}");
    };
    connector_says(run(Quirks::default(), "elsewhere.test"));
}
