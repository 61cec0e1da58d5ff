//! Descriptors of TAP interfaces: opening one, joining it to an interface, agreeing on what packets look like.

use crate::error::{Error, Result};
use crate::netdev;
use crate::vnet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// A descriptor of no interface yet.
pub(super) fn device() -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                Error::KernelTooOld { feature: "/dev/net/tun (module tun)", needs: "2.4" }
            }
            // The device's owner and mode say who may, no capability of ours.
            _ => Error::System {
                doing: "opening /dev/net/tun ('ls -l /dev/net/tun' shows who may; with mode 0666 everybody)"
                    .to_owned(),
                source: e,
            },
        })
}

/// Joins a descriptor to the interface `name`, made if it does not exist, with these flags beside the usual ones.
pub(super) fn take(file: &File, name: &str, flags: libc::c_int) -> io::Result<()> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | flags;
    let mut request = netdev::request(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an `ifreq`.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Tells the kernel the header's length.
pub(super) fn header(file: &File) -> io::Result<()> {
    let len = vnet::LEN as libc::c_int;
    // SAFETY: the command reads one number.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const len) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Tells the kernel what may be left to us: flags `TUN_F_...`.
pub(super) fn offload(file: &File, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the command takes a number.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags)) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
