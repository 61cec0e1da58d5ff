//! Who listens to a multicast group: IGMP and MLD snooping (RFC 4541).
//!
//! Reports say on which ports a group has listeners, queries where the router (the *querier*) is. Frames to a group go to both. Where nobody
//! asks nobody repeats the reports, so then all groups are flooded. The switch asks itself if it is told to (`querier.rs`). Always flooded are
//! 224.0.0.0/24, ff02::1, the solicited-node groups of neighbour discovery, and groups of other protocols.
//!
//! Groups are kept by Ethernet address, as the frames are forwarded: 32 groups of IPv4 share one. The table is of fixed size, and a port has a
//! bounded share of it. If it is full, groups that it does not have are flooded. Times are those of RFC 3376 §8, by the query interval.

mod messages;
mod querier;
mod query;
#[cfg(test)]
mod tests;

pub(crate) use messages::read;
pub use querier::Asks;
pub(crate) use querier::Question;

use core::net::IpAddr;
use core::time::Duration;

use flowlane_stack::time::Time;
use flowlane_stack::wire::MacAddr;
use flowlane_sys::frame::{Frame, Pool};
use querier::{Querier, ROBUSTNESS};

use crate::config::Config;
use crate::ports::{MAX_PORTS, PortId, PortSet};
use crate::seed::{Seed, mix};

/// Groups of all VLANs, and places of routers.
const GROUPS: usize = 1024;
/// Groups of one port.
const GROUPS_OF_PORT: u32 = 256;
const HEADS: usize = 2 * GROUPS;
/// After a leave the others have so many seconds to answer the router's question (RFC 3376 §8.8), and one more to answer the switch's own.
const LEAVES: u32 = 2;
const NONE: u32 = u32::MAX;

/// What somebody behind a port has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// "I listen" to the group of this Ethernet address.
    Join(u64),
    /// "I stop", and which group that is.
    Leave(IpAddr),
    /// "Who listens?", and who asks: a router of IPv4 groups, or else of IPv6 groups. Without an address it is no router (RFC 4541 §2.1.1).
    Query(IpAddr),
}

#[derive(Clone, Copy)]
struct Entry {
    /// VLAN and address; routers have an address that no group has.
    key: u64,
    ports: PortSet,
    next: u32,
}

/// The groups of all VLANs.
pub(crate) struct Snoop {
    secret: u64,
    heads: Vec<u32>,
    entries: Vec<Entry>,
    free: u32,
    used: usize,
    /// Of each entry and port, the second at whose end it is forgotten.
    until: Vec<u32>,
    of_port: Vec<u32>,
    looked: u32,
    /// A listener or router from which nothing comes is forgotten after so many seconds (RFC 3376 §8.4, §8.5).
    listens: u32,
    routes: u32,
    id: u64,
    versions: (u8, u8),
    querier: Querier,
}

impl core::fmt::Debug for Snoop {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Snoop").field("used", &self.used).finish_non_exhaustive()
    }
}

/// A group on a VLAN, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listeners {
    /// The VLAN; 0 without VLANs.
    pub vlan: u16,
    /// The group's Ethernet address; `None`: these are the ports of routers.
    pub group: Option<MacAddr>,
    /// Where it has listeners.
    pub ports: PortSet,
}

fn router(v4: bool) -> u64 {
    if v4 { 4 } else { 6 }
}

fn is_v4(group: u64) -> bool {
    group >> 23 == 0x0100_5e00_0000 >> 23
}

fn is_v6(group: u64) -> bool {
    group >> 32 == 0x3333
}

/// Groups that everybody gets.
fn is_for_all(group: u64) -> bool {
    if is_v4(group) {
        group & 0x7f_ff00 == 0
    } else {
        !is_v6(group) || group == 0x3333_0000_0001 || group >> 24 & 0xff == 0xff
    }
}

