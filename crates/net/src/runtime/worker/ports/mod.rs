//! Where work comes from outside, and where output goes: the worker's queues of links, and the kernel's sockets.
//!
//! A link is asked for room before lanes are asked for output, and is given what they put out at the end of the turn. [`stall`] decides
//! when a link that took nothing is tried again, and when it is given up.

mod doors;
mod stall;

pub(crate) use doors::{Door, Doors};
pub(super) use stall::Backoff;

use std::os::fd::BorrowedFd;

use flowlane_stack::time::Time;
use flowlane_sys::frame::{Frame, Pool};

use self::stall::Stall;
use crate::events;
use crate::kernel::{News, Poller};
use crate::lane::LaneSlot;
use crate::link::pair::QuirkCounts;
use crate::link::{Life, Queue};
use crate::runtime::relay::Relay;
use crate::stats::QueueReport;

/// Frames taken at once for a dead link, to be dropped.
const INTO_THE_VOID: usize = 256;

/// A queue of a link at its worker, or what stands for the link at a worker that has none of its queues.
pub(crate) struct Port {
    queue: Box<dyn Queue>,
    /// Number of the link among those of the runtime.
    link: usize,
    /// Number of the queue within the link; `None` for one of another worker.
    index: Option<u16>,
    /// The interfaces on the link.
    doors: Doors,
    /// What comes from workers that have no queue of the link.
    relays: Vec<Relay>,
    /// Some of it found no room.
    relays_wait: bool,
    /// The interface under it, and the MTU of its that the lanes here know.
    life: Option<Life>,
    mtu: u16,
    /// Frames to be sent.
    output: Vec<Frame>,
    room: usize,
    /// A lane has output for it, and there was no room.
    wanted: bool,
    /// It did not take all lately.
    stall: Option<Stall>,
    /// Frames dropped because the link is dead.
    dropped: u64,
    /// Its descriptor is not worth waiting for any more.
    broken: bool,
}

impl Port {
    /// For a link of this number and these interfaces.
    pub(crate) fn new(
        queue: Box<dyn Queue>,
        link: usize,
        index: Option<u16>,
        (life, mtu): (Option<Life>, u16),
        doors: Doors,
    ) -> Self {
        Self {
            queue,
            link,
            index,
            doors,
            relays: Vec::new(),
            relays_wait: false,
            life,
            mtu,
            output: Vec::with_capacity(256),
            room: 0,
            wanted: false,
            stall: None,
            dropped: 0,
            broken: false,
        }
    }

    /// Number of the link among those of the runtime.
    pub(crate) fn link(&self) -> usize {
        self.link
    }

    /// Number of the queue within the link; `None` for one of another worker.
    #[inline]
    pub(crate) fn index(&self) -> Option<u16> {
        self.index
    }

    /// The interfaces on the link.
    #[inline]
    pub(crate) fn doors(&self) -> &Doors {
        &self.doors
    }

    /// It sends for a worker that has no queue of the link, too.
    pub(crate) fn send_for(&mut self, relay: Relay) {
        self.relays.push(relay);
    }

    /// Frames that are to be sent at the end of the turn.
    pub(super) fn output(&self) -> &[Frame] {
        &self.output
    }

    /// Takes up to `most` frames into a list, and returns how many.
    #[inline]
    pub(super) fn receive(&mut self, frames: &Pool, into: &mut Vec<Frame>, most: usize) -> usize {
        self.queue.receive(frames, into, most)
    }

    /// Whether frames that are not taken wait in the queue, and are not lost.
    #[inline]
    pub(super) fn keeps_what_is_left(&self) -> bool {
        self.queue.waits()
    }

    /// Whether frames wait in the queue.
    pub(super) fn ready(&mut self) -> bool {
        self.queue.ready()
    }

    /// How many frames lanes may put out for this link now.
    #[inline]
    fn find_room(&mut self) {
        self.room = self.queue.room().saturating_sub(self.output.len());
        if self.stall.is_some_and(|s| s.is_dead()) {
            self.room = self.room.max(INTO_THE_VOID);
        }
    }

    /// Whether frames of other workers wait that the link may take now. While it stands still nobody need stay awake for them: it is asked
    /// again when that is due.
    fn has_relayed(&mut self) -> bool {
        self.stall.is_none() && self.relays.iter_mut().any(Relay::ready)
    }

