//! The receive sequence space (RFC 9293 §3.3.1, figure 4), and the tuning of its window to the reader.

use crate::tcp::Seq;

/// What has come, what may come, and how large the buffer is.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RecvSpace {
    nxt: Seq,
    adv: Seq,
    last_ack_sent: Seq,
    limit: u32,
    /// Bytes read by the application since `round_us`.
    copied: u32,
    /// The low bits of microseconds.
    round_us: u32,
}

impl RecvSpace {
    /// Before the peer's SYN; the buffer takes `limit` bytes.
    pub(crate) const fn new(limit: u32) -> Self {
        Self { nxt: Seq(0), adv: Seq(0), last_ack_sent: Seq(0), limit, copied: 0, round_us: 0 }
    }

    /// RCV.NXT.
    #[inline]
    pub(crate) const fn nxt(&self) -> Seq {
        self.nxt
    }

    /// RCV.NXT + RCV.WND as last advertised. It goes back only when a window is taken back for lack of memory.
    #[inline]
    pub(crate) const fn adv(&self) -> Seq {
        self.adv
    }

    /// ACK field of the last segment sent (RFC 7323 §4.3, Last.ACK.sent).
    #[inline]
    pub(crate) const fn last_ack_sent(&self) -> Seq {
        self.last_ack_sent
    }

    /// RCV.WND: what the peer has been allowed to send beyond what came.
    #[inline]
    pub(crate) fn wnd(&self) -> u32 {
        if self.adv > self.nxt { self.adv.since(self.nxt) } else { 0 }
    }

    /// End of what may come.
    #[inline]
    pub(crate) fn right(&self) -> Seq {
        self.adv.max(self.nxt)
    }

    /// Sequence numbers that came since an acknowledgement was sent.
    #[inline]
    pub(crate) fn owed(&self) -> u32 {
        self.nxt.since(self.last_ack_sent)
    }

    /// The peer's SYN has this number.
    pub(crate) fn peer_begins(&mut self, seq: Seq) {
        self.nxt = seq + 1;
        self.last_ack_sent = self.nxt;
    }

    /// So many sequence numbers have come in order.
    #[inline]
    pub(crate) fn received(&mut self, numbers: u32) {
        self.nxt += numbers;
    }

    /// A segment with this ACK field goes out.
    #[inline]
    pub(crate) fn ack_sent(&mut self, ack: Seq) {
        self.last_ack_sent = ack;
    }

    /// A segment that allows everything before `right` goes out.
    #[inline]
    pub(crate) fn advertised(&mut self, right: Seq) {
        self.adv = right;
    }

    /// No more may come: there is no memory for it.
    pub(crate) fn close_window(&mut self) {
        self.adv = self.nxt;
    }

    /// Most bytes that the receive buffer holds.
    #[inline]
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn set_limit(&mut self, bytes: u32) {
        self.limit = bytes;
    }

    /// The application has read `n` bytes. Once a round trip: twice what it has read in it, so that the sender's window can double
    /// each round as in slow start. `None` before the round is over, and after a pause. Times in microseconds.
    #[inline]
    pub(crate) fn tune(&mut self, n: u32, now_us: u32, round_us: u32) -> Option<u32> {
        self.copied = self.copied.saturating_add(n);
        let since = now_us.wrapping_sub(self.round_us);
        if since < round_us {
            return None;
        }
        let want = self.copied.saturating_mul(2);
        (self.copied, self.round_us) = (0, now_us);
        (since < round_us.saturating_mul(4)).then_some(want)
    }
}
