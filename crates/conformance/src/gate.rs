//! Who may go on: one lock around the world, and two threads in step.
//!
//! packetdrill's main thread drives: it brings packets, takes packets and lets time pass. A second thread makes the calls that
//! a script expects to wait. The result must not depend on which of them the machine runs first, so
//!
//! * after anything happened, the driver waits until every sleeper has looked whether that was what it waited for;
//! * when a sleeper's wait is over, no time passes until it has asked for the time, which packetdrill does at once.
//!
//! These waits are bounded, for drivers that do not do so. A thread that waits sleeps on the condition variable: packetdrill
//! looks for that in `/proc`.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use flowlane_stack::time::Time;

use crate::world::World;

/// How long one thread waits for the other to notice something, of real time.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a call may sleep without anybody driving, of real time.
const NOBODY_DRIVES: Duration = Duration::from_secs(60);
/// How far the clock may run without anything happening, when a call of the driver itself waits or when it wants a packet:
/// longer than the longest retransmission timeout, and than keep-alive scripts wait.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_secs(130);

/// The world behind its lock.
#[derive(Debug)]
pub(crate) struct Gate {
    inside: Mutex<Inside>,
    changed: Condvar,
    driver: ThreadId,
}

#[derive(Debug)]
struct Inside {
    world: World,
    /// Threads that sleep in a call.
    sleepers: Vec<Sleeper>,
    /// A thread whose call has ended and that has not yet asked for the time.
    returning: Option<ThreadId>,
    /// Its directory in `/proc`, when it has: packetdrill has yet to note the call's result.
    noting: Option<PathBuf>,
}

#[derive(Debug)]
struct Sleeper {
    thread: ThreadId,
    until: Option<Time>,
    /// It has not yet looked at what happened.
    unchecked: bool,
}

impl Gate {
    /// The calling thread is the driver.
    pub(crate) fn new(world: World) -> Self {
        let inside = Inside { world, sleepers: Vec::new(), returning: None, noting: None };
        Self { inside: Mutex::new(inside), changed: Condvar::new(), driver: thread::current().id() }
    }

