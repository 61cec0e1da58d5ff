//! The way out of one interface, for the fast path of datagrams: what it asks for each of a batch, borrowed once.

use std::collections::VecDeque;

use flowlane_sys::frame::Frame;

use super::{Ip, OUTPUT};
use crate::interface::Interface;
use crate::route::Routes;
use crate::stats::LaneStats;

/// An interface with its output queue and the routes that lead there.
pub(crate) struct Line<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) routes: &'a Routes,
    queue: &'a mut VecDeque<Frame>,
    /// Frames in all queues.
    len: &'a mut usize,
    stats: &'a mut LaneStats,
}

impl Ip {
    /// The way out of an interface.
    #[inline(always)]
    pub(crate) fn line(&mut self, interface: u8) -> Option<Line<'_>> {
        let (queue, len) = self.output.queue_of(interface)?;
        let interface = self.interfaces.get(usize::from(interface))?;
        Some(Line { interface, routes: &self.routes, queue, len, stats: &mut self.stats })
    }
}

impl Line<'_> {
    /// How many packets find room in the output queue.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        OUTPUT.saturating_sub(self.queue.len())
    }

    /// Puts a datagram's frame into the output queue. There is to be [room](Self::room), and it is to be [counted](Self::sent).
    #[inline(always)]
    pub(crate) fn push(&mut self, frame: Frame) {
        self.queue.push_back(frame);
    }

    /// So many datagrams, in frames of so many bytes, were put into the queue.
    #[inline(always)]
    pub(crate) fn sent(self, datagrams: u64, bytes: u64) {
        self.stats.udp.sent += datagrams;
        self.stats.ip.sent += datagrams;
        self.stats.ethernet.sent += datagrams;
        self.stats.ethernet.sent_bytes += bytes;
        *self.len += datagrams as usize;
    }

    /// So many of them are in the frames in which they came.
    #[inline(always)]
    pub(crate) fn sent_on_original(&mut self, datagrams: u64) {
        self.stats.udp.sent_on_original += datagrams;
    }
}
