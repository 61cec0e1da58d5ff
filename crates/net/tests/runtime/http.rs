//! HTTP by hyper, server and client, on streams of lanes: neither knows that it does not run on the kernel's sockets.

use std::sync::mpsc;

use flowlane::{Host, Interface, Key, PairConfig, Runtime, TcpListener, TcpStream, UdpFields, spawn};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use crate::traffic::{PATIENCE, rss};

/// Answers with the body of the request, backwards.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let mut body = request.into_body().collect().await?.to_bytes().to_vec();
    body.reverse();
    Ok(Response::new(Full::new(body.into())))
}

async fn serve() {
    let listener = TcpListener::on_port(80).unwrap();
    while let Ok(stream) = listener.accept().await {
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        spawn(async { drop(connection.await) }).unwrap();
    }
}

/// Asks `n` times over one connection.
async fn ask(n: usize) -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect("10.0.0.1:80".parse()?).await?;
    let (mut requests, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    spawn(async { drop(connection.await) })?;
    for i in 0..n {
        let body: Vec<u8> = (0..i * 1000).map(|b| b as u8).collect();
        let request =
            Request::post("/").header("host", "10.0.0.1").body(Full::new(Bytes::from(body.clone())))?;
        let mut back = requests.send_request(request).await?.into_body().collect().await?.to_bytes().to_vec();
        back.reverse();
        if back != body {
            return Err(format!("request {i}: another body came back").into());
        }
    }
    Ok(n)
}

#[test]
fn hyper_runs_on_a_lane() {
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false);
    let server = Host::new("server", rss(Key::MICROSOFT, 4, 2, UdpFields::Two), serve);
    let server = builder.host(server.interface(on("10.0.0.1/24")));
    let (say, said) = mpsc::channel();
    let client = Host::new("client", rss(Key::symmetric(), 4, 2, UdpFields::Two), move || {
        let say = say.clone();
        async move {
            let _ = say.send(ask(50).await.map_err(|e| e.to_string()));
        }
    });
    let client = builder.host(client.interface(on("10.0.0.2/24")));
    builder.pair((client, 0), (server, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    for _ in 0..4 {
        assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Ok(50));
    }
    assert_eq!(runtime.stop().total(server).tcp.connection_accepts, 4);
}
