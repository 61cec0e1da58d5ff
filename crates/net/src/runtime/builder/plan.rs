//! The initial state of each worker: its lanes, queues, rings and its view of the hosts.

use std::sync::Arc;

use flowlane_rss::{Bucket, Rss, worker_of_queue};
use flowlane_stack::address::Prefix;
use flowlane_stack::packet::Offload;
use flowlane_stack::rng::{Keyed, Rng};
use flowlane_stack::tcp::{FastOpenKeys, TcpConfig};
use flowlane_stack::tunnel::TunnelConfig;
use flowlane_stack::udp::UdpElsewhere;

use flowlane_stack::{InterfaceConfig, Lane, LaneConfig, Route};
use flowlane_sys::kernel::uring::Ring;

use super::links::Links;
use super::{Builder, NETISR};
use crate::error::StartError;
use crate::kernel::{Io, KernelLane, Poller, Ports, Steering};
use crate::lane::{LaneId, LaneSlot};
use crate::link::{Groups, LinkInfo, Queue};
use crate::runtime::host::Host;
use crate::runtime::netisr::Netisr;
use crate::runtime::relay::relay;
use crate::runtime::worker::{Doors, HostView, Plan, Port, lane_index};
use crate::shared::Shared;

impl Builder {
    /// Shares lanes and queues out among the workers.
    pub(super) fn plan(
        &self,
        shared: &Arc<Shared>,
        mut links: Links,
        owners: &[usize],
        seeds: &mut Seeds,
        cpus: &[usize],
        mut rings: Vec<Ring>,
    ) -> Result<Vec<Plan>, StartError> {
        let mut plans: Vec<Plan> = Netisr::mesh(self.workers, NETISR)
            .into_iter()
            .map(|netisr| Plan {
                watched: self.watched,
                netisr,
                ports: Vec::new(),
                hosts: Vec::new(),
                lanes: (0..owners.len()).map(|_| None).collect(),
                idle: self.idle,
                poller: None,
            })
            .collect();
        for (link, (info, queues)) in links.all.iter_mut().enumerate() {
            deal(&mut plans, link, (info, std::mem::take(queues)), &links.doors[link], shared);
        }
        let links = &links;
        if self.hosts.iter().any(Host::has_kernel_sockets) {
            for (plan, post) in plans.iter_mut().zip(&shared.posts) {
                let poller = Poller::new(post.wake.fd(), rings.pop()).map_err(StartError::Thread)?;
                if let Some(time) = self.busy_poll {
                    poller.busy_poll(time)?;
                }
                plan.poller = Some(poller);
            }
        }
        let mut first_lane = 0;
        for (h, host) in self.hosts.iter().enumerate() {
            let steering = Steering::new(host.steer, host.rss.clone(), first_lane as u16, cpus, self.workers);
            let steering = steering.with_rps(self.rps).with_home_ports(host.home_ports);
            let listening = Arc::new(Ports::new(steering, host.zone));
            let interfaces = interfaces(h, host, links);
            let groups = groups(h, host, links);
            let routes = routes(host);
            Lane::check_tunnels(&interfaces, &host.tunnels, &routes).map_err(|(i, error)| {
                let TunnelConfig { local, remote, .. } = host.tunnels[i];
                StartError::Tunnel { host: host.name.clone(), local, remote, error }
            })?;
            let buckets = host.rss.buckets.len();
            for plan in &mut plans {
                plan.hosts.push(view(host, first_lane, h, &plan.ports, links));
            }
            let elsewhere = (buckets > 1).then(|| UdpElsewhere::new(buckets));
            let mut tcp = self.tcp_of(host, owners.len());
            for b in 0..buckets {
                let bucket = Bucket(b as u16);
                let index = lane_index(first_lane, bucket);
                let seed = seeds.next()?;
                if tcp.fast_open_keys.is_none() {
                    // A client's next connection may come to any lane with the cookie of this one.
                    let keyed = Keyed::new(seed[0], seed[1]);
                    let key = u128::from(keyed.hash(b"fast open")) << 64 | u128::from(keyed.hash(b"cookies"));
                    tcp.fast_open_keys = Some(FastOpenKeys::new(key.to_le_bytes()));
                }
                let mut lane = Lane::new(&LaneConfig {
                    bucket,
                    rss: host.rss.clone(),
                    interfaces: interfaces.clone(),
                    routes: routes.clone(),
                    tunnels: host.tunnels.clone(),
                    ip: host.ip,
                    udp: host.udp,
                    tcp: tcp.clone(),
                    reassembly: host.reassembly,
                    seed,
                });
                if let Some(elsewhere) = &elsewhere {
                    lane.share_udp(elsewhere.clone());
                }
                let flows =
                    host.flows.clone().filter(|_| !host.kernel).inspect(|flows| flows.watch(&mut lane));
                let owner = owners[index as usize];
                let plan = &mut plans[owner];
                let sockets = plan.poller.as_ref().filter(|_| host.has_kernel_sockets());
                let kernel = sockets.map(|poller| {
                    let lane = KernelLane::new(poller.epoll.clone(), index as u16, owner, listening.clone());
                    let lane = lane.by_ring(poller.has_ring()).with_congestion(host.congestion);
                    let mut lane = if host.kernel { lane } else { lane.beside() };
                    if let Some(records) = &host.flows {
                        lane.record_flows(records.clone(), shared.epoch(), bucket.0);
                    }
                    Box::new(lane)
                });
                let id = LaneId { runtime: shared.runtime, index };
                let mut slot = LaneSlot::new(id, h, lane, groups.clone());
                (slot.flows, slot.kernel) = (flows, kernel);
                plan.lanes[index as usize] = Some(Box::new(slot));
            }
            first_lane += buckets as u32;
        }
        Ok(plans)
    }

