//! Listeners and backlogs.

use super::*;

fn open(s: &mut Scene, port: u16) {
    s.peer_port = port;
    s.speak(s.millis(), "S 0:0(0) <mss 1000>");
    s.drain();
    s.speak(s.millis(), ". 1:1(0) ack 1");
    s.drain();
}

/// The exact address is preferred to the wildcard; a port is taken once for each.
#[test]
fn exact_before_wildcard() {
    let mut s = Scene::listen(Scene::config());
    let exact = s.tcp.listen(Some(US), OUR_PORT, ListenOptions::default()).unwrap();
    assert_eq!(s.tcp.listen(None, OUR_PORT, ListenOptions::default()), Err(ListenError::InUse));
    assert_eq!(s.tcp.listen(None, 0, ListenOptions::default()), Err(ListenError::PortZero));
    open(&mut s, 1);
    assert!(s.tcp.accept(s.listener.unwrap()).unwrap().is_none());
    assert!(s.tcp.accept(exact).unwrap().is_some());
}

/// A full accept queue: the third segment is ignored and may come again; SYNs are dropped.
#[test]
fn a_full_accept_queue() {
    let mut s = Scene::new(Scene::config());
    let options = ListenOptions { backlog: 1, ..ListenOptions::default() };
    s.listener = Some(s.tcp.listen(None, OUR_PORT, options).unwrap());
    s.peer_port = 2;
    send!(s, 0, "S 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    let iss = s.iss;
    open(&mut s, 1);
    s.heard.clear();
    (s.peer_port, s.iss) = (2, iss);
    send!(s, 0, ". 1:1(0) ack 1");
    assert_eq!(s.tcp.stats().listen_overflows, 1);
    s.peer_port = 3;
    send!(s, 0, "S 0:0(0) <mss 1000>");
    s.quiet(1);
    assert_eq!(s.dropped(DropReason::BacklogFull), 2);
    s.accept();
    s.peer_port = 2;
    send!(s, 10, "P. 1:11(10) ack 1");
    s.accept();
    s.expect_read(10);
}

/// Closing a listener resets what nobody accepted and forgets handshakes.
#[test]
fn closing_a_listener() {
    let mut s = Scene::listen(Scene::config());
    open(&mut s, 1);
    s.heard.clear();
    s.peer_port = 2;
    send!(s, 0, "S 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    let listener = s.listener.unwrap();
    s.with(|tcp, cx| tcp.close_listener(cx, listener)).unwrap();
    assert_eq!(s.tcp.accept(listener), Err(StaleError));
    s.drain();
    assert_eq!(s.heard.len(), 1);
    s.heard.clear();
    send!(s, 5, ". 1:1(0) ack 1");
    s.drain();
    assert!(s.texts()[0].1.starts_with("R"), "{:?}", s.texts());
    assert_eq!(s.tcp.connections(), 0);
}

/// A connection that is reset before it was accepted is still accepted, and says so.
#[test]
fn reset_before_accept() {
    let mut s = Scene::listen(Scene::config());
    open(&mut s, 1);
    send!(s, 1, "R 1:1(0)");
    s.accept();
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Reset)));
    s.close();
    assert_eq!(s.tcp.connections(), 0);
}

/// Wakers: accept, read, write and the end.
#[test]
fn wakers_are_called() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = std::task::Waker::from(count.clone());
    let calls = || count.0.load(Ordering::Relaxed);
    let mut s = Scene::listen(Scene::config());
    s.tcp.register_accept(s.listener.unwrap(), &waker).unwrap();
    open(&mut s, 1);
    assert_eq!(calls(), 1);
    s.accept();
    let id = s.id.unwrap();
    s.tcp.register(id, Interest::Read, &waker).unwrap();
    send!(s, 1, "P. 1:11(10) ack 1");
    assert_eq!(calls(), 2);
    s.tcp.register(id, Interest::Write, &waker).unwrap();
    assert_eq!(calls(), 3, "there is room: at once");
    s.tcp.register(id, Interest::Closed, &waker).unwrap();
    assert_eq!(calls(), 3);
    send!(s, 2, "R 11:11(0)");
    assert_eq!(calls(), 4);
    let ready = s.tcp.readiness(id).unwrap();
    assert!(ready.readable && ready.closed && ready.failure == Some(Failure::Reset));
}

