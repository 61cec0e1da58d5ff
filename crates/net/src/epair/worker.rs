//! A worker of a pair: some queues of both ends, read in turn.
//!
//! A *line* is one queue in one direction. In a turn each line that has packets passes on a burst of them, and each that holds packets lets
//! go those that are due. When no line has anything, the worker waits in `poll` for packets, its doorbell, or the next packet that falls due.
//!
//! A packet costs a read and a write, since a TAP interface takes no more at once. It is read into one buffer and written from there, so
//! it stays in the cache of one core. Nothing is allocated, and nothing locked.

use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowlane_rss::{HashType, Rss, Worker as RssWorker};
use flowlane_stack::steering::{NO_FLOW, rss_flow};
use flowlane_stack::wire::{Classified, classify};
use flowlane_sys::privilege;
use flowlane_sys::tun::{HEADER, LONGEST};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;

use super::counts::LineCounts;
use super::shared::{Rules, Shared};
use crate::impair::{Edges, Fate, Impairer, Offload, common_clock};

/// Packets of a line in one turn.
const BURST: usize = 64;
/// So many turns without a wait, and all lines are looked at.
const LOOK: u32 = 16;
/// A slot's opening is waited for awake when it is this close, nanoseconds: what it takes to be woken.
const NEAR: u64 = 60_000;

/// One queue in one direction.
struct Line {
    /// 0: from A to B.
    direction: usize,
    queue: usize,
    impairer: Impairer,
    edges: Edges,
    counts: LineCounts,
    /// Packets may be there to read.
    ready: bool,
    /// The interface has been removed.
    gone: bool,
}

/// Memory for one packet, and for a segment of it.
struct Buffers {
    packet: Box<[u8]>,
    segment: Box<[u8]>,
}

/// The thread's state.
pub(super) struct Worker {
    shared: Arc<Shared>,
    number: usize,
    lines: Vec<Line>,
    generation: u64,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Self {
        let rules = shared.rules();
        let ours = (number..shared.queues).step_by(shared.workers.len());
        let line = |queue: usize, direction: usize| {
            let seed = shared.seed ^ (direction as u64) << 32 ^ (queue as u64) << 40;
            Line {
                direction,
                queue,
                impairer: Impairer::new(
                    rules[direction].impairments.clone(),
                    seed,
                    rules[direction].wire.clone(),
                ),
                edges: Edges::default(),
                counts: LineCounts::default(),
                ready: true,
                gone: false,
            }
        };
        let lines = ours.flat_map(|queue| [line(queue, 0), line(queue, 1)]).collect();
        Self { shared, number, lines, generation: 0 }
    }

    pub(super) fn run(mut self) {
        // Packets need no privilege, and their times no slack. Neither failure is one of packets.
        let _ = privilege::drop_all();
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let shared = self.shared.clone();
        let bell = &shared.workers[self.number];
        let mut buffers = Buffers { packet: vec![0; LONGEST].into(), segment: vec![0; LONGEST].into() };
        let mut waits: Vec<PollFd<'_>> = vec![PollFd::from_borrowed_fd(bell.wire.as_fd(), PollFlags::IN)];
        let near = |line: &Line| shared.ends[line.direction].end.fd(line.queue);
        waits
            .extend(self.lines.iter().filter_map(near).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let mut turns = 0;
        while !shared.is_stopped() {
            self.follow_rules();
            let mut worked = false;
            for line in &mut self.lines {
                worked |= line.turn(&shared, &mut buffers);
            }
            turns = if worked { turns + 1 } else { 0 };
            if worked && turns % LOOK != 0 {
                continue;
            }
            let until = if worked { Some(0) } else { self.next(&shared) };
            bell.bell.prepare_sleep();
            if !shared.is_stopped() && shared.generation() == self.generation {
                self.wait(&mut waits, until);
            }
            bell.woke();
        }
    }

    /// Takes over impairments that were changed.
    fn follow_rules(&mut self) {
        let generation = self.shared.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let (rules, now) = (self.shared.rules(), self.shared.now());
        for line in &mut self.lines {
            let Rules { impairments, wire } = rules[line.direction].clone();
            line.impairer.set(now, impairments, wire);
        }
    }

    /// How long there is nothing to do unless packets come, nanoseconds; `None`: for ever.
    fn next(&self, shared: &Shared) -> Option<u64> {
        let now = shared.now();
        self.lines.iter().filter_map(|line| line.next(now)).min()
    }

    /// Waits for packets, the doorbell, or until so many nanoseconds have passed.
    fn wait(&mut self, waits: &mut [PollFd<'_>], until: Option<u64>) {
        let until = until
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ });
        // A descriptor without interface reports its error for ever; the pair is about to end.
        let gone = self.lines.iter().any(|line| line.gone);
        let waits = if gone { &mut waits[..1] } else { waits };
        // Interrupted or not: all that is said to be ready is looked at.
        let _ = poll(waits, until.as_ref());
        for (line, fd) in self.lines.iter_mut().zip(&mut waits[1..]) {
            line.ready = !fd.revents().is_empty();
        }
        if let Some(line) = self.lines.first_mut() {
            line.counts.system_calls += 1;
        }
    }
}

impl Line {
    /// Passes on a burst, and what is due: whether there was any.
    fn turn(&mut self, shared: &Shared, buffers: &mut Buffers) -> bool {
        let mut worked = self.impairer.waiting() > 0 && self.release(shared);
        if self.ready {
            worked |= self.receive(shared, buffers);
        }
        if worked {
            self.publish(shared);
        }
        worked
    }

