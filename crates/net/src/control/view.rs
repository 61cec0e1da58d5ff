//! The documents, as both sides of the control socket know them. Counters keep the names of `netstat`'s own machine
//! output where it has them.
//!
//! A field is never renamed or given another meaning within a version; new ones may be added.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use flowlane_rss::{Bucket, HashType};
use serde::{Deserialize, Serialize};

use crate::stats::{LaneReport, Misdirected, Report, counter_groups};
use crate::{Handle, HostInfo};

/// Version of the documents.
pub const VERSION: u32 = 1;

macro_rules! document {
    ($(#[$meta:meta])* $name:ident { $($(#[$m:meta])* $field:ident: $kind:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub struct $name { $($(#[$m])* pub $field: $kind,)+ }
    };
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Instance {
    /// What kind of program it is: `serve udp-echo`.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since 1970 when it began to answer.
    pub started: u64,
    /// Milliseconds since then.
    pub uptime_ms: u64,
    #[serde(skip)]
    since: Option<Instant>,
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
        /// Frames that came from other workers.
        queued: u64,
        /// Frames handled in all.
        handled: u64,
        /// Frames sent to other workers.
        sent: u64,
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
    }
}

document! {
    /// One socket.
    SocketRow {
        /// `udp4`, `udp6`, or `udp46` for a wildcard.
        proto: String,
        /// The host.
        host: String,
        /// Its lane's bucket.
        bucket: u16,
        /// The worker that holds the lane.
        worker: usize,
        /// Datagrams waiting to be read.
        receive_queue: usize,
        /// Datagrams waiting to be sent: none wait in a socket.
        send_queue: usize,
        /// Our end: `*.7` for a wildcard.
        local: String,
        /// The other end: `*.*` for all.
        foreign: String,
        /// Whether it has a peer.
        connected: bool,
        /// Datagrams received.
        received: u64,
        /// Datagrams dropped because the queue was full.
        dropped: u64,
        /// Datagrams sent.
        sent: u64,
        /// Flow hash of the last datagram received.
        flowid: u32,
        /// Number of its hash type.
        flowtype: u8,
        /// Name of its hash type.
        flowtype_name: String,
    }
}

document! {
    /// `/v1/rss`.
    RssView {
        /// [`VERSION`].
        version: u32,
        /// By host.
        hosts: Vec<RssHost>,
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
        steering: SteeringView,
    }
}

document! {
    /// How frames arrived.
    SteeringView {
        /// Frames received.
        received: u64,
        /// Of them, whose bucket belonged to the worker of their queue.
        aligned: u64,
        /// Of them, handed to another worker.
        redirected: u64,
        /// Of them, whose delivered hash named another queue.
        misdirected: u64,
        /// Hashes taken as delivered.
        hash_delivered: u64,
        /// Hashes computed.
        hash_computed: u64,
        /// Frames without a flow.
        no_flow: u64,
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
        /// Turns of its loop.
        turns: u64,
        /// Turns that found something to do.
        busy_turns: u64,
        /// Times it slept.
        sleeps: u64,
        /// Frames free in its pool.
        frames_free: u64,
        /// Requests for a frame that found none.
        frames_exhausted: u64,
        /// Frames handed out.
        frames_allocated: u64,
        /// Frames dropped while a lane moved.
        move_overflow: u64,
        /// Its queues.
        queues: Vec<QueueView>,
        /// Its lanes, by host.
        hosts: Vec<HostLanes>,
        /// The first few frames that came on a wrong queue, for people.
        misdirected: Vec<String>,
    }
}

document! {
    /// One queue of a link.
    QueueView {
        /// The host.
        host: String,
        /// Its interface.
        interface: u8,
        /// Counters by name.
        counters: BTreeMap<String, u64>,
    }
}

document! {
    /// What a worker holds of one host.
    HostLanes {
        /// The host.
        host: String,
        /// How its frames arrived here.
        steering: SteeringView,
        /// Its lanes here.
        lanes: Vec<LaneView>,
    }
}

document! {
    /// One lane.
    LaneView {
        /// Its bucket.
        bucket: u16,
        /// Frames that came in on a queue of its own worker.
        aligned: u64,
        /// Frames that another worker handed over.
        redirected: u64,
        /// Times a task ran.
        task_runs: u64,
        /// Tasks that panicked.
        panics: u64,
        /// Times it moved.
        moves: u64,
        /// Sockets.
        sockets: usize,
        /// Datagrams delivered to sockets.
        delivered: u64,
        /// Datagrams sent.
        sent: u64,
        /// Packets dropped, for any reason.
        dropped: u64,
    }
}

impl Instance {
    pub(super) fn new(name: &str) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { name: name.to_owned(), pid: std::process::id(), started, uptime_ms: 0, since: Some(Instant::now()) }
    }

    fn now(&self) -> Self {
        let uptime_ms = self.since.map_or(0, |since| since.elapsed().as_millis() as u64);
        Self { uptime_ms, ..self.clone() }
    }
}

