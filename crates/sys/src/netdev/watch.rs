//! Notifications about one interface: down, carrier lost, up, a new MTU, removed.
//!
//! The kernel sends them on a netlink socket (rtnetlink(7), group `RTMGRP_LINK`), which needs no privilege. The first 32 bytes of each
//! message are parsed, `nlmsghdr` and `ifinfomsg`, and of the attributes behind them `IFLA_MTU`.
//!
//! ```text
//!    0        4      6       8     12    16          20        24      28
//!    ├────────┼──────┼───────┼─────┼─────┼───────────┼─────────┼───────┼───────┤
//!    │ length │ type │ flags │ seq │ pid │ family .. │ index   │ flags │ change│    numbers in machine order
//! ```

use super::Interface;
use crate::error::{Error, Result};
use crate::poll::wait_readable;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// State of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Packets pass.
    Up,
    /// Set down (`ip link set ... down`): no packet passes until it is set up again.
    Down,
    /// It is up, but nothing is at the other end: no cable, or the far end of a veth is down.
    NoCarrier,
    /// The MTU has changed to this number of bytes, IP header included.
    Mtu(u32),
    /// It was removed, or moved to another network namespace. That is final: another interface of the same name is
    /// another interface.
    Gone,
}

impl std::fmt::Display for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mtu(bytes) => return write!(f, "has an MTU of {bytes} now"),
            Self::Up => "is up again",
            Self::Down => "is down: nothing is sent or received until it is up again",
            Self::NoCarrier => "has no carrier: nothing is sent or received until it has",
            Self::Gone => "is gone",
        })
    }
}

/// Tells of changes of one interface's state.
#[derive(Debug)]
pub struct LinkWatch {
    socket: OwnedFd,
    index: u32,
    state: LinkState,
    mtu: Option<u32>,
    /// Notifications that were received together with others.
    next: Option<LinkState>,
}

