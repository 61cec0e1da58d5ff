//! What Linux makes of a stream that is written: how much a write takes, when there is room again, and what is told of it
//! afterwards on the error queue.
//!
//! A lane bounds bytes. Linux bounds the memory of its socket buffers: a write fills a buffer of up to half of the peer's
//! largest window, a new one is begun while those queued cost less than `SO_SNDBUF` and less than `TCP_NOTSENT_LOWAT` waits to be
//! sent. Programs see this in what `write` returns and in when `poll` says that there is room, so it is modelled here; the
//! lane behind it takes whatever the model lets through.

use std::collections::VecDeque;

use flowlane_stack::tcp::{State, TcpInfo};
use flowlane_stack::time::Time;

use crate::chrono::{Chrono, Limit};
use crate::errqueue::{Errors, Stamp};

/// What a socket buffer costs beside its bytes (`SKB_TRUESIZE` of an empty one).
const OVERHEAD: u64 = 1280;
/// Headers that the kernel leaves room for in each (`MAX_TCP_HEADER`), and its bookkeeping behind them.
const HEADROOM: u32 = 320 + 320;
/// `struct sk_buff`.
const SK_BUFF: u32 = 256;
/// `GSO_LEGACY_MAX_SIZE`.
const LARGEST: u32 = 65_536;

/// Bytes `start..end` of the stream in one socket buffer.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    /// Nothing may be added (`MSG_EOR`).
    full: bool,
}

/// The bounds of the moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// `SO_SNDBUF`, if set.
    pub(crate) fixed: Option<u32>,
    /// `tcp_wmem`: initial and greatest size.
    pub(crate) wmem: (u32, u32),
    /// `TCP_NOTSENT_LOWAT`.
    pub(crate) lowat: u32,
}

/// The send side of a socket as Linux keeps it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Bytes taken so far.
    written: u64,
    sent: u64,
    acked: u64,
    pieces: VecDeque<Piece>,
    /// `sk_sndbuf` as far as it has grown by itself.
    grown: u32,
    /// A write found no room (`SOCK_NOSPACE`).
    wanting: bool,
    max_window: u32,
    /// Bytes that the application has read or can read.
    received: u64,
    /// The handshake is over.
    open: bool,
    /// It was usable before.
    early: bool,
    /// Segments that have arrived, as far as their number follows from the bytes.
    pub(crate) delivered: u32,
    pub(crate) chrono: Chrono,
    /// What is told of sends afterwards.
    pub(crate) errors: Errors,
}

impl Queue {
    /// Follows the connection. `consumed`: bytes that the application has read.
    pub(crate) fn follow(&mut self, info: &TcpInfo, bounds: &Bounds, consumed: u64, now: Time) {
        self.max_window = self.max_window.max(info.snd_wnd);
        let sent_before = self.sent;
        let acked = self.written.saturating_sub(u64::from(info.unacknowledged));
        let progress = acked > self.acked;
        self.count_delivered(info, acked.saturating_sub(self.acked));
        self.acked = self.acked.max(acked);
        self.sent = self.sent.max(self.written.saturating_sub(u64::from(info.unsent)));
        while self.pieces.front().is_some_and(|piece| piece.end <= self.acked) {
            self.pieces.pop_front();
        }
        if let Some(first) = self.pieces.front_mut() {
            first.start = first.start.max(self.acked);
        }
        self.split_at_sent();
        self.grown = self.grown.max(bounds.wmem.0);
        if self.written == 0 || progress && self.wanting && info.in_flight < info.cwnd {
            self.grow(info, bounds);
        }
        if self.has_room(bounds) {
            self.wanting = false;
        }
        self.errors.progress(self.sent, self.acked, now);
        self.chrono.turn(Limit::of(info, self.wanting), now);
        if self.sent > sent_before || self.chrono.sent_at.is_none() {
            self.chrono.sent_at = Some(now);
        }
        let received = consumed + u64::from(info.readable);
        if received > self.received || self.chrono.received_at.is_none() {
            self.received = received;
            self.chrono.received_at = Some(now);
        }
    }

