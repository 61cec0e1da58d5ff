//! Connections: bytes, ends, resets, bounds.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::sync::mpsc;
use std::time::Duration;

use flowlane::relay::{Relay, RelayConfig};
use flowlane::stats::{Report, TargetStats};
use flowlane::{Failure, Io, SocketError, TcpListener, TcpStream, UdpFields};

use super::{BUCKETS, FRONT, Relaying, address, each_io, is_first_lane, peer};
use crate::traffic::PATIENCE;

const MUCH: usize = 2_000_000;

async fn relay_main(relay: Relay) -> Result<(), SocketError> {
    let listener = TcpListener::bind(None, FRONT, Relay::listen_options())?;
    relay.serve(listener).await
}

/// What a client in our stack does with a relay in another host, and what the target does in every lane: what the client says, and the
/// counters of the target.
fn ours<C, D, S, T>(config: RelayConfig, client: C, serve: S) -> (String, TargetStats, Report)
where
    C: Fn(TcpStream) -> D + Clone + Send + Sync + 'static,
    D: Future<Output = String> + Send + 'static,
    S: Fn(TcpStream) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let (say, said) = mpsc::channel();
    let relaying = Relaying::ours(config, UdpFields::Two, relay_main, move || {
        let (client, serve, say) = (client.clone(), serve.clone(), say.clone());
        async move {
            let listener = TcpListener::on_port(81)?;
            if is_first_lane() {
                let asks = async move {
                    let said = match TcpStream::connect((address(1, false), FRONT).into()).await {
                        Ok(stream) => client(stream).await,
                        Err(e) => e.to_string(),
                    };
                    let _ = say.send(said);
                };
                flowlane::spawn(asks).map_err(|_| SocketError::WrongLane)?;
            }
            loop {
                let stream = listener.accept().await?;
                flowlane::spawn(serve(stream)).map_err(|_| SocketError::WrongLane)?;
            }
        }
    });
    let said = said.recv_timeout(PATIENCE).unwrap();
    let (counts, report) = relaying.stop();
    (said, counts.targets.first().map(|t| t.1).unwrap_or_default(), report)
}

pub(super) fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Sends much, ends its direction, and gets it back.
async fn there_and_back(stream: TcpStream) -> String {
    let sent: Vec<u8> = (0..MUCH).map(byte).collect();
    let (write, read) = (
        async {
            stream.write_all(&sent).await?;
            stream.shutdown(Shutdown::Write)
        },
        async {
            let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
            loop {
                match stream.read(&mut buffer).await? {
                    0 => return Ok::<_, SocketError>(got),
                    n => got.extend_from_slice(&buffer[..n]),
                }
            }
        },
    );
    match tokio::join!(write, read) {
        (Ok(()), Ok(got)) if got == sent => "the same".to_owned(),
        (Ok(()), Ok(got)) => format!("{} other bytes", got.len()),
        (sent, got) => format!("{sent:?} {:?}", got.map(|got| got.len())),
    }
}

/// Sends back, once all has come.
pub(super) async fn back(stream: TcpStream) {
    let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        got.extend_from_slice(&buffer[..n]);
    }
    let _ = stream.write_all(&got).await;
}

/// Waits for the end: `ended`, or how it failed.
async fn end_of(stream: &TcpStream) -> String {
    let mut buffer = [0; 1000];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return "ended".to_owned(),
            Ok(_) => {}
            Err(e) => return e.to_string(),
        }
    }
}

fn reset() -> String {
    SocketError::from(Failure::Reset).to_string()
}

#[test]
fn ours_to_ours_every_byte_is_copied_once() {
    let config = RelayConfig::to(peer(81));
    let (said, stats, _) = ours(config, there_and_back, back);
    assert_eq!(said, "the same");
    let much = MUCH as u64;
    assert_eq!((stats.connections, stats.to_target_bytes, stats.to_client_bytes), (1, much, much));
    assert_eq!((stats.copied_bytes, stats.spliced_bytes, stats.open), (2 * much, 0, 0));
    assert_eq!((stats.client_resets, stats.target_resets, stats.lost), (0, 0, 0));
}

/// Lanes of the relay move back and forth while it relays, over IPv6: no byte is lost, doubled or in another place.
#[test]
fn lanes_move_while_it_relays() {
    let (say, said) = mpsc::channel();
    let config = RelayConfig::to((address(2, true), 81).into());
    let relaying = Relaying::ours(config, UdpFields::Two, relay_main, move || {
        let say = say.clone();
        async move {
            let listener = TcpListener::on_port(81)?;
            let asks = async move {
                let stream = TcpStream::connect((address(1, true), FRONT).into()).await;
                let said = match stream {
                    Ok(stream) => there_and_back(stream).await,
                    Err(e) => e.to_string(),
                };
                let _ = say.send(said);
            };
            flowlane::spawn(asks).map_err(|_| SocketError::WrongLane)?;
            loop {
                let stream = listener.accept().await?;
                flowlane::spawn(back(stream)).map_err(|_| SocketError::WrongLane)?;
            }
        }
    });
    let handle = relaying.runtime.handle();
    let (mut done, mut moves) = (0, 0);
    // While bytes pass; a move waits for two threads, so there are few.
    while done == 0 && moves < 12 {
        let bucket = flowlane::Bucket(moves % BUCKETS as u16);
        let to = 1 - handle.worker_of(relaying.at, bucket).unwrap();
        handle.move_lane(relaying.at, bucket, to).unwrap();
        moves += 1;
        if let Ok(what) = said.try_recv() {
            assert_eq!(what, "the same");
            done += 1;
        }
    }
    for _ in done..BUCKETS {
        assert_eq!(said.recv_timeout(PATIENCE).unwrap(), "the same");
    }
    let (counts, report) = relaying.stop();
    let (of, much) = (counts.targets[0].1, (MUCH * BUCKETS) as u64);
    assert_eq!((of.connections, of.to_target_bytes, of.to_client_bytes), (BUCKETS as u64, much, much));
    assert_eq!((of.client_resets, of.target_resets, of.lost), (0, 0, 0));
    let moved: u64 = report.workers.iter().flat_map(|w| &w.lanes).map(|l| l.counts.moves).sum();
    assert!(moved > 2 && moved == u64::from(moves), "{moved} of {moves}");
}

