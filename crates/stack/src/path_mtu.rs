//! Path MTUs that are smaller than the link's (RFC 1191, RFC 8201).
//!
//! A router that cannot forward a packet reports the MTU of the next link. The lane keeps it here by destination, in one store for all
//! transports: datagrams and tunnel packets are fragmented at the source, and a new TCP connection begins with segments that fit. The
//! lane owns the store and lends it with [`Cx`](crate::packet::Cx). It sends each new entry to the host's other lanes, since any of them
//! may send to that destination.
//!
//! Since any host may send such an error, it is accepted only if it quotes a packet of a socket, of a tunnel, or data in flight of a
//! connection, and never below the least MTU of its family. An entry expires after ten minutes (RFC 8201 section 5.3). The store is
//! small: filling it evicts other entries, each of which costs its flow one lost packet.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::time::Time;
use crate::wire::ipv6;

/// Paths remembered.
const CAPACITY: usize = 1024;
/// For how long.
const LIFETIME: Duration = Duration::from_secs(600);
/// Least path MTU over IPv4, bytes with headers, below which no report is accepted (RFC 1191 section 3 allows 68, which no real network
/// has).
const LEAST_V4: u16 = 576;
/// Entries that wait to be told to the host's other lanes.
const NEWS: usize = 64;

/// Paths of a lane that are narrower than their link, by destination: at most 1024, each for ten minutes.
#[derive(Debug)]
pub struct PathMtus {
    known: HashMap<IpAddr, u16, FixedState>,
    /// In order of age.
    ages: VecDeque<(Time, IpAddr)>,
    /// For the host's other lanes.
    news: VecDeque<(IpAddr, u16)>,
}

impl PathMtus {
    /// An empty store. `seed` keys its table: strangers must not be able to guess it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            known: HashMap::with_hasher(FixedState::with_seed(seed)),
            ages: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Longest IP packet to `to`, bytes, if that is known to be less than the link's.
    #[inline]
    pub(crate) fn get(&self, to: IpAddr) -> Option<u16> {
        if self.known.is_empty() { None } else { self.look_up(to) }
    }

    /// Apart from the rest, which nearly always is all there is to do.
    #[inline(never)]
    fn look_up(&self, to: IpAddr) -> Option<u16> {
        self.known.get(&to).copied()
    }

    /// A router says that IP packets to `to` may have no more than `mtu` bytes, and the error that says so was checked. News
    /// is told to the host's other lanes.
    pub(crate) fn learn(&mut self, now: Time, to: IpAddr, mtu: u16) {
        let mtu = Self::at_least(to, mtu);
        // Guard: `self.news.len() < NEWS` as `true` fails path_mtu::tests::news_is_bounded
        if self.enter(now, to, mtu) && self.news.len() < NEWS {
            self.news.push_back((to, mtu));
        }
    }

    /// Another lane of the host learnt of a narrow path.
    pub(crate) fn told(&mut self, now: Time, to: IpAddr, mtu: u16) {
        self.enter(now, to, mtu);
    }

    /// The next entry that the host's other lanes are to be told.
    #[inline]
    pub(crate) fn poll_news(&mut self) -> Option<(IpAddr, u16)> {
        self.news.pop_front()
    }

    /// `mtu`, bytes, or what every path of the destination's family carries if that is more.
    pub(crate) fn at_least(to: IpAddr, mtu: u16) -> u16 {
        let least = if to.is_ipv4() { LEAST_V4 } else { ipv6::MIN_MTU as u16 };
        // Guard: `mtu.max(least)` as `mtu` fails path_mtu::tests::news_is_bounded
        mtu.max(least)
    }

    /// Takes in that packets to `to` may have `mtu` bytes; `false` if that is no news.
    fn enter(&mut self, now: Time, to: IpAddr, mtu: u16) -> bool {
        if let Some(known) = self.known.get_mut(&to) {
            // An entry keeps its age: forgetting it too early costs a packet, too late a narrow way for ever.
            let news = mtu < *known;
            *known = mtu.min(*known);
            return news;
        }
        // Guard: `self.ages.len() >= CAPACITY` as `false` fails bounds/link::narrow_ways
        if self.ages.len() >= CAPACITY {
            self.forget_oldest();
        }
        self.known.insert(to, mtu);
        self.ages.push_back((now + LIFETIME, to));
        true
    }

    fn forget_oldest(&mut self) {
        if let Some((_, to)) = self.ages.pop_front() {
            self.known.remove(&to);
        }
    }

    /// When [`expire`](Self::expire) has something to forget.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.ages.front().map(|(at, _)| *at)
    }

    /// Removes expired entries. The owner calls it periodically.
    pub fn expire(&mut self, now: Time) {
        while self.ages.front().is_some_and(|(at, _)| *at <= now) {
            self.forget_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    #[test]
    fn narrower_is_news_and_age_is_kept() {
        let mut paths = PathMtus::new(1);
        assert!(paths.enter(Time::from_secs(1), to(1), 1400));
        assert!(!paths.enter(Time::from_secs(2), to(1), 1450));
        assert!(paths.enter(Time::from_secs(500), to(1), 1300));
        assert_eq!((paths.get(to(1)), paths.get(to(2))), (Some(1300), None));
        assert_eq!(paths.next_deadline(), Some(Time::from_secs(601)));
        paths.expire(Time::from_secs(600));
        assert_eq!(paths.get(to(1)), Some(1300));
        paths.expire(Time::from_secs(601));
        assert_eq!((paths.get(to(1)), paths.next_deadline()), (None, None));
    }

    #[test]
    fn it_stays_small() {
        let mut paths = PathMtus::new(1);
        for n in 0..5000 {
            assert!(paths.enter(Time::from_secs(1), to(n), 1300));
        }
        assert_eq!((paths.known.len(), paths.ages.len()), (CAPACITY, CAPACITY));
        assert_eq!((paths.get(to(0)), paths.get(to(4999))), (None, Some(1300)));
    }

    /// What is learnt here is told once, what another lane told is not; nothing is believed below the least of its family.
    #[test]
    fn news_is_bounded_and_not_repeated() {
        let mut paths = PathMtus::new(1);
        paths.told(Time::from_secs(1), to(1), 1300);
        paths.learn(Time::from_secs(1), to(1), 1400);
        assert_eq!(paths.poll_news(), None);
        paths.learn(Time::from_secs(1), to(1), 68);
        paths.learn(Time::from_secs(1), IpAddr::V6(1.into()), 68);
        let news: Vec<_> = std::iter::from_fn(|| paths.poll_news()).collect();
        assert_eq!(news, [(to(1), 576), (IpAddr::V6(1.into()), 1280)]);
        for n in 0..5000 {
            paths.learn(Time::from_secs(1), to(n), 570);
        }
        assert_eq!(std::iter::from_fn(|| paths.poll_news()).count(), NEWS);
    }
}
