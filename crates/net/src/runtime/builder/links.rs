//! The links of a runtime, opening them, and the interfaces on them.
//!
//! A link is not an interface. Several interfaces, of one or several hosts, may be on one link, each on its own VLAN; and one open may
//! yield several links, such as both ends of a pair.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use flowlane_sys::frame::FrameMemory;

use super::Builder;
use crate::card::Access;
use crate::error::StartError;
use crate::events;
use crate::link::LinkInfo;
use crate::link::opening::{OpenLink, OpenWire, Opened, Opening};
use crate::link::pair::{self, PairConfig};
use crate::runtime::card::{Steered, Watched};
use crate::runtime::host::Host;
use crate::runtime::worker::{Door, Doors};
use crate::wake::Wake;

/// A link of a [`Builder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkId(usize);

/// Links that are opened at once.
pub(super) struct Wire {
    open: OpenWire,
    links: Range<usize>,
}

/// An interface that is on a link.
pub(super) struct Attached {
    link: usize,
    host: usize,
    interface: u8,
}

/// The links of a runtime, opened.
pub(super) struct Links {
    /// By [`LinkId`].
    pub(super) all: Vec<Opened>,
    /// For each link, its interfaces.
    pub(super) doors: Vec<Doors>,
    /// The link of each interface of each host.
    of: HashMap<(usize, u8), usize>,
    /// Cards that can be changed: link, and host that is steered by it.
    cards: Vec<(usize, usize)>,
    /// Access to each of these.
    access: Vec<Box<dyn Access>>,
}

impl Links {
    /// Number of the link that an interface of a host is on.
    pub(super) fn of(&self, host: usize, interface: usize) -> Option<usize> {
        self.of.get(&(host, interface as u8)).copied()
    }

    /// The link that an interface of a host is on.
    pub(super) fn info(&self, host: usize, interface: usize) -> Option<&LinkInfo> {
        self.of(host, interface).map(|link| &self.all[link].0)
    }

    /// Whether the table of a link's card can be changed, and steers this host.
    pub(super) fn steered(&self, link: usize, host: usize) -> bool {
        self.cards.contains(&(link, host))
    }

    /// Whether lanes of a host that move take their packets along: the tables of all its links that have several queues can be changed.
    pub(super) fn follow(&self, host: usize) -> bool {
        let several = |link: &usize| self.doors[*link].serve(host) && self.all[*link].0.queues > 1;
        (0..self.all.len()).filter(several).all(|link| self.steered(link, host))
    }

    /// What is to look after the cards.
    pub(super) fn take_cards(&mut self, hosts: &[Host], workers: usize) -> Vec<Steered> {
        let access = std::mem::take(&mut self.access);
        let mut all: Vec<Steered> = Vec::new();
        for (&(link, h), access) in self.cards.iter().zip(access) {
            let at = all.iter().position(|steered| steered.host() == h).unwrap_or_else(|| {
                let first_lane = hosts[..h].iter().map(|host| host.rss.buckets.len() as u32).sum();
                all.push(Steered::new(h, first_lane, workers));
                all.len() - 1
            });
            let (info, queues) = &self.all[link];
            all[at].add((&info.name, info.first_queue, queues.len()), access, &hosts[h].rss);
        }
        all
    }

    /// Cards that other programs may change: those whose queues are served one by one.
    pub(super) fn watched(&self) -> Vec<Watched> {
        let watch = |(info, queues): &Opened| {
            let interface = info.life.as_ref()?.interface()?;
            let is_card = info.name.starts_with("af-xdp:");
            is_card.then(|| Watched::new(&info.name, interface, (info.first_queue, queues.len() as u32)))?
        };
        self.all.iter().filter_map(watch).collect()
    }

    /// The links of each host, for people.
    pub(super) fn named(&self, hosts: &[Host]) -> Vec<Vec<String>> {
        let name = |info: &LinkInfo| match info.mode {
            "" => info.name.clone(),
            mode => format!("{} ({mode})", info.name),
        };
        let of = |(h, host): (usize, &Host)| {
            (0..host.interfaces.len()).filter_map(|i| self.info(h, i).map(name)).collect()
        };
        hosts.iter().enumerate().map(of).collect()
    }
}

impl Builder {
    /// Adds a link that is opened at the start. Interfaces are put on it by [`Builder::attach`].
    pub fn open(&mut self, open: OpenLink) -> LinkId {
        let [link] = self.wire(Box::new(move |opening| Ok(vec![open(opening.memory(), opening.workers())?])));
        link
    }

    /// Adds `N` links that are opened at once.
    pub fn wire<const N: usize>(&mut self, open: OpenWire) -> [LinkId; N] {
        let first = self.links;
        self.links += N;
        self.wires.push(Wire { open, links: first..first + N });
        std::array::from_fn(|i| LinkId(first + i))
    }