    /// A panic in one call must not make all later ones fail: the world is a value, and its own checks still hold.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause<'a>(&self, guard: MutexGuard<'a, Inside>, most: Duration) -> (MutexGuard<'a, Inside>, bool) {
        let (guard, result) = self.changed.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// Something happened: everybody looks, and whoever is done returns before anything else happens.
    fn settle<'a>(&'a self, mut guard: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        let me = thread::current().id();
        if guard.sleepers.is_empty() && guard.returning.is_none() {
            return guard;
        }
        for sleeper in &mut guard.sleepers {
            sleeper.unchecked = true;
        }
        self.changed.notify_all();
        loop {
            let waiting = guard.sleepers.iter().any(|s| s.unchecked && s.thread != me)
                || guard.returning.is_some_and(|thread| thread != me);
            if !waiting {
                return guard;
            }
            let (next, timed_out) = self.pause(guard, PATIENCE);
            guard = next;
            if timed_out {
                guard.returning = None;
                return guard;
            }
        }
    }

    /// A call that does not wait.
    pub(crate) fn call<R>(&self, what: impl FnOnce(&mut World) -> R) -> R {
        let mut guard = self.lock();
        let result = what(&mut guard.world);
        guard.world.flush();
        drop(self.settle(guard));
        result
    }

    /// A call that waits until `what` has an answer, or until `until`, or until nothing can happen any more.
    pub(crate) fn wait<R>(
        &self,
        until: Option<Time>,
        mut what: impl FnMut(&mut World) -> Option<R>,
    ) -> Option<R> {
        let me = thread::current().id();
        let mut guard = self.lock();
        if let Some(result) = what(&mut guard.world) {
            guard.world.flush();
            drop(self.settle(guard));
            return Some(result);
        }
        if me == self.driver {
            return self.drive_until(guard, until, what);
        }
        guard.sleepers.push(Sleeper { thread: me, until, unchecked: false });
        let result = loop {
            let (next, timed_out) = self.pause(guard, NOBODY_DRIVES);
            guard = next;
            let result = what(&mut guard.world);
            guard.world.flush();
            let over = until.is_some_and(|t| t <= guard.world.now());
            if result.is_some() || over || timed_out {
                break result;
            }
            for sleeper in guard.sleepers.iter_mut().filter(|s| s.thread == me) {
                sleeper.unchecked = false;
            }
            self.changed.notify_all();
        };
        guard.sleepers.retain(|s| s.thread != me);
        guard.returning = Some(me);
        self.changed.notify_all();
        drop(guard);
        result
    }

    /// The driver itself waits: nobody else lets time pass.
    fn drive_until<'a, R>(
        &'a self,
        mut guard: MutexGuard<'a, Inside>,
        until: Option<Time>,
        mut what: impl FnMut(&mut World) -> Option<R>,
    ) -> Option<R> {
        let end = until.unwrap_or(guard.world.now() + LONGEST_SILENCE);
        loop {
            let done = guard.world.now() >= end;
            guard = self.step(guard, end);
            if let Some(result) = what(&mut guard.world) {
                guard.world.flush();
                return Some(result);
            }
            if done {
                return None;
            }
        }
    }

    /// Lets time pass until the next thing that is due, at most until `end`.
    fn step<'a>(&'a self, mut guard: MutexGuard<'a, Inside>, end: Time) -> MutexGuard<'a, Inside> {
        let waking = guard.sleepers.iter().filter_map(|s| s.until).min();
        let next = guard.world.next_deadline().into_iter().chain(waking).fold(end, Time::min);
        guard.world.pass(next);
        if waking.is_some_and(|t| t <= guard.world.now()) || guard.world.take_changed() {
            guard = self.settle(guard);
        }
        guard
    }

    /// Lets `span` pass. packetdrill's own lock is free meanwhile, so a thread whose call has ended can note its result; when it
    /// has, it sleeps until the next call.
    pub(crate) fn sleep(&self, span: Duration) {
        let mut guard = self.settle_returning(self.lock());
        if let Some(thread) = guard.noting.take() {
            drop(guard);
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && !sleeps(&thread) {
                thread::yield_now();
            }
            guard = self.settle_returning(self.lock());
        }
        let end = guard.world.now() + span;
        while guard.world.now() < end {
            guard = self.step(guard, end);
        }
    }

    /// The time; each look takes a microsecond, except the first after a call that waited. Before a call that is expected
    /// to wait, the second thread looks at the clock until the call is due.
    pub(crate) fn now(&self) -> Time {
        let mut guard = self.lock();
        let me = thread::current().id();
        if guard.returning == Some(me) {
            guard.returning = None;
            guard.noting = std::fs::read_link("/proc/thread-self").ok();
            self.changed.notify_all();
            return guard.world.now();
        }
        guard = self.settle_returning(guard);
        let end = guard.world.now() + Duration::from_micros(1);
        while guard.world.now() < end {
            guard = self.step(guard, end);
        }
        guard.world.now()
    }

    /// The next packet that leaves; time passes until there is one.
    pub(crate) fn next_packet(&self) -> Option<(Vec<u8>, Time)> {
        let mut guard = self.settle_returning(self.lock());
        let end = guard.world.now() + LONGEST_SILENCE;
        loop {
            if let Some(packet) = guard.world.take_packet() {
                return Some(packet);
            }
            if guard.world.now() >= end {
                return None;
            }
            guard = self.step(guard, end);
        }
    }

    fn settle_returning<'a>(&'a self, guard: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        if guard.returning.is_some() { self.settle(guard) } else { guard }
    }
}

/// Whether a thread waits for something, by its directory in `/proc`; one that cannot be looked at counts as such.
fn sleeps(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(thread).join("stat")).unwrap_or_default();
    // Behind the name, which may contain anything.
    stat.rsplit(')').next().is_none_or(|rest| !rest.trim_start().starts_with('R'))
}
