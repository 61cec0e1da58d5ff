//! What happened between two readings of `/v1/live`: rates, shares, moves.
//!
//! A reading has totals since the instance began. Two of one run make a [`Change`]: each counter's rise a second, each time's share of the
//! time that passed. Lanes are matched by host and bucket, since they move; a lane that is at another worker than before has moved. A
//! counter that is smaller than before (a worker that did not answer in between) counts as not risen.
//!
//! `flowlane top` draws it, and so does the web page (`web/readings.rs`).

use std::collections::{BTreeMap, HashMap};

use serde::{Serialize, Serializer};

use super::live::{LiveView, TimesView};
use super::view::{LaneView, QueueView, WorkerView};
use crate::metrics::drops;
use crate::stats::{Derived, StepTimes};

/// What happened between two readings of one run. All rates are per second.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Change {
    /// Time between the readings, seconds.
    pub seconds: f64,
    /// Sums over everything.
    pub total: Total,
    /// What the program itself counts.
    pub counts: Vec<CountRate>,
    /// Workers that answered.
    pub workers: Vec<WorkerRate>,
    /// Lanes, by host and bucket.
    pub lanes: Vec<LaneRate>,
    /// Queues, by worker.
    pub queues: Vec<QueueRate>,
    /// Every reason for which packets were dropped since the instance began.
    pub drops: Vec<DropRate>,
    /// Lanes that are at another worker than before.
    pub moves: Vec<LaneMove>,
    /// Distributions of the times that were measured in between.
    pub times: Vec<TimesView>,
}

/// Sums over all hosts, workers and queues.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Total {
    /// Packets received; none with kernel sockets.
    pub packets_in: f64,
    /// Packets sent.
    pub packets_out: f64,
    /// Bits received.
    pub bits_in: f64,
    /// Bits sent.
    pub bits_out: f64,
    /// Packets dropped.
    pub dropped: f64,
    /// Share of frames whose bucket belonged to the worker of their queue, 0 to 1; `None` if no frame came.
    pub aligned: Option<f64>,
    /// Processors that lanes kept busy: 1 for a whole one.
    pub load: f64,
    /// Listeners, connections and TIME-WAIT records of TCP by state.
    pub tcp_states: BTreeMap<String, u64>,
    /// All sockets are the kernel's.
    pub kernel: bool,
}

/// How often something that the program counts happened.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CountRate {
    /// What, for people.
    pub text: String,
    /// How often.
    pub rate: f64,
}

/// One worker.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct WorkerRate {
    /// Its number.
    pub worker: usize,
    /// Turns of its loop.
    pub turns: f64,
    /// Of them, those that found something to do.
    pub busy_turns: f64,
    /// Sleeps.
    pub sleeps: f64,
    /// Share of a processor that its lanes took.
    pub load: f64,
    /// Lanes that it has.
    pub lanes: usize,
    /// Share of its time in each step, in the order of [`StepTimes::FIELDS`](crate::stats::StepTimes::FIELDS); all 0 if no time passed.
    #[serde(serialize_with = "named")]
    pub steps: [f64; 7],
    /// Frames free in its pool.
    pub frames_free: u64,
    /// Requests for a frame that found none.
    pub frames_exhausted: f64,
    /// Figures of the processor's events, where they are counted.
    #[serde(skip)]
    pub derived: Option<Derived>,
    /// Times its thread gave its processor up or lost it, where that is counted.
    #[serde(skip)]
    pub switches: Option<f64>,
}

/// One lane.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LaneRate {
    /// Its host.
    pub host: String,
    /// Its bucket.
    pub bucket: u16,
    /// The worker that has it.
    pub worker: usize,
    /// Share of a processor that was spent on it.
    pub load: f64,
    /// Frames that came in.
    pub frames: f64,
    /// Of them, those that another worker handed over.
    pub redirected: f64,
    /// Task runs.
    pub runs: f64,
    /// Packets dropped.
    pub dropped: f64,
    /// TCP connections.
    pub connections: u64,
    /// UDP sockets.
    pub sockets: u64,
    /// Times it has moved since the instance began.
    pub moves: u64,
}

