//! The document that the page asks for.

use std::collections::BTreeMap;

use flowlane_stack::stats::Histogram;
use flowlane_stack::tcp::State;
use serde::{Deserialize, Serialize};

use crate::control::collect::{steering, workers};
use crate::control::view::{Instance, SteeringView, VERSION, WorkerView};
use crate::metrics::{Snapshot, drops};

/// `/v1/live`: the numbers of one moment, without keys and without addresses of peers.
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
    /// Distributions of times.
    pub times: Vec<TimesView>,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LiveHost {
    /// Its name.
    pub host: String,
    /// Its links by interface, for people: `af-xdp:eth0 (native, copied)`.
    pub links: Vec<String>,
    /// How its frames arrived, over all workers.
    pub steering: SteeringView,
    /// Listeners, connections and TIME-WAIT records of TCP by state, those that there are.
    pub tcp_states: BTreeMap<String, u64>,
}

/// Packets dropped for one reason.
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
    /// The document of a snapshot.
    #[must_use]
    pub fn of(now: &Snapshot) -> Self {
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
            times: vec![times("tcp-rtt", "round-trip times of TCP", &rtts)],
        }
    }
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
    LiveHost {
        host: now.hosts[h].name.clone(),
        links: now.hosts[h].links.clone(),
        steering: steering(&now.report.steering(h)),
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

fn times(name: &str, text: &str, times: &Histogram) -> TimesView {
    let counts = times.counts().to_vec();
    let bounds_us = (0..counts.len()).filter_map(Histogram::bound).collect();
    TimesView { name: name.to_owned(), text: text.to_owned(), bounds_us, counts }
}
