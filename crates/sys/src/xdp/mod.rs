//! AF_XDP: packets between a card's queues and frame memory, without the kernel's stack.
//!
//! ```text
//!            FrameMemory, registered once (the "umem")
//!      ┌───────────────┬───────────────┬────────────────┐
//!   fill│  receive      │ transmit       │completion       one socket a queue, its four rings, its XdpQueue
//!      ▼      ▲          ▼                ▲
//!   ┌───────────────────────────────────────┐
//!   │ queue i of the interface              │◀── xdp_claim: ours to the socket, the rest to the kernel
//!   └───────────────────────────────────────┘
//! ```
//!
//! [`open`] creates the sockets, binds each to its queue and attaches the program; everything that can be checked is checked before the
//! card is changed. The socket of the nth queue gets frames of home n, if no worker has attached it yet. A frame's buffer is one chunk of
//! the kernel's, and the kernel puts packets behind [`HEADROOM`](crate::frame::HEADROOM), so a received frame is like one from the pool.
//! In copy mode the kernel copies each packet once in each direction; in zero-copy mode the card reads and writes the frames itself.
//!
//! Invariants: a frame is the kernel's or ours (`held.rs`); the program is detached when the last queue is closed, however the process
//! ends; packets of a queue without a socket go to the kernel. RSS stays as it was, even if the driver loses it when a program is
//! attached ([`settings`]), and when it is detached, if the thread that closes the last queue has `CAP_NET_ADMIN`.
//!
//! Pitfalls: in copy mode nothing is sent without a system call ([`Queue::flush`](crate::queue::Queue::flush) makes it), and one call may
//! send only 32 packets. Two programs cannot share an interface. For particular drivers see `docs/links.md`.

mod handed;
mod held;
mod queue;
mod rings;
mod socket;
mod told;
mod trial;

pub use queue::XdpQueue;
pub use trial::{Cost, Trial};

use crate::bpf::claim::{ClaimCounters, Claims, Tags};
use crate::bpf::{self, Link, Map, MapKind, Program, XdpMode};
use crate::error::{Error, Result};
use crate::frame::FrameMemory;
use crate::needs;
use crate::netdev::Interface;
use crate::netdev::settings::{self, CardSettings};
use crate::netdev::watch::{LinkState, LinkWatch};
use crate::packet::{Memberships, OffloadSocket};
use crate::sharing::{Hold, Side};
use crate::words::counted;
use queue::Settings;
use socket::Opening;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Frames of one packet at most: what the kernel takes for sending (`MAX_SKB_FRAGS`, and one).
const MAX_PIECES: usize = 18;

/// Whether the card or the kernel copies packets between card and frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// The card if it can, else the kernel.
    #[default]
    Auto,
    /// The kernel.
    Copy,
    /// The card; an error if it cannot.
    ZeroCopy,
    /// Whoever a [`Trial`] finds faster, which whoever opens the interface has to run before; without it as `Auto`.
    Measure,
}

/// How to open the queues of an interface.
#[derive(Debug, Clone)]
pub struct XdpOptions {
    /// The interface.
    pub interface: String,
    /// First queue to open.
    pub first_queue: u32,
    /// How many queues to open.
    pub queues: u32,
    /// Prefixes to take: address and length. Packets to other addresses stay with the kernel.
    pub claims: Vec<(IpAddr, u8)>,
    /// With which VLAN tag.
    pub tags: Tags,
    /// Take every frame instead, for a switch. The interface is promiscuous until the queues are closed.
    pub everything: bool,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Who copies.
    pub copy: CopyMode,
    /// Entries of each ring, a power of two from 64 to 32768.
    pub ring_size: u32,
    /// The kernel says when it wants a system call, instead of being called every time.
    pub need_wakeup: bool,
    /// Packets sent in one system call at most, in copy mode, where the kernel lets us say (else it is 32).
    pub send_budget: u32,
    /// Let this thread drive the card's receive path instead of interrupts: packets a poll at most.
    pub busy_poll: Option<u32>,
    /// Frames of each home that wait for packets at most, on all queues together; `None`: half of the home's.
    pub waiting: Option<usize>,
    /// Ask the driver for the hash it computed, and name its kind (`enum xdp_rss_hash_type`) as
    /// [`Meta::hash_type`](crate::frame::Meta) wants it. Ignored where driver or mode have none.
    pub hash_type: Option<fn(u32) -> u8>,
    /// Take packets whose checksum and segmentation are left to the interface, or else to the kernel.
    pub offload: bool,
    /// The map of a program of somebody else, which is on the interface already: sockets are put into it, and no program of ours is loaded. All
    /// packets of the queues come then, whatever is claimed. Needs `CAP_NET_RAW` alone, from Linux 5.19 on.
    pub map: Option<Arc<OwnedFd>>,
}