    /// `tcpi_delivered`: a SYN with its data counts once.
    fn count_delivered(&mut self, info: &TcpInfo, acked: u64) {
        if info.state == State::SynReceived {
            self.early = true;
            return;
        }
        let begins = !std::mem::replace(&mut self.open, true);
        self.delivered += u32::from(begins);
        if !begins || self.early {
            self.delivered += acked.div_ceil(u64::from(info.effective_mss.max(1))) as u32;
        }
    }

    /// What is sent of a piece becomes a piece of its own.
    fn split_at_sent(&mut self) {
        let sent = self.sent;
        let Some(index) = self.pieces.iter().position(|p| p.start < sent && sent < p.end) else { return };
        let piece = self.pieces[index];
        self.pieces[index].end = sent;
        self.pieces[index].full = false;
        self.pieces.insert(index + 1, Piece { start: sent, ..piece });
    }

    /// `tcp_sndbuf_expand`: room for two windows.
    fn grow(&mut self, info: &TcpInfo, bounds: &Bounds) {
        let mss = u32::from(info.snd_mss.max(info.effective_mss));
        let each = (mss + HEADROOM).next_power_of_two() + SK_BUFF;
        let segments = (info.cwnd / u32::from(info.effective_mss).max(1)).max(10);
        let want = each.saturating_mul(segments).saturating_mul(2);
        self.grown = self.grown.max(want.min(bounds.wmem.1));
    }

    fn limit(&self, bounds: &Bounds) -> u64 {
        bounds.fixed.unwrap_or(self.grown).into()
    }

