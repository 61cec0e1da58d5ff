//! An end of a pair of interfaces: a TAP interface that this process makes, and whose packets it passes on as they are.
//!
//! A [`TapQueue`](super::TapQueue) makes frames of packets, for a stack. An end leaves them as the kernel wrote them, in one piece behind
//! their virtio-net header, which says which checksum is missing and how the packet is to be segmented. Written to another end, with that
//! header, the packet goes on as if the kernel had passed it from one interface to the other.
//!
//! ```text
//!    0                 HEADER
//!    ├─────────────────┼──────────┬─────────────────────────┤
//!    │ virtio-net, 10  │ Ethernet │ up to 64 KiB of IP      │
//!    └─────────────────┴──────────┴─────────────────────────┘
//! ```
//!
//! The interface goes with the last descriptor, however the process ends. Any thread may read or write any queue: the kernel guards them,
//! and each read or write is one packet.

use super::{attach, steer};
use crate::bpf::steer::{Steering, SteeringRules};
use crate::error::{Error, Result};
use crate::needs;
use crate::netdev::{self, Interface};
use crate::vnet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes in front of each packet.
pub const HEADER: usize = vnet::LEN;
/// Bytes that hold any packet with its header: 64 KiB of IP, the Ethernet header, two tags, and one byte by which a longer one shows.
pub const LONGEST: usize = HEADER + 65_536 + 14 + 8 + 1;
/// Queues of an interface at most: the kernel's limit.
pub const MOST_QUEUES: u32 = 256;

/// What the kernel may leave undone in packets it hands out, the most first: UDP segmentation came with Linux 6.2.
const OFFLOADS: [libc::c_uint; 3] = [TCP | libc::TUN_F_USO4 | libc::TUN_F_USO6, TCP, libc::TUN_F_CSUM];
const TCP: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// How to make an end.
#[derive(Debug, Clone)]
pub struct EndOptions {
    /// Name of the interface, which must not exist yet.
    pub interface: String,
    /// Queues, 1 to [`MOST_QUEUES`].
    pub queues: u32,
    /// Which queue the kernel sends a packet to; `None` leaves it to the kernel.
    pub steering: Option<SteeringRules>,
    /// MTU to set, bytes; `None` leaves the kernel's 1500.
    pub mtu: Option<u32>,
    /// Packets that may wait in each queue until this process reads them; further ones the interface drops, and counts.
    pub waiting: u32,
}

/// A TAP interface of this process, with all of its queues.
#[derive(Debug)]
pub struct End {
    files: Vec<File>,
    interface: Interface,
    _steering: Option<Steering>,
    unsteered: Option<String>,
    offloads: libc::c_uint,
}

impl End {
    /// Makes the interface in the network namespace of the calling thread, and brings it up, without carrier.
    ///
    /// # Errors
    /// [`Error::MissingCapability`]; [`Error::Invalid`] for a name that is taken or no name, and for numbers out of range;
    /// [`Error::KernelTooOld`] without `/dev/net/tun`.
    pub fn make(options: &EndOptions) -> Result<Self> {
        Self::make_all(options).map_err(|e| e.of_what_needs(needs::TAP.capabilities))
    }

    fn make_all(options: &EndOptions) -> Result<Self> {
        let EndOptions { interface: name, queues, steering, mtu, waiting } = options;
        if *queues == 0 || *queues > MOST_QUEUES {
            return Err(Error::Invalid(format!("{queues} queues: an interface has from 1 to {MOST_QUEUES}")));
        }
        netdev::request(name)?;
        let taken = || Error::Invalid(format!("'{name}' is taken: there is an interface of this name"));
        if Interface::find(name).is_ok() {
            return Err(taken());
        }
        let mut files = Vec::new();
        for number in 0..*queues {
            // The first makes it, and nobody else can have made it meanwhile.
            let flags = libc::IFF_MULTI_QUEUE | if number == 0 { libc::IFF_TUN_EXCL } else { 0 };
            let file = attach::device()?;
            attach::take(&file, name, flags).map_err(|e| match e.raw_os_error() {
                Some(libc::EBUSY) => taken(),
                _ => Error::from_io(e, format!("making the interface {name}"), "CAP_NET_ADMIN"),
            })?;
            files.push(file);
        }
        let interface = Interface::find(name)?;
        let agreeing = |e| Error::from_io(e, "agreeing on TAP offloads", "CAP_NET_ADMIN");
        let mut agreed = 0;
        for file in &files {
            attach::header(file).map_err(agreeing)?;
            agreed = best_offloads(file).map_err(agreeing)?;
        }
        let (steering, unsteered) = match steering.as_ref().zip(files.first()) {
            None => (None, None),
            Some((rules, file)) => match steer(rules, file, name) {
                Ok(steering) => (Some(steering), None),
                Err(e) => (None, Some(e.of_what_needs(needs::TAP_STEERING.capabilities).to_string())),
            },
        };
        if let Some(mtu) = *mtu {
            interface.set_mtu(mtu)?;
        }
        interface.set_transmit_queue(*waiting)?;
        let end = Self { files, interface, _steering: steering, unsteered, offloads: agreed };
        // Before it is up, so that nothing is sent to where nobody reads yet.
        let no_carrier = |e| Error::from_io(e, "taking the carrier off an interface", "CAP_NET_ADMIN");
        end.set_carrier(false).map_err(no_carrier)?;
        end.interface.set_up(true)?;
        Ok(end)
    }

