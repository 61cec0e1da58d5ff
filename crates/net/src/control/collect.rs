//! From a snapshot to the documents.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use flowlane_rss::HashType;
use flowlane_stack::stats::Figures;
use flowlane_stack::tcp::{Agreed, State, TcpRow};

use super::view::*;
use crate::HostInfo;
use crate::dhcp::{HostAddress, Origin};
use crate::kernel::{KernelRow, KernelUdpRow};
use crate::link::Outstanding;
use crate::metrics::KERNELS_OWN;
use crate::metrics::{Snapshot, drops};
use crate::stats::{
    CardReport, LaneReport, Misdirected, Report, Stall, StallCounts, WatchdogReport, WorkerReport,
    counter_groups,
};

impl ReportView {
    /// All documents of one snapshot.
    pub(super) fn of(now: &Snapshot) -> Self {
        let Snapshot { instance, hosts, report, .. } = now;
        Self {
            version: VERSION,
            instance: instance.clone(),
            stats: stats(hosts, report),
            netisr: netisr(report),
            sockets: sockets(hosts, report),
            rss: rss(now),
            workers: workers(hosts, report),
            watchdog: report.watchdog.as_deref().map(watchdog),
        }
    }
}

fn watchdog(dog: &WatchdogReport) -> WatchdogView {
    let millis = |nanos: u64| nanos / 1_000_000;
    let worker = |(worker, c): (usize, &StallCounts)| StallsView {
        worker,
        stalls: c.stalls,
        starved: c.starved,
        longest_ms: millis(c.longest_nanos),
    };
    let stall = |stall: &Stall| StallView {
        text: stall.to_string(),
        lasted_ms: stall.lasted.as_millis() as u64,
        is_over: stall.is_over,
        trace: stall.trace.clone(),
        no_trace: stall.no_trace.clone(),
    };
    WatchdogView {
        limit_ms: dog.limit.as_millis() as u64,
        workers: dog.workers.iter().enumerate().map(worker).collect(),
        last: dog.last.iter().map(stall).collect(),
    }
}

fn stats(hosts: &[HostInfo], report: &Report) -> StatsView {
    let owned = |map: BTreeMap<&str, u64>| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let host = |(h, info): (usize, &HostInfo)| {
        let mut protocols: BTreeMap<String, BTreeMap<String, u64>> =
            counter_groups(&report.total(h)).into_iter().map(|(k, g)| (k.to_owned(), owned(g))).collect();
        if let Some(kernel) = report.kernel(h) {
            // The kernel counts these for all programs of the machine together.
            protocols.retain(|group, _| !KERNELS_OWN.contains(&group.as_str()));
            protocols.insert("kernel".to_owned(), by_name(&kernel));
        }
        if let Some(relay) = report.relay(h) {
            protocols.insert("relay".to_owned(), by_name(&relay.relay));
            let targets = relay.targets.iter();
            protocols.extend(targets.map(|(name, stats)| (format!("relay {name}"), by_name(stats))));
        }
        for service in report.services(h) {
            let figures = service.figures.iter().map(|figure| (figure.name.to_owned(), figure.value));
            protocols.insert(service.name.to_owned(), figures.collect());
        }
        StatsHost { host: info.name.clone(), protocols }
    };
    StatsView { version: VERSION, hosts: hosts.iter().enumerate().map(host).collect() }
}

