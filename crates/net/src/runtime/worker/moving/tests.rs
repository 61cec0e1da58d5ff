//! Moves between two workers that are turned by hand: what comes late comes when a test says so.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};

use flowlane_rss::{Bucket, HashConfig, Key, Rss, Toeplitz};
use flowlane_stack::address::{Endpoint, Prefix};
use flowlane_stack::steering::steer;
use flowlane_stack::time::Time;
use flowlane_stack::udp::{Bind, UdpHandle};
use flowlane_stack::wire::MacAddr;
use flowlane_stack::{InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};
use flowlane_sys::queue::QueueStats;

use super::*;
use crate::lane::LaneId;
use crate::link::Queue;
use crate::runtime::card::Cards;
use crate::runtime::idle::Idle;
use crate::runtime::moving::Move;
use crate::runtime::netisr::Netisr;
use crate::runtime::worker::ports::Ports;
use crate::runtime::worker::{Door, Doors, HostView, Plan, Port};
use crate::shared::{Post, Shared};
use crate::stats::{LaneReport, Report, WorkerReport};
use crate::wake::Wake;

const A: usize = 0;
const B: usize = 1;
const PORT: u16 = 9;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// A full burst: what is behind it in a queue is not seen in the same turn.
const BURST: usize = 64;

/// A queue that brings what a test puts into it, and takes everything unless it is shut.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<VecDeque<Frame>>>, Arc<Far>);

/// The other side of the link.
#[derive(Default)]
struct Far {
    shut: AtomicBool,
    /// Frames that it has taken.
    taken: AtomicUsize,
}

impl Scripted {
    fn put(&self, frame: Frame) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(frame);
    }

    /// The link takes nothing until it is opened.
    fn shut(&self, shut: bool) {
        self.1.shut.store(shut, Relaxed);
    }

    fn taken(&self) -> usize {
        self.1.taken.load(Relaxed)
    }
}

impl Queue for Scripted {
    fn receive(&mut self, _: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let mut waiting = self.0.lock().unwrap();
        let n = waiting.len().min(max);
        into.extend(waiting.drain(..n));
        n
    }

    fn room(&mut self) -> usize {
        BURST
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        if self.1.shut.load(Relaxed) {
            return 0;
        }
        let n = frames.drain(..).count();
        self.1.taken.fetch_add(n, Relaxed);
        n
    }

    fn flush(&mut self) -> bool {
        true
    }

