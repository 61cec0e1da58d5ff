//! Membership of multicast groups, and the timers of reports: IGMP (RFC 3376, RFC 2236) and multicast listener discovery (RFC 3810, RFC
//! 2710), which are the same for both families.
//!
//! The lane of bucket 0 reports for all lanes of a host. The other lanes send it the groups that their sockets join, and the queries that
//! they receive. A change is reported at once and repeated within a second, as often as the querier's robustness variable requires. A
//! query is answered after a random part of its maximum response time. Of several queries the answer that is due first serves for all, so
//! that queries do not add up. After a query of an older version reports are in that version, for the time of RFC 3376 section 7.2.1 and
//! RFC 3810 section 8.2.
//!
//! Every group is joined for all sources, so a query for some sources of a group is answered as one for the group. Reports of
//! other hosts do not suppress ours: a switch that snoops does not show them, and version 3 wants none suppressed.
//!
//! A link that leaves multicast to the kernel never receives a query. If none was received for [`UNHEARD`], all groups are reported every
//! [`REFRESH`] without a query, so that a snooping switch keeps our entries.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use std::collections::BTreeMap;

use crate::rng::Rng;
use crate::time::Time;
use crate::wire::GroupChange;

/// Who is in a group because the host's addresses want it, and no socket.
pub(crate) const OWN: u16 = u16::MAX;
/// Robustness Variable until a querier names one.
const ROBUSTNESS: u8 = 2;
/// Query Interval until a querier names one.
const INTERVAL: Duration = Duration::from_secs(125);
/// Unsolicited Report Interval, milliseconds: of version 3 and of MLD version 2, and of their predecessors.
const REPEAT: u32 = 1000;
const REPEAT_OLD: u32 = 10_000;
/// Without a query for so long, none is expected any more: two intervals and the longest usual answer.
const UNHEARD: Duration = Duration::from_secs(260);
/// Interval between two unsolicited reports.
const REFRESH: Duration = Duration::from_secs(125);

/// What a query says, of either family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query {
    /// Unspecified for all groups.
    pub(crate) group: IpAddr,
    pub(crate) max_response: Duration,
    /// As on the wire: 1, 2 or 3 of IGMP, 1 or 2 of MLD.
    pub(crate) version: u8,
    pub(crate) robustness: u8,
    pub(crate) interval: Duration,
}

/// Something to be reported.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) interface: u8,
    pub(crate) ipv4: bool,
    /// The querier's version, where that is older than ours.
    pub(crate) older: Option<u8>,
    /// In answer to a query, or unasked for: limited.
    pub(crate) answer: bool,
    pub(crate) groups: Vec<(IpAddr, GroupChange)>,
}

#[derive(Debug, Default)]
struct Member {
    /// Lanes whose sockets are in it, and [`OWN`].
    by: Vec<u16>,
    /// How often the last change is still to be said.
    changes: u8,
    answer_at: Option<Time>,
}

/// One family on one interface.
#[derive(Debug)]
struct Family {
    groups: BTreeMap<IpAddr, Member>,
    /// Version of an older querier, and until when it counts.
    older: Option<(u8, Time)>,
    robustness: u8,
    interval: Duration,
    /// All groups are to be reported.
    general_at: Option<Time>,
    /// Changes are to be said, perhaps again.
    changes_at: Option<Time>,
    /// Everything is to be said unasked.
    refresh_at: Option<Time>,
}

impl Default for Family {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
            older: None,
            robustness: ROBUSTNESS,
            interval: INTERVAL,
            general_at: None,
            changes_at: None,
            refresh_at: None,
        }
    }
}

impl Family {
    fn next_deadline(&self) -> Option<Time> {
        let answers = self.groups.values().filter_map(|m| m.answer_at);
        answers.chain([self.general_at, self.changes_at, self.refresh_at].into_iter().flatten()).min()
    }

    fn query(&mut self, now: Time, query: &Query, newest: u8, rng: &mut Rng) {
        if self.refresh_at.is_some() {
            self.refresh_at = Some(now + UNHEARD);
        }
        if query.version < newest {
            // Older Version Querier Present Timeout.
            let until = now + self.interval * u32::from(self.robustness) + query.max_response;
            self.older = Some((query.version, until));
        } else {
            self.robustness = if query.robustness == 0 { ROBUSTNESS } else { query.robustness };
            self.interval = if query.interval.is_zero() { INTERVAL } else { query.interval };
        }
        let most = query.max_response.as_millis().min(u128::from(u32::MAX - 1)) as u32;
        let at = now + Duration::from_millis(rng.below(most + 1).into());
        if self.general_at.is_some_and(|general| general <= at) {
            return;
        }
        let sooner = |old: Option<Time>| Some(old.map_or(at, |old| old.min(at)));
        if query.group.is_unspecified() {
            self.general_at = sooner(self.general_at);
        } else if let Some(member) = self.groups.get_mut(&query.group).filter(|m| !m.by.is_empty()) {
            member.answer_at = sooner(member.answer_at);
        }
    }

