//! A store that is full takes nothing from the allocator, whatever is asked of it; nor does a client, wherever its answers are cut.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use assert_no_alloc::{AllocDisabler, assert_no_alloc};
use flowlane_memcached::answer::{answer, get};
use flowlane_memcached::client::{self, Answer, Answers};
use flowlane_memcached::protocol::{Command, Parsed, parse};
use flowlane_memcached::store::{KeyHash, Limits, Store};

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

fn ask(store: &mut Store, hash: &KeyHash, bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let Parsed::Request(request, _) = parse(bytes, 1 << 20) else { panic!("no request") };
    if let Command::Get { keys, cas, touch } = &request.command {
        for key in keys.clone() {
            get(store, hash.of(key), key, *cas, *touch, out);
        }
        return;
    }
    let of = request.command.key().map_or(0, |key| hash.of(key));
    answer(store, of, &request, out);
}

#[test]
fn in_steady_state_nothing_is_allocated() {
    let (hash, mut out) = (KeyHash::default(), Vec::with_capacity(1 << 16));
    let mut store = Store::new(Limits { memory: 2 << 20, item: 1 << 20 }, 0);
    let requests: Vec<Vec<u8>> = (0..60_000u32)
        .map(|n| {
            let key = n.wrapping_mul(2_654_435_761) % 50_000;
            match n % 8 {
                0..=2 => format!("set key{key} 0 0 100\r\n{n:0100}\r\n"),
                3 => format!("mg key{key} v t\r\n"),
                4 => format!("delete key{key}\r\n"),
                5 => format!("append key{key} 0 0 2\r\nab\r\n"),
                _ => format!("get key{key} other{key}\r\n"),
            }
            .into_bytes()
        })
        .collect();
    for _ in 0..2 {
        requests.iter().for_each(|request| ask(&mut store, &hash, request, &mut out));
    }
    assert!(store.counts().evictions > 1000, "it is full");
    let before = store.counts().cmd_set;
    assert_no_alloc(|| requests.iter().for_each(|request| ask(&mut store, &hash, request, &mut out)));
    assert!(store.counts().cmd_set > before + 20_000);
}

#[test]
fn a_client_asks_and_reads_without_allocating() {
    let talk = b"VALUE key 0 5\r\nhello\r\nVALUE another-key 0 3 17\r\nabc\r\nEND\r\nSTORED\r\nSERVER_ERROR out of memory\r\n".repeat(50);
    let (mut answers, mut out) = (Answers::default(), Vec::with_capacity(4096));
    let mut round = |cut: usize| {
        let (mut values, mut bytes) = (0, 0);
        for mut piece in talk.chunks(cut) {
            while let Some(answer) = answers.next(&mut piece).unwrap() {
                match answer {
                    Answer::Whole => values += 1,
                    Answer::Bytes(some) => bytes += some.len(),
                    _ => {}
                }
            }
        }
        out.clear();
        for n in 0..20 {
            out.extend_from_slice(client::GET);
            client::one_more(b"key", &mut out);
            client::set(b"key", 0, 0, n, &mut out);
            client::meta_get(b"key", true, &mut out);
        }
        (values, bytes)
    };
    assert_eq!(round(7), (100, 400));
    assert_no_alloc(|| {
        for cut in [1, 7, 13, 4096] {
            assert_eq!(round(cut), (100, 400));
        }
    });
}
