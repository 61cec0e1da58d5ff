//! `af-packet:NAME`: any Ethernet interface of any kernel, through packet sockets.
//!
//! One socket a worker, and a fanout program that gives each packet to the socket that RSS with our key and table
//! would have chosen, however many queues the card has. The work is done in [`flowlane_sys::packet`].

use super::{Claim, LinkInfo, OpenError, Queue, QueueStats};
use flowlane_stack::wire::MacAddr;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::frame::{Frame, FrameMemory, Pool};
use flowlane_sys::netdev::Interface;
use flowlane_sys::packet::{self, PacketOptions, PacketQueue};
use std::os::fd::{AsFd, BorrowedFd};

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
}

impl AfPacketOptions {
    /// The usual settings.
    #[must_use]
    pub fn new(interface: &str, claim: Claim) -> Self {
        Self { interface: interface.to_owned(), claim, steering: None, exclusive: true, ring_size: 2048 }
    }
}

/// Opens the link with a queue for each worker. Received packets are copied into frames by each worker; `memory` only
/// says how long they may be.
///
/// # Errors
/// [`OpenError::Device`]; [`OpenError::Option`] when frames are too small for the interface's packets.
pub fn open(
    options: &AfPacketOptions,
    memory: &FrameMemory,
    workers: usize,
) -> Result<(LinkInfo, Vec<Box<dyn Queue>>), OpenError> {
    let name = format!("af-packet:{}", options.interface);
    let describe = || {
        let interface = Interface::find(&options.interface)?;
        Ok((interface.mac()?, interface.mtu()?))
    };
    let (mac, mtu) = describe().map_err(OpenError::device(name.clone()))?;
    let room = memory.frame_size() - flowlane_sys::frame::HEADROOM - 18;
    if mtu as usize > room {
        let what = format!("its MTU of {mtu} needs larger frames: up to {room} bytes fit now");
        return Err(OpenError::Option { link: name, what });
    }
    let mut packet =
        PacketOptions::new(&options.interface, workers as u32, options.claim.prefixes().to_vec());
    packet.steering = options.steering.clone();
    packet.exclusive = options.exclusive;
    packet.ring_size = options.ring_size;
    let queues = packet::open(&packet).map_err(OpenError::device(name.clone()))?;
    let info = LinkInfo {
        name,
        mac: MacAddr(mac),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        queues: queues.len(),
        checksum_offload: false,
        segmentation: 0,
        delivers_hash: false,
    };
    Ok((info, queues.into_iter().map(|q| Box::new(q) as Box<dyn Queue>).collect()))
}

impl Queue for PacketQueue {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        self.receive(pool, into, max)
    }

    fn room(&mut self) -> usize {
        self.room()
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        self.transmit(frames)
    }

    fn flush(&mut self) -> bool {
        self.flush()
    }

    fn ready(&mut self) -> bool {
        self.ready()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn stats(&self) -> QueueStats {
        let s = self.stats();
        QueueStats {
            rx_frames: s.rx_frames,
            rx_bytes: s.rx_bytes,
            rx_no_frame: s.rx_no_frame,
            rx_ring_full: s.rx_ring_full,
            rx_bad: s.rx_bad,
            tx_frames: s.tx_frames,
            tx_bytes: s.tx_bytes,
            tx_far_full: 0,
            tx_failed: s.tx_failed,
            system_calls: s.system_calls,
        }
    }
}
