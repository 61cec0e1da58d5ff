//! UDP: flows, the source of answers, targets that refuse, and targets on kernel sockets.

use std::net::{SocketAddr, UdpSocket as KernelSocket};
use std::sync::mpsc;
use std::time::Duration;

use flowlane::relay::{Relay, RelayConfig};
use flowlane::stats::{RelayCounts, Report};
use flowlane::{Bind, Io, SocketError, UdpFields, UdpSocket};
use flowlane_testnet::eventually;

use super::{FRONT, Relaying, address, is_first_lane, peer};
use crate::traffic::PATIENCE;

const FLOWS: usize = 200;

/// Sends everything back, the first byte changed to `mark`.
pub(super) async fn echo(port: u16, mark: u8) -> Result<(), SocketError> {
    let socket = UdpSocket::on_port(port)?;
    let mut batch = Vec::new();
    loop {
        socket.recv_batch(&mut batch, 64).await?;
        batch.iter_mut().for_each(|d| d.payload_mut()[0] = mark);
        socket.reply_batch(&mut batch).await?;
    }
}

/// One flow asks until there is an answer: the mark of the target, or what is wrong.
async fn one(i: usize) -> Result<u8, String> {
    let said = |e: SocketError| e.to_string();
    // A connected socket takes answers of the address that was asked, and no others.
    let asked = SocketAddr::from((address(1 + 2 * (i % 2) as u8, i % 4 > 1), FRONT));
    let socket = UdpSocket::connect(asked).map_err(said)?;
    let payload: Vec<u8> = (0..1 + i * 7 % 1400).map(|at| (at * 13 + i) as u8).collect();
    let (mut mark, mut tries) = (None, 0);
    for _ in 0..5 {
        let mut buffer = vec![0; 2000];
        let n = loop {
            tries += 1;
            if tries > 60 {
                return Err("no answer".to_owned());
            }
            socket.send(&payload).await.map_err(said)?;
            let answer = flowlane::timeout(Duration::from_millis(500), socket.recv_from(&mut buffer)).await;
            if let Ok(answer) = answer {
                break answer.map_err(said)?.0;
            }
        };
        if buffer[1..n] != payload[1..] {
            return Err(format!("{n} other bytes"));
        }
        if *mark.get_or_insert(buffer[0]) != buffer[0] {
            return Err("a flow changes its target".to_owned());
        }
    }
    mark.ok_or_else(|| "nothing".to_owned())
}

/// A relay on a pair, and flows of a host at its other end that has targets on ports 81 and 82: what flows say, and the counters.
fn ours(config: RelayConfig, flows: usize) -> (Vec<Result<u8, String>>, RelayCounts, Report) {
    let (say, said) = mpsc::channel();
    let serve = |relay: Relay| async move { relay.serve_datagrams(UdpSocket::on_port(FRONT)?, |_| {}).await };
    let relaying = Relaying::ours(config, UdpFields::Four, serve, move || {
        let say = say.clone();
        async move {
            for (port, mark) in [(81, b'a'), (82, b'b')] {
                flowlane::spawn(echo(port, mark)).map_err(|_| SocketError::WrongLane)?;
            }
            if is_first_lane() {
                for i in 0..flows {
                    let say = say.clone();
                    let asks = async move {
                        let _ = say.send(one(i).await);
                    };
                    flowlane::spawn(asks).map_err(|_| SocketError::WrongLane)?;
                }
            }
            std::future::pending::<Result<(), SocketError>>().await
        }
    });
    let said = (0..flows).map(|_| said.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(relaying.relay.stop_within(PATIENCE), 0, "flows end at once");
    let (counts, report) = relaying.stop();
    (said, counts, report)
}

#[test]
fn ours_to_ours() {
    let config = RelayConfig { targets: vec![peer(81), peer(82)], ..RelayConfig::to(peer(81)) };
    let (said, counts, _) = ours(config, FLOWS);
    let of = |mark| said.iter().filter(|s| **s == Ok(mark)).count() as u64;
    assert_eq!(of(b'a') + of(b'b'), FLOWS as u64, "{said:?}");
    assert!(of(b'a') > 40 && of(b'b') > 40);
    for (i, mark) in [b'a', b'b'].into_iter().enumerate() {
        let t = counts.targets[i].1;
        assert_eq!((t.connections, t.open), (of(mark), 0));
        assert!(t.to_target_datagrams >= 5 * of(mark) && t.to_client_bytes > 0);
    }
    assert_eq!((counts.relay.stopped, counts.relay.open), (FLOWS as u64, 0));
}

#[test]
fn ours_to_the_kernel() {
    let target = KernelSocket::bind("127.0.0.1:0").unwrap();
    target.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let at = target.local_addr().unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let server = std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            if let Ok((n, from)) = target.recv_from(&mut buffer) {
                buffer[0] = b'k';
                target.send_to(&buffer[..n], from).unwrap();
            }
        }
    });
    let config = RelayConfig { by_kernel: true, ..RelayConfig::to(at) };
    let (said, counts, report) = ours(config, 50);
    assert!(said.iter().all(|s| *s == Ok(b'k')), "{said:?}");
    assert_eq!(counts.targets[0].1.connections, 50);
    let kernel = report.kernel(0).unwrap();
    assert!(kernel.datagrams_sent >= 250 && kernel.datagrams_dropped == 0, "{kernel:?}");
    drop(stop);
    server.join().unwrap();
}

