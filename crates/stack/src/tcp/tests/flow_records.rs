//! Records of flows that have ended: exactly one for each, however it ends, with totals that agree with the counters. That the sums
//! agree, in the middle of every dialogue and at its end, is looked at by the harness ([`FlowSums`]).

use super::*;

/// The one record of a dialogue.
fn only(s: &Scene) -> FlowRecord {
    let [record] = s.flows.records[..] else { panic!("one record: {:?}", s.flows.records) };
    record
}

fn ends(s: &Scene) -> (FlowEnd, State) {
    let record = only(s);
    (record.end, record.state)
}

/// Bytes of the stream, and segments.
fn totals(bytes: u64, segments: u64) -> (u64, u64) {
    (bytes, segments)
}

fn of(totals: FlowTotals) -> (u64, u64) {
    (totals.bytes, totals.segments)
}

/// We close first: all of a conversation is in the record, and what TIME-WAIT answers is in none.
#[test]
fn both_sides_close() {
    let mut s = Scene::established(Scene::config());
    s.write(300);
    recv!(s, 10, "P. 1:301(300) ack 1");
    send!(s, 20, "P. 1:101(100) ack 301");
    s.expect_read(100);
    recv!(s, 20, ". 301:301(0) ack 101");
    s.close();
    recv!(s, 20, "F. 301:301(0) ack 101");
    send!(s, 30, ". 101:101(0) ack 302");
    assert!(s.flows.records.is_empty());
    send!(s, 40, "F. 101:101(0) ack 302");
    recv!(s, 40, ". 302:302(0) ack 102");
    let record = only(&s);
    assert_eq!((record.end, record.state, record.active), (FlowEnd::Closed, State::TimeWait, false));
    assert_eq!(
        (record.local, record.remote),
        (SocketAddr::new(US, OUR_PORT), SocketAddr::new(PEER, PEER_PORT))
    );
    assert_eq!((of(record.sent), of(record.received)), (totals(300, 5), totals(100, 5)));
    // Five headers of IP and TCP, twelve bytes of options in SYN and SYN-ACK, and the data.
    assert_eq!((record.sent.octets, record.received.octets), (5 * 40 + 12 + 300, 5 * 40 + 12 + 100));
    assert_eq!((record.began, record.ended), (Time::from_millis(100_000), Time::from_millis(100_040)));
    assert_eq!((record.retransmitted, record.interface, record.vlan), (0, None, None));
    assert_eq!(s.tcp.stats().packets_sent, record.sent.segments);
    send!(s, 50, "F. 101:101(0) ack 302");
    recv!(s, 50, ". 302:302(0) ack 102");
    s.quiet(61_000);
    assert_eq!((s.flows.records.len(), s.tcp.stats().flow_records), (1, 1));
}

/// The peer closes first, and one segment of ours is sent again.
#[test]
fn the_peer_closes_first_after_a_retransmission() {
    let mut s = Scene::established(Scene::config());
    send!(s, 20, "F. 1:1(0) ack 1");
    s.write(10);
    recv!(s, 20, "P. 1:11(10) ack 2");
    s.until(900);
    s.heard.clear();
    send!(s, 900, ". 2:2(0) ack 11");
    s.close();
    recv!(s, 900, "F. 11:11(0) ack 2");
    send!(s, 910, ". 2:2(0) ack 12");
    let record = only(&s);
    assert_eq!((record.end, record.state), (FlowEnd::Closed, State::LastAck));
    assert_eq!((record.sent.bytes, of(record.received)), (10, totals(0, 5)));
    assert!(record.retransmitted > 0);
    assert_eq!(record.sent.segments, s.tcp.stats().packets_sent);
}

/// Both close at once.
#[test]
fn a_simultaneous_close() {
    let mut s = Scene::established(Scene::config());
    s.close();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 15, "F. 1:1(0) ack 1");
    recv!(s, 15, ". 2:2(0) ack 2");
    send!(s, 20, ". 2:2(0) ack 2");
    assert_eq!(ends(&s), (FlowEnd::Closed, State::TimeWait));
}

