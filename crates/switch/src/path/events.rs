//! What a switch tells: to people, and to the other instances of itself.

use std::collections::VecDeque;

use flowlane_stack::time::Time;
use flowlane_stack::wire::MacAddr;

use crate::ports::PortId;
use crate::snoop::Heard;

/// Events and news that are kept for whoever fetches them.
const EVENTS: usize = 64;
const NEWS: usize = 4096;

/// Something that a person may want to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An address was seen on another port than before.
    Moved {
        /// The filtering database: the VLAN, or 0.
        fid: u16,
        /// The address.
        mac: MacAddr,
        /// Where it was.
        from: PortId,
        /// Where it is.
        to: PortId,
        /// When.
        at: Time,
    },
    /// A loop was found: a probe of one port came on another, which is blocked now.
    Blocked {
        /// The blocked port.
        port: PortId,
        /// The port that sent the probe.
        from: PortId,
    },
    /// A port is not blocked any more.
    Unblocked {
        /// The port.
        port: PortId,
    },
}

/// Something that the other instances of the switch have to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// An address was seen on a port.
    Address {
        /// The filtering database.
        fid: u16,
        /// The address, its 48 bits as a number.
        mac: u64,
        /// The port.
        port: PortId,
    },
    /// Somebody has said something of a group.
    Group {
        /// The VLAN.
        vid: u16,
        /// The port.
        port: PortId,
        /// What.
        heard: Heard,
    },
    /// A port is locked to an address; of two locks the older one holds.
    Lock {
        /// The port.
        port: PortId,
        /// The address, its 48 bits as a number.
        mac: u64,
        /// Since when.
        since: Time,
    },
    /// A port is blocked because of a loop.
    Blocked {
        /// The port.
        port: PortId,
        /// The port that sent the probe.
        from: PortId,
        /// Until when.
        until: Time,
    },
}

#[derive(Debug)]
pub(super) struct Events {
    events: VecDeque<Event>,
    news: Vec<News>,
    spread: bool,
    /// News that found no room. Addresses are told again once in a sixteenth of the ageing time.
    pub(super) lost: u64,
}

impl Events {
    pub(super) fn new(spread: bool) -> Events {
        let news = Vec::with_capacity(if spread { NEWS } else { 0 });
        Events { events: VecDeque::with_capacity(EVENTS), news, spread, lost: 0 }
    }

    fn event(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(super) fn news(&mut self, news: News) {
        if !self.spread {
            return;
        }
        if self.news.len() < NEWS {
            self.news.push(news);
        } else {
            self.lost += 1;
        }
    }

    pub(super) fn moved(&mut self, fid: u16, mac: u64, from: PortId, to: PortId, at: Time) {
        let [_, _, mac @ ..] = mac.to_be_bytes();
        self.event(Event::Moved { fid, mac: MacAddr(mac), from, to, at });
    }

    pub(super) fn blocked(&mut self, port: PortId, from: PortId, until: Time) {
        self.event(Event::Blocked { port, from });
        self.news(News::Blocked { port, from, until });
    }

    pub(super) fn unblocked(&mut self, port: PortId) {
        self.event(Event::Unblocked { port });
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn fresh(&mut self) -> &mut Vec<News> {
        &mut self.news
    }
}
