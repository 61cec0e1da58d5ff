//! Links whose queues are not as many as the workers, and links that several interfaces are on.

use std::sync::{Arc, mpsc};

use flowlane::link::pair;
use flowlane::{
    Bind, Bucket, HashConfig, Host, Interface, Key, LinkId, PairConfig, Rss, Runtime, StartError, Toeplitz,
    UdpFields, UdpSocket,
};
use flowlane_testnet::eventually;

use crate::traffic::{CLIENT, PATIENCE, Plan, SERVER, assert_perfect, rss};

/// The steering of a card with so many queues, whose table of `slots` slots names them in turn, the last slots the first queue again.
pub(crate) fn of_card(key: Key, slots: u16, queues: usize, workers: usize) -> Arc<Rss> {
    let table: Vec<u16> = (0..slots).map(|slot| slot % queues as u16).collect();
    Arc::new(Rss::of_card(Toeplitz::new(&key), HashConfig::default(), &table, queues, workers).unwrap())
}

/// Every flow complete and in order, however many queues there are. Where each worker has a queue, every frame is aligned; a worker
/// without one gets its frames from, and sends them by, another.
#[test]
fn any_number_of_queues() {
    [1, 2, 3, 4, 8].into_iter().for_each(|queues| whole_and_in_order(queues, 2));
}

#[test]
fn any_number_of_queues_on_three_workers() {
    [1, 2, 5].into_iter().for_each(|queues| whole_and_in_order(queues, 3));
}

fn whole_and_in_order(queues: usize, workers: usize) {
    let steering = [Key::MICROSOFT, Key::symmetric()].map(|key| of_card(key, 128, queues, workers));
    let plan = Plan {
        workers,
        buckets: steering[0].buckets.len(),
        steering: Some(steering.clone()),
        // More for a table of rates: --nocapture shows it.
        datagrams: std::env::var("QUEUES_DATAGRAMS")
            .map_or(Plan::default().datagrams, |n| n.parse().unwrap()),
        pair: PairConfig { queues: Some(queues), ..PairConfig::default() },
        ..Plan::default()
    };
    let begun = std::time::Instant::now();
    let net = plan.start();
    assert_perfect(&plan, &net.finish());
    let took = begun.elapsed();
    let report = net.runtime.stop();
    let echoed = report.steering(SERVER).received as f64 / took.as_secs_f64();
    println!("{queues} queues, {workers} workers: {echoed:.0} datagrams echoed a second");
    for host in [SERVER, CLIENT] {
        let steered = report.steering(host);
        let what = format!("{queues} queues, {workers} workers, host {host}: {steered:?}");
        assert_eq!(steered.misdirected, 0, "{what}");
        assert_eq!(steered.alignment() == 1.0, queues >= workers, "{what}");
        assert_eq!(report.queues(host).count(), queues, "{what}");
        let sent: Vec<u64> = report.queues(host).map(|q| q.stats.tx_frames).collect();
        let received: Vec<u64> = report.queues(host).map(|q| q.stats.rx_frames).collect();
        assert!(received.iter().all(|n| *n > 0), "{what}: {received:?}");
        // What is sent leaves by the queue that the flow's packets come on.
        assert!(sent.iter().all(|n| *n > 0), "{what}: {sent:?}");
    }
}

/// Lanes move between workers with a queue and one without, while their flows go on: nothing is lost or overtaken.
#[test]
fn lanes_move_to_workers_without_a_queue() {
    const MOVES: usize = 150;
    for (queues, workers) in [(1, 2), (2, 3)] {
        let steering = [Key::MICROSOFT, Key::symmetric()].map(|key| of_card(key, 128, queues, workers));
        let plan = Plan {
            workers,
            datagrams: 800,
            window: 8,
            buckets: steering[0].buckets.len(),
            steering: Some(steering),
            pair: PairConfig { queues: Some(queues), ..PairConfig::default() },
            ..Plan::default()
        };
        let net = plan.start();
        let handle = net.runtime.handle();
        for round in 0..MOVES {
            let bucket = Bucket((round % plan.buckets) as u16);
            let host = [SERVER, CLIENT][round / plan.buckets % 2];
            let to = (handle.worker_of(host, bucket).unwrap() + 1) % workers;
            handle.move_lane(host, bucket, to).unwrap();
        }
        assert_perfect(&plan, &net.finish());
        let report = net.runtime.stop();
        let moves = |host| report.lanes(host).iter().map(|l| l.counts.moves).sum::<u64>();
        assert_eq!(moves(SERVER) + moves(CLIENT), MOVES as u64);
    }
}

