//! A process that runs out of descriptors: its peers are told, and it goes on when there are some again. Alone in its
//! process, because the limit is the process's.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::{
    Failure, Host, Io, Key, ListenOptions, Rss, Runtime, SocketError, TcpListener, TcpStream, UdpSocket,
    current, sleep, spawn,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const PATIENCE: Duration = Duration::from_secs(30);

async fn hold(listener: TcpListener) {
    loop {
        let stream = listener.accept().await.unwrap();
        // Held until the peer ends it.
        spawn(async move {
            let mut buffer = [0; 8];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                let _ = stream.write_all(&buffer[..n]).await;
            }
        })
        .unwrap();
    }
}

/// Connects until it is refused; returns whether the server was out of descriptors, as told by a reset. Connections take
/// two places each: with one place taken by `odd`, the last connection finds its own or does not.
async fn exhaust(server: std::net::SocketAddr, odd: bool) -> bool {
    let _odd = odd.then(|| UdpSocket::connect(server).unwrap());
    let mut held = Vec::new();
    loop {
        let stream = match TcpStream::connect(server).await {
            Ok(stream) => stream,
            Err(e) => {
                assert_eq!(e, SocketError::NoDescriptor);
                assert!(UdpSocket::connect(server).is_err_and(|e| e == SocketError::NoDescriptor));
                break;
            }
        };
        held.push(stream);
        assert!(held.len() < 1000, "a limit that is none");
        // The server's turn: it has accepted or not.
        sleep(Duration::from_micros(200)).await;
    }
    // Whoever was not accepted hears of it.
    let mut refused = 0;
    for stream in &held {
        let answered = match stream.write_all(b"x").await {
            Ok(()) => stream.read(&mut [0; 8]).await.map(|_| ()),
            Err(e) => Err(e),
        };
        if let Err(e) = answered {
            assert_eq!(e, SocketError::Connection(Failure::Reset));
            refused += 1;
        }
    }
    refused > 0
}

#[test]
fn running_out_of_descriptors_is_told_and_passes() {
    run_out(Io::Epoll);
    match flowlane_sys::kernel::uring::probe() {
        Ok(_) => run_out(Io::Uring),
        Err(e) => flowlane_testnet::skipped(format_args!("skipped, because {e} (its part by io_uring)")),
    }
}

fn run_out(io: Io) {
    let (say, said) = mpsc::channel();
    let (go, gone) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Barrier::new(2)));
    let (lane_go, lane_gone) = (go.clone(), gone.clone());
    let main = move || {
        let (say, go, gone) = (say.clone(), lane_go.clone(), lane_gone.clone());
        async move {
            if current().unwrap().bucket.0 > 0 {
                return;
            }
            // The limit is lowered between the two.
            sleep(Duration::from_micros(1)).await;
            go.wait();
            gone.wait();
            let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
            // The ring takes over the limit that there is when it begins to accept.
            let listener = TcpListener::bind(Some(here), 0, ListenOptions::default()).unwrap();
            let at = listener.local_addr().unwrap();
            spawn(hold(listener)).unwrap();
            for round in 0..4 {
                let _ = say.send(exhaust(at, round % 2 == 1).await);
                sleep(Duration::from_millis(1)).await;
            }
            // All is closed: as at first.
            let again = TcpStream::connect(at).await.unwrap();
            again.write_all(b"still").await.unwrap();
            let _ = say.send(again.read(&mut [0; 8]).await == Ok(5));
        }
    };
    let mut builder = Runtime::builder().pin(false).frames(64).io(io);
    builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 1)), main));
    let runtime = builder.start().unwrap();
    go.wait();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + 40), ..limit }).unwrap();
    gone.wait();
    let rounds: Vec<bool> = (0..4).map(|_| said.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(said.recv_timeout(PATIENCE).unwrap(), "and it goes on");
    setrlimit(Resource::Nofile, limit).unwrap();
    let kernel = runtime.stop().kernel(0).unwrap();
    let refused = rounds.iter().filter(|refused| **refused).count();
    assert_eq!(refused, 2, "the last connection of every other round is refused: {kernel:?}");
    assert_eq!(kernel.no_descriptor, 2, "{kernel:?}");
    assert!(kernel.connect_failed >= 4, "{kernel:?}");
}
