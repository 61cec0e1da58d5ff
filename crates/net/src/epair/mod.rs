//! epair: two interfaces of the kernel, in any two network namespaces, joined back to back.
//!
//! ```text
//!    namespace of A                      this process                       namespace of B
//!   ┌───────────────┐ queue 0 ─▶ read ▸ hash ▸ impair ▸ write ─▶ queue 0 ┌───────────────┐
//!   │ kernel ▸ A    │ queue 1 ─▶             ...               ─▶ queue 1 │    B ▸ kernel │
//!   └───────────────┘ queue 0 ◀─ write ◂ impair ◂ hash ◂ read ◀─ queue 0 └───────────────┘
//! ```
//!
//! Both are TAP interfaces with the same number of queues. A packet is written to the queue of the far interface that its Toeplitz hash
//! names, and the far kernel sees that queue as the one that received it. A program on the near interface ([`SteeringRules`]) has the kernel
//! choose the queue in the same way, so a packet comes on the queue that it leaves on; where the kernel takes no program it is delivered on
//! the right queue all the same, and counted as *requeued*. The kernel cannot be told the hash itself: `TUNSETVNETHASH` is not in Linux.
//!
//! Each worker reads some queues of both ends and writes what it read. Nothing is handed to another worker: any thread may write to any
//! queue of the far interface, so the queues between workers, and with them the wake-ups that FreeBSD's epair lost, are those of the
//! kernel. What wakes a worker besides packets (new impairments, the end) goes by the three-state doorbell ([`flowlane_sys::doorbell`]).
//! Packets of a flow come on one queue and are written in that order by one worker.
//!
//! Segmentation and checksums stay undone: packets cross with their virtio-net header as it is.
//!
//! A thread of its own (`follow`) makes both behave as the ends of a veth do: carrier, MTU, namespaces, removal. Impairments are in
//! [`crate::impair`].

mod counts;
mod follow;
mod report;
mod shared;
mod worker;

pub use counts::LineCounts;
pub use report::{DirectionReport, EndReport, EpairReport, ImpairmentsView, SlotsReport};

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use flowlane_rss::{Bucket, Rss, Worker};
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::error::Error as SysError;
use flowlane_sys::netns;
use flowlane_sys::tun::{End, EndOptions};

use crate::impair::Impairments;
use shared::Shared;

/// One end of a pair that is to be.
#[derive(Debug, Clone)]
pub struct EndPlace {
    /// Name of the interface.
    pub interface: String,
    /// Network namespace to make it in; `None`: that of the calling thread.
    pub namespace: Option<PathBuf>,
}

/// A pair that is to be.
#[derive(Debug, Clone)]
pub struct EpairOptions {
    /// The ends, A and B.
    pub ends: [EndPlace; 2],
    /// Queues of each, 1 to [`flowlane_sys::tun::MOST_QUEUES`]: as many as `rss` has workers.
    pub queues: u32,
    /// Threads, at least 1; more than queues are of no use.
    pub workers: usize,
    /// How queues are chosen.
    pub rss: Arc<Rss>,
    /// Impairments from A to B, and from B to A.
    pub impairments: [Impairments; 2],
    /// Seed of what they leave to chance.
    pub seed: u64,
    /// MTU of both, bytes; `None`: 1500.
    pub mtu: Option<u32>,
}

/// Why a pair could not be made: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpairError {
    /// An interface could not be made.
    #[error(transparent)]
    End(#[from] SysError),
    /// There is no such network namespace.
    #[error("there is no network namespace {}", .0.display())]
    NoNamespace(PathBuf),
    /// A thread or descriptor could not be had.
    #[error("starting the threads of a pair: {0}")]
    Start(io::Error),
}

/// Why a pair ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// One of its interfaces was removed, the one of this name when it was made, and so the other is, too.
    Removed(String),
}

/// A pair whose interfaces exist. Nothing passes before [`Opened::start`].
#[derive(Debug)]
pub struct Opened {
    options: EpairOptions,
    ends: [Arc<End>; 2],
}

/// Packets that may wait in a queue of an interface until a worker reads them. A worker that keeps up has a few there; a burst finds it asleep, or
/// on a processor that others want, too. The kernel's usual thousand are a millisecond of what one processor sends.
const WAITING: u32 = 1 << 15;
/// In all queues of an interface together, if that is less: four megabytes of the kernel's memory, without packets. But no queue has less than
/// the least.
const WAITING_IN_ALL: u32 = 1 << 19;
const LEAST_WAITING: u32 = 1 << 12;
/// In a queue at most.
const MOST_WAITING: u32 = 1 << 17;

/// How long the queues of both interfaces are made: the usual length, or as many small packets as are under way at the rate within the delay,
/// so that whoever sends a window at once loses none of it before the line.
fn waiting(queues: u32, impairments: &[Impairments; 2]) -> u32 {
    const SMALL: u128 = 64 * 8;
    let under_way = |rules: &Impairments| {
        let nanos = u128::from(rules.delay.saturating_add(rules.jitter));
        nanos * u128::from(rules.rate.unwrap_or(0)) / 1_000_000_000 / SMALL
    };
    let most = impairments.iter().map(under_way).max().unwrap_or(0);
    let usual = (WAITING_IN_ALL / queues.max(1)).clamp(LEAST_WAITING, WAITING);
    u32::try_from(most).unwrap_or(u32::MAX).clamp(usual, MOST_WAITING)
}