    /// A ring for each worker, or none, as it was wished; and what it is, in words, unless that was clear.
    pub(super) fn rings(&self) -> Result<(Vec<Ring>, Option<String>), StartError> {
        if self.io == Io::Epoll || !self.hosts.iter().any(Host::has_kernel_sockets) {
            return Ok((Vec::new(), None));
        }
        let rings = match self.busy_poll {
            Some(_) => Err("busy polling is epoll's".to_owned()),
            None => Poller::rings(self.workers),
        };
        match rings {
            Ok(rings) => Ok((rings, Some("connections by io_uring".to_owned()))),
            Err(why) if self.io == Io::Auto => {
                Ok((Vec::new(), Some(format!("connections by epoll, because of io_uring: {why}"))))
            }
            Err(why) => Err(StartError::Other(format!("io_uring: {why}"))),
        }
    }

    /// TCP of each of a host's lanes.
    fn tcp_of(&self, host: &Host, lanes: usize) -> TcpConfig {
        let tcp = self.bounded(&host.tcp, lanes);
        TcpConfig {
            congestion: host.congestion.unwrap_or(tcp.congestion),
            ecn: host.ecn.unwrap_or(tcp.ecn),
            ..tcp
        }
    }

    /// TCP as the host wants it, but with no more memory in one lane than its share of all, and with no more frames held by it than
    /// its share of half of a worker's: even if all lanes of all workers hold frames of one and the same, it can go on.
    fn bounded(&self, tcp: &TcpConfig, lanes: usize) -> TcpConfig {
        let lanes = lanes.max(1);
        let share = self.memory.frames_per_home * self.memory.frame_size / 2 / lanes;
        let memory = self.tcp_memory.unwrap_or_else(a_quarter) / lanes;
        TcpConfig {
            max_held: tcp.max_held.min(share),
            // Guard: `tcp.max_memory.min(memory.max(LEAST_LANE))` as `tcp.max_memory` fails builder::plan
            // Guard: `.max(LEAST_LANE)` as `.max(0)` fails builder::plan
            max_memory: tcp.max_memory.min(memory.max(LEAST_LANE)),
            ..tcp.clone()
        }
    }
}

/// Bytes that TCP of a lane may keep, however many lanes there are: a few connections work with that.
const LEAST_LANE: usize = 1 << 20;

/// A quarter of the machine's memory, bytes.
fn a_quarter() -> usize {
    let info = rustix::system::sysinfo();
    let units = usize::try_from(info.totalram).unwrap_or(usize::MAX) / 4;
    units.saturating_mul(info.mem_unit.max(1) as usize)
}

fn interfaces(h: usize, host: &Host, links: &Links) -> Vec<InterfaceConfig> {
    host.interfaces
        .iter()
        .enumerate()
        .filter_map(|(i, interface)| {
            let info = links.info(h, i)?;
            Some(InterfaceConfig {
                mac: info.mac,
                mtu: info.mtu,
                addresses: interface.addresses.clone(),
                claimed: interface.claimed.clone(),
                vlan: interface.vlan,
                offload: Offload { checksum: info.checksum_offload, segmentation: info.segmentation },
            })
        })
        .collect()
}

