//! Links by name: `tap:NAME`, `af-packet:NAME[,offload]`, `af-xdp:NAME[,zero-copy|,copy|,measure][,offload]`, `switch:NAME/PORT`, `pcap:IN,OUT`, and
//! `kernel` for kernel sockets without a link.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use flowlane::{Host, Interface, Key, Rss, Runtime};
//! use flowlane::link::LinkSpec;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
//! let addresses = vec!["10.11.2.1/24".parse()?];
//! let mut builder = Runtime::builder();
//! let interface = Interface { addresses: addresses.clone(), ..Interface::default() };
//! let host = builder.host(Host::new("server", rss.clone(), || async {}).interface(interface));
//! "tap:t0".parse::<LinkSpec>()?.join(&mut builder, host, &addresses, None, &rss);
//! # Ok(())
//! # }
//! ```
//!
//! Parsing a text to a [`LinkSpec`] finds mistakes before anything is opened. The link is opened when the runtime starts, since frame
//! memory and the number of workers are known only then.
//!
//! TAP and AF_PACKET have no card that steers; they use the host's key and table, so that packets arrive at the worker that owns their
//! bucket. With AF_XDP the card steers, and frames that arrive on another queue are handed over.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use flowlane_rss::{Bucket, Rss, Worker};
use flowlane_stack::address::Prefix;
use flowlane_stack::wire::MacAddr;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::netdev::Interface;
use flowlane_sys::xdp::CopyMode;

use super::af_packet::AfPacketOptions;
use super::af_xdp::AfXdpOptions;
use super::handed::Handed;
use super::opening::OpenLink;
use super::pcap::PcapOptions;
use super::plug;
use super::tap::TapOptions;
use super::{Claim, OpenError, af_packet, af_xdp, pcap, tap};
use crate::error::StartError;

/// What can be named, for messages.
const KINDS: &str = "kernel[:NAME], tap:NAME, af-packet:NAME[,offload], af-xdp:NAME[,zero-copy|,copy|,measure][,offload], switch:NAME/PORT or pcap:IN,OUT";
/// Longest name of an interface in Linux, and longest alternative name.
const NAME: usize = 15;
const ALTERNATIVE: usize = 127;

/// A link that was named and not opened yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkSpec {
    /// The other side of an interface of the kernel.
    Tap(String),
    /// Packet sockets on an interface; whether checksum and segmentation are left to it.
    AfPacket(String, bool),
    /// The queues of a card; who copies; whether checksum and segmentation are left to it; the first of its queues and how many, if not all; who hands
    /// over the map of its XDP program, if that is somebody else's.
    AfXdp(String, CopyMode, bool, Option<(u32, u32)>, Option<Handed>),
    /// A port of a running [switch](crate::switch) of this user that hosts plug into: the switch's name and the port's.
    Switch(String, String),
    /// Capture files: input and output.
    Pcap(Option<PathBuf>, Option<PathBuf>),
    /// No link: sockets of the kernel, with its addresses and routes; the card whose packets they are for, if it was named: workers are
    /// bound near its queues, and its queues steer ([`Steer::Cpu`](crate::Steer)). Packets of other cards come, too.
    Kernel(Option<String>),
}

/// Why a text names no link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLink(String);

impl fmt::Display for BadLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadLink {}

impl FromStr for LinkSpec {
    type Err = BadLink;

