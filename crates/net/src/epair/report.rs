//! What is said of a pair: a document, from which text is made and which programs read.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::counts::{LineCounts, Published};
use super::shared::{Shared, locked};
use crate::impair::{Chance, Cycle, Edges, Impairments, Slots};
use crate::stats::Figures;

/// A pair: the document of `epair show --json`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EpairReport {
    /// Of the document: 1.
    pub version: u32,
    /// What it is.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "epair")))]
    pub kind: String,
    /// The process.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub pid: u32,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Queues of each interface.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 256)))]
    pub queues: usize,
    /// Threads that pass packets on.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub workers: usize,
    /// Seed of what impairments leave to chance.
    pub seed: u64,
    /// A and B.
    pub ends: [EndReport; 2],
    /// From A to B, and from B to A.
    pub directions: [DirectionReport; 2],
}

/// An end of a pair.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EndReport {
    /// Name that the interface was made with.
    pub made_as: String,
    /// Its name now; `None` when it has been removed.
    pub name: Option<String>,
    /// Whether it is up.
    pub up: bool,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// Whether TCP segmentation may be left undone in what it sends.
    pub tcp_segmentation: bool,
    /// Whether UDP segmentation may be left undone in what it sends.
    pub udp_segmentation: bool,
}

/// A direction of a pair.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DirectionReport {
    /// Of all queues.
    pub total: LineCounts,
    /// Packets that found a queue of the near interface full, before this process could read them: the interface counts them, of all queues
    /// together. They are in no other counter.
    pub interface_full: u64,
    /// Of each queue that packets came on.
    pub queues: Vec<LineCounts>,
    /// What is done to packets.
    pub impairments: ImpairmentsView,
    /// How slots were kept, if there are any.
    pub slots: Option<SlotsReport>,
}

impl DirectionReport {
    /// Packets dropped for any reason, before this process read them or after.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.total.dropped() + self.interface_full
    }
}

/// How slots were kept.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SlotsReport {
    /// Packets sent within their slot, its guard time included.
    pub inside: u64,
    /// Packets sent when it was over.
    pub outside: u64,
    /// Slots in which something was sent.
    pub used: u64,
    /// Microseconds from a slot's opening to the first packet that had waited for it: the 50th, the 99th and the 99.9th percentile.
    pub late_us: [Option<u32>; 3],
    /// The latest of them, nanoseconds.
    pub latest_ns: u64,
}

impl SlotsReport {
    /// Of these counts.
    #[must_use]
    pub fn of(edges: &Edges) -> Self {
        let counts = edges.counts();
        Self {
            inside: counts.inside,
            outside: counts.outside,
            used: counts.used,
            late_us: [0.5, 0.99, 0.999].map(|share| edges.quantile(share)),
            latest_ns: counts.latest,
        }
    }
}

/// What is done to packets: [`Impairments`] as a document has them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ImpairmentsView {
    /// Share of packets that is lost.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub loss: f64,
    /// Share that gets a flipped bit.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub corrupt: f64,
    /// Share that is sent twice.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub duplicate: f64,
    /// Share that is held so that others overtake it.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub reorder: f64,
    /// Delay, nanoseconds.
    pub delay_ns: u64,
    /// How much it varies to either side, nanoseconds.
    pub jitter_ns: u64,
    /// Bits a second; `None` for no bound.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub rate: Option<u64>,
    /// Bytes that may wait.
    pub limit: usize,
    /// The cycle, as `8x2ms`, the slot in it, and the guard time in nanoseconds.
    pub slots: Option<(String, u32, u64)>,
}

impl From<&Impairments> for ImpairmentsView {
    fn from(of: &Impairments) -> Self {
        Self {
            loss: of.loss.probability(),
            corrupt: of.corrupt.probability(),
            duplicate: of.duplicate.probability(),
            reorder: of.reorder.probability(),
            delay_ns: of.delay,
            jitter_ns: of.jitter,
            rate: of.rate,
            limit: of.limit,
            slots: of.slots.map(|slots| (slots.cycle().to_string(), slots.slot(), slots.guard())),
        }
    }
}

impl ImpairmentsView {
    /// The impairments that this describes; `None` if there are none such.
    #[must_use]
    pub fn impairments(&self) -> Option<Impairments> {
        let slots = match &self.slots {
            None => None,
            Some((cycle, slot, guard)) => Some(Slots::new(cycle.parse::<Cycle>().ok()?, *slot, *guard).ok()?),
        };
        Some(Impairments {
            loss: Chance::new(self.loss)?,
            corrupt: Chance::new(self.corrupt)?,
            duplicate: Chance::new(self.duplicate)?,
            reorder: Chance::new(self.reorder)?,
            delay: self.delay_ns,
            jitter: self.jitter_ns,
            rate: self.rate.filter(|rate| *rate > 0),
            limit: self.limit,
            slots,
        })
    }
}

pub(super) fn report(shared: &Shared) -> EpairReport {
    let rules = shared.impairments();
    let end = |number: usize| {
        let state = &shared.ends[number];
        let (tcp, udp) = state.end.segmentation();
        EndReport {
            made_as: state.end.interface().name().to_owned(),
            name: state.end.name(),
            up: state.up.load(Ordering::Relaxed),
            mtu: state.mtu.load(Ordering::Relaxed),
            tcp_segmentation: tcp,
            udp_segmentation: udp,
        }
    };
    let direction = |number: usize| {
        let queues: Vec<LineCounts> = shared.counts[number].iter().map(Published::load).collect();
        let mut total = LineCounts::default();
        queues.iter().for_each(|queue| total.add(queue));
        let slots = rules[number].slots.map(|_| {
            let mut all = Edges::default();
            shared.edges[number].iter().for_each(|edges| all.add(&locked(edges)));
            SlotsReport::of(&all)
        });
        let interface_full = shared.ends[number].queue_full();
        DirectionReport { total, interface_full, queues, impairments: (&rules[number]).into(), slots }
    };
    EpairReport {
        version: 1,
        kind: "epair".to_owned(),
        pid: std::process::id(),
        uptime_ms: shared.began.elapsed().as_millis() as u64,
        queues: shared.queues,
        workers: shared.workers.len(),
        seed: shared.seed,
        ends: [end(0), end(1)],
        directions: [direction(0), direction(1)],
    }
}