/// One queue of a link.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct QueueRate {
    /// The host.
    pub host: String,
    /// Its interface.
    pub interface: u8,
    /// The queue's number; none where another worker's is used.
    pub queue: Option<u16>,
    /// Its worker.
    pub worker: usize,
    /// Packets received.
    pub frames_in: f64,
    /// Packets sent.
    pub frames_out: f64,
    /// Bits received.
    pub bits_in: f64,
    /// Bits sent.
    pub bits_out: f64,
    /// Packets lost.
    pub lost: f64,
    /// System calls.
    pub calls: f64,
    /// Share of the host's frames at this worker whose bucket belonged to it, 0 to 1; `None` if none came.
    pub aligned: Option<f64>,
}

/// One reason for drops.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DropRate {
    /// The host; empty for what is lost between workers.
    pub host: String,
    /// Who dropped them.
    pub layer: String,
    /// Why, for people.
    pub text: String,
    /// How many now.
    pub rate: f64,
    /// How many since the instance began.
    pub count: u64,
}

/// A lane that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LaneMove {
    /// Its host.
    pub host: String,
    /// Its bucket.
    pub bucket: u16,
    /// The worker that had it.
    pub from: usize,
    /// The worker that has it.
    pub to: usize,
}

/// Steps as pairs of a name and a share.
fn named<S: Serializer>(steps: &[f64; 7], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(StepTimes::FIELDS.iter().zip(steps))
}

impl LiveView {
    /// Whether both are of one run of one program.
    #[must_use]
    pub fn is_same_run(&self, other: &Self) -> bool {
        (self.instance.pid, self.instance.started) == (other.instance.pid, other.instance.started)
    }

    /// What happened since `then`, an earlier reading of the same run. Since itself: levels, and rates of 0.
    #[must_use]
    pub fn since(&self, then: &Self) -> Change {
        let millis = self.instance.uptime_ms.saturating_sub(then.instance.uptime_ms).max(1);
        let passed = Passed(millis as f64 / 1000.0);
        let (lanes, moves) = lanes(then, self, &passed);
        let queues = queues(then, self, &passed);
        let drops = drops(then, self, &passed);
        Change {
            seconds: passed.0,
            total: total(then, self, &passed, (&lanes, &queues, &drops)),
            counts: counts(then, self, &passed),
            workers: workers(then, self, &lanes, &passed),
            lanes,
            queues,
            drops,
            moves,
            times: times(then, self),
        }
    }
}

/// Time between two readings, seconds.
struct Passed(f64);

impl Passed {
    fn rate(&self, now: u64, then: Option<u64>) -> f64 {
        now.saturating_sub(then.unwrap_or(now)) as f64 / self.0
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| (part / whole).clamp(0.0, 1.0))
}

/// The sum; of nothing it is 0, where `sum` has -0.
fn sum_of(rates: impl Iterator<Item = f64>) -> f64 {
    rates.fold(0.0, |sum, rate| sum + rate)
}

fn lanes_of(reading: &LiveView) -> impl Iterator<Item = (&str, usize, &LaneView)> {
    let at = |worker: &WorkerView| worker.worker;
    reading.workers.iter().flat_map(move |worker| {
        worker
            .hosts
            .iter()
            .flat_map(move |host| host.lanes.iter().map(move |lane| (host.host.as_str(), at(worker), lane)))
    })
}

fn lanes(then: &LiveView, now: &LiveView, passed: &Passed) -> (Vec<LaneRate>, Vec<LaneMove>) {
    let before: HashMap<(&str, u16), (usize, &LaneView)> =
        lanes_of(then).map(|(host, worker, lane)| ((host, lane.bucket), (worker, lane))).collect();
    let mut moves = Vec::new();
    let mut rates: Vec<LaneRate> = lanes_of(now)
        .map(|(host, worker, lane)| {
            let was = before.get(&(host, lane.bucket));
            if let Some((from, _)) = was.filter(|(from, _)| *from != worker) {
                moves.push(LaneMove { host: host.to_owned(), bucket: lane.bucket, from: *from, to: worker });
            }
            let rate = |of: fn(&LaneView) -> u64| passed.rate(of(lane), was.map(|(_, was)| of(was)));
            LaneRate {
                host: host.to_owned(),
                bucket: lane.bucket,
                worker,
                load: rate(|l| l.counts.busy_nanos) / 1e9,
                frames: rate(|l| l.counts.aligned + l.counts.redirected),
                redirected: rate(|l| l.counts.redirected),
                runs: rate(|l| l.counts.task_runs),
                dropped: rate(|l| l.dropped),
                connections: lane.counts.connections,
                sockets: lane.counts.sockets,
                moves: lane.counts.moves,
            }
        })
        .collect();
    rates.sort_by(|a, b| (&a.host, a.bucket).cmp(&(&b.host, b.bucket)));
    moves.sort_by(|a, b| (&a.host, a.bucket).cmp(&(&b.host, b.bucket)));
    (rates, moves)
}

