//! BBR in whole connections, over a bottleneck on a virtual clock (draft-ietf-ccwg-bbr), beside CUBIC on the same path.
//!
//! The model alone is tested where it stands (`connection/congestion/bbr/tests.rs`).

use super::lossy::{FAIR, Net, Weather};
use super::*;

/// 20 Mbit/s, a round trip of 40 ms: 100 kB fit on the path.
const LINK: Weather = Weather { delay_us: 20_000, rate: 2_500_000, queue_us: 60_000, ..FAIR };

/// One stream from host 0 to host 1 for each algorithm, all at once; how many bytes of each were read between `from` and `until`. What packets
/// waited before is forgotten.
pub(super) fn streams(net: &mut Net, algorithms: &[Algorithm], from: Duration, until: Duration) -> Vec<u64> {
    let listener = net.hosts[1].tcp.listen(None, 80, ListenOptions::default()).unwrap();
    let remote = SocketAddr::new(net.hosts[1].ip, 80);
    let start = net.now;
    let mut ours = Vec::new();
    for (port, algorithm) in (5000..).zip(algorithms) {
        let socket = SocketOptions { congestion: Some(*algorithm), ..SocketOptions::default() };
        let options = ConnectOptions { mtu: 1500, socket, ..Default::default() };
        let local = SocketAddr::new(net.hosts[0].ip, port);
        ours.push(net.on(0, |tcp, cx| tcp.connect(cx, local, remote, &options)).unwrap());
    }
    let (mut theirs, mut read) = (Vec::new(), vec![0u64; algorithms.len()]);
    let mut before = None;
    let (data, mut room) = (vec![0u8; 64 << 10], vec![0u8; 64 << 10]);
    while net.now < start + until {
        if before.is_none() && net.now >= start + from {
            before = Some(read.clone());
            net.waited.clear();
        }
        while let Some(accepted) = net.hosts[1].tcp.accept(listener).unwrap() {
            theirs.push(accepted.id);
        }
        // An application moves with its lane.
        let here = if net.arrives().is_some() { 0 } else { ours.len() };
        for &id in &ours[..here] {
            while net.on(0, |tcp, cx| tcp.send(cx, id, &data)).is_ok_and(|n| n > 0) {}
        }
        for &id in &theirs {
            let port = net.hosts[1].tcp.info(id).unwrap().remote.port();
            while let Ok(n @ 1..) = net.on(1, |tcp, cx| tcp.recv(cx, id, &mut room)) {
                read[usize::from(port - 5000)] += n as u64;
            }
        }
        assert!(net.step(), "nothing will ever happen again");
        assert!(net.hosts[0].tcp.paced_for_test() <= ours.len(), "one entry for each connection that waits");
    }
    let before = before.expect("it took that long");
    for (id, algorithm) in ours.iter().zip(algorithms) {
        let info = net.hosts[0].tcp.info(*id).unwrap();
        let paced = matches!(algorithm, Algorithm::Bbr | Algorithm::Prague);
        assert_eq!((info.congestion, info.pacing_rate.is_some()), (Some(*algorithm), paced));
    }
    for id in ours {
        net.on(0, |tcp, cx| tcp.abort(cx, id)).unwrap();
    }
    read.iter().zip(before).map(|(now, before)| now - before).collect()
}

/// Bytes read in parts of what the link takes, headers apart.
fn share(bytes: u64, seconds: u64) -> f64 {
    bytes as f64 / (LINK.rate * seconds) as f64
}

fn alone(algorithm: Algorithm, weather: Weather, seed: u64) -> f64 {
    let mut net = Net::new(seed, [TcpConfig::default(), TcpConfig::default()], weather, Offload::default());
    let read = streams(&mut net, &[algorithm], Duration::from_secs(2), Duration::from_secs(17));
    share(read[0], 15)
}

/// Random loss of 1 % is no congestion: the path stays full in most runs. One run may meet several losses in its probes, which bound what is in flight for
/// a while. CUBIC takes each for congestion.
#[test]
fn one_percent_of_random_loss() {
    let weather = Weather { loss: 10, ..LINK };
    let mut runs = [1, 2, 3, 4, 5, 6, 7].map(|seed| alone(Algorithm::Bbr, weather, seed));
    runs.sort_by(f64::total_cmp);
    let (bbr, cubic) = (runs[3], alone(Algorithm::Cubic, weather, 1));
    println!("{runs:.3?} of the link, CUBIC {cubic:.3}");
    assert!(bbr > 0.82 && runs[0] > 0.6, "{runs:?} of the link");
    assert!(cubic < 0.5, "{cubic} of the link");
}

/// Without loss the path is full too, and hardly anything waits in its queue.
#[test]
fn a_clean_path_is_full() {
    let bbr = alone(Algorithm::Bbr, LINK, 2);
    assert!(bbr > 0.88, "{bbr} of the link");
}