fn on_vlan(address: &str, vlan: Option<u16>) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], vlan, ..Interface::default() }
}

fn steering() -> Arc<Rss> {
    rss(Key::MICROSOFT, 4, 2, UdpFields::Four)
}

/// Answers with its own name.
async fn name(name: &'static str) {
    let socket = UdpSocket::on_port(7).unwrap();
    while let Ok((_, who)) = socket.recv_from(&mut [0; 16]).await {
        socket.send_to(name.as_bytes(), who).await.unwrap();
    }
}

/// Three hosts on one link, two of them on VLANs, and opposite one host with an interface on each of those networks and on one that
/// nobody else is on.
#[test]
fn a_link_with_several_interfaces() {
    let mut builder = Runtime::builder().workers(2).pin(false).seed(3);
    let ends: [LinkId; 2] = builder.wire(pair::opener(PairConfig::default()));
    let places =
        [("red", "10.0.1.1/24", Some(10)), ("blue", "10.0.2.1/24", Some(20)), ("none", "10.0.3.1/24", None)];
    for (at, address, vlan) in places {
        let host =
            builder.host(Host::new(at, steering(), move || name(at)).interface(on_vlan(address, vlan)));
        builder.attach(ends[0], host, 0);
    }
    let (say, said) = mpsc::channel();
    let asking = Host::new("asking", steering(), move || {
        let say = say.clone();
        async move {
            for (at, address, _) in places {
                let ip: std::net::IpAddr = address.split_once('/').unwrap().0.parse().unwrap();
                let socket = UdpSocket::connect((ip, 7).into()).unwrap();
                socket.send(b"who?").await.unwrap();
                let answer = socket.recv().await.unwrap();
                let _ = say.send((at, String::from_utf8(answer.payload().to_vec()).unwrap()));
            }
            // Nobody hears this, but the others' link does.
            let socket = UdpSocket::bind(Bind::default()).unwrap();
            let _ = socket.send_to(b"who?", "10.0.4.255:7".parse().unwrap()).await;
        }
    });
    let vlans = [Some(10), Some(20), None, Some(30)];
    let asking = (1..)
        .zip(vlans)
        .fold(asking, |host, (net, vlan)| host.interface(on_vlan(&format!("10.0.{net}.2/24"), vlan)));
    let asking = builder.host(asking);
    for interface in 0..4 {
        builder.attach(ends[1], asking, interface);
    }
    let runtime = builder.start().unwrap();
    for _ in 0..4 * places.len() {
        let (at, answer) = said.recv_timeout(PATIENCE).unwrap();
        assert_eq!(at, answer);
    }
    // What came for a VLAN that nobody is on is dropped by name, at the first host of the link.
    let handle = runtime.handle();
    let dropped = || -> u64 {
        let drops =
            |host| handle.report().total(host).drops.get(flowlane::stack_stats::DropReason::VlanMismatch);
        (0..3).map(drops).sum()
    };
    eventually("the frame of another VLAN is seen", || dropped() > 0);
    assert_eq!(handle.hosts()[asking].links, ["pair:b"; 4]);
}

#[test]
fn a_link_with_two_interfaces_on_one_vlan_is_refused() {
    for (vlan, words) in [(None, "untagged"), (Some(5), "on VLAN 5")] {
        let mut builder = Runtime::builder().pin(false);
        let ends: [LinkId; 2] = builder.wire(pair::opener(PairConfig::default()));
        for (link, address) in [(0, "10.0.0.1/24"), (0, "10.0.0.2/24"), (1, "10.0.0.3/24")] {
            let rss = rss(Key::MICROSOFT, 1, 1, UdpFields::Two);
            let host = builder.host(Host::new("host", rss, || async {}).interface(on_vlan(address, vlan)));
            builder.attach(ends[link], host, 0);
        }
        let error = builder
            .start()
            .err()
            .map(|e| (e.to_string().contains(words), matches!(e, StartError::Vlan { .. })));
        assert_eq!(error, Some((true, true)));
    }
}
