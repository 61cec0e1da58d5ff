//! What is drawn from readings that do not change, and what the keys do to it.

use std::time::Duration;

use flowlane::control::LiveView;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::state::{Order, State, Status};
use super::{Pressed, draw, pressed};

/// A lane of a reading, after so many seconds at so much work a second.
fn lane(bucket: u16, seconds: u64, work: u64, moves: u64) -> Value {
    json!({
        "bucket": bucket, "aligned": seconds * work * 1000, "redirected": seconds * work * 10, "task-runs": seconds * work * 900,
        "panics": 0, "moves": moves, "busy-nanos": seconds * work * 9_000_000, "sockets": 1, "connections": work,
        "delivered": 0, "sent": 0, "dropped": if bucket == 3 { seconds * 7 } else { 0 },
    })
}

fn worker(number: u64, seconds: u64, lanes: &[Value]) -> Value {
    let second = 1_000_000_000 * seconds;
    json!({
        "worker": number, "turns": seconds * 50_000, "busy-turns": seconds * 40_000, "sleeps": seconds * 120,
        "time": {
            "receive": second / 10, "stack": second / 4, "tasks": second / 5, "netisr": second / 100, "transmit": second / 20,
            "looking": second * 19 / 100, "asleep": second / 5,
        },
        "frames-free": 8000, "frames-exhausted": 0, "frames-allocated": 0, "move-overflow": 0,
        "queues": [{
            "host": "server", "interface": 0, "queue": number,
            "counters": {
                "rx-frames": seconds * 61_000, "rx-bytes": seconds * 61_000 * 100, "tx-frames": seconds * 60_500,
                "tx-bytes": seconds * 60_500 * 1000, "rx-ring-full": if number == 1 { seconds * 3 } else { 0 }, "system-calls": seconds * 900,
            },
        }],
        "hosts": [{ "host": "server", "steering": steering(seconds, 61_000), "lanes": lanes }],
        "misdirected": [],
    })
}

fn steering(seconds: u64, frames: u64) -> Value {
    json!({
        "received": seconds * frames, "aligned": seconds * frames * 99 / 100, "redirected": seconds * frames / 100, "misdirected": 0,
        "foreign-hash": 0, "hash-delivered": 0, "hash-computed": 0, "no-flow": 0,
    })
}

/// The numbers after so many seconds. Lane 3 is at worker 0 from the second second on.
fn reading(seconds: u64, pid: u32) -> LiveView {
    let at_home = seconds < 2;
    let third = lane(3, seconds, 2, u64::from(!at_home));
    let mut first = vec![lane(0, seconds, 40, 0), lane(1, seconds, 5, 0)];
    let mut second = vec![lane(2, seconds, 11, 0)];
    if at_home {
        second.push(third);
    } else {
        first.push(third);
    }
    let mut rtts = vec![0; 53];
    (rtts[11], rtts[12], rtts[20]) = (seconds * 700, seconds * 290, seconds * 10);
    let bounds: Vec<u32> = (0..53).filter_map(flowlane_stack::stats::Histogram::bound).collect();
    serde_json::from_value(json!({
        "version": 1,
        "instance": { "name": "serve http", "pid": pid, "started": 1_700_000_000, "uptime-ms": seconds * 1000 },
        "worker-count": 2,
        "hosts": [{
            "host": "server", "links": ["af-xdp:eth0 (native, copied)"], "steering": steering(seconds, 122_000), "kernel": false,
            "bytes-in": seconds * 12_200_000, "bytes-out": seconds * 121_000_000, "tcp-states": { "LISTEN": 4, "ESTABLISHED": 58 },
        }],
        "workers": [worker(0, seconds, &first), worker(1, seconds, &second)],
        "drops": [
            { "host": "server", "layer": "tcp", "reason": "bad-checksum", "text": "discarded for bad checksums", "count": 12 },
            { "host": "server", "layer": "link", "reason": "rx-ring-full", "text": "the receive ring was full", "count": seconds * 3 },
        ],
        "times": [{ "name": "tcp-rtt", "text": "round-trip times of TCP", "bounds-us": bounds, "counts": rtts }],
        "counts": [
            { "text": "Requests", "count": seconds * 58_000, "at-us": null },
            { "text": "Errors", "count": 0, "at-us": null },
        ],
    }))
    .unwrap()
}

