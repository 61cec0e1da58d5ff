//! The list: which number of a snapshot is which metric.

use std::collections::{BTreeMap, HashMap};

use flowlane_stack::stats::{Figure, Figures, Histogram, Kind as FigureKind};
use flowlane_stack::tcp::State;

use super::drops::{self, Dropped};
use super::{Kind, Metric, Sample, Snapshot};
use crate::link::Outstanding;
use crate::link::pair::Quirk;
use crate::stats::{LaneReport, QueueArrivals, QueueReport, ServiceFigures, WorkerReport};

pub(super) fn of(now: &Snapshot) -> Vec<Metric> {
    let mut list = List::default();
    instance(&mut list, now);
    for worker in &now.report.workers {
        of_worker(&mut list, worker);
    }
    let names = names(now);
    for (h, name) in names.iter().enumerate() {
        of_host(&mut list, now, h, name);
    }
    for dropped in drops::of_runtime(&now.report) {
        drop(&mut list, "", &dropped);
    }
    for worker in &now.report.workers {
        for lane in &worker.lanes {
            of_lane(&mut list, lane, names.get(lane.host).map_or("", String::as_str));
        }
        for at in &worker.arrivals {
            of_arrivals(&mut list, at, worker.worker, names.get(at.host).map_or("", String::as_str));
        }
        for queue in &worker.queues {
            of_queue(&mut list, queue, worker.worker, names.get(queue.host).map_or("", String::as_str));
        }
    }
    list.metrics
}

/// Metrics in the order in which they were first named.
#[derive(Default)]
struct List {
    metrics: Vec<Metric>,
    places: HashMap<String, usize>,
}

impl List {
    /// A sample of the metric `flowlane_NAME`, in which hyphens become underscores.
    fn add(&mut self, kind: Kind, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add_as(kind, format!("flowlane_{}", name.replace('-', "_")), help, labels, value);
    }

    /// A sample of the metric of this name.
    fn add_as(&mut self, kind: Kind, name: String, help: &str, labels: &[(&str, &str)], value: f64) {
        let place = *self.places.entry(name).or_insert_with_key(|name| {
            let unit = ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(&format!("_{unit}")));
            let mut letters = help.chars();
            let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
            let help = format!("{first}{}.", letters.as_str().trim_end_matches('.'));
            let (name, unit) = (name.clone(), unit.unwrap_or_default().to_owned());
            self.metrics.push(Metric { name, kind, unit, help, samples: Vec::new() });
            self.metrics.len() - 1
        });
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        let labels: BTreeMap<_, _> = labels.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.metrics[place].samples.push(Sample { labels, value });
    }

    fn count(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: u64) {
        self.add(Kind::Counter, name, help, labels, value as f64);
    }

    fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: u64) {
        self.add(Kind::Gauge, name, help, labels, value as f64);
    }

    /// Times, with bounds in seconds.
    fn times(&mut self, name: &str, help: &str, labels: &[(&str, &str)], times: &Histogram) {
        let mut below = 0;
        for (class, count) in times.counts().iter().enumerate() {
            below += count;
            let bound = Histogram::bound(class)
                .map_or("+Inf".to_owned(), |micros| (f64::from(micros) / 1e6).to_string());
            let labels = [labels, &[("le", &bound)]].concat();
            self.add(Kind::Histogram, name, help, &labels, below as f64);
        }
        self.add(Kind::Histogram, name, help, labels, times.sum_micros() as f64 / 1e6);
    }

    /// The figures of a group.
    fn group(&mut self, group: &str, labels: &[(&str, &str)], figures: &dyn Figures) {
        figures.each(&mut |figure| self.figure(group, labels, &figure));
    }

    /// The figures that a service has declared, and those of them that have other names, too.
    fn service(&mut self, labels: &[(&str, &str)], service: &ServiceFigures) {
        service.figures.iter().for_each(|figure| self.figure(service.name, labels, figure));
        for alias in service.shown.aliases {
            let Some(figure) = service.figures.iter().find(|figure| figure.name == alias.figure) else {
                continue;
            };
            let labels = [labels, alias.labels].concat();
            self.add_as(kind_of(figure), alias.metric.to_owned(), alias.text, &labels, figure.value as f64);
        }
    }

    /// Nanoseconds become seconds.
    fn figure(&mut self, group: &str, labels: &[(&str, &str)], c: &Figure) {
        let kind = kind_of(c);
        match c.name.strip_suffix("-nanos") {
            Some(name) => {
                let text = c.text.replacen("nanoseconds", "seconds", 1);
                self.add(kind, &format!("{group}_{name}_seconds"), &text, labels, c.value as f64 / 1e9);
            }
            None => self.add(kind, &format!("{group}_{}", c.name), c.text, labels, c.value as f64),
        }
    }
}

fn kind_of(figure: &Figure) -> Kind {
    match figure.kind {
        FigureKind::Count => Kind::Counter,
        FigureKind::Gauge | FigureKind::Peak => Kind::Gauge,
    }
}

/// The hosts' names; of several with one name the later ones get their number.
fn names(now: &Snapshot) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (h, host) in now.hosts.iter().enumerate() {
        let taken = names.contains(&host.name) || host.name.is_empty();
        names.push(if taken { format!("{}#{h}", host.name) } else { host.name.clone() });
    }
    names
}

