//! A running runtime, and its interface for code outside the lanes.

use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use flowlane_rss::{Bucket, Rss};
use flowlane_stack::time::Time;

use super::card::{self, Cards};
use super::first_task::Mains;
use super::host::Host;
use super::leases;
use super::moving::{Move, MoveError};
use crate::block::block_on;
use crate::context::LaneRef;
use crate::dhcp::{DhcpConfig, HostAddress};
use crate::error::{Failed, SpawnError};
use crate::events;
use crate::lane::LaneId;
use crate::shared::{Beat, Message, Rebalanced, Shared, Stalls};
use crate::stats::{Report, WorkerReport};
use crate::task::{JoinHandle, spawn_in, timeout};
use crate::worker_id;

/// How long a worker may take to answer. One turn is microseconds; only a task that never returns takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The first task of a lane failed.
#[derive(Debug, thiserror::Error)]
#[error("host '{host}', lane {}: {failed}", bucket.0)]
#[non_exhaustive]
pub struct JoinFailure {
    /// Name of the host.
    pub host: String,
    /// The lane.
    pub bucket: Bucket,
    /// How it failed.
    pub failed: Failed,
    /// What the runtime counted.
    pub report: Box<Report>,
}

/// Talks to a running runtime. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    cards: Arc<Cards>,
    hosts: Arc<[HostInfo]>,
}

/// Description of a host for code outside its lanes.
#[derive(Debug, Clone)]
pub struct HostInfo {
    /// Its name.
    pub name: String,
    /// How its flows are steered.
    pub rss: Arc<Rss>,
    /// Its links in the order of its interfaces, with how packets come and go where there are several ways.
    pub links: Vec<String>,
    /// Whether its packets are the kernel's: it has no link of ours.
    pub kernel: bool,
    first_lane: u32,
}

#[cfg(test)]
impl HostInfo {
    pub(crate) fn for_tests(name: &str, rss: Arc<Rss>, kernel: bool) -> Self {
        Self { name: name.to_owned(), rss, links: vec!["pair".to_owned()], kernel, first_lane: 0 }
    }
}

impl Handle {
    /// `links`: those of each host.
    pub(super) fn new(
        shared: Arc<Shared>,
        cards: Arc<Cards>,
        hosts: &[Host],
        links: Vec<Vec<String>>,
    ) -> Self {
        let mut first_lane = 0;
        let infos = hosts.iter().zip(links).map(|(host, links)| {
            let (name, rss, kernel) = (host.name.clone(), host.rss.clone(), host.kernel);
            let info = HostInfo { name, rss, links, kernel, first_lane };
            first_lane += host.rss.buckets.len() as u32;
            info
        });
        Self { shared, cards, hosts: infos.collect() }
    }

    /// The hosts, by number.
    #[must_use]
    pub fn hosts(&self) -> &[HostInfo] {
        &self.hosts
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.posts.len()
    }

