//! What an idle connection costs.

use super::*;
use crate::tcp::connection::Connection;
use crate::tcp::connection::rare::PER_RARE;
use crate::tcp::table::Slab;

/// At most 320 bytes an idle established end: slab entry, table entry and timer.
#[test]
fn an_idle_connection_is_small() {
    let entry = Slab::<Connection>::ENTRY_SIZE;
    assert_eq!(entry, 256, "four cache lines");
    let mut s = Scene::listen(TcpConfig::default());
    let n = 5_000usize;
    s.tcp.close_listener_for_test();
    let options = ListenOptions { backlog: 100_000, syn_backlog: 100_000, ..ListenOptions::default() };
    s.listener = Some(s.tcp.listen(None, OUR_PORT, options).unwrap());
    for port in 0..n {
        s.peer_port = 1000 + (port % 60_000) as u16;
        s.speak(0, "S 0:0(0) <mss 1460,sackOK,TS 1 0,wscale 7>");
        let ts = s.clone_ts();
        s.heard.clear();
        s.speak(0, &format!(". 1:1(0) ack 1 <TS 1 {ts}>"));
        s.accept();
        s.write(10);
        s.heard.clear();
        s.speak(0, &format!("P. 1:11(10) ack 11 <TS 1 {ts}>"));
        s.read = 0;
        s.written = 0;
        s.expect_read(10);
        s.heard.clear();
    }
    s.until(2000);
    assert_eq!(s.tcp.connections(), n);
    assert_eq!(s.tcp.buffers_for_test(), 0, "spares do not count");
    assert!(s.tcp.all_idle_for_test());
    let table = s.tcp.table_memory_for_test() as f64 / n as f64;
    let total = entry as f64 + table;
    println!("slab entry {entry}, table {table:.1}, total {total:.1} bytes");
    assert!(total <= 320.0, "slab entry {entry}, table {table:.1}");
}

/// What is kept for good of a path that reorders counts as the lane's memory, until the connection is over.
#[test]
fn what_is_rare_counts() {
    let mut s = Scene::established(Scene::config());
    s.write(3000);
    s.until(10);
    s.heard.clear();
    s.speak(20, ". 1:1(0) ack 1 <sack 2001:3001>");
    s.speak(21, ". 1:1(0) ack 3001");
    s.until(5000);
    assert!(!s.tcp.all_idle_for_test(), "it reordered");
    assert_eq!(s.tcp.buffer_memory(), PER_RARE);
    s.speak(5000, "R 1:1(0)");
    s.close();
    assert_eq!((s.tcp.connections(), s.tcp.buffer_memory()), (0, 0));
}
