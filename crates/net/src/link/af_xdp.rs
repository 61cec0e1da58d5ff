//! `af-xdp:NAME`: the queues of a card, bypassing the kernel's stack.
//!
//! There is one AF_XDP socket for each queue, on the frame memory of the runtime, and a program that takes packets for our addresses and
//! leaves the rest to the kernel. The implementation is in [`flowlane_sys::xdp`]; `docs/links.md` describes how to set up a card.
//!
//! The card's own key and indirection table choose the queue of a packet. Every queue has a socket, however many workers there are: a
//! worker serves several queues, or sends through the queue of another worker.

use super::{Claim, Groups, Life, LinkInfo, OpenError, Queue, af_packet, boxed};
use flowlane_stack::wire::MacAddr;
use flowlane_sys::bpf::XdpMode;
use flowlane_sys::error::Error;
use flowlane_sys::frame::FrameMemory;
use flowlane_sys::netdev::Interface;
use flowlane_sys::xdp::{self, CopyMode, Device, Trial, XdpOptions};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How to open an AF_XDP link.
#[derive(Debug, Clone)]
pub struct AfXdpOptions {
    /// The interface.
    pub interface: String,
    /// The packets to take from it.
    pub claim: Claim,
    /// First queue and number of queues; `None`: all. Packets of the others stay with the kernel.
    pub queues: Option<(u32, u32)>,
    /// Who copies: the card (zero-copy) or the kernel.
    pub copy: CopyMode,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Entries of each ring, a power of two.
    pub ring_size: u32,
    /// Drive the card from the worker instead of from interrupts: packets a poll.
    pub busy_poll: Option<u32>,
    /// Frames of each worker that wait for packets at most, on all queues together; `None`: half of those that it has.
    pub waiting: Option<usize>,
    /// Ask the driver for its flow hash.
    pub hash: bool,
    /// Leave checksum and segmentation of TCP to the interface or, if it has neither, to the kernel. Not for a virtual interface that
    /// passes on packets without checksums, unless the far end accepts them.
    pub offload: bool,
    /// The map of a program of somebody else ([`XdpOptions::map`]): every packet of the queues comes, whatever is claimed.
    pub map: Option<Arc<OwnedFd>>,
}

impl AfXdpOptions {
    /// The usual settings.
    #[must_use]
    pub fn new(interface: &str, claim: Claim) -> Self {
        Self {
            interface: interface.to_owned(),
            claim,
            queues: None,
            copy: CopyMode::Auto,
            mode: XdpMode::Auto,
            ring_size: 2048,
            busy_poll: None,
            waiting: None,
            hash: false,
            offload: false,
            map: None,
        }
    }
}

/// Opens the link, with a queue for each receive queue of the card.
///
/// # Errors
/// [`OpenError::Device`].
pub fn open(
    options: &AfXdpOptions,
    memory: &FrameMemory,
) -> Result<(LinkInfo, Vec<Box<dyn Queue>>), OpenError> {
    let name = format!("af-xdp:{}", options.interface);
    let mut xdp = in_words_of_sys(options).map_err(OpenError::device(name.clone()))?;
    let mut measured = None;
    if xdp.copy == CopyMode::Measure {
        let trial = Trial::run(&xdp, memory).map_err(OpenError::device(name.clone()))?;
        xdp.copy = trial.choice();
        measured = Some(trial.words());
    }
    let queues = xdp::open(&xdp, memory).map_err(OpenError::device(name.clone()))?;
    let Some(first) = queues.first() else {
        return Err(OpenError::Option { link: name, what: "no queues".to_owned() });
    };
    let interface = first.device().interface().clone();
    let describe = || Ok((interface.mac()?, interface.mtu()?));
    let (mac, mtu) = describe().map_err(OpenError::device(name.clone()))?;
    let device = std::sync::Arc::downgrade(first.device());
    let joined = device.clone();
    let groups = Groups::new(move |group| joined.upgrade().map_or(Ok(()), |device| device.join(group)));
    let groups = groups
        .claiming(move |address, ours| device.upgrade().map_or(Ok(()), |device| device.claim(address, ours)));
    let first_queue = options.queues.map_or(0, |(first, _)| first);
    let promiscuous =
        af_packet::promiscuous(first.device().is_promiscuous(), &options.interface, options.claim.tags());
    let unhashed = (first_queue > 0).then(|| {
        "queue 0 is not among those served: packets that a card does not hash, ARP among them, come there on most cards and go to the \
         kernel, so addresses are not found; serve queue 0 as well, or send ARP elsewhere by a rule ('ethtool -N')"
            .to_owned()
    });
    let left = first.device().leaves_tags().then(|| {
        "the card leaves VLAN tags in packets while this runs (rxvlan off), since AF_XDP would not see them".to_owned()
    });
    let lossy = (first.device().zero_copy() && xdp::loses_in_zero_copy(&interface)).then(|| {
        "virtio_net loses packets that are sent in zero copy where it is a module: leave the choice to flowlane, or take ',copy'"
            .to_owned()
    });
    let handed = first.device().is_handed().then(|| {
        "the XDP program is somebody else's: all packets of these queues come here, and none of them to the kernel".to_owned()
    });
    let notes = [promiscuous, unhashed, left, lossy, handed, measured].into_iter().flatten().collect();
    let mode = mode(first.device());
    // Whether packets come in several frames was settled when the sockets were bound.
    let one = (memory.frame_size() - flowlane_sys::frame::HEADROOM - 18) as u32;
    let most = if mtu > one { mtu } else { one };
    let open = std::sync::Arc::downgrade(first.device());
    let life = Life::new(interface, (mtu, most), open);
    let info = LinkInfo::new(name, MacAddr(mac), life.mtu(), queues.len())
        .offload(options.offload, if options.offload { 65_535 } else { 0 })
        .delivers_hash(first.device().delivers_hash())
        .on(life, Some(groups))
        .notes(notes);
    let lost_carrier = first.device().lost_carrier();
    let info = LinkInfo { first_queue, mode, lost_carrier, ..info };
    Ok((info, boxed(queues)))
}

