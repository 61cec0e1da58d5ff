//! Keys of several lanes on one connection: answers in order, whatever lane gives them; large values; commands for all lanes.

use std::collections::HashMap;

use flowlane_memcached::server::Options;

use crate::kit::{Client, beside, figure};

#[test]
fn answers_come_in_the_order_of_the_questions() {
    for lanes in [1, 2, 4] {
        let ((), report) = beside(Options::default(), lanes, || async {
            let mut client = Client::connect().await;
            // All in one go, so that all lanes have something to do at once.
            let sets: String = (0..500).map(|n| format!("set key{n} {n} 0 4\r\n{n:04}\r\n")).collect();
            client.says(&sets, &"STORED\r\n".repeat(500)).await;
            let keys: String = (0..600).map(|n| format!(" key{n}")).collect();
            let values: String = (0..500).map(|n| format!("VALUE key{n} {n} 4\r\n{n:04}\r\n")).collect();
            client.says(&format!("get{keys}\r\n"), &format!("{values}END\r\n")).await;
            let (mut asked, mut expected) = (String::new(), String::new());
            for n in 0..300 {
                asked += &format!(
                    "incr key{n} 1\r\nget key{n} none key{}\r\nnonsense\r\nmg key{n} v q\r\nmg none v q\r\n",
                    n + 1
                );
                let value = format!("{:<4}", n + 1);
                expected += &format!(
                    "{}\r\nVALUE key{n} {n} 4\r\n{value}\r\nVALUE key{} {} 4\r\n{:04}\r\nEND\r\n",
                    n + 1,
                    n + 1,
                    n + 1,
                    n + 1
                );
                expected += &format!("ERROR\r\nVA 4\r\n{value}\r\n");
            }
            client.says(&(asked + "mn\r\n"), &(expected + "MN\r\n")).await;
        });
        let over = figure(&report, "handed-over");
        assert_eq!(over, figure(&report, "taken-over"));
        assert_eq!(lanes > 1, over > 500, "{lanes} lanes, {over} handed over");
        assert!(figure(&report, "batches") < over.max(1), "they go in batches");
    }
}

#[test]
fn what_concerns_all_lanes() {
    let ((), report) = beside(Options::default(), 4, || async {
        let mut client = Client::connect().await;
        let sets: String = (0..100).map(|n| format!("set key{n} 0 0 1 noreply\r\nx\r\n")).collect();
        client.says(&(sets + "mn\r\n"), "MN\r\n").await;
        client.write("stats\r\nstats reset\r\nstats\r\nget key1 key2\r\nquit\r\n").await;
        let said = String::from_utf8(client.rest().await).unwrap();
        let (first, rest) = said.split_once("END\r\nRESET\r\n").expect("no reset");
        let stats = |text: &str| -> HashMap<String, String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let before = stats(first);
        assert_eq!((&*before["curr_items"], &*before["cmd_set"], &*before["lanes"]), ("100", "100", "4"));
        assert_eq!((&*before["curr_connections"], &*before["limit_maxbytes"]), ("1", "67108864"));
        let after = stats(rest);
        assert_eq!((&*after["curr_items"], &*after["cmd_set"], &*after["total_items"]), ("100", "0", "0"));
        assert!(rest.ends_with("END\r\nVALUE key1 0 1\r\nx\r\nVALUE key2 0 1\r\nx\r\nEND\r\n"), "{rest}");
        let mut client = Client::connect().await;
        let keys: String = (0..100).map(|n| format!(" key{n}")).collect();
        client
            .says(&format!("flush_all\r\nget{keys}\r\nflush_all noreply\r\nmn\r\n"), "OK\r\nEND\r\nMN\r\n")
            .await;
    });
    assert_eq!(figure(&report, "cmd-flush"), 8, "each lane flushed twice");
}

/// A value of so many bytes that says where each of them belongs.
fn large(n: usize, len: usize) -> String {
    (0..len).map(|at| char::from(b'a' + ((at / 7 + n) % 26) as u8)).collect()
}

#[test]
fn large_values_and_more_answers_than_there_is_room_for() {
    // Hardly any room for buffers: each connection gets the least.
    let options = Options { buffers: 4 << 20, ..Options::default() };
    let ((), report) = beside(options, 4, || async {
        let mut client = Client::connect().await;
        for n in 0..24 {
            let value = large(n, 300_000);
            client.says(&format!("set key{n} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n").await;
        }
        // Twice over, so that one request has 14 MB of answers.
        let keys: String = (0..48).map(|n| format!(" key{}", n % 24)).collect();
        let expected: String = (0..48)
            .map(|n| format!("VALUE key{} 0 300000\r\n{}\r\n", n % 24, large(n % 24, 300_000)))
            .collect();
        client.says(&format!("get{keys}\r\nmn\r\n"), &(expected + "END\r\nMN\r\n")).await;
    });
    assert_eq!(figure(&report, "get-hits"), 48);
}
