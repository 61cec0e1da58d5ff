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

mod held;
mod queue;
mod rings;

pub use queue::XdpQueue;

use crate::bpf::claim::{ClaimCounters, Claims, Tags};
use crate::bpf::{self, Link, Map, MapKind, Program, XdpMode};
use crate::error::{Error, Result};
use crate::frame::FrameMemory;
use crate::netdev::Interface;
use crate::netdev::settings::{self, CardSettings};
use crate::packet::{Memberships, OffloadSocket};
use crate::privilege;
use crate::sharing::{Hold, Side};
use crate::words::counted;
use held::Held;
use queue::Settings;
use rings::{Rings, get_option, set_option};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        }
    }
}

/// State shared by the queues of one interface. The program stays attached while this exists.
#[derive(Debug)]
pub struct Device {
    /// First to go: no packet finds a socket any more. There until then.
    link: Option<Link>,
    _program: Program,
    sockets: Map,
    claims: Claims,
    interface: Interface,
    mode: XdpMode,
    zero_copy: bool,
    delivers_hash: bool,
    settings: CardSettings,
    memberships: Memberships,
    _hold: Hold,
}

impl Drop for Device {
    /// The card is left as it was found, as far as this thread may: without privileges there is nothing to be done here.
    fn drop(&mut self) {
        self.settings.refresh_rss();
        drop(self.link.take());
        let _ = self.settings.restore();
    }
}

