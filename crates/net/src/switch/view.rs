//! Views of a switch for people and programs.

use std::collections::BTreeMap;

use flowlane_switch::snoop::{Asks, Listeners};
use flowlane_switch::table::Entry;
use flowlane_switch::{Config, PortCounters, PortId, PortSet, Switch};
use serde::{Deserialize, Serialize};

use crate::link::QueueStats;
use crate::stats::Figures;

/// What one worker knows.
#[derive(Debug)]
pub struct View {
    counters: Vec<PortCounters>,
    queues: Vec<QueueStats>,
    /// Ports whose frames come to this worker.
    receives: PortSet,
    known: Vec<usize>,
    all: usize,
    up: PortSet,
    blocked: PortSet,
    listeners: Vec<Listeners>,
    queriers: Vec<Asks>,
    lost_news: u64,
}

impl View {
    /// `queues`: of each port what its queues here counted, and whether frames come from there.
    pub(super) fn of(switch: &Switch, queues: Vec<(QueueStats, bool)>, lost: u64) -> View {
        let ports = || (0..switch.config().ports.len()).filter_map(PortId::new);
        View {
            counters: ports().map(|port| *switch.counters(port)).collect(),
            receives: ports()
                .filter(|port| queues.get(port.index()).is_some_and(|(_, some)| *some))
                .collect(),
            queues: queues.into_iter().map(|(stats, _)| stats).collect(),
            known: ports().map(|port| switch.known(Some(port))).collect(),
            all: switch.known(None),
            up: switch.up(),
            blocked: switch.blocked(),
            listeners: switch.listeners().collect(),
            queriers: switch.queriers().collect(),
            lost_news: lost + switch.lost_news(),
        }
    }

    /// Whether frames of a port come to this worker.
    pub(super) fn receives(&self, port: PortId) -> bool {
        self.receives.has(port)
    }
}

/// A running switch: `switch show --json`; its ports are `switch port --json`, its groups `switch vlan --json`, its mirror
/// `switch mirror --json`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchView {
    /// Version of this document.
    pub version: u32,
    /// How ports are divided.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["default", "port", "dot1q", "qinq"])))]
    pub mode: String,
    /// Threads that forward.
    pub workers: usize,
    /// Addresses known now.
    pub addresses: usize,
    /// Addresses that the table holds.
    pub capacity: u32,
    /// Ports, by number.
    pub ports: Vec<PortView>,
    /// VLANs by number (mode `port`: by port), with their members as `p1,p2t`; `t`: tagged.
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    pub groups: BTreeMap<u16, String>,
    /// Groups of IP multicast that have listeners: VLAN, Ethernet address or `routers`, and ports.
    pub listeners: Vec<(u16, String, String)>,
    /// Who asks for groups, where the switch would: VLAN, `igmp` or `mld`, and `self` or the address of another.
    pub queriers: Vec<(u16, String, String)>,
    /// What is copied to a port that watches: `from p1 vlan 10 to p3`; `None`: nothing.
    #[serde(default)]
    pub mirror: Option<String>,
    /// What workers had to tell one another and found no room for.
    pub lost_news: u64,
}

/// A port.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortView {
    /// Its number.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// The link behind it.
    pub link: String,
    /// Whether frames pass; `blocked`: a loop was found.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["up", "down", "blocked"])))]
    pub state: String,
    /// The VLAN of frames without one; 0: none.
    pub pvid: u16,
    /// The workers that forward what comes there; none: no host is plugged in.
    pub workers: Vec<usize>,
    /// Flags that are set, by name.
    pub flags: Vec<String>,
    /// Addresses learnt here.
    pub addresses: usize,
    /// What the switch counted, by name.
    pub counters: BTreeMap<String, u64>,
    /// Frames that ended here, by reason; only reasons that happened.
    pub drops: BTreeMap<String, u64>,
    /// What the link's queues counted, by name.
    pub queues: BTreeMap<String, u64>,
}

/// An address.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressView {
    /// Its VLAN; 0 without VLANs, or where they learn together.
    pub vlan: u16,
    /// The address.
    pub mac: String,
    /// The name of its port.
    pub port: String,
    /// Configured, not learnt.
    pub is_static: bool,
    /// Seconds since the last frame from it, to a sixteenth of the ageing time.
    pub age: u64,
}

impl AddressView {
    pub(super) fn of(config: &Config, entry: &Entry) -> AddressView {
        AddressView {
            vlan: entry.fid,
            mac: entry.mac.to_string(),
            port: config.name(entry.port).to_owned(),
            is_static: entry.is_static,
            age: entry.age.as_secs(),
        }
    }
}

impl SwitchView {
    /// Of the views of all workers.
    pub(super) fn of(config: &Config, links: &[String], views: &[View]) -> SwitchView {
        let names = |set: PortSet| set.map(|port| config.name(port).to_owned()).collect::<Vec<_>>().join(",");
        let first = views.first();
        let listener = |l: &Listeners| {
            (l.vlan, l.group.map_or("routers".to_owned(), |mac| mac.to_string()), names(l.ports))
        };
        let asks = |one: &Asks| {
            let family = if one.v4 { "igmp" } else { "mld" };
            let who = one.other.map_or("self".to_owned(), |address| address.to_string());
            (one.vlan, family.to_owned(), who)
        };
        SwitchView {
            version: 1,
            mode: config.mode.name().to_owned(),
            workers: views.len(),
            addresses: first.map_or(0, |view| view.all),
            capacity: config.addresses,
            ports: (0..config.ports.len()).filter_map(|n| port(config, links, views, n)).collect(),
            groups: config.groups.iter().map(|(vid, group)| (*vid, config.member_words(*group))).collect(),
            listeners: first.map_or(Vec::new(), |view| view.listeners.iter().map(listener).collect()),
            queriers: first.map_or(Vec::new(), |view| view.queriers.iter().map(asks).collect()),
            mirror: config.mirror_words(),
            lost_news: views.iter().map(|view| view.lost_news).sum(),
        }
    }
}

fn port(config: &Config, links: &[String], views: &[View], n: usize) -> Option<PortView> {
    let (id, of) = (PortId::new(n)?, config.ports.get(n)?);
    if of.vacant {
        return None;
    }
    let first = views.first()?;
    let mut sum = PortCounters::default();
    let mut queues = BTreeMap::<String, u64>::new();
    for view in views {
        sum.add(view.counters.get(n)?);
        view.queues
            .get(n)?
            .each(&mut |figure| *queues.entry(figure.name.to_owned()).or_default() += figure.value);
    }
    let own = PortCounters::FIELDS.iter().zip(sum.values());
    let counters = own.map(|(name, value)| ((*name).to_owned(), value)).collect();
    let state = match (first.up.has(id), first.blocked.has(id)) {
        (false, _) => "down",
        (true, true) => "blocked",
        (true, false) => "up",
    };
    Some(PortView {
        number: n,
        name: of.name.clone(),
        link: links.get(n).cloned().unwrap_or_default(),
        state: state.to_owned(),
        workers: (0..views.len()).filter(|w| views[*w].receives(id)).collect(),
        pvid: of.pvid,
        flags: of.flags.names().map(str::to_owned).collect(),
        addresses: first.known.get(n).copied().unwrap_or_default(),
        counters,
        drops: sum.drops().map(|(why, count)| (why.name().to_owned(), count)).collect(),
        queues,
    })
}