    /// What is due, by whether it is an answer.
    fn due(&mut self, now: Time, rng: &mut Rng) -> [Vec<(IpAddr, GroupChange)>; 2] {
        let is_due = |at: &mut Option<Time>| at.take_if(|at| *at <= now).is_some();
        self.older.take_if(|(_, until)| *until <= now);
        let refresh = is_due(&mut self.refresh_at);
        if refresh {
            self.refresh_at = Some(now + REFRESH);
        }
        let all = is_due(&mut self.general_at) || refresh;
        let mut answers = Vec::new();
        for (group, member) in &mut self.groups {
            if member.answer_at.is_some_and(|at| all || at <= now) || all {
                member.answer_at = None;
                if !member.by.is_empty() {
                    answers.push((*group, GroupChange::Listening));
                }
            }
        }
        let mut changes = Vec::new();
        if is_due(&mut self.changes_at) {
            for (group, member) in self.groups.iter_mut().filter(|(_, m)| m.changes > 0) {
                member.changes -= 1;
                let change = if member.by.is_empty() { GroupChange::Leave } else { GroupChange::Join };
                changes.push((*group, change));
            }
            self.groups.retain(|_, m| m.changes > 0 || !m.by.is_empty());
            if self.groups.values().any(|m| m.changes > 0) {
                let most = if self.older.is_some() { REPEAT_OLD } else { REPEAT };
                self.changes_at = Some(now + Duration::from_millis(u64::from(rng.below(most)) + 1));
            }
        }
        [changes, answers]
    }
}

/// The groups of a host, in the lane that speaks for it.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    /// By interface: IPv4, IPv6.
    links: Vec<[Family; 2]>,
    next: Option<Time>,
}

impl Membership {
    fn family(&mut self, interface: u8, ipv4: bool) -> &mut Family {
        let i = usize::from(interface);
        while self.links.len() <= i {
            self.links.push(Default::default());
        }
        &mut self.links[i][usize::from(!ipv4)]
    }

    /// `who` is in a group from now on.
    pub(crate) fn enter(&mut self, now: Time, interface: u8, group: IpAddr, who: u16) {
        if !is_reported(group) {
            return;
        }
        let family = self.family(interface, group.is_ipv4());
        let robustness = family.robustness;
        let member = family.groups.entry(group).or_default();
        if member.by.contains(&who) {
            return;
        }
        member.by.push(who);
        if member.by.len() == 1 {
            member.changes = robustness;
            family.changes_at = Some(now);
        }
        self.settle();
    }

    /// `who` is in a group no longer.
    pub(crate) fn exit(&mut self, now: Time, interface: u8, group: IpAddr, who: u16) {
        let family = self.family(interface, group.is_ipv4());
        let robustness = family.robustness;
        let Some(member) = family.groups.get_mut(&group) else { return };
        let before = member.by.len();
        member.by.retain(|w| *w != who);
        if before > 0 && member.by.is_empty() {
            (member.changes, member.answer_at) = (robustness, None);
            family.changes_at = Some(now);
        }
        self.settle();
    }

    /// The interface's link is up, perhaps again, or its address can be used only now: all is said as if for the first time.
    pub(crate) fn say_all(&mut self, now: Time, interface: u8) {
        for ipv4 in [true, false] {
            let family = self.family(interface, ipv4);
            let robustness = family.robustness;
            family.groups.values_mut().for_each(|m| m.changes = robustness);
            if !family.groups.is_empty() {
                family.changes_at = Some(now);
            }
            family.refresh_at = Some(now + REFRESH);
        }
        self.settle();
    }

    /// A query came in.
    pub(crate) fn query(&mut self, now: Time, interface: u8, query: &Query, rng: &mut Rng) {
        let ipv4 = query.group.is_ipv4();
        self.family(interface, ipv4).query(now, query, if ipv4 { 3 } else { 2 }, rng);
        self.settle();
    }

