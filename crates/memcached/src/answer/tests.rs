//! Answers to whole requests: known ones, and random ones beside a model of plain maps with a clock of the test's own, on one to four lanes.

use super::{answer, get};
use crate::protocol::{Command, Parsed, parse};
use crate::store::{KeyHash, Limits, Store};
use std::collections::HashMap;

/// Seconds since 1970 of the tests' second 0.
const BEGAN: i64 = 1_000_000_000;

/// Stores as lanes have them, without the lanes.
struct Lanes {
    stores: Vec<Store>,
    hash: KeyHash,
    now: u32,
}

impl Lanes {
    fn new(lanes: usize, memory: usize) -> Self {
        let limits = Limits { memory: memory / lanes, item: 1 << 20 };
        let stores = (0..lanes).map(|_| Store::new(limits, BEGAN)).collect();
        let mut made = Self { stores, hash: KeyHash::default(), now: 0 };
        made.wait(100);
        made
    }

    fn wait(&mut self, seconds: u32) {
        self.now += seconds;
        self.stores.iter_mut().for_each(|store| store.tick(self.now));
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let Parsed::Request(request, used) = parse(&bytes[at..], 1 << 20) else { panic!("no request") };
            at += used + request.skip;
            let lanes = self.stores.len();
            match &request.command {
                Command::Get { keys, cas, touch } => {
                    for key in keys.clone() {
                        let hash = self.hash.of(key);
                        get(&mut self.stores[KeyHash::lane(hash, lanes)], hash, key, *cas, *touch, &mut out);
                    }
                    out.extend_from_slice(b"END\r\n");
                }
                Command::Flush(delay) => {
                    self.stores.iter_mut().for_each(|store| store.flush(*delay));
                    out.extend_from_slice(b"OK\r\n");
                }
                command => {
                    let hash = self.hash.of(command.key().unwrap_or_default());
                    answer(&mut self.stores[KeyHash::lane(hash, lanes)], hash, &request, &mut out);
                }
            }
        }
        out
    }

    fn says(&mut self, request: &str, expected: &str) {
        let said = self.send(request.as_bytes());
        assert_eq!(String::from_utf8_lossy(&said), expected, "{request:?}");
    }
}