fn queues(then: &LiveView, now: &LiveView, passed: &Passed) -> Vec<QueueRate> {
    type Key<'a> = (usize, &'a str, u8, Option<u16>);
    let key = |worker: usize, q: &QueueView| (worker, q.interface, q.queue);
    let mut before: HashMap<Key<'_>, &QueueView> = HashMap::new();
    for worker in &then.workers {
        for queue in &worker.queues {
            let (worker, interface, number) = key(worker.worker, queue);
            before.insert((worker, &queue.host, interface, number), queue);
        }
    }
    let rate = |worker: &WorkerView, queue: &QueueView| {
        let was = before.get(&(worker.worker, queue.host.as_str(), queue.interface, queue.queue));
        let of = |name: &str| {
            let value = |q: &QueueView| q.counters.get(name).copied().unwrap_or(0);
            passed.rate(value(queue), was.map(|was| value(was)))
        };
        QueueRate {
            host: queue.host.clone(),
            interface: queue.interface,
            queue: queue.queue,
            worker: worker.worker,
            frames_in: of("rx-frames"),
            frames_out: of("tx-frames"),
            bits_in: 8.0 * of("rx-bytes"),
            bits_out: 8.0 * of("tx-bytes"),
            lost: sum_of(drops::LOST_BY_LINKS.iter().map(|(name, ..)| of(name))),
            calls: of("system-calls"),
            aligned: aligned(then, worker, &queue.host, passed),
        }
    };
    now.workers.iter().flat_map(|worker| worker.queues.iter().map(move |q| rate(worker, q))).collect()
}

/// Share of a host's frames at one worker that belonged there.
fn aligned(then: &LiveView, worker: &WorkerView, host: &str, passed: &Passed) -> Option<f64> {
    let of = |worker: &WorkerView| {
        let host = worker.hosts.iter().find(|h| h.host == host)?;
        Some((host.steering.aligned, host.steering.received))
    };
    let (aligned, received) = of(worker)?;
    let was = then.workers.iter().find(|w| w.worker == worker.worker).and_then(of);
    share(passed.rate(aligned, was.map(|w| w.0)), passed.rate(received, was.map(|w| w.1)))
}

fn drops(then: &LiveView, now: &LiveView, passed: &Passed) -> Vec<DropRate> {
    let before: HashMap<(&str, &str, &str), u64> =
        then.drops.iter().map(|d| ((&*d.host, &*d.layer, &*d.reason), d.count)).collect();
    let rate = |d: &super::live::DropView| DropRate {
        host: d.host.clone(),
        layer: d.layer.clone(),
        text: d.text.clone(),
        // A reason that has no packet yet is not in the list.
        rate: passed
            .rate(d.count, Some(before.get(&(&*d.host, &*d.layer, &*d.reason)).copied().unwrap_or(0))),
        count: d.count,
    };
    now.drops.iter().map(rate).collect()
}

