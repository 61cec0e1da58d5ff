//! Prague in whole connections (draft-briscoe-iccrg-prague-congestion-control): when it runs, what it answers to marks and losses, and what
//! becomes of queues that mark early, beside CUBIC on the same path.
//!
//! Prague alone is tested where it stands (`connection/congestion/prague/tests.rs`).

use super::accurate::server as accurate_server;
use super::bbr::{is_spread, streams};
use super::lossy::{FAIR, Net, Weather, check, in_any_weather_that_marks, transfer};
use super::*;

/// 40 Mbit/s, a round trip of 20 ms: 100 kB fit on the path.
pub(super) const LINK: Weather = Weather { delay_us: 10_000, rate: 5_000_000, queue_us: 100_000, ..FAIR };
/// What a queue of L4S lets wait unmarked, and one of classic ECN, microseconds.
pub(super) const STEP: [u32; 2] = [1000, 20_000];
const ALL: u32 = 1 << 20;

fn told() -> TcpConfig {
    TcpConfig { congestion: Algorithm::Prague, ..Scene::config() }
}

/// ESTABLISHED by a passive open after 10 ms, in accurate mode.
fn server() -> Scene {
    accurate_server(told())
}

/// Host 0 asks for what its sockets need, host 1 agrees on all there is.
pub(super) fn net(seed: u64, weather: Weather, marks_beyond: [u32; 2]) -> Net {
    net_with(Ecn::AccurateAccept, seed, weather, marks_beyond)
}

fn net_with(peer: Ecn, seed: u64, weather: Weather, marks_beyond: [u32; 2]) -> Net {
    // The receive window is not what bounds them.
    let recv_buffer = BufferSize { initial: 2 << 20, max: 4 << 20 };
    let configs = [Ecn::Request, peer].map(|ecn| TcpConfig { ecn, recv_buffer, ..TcpConfig::default() });
    let mut net = Net::new(seed, configs, weather, Offload::default());
    net.marks_beyond = marks_beyond;
    net
}

impl Scene {
    fn ecn_fields(&self) -> Vec<u8> {
        self.heard.iter().map(|(_, _, out)| out.traffic_class & 3).collect()
    }

    /// The peer acknowledges all that was sent, and says that so many packets more were marked in all.
    fn acknowledge(&mut self, ms: u64, marks: u32) {
        self.until(ms);
        let end = 1 + self.written - u64::from(self.info().unsent);
        let bits = (5 + marks) & 7;
        let flags: String =
            "AWE".chars().zip([4, 2, 1]).filter(|(_, bit)| bits & bit != 0).map(|(c, _)| c).collect();
        send!(self, ms, &format!(".{flags} 1:1(0) ack {end}"));
    }
}

// When it runs.

/// Who is told of Prague asks for accurate ECN, and its data says that each mark gets an answer (RFC 9331 §4.1).
#[test]
fn it_asks_for_accurate_ecn() {
    for ecn in [Ecn::Accept, Ecn::Request, Ecn::Accurate] {
        let mut s = Scene::connecting(TcpConfig { ecn, ..told() });
        recv!(s, 0, "SEWA 0:0(0)");
        assert_eq!(s.info().pacing_rate, None);
        send!(s, 10, "S.W 0:0(0) ack 1 win 65000 <mss 1000,sackOK>");
        s.write(1000);
        s.until(20);
        assert_eq!((s.info().congestion, s.info().marked_share), (Some(Algorithm::Prague), Some(ALL)));
        // The handshake and bare acknowledgements are not to be marked.
        assert_eq!(s.ecn_fields(), [0, 1, 1], "{:?}", s.texts());
    }
}

/// A listener told of it takes accurate ECN, with SYN cookies, too.
#[test]
fn it_accepts_accurate_ecn() {
    for syn_cookies in [SynCookies::WhenFull, SynCookies::Always] {
        let mut s = server_with(TcpConfig { syn_cookies, ..told() });
        s.write(2000);
        s.until(20);
        assert_eq!(s.info().congestion, Some(Algorithm::Prague));
        assert!(s.ecn_fields().iter().all(|field| *field == 1) && s.heard.len() > 1, "{:?}", s.texts());
    }
}

fn server_with(config: TcpConfig) -> Scene {
    let mut s = Scene::listen(config);
    send!(s, 0, "SEWA 0:0(0) win 65000 <mss 1000,sackOK>");
    recv!(s, 0, "S.W 0:0(0) ack 1");
    send!(s, 10, ".W 1:1(0) ack 1");
    s.accept();
    s
}

