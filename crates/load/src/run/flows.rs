//! Choice of the flows of each lane: pairs of client address and port whose answers arrive in that lane.
//!
//! The flow hash of an answer decides which lane receives it. A lane therefore sends only from pairs whose answers hash to its own bucket,
//! so the socket that sent a request receives the answer without a hand-over. Candidates from the client ranges are tried one by one, at
//! the cost of one hash each, a few nanoseconds. If the hash covers addresses alone, as it may for UDP, ports do not matter and a lane
//! needs an address of its own; with too few addresses some lanes have no flows.
//!
//! If the target's key is known, flows can also be chosen by the bucket that they hit at the target.

use std::collections::BTreeMap;

use flowlane::{Bucket, Endpoint, Rss};
use flowlane_rss::{Flow, Protocol};

use crate::run::clients::ClientRange;

/// Source ports to use.
const PORTS: std::ops::RangeInclusive<u16> = 1024..=65_535;
/// Candidates that are tried before a lane or bucket counts as out of reach, and for each flow that is wanted.
const TRIALS: u128 = 4_000_000;
const TRIALS_FOR_EACH: u128 = 8;

/// The sources of traffic.
#[derive(Debug, Clone)]
pub enum Sources {
    /// These pairs, by bucket: see [`choose`].
    Flows(Vec<Vec<Endpoint>>),
    /// These addresses in turn, or the host's own if there are none, and free ports. On a link of ours, and with [`flowlane::Host::home_ports`],
    /// ports whose answers arrive in the sending lane.
    Addresses {
        /// The addresses.
        clients: Vec<ClientRange>,
        /// Lanes of the host.
        lanes: usize,
    },
}

impl Sources {
    /// Lanes of the host.
    #[must_use]
    pub fn lanes(&self) -> usize {
        match self {
            Self::Flows(flows) => flows.len(),
            Self::Addresses { lanes, .. } => *lanes,
        }
    }

    /// Whether a lane has a flow to send from.
    #[must_use]
    pub(crate) fn serves(&self, lane: usize) -> bool {
        match self {
            Self::Flows(flows) => flows.get(lane).is_some_and(|f| !f.is_empty()),
            Self::Addresses { lanes, .. } => lane < *lanes,
        }
    }
}

/// Address `nth` of all ranges, modulo their number; `None` if there are none.
#[must_use]
pub(crate) fn address(clients: &[ClientRange], nth: u128) -> Option<std::net::IpAddr> {
    let all = clients.iter().map(ClientRange::count).fold(0, u128::saturating_add).max(1);
    let mut nth = nth % all;
    for range in clients {
        if nth < range.count() {
            return Some(range.nth(nth));
        }
        nth -= range.count();
    }
    clients.first().map(|range| range.nth(nth))
}

/// The flows to choose.
#[derive(Debug, Clone)]
pub struct FlowWish<'a> {
    /// The target.
    pub target: Endpoint,
    /// The client addresses.
    pub clients: &'a [ClientRange],
    /// Number of flows over all lanes, divided evenly.
    pub flows: usize,
    /// UDP or TCP, which a card may hash differently.
    pub protocol: Protocol,
    /// The steering of our side.
    pub rss: &'a Rss,
    /// The target's steering, and which of its buckets to hit.
    pub aim: Option<Aim<'a>>,
    /// Where among the ports the search begins, for example a run's seed: two runs one after the other should differ, since a server may
    /// still remember the first one's connections in TIME-WAIT.
    pub start: u64,
}

/// The target's buckets to hit.
#[derive(Debug, Clone)]
pub struct Aim<'a> {
    /// The target's steering.
    pub rss: &'a Rss,
    /// Which buckets flows may hit.
    pub wanted: Wanted,
}

/// Buckets of the target that flows may hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// These buckets, from every lane.
    Buckets(Vec<Bucket>),
    /// Those that belong to the worker of the sending lane: both ends run on the same workers.
    SameWorker,
}