fn netisr(report: &Report) -> NetisrView {
    let cpus: Vec<Option<u32>> = report.workers.iter().map(|w| bound_cpu(w.worker)).collect();
    let limit = crate::runtime::builder::NETISR;
    let workstream = |(w, cpu): (&WorkerReport, &Option<u32>)| Workstream {
        workstream: w.worker,
        cpu: *cpu,
        name: "ether".into(),
        length: 0,
        watermark: w.netisr.watermark,
        dispatched: w.netisr.dispatched,
        hybrid_dispatched: w.netisr.dispatched,
        queue_drops: w.netisr.dropped,
        no_lane: w.netisr.no_lane,
        queued: w.netisr.queued,
        handled: w.netisr.handled,
        sent: w.netisr.sent,
        meeting: w.meeting,
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
    let mut view =
        SocketsView { version: VERSION, sockets: Vec::new(), left_out: 0, tcp_states: BTreeMap::new() };
    for (h, info) in hosts.iter().enumerate() {
        for lane in report.lanes(h) {
            let kernel = &lane.kernel_sockets;
            view.left_out += lane.counts.sockets as usize - lane.sockets.len() - kernel.udp.len();
            view.sockets.extend(lane.sockets.iter().map(|s| udp_socket(info, lane, s)));
            view.sockets.extend(kernel.udp.iter().map(|s| kernel_udp_socket(info, lane, s)));
            let tcp = &lane.tcp;
            view.left_out +=
                (tcp.connections + tcp.listeners).saturating_sub(tcp.rows.len() + kernel.rows.len());
            view.sockets.extend(tcp.rows.iter().map(|r| tcp_socket(info, lane, r)));
            view.sockets.extend(kernel.rows.iter().map(|r| kernel_socket(info, lane, r)));
            let mut count = |state: &str, n: usize| {
                if n > 0 {
                    *view.tcp_states.entry(state.to_owned()).or_default() += n as u64;
                }
            };
            count("LISTEN", tcp.listeners);
            State::ALL.iter().for_each(|s| count(s.netstat(), tcp.states[s.index()]));
        }
    }
    view
}

fn star(port: u16) -> String {
    if port == 0 { "*".to_owned() } else { port.to_string() }
}

fn proto(name: &str, ip: Option<IpAddr>) -> String {
    let family = ip.map_or("46", |ip| if ip.is_ipv4() { "4" } else { "6" });
    format!("{name}{family}")
}

/// A row of this lane, with what all have; the rest is as of TCP without data.
fn row(
    lane: (&HostInfo, &LaneReport),
    ends: [String; 2],
    remote: Option<(IpAddr, u16)>,
    flow: (u32, u8),
) -> SocketRow {
    let [proto, local] = ends;
    SocketRow {
        proto,
        state: String::new(),
        host: lane.0.name.clone(),
        bucket: lane.1.bucket,
        worker: lane.1.worker,
        receive_queue: 0,
        send_queue: 0,
        local,
        foreign: remote.map_or("*.*".to_owned(), |(ip, port)| format!("{ip}.{port}")),
        connected: remote.is_some(),
        received: 0,
        dropped: 0,
        sent: 0,
        flowid: flow.0,
        flowtype: flow.1,
        flowtype_name: HashType::from_u8(flow.1).unwrap_or(HashType::None).name().into(),
        arrival: None,
        congestion: None,
        ecn: None,
        received_ce: None,
        delivered_ce: None,
    }
}

/// Protocol and local address of a socket of ours; `family`: an address of it, none for both.
fn our_end(name: &str, family: Option<IpAddr>, local: Option<IpAddr>, port: u16) -> [String; 2] {
    let ip = local.map_or("*".to_owned(), |ip| ip.to_string());
    [proto(name, family), format!("{ip}.{}", star(port))]
}

/// Protocol and local address of a kernel socket.
fn kernel_end(name: &str, local: SocketAddr) -> [String; 2] {
    let any = local.ip().is_unspecified();
    // A wildcard of IPv6 serves both families.
    let family = if any && local.is_ipv6() { None } else { Some(local.ip()) };
    our_end(name, family, (!any).then(|| local.ip()), local.port())
}

fn udp_socket(info: &HostInfo, lane: &LaneReport, s: &crate::SocketInfo) -> SocketRow {
    let remote = s.remote.map(|r| (r.ip, r.port));
    let ends = our_end("udp", s.local_ip.or(s.remote.map(|r| r.ip)), s.local_ip, s.local_port);
    SocketRow {
        receive_queue: s.queued,
        received: s.received,
        dropped: s.dropped,
        sent: s.sent,
        ..row((info, lane), ends, remote, (s.hash, s.hash_type))
    }
}

fn tcp_socket(info: &HostInfo, lane: &LaneReport, r: &TcpRow) -> SocketRow {
    let remote = r.remote.map(|r| (r.ip(), r.port()));
    let ends = our_end("tcp", r.local_ip, r.local_ip, r.local_port);
    let marks = match r.ecn {
        Some(Agreed::Accurate { received, delivered }) => Some((received, delivered)),
        _ => None,
    };
    SocketRow {
        state: r.state.map_or("LISTEN", State::netstat).into(),
        receive_queue: r.recv_queue as usize,
        send_queue: r.send_queue as usize,
        congestion: r.congestion.map(|algorithm| algorithm.name().to_owned()),
        ecn: r.ecn.map(|ecn| if ecn == Agreed::Classic { "classic" } else { "accurate" }.to_owned()),
        received_ce: marks.map(|(received, _)| received),
        delivered_ce: marks.map(|(_, delivered)| delivered),
        ..row((info, lane), ends, remote, (r.hash, r.hash_type))
    }
}

fn kernel_udp_socket(info: &HostInfo, lane: &LaneReport, r: &KernelUdpRow) -> SocketRow {
    let remote = r.remote.map(|r| (r.ip(), r.port()));
    SocketRow {
        receive_queue: r.recv_queue as usize,
        received: r.received,
        dropped: r.dropped,
        sent: r.sent,
        ..row((info, lane), kernel_end("udp", r.local), remote, r.flow)
    }
}

fn kernel_socket(info: &HostInfo, lane: &LaneReport, r: &KernelRow) -> SocketRow {
    let remote = r.remote.map(|r| (r.ip(), r.port()));
    SocketRow {
        state: r.state.map_or("LISTEN", State::netstat).into(),
        receive_queue: r.recv_queue as usize,
        send_queue: r.send_queue as usize,
        congestion: r.congestion.map(|algorithm| algorithm.name().to_owned()),
        arrival: r.arrival.map(|a| ArrivalView {
            processor: a.processor,
            queue: a.queue,
            worker_processor: a.worker,
            elsewhere: a.elsewhere.map(|why| why.name().to_owned()),
            why: a.elsewhere.map(|why| why.to_string()),
        }),
        ..row((info, lane), kernel_end("tcp", r.local), remote, r.flow)
    }
}

fn rss(now: &Snapshot) -> RssView {
    let report = &now.report;
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
            key: info.rss.hasher().key().map_or_else(String::new, ToString::to_string),
            types: types.iter().filter(|(on, _)| *on).map(|(_, t)| t.name().to_owned()).collect(),
            udp_4tuple: config.udp_ipv4,
            table: info.rss.table.slots().iter().map(|b| b.0).collect(),
            workers: now.owners[h].clone(),
            steering: report.steering(h),
            arrivals: crate::metrics::steering::queues(report, h),
            links: info.links.clone(),
            addresses: now.addresses.iter().filter(|(a, _)| a.host == h).map(address).collect(),
            card: report.cards.iter().find(|card| card.host == h).map(card),
        }
    };
    let changed = report.changed.clone();
    RssView { version: VERSION, hosts: now.hosts.iter().enumerate().map(host).collect(), changed }
}