/// A socket may have it beside others of the lane; its SYN alone asks.
#[test]
fn a_socket_may_have_it() {
    let mut s = Scene::new(Scene::config());
    for (port, congestion, flags) in [(1, None, "S "), (2, Some(Algorithm::Prague), "SEWA ")] {
        let socket = SocketOptions { congestion, ..SocketOptions::default() };
        let options = ConnectOptions { socket, ..ConnectOptions::default() };
        let (local, remote) = (SocketAddr::new(US, port), SocketAddr::new(PEER, PEER_PORT));
        s.with(|tcp, cx| tcp.connect(cx, local, remote, &options)).unwrap();
        s.drain();
        assert!(s.heard.pop_front().unwrap().1.starts_with(flags), "{congestion:?}");
    }
    let options = ListenOptions {
        socket: SocketOptions { congestion: Some(Algorithm::Prague), ..SocketOptions::default() },
        ..ListenOptions::default()
    };
    s.tcp.listen(None, OUR_PORT, options).unwrap();
    send!(s, 0, "SEWA 0:0(0) win 65000 <mss 1000,sackOK>");
    s.drain();
    assert!(s.heard[0].1.starts_with("S.W "), "{:?}", s.texts());
}

/// Where marks are not told of one by one, there is CUBIC, and no data says otherwise: with a peer that answers with classic ECN or none, or asks for such,
/// or disables the feedback, or where something changes marks, or ECN is off.
#[test]
fn without_accurate_ecn_there_is_cubic() {
    let cubic = |mut s: Scene, field: u8, why: &str| {
        s.heard.clear();
        s.write(3000);
        s.until(15);
        assert_eq!(
            (s.info().congestion, s.info().pacing_rate, s.tcp.stats().prague_without),
            (Some(Algorithm::Cubic), None, 1),
            "{why}"
        );
        assert!(s.heard.len() >= 3 && s.ecn_fields().iter().all(|is| *is == field), "{why}: {:?}", s.texts());
        // It stays so when the socket is told of other things.
        s.set(|o| o.congestion = Some(Algorithm::Prague));
        let asked = s.tcp.stats().prague_without;
        s.set(|o| o.nodelay = true);
        assert_eq!((s.info().congestion, s.tcp.stats().prague_without), (Some(Algorithm::Cubic), asked));
    };
    for (answer, field) in [("S.E", 2), ("S.", 0), ("S.A", 0), ("S.EW", 0)] {
        let mut s = Scene::connecting(told());
        send!(s, 10, &format!("{answer} 0:0(0) ack 1 win 65000 <mss 1000,sackOK>"));
        s.until(10);
        cubic(s, field, answer);
    }
    for (syn, ack, field) in [("SEW", ".", 2), ("S", ".", 0), ("SEWA", ".", 0), ("SEWA", ".EW", 0)] {
        let mut s = Scene::listen(told());
        send!(s, 0, &format!("{syn} 0:0(0) win 65000 <mss 1000,sackOK>"));
        s.until(5);
        send!(s, 10, &format!("{ack} 1:1(0) ack 1"));
        s.accept();
        cubic(s, field, syn);
    }
    let mut s = Scene::connecting(TcpConfig { ecn: Ecn::Off, ..told() });
    recv!(s, 0, "S 0:0(0)");
    send!(s, 10, "S. 0:0(0) ack 1 win 65000 <mss 1000,sackOK>");
    s.until(10);
    cubic(s, 0, "off");
}

/// RFC 9768 §3.2.2.4: feedback of zeros shows in the middle that it is none.
#[test]
fn a_path_that_changes_marks() {
    let mut s = server();
    s.write(1000);
    s.until(15);
    assert_eq!(s.info().congestion, Some(Algorithm::Prague));
    send!(s, 20, ". 1:1(0) ack 989");
    assert_eq!((s.info().congestion, s.info().pacing_rate), (Some(Algorithm::Cubic), None));
    s.heard.clear();
    s.write(3000);
    s.until(30);
    assert!(s.ecn_fields().iter().all(|field| *field == 0) && !s.heard.is_empty(), "{:?}", s.texts());
}

