//! Network interfaces by name: index, address, MTU, queues, checksum offload, by the `ioctl`s of old.
//!
//! All functions work in the network namespace of the calling thread. Reading needs no privilege; changing needs `CAP_NET_ADMIN` there.

pub mod card;
pub mod counters;
mod genl;
mod names;
pub mod napi;
pub mod queues;
pub mod settings;
pub mod watch;

use crate::error::{Error, Result};
use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An interface: its name and the number the kernel knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    name: String,
    index: u32,
}

/// Numbers of queues of an interface, as reported by its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// Queues that receive.
    pub receive: u32,
    /// Queues that send.
    pub transmit: u32,
}

impl Channels {
    /// Queues that can do both.
    #[must_use]
    pub fn pairs(self) -> u32 {
        self.receive.min(self.transmit)
    }
}

/// An `ifreq` for `name`, otherwise zero.
pub(crate) fn request(name: &str) -> Result<libc::ifreq> {
    let bytes = name.as_bytes();
    if bytes.is_empty()
        || bytes.len() >= libc::IFNAMSIZ
        || bytes.iter().any(|&b| b == 0 || b == b'/' || b == b' ')
    {
        return Err(Error::Invalid(format!(
            "'{name}' is no interface name: 1 to 15 characters, no spaces or slashes"
        )));
    }
    // SAFETY: `ifreq` is plain data for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, &from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// A socket to send `ioctl`s through.
fn control(family: c_int) -> Result<OwnedFd> {
    // SAFETY: no memory is involved; a non-negative result is a descriptor that is ours alone.
    unsafe {
        let fd = libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(Error::last("a socket to ask about interfaces", "CAP_NET_ADMIN"));
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

impl Interface {
    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number for it.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// One `ioctl` about this interface.
    ///
    /// # Safety
    /// `number` takes an `ifreq`, and what `fill` puts into it is what the command expects.
    unsafe fn ioctl(
        &self,
        number: libc::Ioctl,
        doing: &str,
        fill: impl FnOnce(&mut libc::ifreq),
    ) -> Result<libc::ifreq> {
        let mut request = request(&self.name)?;
        fill(&mut request);
        let socket = control(libc::AF_INET)?;
        // SAFETY: passed on to the caller.
        if unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut request) } < 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::ENODEV) {
                return Err(Error::NoSuchInterface { name: self.name.clone() });
            }
            return Err(Error::from_io(error, format!("{}: {doing}", self.name), "CAP_NET_ADMIN"));
        }
        Ok(request)
    }

    /// The Ethernet address.
    ///
    /// # Errors
    /// The kernel's; [`Error::Unsupported`] for an interface that is not Ethernet.
    pub fn mac(&self) -> Result<[u8; 6]> {
        // SAFETY: SIOCGIFHWADDR fills in the address.
        let request = unsafe { self.ioctl(libc::SIOCGIFHWADDR, "reading its address", |_| {}) }?;
        // SAFETY: the kernel wrote this member of the union.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        if !matches!(address.sa_family, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            return Err(Error::Unsupported {
                interface: self.name.clone(),
                what: "is not an Ethernet interface".to_owned(),
            });
        }
        Ok(std::array::from_fn(|i| address.sa_data[i] as u8))
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    /// The kernel's: some drivers want the interface down.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<()> {
        // SAFETY: SIOCSIFHWADDR reads the address, which is of the kind it expects.
        unsafe {
            self.ioctl(libc::SIOCSIFHWADDR, "setting its address", |r| {
                r.ifr_ifru.ifru_hwaddr.sa_family = libc::ARPHRD_ETHER;
                for (i, byte) in mac.iter().enumerate() {
                    r.ifr_ifru.ifru_hwaddr.sa_data[i] = *byte as libc::c_char;
                }
            })
        }
        .map(drop)
    }

    /// Largest IP packet, bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn mtu(&self) -> Result<u32> {
        // SAFETY: SIOCGIFMTU fills in the MTU.
        let request = unsafe { self.ioctl(libc::SIOCGIFMTU, "reading its MTU", |_| {}) }?;
        // SAFETY: the kernel wrote this member of the union.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// Sets the MTU, bytes.
    ///
    /// # Errors
    /// The kernel's: the driver may not take it.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        // SAFETY: SIOCSIFMTU reads the MTU.
        unsafe { self.ioctl(libc::SIOCSIFMTU, "setting its MTU", |r| r.ifr_ifru.ifru_mtu = mtu as c_int) }
            .map(drop)
    }

    /// Whether the interface is up.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_up(&self) -> Result<bool> {
        Ok(self.flags()? & libc::IFF_UP != 0)
    }

    /// Brings the interface up or down.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_up(&self, up: bool) -> Result<()> {
        let flags = self.flags()?;
        let wanted = if up { flags | libc::IFF_UP } else { flags & !libc::IFF_UP };
        if wanted == flags {
            return Ok(());
        }
        // SAFETY: SIOCSIFFLAGS reads the flags.
        unsafe { self.ioctl(libc::SIOCSIFFLAGS, "bringing it up", |r| r.ifr_ifru.ifru_flags = wanted as _) }
            .map(drop)
    }

    fn flags(&self) -> Result<c_int> {
        // SAFETY: SIOCGIFFLAGS fills in the flags.
        let request = unsafe { self.ioctl(libc::SIOCGIFFLAGS, "reading its state", |_| {}) }?;
        // SAFETY: the kernel wrote this member of the union.
        Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Gives the kernel's side of the interface an address: IPv4 replaces the first one, IPv6 is added.
    ///
    /// # Errors
    /// The kernel's; a prefix longer than the address.
    pub fn add_address(&self, address: IpAddr, prefix: u8) -> Result<()> {
        match address {
            IpAddr::V4(address) if prefix <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                for (number, value) in
                    [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, Ipv4Addr::from(mask))]
                {
                    // SAFETY: both commands read an IPv4 socket address.
                    unsafe {
                        self.ioctl(number, "giving it an address", |r| {
                            let at = (&raw mut r.ifr_ifru.ifru_addr).cast::<libc::sockaddr_in>();
                            (*at).sin_family = libc::AF_INET as libc::sa_family_t;
                            (*at).sin_addr.s_addr = u32::from(value).to_be();
                        })
                    }?;
                }
                Ok(())
            }
            IpAddr::V6(address) if prefix <= 128 => {
                let mut request = libc::in6_ifreq {
                    ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
                    ifr6_prefixlen: u32::from(prefix),
                    ifr6_ifindex: self.index as c_int,
                };
                let socket = control(libc::AF_INET6)?;
                // SAFETY: SIOCSIFADDR on an IPv6 socket reads an in6_ifreq.
                if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, &raw mut request) } < 0 {
                    return Err(Error::last(format!("{}: giving it an address", self.name), "CAP_NET_ADMIN"));
                }
                Ok(())
            }
            _ => Err(Error::Invalid(format!("{address}/{prefix}: the prefix is longer than the address"))),
        }
    }

    /// Sets how many packets wait in each of its transmit queues (`txqueuelen`). Of a TAP interface: packets that its program has not read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_transmit_queue(&self, packets: u32) -> Result<()> {
        let length = c_int::try_from(packets).unwrap_or(c_int::MAX);
        // SAFETY: SIOCSIFTXQLEN reads one number, which is a member of the union.
        unsafe { self.ioctl(libc::SIOCSIFTXQLEN, "setting its queue", |r| r.ifr_ifru.ifru_metric = length) }
            .map(drop)
    }

    /// An `ETHTOOL_*` command with its argument block, the command first.
    fn ethtool(&self, words: &mut [u32]) -> Result<()> {
        let at = words.as_mut_ptr();
        // SAFETY: SIOCETHTOOL reads and writes the block that `ifr_data` names; each caller's block is as long as its
        // command's structure.
        unsafe { self.ioctl(libc::SIOCETHTOOL, "asking its driver", |r| r.ifr_ifru.ifru_data = at.cast()) }
            .map(drop)
    }

    /// How many queues the interface has; one and one when the driver does not tell.
    ///
    /// # Errors
    /// The kernel's.
    pub fn channels(&self) -> Result<Channels> {
        const GET_CHANNELS: u32 = 0x3c;
        // struct ethtool_channels: command, four maxima, then receive, transmit, other, combined.
        let mut words = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        match self.ethtool(&mut words) {
            Ok(()) => {
                Ok(Channels { receive: (words[5] + words[8]).max(1), transmit: (words[6] + words[8]).max(1) })
            }
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Channels { receive: 1, transmit: 1 }),
            Err(e) => Err(e),
        }
    }

    /// Whether packets sent by the kernel leave this interface without their checksums, for the far end to compute
    /// or do without.
    ///
    /// # Errors
    /// The kernel's.
    pub fn transmit_checksum(&self) -> Result<bool> {
        const GET_TX_CHECKSUM: u32 = 0x16;
        let mut words = [GET_TX_CHECKSUM, 0];
        self.ethtool(&mut words)?;
        Ok(words[1] != 0)
    }

    /// Whether the card filters VLANs (`rx-vlan-filter`) and passes only those of the kernel; `false` if the driver does not report it.
    #[must_use]
    pub fn filters_vlans(&self) -> bool {
        card::ethtool::Ethtool::open(self).is_ok_and(|e| e.offload("rx-vlan-filter").unwrap_or(false))
    }

    /// Switches that off (`false`), so that packets leave with complete checksums, or on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_transmit_checksum(&self, on: bool) -> Result<()> {
        const SET_TX_CHECKSUM: u32 = 0x17;
        self.ethtool(&mut [SET_TX_CHECKSUM, u32::from(on)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_and_nonsense_is_not() {
        let lo = Interface::find("lo").unwrap();
        assert!(lo.index() > 0);
        assert_eq!(lo.mac().unwrap(), [0; 6]);
        assert!(lo.mtu().unwrap() >= 1280);
        assert_eq!(lo.channels().unwrap().pairs(), 1);
        // Loopback sends without sums and cannot be told to do otherwise; it has no VLAN filter.
        assert!(
            card::ethtool::Ethtool::open(&lo).unwrap().offload("tx-scatter-gather").unwrap()
                && !lo.filters_vlans()
        );
        assert!(matches!(Interface::find("no-such-if0"), Err(Error::NoSuchInterface { .. })));
        assert!(matches!(Interface::find("a name far too long"), Err(Error::Invalid(_))));
        assert!(matches!(Interface::find(""), Err(Error::Invalid(_))));
        assert!(matches!(lo.add_address(IpAddr::V4(Ipv4Addr::LOCALHOST), 33), Err(Error::Invalid(_))));
    }
}