/// Gives each worker its queues of a link. A worker without one gets a way to that of another.
fn deal(
    plans: &mut [Plan],
    link: usize,
    (info, queues): (&LinkInfo, Vec<Box<dyn Queue>>),
    doors: &Doors,
    shared: &Shared,
) {
    let (workers, count) = (plans.len(), queues.len());
    let port = |queue, index| Port::new(queue, link, index, (info.life.clone(), info.mtu), doors.clone());
    for (q, queue) in (0_u16..).zip(queues) {
        let worker = usize::from(worker_of_queue(q, workers).0);
        plans[worker].ports.push(port(queue, Some(q)));
    }
    for worker in count..workers {
        let to = worker % count;
        let (near, far) = relay(shared.posts[to].wake.clone());
        plans[worker].ports.push(port(Box::new(near), None));
        if let Some(port) = plans[to].ports.iter_mut().find(|p| p.link() == link) {
            port.send_for(far);
        }
    }
}

/// Of each interface that is joined to a link, how to have multicast groups let through.
fn groups(h: usize, host: &Host, links: &Links) -> Arc<[Option<Groups>]> {
    (0..host.interfaces.len()).map(|i| links.info(h, i).and_then(|info| info.groups.clone())).collect()
}

fn routes(host: &Host) -> Vec<Route> {
    host.gateways
        .iter()
        .filter_map(|gateway| {
            let any = if gateway.is_ipv4() { "0.0.0.0" } else { "::" };
            let prefix = Prefix::new(any.parse().ok()?, 0)?;
            let links = host.interfaces.iter().map(|i| &i.addresses);
            let mut all = links.chain(host.tunnels.iter().map(|t| &t.addresses));
            let interface = all.position(|a| a.iter().any(|p| p.contains(*gateway))).unwrap_or(0);
            Some(Route { prefix, gateway: Some(*gateway), interface: interface as u8 })
        })
        .collect()
}

fn view(host: &Host, first_lane: u32, h: usize, ports: &[Port], links: &Links) -> HostView {
    let (rss, interfaces) = (&host.rss, host.interfaces.len());
    let of = |bucket, interface| port_of(ports, links.of(h, interface)?, bucket, rss);
    let follows = || ports.iter().any(|p| p.index().is_some() && links.steered(p.link(), h));
    let is_shared = |i: &u8| links.info(h, usize::from(*i)).is_some_and(|info| info.life.is_some());
    HostView::new(&host.name, rss, first_lane, (interfaces, ports.len()), of)
        .sharing((0..interfaces as u8).filter(is_shared).collect())
        .following(links.follow(h) && follows())
}

/// The port that the lane of a bucket sends on: that of the queue which its packets come on, if it is here.
fn port_of(ports: &[Port], link: usize, bucket: Bucket, rss: &Rss) -> Option<usize> {
    let mut here = (0..ports.len()).filter(|p| ports[*p].link() == link);
    let of_bucket = here.clone().find(|p| ports[*p].index() == Some(rss.queue_of(bucket)));
    let count = here.clone().count();
    of_bucket.or_else(|| here.nth(usize::from(bucket.0) % count.max(1)))
}

/// Where the lanes' seeds come from.
pub(super) struct Seeds {
    fixed: Option<Rng>,
}

impl Seeds {
    pub(super) fn new(seed: Option<u64>) -> Result<Self, StartError> {
        Ok(Self { fixed: seed.map(Rng::new) })
    }

    fn next(&mut self) -> Result<[u64; 4], StartError> {
        if let Some(rng) = &mut self.fixed {
            return Ok(std::array::from_fn(|_| rng.next_u64()));
        }
        let mut seed = [0; 4];
        for word in &mut seed {
            *word = crate::entropy::random_u64().map_err(StartError::Entropy)?;
        }
        Ok(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound holds for all lanes together, however many there are.
    #[test]
    fn lanes_share_the_memory_of_tcp() {
        let bound = |total: usize, lanes: usize, wanted: usize| {
            let tcp = TcpConfig { max_memory: wanted, ..TcpConfig::default() };
            Builder::new().tcp_memory(total).bounded(&tcp, lanes).max_memory
        };
        for lanes in [1, 2, 7, 128] {
            assert!(bound(2 << 30, lanes, usize::MAX) * lanes <= 2 << 30, "{lanes} lanes");
            assert!(bound(2 << 30, lanes, usize::MAX) * lanes > (2 << 30) - 128, "{lanes} lanes");
        }
        assert_eq!(bound(2 << 30, 2, 16 << 20), 16 << 20, "what a host says, if that is less");
        assert_eq!(bound(1, 2, 1 << 30), LEAST_LANE);
        // Without a word there is a bound, too: that of the machine.
        let most = TcpConfig { max_memory: usize::MAX, ..TcpConfig::default() };
        let of = |lanes| Builder::new().bounded(&most, lanes).max_memory * lanes;
        assert_eq!(of(1), a_quarter());
        assert!(of(64) <= a_quarter().max(64 * LEAST_LANE));
    }
}