impl ReportView {
    /// Asks the workers.
    pub(super) fn collect(handle: &Handle, instance: &Instance) -> Self {
        let report = handle.report();
        let hosts = handle.hosts();
        Self {
            version: VERSION,
            instance: instance.now(),
            stats: stats(hosts, &report),
            netisr: netisr(&report),
            sockets: sockets(hosts, &report),
            rss: rss(handle, &report),
            workers: workers(hosts, &report),
        }
    }
}

fn stats(hosts: &[HostInfo], report: &Report) -> StatsView {
    let owned = |map: BTreeMap<&str, u64>| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let host = |(h, info): (usize, &HostInfo)| StatsHost {
        host: info.name.clone(),
        protocols: counter_groups(&report.total(h)).into_iter().map(|(k, g)| (k.to_owned(), owned(g))).collect(),
    };
    StatsView { version: VERSION, hosts: hosts.iter().enumerate().map(host).collect() }
}

fn netisr(report: &Report) -> NetisrView {
    let cpus: Vec<Option<u32>> = report.workers.iter().map(|w| bound_cpu(w.worker)).collect();
    let limit = crate::runtime::builder::NETISR;
    let workstream = |(w, cpu): (&crate::stats::WorkerReport, &Option<u32>)| Workstream {
        workstream: w.worker,
        cpu: *cpu,
        name: "ether".into(),
        length: 0,
        watermark: w.netisr.watermark,
        dispatched: w.netisr.dispatched,
        hybrid_dispatched: w.netisr.dispatched,
        queue_drops: w.netisr.dropped,
        queued: w.netisr.queued,
        handled: w.netisr.handled,
        sent: w.netisr.sent,
    };
    NetisrView {
        version: VERSION,
        configuration: Configuration {
            threads: report.workers.len(),
            max_threads: 64,
            queue_limit: limit,
            dispatch_policy: "hybrid".into(),
            bound: cpus.iter().all(Option::is_some),
        },
        protocols: vec![ProtocolRow {
            name: "ether".into(),
            protocol: 5,
            queue_limit: limit,
            policy: "cpu".into(),
            dispatch: "hybrid".into(),
            flags: "C--".into(),
        }],
        workstreams: report.workers.iter().zip(&cpus).map(workstream).collect(),
    }
}

/// The processor that the worker's thread is bound to, if it is bound to one.
fn bound_cpu(worker: usize) -> Option<u32> {
    let name = format!("flowlane-{worker}");
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let of_worker = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let id: i32 = threads.flatten().find(of_worker)?.file_name().to_str()?.parse().ok()?;
    let allowed = rustix::thread::sched_getaffinity(rustix::thread::Pid::from_raw(id)).ok()?;
    if allowed.count() != 1 {
        return None;
    }
    (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u32)
}

fn sockets(hosts: &[HostInfo], report: &Report) -> SocketsView {
    let mut rows = Vec::new();
    let mut left_out = 0;
    for (h, info) in hosts.iter().enumerate() {
        for lane in report.lanes(h) {
            left_out += lane.socket_count - lane.sockets.len();
            rows.extend(lane.sockets.iter().map(|s| socket(info, lane, s)));
        }
    }
    SocketsView { version: VERSION, sockets: rows, left_out }
}

