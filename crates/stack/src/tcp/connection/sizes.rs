//! The sizes of segments, and what is known of the path's.

use core::net::IpAddr;

/// The largest segments either way, bytes, TCP options included in neither (RFC 6691).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct SegmentSizes {
    snd: u16,
    rcv: u16,
}

impl SegmentSizes {
    /// `mss` either way, until the peer says what it takes.
    pub(crate) const fn new(mss: u16) -> Self {
        Self { snd: mss, rcv: mss }
    }

    /// What the peer takes and the path carries.
    #[inline]
    pub(crate) const fn snd(self) -> u16 {
        self.snd
    }

    /// What we told the peer.
    #[inline]
    pub(crate) const fn rcv(self) -> u16 {
        self.rcv
    }

    /// We send no larger ones.
    pub(crate) fn lower(&mut self, mss: u16) {
        self.snd = self.snd.min(mss);
    }

    /// The size agreed in the handshake is tried again.
    pub(crate) fn restore(&mut self, base: u16) {
        self.snd = base;
    }

    /// We announce no larger ones.
    pub(crate) fn lower_announced(&mut self, mss: u16) {
        self.rcv = self.rcv.min(mss);
    }
}

/// What is known of the path.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct KnownPath {
    /// Segment size agreed in the handshake.
    base: u16,
    mtu: u16,
}

impl KnownPath {
    /// Before the handshake: the interface's MTU, and its segment size.
    pub(crate) const fn new(mtu: u16, mss: u16) -> Self {
        Self { base: mss, mtu }
    }

    /// Path MTU, bytes of IP packet.
    pub(crate) const fn mtu(self) -> u16 {
        self.mtu
    }

    pub(crate) const fn base(self) -> u16 {
        self.base
    }

    /// The handshake has agreed on a segment size.
    pub(crate) fn agree(&mut self, mss: u16) {
        self.base = mss;
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }
}

/// Bytes of IP and TCP header without options.
pub(crate) fn header_len(local: IpAddr) -> u16 {
    if local.is_ipv4() { 40 } else { 60 }
}

/// Smaller segments than this are not agreed to: they would cost more header than data and split the scoreboard to pieces.
pub(crate) const MIN_MSS: u16 = 48;