impl Snoop {
    pub(crate) fn new(seed: Seed) -> Snoop {
        let mut this = Snoop {
            secret: mix(seed.0[2] ^ seed.0[3].rotate_left(32)),
            heads: vec![NONE; HEADS],
            entries: vec![Entry { key: 0, ports: PortSet::NONE, next: NONE }; GROUPS],
            free: NONE,
            used: 0,
            until: vec![0; GROUPS * MAX_PORTS],
            of_port: vec![0; MAX_PORTS],
            looked: 0,
            listens: 0,
            routes: 0,
            id: seed.switch_id(),
            versions: (3, 2),
            querier: Querier::new(seed.switch_id()),
        };
        this.clear();
        this
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.heads.fill(NONE);
        self.of_port.fill(0);
        self.used = 0;
        self.querier.forget();
        for (n, entry) in self.entries.iter_mut().enumerate() {
            *entry = Entry { key: 0, ports: PortSet::NONE, next: n as u32 + 1 };
        }
        if let Some(last) = self.entries.last_mut() {
            last.next = NONE;
        }
        self.free = 0;
    }

    /// Takes what the configuration says.
    pub(crate) fn configure(&mut self, config: &Config, now: Time) {
        self.querier.configure(config, now);
        self.versions = (config.igmp, config.mld);
        let (interval, response) = self.querier.times();
        let seconds =
            |response: Duration| (interval * ROBUSTNESS.into() + response).as_millis().div_ceil(1000) as u32;
        (self.listens, self.routes) = (seconds(response), seconds(response / 2));
    }

    /// Where a frame to `group` goes; `None`: everywhere.
    pub(crate) fn targets(&self, vid: u16, group: u64, now: Time) -> Option<PortSet> {
        if is_for_all(group) {
            return None;
        }
        let routers = self.routers(vid, is_v4(group), now)?;
        match self.find(key(vid, group)) {
            Some(at) => Some(self.entries[at as usize].ports.or(routers)),
            None if self.free == NONE => None,
            None => Some(routers),
        }
    }

    /// Where the routers are; `None`: none is known, and the switch itself does not ask, or not long enough.
    pub(crate) fn routers(&self, vid: u16, v4: bool, now: Time) -> Option<PortSet> {
        let known = self.find(key(vid, router(v4))).map(|at| self.entries[at as usize].ports);
        // Guard: `self.querier.has_been_answered(vid, v4, now)` as `false` fails
        // querier::groups_go_to_their_listeners
        known.or_else(|| self.querier.has_been_answered(vid, v4, now).then_some(PortSet::NONE))
    }

    /// Somebody behind `port` has said something.
    pub(crate) fn heard(&mut self, vid: u16, port: PortId, heard: Heard, now: Time) {
        let second = second(now);
        match heard {
            Heard::Join(group) if !is_for_all(group) => {
                self.join(key(vid, group), port, second + self.listens);
            }
            Heard::Query(from) if !from.is_unspecified() => {
                self.join(key(vid, router(from.is_ipv4())), port, second + self.routes);
                self.querier.heard(vid, from, now);
            }
            Heard::Leave(group) => self.left(vid, port, group, now),
            Heard::Join(_) | Heard::Query(_) => {}
        }
    }

    fn left(&mut self, vid: u16, port: PortId, group: IpAddr, now: Time) {
        let found = self.find(key(vid, number(group)));
        let Some(at) = found.filter(|at| self.entries[*at as usize].ports.has(port)) else { return };
        let mut patience = LEAVES;
        if self.querier.asks(vid, group.is_ipv4()) {
            if !self.querier.left(vid, port, group, now) {
                return;
            }
            patience += 1;
        }
        let until = &mut self.until[at as usize * MAX_PORTS + port.index()];
        *until = (*until).min(second(now) + patience);
    }

    /// A port's link is up.
    pub(crate) fn link_up(&mut self) {
        self.querier.hurry();
    }

    /// When [`Snoop::ask`] has something again.
    pub(crate) fn deadline(&self) -> Time {
        self.querier.deadline()
    }

    /// The next question of the switch's own, if it is time.
    pub(crate) fn ask(&mut self, now: Time) -> Option<Question> {
        self.querier.next(now)
    }

