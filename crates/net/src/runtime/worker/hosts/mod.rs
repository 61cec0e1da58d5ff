//! The hosts as one worker sees them: who holds the lane of each bucket, and how frames arrive.
//!
//! A frame is [steered](Hosts::steer) by its hash to a bucket's lane. Whether a card's hash is believed is up to [`trust`]; frames that
//! came on another queue than their hash names are counted, and the card is asked to look after its table where there are many.

mod trust;

use trust::Trust;

use std::sync::Arc;
use std::time::Duration;

use flowlane_rss::{Bucket, Rss};
use flowlane_stack::stats::Figures;
use flowlane_stack::steering::{Glance, HashSource, steer};
use flowlane_stack::time::Time;
use flowlane_stack::wire::classify;
use flowlane_sys::frame::Frame;

use super::moving::Moves;
use super::ports::Door;
use crate::events;
use crate::runtime::card::{Cards, Request};
use crate::stats::{Misdirected, SteeringStats};

/// Examples kept of frames on a wrong queue.
const EXAMPLES: usize = 8;

/// Frames on a wrong queue after which a worker says so: a few come on their way while a table is changed.
const MANY: u64 = 64;

/// How long it is before more of them are worth a word.
const AGAIN: Duration = Duration::from_millis(250);

/// How long frames on a lane's old queue still count as expected there.
const LATE: Duration = Duration::from_secs(1);

/// Packets of a bucket that may still come on a queue which is no longer theirs.
#[derive(Debug, Clone, Copy)]
struct Late {
    bucket: Bucket,
    queue: u16,
    until: Time,
}

/// A host as one worker sees it.
pub(crate) struct HostView {
    rss: Arc<Rss>,
    /// Index of its first lane among all.
    first_lane: u32,
    /// Who holds the lane of each bucket: this worker's own copy.
    owners: Vec<u16>,
    /// Queue that the card should choose for each bucket.
    queue_of: Vec<u16>,
    /// The steering is a card's own, so every frame should come on that queue.
    of_card: bool,
    /// The card's table can be changed, and this worker has a queue of it: it follows lanes that come here.
    follows: bool,
    /// Buckets whose queue has changed lately.
    late: Vec<Late>,
    /// Frames that had strayed when that was said last, and when.
    strays_told: (u64, Option<Time>),
    /// Whether the hash that comes with frames is believed.
    trust: Trust,
    /// The host's name, for messages.
    name: String,
    /// Interfaces on links that others are on: addresses are announced there, and groups reported.
    shared: Vec<u8>,
    /// For each bucket and each interface in turn, the port to send on.
    ports: Vec<usize>,
    /// Interfaces that are on links.
    interfaces: usize,
    /// How its frames arrived, by port.
    stats: Vec<SteeringStats>,
    /// Frames that came on another queue than their hash names, on all ports.
    strayed: u64,
    /// A lane here has had very many connections: bursts are looked over before they are handled.
    crowded: bool,
}

impl HostView {
    /// Of a host whose lanes begin at `first_lane`, with so many interfaces, at a worker with so many ports. `port_of`: the port on which
    /// the lane of a bucket sends for an interface.
    pub(crate) fn new(
        name: &str,
        rss: &Arc<Rss>,
        first_lane: u32,
        (interfaces, ports): (usize, usize),
        port_of: impl Fn(Bucket, usize) -> Option<usize>,
    ) -> Self {
        let buckets = || (0..rss.buckets.len()).map(|b| Bucket(b as u16));
        let of_each = buckets().flat_map(|b| (0..interfaces).map(move |i| (b, i)));
        Self {
            rss: rss.clone(),
            first_lane,
            owners: buckets().map(|b| rss.buckets.worker_of(b).0).collect(),
            queue_of: buckets().map(|b| rss.queue_of(b)).collect(),
            of_card: rss.is_of_card(),
            follows: false,
            late: Vec::new(),
            strays_told: (0, None),
            trust: Trust::default(),
            name: name.to_owned(),
            shared: Vec::new(),
            ports: of_each.filter_map(|(b, i)| port_of(b, i)).collect(),
            interfaces,
            stats: vec![SteeringStats::default(); ports],
            strayed: 0,
            crowded: false,
        }
    }

    /// With interfaces on links that others are on.
    pub(crate) fn sharing(self, interfaces: Vec<u8>) -> Self {
        Self { shared: interfaces, ..self }
    }

    /// `follows`: the card's table can be changed, and this worker has a queue of it.
    pub(crate) fn following(self, follows: bool) -> Self {
        Self { follows, ..self }
    }