/// Why flows cannot be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoFlows {
    /// No client address has the target's address family.
    #[error("no client address is of the same family as the target {0}")]
    Family(Endpoint),
    /// The target has no such bucket.
    #[error("bucket {0} is not one of the target's {1}")]
    NoSuchBucket(u16, usize),
    /// No flow of the client addresses hits this bucket.
    #[error("no flow of the client addresses reaches bucket {0} of the target: give more addresses")]
    OutOfReach(u16),
    /// Zero flows were asked for.
    #[error("no flows are wanted")]
    None,
}

/// The flows of each lane, by bucket. A lane without any has an empty list.
///
/// # Errors
/// See [`NoFlows`].
pub fn choose(wish: &FlowWish<'_>) -> Result<Vec<Vec<Endpoint>>, NoFlows> {
    if wish.flows == 0 {
        return Err(NoFlows::None);
    }
    let ranges: Vec<_> = wish.clients.iter().filter(|c| c.is_ipv4() == wish.target.ip.is_ipv4()).collect();
    if ranges.is_empty() {
        return Err(NoFlows::Family(wish.target));
    }
    let lanes = wish.rss.buckets.len();
    let aims = aims(wish)?;
    let mut open = Quotas::new(wish.flows, &aims);
    let mut chosen: Vec<Vec<(usize, Endpoint)>> = vec![Vec::new(); lanes];
    search(wish, &ranges, &mut open, |lane, hit, client| chosen[lane].push((hit, client)));
    if let Some(Aim { wanted: Wanted::Buckets(buckets), .. }) = &wish.aim {
        let hit = |b: &Bucket| chosen.iter().flatten().any(|(hit, _)| *hit == usize::from(b.0));
        if let Some(missed) = buckets.iter().find(|b| !hit(b)) {
            return Err(NoFlows::OutOfReach(missed.0));
        }
    }
    Ok(chosen.into_iter().map(interleave).collect())
}

/// Tries candidates until no flow is `open`, or until what is open counts as out of reach; tells of each that is taken: its lane, the target's bucket that it hits, and
/// the client.
fn search(
    wish: &FlowWish<'_>,
    ranges: &[&ClientRange],
    open: &mut Quotas,
    mut taken: impl FnMut(usize, usize, Endpoint),
) {
    let addresses: u128 = ranges.iter().map(|r| r.count()).fold(0, u128::saturating_add);
    let ports = u128::from(*PORTS.end() - *PORTS.start()) + 1;
    // Guard: `u128::from(wish.start)` as `0` fails flows::tests::the_search_begins
    let start = u128::from(wish.start) % ports;
    // Guard: `TRIALS_FOR_EACH * wish.flows as u128` as `0` fails flows::tests::more_than_four_million
    let trials = TRIALS.max(TRIALS_FOR_EACH * wish.flows as u128);
    for trial in 0..trials.min(addresses.saturating_mul(ports)) {
        if open.left == 0 {
            break;
        }
        // All addresses with one port, then all with the next port.
        let nth = (start + trial / addresses) % ports;
        let client = Endpoint::new(pick(ranges, trial % addresses), PORTS.start() + nth as u16);
        if client.ip == wish.target.ip {
            continue;
        }
        let lane = usize::from(reply_bucket(wish.rss, wish.protocol, client, wish.target).0);
        let hit = wish
            .aim
            .as_ref()
            .map_or(0, |aim| usize::from(reply_bucket(aim.rss, wish.protocol, wish.target, client).0));
        if open.take(lane, hit) {
            taken(lane, hit, client);
        }
    }
}

/// The bucket of a packet from `remote` to `local` under `rss`.
fn reply_bucket(rss: &Rss, protocol: Protocol, local: Endpoint, remote: Endpoint) -> Bucket {
    rss.steer(&Flow::new(remote.into(), local.into(), protocol)).bucket
}