    /// The frame of a question, without tag, and the port from which it is sent. `None`: there is no memory for it.
    pub(crate) fn query(&self, question: Question, port: PortId, pool: &Pool) -> Option<Frame> {
        let style =
            query::Style { own: self.querier.own(), versions: self.versions, times: self.querier.times() };
        let mut bytes = [0; query::LONGEST];
        let source = crate::loops::address(self.id, port);
        let len = query::write(question.group, source, &style, &mut bytes);
        let mut frame = pool.alloc()?;
        frame.extend_from_slice(&bytes[..len]).then_some(frame)
    }

    /// Who asks where.
    pub(crate) fn queriers(&self) -> impl Iterator<Item = Asks> + '_ {
        self.querier.all()
    }

    fn join(&mut self, key: u64, port: PortId, until: u32) {
        let at = match self.find(key) {
            Some(at) => at,
            None => {
                if self.free == NONE || self.of_port[port.index()] >= GROUPS_OF_PORT {
                    return;
                }
                let (at, head) = (self.free, self.head(key));
                self.free = self.entries[at as usize].next;
                self.entries[at as usize] = Entry { key, ports: PortSet::NONE, next: self.heads[head] };
                self.heads[head] = at;
                self.used += 1;
                at
            }
        };
        let entry = &mut self.entries[at as usize];
        if !entry.ports.has(port) {
            if self.of_port[port.index()] >= GROUPS_OF_PORT {
                return;
            }
            self.of_port[port.index()] += 1;
            entry.ports.set(port, true);
        }
        self.until[at as usize * MAX_PORTS + port.index()] = until;
    }

    /// Forgets, once a second, those whose time is over. Looks at no more than the table has.
    pub(crate) fn expire(&mut self, now: Time) {
        let second = second(now);
        if second == self.looked {
            return;
        }
        self.looked = second;
        self.querier.expire(now);
        if self.used == 0 {
            return;
        }
        let until = std::mem::take(&mut self.until);
        self.keep(|at, port| until[at * MAX_PORTS + port.index()] > second);
        self.until = until;
    }

    /// A port's link is down: nobody listens there.
    pub(crate) fn flush(&mut self, port: PortId) {
        self.keep(|_, other| other != port);
    }

    fn keep(&mut self, keep: impl Fn(usize, PortId) -> bool) {
        for head in 0..HEADS {
            let mut before = NONE;
            let mut at = self.heads[head];
            while at != NONE {
                let entry = &mut self.entries[at as usize];
                let next = entry.next;
                for port in entry.ports.filter(|port| !keep(at as usize, *port)) {
                    entry.ports.set(port, false);
                    self.of_port[port.index()] -= 1;
                }
                if entry.ports.is_empty() {
                    entry.next = self.free;
                    self.free = at;
                    self.used -= 1;
                    match before {
                        NONE => self.heads[head] = next,
                        before => self.entries[before as usize].next = next,
                    }
                } else {
                    before = at;
                }
                at = next;
            }
        }
    }

    /// Every group, and the ports of routers.
    pub(crate) fn all(&self) -> impl Iterator<Item = Listeners> + '_ {
        self.entries.iter().filter(|entry| !entry.ports.is_empty()).map(|entry| {
            let address = entry.key & ((1 << 48) - 1);
            let [_, _, mac @ ..] = address.to_be_bytes();
            let group = (address > 6).then_some(MacAddr(mac));
            Listeners { vlan: (entry.key >> 48) as u16, group, ports: entry.ports }
        })
    }

    fn head(&self, key: u64) -> usize {
        mix(key ^ self.secret) as usize % HEADS
    }

    fn find(&self, key: u64) -> Option<u32> {
        let mut at = self.heads[self.head(key)];
        while at != NONE && self.entries[at as usize].key != key {
            at = self.entries[at as usize].next;
        }
        (at != NONE).then_some(at)
    }
}

fn key(vid: u16, group: u64) -> u64 {
    u64::from(vid) << 48 | group
}

fn second(now: Time) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

/// The Ethernet address of a group, as a number.
fn number(group: IpAddr) -> u64 {
    let MacAddr([a, b, c, d, e, f]) = match group {
        IpAddr::V4(group) => MacAddr::for_ipv4_multicast(group),
        IpAddr::V6(group) => MacAddr::for_ipv6_multicast(group),
    };
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
