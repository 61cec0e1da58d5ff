//! Closing, in every order.

use super::*;

/// RFC 9293 §3.6, figure 12: we close first.
#[test]
fn active_close() {
    let mut s = Scene::established(Scene::config());
    s.shutdown();
    recv!(s, 10, "F. 1:1(0) ack 1");
    assert_eq!(s.state(), State::FinWait1);
    send!(s, 20, ". 1:1(0) ack 2");
    assert_eq!(s.state(), State::FinWait2);
    send!(s, 30, "P. 1:101(100) ack 2");
    s.expect_read(100);
    recv!(s, 30, ". 2:2(0) ack 101");
    send!(s, 40, "F. 101:101(0) ack 2");
    recv!(s, 40, ". 2:2(0) ack 102");
    assert_eq!(s.state(), State::TimeWait);
    assert_eq!(s.read_result(), Ok(0));
    s.close();
    assert_eq!((s.tcp.connections(), s.tcp.time_waits()), (0, 1));
    s.quiet(60_041);
    assert_eq!(s.tcp.time_waits(), 0);
}

/// A FIN at the end of a conversation waits for ours, as data waits for an answer (RFC 9293 §3.8.6.3): one segment says both.
#[test]
fn a_farewell_is_returned_in_one_segment() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "P. 1:101(100) ack 1");
    recv!(s, 10, ". 1:1(0) ack 101");
    s.expect_read(100);
    send!(s, 20, "F. 101:101(0) ack 1");
    s.quiet(30);
    s.close();
    recv!(s, 30, "F. 1:1(0) ack 102");
    send!(s, 40, ". 102:102(0) ack 2");
    assert_eq!(s.tcp.connections(), 0);
    // Nobody closes: the timer of delayed acknowledgements tells the peer.
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "P. 1:101(100) ack 1");
    recv!(s, 10, ". 1:1(0) ack 101");
    send!(s, 20, "F. 101:101(0) ack 1");
    recv!(s, 60, ". 1:1(0) ack 102");
    assert_eq!(s.state(), State::CloseWait);
    // In answer to ours it is the last word, and told at once.
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "P. 1:101(100) ack 1");
    recv!(s, 10, ". 1:1(0) ack 101");
    s.expect_read(100);
    s.close();
    recv!(s, 10, "F. 1:1(0) ack 101");
    send!(s, 20, "F. 101:101(0) ack 2");
    recv!(s, 20, ". 2:2(0) ack 102");
}

/// The reset of a connection that is given up looks like its other segments: it shows the window.
#[test]
fn a_reset_shows_the_window() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "P. 1:101(100) ack 1");
    recv!(s, 10, ". 1:1(0) ack 101 win 1024");
    s.close();
    recv!(s, 10, "R. 1:1(0) ack 101 win 1024");
}

/// A FIN that came before the data in front of it is answered when that is there, though data alone would have waited.
#[test]
fn an_early_last_word_is_answered_at_once() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "P. 1:101(100) ack 1");
    recv!(s, 10, ". 1:1(0) ack 101");
    s.expect_read(100);
    s.write(10);
    recv!(s, 10, "P. 1:11(10) ack 101");
    s.shutdown();
    recv!(s, 10, "F. 11:11(0) ack 101");
    send!(s, 20, ". 101:101(0) ack 12");
    send!(s, 30, "F. 201:201(0) ack 12");
    recv!(s, 30, ". 12:12(0) ack 101 <sack 201:202>");
    send!(s, 40, "P. 101:201(100) ack 12");
    recv!(s, 40, ". 12:12(0) ack 202 <>");
    assert_eq!(s.state(), State::TimeWait);
}

/// The peer closes first: CLOSE-WAIT, LAST-ACK, gone.
#[test]
fn passive_close() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "F. 1:1(0) ack 1");
    recv!(s, 10, ". 1:1(0) ack 2");
    assert_eq!(s.state(), State::CloseWait);
    assert_eq!(s.read_result(), Ok(0));
    s.write(100);
    recv!(s, 10, "P. 1:101(100) ack 2");
    s.close();
    recv!(s, 10, "F. 101:101(0) ack 2");
    send!(s, 20, ". 2:2(0) ack 102");
    assert_eq!((s.tcp.connections(), s.tcp.time_waits()), (0, 0));
    assert_eq!(s.tcp.buffers_for_test(), 0);
}

/// RFC 9293 §3.6, figure 13: both at once.
#[test]
fn simultaneous_close() {
    let mut s = Scene::established(Scene::config());
    s.shutdown();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 12, "F. 1:1(0) ack 1");
    recv!(s, 12, ". 2:2(0) ack 2");
    assert_eq!(s.state(), State::Closing);
    send!(s, 20, ". 2:2(0) ack 2");
    assert_eq!(s.state(), State::TimeWait);
}

/// FIN and the acknowledgement of ours in one segment: FIN-WAIT-1 to TIME-WAIT.
#[test]
fn fin_with_acknowledgement() {
    let mut s = Scene::established(Scene::config());
    s.close();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 20, "F. 1:1(0) ack 2");
    recv!(s, 20, ". 2:2(0) ack 2");
    assert_eq!((s.tcp.connections(), s.tcp.time_waits()), (0, 1));
}