impl Device {
    /// The claimed prefixes; they can be changed while packets flow.
    #[must_use]
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Counters of the program on one queue.
    #[must_use]
    pub fn counters(&self, queue: u32) -> ClaimCounters {
        self.claims.counters(queue)
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
        self.claims.join(group)
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

    /// Waits until the card has let go of a queue whose zero-copy socket was closed, which happens some time after
    /// `close`: until then a new socket cannot have the queue. `false` if it takes more than a second.
    fn wait_released(&self, queue: u32) -> bool {
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            match probe(self.interface.index(), queue) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
                Ok(()) => return true,
                Err(_) => return false,
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Opens queues of an interface.
///
/// # Errors
/// [`Error::NoSuchInterface`], [`Error::MissingCapability`], [`Error::DeviceBusy`] (another XDP program),
/// [`Error::QueueBusy`] (another socket), [`Error::Unsupported`] (no such queue, MTU, no zero-copy),
/// [`Error::Invalid`] (options).
pub fn open(options: &XdpOptions, memory: &FrameMemory) -> Result<Vec<XdpQueue>> {
    let needed = [privilege::CAP_NET_RAW, privilege::CAP_NET_ADMIN, privilege::CAP_BPF];
    open_all(options, memory).map_err(|e| e.of_what_needs(&needed))
}

fn open_all(options: &XdpOptions, memory: &FrameMemory) -> Result<Vec<XdpQueue>> {
    let interface = Interface::find(&options.interface)?;
    check(options, &interface, memory)?;
    let mut memberships = Memberships::new(&interface, &options.claims, options.tags, None)?;
    let (hold, claims) = if options.everything {
        memberships.everything(&interface)?;
        (Hold::all(&interface, Side::Link)?, Claims::everything()?)
    } else {
        let hold = Hold::new(&interface, Side::Link, &options.claims, options.tags)?;
        (hold, Claims::new(&options.claims, options.tags)?)
    };
    let highest = options.first_queue + options.queues;
    let sockets = Map::new(MapKind::XskMap, "flowlane_xsk", 4, 4, highest as usize)?;
    // Packets longer than what a frame holds come in several.
    let chains = longest(&interface)? > room(memory);
    let fits = chains.then(|| room(memory) - 18);
    let mut bound: Vec<(OwnedFd, Rings)> = Vec::new();
    for queue in options.first_queue..highest {
        let socket = socket()?;
        let first = bound.first().map(|(first, _)| first.as_fd());
        if first.is_none() {
            register(socket.as_fd(), memory)?;
        }
        let rings = Rings::new(socket.as_fd(), options.ring_size)?;
        tune(socket.as_fd(), options);
        bind(socket.as_fd(), options, &interface, queue, fits, first)?;
        bound.push((socket, rings));
    }
    let zero_copy = bound.first().is_some_and(|(socket, _)| is_zero_copy(socket.as_fd()));
    let device = Arc::new(attach(options, interface, claims, sockets, zero_copy, (memberships, hold))?);
    let settings = Settings {
        queue: 0,
        need_wakeup: options.need_wakeup,
        chains,
        busy_poll: options.busy_poll.is_some(),
        hash_type: options.hash_type.filter(|_| device.delivers_hash),
        unfinished: device.mode == XdpMode::Generic
            || settings::driver(&device.interface).is_some_and(|name| name == "veth"),
    };
    // At most half of a home's frames wait for packets, on all its queues together; the others are for sending and for packets in hand.
    let waiting = options.waiting.unwrap_or(memory.count() / memory.homes() / 2)
        / (options.queues as usize).div_ceil(memory.homes());
    let fill = options.ring_size.min(waiting as u32).max(1);
    let mut queues: Vec<XdpQueue> = Vec::new();
    for (queue, (socket, rings)) in (options.first_queue..highest).zip(bound) {
        let held = Held::new(memory, zero_copy.then(|| (device.clone(), queue)));
        let offload = options.offload.then(|| OffloadSocket::open(&device.interface)).transpose()?;
        let settings = Settings { queue, ..settings };
        let mut opened = XdpQueue::new(socket, rings, held, fill, settings, offload, device.clone());
        // Ready from the first packet on, if the worker's frames are not in its hands yet.
        if let Ok(pool) = memory.attach(queues.len() % memory.homes()) {
            opened.refill(&pool);
        }
        let number = (opened.socket().as_raw_fd() as u32).to_ne_bytes();
        device
            .sockets
            .update(&queue.to_ne_bytes(), &number)
            .map_err(|e| Error::from_io(e, "giving the program its socket", "CAP_BPF"))?;
        queues.push(opened);
    }
    Ok(queues)
}

/// Bytes of the longest packet on an interface: its MTU, an Ethernet header and a VLAN tag.
fn longest(interface: &Interface) -> Result<usize> {
    Ok(interface.mtu()? as usize + 18)
}

/// Bytes of a packet that one frame holds.
fn room(memory: &FrameMemory) -> usize {
    memory.frame_size() - crate::frame::HEADROOM
}

fn is_zero_copy(socket: BorrowedFd<'_>) -> bool {
    // SAFETY: the options are a plain number.
    let bound: io::Result<libc::xdp_options> =
        unsafe { get_option(socket, libc::SOL_XDP, libc::XDP_OPTIONS) };
    bound.is_ok_and(|o| o.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
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
    claims: Claims,
    sockets: Map,
    zero_copy: bool,
    (memberships, hold): (Memberships, Hold),
) -> Result<Device> {
    let settings = CardSettings::record(&interface)?;
    let (program, link, mode, delivers_hash) = attach_program(options, &interface, &claims, &sockets)?;
    // Where that fails packets come to other queues than they should, and are handed over.
    let _ = settings.restore_rss();
    let link = Some(link);
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
        _hold: hold,
    })
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

fn socket() -> Result<OwnedFd> {
    // SAFETY: no memory is involved; a non-negative result is a descriptor that is ours alone.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd >= 0 {
        // SAFETY: as above.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => Error::KernelTooOld { feature: "AF_XDP sockets", needs: "4.18" },
        _ => Error::from_io(error, "an AF_XDP socket", "CAP_NET_RAW"),
    })
}

/// Registers all frame memory with a socket.
fn register(socket: BorrowedFd<'_>, memory: &FrameMemory) -> Result<()> {
    let region = memory.region();
    let registration = libc::xdp_umem_reg {
        addr: region.base.as_ptr() as u64,
        len: (region.count * region.frame_size) as u64,
        chunk_size: region.frame_size as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOBUFS) => Error::LockedMemory { bytes: registration.len },
        _ => Error::from_io(e, "registering frame memory with AF_XDP", "CAP_NET_RAW"),
    })
}

