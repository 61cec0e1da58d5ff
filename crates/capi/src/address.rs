//! Addresses with ports, as C has them.

use std::ffi::c_char;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::{Error, guarded};
use crate::pointer::{borrowed, give, room, text};

/// An IP address with a port. All zero: none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Address {
    /// The address in network order, of IPv4 in the first four bytes.
    pub ip: [u8; 16],
    /// The port in the processor's own order.
    pub port: u16,
    /// 4 or 6; 0 for no address: any of the host's.
    pub family: u8,
    /// Zero.
    pub reserved: u8,
}

impl Address {
    pub(crate) fn ip(&self) -> Result<Option<IpAddr>, Error> {
        match self.family {
            0 => Ok(None),
            4 => {
                let [a, b, c, d, ..] = self.ip;
                Ok(Some(Ipv4Addr::new(a, b, c, d).into()))
            }
            6 => Ok(Some(Ipv6Addr::from(self.ip).into())),
            other => Err(Error::invalid(format!("an address of family {other}: 4, 6, or 0 for any"))),
        }
    }

    /// An address that says where.
    pub(crate) fn socket(&self, what: &str) -> Result<SocketAddr, Error> {
        let ip = self.ip()?.ok_or_else(|| Error::invalid(format!("{what} has no address")))?;
        Ok(SocketAddr::new(ip, self.port))
    }

    pub(crate) fn of(ip: Option<IpAddr>, port: u16) -> Self {
        let mut address = Self { port, ..Self::default() };
        match ip {
            None => {}
            Some(IpAddr::V4(v4)) => {
                address.family = 4;
                address.ip[..4].copy_from_slice(&v4.octets());
            }
            Some(IpAddr::V6(v6)) => {
                address.family = 6;
                address.ip = v6.octets();
            }
        }
        address
    }
}

impl<T: Into<SocketAddr>> From<T> for Address {
    fn from(address: T) -> Self {
        let address = address.into();
        Self::of(Some(address.ip()), address.port())
    }
}

/// Reads an address: `10.0.0.1:7`, `[fd00::1]:7`, or without a port `10.0.0.1`, `fd00::1`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_address_parse(words: *const c_char, address: *mut Address) -> i32 {
    guarded(|| {
        // SAFETY: the program's text and place for a result.
        let words = unsafe { text(words, "the text of an address") }?;
        let parsed =
            words.parse::<SocketAddr>().or_else(|_| words.parse().map(|ip: IpAddr| SocketAddr::new(ip, 0)));
        let parsed = parsed.map_err(|_| {
            Error::invalid(format!("'{words}' is no address: as in 10.0.0.1:7 or [fd00::1]:7"))
        })?;
        // SAFETY: as above.
        unsafe { give(address, parsed.into(), "the address") }
    })
}

/// Writes an address as a text with a zero byte at its end; 64 bytes are enough for any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_address_format(
    address: *const Address,
    buffer: *mut c_char,
    size: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's address and buffer.
        let (address, buffer) =
            unsafe { (borrowed(address, "the address")?, room(buffer.cast::<u8>(), size, "the buffer")?) };
        let words = match address.ip()? {
            Some(ip) => SocketAddr::new(ip, address.port).to_string(),
            None => format!("*:{}", address.port),
        };
        let to = buffer.get_mut(..=words.len());
        let to =
            to.ok_or_else(|| Error::invalid(format!("{size} bytes for an address of {}", words.len() + 1)))?;
        to[..words.len()].copy_from_slice(words.as_bytes());
        to[words.len()] = 0;
        Ok(())
    })
}

/// Makes an address of a `struct sockaddr_in` or `struct sockaddr_in6` of `size` bytes. The zone of an IPv6 address is left out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_address_from_sockaddr(
    from: *const libc::sockaddr,
    size: libc::socklen_t,
    address: *mut Address,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's sockaddr, whose family and size say which it is; it may be unaligned.
        let made = unsafe {
            let family = i32::from(borrowed(from, "the sockaddr")?.sa_family);
            if family == libc::AF_INET && size as usize >= size_of::<libc::sockaddr_in>() {
                let from = from.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr));
                Address::of(Some(ip.into()), u16::from_be(from.sin_port))
            } else if family == libc::AF_INET6 && size as usize >= size_of::<libc::sockaddr_in6>() {
                let from = from.cast::<libc::sockaddr_in6>().read_unaligned();
                Address::of(Some(Ipv6Addr::from(from.sin6_addr.s6_addr).into()), u16::from_be(from.sin6_port))
            } else {
                return Err(Error::invalid(format!(
                    "a sockaddr of family {family} and {size} bytes: not of IPv4 or IPv6"
                )));
            }
        };
        // SAFETY: the program's place for a result.
        unsafe { give(address, made, "the address") }
    })
}

/// Makes a `struct sockaddr_in` or `struct sockaddr_in6` of an address; `size` is what there is room for, and then what was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_address_to_sockaddr(
    address: *const Address,
    to: *mut libc::sockaddr,
    size: *mut libc::socklen_t,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's address and places for results.
        unsafe {
            let from = borrowed(address, "the address")?.socket("the address")?;
            let size = crate::pointer::changed(size, "the size")?;
            let to = crate::pointer::changed(to, "the sockaddr")? as *mut libc::sockaddr;
            let mut write = |bytes: *const u8, len: usize| {
                if (*size as usize) < len {
                    return Err(Error::invalid(format!("room for {size} bytes of a sockaddr of {len}")));
                }
                std::ptr::copy_nonoverlapping(bytes, to.cast::<u8>(), len);
                *size = len as libc::socklen_t;
                Ok(())
            };
            match from {
                SocketAddr::V4(v4) => {
                    let mut made: libc::sockaddr_in = std::mem::zeroed();
                    made.sin_family = libc::AF_INET as libc::sa_family_t;
                    made.sin_port = v4.port().to_be();
                    made.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                    write((&raw const made).cast(), size_of_val(&made))
                }
                SocketAddr::V6(v6) => {
                    let mut made: libc::sockaddr_in6 = std::mem::zeroed();
                    made.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                    made.sin6_port = v6.port().to_be();
                    made.sin6_addr.s6_addr = v6.ip().octets();
                    write((&raw const made).cast(), size_of_val(&made))
                }
            }
        }
    })
}