/// Without room for TIME-WAIT records the flow ends all the same.
#[test]
fn without_time_wait() {
    let mut s = Scene::established(TcpConfig { max_time_wait: 0, ..Scene::config() });
    s.close();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 20, "F. 1:1(0) ack 2");
    assert_eq!(ends(&s), (FlowEnd::Closed, State::TimeWait));
    assert_eq!(s.tcp.time_waits(), 0);
}

#[test]
fn resets() {
    let mut s = Scene::established(Scene::config());
    send!(s, 20, "R 1:1(0)");
    assert_eq!(ends(&s), (FlowEnd::ResetByPeer, State::Established));
    // The handle is given up later; that is no second end.
    s.close();
    assert_eq!(s.flows.records.len(), 1);

    let mut s = Scene::established(Scene::config());
    let id = s.id.unwrap();
    s.with(|tcp, cx| tcp.abort(cx, id)).unwrap();
    s.drain();
    recv!(s, 10, "R. 1:1(0) ack 1");
    assert_eq!(ends(&s), (FlowEnd::ResetByUs, State::Established));
    assert_eq!(of(only(&s).sent), totals(0, 2), "the reset is one of its segments");

    // Data that nobody will read.
    let mut s = Scene::established(Scene::config());
    s.close();
    send!(s, 20, "P. 1:101(100) ack 1");
    assert_eq!(ends(&s), (FlowEnd::ResetByUs, State::FinWait1));
    assert_eq!(only(&s).sent.segments, s.tcp.stats().packets_sent);
}

#[test]
fn attempts_of_ours_that_fail() {
    let mut s = Scene::connecting(Scene::config());
    send!(s, 10, "R. 0:0(0) ack 1");
    let record = only(&s);
    assert_eq!((record.end, record.state, record.active), (FlowEnd::Refused, State::SynSent, true));
    assert_eq!((of(record.sent), of(record.received)), (totals(0, 1), totals(0, 1)));

    let mut s = Scene::connecting(TcpConfig { syn_retries: 2, ..Scene::config() });
    s.until(60_000);
    assert_eq!(ends(&s), (FlowEnd::TimedOut, State::SynSent));
    assert_eq!((of(only(&s).sent), only(&s).retransmitted), (totals(0, 3), 2));

    let mut s = Scene::connecting(Scene::config());
    s.icmp(0, IcmpErrorKind::PortUnreachable);
    assert_eq!(ends(&s), (FlowEnd::Refused, State::SynSent));
    let mut s = Scene::connecting(Scene::config());
    s.icmp(0, IcmpErrorKind::Prohibited);
    assert_eq!(ends(&s), (FlowEnd::Unreachable, State::SynSent));

    let mut s = Scene::connecting(Scene::config());
    s.close();
    assert_eq!(ends(&s), (FlowEnd::GivenUp, State::SynSent));
}

#[test]
fn handshakes_of_others_that_are_never_finished() {
    let mut s = Scene::listen(TcpConfig { synack_retries: 1, ..Scene::config() });
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000>");
    s.until(60_000);
    assert_eq!(ends(&s), (FlowEnd::HalfOpen, State::SynReceived));
    assert_eq!((of(only(&s).sent), of(only(&s).received)), (totals(0, 2), totals(0, 1)));

    // The peer takes it back.
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000>");
    send!(s, 10, "R 1:1(0)");
    assert_eq!(ends(&s), (FlowEnd::ResetByPeer, State::SynReceived));

    // Nobody listens any more.
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    let listener = s.listener.unwrap();
    s.with(|tcp, cx| tcp.close_listener(cx, listener)).unwrap();
    send!(s, 10, ". 1:1(0) ack 1");
    assert_eq!(ends(&s), (FlowEnd::HalfOpen, State::SynReceived));
    assert_eq!(of(only(&s).sent), totals(0, 2));

    // Finished, but never accepted.
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 10, ". 1:1(0) ack 1");
    let listener = s.listener.unwrap();
    s.with(|tcp, cx| tcp.close_listener(cx, listener)).unwrap();
    assert_eq!(ends(&s), (FlowEnd::ResetByUs, State::Established));
}

