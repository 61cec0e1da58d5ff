//! Acknowledgements of their own: RFC 5681 §4.2, RFC 2018 §4 and RFC 2883 §4 within one burst.

use super::*;
use crate::tcp::connection::ack_policy::MOST;

/// Without SACK, in a state of its own.
fn without_sack() -> Scene {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000,wscale 0>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 10, ". 1:1(0) ack 1 win 65000");
    s.accept();
    s
}

fn segments(from: u32, n: u32) -> Vec<String> {
    (from..from + n).map(|n| format!(". {}:{}(1000) ack 1", n * 1000 + 1, n * 1000 + 1001)).collect()
}

fn burst(s: &mut Scene, ms: u64, texts: &[String]) {
    s.burst(ms, &texts.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Forty segments behind a hole, in one burst: forty acknowledgements, each with the blocks as they stood.
#[test]
fn each_segment_out_of_order_is_answered() {
    let mut s = Scene::established(Scene::config());
    burst(&mut s, 10, &segments(1, 40));
    for n in 1..41 {
        recv!(s, 10, &format!(". 1:1(0) ack 1 <sack 1001:{}>", n * 1000 + 1001));
    }
    s.quiet(500);
    s.speak(500, ". 1:1001(1000) ack 1");
    recv!(s, 500, ". 1:1(0) ack 41001 <>");
    s.expect_read(41_000);
    s.quiet(1000);
    assert!(s.tcp.all_idle_for_test());
    assert_eq!(s.tcp.buffer_memory(), 0);
}

/// The same without SACK: all of them are duplicates as RFC 5681 §2 defines them, with the same window although the application
/// reads in between.
#[test]
fn duplicates_without_sack_have_one_window() {
    let mut s = without_sack();
    burst(&mut s, 10, &segments(0, 3));
    recv!(s, 10, ". 1:1(0) ack 3001");
    burst(&mut s, 20, &segments(4, 3));
    s.expect_read(3000);
    burst(&mut s, 20, &segments(7, 2));
    let windows: Vec<String> = s.heard.drain(..).map(|(_, text, _)| text).collect();
    assert_eq!(windows.len(), 3, "{windows:?}");
    s.drain();
    let windows: Vec<String> =
        windows.into_iter().chain(s.heard.drain(..).map(|(_, text, _)| text)).collect();
    assert_eq!(windows.len(), 5, "{windows:?}");
    assert!(windows.iter().all(|text| *text == windows[0] && text.contains(" ack 3001 ")), "{windows:?}");
}

/// What came in order before the hole is acknowledged first, by itself: it is no duplicate. What fills holes in the same burst is
/// answered each time, and what follows in order is not mixed with it.
#[test]
fn holes_filled_in_one_burst() {
    let mut s = Scene::established(Scene::config());
    burst(&mut s, 10, &[segments(0, 4), segments(5, 1), segments(7, 1)].concat());
    recv!(s, 10, ". 1:1(0) ack 4001 <>");
    recv!(s, 10, ". 1:1(0) ack 4001 <sack 5001:6001>");
    recv!(s, 10, ". 1:1(0) ack 4001 <sack 7001:8001,sack 5001:6001>");
    burst(&mut s, 20, &[segments(4, 1), segments(6, 1), segments(8, 4)].concat());
    recv!(s, 20, ". 1:1(0) ack 6001 <sack 7001:8001>");
    recv!(s, 20, ". 1:1(0) ack 8001 <>");
    recv!(s, 20, ". 1:1(0) ack 12001 <>");
    s.expect_read(12_000);
    s.quiet(1000);
}

/// RFC 2883 §4: each segment that comes twice has its report.
#[test]
fn each_duplicate_is_reported() {
    let mut s = Scene::established(Scene::config());
    burst(&mut s, 10, &segments(0, 3));
    recv!(s, 10, ". 1:1(0) ack 3001 <>");
    burst(&mut s, 20, &segments(0, 3));
    for n in 0..3 {
        recv!(s, 20, &format!(". 1:1(0) ack 3001 <sack {}:{}>", n * 1000 + 1, n * 1000 + 1001));
    }
    s.expect_read(3000);
    s.quiet(1000);
    assert!(s.tcp.all_idle_for_test());
    assert_eq!(s.tcp.stats().dsacks_sent, 3);
}

/// They go before our own data, which makes no duplicate (RFC 5681 §2).
#[test]
fn they_are_bare() {
    let mut s = without_sack();
    burst(&mut s, 10, &segments(1, 3));
    s.write(500);
    for _ in 0..3 {
        recv!(s, 10, ". 1:1(0) ack 1");
    }
    recv!(s, 10, "P. 1:501(500) ack 1");
}

/// A thousand segments in one burst owe a bounded number, and what they cost is counted and given back.
#[test]
fn they_are_bounded() {
    let mut s = Scene::established(Scene::config());
    s.until(10);
    let before = s.tcp.buffer_memory();
    burst(&mut s, 10, &vec![". 3001:4001(1000) ack 1".to_string(); 1000]);
    let owed = s.tcp.buffer_memory() - before;
    assert!((MOST * 40..8192).contains(&owed), "{owed}");
    s.drain();
    assert_eq!(s.heard.len(), MOST + 1);
    assert!(s.heard.iter().all(|(_, text, _)| text.contains("ack 1 ") && text.contains("sack 3001:4001")));
    s.heard.clear();
    assert!(s.tcp.buffer_memory() - before < 2048 + 1024, "{}", s.tcp.buffer_memory());
    s.quiet(1000);
}

/// Without SACK a sender counts: what the link merged from three segments is answered three times.
#[test]
fn merged_segments_out_of_order_count_each() {
    for sack in [false, true] {
        let mut s = if sack { Scene::established(Scene::config()) } else { without_sack() };
        s.until(10);
        let mut frame = s.frame(". 1001:2501(1500) ack 1");
        let meta = frame.meta_mut();
        meta.checksum = flowlane_sys::frame::Checksum::Verified;
        meta.segmentation = flowlane_sys::frame::Segmentation::TcpV4;
        meta.segment_size = 500;
        s.give(frame);
        for _ in 0..if sack { 1 } else { 3 } {
            recv!(s, 10, ". 1:1(0) ack 1");
        }
        s.quiet(10);
        s.speak(20, ". 1:1001(1000) ack 1");
        recv!(s, 20, ". 1:1(0) ack 2501");
        s.quiet(1000);
    }
}

/// Without a free frame they wait, and none is lost; with the connection they are forgotten.
#[test]
fn they_wait_for_frames() {
    let mut s = Scene::established(Scene::config());
    burst(&mut s, 10, &segments(1, 3));
    let all: Vec<_> = std::iter::from_fn(|| s.pool.alloc()).collect();
    s.drain();
    assert!(s.heard.is_empty() && s.tcp.has_output());
    drop(all);
    for n in 1..4 {
        recv!(s, 10, &format!(". 1:1(0) ack 1 <sack 1001:{}>", n * 1000 + 1001));
    }
    burst(&mut s, 20, &segments(5, 3));
    s.speak(20, "R. 1:1(0) ack 1");
    s.heard.clear();
    s.quiet(1000);
    assert_eq!(s.tcp.buffer_memory(), 0);
}
