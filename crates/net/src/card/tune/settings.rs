//! The settings that have to fit together, each with a name and a value, and how they are read and written.
//!
//! ```text
//!   queues              ethtool -L                             Counts
//!   table, fields-udp4  ethtool -X, -N                         slots, fields
//!   interrupt-3         /proc/irq/N/smp_affinity_list          N: the interrupt of receive queue 3
//!   send-interrupt-3    the same                               of a transmit queue that has one of its own
//!   xps-3, xps-queues-3 /sys/class/net/IFACE/queues/tx-3/xps_cpus, xps_rxqs
//!   rps-3, rfs-3        /sys/class/net/IFACE/queues/rx-3/rps_cpus, rps_flow_cnt
//! ```
//!
//! Interrupts are named by their queue: their own numbers may change when the number of queues does.

use crate::card::surroundings::{Cpus, Surroundings};
use crate::card::{Card, Counts, Fields, FlowKind};
use std::fmt;
use std::path::{Path, PathBuf};

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// How many queues there are.
    Queues,
    /// Which fields of a kind of flow are hashed.
    Fields(FlowKind),
    /// The queue of each slot.
    Table,
    /// Where the interrupt of this receive queue may be handled.
    Interrupt(u32),
    /// Where the interrupt of this transmit queue may be handled, if it has one of its own.
    SendInterrupt(u32),
    /// Processors that send on this queue (XPS).
    Xps(u32),
    /// Receive queues whose answers are sent on this queue (XPS).
    XpsQueues(u32),
    /// Processors to which the packets of this queue are moved (RPS).
    Rps(u32),
    /// Flows of this queue that are moved to their sockets' processors (RFS).
    Rfs(u32),
}

impl fmt::Display for Setting {
    /// Its name in the state file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queues => f.write_str("queues"),
            Self::Table => f.write_str("table"),
            Self::Fields(kind) => write!(f, "fields-{kind}"),
            Self::Interrupt(queue) => write!(f, "interrupt-{queue}"),
            Self::SendInterrupt(queue) => write!(f, "send-interrupt-{queue}"),
            Self::Xps(queue) => write!(f, "xps-{queue}"),
            Self::XpsQueues(queue) => write!(f, "xps-queues-{queue}"),
            Self::Rps(queue) => write!(f, "rps-{queue}"),
            Self::Rfs(queue) => write!(f, "rfs-{queue}"),
        }
    }
}

impl Setting {
    /// The setting of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "queues" => return Some(Self::Queues),
            "table" => return Some(Self::Table),
            _ => {}
        }
        let (kind, of) = name.rsplit_once('-')?;
        if kind == "fields" {
            return FlowKind::named(of).map(Self::Fields);
        }
        let queue = of.parse().ok()?;
        Some(match kind {
            "interrupt" => Self::Interrupt(queue),
            "send-interrupt" => Self::SendInterrupt(queue),
            "xps" => Self::Xps(queue),
            "xps-queues" => Self::XpsQueues(queue),
            "rps" => Self::Rps(queue),
            "rfs" => Self::Rfs(queue),
            _ => return None,
        })
    }

    /// In words, for messages.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Queues => "the number of queues".to_owned(),
            Self::Table => "the table".to_owned(),
            Self::Fields(kind) => format!("the fields of {kind}"),
            Self::Interrupt(queue) => format!("the interrupt of queue {queue}"),
            Self::SendInterrupt(queue) => format!("the sending interrupt of queue {queue}"),
            Self::Xps(queue) => format!("the processors that send on queue {queue}"),
            Self::XpsQueues(queue) => format!("the queues whose answers go to queue {queue}"),
            Self::Rps(queue) => format!("RPS of queue {queue}"),
            Self::Rfs(queue) => format!("RFS of queue {queue}"),
        }
    }

    /// The file that has it, for settings that are files. `None` also where the interrupt of the queue is not known.
    pub(super) fn file(self, root: &Path, interface: &str, around: &Surroundings) -> Option<PathBuf> {
        let queues = root.join("sys/class/net").join(interface).join("queues");
        let affinity = |number: u32| root.join(format!("proc/irq/{number}/smp_affinity_list"));
        match self {
            Self::Queues | Self::Table | Self::Fields(_) => None,
            Self::Interrupt(queue) => {
                let queue = around.receive.iter().find(|found| found.number == queue)?;
                Some(affinity(queue.interrupts.first()?.number))
            }
            Self::SendInterrupt(queue) => {
                let queue = around.transmit.iter().find(|found| found.number == queue)?;
                Some(affinity(queue.interrupts.first()?.number))
            }
            Self::Xps(queue) => Some(queues.join(format!("tx-{queue}/xps_cpus"))),
            Self::XpsQueues(queue) => Some(queues.join(format!("tx-{queue}/xps_rxqs"))),
            Self::Rps(queue) => Some(queues.join(format!("rx-{queue}/rps_cpus"))),
            Self::Rfs(queue) => Some(queues.join(format!("rx-{queue}/rps_flow_cnt"))),
        }
    }
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Numbers of queues.
    Queues(Counts),
    /// Fields that are hashed.
    Fields(Fields),
    /// The kernel's own table: every queue in turn.
    DefaultTable,
    /// The queue of each slot.
    Table(Vec<u32>),
    /// Processors, or queues.
    Cpus(Cpus),
    /// A number of flows.
    Flows(u32),
}