#[test]
fn silence() {
    let mut s = Scene::established(TcpConfig { retries: 2, ..Scene::config() });
    s.write(10);
    s.until(100_000);
    assert_eq!(ends(&s), (FlowEnd::TimedOut, State::Established));
    assert_eq!(only(&s).sent.segments, s.tcp.stats().packets_sent);
    assert_eq!(u64::from(only(&s).retransmitted), s.tcp.stats().packets_retransmitted);

    // The peer never closes its side.
    let mut s = Scene::established(Scene::config());
    s.close();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 20, ". 1:1(0) ack 2");
    s.until(1_000_000);
    assert_eq!(ends(&s), (FlowEnd::TimedOut, State::FinWait2));
}

/// The lane ends all: at once, or by FIN and then for good. Each connection has one record.
#[test]
fn the_end_of_a_lane() {
    for at_once in [true, false] {
        let mut s = Scene::established(Scene::config());
        s.write(10);
        s.with(|tcp, cx| tcp.end_all(cx, at_once));
        s.drain();
        assert_eq!(s.flows.records.len(), usize::from(at_once));
        let (now, mut last) = (s.now, Vec::new());
        s.tcp.end_flows(now, |record| last.push(record));
        s.flows.records.append(&mut last);
        let want = if at_once {
            (FlowEnd::ResetByUs, State::Established)
        } else {
            (FlowEnd::LaneEnded, State::FinWait1)
        };
        assert_eq!(ends(&s), want);
        assert_eq!((only(&s).sent.bytes, only(&s).ended), (10, s.now));
        s.tcp.end_flows(now, |_| panic!("no second time"));
    }
}

/// Nobody takes the records: the ring stays as small as it was asked for, and the rest is counted. Nothing is kept without a watch.
#[test]
fn what_nobody_takes_is_counted() {
    let mut s = Scene::listen(Scene::config());
    s.flows.takes = false;
    let now = s.now;
    s.tcp.watch_flows(now, 3, None);
    for n in 0..5 {
        (s.peer_port, s.iss) = (PEER_PORT + n, None);
        send!(s, 10 * u64::from(n), "S 0:0(0) win 65000 <mss 1000>");
        send!(s, 10 * u64::from(n), "R 1:1(0)");
    }
    assert_eq!((s.tcp.stats().flow_records, s.tcp.stats().flow_records_lost), (5, 2));
    let ports: Vec<_> =
        std::iter::from_fn(|| s.tcp.poll_flow()).map(|r| r.remote.port() - PEER_PORT).collect();
    assert_eq!(ports, [0, 1, 2]);
    s.tcp.watch_flows(now, 0, None);
    (s.peer_port, s.iss) = (PEER_PORT, None);
    send!(s, 100, "S 0:0(0) win 65000 <mss 1000>");
    send!(s, 100, "R 1:1(0)");
    assert_eq!((s.tcp.poll_flow(), s.tcp.stats().flow_records), (None, 5));
}

/// A watch that begins late counts from there.
#[test]
fn a_late_watch() {
    let mut s = Scene::established(Scene::config());
    s.flows.takes = false;
    s.write(300);
    s.until(15);
    let now = s.now;
    s.tcp.watch_flows(now, 10, None);
    send!(s, 20, "P. 1:101(100) ack 301");
    s.write(50);
    send!(s, 30, "R 101:101(0)");
    let record = s.tcp.poll_flow().unwrap();
    assert_eq!((of(record.sent), of(record.received)), (totals(50, 1), totals(100, 2)));
    assert_eq!(record.began, now);
}

/// Segments that the link cuts or merges count as what is on the wire.
#[test]
fn segments_of_the_wire() {
    let mut s = Scene::established(Scene::config());
    s.offload.segmentation = 60_000;
    s.write(5000);
    assert!(s.heard.len() < 5, "{:?}", s.texts());
    s.heard.clear();
    s.burst(20, &["P. 1:101(100) ack 5001", "P. 101:201(100) ack 5001", "P. 201:301(100) ack 5001"]);
    send!(s, 30, "R 301:301(0)");
    assert_eq!((only(&s).sent.bytes, of(only(&s).received)), (5000, totals(300, 6)));
    let (sent, received) = (only(&s).sent, only(&s).received);
    assert!((6..=7).contains(&sent.segments), "{sent:?}");
    // Headers of each, twelve bytes of options in SYN and SYN-ACK, and the data.
    assert_eq!(sent.octets, sent.segments * 40 + 12 + 5000);
    assert_eq!(received.octets, 6 * 40 + 12 + 300);
}

