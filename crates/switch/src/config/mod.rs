//! What a switch is told.
//!
//! [`Config`] is a plain value. It is changed by words ([`Change::parse`], in the manner of `etherswitchcfg`) or read from a file
//! ([`mod@file`]); either way the whole result is checked ([`Config::check`]), and a switch takes it whole or not at all.
//!
//! **Modes.** `default`: a learning switch that does not look at tags. `port`: the same, and group N names the ports to which port N may send.
//! `dot1q`: VLANs by 802.1Q's tags. `qinq`: VLANs by 802.1ad's service tags; 802.1Q's tags are payload. Entering a mode resets what
//! belongs to modes: groups, port VLANs and tag flags. In `dot1q` and `qinq` there is VLAN 1 then, with all ports untagged.

mod check;
pub mod file;
mod flags;
pub mod mistakes;
mod words;

pub use flags::Flags;
pub use words::{Change, Flush};

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use flowlane_stack::wire::{EtherType, MacAddr};

use crate::ports::{PortId, PortSet};

/// The greatest number of a VLAN.
pub const MAX_VID: u16 = 4094;
/// The longest payload of a frame, bytes.
pub const MAX_MTU: u16 = 9216;

/// How the switch divides its ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Not at all: every port reaches every port, and tags are payload.
    #[default]
    Default,
    /// By groups of ports; tags are payload.
    Port,
    /// By VLANs with the tags of 802.1Q.
    Dot1q,
    /// By VLANs with the service tags of 802.1ad.
    Qinq,
}

impl Mode {
    /// The modes by name.
    pub const NAMES: [(&'static str, Mode); 4] =
        [("default", Mode::Default), ("port", Mode::Port), ("dot1q", Mode::Dot1q), ("qinq", Mode::Qinq)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Mode::NAMES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }

    /// The tags that name a VLAN; `None` where tags are payload.
    #[must_use]
    pub const fn tpid(self) -> Option<EtherType> {
        match self {
            Mode::Default | Mode::Port => None,
            Mode::Dot1q => Some(EtherType::VLAN),
            Mode::Qinq => Some(EtherType::SERVICE_VLAN),
        }
    }
}

/// How many frames a second a port may have sent to everybody; `None`: any number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StormLimits {
    /// To addresses that nobody has learnt.
    pub unknown: Option<u32>,
    /// To the broadcast address.
    pub broadcast: Option<u32>,
    /// To groups.
    pub multicast: Option<u32>,
}

/// What the switch is told of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Its name: a letter, then letters, digits, `-` and `_`, 15 at most.
    pub name: String,
    /// The link behind it, for the program that opens it; means nothing here.
    pub link: String,
    /// The VLAN of frames without one; 0: they are dropped.
    pub pvid: u16,
    /// What is done with tags, and other refusals.
    pub flags: Flags,
    /// The longest payload that is sent, bytes. A VLAN's tag does not count.
    pub mtu: u16,
    /// Addresses that may be learnt here; `None`: as many as the table has.
    pub addresses: Option<u32>,
    /// Limits of floods.
    pub storm: StormLimits,
    /// The priority of frames without one.
    pub priority: u8,
    /// What becomes of each priority that a tag brings.
    pub priorities: [u8; 8],
    /// A number without port: it had one that was removed while the switch ran. Ports keep their numbers as long as it runs.
    pub vacant: bool,
}

impl PortConfig {
    /// A port of this name with the usual settings.
    #[must_use]
    pub fn new(name: &str) -> PortConfig {
        PortConfig {
            name: name.to_owned(),
            link: String::new(),
            pvid: 0,
            flags: Flags::NONE,
            mtu: 1500,
            addresses: None,
            storm: StormLimits::default(),
            priority: 0,
            priorities: [0, 1, 2, 3, 4, 5, 6, 7],
            vacant: false,
        }
    }

    fn vacant() -> PortConfig {
        PortConfig { vacant: true, ..PortConfig::new("") }
    }
}

/// Ports of a VLAN, or those to which a port may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Group {
    /// Its ports.
    pub members: PortSet,
    /// Those of them by which frames leave with the VLAN's tag.
    pub tagged: PortSet,
}

/// Frames that a port gets besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// Of frames that come or leave by these.
    pub ports: PortSet,
    /// And of frames of this VLAN.
    pub vlan: Option<u16>,
    /// The port that gets them, and nothing else.
    pub to: PortId,
}

/// The whole configuration of a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// How the ports are divided.
    pub mode: Mode,
    /// The ports, by number.
    pub ports: Vec<PortConfig>,
    /// VLANs by number; in mode `port`, where each port may send.
    pub groups: BTreeMap<u16, Group>,
    /// Addresses that are not learnt but known, by VLAN (0 without VLANs).
    pub statics: BTreeMap<(u16, MacAddr), PortId>,
    /// Addresses that the table holds. Takes effect at the start only.
    pub addresses: u32,
    /// After how many seconds without a frame an address is forgotten. Takes effect at the start only.
    pub ageing: u32,
    /// All VLANs learn together: an address is on one port, whatever its VLAN.
    pub shared: bool,
    /// Frames to the addresses of 802.1D (01:80:c2:00:00:00 to 0f) pass like others, but for PAUSE.
    pub pass_reserved: bool,
    /// Frames to a multicast group go where IGMP and MLD have announced listeners.
    pub snooping: bool,
    /// The switch asks who listens, from this address; unspecified: from none, and whoever has one is heard instead. Needs `snooping`.
    pub querier: Option<Ipv4Addr>,
    /// Seconds between two general queries in a VLAN, of the switch or of others. Listeners are forgotten after twice that and the time to answer.
    pub query_interval: u32,
    /// The version of IGMP in which the switch asks: 2 or 3.
    pub igmp: u8,
    /// The version of MLD in which the switch asks: 1 or 2.
    pub mld: u8,
    /// Seconds between two probe frames on each port; 0: none, and loops are not noticed.
    pub probe: u32,
    /// For how many seconds a port with a loop is blocked.
    pub block: u32,
    /// Addresses that may move to a port, a second.
    pub moves: u32,
    /// Copies for a port that watches.
    pub mirror: Option<Mirror>,
}