    fn settle(&mut self) {
        self.next = self.links.iter().flatten().filter_map(Family::next_deadline).min();
    }

    /// When [`Membership::due`] has something to say.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    /// What is to be said now.
    pub(crate) fn due(&mut self, now: Time, rng: &mut Rng) -> Vec<Report> {
        if self.next.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut reports = Vec::new();
        for (interface, families) in self.links.iter_mut().enumerate() {
            for (family, ipv4) in families.iter_mut().zip([true, false]) {
                let [changes, answers] = family.due(now, rng);
                let older = family.older.map(|(version, _)| version);
                for (groups, answer) in [(changes, false), (answers, true)] {
                    if !groups.is_empty() {
                        reports.push(Report { interface: interface as u8, ipv4, older, answer, groups });
                    }
                }
            }
        }
        self.settle();
        reports
    }
}

/// Whether routers want to hear of a group: not of those that every host is in, nor of those within a host (RFC 3810
/// section 6, RFC 3376 section 5).
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(a) => a.is_multicast() && a.octets() != [224, 0, 0, 1],
        IpAddr::V6(a) => {
            let scope = a.segments()[0] & 0xf;
            a.is_multicast() && scope > 1 && a != Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(239, 1, 2, 3));

    fn query(group: IpAddr, version: u8, ms: u64) -> Query {
        let interval = if version == 3 { INTERVAL } else { Duration::ZERO };
        Query { group, max_response: Duration::from_millis(ms), version, robustness: 0, interval }
    }

    #[test]
    fn a_change_is_said_as_often_as_robustness_wants() {
        let (mut m, mut rng) = (Membership::default(), Rng::new(1));
        let start = Time::from_secs(9);
        m.enter(start, 0, GROUP, 3);
        m.enter(start, 0, GROUP, 4);
        let said = |m: &mut Membership, rng: &mut Rng| {
            let mut all = Vec::new();
            while let Some(at) = m.next_deadline() {
                all.push((at, m.due(at, rng)));
            }
            all
        };
        let all = said(&mut m, &mut rng);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].0, start);
        assert!(all[1].0 > start && all[1].0 <= start + Duration::from_secs(1));
        for (_, reports) in &all {
            assert_eq!(reports[0].groups, [(GROUP, GroupChange::Join)]);
        }
        m.exit(start, 0, GROUP, 3);
        assert_eq!(m.next_deadline(), None, "another lane is in it still");
        m.exit(start, 0, GROUP, 4);
        let all = said(&mut m, &mut rng);
        assert_eq!((all.len(), &all[1].1[0].groups[..]), (2, &[(GROUP, GroupChange::Leave)][..]));
        m.exit(start, 0, GROUP, 4);
        assert_eq!(m.next_deadline(), None);
    }

    #[test]
    fn queries_do_not_add_up() {
        let (mut m, mut rng) = (Membership::default(), Rng::new(1));
        let now = Time::from_secs(9);
        m.enter(now, 0, GROUP, 0);
        while let Some(at) = m.next_deadline() {
            m.due(at, &mut rng);
        }
        let all = IpAddr::from([0; 4]);
        for n in 0..1000 {
            m.query(now, 0, &query(if n % 2 == 0 { all } else { GROUP }, 3, 10_000), &mut rng);
        }
        let mut answers = 0;
        while let Some(at) = m.next_deadline() {
            assert!(at <= now + Duration::from_secs(10));
            answers += m.due(at, &mut rng).len();
        }
        assert!((1..=2).contains(&answers), "{answers}");
        m.query(now, 0, &query(IpAddr::from([239, 9, 9, 9]), 3, 10_000), &mut rng);
        assert_eq!(m.next_deadline(), None, "not our group");
    }

    #[test]
    fn an_older_querier_is_answered_in_its_version_for_a_while() {
        let (mut m, mut rng) = (Membership::default(), Rng::new(1));
        let now = Time::from_secs(9);
        m.enter(now, 0, GROUP, 0);
        while let Some(at) = m.next_deadline() {
            m.due(at, &mut rng);
        }
        m.query(now, 0, &query(GROUP, 2, 10_000), &mut rng);
        let at = m.next_deadline().unwrap();
        assert_eq!(m.due(at, &mut rng)[0].older, Some(2));
        let later = now + Duration::from_secs(261);
        m.query(later, 0, &query(GROUP, 3, 0), &mut rng);
        assert_eq!(m.due(later, &mut rng)[0].older, None);
    }
}
