//! The JSON form of `rss show`: docs/schema/rss-show-v1.json.

use std::collections::BTreeMap;

use flowlane::card::{self, CardRss, FlowKind, Told, Way};
use serde_json::Value;

use super::{Shown, queues};
use crate::document::{document, value};

document! {
    /// How a card spreads what it receives.
    Document {
        /// 1.
        version: u32,
        /// The card's interface.
        interface: String,
        /// Its driver.
        driver: Option<Driver>,
        /// How RSS was read.
        #[cfg_attr(test, schemars(extend("enum" = ["netlink", "ioctl"])))]
        read_by: &'static str,
        /// Queues that receive.
        queues: u32,
        /// Numbers of queues; null where the driver does not tell.
        channels: Option<Channels>,
        /// The card's own spreading; null where the driver does not tell.
        rss: Option<Spreading>,
        /// Further spreadings, to which rules send packets.
        contexts: Option<Vec<Context>>,
        /// N-tuple rules, which override the table.
        rules: Option<Rules>,
        /// By their names in `ethtool -K`.
        offloads: Option<BTreeMap<&'static str, Offload>>,
        /// What the driver can do for XDP and AF_XDP; null where it does not tell.
        xdp: Option<Xdp>,
        /// The NUMA node that the card is at.
        numa_node: Option<u32>,
        /// Whether the driver tells which interrupts are the queues' (`netdev`), or their names do.
        #[cfg_attr(test, schemars(extend("enum" = ["netdev", "name"])))]
        interrupts_by: &'static str,
        /// Queues that receive.
        receive: Vec<Receive>,
        /// Queues that send.
        transmit: Vec<Transmit>,
        /// Interrupts of the card that are no queue's, or of which it is not known whose.
        other_interrupts: Vec<Interrupt>,
        /// Flows that RFS knows in all; 0: it is off.
        rfs_entries: Option<u32>,
        /// A daemon that moves interrupts about runs.
        irqbalance: bool,
        /// What contradicts itself, and what is good to know.
        findings: Vec<Finding>,
        /// What is null above because the driver does not tell it, and why.
        untold: BTreeMap<&'static str, String>,
        /// Files that are there and could not be read.
        unseen: Vec<Unseen>,
    }
    /// A driver.
    Driver {
        /// Its name.
        name: String,
        /// Where the card is; empty for what is nowhere.
        bus: String,
    }
    /// Numbers of queues.
    Channels {
        /// As it is.
        now: Counts,
        /// The most there can be.
        most: Counts,
    }
    /// Numbers of queues, by what they do.
    Counts {
        /// Queues that receive only.
        receive: u32,
        /// Queues that send only.
        transmit: u32,
        /// Interrupts that are no queue's.
        other: u32,
        /// Queues that receive and send.
        combined: u32,
    }
    /// How packets are spread over queues.
    Spreading {
        /// `toeplitz`, `xor`, `crc32`, or what else the driver says.
        function: String,
        /// `none`, `symmetric-xor`, `symmetric-or-xor` (`input_xfrm`).
        transform: String,
        /// Bytes of the key.
        key_bytes: usize,
        /// Hexadecimal, with colons; null without `--key`.
        key: Option<String>,
        /// The queue of each slot; empty where the driver shows none.
        table: Vec<u32>,
        /// Fields that are hashed, in words, by kind of flow (tcp4, udp6, ip4, ...); kinds that the driver tells.
        fields: BTreeMap<&'static str, String>,
        /// Whether Flowlane can compute the same queue for a packet.
        ours: bool,
        /// Why it cannot.
        why_not_ours: Option<String>,
    }
    /// A further spreading.
    Context {
        /// Its number.
        id: u32,
        /// How it spreads.
        rss: Spreading,
    }
    /// Rules.
    Rules {
        /// How many there are.
        count: u32,
        /// The first 1024.
        list: Vec<Rule>,
    }
    /// A rule.
    Rule {
        /// Its place.
        location: u32,
        /// Which packets, in words.
        what: String,
        /// Where they go, in words.
        to: String,
    }
    /// An offload.
    Offload {
        /// Whether it is on.
        on: bool,
        /// Nobody can change it.
        fixed: bool,
    }
    /// What the driver can do for XDP and AF_XDP.
    Xdp {
        /// It runs XDP programs itself.
        native: bool,
        /// It announces zero copy.
        zero_copy: bool,
        /// Buffers of one packet in zero copy, at most.
        zero_copy_buffers: Option<u32>,
        /// Programs may be given packets of several buffers.
        multi_buffer: bool,
        /// Programs are given the card's hash.
        hash: bool,
    }
    /// A queue that receives.
    Receive {
        /// Its number.
        queue: u32,
        /// Slots of the table that name it.
        slots: Option<usize>,
        /// Its interrupts.
        interrupts: Vec<Interrupt>,
        /// The processor that handles its interrupt, where that is one.
        cpu: Option<u32>,
        /// Processors to which its packets are moved (RPS).
        rps: Option<Vec<u32>>,
        /// Flows that are moved to their sockets' processors (RFS).
        rfs_flows: Option<u32>,
    }
    /// A queue that sends.
    Transmit {
        /// Its number.
        queue: u32,
        /// Processors whose packets it takes (XPS).
        xps_cpus: Option<Vec<u32>>,
        /// Receive queues the answers to whose packets it takes (XPS).
        xps_queues: Option<Vec<u32>>,
    }
    /// An interrupt.
    Interrupt {
        /// Its number.
        number: u32,
        /// Its name.
        name: String,
        /// Processors that may handle it; null where that could not be read.
        allowed: Option<Vec<u32>>,
        /// Processors that handle it.
        effective: Option<Vec<u32>>,
    }
    /// A finding.
    Finding {
        /// Its name, for machines.
        code: &'static str,
        /// Nothing is wrong, but it is good to know.
        note: bool,
        /// In words.
        what: String,
        /// Commands that mend it.
        mend: Vec<String>,
    }
    /// A file that could not be read.
    Unseen {
        /// Where it is.
        path: String,
        /// Why it could not be.
        why: String,
    }
}