/// Buckets of the target that each lane may hit; without an aim, bucket 0 stands for all.
fn aims(wish: &FlowWish<'_>) -> Result<Vec<Vec<usize>>, NoFlows> {
    let lanes = wish.rss.buckets.len();
    let Some(aim) = &wish.aim else { return Ok(vec![vec![0]; lanes]) };
    let there = aim.rss.buckets.len();
    match &aim.wanted {
        Wanted::Buckets(buckets) => {
            if let Some(beyond) = buckets.iter().find(|b| usize::from(b.0) >= there) {
                return Err(NoFlows::NoSuchBucket(beyond.0, there));
            }
            Ok(vec![buckets.iter().map(|b| usize::from(b.0)).collect(); lanes])
        }
        Wanted::SameWorker => Ok((0..lanes)
            .map(|lane| {
                let worker = wish.rss.buckets.worker_of(Bucket(lane as u16));
                aim.rss.buckets.buckets_of(worker).map(|b| usize::from(b.0)).collect()
            })
            .collect()),
    }
}

/// Number of flows that each pair of lane and target bucket still needs.
struct Quotas {
    of: Vec<BTreeMap<usize, u64>>,
    left: u64,
}

impl Quotas {
    fn new(flows: usize, aims: &[Vec<usize>]) -> Self {
        let lanes = crate::run::shares::divide(flows as u64, aims.len());
        let of: Vec<BTreeMap<usize, u64>> = lanes
            .iter()
            .zip(aims)
            .map(|(share, hits)| {
                hits.iter().copied().zip(crate::run::shares::divide(*share, hits.len())).collect()
            })
            .collect();
        let left = of.iter().flat_map(BTreeMap::values).sum();
        Self { of, left }
    }

    fn take(&mut self, lane: usize, hit: usize) -> bool {
        match self.of[lane].get_mut(&hit) {
            Some(left) if *left > 0 => {
                *left -= 1;
                self.left -= 1;
                true
            }
            _ => false,
        }
    }
}

/// The flows of a lane, alternating between the target's buckets.
fn interleave(flows: Vec<(usize, Endpoint)>) -> Vec<Endpoint> {
    let mut nth: BTreeMap<usize, usize> = BTreeMap::new();
    let mut placed: Vec<(usize, usize, Endpoint)> = flows
        .into_iter()
        .map(|(hit, client)| {
            let n = nth.entry(hit).or_default();
            *n += 1;
            (*n, hit, client)
        })
        .collect();
    placed.sort_by_key(|(n, hit, _)| (*n, *hit));
    placed.into_iter().map(|(_, _, client)| client).collect()
}

