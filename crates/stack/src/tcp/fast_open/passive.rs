//! Fast Open at a listener (RFC 7413 §4.1.2, §4.2.1, §5.1).

use super::super::connection::Connection;
use super::super::lane::Core;
use super::super::listen::Listener;
use super::super::segment::Segment;
use super::super::table::Tuple;
use super::{FastOpenKeys, FastOpenListen, Marks, as_option, cookie};
use crate::packet::Cx;
use crate::time::Time;
use crate::wire::{FastOpenOption, TcpFlags};
use core::time::Duration;
use std::collections::VecDeque;

/// How long a pending connection that its peer has reset counts on: who forges SYNs makes the owners of the addresses reset
/// them, and must not get new room by that (RFC 7413 §5.1).
const RESET_COUNTS: Duration = Duration::from_secs(60);

/// A listener's early connections.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Handshakes of early connections under way.
    pending: u32,
    /// Until when those that were reset still count.
    resets: VecDeque<Time>,
}

impl Waiting {
    /// Whether one more may be begun.
    fn has_room(&mut self, now: Time, most: u32) -> bool {
        while self.resets.front().is_some_and(|until| *until <= now) {
            self.resets.pop_front();
        }
        (self.pending as usize).saturating_add(self.resets.len()) < most as usize
    }

    /// Those that count now.
    pub(crate) fn count(&self) -> usize {
        self.pending as usize + self.resets.len()
    }
}

/// What is done about a SYN.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Welcome {
    /// The connection may be used at once.
    pub(crate) early: bool,
    /// Goes with the SYN-ACK.
    answer: Option<FastOpenOption>,
}

impl Core {
    /// Looks at a SYN for Fast Open.
    pub(crate) fn fast_open_welcome(
        &mut self,
        now: Time,
        slot: u32,
        tuple: &Tuple,
        seg: &Segment,
    ) -> Welcome {
        let no = Welcome::default();
        let asked = seg.options.fast_open;
        let Some(listener) = self.listeners.slot_mut(slot) else { return no };
        let Some(told) = listener.options.fast_open.filter(|told| told.pending > 0) else { return no };
        if asked.is_none() && seg.len == 0 {
            return no;
        }
        self.stats.fast_open_cookies_asked += u64::from(asked.is_some_and(|option| option.is_request()));
        if !listener.early.has_room(now, told.pending) {
            // RFC 7413 §5.1: beyond the limit Fast Open is as if it were off.
            self.stats.fast_open_overflows += 1;
            return no;
        }
        if told.no_cookie {
            return Welcome { early: true, answer: None };
        }
        let Some(asked) = asked else { return no };
        let (primary, former) = self.fast_open_keys_of(&told).bytes();
        let made = |key: &[u8; 16]| cookie(key, tuple.remote, tuple.local);
        let fresh = made(&primary);
        let answer = as_option(fresh, asked.is_experimental());
        if asked.is_request() {
            return Welcome { early: false, answer };
        }
        if asked.as_slice() == fresh {
            return Welcome { early: true, answer: None };
        }
        if former.is_some_and(|former| asked.as_slice() == made(&former)) {
            self.stats.fast_open_former_keys += 1;
            return Welcome { early: true, answer };
        }
        self.stats.fast_open_passive_refused += 1;
        Welcome { early: false, answer }
    }

    fn fast_open_keys_of(&self, told: &FastOpenListen) -> FastOpenKeys {
        told.keys.or(self.config.fast_open_keys).unwrap_or(self.fast_open_keys)
    }

    /// Notes at a new passive connection what was decided.
    pub(crate) fn fast_open_mark(&mut self, c: &mut Connection, welcome: &Welcome) {
        if welcome.early {
            c.fast.put(Marks::EARLY | Marks::PENDING, true);
            // The SYN is no small segment that Nagle's algorithm would wait for.
            c.snd.none_is_small();
            if let Some(listener) = self.listeners.slot_mut(c.listener()) {
                listener.early.pending += 1;
            }
        }
        if welcome.answer.is_some() {
            c.rare_mut().fast_open = welcome.answer;
        }
    }

    /// The handshake of an early connection is over, one way or the other.
    pub(crate) fn fast_open_over(&mut self, c: &mut Connection) {
        if c.fast.has(Marks::PENDING) {
            c.fast.put(Marks::PENDING, false);
            if let Some(listener) = self.listeners.of(c) {
                listener.early.pending = listener.early.pending.saturating_sub(1);
            }
        }
    }

    /// The peer resets an early connection.
    pub(crate) fn fast_open_reset(&mut self, c: &mut Connection, now: Time) {
        if c.fast.has(Marks::PENDING) {
            self.fast_open_over(c);
            if let Some(listener) = self.listeners.of(c) {
                listener.early.resets.push_back(now + RESET_COUNTS);
                self.stats.fast_open_passive_resets += 1;
            }
        }
    }
}

impl Connection {
    /// An early connection has come: into the accept queue, with the data of its SYN.
    pub(crate) fn open_early(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &mut Segment) {
        if let Some(listener) = core.listeners.of(self) {
            enqueue(listener, self);
        }
        core.stats.fast_open_passive += 1;
        core.stats.connection_accepts += 1;
        if seg.len > 0 {
            seg.seq += 1;
            seg.flags = seg.flags.without(TcpFlags::SYN);
            let before = self.rcv.nxt();
            if let Err(super::super::input::Stop::Drop(reason)) = self.take_data(core, cx, seg) {
                core.stats.drop(reason);
            }
            self.fast.put(Marks::SYN_DATA, self.rcv.nxt() != before);
        }
    }
}

fn enqueue(listener: &mut Listener, c: &mut Connection) {
    listener.queue.push_back(c.id());
    c.set_in_accept_queue(true);
    if let Some(waker) = listener.waker.take() {
        waker.wake();
    }
}