impl fmt::Display for Value {
    /// For people: short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queues(Counts { receive: 0, transmit: 0, combined, .. }) => write!(f, "{combined}"),
            Self::Queues(Counts { receive, transmit, combined: 0, .. }) => {
                write!(f, "{receive} to receive, {transmit} to send")
            }
            Self::Queues(Counts { receive, transmit, combined, .. }) => {
                write!(f, "{combined}, and {receive} to receive, {transmit} to send")
            }
            Self::Fields(fields) => write!(f, "{fields}"),
            Self::DefaultTable => f.write_str("every queue in turn"),
            Self::Table(slots) => shares(f, slots),
            Self::Cpus(cpus) => write!(f, "{cpus}"),
            Self::Flows(flows) => write!(f, "{flows}"),
        }
    }
}

/// How many slots each queue of a table has.
fn shares(f: &mut fmt::Formatter<'_>, slots: &[u32]) -> fmt::Result {
    let mut queues = slots.to_vec();
    queues.sort_unstable();
    queues.dedup();
    let of = |queue: &u32| slots.iter().filter(|named| *named == queue).count();
    let shown: Vec<String> = queues.iter().take(8).map(|queue| format!("{}", of(queue))).collect();
    let more = if queues.len() > shown.len() { " ..." } else { "" };
    write!(f, "slots of queues {}: {}{more}", Cpus(queues), shown.join(" "))
}

/// All settings of a card that can be read, in the order in which they are set.
pub(super) fn of(card: &Card, around: &Surroundings) -> Vec<(Setting, Value)> {
    let mut all = Vec::new();
    if let Ok(channels) = card.channels {
        all.push((Setting::Queues, Value::Queues(channels.now)));
    }
    if let Ok(rss) = &card.rss {
        let fields = rss.fields.iter().filter_map(|(kind, fields)| Some((*kind, (*fields).ok()?)));
        all.extend(fields.map(|(kind, fields)| (Setting::Fields(kind), Value::Fields(fields))));
        let rings = card.rings.unwrap_or_default();
        if !rss.table.is_empty() {
            let default = rss.is_default_table(rings);
            let table = if default { Value::DefaultTable } else { Value::Table(rss.table.clone()) };
            all.push((Setting::Table, table));
        }
    }
    let cpus = |setting: Setting, cpus: Option<&Cpus>| Some((setting, Value::Cpus(cpus?.clone())));
    for queue in &around.receive {
        let allowed = queue.interrupts.first().and_then(|interrupt| interrupt.allowed.as_ref());
        all.extend(cpus(Setting::Interrupt(queue.number), allowed));
        all.extend(cpus(Setting::Rps(queue.number), queue.rps.as_ref()));
        all.extend(queue.rps_flows.map(|flows| (Setting::Rfs(queue.number), Value::Flows(flows))));
    }
    for queue in &around.transmit {
        let allowed = queue.interrupts.first().and_then(|interrupt| interrupt.allowed.as_ref());
        all.extend(cpus(Setting::SendInterrupt(queue.number), allowed));
        all.extend(cpus(Setting::Xps(queue.number), queue.xps_cpus.as_ref()));
        all.extend(cpus(Setting::XpsQueues(queue.number), queue.xps_queues.as_ref()));
    }
    all.sort_by_key(|(setting, _)| *setting);
    all
}

/// The value of a setting, of a list as [`of`] makes it.
pub(super) fn value(all: &[(Setting, Value)], setting: Setting) -> Option<&Value> {
    all.iter().find(|found| found.0 == setting).map(|found| &found.1)
}
