use super::{mpsc, spsc};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Under Miri, which is a thousand times slower, fewer of everything.
const SEEDS: u64 = if cfg!(miri) { 10 } else { 200 };
const HANDED: u64 = if cfg!(miri) { 200 } else { 200_000 };
const STEPS: u64 = if cfg!(miri) { 60 } else { 2_000 };

/// Random pushes, publishes, pops and releases against a queue that shows what should come out.
#[test]
fn spsc_follows_its_model() {
    for seed in 0..SEEDS {
        let capacity = 2usize << (seed % 5);
        let (mut tx, mut rx) = spsc::ring::<Box<u64>>(capacity);
        let mut published = VecDeque::new();
        let mut unpublished = VecDeque::new();
        let mut unreleased = 0;
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for i in 0..STEPS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match random >> 61 {
                0..=2 => {
                    let full = published.len() + unpublished.len() + unreleased == capacity;
                    assert_eq!(tx.push(Box::new(i)).is_err(), full, "seed {seed}");
                    if !full {
                        unpublished.push_back(i);
                    }
                }
                3 => {
                    tx.publish();
                    published.append(&mut unpublished);
                }
                4..=6 => {
                    let got = rx.pop().map(|v| *v);
                    unreleased += usize::from(got.is_some());
                    assert_eq!(got, published.pop_front(), "seed {seed}");
                }
                _ => {
                    rx.release();
                    unreleased = 0;
                }
            }
        }
    }
}

#[test]
fn spsc_hands_every_value_over_in_order_between_threads() {
    let (mut tx, mut rx) = spsc::ring::<u64>(64);
    let producer = std::thread::spawn(move || {
        let mut next = 0;
        while next < HANDED {
            while next < HANDED && tx.push(next).is_ok() {
                next += 1;
            }
            tx.publish();
            std::thread::yield_now();
        }
    });
    let mut expected = 0;
    while expected < HANDED {
        while let Some(v) = rx.pop() {
            assert_eq!(v, expected);
            expected += 1;
        }
        rx.release();
        std::thread::yield_now();
    }
    producer.join().unwrap();
}

#[test]
fn values_left_in_a_ring_are_dropped() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let (mut tx, rx) = spsc::ring(8);
    for _ in 0..5 {
        assert!(tx.push(Counted(drops.clone())).is_ok());
    }
    drop(tx);
    drop(rx);
    assert_eq!(drops.load(Ordering::Relaxed), 5);
    let (tx, rx) = mpsc::ring(8);
    for _ in 0..6 {
        assert!(tx.push(Counted(drops.clone())).is_ok());
    }
    drop(tx);
    drop(rx);
    assert_eq!(drops.load(Ordering::Relaxed), 11);
}

#[test]
fn mpsc_follows_its_model() {
    for seed in 0..SEEDS {
        let capacity = 2usize << (seed % 4);
        let (tx, mut rx) = mpsc::ring::<u64>(capacity);
        let mut model = VecDeque::new();
        let mut unreleased = 0;
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = 0;
        for _ in 0..STEPS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match random >> 61 {
                0..=3 => {
                    let wanted = (random >> 50) as usize % 7;
                    let room = capacity - model.len() - unreleased;
                    assert_eq!(tx.room(), room, "seed {seed}");
                    let pushed = tx.push_from(wanted, || {
                        next += 1;
                        next
                    });
                    assert_eq!(pushed, wanted.min(room), "seed {seed}");
                    model.extend(next - pushed as u64 + 1..=next);
                }
                4..=6 => {
                    assert_eq!(rx.is_ready(), !model.is_empty());
                    let got = rx.pop();
                    unreleased += usize::from(got.is_some());
                    assert_eq!(got, model.pop_front(), "seed {seed}");
                }
                _ => {
                    rx.release();
                    unreleased = 0;
                }
            }
        }
    }
}

#[test]
fn mpsc_keeps_each_producers_order() {
    const EACH: u64 = if cfg!(miri) { 60 } else { 50_000 };
    let (tx, mut rx) = mpsc::ring::<(usize, u64)>(64);
    let producers: Vec<_> = (0..3)
        .map(|me| {
            let tx = tx.clone();
            std::thread::spawn(move || {
                let mut next = 0;
                while next < EACH {
                    let batch = (EACH - next).min(7) as usize;
                    let pushed = tx.push_from(batch, || {
                        next += 1;
                        (me, next - 1)
                    });
                    if pushed == 0 {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut expected = [0; 3];
    while expected.iter().sum::<u64>() < 3 * EACH {
        while let Some((who, v)) = rx.pop() {
            assert_eq!(v, expected[who]);
            expected[who] += 1;
        }
        rx.release();
        std::thread::yield_now();
    }
    for p in producers {
        p.join().unwrap();
    }
}

#[test]
fn ends_are_send_only_with_their_values() {
    fn is_send<T: Send>(_: &T) {}
    let (tx, rx) = spsc::ring::<Box<u8>>(2);
    is_send(&tx);
    is_send(&rx);
    let _not_sent = Rc::new(());
}

/// What is pushed when nobody will take it any more is dropped when the last end goes, not lost: frames would be missing.
#[test]
fn values_pushed_after_its_receiver_has_gone_are_dropped() {
    let count = Arc::new(());
    let (mut tx, rx) = spsc::ring(4);
    tx.push(count.clone()).unwrap();
    drop(rx);
    (0..3).for_each(|_| tx.push(count.clone()).unwrap());
    assert_eq!(Arc::strong_count(&count), 5);
    drop(tx);
    assert_eq!(Arc::strong_count(&count), 1);
    let (tx, mut rx) = mpsc::ring(4);
    (0..3).for_each(|_| tx.push(count.clone()).unwrap());
    drop(rx.pop());
    drop(rx);
    assert_eq!(Arc::strong_count(&count), 1, "what was there goes with the receiver");
    let other = tx.clone();
    while tx.push(count.clone()).is_ok() {}
    assert_eq!(Arc::strong_count(&count), 5);
    drop(tx);
    assert_eq!(Arc::strong_count(&count), 5);
    drop(other);
    assert_eq!(Arc::strong_count(&count), 1);
}
