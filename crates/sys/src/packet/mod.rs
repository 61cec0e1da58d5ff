//! AF_PACKET: packets through memory-mapped rings, on any Ethernet interface of any kernel.
//!
//! Each queue is one socket; several form a fanout group whose members are chosen by `filter_rss`, so a packet comes to
//! exactly the queue that a card with that key and table would have used. The kernel copies each packet into the ring
//! and we copy it into a frame, since the ring's slots cannot be lent out; sending is the same the other way. Nothing
//! costs a system call per packet: receiving needs none, sending one a batch.
//!
//! Merged packets (by the kernel's GRO, by the card, or by a sender on the same machine that relies on segmentation offload) arrive as one
//! packet of up to 64 KiB. They are longer than a slot of the ring and are read from the socket into a chain of frames. A virtio-net header
//! has the segment size and the state of the checksum. Merged UDP datagrams are split again.
//!
//! A packet socket receives copies. `filter_claim` keeps out packets for other addresses, and `tcx_claim`, if the kernel has tcx, keeps our
//! packets from the kernel's own stack, which would answer them.
//!
//! Sending bypasses the queueing disciplines of the interface.

mod cut;
mod long;
mod membership;
mod offload;
mod queue;
mod raw;
mod refused;
mod ring;
pub mod sample;
mod tag;

pub(crate) use membership::Memberships;
pub(crate) use offload::OffloadSocket;
pub use queue::PacketQueue;
pub use raw::{Promiscuous, RawSender};

use crate::bpf::asm::Assembler;
use crate::bpf::claim::{Claims, Tags};
use crate::bpf::steer::{Steering, SteeringRules};
use crate::bpf::{self, Link, Program, ProgramKind};
use crate::error::{Error, Result};
use crate::needs;
use crate::netdev::Interface;
use crate::sharing::{Hold, Side};
use ring::{Rings, Shape};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Bytes of packets longer than a slot that wait for one queue at most. The kernel counts what it allocated, about twice the
/// packets, and allows twice this.
const LONG_PACKETS: i32 = 8 << 20;

/// How to open packet sockets on an interface.
#[derive(Debug, Clone)]
pub struct PacketOptions {
    /// The interface.
    pub interface: String,
    /// How many queues, 1 to 256.
    pub queues: u32,
    /// Prefixes to take: address and length.
    pub claims: Vec<(IpAddr, u8)>,
    /// With which VLAN tag.
    pub tags: Tags,
    /// Take every frame instead, for a switch. The interface is promiscuous until the queues are closed.
    pub everything: bool,
    /// Whether the card filters VLANs; `None` asks its driver.
    pub filters_vlans: Option<bool>,
    /// Which queue takes a packet; `None` leaves it to the kernel's own hash.
    pub steering: Option<SteeringRules>,
    /// Slots of each ring, 32 to 65536, rounded up to a power of two.
    pub ring_size: u32,
    /// Keep our packets from the kernel's stack, if the kernel supports it (Linux 6.6).
    pub exclusive: bool,
    /// Send past the interface's queueing discipline.
    pub bypass_qdisc: bool,
    /// Take packets whose checksum and segmentation are left to the interface, or else to the kernel.
    pub offload: bool,
}

impl PacketOptions {
    /// The usual settings for `queues` queues on `interface`.
    #[must_use]
    pub fn new(interface: &str, queues: u32, claims: Vec<(IpAddr, u8)>) -> Self {
        Self {
            interface: interface.to_owned(),
            queues,
            claims,
            tags: Tags::Any,
            everything: false,
            filters_vlans: None,
            steering: None,
            ring_size: 2048,
            exclusive: true,
            bypass_qdisc: true,
            offload: false,
        }
    }
}

/// State shared by the queues of one interface.
#[derive(Debug)]
pub struct Shared {
    claims: Claims,
    steering: Option<Steering>,
    exclusive: Option<Link>,
    memberships: Memberships,
    _hold: Hold,
}

impl Shared {
    /// The claimed prefixes; they can be changed while packets flow.
    #[must_use]
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The steering, whose table can be changed while packets flow.
    #[must_use]
    pub fn steering(&self) -> Option<&Steering> {
        self.steering.as_ref()
    }