/// A connection that stands has a record each time the active timeout has passed, of what was counted since the one before; none if nothing
/// was. Its FIN is no byte, whichever record it is in. (That all records together say what passed is compared in every other test, by
/// `Scene`, which has an active timeout.)
#[test]
fn the_active_timeout() {
    let mut s = Scene::established(Scene::config());
    s.write(300);
    recv!(s, 10, "P. 1:301(300) ack 1");
    send!(s, 20, ". 1:1(0) ack 301");
    s.until(699);
    assert!(s.flows.parts.is_empty());
    s.until(700);
    let [first] = s.flows.parts[..] else { panic!("{:?}", s.flows.parts) };
    assert_eq!((first.end, first.state), (FlowEnd::ActiveTimeout, State::Established));
    assert_eq!((of(first.sent), of(first.received)), (totals(300, 2), totals(0, 3)));
    assert_eq!((first.began, first.ended), (Time::from_millis(100_000), Time::from_millis(100_700)));
    assert_eq!((s.tcp.stats().flow_records, s.tcp.stats().flow_records_active), (0, 1));
    s.until(2000);
    assert_eq!(s.flows.parts.len(), 1, "nothing passed");
    send!(s, 2000, "P. 1:101(100) ack 301");
    s.expect_read(100);
    s.until(2050);
    s.close();
    s.until(2100);
    let second = s.flows.parts[1];
    assert_eq!((second.sent.bytes, of(second.received)), (0, totals(100, 1)), "a FIN of ours is no byte");
    assert_eq!((second.began, second.ended), (Time::from_millis(101_400), Time::from_millis(102_100)));
    s.heard.clear();
    send!(s, 2200, "F. 101:101(0) ack 302");
    let record = only(&s);
    assert_eq!((record.end, record.began), (FlowEnd::Closed, first.began));
    assert_eq!((record.sent.bytes, record.received.bytes), (300, 100));
    s.until(60_000);
    assert_eq!((s.flows.records.len(), s.tcp.stats().flow_records_active), (1, 2), "it stands no more");
}

/// Of many connections that are due at once some are looked at in a turn, the others in the next; what finds no room waits.
#[test]
fn many_active_timeouts_at_once() {
    for most in [1000, 3] {
        let mut s = Scene::listen(Scene::config());
        s.flows.takes = false;
        let now = s.now;
        s.tcp.watch_flows(now, most, Some(Duration::from_millis(100)));
        for n in 0..100 {
            (s.peer_port, s.iss) = (PEER_PORT + n, None);
            send!(s, 0, "S 0:0(0) win 65000 <mss 1000>");
        }
        // One of them is gone by then.
        send!(s, 1, "R 1:1(0)");
        assert_eq!(s.tcp.poll_flow().unwrap().end, FlowEnd::ResetByPeer);
        s.now = now + Duration::from_millis(100);
        let mut at_once = Vec::new();
        let mut ports = Vec::new();
        while ports.len() < 99 {
            assert!(s.tcp.next_deadline().is_some_and(|at| at <= s.now + Duration::from_millis(20)));
            s.with(Tcp::on_timer);
            at_once.push(0);
            while let Some(record) = s.tcp.poll_flow() {
                assert_eq!((record.end, of(record.received)), (FlowEnd::ActiveTimeout, totals(0, 1)));
                ports.push(record.remote.port() - PEER_PORT);
                *at_once.last_mut().unwrap() += 1;
            }
            if most == 3 {
                s.now += Duration::from_millis(20);
            }
        }
        assert_eq!(ports, (0..99).collect::<Vec<_>>(), "the oldest first, each once");
        assert_eq!(at_once[..2], if most == 3 { [3, 3] } else { [64, 35] });
        assert_eq!((s.tcp.stats().flow_records_active, s.tcp.stats().flow_records_lost), (99, 0));
    }
}