/// After readings of the first, second and third second.
fn watched() -> State {
    let mut state = State::new(Duration::from_secs(1), "/run/flowlane/4711.sock".into());
    (1..=3).for_each(|second| state.take(reading(second, 4711)));
    state
}

fn drawn(state: &mut State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|f| draw::draw(f, state)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

fn press(state: &mut State, keys: &str) {
    for key in keys.chars() {
        let key = KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE);
        assert!(matches!(pressed(state, key), Pressed::Known));
    }
}

/// Compares with the file; with `FLOWLANE_GOLDEN=write` writes it instead, to be looked at by a person.
fn golden(name: &str, text: &str) {
    let path = format!("{}/src/commands/top/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("FLOWLANE_GOLDEN").is_ok_and(|v| v == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name}:\n{text}\nand not\n{expected}");
}

#[test]
fn it_looks_as_it_did_at_every_size() {
    golden("80x24", &drawn(&mut watched(), 80, 24));
    golden("60x20", &drawn(&mut watched(), 60, 20));
    golden("200x50", &drawn(&mut watched(), 200, 50));
    golden("40x10", &drawn(&mut watched(), 40, 10));
}

#[test]
fn every_page_looks_as_it_did() {
    let mut state = watched();
    for (key, name) in ["lanes", "queues", "drops", "moves", "times"].into_iter().enumerate() {
        press(&mut state, &(key + 2).to_string());
        golden(name, &drawn(&mut state, 80, 24));
    }
    press(&mut state, "h");
    golden("keys", &drawn(&mut state, 80, 24));
    press(&mut state, "?");
    assert!(drawn(&mut state, 80, 24).contains("p99.9"), "back to the times");
}

#[test]
fn a_terminal_that_is_too_small_says_so() {
    for (width, height) in [(39, 24), (80, 9), (30, 3)] {
        let text = drawn(&mut watched(), width, height);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = format!("top takes 40 columns and 10 rows; here are {width} and {height} (q ends)");
        assert_eq!(words, expected);
    }
    for (width, height) in [(1, 1), (2, 60), (200, 1)] {
        assert!(!drawn(&mut watched(), width, height).contains("worker"));
    }
}

#[test]
fn nothing_is_wider_than_any_terminal() {
    for width in 40..130 {
        for page in 1..=6 {
            let mut state = watched();
            press(&mut state, &page.to_string());
            let text = drawn(&mut state, width, 24);
            assert!(text.contains("q quit"), "{text}");
        }
    }
}

#[test]
fn an_instance_that_has_never_answered_is_waited_for() {
    let mut state = State::new(Duration::from_secs(1), "/run/flowlane/4711.sock".into());
    let begin = "waiting for an answer of the instance at /run/flowlane/4711.sock: it may be\nstopped (SIGCONT) or busy\n";
    assert!(drawn(&mut state, 80, 24).starts_with(begin));
    state.waits(Duration::from_secs(7));
    assert!(drawn(&mut state, 80, 24).contains("4711.sock for 7 s:"));
    state.lost("/run/flowlane/4711.sock: no instance answers there (Connection refused)".into());
    assert!(drawn(&mut state, 80, 24).contains("no answer: /run/flowlane/4711.sock: no instance"));
    press(&mut state, "h");
    let text = drawn(&mut state, 80, 24);
    assert!(text.contains("Shift-Tab") && text.contains("q quit"), "{text}");
    press(&mut state, "h");
    state.take(reading(1, 4711));
    let text = drawn(&mut state, 80, 24);
    assert!(text.starts_with("serve http, process 4711") && !text.contains("waiting"), "{text}");
}

#[test]
fn silence_is_told_and_the_last_numbers_stay() {
    let mut state = watched();
    state.waits(Duration::from_millis(1900));
    assert_eq!(state.status(), Status::Live);
    state.waits(Duration::from_secs(7));
    assert!(drawn(&mut state, 80, 24).contains("no answer for 7 s"));
    state.waits(Duration::ZERO);
    state.lost("/run/flowlane/4711.sock: no instance answers there (Connection refused)".into());
    let text = drawn(&mut state, 80, 24);
    assert!(
        text.contains("no answer: /run/flowlane/4711.sock: no instance") && text.contains("58.0 k"),
        "{text}"
    );
    // Started again: another process, whose totals begin anew.
    state.take(reading(1, 4712));
    let text = drawn(&mut state, 80, 24);
    assert!(
        text.contains("process 4711 has ended, this is process 4712") && text.contains("measuring"),
        "{text}"
    );
    assert!(!text.contains("58.0 k"), "{text}");
    state.take(reading(2, 4712));
    assert!(drawn(&mut state, 80, 24).contains("requests 58.0 k/s"));
}

