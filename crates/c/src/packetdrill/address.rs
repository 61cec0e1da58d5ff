//! Socket addresses in C and back.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::{Address, Answer, Errno};

/// An address passed by a C caller.
///
/// # Safety
/// `at` is null or points to `len` readable bytes.
pub(super) unsafe fn from_c(at: *const libc::sockaddr, len: libc::socklen_t) -> Answer<Address> {
    if at.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let len = len as usize;
    if len < size_of::<libc::sa_family_t>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the family is the first field of every address, and there are bytes for it.
    let family = i32::from(unsafe { at.cast::<libc::sa_family_t>().read_unaligned() });
    match family {
        libc::AF_UNSPEC => Ok(Address::Unspecified),
        libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: there are enough bytes.
            let a = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
            Ok(Address::Inet(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(a.sin_port)))))
        }
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: there are enough bytes.
            let a = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
            let port = u16::from_be(a.sin6_port);
            Ok(Address::Inet(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, a.sin6_scope_id))))
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno(libc::EINVAL)),
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// The bytes of an address in C.
pub(super) fn to_bytes(address: SocketAddr) -> Vec<u8> {
    match address {
        SocketAddr::V4(a) => {
            let mut bytes = vec![0; size_of::<libc::sockaddr_in>()];
            bytes[..2].copy_from_slice(&(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
            bytes[2..4].copy_from_slice(&a.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&a.ip().octets());
            bytes
        }
        SocketAddr::V6(a) => {
            let mut bytes = vec![0; size_of::<libc::sockaddr_in6>()];
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
            bytes[2..4].copy_from_slice(&a.port().to_be_bytes());
            bytes[8..24].copy_from_slice(&a.ip().octets());
            bytes[24..28].copy_from_slice(&a.scope_id().to_ne_bytes());
            bytes
        }
    }
}

/// Gives an address to a C caller, cut to the room it has, and the whole length. A null pointer wants none.
///
/// # Safety
/// Both pointers are null, or `len` is valid and `at` has as many writable bytes as it says.
pub(super) unsafe fn to_c(address: SocketAddr, at: *mut libc::sockaddr, len: *mut libc::socklen_t) {
    if at.is_null() || len.is_null() {
        return;
    }
    let bytes = to_bytes(address);
    // SAFETY: as the caller promises.
    unsafe {
        let room = (*len as usize).min(bytes.len());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), room);
        *len = bytes.len() as libc::socklen_t;
    }
}