/// A handshake begun with one listener does not end with another that took its place.
#[test]
fn another_listener_in_the_same_place() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    let listener = s.listener.unwrap();
    s.with(|tcp, cx| tcp.close_listener(cx, listener)).unwrap();
    let other = s.tcp.listen(None, 9, ListenOptions::default()).unwrap();
    send!(s, 5, ". 1:1(0) ack 1");
    assert_eq!(s.tcp.accept(other), Ok(None));
    assert_eq!(s.tcp.backlog(other), Ok((0, 0)));
    assert_eq!(s.tcp.connections(), 0);
}

/// A lane moves between workers with all its connections.
#[test]
fn may_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Tcp>();
}

/// The last step of a handshake whose listener is gone is refused as any segment of no connection (RFC 9293 §3.10.7.1).
#[test]
fn the_listener_is_gone() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    let listener = s.listener.unwrap();
    s.with(|tcp, cx| tcp.close_listener(cx, listener)).unwrap();
    send!(s, 10, ". 1:1(0) ack 1");
    recv!(s, 10, "R 1:1(0)");
    assert_eq!(s.tcp.connections(), 0);
}

/// Handshakes that are over make room for others, however many there were.
#[test]
fn handshakes_that_are_over_leave_the_backlog() {
    let mut s = Scene::new(TcpConfig { syn_cookies: SynCookies::Off, ..Scene::config() });
    let options = ListenOptions { syn_backlog: 2, ..ListenOptions::default() };
    s.listener = Some(s.tcp.listen(None, OUR_PORT, options).unwrap());
    for port in 1..=5 {
        open(&mut s, port);
        s.accept();
        assert_eq!(s.tcp.backlog(s.listener.unwrap()), Ok((0, 0)), "after {port}");
    }
    assert_eq!((s.tcp.connections(), s.dropped(DropReason::SynBacklogFull)), (5, 0));
}

/// A lane has no more connections than it is told: neither a SYN nor the answer to a cookie makes another.
#[test]
fn connections_of_a_lane_are_bounded() {
    for syn_cookies in [SynCookies::Off, SynCookies::WhenFull] {
        let mut s = Scene::listen(TcpConfig { max_connections: 2, syn_cookies, ..Scene::config() });
        for port in 1..=4 {
            open(&mut s, port);
        }
        let stats = s.tcp.stats();
        let cookies = if syn_cookies == SynCookies::Off { 0 } else { 2 };
        assert_eq!((s.tcp.connections(), stats.cookies_sent), (2, cookies), "{syn_cookies:?}");
        assert_eq!((stats.listen_overflows, stats.cookies_received), (cookies, 0), "{syn_cookies:?}");
        assert_eq!(s.dropped(DropReason::TooManyConnections), 2 - cookies, "{syn_cookies:?}");
        // When one goes there is room for another.
        s.accept();
        let id = s.id.unwrap();
        s.with(|tcp, cx| tcp.abort(cx, id)).unwrap();
        open(&mut s, 9);
        assert_eq!(s.tcp.connections(), 2, "{syn_cookies:?}");
    }
}

/// RFC 9293 §3.10.7.2: a SYN that ends its stream at once is nothing that an application sends.
#[test]
fn a_syn_with_a_fin_begins_nothing() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "SF 0:0(0) <mss 1000>");
    s.quiet(2000);
    assert_eq!((s.tcp.connections(), s.dropped(DropReason::BadFlags)), (0, 1));
}

/// Nobody can be answered at port 0, and nobody listens there: not even a reset is sent.
#[test]
fn nothing_comes_from_port_zero() {
    for (ours, theirs) in [(OUR_PORT, 0), (0, PEER_PORT)] {
        let mut s = Scene::listen(Scene::config());
        (s.our_port, s.peer_port) = (ours, theirs);
        send!(s, 0, "S 0:0(0) <mss 1000>");
        s.quiet(2000);
        assert_eq!((s.tcp.connections(), s.dropped(DropReason::PortZero)), (0, 1), "{theirs} to {ours}");
    }
}