    fn from_str(text: &str) -> Result<Self, BadLink> {
        if text == "kernel" {
            return Ok(Self::Kernel(None));
        }
        let unknown = || BadLink(format!("'{text}' is no link: give {KINDS}"));
        let (kind, rest) = text.split_once(':').ok_or_else(unknown)?;
        match kind {
            "kernel" => Ok(Self::Kernel(Some(interface(rest)?))),
            "tap" => Ok(Self::Tap(interface(rest)?)),
            "af-packet" => match rest.split_once(',') {
                None => Ok(Self::AfPacket(interface(rest)?, false)),
                Some((name, "offload")) => Ok(Self::AfPacket(interface(name)?, true)),
                Some((_, other)) => Err(BadLink(format!("'{other}' is no option of af-packet: offload"))),
            },
            "af-xdp" => af_xdp_spec(rest),
            "switch" => {
                let (name, port) = rest.split_once('/').unwrap_or((rest, ""));
                let wrong = |part: &str| part.is_empty() || part.len() > 32 || part.contains(['/', '.', ' ']);
                if wrong(name) || wrong(port) {
                    return Err(BadLink(format!(
                        "'{text}' names no port of a switch: give the switch and the port, as switch:sw0/web"
                    )));
                }
                Ok(Self::Switch(name.to_owned(), port.to_owned()))
            }
            "pcap" => {
                let (input, output) = rest.split_once(',').unwrap_or((rest, ""));
                let path = |p: &str| (!p.is_empty()).then(|| PathBuf::from(p));
                let (input, output) = (path(input), path(output));
                if input.is_none() && output.is_none() {
                    return Err(BadLink(
                        "pcap needs a file to read, a file to write or both: pcap:IN,OUT".into(),
                    ));
                }
                Ok(Self::Pcap(input, output))
            }
            _ => Err(unknown()),
        }
    }
}

/// A card and its options.
fn af_xdp_spec(text: &str) -> Result<LinkSpec, BadLink> {
    let mut parts = text.split(',');
    let name = interface(parts.next().unwrap_or_default())?;
    let (mut copy, mut offload, mut queues, mut map, mut pod) = (CopyMode::Auto, false, None, None, None);
    for option in parts {
        match option.split_once('=').unwrap_or((option, "")) {
            ("zero-copy", "") => copy = CopyMode::ZeroCopy,
            ("copy", "") => copy = CopyMode::Copy,
            ("measure", "") => copy = CopyMode::Measure,
            ("offload", "") => offload = true,
            ("queues", list) => queues = Some(range(list)?),
            ("map", place) => {
                let path = place.strip_prefix("unix:").filter(|path| !path.is_empty());
                let path = path.ok_or_else(|| {
                    BadLink(format!("map={place}: give a socket, as map=unix:/tmp/afxdp.sock"))
                })?;
                map = Some(PathBuf::from(path));
            }
            ("pod", name) if !name.is_empty() => pod = Some(name.to_owned()),
            _ => {
                let known = "zero-copy, copy, measure, offload, queues=0-3, map=unix:PATH or pod=NAME";
                return Err(BadLink(format!("'{option}' is no option of af-xdp: {known}")));
            }
        }
    }
    if map.is_none() && pod.is_some() {
        return Err(BadLink(
            "pod=NAME goes with map=unix:PATH, where the pod's name is asked for".to_owned(),
        ));
    }
    if map.is_some() && copy == CopyMode::Measure {
        return Err(BadLink(
            "measure attaches programs, and with map= the program is somebody else's".to_owned(),
        ));
    }
    let map = map.map(|socket| Handed { socket, pod });
    Ok(LinkSpec::AfXdp(name, copy, offload, queues, map))
}

/// Queues `4-7` or `4` as the first and how many.
fn range(list: &str) -> Result<(u32, u32), BadLink> {
    let wrong = || BadLink(format!("queues={list}: give the first and the last, as queues=0-3"));
    let (first, last) = list.split_once('-').unwrap_or((list, list));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first.into(), u32::from(last - first) + 1)),
        _ => Err(wrong()),
    }
}