    fn ready(&mut self) -> bool {
        false
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
}

/// Two workers with a queue each of a card that can be changed, and a lane with one socket, at A.
struct Net {
    workers: Vec<Worker>,
    shared: Arc<Shared>,
    queues: [Scripted; 2],
    now: Time,
    lane: u32,
    socket: UdpHandle,
    /// Source port of a flow of the lane, and of one whose lane nobody has.
    flow: u16,
    other: u16,
}

impl Net {
    fn new() -> Self {
        let posts = (0..2)
            .map(|worker| Post { inbox: Default::default(), wake: Arc::new(Wake::new(0, worker).unwrap()) });
        let (hasher, config) =
            (Toeplitz::new(&Key::MICROSOFT), HashConfig { udp_ipv4: true, ..HashConfig::default() });
        let rss = Arc::new(Rss::of_card(hasher, config, &[0, 0, 0, 0, 1, 1, 1, 1], 2, 2).unwrap());
        let buckets = || (0..rss.buckets.len()).map(|b| Bucket(b as u16));
        let owners: Vec<_> = buckets().map(|b| rss.buckets.worker_of(b).0).collect();
        let at = owners.iter().map(|owner| usize::from(*owner)).collect::<Vec<_>>();
        let shared = Arc::new(Shared::new(0, posts.collect(), &at));
        let memory = MemoryConfig {
            frames_per_home: 2048,
            homes: 2,
            lock: false,
            huge_pages: false,
            ..MemoryConfig::default()
        };
        let memory = FrameMemory::new(&memory).unwrap();
        let queues = [Scripted::default(), Scripted::default()];
        let plans = Netisr::mesh(2, 1024).into_iter().zip(&queues).enumerate();
        let workers = plans.map(|(index, (netisr, queue))| {
            // Of a second link, too.
            let host = HostView::new("host", &rss, 0, (1, 2), |_, _| Some(0)).following(true);
            let plan = Plan {
                watched: Default::default(),
                netisr,
                ports: vec![port(queue.clone(), index as u16)],
                hosts: vec![host],
                lanes: buckets().map(|_| None).collect(),
                idle: Idle::Spin,
                poller: None,
            };
            let frames = Rc::new(memory.attach(index).unwrap());
            Worker::new(index, plan, frames, shared.clone(), Arc::new(Cards::default()))
        });
        let mut workers: Vec<_> = workers.collect();
        let pool = workers[A].frames.clone();
        let bucket = |port: u16| steer(&rss, &mut datagram(&pool, port, 0)).0;
        let of_a = |port: &u16| rss.buckets.worker_of(bucket(*port)).0 == A as u16;
        let flow = (1000..).find(of_a).unwrap();
        let lane = u32::from(bucket(flow).0);
        let other = (1000..).find(|port| of_a(port) && u32::from(bucket(*port).0) != lane).unwrap();
        let mut slot = slot(&rss, Bucket(lane as u16));
        let socket = slot.lane.udp_bind(Bind::port(PORT)).unwrap();
        workers[A].lanes.put(lane, Some(slot));
        Self { workers, shared, queues, now: Time::from_nanos(1_000_000), lane, socket, flow, other }
    }

    /// One turn of a worker, which begins so long after the last of any.
    fn turn_after(&mut self, wait: Duration, worker: usize) {
        self.now += wait;
        self.workers[worker].now = self.now;
        self.workers[worker].turn();
    }

    fn turn(&mut self, worker: usize) {
        self.turn_after(Duration::from_micros(1), worker);
    }

    /// A worker's queue brings a datagram of the lane's flow.
    fn arrives(&mut self, worker: usize, number: u8) {
        self.queues[worker].put(datagram(&self.workers[worker].frames, self.flow, number));
    }

    /// A's queue has more than it takes in a turn, so that it is not empty after so many turns.
    fn keep_busy(&mut self, turns: usize) {
        for _ in 0..turns * BURST {
            self.queues[A].put(datagram(&self.workers[A].frames, self.other, 0));
        }
    }

    /// What the lane has received, in order.
    fn received(&mut self) -> Vec<u8> {
        let mut lanes = self.workers.iter_mut().filter_map(|w| w.lanes.get_mut(self.lane));
        let lane = &mut lanes.next().expect("the lane is at a worker").lane;
        std::iter::from_fn(|| lane.udp_receive(self.socket)).map(|d| d.payload()[0]).collect()
    }

    fn begin_move(&self, to: usize) -> Arc<Order> {
        drop(self.ask(to));
        self.shared.moves()[&self.lane].clone()
    }

    fn ask(&self, to: usize) -> Move {
        Move::ask(&self.shared, self.lane, to).unwrap()
    }

    /// The lane at A sends something, which A's link does not take. Then it is to move to B, and a frame comes for it.
    fn parked_with_a_frame() -> (Self, Move) {
        let mut net = Self::new();
        net.queues[A].shut(true);
        let Worker { lanes, frames, .. } = &mut net.workers[A];
        let to = Some(Endpoint::new([10, 0, 0, 2].into(), PORT));
        let lane = &mut lanes.touch(net.lane).unwrap().lane;
        lane.udp_send(net.now, frames, net.socket, b"?", None, to).unwrap();
        net.turn(A);
        let wanted = net.ask(B);
        net.turn(B);
        net.turn(A);
        net.arrives(A, 1);
        net.turn(A);
        assert!(net.workers[A].moves.is_leaving(net.lane), "its output is still here");
        assert_eq!((net.queues[A].taken(), net.received()), (0, vec![]));
        (net, wanted)
    }