/// Optional settings that some kernels lack.
fn tune(socket: BorrowedFd<'_>, options: &XdpOptions) {
    const MAX_TX_BUDGET: i32 = 9;
    let _ =
        set_option(socket, libc::SOL_XDP, MAX_TX_BUDGET, &options.send_budget.clamp(32, options.ring_size));
    // In copy mode packets under way count against this.
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(8i32 << 20));
    if let Some(budget) = options.busy_poll {
        let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1i32);
        let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &20i32);
        let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &(budget as i32));
    }
}

fn bind(
    socket: BorrowedFd<'_>,
    options: &XdpOptions,
    interface: &Interface,
    queue: u32,
    // Packets come in several frames; the MTU with which they would not, for the message.
    chains: Option<usize>,
    shares_with: Option<BorrowedFd<'_>>,
) -> Result<()> {
    // The flags of the first socket hold for those that share its memory.
    let flags = match shares_with {
        Some(_) => libc::XDP_SHARED_UMEM,
        None => {
            let copy = match options.copy {
                CopyMode::Auto => 0,
                CopyMode::Copy => libc::XDP_COPY,
                CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
            };
            let wakeup = if options.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
            let chains = if chains.is_some() { libc::XDP_USE_SG } else { 0 };
            copy | wakeup | chains
        }
    };
    // A socket that was just closed may linger: in a child process being started, in the driver, or until a busy kernel gets to giving
    // its queue back.
    let deadline = Instant::now() + Duration::from_secs(1);
    let bound = loop {
        match bind_to(socket, flags, interface.index(), queue, shares_with) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => break other,
        }
    };
    bound.map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => bpf::xdp_taken(interface)
            .unwrap_or(Error::QueueBusy { interface: interface.name().to_owned(), queue }),
        Some(libc::EOPNOTSUPP) if options.copy == CopyMode::ZeroCopy => Error::Unsupported {
            interface: interface.name().to_owned(),
            what: "the driver has no zero-copy for AF_XDP: use copy mode".to_owned(),
        },
        // A kernel that does not know the flag.
        Some(libc::EINVAL) if chains.is_some() => Error::Unsupported {
            interface: interface.name().to_owned(),
            what: format!(
                "AF_XDP of this kernel takes no packets longer than a frame (that came with Linux 6.6): lower the MTU with \
                 'ip link set {} mtu {}', or use af-packet",
                interface.name(),
                chains.unwrap_or_default()
            ),
        },
        _ => {
            Error::from_io(e, format!("binding AF_XDP to {} queue {queue}", interface.name()), "CAP_NET_RAW")
        }
    })
}

fn bind_to(
    socket: BorrowedFd<'_>,
    flags: u16,
    index: u32,
    queue: u32,
    shares_with: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shares_with.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address is readable for its length.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether a queue can be bound in zero-copy mode: with a memory of one page that is thrown away again.
fn probe(index: u32, queue: u32) -> io::Result<()> {
    use crate::frame::MemoryConfig;
    let config =
        MemoryConfig { frames_per_home: 2, lock: false, huge_pages: false, ..MemoryConfig::default() };
    let memory = FrameMemory::new(&config).map_err(io::Error::other)?;
    let socket = socket().map_err(io::Error::other)?;
    register(socket.as_fd(), &memory).map_err(io::Error::other)?;
    let rings = Rings::new(socket.as_fd(), 64).map_err(io::Error::other)?;
    let bound = bind_to(socket.as_fd(), libc::XDP_ZEROCOPY, index, queue, None);
    drop(rings);
    drop(socket);
    bound
}