    /// Puts an interface of a host on a link. Packets of the interface's VLAN ([`Interface::vlan`](crate::Interface)) go to it, untagged
    /// ones if it has none. Several interfaces may be on one link, of one host or of several, if they are on different VLANs.
    pub fn attach(&mut self, link: LinkId, host: usize, interface: u8) {
        self.attached.push(Attached { link: link.0, host, interface });
    }

    /// Adds a link with one interface on it.
    pub fn link(&mut self, host: usize, interface: u8, open: OpenLink) {
        let link = self.open(open);
        self.attach(link, host, interface);
    }

    /// Gives the runtime access to the card under a link. If the host on it is steered by the card's own table
    /// ([`Rss::of_card`](crate::Rss::of_card)), the table is changed when lanes move, lanes move when another program changes the table,
    /// and settings that the card has lost are set again. [`Report::cards`](crate::stats::Report::cards) counts these.
    pub fn steer_card(&mut self, link: LinkId, access: Box<dyn Access>) {
        self.cards.push((link.0, access));
    }

    /// Joins interfaces of two hosts, each as (host, interface), by a wire in memory.
    pub fn pair(&mut self, a: (usize, u8), b: (usize, u8), config: PairConfig) {
        let (open, cards) = pair::opener_with_access(config);
        let ends: [LinkId; 2] = self.wire(open);
        for (end, card) in ends.into_iter().zip(cards.into_iter().flatten()) {
            self.steer_card(end, Box::new(card));
        }
        for (end, (host, interface)) in ends.into_iter().zip([a, b]) {
            self.attach(end, host, interface);
        }
    }

    /// Opens every link.
    pub(super) fn open_links(
        &mut self,
        memory: &FrameMemory,
        wakes: &[Arc<Wake>],
    ) -> Result<Links, StartError> {
        let of = self.interfaces_on_links()?;
        let mut all = Vec::with_capacity(self.links);
        for Wire { open, links } in std::mem::take(&mut self.wires) {
            let first_on = |link| self.attached.iter().find(|a| a.link == link);
            let rss = |link| first_on(link).map(|a| self.hosts[a.host].rss.clone());
            let steering = links.clone().map(rss).collect();
            let opened = open(&Opening::new(memory, wakes, steering))?;
            if opened.len() != links.len() {
                let what = format!("{} links were to be opened, and {} were", links.len(), opened.len());
                return Err(StartError::Other(what));
            }
            if let Some((info, _)) = opened.iter().find(|(_, queues)| queues.is_empty()) {
                return Err(StartError::NoQueue(info.name.clone()));
            }
            for ((info, _), link) in opened.iter().zip(links) {
                let LinkInfo { name, mac, mtu, queues, mode, .. } = info;
                events::link_opened(name, link, *mac, *mtu, *queues, mode);
                info.notes.iter().for_each(|note| events::link_note(name, note));
                info.await_carrier();
            }
            all.extend(opened);
        }
        let doors = (0..all.len()).map(|link| self.doors(link, &all[link].0)).collect::<Result<_, _>>()?;
        let of_card = |(link, access)| {
            let on = self.attached.iter().filter(|a| a.link == link);
            let mut steered = on.filter(|a| self.hosts[a.host].rss.is_of_card());
            steered.next().map(|a| ((link, a.host), access))
        };
        let (cards, access) = std::mem::take(&mut self.cards).into_iter().filter_map(of_card).unzip();
        Ok(Links { all, doors, of, cards, access })
    }

    /// The link of each interface: each has one, but for hosts on kernel sockets, which have none.
    fn interfaces_on_links(&self) -> Result<HashMap<(usize, u8), usize>, StartError> {
        let name = |h: usize| self.hosts.get(h).map_or("?".into(), |h| h.name.clone());
        let mut of = HashMap::new();
        for a in &self.attached {
            let there = self.hosts.get(a.host).is_some_and(|h| usize::from(a.interface) < h.interfaces.len());
            if !there || a.link >= self.links || of.insert((a.host, a.interface), a.link).is_some() {
                return Err(StartError::Links(name(a.host)));
            }
        }
        for (h, host) in self.hosts.iter().enumerate() {
            let count = (0..host.interfaces.len()).filter(|i| of.contains_key(&(h, *i as u8))).count();
            if count != host.interfaces.len() || (count == 0) != host.kernel {
                return Err(StartError::Links(host.name.clone()));
            }
        }
        Ok(of)
    }

    /// The interfaces on a link, by VLAN.
    fn doors(&self, link: usize, info: &LinkInfo) -> Result<Doors, StartError> {
        let on = self.attached.iter().filter(|a| a.link == link);
        let doors = on.map(|a| {
            let vlan = self.hosts[a.host].interfaces[usize::from(a.interface)].vlan;
            (vlan, Door { host: a.host, interface: a.interface })
        });
        let doors: Vec<_> = doors.collect();
        if doors.is_empty() {
            return Err(StartError::NoInterface(info.name.clone()));
        }
        Doors::new(doors).map_err(|vlan| StartError::Vlan { link: info.name.clone(), vlan })
    }
}