/// Why a change was refused, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(pub String);

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// A switch of these ports in mode `default`.
    #[must_use]
    pub fn new(ports: Vec<PortConfig>) -> Config {
        Config {
            mode: Mode::Default,
            ports,
            groups: BTreeMap::new(),
            statics: BTreeMap::new(),
            addresses: 65_536,
            ageing: 300,
            shared: false,
            pass_reserved: false,
            snooping: false,
            querier: None,
            query_interval: 125,
            igmp: 3,
            mld: 2,
            probe: 1,
            block: 30,
            moves: 100,
            mirror: None,
        }
    }

    /// All ports.
    #[must_use]
    pub fn all(&self) -> PortSet {
        PortSet::first(self.ports.len()).filter(|port| !self.ports[port.index()].vacant).collect()
    }

    /// This configuration with one port more, and its number. With VLANs or groups the port belongs to none of them yet.
    ///
    /// # Errors
    /// What [`Config::check`] finds.
    pub fn with_port(&self, name: &str, link: &str, mtu: u16) -> Result<(Config, PortId), ConfigError> {
        let mut config = self.clone();
        let at = config.ports.iter().position(|port| port.vacant).unwrap_or(config.ports.len());
        let mut port = PortConfig { link: link.to_owned(), mtu, ..PortConfig::new(name) };
        if config.mode.tpid().is_some() {
            port.flags = Flags::INGRESS;
        }
        if at == config.ports.len() {
            config.ports.push(port);
        } else {
            config.ports[at] = port;
        }
        config.check()?;
        let id =
            PortId::new(at).ok_or_else(|| ConfigError(format!("port {name}: there is no number for it")))?;
        Ok((config, id))
    }

    /// This configuration without a port: its number is vacant, and it is in no VLAN or group, nor are its static addresses there.
    ///
    /// # Errors
    /// It is the last one, or part of the mirror.
    pub fn without_port(&self, port: PortId) -> Result<Config, ConfigError> {
        let name = self.name(port);
        // Guard: `self.mirror.is_some_and(|mirror| mirror.to == port || mirror.ports.has(port))` as `false`
        // fails switch/config::ports_that_cannot_come_or_go
        if self.mirror.is_some_and(|mirror| mirror.to == port || mirror.ports.has(port)) {
            return Err(ConfigError(format!(
                "port {name} is part of the mirror: 'switch mirror none' first"
            )));
        }
        // Guard: `self.all() == port.alone()` as `false` fails switch/config::ports_that_cannot_come_or_go
        if self.all() == port.alone() {
            return Err(ConfigError(format!("port {name} is the last one: 'switch down' ends the switch")));
        }
        let mut config = self.clone();
        config.ports[port.index()] = PortConfig::vacant();
        config.statics.retain(|_, on| *on != port);
        if config.mode == Mode::Port {
            config.groups.remove(&(port.index() as u16));
        }
        for group in config.groups.values_mut() {
            group.members.set(port, false);
            group.tagged.set(port, false);
        }
        config.check()?;
        Ok(config)
    }

    /// Enters a mode, and resets what belongs to modes. The mode it has already: no change.
    pub fn enter(&mut self, mode: Mode) {
        if mode == self.mode {
            return;
        }
        self.mode = mode;
        self.statics.clear();
        self.mirror = None;
        self.groups = match mode {
            Mode::Default => BTreeMap::new(),
            Mode::Port => {
                let everywhere = Group { members: self.all(), tagged: PortSet::NONE };
                self.all().map(|port| (port.index() as u16, everywhere)).collect()
            }
            Mode::Dot1q | Mode::Qinq => {
                BTreeMap::from([(1, Group { members: self.all(), tagged: PortSet::NONE })])
            }
        };
        let vlans = mode.tpid().is_some();
        for port in self.ports.iter_mut().filter(|port| !port.vacant) {
            port.pvid = u16::from(vlans);
            let lock = port.flags.and(Flags::FIRSTLOCK);
            port.flags = if vlans { lock.or(Flags::INGRESS) } else { lock };
        }
    }

    /// The port of this name or number.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<PortId> {
        let named = self.ports.iter().position(|port| !port.vacant && port.name == name);
        let number = || name.parse().ok();
        PortId::new(named.or_else(number)?).filter(|port| self.all().has(*port))
    }

    /// The name of a port.
    #[must_use]
    pub fn name(&self, port: PortId) -> &str {
        self.ports.get(port.index()).map_or("", |port| &port.name)
    }
}