    /// The host's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Interfaces on links that others are on.
    pub(super) fn shared(&self) -> &[u8] {
        &self.shared
    }

    /// For each interface, the port that the lane of a bucket sends on.
    #[inline]
    pub(super) fn ports_of(&self, bucket: Bucket) -> &[usize] {
        let first = usize::from(bucket.0) * self.interfaces;
        &self.ports[first..first + self.interfaces]
    }

    /// Index of a bucket's lane among all, and the worker that holds it.
    #[inline]
    pub(super) fn lane_of(&self, bucket: Bucket) -> (u32, usize) {
        (lane_index(self.first_lane, bucket), usize::from(self.owners[usize::from(bucket.0)]))
    }

    /// Index of the lane that a frame is for, as far as can be told without handling it.
    pub(super) fn lane_ahead(&self, frame: &mut Frame) -> u32 {
        let meta = *frame.meta();
        let (bucket, _) = steer(&self.rss, frame);
        // To be steered once more, as if for the first time.
        *frame.meta_mut() = meta;
        lane_index(self.first_lane, bucket)
    }

    /// Whether a lane here has had very many connections.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// A lane here has been looked after.
    #[inline]
    pub(super) fn note_crowd(&mut self, crowded: bool) {
        self.crowded |= crowded;
    }

    /// The queue that the card should choose for a bucket, if its table can be changed and this worker has a queue of it.
    pub(super) fn followed_queue(&self, bucket: Bucket) -> Option<u16> {
        self.follows.then(|| self.queue_of[usize::from(bucket.0)])
    }

    /// A bucket's packets come on another queue now; the one before. For a while they may still come on that one, too.
    pub(super) fn requeue(&mut self, bucket: Bucket, queue: u16, now: Time) -> u16 {
        let old = std::mem::replace(&mut self.queue_of[usize::from(bucket.0)], queue);
        // Of a bucket that moves again before that time is over, packets may still be on their way to each of its old queues.
        // Guard: `(late.bucket, late.queue) != (bucket, old)` as `late.bucket != bucket` fails
        // moving::tests::every_late_queue
        self.late.retain(|late| late.until > now && (late.bucket, late.queue) != (bucket, old));
        self.late.push(Late { bucket, queue: old, until: now + LATE });
        old
    }

    /// The lane of a bucket sends on another port from now on.
    pub(super) fn send_on(&mut self, bucket: Bucket, interface: u8, port: usize) {
        let at = usize::from(bucket.0) * self.interfaces + usize::from(interface);
        if let Some(sends_on) = self.ports.get_mut(at) {
            *sends_on = port;
        }
    }

    /// How many of its buckets' packets come on queues for which `is_here` holds.
    pub(super) fn buckets_on(&self, is_here: impl Fn(u16) -> bool) -> usize {
        self.queue_of.iter().filter(|queue| is_here(**queue)).count()
    }

    /// How its frames arrived, on all ports.
    pub(super) fn arrived(&self) -> SteeringStats {
        let mut all = SteeringStats::default();
        self.stats.iter().for_each(|stats| all.add(stats));
        all
    }

    /// How its frames arrived on a port; and whether the steering is a card's own.
    pub(super) fn arrived_on(&self, port: usize) -> (SteeringStats, bool) {
        (self.stats[port], self.of_card)
    }
}

/// Where a frame came from: an interface, by a port and the number of its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) door: Door,
    pub(super) port: usize,
    pub(super) queue: u16,
}

/// Where frames that follow one another go: a lane, and the worker that has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Led {
    pub(super) lane: u32,
    pub(super) owner: usize,
    pub(super) frames: usize,
}

/// Notes where frames go that follow those noted before.
#[inline(always)]
fn note(led: &mut Vec<Led>, next: Led) {
    match led.last_mut() {
        Some(last) if (last.lane, last.owner) == (next.lane, next.owner) => last.frames += next.frames,
        _ => led.push(next),
    }
}

/// What steering needs of the worker that does it.
pub(super) struct Here<'a> {
    pub(super) index: usize,
    pub(super) now: Time,
    pub(super) moves: &'a Moves,
}

/// All hosts at one worker.
pub(crate) struct Hosts {
    all: Vec<HostView>,
    cards: Arc<Cards>,
    /// Examples of frames that came on a wrong queue.
    misdirected: Vec<Misdirected>,
}

impl Hosts {
    pub(super) fn new(all: Vec<HostView>, cards: Arc<Cards>) -> Self {
        Self { all, cards, misdirected: Vec::new() }
    }

