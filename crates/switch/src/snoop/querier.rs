//! Asking who listens: the querier of a switch (RFC 2236, RFC 3376, RFC 2710, RFC 3810; RFC 4541 §2.1.1 for a switch that asks without address).
//!
//! In each VLAN and for each family (IGMP, MLD) one router or switch asks, that of the lowest address; the others hear it and wait until it has been
//! silent for the *other querier present interval*. A switch without an IPv4 address asks from 0.0.0.0: such queries take part in no election, any
//! router that has an address is heard instead. MLD is asked from a link-local address of the switch's own.
//!
//! General queries go round: one VLAN and family after the other, so that thousands of VLANs are no burst. The first two rounds take a quarter of the
//! time, and so does one that begins when a link comes up, since with a link its listeners are forgotten. Who leaves a group is followed by two questions for that group on that port. At most [`SPECIFIC`] of these are open; a leave that finds no
//! room is ignored, and its entry ends with the others.
//!
//! Every instance of a switch knows who asks, one of them sends.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::VecDeque;

use flowlane_stack::time::Time;

use crate::config::Config;
use crate::ports::PortId;

/// How often what may be lost is sent (RFC 3376 §8.1): the number of questions for a group, and of quick rounds at the start.
pub(super) const ROBUSTNESS: u8 = 2;
/// Between two questions for a group, and the time to answer each (RFC 3376 §8.8).
pub(super) const LAST_MEMBER: Duration = Duration::from_secs(1);
/// Longest time to answer a general query (RFC 3376 §8.3).
const RESPONSE: Duration = Duration::from_secs(10);
/// Longest time between two general queries of a round.
const STEP: Duration = Duration::from_millis(100);
/// Open questions for groups.
const SPECIFIC: usize = 64;

/// What is to be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    /// The VLAN; 0 without VLANs.
    pub(crate) vid: u16,
    /// The group; an unspecified address: all groups of its family.
    pub(crate) group: IpAddr,
    /// The port; `None`: all of the VLAN.
    pub(crate) port: Option<PortId>,
}

/// Who asks in a VLAN, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asks {
    /// The VLAN; 0 without VLANs.
    pub vlan: u16,
    /// IGMP, not MLD.
    pub v4: bool,
    /// The address of another querier; `None`: the switch itself.
    pub other: Option<IpAddr>,
}

/// One family in one VLAN.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// Another querier, and until when it counts as present.
    other: Option<(IpAddr, Time)>,
    /// From when on all listeners have had the time to answer the switch's own queries.
    answered: Time,
}

#[derive(Clone, Copy, Debug)]
struct Vlan {
    vid: u16,
    /// MLD, IGMP.
    sides: [Side; 2],
}

#[derive(Clone, Copy, Debug)]
struct Specific {
    question: Question,
    left: u8,
    due: Time,
}

/// The querier of a switch. One that is off asks nothing and knows no VLANs.
#[derive(Debug)]
pub(super) struct Querier {
    own: (Ipv4Addr, Ipv6Addr),
    interval: Duration,
    response: Duration,
    /// By number.
    vlans: Vec<Vlan>,
    due: Time,
    turn: usize,
    /// When this round began.
    began: Time,
    /// Quick rounds that are left.
    quick: u8,
    /// Sides whose other querier has been silent for too long.
    urgent: VecDeque<usize>,
    specific: Vec<Specific>,
}

