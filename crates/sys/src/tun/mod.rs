//! TAP: an Ethernet interface of the kernel whose other side is this process.
//!
//! Packets that the kernel sends to the interface are read here, and packets written here are received by the kernel. Several descriptors
//! on one interface are its queues; `filter_rss` chooses the queue of each packet, so TAP behaves like a card with RSS. Each packet has a
//! virtio-net header, so that neither side computes checksums for the other, and TCP segments may have up to 64 KiB.
//!
//! It costs one system call per packet in each direction: TAP is for connectivity, not for speed. It works without privileges on an
//! interface that an administrator has created for the user; otherwise it needs `CAP_NET_ADMIN`.

mod attach;
mod end;
mod queue;
pub(crate) mod reader;

pub use end::{End, EndOptions, HEADER, LONGEST, MOST_QUEUES};
pub use queue::TapQueue;
use reader::Reader;

use crate::bpf::steer::{Steering, SteeringRules};
use crate::error::{Error, Result};
use crate::frame::FrameMemory;
use crate::needs;
use crate::netdev::{self, Interface};
use crate::sharing::{Hold, Side};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// How to open the queues of a TAP interface.
#[derive(Debug, Clone)]
pub struct TapOptions {
    /// The interface: one that exists, or one to make, which goes with the last queue.
    pub interface: String,
    /// How many queues, 1 to 256.
    pub queues: u32,
    /// Which queue the kernel sends a packet to; `None` leaves it to the kernel.
    pub steering: Option<SteeringRules>,
    /// Checksums may be left out both ways.
    pub checksum_offload: bool,
    /// Packets of up to 64 KiB, cut into segments (or merged from them) by the kernel. Needs `checksum_offload`.
    pub segmentation: bool,
    /// Addresses of the kernel's side, with prefix lengths, to set.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU to set, bytes; `None` leaves it.
    pub mtu: Option<u32>,
}

impl TapOptions {
    /// The usual settings for `queues` queues of `interface`.
    #[must_use]
    pub fn new(interface: &str, queues: u32) -> Self {
        Self {
            interface: interface.to_owned(),
            queues,
            steering: None,
            checksum_offload: true,
            segmentation: false,
            addresses: Vec::new(),
            mtu: None,
        }
    }
}

/// State shared by the queues of one TAP interface.
#[derive(Debug)]
pub struct Tap {
    interface: Interface,
    kernel_mac: [u8; 6],
    mtu: u32,
    steering: Option<Steering>,
    unsteered: Option<String>,
    _hold: Hold,
}

impl Tap {
    /// The interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Ethernet address of the kernel's side.
    #[must_use]
    pub fn kernel_mac(&self) -> [u8; 6] {
        self.kernel_mac
    }

    /// An Ethernet address for this side: the kernel's with another last byte, marked as locally administered.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        let mut mac = self.kernel_mac;
        mac[0] = mac[0] & !1 | 2;
        mac[5] ^= 1;
        mac
    }

    /// Largest IP packet, bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The steering, whose table can be changed while packets flow; `None` when the kernel chooses queues.
    #[must_use]
    pub fn steering(&self) -> Option<&Steering> {
        self.steering.as_ref()
    }

    /// Why there is no steering although it was wished for.
    #[must_use]
    pub fn unsteered(&self) -> Option<&str> {
        self.unsteered.as_deref()
    }
}

/// Opens the queues of a TAP interface, making it if it does not exist, and brings it up.
///
/// Where the kernel refuses the steering wished for, as without `CAP_BPF`, it is left out: see [`Tap::unsteered`].
///
/// # Errors
/// [`Error::MissingCapability`], [`Error::AddressBusy`] (another program), [`Error::DeviceBusy`] (all its queues are taken),
/// [`Error::Unsupported`] (an interface of another kind or with other flags), [`Error::Invalid`] (options).
pub fn open(options: &TapOptions, memory: &FrameMemory) -> Result<Vec<TapQueue>> {
    open_all(options, memory).map_err(|e| e.of_what_needs(needs::TAP.capabilities))
}