/// The interface that has this name, which may be an alternative one.
fn interface(name: &str) -> Result<String, BadLink> {
    let wrong =
        name.is_empty() || name.len() > ALTERNATIVE || name.contains(|c: char| c == '/' || c.is_whitespace());
    if wrong {
        return Err(BadLink(format!(
            "'{name}' is no name of an interface (1 to {NAME} letters, alternative ones to {ALTERNATIVE})"
        )));
    }
    match Interface::find(name) {
        // It goes by its own name from here on, whichever it was found by.
        Ok(found) => Ok(found.name().to_owned()),
        // One that is opened, or made, later.
        Err(_) if name.len() <= NAME => Ok(name.to_owned()),
        Err(_) => Err(BadLink(format!(
            "'{name}' is no name of an interface: nobody has it as an alternative name, and others have 1 to {NAME} letters"
        ))),
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |p: &Option<PathBuf>| p.as_ref().map_or(String::new(), |p| p.display().to_string());
        match self {
            Self::Tap(name) => write!(f, "tap:{name}"),
            Self::AfPacket(name, _) => write!(f, "af-packet:{name}"),
            Self::AfXdp(name, ..) => write!(f, "af-xdp:{name}"),
            Self::Switch(name, port) => write!(f, "switch:{name}/{port}"),
            Self::Pcap(input, output) => write!(f, "pcap:{},{}", show(input), show(output)),
            Self::Kernel(None) => f.write_str("kernel sockets"),
            Self::Kernel(Some(name)) => write!(f, "kernel:{name}"),
        }
    }
}

impl LinkSpec {
    /// The interface that it is on, if it is on one.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Tap(name) | Self::AfPacket(name, _) | Self::AfXdp(name, ..) => Some(name),
            Self::Kernel(name) => name.as_deref(),
            Self::Switch(..) | Self::Pcap(..) => None,
        }
    }

    /// Whether there is no link, but sockets of the kernel: for a host made by [`Host::kernel`](crate::Host::kernel).
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    /// The argument for [`Builder::link`](crate::Builder::link). `ours` are the addresses whose packets are taken, on `vlan`; `rss` is the
    /// steering if no card steers.
    #[must_use]
    pub fn open(self, ours: &[Prefix], vlan: Option<u16>, rss: &Rss) -> OpenLink {
        let none = Claim::none().on_vlan(vlan);
        let claim = ours.iter().fold(none, |claim, p| claim.prefix(p.address(), p.len()));
        let steering = steering(rss);
        let hash = rss.is_of_card() && rss.takes_delivered_hashes();
        Box::new(move |memory, workers| {
            let opened = match self {
                Self::Tap(name) => {
                    let options = TapOptions { steering, ..TapOptions::new(&name) };
                    tap::open(&options, memory, workers)
                }
                Self::AfPacket(name, offload) => {
                    let usual = AfPacketOptions::new(&name, claim);
                    let options = AfPacketOptions { steering, offload, ..usual };
                    af_packet::open(&options, workers)
                }
                Self::AfXdp(name, copy, offload, queues, map) => {
                    let wrong = |what| OpenError::Option { link: format!("af-xdp:{name}"), what };
                    let map = map.map(|map| map.map(&name).map_err(wrong)).transpose();
                    let usual = AfXdpOptions::new(&name, claim);
                    map.and_then(|map| {
                        let map = map.map(std::sync::Arc::new);
                        let options = AfXdpOptions { copy, offload, hash, queues, map, ..usual };
                        af_xdp::open(&options, memory)
                    })
                }
                Self::Switch(switch, port) => {
                    let name = format!("switch:{switch}/{port}");
                    let path = crate::directory::plugs_path(&switch);
                    plug::open(&path, (&name, &switch, &port), memory, workers)
                }
                Self::Pcap(input, output) => {
                    let mac = MacAddr([0x02, 0x46, 0x4c, 0x00, 0x00, 0x0c]);
                    let options = PcapOptions { input, output, mac, mtu: 1500, clock: since_1970 };
                    pcap::open(&options, workers)
                }
                Self::Kernel(_) => {
                    let what = "kernel sockets are no link that could be opened".into();
                    Err(OpenError::Option { link: "kernel".into(), what })
                }
            };
            opened.map_err(StartError::Link)
        })
    }
}

/// Our own key and table, its slots naming workers. `None` where the hash has no key: the program that steers knows Toeplitz
/// alone.
fn steering(rss: &Rss) -> Option<SteeringRules> {
    let worker = |bucket: &Bucket| {
        let Worker(worker) = rss.buckets.worker_of(*bucket);
        worker
    };
    Some(SteeringRules {
        key: rss.hasher().key()?.as_bytes().to_vec(),
        table: rss.table.slots().iter().map(worker).collect(),
        udp_ports: rss.config.udp_ipv4,
    })
}

