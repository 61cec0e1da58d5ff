//! Generic netlink (linux/genetlink.h): a question to one of the kernel's families, and its answers.
//!
//! ```text
//!    0        4      6       8     12    16        20
//!    ├────────┼──────┼───────┼─────┼─────┼─────────┼──────────────
//!    │ length │ type │ flags │ seq │ pid │ command │ attributes       numbers in machine order; an attribute: length, kind, value,
//!                                                                     the next one at a multiple of four
//! ```
//!
//! Families are `ethtool` ([`card`](super::card)) and `netdev` ([`queues`](super::queues), [`napi`](super::napi)). Lengths in answers are checked before they are used:
//! an attribute that is longer than its message does not exist.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The family that knows the other families' numbers, its command and attributes.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Flag of an attribute that holds attributes.
pub(super) const NESTED: u16 = 0x8000;
/// Flag of a question about all there are.
pub(super) const ALL: u16 = libc::NLM_F_DUMP as u16;
/// Bytes before the attributes.
const HEAD: usize = 20;
/// Messages that are read as answers to one question, at most.
const MESSAGES: usize = 4096;

/// A socket to one family, of the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Family {
    socket: OwnedFd,
    number: u16,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Family {
    /// The family called `name`. Fails where the kernel has no such family.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a non-negative result is a descriptor that is ours alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // The kernel answers at once; a limit all the same.
        let limit = libc::timeval { tv_sec: 2, tv_usec: 0 };
        let len = size_of::<libc::timeval>() as libc::socklen_t;
        // SAFETY: the option's value is a timeval, readable for its length.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const limit).cast(),
                len,
            )
        };
        let mut family = Self { socket, number: CONTROL, sequence: 0, buffer: vec![0; 1 << 17] };
        let mut number = None;
        let name = [name.as_bytes(), &[0]].concat();
        family.ask(GET_FAMILY, 0, &attribute(FAMILY_NAME, &name), |body| {
            number = find(body, FAMILY_ID).and_then(|id| Some(u16::from_ne_bytes(*id.first_chunk::<2>()?)));
        })?;
        family.number = number.ok_or(io::ErrorKind::InvalidData)?;
        Ok(family)
    }

    /// Asks, and has `each` look at the attributes of each answer until the kernel has said all.
    pub(super) fn ask(
        &mut self,
        command: u8,
        flags: u16,
        attributes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence += 1;
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut message = ((HEAD + attributes.len()) as u32).to_ne_bytes().to_vec();
        message.extend(self.number.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend([command, 1, 0, 0]);
        message.extend(attributes);
        // SAFETY: the message is readable for its length.
        let sent = unsafe {
            libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        for _ in 0..MESSAGES {
            let at = self.buffer.as_mut_ptr().cast();
            // SAFETY: at most its length is written into the buffer.
            let n = unsafe { libc::recv(self.socket.as_raw_fd(), at, self.buffer.len(), libc::MSG_TRUNC) };
            let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
            // A message that was cut is of no use.
            let batch = self.buffer.get(..n).ok_or(io::ErrorKind::InvalidData)?;
            if let Some(end) = answers(batch, self.sequence, &mut each) {
                return end;
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Looks at the answers in a batch of messages; `Some` when the kernel has said all.
fn answers(mut batch: &[u8], sequence: u32, each: &mut impl FnMut(&[u8])) -> Option<io::Result<()>> {
    while let Some(head) = batch.first_chunk::<16>() {
        let len = number(head).map_or(0, |len| len as usize);
        let message = batch.get(..len).filter(|message| message.len() >= 16)?;
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        if number(&head[8..]) == Some(sequence) {
            match i32::from(kind) {
                libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                    let code = message.get(16..).and_then(number).map_or(0, |code| code as i32);
                    return Some(if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) });
                }
                _ => each(message.get(HEAD..).unwrap_or_default()),
            }
        }
        batch = batch.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// An attribute, with what fills it up.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of an attribute.
pub(super) fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(&[a, b, c, d]) = attributes.first_chunk::<4>() {
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        let value = attributes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A number of 4 or 8 bytes, as the kernel likes (`NLA_UINT`).
pub(super) fn unsigned(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        8 => bytes.first_chunk::<8>().map(|bytes| u64::from_ne_bytes(*bytes)),
        _ => number(bytes).map(u64::from),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A message as the kernel sends it; `body` begins behind its first 16 bytes.
    pub(in super::super) fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn batches_end_with_done_or_an_error_and_may_be_cut() {
        let body = [&[0; 4][..], &attribute(3, &7u32.to_ne_bytes())].concat();
        let none = 0u32.to_ne_bytes();
        let batch =
            [message(20, 4, &body), message(20, 5, &body), message(libc::NLMSG_DONE as u16, 5, &none)];
        let mut seen = Vec::new();
        let end = answers(&batch.concat(), 5, &mut |body| seen.push(find(body, 3).and_then(number)));
        assert!(matches!(end, Some(Ok(()))), "{end:?}");
        assert_eq!(seen, [Some(7)], "another's answer is not looked at");
        let refused = message(libc::NLMSG_ERROR as u16, 5, &(-libc::EOPNOTSUPP).to_ne_bytes());
        let end = answers(&refused, 5, &mut |_| {}).unwrap().unwrap_err();
        assert_eq!(end.raw_os_error(), Some(libc::EOPNOTSUPP));
        let whole = batch.concat();
        for cut in 0..whole.len() {
            let _ = answers(&whole[..cut], 5, &mut |body| {
                let _ = find(body, 3);
            }); // must not panic
        }
        assert!(answers(&message(20, 5, &[])[..16], 5, &mut |_| {}).is_none());
    }

    #[test]
    fn attributes_that_lie_about_their_length_end_the_search() {
        let good = attribute(3, &7u32.to_ne_bytes());
        assert_eq!(find(&[0; 64], 3), None, "attributes of no length end");
        let mut long = attribute(2, &[1; 8]);
        long[0] = 200;
        assert_eq!(find(&[long, good.clone()].concat(), 3), None, "longer than what there is");
        assert_eq!(find(&[attribute(2, &[1; 5]), good].concat(), 3), Some(&7u32.to_ne_bytes()[..]));
        assert_eq!(unsigned(&9u64.to_ne_bytes()), Some(9));
        assert_eq!(unsigned(&9u32.to_ne_bytes()), Some(9));
        assert_eq!((unsigned(&[9; 3]), number(&[9; 3])), (None, None));
    }

    #[test]
    fn a_family_that_is_not_there_is_an_error() {
        assert!(Family::open("flowlane-none").is_err());
    }
}
