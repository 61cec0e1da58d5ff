//! Lanes whose buffers are full: who waits is woken by an event, in turn, and nobody is forgotten.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One connection after the other writes until there is no memory, and the peer acknowledges nothing. The last gets none at all.
fn full_lane() -> (Scene, Vec<ConnId>) {
    let config = TcpConfig { max_memory: 32 << 10, ..Scene::config() };
    let mut s = Scene::listen(config);
    let all = fill(&mut s);
    (s, all)
}

fn fill(s: &mut Scene) -> Vec<ConnId> {
    let mut all = Vec::new();
    loop {
        s.peer_port += 1;
        s.iss = None;
        send!(s, 20, "S 0:0(0) win 65000 <mss 1000,sackOK,wscale 0>");
        recv!(s, 20, "S. 0:0(0) ack 1");
        send!(s, 30, ". 1:1(0) ack 1 win 0");
        s.accept();
        let id = s.id.unwrap();
        all.push(id);
        let mut taken = 0;
        while let Ok(n) = s.with(|tcp, cx| tcp.send(cx, id, &[0; 1000])) {
            taken += n;
        }
        let all_memory = s.tcp.buffer_memory() + s.tcp.fixed_memory();
        assert!(all_memory <= (32 << 10) + 1024, "{all_memory}");
        if taken == 0 {
            assert!(all_memory >= 28 << 10, "{all_memory}");
            return all;
        }
        s.now = Time::from_millis(100_000);
    }
}

#[test]
fn a_writer_without_memory_sleeps_until_there_is_some() {
    let (mut s, all) = full_lane();
    let (first, second) = (all[0], all[all.len() - 1]);
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, second, b"x")), Err(SendError::WouldBlock));
    assert!(!s.tcp.readiness(second).unwrap().writable, "nothing to try for");
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    s.tcp.register(second, Interest::Write, &waker).unwrap();
    // Whatever else happens to the lane, it sleeps.
    for _ in 0..10 {
        let _ = s.with(|tcp, cx| tcp.send(cx, first, b"x"));
        s.now += Duration::from_millis(1);
        s.with(Tcp::on_timer);
    }
    assert_eq!(count.0.load(Ordering::Relaxed), 0, "not retried every turn");
    assert!(s.tcp.stats().memory_waits >= 2);
    // The others give their memory back.
    for id in &all[..all.len() - 1] {
        s.with(|tcp, cx| tcp.abort(cx, *id)).unwrap();
    }
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "woken by that");
    assert!(s.tcp.readiness(second).unwrap().writable);
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, second, b"x")), Ok(1));
}

/// A list of those who wait does not grow with the times that they wait, nor with those who left.
#[test]
fn waiting_again_and_leaving_cost_nothing() {
    let (mut s, all) = full_lane();
    let (first, second) = (all[0], all[all.len() - 1]);
    for _ in 0..1000 {
        assert_eq!(s.with(|tcp, cx| tcp.send(cx, second, b"x")), Err(SendError::WouldBlock));
        let _ = s.with(|tcp, cx| tcp.send(cx, first, b"x"));
    }
    assert_eq!(s.tcp.starved_for_test(), all.len());
    for id in all {
        s.with(|tcp, cx| tcp.abort(cx, id)).unwrap();
    }
    assert_eq!((s.tcp.starved_for_test(), s.tcp.buffer_memory(), s.tcp.fixed_memory()), (0, 0, 0));
}

/// Received data may not take the last frames of a worker: the window is not opened any more, and what comes early is
/// dropped under its name.
#[test]
fn frames_are_kept_for_the_links() {
    let mut s = Scene::established(Scene::config());
    let hoard: Vec<_> = std::iter::from_fn(|| s.pool.alloc()).take(4096 - 400).collect();
    send!(s, 20, ". 5001:5101(100) ack 1");
    assert_eq!(s.dropped(DropReason::LaneMemory), 1);
    s.heard.clear();
    let before = s.info();
    send!(s, 21, ". 1:1001(1000) ack 1");
    s.expect_read(1000);
    // Windows are shown in units of 128 bytes here.
    assert!(s.info().rcv_wnd < before.rcv_wnd - 1000 + 128, "what was promised holds, and no more");
    drop(hoard);
    s.heard.clear();
    send!(s, 22, ". 5001:5101(100) ack 1");
    assert_eq!(s.dropped(DropReason::LaneMemory), 1);
}

/// A window that lack of memory shut is opened by us when memory is back, although the peer says nothing more: its probes may
/// be minutes apart.
#[test]
fn a_window_reopens_when_memory_returns() {
    let config = TcpConfig { recv_buffer: BufferSize { initial: 8192, max: 8192 }, ..Scene::config() };
    let mut s = Scene::established(config);
    // Flows that stand are looked at, too.
    s.flows.takes = false;
    s.tcp.watch_flows(s.now, 0, None);
    let hoard: Vec<_> = std::iter::from_fn(|| s.pool.alloc()).take(4096 - 400).collect();
    let mut seq = 1;
    while s.info().rcv_wnd >= 1000 {
        send!(s, 20, &format!(". {seq}:{}(1000) ack 1", seq + 1000));
        s.expect_read(1000);
        seq += 1000;
    }
    s.until(200);
    s.heard.clear();
    s.quiet(5000);
    drop(hoard);
    s.until(5100);
    assert_eq!(s.texts().len(), 1, "{:?}", s.texts());
    assert!(s.info().rcv_wnd > 7000, "{}", s.info().rcv_wnd);
    s.heard.clear();
    assert_eq!(s.tcp.next_deadline(), None, "nothing is left to be looked at");
    // A connection that goes while it is on the list is forgotten.
    let hoard: Vec<_> = std::iter::from_fn(|| s.pool.alloc()).take(4096 - 400).collect();
    send!(s, 5200, &format!(". {seq}:{}(1000) ack 1", seq + 1000));
    s.expect_read(1000);
    let id = s.id.unwrap();
    s.with(|tcp, cx| tcp.abort(cx, id)).unwrap();
    s.until(6000);
    drop(hoard);
    s.until(6100);
    assert_eq!(s.tcp.next_deadline(), None);
}

