//! A packet socket that sends single frames, and one that holds an interface open for every address.
//!
//! For probes: frames are handed to the kernel one by one and go through its queueing disciplines and programs, as what the kernel sends
//! itself does. Needs `CAP_NET_RAW`.

use super::{Memberships, bind, socket};
use crate::bpf::claim::Tags;
use crate::error::Result;
use crate::netdev::Interface;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Sends frames by one interface.
#[derive(Debug)]
pub struct RawSender {
    socket: OwnedFd,
}

impl RawSender {
    /// A sender by this interface of the calling thread's network namespace; it stays where it was opened.
    ///
    /// # Errors
    /// [`Error::MissingCapability`](crate::error::Error::MissingCapability), and the kernel's.
    pub fn open(interface: &Interface) -> Result<Self> {
        let socket = socket()?;
        // Of protocol 0: nothing is received.
        bind(socket.as_fd(), interface, 0)?;
        Ok(Self { socket })
    }

    /// Sends a frame, from its Ethernet header on.
    ///
    /// # Errors
    /// The kernel's: `WouldBlock` or `ENOBUFS` when the interface has no room now.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame is readable for its length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// An interface takes frames to any address, for as long as this lives.
#[derive(Debug)]
pub struct Promiscuous {
    _memberships: Memberships,
}

impl Promiscuous {
    /// Asks for it.
    ///
    /// # Errors
    /// [`Error::MissingCapability`](crate::error::Error::MissingCapability), and the kernel's.
    pub fn hold(interface: &Interface) -> Result<Self> {
        let mut memberships = Memberships::new(interface, &[], Tags::Any, None)?;
        memberships.everything(interface)?;
        Ok(Self { _memberships: memberships })
    }
}
