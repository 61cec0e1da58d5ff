//! What peers that do not read can make a server keep: measured by the system, in a process that does nothing else.

use std::fmt::Write as _;
use std::process::Command;

use flowlane_http::server::Options;

use crate::frames::{DATA, PREFACE, Two, ask, window};
use crate::kit::beside;

/// Set in the process that measures.
const CHILD: &str = "FLOWLANE_HTTP_MEMORY";
const STREAMS: u32 = 256;
const CONNECTIONS: usize = 40;

/// Resident memory of this process, bytes.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<i64>().unwrap() * 1024
}

/// Runs a test of this file in a process of its own; its numbers.
fn in_a_process(test: &str) -> Vec<i64> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads", "1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.split_once("MEASURED ").map(|(_, rest)| rest));
    line.unwrap_or_else(|| panic!("{text}")).split_whitespace().map(|n| n.parse().unwrap()).collect()
}

/// A connection that asks for a file on every stream, and has room for twenty bytes of each answer; all of these came.
async fn greedy(path: &str) -> Two {
    const ROOM: u32 = 20;
    let mut client = Two::connect().await;
    let asked: Vec<u8> = (0..STREAMS).flat_map(|n| ask(2 * n + 1, path)).collect();
    client.write([PREFACE, &window(ROOM), &asked].concat()).await;
    let mut came = 0;
    while came < STREAMS * ROOM {
        came += u32::try_from(client.until(DATA).await.payload.len()).unwrap();
    }
    client
}

fn directory() -> (std::path::PathBuf, Options) {
    let dir = std::env::temp_dir().join(format!("flowlane-http-memory-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("large"), vec![b'x'; 1 << 20]).unwrap();
    let options = Options { dir: Some(dir.clone()), ..Options::default() };
    (dir, options)
}

#[test]
fn answers_that_wait_hold_next_to_nothing() {
    if std::env::var_os(CHILD).is_none() {
        let measured = in_a_process("memory::answers_that_wait_hold_next_to_nothing");
        let [each, left] = measured[..] else { panic!("{measured:?}") };
        println!("{} KiB a connection, {} KiB after all are gone", each >> 10, left >> 10);
        // Windows of the client, tasks, and streams of both sides included.
        assert!(each < 1 << 20, "{each} bytes a connection of {STREAMS} answers that wait");
        assert!(left < 16 << 20, "{left} bytes stay when all connections are gone");
        return;
    }
    let (dir, options) = directory();
    let (measured, _) = beside(options, || async {
        // What is made once is made.
        drop(greedy("/large").await);
        let before = resident();
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            held.push(greedy("/large").await);
        }
        let each = (resident() - before) / i64::try_from(CONNECTIONS).unwrap();
        for client in &held {
            client.stream.get_ref().abort().unwrap();
        }
        drop(held);
        // All of them are over when another one, which comes after them, is answered.
        for _ in 0..8 {
            drop(greedy("/large").await);
        }
        [each, resident() - before]
    });
    std::fs::remove_dir_all(dir).unwrap();
    let mut line = String::from("MEASURED");
    measured.iter().for_each(|n| write!(line, " {n}").unwrap());
    println!("{line}");
}