impl XdpOptions {
    /// The usual settings for `queues` queues of `interface`.
    #[must_use]
    pub fn new(interface: &str, queues: u32, claims: Vec<(IpAddr, u8)>) -> Self {
        Self {
            interface: interface.to_owned(),
            first_queue: 0,
            queues,
            claims,
            tags: Tags::Any,
            everything: false,
            mode: XdpMode::Auto,
            copy: CopyMode::Auto,
            ring_size: 2048,
            need_wakeup: true,
            send_budget: 1024,
            busy_poll: None,
            waiting: None,
            hash_type: None,
            offload: false,
            map: None,
        }
    }
}

/// State shared by the queues of one interface. The program stays attached while this exists.
#[derive(Debug)]
pub struct Device {
    /// First to go: no packet finds a socket any more. There until then, unless the program is somebody else's.
    link: Option<Link>,
    _program: Option<Program>,
    sockets: Map,
    /// What the program takes; `None`: it is somebody else's, and takes everything.
    claims: Option<Claims>,
    interface: Interface,
    mode: XdpMode,
    zero_copy: bool,
    delivers_hash: bool,
    settings: CardSettings,
    memberships: Memberships,
    /// The interface had a carrier before it was opened, and had lost it then.
    lost_carrier: bool,
    /// The card was told to leave VLAN tags in packets.
    leaves_tags: bool,
    _hold: Hold,
}

impl Drop for Device {
    /// The card is left as it was found, as far as this thread may: without privileges there is nothing to be done here.
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.settings.refresh_rss();
            drop(link);
            let _ = self.settings.restore();
        }
    }
}

impl Device {
    /// The claimed prefixes; they can be changed while packets flow. `None` where the program is somebody else's, and takes everything.
    #[must_use]
    pub fn claims(&self) -> Option<&Claims> {
        self.claims.as_ref()
    }

    /// Whether the program on the interface is somebody else's.
    #[must_use]
    pub fn is_handed(&self) -> bool {
        self.claims.is_none()
    }

    /// Counters of the program on one queue.
    #[must_use]
    pub fn counters(&self, queue: u32) -> ClaimCounters {
        self.claims.as_ref().map_or_else(ClaimCounters::default, |claims| claims.counters(queue))
    }

    /// The interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Where the program runs.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Whether the card itself moves the bytes between its queues and the frames.
    #[must_use]
    pub fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Whether the interface lost its carrier when it was opened: some drivers reset the card for an XDP program, and Intel's then take
    /// seconds until packets pass again.
    #[must_use]
    pub fn lost_carrier(&self) -> bool {
        self.lost_carrier
    }

    /// Whether the card was told to leave VLAN tags in received packets, which it took off them before.
    #[must_use]
    pub fn leaves_tags(&self) -> bool {
        self.leaves_tags
    }

    /// Whether the card was made promiscuous, because it filters VLANs and does not have ours.
    #[must_use]
    pub fn is_promiscuous(&self) -> bool {
        self.memberships.is_promiscuous()
    }

