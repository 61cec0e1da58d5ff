//! `af-packet:NAME`: any Ethernet interface of any kernel, through packet sockets.
//!
//! One socket a worker, and a fanout program that gives each packet to the socket that RSS with our key and table
//! would have chosen, however many queues the card has. The work is done in [`flowlane_sys::packet`].

use super::{Claim, Groups, Life, LinkInfo, OpenError, Queue, boxed};
use flowlane_stack::wire::MacAddr;
use flowlane_sys::bpf::claim::Tags;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::netdev::Interface;
use flowlane_sys::packet::{self, PacketOptions};
use std::sync::Arc;

/// How to open an AF_PACKET link.
#[derive(Debug, Clone)]
pub struct AfPacketOptions {
    /// The interface.
    pub interface: String,
    /// The packets to take from it.
    pub claim: Claim,
    /// The RSS to emulate: the table names queues, one for each worker. `None`: the kernel's own hash.
    pub steering: Option<SteeringRules>,
    /// Keep our packets from the kernel's stack, if the kernel supports it.
    pub exclusive: bool,
    /// Slots of each ring.
    pub ring_size: u32,
    /// Leave checksum and segmentation of TCP to the interface or, if it has neither, to the kernel. Not for a virtual interface that
    /// passes on packets without checksums, unless the far end accepts them.
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
pub fn open(options: &AfPacketOptions, workers: usize) -> Result<(LinkInfo, Vec<Box<dyn Queue>>), OpenError> {
    let name = format!("af-packet:{}", options.interface);
    let describe = || {
        let interface = Interface::find(&options.interface)?;
        Ok((interface.mac()?, interface.mtu()?, interface))
    };
    let (mac, mtu, interface) = describe().map_err(OpenError::device(name.clone()))?;
    let mut packet =
        PacketOptions::new(&options.interface, workers as u32, options.claim.prefixes().to_vec());
    packet.tags = options.claim.tags();
    packet.everything = options.claim.is_every_frame();
    packet.steering = options.steering.clone();
    packet.exclusive = options.exclusive;
    packet.ring_size = options.ring_size;
    packet.offload = options.offload;
    let queues = packet::open(&packet).map_err(OpenError::device(name.clone()))?;
    let Some(first) = queues.first() else {
        return Err(OpenError::Option { link: name, what: "no queues".to_owned() });
    };
    // Of an interface that takes the longest packets of all (loopback), a few bytes less.
    let most = first.longest().saturating_sub(18) as u32;
    let shared = Arc::downgrade(first.shared());
    let life = Life::new(interface, (mtu, most), shared.clone());
    let joined = shared.clone();
    let groups = Groups::new(move |group| joined.upgrade().map_or(Ok(()), |shared| shared.join(group)));
    let groups = groups
        .claiming(move |address, ours| shared.upgrade().map_or(Ok(()), |shared| shared.claim(address, ours)));
    let notes = notes(first.shared(), options);
    let info = LinkInfo::new(name, MacAddr(mac), life.mtu(), queues.len())
        .offload(options.offload, if options.offload { 65_535 } else { 0 })
        .on(life, Some(groups))
        .notes(notes);
    Ok((info, boxed(queues)))
}

/// Notes for the user.
fn notes(shared: &packet::Shared, options: &AfPacketOptions) -> Vec<String> {
    let mut notes = Vec::new();
    if options.exclusive && !shared.is_exclusive() {
        notes.push(
            "the kernel sees our packets too and may answer them (resets, unreachable), since exclusive use needs Linux 6.6: let \
             the kernel have none of our addresses, and no route for them"
                .to_owned(),
        );
    }
    notes.extend(promiscuous(shared.is_promiscuous(), &options.interface, options.claim.tags()));
    notes
}

/// Of a card that had to be made promiscuous.
pub(super) fn promiscuous(is: bool, interface: &str, tags: Tags) -> Option<String> {
    let Tags::Vlan(vlan) = tags else { return None };
    is.then(|| {
        format!(
            "the card lets only VLANs of the kernel through, so it is promiscuous until the end of the run; 'ip link add link \
             {interface} name {interface}.{vlan} type vlan id {vlan}' before the start spares it that"
        )
    })
}