    #[inline]
    pub(super) fn get(&self, host: usize) -> &HostView {
        &self.all[host]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, host: usize) -> &mut HostView {
        &mut self.all[host]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HostView> {
        self.all.iter()
    }

    /// The interfaces of all hosts that are on links which others are on.
    pub(super) fn shared_interfaces(&self) -> Vec<(usize, u8)> {
        let of = |(h, host): (usize, &HostView)| host.shared.clone().into_iter().map(move |i| (h, i));
        self.all.iter().enumerate().flat_map(of).collect()
    }

    /// Host and bucket of a lane.
    pub(super) fn place_of(&self, lane: u32) -> Option<(usize, Bucket)> {
        let host = self.all.iter().rposition(|h| h.first_lane <= lane)?;
        Some((host, Bucket((lane - self.all[host].first_lane) as u16)))
    }

    /// Who holds a lane by this worker's own map.
    pub(super) fn owner_of(&self, lane: u32) -> Option<usize> {
        let (host, bucket) = self.place_of(lane)?;
        Some(usize::from(self.all[host].owners[usize::from(bucket.0)]))
    }

    /// Notes who holds a lane.
    pub(super) fn set_owner(&mut self, lane: u32, owner: usize) {
        if let Some((host, bucket)) = self.place_of(lane) {
            self.all[host].owners[usize::from(bucket.0)] = owner as u16;
        }
    }

    /// The thread that changes the cards' tables is asked for something.
    pub(super) fn ask_card(&self, request: Request) {
        self.cards.ask(request);
    }

    /// Examples of frames that came on a wrong queue.
    pub(super) fn examples(&self) -> Vec<Misdirected> {
        self.misdirected.clone()
    }

    /// As [`Hosts::steer`] of each frame of a burst: where they go, in order, is put into `led`.
    // A function of its own, whose loop has all registers for itself.
    #[inline(never)]
    pub(super) fn steer_burst<'a>(
        &mut self,
        index: usize,
        here: impl Fn() -> Here<'a>,
        arrival: Arrival,
        burst: &mut [Frame],
        led: &mut Vec<Led>,
    ) {
        let mut rest = burst;
        loop {
            let n = match rest.first() {
                Some(frame) if frame.meta().hash_type != 0 => self.steer_plain(index, arrival, rest, led),
                _ => 0,
            };
            let Some((frame, after)) = rest[n..].split_first_mut() else { return };
            let (lane, owner) = self.steer(index, &here, arrival, frame);
            note(led, Led { lane, owner, frames: 1 });
            rest = after;
        }
    }

    /// Steers the first frames of a burst, up to one whose hash did not come with it or is to be looked at, or whose lane is another worker's;
    /// returns how many. What nearly all frames are of asks for little, and nothing that is the same for all.
    #[inline(always)]
    fn steer_plain(
        &mut self,
        index: usize,
        arrival: Arrival,
        burst: &mut [Frame],
        led: &mut Vec<Led>,
    ) -> usize {
        let Arrival { door, port, queue } = arrival;
        let HostView { rss, trust, queue_of, owners, stats, first_lane, .. } = &mut self.all[door.host];
        let glance = Glance::new(rss);
        // Of how many the places are noted, and the lane of those after them.
        let (mut n, mut noted, mut last) = (0, 0, u32::MAX);
        let most = burst.len().min(trust.left());
        for frame in &mut burst[..most] {
            frame.meta_mut().interface = door.interface;
            let Some(bucket) = glance.bucket(frame) else { break };
            let at = usize::from(bucket.0);
            let here =
                queue_of.get(at) == Some(&queue) && owners.get(at).is_some_and(|w| usize::from(*w) == index);
            if !here {
                break;
            }
            let lane = lane_index(*first_lane, bucket);
            if lane != last {
                if n > noted {
                    note(led, Led { lane: last, owner: index, frames: n - noted });
                }
                (noted, last) = (n, lane);
            }
            n += 1;
        }
        if n > noted {
            note(led, Led { lane: last, owner: index, frames: n - noted });
        }
        trust.used(n);
        let stats = &mut stats[port];
        stats.received += n as u64;
        stats.hash_delivered += n as u64;
        stats.aligned += n as u64;
        n
    }