    /// Gives the link what is to be sent. `true` if it took something.
    #[inline]
    fn send(&mut self, now: Time) -> bool {
        let taken = match self.output.is_empty() {
            true => 0,
            false => self.queue.transmit(&mut self.output),
        };
        let all = self.queue.flush();
        if all && self.output.is_empty() {
            self.relays.iter_mut().for_each(Relay::handed_over);
        }
        if !all || self.wanted || self.relays_wait || !self.output.is_empty() || self.stall.is_some() {
            self.stalls(now, taken, all);
        }
        taken > 0
    }

    /// The link has not taken all, or did not lately.
    #[cold]
    fn stalls(&mut self, now: Time, taken: usize, all: bool) {
        let room = self.queue.room();
        let stall = self.stall.get_or_insert(Stall::new(now, room));
        let was_dead = stall.is_dead();
        stall.look(now, taken, room);
        if stall.is_dead() != was_dead {
            events::link_dead(self.link, self.index, stall.is_dead());
        }
        if stall.is_dead() {
            self.dropped += self.output.len() as u64;
            self.output.clear();
            self.relays.iter_mut().for_each(Relay::handed_over);
        } else if all && room > 0 && self.output.is_empty() && !self.wanted && !self.relays_wait {
            self.stall = None;
        }
    }

    /// What the queue counted; nothing where it is another worker's and nothing was dropped here.
    fn report(&self) -> Option<QueueReport> {
        if self.index.is_none() && self.dropped == 0 {
            return None;
        }
        let mut stats = self.queue.stats();
        stats.tx_failed += self.dropped;
        Some(QueueReport {
            host: self.doors.first().host,
            interface: self.doors.first().interface,
            queue: self.index,
            stats,
            outstanding: self.queue.outstanding(),
            quirks: self.queue.quirks().and_then(QuirkCounts::of),
        })
    }
}

/// All ports of a worker, and its poller of kernel sockets, where there are some.
pub(crate) struct Ports {
    all: Vec<Port>,
    poller: Option<Poller>,
    /// Where a burst is received into, between bursts.
    burst: Vec<Frame>,
}

impl Ports {
    /// Takes them over, on the worker's thread.
    pub(super) fn new(all: Vec<Port>, mut poller: Option<Poller>) -> Self {
        if let Some(poller) = &mut poller {
            poller.begin();
        }
        Self { all, poller, burst: Vec::with_capacity(256) }
    }

    /// Whether only sockets of the kernel can bring work.
    #[inline]
    pub(super) fn are_kernels_only(&self) -> bool {
        self.poller.is_some() && self.all.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    #[inline]
    pub(super) fn get(&self, port: usize) -> &Port {
        &self.all[port]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, port: usize) -> &mut Port {
        &mut self.all[port]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Port> {
        self.all.iter()
    }

    /// The ports with this queue of their link.
    pub(super) fn of_queue(&self, queue: u16) -> impl Iterator<Item = (usize, &Port)> {
        self.all.iter().enumerate().filter(move |(_, port)| port.index == Some(queue))
    }

    /// The poller of kernel sockets.
    pub(super) fn poller(&mut self) -> Option<&mut Poller> {
        self.poller.as_mut()
    }

    /// An empty list to receive bursts into, to be [given back](Self::put_burst).
    #[inline]
    pub(super) fn take_burst(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.burst)
    }

    #[inline]
    pub(super) fn put_burst(&mut self, burst: Vec<Frame>) {
        self.burst = burst;
    }

    /// Whether frames wait to be received, or to be sent for others.
    pub(super) fn have_work(&mut self) -> bool {
        self.all.iter_mut().any(|p| p.queue.ready() || p.has_relayed())
    }

    /// Finds out how much each link takes now.
    #[inline]
    pub(super) fn find_room(&mut self) {
        self.all.iter_mut().for_each(Port::find_room);
    }

    /// What workers without a queue of a link send on one of this worker: before the output of the lanes here, so that a lane that has
    /// come from there does not overtake itself.
    #[inline]
    pub(super) fn take_relayed(&mut self) -> bool {
        let mut busy = false;
        for port in &mut self.all {
            if port.relays.is_empty() {
                continue;
            }
            port.find_room();
            for relay in &mut port.relays {
                let n = relay.receive(port.room, &mut port.output);
                port.room -= n;
                busy |= n > 0;
            }
            port.relays_wait = port.relays.iter_mut().any(Relay::ready);
        }
        busy
    }

    /// Moves a lane's output to these ports while they have room. `true` if something is left.
    pub(super) fn drain(&mut self, slot: &mut LaneSlot, ports: &[usize], now: Time, frames: &Pool) -> bool {
        if let [only] = ports[..] {
            let port = &mut self.all[only];
            port.room -= slot.lane.drain_output(now, frames, port.room, &mut port.output);
            return slot.lane.has_output();
        }
        if !slot.lane.has_output() {
            return false;
        }
        let LaneSlot { lane, rooms, .. } = slot;
        rooms.clear();
        rooms.extend(ports.iter().map(|p| self.all[*p].room));
        while let Some(frame) = lane.poll_output_to(now, frames, rooms) {
            let Some(&p) = ports.get(usize::from(frame.meta().interface)) else { continue };
            // One that waited behind another, for its neighbour's answer, may come where there is no room.
            let port = &mut self.all[p];
            port.room = port.room.saturating_sub(1);
            port.output.push(frame);
            // Several interfaces may be on one link.
            for (room, _) in rooms.iter_mut().zip(ports).filter(|(_, q)| **q == p) {
                *room = port.room;
            }
        }
        // What is left waits for room, or for a free frame.
        lane.has_output()
    }

    /// A lane has output left for these ports: those without room are looked at again. Whether there are any.
    pub(super) fn want(&mut self, ports: &[usize]) -> bool {
        let mut full = false;
        for p in ports {
            let port = &mut self.all[*p];
            port.wanted |= port.room == 0;
            full |= port.room == 0;
        }
        full
    }

    /// Whether a port that is wanted has room again.
    pub(super) fn found_room(&mut self) -> bool {
        let mut found = false;
        for port in self.all.iter_mut().filter(|p| p.wanted) {
            port.find_room();
            if port.room > 0 {
                port.wanted = false;
                found = true;
            }
        }
        found
    }

    /// Gives the links what the lanes put out, and lets them hand it over. `true` if one took something.
    #[inline]
    pub(super) fn send(&mut self, now: Time) -> bool {
        self.all.iter_mut().fold(false, |busy, port| busy | port.send(now))
    }

    /// Gives these ports' links what is to be sent. `true` once all is with their other side.
    pub(super) fn push_out(&mut self, ports: &[usize]) -> bool {
        ports.iter().fold(true, |all, p| {
            let port = &mut self.all[*p];
            port.queue.transmit(&mut port.output);
            port.queue.flush() & port.output.is_empty() & all
        })
    }

    /// When a link is to be asked again that took nothing.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.all.iter().filter_map(|p| p.stall.as_ref()).map(Stall::retry_at).min()
    }

