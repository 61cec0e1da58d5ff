//! State shared by all threads of a runtime: inboxes, doorbells, and the worker of each lane. None of it is written per packet.
//!
//! [`message`] is what workers are told, [`order`] the state of one move of a lane, [`outside`] those who wait on other threads,
//! [`rebalanced`] what was done to balance the load, [`watched`] whether flows are watched, [`beat`] what workers say of where they are,
//! [`stalls`] how often one stood still.

mod beat;
mod message;
mod order;
mod outside;
mod rebalanced;
mod stalls;
mod watched;

pub(crate) use beat::{Beat, Place, Seen};
pub(crate) use message::Message;
pub(crate) use order::{Expectation, MoveId, Order, Stage};
pub(crate) use rebalanced::Rebalanced;
pub(crate) use stalls::Stalls;
pub(crate) use watched::{TopWish, Watched};

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_queue::SegQueue;
use flowlane_stack::time::Time;

use self::outside::Outside;
use crate::capture::Captures;
use crate::dhcp::Addresses;
use crate::lane::LastReports;
use crate::wake::Wake;

/// How a worker is reached.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) inbox: SegQueue<Message>,
    pub(crate) wake: Arc<Wake>,
}

impl Post {
    fn empty(&self) {
        while self.inbox.pop().is_some() {}
    }
}

/// What all threads of a runtime share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Number of this runtime in the process.
    pub(crate) runtime: u32,
    pub(crate) posts: Vec<Post>,
    /// Which worker holds each lane. Written when a lane has arrived; while it is on its way, messages go to whom it
    /// left, who passes them on.
    owners: Vec<AtomicU32>,
    epoch: Instant,
    /// The last move of each lane that was ever moved.
    moves: Mutex<HashMap<u32, Arc<Order>>>,
    /// Who waits from outside for something in here.
    pub(crate) outside: Outside,
    /// What was done to balance the load of workers.
    pub(crate) rebalanced: Rebalanced,
    /// Whether lanes keep their flows with most packets.
    pub(crate) top: Watched,
    /// Where each worker is.
    pub(crate) beats: Vec<Arc<Beat>>,
    /// How often workers stood still.
    pub(crate) stalls: Stalls,
    /// The addresses that hosts have from others.
    pub(crate) addresses: Addresses,
    /// The captures that run.
    pub(crate) captures: Captures,
    /// Of lanes that were on their way when the workers ended.
    pub(crate) last_reports: LastReports,
    /// Whether the workers have ended, so that inboxes are not read any more.
    closed: AtomicBool,
}

impl Shared {
    /// A number for a runtime that no other in this process has.
    pub(crate) fn number() -> u32 {
        static RUNTIMES: AtomicU32 = AtomicU32::new(0);
        RUNTIMES.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn new(runtime: u32, posts: Vec<Post>, owners: &[usize]) -> Self {
        Self {
            runtime,
            beats: posts.iter().map(|_| Arc::default()).collect(),
            stalls: Stalls::default(),
            posts,
            owners: owners.iter().map(|w| AtomicU32::new(*w as u32)).collect(),
            epoch: Instant::now(),
            moves: Mutex::default(),
            outside: Outside::default(),
            rebalanced: Rebalanced::default(),
            top: Watched::default(),
            addresses: Addresses::default(),
            captures: Captures::default(),
            last_reports: LastReports::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The last move of each lane. Only who begins or gives up a move holds it.
    pub(crate) fn moves(&self) -> MutexGuard<'_, HashMap<u32, Arc<Order>>> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the runtime's clock was zero.
    pub(crate) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// The runtime's clock: nanoseconds since it was made, never zero.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64 + 1)
    }

    /// Puts a message into a worker's inbox and wakes it.
    pub(crate) fn send(&self, worker: usize, message: Message) {
        if let Some(post) = self.posts.get(worker) {
            post.inbox.push(message);
            post.wake.ring();
            // Either we see here that it is closed, or `close` finds the message.
            fence(Ordering::SeqCst);
            if self.closed.load(Ordering::Relaxed) {
                post.empty();
            }
        }
    }

    /// The workers are gone. Messages that they did not take are dropped, and with them the tasks that were to run; from now on those
    /// that come are, too. Whoever waits outside is told.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.posts.iter().for_each(Post::empty);
        self.outside.end();
    }

    /// Which worker holds a lane, as far as is known here.
    #[inline]
    pub(crate) fn owner_of(&self, lane: u32) -> usize {
        self.owners.get(lane as usize).map_or(usize::MAX, |o| o.load(Ordering::Acquire) as usize)
    }

    /// Worker: `lane` is here now.
    pub(crate) fn set_owner(&self, lane: u32, worker: usize) {
        if let Some(owner) = self.owners.get(lane as usize) {
            owner.store(worker as u32, Ordering::Release);
        }
    }
}
