//! What a runtime promises when nothing goes wrong, and what it says when it cannot start.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::{
    Bind, Host, Idle, Interface, Key, PairConfig, Rss, Runtime, SocketError, UdpFields, UdpSocket, current,
    sleep, spawn,
};

use crate::traffic::{CLIENT, PATIENCE, Plan, SERVER, assert_perfect, echo};

fn on(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

#[test]
fn every_flow_comes_back_whole_whatever_the_number_of_lanes() {
    let mut digests = Vec::new();
    for (workers, buckets) in [(1, 1), (1, 2), (2, 2), (2, 8)] {
        for udp in [UdpFields::Two, UdpFields::Four] {
            let plan = Plan { workers, buckets, udp, flows: 64 / buckets as u32, ..Plan::default() };
            let net = plan.start();
            let flows = net.finish();
            assert_perfect(&plan, &flows);
            let report = net.runtime.stop();
            for host in [SERVER, CLIENT] {
                let steering = report.steering(host);
                assert!((steering.alignment() - 1.0).abs() < 1e-9, "the pair steers as its hosts do");
                assert_eq!(steering.misdirected, 0);
            }
            assert_eq!(report.total(SERVER).drops.total(), 0);
            assert_eq!(report.total(SERVER).udp.sent, 64 * 200);
            let lanes = report.lanes(SERVER);
            assert_eq!(lanes.len(), buckets);
            digests.push(
                flows.iter().map(|(s, f)| (*s, f.digest)).collect::<std::collections::BTreeMap<_, _>>(),
            );
        }
    }
    // Not all runs have the same flows, since a lane takes those that come to it; those they share are the same.
    for pair in digests.windows(2) {
        for (source, digest) in &pair[0] {
            assert!(pair[1].get(source).is_none_or(|d| d == digest));
        }
    }
}

#[test]
fn ipv6_too() {
    let plan = Plan { ipv6: true, ..Plan::default() };
    let net = plan.start();
    assert_perfect(&plan, &net.finish());
    assert_eq!(net.runtime.stop().total(CLIENT).ip6.bad_length, 0);
}

#[test]
fn a_socket_does_not_work_on_another_lane_or_thread() {
    let rss = crate::traffic::rss(Key::MICROSOFT, 2, 1, UdpFields::Two);
    let (give, take) = mpsc::channel::<UdpSocket>();
    let take = Arc::new(std::sync::Mutex::new(take));
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().pin(false);
    let host = Host::new("host", rss.clone(), move || {
        let (give, take, say) = (give.clone(), take.clone(), say.clone());
        async move {
            let socket = UdpSocket::on_port(7).unwrap();
            if current().unwrap().bucket.0 == 0 {
                give.send(socket).unwrap();
                return;
            }
            let stolen = loop {
                if let Ok(socket) = take.lock().unwrap().try_recv() {
                    break socket;
                }
                flowlane::yield_now().await;
            };
            say.send(stolen.recv().await.map(|_| ())).unwrap();
            say.send(stolen.send(b"x").await).unwrap();
            drop(stolen);
            // Ours is still ours.
            say.send(socket.local().map(|_| ())).unwrap();
        }
    });
    let a = builder.host(host.interface(on("10.0.0.1/24")));
    let b = builder.host(Host::new("other", rss, || async {}).interface(on("10.0.0.2/24")));
    builder.pair((a, 0), (b, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Err(SocketError::WrongLane));
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Err(SocketError::WrongLane));
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Ok(()));
    assert_eq!(UdpSocket::on_port(1).unwrap_err(), SocketError::WrongLane, "outside any lane");
    drop(runtime);
}

