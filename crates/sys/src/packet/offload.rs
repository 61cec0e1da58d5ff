//! Sending with segmentation and checksum offload, beside the rings: a packet socket with a virtio-net header.
//!
//! The rings of AF_XDP in copy mode and of AF_PACKET cost an allocation, a copy and a walk through the far end for every
//! packet. One packet of 64 KiB with a header that says how to cut it costs one of each; the card cuts it, or the kernel
//! just before the driver, as it does for its own TCP. Packets of one frame stay in the rings.

use super::{set, set_option};
use crate::error::{Error, Result};
use crate::frame::{Frame, Segmentation};
use crate::netdev::Interface;
use crate::queue::QueueStats;
use crate::vnet;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

/// A socket of one queue for packets that its rings do not take. It only sends.
#[derive(Debug)]
pub(crate) struct OffloadSocket(OwnedFd);

impl OffloadSocket {
    /// One on `interface`.
    pub(crate) fn open(interface: &Interface) -> Result<Self> {
        let socket = super::socket()?;
        // Not past the queueing discipline: on that way the kernel drops what the interface itself cannot cut.
        set_option(socket.as_fd(), libc::PACKET_VNET_HDR, &1i32)
            .map_err(|e| Error::from_io(e, "a packet socket for segmentation offload", "CAP_NET_RAW"))?;
        let _ = set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(8i32 << 20));
        super::bind(socket.as_fd(), interface, 0)?;
        Ok(Self(socket))
    }

    /// Whether a packet goes this way.
    pub(crate) fn takes(frame: &Frame) -> bool {
        frame.meta().segmentation != Segmentation::None
    }

    /// Sends a packet; `false` if there is no room for it now. What the kernel or its queueing discipline drops is
    /// counted as failed.
    pub(crate) fn send(&self, frame: &mut Frame, stats: &mut QueueStats) -> bool {
        if let Some(tag) = frame.meta().vlan {
            frame.insert_tag(0x8100, tag);
        }
        stats.system_calls += 1;
        match vnet::send(self.0.as_fd(), frame) {
            Ok(n) => {
                stats.tx_frames += 1;
                stats.tx_bytes += n as u64;
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return false,
            Err(_) => stats.tx_failed += 1,
        }
        true
    }
}