    /// The runtime's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.now()
    }

    /// The addresses that hosts have from others: by [`Host::dhcp`](crate::Host::dhcp) and [`Host::slaac`](crate::Host::slaac).
    #[must_use]
    pub fn addresses(&self) -> Vec<HostAddress> {
        self.shared.addresses.all()
    }

    /// Which worker holds a lane.
    #[must_use]
    pub fn worker_of(&self, host: usize, bucket: Bucket) -> Option<usize> {
        let worker = self.shared.owner_of(self.lane(host, bucket)?);
        (worker < self.workers()).then_some(worker)
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn shared_arc(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Whether the workers have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.outside.has_ended()
    }

    /// Lanes of all hosts.
    pub(super) fn lane_count(&self) -> u32 {
        self.hosts.last().map_or(0, |host| host.first_lane + host.rss.buckets.len() as u32)
    }

    pub(super) fn lane(&self, host: usize, bucket: Bucket) -> Option<u32> {
        let info = self.hosts.get(host)?;
        (usize::from(bucket.0) < info.rss.buckets.len()).then(|| info.first_lane + u32::from(bucket.0))
    }

    /// Collects the counters of every worker, and lists of its sockets and connections. Workers that do not answer are left out.
    #[must_use]
    pub fn report(&self) -> Report {
        self.ask(true)
    }

    /// As [`report`](Self::report), but without the lists of sockets and connections: for readings that are taken often. A worker copies
    /// its counters and looks at no socket of TCP.
    #[must_use]
    pub fn counters(&self) -> Report {
        self.ask(false)
    }

    fn ask(&self, sockets: bool) -> Report {
        self.ask_these(0..self.workers(), sockets)
    }

    /// The counters of workers that hold a lane, and how many those are. A worker without one goes on to sleep.
    pub(crate) fn counters_of_holders(&self) -> (Report, usize) {
        let mut holds = vec![false; self.workers()];
        let lanes: usize = self.hosts.iter().map(|host| host.rss.buckets.len()).sum();
        for lane in 0..lanes as u32 {
            if let Some(holds) = holds.get_mut(self.shared.owner_of(lane)) {
                *holds = true;
            }
        }
        // Guard: `holds[*worker]` as `*worker < holds.len()` fails
        // runtime/rebalance::a_worker_without_lanes_sleeps_whole
        let holders: Vec<usize> = (0..holds.len()).filter(|worker| holds[*worker]).collect();
        (self.ask_these(holders.iter().copied(), false), holders.len())
    }

    fn ask_these(&self, workers: impl Iterator<Item = usize>, sockets: bool) -> Report {
        let (to, from) = mpsc::channel();
        let mut asked = 0;
        for worker in workers {
            self.shared.send(worker, Message::Report(to.clone(), sockets));
            asked += 1;
        }
        drop(to);
        let mut report = collect(&from, asked, PATIENCE);
        report.cards = self.cards.report();
        report.changed = self.cards.changed();
        report.rebalance = Box::new(self.shared.rebalanced.counts());
        report.watchdog = self.shared.stalls.report();
        report
    }

    /// What the workers say of where they are.
    pub(crate) fn beats(&self) -> &[Arc<Beat>] {
        &self.shared.beats
    }

    /// Where stalls are counted.
    pub(crate) fn stalls(&self) -> &Stalls {
        &self.shared.stalls
    }

    /// Host and bucket of a lane by its number among all.
    pub(crate) fn lane_of(&self, index: u32) -> Option<(&HostInfo, u16)> {
        let host = self.hosts.iter().rev().find(|host| host.first_lane <= index)?;
        Some((host, (index - host.first_lane) as u16))
    }

    /// Where it is counted what is done to balance the load of workers.
    pub(crate) fn rebalanced(&self) -> &Rebalanced {
        &self.shared.rebalanced
    }

    /// Call it when the link of an interface is up again: the host probes and announces its addresses and reports its groups anew, since
    /// the network may be another one. Without effect on links in memory.
    pub fn link_up(&self, host: usize, interface: u8) {
        for worker in 0..self.workers() {
            self.shared.send(worker, Message::LinkUp { host, interface });
        }
    }

    /// Starts a task in the lane of a bucket, from any thread. Its result can be awaited in a lane, on another executor, or by
    /// [`block_on`](crate::block_on); when the runtime ends before the task does, that is a [`JoinError`](crate::JoinError).
    ///
    /// # Errors
    /// See [`SpawnError`].
    #[track_caller]
    pub fn spawn_on<F>(
        &self,
        host: usize,
        bucket: Bucket,
        future: F,
    ) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let index = self.lane(host, bucket).ok_or(SpawnError::NoSuchLane)?;
        if self.shared.outside.has_ended() {
            return Err(SpawnError::Stopped);
        }
        let id = LaneId { runtime: self.shared.runtime, index };
        let lane = LaneRef::new(id, self.shared.clone());
        Ok(spawn_in(lane, Location::caller(), future).awaited_outside(self.shared.clone()))
    }

    /// Moves the lane of a bucket to another worker, and waits until it is there: see [`begin_move`](Self::begin_move). A worker that
    /// does not answer within five seconds leaves the lane where it is.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub fn move_lane(&self, host: usize, bucket: Bucket, worker: usize) -> Result<(), MoveError> {
        if worker_id::worker().is_some() {
            return Err(MoveError::OnWorker);
        }
        let mut lane = self.begin_move(host, bucket, worker)?;
        let answer = block_on(timeout(PATIENCE, &mut lane));
        answer
            .unwrap_or_else(|_| if lane.give_up() { Err(MoveError::NoAnswer) } else { Err(MoveError::Late) })
    }

    /// Starts to move the lane of a bucket to another worker, with its sockets, timers and tasks, while packets flow. No frame is lost or
    /// overtaken, as long as the rings between workers do not overflow. The [`Move`] is ready when the lane has arrived, and can be
    /// cancelled before. Frames still arrive on the old worker's queue and are handed over, unless the card's table can be changed
    /// ([`Builder::steer_card`](crate::Builder::steer_card)): then the lane's slots name a queue of its new worker before the move is
    /// ready. Any number of lanes may move at once.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use flowlane::{block_on, Bucket, Host, Key, Rss, Runtime};
    /// # let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    /// # let mut builder = Runtime::builder().workers(2).pin(false);
    /// # let host = builder.host(Host::kernel("host", rss, || async {}));
    /// # let runtime = builder.start().unwrap();
    /// let handle = runtime.handle();
    /// let moves = [0, 1].map(|bucket| handle.begin_move(host, Bucket(bucket), 1).unwrap());
    /// for lane in moves {
    ///     block_on(lane).unwrap();
    /// }
    /// ```
    ///
    /// # Errors
    /// See [`MoveError`].
    pub fn begin_move(&self, host: usize, bucket: Bucket, worker: usize) -> Result<Move, MoveError> {
        let lane = self.lane(host, bucket).ok_or(MoveError::NoSuchLane)?;
        if worker >= self.workers() {
            return Err(MoveError::NoSuchWorker);
        }
        if self.shared.outside.has_ended() {
            return Err(MoveError::Stopped);
        }
        Move::ask(&self.shared, lane, worker)
    }
}

