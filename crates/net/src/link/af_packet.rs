//! `af-packet:NAME`: any Ethernet interface of any kernel, through packet sockets.
//!
//! One socket a worker, and a fanout program that gives each packet to the socket that RSS with our key and table
//! would have chosen, however many queues the card has. The work is done in [`flowlane_sys::packet`].

use super::{Claim, LinkInfo, OpenError, Queue, real};
use flowlane_stack::wire::MacAddr;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::frame::FrameMemory;
use flowlane_sys::netdev::Interface;
use flowlane_sys::packet::{self, PacketOptions};

/// How to open an AF_PACKET link.
#[derive(Debug, Clone)]
pub struct AfPacketOptions {
    /// The interface.
    pub interface: String,
    /// What to take from it.
    pub claim: Claim,
    /// The RSS to emulate: the table names queues, one for each worker. `None`: the kernel's own hash.
    pub steering: Option<SteeringRules>,
    /// Keep the kernel's stack from what is ours, where the kernel can.
    pub exclusive: bool,
    /// Slots of each ring.
    pub ring_size: u32,
    /// Leave checksum and segmentation of TCP to the interface or, where it has neither, to the kernel. Not for a virtual
    /// interface that hands packets on without their sums, unless the far end does not mind.
    pub offload: bool,
}

impl AfPacketOptions {
    /// The usual settings.
    #[must_use]
    pub fn new(interface: &str, claim: Claim) -> Self {
        Self {
            interface: interface.to_owned(),
            claim,
            steering: None,
            exclusive: true,
            ring_size: 2048,
            offload: false,
        }
    }
}

/// Opens the link with a queue for each worker. Received packets are copied into frames by each worker, a packet longer than a
/// frame into a chain of them.
///
/// # Errors
/// [`OpenError::Device`].
pub fn open(
    options: &AfPacketOptions,
    _memory: &FrameMemory,
    workers: usize,
) -> Result<(LinkInfo, Vec<Box<dyn Queue>>), OpenError> {
    let name = format!("af-packet:{}", options.interface);
    let describe = || {
        let interface = Interface::find(&options.interface)?;
        Ok((interface.mac()?, interface.mtu()?, interface))
    };
    let (mac, mtu, interface) = describe().map_err(OpenError::device(name.clone()))?;
    let mut packet =
        PacketOptions::new(&options.interface, workers as u32, options.claim.prefixes().to_vec());
    packet.tags = options.claim.tags();
    packet.steering = options.steering.clone();
    packet.exclusive = options.exclusive;
    packet.ring_size = options.ring_size;
    packet.offload = options.offload;
    let queues = packet::open(&packet).map_err(OpenError::device(name.clone()))?;
    // Of an interface that takes the longest packets of all (loopback), a few bytes less.
    let most = queues.first().map_or(0, |queue| queue.longest().saturating_sub(18)) as u32;
    let (life, boxed) = real::boxed(interface, queues);
    let info = LinkInfo {
        name,
        mac: MacAddr(mac),
        mtu: u16::try_from(mtu.min(most)).unwrap_or(u16::MAX),
        queues: boxed.len(),
        checksum_offload: options.offload,
        segmentation: if options.offload { 65_535 } else { 0 },
        delivers_hash: false,
        mode: "",
        life: Some(life),
    };
    Ok((info, boxed))
}