/// Nothing but Prague sends ECT(1), on whole paths; with it nothing is ECT(0).
#[test]
fn only_prague_sends_ect_1() {
    for algorithm in Algorithm::ALL {
        for peer in [Ecn::Off, Ecn::Accept, Ecn::AccurateAccept] {
            if algorithm == Algorithm::Prague && peer != Ecn::AccurateAccept {
                // It would have become another: `without_accurate_ecn_there_is_cubic`.
                continue;
            }
            let mut net = net_with(peer, 4, Weather { mark: 20, ..LINK }, [0, 0]);
            streams(&mut net, &[algorithm], Duration::from_millis(100), Duration::from_millis(600));
            let fields = net.fields[0];
            let is = |field: usize| fields[field] > 20;
            let classic = algorithm != Algorithm::Bbr && peer != Ecn::Off;
            let prague = algorithm == Algorithm::Prague;
            assert_eq!((is(1), is(2)), (prague, classic && !prague), "{algorithm:?} {peer:?} {fields:?}");
            assert_eq!(fields[if prague { 2 } else { 1 }], 0);
        }
    }
}

// What it answers.

/// §2.4.2, §2.4.5: the first mark ends slow start with half of the window; the next rounds take what the share says. Nothing is said of that (RFC 9768 §3.1.5).
#[test]
fn the_first_mark_halves() {
    let mut s = server();
    s.write(10_000);
    s.until(19);
    let before = s.info().cwnd;
    s.acknowledge(20, 1);
    let info = s.info();
    assert!(info.cwnd.abs_diff((before + 9880) / 2) <= 1000, "{before}, then {info:?}");
    assert_eq!(
        (info.ssthresh, info.loss_state, s.tcp.stats().ecn_reductions),
        (info.cwnd, LossState::Open, 1)
    );
    // Each further mark in the virtual round of 25 ms is none.
    for (n, ms) in (2..).zip([25, 30, 35, 40]) {
        s.write(1000);
        s.acknowledge(ms, n);
    }
    assert_eq!((s.info().cwnd, s.tcp.stats().ecn_reductions), (info.cwnd, 1));
    s.write(1000);
    s.acknowledge(50, 6);
    assert_eq!(s.tcp.stats().ecn_reductions, 2);
}

/// RFC 9331 §4.3: a loss is answered as Reno does.
#[test]
fn a_loss_halves() {
    let mut s = server();
    s.write(20_000);
    s.until(20);
    let out = s.info().outstanding;
    assert!(out >= 9000, "{out}");
    send!(s, 20, &format!(".EA 1:1(0) ack 1 <sack 989:{}>", 1 + out));
    let info = s.info();
    assert_eq!((info.loss_state, info.ssthresh), (LossState::Recovery, out / 2), "{info:?}");
    assert!(s.tcp.stats().ecn_reductions == 0 && info.pacing_rate.is_some());
}

/// A loss that was none gives the window back, but for what a mark has taken off.
#[test]
fn a_mark_is_not_undone() {
    for marked in [false, true] {
        let mut s = server();
        s.write(10_000);
        s.until(20);
        let (before, out) = (s.info().cwnd, s.info().outstanding);
        send!(s, 20, &format!(".EA 1:1(0) ack 1 <sack 989:{}>", 1 + out));
        assert_eq!(s.info().loss_state, LossState::Recovery);
        let ace = if marked { "WA" } else { "EA" };
        // The first arrives after all; then what was sent again.
        send!(s, 25, &format!(".{ace} 1:1(0) ack {}", 1 + out));
        send!(s, 30, &format!(".{ace} 1:1(0) ack {} <sack 1:989>", 1 + out));
        let info = s.info();
        assert_eq!(info.loss_state, LossState::Open);
        let all = if marked { before / 2 } else { before };
        assert!((all..all + 2000).contains(&info.cwnd), "{before}, then {info:?}, marked {marked}");
    }
}

/// What goes at one moment is a quarter of a millisecond's worth, one segment at least.
#[test]
fn data_is_spread_over_the_round() {
    is_spread(server(), 1..=4, 20);
}

/// Its state counts as the lane's memory and goes with the connection; a socket may change its mind, and the window stays.
#[test]
fn the_algorithm_changes_in_the_middle() {
    let mut s = server();
    let (with, cwnd) = (s.tcp.buffer_memory(), s.info().cwnd);
    s.set(|o| o.congestion = Some(Algorithm::NewReno));
    let without = s.tcp.buffer_memory();
    println!("{} bytes", with - without);
    assert!((50..200).contains(&(with - without)), "{with} {without}");
    assert_eq!((s.info().marked_share, s.info().cwnd), (None, cwnd));
    s.set(|o| o.congestion = Some(Algorithm::Bbr));
    assert!(s.tcp.buffer_memory() - without > 300);
    s.set(|o| o.congestion = Some(Algorithm::Prague));
    assert_eq!((s.tcp.buffer_memory(), s.info().congestion), (with, Some(Algorithm::Prague)));
    s.write(5000);
    s.until(20);
    assert!(s.heard.iter().rev().take(5).all(|(_, _, out)| out.traffic_class == 1));
    let id = s.id.unwrap();
    s.with(|tcp, cx| tcp.abort(cx, id)).unwrap();
    assert_eq!(s.tcp.buffer_memory(), 0);
    s.until(2000);
    assert_eq!(s.tcp.paced_for_test(), 0, "nobody waits any more");
}

