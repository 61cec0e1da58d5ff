//! A client of the crates `quinn` and `h3` beside `load http --http3`, for benches/http/http3.sh: h3_client ADDRESS:PORT PATH REQUESTS CONNECTIONS STREAMS
//!
//! One thread, a closed loop, any certificate. It prints how many answers it had.

use std::cell::Cell;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Buf;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use quinn::rustls::crypto::ring::default_provider;
use quinn::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use quinn::rustls::{self, ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::task::{LocalSet, spawn_local};

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

async fn connection(
    client: quinn::Endpoint,
    to: SocketAddr,
    path: String,
    streams: usize,
    left: Rc<Cell<u64>>,
    answered: Rc<Cell<u64>>,
) -> Result<(), Box<dyn Error>> {
    let connection = client.connect(to, "localhost")?.await?;
    let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    let driving = spawn_local(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
    let asking = (0..streams).map(|_| {
        let (mut sender, left, answered) = (sender.clone(), left.clone(), answered.clone());
        let uri = format!("https://localhost{path}");
        spawn_local(async move {
            while let Some(less) = left.get().checked_sub(1) {
                left.set(less);
                let request = http::Request::get(&uri).body(()).ok()?;
                let mut stream = sender.send_request(request).await.ok()?;
                stream.finish().await.ok()?;
                stream.recv_response().await.ok().filter(|answer| answer.status() == 200)?;
                while let Some(mut data) = stream.recv_data().await.ok()? {
                    data.advance(data.remaining());
                }
                answered.set(answered.get() + 1);
            }
            Some(())
        })
    });
    for asking in asking.collect::<Vec<_>>() {
        asking.await?;
    }
    driving.abort();
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [to, path, requests, connections, streams] = &arguments[..] else {
        return Err("h3_client ADDRESS:PORT PATH REQUESTS CONNECTIONS STREAMS".into());
    };
    let (to, streams): (SocketAddr, usize) = (to.parse()?, streams.parse()?);
    let mut tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let (left, answered) = (Rc::new(Cell::new(requests.parse()?)), Rc::new(Cell::new(0)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let set = LocalSet::new();
    set.block_on(&runtime, async {
        let all = (0..connections.parse()?).map(|_| {
            let mut client = quinn::Endpoint::client("127.0.0.1:0".parse()?)?;
            client.set_default_client_config(config.clone());
            let asking = connection(client, to, path.clone(), streams, left.clone(), answered.clone());
            Ok(spawn_local(async move { asking.await.map_err(|e| e.to_string()) }))
        });
        for one in all.collect::<Result<Vec<_>, Box<dyn Error>>>()? {
            one.await??;
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    println!("{}", answered.get());
    Ok(())
}