#[test]
fn a_worker_that_does_not_answer_is_named() {
    let mut state = watched();
    let mut later = reading(4, 4711);
    later.workers.remove(1);
    state.take(later);
    let text = drawn(&mut state, 80, 24);
    assert!(text.contains("1 of 2 workers silent"), "{text}");
    assert!(text.lines().any(|line| line.split_whitespace().eq(["1", "silent"])), "{text}");
    // It answers again: what it did meanwhile is no rate of one interval, and nothing is below 0.
    state.take(reading(5, 4711));
    let change = state.change().unwrap();
    assert!(change.lanes.iter().all(|lane| (0.0..1.0).contains(&lane.load)), "{change:?}");
}

#[test]
fn lanes_are_sorted_as_chosen() {
    let mut state = watched();
    let order = |state: &State| state.lanes().iter().map(|lane| lane.bucket).collect::<Vec<_>>();
    assert_eq!(order(&state), [0, 2, 1, 3]);
    press(&mut state, "r");
    assert_eq!(order(&state), [3, 1, 2, 0]);
    press(&mut state, "rS");
    assert_eq!((state.order(), order(&state)), (Order::Worker, vec![0, 1, 3, 2]));
    press(&mut state, "S");
    assert_eq!((state.order(), order(&state)), (Order::Bucket, vec![0, 1, 2, 3]));
    assert_eq!(Order::Bucket.next().next(), Order::Load);
}

#[test]
fn the_interval_and_the_pause_follow_the_keys() {
    let mut state = watched();
    press(&mut state, "+");
    assert!(drawn(&mut state, 80, 24).contains("every 2 s"));
    press(&mut state, "-----------");
    assert_eq!(state.interval(), super::state::SHORTEST);
    assert!(drawn(&mut state, 80, 24).contains("every 100 ms"));
    press(&mut state, "+++++++++++");
    assert_eq!(state.interval(), super::state::LONGEST);
    press(&mut state, "p");
    assert!(state.is_paused() && drawn(&mut state, 80, 24).contains("paused"));
    press(&mut state, " ");
    assert!(!state.is_paused());
    for end in [KeyEvent::from(KeyCode::Esc), KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)] {
        assert!(matches!(pressed(&mut state, end), Pressed::Quit));
    }
    let stop = KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL);
    assert!(matches!(pressed(&mut state, stop), Pressed::Stop));
}

#[test]
fn long_tables_scroll_and_stop_at_their_ends() {
    let mut state = State::new(Duration::from_secs(1), "/run/flowlane/4711.sock".into());
    let many = |seconds| {
        let mut reading = reading(seconds, 4711);
        let lanes = (0..200).map(|bucket| serde_json::from_value(lane(bucket, seconds, 1, 0)).unwrap());
        reading.workers[0].hosts[0].lanes = lanes.collect();
        reading.workers[1].hosts[0].lanes.clear();
        reading
    };
    (1..=2).for_each(|second| state.take(many(second)));
    press(&mut state, "2SS");
    let shows = |state: &mut State, bucket: &str| {
        let text = drawn(state, 80, 24);
        text.lines().any(|line| line.split_whitespace().take(2).eq([bucket, "0"]))
    };
    assert!(shows(&mut state, "0") && !shows(&mut state, "199"));
    press(&mut state, "G");
    assert!(shows(&mut state, "199") && !shows(&mut state, "0"));
    press(&mut state, "k");
    assert!(!shows(&mut state, "199"), "one up from the end, however far beyond it was scrolled");
    press(&mut state, "g");
    assert!(shows(&mut state, "0"));
    // All of them in the overview, too: as many as fit, and how many more there are.
    press(&mut state, "1");
    assert!(drawn(&mut state, 80, 24).contains(" more"));
}
