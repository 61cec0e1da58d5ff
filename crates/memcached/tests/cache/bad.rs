//! Clients that are slow, rude or too many: what they get, and what they cost.

use std::time::Duration;

use flowlane_memcached::server::Options;

use crate::kit::{Client, beside, figure};

#[test]
fn half_a_request_is_no_request() {
    let ((), report) = beside(Options::default(), 2, || async {
        let mut client = Client::connect().await;
        for piece in ["se", "t ke", "y 0 0 5\r", "\nhel", "lo", "\r", "\nget key\r\n"] {
            client.write(piece).await;
            flowlane::yield_now().await;
        }
        let expected = "STORED\r\nVALUE key 0 5\r\nhello\r\nEND\r\n";
        assert_eq!(client.exactly(expected.len()).await, expected.as_bytes());
        // One that never comes whole is forgotten with its connection.
        Client::connect().await.write("set key 0 0 100000\r\nabc").await;
        client.says("get key\r\n", "VALUE key 0 5\r\nhello\r\nEND\r\n").await;
        // A line without an end.
        let mut rude = Client::connect().await;
        rude.write("x".repeat(3000)).await;
        assert_eq!(rude.rest().await, b"");
        let mut browser = Client::connect().await;
        browser.write("POST / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(browser.rest().await, b"");
    });
    assert_eq!(figure(&report, "bad-lines"), 1);
}

#[test]
fn who_does_not_read_keeps_little_and_is_closed() {
    let options = Options { idle: Some(Duration::from_millis(300)), buffers: 2 << 20, ..Options::default() };
    let (sent, report) = beside(options, 2, || async {
        let mut client = Client::connect().await;
        let value = "v".repeat(100_000);
        // Of both lanes: a secret hash deals them out.
        let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
        for key in keys {
            client.says(&format!("set {key} 0 0 100000\r\n{value}\r\n"), "STORED\r\n").await;
        }
        // It asks for ever, and reads nothing, until the server takes no more; then it is closed.
        let rude = Client::connect().await;
        let mut sent = 0u64;
        let request = format!("get {}\r\n", keys.join(" ")).repeat(100);
        while rude.stream.write_all(request.as_bytes()).await.is_ok() {
            sent += request.len() as u64;
        }
        sent
    });
    let written = figure(&report, "bytes-written");
    println!("{sent} bytes of requests, {written} bytes of answers");
    assert_eq!(figure(&report, "slow-readers"), 1);
    assert!(sent < 64 << 20 && written < 64 << 20, "what it asked for was not all made: {sent}, {written}");
}

#[test]
fn idle_connections_are_closed_and_busy_ones_are_not() {
    let options = Options { idle: Some(Duration::from_millis(100)), ..Options::default() };
    let (rounds, report) = beside(options, 1, || async {
        let mut idle = Client::connect().await;
        let mut busy = Client::connect().await;
        let watch = flowlane::spawn(async move { idle.rest().await }).unwrap();
        let mut rounds = 0;
        let over = flowlane::spawn(async move { drop(watch.await) }).unwrap();
        let mut over = std::pin::pin!(over);
        loop {
            busy.says("mn\r\n", "MN\r\n").await;
            rounds += 1;
            if flowlane::timeout(Duration::from_millis(5), over.as_mut()).await.is_ok() {
                return rounds;
            }
        }
    });
    assert!(rounds > 1);
    assert_eq!(figure(&report, "idle-kicks"), 1);
}

#[test]
fn there_may_be_so_many_connections() {
    let options = Options { connections: 8, ..Options::default() };
    let ((), report) = beside(options, 2, || async {
        let mut clients = Vec::new();
        for _ in 0..8 {
            let mut client = Client::connect().await;
            client.says("mn\r\n", "MN\r\n").await;
            clients.push(client);
        }
        for _ in 0..50 {
            let said = Client::connect().await.rest().await;
            assert_eq!(said, b"ERROR Too many open connections\r\n");
        }
        clients[0].says("mn\r\n", "MN\r\n").await;
        // One that goes makes room for another, as soon as the server knows.
        drop(clients.pop());
        loop {
            let mut client = Client::connect().await;
            client.write("mn\r\n").await;
            if client.rest_or("MN\r\n").await {
                break;
            }
        }
    });
    assert!(figure(&report, "rejected-connections") >= 50);
}

/// Memory is set aside for a value when its length is known, not when its bytes come.
#[test]
fn half_values_take_no_more_memory_than_there_is() {
    let options = Options { buffers: 1 << 20, ..Options::default() };
    let ((), report) = beside(options, 1, || async {
        let half = Client::connect().await;
        half.write("set a 0 0 900000\r\nabc").await;
        let mut client = Client::connect().await;
        let value = format!("set b 0 0 900000\r\n{}\r\n", "v".repeat(900_000));
        let refused = "SERVER_ERROR out of memory storing object\r\n";
        // As soon as the other one is known.
        while client.line(&value).await != refused {}
        client.says("get b\r\n", "END\r\n").await;
        drop(half);
        while client.line(&value).await != "STORED\r\n" {}
    });
    assert!(figure(&report, "store-no-memory") > 0);
}

impl Client {
    /// Whether this is answered; `false` at the end of the connection.
    async fn rest_or(&mut self, answer: &str) -> bool {
        let first = self.exactly_or_end(answer.len()).await;
        first == answer.as_bytes()
    }

    async fn exactly_or_end(&mut self, n: usize) -> Vec<u8> {
        let mut got = Vec::new();
        let mut buffer = [0; 64];
        while got.len() < n {
            match self.stream.read(&mut buffer).await {
                Ok(read) if read > 0 => got.extend_from_slice(&buffer[..read]),
                _ => break,
            }
        }
        got.truncate(n);
        got
    }
}