fn address((given, left): &(HostAddress, Option<Duration>)) -> AddressView {
    let (origin, server, router) = match given.origin {
        Origin::Dhcp { server, router } => ("dhcp", Some(server.to_string()), router.map(|r| r.to_string())),
        Origin::Slaac => ("slaac", None, None),
    };
    AddressView {
        address: given.prefix.to_string(),
        origin: origin.to_owned(),
        server,
        router,
        seconds_left: left.map(|left| left.as_secs()),
        ready: given.ready,
        deprecated: given.deprecated,
    }
}

fn card(card: &CardReport) -> CardView {
    CardView { counts: card.counts, strayed: card.strayed.map(|why| why.words().to_owned()) }
}

pub(super) fn workers(hosts: &[HostInfo], report: &Report) -> WorkersView {
    let name = |h: usize| hosts.get(h).map_or_else(String::new, |info| info.name.clone());
    let worker = |w: &WorkerReport| WorkerView {
        worker: w.worker,
        turns: w.turns,
        time: w.time,
        needed_by: w.needed_by,
        long_tasks: w.long_tasks.clone(),
        perf: w.perf.clone(),
        pool: w.pool,
        queues: w
            .queues
            .iter()
            .map(|q| QueueView {
                host: name(q.host),
                interface: q.interface,
                queue: q.queue,
                counters: by_name(&q.stats),
                outstanding: q.outstanding.map(|all| {
                    let names = Outstanding::NAMES.iter().map(|name| (*name).to_owned());
                    names.zip(all.values()).collect()
                }),
            })
            .collect(),
        hosts: (0..hosts.len())
            .map(|h| HostLanes {
                host: name(h),
                steering: w.steering.get(h).copied().unwrap_or_default(),
                lanes: w.lanes.iter().filter(|l| l.host == h).map(lane).collect(),
            })
            .collect(),
        misdirected: w.misdirected.iter().map(example).collect(),
    };
    WorkersView { version: VERSION, workers: report.workers.iter().map(worker).collect() }
}

/// A group's figures by name.
fn by_name(group: &dyn Figures) -> BTreeMap<String, u64> {
    let mut figures = BTreeMap::new();
    group.each(&mut |figure| {
        figures.insert(figure.name.to_owned(), figure.value);
    });
    figures
}

fn lane(l: &LaneReport) -> LaneView {
    LaneView {
        bucket: l.bucket,
        counts: l.counts,
        delivered: l.stats.udp.delivered,
        sent: l.stats.udp.sent,
        dropped: drops::of_lane(l),
    }
}

fn example(m: &Misdirected) -> String {
    format!("{}: hash {:08x} names queue {}, came on {}", m.flow, m.hash, m.expected_queue, m.queue)
}
