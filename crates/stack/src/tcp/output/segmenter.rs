//! Whether new data may be sent, and how much at once.
//!
//! RFC 9293 §3.8.6.2.1 (silly window avoidance of the sender), §3.7.4 (Nagle, in Minshall's form: only an outstanding
//! *small* segment holds back another one), RFC 5681 §4.1 (restart after idle), RFC 3042 (limited transmit, which needs no
//! code of its own: duplicate acknowledgements take bytes out of the network and so make room in the window).

use crate::packet::Cx;
use crate::tcp::connection::deadlines::RtxTimer;
use crate::tcp::connection::flight::Flight;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::lane::Core;
use crate::tcp::output::build::Plan;
use crate::wire::TcpFlags;

/// The largest batch for the link to cut: the IP length field has 16 bits, and headers need room in it.
const MAX_BATCH: u32 = 65_535 - 120;

impl Connection {
    /// The next segment of new data, or our FIN.
    pub(crate) fn plan_new(&mut self, core: &mut Core, cx: &Cx<'_>) -> Option<Plan> {
        let mut plan = self.plan_next(core, cx);
        let Some(plan) = &mut plan else {
            if let Some(tx) = self.tx.get_mut() {
                tx.set_burst(0);
            }
            return None;
        };
        if plan.len > 0 {
            self.end_burst(core, plan);
        }
        Some(*plan)
    }

    /// PSH at the end of a burst of several segments: where nothing follows until the peer has answered, or where half of the
    /// congestion window or a millisecond's worth of the rate is out. The peer need not wait for more before it delivers and
    /// acknowledges, and a receiver that coalesces passes the burst on.
    fn end_burst(&mut self, core: &Core, plan: &mut Plan) {
        let mss = self.effective_mss().max(1);
        // The whole burst is one segment, as requests and answers are.
        if plan.last && plan.len <= mss && self.tx.get().is_none_or(|tx| tx.burst() == 0) {
            return;
        }
        let half = (self.congestion.cwnd() / mss / 2).max(1);
        let more = self.has(Flags::MORE | Flags::CORK) && !self.has(Flags::FORCE);
        let millisecond = self.rate_is_out(mss);
        let Some(tx) = self.tx.get_mut() else { return };
        let segments = tx.burst().saturating_add(plan.segments(mss));
        let enough = segments >= u32::from(core.config.least_burst) && millisecond(segments);
        let over = plan.last || segments >= half || enough;
        if over && segments > 1 && !more {
            plan.push = true;
        }
        tx.set_burst(if over { 0 } else { segments });
    }

    /// Whether so many segments are what the window lets out in a millisecond (twice that in slow start), and what shares the
    /// shortest round trips: the measure by which Linux cuts its bursts.
    fn rate_is_out(&self, mss: u32) -> impl Fn(u32) -> bool + use<> {
        let srtt = u64::from(self.rtt.srtt());
        let cwnd = u64::from(self.congestion.cwnd());
        let early = self.congestion.cwnd() < self.congestion.ssthresh() / 2;
        let window = cwnd * if early { 2_000_000 } else { 1_200_000 } / 1024;
        let near = if self.rtt.min() < 32 << 9 { u64::from(MAX_BATCH >> (self.rtt.min() >> 9)) } else { 0 };
        move |segments| {
            srtt > 0 && (u64::from(segments + 1) * u64::from(mss)).saturating_sub(near) * srtt > window
        }
    }

