//! The error queue of a socket: completions of zero-copy sends and times of transmission (`MSG_ERRQUEUE`).
//!
//! A lane copies what is written, so every zero-copy send is reported as copied, once it has been acknowledged.

use std::collections::VecDeque;

use flowlane_c::packetdrill::{ControlMessage, Received};
use flowlane_stack::time::Time;

use crate::world::of_day;

const ORIGIN_TIMESTAMPING: u8 = 4;
const ORIGIN_ZEROCOPY: u8 = 5;
const ZEROCOPY_COPIED: u8 = 1;
/// `SCM_TSTAMP_SND`, `SCM_TSTAMP_SCHED`, `SCM_TSTAMP_ACK`.
const SND: u32 = 0;
const SCHED: u32 = 1;
const ACK: u32 = 2;
/// `SCM_TIMESTAMPING`, the number of `SO_TIMESTAMPING`.
const SCM_TIMESTAMPING: i32 = 37;

/// Bits of `SO_TIMESTAMPING` that matter here.
pub(crate) const TX_SOFTWARE: u32 = 1 << 1;
const OPT_ID: u32 = 1 << 7;
const TX_SCHED: u32 = 1 << 8;
const TX_ACK: u32 = 1 << 9;
const OPT_TSONLY: u32 = 1 << 11;
const SOFTWARE: u32 = 1 << 4;

/// Which times a write wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Bits of `SO_TIMESTAMPING`.
    pub(crate) flags: u32,
    /// Offset in the stream from which bytes are counted.
    pub(crate) base: u64,
}

impl Stamp {
    /// Whether any transmission is to be stamped.
    pub(crate) fn wants(self) -> bool {
        self.flags & (TX_SOFTWARE | TX_SCHED | TX_ACK) != 0
    }
}

#[derive(Debug, Clone, Copy)]
struct Awaited {
    /// End of the write in the stream.
    end: u64,
    stamp: Stamp,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    /// Sends from the first number to the second are done with.
    Zerocopy {
        first: u32,
        last: u32,
    },
    Time {
        kind: u32,
        key: u32,
        at: Time,
        whole: bool,
    },
}

/// The queue, and what will come into it.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    entries: VecDeque<Entry>,
    /// Zero-copy sends not yet acknowledged: end in the stream, number.
    copies: VecDeque<(u64, u32)>,
    next_copy: u32,
    to_send: VecDeque<Awaited>,
    to_acknowledge: VecDeque<Awaited>,
    /// Entries ever made.
    pub(crate) made: u64,
}

impl Errors {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A write that ends at `end` is to be reported.
    pub(crate) fn expect(&mut self, end: u64, zerocopy: bool, stamp: Option<Stamp>) {
        if zerocopy {
            self.copies.push_back((end, self.next_copy));
            self.next_copy = self.next_copy.wrapping_add(1);
        }
        if let Some(stamp) = stamp.filter(|stamp| stamp.wants()) {
            self.to_send.push_back(Awaited { end, stamp });
            self.to_acknowledge.push_back(Awaited { end, stamp });
        }
    }

    /// So much of the stream has been sent and acknowledged.
    pub(crate) fn progress(&mut self, sent: u64, acked: u64, now: Time) {
        while let Some(one) = self.to_send.pop_front_if(|one| one.end <= sent) {
            self.stamp(one, TX_SCHED, SCHED, now);
            self.stamp(one, TX_SOFTWARE, SND, now);
        }
        while let Some(one) = self.to_acknowledge.pop_front_if(|one| one.end <= acked) {
            self.stamp(one, TX_ACK, ACK, now);
        }
        while let Some((_, number)) = self.copies.pop_front_if(|(end, _)| *end <= acked) {
            self.made += 1;
            match self.entries.back_mut() {
                Some(Entry::Zerocopy { last, .. }) if last.wrapping_add(1) == number => *last = number,
                _ => self.entries.push_back(Entry::Zerocopy { first: number, last: number }),
            }
        }
    }

