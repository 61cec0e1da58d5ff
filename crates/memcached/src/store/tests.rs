//! The store alone: its memory under churn, who leaves, and that nothing is lost when pages change their class.

use super::slab::PAGE;
use super::{KeyHash, Limits, Mode, Outcome, Put, Store};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

struct Kit {
    store: Store,
    hash: KeyHash,
}

impl Kit {
    fn new(memory: usize) -> Self {
        Self { store: Store::new(Limits { memory, item: 1 << 20 }, 0), hash: KeyHash::default() }
    }

    fn set(&mut self, key: &str, value: &[u8], expires: u32) -> Outcome {
        let hash = self.hash.of(key.as_bytes());
        let put = Put {
            mode: Mode::Set,
            hash,
            key: key.as_bytes(),
            value,
            flags: 0,
            expires,
            cas: 0,
            stale: false,
            binary: false,
        };
        self.store.put(&put)
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let hash = self.hash.of(key.as_bytes());
        let item = self.store.get(hash, key.as_bytes())?;
        self.store.bump(item);
        let mut value = Vec::new();
        self.store.value_into(item, &mut value);
        Some(value)
    }

    fn taken(&self) -> usize {
        self.store.slab.bytes() + self.store.table.bytes()
    }
}

/// A value that says whose it is, all along.
fn value(key: u64, len: usize) -> Vec<u8> {
    (0..len).map(|n| (key as usize + n) as u8).collect()
}

#[test]
fn memory_stays_below_its_limit_whatever_is_stored() {
    let limit = 3 << 20;
    let (mut kit, mut random) = (Kit::new(limit), Random(7));
    let (mut most, mut found) = (0, 0);
    // Small values, then large ones, then all sizes, so that pages change their class and the table grows and is in the way.
    for (rounds, longest) in [(60_000u64, 100), (3_000, 200_000), (60_000, 20), (20_000, 9000)] {
        for round in 0..rounds {
            kit.store.tick(10 + (round / 1000) as u32);
            let key = random.below(50_000);
            let len = random.below(longest) as usize;
            kit.set(&format!("key{key}"), &value(key, len), 0);
            most = most.max(kit.taken());
            let key = random.below(50_000);
            if let Some(got) = kit.get(&format!("key{key}")) {
                assert_eq!(got, value(key, got.len()), "another item's bytes");
                found += 1;
            }
        }
        assert!(kit.store.counts().evictions > 0);
    }
    println!("{most} of {limit} bytes, {found} found, {:?}", kit.store.counts());
    assert!(most <= limit, "{most} bytes");
    assert!(most > limit / 10 * 8, "the memory is used: {most}");
    assert!(found > 1000 && kit.store.counts().pages_moved > 10);
    let counted = kit.store.counts().curr_items;
    kit.store.flush(0);
    assert_eq!(kit.store.sweep(usize::MAX >> 1) as u64, counted);
    assert_eq!((kit.store.counts().curr_items, kit.store.counts().bytes), (0, 0));
    assert_eq!(
        kit.store.slab.classes().iter().map(|class| class.used).sum::<u32>(),
        0,
        "every chunk came back"
    );
}

#[test]
fn who_is_asked_for_often_stays() {
    let (mut kit, mut random) = (Kit::new(2 << 20), Random(3));
    for n in 0..50 {
        kit.set(&format!("often{n}"), &[1; 100], 0);
    }
    // Ten times what there is room for comes by, each once.
    for n in 0..100_000u64 {
        kit.set(&format!("once{n}"), &[2; 100], 0);
        kit.get(&format!("often{}", random.below(50)));
    }
    let left = (0..50).filter(|n| kit.get(&format!("often{n}")).is_some()).count();
    assert_eq!(left, 50);
    assert!(kit.store.counts().evictions > 50_000);
}

#[test]
fn what_has_expired_leaves_first_and_by_itself() {
    let mut kit = Kit::new(8 << 20);
    kit.store.tick(10);
    for n in 0..1000 {
        kit.set(&format!("key{n}"), b"x", if n % 2 == 0 { 20 } else { 0 });
    }
    kit.store.tick(19);
    assert_eq!(kit.store.sweep(100_000), 0);
    kit.store.tick(20);
    let dropped: usize = (0..100).map(|_| kit.store.sweep(100)).sum();
    assert_eq!((dropped, kit.store.counts().curr_items), (500, 500), "in pieces it sees every chunk");
    assert_eq!(kit.store.counts().expired_unfetched, 500);
}

#[test]
fn a_class_keeps_one_empty_page_and_others_go_to_whom_needs_them() {
    let mut kit = Kit::new(1 << 20);
    let keys: Vec<String> = (0..20_000).map(|n| format!("key{n}")).collect();
    for key in &keys {
        kit.set(key, b"small", 0);
    }
    let full = kit.taken();
    for key in &keys {
        let hash = kit.hash.of(key.as_bytes());
        kit.store.forget(hash, key.as_bytes());
    }
    assert!(full - kit.taken() > 0, "what is known of chunks goes with their page");
    assert_eq!(kit.store.slab.classes().iter().map(|class| class.pages).sum::<u32>(), 1);
    assert!(matches!(kit.set("large", &value(1, 8 * PAGE), 0), Outcome::Stored(_)));
    assert_eq!(kit.get("large").unwrap(), value(1, 8 * PAGE));
}

#[test]
fn a_value_for_which_there_is_no_memory_leaves_nothing() {
    let mut kit = Kit::new(512 << 10);
    kit.set("key", b"old", 0);
    assert_eq!(kit.set("key", &value(1, 700 << 10), 0), Outcome::NoMemory);
    assert_eq!(kit.get("key"), None, "not the old value either");
    assert!(matches!(kit.set("key", b"new", 0), Outcome::Stored(_)));
    assert!(kit.taken() <= 512 << 10);
}