fn since_1970() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_understood() {
        let parse = |s: &str| s.parse::<LinkSpec>();
        assert_eq!(parse("tap:t0"), Ok(LinkSpec::Tap("t0".into())));
        assert_eq!(parse("af-packet:eth0"), Ok(LinkSpec::AfPacket("eth0".into(), false)));
        assert_eq!(
            parse("af-xdp:eth0"),
            Ok(LinkSpec::AfXdp("eth0".into(), CopyMode::Auto, false, None, None))
        );
        assert_eq!(
            parse("af-xdp:eth0,zero-copy"),
            Ok(LinkSpec::AfXdp("eth0".into(), CopyMode::ZeroCopy, false, None, None))
        );
        let both = LinkSpec::AfXdp("eth0".into(), CopyMode::Copy, true, None, None);
        let some = |queues| Ok(LinkSpec::AfXdp("eth0".into(), CopyMode::Auto, false, Some(queues), None));
        assert_eq!(parse("af-xdp:eth0,queues=2-5"), some((2, 4)));
        assert_eq!(parse("af-xdp:eth0,queues=3"), some((3, 1)));
        for wrong in ["", "5-2", "a", "1-", "-1", "0-70000"] {
            let said = parse(&format!("af-xdp:eth0,queues={wrong}")).unwrap_err().to_string();
            assert!(said.ends_with("give the first and the last, as queues=0-3"), "{said}");
        }
        assert_eq!(parse("af-xdp:eth0,copy,offload"), Ok(both));
        let measure = LinkSpec::AfXdp("eth0".into(), CopyMode::Measure, false, None, None);
        assert_eq!(parse("af-xdp:eth0,measure"), Ok(measure));
        let handed = |pod: Option<&str>| {
            let map = Handed { socket: "/tmp/afxdp.sock".into(), pod: pod.map(str::to_owned) };
            Ok(LinkSpec::AfXdp("eth0".into(), CopyMode::Auto, false, None, Some(map)))
        };
        assert_eq!(parse("af-xdp:eth0,map=unix:/tmp/afxdp.sock"), handed(None));
        assert_eq!(parse("af-xdp:eth0,map=unix:/tmp/afxdp.sock,pod=web-0"), handed(Some("web-0")));
        assert_eq!(parse("af-packet:eth0,offload"), Ok(LinkSpec::AfPacket("eth0".into(), true)));
        assert_eq!(parse("switch:sw0/web"), Ok(LinkSpec::Switch("sw0".into(), "web".into())));
        assert_eq!(parse("kernel"), Ok(LinkSpec::Kernel(None)));
        assert_eq!(parse("kernel:eth0"), Ok(LinkSpec::Kernel(Some("eth0".into()))));
        assert_eq!(parse("pcap:a,b"), Ok(LinkSpec::Pcap(Some("a".into()), Some("b".into()))));
        assert_eq!(parse("pcap:,b"), Ok(LinkSpec::Pcap(None, Some("b".into()))));
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for text in [
            "",
            "eth0",
            "wifi:x",
            "tap:",
            "tap:a b",
            "af-packet:much-too-long-name",
            "pcap:",
            "kernel:",
            "switch:",
            "switch:sw0",
            "switch:sw0/",
            "switch:/p",
            "switch:../x/p",
            "switch:sw0/a/b",
            "af-xdp:e,fast",
            "af-xdp:e,copy=yes",
            "af-xdp:e,map=/tmp/afxdp.sock",
            "af-xdp:e,map=unix:",
            "af-xdp:e,pod=web-0",
            "af-xdp:e,map=unix:/tmp/afxdp.sock,pod=",
            "af-xdp:e,map=unix:/tmp/afxdp.sock,measure",
            "af-packet:e,copy",
        ] {
            let error = text.parse::<LinkSpec>().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{text}");
        }
    }
}
