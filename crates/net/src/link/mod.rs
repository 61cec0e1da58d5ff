//! Links: sources and sinks of Ethernet frames with several queue pairs.
//!
//! A link is opened once and falls apart into its queues; each goes to one worker and is used by it alone. What a
//! link can do is in [`LinkInfo`]; how each driver is set up, and its traps, in `docs/links.md`.
//!
//! A queue never blocks and never drops silently: what it cannot take stays with the caller, what it had to drop is
//! counted in [`QueueStats`] under a name.

pub mod af_packet;
pub mod af_xdp;
mod claim;
mod error;
mod groups;
mod life;
pub mod pair;
pub mod pcap;
mod real;
mod spec;
pub mod tap;

pub use claim::Claim;
pub use error::OpenError;
pub use groups::Groups;
pub use life::{Life, LinkState, News};
pub use spec::{BadLink, LinkSpec};

pub use flowlane_sys::xdp::CopyMode;

use std::net::{IpAddr, Ipv6Addr};

use flowlane_stack::wire::MacAddr;
use flowlane_sys::frame::{Frame, Pool};
use std::os::fd::BorrowedFd;

/// What a link is and can do. Constant after opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInfo {
    /// Name as the user gave it, for messages: `af-xdp:eth0`.
    pub name: String,
    /// The link's own Ethernet address.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Queue pairs.
    pub queues: usize,
    /// The link completes transport checksums on send ([`Checksum::Partial`](flowlane_sys::frame::Checksum)).
    pub checksum_offload: bool,
    /// The link cuts TCP packets of up to this many bytes into segments; 0 if it does not.
    pub segmentation: usize,
    /// Received frames come with a flow hash and its type.
    pub delivers_hash: bool,
    /// How packets come and go, for people: `native, copied`. Empty where there is one way only.
    pub mode: &'static str,
    /// The interface of this machine under it, with news of it; `None` where there is none.
    pub life: Option<Life>,
    /// How to have packets to a multicast group let through; `None` where they all are.
    pub groups: Option<Groups>,
    /// What whoever started it should know, each a line: what the kernel or the card cannot do, and what was done about it.
    pub notes: Vec<String>,
}

impl LinkInfo {
    /// Lets through what IPv6 routers say of themselves: packets to all nodes (`ff02::1`) and to the link's own link-local address, by
    /// which some routers answer who asks for them. Over AF_PACKET the kernel gets them as before; over AF_XDP it gets none of them
    /// until the link is closed, so it learns of no router there. Other links hear all of it without being asked.
    ///
    /// Whether what is heard is followed says [`IpConfig::follow_routers`](crate::IpConfig::follow_routers).
    ///
    /// # Errors
    /// [`OpenError::Device`].
    pub fn hear_routers(&self) -> Result<(), OpenError> {
        let Some(groups) = &self.groups else { return Ok(()) };
        for address in [Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), self.mac.link_local()] {
            groups.join(IpAddr::V6(address)).map_err(OpenError::device(self.name.clone()))?;
        }
        Ok(())
    }
}

/// One queue pair of a link.
pub trait Queue: Send {
    /// Appends up to `max` received frames to `into` and returns how many. The frames' data starts at the Ethernet
    /// header; `meta().queue` is set, the hash if the link has one.
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize;

    /// How many frames [`Queue::transmit`] would take now.
    fn room(&mut self) -> usize;

    /// Takes frames from the front of `frames` while there is room; the others stay. Returns how many were taken.
    /// Nothing need leave before [`Queue::flush`].
    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize;

    /// Hands everything taken to the other side, and frees what that side has finished with. `true` when nothing
    /// taken is left to hand over, so that a later frame of another queue cannot overtake it here.
    fn flush(&mut self) -> bool;

    /// Whether frames may be waiting: the last look before sleep.
    fn ready(&mut self) -> bool;

    /// What to wait on for reading; `None` for links in memory, which ring the worker's doorbell instead.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Takes note of an error that the descriptor reports. `false` if it will report one for ever, so that waiting for it
    /// makes no sense any more.
    fn clear_error(&mut self) -> bool {
        true
    }

    /// Whether what could be received waits as long as need be, as a file does: then no more is taken at once than the rings to
    /// other workers can hold.
    fn waits(&self) -> bool {
        false
    }

    /// Counters since opening.
    fn stats(&self) -> QueueStats;

    /// Faults made on purpose, by links that can.
    fn quirks(&self) -> Option<pair::QuirkCounts> {
        None
    }
}

/// Counters of one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct QueueStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames that the link could not deliver for want of a free frame.
    pub rx_no_frame: u64,
    /// Frames that found the receive ring full, as far as the link tells.
    pub rx_ring_full: u64,
    /// Frames received but too long, cut short or otherwise not deliverable.
    pub rx_bad: u64,
    /// Packets whose transport checksum the sender left to hardware that was never reached, taken for that where the link
    /// does not mark them (AF_XDP in generic mode or on a veth). They are not lost.
    pub rx_unfinished: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that the link refused for good (too long, device down).
    pub tx_failed: u64,
    /// Frames that found the far side's receive queue full, for links that see the far side.
    pub tx_far_full: u64,
    /// System calls made for this queue.
    pub system_calls: u64,
}