    fn publish(&mut self, shared: &Shared) {
        let what = self.impairer.counts();
        let counts = LineCounts {
            lost: what.lost,
            corrupted: what.corrupted,
            duplicated: what.duplicated,
            reordered: what.reordered,
            queue_full: what.full,
            waiting: self.impairer.waiting() as u64,
            ..self.counts
        };
        shared.counts[self.direction][self.queue].store(&counts);
        if self.impairer.rules().slots.is_some()
            && let Ok(mut edges) = shared.edges[self.direction][self.queue].try_lock()
        {
            edges.clone_from(&self.edges);
        }
    }

    fn receive(&mut self, shared: &Shared, buffers: &mut Buffers) -> bool {
        let near = &shared.ends[self.direction].end;
        for n in 0..BURST {
            self.counts.system_calls += 1;
            match near.read(self.queue, &mut buffers.packet) {
                Ok(len) => self.packet(shared, buffers, len),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    self.ready = false;
                    self.gone = e.kind() != ErrorKind::WouldBlock;
                    return n > 0;
                }
            }
        }
        true
    }

    /// Passes on the packet in the buffer, or keeps it, or drops it.
    #[inline]
    fn packet(&mut self, shared: &Shared, buffers: &mut Buffers, len: usize) {
        const ETHERNET: usize = 14;
        const TAG: usize = 4;
        if !(HEADER + ETHERNET..LONGEST).contains(&len) {
            self.counts.bad_length += 1;
            return;
        }
        let packet = &mut buffers.packet[..len];
        // As on a veth: what is to be segmented is not asked for its length.
        let far_mtu = shared.ends[1 - self.direction].mtu.load(Ordering::Relaxed) as usize;
        if packet[1] == 0 && len - HEADER > far_mtu + ETHERNET + TAG {
            self.counts.oversize += 1;
            return;
        }
        let queue = queue_of(&shared.rss, &packet[HEADER..], shared.queues);
        self.counts.requeued += u64::from(usize::from(queue) != self.queue);
        if self.impairer.rules().is_none() && self.impairer.waiting() == 0 {
            self.write(shared, queue, packet);
            return;
        }
        let offload = Offload::of(packet);
        let bytes = offload.map_or((len - HEADER) as u64, |offload| offload.wire_bytes());
        match offload {
            Some(offload) if self.impairer.rules().cuts(bytes) => {
                self.counts.cut += 1;
                let mut segments = offload.cut(packet);
                while let Some(len) = segments.next(&mut buffers.segment) {
                    self.offer(shared, queue, &mut buffers.segment[..len], (len - HEADER) as u64);
                }
            }
            _ => self.offer(shared, queue, packet, bytes),
        }
    }

    fn offer(&mut self, shared: &Shared, queue: u16, packet: &mut [u8], bytes: u64) {
        match self.impairer.offer(shared.now(), packet, queue, bytes) {
            Fate::Pass(times) => (0..times).for_each(|_| self.write(shared, queue, packet)),
            Fate::Held | Fate::Lost | Fate::Full => {}
        }
    }

    #[inline]
    fn write(&mut self, shared: &Shared, queue: u16, packet: &[u8]) {
        write(&mut self.counts, shared, self.direction, queue, packet);
    }

    /// Lets go what is due, at most a burst: whether there was any.
    fn release(&mut self, shared: &Shared) -> bool {
        let slots = self.impairer.rules().slots;
        let mut now = shared.now();
        for n in 0..BURST {
            let begun = match slots {
                None => 0,
                Some(slots) => {
                    let clock = common_clock();
                    now = shared.now();
                    if clock < slots.window(clock).opens {
                        return n > 0;
                    }
                    clock
                }
            };
            let Some((due, queue, packet)) = self.impairer.release(now) else { return n > 0 };
            write(&mut self.counts, shared, self.direction, queue, packet);
            if let Some(slots) = slots {
                let ready = begun.saturating_sub(now.saturating_sub(due));
                self.edges.sent(&slots, ready, begun, common_clock());
            }
        }
        true
    }

    /// How long until something that waits may leave, nanoseconds.
    fn next(&self, now: u64) -> Option<u64> {
        let left = self.impairer.next_due()?.saturating_sub(now);
        let Some(slots) = self.impairer.rules().slots.filter(|_| left == 0) else { return Some(left) };
        let clock = common_clock();
        // Close to the opening the worker stays awake.
        Some(slots.window(clock).opens.saturating_sub(clock).saturating_sub(NEAR))
    }
}

/// Has the far kernel receive a packet.
#[inline]
fn write(counts: &mut LineCounts, shared: &Shared, direction: usize, queue: u16, packet: &[u8]) {
    counts.system_calls += 1;
    match shared.ends[1 - direction].end.write(usize::from(queue), packet) {
        Ok(()) => {
            counts.packets += 1;
            counts.bytes += (packet.len() - HEADER) as u64;
            counts.segments += Offload::of(packet).map_or(1, |offload| offload.segments() as u64);
        }
        // Down, or removed.
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::IO | Errno::BADFD)) => counts.far_down += 1,
        Err(_) => counts.refused += 1,
    }
}

/// The queue that the hash of a frame names.
#[inline]
fn queue_of(rss: &Rss, frame: &[u8], queues: usize) -> u16 {
    if queues == 1 {
        return 0;
    }
    let bucket = match classify(frame) {
        Classified::Ip(flow) => match rss.software_hash(&rss_flow(&flow)) {
            (_, HashType::None) => NO_FLOW,
            (hash, _) => rss.bucket_of(hash),
        },
        Classified::Other(_) | Classified::Short => NO_FLOW,
    };
    let RssWorker(queue) = rss.buckets.worker_of(bucket);
    queue % queues as u16
}