fn pick(ranges: &[&ClientRange], index: u128) -> std::net::IpAddr {
    let mut index = index;
    for range in ranges {
        if index < range.count() {
            return range.nth(index);
        }
        index -= range.count();
    }
    ranges[0].nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::{HashConfig, Key, UdpFields};

    fn rss(workers: usize, udp: UdpFields) -> Rss {
        let mut rss = Rss::new(Key::MICROSOFT, workers);
        rss.config = HashConfig::with_udp(udp);
        rss
    }

    fn wish<'a>(rss: &'a Rss, clients: &'a [ClientRange], flows: usize) -> FlowWish<'a> {
        let target = Endpoint::new("10.0.0.1".parse().unwrap(), 7);
        FlowWish { target, clients, flows, protocol: Protocol::UDP, rss, aim: None, start: 0 }
    }

    #[test]
    fn every_flow_comes_home() {
        for fields in [UdpFields::Two, UdpFields::Four] {
            let rss = rss(4, fields);
            let clients = ["10.0.1.0/24".parse().unwrap()];
            let wish = wish(&rss, &clients, 1001);
            let flows = choose(&wish).unwrap();
            assert_eq!(flows.iter().map(Vec::len).sum::<usize>(), 1001);
            for (lane, clients) in flows.iter().enumerate() {
                assert!(clients.len() == 1001 / 8 || lane == 0);
                for client in clients {
                    let home = reply_bucket(&rss, Protocol::UDP, *client, wish.target);
                    assert_eq!(usize::from(home.0), lane, "{client}");
                }
            }
        }
    }

    /// Two runs do not use the same ports, wherever their search begins, and none below 1024.
    #[test]
    fn the_search_begins_where_it_is_told() {
        let rss = rss(4, UdpFields::Four);
        let clients = [ClientRange::from("10.0.0.2".parse::<std::net::IpAddr>().unwrap())];
        let ports = |start| {
            let wish = FlowWish { start, ..wish(&rss, &clients, 16) };
            choose(&wish).unwrap().into_iter().flatten().map(|c| c.port).collect::<Vec<_>>()
        };
        let last = u64::from(PORTS.end() - PORTS.start());
        for start in [0, 7_000, last, u64::MAX] {
            let (first, mut of) = (1024 + (start % (last + 1)) as u16, ports(start));
            assert!(
                of.iter().all(|port| *port >= 1024 && port.wrapping_sub(first) < 16_000),
                "{start}: {of:?}"
            );
            of.sort_unstable();
            of.dedup();
            assert_eq!(of.len(), 16);
        }
        assert!(ports(0).iter().all(|port| !ports(7_000).contains(port)));
    }

    /// As many are found as are wanted, also where that takes longer than an unreachable lane is looked for. They are counted and not kept.
    #[test]
    fn more_than_four_million_are_found() {
        const FLOWS: usize = 5_000_000;
        let rss = rss(4, UdpFields::Four);
        let clients = ["10.1.0.0/16".parse().unwrap()];
        let wish = wish(&rss, &clients, FLOWS);
        let mut open = Quotas::new(FLOWS, &aims(&wish).unwrap());
        let mut found = vec![0; rss.buckets.len()];
        search(&wish, &[&clients[0]], &mut open, |lane, _, _| found[lane] += 1);
        assert_eq!((open.left, found.iter().sum::<usize>()), (0, FLOWS));
        assert!(found.iter().all(|lane| *lane == FLOWS / found.len()), "{found:?}");
    }

    #[test]
    fn one_address_has_one_lane_when_ports_do_not_count() {
        let rss = rss(2, UdpFields::Two);
        let clients = [ClientRange::from("10.0.0.2".parse::<std::net::IpAddr>().unwrap())];
        let flows = choose(&wish(&rss, &clients, 8)).unwrap();
        assert_eq!(flows.iter().filter(|f| !f.is_empty()).count(), 1);
    }

    #[test]
    fn flows_hit_the_buckets_aimed_at() {
        let ours = rss(2, UdpFields::Four);
        let theirs = rss(4, UdpFields::Four);
        let clients = ["10.0.1.0/24".parse().unwrap()];
        let wanted = Wanted::Buckets(vec![Bucket(1), Bucket(5)]);
        let mut wish = wish(&ours, &clients, 64);
        wish.aim = Some(Aim { rss: &theirs, wanted });
        let flows = choose(&wish).unwrap();
        let hits = |b| {
            let hit = |c: &&Endpoint| reply_bucket(&theirs, Protocol::UDP, wish.target, **c) == Bucket(b);
            flows.iter().flatten().filter(hit).count()
        };
        assert_eq!((hits(1), hits(5)), (32, 32));
        wish.aim = Some(Aim { rss: &theirs, wanted: Wanted::Buckets(vec![Bucket(8)]) });
        assert_eq!(choose(&wish), Err(NoFlows::NoSuchBucket(8, 8)));
    }

    #[test]
    fn a_bucket_out_of_reach_is_named() {
        let ours = rss(1, UdpFields::Two);
        let theirs = rss(8, UdpFields::Two);
        let clients = [ClientRange::from("10.0.0.2".parse::<std::net::IpAddr>().unwrap())];
        let mut wish = wish(&ours, &clients, 16);
        wish.aim = Some(Aim { rss: &theirs, wanted: Wanted::Buckets((0..16).map(Bucket).collect()) });
        assert!(matches!(choose(&wish), Err(NoFlows::OutOfReach(_))));
        wish.aim = None;
        let other = ["fd00::/64".parse().unwrap()];
        wish.clients = &other;
        assert!(matches!(choose(&wish), Err(NoFlows::Family(_))));
    }
}