#[test]
fn ours_to_the_kernel() {
    let target = KernelListener::bind("127.0.0.1:0").unwrap();
    let at = target.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = target.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        all.len()
    });
    let config = RelayConfig { by_kernel: true, ..RelayConfig::to(at) };
    let (said, stats, report) = ours(config, there_and_back, back);
    assert_eq!((said.as_str(), server.join().unwrap()), ("the same", MUCH));
    assert_eq!((stats.connections, stats.copied_bytes, stats.lost), (1, 2 * MUCH as u64, 0));
    let kernel = report.kernel(0).unwrap();
    assert_eq!((kernel.connected, kernel.accepted, kernel.closed), (1, 0, 1));
}

#[test]
fn resets_are_carried_between_connections_of_ours() {
    let to = || RelayConfig::to(peer(81));
    let (say, said) = mpsc::channel();
    let client = |stream: TcpStream| async move {
        // Until the target has said that it is there.
        let _ = stream.read(&mut [0]).await;
        let _ = stream.abort();
        String::new()
    };
    let (_, stats, _) = ours(to(), client, move |stream| {
        let say = say.clone();
        async move {
            let _ = stream.write_all(b"x").await;
            let _ = say.send(end_of(&stream).await);
        }
    });
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), reset());
    assert_eq!((stats.client_resets, stats.target_resets), (1, 0));
    let (said, stats, _) = ours(
        to(),
        |stream| async move { end_of(&stream).await },
        |stream| async move {
            let _ = stream.abort();
        },
    );
    assert_eq!(said, reset());
    assert_eq!((stats.client_resets, stats.target_resets), (0, 1));
}

/// A relay on kernel sockets, with one lane.
pub(super) fn kernel(io: Io, config: RelayConfig) -> (Relaying, SocketAddr) {
    Relaying::kernel(io, config, |relay, say| async move {
        let listener = TcpListener::bind(Some([127, 0, 0, 1].into()), 0, Relay::listen_options())?;
        let _ = say.send(listener.local_addr()?);
        relay.serve(listener).await
    })
}

pub(super) fn connect(to: SocketAddr) -> KernelStream {
    let stream = KernelStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// How many bytes come before a reset.
fn until_reset(mut stream: &KernelStream) -> usize {
    let (mut buffer, mut all) = (vec![0; 1 << 16], 0);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("it ended in order"),
            Ok(n) => all += n,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::ConnectionReset);
                return all;
            }
        }
    }
}

/// A client that does not read is told of the target's reset all the same.
#[test]
fn a_reset_comes_through_a_stall() {
    for io in each_io() {
        let target = KernelListener::bind("127.0.0.1:0").unwrap();
        let (relaying, at) = kernel(io, RelayConfig::to(target.local_addr().unwrap()));
        let client = connect(at);
        let (mut server, _) = target.accept().unwrap();
        // Until it is stuck for good.
        server.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        while server.write(&[1; 1 << 16]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
        drop(server);
        let mut fds = [rustix::event::PollFd::new(&client, rustix::event::PollFlags::ERR)];
        let long = PATIENCE.try_into().unwrap();
        assert_eq!(rustix::event::poll(&mut fds, Some(&long)).unwrap(), 1);
        until_reset(&client);
        let stats = relaying.stop().0.targets[0].1;
        assert_eq!((stats.target_resets, stats.open), (1, 0));
    }
}

#[test]
fn what_is_open_at_the_end_is_reset() {
    for io in each_io() {
        let target = KernelListener::bind("127.0.0.1:0").unwrap();
        let (relaying, at) = kernel(io, RelayConfig::to(target.local_addr().unwrap()));
        let client = connect(at);
        let (server, _) = target.accept().unwrap();
        assert!(relaying.relay.stop_within(Duration::from_millis(1)) > 0);
        until_reset(&client);
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        until_reset(&server);
        let (counts, _) = relaying.stop();
        assert_eq!((counts.relay.stopped, counts.relay.open, counts.targets[0].1.open), (1, 0, 0));
    }
}

#[test]
fn silence_and_numbers_have_limits() {
    for io in each_io() {
        let target = KernelListener::bind("127.0.0.1:0").unwrap();
        let to = RelayConfig::to(target.local_addr().unwrap());
        let (relaying, at) =
            kernel(io, RelayConfig { idle: Some(Duration::from_millis(300)), most: 1, ..to });
        let first = connect(at);
        let (server, _) = target.accept().unwrap();
        until_reset(&connect(at));
        until_reset(&first);
        drop(server);
        let (counts, _) = relaying.stop();
        let (relay, of) = (counts.relay, counts.targets[0].1);
        assert_eq!((relay.accepted, relay.too_many, of.connections, of.idle_ended), (2, 1, 1, 1));
    }
}
