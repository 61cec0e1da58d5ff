//! Output queues: one for each interface, tunnels included.
//!
//! Each interface has its own queue, because links have room at different times: frames for a link that is full or down do not block
//! others. Within a queue frames keep their order. The queues of interfaces with room are served in turn.
//!
//! Each queue has its own bound ([`OUTPUT`](super::OUTPUT) and [`RESERVE`](super::RESERVE)), so a link that takes nothing fills only its
//! own queue.

use std::collections::VecDeque;

use flowlane_sys::frame::Frame;

use super::Ip;
use super::routers::Routers;
use crate::queue::append_all;
use crate::route::Routes;
use crate::tunnel::{MAX_LEVEL, Tunnels};

/// The output queues of a lane.
#[derive(Debug)]
pub(crate) struct Queues {
    each: Box<[VecDeque<Frame>]>,
    /// Frames in all of them.
    len: usize,
    /// The queue that is asked first.
    next: usize,
    /// What is put in is watched: where the first frame went since then.
    watch: Watch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    Off,
    On,
    Seen { interface: u8, at: usize },
}

impl Queues {
    pub(super) fn new(interfaces: usize) -> Self {
        let queue = |_| VecDeque::with_capacity(64);
        Self { each: (0..interfaces).map(queue).collect(), len: 0, next: 0, watch: Watch::Off }
    }

    /// Frames in all queues.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Frames that wait for one interface.
    #[inline]
    pub(super) fn len_of(&self, interface: u8) -> usize {
        self.each.get(usize::from(interface)).map_or(0, VecDeque::len)
    }

    /// Whether there is one interface only, so that nothing need be looked up to know which queue is meant.
    #[inline]
    pub(super) fn is_one(&self) -> bool {
        self.each.len() == 1
    }

    /// Puts a frame into the queue of its interface.
    #[inline]
    pub(super) fn push(&mut self, frame: Frame) {
        let interface = frame.meta().interface;
        // The interface was looked up before its header was written.
        let Some(queue) = self.each.get_mut(usize::from(interface)) else { return };
        if self.watch == Watch::On {
            self.watch = Watch::Seen { interface, at: queue.len() };
        }
        queue.push_back(frame);
        self.len += 1;
    }

    /// The queue of an interface, and the number of frames in all: who puts one in counts it. Not while what is put in is
    /// [watched](Queues::watch).
    #[inline(always)]
    pub(super) fn queue_of(&mut self, interface: u8) -> Option<(&mut VecDeque<Frame>, &mut usize)> {
        debug_assert_eq!(self.watch, Watch::Off);
        Some((self.each.get_mut(usize::from(interface))?, &mut self.len))
    }

    /// Takes note of where the next frame goes, for [`Queues::pop_watched`].
    #[inline]
    pub(super) fn watch(&mut self) {
        self.watch = Watch::On;
    }

    /// Takes the first frame out that was put in since [`Queues::watch`].
    #[inline]
    pub(super) fn pop_watched(&mut self) -> Option<Frame> {
        let Watch::Seen { interface, at } = std::mem::replace(&mut self.watch, Watch::Off) else {
            return None;
        };
        let frame = self.each.get_mut(usize::from(interface))?.remove(at)?;
        self.len -= 1;
        Some(frame)
    }

    /// The next frame of the queues that are `open`.
    #[inline]
    pub(super) fn pop(&mut self, open: impl Fn(u8) -> bool) -> Option<Frame> {
        if self.len == 0 {
            return None;
        }
        let count = self.each.len();
        let mut at = self.next;
        for _ in 0..count {
            if at >= count {
                at = 0;
            }
            if open(at as u8) {
                if let Some(frame) = self.each[at].pop_front() {
                    self.next = at + 1;
                    self.len -= 1;
                    return Some(frame);
                }
            }
            at += 1;
        }
        None
    }