    /// Tells a worker to stop.
    fn stop(&self, worker: usize, grace: Duration) -> mpsc::Receiver<WorkerReport> {
        let (to, from) = mpsc::channel();
        self.shared.send(worker, Message::Stop(to, grace));
        from
    }

    /// What the runtime says of its lanes when its workers have ended.
    fn end(self, reports: [mpsc::Receiver<WorkerReport>; 2]) -> Vec<LaneReport> {
        let mut report = Report::default();
        report.workers.extend(reports.map(|from| from.try_recv().expect("the worker has ended")));
        drop(self.workers);
        report.add_lanes(self.shared.last_reports.take());
        report.lanes(0).into_iter().cloned().collect()
    }

    /// The card's answer for a move.
    fn answer(&self, worker: usize, number: u32, queue: Option<u16>) {
        let asked = Some(MoveId { worker, number });
        let to: &[usize] = if queue.is_some() { &[A, B] } else { &[worker] };
        for to in to {
            self.shared.send(*to, Message::Requeued { lane: self.lane, asked, queue });
        }
    }

    /// The lane moves to B and back to A; the card follows both times. Then it is to move to B once more. A has been too busy, and still
    /// is, to empty the queue that the lane's packets came on before the first move.
    fn moved_twice_and_asked_again() -> Self {
        let mut net = Self::new();
        net.keep_busy(12);
        let first = net.begin_move(B);
        for worker in [B, A, B, A, B] {
            net.turn(worker);
        }
        assert!(net.workers[B].moves.is_awaited(net.lane), "the card is asked");
        net.answer(B, 0, Some(B as u16));
        net.turn(A);
        assert!(net.workers[A].moves.is_draining());
        net.turn(B);
        net.turn_after(LONG_ENOUGH, B);
        assert_eq!(first.stage(), Stage::Done, "it has waited for A long enough");
        let second = net.begin_move(A);
        for worker in [A, B, A, B, A] {
            net.turn(worker);
        }
        net.answer(A, 1, Some(A as u16));
        net.turn(B);
        net.turn(A);
        net.turn_after(Duration::from_millis(1), B);
        net.turn(A);
        assert_eq!(second.stage(), Stage::Done);
        assert!(net.workers[A].moves.is_draining(), "still, for the first move");
        let third = net.begin_move(B);
        assert_eq!(third.number(), 2);
        net.turn(B);
        net
    }