    /// Takes packets to a multicast group or an address, too, from the kernel's programs. Needs no privilege from Linux 5.19 on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn join(&self, group: IpAddr) -> Result<()> {
        self.memberships
            .join(group)
            .map_err(|e| Error::from_io(e, format!("joining {group}"), "CAP_NET_RAW"))?;
        self.claims.as_ref().map_or(Ok(()), |claims| claims.join(group))
    }

    /// Takes packets to an address, which the kernel gets no more, or leaves them to it again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn claim(&self, address: IpAddr, ours: bool) -> Result<()> {
        let Some(claims) = self.claims.as_ref() else { return Ok(()) };
        let len = if address.is_ipv4() { 32 } else { 128 };
        if !ours {
            return claims.remove(address, len);
        }
        self.memberships
            .join(address)
            .map_err(|e| Error::from_io(e, format!("taking {address}"), "CAP_NET_RAW"))?;
        claims.add(address, len)
    }

    /// Whether packets come with the driver's hash.
    #[must_use]
    pub fn delivers_hash(&self) -> bool {
        self.delivers_hash
    }

    /// Takes a queue's socket from the program and waits until no packet is on its way to it. Closing the socket would
    /// do the same, but only with its last descriptor, and a child process that is just being started may hold a copy.
    fn withdraw(&self, queue: u32) {
        const GLOBAL: i32 = 1;
        let _ = self.sockets.delete(&queue.to_ne_bytes());
        // SAFETY: takes numbers only. In the kernel it waits until every reader under RCU, as receive paths are, has
        // finished. Where it is missing, closing is what there is.
        unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    }
}

/// Opens queues of an interface.
///
/// # Errors
/// [`Error::NoSuchInterface`], [`Error::MissingCapability`], [`Error::DeviceBusy`] (another XDP program),
/// [`Error::QueueBusy`] (another socket), [`Error::Unsupported`] (no such queue, MTU, no zero-copy),
/// [`Error::Invalid`] (options).
pub fn open(options: &XdpOptions, memory: &FrameMemory) -> Result<Vec<XdpQueue>> {
    let needs = if options.map.is_some() { needs::AF_XDP_HANDED } else { needs::AF_XDP };
    // The rings are written and read for every packet, as the frames are.
    let _near = crate::numa::Preferred::node(memory.node());
    open_all(options, memory).map_err(|e| e.of_what_needs(needs.capabilities))
}

fn open_all(options: &XdpOptions, memory: &FrameMemory) -> Result<Vec<XdpQueue>> {
    let interface = Interface::find(&options.interface)?;
    let options = &XdpOptions { copy: who_copies(options, &interface), ..options.clone() };
    check(options, &interface, memory)?;
    let highest = options.first_queue + options.queues;
    let mut memberships = Memberships::new(&interface, &options.claims, options.tags, None)?;
    let hold = if options.everything {
        memberships.everything(&interface)?;
        Hold::all(&interface, Side::Link)?
    } else {
        Hold::new(&interface, Side::Link, &options.claims, options.tags)?
    };
    let (claims, sockets) = match &options.map {
        Some(map) => {
            let copy = map.try_clone().map_err(|e| Error::from_io(e, "a descriptor of the map", "none"))?;
            (None, handed::adopt(copy, &interface, highest)?)
        }
        None => {
            let everything = options.everything;
            let claims =
                if everything { Claims::everything() } else { Claims::new(&options.claims, options.tags) };
            (Some(claims?), Map::new(MapKind::XskMap, "flowlane_xsk", 4, 4, highest as usize)?)
        }
    };
    // Packets longer than what a frame holds come in several.
    let chains = longest(&interface)? > room(memory);
    let fits = chains.then(|| room(memory) - 18);
    // At most half of a home's frames wait for packets, on all its queues together; the others are for sending and for packets in hand.
    let waiting = options.waiting.unwrap_or(memory.count() / memory.homes() / 2)
        / (options.queues as usize).div_ceil(memory.homes());
    let fill = options.ring_size.min(waiting as u32).max(1);
    let bound = socket::in_order(
        options.first_queue..highest,
        memory,
        |first| Opening::new(options, memory, first),
        |opening, pool| opening.fill(pool, fill),
        |opening, queue, first: Option<&Opening>| {
            opening.bind(options, &interface, queue, fits, first.map(|first| first.socket.as_fd()))
        },
    )?;
    let zero_copy = bound.first().is_some_and(Opening::is_zero_copy);
    let device = Arc::new(attach(options, interface, claims, sockets, zero_copy, (memberships, hold))?);
    let settings = Settings {
        queue: 0,
        need_wakeup: options.need_wakeup,
        zero_copy,
        chains,
        busy_poll: options.busy_poll.is_some(),
        hash_type: options.hash_type.filter(|_| device.delivers_hash),
        unfinished: device.mode == XdpMode::Generic
            || settings::driver(&device.interface).is_some_and(|name| name == "veth"),
    };
    let mut queues: Vec<XdpQueue> = Vec::new();
    for (queue, opening) in (options.first_queue..highest).zip(bound) {
        let offload = options.offload.then(|| OffloadSocket::open(&device.interface)).transpose()?;
        let settings = Settings { queue, ..settings };
        let opened = XdpQueue::new(opening, fill, settings, offload, device.clone());
        let number = (opened.socket().as_raw_fd() as u32).to_ne_bytes();
        device.sockets.update(&queue.to_ne_bytes(), &number).map_err(|e| of_map(e, &device, queue))?;
        queues.push(opened);
    }
    Ok(queues)
}

