//! What the threads of a pair share. Workers read it; they write only their own counters, and the wire of a direction with a rate.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use flowlane_rss::Rss;
use flowlane_sys::doorbell::Doorbell;
use flowlane_sys::netdev::counters::LinkCounters;
use flowlane_sys::poll::WakeFd;
use flowlane_sys::tun::End;

use super::EpairOptions;
use super::counts::Published;
use crate::impair::{Edges, Impairments, Wire};

/// How an interface is, as the thread that follows it found.
#[derive(Debug)]
pub(super) struct EndState {
    pub(super) end: Arc<End>,
    pub(super) up: AtomicBool,
    pub(super) mtu: AtomicU32,
    /// The kernel's counters of it, where it is now.
    pub(super) counters: Mutex<Option<LinkCounters>>,
    /// Packets that found its queue full, as they were read last.
    pub(super) full: AtomicU64,
}

impl EndState {
    /// Packets that the kernel had for it and that found its queue full.
    pub(super) fn queue_full(&self) -> u64 {
        if let Some(full) = locked(&self.counters).as_mut().and_then(LinkCounters::send_dropped) {
            self.full.store(full, Ordering::Relaxed);
        }
        self.full.load(Ordering::Relaxed)
    }
}

/// What wakes a thread.
#[derive(Debug)]
pub(super) struct Bell {
    pub(super) bell: Doorbell,
    pub(super) wire: WakeFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { bell: Doorbell::new(), wire: WakeFd::new()? })
    }

    /// To be called after something was put where the thread looks.
    pub(super) fn ring(&self) {
        if self.bell.ring() {
            self.wire.signal();
        }
    }

    /// The thread is awake again.
    pub(super) fn woke(&self) {
        if self.bell.woke() {
            self.wire.take();
        }
    }
}

/// What is done to the packets of a direction.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) impairments: Impairments,
    /// The rate of the direction. A new one goes with other times: what waits is timed anew then.
    pub(super) wire: Arc<Wire>,
}

impl Rules {
    fn new(impairments: Impairments) -> Self {
        Self { impairments, wire: Arc::default() }
    }

    fn set(&mut self, impairments: Impairments) {
        if !impairments.keeps_the_times_of(&self.impairments) {
            self.wire = Arc::default();
        }
        self.impairments = impairments;
    }
}

/// What is shared.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ends: [EndState; 2],
    pub(super) queues: usize,
    pub(super) rss: Arc<Rss>,
    pub(super) seed: u64,
    pub(super) began: Instant,
    pub(super) workers: Vec<Bell>,
    pub(super) follower: Bell,
    /// Counters of each queue, for each direction.
    pub(super) counts: [Vec<Published>; 2],
    /// How slots were kept, by direction and queue; a worker stores it when it goes to sleep.
    pub(super) edges: [Vec<Mutex<Edges>>; 2],
    rules: Mutex<[Rules; 2]>,
    /// Grows when the rules change.
    generation: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    pub(super) fn new(options: EpairOptions, ends: [Arc<End>; 2]) -> io::Result<Self> {
        let mtu = options.mtu.unwrap_or(1500);
        let queues = options.queues as usize;
        let workers = options.workers.clamp(1, queues);
        Ok(Self {
            ends: ends.map(|end| EndState {
                end,
                up: AtomicBool::new(true),
                mtu: AtomicU32::new(mtu),
                counters: Mutex::default(),
                full: AtomicU64::new(0),
            }),
            queues,
            rss: options.rss,
            seed: options.seed,
            began: Instant::now(),
            workers: (0..workers).map(|_| Bell::new()).collect::<io::Result<_>>()?,
            follower: Bell::new()?,
            counts: [(); 2].map(|()| (0..queues).map(|_| Published::default()).collect()),
            edges: [(); 2].map(|()| (0..queues).map(|_| Mutex::default()).collect()),
            rules: Mutex::new(options.impairments.map(Rules::new)),
            generation: AtomicU64::new(1),
            stop: AtomicBool::new(false),
        })
    }

    /// Nanoseconds since the start.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, impairments: [Impairments; 2]) {
        for (rules, impairments) in locked(&self.rules).iter_mut().zip(impairments) {
            rules.set(impairments);
        }
        self.generation.fetch_add(1, Ordering::Release);
        self.wake_all();
    }

    pub(super) fn rules(&self) -> [Rules; 2] {
        locked(&self.rules).clone()
    }

    pub(super) fn impairments(&self) -> [Impairments; 2] {
        self.rules().map(|rules| rules.impairments)
    }

    /// Which rules are in force: a number that changes when they do.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn wake_all(&self) {
        self.workers.iter().chain([&self.follower]).for_each(Bell::ring);
    }
}

/// A lock that is taken for a copy only, so no panic can leave it half changed.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impair::Chance;

    #[test]
    fn other_times_go_with_a_new_wire_and_other_chances_do_not() {
        let rate = |rate| Impairments { rate: Some(rate), ..Impairments::default() };
        let mut rules = Rules::new(rate(10_000));
        for (to, other) in [
            (Impairments { loss: Chance::new(0.5).unwrap(), ..rate(10_000) }, false),
            (rate(20_000), true),
            (Impairments { delay: 1, ..rate(20_000) }, true),
            (Impairments { delay: 1, jitter: 1, ..rate(20_000) }, true),
            (Impairments::default(), true),
            (Impairments::default(), false),
        ] {
            let before = rules.wire.clone();
            rules.set(to.clone());
            assert_eq!(Arc::ptr_eq(&before, &rules.wire), !other, "{to:?}");
            assert_eq!(rules.impairments, to);
        }
    }
}
