//! One AF_XDP socket until it is bound to its queue.
//!
//! The order of the steps is what counts. A driver in zero-copy mode takes its receive buffers out of the fill ring when the socket is
//! bound, or when the program is attached, and not again before packets have come: where it finds none, nothing is ever received, and
//! nothing says so (the ring asks for no wake-up then). So the ring is filled before the socket is bound.

use super::held::Held;
use super::rings::{Rings, get_option, put, set_option};
use super::{CopyMode, XdpOptions};
use crate::bpf;
use crate::error::{Error, Result};
use crate::frame::{FrameMemory, Pool};
use crate::netdev::Interface;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// A socket with its rings and the frames that the kernel holds of it. Dropped, it gives the frames back.
#[derive(Debug)]
pub(super) struct Opening {
    // These three go in this order: the mappings keep the socket open, and only when it is closed may the frames that the kernel held be
    // used again.
    pub(super) rings: Rings,
    pub(super) socket: OwnedFd,
    pub(super) held: Held,
    /// Frames in the fill ring.
    pub(super) filled: u32,
}

impl Opening {
    /// A socket with rings. The first socket of a memory registers it; the others share it.
    pub(super) fn new(options: &XdpOptions, memory: &FrameMemory, first: bool) -> Result<Self> {
        let socket = socket()?;
        if first {
            register(socket.as_fd(), memory)?;
        }
        let rings = Rings::new(socket.as_fd(), options.ring_size)?;
        tune(socket.as_fd(), options);
        Ok(Self { rings, socket, held: Held::new(memory), filled: 0 })
    }

    /// Puts frames into the fill ring until `target` are there, or the pool is empty.
    pub(super) fn fill(&mut self, pool: &Pool, target: u32) {
        self.filled += fill(&mut self.rings, &mut self.held, pool, target.saturating_sub(self.filled));
    }

    /// Binds the socket to a queue.
    pub(super) fn bind(
        &mut self,
        options: &XdpOptions,
        interface: &Interface,
        queue: u32,
        chains: Option<usize>,
        shares_with: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        bind(self.socket.as_fd(), options, interface, queue, chains, shares_with)?;
        if self.is_zero_copy() {
            self.held.wait_for(interface.index(), queue);
        }
        Ok(())
    }

    /// Whether the card itself reads and writes the frames; known once the socket is bound.
    pub(super) fn is_zero_copy(&self) -> bool {
        // SAFETY: the options are a plain number.
        let bound: io::Result<libc::xdp_options> =
            unsafe { get_option(self.socket.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS) };
        bound.is_ok_and(|o| o.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }
}

/// A socket for each of these queues, its steps in the order that drivers want: made, filled, bound (above).
pub(super) fn in_order<S>(
    queues: Range<u32>,
    memory: &FrameMemory,
    make: impl Fn(bool) -> Result<S>,
    fill: impl Fn(&mut S, &Pool),
    bind: impl Fn(&mut S, u32, Option<&S>) -> Result<()>,
) -> Result<Vec<S>> {
    let mut bound: Vec<S> = Vec::new();
    for queue in queues {
        let mut socket = make(bound.is_empty())?;
        // A worker whose frames are in its hands already fills the ring itself, at its first look.
        if let Ok(pool) = memory.attach(bound.len() % memory.homes()) {
            // Guard: no `fill(&mut socket, &pool);` fails xdp::socket::tests::a_driver_that_looks_once
            fill(&mut socket, &pool);
        }
        bind(&mut socket, queue, bound.first())?;
        bound.push(socket);
    }
    Ok(bound)
}

/// Puts up to `wanted` free frames into the fill ring, and says how many.
pub(super) fn fill(rings: &mut Rings, held: &mut Held, pool: &Pool, wanted: u32) -> u32 {
    let room = rings.fill.room(wanted).min(wanted);
    let mut given = 0;
    while given < room {
        let Some(frame) = pool.alloc() else { break };
        let Ok(address) = held.give(frame) else { break };
        put(&mut rings.fill, address);
        given += 1;
    }
    if given > 0 {
        rings.fill.publish();
    }
    given
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
                CopyMode::Auto | CopyMode::Measure => 0,
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
        // virtio says EINVAL where its device does not use the DMA API.
        Some(libc::EOPNOTSUPP | libc::EINVAL) if options.copy == CopyMode::ZeroCopy => Error::Unsupported {
            interface: interface.name().to_owned(),
            what: match chains {
                None => "the driver or its device has no zero-copy for AF_XDP: use copy mode".to_owned(),
                Some(mtu) => format!(
                    "the driver has no zero-copy for AF_XDP, or none for packets longer than a frame: use copy mode, or lower the MTU with \
                     'ip link set {} mtu {mtu}'",
                    interface.name()
                ),
            },
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

/// Waits until the card has let go of a queue whose zero-copy socket was closed, which happens some time after
/// `close`: until then a new socket cannot have the queue. `false` if it takes more than a second.
pub(super) fn wait_released(interface: u32, queue: u32) -> bool {
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        match probe(interface, queue) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::MemoryConfig;

    /// What a driver in zero-copy mode does, as igb's and virtio's: it takes its buffers when a socket is bound, and never asks again.
    #[test]
    fn a_driver_that_looks_once_finds_frames_on_every_queue() {
        #[derive(Default)]
        struct Socket {
            first: bool,
            filled: u32,
            taken: u32,
        }
        let config = MemoryConfig {
            homes: 2,
            frames_per_home: 64,
            lock: false,
            huge_pages: false,
            ..MemoryConfig::default()
        };
        let memory = FrameMemory::new(&config).unwrap();
        let bound = in_order(
            3..7,
            &memory,
            |first| Ok(Socket { first, ..Socket::default() }),
            |socket, pool| socket.filled += pool.free() as u32 / 4,
            |socket, queue, first| {
                assert_eq!(
                    (socket.first, first.is_none()),
                    (queue == 3, queue == 3),
                    "the others share its memory"
                );
                socket.taken = socket.filled;
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(bound.len(), 4);
        assert!(bound.iter().all(|socket| socket.taken > 0), "a queue receives nothing for ever");
        let failed =
            in_order(0..2, &memory, |_| Ok(()), |(), _| (), |(), _, _| Err(Error::Invalid("no".into())));
        assert!(failed.is_err());
    }
}
