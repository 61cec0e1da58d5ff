//! What strangers send and nobody reads.

use std::time::Duration;

use flowlane_stack::tcp::{DropReason, FastOpenListen, ListenOptions, RecvError};

use crate::kit::{BESIDE, FULL, World, many, my_turn};

fn world(max_memory: usize) -> World {
    World::new(max_memory, 8192, many())
}

/// Each stranger sends what its window allows, `len` bytes at a time, again and again until nobody gets any further.
fn fill(w: &mut World, len: u32, burst: bool) {
    loop {
        let before: u64 = w.strangers.iter().map(|s| u64::from(s.una.0)).sum();
        for n in 0..w.strangers.len() {
            // Whatever was dropped comes again.
            let window = w.window(n);
            let mut at = 0;
            while at < window.min(64 * len) {
                let len = len.min(window - at);
                if burst {
                    w.send_in_burst(n, at, len);
                } else {
                    w.send(n, at, len);
                }
                at += len;
            }
            w.end_burst();
            w.hear();
        }
        w.pass(Duration::from_millis(50));
        let after: u64 = w.strangers.iter().map(|s| u64::from(s.una.0)).sum();
        if after == before {
            return;
        }
    }
}

fn unread(count: usize, max_memory: usize, len: u32, burst: bool) {
    let _turn = my_turn();
    let mut w = world(max_memory);
    let all = w.connect(count);
    fill(&mut w, len, burst);
    w.check(max_memory + BESIDE);
    assert!(w.tcp.stats().dropped(DropReason::LaneMemory) > 0);
    assert!(w.tcp.stats().windows_closed > 0);
    // The windows follow: what all together are still promised is no more than there is.
    let promised = w.window_total();
    assert!(promised <= max_memory as u64, "{promised} bytes promised");
    // Whoever is read goes on, while the others hold what they hold.
    let (n, id) = all[all.len() / 2];
    let mut through = 0;
    for _ in 0..200 {
        through += w.read(id);
        w.pass(Duration::from_millis(20));
        for at in (0..w.window(n)).step_by(FULL as usize).take(10) {
            w.send(n, at, FULL.min(w.window(n) - at));
        }
        w.hear();
    }
    assert!(through > 200_000, "{through} bytes came through");
    w.check(max_memory + BESIDE);
    // When all of it has been read, all windows open, without another word of the strangers.
    let ids: Vec<_> = all.iter().map(|(_, id)| *id).collect();
    for id in &ids {
        w.read(*id);
    }
    w.pass(Duration::from_secs(1));
    let shut = all.iter().filter(|(n, _)| w.window(*n) < FULL).count();
    assert_eq!(shut, 0, "windows stay shut");
}

#[test]
fn two_thousand_connections_that_nobody_reads() {
    unread(2000, 16 << 20, FULL, false);
}

#[test]
fn two_thousand_joined() {
    unread(2000, 16 << 20, FULL, true);
}

#[test]
fn thirty_six_thousand_connections_that_nobody_reads() {
    unread(36_000, 256 << 20, FULL, true);
}

/// A lane with too little for so many gives only some of them a connection.
#[test]
fn connections_that_there_is_no_memory_for() {
    let _turn = my_turn();
    let bound = 8 << 20;
    let mut w = world(bound);
    let all = w.connect(36_000);
    assert!((2000..20_000).contains(&all.len()), "{} connections", all.len());
    assert_eq!(w.dropped(DropReason::LaneMemory), 36_000 - all.len() as u64);
    fill(&mut w, FULL, true);
    w.check(bound + BESIDE);
}

/// Packets of 64 KiB, as links merge them.
#[test]
fn merged_packets() {
    unread(500, 16 << 20, 60_000, false);
}

/// One byte a segment: each comes in a buffer of its own.
#[test]
fn single_bytes() {
    let _turn = my_turn();
    let bound = 4 << 20;
    let mut w = world(bound);
    w.connect(1000);
    for round in 0..20 {
        for n in 0..w.strangers.len() {
            for at in 0..20 {
                if round % 2 == 0 {
                    w.send(n, at, 1);
                } else {
                    w.send_in_burst(n, at, 1);
                }
            }
            w.end_burst();
            w.hear();
        }
    }
    w.check(bound + BESIDE);
}

/// Middling segments, too large to share a buffer and far too small for one.
#[test]
fn buffers_mostly_empty() {
    unread(500, 8 << 20, 600, false);
}

/// One byte here and one there, with holes between: nothing can be read, and each holds a buffer.
#[test]
fn holes() {
    let _turn = my_turn();
    let bound = 8 << 20;
    let mut w = world(bound);
    let all = w.connect(300);
    for step in [7, 700] {
        for n in 0..w.strangers.len() {
            for k in 0..200 {
                w.send(n, 1 + k * step, 1);
            }
            w.hear();
        }
    }
    w.check(bound + BESIDE);
    let dropped = [DropReason::LaneMemory, DropReason::FewFrames, DropReason::ReassemblyFull];
    assert!(dropped.iter().map(|reason| w.dropped(*reason)).sum::<u64>() > 1000);
    // What fills a hole is taken although others hold all there is, and the stream goes on.
    let (n, id) = all[0];
    let mut through = 0;
    for _ in 0..50 {
        w.send(n, 0, FULL);
        w.hear();
        through += w.read(id);
        w.pass(Duration::from_millis(20));
    }
    assert!(through as u32 >= 20 * FULL, "{through}");
    w.check(bound + BESIDE);
}