fn socket(info: &HostInfo, lane: &LaneReport, s: &crate::SocketInfo) -> SocketRow {
    let star = |port: u16| if port == 0 { "*".to_owned() } else { port.to_string() };
    let ip = s.local_ip.or(s.remote.map(|r| r.ip));
    let local = s.local_ip.map_or("*".to_owned(), |ip| ip.to_string());
    let foreign = s.remote.map_or("*.*".to_owned(), |r| format!("{}.{}", r.ip, r.port));
    SocketRow {
        proto: ip.map_or("udp46", |ip| if ip.is_ipv4() { "udp4" } else { "udp6" }).into(),
        host: info.name.clone(),
        bucket: lane.bucket,
        worker: lane.worker,
        receive_queue: s.queued,
        send_queue: 0,
        local: format!("{local}.{}", star(s.local_port)),
        foreign,
        connected: s.remote.is_some(),
        received: s.received,
        dropped: s.dropped,
        sent: s.sent,
        flowid: s.hash,
        flowtype: s.hash_type,
        flowtype_name: HashType::from_u8(s.hash_type).unwrap_or(HashType::None).name().into(),
    }
}

fn rss(handle: &Handle, report: &Report) -> RssView {
    let host = |(h, info): (usize, &HostInfo)| {
        let config = &info.rss.config;
        let types = [
            (config.ipv4, HashType::Ipv4),
            (config.tcp_ipv4, HashType::TcpIpv4),
            (config.udp_ipv4, HashType::UdpIpv4),
            (config.ipv6, HashType::Ipv6),
            (config.tcp_ipv6, HashType::TcpIpv6),
            (config.udp_ipv6, HashType::UdpIpv6),
        ];
        RssHost {
            host: info.name.clone(),
            key: info.rss.hasher().key().to_string(),
            types: types.iter().filter(|(on, _)| *on).map(|(_, t)| t.name().to_owned()).collect(),
            udp_4tuple: config.udp_ipv4,
            table: info.rss.table.slots().iter().map(|b| b.0).collect(),
            workers: (0..info.rss.buckets.len()).map(|b| handle.worker_of(h, Bucket(b as u16))).collect(),
            steering: steering(&report.steering(h)),
        }
    };
    RssView { version: VERSION, hosts: handle.hosts().iter().enumerate().map(host).collect() }
}

fn steering(s: &crate::stats::SteeringStats) -> SteeringView {
    SteeringView {
        received: s.received,
        aligned: s.aligned,
        redirected: s.redirected,
        misdirected: s.misdirected,
        hash_delivered: s.hash_delivered,
        hash_computed: s.hash_computed,
        no_flow: s.no_flow,
    }
}

fn workers(hosts: &[HostInfo], report: &Report) -> WorkersView {
    let name = |h: usize| hosts.get(h).map_or_else(String::new, |info| info.name.clone());
    let worker = |w: &crate::stats::WorkerReport| WorkerView {
        worker: w.worker,
        turns: w.turns,
        busy_turns: w.busy_turns,
        sleeps: w.sleeps,
        frames_free: w.frames_free,
        frames_exhausted: w.frames_exhausted,
        frames_allocated: w.frames_allocated,
        move_overflow: w.move_overflow,
        queues: w
            .queues
            .iter()
            .map(|q| QueueView { host: name(q.host), interface: q.link, counters: by_name(&q.stats) })
            .collect(),
        hosts: (0..hosts.len())
            .map(|h| HostLanes {
                host: name(h),
                steering: steering(&w.steering.get(h).copied().unwrap_or_default()),
                lanes: w.lanes.iter().filter(|l| l.host == h).map(lane).collect(),
            })
            .collect(),
        misdirected: w.misdirected.iter().map(example).collect(),
    };
    WorkersView { version: VERSION, workers: report.workers.iter().map(worker).collect() }
}

fn by_name(stats: &crate::link::QueueStats) -> BTreeMap<String, u64> {
    serde_json::to_value(stats).and_then(serde_json::from_value).unwrap_or_default()
}

fn lane(l: &LaneReport) -> LaneView {
    LaneView {
        bucket: l.bucket,
        aligned: l.aligned,
        redirected: l.redirected,
        task_runs: l.task_runs,
        panics: l.panics,
        moves: l.moves,
        sockets: l.socket_count,
        delivered: l.stats.udp.delivered,
        sent: l.stats.udp.sent,
        dropped: l.stats.drops.total(),
    }
}

fn example(m: &Misdirected) -> String {
    format!("{}: hash {:08x} names queue {}, came on {}", m.flow, m.hash, m.expected_queue, m.queue)
}
