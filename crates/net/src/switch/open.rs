//! Opening the links of ports: the usual ones, but for every frame.

use std::fmt;
use std::str::FromStr;

use flowlane_stack::address::Prefix;
use flowlane_stack::wire::MacAddr;
use flowlane_switch::config::MAX_MTU;
use flowlane_sys::frame::FrameMemory;
use flowlane_sys::netdev::Interface;
use flowlane_sys::xdp::{CopyMode, may_be_zero_copy};

use super::error::SwitchError;
use crate::link::af_packet::{self, AfPacketOptions};
use crate::link::af_xdp::{self, AfXdpOptions};
use crate::link::tap::{self, TapOptions};
use crate::link::{BadLink, Claim, LinkInfo, LinkSpec, OpenError, Queue};

/// The link behind a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortLink {
    /// A link of the usual kinds, for every frame.
    Link(LinkSpec),
    /// Nothing until a host plugs in, as `switch:NAME/PORT`.
    Plug,
    /// As [`PortLink::Plug`], for the host of the switch itself, which has these addresses ([`Options::hosts`](super::Options::hosts)).
    Host(Vec<Prefix>),
}

/// What a port can be, for messages.
const KINDS: &str = "tap:NAME, af-packet:NAME, af-xdp:NAME, plug or host:ADDRESS/LEN[,ADDRESS/LEN]";

impl FromStr for PortLink {
    type Err = SwitchError;

    fn from_str(text: &str) -> Result<PortLink, SwitchError> {
        if text == "plug" {
            return Ok(Self::Plug);
        }
        if let Some(addresses) = text.strip_prefix("host:") {
            let wrong = |e: &dyn fmt::Display| {
                SwitchError::Link(format!("'{text}': {e}: give addresses as host:10.9.0.9/24,fd09::9/64"))
            };
            let parse = |address: &str| match address.parse::<Prefix>() {
                Ok(_) if !address.contains('/') => {
                    Err(wrong(&format_args!("{address}: the prefix length is missing")))
                }
                prefix => prefix.map_err(|e| wrong(&e)),
            };
            let addresses = addresses.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
            crate::address::check(&addresses).map_err(|why| wrong(&why))?;
            return Ok(Self::Host(addresses));
        }
        let spec: LinkSpec = text
            .parse()
            .map_err(|e: BadLink| SwitchError::Link(format!("{e}; a port of a switch is {KINDS}")))?;
        match spec {
            LinkSpec::Pcap(..) | LinkSpec::Kernel(..) | LinkSpec::Switch(..) => {
                Err(SwitchError::Link(format!("'{text}' is no port of a switch: give {KINDS}")))
            }
            LinkSpec::AfXdp(.., Some(_)) | LinkSpec::AfXdp(_, CopyMode::Measure, ..) => Err(
                SwitchError::Link(format!("'{text}': a port of a switch is opened without map= and measure")),
            ),
            spec => Ok(Self::Link(spec)),
        }
    }
}

