//! What `serve --json` prints, one document a line: docs/schema/serve-v1.json.

use std::collections::BTreeMap;

use flowlane::metrics::steering::QueueSteering;
use flowlane::rebalance::Counts as Balanced;
use flowlane::stats::{CardCounts, RelayStats, TargetStats};
use flowlane_http::server::Counts;
use serde::{Serialize, Serializer};

use crate::document::{Named, document};

/// What one worker did in one interval.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "{C}Interval"))]
#[derive(Debug, Serialize)]
pub(super) struct Interval<C> {
    /// 1.
    pub(super) version: u32,
    /// What it is.
    #[cfg_attr(test, schemars(extend("const" = "interval")))]
    pub(super) kind: &'static str,
    /// The worker.
    pub(super) worker: usize,
    /// Length of the interval.
    pub(super) seconds: f64,
    #[serde(flatten)]
    pub(super) counts: C,
    /// Packets dropped, for any reason.
    pub(super) dropped: u64,
    /// Frames that another worker handed over.
    pub(super) redirected: u64,
}

/// Everything, at the end. Of a TCP service on kernel sockets `reads` and `writes` are in the place of `received` and `sent`.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "{C}Summary"))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Summary<C> {
    /// 1.
    pub(super) version: u32,
    /// What it is.
    #[cfg_attr(test, schemars(extend("const" = "summary")))]
    pub(super) kind: &'static str,
    /// The service.
    pub(super) service: &'static str,
    /// How long it ran.
    pub(super) seconds: f64,
    /// What is counted.
    #[cfg_attr(test, schemars(extend("enum" = ["datagrams", "segments", "reads and writes"])))]
    pub(super) unit: &'static str,
    #[serde(flatten)]
    pub(super) counts: C,
    /// TCP connections accepted.
    pub(super) connections: u64,
    /// Share of frames that arrived where they belong, 0 to 1.
    pub(super) alignment: f64,
    /// Frames that came on another queue than their hash names.
    pub(super) misdirected: u64,
    /// Frames whose delivered hash was not that of key and fields; hashes are computed from the first on.
    pub(super) foreign_hashes: u64,
    /// How frames arrived on each queue, and why some were not aligned.
    pub(super) arrivals: Vec<QueueSteering>,
    /// What was done to the card that steers; null where none does, or it cannot be changed.
    pub(super) card: Option<Card>,
    /// What `--rebalance` did; null without it.
    pub(super) rebalance: Option<Rebalance>,
    /// What became of the records of connections with `--ipfix`; null without it.
    pub(super) ipfix: Option<Ipfix>,
    /// What became of the records of connections with `--flow-log`; null without it.
    pub(super) flow_log: Option<FlowLog>,
    /// Everything that was dropped: the sum of `drops`.
    pub(super) dropped: u64,
    /// What was dropped by the stack, TCP, links, netisr and while lanes moved, and what kernel sockets lost, by reason.
    pub(super) drops: BTreeMap<String, u64>,
    /// By bucket.
    pub(super) buckets: Vec<Bucket<C>>,
}

/// One bucket.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "{C}Bucket"))]
#[derive(Debug, Serialize)]
pub(super) struct Bucket<C> {
    /// The bucket.
    pub(super) bucket: u16,
    /// The worker that has its lane.
    pub(super) worker: usize,
    #[serde(flatten)]
    pub(super) counts: C,
    /// Frames that came in on a queue of the lane's own worker.
    pub(super) aligned: u64,
    /// Frames that another worker handed over.
    pub(super) redirected: u64,
    /// Packets dropped, for any reason.
    pub(super) dropped: u64,
}