    fn stamp(&mut self, one: Awaited, wanted: u32, kind: u32, at: Time) {
        let flags = one.stamp.flags;
        if flags & wanted == 0 || flags & SOFTWARE == 0 {
            return;
        }
        let key = if flags & OPT_ID == 0 { 0 } else { (one.end - 1 - one.stamp.base) as u32 };
        self.entries.push_back(Entry::Time { kind, key, at, whole: flags & OPT_TSONLY == 0 });
        self.made += 1;
    }

    /// The next entry as `recvmsg` gives it to a socket of IPv6 (`v6`) or IPv4.
    pub(crate) fn take(&mut self, v6: bool) -> Option<Received> {
        let entry = self.entries.pop_front()?;
        let mut control = Vec::new();
        let mut flags = libc::MSG_ERRQUEUE;
        let (errno, origin, code, info, data) = match entry {
            Entry::Zerocopy { first, last } => (0, ORIGIN_ZEROCOPY, ZEROCOPY_COPIED, first, last),
            Entry::Time { kind, key, at, whole } => {
                control.push(ControlMessage {
                    level: libc::SOL_SOCKET,
                    kind: SCM_TIMESTAMPING,
                    data: timestamps(at),
                });
                // The packet itself comes with it, and nobody asks for its bytes.
                flags |= if whole { libc::MSG_TRUNC } else { 0 };
                (libc::ENOMSG as u32, ORIGIN_TIMESTAMPING, 0, kind, key)
            }
        };
        let (level, kind, offender) = if v6 {
            (libc::SOL_IPV6, libc::IPV6_RECVERR, size_of::<libc::sockaddr_in6>())
        } else {
            (libc::SOL_IP, libc::IP_RECVERR, size_of::<libc::sockaddr_in>())
        };
        // `struct sock_extended_err`, and the address of nobody.
        let mut bytes = errno.to_ne_bytes().to_vec();
        bytes.extend([origin, 0, code, 0]);
        bytes.extend(info.to_ne_bytes());
        bytes.extend(data.to_ne_bytes());
        bytes.resize(bytes.len() + offender, 0);
        control.push(ControlMessage { level, kind, data: bytes });
        Some(Received { len: 0, source: None, flags, control })
    }
}

/// `struct scm_timestamping`: the software time and two that stay zero.
fn timestamps(at: Time) -> Vec<u8> {
    let micros = of_day(at);
    let mut bytes = Vec::new();
    for number in [micros / 1_000_000, micros % 1_000_000 * 1000, 0, 0, 0, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_in_a_row_are_one_entry() {
        let mut errors = Errors::default();
        for end in [10, 20, 30] {
            errors.expect(end, true, None);
        }
        errors.progress(30, 9, Time::ZERO);
        assert!(errors.is_empty());
        errors.progress(30, 20, Time::ZERO);
        let got = errors.take(false).unwrap();
        let data = &got.control[0].data;
        assert_eq!((got.flags, data.len()), (libc::MSG_ERRQUEUE, 32));
        // Numbers are in the processor's byte order.
        assert_eq!(data[4..8], [5, 0, 1, 0]);
        assert_eq!(data[8..16], [0u32.to_ne_bytes(), 1u32.to_ne_bytes()].concat());
        errors.progress(30, 30, Time::ZERO);
        assert_eq!(errors.take(true).unwrap().control[0].data[8..16], [2u32.to_ne_bytes(); 2].concat());
        assert!(errors.take(true).is_none());
    }

    #[test]
    fn times_of_the_last_byte() {
        let mut errors = Errors::default();
        let flags = TX_SOFTWARE | TX_ACK | OPT_ID | SOFTWARE;
        errors.expect(100, false, Some(Stamp { flags, base: 0 }));
        errors.progress(100, 0, Time::from_secs(1));
        errors.progress(100, 100, Time::from_secs(2));
        for (kind, secs) in [(SND, 1), (ACK, 2)] {
            let got = errors.take(false).unwrap();
            assert_eq!(got.control[0].data[..8], (of_day(Time::from_secs(secs)) / 1_000_000).to_ne_bytes());
            assert_eq!(got.control[1].data[8..12], kind.to_ne_bytes());
            assert_eq!(got.control[1].data[12..16], 99_u32.to_ne_bytes());
            assert_eq!(got.flags, libc::MSG_ERRQUEUE | libc::MSG_TRUNC);
        }
        assert!(errors.is_empty());
    }
}