    /// Whether our packets are kept from the kernel's stack.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.exclusive.is_some()
    }

    /// Whether the card was made promiscuous, because it filters VLANs and does not have ours.
    #[must_use]
    pub fn is_promiscuous(&self) -> bool {
        self.memberships.is_promiscuous()
    }

    /// Takes packets to a multicast group or an address, too; the kernel's programs keep theirs. Needs no privilege from Linux 5.19 on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn join(&self, group: IpAddr) -> Result<()> {
        self.memberships
            .join(group)
            .map_err(|e| Error::from_io(e, format!("joining {group}"), "CAP_NET_RAW"))?;
        self.claims.join(group)
    }

    /// Takes packets to an address, which the kernel gets no more, or leaves them to it again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn claim(&self, address: IpAddr, ours: bool) -> Result<()> {
        let Some(claims) = Some(&self.claims) else { return Ok(()) };
        let len = if address.is_ipv4() { 32 } else { 128 };
        if !ours {
            return claims.remove(address, len);
        }
        self.memberships
            .join(address)
            .map_err(|e| Error::from_io(e, format!("taking {address}"), "CAP_NET_RAW"))?;
        claims.add(address, len)
    }
}

/// Opens queues on an interface.
///
/// # Errors
/// [`Error::NoSuchInterface`], [`Error::MissingCapability`], [`Error::Unsupported`] (not Ethernet, down),
/// [`Error::AddressBusy`] (another program), [`Error::Invalid`] (options).
pub fn open(options: &PacketOptions) -> Result<Vec<PacketQueue>> {
    open_all(options).map_err(|e| e.of_what_needs(needs::AF_PACKET.capabilities))
}

fn open_all(options: &PacketOptions) -> Result<Vec<PacketQueue>> {
    let interface = Interface::find(&options.interface)?;
    interface.mac()?;
    if options.queues == 0 || options.queues > 256 {
        return Err(Error::Invalid(format!("{} packet sockets: from 1 to 256", options.queues)));
    }
    if !(32..=65536).contains(&options.ring_size) {
        return Err(Error::Invalid(format!(
            "AF_PACKET ring of {} slots: from 32 to 65536",
            options.ring_size
        )));
    }
    if !interface.is_up()? {
        let what = format!("is down: 'ip link set {} up'", options.interface);
        return Err(Error::Unsupported { interface: options.interface.clone(), what });
    }
    let hold = if options.everything {
        Hold::all(&interface, Side::Link)?
    } else {
        Hold::new(&interface, Side::Link, &options.claims, options.tags)?
    };
    // Nothing may come in before every socket is in its place: packets would come to several.
    let mut nothing = Assembler::new();
    nothing.exit_with(0);
    let nothing = Program::load(ProgramKind::SocketFilter, "take_nothing", nothing)?;
    // Ethernet header and two tags.
    let shape = Shape::for_packets(options.ring_size, interface.mtu()? + 22);
    let offload = || options.offload.then(|| OffloadSocket::open(&interface)).transpose();
    let mut opened: Vec<(OwnedFd, Rings)> = Vec::new();
    let mut group = None;
    for _ in 0..options.queues {
        let socket = socket()?;
        prepare(socket.as_fd(), options)
            .map_err(|e| Error::from_io(e, "setting up AF_PACKET", "CAP_NET_RAW"))?;
        filter(socket.as_fd(), &nothing)?;
        let rings = Rings::new(socket.as_fd(), shape, shape)?;
        bind(socket.as_fd(), &interface, libc::ETH_P_ALL)?;
        if options.queues > 1 {
            group = Some(join(socket.as_fd(), group, options.steering.is_some()).map_err(|e| {
                Error::from_io(e, format!("{}: joining the fanout group", options.interface), "CAP_NET_RAW")
            })?);
        }
        opened.push((socket, rings));
    }
    let steering = options.steering.as_ref().map(Steering::new).transpose()?;
    if let (Some(steering), Some((socket, _)), true) = (&steering, opened.first(), options.queues > 1) {
        let program = steering.fanout()?;
        set_option(socket.as_fd(), libc::PACKET_FANOUT_DATA, &program.as_fd().as_raw_fd())
            .map_err(|e| Error::from_io(e, "giving the fanout group its program", "CAP_NET_ADMIN"))?;
    }
    let claims =
        if options.everything { Claims::everything()? } else { Claims::new(&options.claims, options.tags)? };
    let ours = claims.filter()?;
    for (socket, _) in &opened {
        filter(socket.as_fd(), &ours)?;
    }
    let exclusive = if options.exclusive {
        match bpf::attach_tcx(&claims.ingress_drop()?, &interface, false) {
            Ok(link) => Some(link),
            Err(Error::KernelTooOld { .. }) => None,
            Err(e) => return Err(e),
        }
    } else {
        None
    };
    let mut memberships = Memberships::new(&interface, &options.claims, options.tags, options.filters_vlans)?;
    if options.everything {
        memberships.everything(&interface)?;
    }
    for group in memberships.of_everybody() {
        claims.join(group)?;
    }
    let shared = Arc::new(Shared { claims, steering, exclusive, memberships, _hold: hold });
    let queue =
        |(i, (socket, rings))| Ok(PacketQueue::new(socket, rings, i as u16, offload()?, shared.clone()));
    opened.into_iter().enumerate().map(queue).collect()
}

