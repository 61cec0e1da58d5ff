//! What is pushed or fetched: each figure with its name, unit, kind and words, once for all protocols.
//!
//! By OTLP a figure has its name alone. In Prometheus unit and `_total` follow, as its own receiver of OTLP would add them, so that both ways lead
//! to the same series.

use crate::report::model::Counts;
use crate::report::times::Times;

use super::state::PoolState;

/// A figure.
pub(super) struct Figure {
    /// Its name by OTLP.
    pub(super) name: &'static str,
    /// Its unit.
    pub(super) unit: Unit,
    /// Words for people.
    pub(super) text: &'static str,
    /// Where its values come from.
    pub(super) values: Values,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A count of something.
    One,
    Bytes,
    Seconds,
}

impl Unit {
    /// In UCUM, as OTLP has it.
    pub(super) fn ucum(self) -> &'static str {
        match self {
            Self::One => "",
            Self::Bytes => "By",
            Self::Seconds => "s",
        }
    }

    /// As Prometheus has it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::One => "",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
        }
    }
}

/// Values of a figure in a pool.
pub(super) enum Values {
    /// A counter that every snapshot has.
    Count(fn(&PoolState) -> u64),
    /// A counter of [`Counts`].
    Detail(fn(&Counts) -> u64),
    /// Counters of [`Counts`], told apart by a label.
    Details(&'static str, fn(&Counts) -> Vec<(&str, u64)>),
    /// A value that goes up and down.
    Level(fn(&PoolState) -> u64),
    /// Times.
    Times(fn(&PoolState) -> &Times),
}

/// A count, and the label that tells it from the others of its figure.
pub(super) type Count<'a> = (Option<(&'static str, &'a str)>, u64);

impl Figure {
    /// Its name in Prometheus.
    pub(super) fn prometheus(&self) -> String {
        format!("{}{}", self.family(), if self.is_counter() { "_total" } else { "" })
    }

    /// The same without what says that it is a counter.
    pub(super) fn family(&self) -> String {
        let unit = self.unit.word();
        if unit.is_empty() { self.name.to_owned() } else { format!("{}_{unit}", self.name) }
    }

    /// Whether it only grows.
    pub(super) fn is_counter(&self) -> bool {
        matches!(self.values, Values::Count(_) | Values::Detail(_) | Values::Details(..))
    }

    /// Its counts or its level in a pool; none of times, and none that is not known.
    pub(super) fn counts<'a>(&self, pool: &'a PoolState) -> Vec<Count<'a>> {
        match (&self.values, &pool.counts) {
            (Values::Count(of) | Values::Level(of), _) => vec![(None, of(pool))],
            (Values::Detail(of), Some(counts)) => vec![(None, of(counts))],
            (Values::Details(label, of), Some(counts)) => {
                of(counts).into_iter().map(|(value, count)| (Some((*label, value)), count)).collect()
            }
            (Values::Detail(_) | Values::Details(..) | Values::Times(_), _) => Vec::new(),
        }
    }

    /// Its times in a pool, if it has any.
    pub(super) fn times<'a>(&self, pool: &'a PoolState) -> Option<&'a Times> {
        match self.values {
            Values::Times(of) => Some(of(pool)),
            _ => None,
        }
    }
}

const fn one(name: &'static str, text: &'static str, values: Values) -> Figure {
    Figure { name, unit: Unit::One, text, values }
}

/// The figures.
pub(super) const FIGURES: &[Figure] = &[
    one("flowlane_load_requests_sent", "requests or messages sent", Values::Count(|p| p.sent)),
    one("flowlane_load_requests_answered", "requests answered completely", Values::Count(|p| p.answered)),
    one("flowlane_load_requests_failed", "errors of all kinds", Values::Count(|p| p.failed)),
    one("flowlane_load_requests_unsent", "requests that were due and not sent", Values::Detail(|c| c.unsent)),
    one(
        "flowlane_load_requests_held_up",
        "times that a due request waited for room or a connection",
        Values::Detail(|c| c.held_up),
    ),
    one(
        "flowlane_load_answers",
        "answers by their code",
        Values::Details("code", |c| c.codes.iter().map(|(code, count)| (code.as_str(), *count)).collect()),
    ),
    one(
        "flowlane_load_errors",
        "errors by their kind",
        Values::Details("kind", |c| c.errors.iter().map(|(kind, e)| (kind.as_str(), e.count)).collect()),
    ),
    one(
        "flowlane_load_others",
        "counts that only some loads have, by their name in the report",
        Values::Details("count", |c| c.more.iter().map(|(name, count)| (name.as_str(), *count)).collect()),
    ),
    Figure {
        name: "flowlane_load_sent",
        unit: Unit::Bytes,
        text: "bytes sent, heads included",
        values: Values::Detail(|c| c.bytes_sent),
    },
    Figure {
        name: "flowlane_load_received",
        unit: Unit::Bytes,
        text: "bytes received, heads included",
        values: Values::Count(|p| p.bytes_received),
    },
    one("flowlane_load_connections_opened", "connections opened", Values::Detail(|c| c.connections_opened)),
    one(
        "flowlane_load_connections_failed",
        "connections that could not be opened",
        Values::Detail(|c| c.connections_failed),
    ),
    one(
        "flowlane_load_connections_closed",
        "connections ended, from either side",
        Values::Detail(|c| c.connections_closed),
    ),
    one("flowlane_load_concurrency", "connections, or requests in flight", Values::Level(|p| p.concurrency)),
    Figure {
        name: "flowlane_load_latency",
        unit: Unit::Seconds,
        text: "from the intended send time to the end of the answer",
        values: Values::Times(|p| &p.latency),
    },
    Figure {
        name: "flowlane_load_slip",
        unit: Unit::Seconds,
        text: "from the intended to the actual send time",
        values: Values::Times(|p| &p.slip),
    },
];
