//! What a frame passes: `ingress`, the table, `egress`; and the [`Switch`] that joins them.
//!
//! A burst of frames of one port is handled in two rounds. The first looks at every frame and asks for the memory of its addresses' entries; the
//! second learns, decides and sends. So the reads of a burst overlap, and a large table costs little more than a small one.
//!
//! ```text
//!   look ─▶ refused? ─▶ learn source ─▶ station? ─ known ───▶ dress ─▶ output
//!                                          │ unknown, group ─▶ targets ─▶ storm ─▶ copies ─▶ dress ─▶ output
//! ```

mod egress;
mod events;
mod ingress;
mod rules;
mod state;

pub use egress::Output;
pub use events::{Event, News};

use flowlane_stack::time::Time;
use flowlane_stack::wire::MacAddr;
use flowlane_sys::frame::{Frame, Pool};

use crate::config::{Change, Config, ConfigError, Flags, Flush};
use crate::drops::{Drop, PortCounters};
use crate::loops::Loops;
use crate::ports::{PortId, PortSet};
use crate::rate::Rate;
use crate::seed::Seed;
use crate::snoop::{self, Heard, Listeners, Snoop};
use crate::storm::{Flood, Storm};
use crate::table::{Entry, Learnt, Table};
use events::Events;
use ingress::{BROADCAST, GROUP, Look};
use rules::{PortRules, Rules, Vlan};

/// Frames that are handled together.
pub const BURST: usize = 64;
/// Addresses that are forgotten in one call of [`Switch::tick`].
const EXPIRE: usize = 512;

/// A switch, as one thread has it.
#[derive(Debug)]
pub struct Switch {
    config: Config,
    seed: Seed,
    workers: u32,
    rules: Rules,
    table: Table,
    snoop: Snoop,
    loops: Loops,
    ports: Vec<Port>,
    /// The longest payload that each port's link takes, bytes.
    link_mtu: Vec<u32>,
    /// Ports whose link is up.
    up: PortSet,
    /// Of these, those that are not blocked and no monitors: where frames may come and go.
    open: PortSet,
    events: Events,
    looks: Vec<Look>,
}

/// What changes with the frames of one port.
#[derive(Debug, Default)]
struct Port {
    counters: PortCounters,
    storm: Storm,
    moves: Rate,
    /// The one source address that may send (`firstlock`), and since when.
    lock: Option<(u64, Time)>,
}

