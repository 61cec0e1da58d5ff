//! The window that we announce (RFC 9293 §3.8.6.2.2), as far as there is room and memory.

use crate::packet::Cx;
use crate::tcp::Seq;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::lane::Core;

impl Connection {
    /// The window to announce, in the header's units, and notes what has been promised.
    ///
    /// RFC 9293 §3.8.6.2.2, MUST-39: the right edge moves in steps worth having; MUST-34/SHLD-14: it never moves back.
    pub(crate) fn advertise(&mut self, core: &mut Core, cx: &Cx<'_>) -> u16 {
        let mut free = self.rcv.limit().saturating_sub(self.readable());
        // Guard: `core.is_short(cx)` as `false` fails tcp::tests::scarcity
        if core.is_short(cx) {
            let mut promise = core.may_promise(self, cx);
            if promise == 0 && self.rcv.wnd() == 0 {
                promise = core.promise_spare(self, cx);
            }
            free = free.min(promise);
        }
        // Who has not shown that its address is its own is promised no more than a SYN can say.
        let free = if self.is_early() { free.min(0xffff) } else { free };
        // Guard: `.max(self.rcv.adv())` as `.max(self.rcv.nxt())` fails guards::a_promised_window
        let mut right = (self.rcv.nxt() + free).max(self.rcv.adv());
        let step = (self.rcv.limit() / 2).min(u32::from(self.mss.rcv()));
        // Guard: `right.since(self.rcv.adv()) < step` as `false` fails guards::small_steps
        if right.since(self.rcv.adv()) < step {
            right = self.rcv.adv();
        }
        self.show(self.rcv.nxt(), right)
    }

    /// The window up to `right`, in the header's units, beside an acknowledgement of `ack`.
    #[inline]
    pub(crate) fn show(&mut self, ack: Seq, right: Seq) -> u16 {
        let window = if right > ack { right.since(ack) } else { 0 };
        // RFC 7323 §2.4: rounded so that the edge that the peer computes does not move back.
        let shift = self.scale.rcv();
        let shown = ((window + ((1 << shift) - 1)) >> shift).min(0xffff);
        self.rcv.advertised(self.rcv.adv().max(ack + (shown << shift)));
        shown as u16
    }

    /// After the application has read: is the window worth announcing anew?
    pub(crate) fn window_opened(&mut self, core: &mut Core, cx: &Cx<'_>) {
        if !self.state().may_receive() {
            return;
        }
        // What the header cannot show is not worth a segment.
        let most = 0xffff_u32 << self.scale.rcv();
        let mut free = self.rcv.limit().saturating_sub(self.readable()).min(most);
        let mut worth = (self.rcv.limit() / 2).min(2 * u32::from(self.mss.rcv()));
        if core.is_short(cx) {
            let promise = core.may_promise(self, cx);
            if promise < worth {
                core.look_again(self, cx.now);
                // There is no more to be had.
                worth = worth.min(u32::from(self.mss.rcv()));
            }
            free = free.min(promise);
        }
        let right = self.rcv.nxt() + free;
        let opened = if right > self.rcv.adv() { right.since(self.rcv.adv()) } else { 0 };
        let shown = self.rcv.wnd();
        // The window of a SYN-ACK cannot say more, and that its data was read is no news.
        if shown == 0xffff && self.fast.has(Marks::SYN_DATA) && !self.has(Flags::ACTIVE) {
            return;
        }
        if opened >= worth && (opened >= shown || shown < 2 * u32::from(self.mss.rcv())) {
            self.ack_at_once();
        }
    }
}
