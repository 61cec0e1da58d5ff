//! The send sequence space (RFC 9293 §3.3.1, figure 3).

use crate::tcp::Seq;

/// What is on its way, and what may be sent.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendSpace {
    una: Seq,
    nxt: Seq,
    wnd: u32,
    wl1: Seq,
    wl2: Seq,
    max_wnd: u32,
    limit: u32,
    sent_ms: u32,
}

impl SendSpace {
    /// Of a SYN with this sequence number; the buffer takes `limit` bytes.
    pub(crate) fn new(iss: Seq, limit: u32) -> Self {
        Self { una: iss, nxt: iss + 1, wnd: 0, wl1: Seq(0), wl2: iss, max_wnd: 0, limit, sent_ms: 0 }
    }

    /// SND.UNA.
    #[inline]
    pub(crate) const fn una(&self) -> Seq {
        self.una
    }

    /// SND.NXT.
    #[inline]
    pub(crate) const fn nxt(&self) -> Seq {
        self.nxt
    }

    /// SND.WND, bytes.
    #[inline]
    pub(crate) const fn wnd(&self) -> u32 {
        self.wnd
    }

    /// SND.WL1.
    #[inline]
    pub(crate) const fn wl1(&self) -> Seq {
        self.wl1
    }

    /// MAX.SND.WND (RFC 5961 §5), bytes.
    #[inline]
    pub(crate) const fn max_wnd(&self) -> u32 {
        self.max_wnd
    }

    /// SND.NXT - SND.UNA.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// SND.UNA moves to `ack`.
    #[inline]
    pub(crate) fn acknowledged(&mut self, ack: Seq) {
        self.una = ack;
    }

    /// SND.NXT moves to `end`.
    #[inline]
    pub(crate) fn sent(&mut self, end: Seq) {
        self.nxt = end;
    }

    // The peer's window.

    /// The peer's SYN, whose number is SND.WL1.
    pub(crate) fn peer_begins(&mut self, seq: Seq) {
        self.wl1 = seq;
    }

    /// The first window of the peer's.
    pub(crate) fn first_window(&mut self, window: u32, seq: Seq, ack: Seq) {
        (self.wnd, self.max_wnd) = (window, window);
        (self.wl1, self.wl2) = (seq, ack);
    }

    /// Whether a segment is newer than the one whose window was taken last (RFC 9293 §3.10.7.4: SND.WL1 and SND.WL2 "prevent using
    /// old segments to update the window"), or acknowledges something new.
    ///
    /// A segment that acknowledges something new is not old, even if its data is a retransmission: taken without its window it
    /// would move the right edge beyond what the peer allowed. Two ends that both believed so would drop each other's segments
    /// as beyond the window for ever.
    #[inline]
    pub(crate) fn is_newer(&self, seq: Seq, ack: Seq) -> bool {
        // Guard: `self.wl1 < seq || self.wl1 == seq && self.wl2 <= ack || self.una < ack` as `true` fails
        // guards::an_overtaken_segment
        // Guard: `self.una < ack` as `false` fails window::a_retransmission_that_acknowledges
        self.wl1 < seq || self.wl1 == seq && self.wl2 <= ack || self.una < ack
    }

    /// The window of such a segment.
    #[inline]
    pub(crate) fn take_window(&mut self, window: u32, seq: Seq, ack: Seq) {
        self.wnd = window;
        self.max_wnd = self.max_wnd.max(window);
        (self.wl1, self.wl2) = (self.wl1.max(seq), ack);
    }

    /// When data was last sent (RFC 5681 §4.1), milliseconds; 0 if never.
    #[inline]
    pub(crate) const fn sent_ms(&self) -> u32 {
        self.sent_ms
    }

    #[inline]
    pub(crate) fn sent_at(&mut self, ms: u32) {
        self.sent_ms = ms;
    }

    /// Most bytes that the send buffer holds.
    #[inline]
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn set_limit(&mut self, bytes: u32) {
        self.limit = bytes;
    }
}