/// Why a socket cannot be put into the map.
fn of_map(e: std::io::Error, device: &Device, queue: u32) -> Error {
    match e.raw_os_error() {
        Some(libc::EPERM) if device.is_handed() => Error::Unsupported {
            interface: device.interface.name().to_owned(),
            what: "this kernel lets only programs with CAP_BPF change a map that was handed over (before Linux 5.19)".to_owned(),
        },
        _ => Error::from_io(e, format!("giving the program its socket of queue {queue}"), "CAP_BPF"),
    }
}

/// Bytes of the longest packet on an interface: its MTU, an Ethernet header and a VLAN tag.
fn longest(interface: &Interface) -> Result<usize> {
    Ok(interface.mtu()? as usize + 18)
}

/// Bytes of a packet that one frame holds.
fn room(memory: &FrameMemory) -> usize {
    memory.frame_size() - crate::frame::HEADROOM
}

fn check(options: &XdpOptions, interface: &Interface, memory: &FrameMemory) -> Result<()> {
    let unsupported = |what: String| Err(Error::Unsupported { interface: options.interface.clone(), what });
    if !options.ring_size.is_power_of_two() || !(64..=32768).contains(&options.ring_size) {
        return Err(Error::Invalid(format!(
            "AF_XDP ring of {} entries: a power of two from 64 to 32768",
            options.ring_size
        )));
    }
    if memory.frame_size() > 4096 {
        return unsupported(format!(
            "AF_XDP takes frames of 2048 or 4096 bytes, not {}",
            memory.frame_size()
        ));
    }
    let there = interface.channels()?.pairs();
    if options.queues == 0 || options.first_queue + options.queues > there {
        return unsupported(format!(
            "has {}, not {} from number {} on: see 'ethtool -l', change with 'ethtool -L'",
            counted(there as usize, "queue pair"),
            options.queues,
            options.first_queue
        ));
    }
    // The kernel sends no packet from more.
    let most = MAX_PIECES * room(memory) - 18;
    if longest(interface)? - 18 > most {
        return unsupported(format!(
            "an MTU of {} is more than {MAX_PIECES} frames of {} bytes hold: lower it with 'ip link set {} mtu {most}', \
             or use larger frames (4096 bytes)",
            longest(interface)? - 18,
            memory.frame_size(),
            options.interface
        ));
    }
    if !interface.is_up()? {
        return unsupported(format!("is down: 'ip link set {} up'", options.interface));
    }
    Ok(())
}

/// Loads and attaches the program, with the driver's hash if that is wished and there is one. What the card forgets by that is
/// set again.
fn attach(
    options: &XdpOptions,
    interface: Interface,
    claims: Option<Claims>,
    sockets: Map,
    zero_copy: bool,
    (memberships, hold): (Memberships, Hold),
) -> Result<Device> {
    let settings = CardSettings::record(&interface)?;
    let mut watch = LinkWatch::new(&interface)?;
    let carried = watch.now() == LinkState::Up;
    let (program, link, mode, delivers_hash) = match &claims {
        None => (None, None, handed::mode(&interface)?, false),
        Some(claims) => {
            let (program, link, mode, hash) = attach_program(options, &interface, claims, &sockets)?;
            // Where that fails packets come to other queues than they should, and are handed over.
            let _ = settings.restore_rss();
            (Some(program), Some(link), mode, hash)
        }
    };
    let leaves_tags = claims.is_some() && leave_tags(options, &settings, &interface)?;
    let lost_carrier = carried && watch.now() == LinkState::NoCarrier;
    Ok(Device {
        link,
        _program: program,
        sockets,
        claims,
        interface,
        mode,
        zero_copy,
        delivers_hash,
        settings,
        memberships,
        lost_carrier,
        leaves_tags,
        _hold: hold,
    })
}