#[test]
fn tasks_sleep_spawn_and_panic_alone() {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().pin(false).idle(Idle::Adaptive(Duration::ZERO));
    let host = Host::new("host", rss.clone(), move || {
        let say = say.clone();
        async move {
            if current().unwrap().bucket.0 != 0 {
                return;
            }
            drop(spawn(async { panic!("on purpose") }).unwrap());
            let before = flowlane::precise_now().unwrap();
            let sleepers: Vec<_> = (0..50u64)
                .rev()
                .map(|i| {
                    spawn(async move {
                        sleep(Duration::from_micros(i * 200)).await;
                        i
                    })
                    .unwrap()
                })
                .collect();
            let mut sum = 0;
            for s in sleepers {
                sum += s.await.unwrap();
            }
            sleep(Duration::from_millis(50)).await;
            let slept = flowlane::precise_now().unwrap().saturating_duration_since(before);
            say.send((sum, slept)).unwrap();
        }
    });
    let a = builder.host(host.interface(on("10.0.0.1/24")));
    let b = builder.host(Host::new("other", rss, || async {}).interface(on("10.0.0.2/24")));
    builder.pair((a, 0), (b, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let (sum, slept) = said.recv_timeout(PATIENCE).unwrap();
    assert_eq!(sum, 49 * 50 / 2);
    assert!(slept >= Duration::from_micros(49 * 200));
    let report = runtime.stop();
    assert_eq!(report.lanes(a)[0].counts.panics, 1);
    assert!(report.workers[0].turns.sleeps > 0);
}

#[test]
fn a_sleeping_worker_is_woken_by_a_frame() {
    // One outstanding datagram, workers that sleep at once: every hop needs a wake-up, and a lost one would hang.
    let plan = Plan { buckets: 2, flows: 1, datagrams: 3000, window: 1, ..Plan::default() };
    let net = plan.start();
    assert_perfect(&plan, &net.finish());
}

#[test]
fn what_cannot_start_says_why() {
    let rss = |workers| Arc::new(Rss::new(Key::MICROSOFT, workers));
    let host = |workers| Host::new("h", rss(workers), echo).interface(on("10.0.0.1/24"));
    let error = |builder: flowlane::Builder| builder.start().unwrap_err().to_string();
    assert!(error(Runtime::builder().workers(0)).contains("from 1 to 64"));
    let mut b = Runtime::builder().pin(false);
    b.host(host(1));
    assert!(error(b).contains("as many links as interfaces"));
    let mut b = Runtime::builder().pin(false);
    let (x, y) = (b.host(host(4)), b.host(host(4)));
    b.pair((x, 0), (y, 0), PairConfig::default());
    assert!(error(b).contains("steering for 4 workers, but the runtime has 1"));
    let mut b = Runtime::builder().pin(false).frame_size(1500);
    let (x, y) = (b.host(host(1)), b.host(host(1)));
    b.pair((x, 0), (y, 0), PairConfig::default());
    assert!(error(b).contains("power of two"));
}

#[test]
fn a_port_is_bound_once_in_a_lane() {
    let (say, said) = mpsc::channel();
    let mut b = Runtime::builder().pin(false);
    let host = Host::new("h", Arc::new(Rss::new(Key::MICROSOFT, 1)), move || {
        let say = say.clone();
        async move {
            let first = UdpSocket::on_port(7);
            say.send((first.is_ok(), UdpSocket::on_port(7).map(drop))).unwrap();
            drop(first);
            say.send((UdpSocket::bind(Bind::port(7)).is_ok(), Ok(()))).unwrap();
        }
    });
    let x = b.host(host.interface(on("10.0.0.1/24")));
    let other = Host::new("o", Arc::new(Rss::new(Key::MICROSOFT, 1)), || async {});
    let y = b.host(other.interface(on("10.0.0.2/24")));
    b.pair((x, 0), (y, 0), PairConfig::default());
    let _runtime = b.start().unwrap();
    let (first, second) = said.recv_timeout(PATIENCE).unwrap();
    assert!(first);
    assert!(matches!(second, Err(SocketError::Bind(flowlane::BindError::InUse))));
    assert!(said.recv_timeout(PATIENCE).unwrap().0);
}

/// Time is shared out among lanes by what they do: all of it together is no more than there was, and a lane with more work gets more. A
/// reading of the counters lists no sockets.
#[test]
fn the_time_of_each_lane_is_known() {
    let plan = Plan { workers: 1, datagrams: 500, ..Plan::default() };
    let begun = std::time::Instant::now();
    let net = plan.start();
    net.finish();
    let handle = net.runtime.handle();
    let (counters, report) = (handle.counters(), handle.report());
    let spent: u64 = report.workers.iter().flat_map(|w| &w.lanes).map(|l| l.counts.busy_nanos).sum();
    assert!(u128::from(spent) <= begun.elapsed().as_nanos(), "one worker has no more than all of the time");
    for lane in report.lanes(SERVER) {
        assert!(lane.counts.aligned > 0 && lane.counts.busy_nanos > 0, "{lane:?}");
    }
    let lanes = || counters.lanes(SERVER).into_iter().zip(report.lanes(SERVER));
    assert!(lanes().all(|(a, b)| a.sockets.is_empty() && a.tcp.rows.is_empty() && !b.sockets.is_empty()));
    assert!(lanes().all(|(a, b)| a.counts.sockets == b.counts.sockets));
}
