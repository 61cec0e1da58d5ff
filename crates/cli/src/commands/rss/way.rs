//! The path of one packet through a card and the kernel: rules, fields, hash, slot, queue, interrupt, processor, and the queue of the
//! answer.
//!
//! ```text
//!   packet ─▶ rule that takes it ────────────────▶ queue ─▶ interrupt ─▶ CPU ─▶ RPS, RFS ─▶ CPU of the stack
//!       └───▶ fields ─▶ hash ─▶ slot of the table ───┘                                        └─▶ XPS ─▶ queue of the answer
//! ```
//!
//! [`Spread`] is how a card hashes, as reported by its driver or read from a file of `rss learn`. [`Way`] is the path of one packet. `rss
//! why` prints both, and `rss check` compares samples with them. Unknown values are `None` or an error that says why.

use crate::rule_file::Rule;
use flowlane::card::{Action, Card, CardRss, Cpus, FlowKind, Interrupt, NotOurs, Surroundings, Transform};
use flowlane_rss::{
    Arrangement, Bucket, BucketMap, Explanation, Flow, General, HashConfig, Hasher, Indirection, Protocol,
    Rss,
};
use std::net::SocketAddr;

/// How packets are hashed, and which queue each slot names.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    rss: Rss,
    /// The queue of each slot.
    pub(super) table: Vec<u32>,
    /// Kinds of packets whose fields the driver does not report; the usual ones are assumed.
    pub(super) assumed: Vec<FlowKind>,
    /// The source of the hash, in words.
    pub(super) by: String,
    /// Whether these hashes are those that the card reports.
    pub(super) hashes: bool,
    file: Option<Rule>,
}

/// A packet's hash and its queue.
#[derive(Debug, Clone)]
pub(super) struct Hashed {
    /// Fields, bytes, hash and slot.
    pub(super) why: Explanation,
    /// The queue that the slot names.
    pub(super) queue: u32,
}

impl Spread {
    /// From the file if there is one, else as the driver reports. The error says why it is not known.
    pub(super) fn of(card: &Card, file: Option<&Rule>) -> Result<Self, String> {
        if let Some(rule) = file {
            return Ok(Self::of_file(rule));
        }
        let rss = card.rss.as_ref().map_err(|why| NotOurs::Untold(*why).to_string())?;
        Self::of_card(rss).map_err(|why| why.to_string())
    }

    fn of_file(rule: &Rule) -> Self {
        let slots: Vec<u32> = rule.table.slots().iter().map(|queue| u32::from(queue.0)).collect();
        Self {
            rss: Rss::from_parts(rule.rule.clone(), rule.rule.config(), blank(slots.len()), one()),
            table: slots,
            assumed: Vec::new(),
            by: "the rule of the file".to_owned(),
            hashes: rule.hashes,
            file: Some(rule.clone()),
        }
    }

    /// From what the driver reports, with the transforms that we know.
    pub(super) fn of_card(told: &CardRss) -> Result<Self, NotOurs> {
        let plain = CardRss { transform: Transform::None, ..told.clone() };
        let ours = flowlane::card::steering_of(&plain)?;
        let hasher: Hasher = match told.transform {
            Transform::None => ours.hasher().into(),
            Transform::SymmetricXor => General::symmetric_xor(&ours.key, &ours.config).into(),
            Transform::SymmetricOrXor => {
                General::toeplitz(&ours.key, &ours.config, Arrangement::OrXor).into()
            }
            other => return Err(NotOurs::Transform(other)),
        };
        let transform = match told.transform {
            Transform::None => String::new(),
            transform => format!(", {transform}"),
        };
        Ok(Self {
            rss: Rss::from_parts(hasher, ours.config, blank(ours.table.len()), one()),
            table: ours.table,
            assumed: ours.assumed,
            by: format!("toeplitz under the card's key of {} bytes{transform}", told.key.0.len()),
            hashes: true,
            file: None,
        })
    }

    /// The same with a bucket for each queue.
    pub(super) fn by_queue(&self) -> Result<Rss, flowlane_rss::BucketError> {
        let queues = self.table.iter().max().map_or(0, |queue| *queue as usize) + 1;
        let map = BucketMap::new(queues.next_power_of_two().max(2), queues)?;
        let named = self.table.iter().map(|queue| Bucket(*queue as u16)).collect();
        let slots = Indirection::from_slots(named).unwrap_or_else(|e| unreachable!("2 to 2048 slots: {e}"));
        Ok(Rss::from_parts(self.rss.hasher().clone(), self.rss.config, slots, map))
    }