/// The FIN rides on the last data, and is sent again with it.
#[test]
fn fin_with_data_is_retransmitted() {
    let mut s = Scene::established(TcpConfig { sack: false, ..Scene::config() });
    send!(s, 10, ". 1:1(0) ack 1 win 0");
    s.write(1500);
    s.shutdown();
    send!(s, 11, ". 1:1(0) ack 1 win 9000");
    recv!(s, 11, ". 1:1001(1000) ack 1");
    recv!(s, 11, "FP. 1001:1501(500) ack 1");
    send!(s, 20, ". 1:1(0) ack 1001");
    recv!(s, 230, "FP. 1001:1501(500) ack 1");
    send!(s, 240, ". 1:1(0) ack 1501");
    // What was acknowledged had been sent again, so the timeout stays doubled (RFC 6298 §5).
    recv!(s, 660, "F. 1501:1501(0) ack 1");
    send!(s, 670, ". 1:1(0) ack 1502");
    assert_eq!(s.state(), State::FinWait2);
}

/// A FIN that comes before the data it follows waits for it.
#[test]
fn an_early_fin() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "F. 1001:2001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1 <sack 1001:2002>");
    assert_eq!(s.state(), State::Established);
    send!(s, 12, ". 1:1001(1000) ack 1");
    recv!(s, 12, ". 1:1(0) ack 2002 <>");
    assert_eq!(s.state(), State::CloseWait);
    s.expect_read(2000);
    assert_eq!(s.read_result(), Ok(0));
}

/// RFC 9293 §3.6.1, RFC 2525 §2.17: closing with unread data resets.
#[test]
fn close_with_unread_data_resets() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 1:1001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1001");
    s.close();
    recv!(s, 10, "R. 1:1(0) ack 1001");
    assert_eq!(s.tcp.connections(), 0);
}

/// Data after close is answered with a reset.
#[test]
fn data_after_close_resets() {
    let mut s = Scene::established(Scene::config());
    s.close();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 20, ". 1:1(0) ack 2");
    send!(s, 30, "P. 1:101(100) ack 2");
    recv!(s, 30, "R 2:2(0)");
    assert_eq!((s.tcp.connections(), s.tcp.time_waits()), (0, 0));
    assert_eq!(s.dropped(DropReason::AfterClose), 1);
}

/// The same when our FIN was lost: the reset stands where the peer expects it, so that RFC 5961 believes it.
#[test]
fn data_after_close_resets_where_the_peer_is() {
    let mut s = Scene::established(Scene::config());
    s.close();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 20, "P. 1:101(100) ack 1");
    recv!(s, 20, "R 1:1(0)");
    assert_eq!((s.tcp.connections(), s.tcp.time_waits()), (0, 0));
}

/// RFC 7323 §3.2: a reset of a connection with timestamps carries one.
#[test]
fn a_reset_carries_timestamps() {
    let mut s = Scene::listen(TcpConfig::default());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK,TS 700 0>");
    s.until(0);
    s.heard.clear();
    send!(s, 10, ". 1:1(0) ack 1 win 65000 <TS 710 0>");
    s.accept();
    s.set(|o| o.linger = Some(Duration::ZERO));
    s.close();
    s.until(10);
    let (_, text, _) = s.heard.pop_front().expect("a reset");
    assert!(text.starts_with("R. 1:1(0) ack 1") && text.contains("TS ") && text.contains(" 710>"), "{text}");
}

/// A closed socket does not stay in FIN-WAIT-2 for ever; half-closed with its handle it does.
#[test]
fn fin_wait_2_ends() {
    for detached in [true, false] {
        let mut s = Scene::established(Scene::config());
        if detached {
            s.close();
        } else {
            s.shutdown();
        }
        recv!(s, 10, "F. 1:1(0) ack 1");
        send!(s, 20, ". 1:1(0) ack 2");
        s.quiet(60_019);
        assert_eq!(s.tcp.connections(), 1);
        s.quiet(60_021);
        assert_eq!(s.tcp.connections(), usize::from(!detached));
    }
}

/// RFC 9293 §3.10.5: ABORT; SO_LINGER of zero; SO_LINGER with time.
#[test]
fn linger() {
    let mut s = Scene::established(Scene::config());
    s.set(|o| o.linger = Some(Duration::ZERO));
    s.write(10);
    recv!(s, 10, "P. 1:11(10) ack 1");
    s.close();
    recv!(s, 10, "R. 11:11(0) ack 1");
    assert_eq!(s.tcp.connections(), 0);

    let mut s = Scene::established(TcpConfig { sack: false, ..Scene::config() });
    s.set(|o| o.linger = Some(Duration::from_millis(100)));
    s.write(10);
    s.close();
    recv!(s, 10, "P. 1:11(10) ack 1");
    recv!(s, 10, "F. 11:11(0) ack 1");
    recv!(s, 110, "R. 12:12(0) ack 1");
    assert_eq!(s.tcp.connections(), 0);
}

