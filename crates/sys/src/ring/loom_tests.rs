//! Every interleaving of small programs over the rings and the doorbell. Run by `.ci/run` with `--cfg loom`.

use super::{mpsc, spsc};
use crate::doorbell::Doorbell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

#[test]
fn spsc_hands_over_every_value_in_order() {
    loom::model(|| {
        let (mut tx, mut rx) = spsc::ring::<Box<u32>>(2);
        let producer = thread::spawn(move || {
            let mut refused = 0;
            for i in 0..3 {
                if tx.push(Box::new(i)).is_err() {
                    refused += 1;
                }
                tx.publish();
            }
            refused
        });
        let mut last = None;
        let mut got = 0;
        for _ in 0..2 {
            if let Some(v) = rx.pop() {
                assert!(last.is_none_or(|l| *v > l));
                last = Some(*v);
                got += 1;
            }
            rx.release();
        }
        let refused = producer.join().unwrap();
        while let Some(v) = rx.pop() {
            assert!(last.is_none_or(|l| *v > l));
            last = Some(*v);
            got += 1;
        }
        assert_eq!(got + refused, 3);
    });
}

#[test]
fn mpsc_loses_and_doubles_nothing() {
    loom::model(|| {
        let (tx, mut rx) = mpsc::ring::<Box<u32>>(2);
        let other = tx.clone();
        let producer = thread::spawn(move || u32::from(other.push(Box::new(1)).is_ok()));
        let mine = u32::from(tx.push(Box::new(2)).is_ok());
        let mut got = 0;
        if rx.pop().is_some() {
            got += 1;
        }
        rx.release();
        let theirs = producer.join().unwrap();
        while rx.pop().is_some() {
            got += 1;
        }
        assert_eq!(got, mine + theirs);
    });
}

/// A push that returned before another began comes out first, whoever pushed it.
#[test]
fn mpsc_orders_pushes_that_follow_one_another() {
    loom::model(|| {
        let (tx, mut rx) = mpsc::ring::<u32>(4);
        let other = tx.clone();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let producer = thread::spawn(move || {
            assert!(other.push(1).is_ok());
            done.store(true, Ordering::Release);
        });
        let after = seen.load(Ordering::Acquire);
        assert!(tx.push(2).is_ok());
        producer.join().unwrap();
        let first = rx.pop().unwrap();
        let second = rx.pop().unwrap();
        assert_eq!(first + second, 3);
        if after {
            assert_eq!(first, 1);
        }
    });
}

/// The race that lost wake-ups in epair and in the idle loops: work enqueued while the worker goes to sleep.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let (mut tx, mut rx) = spsc::ring::<u32>(2);
        let bell = Arc::new(Doorbell::new());
        let signal = Arc::new(loom::sync::Notify::new());
        let (their_bell, their_signal) = (bell.clone(), signal.clone());
        let producer = thread::spawn(move || {
            assert!(tx.push(7).is_ok());
            tx.publish();
            if their_bell.ring() {
                their_signal.notify();
            }
        });
        loop {
            if let Some(v) = rx.pop() {
                assert_eq!(v, 7);
                break;
            }
            bell.prepare_sleep();
            if rx.ready() == 0 {
                // Sleeping on work would block here for ever, which loom reports as a deadlock.
                signal.wait();
            }
            bell.woke();
        }
        producer.join().unwrap();
    });
}

/// Two wakers, one sleeper: exactly one of them has to signal.
#[test]
fn one_waker_signals() {
    loom::model(|| {
        let bell = Arc::new(Doorbell::new());
        bell.prepare_sleep();
        let theirs = bell.clone();
        let other = thread::spawn(move || u32::from(theirs.ring()));
        let mine = u32::from(bell.ring());
        assert_eq!(mine + other.join().unwrap(), 1);
        assert!(bell.woke());
    });
}