/// Early data that fills the lane gives way to what fills its hole.
#[test]
fn early_data_is_pruned() {
    let _turn = my_turn();
    let bound = 1 << 20;
    let mut w = world(bound);
    let all = w.connect(8);
    for (n, _) in &all {
        for at in (FULL..w.window(*n).saturating_sub(FULL)).step_by(FULL as usize) {
            w.send(*n, at, FULL);
        }
    }
    w.hear();
    for (n, id) in &all {
        let before = w.strangers[*n].una;
        w.send(*n, 0, FULL);
        w.hear();
        assert!(w.strangers[*n].una > before, "stranger {n} is stuck");
        assert!(w.read(*id) >= FULL as usize);
    }
    w.check(bound + BESIDE);
}

/// Data in SYNs.
#[test]
fn fast_open() {
    let _turn = my_turn();
    let bound = 16 << 20;
    let told = FastOpenListen { no_cookie: true, pending: 1 << 20, ..FastOpenListen::default() };
    let options = ListenOptions { fast_open: Some(told), ..many() };
    let mut w = World::new(bound, 8192, options);
    for _ in 0..30_000 {
        w.send_syn(1400);
        w.hear();
    }
    assert!(w.tcp.stats().fast_open_passive > 1000);
    assert!(w.dropped(DropReason::LaneMemory) > 0);
    w.check(bound + BESIDE);
}

/// Handshakes that go no further, with a backlog that bounds nothing.
#[test]
fn syns() {
    let _turn = my_turn();
    let bound = 16 << 20;
    let mut w = world(bound);
    for _ in 0..100_000 {
        let n = w.send_syn(0);
        w.strangers[n].deaf = true;
        while w.with(flowlane_stack::tcp::Tcp::poll_output).is_some() {}
    }
    assert!(w.dropped(DropReason::LaneMemory) > 0);
    w.check(bound + BESIDE);
    // They are forgotten in time, and others get in.
    w.pass(Duration::from_secs(300));
    assert_eq!(w.tcp.connections(), 0);
    assert_eq!(w.connect(10).len(), 10);
}

/// Connections that are over take no more than an eighth of the memory, and nobody's place.
#[test]
fn time_wait() {
    let _turn = my_turn();
    let bound = 8 << 20;
    let mut w = world(bound);
    for _ in 0..20_000 {
        let (n, id) = w.connect(1)[0];
        w.with(|tcp, cx| tcp.close(cx, id)).unwrap();
        w.hear();
        w.finish(n);
        w.hear();
    }
    assert_eq!(w.tcp.connections(), 0);
    assert!(w.tcp.stats().time_wait_overflow > 1000);
    w.check(bound / 8 + BESIDE);
}

/// What is not read is still there when the stranger has ended its stream, and goes with the last byte that is.
#[test]
fn streams_that_have_ended() {
    let _turn = my_turn();
    let bound = 8 << 20;
    let mut w = world(bound);
    let all = w.connect(1000);
    fill(&mut w, FULL, true);
    for n in 0..w.strangers.len() {
        w.finish(n);
    }
    w.hear();
    w.check(bound + BESIDE);
    let mut buffer = [0; 100];
    for (_, id) in all {
        w.read(id);
        let end = w.with(|tcp, cx| tcp.recv(cx, id, &mut buffer));
        assert!(matches!(end, Ok(0) | Err(RecvError::WouldBlock)), "{end:?}");
        w.with(|tcp, cx| tcp.close(cx, id)).unwrap();
    }
    w.hear();
    assert!(w.tcp.buffer_memory() < 2 << 20, "{}", w.tcp.buffer_memory());
}

/// Bytes of memory of this process that are backed.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// What a burst took is given back when it is over: the heap counted, and the process's memory as the system sees it.
#[test]
fn memory_is_given_back_after_a_burst() {
    let _turn = my_turn();
    let mut w = world(256 << 20);
    let (before, heap) = (resident(), w.held());
    let all = w.connect(36_000);
    fill(&mut w, 4 * FULL, true);
    let (full, most) = (resident(), w.held());
    assert!(full - before > 128 << 20, "{before} and then {full}");
    for (_, id) in &all[10..] {
        w.with(|tcp, cx| tcp.abort(cx, *id)).unwrap();
    }
    w.hear();
    w.pass(Duration::from_secs(5));
    let (after, left) = (resident(), w.held());
    println!("resident {before}, {full}, {after}; held {heap}, {most}, {left}");
    assert!(left < heap + (8 << 20), "{left} bytes of {most} are still held");
    assert!(
        after < before + (full - before) / 3,
        "{after} bytes of {full} are still resident, {before} were before"
    );
    // Those that stayed are as they were, and others come.
    assert!(all[..10].iter().all(|(_, id)| w.tcp.info(*id).is_ok()));
    assert!(all[10..].iter().all(|(_, id)| w.tcp.info(*id).is_err()));
    assert_eq!(w.connect(5000).len(), 5000);
    assert!(all[10..].iter().all(|(_, id)| w.tcp.info(*id).is_err()), "an old name leads nowhere");
}

/// Handshakes beyond the backlog are answered with cookies, and nothing of them is kept.
#[test]
fn cookies() {
    let _turn = my_turn();
    let options = ListenOptions { syn_backlog: 128, backlog: 128, ..ListenOptions::default() };
    let mut w = World::new(16 << 20, 8192, options);
    for _ in 0..12_800 {
        let n = w.send_syn(0);
        w.strangers[n].deaf = true;
        while w.with(flowlane_stack::tcp::Tcp::poll_output).is_some() {}
    }
    assert_eq!((w.tcp.connections(), w.tcp.stats().cookies_sent), (128, 12_800 - 128));
    w.check(512 << 10);
}