/// What a driver does not tell, and why.
#[derive(Default)]
struct Untolds(BTreeMap<&'static str, String>);

impl Untolds {
    fn known<T, U>(&mut self, name: &'static str, told: &Told<T>, say: impl FnOnce(&T) -> U) -> Option<U> {
        match told {
            Ok(told) => Some(say(told)),
            Err(why) => {
                self.0.insert(name, why.to_string());
                None
            }
        }
    }
}

/// The document. Unknown values are null, with the reason in `untold`.
pub(super) fn document(shown: &Shown) -> Value {
    let Shown { card, around, findings, features, key } = shown;
    let mut untold = Untolds::default();
    let driver = |d: &card::Driver| Driver { name: d.name.clone(), bus: d.bus.clone() };
    let context = |c: &card::Context| Context { id: c.id, rss: spreading(&c.rss, *key) };
    let offload = |(name, o): (&'static str, card::Offload)| (name, Offload { on: o.on, fixed: o.fixed });
    let xdp = |f: &card::Features| Xdp {
        native: f.native(),
        zero_copy: f.zero_copy(),
        zero_copy_buffers: f.zero_copy_segments,
        multi_buffer: f.segments(),
        hash: f.hash(),
    };
    let finding = |f: &super::findings::Finding| Finding {
        code: f.code,
        note: f.note,
        what: f.what.clone(),
        mend: f.mend.clone(),
    };
    let unseen = around.unseen.iter();
    let unseen = unseen.map(|u| Unseen { path: u.path.to_string_lossy().into_owned(), why: u.why.clone() });
    value(Document {
        version: 1,
        interface: card.interface.name().to_owned(),
        driver: untold.known("driver", &card.driver, driver),
        read_by: match card.way {
            Way::Netlink => "netlink",
            Way::Ioctl => "ioctl",
        },
        queues: queues(card, around),
        channels: untold
            .known("channels", &card.channels, |c| Channels { now: counts(c.now), most: counts(c.most) }),
        rss: untold.known("rss", &card.rss, |rss| spreading(rss, *key)),
        contexts: untold.known("contexts", &card.contexts, |list| list.iter().map(context).collect()),
        rules: untold.known("rules", &card.rules, rules),
        offloads: untold.known("offloads", &card.offloads, |list| list.iter().map(offload).collect()),
        xdp: untold.known("xdp", features, xdp),
        numa_node: around.node,
        interrupts_by: if around.told { "netdev" } else { "name" },
        receive: around.receive.iter().map(|queue| receive(card, queue)).collect(),
        transmit: around.transmit.iter().map(transmit).collect(),
        other_interrupts: around.others.iter().map(interrupt).collect(),
        rfs_entries: around.flow_entries,
        irqbalance: around.irqbalance,
        findings: findings.iter().map(finding).collect(),
        untold: untold.0,
        unseen: unseen.collect(),
    })
}

fn receive(card: &card::Card, queue: &card::ReceiveQueue) -> Receive {
    Receive {
        queue: queue.number,
        slots: card.rss.as_ref().ok().map(|_| super::slots_of(card, queue.number)),
        interrupts: queue.interrupts.iter().map(interrupt).collect(),
        cpu: queue.cpu(),
        rps: queue.rps.as_ref().map(cpus),
        rfs_flows: queue.rps_flows,
    }
}

fn transmit(queue: &card::TransmitQueue) -> Transmit {
    Transmit {
        queue: queue.number,
        xps_cpus: queue.xps_cpus.as_ref().map(cpus),
        xps_queues: queue.xps_queues.as_ref().map(cpus),
    }
}

fn rules(rules: &card::Rules) -> Rules {
    let rule = |r: &card::Rule| Rule { location: r.location, what: r.what.clone(), to: r.action.to_string() };
    Rules { count: rules.count, list: rules.list.iter().map(rule).collect() }
}

fn spreading(rss: &CardRss, key: bool) -> Spreading {
    let fields = |kind: &FlowKind| Some((kind.name(), rss.fields_of(*kind).ok()?.to_string()));
    let ours = card::steering_of(rss);
    Spreading {
        function: rss.function.to_string(),
        transform: rss.transform.to_string(),
        key_bytes: rss.key.0.len(),
        key: key.then(|| rss.key.to_string()),
        table: rss.table.clone(),
        fields: FlowKind::ALL.iter().filter_map(fields).collect(),
        ours: ours.is_ok(),
        why_not_ours: ours.err().map(|why| why.to_string()),
    }
}

fn counts(counts: card::Counts) -> Counts {
    let card::Counts { receive, transmit, other, combined } = counts;
    Counts { receive, transmit, other, combined }
}

fn cpus(cpus: &card::Cpus) -> Vec<u32> {
    cpus.0.clone()
}

fn interrupt(interrupt: &card::Interrupt) -> Interrupt {
    Interrupt {
        number: interrupt.number,
        name: interrupt.name.clone(),
        allowed: interrupt.allowed.as_ref().map(cpus),
        effective: interrupt.effective.as_ref().map(cpus),
    }
}

#[cfg(test)]
#[test]
fn schema_of_rss_show() {
    let title = "What flowlane rss show --json prints, version 1";
    let about = "How a card spreads what it receives, and what the kernel does with it then. New members may be added.";
    flowlane_schema::Made::new("rss-show-v1", title, about).form::<Document>().keep();
}