impl Switch {
    /// A switch of this configuration, all links down. `workers` such instances work as one: each has its share of the limits, and if there
    /// are several, what one learns is [`News`] for the others.
    ///
    /// # Errors
    /// What [`Config::check`] finds.
    pub fn new(config: Config, seed: Seed, workers: u32, now: Time) -> Result<Switch, ConfigError> {
        config.check()?;
        let ageing = core::time::Duration::from_secs(config.ageing.into());
        let mut this = Switch {
            rules: Rules::new(&config, seed.switch_id()),
            table: Table::new(seed, config.addresses, ageing, now),
            snoop: Snoop::new(seed, config.ports.len()),
            loops: Loops::new(seed, now),
            ports: config.ports.iter().map(|_| Port::default()).collect(),
            link_mtu: vec![u32::MAX; config.ports.len()],
            up: PortSet::NONE,
            open: PortSet::NONE,
            events: Events::new(workers > 1),
            looks: Vec::with_capacity(BURST),
            config,
            seed,
            workers,
        };
        this.settle_config(now);
        Ok(this)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes another configuration of the same ports. Addresses stay where the new one could have learnt them; with another mode or another
    /// way to learn all are forgotten.
    ///
    /// # Errors
    /// What [`Config::check`] finds, other ports, or what takes effect at the start only. Nothing is changed then.
    pub fn configure(&mut self, config: Config, now: Time) -> Result<(), ConfigError> {
        config.check()?;
        let names = |config: &Config| config.ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
        if names(&config) != names(&self.config) {
            return Err(ConfigError(
                "ports cannot be added, removed or renamed while the switch runs".to_owned(),
            ));
        }
        if (config.addresses, config.ageing) != (self.config.addresses, self.config.ageing) {
            return Err(ConfigError(
                "addresses and ageing take effect at the start only: restart the switch".to_owned(),
            ));
        }
        let anew = config.mode != self.config.mode || config.shared != self.config.shared;
        self.config = config;
        self.rules = Rules::new(&self.config, self.seed.switch_id());
        let rules = &self.rules;
        self.table.retain(|entry| !anew && !entry.is_static && rules.has_member(entry.fid, entry.port));
        if anew || !self.config.snooping {
            self.snoop.clear();
        }
        self.settle_config(now);
        Ok(())
    }

    /// Takes the change that words asked for.
    ///
    /// # Errors
    /// As [`Switch::configure`].
    pub fn change(&mut self, change: Change, now: Time) -> Result<(), ConfigError> {
        if change.config != self.config {
            self.configure(change.config, now)?;
        }
        for flush in change.flush {
            self.flush(flush);
        }
        Ok(())
    }

    /// Brings everything that follows from the configuration up to it.
    fn settle_config(&mut self, now: Time) {
        for (n, (state, port)) in self.ports.iter_mut().zip(&self.config.ports).enumerate() {
            state.storm = Storm::new(port.storm, self.workers);
            state.moves = Rate::new(Some(self.config.moves.div_ceil(self.workers.max(1))));
            if !port.flags.has(Flags::FIRSTLOCK) {
                state.lock = None;
            }
            let of_port = &mut self.rules.ports[n];
            of_port.mtu = u32::from(port.mtu).min(self.link_mtu[n]);
            if let Some(id) = PortId::new(n) {
                self.table.bound(id, port.addresses.unwrap_or(u32::MAX));
            }
        }
        for ((vlan, mac), port) in &self.config.statics {
            let fid = if self.config.shared { 0 } else { *vlan };
            let place = self.table.place(fid, number(*mac));
            if !self.table.set_static(place, *port) {
                // What was learnt makes room for what is configured.
                self.table.retain(|entry| entry.is_static);
                self.table.set_static(place, *port);
            }
        }
        self.loops.configure(&self.config);
        self.open_ports();
        self.tick(now);
    }

    fn open_ports(&mut self) {
        self.open = self.up.without(self.loops.blocked()).without(self.rules.monitors);
    }

    /// Forgets learnt addresses; how many.
    pub fn flush(&mut self, flush: Flush) -> usize {
        match flush {
            Flush::All => PortSet::first(self.ports.len()).map(|port| self.table.flush(port)).sum(),
            Flush::Port(port) => self.table.flush(port),
            Flush::Vlan(_) if self.config.shared => self.flush(Flush::All),
            Flush::Vlan(vlan) => self.table.retain(|entry| entry.is_static || entry.fid != vlan),
        }
    }

    /// A port's link has come up or gone down. With the link go the addresses learnt there, and no others.
    pub fn set_link(&mut self, port: PortId, up: bool) {
        if self.up.has(port) == up || port.index() >= self.ports.len() {
            return;
        }
        self.up.set(port, up);
        if !up {
            self.table.flush(port);
            self.snoop.flush(port);
            self.ports[port.index()].lock = None;
        }
        self.open_ports();
    }

    /// The longest payload that a port's link takes, bytes. The port's MTU is never longer.
    pub fn set_link_mtu(&mut self, port: PortId, mtu: u32) {
        let Some(known) = self.link_mtu.get_mut(port.index()) else { return };
        *known = mtu;
        self.rules.ports[port.index()].mtu = mtu.min(self.config.ports[port.index()].mtu.into());
    }

    /// Handles frames that came on a port, in their order, and leaves `frames` empty. Copies come from the pool of this thread.
    pub fn forward(&mut self, port: PortId, frames: &mut Vec<Frame>, now: Time, output: &mut Output) {
        let Some(state) = self.ports.get_mut(port.index()) else {
            frames.clear();
            return;
        };
        state.counters.received += frames.len() as u64;
        if !self.open.has(port) {
            self.closed(port, frames, now);
            return;
        }
        let of_port = self.rules.ports[port.index()];
        if ingress::settles(&self.rules, &of_port) {
            frames.iter_mut().for_each(ingress::settle);
        }
        let mut frames = frames.drain(..);
        while !frames.as_slice().is_empty() {
            let mut looks = core::mem::take(&mut self.looks);
            looks.clear();
            let count = frames.len().min(BURST);
            let mut bytes = 0;
            for frame in &frames.as_slice()[..count] {
                let mut look = ingress::look(frame, &self.rules, port, &of_port);
                bytes += u64::from(look.len);
                if look.refused.is_none() {
                    let fid = self.rules.vlan(look.vid).fid;
                    look.src_place = self.table.place(fid, look.src);
                    self.table.prefetch(look.src_place);
                    if look.dst & GROUP == 0 {
                        look.dst_place = self.table.place(fid, look.dst);
                        self.table.prefetch(look.dst_place);
                    }
                }
                looks.push(look);
            }
            self.ports[port.index()].counters.received_bytes += bytes;
            for (look, frame) in looks.iter().zip(frames.by_ref()) {
                self.decide(port, &of_port, look, frame, now, output);
            }
            self.looks = looks;
        }
    }

    /// Frames on a port that is closed.
    #[cold]
    fn closed(&mut self, port: PortId, frames: &mut Vec<Frame>, now: Time) {
        let why = if !self.up.has(port) {
            Drop::LinkDown
        } else if self.rules.monitors.has(port) {
            Drop::Monitor
        } else {
            Drop::Blocked
        };
        for frame in frames.drain(..) {
            self.ports[port.index()].counters.received_bytes += frame.chain_len() as u64;
            // A probe that still comes keeps the port blocked.
            self.loops.received(frame.data(), port, now);
            self.drop(port, why);
        }
    }

    #[inline]
    fn drop(&mut self, port: PortId, why: Drop) {
        self.ports[port.index()].counters.drop(why, 1);
    }

    /// Counts frames that were lost behind the switch: the link of `port` took no more.
    pub fn lost(&mut self, port: PortId, why: Drop, frames: u64) {
        self.ports[port.index()].counters.drop(why, frames);
    }

    #[inline]
    fn decide(
        &mut self,
        port: PortId,
        of_port: &PortRules,
        look: &Look,
        frame: Frame,
        now: Time,
        output: &mut Output,
    ) {
        if let Some(why) = look.refused {
            return self.refuse(port, why, &frame, now);
        }
        // A probe earlier in the burst may have closed the port.
        if !self.open.has(port) {
            return self.drop(port, Drop::Blocked);
        }
        let vlan = self.rules.vlan(look.vid);
        if of_port.flags.has(Flags::FIRSTLOCK) && !self.unlocked(port, look.src, now) {
            return self.drop(port, Drop::Locked);
        }
        // Only members learn (802.1Q §8.7).
        if vlan.members.has(port) && !self.learn(port, look, vlan.fid, now) {
            return self.drop(port, Drop::StaticElsewhere);
        }
        let reach = vlan.members.and(of_port.reach).and(self.open);
        if look.dst & GROUP != 0 {
            return self.grouped(port, look, vlan, reach, frame, now, output);
        }
        match self.table.lookup(look.dst_place) {
            Some(to) if reach.has(to) => {
                if self.rules.mirror.is_some() {
                    self.mirror(port, look, to.alone(), &frame, output);
                }
                self.send(to, look, vlan, frame, output);
            }
            Some(to) if to == port => self.drop(port, Drop::Local),
            Some(_) => self.drop(port, Drop::NotReachable),
            None => self.flood(port, look, vlan, (reach, Flood::Unknown), frame, now, output),
        }
    }

    #[cold]
    fn refuse(&mut self, port: PortId, why: Drop, frame: &Frame, now: Time) {
        self.drop(port, why);
        if why == Drop::Probe {
            if let Some(from) = self.loops.received(frame.data(), port, now) {
                self.events.blocked(port, from, self.loops.until(port));
                self.table.flush(port);
                self.open_ports();
            }
        }
    }

    /// Takes note of a source address. `false`: it is configured on another port.
    #[inline]
    fn learn(&mut self, port: PortId, look: &Look, fid: u16, now: Time) -> bool {
        let moves = &mut self.ports[port.index()].moves;
        match self.table.learn(look.src_place, port, || moves.allows(now)) {
            Learnt::Known { again: false } => true,
            learnt => self.learnt(port, look.src, fid, learnt, now),
        }
    }

    #[cold]
    fn learnt(&mut self, port: PortId, mac: u64, fid: u16, learnt: Learnt, now: Time) -> bool {
        let counters = &mut self.ports[port.index()].counters;
        match learnt {
            Learnt::Static => return false,
            Learnt::Full => {
                counters.not_learnt += 1;
                return true;
            }
            Learnt::Held { .. } => {
                counters.moves_refused += 1;
                self.loops.suspect(port);
                return true;
            }
            Learnt::New => counters.learnt += 1,
            Learnt::Moved { from } => {
                counters.moved += 1;
                self.events.moved(fid, mac, from, port, now);
            }
            Learnt::Known { .. } => {}
        }
        self.events.news(News::Address { fid, mac, port });
        true
    }

    #[cold]
    fn unlocked(&mut self, port: PortId, src: u64, now: Time) -> bool {
        let lock = &mut self.ports[port.index()].lock;
        let (mac, since) = *lock.get_or_insert((src, now));
        if since == now && mac == src {
            self.events.news(News::Lock { port, mac: src, since });
        }
        mac == src
    }

    #[cold]
    #[expect(clippy::too_many_arguments, reason = "what a frame's way depends on")]
    fn grouped(
        &mut self,
        port: PortId,
        look: &Look,
        vlan: Vlan,
        reach: PortSet,
        frame: Frame,
        now: Time,
        output: &mut Output,
    ) {
        if look.dst == BROADCAST {
            return self.flood(port, look, vlan, (reach, Flood::Broadcast), frame, now, output);
        }
        if !self.rules.snooping {
            return self.flood(port, look, vlan, (reach, Flood::Multicast), frame, now, output);
        }
        let report = self.overhear(port, look, &frame, now);
        let targets = match report {
            Some(v4) => self.snoop.routers(look.vid, v4),
            None => self.snoop.targets(look.vid, look.dst),
        };
        let Some(targets) = targets else {
            return self.flood(port, look, vlan, (reach, Flood::Multicast), frame, now, output);
        };
        let targets = targets.and(reach);
        if targets.is_empty() {
            return self.drop(port, Drop::NoListener);
        }
        self.ports[port.index()].counters.snooped += 1;
        self.multiply(port, look, vlan, targets, frame, output);
    }

    /// Reads what hosts and routers say of groups. `Some(v4)` if it is for routers alone.
    fn overhear(&mut self, port: PortId, look: &Look, frame: &Frame, now: Time) -> Option<bool> {
        let data = frame.data();
        let at = 12 + if look.carried == ingress::Carried::Inside { 4 } else { 0 };
        let kind = data.get(at..at + 2).map(|k| u16::from_be_bytes([k[0], k[1]]))?;
        let packet = data.get(at + 2..)?;
        let (snoop, events) = (&mut self.snoop, &mut self.events);
        snoop::read(kind, packet, &mut |heard: Heard| {
            snoop.heard(look.vid, port, heard, now);
            events.news(News::Group { vid: look.vid, port, heard });
        })
    }

    /// Sends to every port of `reach`.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "what a frame's way depends on")]
    fn flood(
        &mut self,
        port: PortId,
        look: &Look,
        vlan: Vlan,
        (reach, kind): (PortSet, Flood),
        frame: Frame,
        now: Time,
        output: &mut Output,
    ) {
        if reach.is_empty() {
            return self.drop(port, Drop::Nowhere);
        }
        let state = &mut self.ports[port.index()];
        if !state.storm.allows(kind, now) {
            return self.drop(port, kind.drop());
        }
        let counter = match kind {
            Flood::Unknown => &mut state.counters.flood_unknown,
            Flood::Broadcast => &mut state.counters.flood_broadcast,
            Flood::Multicast => &mut state.counters.flood_multicast,
        };
        *counter += 1;
        self.multiply(port, look, vlan, reach, frame, output);
    }

    /// Sends a copy to every target, and the frame itself to the last.
    fn multiply(
        &mut self,
        port: PortId,
        look: &Look,
        vlan: Vlan,
        mut targets: PortSet,
        frame: Frame,
        output: &mut Output,
    ) {
        if self.rules.mirror.is_some() {
            self.mirror(port, look, targets, &frame, output);
        }
        while let Some(to) = targets.next() {
            if targets.is_empty() {
                return self.send(to, look, vlan, frame, output);
            }
            match egress::copy(&frame) {
                Some(copy) => {
                    self.ports[to.index()].counters.copies += 1;
                    self.send(to, look, vlan, copy, output);
                }
                None => self.drop(to, Drop::NoFrame),
            }
        }
    }

    /// Sends a frame by a port, in its VLAN.
    #[inline]
    fn send(&mut self, to: PortId, look: &Look, vlan: Vlan, mut frame: Frame, output: &mut Output) {
        let counters = &mut self.ports[to.index()].counters;
        if look.payload > self.rules.ports[to.index()].mtu {
            return counters.drop(Drop::Oversize, 1);
        }
        if self.rules.tpid != 0 {
            let wanted = vlan.tagged.has(to).then_some(look.tci);
            if let Err(why) = egress::dress(&mut frame, look.carried, wanted, self.rules.tpid) {
                return counters.drop(why, 1);
            }
        }
        let len = frame.chain_len() as u64;
        if output.push(to, frame) {
            counters.sent += 1;
            counters.sent_bytes += len;
        } else {
            counters.drop(Drop::QueueFull, 1);
        }
    }

    /// A copy for the port that watches, as the frame came.
    #[cold]
    fn mirror(&mut self, port: PortId, look: &Look, targets: PortSet, frame: &Frame, output: &mut Output) {
        let Some(mirror) = self.rules.mirror else { return };
        let watched = mirror.ports.has(port)
            || !mirror.ports.and(targets).is_empty()
            || self.rules.tpid != 0 && mirror.vlan == Some(look.vid);
        if !watched || !self.up.has(mirror.to) {
            return;
        }
        let Some(copy) = egress::copy(frame) else { return self.drop(mirror.to, Drop::NoFrame) };
        let counters = &mut self.ports[mirror.to.index()].counters;
        let len = copy.chain_len() as u64;
        if look.payload > self.rules.ports[mirror.to.index()].mtu {
            counters.drop(Drop::Oversize, 1);
        } else if output.push(mirror.to, copy) {
            counters.mirrored += 1;
            counters.sent += 1;
            counters.sent_bytes += len;
        } else {
            counters.drop(Drop::QueueFull, 1);
        }
    }

    /// Does what is due: forgets old addresses and groups, unblocks ports. Call it ten times a second; its cost is that of what expires.
    pub fn tick(&mut self, now: Time) {
        let ports = &mut self.ports;
        self.table.expire(now, EXPIRE, |port| ports[port.index()].counters.aged += 1);
        self.snoop.expire(now);
        let over = self.loops.unblock(now);
        for port in over {
            self.events.unblocked(port);
        }
        self.open_ports();
    }

    /// Sends the probe that is due, if one is. Of several instances one does so.
    pub fn probe(&mut self, now: Time, pool: &Pool, output: &mut Output) {
        let Some(port) = self.loops.next(now) else { return };
        if !self.up.has(port) || self.rules.monitors.has(port) {
            return;
        }
        let Some(frame) = self.loops.probe(port, pool) else { return self.drop(port, Drop::NoFrame) };
        let len = frame.len() as u64;
        if output.push(port, frame) {
            let counters = &mut self.ports[port.index()].counters;
            counters.sent += 1;
            counters.sent_bytes += len;
        }
    }

    /// When the next probe is due.
    #[must_use]
    pub fn probe_due(&self) -> Time {
        self.loops.deadline()
    }
}

fn number(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
