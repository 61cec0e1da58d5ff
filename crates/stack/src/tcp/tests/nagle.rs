//! Nagle, cork and more (RFC 9293 §3.7.4, MUST-17).

use super::*;

/// Switching Nagle off while nothing waits leaves nothing behind: `MSG_MORE` still holds what comes next.
#[test]
fn nodelay_forces_only_what_waits() {
    let mut s = Scene::established(Scene::config());
    s.set(|o| o.nodelay = true);
    let id = s.id.unwrap();
    let bytes: Vec<u8> = (0..40).map(byte).collect();
    assert_eq!(s.with(|tcp, cx| tcp.send_with(cx, id, &bytes, true)), Ok(40));
    s.written += 40;
    s.drain();
    s.quiet(200);
    recv!(s, 210, "P. 1:41(40) ack 1");
}

/// A small segment waits while another small one is unacknowledged.
#[test]
fn small_writes_are_joined() {
    let mut s = Scene::established(Scene::config());
    s.write(10);
    recv!(s, 10, "P. 1:11(10) ack 1");
    s.write(10);
    s.write(10);
    s.quiet(15);
    send!(s, 20, ". 1:1(0) ack 11");
    recv!(s, 20, "P. 11:31(20) ack 1");
}

/// Unless the application asks not to.
#[test]
fn nodelay() {
    let mut s = Scene::established(Scene::config());
    s.set(|o| o.nodelay = true);
    s.write(10);
    s.write(10);
    recv!(s, 10, "P. 1:11(10) ack 1");
    recv!(s, 10, "P. 11:21(10) ack 1");
}

/// A cork holds the rest back until it is pulled, or 200 ms.
#[test]
fn cork() {
    let mut s = Scene::established(Scene::config());
    s.set(|o| o.cork = true);
    s.write(1500);
    recv!(s, 10, ". 1:1001(1000) ack 1");
    s.quiet(12);
    s.set(|o| o.cork = false);
    recv!(s, 12, "P. 1001:1501(500) ack 1");
    send!(s, 20, ". 1:1(0) ack 1501");
    s.set(|o| o.cork = true);
    s.write(10);
    recv!(s, 220, "P. 1501:1511(10) ack 1");
}

/// MSG_MORE is a cork for one write.
#[test]
fn more_is_coming() {
    let mut s = Scene::established(Scene::config());
    let id = s.id.unwrap();
    let bytes: Vec<u8> = (0..10).map(byte).collect();
    assert_eq!(s.with(|tcp, cx| tcp.send_with(cx, id, &bytes, true)), Ok(10));
    s.written = 10;
    s.quiet(20);
    s.write(10);
    recv!(s, 20, "P. 1:21(20) ack 1");
}

/// What was written with more to come carries no PSH when something else lets it go: with Nagle off, an acknowledgement or the
/// option set again; after the time of a cork it does.
#[test]
fn no_push_before_the_write_is_over() {
    let mut s = Scene::established(Scene::config());
    s.set(|o| o.nodelay = true);
    let id = s.id.unwrap();
    let more = |s: &mut Scene, n: u64| {
        let bytes: Vec<u8> = (s.written..s.written + n).map(byte).collect();
        assert_eq!(s.with(|tcp, cx| tcp.send_with(cx, id, &bytes, true)), Ok(n as usize));
        s.written += n;
        s.drain();
    };
    more(&mut s, 1100);
    recv!(s, 10, ". 1:1001(1000) ack 1");
    s.quiet(15);
    send!(s, 20, ". 1:1(0) ack 1001");
    recv!(s, 20, ". 1001:1101(100) ack 1");
    send!(s, 30, ". 1:1(0) ack 1101");
    more(&mut s, 80);
    s.quiet(229);
    recv!(s, 230, "P. 1101:1181(80) ack 1");
    send!(s, 240, ". 1:1(0) ack 1181");
    more(&mut s, 50);
    s.write(50);
    recv!(s, 240, "P. 1181:1281(100) ack 1");
}

/// An answer of two full segments and a bit, without Nagle's algorithm: the second ends a burst of half the rate, and the bit
/// follows at once (a client of HTTPS, as packetdrill's `https_client` has it).
#[test]
fn a_burst_ends_with_psh_where_the_rate_is_out() {
    let mut s = Scene::established(TcpConfig { timestamps: false, ..Scene::config() });
    s.set(|o| o.nodelay = true);
    s.write(517);
    recv!(s, 10, "P. 1:518(517) ack 1");
    send!(s, 110, ". 1:1(0) ack 518");
    s.until(140);
    s.write(51);
    recv!(s, 140, "P. 518:569(51) ack 1");
    s.until(170);
    s.write(2002);
    recv!(s, 170, ". 569:1569(1000) ack 1");
    recv!(s, 170, "P. 1569:2569(1000) ack 1");
    recv!(s, 170, "P. 2569:2571(2) ack 1");
}