    /// Which fields are hashed.
    pub(super) fn config(&self) -> HashConfig {
        self.rss.config
    }

    /// The same with other fields; `None` for a rule from a file, whose fields are fixed.
    pub(super) fn with_config(&self, config: HashConfig) -> Option<Self> {
        let key = *self.rss.hasher().key()?;
        let rss = Rss::from_parts(flowlane_rss::Toeplitz::new(&key), config, blank(self.table.len()), one());
        Some(Self { rss, ..self.clone() })
    }

    /// The hash of a packet and its queue; `None` for kinds of packets that the file does not cover.
    pub(super) fn hash(&self, flow: &Flow) -> Option<Hashed> {
        if self.file.as_ref().is_some_and(|rule| rule.must_know(flow).is_err()) {
            return None;
        }
        let why = self.rss.explain(flow);
        Some(Hashed { queue: self.table[why.steered.slot], why })
    }
}

/// A table of this many slots, for the slot number only; the queues are kept separately.
fn blank(slots: usize) -> Indirection {
    let slots = Indirection::from_slots(vec![Bucket(0); slots]);
    slots.unwrap_or_else(|e| unreachable!("2 to 2048 slots: {e}"))
}

fn one() -> BucketMap {
    BucketMap::new(2, 1).unwrap_or_else(|e| unreachable!("2 buckets, 1 worker: {e}"))
}

/// A rule that takes the packet before the table is asked.
#[derive(Debug, Clone)]
pub(super) struct RuleHit {
    pub(super) location: u32,
    pub(super) what: String,
    pub(super) action: Action,
    /// Whether this is uncertain, since the rule matches more than a flow has.
    pub(super) perhaps: bool,
}

/// The path of one packet.
#[derive(Debug, Clone)]
pub(super) struct Way {
    /// Rules that may match it, in order, up to and including the first that surely matches.
    pub(super) rules: Vec<RuleHit>,
    /// Fields, hash, slot and queue by the table, or why they are not known.
    pub(super) hashed: Result<Hashed, String>,
    /// The queue that receives it.
    pub(super) queue: Option<u32>,
    /// The queue's interrupt.
    pub(super) interrupt: Option<Interrupt>,
    /// The processor of the interrupt, if it is a single one.
    pub(super) cpu: Option<u32>,
    /// RPS: all processors that it may choose, and the one that it chooses for this hash.
    pub(super) rps: Option<(Cpus, Option<u32>)>,
    /// Number of flows that RFS tracks for this queue; 0 if it is off.
    pub(super) rfs: u32,
    /// Queues that may send the answers.
    pub(super) answers: Cpus,
    /// Why those queues.
    pub(super) answers_by: String,
}

impl Way {
    /// The path of this packet with the current settings.
    pub(super) fn of(flow: &Flow, card: &Card, around: &Surroundings, spread: Result<&Spread, &str>) -> Self {
        let rules = rules(flow, card);
        let sure = rules.last().filter(|rule| !rule.perhaps).map(|rule| rule.action);
        let hashed = match (sure, spread) {
            (Some(Action::Context(id)), _) => in_context(flow, card, id),
            (_, Ok(spread)) => spread.hash(flow).ok_or("the file says nothing of such packets".to_owned()),
            (_, Err(why)) => Err(why.to_owned()),
        };
        let queue = match sure {
            Some(Action::Queue(queue)) => Some(queue),
            Some(Action::Drop | Action::VirtualFunction { .. }) => None,
            _ => hashed.as_ref().ok().map(|hashed| hashed.queue),
        };
        let receive = around.receive.iter().find(|receive| Some(receive.number) == queue);
        let hash = hashed.as_ref().ok().map(|hashed| hashed.why.steered.hash);
        let delivered = card.offloads.as_ref().ok().and_then(|o| o.get("rxhash")).is_some_and(|o| o.on);
        let rps = receive.and_then(|receive| receive.rps.clone()).filter(|cpus| !cpus.is_empty());
        let cpu = receive.and_then(flowlane::card::ReceiveQueue::cpu);
        let taken = match &rps {
            Some(cpus) => cpus.only(),
            None => cpu,
        };
        let (answers, answers_by) = answers(around, queue, taken);
        Self {
            rules,
            queue,
            interrupt: receive.and_then(|receive| receive.interrupts.first().cloned()),
            cpu,
            rps: rps.map(|cpus| {
                let chosen =
                    cpus.only().or_else(|| hash.filter(|_| delivered).map(|hash| chosen(&cpus, hash)));
                (cpus, chosen)
            }),
            rfs: receive
                .and_then(|receive| receive.rps_flows)
                .filter(|_| around.flow_entries.is_some_and(|n| n > 0))
                .unwrap_or(0),
            answers,
            answers_by,
            hashed,
        }
    }
}

