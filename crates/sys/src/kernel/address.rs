//! Socket addresses as the kernel reads and writes them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an address of either family, with its length.
#[derive(Clone, Copy)]
pub(super) struct Address {
    bytes: Room,
    len: libc::socklen_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Room {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Address {
    /// Room for the kernel to write to.
    pub(super) fn room() -> Self {
        // SAFETY: all zeros is a valid value of these plain C structures.
        let bytes = Room { v6: unsafe { std::mem::zeroed() } };
        Self { bytes, len: size_of::<Room>() as libc::socklen_t }
    }

    pub(super) fn new(address: SocketAddr) -> Self {
        let mut new = Self::room();
        match address {
            SocketAddr::V4(a) => {
                // SAFETY: all zeros is a valid value.
                let mut v4: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                v4.sin_family = libc::AF_INET as libc::sa_family_t;
                v4.sin_port = a.port().to_be();
                v4.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
                new.bytes.v4 = v4;
                new.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(a) => {
                // SAFETY: as above.
                let mut v6: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                v6.sin6_port = a.port().to_be();
                v6.sin6_addr.s6_addr = a.ip().octets();
                v6.sin6_scope_id = a.scope_id();
                new.bytes.v6 = v6;
                new.len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        new
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.bytes).cast()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.bytes).cast()
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        self.len
    }

    /// Where the kernel writes an address and its length: both at once, because each borrow of the whole ends the right to use
    /// pointers made by the one before.
    pub(super) fn room_and_len(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        ((&raw mut self.bytes).cast(), &raw mut self.len)
    }

    pub(super) fn set_len(&mut self, len: libc::socklen_t) {
        self.len = len;
    }

    /// The address; an IPv4-mapped IPv6 address is returned as IPv4. Unspecified for other address families.
    pub(super) fn get(&self) -> SocketAddr {
        // SAFETY: every bit pattern is valid for the union's members, all of which were initialised.
        let family = i32::from(unsafe { self.bytes.family });
        match family {
            libc::AF_INET => {
                // SAFETY: as above.
                let a = unsafe { self.bytes.v4 };
                let ip = Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
                SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into()
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let a = unsafe { self.bytes.v6 };
                let (ip, port) = (Ipv6Addr::from(a.sin6_addr.s6_addr), u16::from_be(a.sin6_port));
                match ip.to_ipv4_mapped() {
                    Some(v4) => SocketAddrV4::new(v4, port).into(),
                    None => SocketAddrV6::new(ip, port, 0, a.sin6_scope_id).into(),
                }
            }
            _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    }
}