    /// The interface as it was made: it may have another name, number and namespace by now.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Number of queues.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.files.len()
    }

    /// Why the kernel chooses queues by itself although rules were given.
    #[must_use]
    pub fn unsteered(&self) -> Option<&str> {
        self.unsteered.as_deref()
    }

    /// Whether TCP segmentation is left undone in packets of this end, and whether that of UDP is.
    #[must_use]
    pub fn segmentation(&self) -> (bool, bool) {
        (self.offloads & libc::TUN_F_TSO4 != 0, self.offloads & libc::TUN_F_USO4 != 0)
    }

    /// The name of the interface now; `None` when it has been removed.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        // SAFETY: `ifreq` is plain data for which all zeros is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // SAFETY: TUNGETIFF writes an `ifreq`.
        let done = unsafe { libc::ioctl(self.first(), libc::TUNGETIFF as _, &raw mut request) };
        let letters = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| *c as u8);
        (done == 0).then(|| String::from_utf8_lossy(&letters.collect::<Vec<u8>>()).into_owned())
    }

    /// The network namespace that the interface is in now, to [enter](crate::netns::enter). Linux 5.7.
    ///
    /// # Errors
    /// The kernel's: `CAP_NET_ADMIN` is missing, or the interface has been removed.
    pub fn namespace(&self) -> Result<OwnedFd> {
        // SAFETY: the command takes nothing; a non-negative result is a descriptor that is ours alone.
        unsafe {
            let fd = libc::ioctl(self.first(), libc::TUNGETDEVNETNS as _, 0);
            if fd < 0 {
                return Err(Error::last("finding an interface's network namespace", "CAP_NET_ADMIN"));
            }
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }

    /// Says whether there is something at the other end. Linux 5.0.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_carrier(&self, on: bool) -> io::Result<()> {
        let on = libc::c_int::from(on);
        // SAFETY: TUNSETCARRIER reads one number.
        if unsafe { libc::ioctl(self.first(), libc::TUNSETCARRIER as _, &raw const on) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn first(&self) -> libc::c_int {
        self.files.first().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Reads one packet that the kernel sent by this queue, with its header: its bytes. Never waits.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: there is none. Others: the interface has been removed.
    pub fn read(&self, queue: usize, into: &mut [u8]) -> io::Result<usize> {
        self.files.get(queue).map_or(Err(io::ErrorKind::NotFound.into()), |mut file| file.read(into))
    }

    /// Has the kernel receive one packet, with its header, on this queue.
    ///
    /// # Errors
    /// The kernel's: `EIO` when the interface is down, `EINVAL` when header and packet do not fit together, `EBADFD` when the interface has
    /// been removed.
    pub fn write(&self, queue: usize, packet: &[u8]) -> io::Result<()> {
        self.files
            .get(queue)
            .map_or(Err(io::ErrorKind::NotFound.into()), |mut file| file.write(packet).map(drop))
    }

    /// What becomes readable when the kernel has sent something by this queue.
    #[must_use]
    pub fn fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.files.get(queue).map(AsFd::as_fd)
    }
}

/// Has the kernel leave as much undone as it can: what that is.
fn best_offloads(file: &File) -> io::Result<libc::c_uint> {
    let mut error = io::ErrorKind::InvalidInput.into();
    for flags in OFFLOADS {
        match attach::offload(file, flags) {
            Ok(()) => return Ok(flags),
            Err(e) => error = e,
        }
    }
    Err(error)
}