    fn plan_next(&mut self, core: &mut Core, cx: &Cx<'_>) -> Option<Plan> {
        let unsent = self.unsent();
        let fin = self.has(Flags::FIN_QUEUED) && !self.has(Flags::FIN_SENT);
        if unsent == 0 {
            // What is not there to be sent does not test the congestion window (RFC 9438 §5.8, RFC 7661).
            self.note_limited(false);
            if !fin {
                return None;
            }
        }
        let outstanding = self.snd.outstanding();
        // A SYN takes a number, but no room.
        let syn = u32::from(self.has(Flags::SYN_OUT));
        let window = (self.snd.una() + syn + self.snd.wnd()).since(self.snd.nxt());
        // Guard: `outstanding - syn > self.snd.wnd()` as `false` fails guards::nothing_new_goes_behind
        let usable = if outstanding - syn > self.snd.wnd() { 0 } else { window };
        if unsent == 0 {
            // A FIN takes a number of the window as a byte does (RFC 9293 §3.4).
            if usable == 0 {
                self.persist_if_stuck(core, cx.now);
                return None;
            }
            return Some(self.plan(0, true, 0));
        }
        if outstanding == 0 && usable > 0 {
            self.restart_after_idle(core, cx);
        }
        let mss = self.next_mss(cx.now);
        let in_flight = self.tx.get().map_or(0, |tx| tx.in_flight(outstanding)).saturating_sub(syn);
        let congestion = self.congestion.cwnd().saturating_sub(in_flight);
        // A tail loss probe may exceed the congestion window by one segment (RFC 8985 §7.3); and with nothing in flight one
        // may always go, even if segments have grown since the window was set.
        let one = self.has(Flags::PROBE_TAIL) || in_flight == 0;
        let congestion = if one { congestion.max(mss) } else { congestion };
        let record = self.record_ahead();
        let len = unsent.min(usable).min(record);
        if len == 0 {
            self.note_limited(false);
            self.persist_if_stuck(core, cx.now);
            return None;
        }
        // Whole segments only as far as the congestion window goes; a last small one may overshoot it by less than one.
        // Guard: `congestion < mss && congestion < len` as `false` fails data::initial_window_and_slow_start
        if congestion < mss && congestion < len {
            self.note_limited(true);
            return None;
        }
        let batch = self.batch_limit(cx, mss);
        let mut len = len.min(batch).min(congestion.max(len.min(mss)));
        if len > mss {
            len -= len % mss;
        }
        // Guard: `len < mss && !self.small_may_go(len, unsent, fin)` as `false` fails tcp::tests::nagle
        // window::silly_window
        if len < mss && !self.small_may_go(len, unsent, fin) {
            self.note_limited(false);
            self.persist_if_stuck(core, cx.now);
            return None;
        }
        let mut plan = self.plan(len, fin && len == unsent && len < usable, mss);
        let left = (unsent - len).min(usable - len);
        let follows = left > 0
            && congestion - len.min(congestion) >= left.min(mss)
            && (left >= mss || self.small_may_go(left, unsent - len, fin));
        plan.last = !follows;
        Some(plan)
    }

    fn plan(&mut self, len: u32, fin: bool, segment_size: u32) -> Plan {
        let end = self.snd.nxt() + len;
        let mut flags = TcpFlags::ACK;
        if fin {
            flags |= TcpFlags::FIN;
        }
        // RFC 9293 §3.9.1.2, MUST-60, MUST-61: PSH where a write ended.
        // Not where the application says that more is coming, whoever lets it go before.
        let nxt = self.snd.nxt();
        let written = |tx: &Flight| {
            let last = tx.writes.last().is_some_and(|push| push > nxt && push <= end);
            last || tx.writes.has_push_before(end)
        };
        if len > 0 && (fin || self.tx.get().is_some_and(written) || len == self.record_ahead()) {
            flags |= TcpFlags::PSH;
        }
        Plan {
            seq: self.snd.nxt(),
            offset: self.snd.nxt().since(self.data_seq()),
            len,
            flags,
            segment_size,
            last: false,
            push: false,
        }
    }

