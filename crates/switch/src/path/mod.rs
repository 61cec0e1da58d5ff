//! What a frame passes: `ingress`, the table, `egress`; and the [`Switch`] that joins them. `forward` is the way of each frame, `many` that of
//! frames for several ports; `state` looks into the switch and brings it news.
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
mod forward;
mod ingress;
mod many;
mod rules;
mod state;

pub use egress::Output;
pub use events::{Event, News};

use flowlane_stack::time::Time;
use flowlane_stack::wire::MacAddr;
use flowlane_sys::frame::Pool;

use crate::config::{Change, Config, ConfigError, Flags, Flush, PortConfig};
use crate::drops::{Drop, PortCounters};
use crate::loops::Loops;
use crate::ports::{PortId, PortSet};
use crate::rate::Rate;
use crate::seed::Seed;
use crate::snoop::{Listeners, Snoop};
use crate::storm::Storm;
use crate::table::{Entry, Table};
use events::Events;
use ingress::Look;
use rules::Rules;

/// Frames that are handled together.
pub const BURST: usize = 64;
/// Addresses that are forgotten in one call of [`Switch::tick`].
const EXPIRE: usize = 512;
/// Of queries, where they leave with a tag: control of the network (IEEE 802.1Q annex I).
const QUERY_PRIORITY: u16 = 6;

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
            snoop: Snoop::new(seed),
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

    /// Takes another configuration. Ports may have been added ([`Config::with_port`]), whose links are down, or removed
    /// ([`Config::without_port`]). Addresses stay where the new one could have learnt them; with another mode or another
    /// way to learn all are forgotten.
    ///
    /// # Errors
    /// What [`Config::check`] finds, ports of other names, or what takes effect at the start only. Nothing is changed then.
    pub fn configure(&mut self, config: Config, now: Time) -> Result<(), ConfigError> {
        config.check()?;
        let same = |(old, new): (&PortConfig, &PortConfig)| old.vacant || new.vacant || old.name == new.name;
        if config.ports.len() < self.ports.len() || !self.config.ports.iter().zip(&config.ports).all(same) {
            return Err(ConfigError("ports cannot be renamed while the switch runs".to_owned()));
        }
        if (config.addresses, config.ageing) != (self.config.addresses, self.config.ageing) {
            return Err(ConfigError(
                "addresses and ageing take effect at the start only: restart the switch".to_owned(),
            ));
        }
        let anew = config.mode != self.config.mode || config.shared != self.config.shared;
        self.ports.resize_with(config.ports.len(), Port::default);
        self.link_mtu.resize(config.ports.len(), u32::MAX);
        for port in self.config.all().without(config.all()) {
            self.vacate(port);
        }
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

    /// Forgets a port: the next of its number finds nothing of it.
    fn vacate(&mut self, port: PortId) {
        self.set_link(port, false);
        self.loops.forget(port);
        self.ports[port.index()] = Port::default();
        self.link_mtu[port.index()] = u32::MAX;
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
        self.snoop.configure(&self.config, now);
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
        // Guard: `!self.config.all().has(port)` as `port.index() >= self.ports.len()` fails
        // switch/config::ports_come_and_go
        if self.up.has(port) == up || !self.config.all().has(port) {
            return;
        }
        self.up.set(port, up);
        if up {
            self.snoop.link_up();
        } else {
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

    /// Asks who listens to groups, if it is time. Of several instances one does so.
    pub fn query(&mut self, now: Time, pool: &Pool, output: &mut Output) {
        let Some(question) = self.snoop.ask(now) else { return };
        let vlan = self.rules.vlan(question.vid);
        let ports = question.port.map_or(vlan.members, PortId::alone).and(vlan.members).and(self.open);
        for port in ports {
            let Some(frame) = self.snoop.query(question, port, pool) else {
                self.drop(port, Drop::NoFrame);
                continue;
            };
            let payload = frame.len().saturating_sub(ingress::HEADER) as u32;
            let tci = QUERY_PRIORITY << 13 | question.vid;
            let look = Look { vid: question.vid, tci, payload, ..Look::default() };
            self.ports[port.index()].counters.queries += 1;
            self.send(port, &look, vlan, frame, output);
        }
    }

    /// When the next query is due.
    #[must_use]
    pub fn query_due(&self) -> Time {
        self.snoop.deadline()
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