/// Two flows share: neither starves, whoever the other is.
#[test]
fn two_flows_share_a_bottleneck() {
    for other in [Algorithm::Bbr, Algorithm::Cubic] {
        let mut net = Net::new(3, [TcpConfig::default(), TcpConfig::default()], LINK, Offload::default());
        let read =
            streams(&mut net, &[Algorithm::Bbr, other], Duration::from_secs(10), Duration::from_secs(40));
        let (first, second) = (share(read[0], 30), share(read[1], 30));
        assert!(first + second > 0.85, "{first} and {second} beside {other:?}");
        assert!(first > 0.15 && second > 0.15, "{first} and {second} beside {other:?}");
    }
}

/// Of the ten segments of the initial window so many go at once, after 10 ms, and all by then.
pub(super) fn is_spread(mut s: Scene, at_once: core::ops::RangeInclusive<usize>, all_by_ms: u64) {
    s.write(30_000);
    s.until(10);
    let first = s.heard.iter().filter(|(ms, ..)| *ms == 10).count();
    assert!(at_once.contains(&first), "{first} of the initial window of ten at once");
    s.until(all_by_ms);
    assert_eq!(s.heard.len(), 10, "the window is sent within the round trip: {:?}", s.heard);
}

/// §5.6.2: what goes at one moment is a quantum at most, and the next goes later. The rate at first: ten segments in a round trip of 10 ms, times
/// 2.77: a millisecond's worth is two segments and a half.
#[test]
fn data_is_spread_over_the_round() {
    let config = TcpConfig { congestion: Algorithm::Bbr, ..Scene::config() };
    is_spread(Scene::established(config), 2..=6, 18);
}

/// A socket may change its mind: the window stays, and what the model had is given back.
#[test]
fn the_algorithm_changes_in_the_middle() {
    let mut s = Scene::established(Scene::config());
    assert_eq!(s.info().congestion, Some(Algorithm::Cubic));
    let cwnd = s.info().cwnd;
    s.set(|o| o.congestion = Some(Algorithm::Bbr));
    assert_eq!((s.info().congestion, s.info().cwnd), (Some(Algorithm::Bbr), cwnd));
    assert!(s.info().pacing_rate.is_some());
    s.set(|o| o.congestion = Some(Algorithm::NewReno));
    assert_eq!((s.info().congestion, s.info().cwnd), (Some(Algorithm::NewReno), cwnd));
    assert_eq!((s.info().pacing_rate, s.info().ssthresh), (None, cwnd), "no second slow start");
}

/// A model counts as the lane's memory, and goes with its connection. What was sent under an earlier model says nothing to the next.
#[test]
fn models_are_counted_and_given_back() {
    let mut s = Scene::established(Scene::config());
    let before = s.tcp.buffer_memory();
    s.set(|o| o.congestion = Some(Algorithm::Bbr));
    let model = s.tcp.buffer_memory() - before;
    assert!((300..1000).contains(&model), "{model}");
    s.write(5000);
    s.until(40);
    send!(s, 40, ". 1:1(0) ack 2001");
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        s.set(|o| o.congestion = Some(algorithm));
    }
    send!(s, 50, ". 1:1(0) ack 4001");
    s.until(51);
    assert!(s.info().pacing_rate.is_some_and(|rate| rate < 100_000_000), "{:?}", s.info());
    let id = s.id.unwrap();
    s.with(|tcp, cx| tcp.abort(cx, id)).unwrap();
    assert_eq!(s.tcp.buffer_memory(), 0);
    s.until(2000);
    assert_eq!(s.tcp.paced_for_test(), 0, "nobody waits any more");
}

/// RFC 3168: who does not respond to marks does not say that it does.
#[test]
fn data_may_not_be_marked() {
    let mut s = Scene::listen(TcpConfig { congestion: Algorithm::Bbr, ..Scene::config() });
    send!(s, 0, "SEW 0:0(0) win 65000 <mss 1000,sackOK>");
    recv!(s, 0, "S.E 0:0(0) ack 1");
    send!(s, 10, ". 1:1(0) ack 1");
    s.accept();
    s.write(1000);
    assert!(s.info().ecn);
    assert_eq!(s.heard[0].2.traffic_class, 0);
}

/// A flood of SYNs gets no models: one is made when the connection stands.
#[test]
fn half_open_connections_have_no_model() {
    let mut s = Scene::listen(TcpConfig { congestion: Algorithm::Bbr, ..Scene::config() });
    send!(s, 0, "S 0:0(0) <mss 1000>");
    s.until(1);
    let models = s.tcp.list().filter(|(_, info)| info.pacing_rate.is_some()).count();
    assert_eq!((s.tcp.connections(), models), (1, 0));
}
