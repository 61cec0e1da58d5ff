//! The documents of the control socket, for both sides. Counters have the names of `netstat`'s machine output where it has them.
//!
//! Within a version a field is never renamed or given another meaning; new fields may be added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::metrics::Instance;
use crate::metrics::Metric;
use crate::metrics::steering::QueueSteering;
use crate::stats::{
    CardCounts, LaneCounts, LongTasks, Meeting, PerfReport, PoolCounts, SteeringStats, StepTimes, Turns,
};

/// Version of the documents.
pub const VERSION: u32 = 1;

macro_rules! document {
    ($(#[$meta:meta])* $name:ident { $($(#[$m:meta])* $field:ident: $kind:ty,)+ }) => {
        $(#[$meta])*
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub struct $name { $($(#[$m])* pub $field: $kind,)+ }
    };
}

document! {
    /// Everything.
    ReportView {
        /// [`VERSION`].
        version: u32,
        /// Who answers.
        instance: Instance,
        /// Counters of the protocols.
        stats: StatsView,
        /// Hand-over between workers.
        netisr: NetisrView,
        /// Sockets.
        sockets: SocketsView,
        /// Steering.
        rss: RssView,
        /// Workers.
        workers: WorkersView,
        /// What a watchdog counted, if there is one (`--watchdog`).
        #[serde(default)]
        watchdog: Option<WatchdogView>,
    }
}

document! {
    /// An address that others gave.
    AddressView {
        /// The address with the length of its network's prefix.
        address: String,
        /// Who gave it.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["dhcp", "slaac"])))]
        origin: String,
        /// The server of DHCP.
        server: Option<String>,
        /// The default router that it named.
        router: Option<String>,
        /// Seconds until it ends, unless it is renewed; null for never.
        seconds_left: Option<u64>,
        /// Whether it has been probed, and nobody else has it.
        ready: bool,
        /// Whether others are preferred as a source.
        deprecated: bool,
    }
}

document! {
    /// What a watchdog counted.
    WatchdogView {
        /// A worker that has not turned for so long stands still, milliseconds.
        limit_ms: u64,
        /// By number.
        workers: Vec<StallsView>,
        /// The last stalls, the newest first.
        last: Vec<StallView>,
    }
}

document! {
    /// Stalls of one worker.
    StallsView {
        /// Its number.
        worker: usize,
        /// Times it stood still.
        stalls: u64,
        /// Times it was given no processor.
        starved: u64,
        /// The longest stall, milliseconds.
        longest_ms: u64,
    }
}

document! {
    /// A worker that stood still, or does.
    StallView {
        /// What is said of it, in one line.
        text: String,
        /// How long it has lasted, milliseconds.
        lasted_ms: u64,
        /// The worker has turned since.
        is_over: bool,
        /// Functions on its stack, the innermost first.
        trace: Vec<String>,
        /// Why there are none.
        no_trace: Option<String>,
    }
}

document! {
    /// `/v1/metrics`: the list of metrics; `/metrics` is the same as text.
    MetricsView {
        /// [`VERSION`].
        version: u32,
        /// Who answers.
        instance: Instance,
        /// The metrics.
        metrics: Vec<Metric>,
    }
}

document! {
    /// `/v1/stats`.
    StatsView {
        /// [`VERSION`].
        version: u32,
        /// By host.
        hosts: Vec<StatsHost>,
    }
}

document! {
    /// Counters of one host, summed over its lanes.
    StatsHost {
        /// The host.
        host: String,
        /// By protocol, then by name.
        protocols: BTreeMap<String, BTreeMap<String, u64>>,
    }
}

document! {
    /// `/v1/netisr`.
    NetisrView {
        /// [`VERSION`].
        version: u32,
        /// The table "Configuration".
        configuration: Configuration,
        /// The table "Protocols".
        protocols: Vec<ProtocolRow>,
        /// The table "Workstreams": one for each worker.
        workstreams: Vec<Workstream>,
    }
}

document! {
    /// How frames get to their worker.
    Configuration {
        /// Workers.
        threads: usize,
        /// Most workers there can be.
        max_threads: usize,
        /// Frames that one ring from worker to worker holds.
        queue_limit: usize,
        /// Always `hybrid`: at once where the frame is, through a ring elsewhere.
        dispatch_policy: String,
        /// Whether workers are bound to processors.
        bound: bool,
    }
}

document! {
    /// One protocol of the netisr. There is one: whole frames.
    ProtocolRow {
        /// Its name.
        name: String,
        /// Its number, as FreeBSD numbers it.
        protocol: u32,
        /// Frames that one ring holds.
        queue_limit: usize,
        /// Always `cpu`: the flow's hash decides.
        policy: String,
        /// Always `hybrid`.
        dispatch: String,
        /// `C`: it has a rule from frame to processor.
        flags: String,
    }
}

document! {
    /// One worker's netisr.
    Workstream {
        /// The worker.
        workstream: usize,
        /// The processor it is bound to.
        cpu: Option<u32>,
        /// The protocol.
        name: String,
        /// Frames waiting now: always 0 between two turns.
        length: u64,
        /// Most frames that waited in one ring at once.
        watermark: u64,
        /// Frames handled where they arrived.
        dispatched: u64,
        /// The same frames: what is dispatched here is so under the hybrid policy.
        hybrid_dispatched: u64,
        /// Frames for other workers that found the ring full.
        queue_drops: u64,
        /// Frames for a lane that is at no worker.
        #[serde(default)]
        no_lane: u64,
        /// Frames handed over by other workers.
        queued: u64,
        /// Frames handled in all.
        handled: u64,
        /// Frames sent to other workers.
        sent: u64,
        /// Where the worker met others.
        #[serde(default)]
        meeting: Meeting,
    }
}

document! {
    /// `/v1/sockets`.
    SocketsView {
        /// [`VERSION`].
        version: u32,
        /// Sockets, by host and bucket.
        sockets: Vec<SocketRow>,
        /// Sockets that are not listed because there are too many.
        left_out: usize,
        /// TCP listeners, connections and TIME-WAIT records by state.
        tcp_states: BTreeMap<String, u64>,
    }
}

document! {
    /// One socket.
    SocketRow {
        /// `udp4`, `udp6`, or `udp46` for a wildcard; `tcp4`, `tcp6` or `tcp46`.
        proto: String,
        /// State of TCP, as `netstat` names it; empty for UDP.
        state: String,
        /// The host.
        host: String,
        /// Its lane's bucket.
        bucket: u16,
        /// The worker that holds the lane.
        worker: usize,
        /// Datagrams waiting to be read, on kernel sockets the memory that they take in the kernel, bytes; TCP: bytes, and of a listener connections to be accepted.
        receive_queue: usize,
        /// Datagrams waiting to be sent: none wait in a socket; TCP: bytes not acknowledged, and of a listener how many
        /// connections may wait.
        send_queue: usize,
        /// Our end: `*.7` for a wildcard.
        local: String,
        /// The other end: `*.*` for all.
        foreign: String,
        /// Whether it has a peer.
        connected: bool,
        /// Datagrams received; 0 for TCP.
        received: u64,
        /// Datagrams dropped because the queue was full; 0 for TCP.
        dropped: u64,
        /// Datagrams sent; 0 for TCP.
        sent: u64,
        /// Flow hash of the last datagram received; TCP: of what the connection receives.
        flowid: u32,
        /// Number of its hash type.
        flowtype: u8,
        /// Name of its hash type.
        flowtype_name: String,
        /// Of a connection on kernel sockets, where its last packet arrived; none where workers are not bound to processors.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arrival: Option<ArrivalView>,
        /// Congestion control of a connection: `cubic`, `newreno`, `bbr` or `prague`; left out where the kernel has another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        congestion: Option<String>,
        /// What a connection of our own stack has agreed on of ECN, if anything: `classic` (RFC 3168) or `accurate` (RFC 9768).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ecn: Option<String>,
        /// With accurate ECN: packets that came with Congestion Experienced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received_ce: Option<u32>,
        /// With accurate ECN: packets of ours that the peer says came to it with Congestion Experienced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delivered_ce: Option<u32>,
    }
}

document! {
    /// Where a connection's last packet arrived.
    ArrivalView {
        /// The processor.
        processor: u32,
        /// Number of the card's queue (NAPI), as the kernel counts; 0 for none, as over the loopback.
        queue: u32,
        /// The processor to which the connection's worker is bound. If it is the same, the connection is aligned.
        worker_processor: u32,
        /// Why it is another one: the counter `elsewhere-NAME` of the kernel sockets; left out if it is the same.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        elsewhere: Option<String>,
        /// The same in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    }
}

document! {
    /// What is sent to `/v1/move`: the lane of a bucket is to go to another worker.
    MoveRequest {
        /// The host's name; without one the only host.
        host: Option<String>,
        /// The bucket.
        bucket: u16,
        /// The worker.
        worker: usize,
    }
}

document! {
    /// What `/v1/move` answers, when the lane is there.
    MoveView {
        /// [`VERSION`].
        version: u32,
        /// The host.
        host: String,
        /// The bucket.
        bucket: u16,
        /// The worker that had it.
        from: usize,
        /// The worker that has it.
        worker: usize,
    }
}

document! {
    /// `/v1/rss`.
    RssView {
        /// [`VERSION`].
        version: u32,
        /// By host.
        hosts: Vec<RssHost>,
        /// What other programs changed of the cards under AF_XDP links: the last changes.
        #[serde(default)]
        changed: Vec<String>,
    }
}

document! {
    /// Steering of one host.
    RssHost {
        /// The host.
        host: String,
        /// The key, hexadecimal. Who has it can aim at a bucket.
        key: String,
        /// Hash types that are on.
        types: Vec<String>,
        /// Whether UDP is hashed with ports.
        udp_4tuple: bool,
        /// Bucket of each slot.
        table: Vec<u16>,
        /// Worker that holds each bucket now.
        workers: Vec<Option<usize>>,
        /// How its frames arrived, over all workers.
        steering: SteeringStats,
        /// How they arrived on each queue of its links, and why some were not aligned.
        #[serde(default)]
        arrivals: Vec<QueueSteering>,
        /// Its links by interface, for people, with how packets come and go: `af-xdp:eth0 (native, copied)`.
        #[serde(default)]
        links: Vec<String>,
        /// Its addresses that others gave; left out if there are none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        addresses: Vec<AddressView>,
        /// What was done to its card, where that steers it and can be changed.
        #[serde(default)]
        card: Option<CardView>,
    }
}

document! {
    /// What was done to a card.
    CardView {
        /// What was done.
        #[serde(flatten)]
        counts: CardCounts,
        /// Why packets arrived on other queues, as last found out; for people.
        #[serde(default)]
        strayed: Option<String>,
    }
}

document! {
    /// `/v1/workers`.
    WorkersView {
        /// [`VERSION`].
        version: u32,
        /// By number.
        workers: Vec<WorkerView>,
    }
}

document! {
    /// One worker.
    WorkerView {
        /// Its number.
        worker: usize,
        /// Its loop.
        #[serde(flatten)]
        turns: Turns,
        /// Where its time went, nanoseconds: each is in exactly one of these.
        #[serde(default)]
        time: StepTimes,
        /// Lanes, at this worker or another, whose frames come on its queues: they need it awake.
        #[serde(default)]
        needed_by: u64,
        /// Tasks that held it for longer than their budget.
        #[serde(default)]
        long_tasks: LongTasks,
        /// What processor and kernel counted for its thread, if that was asked for (`--perf-events`).
        #[serde(default)]
        perf: Option<Box<PerfReport>>,
        /// Its frames, and what it lost.
        #[serde(flatten)]
        pool: PoolCounts,
        /// Its queues.
        queues: Vec<QueueView>,
        /// Its lanes, by host.
        hosts: Vec<HostLanes>,
        /// The first few frames that came on a wrong queue, for people.
        misdirected: Vec<String>,
    }
}

impl WorkerView {
    /// Packets that it received and sent on its queues.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let of = |q: &QueueView, name: &str| q.counters.get(name).copied().unwrap_or(0);
        self.queues.iter().map(|q| of(q, "rx-frames") + of(q, "tx-frames")).sum()
    }
}

document! {
    /// One queue of a link.
    QueueView {
        /// The host.
        host: String,
        /// Its interface.
        interface: u8,
        /// Its number within the link; none where another worker's queue is used.
        #[serde(default)]
        queue: Option<u16>,
        /// Counters by name.
        counters: BTreeMap<String, u64>,
        /// Frames in the hands of kernel and card, by where they are; none for links that copy packets.
        #[serde(default)]
        outstanding: Option<BTreeMap<String, u64>>,
    }
}

document! {
    /// What a worker holds of one host.
    HostLanes {
        /// The host.
        host: String,
        /// How its frames arrived here.
        steering: SteeringStats,
        /// Its lanes here.
        lanes: Vec<LaneView>,
    }
}

document! {
    /// One lane.
    LaneView {
        /// Its bucket.
        bucket: u16,
        /// What the runtime counts of it.
        #[serde(flatten)]
        counts: LaneCounts,
        /// Datagrams delivered to sockets.
        delivered: u64,
        /// Datagrams sent.
        sent: u64,
        /// Packets dropped, for any reason.
        dropped: u64,
    }
}