/// A flood of SYNs gets no state of it: that is made when the connection stands.
#[test]
fn half_open_connections_have_none() {
    let mut s = Scene::listen(told());
    send!(s, 0, "SEWA 0:0(0) <mss 1000>");
    s.until(1);
    assert_eq!(s.tcp.connections(), 1);
    assert!(s.tcp.list().all(|(_, info)| info.pacing_rate.is_none() && info.marked_share.is_none()));
}

/// Whatever ACE and the option say, the window is two segments at least, and data goes on.
#[test]
fn feedback_that_lies() {
    let mut s = server();
    let mut rng = Rng::new(11);
    let aces = ["", "E", "W", "EW", "A", "EA", "WA", "EWA"];
    let mut acked = 1;
    for n in 0..400 {
        if s.info().unacknowledged < 60_000 {
            s.write(3000);
        }
        s.until(20 + 7 * n);
        let sent = 1 + s.written - u64::from(s.info().unsent);
        acked += u64::from(rng.below((sent - acked + 1) as u32));
        let ace = if n == 0 { "EA" } else { aces[rng.below(8) as usize] };
        let counters = [rng.next_u32(), rng.next_u32(), rng.next_u32()].map(|c| c & 0x00ff_ffff);
        let [e0b, ceb, e1b] = if rng.below(2) == 0 { counters } else { [1, counters[1], 1] };
        let (e0b, e1b) = (e0b.max(1), e1b.max(1));
        send!(s, 20 + 7 * n, &format!(".{ace} 1:1(0) ack {acked} <ECN e0b {e0b} ceb {ceb} e1b {e1b}>"));
        assert!(s.info().cwnd >= 1000 && s.info().marked_share.is_none_or(|share| share <= ALL));
    }
    assert!(acked > 20_000, "{acked}");
}

// What becomes of queues.

/// Part of the link that was read, and what packets waited, microseconds: the middle one and the one in the hundred.
fn alone(algorithm: Algorithm, weather: Weather, marks_beyond: [u32; 2], seed: u64) -> (f64, u32, u32) {
    let mut net = net(seed, weather, marks_beyond);
    let read = streams(&mut net, &[algorithm], Duration::from_secs(3), Duration::from_secs(9));
    net.waited.sort_unstable();
    let part = |part: usize| net.waited[net.waited.len() * part / 100];
    let full = read[0] as f64 / (weather.rate * 6) as f64;
    println!("{algorithm:?} {marks_beyond:?}: {full:.3} of the link, {} us, {} us", part(50), part(99));
    (full, part(50), part(99))
}

/// A queue that marks beyond a millisecond stays that short, and the path full. CUBIC needs a deep one to fill it.
#[test]
fn a_queue_of_l4s_is_short_and_full() {
    let (full, middle, most) = alone(Algorithm::Prague, LINK, STEP, 1);
    assert!(full > 0.9 && middle < 1500 && most < 3000, "{full} {middle} {most}");
    let (full, middle, most) = alone(Algorithm::Cubic, LINK, STEP, 1);
    assert!(full > 0.9 && middle > 5000 && most > 15_000, "{full} {middle} {most}");
    let (less, ..) = alone(Algorithm::Cubic, LINK, [STEP[0]; 2], 1);
    assert!(less < full, "{less}");
}

