//! Opening the links of ports: the usual ones, but for every frame.

use std::fmt;
use std::str::FromStr;

use flowlane_sys::frame::FrameMemory;
use flowlane_sys::netdev::Interface;
use flowlane_sys::xdp::CopyMode;

use super::error::SwitchError;
use crate::link::af_packet::{self, AfPacketOptions};
use crate::link::af_xdp::{self, AfXdpOptions};
use crate::link::tap::{self, TapOptions};
use crate::link::{BadLink, Claim, LinkInfo, LinkSpec, Queue};

/// The link behind a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortLink(LinkSpec);

impl FromStr for PortLink {
    type Err = SwitchError;

    fn from_str(text: &str) -> Result<PortLink, SwitchError> {
        let spec: LinkSpec = text.parse().map_err(|e: BadLink| SwitchError::Link(e.to_string()))?;
        match spec {
            LinkSpec::Pcap(..) | LinkSpec::Kernel(..) => Err(SwitchError::Link(format!(
                "'{text}': a port of a switch is a link of kind tap, af-packet or af-xdp"
            ))),
            spec => Ok(PortLink(spec)),
        }
    }
}

impl fmt::Display for PortLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        if let LinkSpec::AfXdp(_, copy, _, queues) = &self.0 {
            match copy {
                CopyMode::Auto => {}
                CopyMode::Copy => f.write_str(",copy")?,
                CopyMode::ZeroCopy => f.write_str(",zero-copy")?,
            }
            if let Some((first, count)) = queues {
                write!(f, ",queues={first}-{}", first + count - 1)?;
            }
        }
        Ok(())
    }
}

/// A link that is open.
pub(super) struct Opened {
    pub(super) info: LinkInfo,
    pub(super) queues: Vec<Box<dyn Queue>>,
}

impl PortLink {
    /// The interface whose frames are all taken from the kernel; `None` for TAP, whose other side is ours anyway.
    #[must_use]
    pub fn takes(&self) -> Option<&str> {
        match &self.0 {
            LinkSpec::AfPacket(name, _) | LinkSpec::AfXdp(name, ..) => Some(name),
            _ => None,
        }
    }

    /// The interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        match &self.0 {
            LinkSpec::AfPacket(name, _) | LinkSpec::AfXdp(name, ..) | LinkSpec::Tap(name) => name,
            LinkSpec::Pcap(..) | LinkSpec::Kernel(..) => "",
        }
    }

    /// Whether it is AF_XDP, whose card may forget settings.
    #[must_use]
    pub fn is_af_xdp(&self) -> bool {
        matches!(self.0, LinkSpec::AfXdp(..))
    }

    /// Queues and MTU, as far as they are known before it is open.
    pub(super) fn shape(&self) -> (usize, usize) {
        let (LinkSpec::AfXdp(name, ..) | LinkSpec::AfPacket(name, _) | LinkSpec::Tap(name)) = &self.0 else {
            return (1, 1500);
        };
        let Ok(interface) = Interface::find(name) else { return (1, 1500) };
        let mtu = interface.mtu().unwrap_or(1500) as usize;
        let queues = match &self.0 {
            LinkSpec::AfXdp(_, _, _, Some((_, count))) => *count as usize,
            LinkSpec::AfXdp(..) => interface.channels().map_or(1, |channels| channels.receive) as usize,
            _ => 1,
        };
        (queues, mtu)
    }

    pub(super) fn open(&self, memory: &FrameMemory, workers: usize) -> Result<Opened, SwitchError> {
        let opened = match &self.0 {
            LinkSpec::AfPacket(name, _) => {
                let usual = AfPacketOptions::new(name, Claim::every_frame());
                // Segments that a sender on this machine left together leave together.
                af_packet::open(&AfPacketOptions { offload: true, ..usual }, workers)
            }
            LinkSpec::AfXdp(name, copy, _, queues) => {
                let usual = AfXdpOptions::new(name, Claim::every_frame());
                let options = AfXdpOptions { copy: *copy, queues: *queues, offload: true, ..usual };
                af_xdp::open(&options, memory)
            }
            LinkSpec::Tap(name) => tap::open(&TapOptions::new(name), memory, workers),
            LinkSpec::Pcap(..) | LinkSpec::Kernel(..) => unreachable!("refused when it was read"),
        };
        let (info, queues) = opened.map_err(|e| SwitchError::Link(e.to_string()))?;
        Ok(Opened { info, queues })
    }
}