/// Makes both interfaces. Neither is left if the other cannot be made.
///
/// # Errors
/// See [`EpairError`].
pub fn open(options: EpairOptions) -> Result<Opened, EpairError> {
    let queue_of = |bucket: &Bucket| {
        let Worker(worker) = options.rss.buckets.worker_of(*bucket);
        worker % options.queues.max(1) as u16
    };
    // With one queue there is nothing to choose.
    let rules = options.rss.hasher().key().filter(|_| options.queues > 1).map(|key| SteeringRules {
        key: key.as_bytes().to_vec(),
        table: options.rss.table.slots().iter().map(queue_of).collect(),
        udp_ports: options.rss.config.udp_ipv4,
    });
    let make = |place: &EndPlace| {
        let _inside = match &place.namespace {
            Some(path) if !path.exists() => return Err(EpairError::NoNamespace(path.clone())),
            Some(path) => Some(netns::enter_path(path)?),
            None => None,
        };
        Ok(Arc::new(End::make(&EndOptions {
            interface: place.interface.clone(),
            queues: options.queues,
            steering: rules.clone(),
            mtu: options.mtu,
            waiting: waiting(options.queues, &options.impairments),
        })?))
    };
    let ends = [make(&options.ends[0])?, make(&options.ends[1])?];
    Ok(Opened { options, ends })
}

impl Opened {
    /// What a user should know about the interfaces, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(why) = self.ends.iter().find_map(|end| end.unsteered()) {
            notes.push(format!("the kernel chooses the queue that packets come on, not RSS: {why}"));
        }
        notes
    }

    /// Starts the workers and follows the interfaces. `ended` is called if the pair ends by itself.
    ///
    /// Workers give up all privileges; the thread that follows the interfaces keeps those of the calling thread, which it needs where an
    /// interface is moved to another namespace.
    ///
    /// # Errors
    /// [`EpairError::Start`]; the errors of watching an interface.
    pub fn start(self, ended: impl FnOnce(Ended) + Send + 'static) -> Result<Epair, EpairError> {
        let shared = Arc::new(Shared::new(self.options, self.ends).map_err(EpairError::Start)?);
        let mut pair = Epair { shared: shared.clone(), threads: Vec::new() };
        let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name).spawn(body).map_err(EpairError::Start)
        };
        let follower = follow::Follower::new(shared.clone())?;
        for number in 0..shared.workers.len() {
            let worker = worker::Worker::new(shared.clone(), number);
            pair.threads.push(spawn(format!("epair-{number}"), Box::new(move || worker.run()))?);
        }
        pair.threads.push(spawn("epair-follow".into(), Box::new(move || follower.run(ended)))?);
        Ok(pair)
    }
}

/// A pair through which packets pass. Dropping it removes both interfaces.
#[derive(Debug)]
pub struct Epair {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Epair {
    /// What passed so far, and how the interfaces are.
    #[must_use]
    pub fn report(&self) -> EpairReport {
        report::report(&self.shared)
    }

    /// What changes and reports from other threads go through.
    #[must_use]
    pub fn handle(&self) -> EpairHandle {
        EpairHandle(self.shared.clone())
    }

    /// Stops, and removes both interfaces: what passed.
    #[must_use]
    pub fn stop(mut self) -> EpairReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Epair {
    fn drop(&mut self) {
        self.end();
    }
}

/// A way to a pair from other threads.
#[derive(Debug, Clone)]
pub struct EpairHandle(Arc<Shared>);

impl EpairHandle {
    /// As [`Epair::report`].
    #[must_use]
    pub fn report(&self) -> EpairReport {
        report::report(&self.0)
    }

    /// Changes the impairments of both directions, while packets pass. With another rate, delay or jitter, what waits
    /// leaves as though it came now, unless that is later; else as it was to.
    pub fn set(&self, impairments: [Impairments; 2]) {
        self.0.set(impairments);
    }

    /// The impairments of both directions.
    #[must_use]
    pub fn impairments(&self) -> [Impairments; 2] {
        self.0.impairments()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At least the usual length; as many packets as are under way, of the direction that has more of them; and no more than a bound.
    #[test]
    fn queues_are_as_long_as_the_delay_needs() {
        let of = |rate, delay, jitter| Impairments { rate, delay, jitter, ..Impairments::default() };
        let none = Impairments::default;
        assert_eq!(
            [1, 16, 64, 256].map(|queues| waiting(queues, &[none(), none()])),
            [1 << 15, 1 << 15, 1 << 13, 1 << 12]
        );
        let one = |a, b| waiting(1, &[a, b]);
        assert_eq!(one(of(None, 3_600_000_000_000, 0), of(Some(1_000_000), 20_000_000, 0)), WAITING);
        // 20 ms of a gigabit are 20 million bits.
        assert_eq!(one(none(), of(Some(1_000_000_000), 15_000_000, 5_000_000)), 20_000_000 / 512);
        assert_eq!(one(of(Some(u64::MAX), u64::MAX, 1), none()), MOST_WAITING);
    }
}
