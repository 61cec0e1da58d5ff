//! What is known of ways narrower than the link they begin on (RFC 1191, RFC 8201).
//!
//! A router that cannot pass a packet on says how long one may be. For datagrams of sockets and for tunnels that is kept
//! here, by destination: longer ones are then cut at the source. TCP cuts its own, by what it keeps of the same kind.
//!
//! Only an error that quotes a socket or a tunnel of ours is believed, and none below the least MTU of its family, since
//! anybody may send one. An entry is forgotten after ten minutes (RFC 8201 section 5.3), and the whole is small: whoever
//! fills it makes others' entries go, and costs them one packet each.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{Ip, LaneEvent};
use crate::packet::Cx;
use crate::time::Time;
use crate::wire::ipv6;

/// Ways remembered.
const CAPACITY: usize = 1024;
/// For how long.
const LIFETIME: Duration = Duration::from_secs(600);
/// Over IPv4: what every network can pass, with headers (RFC 1191 section 3 lets it be 68; nobody honest says so).
const LEAST_V4: u16 = 576;

/// Ways narrower than their link.
#[derive(Debug)]
pub(crate) struct PathMtus {
    known: HashMap<IpAddr, u16, FixedState>,
    /// In order of age.
    ages: VecDeque<(Time, IpAddr)>,
}

impl PathMtus {
    pub(crate) fn new(seed: u64) -> Self {
        Self { known: HashMap::with_hasher(FixedState::with_seed(seed)), ages: VecDeque::new() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Longest packet to `to`, if that is known to be less than the link's.
    #[inline]
    pub(crate) fn get(&self, to: IpAddr) -> Option<u16> {
        if self.known.is_empty() { None } else { self.known.get(&to).copied() }
    }

    /// Takes in that packets to `to` may have `mtu` bytes; `false` if that is no news.
    pub(crate) fn learn(&mut self, now: Time, to: IpAddr, mtu: u16) -> bool {
        if let Some(known) = self.known.get_mut(&to) {
            // An entry keeps its age: forgetting it too early costs a packet, too late a narrow way for ever.
            let news = mtu < *known;
            *known = mtu.min(*known);
            return news;
        }
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

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.ages.front().map(|(at, _)| *at)
    }

    pub(crate) fn expire(&mut self, now: Time) {
        while self.ages.front().is_some_and(|(at, _)| *at <= now) {
            self.forget_oldest();
        }
    }
}

impl Ip {
    /// Somebody has changed the MTU of a link; tunnels over it follow. `false` if it is as it was.
    pub(crate) fn set_mtu(&mut self, link: u8, mtu: u16) -> bool {
        let known = self.interfaces.get_mut(usize::from(link)).filter(|known| known.config.mtu != mtu);
        let Some(known) = known else { return false };
        known.config.mtu = mtu;
        self.fit_tunnels();
        true
    }

    /// A router says that packets to `to` may have no more than `mtu` bytes; 0 if it is too old to say. Told to the host's
    /// other lanes: any of them may send there.
    pub(crate) fn path_too_small(&mut self, cx: &Cx<'_>, to: IpAddr, mtu: u16) {
        let (least, family) = if to.is_ipv4() {
            (LEAST_V4, &mut self.stats.ip)
        } else {
            (ipv6::MIN_MTU as u16, &mut self.stats.ip6)
        };
        family.path_mtu += 1;
        let mtu = mtu.max(least);
        let link = self.hop(to).and_then(|hop| self.interfaces.get(usize::from(hop.interface)));
        if link.is_none_or(|link| mtu >= link.config.mtu) {
            return;
        }
        if self.paths.learn(cx.now, to, mtu) && self.events.len() < 64 {
            self.events.push_back(LaneEvent::PathMtu { to, mtu });
        }
    }

    /// Another lane learnt of a narrow way.
    pub(super) fn told_path(&mut self, now: Time, to: IpAddr, mtu: u16) {
        self.paths.learn(now, to, mtu);
    }

    /// Longest packet to `to` by an interface, bytes.
    #[inline]
    pub(super) fn mtu_on(&self, interface: u8, to: IpAddr) -> u16 {
        let mtu = if self.tunnels.is_tunnel(interface) {
            self.interface_mtu(interface)
        } else {
            self.interfaces[usize::from(interface)].config.mtu
        };
        let mtu = if to.is_ipv6() { mtu.min(self.advertised_mtu(interface)) } else { mtu };
        match self.paths.get(to) {
            Some(path) => path.min(mtu),
            None => mtu,
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
        assert!(paths.learn(Time::from_secs(1), to(1), 1400));
        assert!(!paths.learn(Time::from_secs(2), to(1), 1450));
        assert!(paths.learn(Time::from_secs(500), to(1), 1300));
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
            assert!(paths.learn(Time::from_secs(1), to(n), 1300));
        }
        assert_eq!((paths.known.len(), paths.ages.len()), (CAPACITY, CAPACITY));
        assert_eq!((paths.get(to(0)), paths.get(to(4999))), (None, Some(1300)));
    }
}
