//! The flows that stand in a lane, by slot of their socket, and in the order in which they are to be looked at.
//!
//! All have the same active timeout, so the one that was looked at longest ago is due first: a list through the table.

use std::net::SocketAddr;

use flowlane_stack::time::Time;
use flowlane_stack::wire::IpProtocol;

use super::counted::Counted;

/// No slot.
const NONE: u32 = u32::MAX;

/// A flow that stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) protocol: IpProtocol,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Begun by us.
    pub(super) active: bool,
    /// When it began, or the time of its record before.
    pub(super) began: Time,
    /// When it was looked at last.
    pub(super) looked: Time,
    /// What earlier records have.
    pub(super) counted: Counted,
    listed: bool,
    before: u32,
    after: u32,
}

impl Standing {
    pub(super) fn new(
        protocol: IpProtocol,
        local: SocketAddr,
        remote: SocketAddr,
        active: bool,
        now: Time,
    ) -> Self {
        Self {
            protocol,
            local,
            remote,
            active,
            began: now,
            looked: now,
            counted: Counted::default(),
            listed: false,
            before: NONE,
            after: NONE,
        }
    }
}

impl Standing {
    /// The same flow in another table, as looked at now: the first of a list is the one due first.
    pub(super) fn afresh(self, now: Time) -> Self {
        Self { looked: now, listed: false, before: NONE, after: NONE, ..self }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<Option<Standing>>,
    first: u32,
    last: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self { places: Vec::new(), first: NONE, last: NONE }
    }
}

impl Table {
    /// Takes a flow in, in the list if it is to be looked at while it stands.
    pub(super) fn insert(&mut self, slot: u32, standing: Standing, list: bool) {
        self.remove(slot);
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, None);
        }
        self.places[slot as usize] = Some(standing);
        if list {
            self.list(slot);
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.unlist(slot);
        if let Some(place) = self.places.get_mut(slot as usize) {
            *place = None;
        }
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Standing> {
        self.places.get_mut(slot as usize)?.as_mut()
    }

    /// The flow that was looked at longest ago.
    #[inline]
    pub(super) fn first(&self) -> Option<&Standing> {
        self.places.get(self.first as usize)?.as_ref()
    }

    /// That flow is looked at now, and becomes the last of the list: its slot.
    pub(super) fn pass_by_first(&mut self, now: Time) -> Option<u32> {
        let slot = self.first;
        self.get_mut(slot)?.looked = now;
        self.unlist(slot);
        self.list(slot);
        Some(slot)
    }

    fn list(&mut self, slot: u32) {
        let last = std::mem::replace(&mut self.last, slot);
        match self.get_mut(last) {
            Some(before) => before.after = slot,
            None => self.first = slot,
        }
        if let Some(standing) = self.get_mut(slot) {
            (standing.listed, standing.before, standing.after) = (true, last, NONE);
        }
    }

    fn unlist(&mut self, slot: u32) {
        let Some(standing) = self.get_mut(slot).filter(|standing| standing.listed) else { return };
        standing.listed = false;
        let (before, after) = (standing.before, standing.after);
        match self.get_mut(before) {
            Some(standing) => standing.after = after,
            None => self.first = after,
        }
        match self.get_mut(after) {
            Some(standing) => standing.before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order is that in which flows were looked at, whichever leave it in between; those that are not listed are none of it.
    #[test]
    fn the_one_looked_at_longest_ago_is_first() {
        let end: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let at = |secs| Standing::new(IpProtocol::TCP, end, end, false, Time::from_secs(secs));
        let mut table = Table::default();
        assert!(table.first().is_none() && table.pass_by_first(Time::ZERO).is_none());
        table.insert(9, at(0), false);
        assert!(table.first().is_none() && table.get_mut(9).is_some());
        for slot in [3, 1, 4, 5] {
            table.insert(slot, at(u64::from(slot)), true);
        }
        table.remove(1);
        assert_eq!(table.pass_by_first(Time::from_secs(9)), Some(3));
        assert_eq!(table.first().map(|s| s.looked), Some(Time::from_secs(4)));
        table.remove(3);
        table.remove(4);
        assert_eq!(table.pass_by_first(Time::from_secs(9)), Some(5));
        assert_eq!(table.pass_by_first(Time::from_secs(9)), Some(5), "it is alone");
        table.remove(5);
        assert!(table.first().is_none() && table.pass_by_first(Time::ZERO).is_none());
        table.insert(4, at(4), true);
        table.insert(4, at(6), true);
        assert_eq!(table.first().map(|s| s.looked), Some(Time::from_secs(6)));
        assert_eq!(table.pass_by_first(Time::from_secs(7)), Some(4), "a slot is in the list once");
    }
}