/// Nobody is on port 83: the network says so, and the flows go to the other target.
#[test]
fn a_target_that_refuses() {
    let config = RelayConfig { targets: vec![peer(83), peer(81)], ..RelayConfig::to(peer(83)) };
    let (said, counts, _) = ours(config, 20);
    assert!(said.iter().all(|s| *s == Ok(b'a')), "{said:?}");
    let (gone, there) = (counts.targets[0].1, counts.targets[1].1);
    assert!(gone.refused >= 1 && gone.target_resets >= 1 && gone.open == 0, "{gone:?}");
    assert!(there.connections == 20, "{there:?}");
}

/// A flow that is quiet ends, and so does its place in the table: the same client gets answers afterwards, on a new socket.
#[test]
fn flows_that_are_quiet_end() {
    let target = KernelSocket::bind("127.0.0.1:0").unwrap();
    let idle = Some(Duration::from_millis(300));
    let config = RelayConfig { idle, most: 1, ..RelayConfig::to(target.local_addr().unwrap()) };
    let (relaying, at) = Relaying::kernel(Io::Epoll, config, |relay, say| async move {
        let bind = Bind { local_ip: Some([127, 0, 0, 1].into()), ..Bind::default() };
        let socket = UdpSocket::bind(bind)?;
        let _ = say.send((std::net::Ipv4Addr::LOCALHOST, socket.local()?.1).into());
        relay.serve_datagrams(socket, |_| {}).await
    });
    let [client, other] = [(); 2].map(|()| KernelSocket::bind("127.0.0.1:0").unwrap());
    for socket in [&client, &other, &target] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    let ask = |client: &KernelSocket, what: u8| {
        client.send_to(&[what], at).unwrap();
        let mut buffer = [0; 10];
        let (n, from) = target.recv_from(&mut buffer).unwrap();
        target.send_to(&buffer[..n], from).unwrap();
        assert_eq!((client.recv(&mut buffer).unwrap(), buffer[0]), (1, what));
    };
    let ended = |n: u64| {
        eventually("an end", || {
            relaying.runtime.handle().report().relay(0).is_some_and(|c| c.targets[0].1.idle_ended >= n)
        });
    };
    ask(&client, 1);
    ask(&client, 2);
    ended(1);
    ask(&client, 3);
    ended(2);
    ask(&other, 4);
    let (counts, _) = relaying.stop();
    let of = counts.targets[0].1;
    assert_eq!((of.connections, of.idle_ended, of.to_client_datagrams, of.open), (3, 2, 4, 0));
    assert_eq!((counts.relay.too_many, counts.relay.stopped, counts.relay.open), (0, 1, 0));
}