/// A runtime. Dropping it stops it.
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    threads: Vec<thread::JoinHandle<()>>,
    /// Tells when the lanes' first tasks have ended.
    mains: Arc<Mains>,
    /// Looks after the cards.
    card_thread: Option<card::Thread>,
}

impl Runtime {
    pub(super) fn new(handle: Handle, mains: Arc<Mains>, threads: Vec<thread::JoinHandle<()>>) -> Self {
        Self { handle, threads, mains, card_thread: None }
    }

    /// Has cards looked after until the end.
    pub(super) fn with_cards(
        mut self,
        cards: Vec<card::Steered>,
        watched: Vec<card::Watched>,
    ) -> std::io::Result<Self> {
        self.card_thread = card::Thread::start(cards, watched, &self.handle.cards, &self.handle.shared)?;
        Ok(self)
    }

    /// Begins the client of DHCP of a host, in the lane of bucket 0.
    pub(super) fn begin_dhcp(&self, host: usize, config: DhcpConfig) -> Result<(), SpawnError> {
        let shared = self.handle.shared.clone();
        let index = self.handle.lane(host, Bucket(0)).ok_or(SpawnError::NoSuchLane)?;
        let id = LaneId { runtime: shared.runtime, index };
        let name = self.handle.hosts[host].name.clone();
        self.handle.spawn_on(host, Bucket(0), leases::run(shared, id, host, name, config)).map(drop)
    }

    /// A handle to the runtime, for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until the first task of every lane has ended, or one of them has failed, then stops as [`Runtime::stop`] does.
    ///
    /// # Errors
    /// The first failure, with the host and the lane; the others are in its report.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use flowlane::{Host, Key, Rss, Runtime, TcpListener};
    /// let mut builder = Runtime::builder();
    /// builder.host(Host::kernel("server", Arc::new(Rss::new(Key::MICROSOFT, 1)), || async {
    ///     let listener = TcpListener::bind(Some([127, 0, 0, 1].into()), 0, Default::default())?;
    ///     flowlane::yield_now().await;
    ///     Err::<(), _>(std::io::Error::other(format!("enough of {}", listener.local_addr()?)))
    /// }));
    /// let error = builder.start().unwrap().join().unwrap_err();
    /// assert!(error.to_string().starts_with("host 'server', lane "), "{error}");
    /// ```
    pub fn join(mut self) -> Result<Report, JoinFailure> {
        if !self.threads.is_empty() {
            self.mains.wait();
        }
        let report = self.end(Duration::ZERO);
        let Some((host, bucket, failed)) = report.failures().first().copied() else { return Ok(report) };
        let host = self.handle.hosts.get(host).map_or_else(String::new, |h| h.name.clone());
        let (failed, report) = (failed.clone(), Box::new(report));
        Err(JoinFailure { host, bucket: Bucket(bucket), failed, report })
    }

    /// Stops all workers and returns what they counted; how lanes failed is in [`Report::failures`]. Connections are abandoned: see
    /// [`Runtime::stop_within`].
    #[must_use]
    pub fn stop(mut self) -> Report {
        self.end(Duration::ZERO)
    }

    /// As [`Runtime::stop`], but ends the connections of our own stack first: no new ones are taken, what was written is
    /// sent, then FIN. Those that have not ended after `grace` are reset. Those of kernel sockets the kernel ends.
    #[must_use]
    pub fn stop_within(mut self, grace: Duration) -> Report {
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> Report {
        if self.threads.is_empty() {
            return Report::default();
        }
        self.handle.cards.ask(card::Request::Closing);
        let (to, from) = mpsc::channel();
        for worker in 0..self.handle.workers() {
            self.handle.shared.send(worker, Message::Stop(to.clone(), grace));
        }
        drop(to);
        let mut report = collect(&from, self.handle.workers(), PATIENCE + grace);
        report.cards = self.handle.cards.report();
        report.changed = self.handle.cards.changed();
        report.rebalance = Box::new(self.handle.shared.rebalanced.counts());
        report.watchdog = self.handle.shared.stalls.report();
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so on standard error.
            let _ = thread.join();
        }
        report.add_lanes(self.handle.shared.last_reports.take());
        self.handle.shared.captures.stop_all();
        if let Some(thread) = self.card_thread.take() {
            thread.end();
        }
        // Several interfaces may have been on one.
        let links: BTreeSet<&String> = self.handle.hosts.iter().flat_map(|host| &host.links).collect();
        links.into_iter().for_each(|link| events::link_closed(link));
        self.handle.shared.close();
        report
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

fn collect(from: &mpsc::Receiver<WorkerReport>, workers: usize, patience: Duration) -> Report {
    let mut report = Report::default();
    while report.workers.len() < workers {
        match from.recv_timeout(patience) {
            Ok(worker) => report.workers.push(worker),
            Err(_) => break,
        }
    }
    report.workers.sort_by_key(|w| w.worker);
    report
}