    /// The next link whose MTU has changed, from this port on: its port, and the MTU now.
    #[inline]
    pub(super) fn next_new_mtu(&mut self, from: usize) -> Option<(usize, u16)> {
        self.all.iter_mut().enumerate().skip(from).find_map(|(p, port)| {
            let mtu = port.life.as_ref().map(Life::mtu).filter(|mtu| *mtu != port.mtu)?;
            port.mtu = mtu;
            Some((p, mtu))
        })
    }

    /// The interfaces of a host that are on links here, each with its MTU.
    pub(super) fn mtus_of(&self, host: usize) -> impl Iterator<Item = (u8, u16)> {
        let of_host = move |port: &Port| {
            let (doors, mtu) = (port.doors.clone(), port.mtu);
            let here: Vec<Door> = doors.all().filter(|door| door.host == host).collect();
            here.into_iter().map(move |door| (door.interface, mtu))
        };
        self.all.iter().flat_map(of_host)
    }

    /// What the kernel says about its sockets, each with the index of its lane. `true` if there may be something.
    #[inline]
    pub(super) fn take_news(&mut self, now: Time, idle: bool, take: impl FnMut(usize, News)) -> bool {
        let Some(poller) = &mut self.poller else { return false };
        if !poller.look(now, idle) {
            return false;
        }
        poller.drain(take);
        true
    }

    /// The descriptors that are worth waiting for: those of links, and then that of the poller.
    pub(super) fn to_wait_for(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let links = self.all.iter().filter(|p| !p.broken).filter_map(|p| p.queue.fd());
        links.chain(self.poller.as_ref().map(Poller::fd))
    }

    /// Links' descriptors report errors, an interface is down or gone: that must not end every sleep from now on.
    /// `failed` counts what was [waited for](Self::to_wait_for).
    #[cold]
    pub(super) fn clear_errors(&mut self, failed: &[usize]) {
        let waited_for = self.all.iter_mut().filter(|p| !p.broken && p.queue.fd().is_some());
        for (i, port) in waited_for.enumerate() {
            if failed.contains(&i) {
                port.broken = !port.queue.clear_error();
            }
        }
    }

    /// What the queues here counted.
    pub(super) fn report(&self) -> Vec<QueueReport> {
        self.all.iter().filter_map(Port::report).collect()
    }
}
