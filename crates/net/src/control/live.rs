//! `/v1/live`: the document of those who look on while it runs, the web page and `flowlane top`.
//!
//! It is smaller than a report: no lists of sockets, no keys, no addresses of peers. What happened between two of them is a
//! [`Change`](super::Change).

use std::collections::BTreeMap;

use flowlane_stack::stats::Histogram;
use flowlane_stack::tcp::State;
use serde::{Deserialize, Serialize};

use super::collect::workers;
use super::view::{Instance, VERSION, WorkerView};
use crate::metrics::{Snapshot, drops};
use crate::stats::{ServiceFigures, SteeringStats};

/// `/v1/live`: the numbers of one moment, without keys and without addresses of peers.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LiveView {
    /// [`VERSION`].
    pub version: u32,
    /// Who answers.
    pub instance: Instance,
    /// Workers that there are; those that did not answer within five seconds are not among `workers`.
    pub worker_count: usize,
    /// Hosts.
    pub hosts: Vec<LiveHost>,
    /// Workers with their queues and lanes.
    pub workers: Vec<WorkerView>,
    /// Packets dropped: every reason that has a packet.
    pub drops: Vec<DropView>,
    /// Distributions of times: those of the program, then those of the stack.
    pub times: Vec<TimesView>,
    /// What the program itself counts, such as requests.
    pub counts: Vec<CountView>,
}

/// What a program adds to the numbers of its runtime.
#[derive(Debug, Clone, Default)]
pub struct Additions {
    /// Distributions of times.
    pub times: Vec<TimesView>,
    /// Numbers of events so far.
    pub counts: Vec<CountView>,
}

/// Events of a program.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CountView {
    /// What is counted, for people: one or two words.
    pub text: String,
    /// How many so far.
    pub count: u64,
    /// When they were counted, microseconds from any moment that stays; `None` if at the time of this reading.
    pub at_us: Option<u64>,
}

/// One host.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LiveHost {
    /// Its name.
    pub host: String,
    /// Its links by interface, for people: `af-xdp:eth0 (native, copied)`.
    pub links: Vec<String>,
    /// How its frames arrived, over all workers.
    pub steering: SteeringStats,
    /// Whether its sockets are the kernel's, which has no queues and no packets to be counted here.
    pub kernel: bool,
    /// Bytes received: of packets, over links of ours; read, with kernel sockets.
    pub bytes_in: u64,
    /// Bytes sent: of packets, over links of ours; written, with kernel sockets.
    pub bytes_out: u64,
    /// Listeners, connections and TIME-WAIT records of TCP by state, those that there are.
    pub tcp_states: BTreeMap<String, u64>,
}

/// Packets dropped for one reason.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DropView {
    /// The host; empty for what is lost between workers.
    pub host: String,
    /// Who dropped them.
    pub layer: String,
    /// Why, for machines.
    pub reason: String,
    /// Why, for people.
    pub text: String,
    /// How many.
    pub count: u64,
}

/// How often a time was measured, by its length.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TimesView {
    /// What was measured, for machines: `tcp-rtt`.
    pub name: String,
    /// What was measured, for people.
    pub text: String,
    /// The longest time of each class but the last, which has no bound, microseconds.
    pub bounds_us: Vec<u32>,
    /// How many were in each class.
    pub counts: Vec<u64>,
}

impl LiveView {
    /// The document of a snapshot, with what the program adds.
    #[must_use]
    pub fn of(now: &Snapshot, added: Additions) -> Self {
        let mut workers = workers(&now.hosts, &now.report).workers;
        // Examples have addresses.
        workers.iter_mut().for_each(|worker| worker.misdirected.clear());
        let mut rtts = Histogram::default();
        (0..now.hosts.len()).for_each(|h| rtts.add(&now.report.rtts(h)));
        Self {
            version: VERSION,
            instance: now.instance.clone(),
            worker_count: now.workers,
            hosts: (0..now.hosts.len()).map(|h| host(now, h)).collect(),
            workers,
            drops: dropped(now),
            times: [added.times, vec![TimesView::new("tcp-rtt", "round-trip times of TCP", &rtts)]].concat(),
            counts: [added.counts, counted(now)].concat(),
        }
    }
}

/// What values that lanes own have counted, as far as it is to be shown.
fn counted(now: &Snapshot) -> Vec<CountView> {
    let services = (0..now.hosts.len()).flat_map(|h| now.report.services(h));
    let of = |service: ServiceFigures| {
        let rates = service.shown.rates.iter();
        rates
            .filter_map(|(text, name)| {
                let figure = service.figures.iter().find(|figure| figure.name == *name)?;
                Some(CountView { text: (*text).to_owned(), count: figure.value, at_us: None })
            })
            .collect::<Vec<_>>()
    };
    services.flat_map(of).collect()
}

fn host(now: &Snapshot, h: usize) -> LiveHost {
    let lanes = now.report.lanes(h);
    let mut tcp_states = BTreeMap::new();
    let mut count = |state: &str, n: usize| {
        if n > 0 {
            tcp_states.insert(state.to_owned(), n as u64);
        }
    };
    count("LISTEN", lanes.iter().map(|lane| lane.tcp.listeners).sum());
    for state in State::ALL {
        count(state.netstat(), lanes.iter().map(|lane| lane.tcp.states[state.index()]).sum());
    }
    let kernel = now.report.kernel(h);
    let (bytes_in, bytes_out) = match kernel {
        Some(kernel) => (kernel.read_bytes, kernel.written_bytes),
        None => now.report.queues(h).fold((0, 0), |(bytes_in, bytes_out), queue| {
            (bytes_in + queue.stats.rx_bytes, bytes_out + queue.stats.tx_bytes)
        }),
    };
    LiveHost {
        kernel: kernel.is_some(),
        bytes_in,
        bytes_out,
        host: now.hosts[h].name.clone(),
        links: now.hosts[h].links.clone(),
        steering: now.report.steering(h),
        tcp_states,
    }
}

fn dropped(now: &Snapshot) -> Vec<DropView> {
    let of_hosts = now.hosts.iter().enumerate().flat_map(|(h, host)| {
        drops::of_host(&now.report, h).into_iter().map(move |dropped| (host.name.as_str(), dropped))
    });
    let between = drops::of_runtime(&now.report).into_iter().map(|dropped| ("", dropped));
    of_hosts
        .chain(between)
        .filter(|(_, dropped)| dropped.count > 0)
        .map(|(host, dropped)| DropView {
            host: host.to_owned(),
            layer: dropped.layer.to_owned(),
            reason: dropped.reason.to_owned(),
            text: dropped.text.to_owned(),
            count: dropped.count,
        })
        .collect()
}

impl TimesView {
    /// What a histogram counted.
    #[must_use]
    pub fn new(name: &str, text: &str, times: &Histogram) -> Self {
        let counts = times.counts().to_vec();
        let bounds_us = (0..counts.len()).filter_map(Histogram::bound).collect();
        Self { name: name.to_owned(), text: text.to_owned(), bounds_us, counts }
    }
}