/// Writing after the end is an error of its own; reading what came before a reset is not.
#[test]
fn results_at_the_end() {
    let mut s = Scene::established(Scene::config());
    s.shutdown();
    recv!(s, 10, "F. 1:1(0) ack 1");
    let id = s.id.unwrap();
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, b"x")), Err(SendError::Closed));
    send!(s, 20, "P. 1:11(10) ack 2");
    send!(s, 20, "R 11:11(0)");
    s.expect_read(10);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Reset)));
    assert_eq!(s.tcp.take_failure(id), Ok(Some(Failure::Reset)));
    assert_eq!(s.tcp.take_failure(id), Ok(None));
    assert_eq!(s.read_result(), Ok(0));
    s.close();
    assert_eq!(s.tcp.connections(), 0);
    assert_eq!(s.tcp.buffers_for_test(), 0);
}

/// A FIN that comes again is reported as received twice (RFC 2883 §4); what lies behind it is ignored (RFC 9293 §3.10.7.4,
/// seventh step, CLOSE-WAIT).
#[test]
fn what_comes_after_the_fin() {
    let mut s = Scene::established(Scene::config());
    send!(s, 20, "F. 1:1(0) ack 1");
    recv!(s, 20, ". 1:1(0) ack 2 <>");
    send!(s, 30, "F. 1:1(0) ack 1");
    recv!(s, 30, ". 1:1(0) ack 2 <sack 1:2>");
    send!(s, 40, "P. 2:102(100) ack 1");
    s.quiet(50);
    assert_eq!(s.dropped(DropReason::AfterFin), 1);
    assert_eq!(s.state(), State::CloseWait);
}

/// The FIN takes a number of the window: a closed one is probed first (RFC 9293 §3.8.6.1).
#[test]
fn a_fin_waits_for_the_window() {
    let mut s = Scene::established(Scene::config());
    s.write(5);
    recv!(s, 10, "P. 1:6(5) ack 1");
    send!(s, 20, ". 1:1(0) ack 6 win 0");
    s.close();
    recv!(s, 230, ". 5:5(0) ack 1");
    send!(s, 240, ". 1:1(0) ack 6 win 0");
    recv!(s, 650, ". 5:5(0) ack 1");
    send!(s, 660, ". 1:1(0) ack 6 win 1");
    recv!(s, 660, "F. 6:6(0) ack 1");
    s.quiet(700);
}

/// A window that takes the data to the last byte has no room for the FIN.
#[test]
fn a_fin_behind_a_full_window() {
    let mut s = Scene::established(Scene::config());
    send!(s, 20, ". 1:1(0) ack 1 win 100");
    s.write(50);
    recv!(s, 20, "P. 1:51(50) ack 1");
    s.write(50);
    s.close();
    recv!(s, 20, "P. 51:101(50) ack 1");
    send!(s, 30, ". 1:1(0) ack 101 win 100");
    recv!(s, 30, "F. 101:101(0) ack 1");
}

/// Nobody will read what comes after both directions were shut down (RFC 9293 §3.6.1).
#[test]
fn data_after_both_ways_are_shut_resets() {
    let mut s = Scene::established(Scene::config());
    let id = s.id.unwrap();
    s.with(|tcp, cx| tcp.shutdown(cx, id, std::net::Shutdown::Both)).unwrap();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 20, ". 1:1(0) ack 2");
    send!(s, 30, "P. 1:11(10) ack 2");
    recv!(s, 30, "R 2:2(0)");
    assert_eq!(s.state(), State::Closed);
}

/// A reset behind the peer's FIN: the stream was whole, but what was written may be lost, and the writer is told.
#[test]
fn a_reset_behind_the_fin() {
    for ours in [false, true] {
        let mut s = Scene::established(Scene::config());
        s.write(100);
        send!(s, 20, "FP. 1:11(10) ack 1");
        if ours {
            s.shutdown();
        }
        send!(s, 30, "R. 12:12(0) ack 1");
        assert_eq!(s.state(), State::Closed);
        s.expect_read(10);
        assert_eq!(s.read_result(), Ok(0));
        let id = s.id.unwrap();
        assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, b"x")), Err(SendError::Failed(Failure::Reset)));
    }
}

/// A FIN before what has been received already is no end: it is reported as a duplicate (RFC 2883 §4) and nothing of it is kept.
#[test]
fn a_fin_before_the_data_is_none() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 1:101(100) ack 1");
    recv!(s, 10, ". 1:1(0) ack 101");
    send!(s, 20, "F. 100:100(0) ack 1");
    recv!(s, 20, ". 1:1(0) ack 101 <sack 100:101>");
    assert_eq!((s.state(), s.dropped(DropReason::Duplicate)), (State::Established, 1));
    send!(s, 30, ". 201:301(100) ack 1");
    recv!(s, 30, ". 1:1(0) ack 101 <sack 201:301>");
}