/// RFC 8257 §3.3: the share is that of the packets that are marked, whatever that is.
#[test]
fn the_share_is_that_of_the_marks() {
    for mark in [50, 200, 500] {
        let mut net = net(5, Weather { mark, rate: 0, ..LINK }, [0, 0]);
        let listener = net.hosts[1].tcp.listen(None, 80, ListenOptions::default()).unwrap();
        let socket = SocketOptions { congestion: Some(Algorithm::Prague), ..SocketOptions::default() };
        let options = ConnectOptions { mtu: 1500, socket, ..ConnectOptions::default() };
        let (local, remote) = (SocketAddr::new(net.hosts[0].ip, 5000), SocketAddr::new(net.hosts[1].ip, 80));
        let id = net.on(0, |tcp, cx| tcp.connect(cx, local, remote, &options)).unwrap();
        let (data, mut room, mut theirs) = (vec![0u8; 64 << 10], vec![0u8; 64 << 10], None);
        let (start, mut shares) = (net.now, Vec::new());
        while net.now < start + Duration::from_secs(12) {
            theirs = theirs.or_else(|| net.hosts[1].tcp.accept(listener).unwrap().map(|a| a.id));
            while net.on(0, |tcp, cx| tcp.send(cx, id, &data)).is_ok_and(|n| n > 0) {}
            if let Some(id) = theirs {
                while net.on(1, |tcp, cx| tcp.recv(cx, id, &mut room)).is_ok_and(|n| n > 0) {}
            }
            assert!(net.step());
            if net.now > start + Duration::from_secs(3) {
                shares.push(u64::from(net.hosts[0].tcp.info(id).unwrap().marked_share.unwrap()));
            }
        }
        let share = shares.iter().sum::<u64>() as f64 / shares.len() as f64 / f64::from(ALL);
        let wanted = f64::from(mark) / 1000.0;
        println!("{wanted} marked: {share:.3}");
        assert!((wanted * 0.8..wanted * 1.2).contains(&share), "{share} of {wanted}");
    }
}

/// Two share evenly. Of two with round trips of 5 and 50 ms, of which the first counts as 25, the near one gets more: four times as much where a queue
/// marks beyond a threshold, the square of the rounds. By its round trip it would be ten times, and by the square of that a hundred.
#[test]
fn flows_of_different_round_trips_share() {
    for (delay_us, far, least) in [(10_000, 0, 0.4), (2500, 22_500, 0.15)] {
        let mut net = net(6, Weather { delay_us, ..LINK }, STEP);
        net.far = (5001, far);
        let read =
            streams(&mut net, &[Algorithm::Prague; 2], Duration::from_secs(20), Duration::from_secs(50));
        let all = (read[0] + read[1]) as f64;
        let (full, second) = (all / (LINK.rate * 30) as f64, read[1] as f64 / all);
        println!("{far} us further: {full:.3} of the link, {second:.3} of that the second");
        assert!(full > 0.85 && (least..0.6).contains(&second), "{full} {second}, {far} us further");
    }
}

/// Marks on all packets: two segments a round trip go on, and everything arrives.
#[test]
fn marks_on_all_packets() {
    let sizes = [200_000, 50_000];
    for accecn_option in [true, false] {
        let config = TcpConfig { congestion: Algorithm::Prague, accecn_option, ..TcpConfig::default() };
        let weather = Weather { mark: 1000, ..FAIR };
        let outcome =
            transfer(Net::new(9, [config.clone(), config], weather, Offload::default()), sizes, None);
        check(&outcome, sizes);
        let stats = outcome.net.hosts[0].tcp.stats();
        assert!(stats.accecn_marks > 100 && stats.ecn_reductions > 3, "{stats:?}");
        assert_eq!((stats.accecn_stopped, stats.prague_without), (0, 0));
    }
}

/// A queue of classic ECN, which marks late: rounds of it are counted, and those of a queue of L4S are not. Beside CUBIC in it Prague does not take
/// everything, as it would if it answered these marks a little each round.
#[test]
fn a_queue_of_classic_ecn() {
    for (beyond, is_deep) in [(20_000, true), (1000, false)] {
        let mut net = net(8, LINK, [beyond; 2]);
        streams(&mut net, &[Algorithm::Prague], Duration::from_secs(3), Duration::from_secs(20));
        let deep = net.hosts[0].tcp.stats().prague_deep;
        println!("marks beyond {beyond} us: {deep} rounds");
        assert!(if is_deep { deep > 10 } else { deep <= 2 }, "{deep} rounds, {beyond} us");
    }
    let mut net = net(8, LINK, [20_000; 2]);
    let both = [Algorithm::Prague, Algorithm::Cubic];
    let read = streams(&mut net, &both, Duration::from_secs(20), Duration::from_secs(50));
    let cubic = read[1] as f64 / (read[0] + read[1]) as f64;
    println!("beside CUBIC: {cubic:.3} is CUBIC's");
    assert!(cubic > 0.25, "{cubic}");
}

/// Any weather: nothing hangs or panics, and what is delivered is whole.
#[test]
fn in_any_weather() {
    in_any_weather_that_marks(|_, ecn| {
        let prague = TcpConfig { congestion: Algorithm::Prague, ..TcpConfig::default() };
        [prague, TcpConfig { ecn, ..TcpConfig::default() }]
    });
}