    /// Index of the lane that a frame is for, and the worker that has it. `here`: the worker that steers, asked only where it matters, so
    /// that nothing is put together for each frame.
    #[inline]
    pub(super) fn steer<'a>(
        &mut self,
        index: usize,
        here: impl Fn() -> Here<'a>,
        arrival: Arrival,
        frame: &mut Frame,
    ) -> (u32, usize) {
        let Arrival { door, port, queue } = arrival;
        let host = &mut self.all[door.host];
        let stats = &mut host.stats[port];
        stats.received += 1;
        frame.meta_mut().interface = door.interface;
        if host.trust.is_lost() {
            frame.meta_mut().hash_type = 0;
        }
        let (mut bucket, source) = steer(&host.rss, frame);
        match source {
            HashSource::Delivered => {
                let strayed = host.queue_of[usize::from(bucket.0)] != queue;
                if strayed || host.trust.is_due() {
                    bucket = self.check(&here(), arrival, bucket, frame);
                } else {
                    stats.hash_delivered += 1;
                }
            }
            HashSource::Computed => {
                stats.hash_computed += 1;
                if host.of_card && host.queue_of[usize::from(bucket.0)] != queue {
                    self.misdirected(&here(), arrival, bucket, frame);
                }
            }
            HashSource::None => stats.no_flow += 1,
        }
        let host = &mut self.all[door.host];
        let (lane, owner) = host.lane_of(bucket);
        let stats = &mut host.stats[port];
        if owner == index {
            stats.aligned += 1;
        } else {
            stats.redirected += 1;
            if source == HashSource::None {
                stats.redirected_no_flow += 1;
            } else if host.of_card && host.queue_of[usize::from(bucket.0)] == queue {
                stats.redirected_away += 1;
            }
        }
        (lane, owner)
    }

    /// Compares a delivered hash with ours: it named another queue than the frame came on, or it is this frame's turn. The bucket
    /// by the hash that is right.
    #[cold]
    fn check(&mut self, here: &Here<'_>, arrival: Arrival, bucket: Bucket, frame: &mut Frame) -> Bucket {
        let Arrival { door, port, queue } = arrival;
        let host = &mut self.all[door.host];
        let delivered = frame.meta().hash;
        frame.meta_mut().hash_type = 0;
        let (computed, _) = steer(&host.rss, frame);
        let stats = &mut host.stats[port];
        if frame.meta().hash == delivered {
            stats.hash_delivered += 1;
            if host.queue_of[usize::from(bucket.0)] != queue {
                self.misdirected(here, arrival, bucket, frame);
            }
            return bucket;
        }
        stats.hash_computed += 1;
        stats.foreign_hash += 1;
        if host.trust.lose() {
            events::foreign_hash(&host.name, &flow_in_words(frame), delivered, frame.meta().hash);
        }
        if host.of_card && host.queue_of[usize::from(computed.0)] != queue {
            self.misdirected(here, arrival, computed, frame);
        }
        computed
    }

    /// A frame came on another queue than its hash and the card's table name.
    #[cold]
    fn misdirected(&mut self, here: &Here<'_>, arrival: Arrival, bucket: Bucket, frame: &Frame) {
        let Arrival { door, port, queue } = arrival;
        let (host, now) = (&mut self.all[door.host], here.now);
        // The card was asked to send the bucket's packets elsewhere, and this one was on its way.
        let late =
            host.late.iter().any(|late| (late.bucket, late.queue) == (bucket, queue) && late.until > now);
        // Or has done so already, and its answer is on the way.
        let (lane, owner) = host.lane_of(bucket);
        if late || here.moves.is_awaited(lane) {
            host.stats[port].redirected_late += u64::from(owner != here.index);
            return;
        }
        host.stats[port].misdirected += 1;
        host.strayed += 1;
        if self.misdirected.len() < EXAMPLES {
            let expected_queue = host.queue_of[usize::from(bucket.0)];
            let (flow, hash) = (flow_in_words(frame), frame.meta().hash);
            self.misdirected.push(Misdirected { flow, hash, expected_queue, queue });
        }
        if !host.of_card {
            return;
        }
        if self.cards.look_after(door.host) {
            let (told, when) = host.strays_told;
            let again = when.is_none_or(|when| now.saturating_duration_since(when) >= AGAIN);
            if host.strayed - told >= MANY && again {
                host.strays_told = (host.strayed, Some(now));
                self.cards.ask(Request::Strayed { host: door.host });
            }
        } else if host.strayed == MANY {
            events::strays(&host.name);
        }
    }
}

/// Index of a bucket's lane among all lanes.
#[inline]
pub(crate) fn lane_index(first: u32, bucket: Bucket) -> u32 {
    first + u32::from(bucket.0)
}

fn flow_in_words(frame: &Frame) -> String {
    match classify(frame.data()).flow() {
        Some(flow) => {
            let ports = flow.ports.map_or(String::new(), |(s, d)| format!(" ports {s} > {d}"));
            format!("{} > {} {}{ports}", flow.addresses.src(), flow.addresses.dst(), flow.protocol)
        }
        None => "no flow".into(),
    }
}
