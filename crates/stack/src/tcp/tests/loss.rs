//! Loss: retransmission timeout, fast retransmit, SACK, RACK, tail probes, NewReno.

use super::*;

fn config() -> TcpConfig {
    Scene::config()
}

/// RFC 6298 §5: timeout, backoff, and Karn's rule.
#[test]
fn retransmission_timeout_backs_off() {
    let mut s = Scene::established(TcpConfig { sack: false, ..config() });
    s.write(1000);
    recv!(s, 10, "P. 1:1001(1000) ack 1");
    // SRTT 10 ms, variance at least 200 ms.
    for at in [220, 640, 1480] {
        recv!(s, at, "P. 1:1001(1000) ack 1");
    }
    send!(s, 1500, ". 1:1(0) ack 1001");
    let info = s.info();
    assert_eq!((info.rtt, info.backoff, info.retransmits), (Some(Duration::from_millis(10)), 3, 3));
    assert_eq!(s.tcp.stats().retransmit_timeouts, 3);
    s.quiet(3000);
}

/// RFC 6298 §5.5 and §5.7, RFC 9293 MUST-18: on a path whose round trip has grown over the timeout, what was sent again tells nothing,
/// so the doubled timeout stays until a segment that was sent once is measured. Without that each is sent several times for ever.
#[test]
fn the_doubled_timeout_stays_until_a_segment_sent_once_is_measured() {
    let mut s = Scene::established(TcpConfig { sack: false, ..config() });
    s.write(1000);
    recv!(s, 10, "P. 1:1001(1000) ack 1");
    recv!(s, 220, "P. 1:1001(1000) ack 1");
    send!(s, 310, ". 1:1(0) ack 1001");
    assert_eq!(s.info().backoff, 1);
    s.write(1000);
    recv!(s, 310, "P. 1001:2001(1000) ack 1");
    s.quiet(609);
    send!(s, 610, ". 1:1(0) ack 2001");
    let info = s.info();
    assert_eq!((info.backoff, info.retransmits), (0, 1));
    assert!(info.rto > Duration::from_millis(300), "{:?}", info.rto);
    s.write(1000);
    recv!(s, 610, "P. 2001:3001(1000) ack 1");
    s.quiet(909);
    send!(s, 910, ". 1:1(0) ack 3001");
    // What was acknowledged counts as progress: giving up counts from there.
    assert_eq!(s.tcp.stats().retransmit_timeouts, 1);
}

/// RFC 6298 §3 with RFC 8985 §7: a tail loss probe that is a retransmission hides the round trip as a timeout does. The next segment
/// is not probed for after two of the old round trips.
#[test]
fn a_probe_of_the_tail_does_not_hide_the_round_trip_for_ever() {
    let mut s = Scene::established(config());
    s.write(1000);
    recv!(s, 10, "P. 1:1001(1000) ack 1");
    recv!(s, 220, "P. 1:1001(1000) ack 1");
    send!(s, 310, ". 1:1(0) ack 1001");
    s.write(1000);
    recv!(s, 310, "P. 1001:2001(1000) ack 1");
    s.quiet(609);
    send!(s, 610, ". 1:1(0) ack 2001");
    assert_eq!((s.info().backoff, s.info().retransmits), (0, 1));
    assert!(s.info().rto > Duration::from_millis(240), "{:?}", s.info().rto);
}

/// RFC 9293 §3.8.3: the timeouts that count towards R2 are those since something was acknowledged, however long they have become.
#[test]
fn progress_begins_the_count_of_timeouts_anew() {
    let mut s = Scene::established(TcpConfig { retries: 3, sack: false, ..config() });
    s.write(1000);
    for at in [10, 220, 640, 1480] {
        recv!(s, at, "P. 1:1001(1000) ack 1");
    }
    send!(s, 1500, ". 1:1(0) ack 1001");
    s.write(1000);
    // 210 ms, doubled three times: that stays.
    for at in [1500, 1500 + 1680, 1500 + 1680 + 3360] {
        recv!(s, at, "P. 1001:2001(1000) ack 1");
    }
    assert_eq!(s.state(), State::Established);
}

/// RFC 9293 §3.8.3: after R2 the connection is given up, and the application told.
#[test]
fn given_up_after_r2() {
    let mut s = Scene::established(TcpConfig { retries: 3, sack: false, ..config() });
    s.write(10);
    for at in [10, 220, 640, 1480] {
        recv!(s, at, "P. 1:11(10) ack 1");
    }
    s.quiet(3161);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::TimedOut)));
    assert_eq!(s.tcp.stats().retransmit_drops, 1);
}

