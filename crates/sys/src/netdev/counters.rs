//! The kernel's counters of an interface (`IFLA_STATS64`), from wherever the socket was opened.
//!
//! A netlink socket stays in the network namespace in which it was opened, so it can be asked from any thread, without a privilege.
//!
//! ```text
//!    0        4      6       8     12    16          20        24      28       32
//!    ├────────┼──────┼───────┼─────┼─────┼───────────┼─────────┼───────┼───────┼──
//!    │ length │ type │ flags │ seq │ pid │ family .. │ index   │ flags │ change│ attributes
//! ```

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::Interface;
use crate::error::{Error, Result};
use crate::poll::wait_readable;

/// How long an answer may take, nanoseconds: the kernel gives it before the request returns.
const PATIENCE: u64 = 1_000_000_000;
/// Bytes of a request: the two headers.
const REQUEST: usize = 32;
/// Place of the packets that an interface dropped instead of sending, among its counters of eight bytes.
const SEND_DROPPED: usize = 7;

/// Asks for the counters of one interface.
#[derive(Debug)]
pub struct LinkCounters {
    socket: OwnedFd,
    index: u32,
    sequence: u32,
}

impl LinkCounters {
    /// Of an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn new(interface: &Interface) -> Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(Error::last("a socket for the counters of interfaces", "none"));
        }
        // SAFETY: a non-negative result is a descriptor that is ours alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { socket, index: interface.index(), sequence: 0 })
    }

    /// Packets that the interface dropped instead of sending; of a TAP interface those that found its queue full. `None` if it is gone.
    pub fn send_dropped(&mut self) -> Option<u64> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = [0; REQUEST];
        request[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
        request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        request[20..24].copy_from_slice(&self.index.to_ne_bytes());
        // SAFETY: the request is readable for its length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), REQUEST, 0) };
        if sent < 0 {
            return None;
        }
        let mut buffer = [0u8; 16384];
        while wait_readable(&[self.socket.as_fd()], Some(PATIENCE)).is_ok_and(|ready| ready > 0) {
            // SAFETY: at most its length is written into the buffer.
            let n =
                unsafe { libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            let answer = buffer.get(..usize::try_from(n).ok()?)?;
            // What is left of an earlier question, which was given up, is passed over.
            if word(answer, 8) == Some(self.sequence) {
                return send_dropped(answer, self.index);
            }
        }
        None
    }
}

/// What an answer says of an interface.
fn send_dropped(answer: &[u8], index: u32) -> Option<u64> {
    let kind = answer.get(4..6).map(|b| u16::from_ne_bytes([b[0], b[1]]))?;
    if kind != libc::RTM_NEWLINK || word(answer, 20) != Some(index) {
        return None;
    }
    let mut attributes = answer.get(REQUEST..)?;
    while let Some(&[a, b, c, d]) = attributes.first_chunk::<4>() {
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        if kind == libc::IFLA_STATS64 {
            let counters = attributes.get(4..len)?;
            return counters.get(8 * SEND_DROPPED..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an interface that nobody can fill, twice by one socket; and of none.
    #[test]
    fn the_loopback_drops_nothing_and_no_interface_has_counters() {
        let mut counters = LinkCounters::new(&Interface::find("lo").unwrap()).unwrap();
        assert_eq!((counters.send_dropped(), counters.send_dropped()), (Some(0), Some(0)));
        counters.index = 1 << 30;
        assert_eq!(counters.send_dropped(), None);
    }

    /// The eighth counter of the attribute, whatever stands before it; what is cut short says nothing.
    #[test]
    fn the_eighth_counter_is_read() {
        let mut answer = vec![0; REQUEST];
        answer[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        answer[20..24].copy_from_slice(&9u32.to_ne_bytes());
        let mut attribute = |kind: u16, value: &[u8]| {
            answer.extend((value.len() as u16 + 4).to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(value);
            answer.resize(answer.len().next_multiple_of(4), 0);
        };
        attribute(libc::IFLA_IFNAME, b"eth0\0");
        let counters: Vec<u8> = (1..=24u64).flat_map(u64::to_ne_bytes).collect();
        attribute(libc::IFLA_STATS64, &counters);
        assert_eq!(send_dropped(&answer, 9), Some(8));
        assert_eq!(send_dropped(&answer, 8), None);
        for len in 0..answer.len() - 1 {
            assert!(matches!(send_dropped(&answer[..len], 9), None | Some(8)), "{len}");
        }
        assert_eq!(send_dropped(&answer[..REQUEST + 12 + 40], 9), None);
    }
}