impl LinkWatch {
    /// Watches an interface of the calling thread's network namespace from now on. It is taken to be up, so if it is
    /// not, that is the first news.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn new(interface: &Interface) -> Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(Error::last("a socket for news of interfaces", "none"));
        }
        // SAFETY: a non-negative result is a descriptor that is ours alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: `sockaddr_nl` is plain data for which all zeros is a value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address is readable for its length.
        if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
            return Err(Error::last("asking for news of interfaces", "none"));
        }
        let mtu = interface.mtu().ok();
        let watch = Self { socket, index: interface.index(), state: LinkState::Up, mtu, next: None };
        watch.ask();
        Ok(watch)
    }

    /// Waits until the state or the MTU changes, and returns the change; `None` after `timeout_ns` nanoseconds without one, and
    /// immediately after the removal of the interface has been reported.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> Option<LinkState> {
        while self.state != LinkState::Gone {
            if let Some(next) = self.next.take() {
                return Some(next);
            }
            while let Some(said) = self.read() {
                let state = said.state.filter(|state| *state != self.state);
                let mtu = said.mtu.filter(|mtu| self.mtu != Some(*mtu));
                self.state = state.unwrap_or(self.state);
                self.mtu = mtu.or(self.mtu);
                self.next = mtu.map(LinkState::Mtu);
                if let Some(new) = state.or_else(|| self.next.take()) {
                    return Some(new);
                }
            }
            // A signal ends the wait, too: whoever calls with a limit looks around then.
            let ready = wait_readable(&[self.socket.as_fd()], timeout_ns).unwrap_or(0);
            if ready == 0 && timeout_ns.is_some() {
                return None;
            }
        }
        None
    }

    /// The state as it is now.
    pub fn now(&mut self) -> LinkState {
        self.ask();
        while self.wait(Some(0)).is_some() {}
        self.state
    }

    /// Requests the current state: notifications may have been lost, or sent before we listened.
    fn ask(&self) {
        const LEN: usize = 32;
        let mut request = [0; LEN];
        request[0..4].copy_from_slice(&(LEN as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
        request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request[20..24].copy_from_slice(&self.index.to_ne_bytes());
        // SAFETY: the request is readable for its length. Should it fail, there is only less news.
        unsafe { libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), LEN, 0) };
    }

    /// Reads one batch of messages: the last that was said of our interface in it. `None`: nothing to read.
    fn read(&self) -> Option<Notice> {
        let mut buffer = [0u8; 16384];
        // SAFETY: at most its length is written into the buffer.
        let n = unsafe { libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => Some(said(&buffer[..n], self.index)),
            // More happened than the kernel would keep for us.
            Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) => {
                self.ask();
                Some(Notice::default())
            }
            Err(_) => None,
        }
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where an XDP program of an interface of the calling thread's network namespace runs (`XDP_ATTACHED_*`): 0: there is none, 1: in the driver. Needs no
/// privilege.
///
/// # Errors
/// A socket cannot be opened.
pub(crate) fn xdp_attached(interface: &Interface) -> Result<u8> {
    let watch = LinkWatch::new(interface)?;
    let mut buffer = [0u8; 16384];
    // News of other interfaces may come before the answer.
    for _ in 0..64 {
        if wait_readable(&[watch.socket.as_fd()], Some(1_000_000_000)).unwrap_or(0) == 0 {
            break;
        }
        // SAFETY: at most its length is written into the buffer.
        let n = unsafe { libc::recv(watch.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let Ok(n) = usize::try_from(n) else { continue };
        let message = &buffer[..n];
        if word(message, 20) == Some(interface.index()) && n > 32 {
            return Ok(attached(&message[32..]));
        }
    }
    Ok(0)
}

/// Where a program runs, by the attributes of an interface.
fn attached(attributes: &[u8]) -> u8 {
    const ATTACHED: u16 = 2;
    let xdp = find(attributes, libc::IFLA_XDP);
    xdp.and_then(|nested| find(nested, ATTACHED)).and_then(|value| value.first().copied()).unwrap_or(0)
}

/// The value of an attribute: each has its length, its kind, and its value. One that is longer than what there is does not exist.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(&[a, b, c, d]) = attributes.first_chunk::<4>() {
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        // The highest bit says that attributes are inside.
        if kind & 0x7fff == wanted {
            return attributes.get(4..len);
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
    None
}

/// What was said of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Notice {
    state: Option<LinkState>,
    mtu: Option<u32>,
}

/// The last state of an interface in a batch of messages.
fn said(mut batch: &[u8], index: u32) -> Notice {
    let mut said = Notice::default();
    while let Some(header) = batch.first_chunk::<16>() {
        let len = word(header, 0).map_or(0, |len| len as usize);
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        // One that is shorter than its headers ends where the batch does.
        let message = if len < 32 { batch } else { &batch[..len.min(batch.len())] };
        let body = &message[16..];
        let about_us = word(body, 4) == Some(index);
        if kind == libc::RTM_DELLINK && about_us {
            said.state = Some(LinkState::Gone);
        } else if let (libc::RTM_NEWLINK, true, Some(flags)) = (kind, about_us, word(body, 8)) {
            let flags = flags as i32;
            said.state = Some(match (flags & libc::IFF_UP != 0, flags & libc::IFF_LOWER_UP != 0) {
                (false, _) => LinkState::Down,
                (true, false) => LinkState::NoCarrier,
                (true, true) => LinkState::Up,
            });
            said.mtu = body.get(16..).and_then(mtu).or(said.mtu);
        } else if i32::from(kind) == libc::NLMSG_ERROR
            && word(body, 0).is_some_and(|e| e as i32 == -libc::ENODEV)
        {
            said.state = Some(LinkState::Gone);
        }
        // Each begins at a multiple of four.
        batch = batch.get(len.clamp(16, 1 << 20).next_multiple_of(4)..).unwrap_or_default();
    }
    said
}

/// The MTU among the attributes of an interface.
fn mtu(attributes: &[u8]) -> Option<u32> {
    find(attributes, libc::IFLA_MTU).and_then(|value| word(value, 0))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, index: u32, flags: i32) -> Vec<u8> {
        let mut bytes = vec![0; 32];
        bytes[0..4].copy_from_slice(&32u32.to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[20..24].copy_from_slice(&index.to_ne_bytes());
        bytes[24..28].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn the_last_word_about_our_interface_counts() {
        let up = libc::IFF_UP | libc::IFF_LOWER_UP;
        let said = |batch: &[u8], index| super::said(batch, index).state;
        let one = |kind, flags| said(&message(kind, 7, flags), 7);
        assert_eq!(one(libc::RTM_NEWLINK, up), Some(LinkState::Up));
        assert_eq!(one(libc::RTM_NEWLINK, libc::IFF_UP), Some(LinkState::NoCarrier));
        assert_eq!(one(libc::RTM_NEWLINK, 0), Some(LinkState::Down));
        assert_eq!(one(libc::RTM_DELLINK, 0), Some(LinkState::Gone));
        assert_eq!(said(&message(libc::RTM_DELLINK, 8, 0), 7), None, "another's");
        let mut error = message(libc::NLMSG_ERROR as u16, 0, 0);
        error[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        assert_eq!(said(&error, 7), Some(LinkState::Gone));
        let batch = [
            message(libc::RTM_NEWLINK, 7, up),
            message(libc::RTM_NEWLINK, 9, 0),
            message(libc::RTM_NEWLINK, 7, 0),
        ];
        assert_eq!(said(&batch.concat(), 7), Some(LinkState::Down));
        for cut in 0..96 {
            let _ = said(&batch.concat()[..cut], 7); // must not panic
        }
        let mut endless = message(libc::RTM_NEWLINK, 7, up);
        endless[0..4].copy_from_slice(&0u32.to_ne_bytes());
        assert_eq!(said(&endless, 7), Some(LinkState::Up), "a length of nothing does not keep us for ever");
        endless[0..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        let _ = said(&endless, 7);
    }

    #[test]
    fn the_mtu_is_among_the_attributes() {
        let attribute = |kind: u16, value: &[u8]| {
            let len = (4 + value.len()) as u16;
            let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let with = |attributes: &[Vec<u8>]| {
            let mut bytes = message(libc::RTM_NEWLINK, 7, libc::IFF_UP);
            bytes.extend(attributes.concat());
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes
        };
        let name = attribute(libc::IFLA_IFNAME, b"eth0\0");
        let mtu = |bytes: u32| attribute(libc::IFLA_MTU, &bytes.to_ne_bytes());
        let one = with(&[name.clone(), mtu(9000), name.clone()]);
        assert_eq!(said(&one, 7), Notice { state: Some(LinkState::NoCarrier), mtu: Some(9000) });
        assert_eq!(said(&one, 8), Notice::default());
        assert_eq!(said(&with(std::slice::from_ref(&name)), 7).mtu, None);
        // Another interface's, and one that says less, change nothing.
        let batch = [one.clone(), with(&[name])].concat();
        assert_eq!(said(&batch, 7).mtu, Some(9000));
        for cut in 0..batch.len() {
            let _ = said(&batch[..cut], 7); // must not panic
        }
        let endless = with(&[vec![0; 8]]);
        assert_eq!(said(&endless, 7).mtu, None, "attributes of no length end");
    }

    #[test]
    fn an_interface_that_stays_as_it_is_is_no_news() {
        let Ok(lo) = Interface::find("lo") else { return };
        if !lo.is_up().unwrap() {
            return;
        }
        let mut watch = LinkWatch::new(&lo).unwrap();
        assert_eq!(watch.wait(Some(1_000_000)), None);
        let none = Interface { name: "none".into(), index: u32::MAX >> 1 };
        let mut watch = LinkWatch::new(&none).unwrap();
        assert_eq!(watch.wait(Some(5_000_000_000)), Some(LinkState::Gone), "there never was one");
        assert_eq!(watch.wait(None), None);
    }
}