fn workers(then: &LiveView, now: &LiveView, lanes: &[LaneRate], passed: &Passed) -> Vec<WorkerRate> {
    let rate = |worker: &WorkerView| {
        let was = then.workers.iter().find(|w| w.worker == worker.worker);
        let of = |f: fn(&WorkerView) -> u64| passed.rate(f(worker), was.map(f));
        let before = was.map_or([0; 7], |was| was.time.values());
        let mut steps = worker.time.values();
        steps.iter_mut().zip(before).for_each(|(now, then)| *now = now.saturating_sub(then));
        let whole = steps.iter().sum::<u64>() as f64;
        let events = was.and_then(|was| {
            let since = worker.perf.as_ref()?.since(was.perf.as_ref()?);
            Some((since, worker.packets().saturating_sub(was.packets())))
        });
        let own = || lanes.iter().filter(|lane| lane.worker == worker.worker);
        WorkerRate {
            worker: worker.worker,
            turns: of(|w| w.turns.all),
            busy_turns: of(|w| w.turns.busy),
            sleeps: of(|w| w.turns.sleeps),
            load: sum_of(own().map(|lane| lane.load)),
            lanes: own().count(),
            steps: steps.map(|step| share(step as f64, whole).unwrap_or(0.0)),
            frames_free: worker.pool.frames_free,
            frames_exhausted: of(|w| w.pool.frames_exhausted),
            derived: events.as_ref().map(|(perf, packets)| perf.derived(*packets)),
            switches: events.as_ref().and_then(|(perf, _)| Some(perf.context_switches? as f64 / passed.0)),
        }
    };
    now.workers.iter().map(rate).collect()
}

fn counts(then: &LiveView, now: &LiveView, passed: &Passed) -> Vec<CountRate> {
    let rate = |count: &super::live::CountView| {
        let was = then.counts.iter().find(|c| c.text == count.text);
        // Some are counted at times of their own.
        let took = match (count.at_us, was.and_then(|was| was.at_us)) {
            (Some(now), Some(then)) => Passed(now.saturating_sub(then) as f64 / 1e6),
            _ => Passed(passed.0),
        };
        let rate = if took.0 > 0.0 { took.rate(count.count, was.map(|was| was.count)) } else { 0.0 };
        CountRate { text: count.text.clone(), rate }
    };
    now.counts.iter().map(rate).collect()
}

fn times(then: &LiveView, now: &LiveView) -> Vec<TimesView> {
    let rise = |list: &TimesView| {
        let was = then.times.iter().find(|t| t.name == list.name);
        let mut list = list.clone();
        for (class, count) in list.counts.iter_mut().enumerate() {
            *count = count.saturating_sub(was.and_then(|w| w.counts.get(class)).copied().unwrap_or(0));
        }
        list
    };
    now.times.iter().map(rise).collect()
}

fn total(
    then: &LiveView,
    now: &LiveView,
    passed: &Passed,
    (lanes, queues, drops): (&[LaneRate], &[QueueRate], &[DropRate]),
) -> Total {
    let sum = |of: fn(&super::live::LiveHost) -> u64| {
        let all = |reading: &LiveView| reading.hosts.iter().map(of).sum::<u64>();
        passed.rate(all(now), Some(all(then)))
    };
    let mut tcp_states = BTreeMap::new();
    for (state, n) in now.hosts.iter().flat_map(|host| &host.tcp_states) {
        *tcp_states.entry(state.clone()).or_default() += n;
    }
    Total {
        packets_in: sum_of(queues.iter().map(|q| q.frames_in)),
        packets_out: sum_of(queues.iter().map(|q| q.frames_out)),
        bits_in: 8.0 * sum(|h| h.bytes_in),
        bits_out: 8.0 * sum(|h| h.bytes_out),
        dropped: sum_of(drops.iter().map(|d| d.rate)),
        aligned: share(sum(|h| h.steering.aligned), sum(|h| h.steering.received)),
        load: sum_of(lanes.iter().map(|lane| lane.load)),
        tcp_states,
        kernel: now.hosts.iter().all(|host| host.kernel),
    }
}

impl TimesView {
    /// The time that this part of the samples (0 to 1) did not exceed, microseconds, to the class; `None` if there are no samples,
    /// `u64::MAX` for the class without a bound.
    #[must_use]
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        let all: u64 = self.counts.iter().sum();
        if all == 0 {
            return None;
        }
        let rank = ((all as f64 * part).ceil() as u64).clamp(1, all);
        let mut seen = 0;
        let class = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(self.bounds_us.get(class).map_or(u64::MAX, |bound| u64::from(*bound)))
    }
}
