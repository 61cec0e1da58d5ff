//! The names of an interface: one that the kernel calls it by, up to 15 bytes long, and any number of others (`ip link property add dev
//! eth0 altname wan`), up to 127 bytes long, by which it is found as well.
//!
//! The `ioctl`s of old take names of 15 bytes, so a longer one is asked for over rtnetlink(7): `RTM_GETLINK` with `IFLA_ALT_IFNAME`
//! (Linux 5.5). Paths in `/sys`, messages and later questions need the first name, so whoever has found an interface goes on with that.

use super::{Interface, control, request};
use crate::error::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Longest name of either kind, without the zero behind it.
pub(super) const LONGEST: usize = 127;
/// `IFLA_ALT_IFNAME`.
const ALT_IFNAME: u16 = 53;
/// The first bytes of a message: `nlmsghdr` and `ifinfomsg`.
const HEADERS: usize = 32;

impl Interface {
    /// All interfaces of the calling thread's network namespace, by the kernel's numbers. (`/sys` may show those of another one.)
    ///
    /// # Errors
    /// The kernel's.
    pub fn all() -> Result<Vec<Self>> {
        let mut found = Vec::new();
        // SAFETY: the list is null or ends with an entry of index 0; it is given back below, and nothing points into it then.
        unsafe {
            let list = libc::if_nameindex();
            if list.is_null() {
                return Err(Error::last("the list of interfaces", "CAP_NET_ADMIN"));
            }
            let mut entry = list;
            while (*entry).if_index != 0 && !(*entry).if_name.is_null() {
                let name = std::ffi::CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned();
                found.push(Self { name, index: (*entry).if_index });
                entry = entry.add(1);
            }
            libc::if_freenameindex(list);
        }
        found.sort_unstable_by_key(|interface| interface.index);
        Ok(found)
    }

    /// The interface with this name, which may be an alternative one; it is called by its own name from then on.
    ///
    /// # Errors
    /// [`Error::NoSuchInterface`]; [`Error::Invalid`] for a text that no interface can be called by.
    pub fn find(name: &str) -> Result<Self> {
        if !may_be_name(name) {
            return Err(Error::Invalid(format!(
                "'{name}' is no interface name: 1 to {LONGEST} characters, no spaces or slashes"
            )));
        }
        let none = || Error::NoSuchInterface { name: name.to_owned() };
        if name.len() >= libc::IFNAMSIZ {
            return by_long_name(name)?.ok_or_else(none);
        }
        let mut request = request(name)?;
        let socket = control(libc::AF_INET)?;
        // SAFETY: SIOCGIFINDEX reads the name and writes the index, both inside the request.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut request) } < 0 {
            return Err(none());
        }
        // SAFETY: the kernel wrote this member of the union.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        // The index may have been found by another of its names.
        Self::numbered(index as u32).ok_or_else(none)
    }

    /// The interface with this number; `None` if there is none in the network namespace of the calling thread.
    #[must_use]
    pub fn numbered(index: u32) -> Option<Self> {
        let socket = control(libc::AF_INET).ok()?;
        // SAFETY: `ifreq` is plain data for which all zeros is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = i32::try_from(index).ok()?;
        // SAFETY: SIOCGIFNAME reads the index and writes the name, both inside the request.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) } < 0 {
            return None;
        }
        let name: Vec<u8> = request.ifr_name.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        Some(Self { name: String::from_utf8(name).ok()?, index })
    }
}

/// Whether an interface may be called so.
fn may_be_name(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len()) && !name.bytes().any(|b| matches!(b, 0 | b'/' | b' '))
}

/// Asks for the interface with an alternative name; `None` if there is none.
fn by_long_name(name: &str) -> Result<Option<Interface>> {
    let doing = "asking for an interface by name";
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(Error::last(doing, "none"));
    }
    // SAFETY: a non-negative result is a descriptor that is ours alone.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let question = question(name);
    // SAFETY: the question is readable for its length.
    if unsafe { libc::send(socket.as_raw_fd(), question.as_ptr().cast(), question.len(), 0) } < 0 {
        return Err(Error::last(doing, "none"));
    }
    let mut answer = vec![0u8; 1 << 16];
    // The kernel has answered by the time that the question is sent.
    // SAFETY: at most its length is written into the buffer.
    let n = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let n = usize::try_from(n).map_err(|_| Error::last(doing, "none"))?;
    Ok(named(&answer[..n]))
}

/// `RTM_GETLINK` for the interface with this alternative name.
fn question(name: &str) -> Vec<u8> {
    let value = name.len() + 1;
    let mut bytes = vec![0; HEADERS];
    bytes.extend(((4 + value) as u16).to_ne_bytes());
    bytes.extend(ALT_IFNAME.to_ne_bytes());
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let len = bytes.len() as u32;
    bytes[0..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes
}

/// Number and name of the interface that a message is about, if it is about one.
fn named(message: &[u8]) -> Option<Interface> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    if kind != libc::RTM_NEWLINK {
        return None;
    }
    let index = u32::from_ne_bytes(message.get(20..24)?.try_into().ok()?);
    let mut attributes = message.get(HEADERS..)?;
    while let Some(&[a, b, c, d]) = attributes.first_chunk::<4>() {
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        if kind == libc::IFLA_IFNAME {
            let name: Vec<u8> = attributes.get(4..len)?.iter().copied().take_while(|&c| c != 0).collect();
            return Some(Interface { name: String::from_utf8(name).ok()?, index });
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_a_number_and_the_number_a_name() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!(Interface::numbered(lo.index()), Some(lo));
        assert_eq!(Interface::numbered(u32::MAX), None);
        assert_eq!(Interface::numbered(i32::MAX as u32), None);
    }

    #[test]
    fn loopback_is_among_all() {
        let lo = Interface::find("lo").unwrap();
        let all = Interface::all().unwrap();
        assert!(all.contains(&lo), "{all:?}");
        assert!(all.windows(2).all(|pair| pair[0].index() < pair[1].index()), "{all:?}");
    }

    #[test]
    fn a_long_name_that_nobody_has_is_none_and_a_longer_one_no_name() {
        let long = "n".repeat(LONGEST);
        assert!(matches!(Interface::find(&long), Err(Error::NoSuchInterface { .. })));
        assert!(matches!(Interface::find(&format!("{long}n")), Err(Error::Invalid(_))));
        for bad in ["", "a b", "a/b", "a\0b"] {
            assert!(matches!(Interface::find(bad), Err(Error::Invalid(_))), "{bad:?}");
        }
    }

    #[test]
    fn an_answer_is_read_wherever_it_ends() {
        let mut answer = question("eth0");
        answer[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        answer[20..24].copy_from_slice(&7u32.to_ne_bytes());
        assert_eq!(named(&answer), None, "an alternative name is not its own");
        let mut both = answer.clone();
        let mut own = question("ens5")[HEADERS..].to_vec();
        own[2..4].copy_from_slice(&libc::IFLA_IFNAME.to_ne_bytes());
        both.extend(own);
        let found = named(&both).unwrap();
        assert_eq!((found.name(), found.index()), ("ens5", 7));
        for cut in 0..both.len() {
            let _ = named(&both[..cut]); // must not panic
        }
        both[HEADERS..HEADERS + 2].fill(0);
        let _ = named(&both); // attributes of no length end
        let mut error = answer;
        error[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert_eq!(named(&error), None);
    }
}