#[test]
fn a_conversation() {
    let mut lanes = Lanes::new(1, 4 << 20);
    for (request, expected) in [
        ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("get a b\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("gets a\r\n", "VALUE a 5 3 1\r\nabc\r\nEND\r\n"),
        ("cas a 0 0 1 2\r\nx\r\n", "EXISTS\r\n"),
        ("cas b 0 0 1 2\r\nx\r\n", "NOT_FOUND\r\n"),
        ("cas a 0 0 1 1\r\nx\r\n", "STORED\r\n"),
        (
            "append a 9 9 2\r\nyz\r\nprepend a 9 9 1\r\nw\r\nget a\r\n",
            "STORED\r\nSTORED\r\nVALUE a 0 4\r\nwxyz\r\nEND\r\n",
        ),
        ("add a 0 0 1\r\n1\r\nreplace b 0 0 1\r\n1\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
        ("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("set n 0 0 2\r\n10\r\ndecr n 1\r\nget n\r\n", "STORED\r\n9\r\nVALUE n 0 2\r\n9 \r\nEND\r\n"),
        ("incr n 991\r\nget n\r\n", "1000\r\nVALUE n 0 4\r\n1000\r\nEND\r\n"),
        ("decr n 5000\r\n", "0\r\n"),
        ("delete n\r\ndelete n\r\n", "DELETED\r\nNOT_FOUND\r\n"),
        ("set a 0 0 2 noreply\r\nhi\r\nget a\r\n", "VALUE a 0 2\r\nhi\r\nEND\r\n"),
        ("set a 0 0 2\r\nhigh\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("mg a v t s f c k q\r\nmg b v q\r\nmn\r\n", "VA 2 t-1 s2 f0 c9 ka\r\nhi\r\nMN\r\n"),
        ("ms c 2 T30 F7 c O123\r\nhi\r\nmg c t f v\r\n", "HD c10 O123\r\nVA 2 t30 f7\r\nhi\r\n"),
        ("md c I T5\r\nmg c t c v\r\nmg c v\r\n", "HD\r\nVA 2 t5 c11 X W\r\nhi\r\nVA 2 Z X\r\nhi\r\n"),
        ("mg new N30 v t\r\nmg new v t\r\n", "VA 0 t30 W\r\n\r\nVA 0 t30 Z\r\n\r\n"),
        (
            "ma count N0 J13 v\r\nma count v\r\nma count MD D10 v\r\n",
            "VA 2\r\n13\r\nVA 2\r\n14\r\nVA 1\r\n4\r\n",
        ),
        ("ms Zm9v b k 1\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("ms Zm9v 1 b k\r\nx\r\nmg foo k\r\n", "HD kZm9v b\r\nHD kZm9v b\r\n"),
        ("flush_all\r\nget a\r\n", "OK\r\nEND\r\n"),
    ] {
        lanes.says(request, expected);
    }
}

#[test]
fn times_of_expiry() {
    let mut lanes = Lanes::new(1, 4 << 20);
    lanes.says("set a 0 10 1\r\nx\r\nset b 0 -1 1\r\nx\r\n", "STORED\r\nSTORED\r\n");
    lanes.says("get a b\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    lanes.wait(9);
    lanes.says("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    lanes.wait(1);
    lanes.says("get a\r\n", "END\r\n");
    // Above 30 days a time is one of day.
    let at = BEGAN + i64::from(lanes.now) + 5;
    lanes.says(&format!("set a 0 {at} 1\r\nx\r\nmg a t\r\n"), "STORED\r\nHD t5\r\n");
    lanes.says("set a 0 2592000 1\r\nx\r\nmg a t\r\n", "STORED\r\nHD t2592000\r\n");
    lanes.says("set a 0 2592001 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n");
    lanes.says("set a 0 0 1\r\nx\r\nflush_all 5\r\nget a\r\n", "STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    lanes.wait(5);
    lanes.says("get a\r\nset a 0 0 1\r\ny\r\nget a\r\n", "END\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n");
}

/// What the model knows of an item.
#[derive(Clone)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    expires: u32,
    version: u64,
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

struct Model {
    items: HashMap<String, Known>,
    now: u32,
    versions: u64,
}

impl Model {
    fn live(&mut self, key: &str) -> Option<&mut Known> {
        let now = self.now;
        self.items.retain(|_, item| item.expires == 0 || item.expires > now);
        self.items.get_mut(key)
    }

    fn expiry(&self, time: i64) -> u32 {
        match time {
            0 => 0,
            ..0 => 1,
            _ => self.now + time as u32,
        }
    }

    fn put(&mut self, verb: &str, key: &str, flags: u32, time: i64, value: &[u8]) -> &'static str {
        let expires = self.expiry(time);
        self.versions += 1;
        let version = self.versions;
        let new = Known { value: value.to_vec(), flags, expires, version };
        match (verb, self.live(key)) {
            ("add", Some(_)) | ("replace" | "append" | "prepend", None) => return "NOT_STORED\r\n",
            ("append", Some(old)) => {
                old.value.extend_from_slice(value);
                old.version = version;
            }
            ("prepend", Some(old)) => {
                old.value.splice(0..0, value.iter().copied());
                old.version = version;
            }
            _ => {
                self.items.insert(key.to_owned(), new);
            }
        }
        "STORED\r\n"
    }
}

/// Does one thing to both, and compares.
fn step(
    lanes: &mut Lanes,
    model: &mut Model,
    random: &mut Random,
    numbers: &mut HashMap<(String, u64), u64>,
) {
    let key = format!("key{}", random.below(12));
    let time = [0, 0, 0, 1, 3, 60, -1][random.below(7) as usize];
    let (request, expected) = match random.below(20) {
        0..=6 => {
            let verb = ["set", "set", "add", "replace", "append", "prepend"][random.below(6) as usize];
            let len = [0, 1, 3, 60, 200, 5000, 40_000][random.below(7) as usize];
            let value: Vec<u8> = (0..len).map(|_| b'0' + random.below(10) as u8).collect();
            let mut request = format!("{verb} {key} {} {time} {len}\r\n", len % 7).into_bytes();
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
            (request, model.put(verb, &key, len as u32 % 7, time, &value).to_owned())
        }
        7..=10 => {
            let expected = model.live(&key).map_or(String::new(), |item| {
                let value = String::from_utf8(item.value.clone()).unwrap();
                format!("VALUE {key} {} {}\r\n{value}\r\n", item.flags, item.value.len())
            });
            (format!("get {key}\r\n").into_bytes(), expected + "END\r\n")
        }
        11 | 12 => {
            let deleted = model.live(&key).is_some();
            model.items.remove(&key);
            (
                format!("delete {key}\r\n").into_bytes(),
                if deleted { "DELETED\r\n" } else { "NOT_FOUND\r\n" }.to_owned(),
            )
        }
        13 => {
            let expires = model.expiry(time);
            let touched = model.live(&key).map(|item| item.expires = expires).is_some();
            (
                format!("touch {key} {time}\r\n").into_bytes(),
                if touched { "TOUCHED\r\n" } else { "NOT_FOUND\r\n" }.to_owned(),
            )
        }
        14 | 15 => {
            let by = random.below(1000);
            (format!("incr {key} {by}\r\n").into_bytes(), increment(model, &key, by))
        }
        16 | 17 => {
            // With the number that the item has, or another.
            let right = random.below(2) == 0;
            let version = model.live(&key).map(|item| item.version);
            let number = version.and_then(|v| numbers.get(&(key.clone(), v)).copied());
            let Some(number) = number else { return };
            let number = if right { number } else { number + 1_000_000 };
            let expected = if right { model.put("set", &key, 0, 0, b"swapped") } else { "EXISTS\r\n" };
            (format!("cas {key} 0 0 7 {number}\r\nswapped\r\n").into_bytes(), expected.to_owned())
        }
        18 if random.below(20) == 0 => {
            model.items.clear();
            (b"flush_all\r\n".to_vec(), "OK\r\n".to_owned())
        }
        _ => {
            let seconds = random.below(3) as u32;
            lanes.wait(seconds);
            model.now += seconds;
            if random.below(4) == 0 {
                lanes.stores.iter_mut().for_each(|store| _ = store.sweep(500));
            }
            return;
        }
    };
    let said = lanes.send(&request);
    assert_eq!(String::from_utf8_lossy(&said), expected, "{:?}", String::from_utf8_lossy(&request));
    // The number for comparison is the store's own to choose.
    if let Some(version) = model.live(&key).map(|item| item.version) {
        let said = lanes.send(format!("mg {key} c u\r\n").as_bytes());
        let number = String::from_utf8(said).unwrap().trim().strip_prefix("HD c").unwrap().parse().unwrap();
        let known = numbers.entry((key.clone(), version)).or_insert(number);
        assert_eq!(*known, number, "{key}: a number changes only with the item");
    }
}

fn increment(model: &mut Model, key: &str, by: u64) -> String {
    model.versions += 1;
    let version = model.versions;
    let Some(item) = model.live(key) else { return "NOT_FOUND\r\n".to_owned() };
    let text = String::from_utf8(item.value.clone()).unwrap();
    let Ok(number) = text.trim_end().parse::<u64>() else {
        return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned();
    };
    let number = number.wrapping_add(by);
    let width = item.value.len();
    item.value = format!("{number:<width$}").into_bytes();
    item.version = version;
    format!("{number}\r\n")
}

#[test]
fn random_requests_are_answered_as_by_a_map() {
    for lanes in [1, 2, 4] {
        for seed in 1..=6u64 {
            println!("{lanes} lanes, seed {seed}");
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut stores = Lanes::new(lanes, 64 << 20);
            let mut model = Model { items: HashMap::new(), now: stores.now, versions: 0 };
            let mut numbers = HashMap::new();
            for _ in 0..4000 {
                step(&mut stores, &mut model, &mut random, &mut numbers);
            }
            let now = model.now;
            model.items.retain(|_, item| item.expires == 0 || item.expires > now);
            for _ in 0..2 {
                stores.stores.iter_mut().for_each(|store| _ = store.sweep(usize::MAX >> 1));
            }
            let items: u64 = stores.stores.iter().map(|store| store.counts().curr_items).sum();
            assert_eq!(items, model.items.len() as u64);
        }
    }
}

#[test]
fn keys_are_bounded_and_flags_are_checked() {
    let mut lanes = Lanes::new(1, 4 << 20);
    let (fits, long) = ("k".repeat(250), "k".repeat(251));
    lanes.says(
        &format!("set {fits} 0 0 1\r\nx\r\nget {fits}\r\n"),
        &format!("STORED\r\nVALUE {fits} 0 1\r\nx\r\nEND\r\n"),
    );
    let bad = "CLIENT_ERROR bad command line format\r\n";
    for request in [
        "get a KEY b",
        "gets KEY",
        "set KEY 0 0 1",
        "delete KEY",
        "incr KEY 1",
        "touch KEY 1",
        "mg KEY",
        "me KEY",
    ] {
        lanes.says(&(request.replace("KEY", &long) + "\r\n"), bad);
    }
    lanes.says("mg a v v\r\n", "CLIENT_ERROR duplicate flag\r\n");
    lanes.says("mg a z\r\n", "CLIENT_ERROR invalid flag\r\n");
    lanes.says("ms a 2 v v\r\nhi\r\n", "CLIENT_ERROR duplicate flag\r\n");
}

#[test]
fn values_do_not_grow_beyond_what_an_item_may_have() {
    let mut lanes = Lanes::new(1, 16 << 20);
    let half = "v".repeat(600_000);
    lanes.says(&format!("set a 0 0 600000\r\n{half}\r\n"), "STORED\r\n");
    lanes.says(&format!("append a 0 0 600000\r\n{half}\r\n"), "NOT_STORED\r\n");
    lanes.says("mg a s\r\n", "HD s600000\r\n");
}