fn socket() -> Result<OwnedFd> {
    // SAFETY: no memory is involved; a non-negative result is a descriptor that is ours alone. Protocol 0 receives
    // nothing until `bind`.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        if fd < 0 { Err(Error::last("a packet socket", "CAP_NET_RAW")) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Options that must be set before the rings.
fn prepare(socket: BorrowedFd<'_>, options: &PacketOptions) -> io::Result<()> {
    const TPACKET_V2: i32 = 1;
    set_option(socket, libc::PACKET_VERSION, &TPACKET_V2)?;
    // A packet that the driver refuses is dropped and marked instead of stopping the ring.
    set_option(socket, libc::PACKET_LOSS, &1i32)?;
    if options.bypass_qdisc {
        set_option(socket, libc::PACKET_QDISC_BYPASS, &1i32)?;
    }
    // Linux 4.20; without it our own packets come back, and the claims leave them out again.
    let _ = set_option(socket, libc::PACKET_IGNORE_OUTGOING, &1i32);
    let _ = set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(8i32 << 20));
    set_option(socket, libc::PACKET_VNET_HDR, &1i32)?;
    // Packets longer than a slot wait whole in the receive buffer.
    set_option(socket, libc::PACKET_COPY_THRESH, &1i32)?;
    let _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &LONG_PACKETS);
    Ok(())
}

fn bind(socket: BorrowedFd<'_>, interface: &Interface, protocol: i32) -> Result<()> {
    // SAFETY: `sockaddr_ll` is plain data for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = interface.index() as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is readable for its length.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } == 0 {
        Ok(())
    } else {
        Err(Error::last(format!("binding a packet socket to {}", interface.name()), "CAP_NET_RAW"))
    }
}

/// Joins fanout group `group`, or makes a new one; its number.
fn join(socket: BorrowedFd<'_>, group: Option<u16>, steered: bool) -> io::Result<u16> {
    let kind = if steered { libc::PACKET_FANOUT_EBPF } else { libc::PACKET_FANOUT_HASH };
    if let Some(group) = group {
        set_option(socket, libc::PACKET_FANOUT, &(kind << 16 | u32::from(group)))?;
        return Ok(group);
    }
    let unique = libc::PACKET_FANOUT_FLAG_UNIQUEID;
    set_option(socket, libc::PACKET_FANOUT, &((kind | unique) << 16))?;
    let mut value = 0u32;
    let mut len = 4;
    // SAFETY: at most four bytes are written to `value`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(value as u16) } else { Err(io::Error::last_os_error()) }
}

fn filter(socket: BorrowedFd<'_>, program: &Program) -> Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_fd().as_raw_fd())
        .map_err(|e| Error::from_io(e, "attaching the filter to a packet socket", "CAP_NET_RAW"))
}

fn set_option<T>(socket: BorrowedFd<'_>, name: i32, value: &T) -> io::Result<()> {
    set(socket, libc::SOL_PACKET, name, value)
}

fn set<T>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is readable for its size.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
