//! Sends that the kernel does not copy (`MSG_ZEROCOPY`), and the completions that it tells in the socket's error queue.
//!
//! ```text
//!   send 0   send 1   send 2   send 3        the kernel numbers the sends of a socket
//!   ┌──────┬────────┬────────┬────────┐
//!   │ done │ held   │ done   │ held   │      held: the kernel's segments refer to the bytes
//!   └──────┴────────┴────────┴────────┘
//!       completion "2 to 2" ──▲              `sock_extended_err`: ee_info to ee_data, and whether they were copied after all
//! ```
//!
//! The kernel reads the bytes until the peer has acknowledged them, even after the socket is closed. So their owners are held here until the
//! completion comes. If this is dropped before, the owners are never dropped: better memory lost than memory sent that is
//! somebody else's by then.
//!
//! See `Documentation/networking/msg_zerocopy.rst` of Linux.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::control::{Control, messages};
use crate::block::{Block, OwnedBytes};

/// `SO_ZEROCOPY` of `asm-generic/socket.h`.
const SO_ZEROCOPY: libc::c_int = 60;
/// `SO_EE_ORIGIN_ZEROCOPY` of `linux/errqueue.h`: where the completion comes from.
const ORIGIN: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED`: the kernel has copied the bytes.
const COPIED: u8 = 1;
/// Pieces that one call sends at most. The kernel's segments have room for 17.
pub const PIECES: usize = 16;

/// The sends of one connection that the kernel may still read.
#[derive(Debug, Default)]
pub struct ZeroCopy {
    /// Number of the first of `held`.
    first: u32,
    /// Of each send its bytes, `None` when they are free.
    held: VecDeque<Option<Vec<Block>>>,
    outstanding: usize,
    /// Sends in a row that the kernel copied.
    copied: u32,
}

/// What completions told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Completed {
    /// Sends whose memory is free.
    pub sends: u64,
    /// Of these, those that the kernel copied.
    pub copied: u64,
}

impl ZeroCopy {
    /// Prepares a connection for sends without copies. One for each connection, and before the first of them.
    ///
    /// # Errors
    /// The kernel's: it is older than Linux 4.14.
    pub fn enable(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let on: libc::c_int = 1;
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the value is valid for the call and only read.
        let done = unsafe {
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_ZEROCOPY, (&raw const on).cast(), len)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(Self::default()) }
    }

    /// Sends of the first 16 pieces what there is room for, and takes it off them; how many bytes. There must be one at least.
    ///
    /// # Errors
    /// The kernel's: `WouldBlock` if there is no room, `ENOBUFS` if it has no memory for another completion
    /// (`net.core.optmem_max`) or may lock no more pages (`ulimit -l`). Then nothing was sent.
    pub fn send(&mut self, fd: BorrowedFd<'_>, pieces: &mut [OwnedBytes]) -> io::Result<usize> {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
        let mut count = 0;
        for (part, piece) in parts.iter_mut().zip(&*pieces) {
            let data = piece.data();
            *part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
            count += 1;
        }
        // SAFETY: all zeros is a valid value of this plain C structure.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = count as _;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_ZEROCOPY;
        // SAFETY: the pieces are valid for the call and only read. The kernel reads what it has taken until it tells completion,
        // and until then its owners are held in `held`, which forgets them rather than drop them.
        let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut left = sent as usize;
        if left > 0 {
            let mut held = Vec::with_capacity(1);
            for piece in pieces.iter_mut().take(count) {
                let taken = piece.split_to(left);
                left -= taken.len();
                if !taken.is_empty() {
                    held.push(Block::owned(taken));
                }
                if left == 0 {
                    break;
                }
            }
            self.held.push_back(Some(held));
            self.outstanding += 1;
        }
        Ok(sent as usize)
    }

    /// Sends whose memory is in use.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The last `sends` were all copied: the device of this connection's path cannot read them from where they are, so it costs less
    /// to copy them at once.
    #[must_use]
    pub fn is_in_vain(&self, sends: u32) -> bool {
        self.copied >= sends
    }

    /// Takes the completions that have come, and lets go of the memory that they are about. With `cut_off` it is told that
    /// not all of it was acknowledged.
    pub fn take_completions(&mut self, fd: BorrowedFd<'_>, cut_off: bool) -> Completed {
        let mut all = Completed::default();
        while let Some((first, last, copied)) = next_completion(fd) {
            let sends = self.complete(first, last, cut_off);
            all.sends += sends;
            if copied {
                all.copied += sends;
                self.copied = self.copied.saturating_add(u32::try_from(sends).unwrap_or(u32::MAX));
            } else {
                self.copied = 0;
            }
        }
        all
    }

    /// The sends from number `first` to `last` are done; how many they were.
    fn complete(&mut self, first: u32, last: u32, cut_off: bool) -> u64 {
        // Numbers start again after 2^32.
        let (from, to) = (first.wrapping_sub(self.first) as usize, last.wrapping_sub(self.first) as usize);
        let mut sends = 0;
        for held in self.held.iter_mut().take(to.saturating_add(1)).skip(from) {
            if let Some(blocks) = held.take() {
                sends += 1;
                if cut_off {
                    blocks.iter().for_each(Block::cut_off);
                }
            }
        }
        while self.held.front().is_some_and(Option::is_none) {
            self.held.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        self.outstanding -= sends;
        sends as u64
    }
}

impl Drop for ZeroCopy {
    fn drop(&mut self) {
        // Guard: no `std::mem::forget(std::mem::take(&mut self.held));` fails kernel::zerocopy
        std::mem::forget(std::mem::take(&mut self.held));
    }
}

/// The next completion in the error queue: numbers of the first and the last send, and whether they were copied.
fn next_completion(fd: BorrowedFd<'_>) -> Option<(u32, u32, bool)> {
    loop {
        let mut control = Control::empty();
        // SAFETY: all zeros is a valid value of this plain C structure.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        // SAFETY: the kernel writes at most as many bytes of control messages as there is room for, and no data.
        let got = unsafe {
            libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        };
        if got < 0 {
            return None;
        }
        #[allow(clippy::unnecessary_cast, reason = "some C libraries count control bytes in 32 bits")]
        let len = (header.msg_controllen as usize).min(control.0.len());
        let mut found = None;
        messages(&control.0[..len], |level, kind, data| found = completion(level, kind, data).or(found));
        // What else may be there is none of ours.
        if found.is_some() {
            return found;
        }
    }
}

/// What a `sock_extended_err` says of a completion: errno, origin, type, code, padding, info, data.
fn completion(level: i32, kind: i32, data: &[u8]) -> Option<(u32, u32, bool)> {
    let ours = matches!(
        (level, kind),
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    );
    let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
    // Guard: `*data.get(4)? != ORIGIN` as `false` fails kernel::zerocopy
    if !ours || *data.get(4)? != ORIGIN || word(0)? != 0 {
        return None;
    }
    Some((word(8)?, word(12)?, *data.get(6)? == COPIED))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::*;
    use crate::kernel::socket;
    use crate::poll;

    /// `count` sends that are held, each with a handle that is alone when its memory is free.
    fn holding(count: usize) -> (ZeroCopy, Vec<Arc<()>>) {
        struct Told(#[expect(dead_code, reason = "counts")] Arc<()>);
        impl AsRef<[u8]> for Told {
            fn as_ref(&self) -> &[u8] {
                b"some"
            }
        }
        let told: Vec<_> = (0..count).map(|_| Arc::new(())).collect();
        let held = told.iter().map(|t| Some(vec![Block::owned(OwnedBytes::new(Told(t.clone())))]));
        (ZeroCopy { held: held.collect(), outstanding: count, ..ZeroCopy::default() }, told)
    }

    fn free(told: &[Arc<()>]) -> Vec<usize> {
        (0..told.len()).filter(|n| Arc::strong_count(&told[*n]) == 1).collect()
    }

    #[test]
    fn completions_in_any_order_free_what_they_name_and_nothing_else() {
        let (mut sends, told) = holding(6);
        sends.first = u32::MAX - 1; // numbers start again behind the second
        assert_eq!(sends.complete(0, 1, false), 2);
        assert_eq!((free(&told), sends.outstanding()), (vec![2, 3], 4));
        assert_eq!(sends.complete(0, 1, false), 0, "told twice");
        assert_eq!(sends.complete(u32::MAX - 1, u32::MAX, false), 2);
        assert_eq!((sends.first, sends.held.len()), (2, 2));
        assert_eq!(sends.complete(9, 4_000_000_000, false), 0, "never sent");
        assert_eq!(sends.complete(u32::MAX, 0, false), 0, "long free");
        assert_eq!(sends.complete(3, 3, false), 1);
        assert_eq!(free(&told), [0, 1, 2, 3, 5]);
        // What the kernel may still read is never dropped.
        drop(sends);
        assert_eq!(free(&told), [0, 1, 2, 3, 5]);
    }

    #[test]
    fn a_send_over_the_loopback_completes_as_copied() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut sends = match ZeroCopy::enable(client.as_fd()) {
            Ok(sends) => sends,
            Err(e) => return crate::skipped(format_args!("skipped, because {e}")),
        };
        let told = Arc::new(());
        struct Told(Vec<u8>, #[expect(dead_code, reason = "counts")] Arc<()>);
        impl AsRef<[u8]> for Told {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let mut pieces = [
            OwnedBytes::new(Told(vec![1; 20_000], told.clone())),
            OwnedBytes::new(Told(vec![2; 10_000], told.clone())),
        ];
        let sent = sends.send(client.as_fd(), &mut pieces).unwrap();
        assert_eq!((sent, pieces[0].len(), pieces[1].len()), (30_000, 0, 0));
        drop(pieces);
        let mut got = vec![0; 30_000];
        std::io::Read::read_exact(&mut server, &mut got).unwrap();
        assert!(got[..20_000].iter().all(|b| *b == 1) && got[20_000..].iter().all(|b| *b == 2));
        let mut all = Completed::default();
        while sends.outstanding() > 0 {
            // An error queue with something in it is an error, which every wait reports.
            poll::wait_readable(&[client.as_fd()], Some(30_000_000_000)).unwrap();
            let more = sends.take_completions(client.as_fd(), false);
            assert!(more.sends > 0, "nothing within 30 s");
            all.sends += more.sends;
            all.copied += more.copied;
        }
        assert_eq!((all, Arc::strong_count(&told)), (Completed { sends: 1, copied: 1 }, 1));
        assert!(sends.is_in_vain(1) && !sends.is_in_vain(2));
        // A peer that is cut off frees the memory, too.
        socket::disconnect(client.as_fd()).unwrap();
        assert_eq!(sends.take_completions(client.as_fd(), true), Completed::default());
    }

    #[test]
    fn what_is_no_completion_is_passed_over() {
        let mut data = [0u8; 16];
        (data[4], data[6]) = (ORIGIN, COPIED);
        data[8..12].copy_from_slice(&7u32.to_ne_bytes());
        data[12..].copy_from_slice(&9u32.to_ne_bytes());
        let read = |data: &[u8]| completion(libc::IPPROTO_IP, libc::IP_RECVERR, data);
        assert_eq!(read(&data), Some((7, 9, true)));
        assert_eq!(completion(libc::IPPROTO_IP, libc::IP_TTL, &data), None);
        for cut in 0..16 {
            assert_eq!(read(&data[..cut]), None);
        }
        data[4] = 2; // ICMP
        assert_eq!(read(&data), None);
    }
}