    /// The third move goes on. B has handed a frame over to A before it knows that the lane has left there, and receives another one
    /// after. Then the card is asked, and while one more frame is in A's queue the next comes on B's.
    fn the_order_is_kept(&mut self) {
        self.turn(A);
        self.arrives(B, 1);
        self.turn(B);
        assert!(self.workers[B].lanes.get(self.lane).is_some());
        self.arrives(B, 2);
        self.turn_after(2 * LONG_ENOUGH, B);
        for worker in [A, B, B] {
            self.turn(worker);
        }
        assert_eq!(self.received(), [1, 2]);
        self.arrives(A, 3);
        self.answer(B, 2, Some(B as u16));
        self.arrives(B, 4);
        self.turn(B);
        while self.workers[A].moves.is_draining() || !self.queues[A].0.lock().unwrap().is_empty() {
            self.turn_after(Duration::from_micros(50), A);
        }
        self.turn(B);
        assert_eq!(self.received(), [3, 4]);
        assert_eq!(self.shared.moves()[&self.lane].stage(), Stage::Done);
    }
}

fn port(queue: Scripted, index: u16) -> Port {
    let doors = Doors::new(vec![(None, Door { host: 0, interface: 0 })]).unwrap();
    Port::new(Box::new(queue), 0, Some(index), (None, 1500), doors)
}

fn slot(rss: &Arc<Rss>, bucket: Bucket) -> Box<LaneSlot> {
    let interface = InterfaceConfig {
        mac: MAC,
        mtu: 1500,
        addresses: vec![Prefix::new([10, 0, 0, 1].into(), 24).unwrap()],
        claimed: Vec::new(),
        vlan: None,
        offload: Default::default(),
    };
    let lane = Lane::new(&LaneConfig::new(bucket, rss.clone(), vec![interface], [1; 4]));
    Box::new(LaneSlot::new(LaneId { runtime: 0, index: bucket.0.into() }, 0, lane, Arc::new([])))
}

/// From 10.0.0.2 to the lane's socket: one byte, and no checksum.
fn datagram(pool: &Pool, source: u16, number: u8) -> Frame {
    let mut ip = [0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let [a, b] = source.to_be_bytes();
    let mut frame = pool.alloc().unwrap();
    let parts: [&[u8]; 5] =
        [&MAC.0, &[2, 0, 0, 0, 0, 2, 8, 0], &ip, &[a, b, 0, PORT as u8, 0, 9, 0, 0], &[number]];
    for part in parts {
        assert!(frame.extend_from_slice(part));
    }
    frame
}

/// A queue is found empty only in a later move of the lane, between the same workers: the marker is of the first move, and tells nothing
/// of frames that are on their way in this one.
#[test]
fn a_marker_of_an_earlier_move_is_not_heeded() {
    let mut net = Net::moved_twice_and_asked_again();
    net.queues[A].0.lock().unwrap().clear();
    net.the_order_is_kept();
}

/// What the card's thread says of an earlier move counts for no later one.
#[test]
fn an_answer_of_the_card_for_an_earlier_move_is_not_heeded() {
    for answer in [None, Some(A as u16)] {
        let mut net = Net::moved_twice_and_asked_again();
        net.answer(B, 0, answer);
        net.turn(B);
        net.the_order_is_kept();
    }
}

/// The old queue's worker reads the card's answer first and has emptied its queue. The marker says so before the new worker has read the answer
/// itself: what comes by its queue is no surprise, and not let in before.
#[test]
fn a_marker_that_comes_before_the_cards_answer_is_kept() {
    let mut net = Net::new();
    let order = net.begin_move(B);
    for worker in [B, A, B, A, B] {
        net.turn(worker);
    }
    assert!(net.workers[B].moves.is_awaited(net.lane), "the card is asked");
    let answer = |net: &Net, to| {
        let asked = Some(MoveId { worker: B, number: 0 });
        net.shared.send(to, Message::Requeued { lane: net.lane, asked, queue: Some(B as u16) });
    };
    answer(&net, A);
    net.arrives(A, 1);
    net.turn(A);
    while net.workers[A].moves.is_draining() {
        net.turn_after(Duration::from_micros(50), A);
    }
    net.arrives(B, 2);
    net.turn(B);
    net.arrives(B, 3);
    net.turn(B);
    assert_eq!((net.received(), order.stage()), (vec![1], Stage::Sent));
    assert_eq!(net.workers[B].hosts.get(0).arrived().misdirected, 0);
    answer(&net, B);
    net.turn(B);
    assert_eq!((net.received(), order.stage()), (vec![2, 3], Stage::Done));
    net.arrives(B, 4);
    net.turn(B);
    assert_eq!((net.received(), net.workers[B].hosts.get(0).arrived().misdirected), (vec![4], 0));
}

/// Packets may be on their way to each of the queues that a bucket had within the last second, and are no surprise there.
#[test]
fn every_late_queue_of_a_bucket_is_remembered() {
    let mut net = Net::new();
    let say = |net: &mut Net, queue| {
        net.shared.send(A, Message::Requeued { lane: net.lane, asked: None, queue: Some(queue) });
        net.turn(A);
    };
    // From queue 0 to 5 to 6: both are late. Frames that come on 0 are not misdirected.
    say(&mut net, 5);
    say(&mut net, 6);
    net.arrives(A, 1);
    net.turn(A);
    assert_eq!(net.workers[A].hosts.get(0).arrived().misdirected, 0);
    net.turn_after(Duration::from_secs(1), A);
    net.arrives(A, 2);
    net.turn(A);
    assert_eq!(net.workers[A].hosts.get(0).arrived().misdirected, 1, "a second later it is one");
    assert_eq!(net.received(), [1, 2]);
}

/// A worker whose turn began before the lane was sent goes on with the time at which it was: the lane's clock does not go back.
#[test]
fn time_does_not_go_back_for_a_lane_that_moves() {
    let mut net = Net::new();
    net.begin_move(B);
    net.turn(B);
    let began = net.now;
    net.turn_after(Duration::from_millis(5), A);
    let sent = net.now;
    assert!(net.workers[A].lanes.get(net.lane).is_none(), "it is on its way");
    net.workers[B].now = began;
    net.workers[B].turn();
    assert!(net.workers[B].lanes.get(net.lane).is_some());
    assert_eq!(net.workers[B].now, sent);
    // Nor does a lane that has been on its way for long hold the time up.
    net.turn_after(Duration::from_millis(5), B);
    assert!(net.workers[B].now > sent);
}

/// What is said to both workers while the lane is at neither holds for it when it comes; its counts move with it.
#[test]
fn a_lane_under_way_follows_the_wish() {
    let mut net = Net::new();
    let wish = |net: &mut Net, config| {
        net.shared.top.set(config);
        [A, B].into_iter().for_each(|worker| net.shared.send(worker, Message::WatchFlows));
    };
    let config = flowlane_stack::top::TopConfig::new([1, 2]);
    let counted = |net: &mut Net, worker: usize| {
        let (to, from) = mpsc::sync_channel(1);
        net.shared.send(A, Message::TopFlows { lane: net.lane, from: 0, to });
        net.turn(A);
        net.turn(B);
        let (answer, _) = from.try_recv().expect("the question follows the lane");
        assert_eq!(answer.worker, worker);
        answer.top.map(|top| top.counted.packets)
    };
    net.begin_move(B);
    net.turn(B);
    net.turn(A);
    assert!(net.workers[A].lanes.get(net.lane).is_none(), "it is on its way");
    wish(&mut net, Some(config));
    net.turn(A);
    // B reads the message after the ring: the lane is there by then, and has been told. So only A reads it.
    let waiting: Vec<Message> = std::iter::from_fn(|| net.shared.posts[B].inbox.pop()).collect();
    let others = waiting.into_iter().filter(|message| !matches!(message, Message::WatchFlows));
    others.for_each(|message| net.shared.send(B, message));
    net.turn(B);
    assert!(net.workers[B].lanes.get(net.lane).is_some());
    assert_eq!(counted(&mut net, B), Some(0));
    // By way of the worker that it has left, whose frames are let in at once.
    net.arrives(A, 1);
    net.turn(A);
    net.turn(B);
    assert_eq!(counted(&mut net, B), Some(1));
    wish(&mut net, None);
    net.turn(B);
    assert_eq!(counted(&mut net, B), None);
}

/// The one who is to get a lane has ended before it comes: the counters of the lane are in the last report.
#[test]
fn a_lane_under_way_is_in_the_last_report() {
    let mut net = Net::new();
    (0..3).for_each(|n| net.arrives(A, n));
    net.turn(A);
    net.begin_move(B);
    let b = net.stop(B, Duration::ZERO);
    net.turn(B);
    net.turn(A);
    assert!(net.workers[A].lanes.get(net.lane).is_none(), "it is on its way");
    let a = net.stop(A, Duration::ZERO);
    net.turn(A);
    let lanes = net.end([a, b]);
    let seen: Vec<_> =
        lanes.iter().map(|l| (l.worker, l.counts.moves, l.counts.aligned, l.stats.udp.delivered)).collect();
    assert_eq!(seen, [(B, 1, 3, 3)]);
}

/// A lane that is parked when its worker is told to stop is reported there, once.
#[test]
fn who_is_told_to_stop_keeps_its_lanes() {
    for grace in [Duration::ZERO, Duration::from_secs(1)] {
        let mut net = Net::new();
        net.begin_move(B);
        net.turn(B);
        let stops = [A, B].map(|worker| net.stop(worker, grace));
        for worker in [A, B] {
            net.turn(worker);
            net.workers[worker].end_if_over();
        }
        let lanes = net.end(stops);
        assert_eq!(lanes.iter().map(|l| (l.worker, l.counts.moves)).collect::<Vec<_>>(), [(A, 0)]);
    }
}

/// Who ends its lanes' connections waits for a lane that is on its way to it, and ends that lane's, too.
#[test]
fn the_end_waits_for_a_lane_under_way() {
    let mut net = Net::new();
    net.begin_move(B);
    let b = net.stop(B, Duration::from_secs(1));
    net.turn(B);
    net.turn(A);
    net.workers[B].end_if_over();
    assert!(!net.workers[B].cycle.is_stopped());
    net.turn(B);
    assert!(net.workers[B].lanes.get(net.lane).is_some_and(|slot| slot.ending));
    net.workers[B].end_if_over();
    let a = net.stop(A, Duration::ZERO);
    net.turn(A);
    let lanes = net.end([a, b]);
    assert_eq!(lanes.iter().map(|l| (l.worker, l.counts.moves)).collect::<Vec<_>>(), [(B, 1)]);
}

/// What comes for a lane that is parked waits until its output has left, and goes with it.
#[test]
fn a_lane_goes_when_its_output_has_left() {
    let (mut net, _wanted) = Net::parked_with_a_frame();
    net.queues[A].shut(false);
    net.turn(A);
    assert_eq!((net.queues[A].taken(), net.workers[A].lanes.get(net.lane).is_some()), (1, false));
    net.arrives(A, 2);
    net.turn(A);
    net.turn(B);
    assert_eq!(net.received(), [1, 2]);
}

/// A move that is given up while the lane waits for its output: the lane stays, and gets what came meanwhile.
#[test]
fn a_lane_that_stays_gets_what_was_held() {
    let (mut net, wanted) = Net::parked_with_a_frame();
    assert!(wanted.give_up());
    net.turn(A);
    assert!(!net.workers[A].moves.is_leaving(net.lane));
    net.arrives(A, 2);
    net.turn(A);
    assert_eq!(net.received(), [1, 2]);
    net.turn(B);
    assert!(net.workers[B].lanes.get(net.lane).is_none());
}

/// A host with two links: the queue of one is empty at once, and a frame of the lane waits in that of the other.
#[test]
fn the_queues_of_all_links_are_emptied() {
    let mut net = Net::new();
    let second = Scripted::default();
    let queues = [net.queues[A].clone(), second.clone()];
    net.workers[A].ports = Ports::new(queues.map(|queue| port(queue, A as u16)).into(), None);
    net.begin_move(B);
    for worker in [B, A, B, A, B] {
        net.turn(worker);
    }
    assert!(net.workers[B].moves.is_awaited(net.lane), "the card is asked");
    for n in 0..3 * BURST {
        let flow = if n + 1 == 3 * BURST { net.flow } else { net.other };
        second.put(datagram(&net.workers[A].frames, flow, 1));
    }
    net.answer(B, 0, Some(B as u16));
    net.arrives(B, 2);
    for _ in 0..4 {
        net.turn_after(Duration::from_micros(50), A);
        net.turn(B);
    }
    assert!(!net.workers[A].moves.is_draining());
    assert_eq!(net.received(), [1, 2]);
}
