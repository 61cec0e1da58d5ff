//! Looking into a switch, and bringing it news of its other instances.

use super::{Entry, Event, Listeners, News, PortCounters, PortId, PortSet, Switch, Time};
use crate::snoop::Asks;
use crate::table::Learnt;

impl Switch {
    /// The counters of a port.
    #[must_use]
    pub fn counters(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index()].counters
    }

    /// Ports whose link is up.
    #[must_use]
    pub fn up(&self) -> PortSet {
        self.up
    }

    /// Ports that are blocked because of a loop.
    #[must_use]
    pub fn blocked(&self) -> PortSet {
        self.loops.blocked()
    }

    /// Every address that is known.
    pub fn addresses(&self) -> impl Iterator<Item = Entry> + '_ {
        self.table.entries()
    }

    /// How many addresses are known, and how many of them are learnt on `port`.
    #[must_use]
    pub fn known(&self, port: Option<PortId>) -> usize {
        port.map_or(self.table.len(), |port| self.table.len_of(port))
    }

    /// Who listens to which group.
    pub fn listeners(&self) -> impl Iterator<Item = Listeners> + '_ {
        self.snoop.all()
    }

    /// Who asks for groups; nobody is named where the switch would not ask.
    pub fn queriers(&self) -> impl Iterator<Item = Asks> + '_ {
        self.snoop.queriers()
    }

    /// The oldest event that nobody has fetched; the last 64 are kept.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.next()
    }

    /// News for the other instances since the last call's were taken out; the caller empties it. It holds 4,096.
    pub fn news(&mut self) -> &mut Vec<News> {
        self.events.fresh()
    }

    /// News that found no room.
    #[must_use]
    pub fn lost_news(&self) -> u64 {
        self.events.lost
    }

    /// Takes note of what another instance has seen.
    pub fn hear(&mut self, news: News, now: Time) {
        match news {
            News::Address { fid, mac, port } => {
                if self.up.has(port) && self.rules.has_member(fid, port) {
                    let learnt = self.table.learn(self.table.place(fid, mac), port, || true);
                    if learnt == Learnt::Full {
                        self.ports[port.index()].counters.not_learnt += 1;
                    }
                }
            }
            News::Group { vid, port, heard } => {
                if self.rules.snooping && self.up.has(port) {
                    self.snoop.heard(vid, port, heard, now);
                }
            }
            News::Lock { port, mac, since } => {
                let lock = &mut self.ports[port.index()].lock;
                if self.up.has(port) && lock.is_none_or(|(_, own)| since < own) {
                    *lock = Some((mac, since));
                }
            }
            News::Blocked { port, until, .. } => {
                if !self.loops.blocked().has(port) {
                    self.table.flush(port);
                }
                self.loops.block(port, until);
                self.open_ports();
            }
        }
    }
}