impl Querier {
    /// `id`: the number of the switch.
    pub(super) fn new(id: u64) -> Querier {
        let [a, b, c, d] = [id >> 48, id >> 32, id >> 16, id].map(|word| word as u16);
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, a, b, c, d);
        Querier {
            own: (Ipv4Addr::UNSPECIFIED, link_local),
            interval: Duration::ZERO,
            response: Duration::ZERO,
            vlans: Vec::new(),
            due: Time::ZERO,
            turn: 0,
            began: Time::ZERO,
            quick: 0,
            urgent: VecDeque::new(),
            specific: Vec::with_capacity(SPECIFIC),
        }
    }

    /// Takes what the configuration says. Who asks in a VLAN that stays is not forgotten.
    pub(super) fn configure(&mut self, config: &Config, now: Time) {
        let interval = Duration::from_secs(config.query_interval.into());
        let other = std::mem::replace(&mut self.interval, interval) != interval;
        self.response = RESPONSE.min(self.interval / 2);
        let Some(own) = config.querier.filter(|_| config.snooping) else {
            return self.forget();
        };
        self.own.0 = own;
        let numbers: Vec<u16> = match config.mode.tpid() {
            Some(_) => config.groups.keys().copied().collect(),
            None => vec![0],
        };
        if !other && numbers.iter().eq(self.vlans.iter().map(|vlan| &vlan.vid)) {
            return;
        }
        let answered = now + self.interval / 4 + self.response;
        let side = Side { other: None, answered };
        let known = |vid: u16| self.at(vid).map_or([side; 2], |at| self.vlans[at].sides);
        self.vlans = numbers.iter().map(|vid| Vlan { vid: *vid, sides: known(*vid) }).collect();
        self.specific.retain(|one| numbers.binary_search(&one.question.vid).is_ok());
        self.urgent.clear();
        (self.due, self.turn, self.quick) = (now, 0, ROBUSTNESS);
    }

    /// Asks nothing any more, and knows nobody.
    pub(super) fn forget(&mut self) {
        self.vlans.clear();
        self.urgent.clear();
        self.specific.clear();
    }

    /// Somebody may be there who has not been asked: begins a quick round, unless one is going on.
    pub(super) fn hurry(&mut self) {
        // Guard: `self.quick == 0` as `true` fails querier::every_vlan_and_family
        if self.quick == 0 {
            (self.due, self.turn, self.quick) = (Time::ZERO, 0, 1);
        }
    }

    fn at(&self, vid: u16) -> Option<usize> {
        self.vlans.binary_search_by_key(&vid, |vlan| vlan.vid).ok()
    }

    fn side(&self, vid: u16, v4: bool) -> Option<&Side> {
        self.at(vid).map(|at| &self.vlans[at].sides[usize::from(v4)])
    }

    /// The switch's own addresses.
    pub(super) fn own(&self) -> (Ipv4Addr, Ipv6Addr) {
        self.own
    }

    /// Between two general queries in a VLAN, and the longest time to answer one.
    pub(super) fn times(&self) -> (Duration, Duration) {
        (self.interval, self.response)
    }

    /// Whether the switch itself asks in this VLAN.
    pub(super) fn asks(&self, vid: u16, v4: bool) -> bool {
        self.side(vid, v4).is_some_and(|side| side.other.is_none())
    }

    /// Whether it asks and all listeners have had the time to answer.
    pub(super) fn has_been_answered(&self, vid: u16, v4: bool, now: Time) -> bool {
        // Guard: `now >= side.answered` as `true` fails querier::groups_go_to_their_listeners
        self.side(vid, v4).is_some_and(|side| side.other.is_none() && now >= side.answered)
    }

    /// A query was heard: of two queriers that of the lower address asks (RFC 3376 §6.6.2, RFC 3810 §7.6.2). Hosts answer no MLD query whose source is
    /// not link-local, so it is none.
    pub(super) fn heard(&mut self, vid: u16, from: IpAddr, now: Time) {
        let wins = match from {
            // Guard: `(self.own.0.is_unspecified() || from < self.own.0)` as `true` fails
            // querier::whoever_has_the_lowest_address
            IpAddr::V4(from) => !from.is_unspecified() && (self.own.0.is_unspecified() || from < self.own.0),
            // Guard: `from.segments()[0] & 0xffc0 == 0xfe80` as `true` fails
            // querier::whoever_has_the_lowest_address
            IpAddr::V6(from) => from.segments()[0] & 0xffc0 == 0xfe80 && from < self.own.1,
        };
        let until = now + self.interval * u32::from(ROBUSTNESS) + self.response / 2;
        if let Some(at) = self.at(vid).filter(|_| wins) {
            self.vlans[at].sides[usize::from(from.is_ipv4())].other = Some((from, until));
        }
    }

    /// Somebody on a port has left a group. `false`: there is no room to ask who is left.
    pub(super) fn left(&mut self, vid: u16, port: PortId, group: IpAddr, now: Time) -> bool {
        let question = Question { vid, group, port: Some(port) };
        if self.specific.iter().any(|one| one.question == question) {
            return true;
        }
        // Guard: `self.specific.len() == SPECIFIC` as `false` fails querier::a_leave_that_finds_no_room
        if self.specific.len() == SPECIFIC {
            return false;
        }
        self.specific.push(Specific { question, left: ROBUSTNESS, due: now });
        true
    }

    /// Forgets queriers that have been silent for too long, and questions that nobody has sent: those of an instance that sends none.
    pub(super) fn expire(&mut self, now: Time) {
        let again = now + self.response + LAST_MEMBER;
        for (n, vlan) in self.vlans.iter_mut().enumerate() {
            for (v4, side) in vlan.sides.iter_mut().enumerate() {
                if side.other.take_if(|(_, until)| *until <= now).is_some() {
                    side.answered = again;
                    self.urgent.push_back(2 * n + v4);
                }
            }
        }
        // Each once: no more than there are.
        while self.urgent.len() > 2 * self.vlans.len() {
            self.urgent.pop_front();
        }
        self.specific.retain(|one| now < one.due + 2 * LAST_MEMBER);
    }

    /// When [`Querier::next`] has something again.
    pub(super) fn deadline(&self) -> Time {
        let specific = self.specific.iter().map(|one| one.due).min().unwrap_or(Time::MAX);
        match (self.vlans.is_empty(), self.urgent.is_empty()) {
            (true, _) => Time::MAX,
            (_, false) => Time::ZERO,
            (_, true) => specific.min(self.due),
        }
    }

    /// The next question, if it is time.
    pub(super) fn next(&mut self, now: Time) -> Option<Question> {
        while let Some(side) = self.urgent.pop_front() {
            if let Some(question) = self.general(side) {
                return Some(question);
            }
        }
        if let Some(at) = self.specific.iter().position(|one| one.due <= now) {
            let one = &mut self.specific[at];
            (one.left, one.due) = (one.left - 1, now + LAST_MEMBER);
            let question = one.question;
            if one.left == 0 {
                self.specific.swap_remove(at);
            }
            // Somebody else may ask by now.
            return self.asks(question.vid, question.group.is_ipv4()).then_some(question);
        }
        let sides = 2 * self.vlans.len();
        if sides == 0 || now < self.due {
            return None;
        }
        if self.turn == 0 {
            self.began = now;
        }
        let round = if self.quick > 0 { self.interval / 4 } else { self.interval };
        let question = self.general(self.turn);
        self.turn += 1;
        self.due = now + STEP.min(round / sides as u32);
        if self.turn == sides {
            self.due = self.due.max(self.began + round);
            (self.turn, self.quick) = (0, self.quick.saturating_sub(1));
        }
        question
    }

    fn general(&self, side: usize) -> Option<Question> {
        let vid = self.vlans.get(side / 2)?.vid;
        let group = if side % 2 == 1 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.asks(vid, side % 2 == 1).then_some(Question { vid, group, port: None })
    }

    /// Who asks where.
    pub(super) fn all(&self) -> impl Iterator<Item = Asks> + '_ {
        let side = |vlan: &Vlan, v4: bool| {
            let other = vlan.sides[usize::from(v4)].other.map(|(address, _)| address);
            Asks { vlan: vlan.vid, v4, other }
        };
        self.vlans.iter().flat_map(move |vlan| [side(vlan, true), side(vlan, false)])
    }
}