document! {
    /// What passed links of Flowlane, or datagrams on kernel sockets.
    Packets {
        /// What came, in the summary's unit.
        received: u64,
        /// What went, in the summary's unit.
        sent: u64,
    }
    /// What passed connections on kernel sockets.
    KernelTcp {
        /// System calls that read bytes.
        reads: u64,
        /// System calls that wrote bytes.
        writes: u64,
    }
    /// Datagrams in an interval.
    Udp {
        /// Datagrams that came.
        received: u64,
        /// Datagrams that went.
        sent: u64,
        /// Datagrams that came, a second.
        datagrams_per_second: u64,
    }
    /// Segments in an interval.
    Tcp {
        /// Segments that came.
        received: u64,
        /// Segments that went.
        sent: u64,
        /// Segments that came, a second.
        segments_per_second: u64,
    }
    /// System calls in an interval.
    #[cfg_attr(test, schemars(rename = "KernelTcp"))]
    KernelTcpRates {
        /// System calls that read bytes.
        reads: u64,
        /// System calls that wrote bytes.
        writes: u64,
        /// System calls that read bytes, a second.
        reads_per_second: u64,
    }
    /// What was done to a card.
    Card {
        /// What was done.
        #[serde(flatten)]
        counts: CardCounts,
        /// Why packets came on other queues, as last found out; for people.
        strayed: Option<&'static str>,
    }
    /// What was done to balance the load of workers.
    Rebalance {
        /// By which policy.
        #[cfg_attr(test, schemars(extend("enum" = ["even", "pack"])))]
        policy: String,
        /// What was done.
        #[serde(flatten)]
        counts: Balanced,
    }
    /// Records of connections that were sent.
    Ipfix {
        /// Records sent; UDP does not tell whether they arrived.
        sent: u64,
        /// Records that the system refused to send.
        refused: u64,
        /// Records that found no room, while their lane ran or when it ended.
        lost: u64,
    }
    /// Records of connections that were written.
    FlowLog {
        /// Records in files that are whole.
        written: u64,
        /// Those files.
        files: u64,
        /// Records that could not be written: a fault of the disk, or as many bytes as were allowed.
        failed: u64,
        /// Records that found no room, while their lane ran or when it ended.
        lost: u64,
    }
    /// Flows so far.
    Flows {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "flows")))]
        kind: &'static str,
        /// The flows.
        flows: Vec<Flow>,
        /// Datagrams of flows that found the table full.
        beyond: u64,
    }
    /// One flow.
    Flow {
        /// Its hash.
        hash: u32,
        /// Name of the hash's type.
        #[serde(rename = "type")]
        hash_type: &'static str,
        /// Number of the hash's type.
        type_number: u8,
        /// Its bucket.
        bucket: usize,
        /// Datagrams.
        count: u64,
    }
    /// What the web server did in one interval, all lanes together.
    HttpInterval {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "http-interval")))]
        kind: &'static str,
        /// Connections that are open.
        connections_open: u64,
        #[serde(flatten)]
        counts: HttpCounts,
        /// Errors by kind; kinds that did not happen are left out.
        errors: BTreeMap<&'static str, u64>,
        /// Length of the interval.
        seconds: f64,
        /// Requests a second.
        requests_per_second: u64,
    }
    /// What the web server did in all.
    HttpSummary {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "http-summary")))]
        kind: &'static str,
        /// Connections that are open.
        connections_open: u64,
        #[serde(flatten)]
        counts: HttpCounts,
        /// Errors by kind; kinds that did not happen are left out.
        errors: BTreeMap<&'static str, u64>,
        /// By bucket.
        buckets: Vec<HttpBucket>,
    }
    /// One lane.
    HttpBucket {
        /// Its bucket.
        bucket: usize,
        /// Requests of which the head came whole.
        requests: u64,
        /// Connections accepted.
        connections: u64,
        /// Errors of every kind.
        errors: u64,
    }
    /// What the relay did in one interval.
    RelayInterval {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "relay-interval")))]
        kind: &'static str,
        /// Length of the interval.
        seconds: f64,
        /// Relayed since the last interval.
        connections: u64,
        /// The same, a second.
        connections_per_second: u64,
        /// Connections that have not ended.
        connections_open: u64,
        /// Connection attempts that failed.
        connects_failed: u64,
        /// Bytes relayed to targets.
        to_target_bytes: u64,
        /// Bytes relayed to clients.
        to_client_bytes: u64,
    }
    /// What the relay did in all.
    RelaySummary {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "relay-summary")))]
        kind: &'static str,
        #[serde(flatten)]
        counts: Named<RelayStats>,
        /// By target.
        targets: Vec<RelayTarget>,
    }
    /// What became of connections to one target.
    RelayTarget {
        /// The target.
        target: String,
        #[serde(flatten)]
        counts: Named<TargetStats>,
    }
    /// What the cache did in one interval.
    MemcachedInterval {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "memcached-interval")))]
        kind: &'static str,
        /// Length of the interval.
        seconds: f64,
        /// Keys asked for, a second.
        gets_per_second: u64,
        /// Of them, those that were found.
        hits_per_second: u64,
        /// Values to store, a second.
        sets_per_second: u64,
        /// Items dropped for want of memory, a second.
        evictions_per_second: u64,
        /// Requests that another lane answered, a second.
        handed_over_per_second: u64,
        /// Items now.
        items: u64,
        /// Bytes taken for items and all that is kept about them.
        bytes: u64,
        /// Connections that are open.
        connections: u64,
    }
    /// What the cache counted in all: its figures, by name.
    MemcachedSummary {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "memcached-summary")))]
        kind: &'static str,
        #[serde(flatten)]
        #[cfg_attr(test, schemars(with = "Named<flowlane_memcached::counts::Counts>"))]
        figures: BTreeMap<&'static str, u64>,
    }
}

/// The counters of the web server that are no errors, by name.
#[derive(Debug)]
pub(super) struct HttpCounts(pub(super) Counts);

impl Serialize for HttpCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.each_count().map(|(name, _, value)| (name, value)))
    }
}

/// Errors of the web server that happened, by name.
pub(super) fn errors(counts: &Counts) -> BTreeMap<&'static str, u64> {
    counts.each_error().filter(|(_, value)| *value > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    impl schemars::JsonSchema for HttpCounts {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> std::borrow::Cow<'static, str> {
            "HttpCounts".into()
        }

        fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
            document::members(Counts::default().each_count().map(|(name, text, _)| (name, text)))
        }
    }

    #[test]
    fn schema_of_serve() {
        flowlane_schema::Made::new(
            "serve-v1",
            "Documents of flowlane serve --json, version 1",
            "One document a line.",
        )
        .form::<Interval<Udp>>()
        .form::<Interval<Tcp>>()
        .form::<Interval<KernelTcpRates>>()
        .form::<Flows>()
        .form::<Summary<Packets>>()
        .form::<Summary<KernelTcp>>()
        .form::<HttpInterval>()
        .form::<HttpSummary>()
        .form::<RelayInterval>()
        .form::<RelaySummary>()
        .form::<MemcachedInterval>()
        .form::<MemcachedSummary>()
        .keep();
    }
}
