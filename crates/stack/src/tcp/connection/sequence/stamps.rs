//! The timestamps and the window scale of RFC 7323.

use crate::time::Time;
use crate::wire::Timestamps;

/// Milliseconds of our timestamp clock (RFC 7323 §5.4) at `at`.
#[inline]
pub(crate) fn ts_clock(at: Time, offset: u32) -> u32 {
    (at.as_millis() as u32).wrapping_add(offset)
}

/// The peer's clock as last seen, and ours as the peer sees it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stamps {
    /// TS.Recent.
    recent: u32,
    /// Added to the millisecond clock for our timestamps.
    offset: u32,
}

impl Stamps {
    pub(crate) const fn new(offset: u32) -> Self {
        Self { recent: 0, offset }
    }

    /// TS.Recent.
    #[inline]
    pub(crate) const fn recent(&self) -> u32 {
        self.recent
    }

    /// What the millisecond clock is ahead by for this peer.
    #[inline]
    pub(crate) const fn offset(&self) -> u32 {
        self.offset
    }

    /// Our clock.
    #[inline]
    pub(crate) fn clock(&self, now: Time) -> u32 {
        ts_clock(now, self.offset)
    }

    /// The option of a segment that goes out now.
    #[inline]
    pub(crate) fn option(&self, now: Time) -> Timestamps {
        Timestamps { value: self.clock(now), echo: self.recent }
    }

    /// Whether a timestamp is not older than TS.Recent.
    #[inline]
    pub(crate) const fn is_recent(&self, value: u32) -> bool {
        (value.wrapping_sub(self.recent) as i32) >= 0
    }

    #[inline]
    pub(crate) fn take(&mut self, value: u32) {
        self.recent = value;
    }
}

/// Both shifts (RFC 7323 §2.2, at most 14), in one byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowScale(u8);

impl WindowScale {
    /// Ours is `rcv`; the peer's is not known.
    pub(crate) const fn new(rcv: u8) -> Self {
        Self(rcv << 4)
    }

    /// That of the peer's windows.
    #[inline]
    pub(crate) const fn snd(self) -> u8 {
        self.0 & 15
    }

    /// That of ours.
    #[inline]
    pub(crate) const fn rcv(self) -> u8 {
        self.0 >> 4
    }

    /// What the peer's SYN says.
    pub(crate) fn agree(&mut self, snd: u8) {
        self.0 = self.0 & 0xf0 | snd & 15;
    }

    /// No scaling.
    pub(crate) fn off(&mut self) {
        self.0 = 0;
    }
}