/// The processor that RPS chooses for a hash: the kernel scales the hash to the number of processors in the set.
fn chosen(cpus: &Cpus, hash: u32) -> u32 {
    let at = (u64::from(hash) * cpus.0.len() as u64) >> 32;
    cpus.0[at as usize]
}

fn rules(flow: &Flow, card: &Card) -> Vec<RuleHit> {
    let Ok(rules) = &card.rules else { return Vec::new() };
    let ends = if flow.fragment { (0, 0) } else { (flow.src_port, flow.dst_port) };
    let (from, to) = (SocketAddr::new(flow.src, ends.0), SocketAddr::new(flow.dst, ends.1));
    let mut list: Vec<_> = rules.list.iter().collect();
    list.sort_by_key(|rule| rule.location);
    let mut hits = Vec::new();
    for rule in list {
        let takes = rule.takes(flow.protocol.0, from, to);
        if takes == Some(false) {
            continue;
        }
        hits.push(RuleHit {
            location: rule.location,
            what: rule.what.clone(),
            action: rule.action,
            perhaps: takes.is_none(),
        });
        if takes == Some(true) && rule.action != Action::Wake {
            break;
        }
    }
    hits
}

fn in_context(flow: &Flow, card: &Card, id: u32) -> Result<Hashed, String> {
    let contexts = card.contexts.as_ref().map_err(|why| format!("its contexts cannot be read: {why}"))?;
    let found = contexts.iter().find(|context| context.id == id);
    let context = found.ok_or_else(|| format!("context {id} is not among those that can be read"))?;
    let spread = Spread::of_card(&context.rss).map_err(|why| format!("context {id}: {why}"))?;
    spread.hash(flow).ok_or_else(|| "not hashed".to_owned())
}

/// The queues that may send answers, and why. The kernel uses the XPS map from receive queues first, then the map from processors.
fn answers(around: &Surroundings, queue: Option<u32>, cpu: Option<u32>) -> (Cpus, String) {
    let with = |of: fn(&flowlane::card::TransmitQueue) -> &Option<Cpus>, number: Option<u32>| -> Vec<u32> {
        let named = around.transmit.iter().filter(|transmit| {
            of(transmit).as_ref().is_some_and(|set| number.is_some_and(|number| set.0.contains(&number)))
        });
        named.map(|transmit| transmit.number).collect()
    };
    let by_queue = with(|transmit| &transmit.xps_queues, queue);
    if let (false, Some(queue)) = (by_queue.is_empty(), queue) {
        return (Cpus(by_queue), format!("XPS by receive queue: what came on queue {queue}"));
    }
    let by_cpu = with(|transmit| &transmit.xps_cpus, cpu);
    if let (false, Some(cpu)) = (by_cpu.is_empty(), cpu) {
        return (Cpus(by_cpu), format!("XPS: what CPU {cpu} sends"));
    }
    let all = around.transmit.iter().map(|transmit| transmit.number).collect::<Vec<u32>>();
    match all.as_slice() {
        [] => (Cpus::default(), "the queues that transmit cannot be seen".to_owned()),
        [_] => (Cpus(all), "there is no other".to_owned()),
        _ if around.transmit.iter().all(|t| t.xps_cpus.as_ref().is_none_or(Cpus::is_empty)) => {
            (Cpus(all), "no XPS: the kernel's own hash chooses".to_owned())
        }
        _ => (Cpus(all), "XPS by the processor that sends, which is not known".to_owned()),
    }
}

/// The protocol in words; 253 stands for any without ports.
pub(super) fn protocol(protocol: Protocol) -> String {
    match protocol {
        Protocol(253) => "any protocol without ports".to_owned(),
        protocol => protocol.to_string(),
    }
}