fn open_all(options: &TapOptions, memory: &FrameMemory) -> Result<Vec<TapQueue>> {
    if options.queues == 0 || options.queues > 256 {
        return Err(Error::Invalid(format!("{} TAP queues: from 1 to 256", options.queues)));
    }
    // Before the first queue is taken: it would get a share of the other program's packets at once.
    let held = Interface::find(&options.interface).ok().map(|i| Hold::all(&i, Side::Tap)).transpose()?;
    let mut files = Vec::new();
    for _ in 0..options.queues {
        files.push(queue_of(&options.interface, options.queues)?);
    }
    let interface = Interface::find(&options.interface)?;
    let hold = held.map_or_else(|| Hold::all(&interface, Side::Tap), Ok)?;
    if let Some(mtu) = options.mtu {
        interface.set_mtu(mtu)?;
    }
    for file in &files {
        offload(file, options).map_err(|e| Error::from_io(e, "agreeing on TAP offloads", "CAP_NET_ADMIN"))?;
    }
    let (steering, unsteered) = match options.steering.as_ref().zip(files.first()) {
        None => (None, None),
        Some((rules, file)) => match steer(rules, file, &options.interface) {
            Ok(steering) => (Some(steering), None),
            Err(e @ (Error::MissingCapability { .. } | Error::Verifier { .. })) => {
                (None, Some(e.of_what_needs(needs::TAP_STEERING.capabilities).to_string()))
            }
            Err(e) => return Err(e),
        },
    };
    for &(address, len) in &options.addresses {
        interface.add_address(address, len)?;
    }
    interface.set_up(true)?;
    let (kernel_mac, mtu) = (interface.mac()?, interface.mtu()?);
    let tap = Arc::new(Tap { interface, kernel_mac, mtu, steering, unsteered, _hold: hold });
    let longest = if options.segmentation { 65_536 + 18 } else { mtu as usize + 18 };
    let open = Arc::new(());
    let queue = |(i, file): (usize, File)| {
        let reader = Reader::new(longest, memory.frame_size());
        TapQueue::new(open.clone(), file, i as u16, reader, tap.clone())
    };
    Ok(files.into_iter().enumerate().map(queue).collect())
}

/// Has the kernel choose queues by these rules.
fn steer(rules: &SteeringRules, file: &File, interface: &str) -> Result<Steering> {
    let steering = Steering::new(rules)?;
    let program = steering.tap()?;
    let number = program.as_fd().as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one descriptor number.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETSTEERINGEBPF as _, &raw const number) } < 0 {
        return Err(Error::last(format!("steering {interface}"), "CAP_BPF"));
    }
    Ok(steering)
}

/// One more descriptor on the interface.
fn queue_of(name: &str, queues: u32) -> Result<File> {
    let mut error = io::Error::from_raw_os_error(libc::EINVAL);
    netdev::request(name)?;
    // An interface made for one queue does not take the flag for several.
    for flags in [libc::IFF_MULTI_QUEUE, 0] {
        let file = attach::device()?;
        match attach::take(&file, name, flags) {
            Ok(()) => return Ok(file),
            Err(e) => error = e,
        }
        if error.raw_os_error() != Some(libc::EINVAL) || queues > 1 {
            break;
        }
    }
    let interface = name.to_owned();
    Err(match error.raw_os_error() {
        Some(libc::EBUSY | libc::E2BIG) => {
            Error::DeviceBusy { interface, owner: "another program (all its queues are in use)".to_owned() }
        }
        Some(libc::EINVAL) => Error::Unsupported {
            what: format!(
                "is no TAP interface for several queues: 'ip tuntap add {name} mode tap multi_queue vnet_hdr'"
            ),
            interface,
        },
        _ => Error::from_io(error, format!("TAP interface {name}"), "CAP_NET_ADMIN"),
    })
}

/// Tells the kernel what may be left to us, and the header's length.
fn offload(file: &File, options: &TapOptions) -> io::Result<()> {
    let mut flags = 0;
    if options.checksum_offload {
        flags |= libc::TUN_F_CSUM;
        if options.segmentation {
            flags |= libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        }
    }
    attach::header(file)?;
    attach::offload(file, flags)
}