/// Where the program runs and who moves the bytes.
fn mode(device: &Device) -> &'static str {
    match (device.mode(), device.zero_copy()) {
        (XdpMode::Generic, _) => {
            "generic, copied: the driver runs no XDP program, so the kernel makes a packet of its own first"
        }
        (_, true) => "native, zero-copy",
        (_, false) => "native, copied",
    }
}

/// As the system's part is told.
fn in_words_of_sys(options: &AfXdpOptions) -> Result<XdpOptions, Error> {
    let (first, count) = match options.queues {
        Some(queues) => queues,
        None => (0, Interface::find(&options.interface)?.channels()?.receive),
    };
    let mut xdp = XdpOptions::new(&options.interface, count, options.claim.prefixes().to_vec());
    xdp.tags = options.claim.tags();
    xdp.everything = options.claim.is_every_frame();
    xdp.first_queue = first;
    xdp.copy = options.copy;
    xdp.mode = options.mode;
    xdp.ring_size = options.ring_size;
    xdp.busy_poll = options.busy_poll;
    xdp.waiting = options.waiting;
    xdp.hash_type = options.hash.then_some(hash_type as fn(u32) -> u8);
    xdp.offload = options.offload;
    xdp.map = options.map.clone();
    Ok(xdp)
}

/// The number of flowlane's hash type for the kernel's (`enum xdp_rss_hash_type`, a set of bits). A hash over "some
/// transport header" is of unknown fields.
fn hash_type(kernel: u32) -> u8 {
    const IPV4: u32 = 1;
    const IPV6: u32 = 1 << 1;
    const EXTENSIONS: u32 = 1 << 2;
    const L4: u32 = 1 << 3;
    const TCP: u32 = 1 << 4;
    const UDP: u32 = 1 << 5;
    // The kernel's combinations for TCP and UDP contain the bit for "transport" too.
    match kernel & !(if kernel & (TCP | UDP) != 0 { L4 } else { 0 }) {
        0 => 0,
        IPV4 => 0x81,
        k if k == IPV4 | TCP => 0x82,
        IPV6 => 0x83,
        k if k == IPV6 | TCP => 0x84,
        k if k == IPV6 | EXTENSIONS => 0x85,
        k if k == IPV6 | EXTENSIONS | TCP => 0x86,
        k if k == IPV4 | UDP => 0x87,
        k if k == IPV6 | UDP => 0x89,
        k if k == IPV6 | EXTENSIONS | UDP => 0x8a,
        _ => 0xbf,
    }
}

#[cfg(test)]
mod tests {
    use super::hash_type;

    #[test]
    fn the_kernels_hash_types_have_numbers_of_ours() {
        // IPv4 with TCP, IPv6 with UDP, "some transport" as veth says, none.
        assert_eq!([1 | 8 | 16, 2 | 8 | 32, 8, 0].map(hash_type), [0x82, 0x89, 0xbf, 0]);
    }
}