    /// Moves up to `max` frames to `into`, where there is one interface.
    #[inline]
    pub(super) fn drain(&mut self, max: usize, into: &mut Vec<Frame>) -> usize {
        let [only] = &mut *self.each else {
            let before = into.len();
            into.extend(std::iter::from_fn(|| self.pop(|_| true)).take(max));
            return into.len() - before;
        };
        let n = only.len().min(max);
        if n == only.len() {
            append_all(only, into);
        } else {
            into.extend(only.drain(..n));
        }
        self.len -= n;
        n
    }
}

/// The links of a host and how much room each has, for a lane that is asked for output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ways<'a> {
    room: &'a [usize],
    routes: &'a Routes,
    routers: &'a Routers,
    tunnels: &'a Tunnels,
}

impl<'a> Ways<'a> {
    fn new(room: &'a [usize], routes: &'a Routes, routers: &'a Routers, tunnels: &'a Tunnels) -> Self {
        Self { room, routes, routers, tunnels }
    }

    /// Whether a link has room; `true` for a link that is not listed.
    #[inline]
    pub(crate) fn is_open(&self, link: u8) -> bool {
        self.room.get(usize::from(link)).is_none_or(|room| *room > 0)
    }

    /// The link that what is for an interface leaves by: itself, or that of the tunnel's outer packets.
    fn link_of(&self, mut interface: u8) -> Option<u8> {
        for _ in 0..=MAX_LEVEL {
            let Some(remote) = self.tunnels.remote(interface) else { return Some(interface) };
            interface = self.routes.hop(remote)?.interface;
        }
        None
    }

    /// Whether what is for an interface can leave. What has no way at all can: it is dropped, and counted, where that is
    /// found out.
    #[inline]
    fn is_open_for(&self, interface: u8) -> bool {
        self.link_of(interface).is_none_or(|link| self.is_open(link))
    }

    /// The link without room that what is for `destination` has to wait for.
    pub(crate) fn closed(&self, destination: core::net::IpAddr) -> Option<u8> {
        let link = self.link_of(self.routers.lead(self.routes, destination)?.interface)?;
        (!self.is_open(link)).then_some(link)
    }
}

impl Ip {
    /// The ways out, with the room that each link has.
    pub(crate) fn ways<'a>(&'a self, room: &'a [usize]) -> Ways<'a> {
        Ways::new(room, &self.routes, &self.routers, &self.tunnels)
    }

    /// The next frame to be sent, of links that have room where that is told.
    #[inline]
    pub(crate) fn poll_output(&mut self, room: Option<&[usize]>) -> Option<Frame> {
        let Some(room) = room else { return self.output.pop(|_| true) };
        let ways = Ways::new(room, &self.routes, &self.routers, &self.tunnels);
        self.output.pop(|interface| ways.is_open_for(interface))
    }

    /// What is sent from now on is taken out with [`Ip::poll_watched`].
    #[inline]
    pub(crate) fn watch_output(&mut self) {
        self.output.watch();
    }

    /// The first frame that was put into a queue since [`Ip::watch_output`]: what was sent out of turn.
    #[inline]
    pub(crate) fn poll_watched(&mut self) -> Option<Frame> {
        self.output.pop_watched()
    }

    /// Moves up to `max` frames that are to be sent to `into`.
    #[inline]
    pub(crate) fn drain_output(&mut self, max: usize, into: &mut Vec<Frame>) -> usize {
        self.output.drain(max, into)
    }

    /// Frames waiting to be sent.
    #[inline]
    pub(crate) fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Frames that wait for one interface.
    #[inline]
    pub(super) fn output_len_of(&self, interface: u8) -> usize {
        self.output.len_of(interface)
    }

    /// Whether another packet finds room in the output queue of an interface.
    #[inline]
    pub(crate) fn has_room(&self, interface: u8) -> bool {
        self.output.len_of(interface) < super::OUTPUT
    }

    /// The interface whose queue a packet to `destination` would stand in.
    #[inline]
    pub(crate) fn output_interface(&self, destination: core::net::IpAddr) -> u8 {
        if self.output.is_one() {
            return 0;
        }
        self.hop(destination).map_or(0, |hop| hop.interface)
    }
}
