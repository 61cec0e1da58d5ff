//! Connected UDP sockets in every lane, whichever lane their answers come to.

use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use flowlane::{
    Bind, BindError, Bucket, Host, Interface, Key, Runtime, SocketError, UdpFields, UdpSocket, current,
    timeout, yield_now,
};

use crate::traffic::{PATIENCE, rss};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const LANES: u16 = 4;
const ROUNDS: u32 = 60;
const SERVERS: [&str; 2] = ["10.0.0.2:7", "[fd00::2]:7"];

async fn echo() -> Result<(), SocketError> {
    let socket = UdpSocket::on_port(7)?;
    let mut batch = Vec::new();
    loop {
        socket.recv_batch(&mut batch, 64).await?;
        socket.reply_batch(&mut batch).await?;
    }
}

/// Connects, asks some times, closes; with a port that the stack finds and with one of the lane's own, below those that are found. All of a lane's sockets have been
/// closed when the next round begins.
async fn ask_in_rounds() -> Result<u32, Failure> {
    let mut answers = 0;
    let Bucket(bucket) = current()?.bucket;
    for round in 0..ROUNDS {
        for server in SERVERS {
            let mut sockets = Vec::new();
            for local_port in [0, 700 + bucket] {
                let remote = Some(server.parse::<std::net::SocketAddr>()?.into());
                sockets.push(UdpSocket::bind(Bind { remote, local_port, ..Bind::default() })?);
            }
            for question in 0..4u32 {
                let payload = [round, question, bucket.into()].map(u32::to_be_bytes).concat();
                for socket in &sockets {
                    socket.send(&payload).await?;
                }
                for socket in &sockets {
                    let answer = timeout(PATIENCE, socket.recv()).await??;
                    if answer.payload() != payload {
                        return Err(format!("round {round}: {:?} to {payload:?}", answer.payload()).into());
                    }
                    answers += 1;
                }
            }
        }
        yield_now().await;
    }
    Ok(answers)
}

/// With one worker and several, hashed on ports or not, while lanes of either host move all the time: every question is answered, in
/// the lane that asked, and nothing is dropped.
#[test]
fn every_lane_asks_from_sockets_of_its_own_while_lanes_move() {
    for (workers, fields) in [1, 2, 4].into_iter().flat_map(|n| [(n, UdpFields::Two), (n, UdpFields::Four)]) {
        let on = |addresses: [&str; 2]| Interface {
            addresses: addresses.map(|a| a.parse().unwrap()).to_vec(),
            ..Interface::default()
        };
        let (say, said) = mpsc::channel();
        let mut builder = Runtime::builder().workers(workers).pin(false);
        let client = Host::new("client", rss(Key::MICROSOFT, LANES.into(), workers, fields), move || {
            let say = say.clone();
            async move { say.send(ask_in_rounds().await.map_err(|e| e.to_string())).map_err(Failure::from) }
        });
        let client = builder.host(client.interface(on(["10.0.0.1/24", "fd00::1/64"])));
        let server = Host::new("server", rss(Key::symmetric(), LANES.into(), workers, fields), echo);
        let server = builder.host(server.interface(on(["10.0.0.2/24", "fd00::2/64"])));
        builder.pair((client, 0), (server, 0), Default::default());
        let runtime = builder.start().unwrap();
        let handle = runtime.handle();
        let mut answers = Vec::new();
        for turn in 0.. {
            match said.recv_timeout(Duration::from_millis(1)) {
                Ok(lane) => answers.push(lane),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if answers.len() == usize::from(LANES) {
                break;
            }
            let (host, bucket) = ([client, server][turn % 2], Bucket((turn / 2) as u16 % LANES));
            handle.move_lane(host, bucket, turn / 8 % workers).unwrap();
        }
        let report = runtime.stop();
        assert_eq!(answers, vec![Ok(ROUNDS * 16); usize::from(LANES)], "{workers} workers, {fields:?}");
        let (asked, total) = (u64::from(LANES) * u64::from(ROUNDS) * 16, report.total(client));
        assert_eq!((total.udp.sent, total.udp.delivered, total.drops.total()), (asked, asked, 0));
        assert!(total.udp.elsewhere > 0, "no socket was elsewhere");
        assert!(report.workers.iter().all(|w| w.pool.move_overflow == 0 && w.netisr.dropped == 0));
    }
}

/// Two lanes cannot have the same ends; what one has given up another can have.
#[test]
fn ends_in_use_in_another_lane_are_in_use() {
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false);
    let host = Host::new("host", rss(Key::MICROSOFT, 4, 2, UdpFields::Two), || async {});
    let host = builder.host(host.interface(on("10.0.0.1/24")));
    let other = Host::new("other", rss(Key::MICROSOFT, 1, 2, UdpFields::Two), || async {});
    let other = builder.host(other.interface(on("10.0.0.2/24")));
    builder.pair((host, 0), (other, 0), Default::default());
    let runtime = builder.start().unwrap();
    let bind = || {
        let remote = Some("10.0.0.2:7".parse::<std::net::SocketAddr>().unwrap().into());
        UdpSocket::bind(Bind { remote, local_port: 2000, ..Bind::default() })
    };
    let run = |bucket| {
        let task = runtime.handle().spawn_on(host, Bucket(bucket), async move { bind() });
        flowlane::block_on(task.unwrap()).unwrap()
    };
    let first = run(0).unwrap();
    let second = run(1);
    assert!(matches!(second, Err(SocketError::Bind(BindError::InUse))), "{second:?}");
    // Closed from outside its lane: the lane closes it when it hears of that, at the latest before its next task.
    drop(first);
    let third = (0..1000).find_map(|_| run(1).ok());
    assert!(third.is_some(), "it is free again");
    drop((third, runtime.stop()));
}