fn instance(list: &mut List, now: &Snapshot) {
    let labels = [("name", now.instance.name.as_str()), ("version", env!("CARGO_PKG_VERSION"))];
    list.add(Kind::Info, "instance", "what is running", &labels, 1.0);
    let started = "time since 1970 at which it began to answer";
    list.add(Kind::Gauge, "start_time_seconds", started, &[], now.instance.started as f64);
    list.add(Kind::Gauge, "uptime_seconds", "time since then", &[], now.instance.uptime_ms as f64 / 1e3);
    list.gauge("workers", "workers that there are", &[], now.workers as u64);
    let answering = now.report.workers.len() as u64;
    list.gauge("workers_answering", "workers that answered within five seconds", &[], answering);
    list.group("rebalance", &[], &*now.report.rebalance);
    for (worker, counts) in now.report.watchdog.iter().flat_map(|dog| dog.workers.iter().enumerate()) {
        list.group("worker", &[("worker", &worker.to_string())], counts);
    }
}

fn of_worker(list: &mut List, worker: &WorkerReport) {
    let number = worker.worker.to_string();
    let labels = [("worker", number.as_str())];
    worker.each(&mut |c| list.figure("worker", &labels, &c));
}

fn of_lane(list: &mut List, lane: &LaneReport, host: &str) {
    let bucket = lane.bucket.to_string();
    // The worker is no label: a lane that moves keeps its series.
    let labels = [("host", host), ("bucket", bucket.as_str())];
    list.group("lane", &labels, &lane.counts);
    list.gauge("lane_worker", "number of the worker that holds the lane", &labels, lane.worker as u64);
    list.count("lane_dropped", "packets that the lane dropped", &labels, drops::of_lane(lane));
}

fn of_queue(list: &mut List, queue: &QueueReport, worker: usize, host: &str) {
    let (interface, worker) = (queue.interface.to_string(), worker.to_string());
    let number = queue.queue.map_or("none".to_owned(), |q| q.to_string());
    let labels = [("host", host), ("interface", &interface), ("queue", &number), ("worker", &worker)];
    list.group("link", &labels, &queue.stats);
    let places = queue.outstanding.iter().flat_map(|all| Outstanding::NAMES.into_iter().zip(all.values()));
    for (place, frames) in places {
        let help = "frames in the hands of kernel and card, by where they are";
        list.gauge("link_frames_outstanding", help, &[&labels[..], &[("place", place)]].concat(), frames);
    }
    if let Some(faults) = &queue.quirks {
        for (quirk, name) in Quirk::NAMES {
            let labels = [&labels[..], &[("fault", name)]].concat();
            list.count("link_faults", "faults that a pair link made on purpose", &labels, faults.get(quirk));
        }
    }
}

fn of_arrivals(list: &mut List, at: &QueueArrivals, worker: usize, host: &str) {
    let (interface, worker, queue) = (at.interface.to_string(), worker.to_string(), at.queue.to_string());
    let labels = [("host", host), ("interface", &interface), ("queue", &queue), ("worker", &worker)];
    list.group("queue", &labels, &at.stats);
}

fn of_host(list: &mut List, now: &Snapshot, h: usize, name: &str) {
    let labels = [("host", name)];
    let kernel = now.report.kernel(h);
    if kernel.is_none() {
        list.group("steering", &labels, &now.report.steering(h));
    }
    now.report.total(h).groups(&mut |group, counters| {
        if group == "drops" || (kernel.is_some() && super::KERNELS_OWN.contains(&group)) {
            return;
        }
        counters.each(&mut |c| {
            // Segments that were dropped are among the drops, by reason.
            if group != "tcp" || !c.name.starts_with("dropped-") {
                list.figure(group, &labels, &c);
            }
        });
    });
    if let Some(kernel) = kernel {
        list.group("kernel", &labels, &kernel);
    }
    if let Some(relay) = now.report.relay(h) {
        list.group("relay", &labels, &relay.relay);
        for (target, stats) in &relay.targets {
            let labels = [("host", name), ("target", target.as_str())];
            list.group("relay_target", &labels, stats);
        }
    }
    for service in now.report.services(h) {
        list.service(&labels, &service);
    }
    for dropped in drops::of_host(&now.report, h) {
        drop(list, name, &dropped);
    }
    connections(list, now, h, name);
    if kernel.is_some() {
        return;
    }
    let rtts = "samples of round-trip times of TCP (RFC 6298 section 4)";
    list.times("tcp_rtt_seconds", rtts, &labels, &now.report.rtts(h));
    for card in now.report.cards.iter().filter(|card| card.host == h) {
        list.group("card", &labels, &card.counts);
    }
}

fn drop(list: &mut List, host: &str, dropped: &Dropped) {
    let labels = [("host", host), ("layer", dropped.layer), ("reason", &dropped.reason.replace('_', "-"))];
    list.count("drops", "packets dropped, by who dropped them and why", &labels, dropped.count);
}

/// TCP by state, and how many sockets there are.
fn connections(list: &mut List, now: &Snapshot, h: usize, host: &str) {
    let lanes = now.report.lanes(h);
    let mut state = |name: &str, count: usize| {
        let help = "listeners, connections and TIME-WAIT records of TCP, by state";
        list.gauge("tcp_connections", help, &[("host", host), ("state", name)], count as u64);
    };
    state("LISTEN", lanes.iter().map(|lane| lane.tcp.listeners).sum());
    for s in State::ALL {
        state(s.netstat(), lanes.iter().map(|lane| lane.tcp.states[s.index()]).sum());
    }
}