    /// `sk_wmem_queued`.
    fn cost(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.end - piece.start + OVERHEAD).sum()
    }

    fn unsent(&self) -> u64 {
        self.written - self.sent
    }

    /// `tcp_xmit_size_goal`: bytes of one buffer.
    fn goal(&self, info: &TcpInfo) -> u64 {
        let mss = u32::from(info.effective_mss).max(1);
        let window = self.max_window.max(info.snd_wnd);
        let half = if window > 536 { window / 2 } else { window };
        let goal = (LARGEST - 321).min(half.max(1)) / mss * mss;
        goal.max(mss).into()
    }

    /// Whether more bytes go into a buffer: nothing of it has been sent.
    fn takes_more(&self, piece: &Piece, goal: u64) -> bool {
        piece.start >= self.sent && !piece.full && piece.end - piece.start < goal
    }

    /// How much a write may put in now, one buffer at most.
    pub(crate) fn room(&self, info: &TcpInfo, bounds: &Bounds) -> usize {
        let goal = self.goal(info);
        if let Some(last) = self.pieces.back().filter(|last| self.takes_more(last, goal)) {
            return (goal - (last.end - last.start)) as usize;
        }
        let free = self.cost() < self.limit(bounds) && self.unsent() < u64::from(bounds.lowat);
        if free { goal as usize } else { 0 }
    }

    /// `sk_stream_is_writeable`.
    pub(crate) fn has_room(&self, bounds: &Bounds) -> bool {
        let (cost, limit) = (self.cost(), self.limit(bounds));
        limit.saturating_sub(cost) >= cost / 2
            && limit > cost
            && self.unsent().saturating_mul(2) < u64::from(bounds.lowat)
    }

    /// A write has put in `n` bytes.
    pub(crate) fn put(&mut self, n: usize, info: &TcpInfo) {
        let start = self.written;
        self.written += n as u64;
        self.max_window = self.max_window.max(info.snd_wnd);
        let goal = self.goal(info);
        let fill = self.pieces.back().is_some_and(|last| self.takes_more(last, goal));
        match self.pieces.back_mut() {
            Some(last) if fill => last.end = self.written,
            _ => self.pieces.push_back(Piece { start, end: self.written, full: false }),
        }
    }

    /// Nothing is added to what is there (`MSG_EOR`).
    pub(crate) fn close_piece(&mut self) {
        if let Some(last) = self.pieces.back_mut() {
            last.full = true;
        }
    }

    /// A write found no room.
    pub(crate) fn want(&mut self) {
        self.wanting = true;
    }

    /// A whole write has been taken, as far as it was: what is to be told of it.
    pub(crate) fn written(&mut self, zerocopy: bool, stamp: Option<Stamp>) {
        self.errors.expect(self.written, zerocopy, stamp);
    }

    /// Bytes acknowledged so far: where `SOF_TIMESTAMPING_OPT_ID` begins to count.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// Bytes that have come in order.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(window: u32, cwnd: u32) -> TcpInfo {
        let end = "10.0.0.1:1".parse().unwrap();
        let mut info = TcpInfo::new(State::Established, end, end);
        (info.snd_wnd, info.cwnd) = (window, cwnd);
        (info.effective_mss, info.snd_mss) = (1000, 1000);
        info
    }

    /// Writes up to `want` bytes, of which the connection sends `sends` at once; how many were taken.
    fn write(queue: &mut Queue, info: &mut TcpInfo, bounds: &Bounds, want: u32, mut sends: u32) -> u32 {
        let mut taken = 0;
        while taken < want {
            let n = (queue.room(info, bounds) as u32).min(want - taken);
            if n == 0 {
                queue.want();
                break;
            }
            queue.put(n as usize, info);
            taken += n;
            let now = n.min(sends);
            sends -= now;
            info.unacknowledged += n;
            info.unsent += n - now;
            queue.follow(info, bounds, 0, Time::ZERO);
        }
        taken
    }

    /// Whole buffers of half the window are begun while what is queued costs less than the bound.
    #[test]
    fn a_write_fills_whole_buffers() {
        let bounds = Bounds { fixed: None, wmem: (50_000, 4 << 20), lowat: u32::MAX };
        let (mut queue, mut info) = (Queue::default(), info(32_896, 10_000));
        queue.follow(&info, &bounds, 0, Time::ZERO);
        assert_eq!(write(&mut queue, &mut info, &bounds, 59_000, 10_000), 58_000);
        assert!(!queue.has_room(&bounds));
        // The window is not used up when half has been acknowledged: the bound grows, and there is room.
        (info.unacknowledged, info.unsent, info.cwnd) = (32_000, 0, 36_000);
        (info.in_flight, info.outstanding) = (32_000, 32_000);
        queue.follow(&info, &bounds, 0, Time::ZERO);
        assert!(queue.has_room(&bounds));
        assert_eq!(write(&mut queue, &mut info, &bounds, 180_000, 0), 128_000);
    }

    /// `TCP_NOTSENT_LOWAT` bounds what waits to be sent, and there is room again below half of it.
    #[test]
    fn little_waits_to_be_sent() {
        let bounds = Bounds { fixed: None, wmem: (50_000, 4 << 20), lowat: 4000 };
        let (mut queue, mut info) = (Queue::default(), info(32_896, 10_000));
        queue.follow(&info, &bounds, 0, Time::ZERO);
        assert_eq!(write(&mut queue, &mut info, &bounds, 59_000, 10_000), 26_000);
        for (unsent, room) in [(4000, false), (2000, false), (1999, true)] {
            info.unsent = unsent;
            queue.follow(&info, &bounds, 0, Time::ZERO);
            assert_eq!(queue.has_room(&bounds), room, "{unsent}");
        }
    }

    /// Nothing is added behind the end of a record.
    #[test]
    fn a_record_closes_its_buffer() {
        let bounds = Bounds { fixed: Some(4000), wmem: (0, 0), lowat: u32::MAX };
        let (mut queue, mut info) = (Queue::default(), info(32_896, 10_000));
        assert_eq!(write(&mut queue, &mut info, &bounds, 400, 0), 400);
        assert_eq!(queue.room(&info, &bounds), 15_600);
        queue.close_piece();
        assert_eq!(queue.room(&info, &bounds), 16_000, "a new one, within the bound");
        assert_eq!(write(&mut queue, &mut info, &bounds, 2000, 0), 2000);
        assert_eq!(queue.room(&info, &bounds), 14_000, "it may be filled");
        queue.close_piece();
        assert_eq!(queue.room(&info, &bounds), 0);
    }
}