/// RFC 9293 §3.10.7.4: "special allowance should be made to accept valid ACKs". The window is taken back for lack of memory when
/// the peer has filled it already, so what the peer acknowledges comes from beyond it. Nothing else says that its window is open.
#[test]
fn acknowledgements_from_beyond_a_window_that_was_taken_back_count() {
    let mut s = Scene::listen(TcpConfig { max_memory: 32 << 10, ..Scene::config() });
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK,wscale 0>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 10, ". 1:1(0) ack 1 win 0");
    s.accept();
    let (port, iss, id) = (s.peer_port, s.iss, s.id);
    fill(&mut s);
    s.drain();
    s.heard.clear();
    (s.peer_port, s.iss, s.id) = (port, iss, id);
    let ms = s.millis();
    // The peer fills the window. At some segment of it the lane has no room, not even for one in order.
    let (before, mut next) = (s.tcp.stats().windows_closed, 1);
    while s.tcp.stats().windows_closed == before {
        assert!(next < 65_000, "there is always room: {:?}", s.info());
        send!(s, ms, &format!(". {next}:{}(1000) ack 1 win 0", next + 1000));
        next += 1000;
    }
    // Two more were on their way.
    next += 2000;
    send!(s, ms, &format!(". {next}:{next}(0) ack 1 win 5000"));
    assert_eq!(s.info().snd_wnd, 5000);
}

/// A lane that has no memory left takes one segment more, for one connection; when it is read, another's turn comes.
#[test]
fn one_segment_is_taken_beyond_the_bound() {
    let mut s = Scene::listen(TcpConfig { max_memory: 32 << 10, ..Scene::config() });
    let mut early = Vec::new();
    for _ in 0..8 {
        s.peer_port += 1;
        s.iss = None;
        send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK,wscale 0>");
        recv!(s, 0, "S. 0:0(0) ack 1");
        send!(s, 0, ". 1:1(0) ack 1 win 0");
        s.accept();
        early.push((s.peer_port, s.iss, s.id));
    }
    fill(&mut s);
    s.drain();
    let ms = s.millis();
    let mut most = 0;
    // Twice, since those whose window is taken back here are promised one segment when they are heard of again.
    for (port, iss, id) in early.iter().chain(&early) {
        (s.peer_port, s.iss, s.id) = (*port, *iss, *id);
        send!(s, ms, ". 1:1001(1000) ack 1 win 0");
        s.drain();
        most = most.max(s.tcp.buffer_memory() + s.tcp.fixed_memory());
    }
    let holds = |s: &Scene, id: Option<ConnId>| s.tcp.info(id.unwrap()).unwrap().readable > 0;
    let (taken, refused) = early.iter().copied().partition::<Vec<_>, _>(|(.., id)| holds(&s, *id));
    assert!(!taken.is_empty() && refused.len() >= 2, "{} taken, {} refused", taken.len(), refused.len());
    assert!(most > 32 << 10 && most <= (32 << 10) + 2048, "{most} bytes");
    // Those who write have the memory that becomes free; the segment beyond it is the next one's.
    for (.., id) in &taken {
        let mut buffer = [0; 1000];
        assert_eq!(s.with(|tcp, cx| tcp.recv(cx, id.unwrap(), &mut buffer)), Ok(1000));
    }
    s.drain();
    (s.peer_port, s.iss, s.id) = refused[0];
    send!(s, ms, ". 1:1001(1000) ack 1 win 0");
    s.drain();
    send!(s, ms, ". 1:1001(1000) ack 1 win 0");
    assert!(holds(&s, s.id));
}

/// A lane that is full of what its closed connections have not got acknowledged has nobody to wake, and sleeps. Whether it is full depends on the
/// sizes of what it keeps, so there are lanes of many sizes.
#[test]
fn a_lane_full_of_what_the_closed_left_sleeps() {
    let mut full = 0;
    for max_memory in ((30 << 10)..=(32 << 10)).step_by(128) {
        let mut s = Scene::listen(TcpConfig { max_memory, ..Scene::config() });
        let all = fill(&mut s);
        assert!(s.tcp.core.looks_again_at() < Time::MAX, "somebody waits");
        for id in all {
            s.with(|tcp, cx| tcp.close(cx, id)).unwrap();
        }
        let now = s.millis();
        s.until(now + 100);
        full += u32::from(s.with(|tcp, cx| tcp.core.is_full(cx)));
        assert_eq!(s.tcp.core.looks_again_at(), Time::MAX, "{max_memory}");
    }
    assert!(full > 0, "none is full");
}
