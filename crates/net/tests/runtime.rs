//! Runtimes in one process, joined by pairs.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::{Host, Interface, Key, PairConfig, Rss, Runtime, UdpSocket};

const PATIENCE: Duration = Duration::from_secs(20);

fn on(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

async fn echo() {
    let socket = UdpSocket::on_port(7).unwrap();
    let mut batch = Vec::new();
    while socket.recv_batch(&mut batch, 64).await.is_ok() {
        socket.reply_batch(&mut batch).await.unwrap();
    }
}

#[test]
fn one_datagram() {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let mut runtime = Runtime::builder().pin(false);
    let server = runtime.host(Host::new("server", rss.clone(), echo).interface(on("10.0.0.1/24")));
    let (answered, answers) = mpsc::channel();
    let client = Host::new("client", rss, move || {
        let answered = answered.clone();
        async move {
            let Ok(socket) = UdpSocket::connect("10.0.0.1:7".parse().unwrap()) else { return };
            socket.send(b"hello").await.unwrap();
            answered.send(socket.recv().await.unwrap().payload().to_vec()).unwrap();
        }
    });
    let client = runtime.host(client.interface(on("10.0.0.2/24")));
    runtime.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = runtime.start().unwrap();
    let answer = answers.recv_timeout(PATIENCE);
    let report = runtime.stop();
    assert_eq!(answer.as_deref(), Ok(&b"hello"[..]), "{report:#?}");
}