/// Has the card leave VLAN tags in packets, where a program would not see them otherwise, in the driver or behind it. What a veth takes off
/// was never in the packet.
fn leave_tags(options: &XdpOptions, settings: &CardSettings, interface: &Interface) -> Result<bool> {
    if settings::driver(interface).is_none_or(|driver| driver == "veth" || driver == "tun") {
        return Ok(false);
    }
    if options.everything {
        return Ok(settings.leave_tags().unwrap_or(false));
    }
    if !matches!(options.tags, Tags::Vlan(_)) {
        return Ok(false);
    }
    settings.leave_tags().map_err(|e| Error::Unsupported {
        interface: interface.name().to_owned(),
        what: format!(
            "the card takes VLAN tags off packets, and AF_XDP does not see them then ({e}): use af-packet, or switch that \
             off, where the driver can, with 'ethtool -K {} rxvlan off'",
            interface.name()
        ),
    })
}

/// Whether zero copy loses packets that are sent: seen of a `virtio_net` that is a module, on some boots of Linux 7.3. Its source suggests why:
/// the header of each packet is a variable of the module (`xsk_hdr`), and `dma_map_single` takes it to be in the kernel's linear mapping.
#[must_use]
pub fn loses_in_zero_copy(interface: &Interface) -> bool {
    settings::driver(interface).is_some_and(|driver| driver == "virtio_net")
        && std::path::Path::new("/sys/module/virtio_net/initstate").exists()
}

/// Who copies: what was asked for, but no zero copy by default where it loses packets.
fn who_copies(options: &XdpOptions, interface: &Interface) -> CopyMode {
    match options.copy {
        CopyMode::Auto if loses_in_zero_copy(interface) => CopyMode::Copy,
        asked => asked,
    }
}

/// Whether the card may read and write frames itself. Intel's drivers then want frames of 4096 bytes: they set their receive buffers in
/// whole kilobytes, a frame of 2048 bytes less 256 of headroom leaves one, and a longer packet arrives in pieces.
#[must_use]
pub fn may_be_zero_copy(interface: &Interface, copy: CopyMode) -> bool {
    // Software interfaces, whose packets the kernel has already.
    const NEVER: [&str; 7] = ["veth", "tun", "bridge", "netkit", "dummy", "vmxnet3", "e1000e"];
    copy != CopyMode::Copy
        && (copy == CopyMode::ZeroCopy || !loses_in_zero_copy(interface))
        && settings::driver(interface).is_some_and(|driver| !NEVER.contains(&driver.as_str()))
}

fn attach_program(
    options: &XdpOptions,
    interface: &Interface,
    claims: &Claims,
    sockets: &Map,
) -> Result<(Program, Link, XdpMode, bool)> {
    if options.hash_type.is_some() && options.mode != XdpMode::Generic {
        let bound = bpf::kfunc("bpf_xdp_metadata_rx_hash").and_then(|function| {
            let program = claims.xdp(sockets, Some((function, interface.index())))?;
            let (link, mode) = bpf::attach_xdp(&program, interface, XdpMode::Native)?;
            Ok((program, link, mode, true))
        });
        match bound {
            Err(e @ Error::DeviceBusy { .. }) => return Err(e),
            Err(_) => {} // without the hash, then
            Ok(done) => return Ok(done),
        }
    }
    let program = claims.xdp(sockets, None)?;
    let (link, mode) = bpf::attach_xdp(&program, interface, options.mode)?;
    Ok((program, link, mode, false))
}
