//! Which store keeps most of what will be asked for in the same memory, and what a request costs it: ours beside `quick_cache`.
//!
//! `cargo bench -p flowlane-memcached --no-default-features --bench store`
//!
//! Keys of 32 bytes, values of 100, drawn by Zipf's law from a million keys. What is not found is stored. Both have the same bytes, of everything:
//! `quick_cache` orders numbers of places, as it would have to over memory of ours (its own entries, and in each place key, value and the 24 bytes
//! that flags, expiry and number for comparison take), so that neither allocates. Numbers of a store that is full.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on panics")]

use std::hint::black_box;
use std::time::Instant;

use flowlane_memcached::store::{KeyHash, Limits, Mode, Put, Store};
use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, UnitWeighter};

const MEMORY: usize = 16 << 20;
const KEYS: usize = 1_000_000;
const REQUESTS: usize = 4_000_000;
const VALUE: usize = 100;
/// Key, value, and what is known of an item, rounded as an allocator of size classes would.
const PLACE: usize = 32 + VALUE + 24 + 4;

/// Numbers of keys, by Zipf's law with this exponent.
fn trace(exponent: f64) -> Vec<u32> {
    let mut sums = Vec::with_capacity(KEYS);
    let mut sum = 0.0;
    for n in 1..=KEYS {
        sum += (n as f64).powf(-exponent);
        sums.push(sum);
    }
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as f64 / (1u64 << 53) as f64 * sum
    };
    // A key's place in memory has nothing to do with how often it is asked for.
    let shuffle = |n: usize| (n as u64).wrapping_mul(0x9e37_79b1) as u32 % KEYS as u32;
    (0..REQUESTS)
        .map(|_| {
            shuffle(sums.partition_point({
                let at = draw();
                move |s| *s < at
            }))
        })
        .collect()
}

fn key(n: u32) -> [u8; 32] {
    let mut key = *b"key:000000000000000000000000000-";
    let (mut n, mut at) = (n, 30);
    while n > 0 {
        key[at] = b'0' + (n % 10) as u8;
        (n, at) = (n / 10, at - 1);
    }
    key
}

/// What one store did with the second half of a trace.
struct Found {
    hits: f64,
    nanos: f64,
    items: usize,
}

fn run(trace: &[u32], mut ask: impl FnMut(&[u8; 32]) -> bool) -> (f64, f64) {
    let (warm, rest) = trace.split_at(trace.len() / 2);
    for n in warm {
        ask(&key(*n));
    }
    let (mut hits, began) = (0u64, Instant::now());
    for n in rest {
        hits += u64::from(ask(&key(*n)));
    }
    let took = began.elapsed().as_nanos() as f64;
    (hits as f64 / rest.len() as f64, took / rest.len() as f64)
}

fn ours(trace: &[u32]) -> Found {
    let hash = KeyHash::default();
    let mut store = Store::new(Limits { memory: MEMORY, item: 1 << 20 }, 0);
    let (value, mut out) = ([7; VALUE], Vec::with_capacity(256));
    let (hits, nanos) = run(trace, |key| {
        let of = hash.of(key);
        if let Some(item) = store.get(of, key) {
            store.bump(item);
            out.clear();
            store.value_into(item, &mut out);
            return true;
        }
        let put = Put {
            mode: Mode::Set,
            hash: of,
            key,
            value: &value,
            flags: 0,
            expires: 0,
            cas: 0,
            stale: false,
            binary: false,
        };
        black_box(store.put(&put));
        false
    });
    Found { hits, nanos, items: store.counts().curr_items as usize }
}

/// Gives the place of what left to what comes.
#[derive(Clone, Default)]
struct Places;

impl Lifecycle<u64, u32> for Places {
    type RequestState = Vec<u32>;
    fn on_evict(&self, free: &mut Vec<u32>, _: u64, place: u32) {
        free.push(place);
    }
}

fn quick(trace: &[u32]) -> Found {
    let hash = KeyHash::default();
    // Its own memory for an entry, once it is full.
    let probe = 50_000;
    let mut cache: Cache<u64, u32> = Cache::new(probe);
    (0..2 * probe as u64).for_each(|n| cache.insert(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0));
    let overhead = cache.memory_used().total() as f64 / cache.len() as f64;
    let capacity = (MEMORY as f64 / (PLACE as f64 + overhead)) as usize;
    let mut cache: Cache<u64, u32, UnitWeighter, same::Same, Places> =
        Cache::with(capacity, capacity as u64, UnitWeighter, same::Same, Places);
    let mut memory = vec![0u8; (capacity + 1) * PLACE];
    let (mut unused, value, mut out) =
        ((0..=capacity as u32).collect::<Vec<_>>(), [7; VALUE], Vec::with_capacity(256));
    let mut free = Vec::new();
    let (hits, nanos) = run(trace, |key| {
        let of = hash.of(key);
        if let Some(place) = cache.get(&of) {
            let at = *place as usize * PLACE;
            if memory[at..at + 32] == *key {
                out.clear();
                out.extend_from_slice(&memory[at + 32..at + 32 + VALUE]);
                return true;
            }
        }
        let place = unused.pop().unwrap();
        let at = place as usize * PLACE;
        memory[at..at + 32].copy_from_slice(key);
        memory[at + 32..at + 32 + VALUE].copy_from_slice(&value);
        cache.insert_with_lifecycle(of, place, &mut free);
        unused.append(&mut free);
        false
    });
    println!("    quick_cache: {overhead:.1} bytes of its own an entry, {capacity} entries");
    Found { hits, nanos, items: cache.len() }
}

mod same {
    //! The keys are hashes already.
    #[derive(Clone, Default)]
    pub(crate) struct Same;
    #[derive(Default)]
    pub(crate) struct Hash(u64);
    impl std::hash::Hasher for Hash {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, _: &[u8]) {}
        fn write_u64(&mut self, n: u64) {
            self.0 = n;
        }
    }
    impl std::hash::BuildHasher for Same {
        type Hasher = Hash;
        fn build_hasher(&self) -> Hash {
            Hash::default()
        }
    }
}

fn main() {
    println!("{} MiB, {KEYS} keys of 32 bytes, values of {VALUE}", MEMORY >> 20);
    for exponent in [0.9, 1.0, 1.1, 1.2] {
        let trace = trace(exponent);
        println!("Zipf {exponent}");
        for (name, store) in [("ours", ours as fn(&[u32]) -> Found), ("quick_cache", quick)] {
            let mut times = Vec::new();
            let mut last = None;
            for _ in 0..3 {
                let found = store(&trace);
                times.push(found.nanos);
                last = Some(found);
            }
            times.sort_by(f64::total_cmp);
            let found = last.unwrap();
            let bytes = MEMORY as f64 / found.items as f64 - 132.0;
            println!(
                "  {name:>12}: {:.2} % found, {:.0} ns a request ({:.0} to {:.0}), {} items, {bytes:.0} bytes an item beside key and value",
                found.hits * 100.0,
                times[1],
                times[0],
                times[2],
                found.items
            );
        }
    }
}