impl fmt::Display for PortLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = match self {
            Self::Link(spec) => spec,
            Self::Plug => return f.write_str("plug"),
            Self::Host(addresses) => {
                let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                return write!(f, "host:{}", addresses.join(","));
            }
        };
        spec.fmt(f)?;
        if let LinkSpec::AfXdp(_, copy, _, queues, _) = spec {
            match copy {
                CopyMode::Auto | CopyMode::Measure => {}
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

/// What links are opened with.
pub(super) struct Means<'a> {
    pub(super) memory: &'a FrameMemory,
    pub(super) workers: usize,
    /// Workers poll the interfaces of AF_XDP ports, so many frames at once.
    pub(super) busy_poll: Option<u32>,
    /// Frames of each worker that wait for packets of an AF_XDP port at most.
    pub(super) waiting: Option<usize>,
}

impl PortLink {
    /// The interface whose frames are all taken from the kernel; `None` for TAP, whose other side is ours anyway.
    #[must_use]
    pub fn takes(&self) -> Option<&str> {
        match self {
            Self::Link(LinkSpec::AfPacket(name, _) | LinkSpec::AfXdp(name, ..)) => Some(name),
            _ => None,
        }
    }

    /// The interface, if there is one.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Link(LinkSpec::AfPacket(name, _) | LinkSpec::AfXdp(name, ..) | LinkSpec::Tap(name)) => {
                Some(name)
            }
            _ => None,
        }
    }

    /// Whether a default route of this network namespace, of either family, is over an interface whose frames are all taken.
    #[must_use]
    pub fn takes_default_route(&self) -> bool {
        let Some(interface) = self.takes() else { return false };
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let v4 = read("/proc/thread-self/net/route");
        let v6 = read("/proc/thread-self/net/ipv6_route");
        let is_v4 = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.first() == Some(&interface)
                && words.get(1) == Some(&"00000000")
                && words.get(7) == Some(&"00000000")
        };
        let is_v6 = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            // The kernel has an unreachable default route of its own on lo.
            words.last() == Some(&interface) && interface != "lo" && words.get(1) == Some(&"00")
        };
        v4.lines().any(is_v4) || v6.lines().any(is_v6)
    }

    /// Whether it is AF_XDP, whose card may forget settings.
    #[must_use]
    pub fn is_af_xdp(&self) -> bool {
        matches!(self, Self::Link(LinkSpec::AfXdp(..)))
    }

    /// Whether its card may write frames itself.
    pub(super) fn may_be_zero_copy(&self) -> bool {
        let Self::Link(LinkSpec::AfXdp(name, copy, ..)) = self else { return false };
        Interface::find(name).is_ok_and(|interface| may_be_zero_copy(&interface, *copy))
    }

    /// Whether hosts plug into it.
    #[must_use]
    pub fn is_plug(&self) -> bool {
        matches!(self, Self::Plug | Self::Host(_))
    }

    /// Queues and MTU, as far as they are known before it is open.
    pub(super) fn shape(&self) -> (usize, usize) {
        let Some(Ok(interface)) = self.interface().map(Interface::find) else { return (1, 1500) };
        let mtu = interface.mtu().unwrap_or(1500) as usize;
        let queues = match self {
            Self::Link(LinkSpec::AfXdp(_, _, _, Some((_, count)), _)) => *count as usize,
            Self::Link(LinkSpec::AfXdp(..)) => {
                interface.channels().map_or(1, |channels| channels.receive) as usize
            }
            _ => 1,
        };
        (queues, mtu)
    }

    pub(super) fn open(&self, means: &Means<'_>) -> Result<Opened, SwitchError> {
        let &Means { memory, workers, busy_poll, waiting } = means;
        let Self::Link(spec) = self else {
            let info = LinkInfo::new(self.to_string(), MacAddr([0; 6]), MAX_MTU, 0);
            return Ok(Opened { info, queues: Vec::new() });
        };
        let opened = match spec {
            LinkSpec::AfPacket(name, _) => {
                let usual = AfPacketOptions::new(name, Claim::every_frame());
                // Segments that a sender on this machine left together leave together.
                af_packet::open(&AfPacketOptions { offload: true, ..usual }, workers)
            }
            LinkSpec::AfXdp(name, copy, _, queues, _) => {
                let usual = AfXdpOptions::new(name, Claim::every_frame());
                let (copy, queues) = (*copy, *queues);
                let options = AfXdpOptions { copy, queues, offload: true, busy_poll, waiting, ..usual };
                af_xdp::open(&options, memory)
            }
            LinkSpec::Tap(name) => tap::open(&TapOptions::new(name), memory, workers),
            other => Err(OpenError::Option {
                link: other.to_string(),
                what: format!("is no port of a switch: give {KINDS}"),
            }),
        };
        let (info, queues) = opened.map_err(|e| SwitchError::Link(e.to_string()))?;
        info.await_carrier();
        Ok(Opened { info, queues })
    }
}
