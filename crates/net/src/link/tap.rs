//! `tap:NAME`: an interface of the kernel whose other side is this process.
//!
//! There is one descriptor for each worker; packets are steered to them by RSS with our key and table. The implementation is in
//! [`flowlane_sys::tun`].

use super::{Life, LinkInfo, OpenError, Queue, boxed};
use flowlane_stack::wire::MacAddr;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::frame::FrameMemory;
use flowlane_sys::tun::{self, TapOptions as SysOptions};
use std::net::IpAddr;

/// How to open a TAP link.
#[derive(Debug, Clone)]
pub struct TapOptions {
    /// The interface; made if it does not exist.
    pub interface: String,
    /// The RSS to emulate: the table names queues, one for each worker. `None`: the kernel chooses.
    pub steering: Option<SteeringRules>,
    /// Compute no checksums: the kernel on the other side needs none.
    pub checksum_offload: bool,
    /// Let TCP cross in pieces of up to 64 KiB. Needs `checksum_offload`.
    pub segmentation: bool,
    /// Addresses of the kernel's side, with prefix lengths, to set.
    pub kernel_addresses: Vec<(IpAddr, u8)>,
    /// MTU to set, bytes.
    pub mtu: Option<u16>,
}

impl TapOptions {
    /// The usual settings.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            steering: None,
            checksum_offload: true,
            segmentation: true,
            kernel_addresses: Vec::new(),
            mtu: None,
        }
    }
}

/// Opens the link with a queue for each worker.
///
/// # Errors
/// [`OpenError::Device`].
pub fn open(
    options: &TapOptions,
    memory: &FrameMemory,
    workers: usize,
) -> Result<(LinkInfo, Vec<Box<dyn Queue>>), OpenError> {
    let name = format!("tap:{}", options.interface);
    let mut tap = SysOptions::new(&options.interface, workers as u32);
    tap.steering = options.steering.clone();
    tap.checksum_offload = options.checksum_offload;
    tap.segmentation = options.segmentation && options.checksum_offload;
    tap.addresses = options.kernel_addresses.clone();
    tap.mtu = options.mtu.map(u32::from);
    let queues = tun::open(&tap, memory).map_err(OpenError::device(name.clone()))?;
    let Some(first) = queues.first() else {
        return Err(OpenError::Option { link: name, what: "no queues".to_owned() });
    };
    let (mac, mtu, interface) = (first.tap().mac(), first.tap().mtu(), first.tap().interface().clone());
    // With one queue there is nothing to choose.
    let unsteered = first.tap().unsteered().filter(|_| workers > 1);
    let notes = unsteered.map(|why| format!("the kernel chooses the queue of each packet, not RSS: {why}"));
    let notes = notes.into_iter().collect();
    // Frames are laid out for the longest packet: of 64 KiB, where packets may be merged.
    let most = if tap.segmentation { u32::from(u16::MAX) } else { mtu };
    let life = Life::new(interface, (mtu, most), first.open());
    let info = LinkInfo::new(name, MacAddr(mac), life.mtu(), queues.len())
        .offload(tap.checksum_offload, if tap.segmentation { 65_535 } else { 0 })
        .on(life, None)
        .notes(notes);
    Ok((info, boxed(queues)))
}