/// RFC 5482: the application's own limit.
#[test]
fn user_timeout() {
    let mut s = Scene::established(config());
    s.set(|o| o.user_timeout = Some(Duration::from_millis(500)));
    s.write(10);
    s.until(509);
    assert_eq!(s.state(), State::Established);
    let timeouts = s.tcp.stats().retransmit_timeouts;
    s.until(510);
    assert_eq!(s.state(), State::Closed);
    assert_eq!(s.tcp.stats().retransmit_timeouts, timeouts, "nothing is sent again when the time is over");
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::TimedOut)));
}

/// RFC 9937 §6.2: for each two segments delivered one goes out, if the window is to be halved. What had been selectively acknowledged
/// before the episode is not in RecoverFS, since it is not delivered again.
#[test]
fn the_reduction_is_proportional_to_what_recovery_delivers() {
    let reno = TcpConfig { initial_window: 20, congestion: Algorithm::NewReno, ..config() };
    let mut s = Scene::established(reno);
    s.write(40_000);
    s.until(10);
    s.heard.clear();
    let mut sent = Vec::new();
    for end in 2..=14 {
        s.speak(20, &format!(". 1:1(0) ack 1 <sack 1001:{end}001>"));
        s.until(20);
        sent.push(s.heard.len());
    }
    // Two by limited transmit (RFC 3042), the retransmission, and then one for each two delivered, down to the half of twenty in flight.
    assert_eq!(sent, [1, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
    assert_eq!(s.info().ssthresh, 10_000);
    s.until(21);
    send!(s, 21, ". 1:1(0) ack 24001");
    s.until(22);
    // What ends recovery at ssthresh counts towards the next segment, too.
    assert!((10_000..=11_000).contains(&s.info().cwnd), "{}", s.info().cwnd);
}

/// RFC 6675, RFC 8985: three SACKed segments mean loss; PRR sends at a reduced pace; the window ends at 0.7.
#[test]
fn fast_recovery_with_sack() {
    let mut s = Scene::established(config());
    s.write(10_000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:2001>");
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:3001>");
    s.quiet(20);
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:4001>");
    recv!(s, 20, ". 1:1001(1000) ack 1");
    assert!(s.info().recovering);
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:10001>");
    s.quiet(29);
    send!(s, 30, ". 1:1(0) ack 10001");
    let info = s.info();
    assert_eq!((info.recovering, info.cwnd, info.ssthresh), (false, 7000, 7000));
    assert_eq!(s.tcp.stats().sack_recovery_episodes, 1);
    assert_eq!(s.tcp.stats().retransmit_timeouts, 0);
}

/// RFC 3042, limited transmit: each of the first two duplicates lets one new segment out.
#[test]
fn limited_transmit() {
    let mut s = Scene::established(config());
    s.write(15_000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:2001>");
    recv!(s, 20, ". 10001:11001(1000) ack 1");
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:3001>");
    recv!(s, 20, ". 11001:12001(1000) ack 1");
}

/// RFC 5681 §3.2, RFC 6582: without SACK, duplicates; a partial acknowledgement reveals the next hole.
#[test]
fn newreno_without_sack() {
    let mut s = Scene::established(TcpConfig { sack: false, congestion: Algorithm::NewReno, ..config() });
    s.write(10_000);
    s.until(10);
    s.heard.clear();
    for _ in 0..2 {
        send!(s, 20, ". 1:1(0) ack 1");
    }
    s.quiet(20);
    send!(s, 20, ". 1:1(0) ack 1");
    recv!(s, 20, ". 1:1001(1000) ack 1");
    send!(s, 30, ". 1:1(0) ack 5001");
    recv!(s, 30, ". 5001:6001(1000) ack 1");
    send!(s, 40, ". 1:1(0) ack 10001");
    assert_eq!(s.info().cwnd, 5000);
    s.quiet(1000);
}

/// RFC 8985 §6.2: an old segment is lost when a later one has arrived a round trip before; its retransmission too.
#[test]
fn a_lost_retransmission_is_found_by_rack() {
    let mut s = Scene::established(config());
    s.write(10_000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:5001>");
    recv!(s, 20, ". 1:1001(1000) ack 1");
    s.write(3000);
    send!(s, 21, ". 1:1(0) ack 1 <sack 1001:10001>");
    s.until(21);
    let sent: Vec<String> = s.heard.drain(..).map(|(_, text, _)| text).collect();
    assert!(sent[0].starts_with(". 10001:11001"), "{sent:?}");
    // What was sent after the retransmission arrives: the retransmission is lost.
    send!(s, 40, ". 1:1(0) ack 1 <sack 1001:11001>");
    recv!(s, 40, ". 1:1001(1000) ack 1");
    assert_eq!(s.tcp.stats().retransmit_timeouts, 0);
}

/// RFC 6675 §5: recovery is over when all is acknowledged that was out when it began, with ECN or without; then the window
/// grows again (RFC 5681 §3.1).
#[test]
fn recovery_ends() {
    let mut s = Scene::established(TcpConfig { congestion: Algorithm::NewReno, ..config() });
    s.write(10_000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:4001>");
    recv!(s, 20, ". 1:1001(1000) ack 1");
    assert_eq!(s.info().loss_state, LossState::Recovery);
    send!(s, 30, ". 1:1(0) ack 10001");
    let info = s.info();
    assert_eq!((info.loss_state, info.cwnd), (LossState::Open, 5000));
    // All of the window at once, because it is idle, and it grows as it is used.
    s.write(30_000);
    s.until(30);
    assert_eq!(s.heard.len(), 5);
    s.heard.clear();
    for n in 1..=5 {
        send!(s, 40, &format!(". 1:1(0) ack {}", 10_001 + n * 1000));
    }
    assert_eq!(s.info().cwnd, 6000);
}

/// The same after a timeout.
#[test]
fn the_state_of_loss_ends() {
    let mut s = Scene::established(TcpConfig { sack: false, ..config() });
    s.write(1000);
    recv!(s, 10, "P. 1:1001(1000) ack 1");
    recv!(s, 220, "P. 1:1001(1000) ack 1");
    s.write(1000);
    assert_eq!(s.info().loss_state, LossState::Loss);
    send!(s, 230, ". 1:1(0) ack 1001");
    assert_eq!(s.info().loss_state, LossState::Open);
}

/// RFC 2018 §4: what an overtaken acknowledgement says was received is news all the same.
#[test]
fn an_old_acknowledgement_brings_its_blocks() {
    let mut s = Scene::established(config());
    s.write(10_000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 4001");
    send!(s, 21, ". 1:1(0) ack 3001 <sack 5001:7001>");
    assert_eq!(s.info().segments.sacked, 2);
}

/// RFC 8985 §7.2: where the timeout would come before the probe, the probe takes its place.
#[test]
fn a_probe_in_place_of_the_timeout() {
    let mut s = Scene::established(config());
    s.write(1000);
    recv!(s, 10, "P. 1:1001(1000) ack 1");
    // SRTT 10 ms: the timeout is 210 ms, the probe's own time 220 ms for a lone segment.
    recv!(s, 220, "P. 1:1001(1000) ack 1");
    assert_eq!((s.tcp.stats().tail_loss_probes, s.tcp.stats().retransmit_timeouts), (1, 0));
    recv!(s, 430, "P. 1:1001(1000) ack 1");
    assert_eq!(s.tcp.stats().retransmit_timeouts, 1);
}

/// RFC 8985 §6.2: once reordering has been seen, a segment gets a quarter of the least round trip.
#[test]
fn reordering_gets_time() {
    let mut s = Scene::established(config());
    s.write(3000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1 <sack 2001:3001>");
    send!(s, 21, ". 1:1(0) ack 3001");
    s.write(5000);
    s.until(21);
    s.heard.clear();
    send!(s, 31, ". 1:1(0) ack 3001 <sack 4001:8001>");
    s.quiet(33);
    recv!(s, 34, ". 3001:4001(1000) ack 1");
    assert_eq!(s.tcp.stats().retransmit_timeouts, 0);
}

/// RFC 8985 §7: two round trips after the last segment its end is sent again.
#[test]
fn tail_loss_probe() {
    let mut s = Scene::established(config());
    s.write(3000);
    s.until(10);
    s.heard.clear();
    recv!(s, 30, "P. 2001:3001(1000) ack 1");
    send!(s, 40, ". 1:1(0) ack 1 <sack 2001:3001>");
    // 1..2001 were sent long before the probe arrived.
    recv!(s, 40, ". 1:1001(1000) ack 1");
    send!(s, 50, ". 1:1(0) ack 1001 <sack 2001:3001>");
    recv!(s, 50, ". 1001:2001(1000) ack 1");
    send!(s, 60, ". 1:1(0) ack 3001");
    assert_eq!(s.tcp.stats().tail_loss_probes, 1);
    assert_eq!(s.tcp.stats().retransmit_timeouts, 0);
}

/// RFC 8985 §7.4: a probe whose original had arrived is reported twice and does not count as loss.
#[test]
fn an_unnecessary_probe_changes_nothing() {
    let mut s = Scene::established(config());
    s.write(3000);
    s.until(10);
    s.heard.clear();
    recv!(s, 30, "P. 2001:3001(1000) ack 1");
    s.write(1000);
    s.until(33);
    send!(s, 35, ". 1:1(0) ack 3001");
    send!(s, 41, ". 1:1(0) ack 3001 <sack 2001:3001>");
    assert_eq!(s.info().ssthresh, u32::MAX);
    // Nor does what is acknowledged later.
    send!(s, 43, ". 1:1(0) ack 4001");
    assert_eq!((s.info().ssthresh, s.tcp.stats().tail_loss_recoveries), (u32::MAX, 0));
}

/// RFC 8985 §7.4: a probe that took the place of a lost original is seen by later data, and counts as a loss.
#[test]
fn a_probe_that_repaired_a_loss_counts() {
    let mut s = Scene::established(config());
    s.write(3000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 2001");
    s.until(300);
    assert_eq!((s.tcp.stats().tail_loss_probes, s.tcp.stats().retransmit_timeouts), (1, 0));
    s.write(1000);
    s.until(305);
    send!(s, 310, ". 1:1(0) ack 3001");
    assert_eq!(s.info().ssthresh, u32::MAX, "it may have been needless");
    send!(s, 320, ". 1:1(0) ack 4001");
    assert_eq!(s.tcp.stats().tail_loss_recoveries, 1);
    assert!(s.info().ssthresh < u32::MAX);
}

/// RFC 2018 §8: a peer that takes back what it reported gets it again after the timeout.
#[test]
fn reneging() {
    let mut s = Scene::established(config());
    s.write(2000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:2001>");
    s.until(230);
    s.heard.clear();
    send!(s, 231, ". 1:1(0) ack 1001");
    s.until(2000);
    assert!(s.tcp.stats().sack_reneges > 0);
    assert!(s.texts().iter().any(|(_, text)| text.starts_with("P. 1001:2001")), "{:?}", s.texts());
}

/// RFC 5681 §4.1: after an idle timeout the window starts anew.
#[test]
fn the_window_shrinks_while_idle() {
    let mut s = Scene::established(config());
    s.write(20_000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 10001");
    s.until(20);
    s.heard.clear();
    send!(s, 30, ". 1:1(0) ack 20001");
    let before = s.info().cwnd;
    assert!(before > 15_000, "{before}");
    s.quiet(30_000);
    s.write(20_000);
    assert_eq!(s.info().outstanding, 10_000);
}

/// RFC 6582 §3.2, step 3: a partial acknowledgement sends the next hole at once, even where rate reduction would not.
#[test]
fn a_partial_acknowledgement_sends_the_next_hole() {
    let mut s = Scene::established(TcpConfig { sack: false, congestion: Algorithm::NewReno, ..config() });
    s.write(10_000);
    s.until(15);
    s.heard.clear();
    for _ in 0..3 {
        send!(s, 20, ". 1:1(0) ack 1 win 65000");
    }
    recv!(s, 20, ". 1:1001(1000) ack 1");
    send!(s, 30, ". 1:1(0) ack 3001 win 65000");
    recv!(s, 30, ". 3001:4001(1000) ack 1");
    s.quiet(35);
}

/// RFC 8985 §6.2, step 2: RACK.rtt is that of the segment delivered last. An original that a retransmission of another has
/// overtaken makes it long, so that what was sent with that original has some time more, too.
#[test]
fn the_segment_delivered_last_measures() {
    let mut s = Scene::established(TcpConfig { congestion: Algorithm::NewReno, ..config() });
    s.write(10_000);
    s.until(15);
    s.heard.clear();
    for sack in ["sack 1001:2001", "sack 1001:3001", "sack 8001:9001,sack 1001:3001"] {
        send!(s, 20, &format!(". 1:1(0) ack 1 <{sack}>"));
    }
    recv!(s, 20, ". 1:1001(1000) ack 1");
    // The retransmission and the fourth segment have arrived; the tenth may still come.
    send!(s, 32, ". 1:1(0) ack 4001 <sack 8001:9001>");
    recv!(s, 32, ". 4001:5001(1000) ack 1");
    recv!(s, 32, ". 5001:6001(1000) ack 1");
    recv!(s, 32, ". 6001:7001(1000) ack 1");
    s.quiet(33);
}