    /// RFC 9293 §3.8.6.2.1, MUST-38, with Nagle: may a segment of `len` bytes, less than a full one, be sent?
    fn small_may_go(&self, len: u32, unsent: u32, fin: bool) -> bool {
        if self.has(Flags::FORCE) || self.has(Flags::PROBE_TAIL) {
            return true;
        }
        if len == unsent {
            if fin {
                return true;
            }
            if self.has(Flags::CORK) || self.has(Flags::MORE) {
                return false;
            }
            // (3) of the rule; without NODELAY only if no small segment is outstanding.
            // Guard: `self.has(Flags::NODELAY) || !small` as `true` fails nagle::
            let small = self.tx.get().is_some_and(|tx| tx.is_small_out(self.snd.una()));
            return self.has(Flags::NODELAY) || !small;
        }
        // A record ends here, and more is written behind it: nothing will be added to this segment.
        if len == self.record_ahead() {
            return true;
        }
        // The window is what limits it: half the largest window ever seen is worth a segment.
        // Guard: `len >= self.snd.max_wnd() / 2` as `true` fails window::silly_window_of_the_peer
        len >= self.snd.max_wnd() / 2
    }

    /// Bytes up to the end of the record that is being sent (`MSG_EOR`).
    #[inline]
    fn record_ahead(&self) -> u32 {
        // Guard: `self.tx.get().and_then(|tx| tx.writes.record_end())` as `None` fails data::records_share
        let end = self.tx.get().and_then(|tx| tx.writes.record_end());
        end.map_or(u32::MAX, |end| end.since(self.snd.nxt()))
    }

    fn batch_limit(&self, cx: &Cx<'_>, mss: u32) -> u32 {
        let offload = (cx.offload.segmentation as u64).min(u64::from(MAX_BATCH)) as u32;
        let offload = offload.min(self.burst_limit());
        // Guard: `self.has(Flags::ECN) && !self.may_send_batches()` as `false` fails
        // accurate::no_batches_whose_flags_would_change
        let offload = if self.has(Flags::ECN) && !self.may_send_batches() { 0 } else { offload };
        if offload <= mss { mss } else { offload - offload % mss }
    }

    fn note_limited(&mut self, by_cwnd: bool) {
        self.set_cwnd_limited(by_cwnd);
    }

    /// RFC 5681 §4.1: after an idle retransmission timeout the old window says nothing about the path.
    fn restart_after_idle(&mut self, core: &Core, cx: &Cx<'_>) {
        let now = cx.now.as_millis() as u32;
        let idle_us = u64::from(now.wrapping_sub(self.snd.sent_ms())) * 1000;
        let rto = u64::from(self.rtt.rto(core.timeouts).max(1));
        // Guard: `core.config.slow_start_after_idle && self.snd.sent_ms() != 0 && idle_us > rto` as `false`
        // fails tcp::tests::data tcp::tests::loss tcp::tests::window
        if core.config.slow_start_after_idle && self.snd.sent_ms() != 0 && idle_us > rto {
            let initial = self.effective_mss() * u32::from(core.config.initial_window);
            self.congestion.on_idle((idle_us / rto).min(31) as u32, initial);
            self.snd.sent_at(now);
        }
    }

    /// Nothing is in flight and nothing may be sent: only a timer can get the connection going again (RFC 9293 §3.8.6.1,
    /// §3.8.6.2.1 (4)).
    fn persist_if_stuck(&mut self, core: &Core, now: crate::time::Time) {
        // Guard: `self.snd.outstanding() != 0 || self.timers.rtx_runs()` as `self.snd.outstanding() != 0`
        // fails tcp::tests::window tcp::tests::nagle
        if self.snd.outstanding() != 0 || self.timers.rtx_runs() {
            return;
        }
        let held = self.has(Flags::CORK) || self.has(Flags::MORE);
        if self.snd.wnd() > 0 && held && self.unsent() <= self.snd.wnd() {
            self.timers.start_rtx(RtxTimer::Cork, now + CORK);
        } else {
            let timeout = self.rtt.timeout(self.timers.doublings(), core.timeouts);
            self.timers.start_rtx(RtxTimer::Persist, now.plus_micros(timeout));
            if let Some(tx) = self.tx.get_mut() {
                tx.waits_at_least_from(now);
            }
        }
    }
}

/// How long a cork may hold data back.
const CORK: core::time::Duration = core::time::Duration::from_millis(200);
