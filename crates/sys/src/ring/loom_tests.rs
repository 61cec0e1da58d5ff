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

/// What a lane's move sends through the rings, reduced to its order: a frame by the old owner, the marker behind it,
/// and a frame sent directly that must wait for the marker.
#[derive(Debug, PartialEq)]
enum Parcel {
    Frame(u32),
    Lane,
    Marker,
}

/// Takes one parcel of C's by the old way and passes it on.
fn pass_on(from_c: &mut spsc::Receiver<Parcel>, a_to_b: &mut spsc::Sender<Parcel>) {
    if let Some(parcel) = from_c.pop() {
        assert!(a_to_b.push(parcel).is_ok());
        a_to_b.publish();
    }
    from_c.release();
}

/// What B knows.
#[derive(Default)]
struct NewOwner {
    here: bool,
    marked: bool,
    held: Vec<u32>,
    delivered: Vec<u32>,
}

impl NewOwner {
    /// Looks into both rings once: what comes directly waits until the marker has come by A.
    fn look(&mut self, direct: &mut spsc::Receiver<Parcel>, from_a: &mut spsc::Receiver<Parcel>) {
        match direct.pop() {
            Some(Parcel::Frame(n)) if self.marked => self.delivered.push(n),
            Some(Parcel::Frame(n)) => self.held.push(n),
            Some(other) => panic!("{other:?} sent directly"),
            None => {}
        }
        match from_a.pop() {
            Some(Parcel::Lane) => self.here = true,
            Some(Parcel::Frame(n)) => {
                assert!(self.here, "a frame before the lane");
                self.delivered.push(n);
            }
            Some(Parcel::Marker) => {
                self.marked = true;
                self.delivered.append(&mut self.held);
            }
            None => {}
        }
    }
}

/// The hand-over of a lane from A to B while C keeps sending (see `moving/mod.rs` in the crate `flowlane`): whatever the
/// interleaving, B takes C's frames in the order in which C sent them. Nobody spins: each looks a few times while the
/// others run, and the rest is done when they have ended.
#[test]
fn a_moved_lane_gets_its_frames_in_order() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut c_to_a, mut from_c) = spsc::ring::<Parcel>(4);
        let (mut a_to_b, mut from_a) = spsc::ring::<Parcel>(4);
        let (mut c_to_b, mut direct) = spsc::ring::<Parcel>(4);
        // C: one frame by the old way, then it learns that the lane is gone.
        let c = thread::spawn(move || {
            assert!(c_to_a.push(Parcel::Frame(1)).is_ok());
            c_to_a.publish();
            assert!(c_to_a.push(Parcel::Marker).is_ok());
            c_to_a.publish();
            assert!(c_to_b.push(Parcel::Frame(2)).is_ok());
            c_to_b.publish();
        });
        // A: sends the lane, then passes on whatever comes for it.
        let a = thread::spawn(move || {
            assert!(a_to_b.push(Parcel::Lane).is_ok());
            a_to_b.publish();
            pass_on(&mut from_c, &mut a_to_b);
            (from_c, a_to_b)
        });
        let mut b = NewOwner::default();
        b.look(&mut direct, &mut from_a);
        b.look(&mut direct, &mut from_a);
        c.join().unwrap();
        let (mut from_c, mut a_to_b) = a.join().unwrap();
        for _ in 0..2 {
            pass_on(&mut from_c, &mut a_to_b);
        }
        for _ in 0..4 {
            b.look(&mut direct, &mut from_a);
        }
        assert_eq!(b.delivered, [1, 2]);
    });
}
