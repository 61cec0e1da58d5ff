//! One lane: everything of the stack that belongs to one bucket of one host.
//!
//! A lane is a plain value. Its caller passes in frames, the time and a pool; it returns frames to send, frames that belong to another
//! lane, and messages for the host's other lanes. It owns everything it accesses and can be sent to another thread between any two calls.
//!
//! ```text
//!   input ──▶ ethernet ▸ ip ┬▸ udp ▸ socket queue ──▶ wakes a task
//!                           └▸ tcp ▸ connection ────▶ wakes a task
//!   poll_output ◀── output queue ◀── ethernet ◀ ip ┬◀ udp ◀── udp_send
//!                                                  └◀ tcp, asked in turn with the queue
//!   poll_redirect ◀── frames whose inner flow belongs to another bucket
//!   poll_event    ◀── neighbours learnt, for the other lanes of the host: tell()
//!   poll_at, on_timer: requests to neighbours that did not answer, fragments that wait, connections
//! ```
//!
//! Calls may be made in any order; none blocks, and none panics on any bytes from the network.

mod addresses;
mod flows;
mod output;
mod tcp;
mod udp;

pub use tcp::Connect;
pub use udp::Unsent;

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use flowlane_rss::{Bucket, Flow, HomePorts, Protocol, Rss};
use flowlane_sys::frame::{Frame, Pool};

use crate::address::Endpoint;
use crate::datagram_flows::DatagramFlows;
use crate::fastpath::{Datagrams, Run, may_be_segment};
use crate::interface::InterfaceConfig;
use crate::ip::{Inbound, Ip, IpConfig, LaneEvent, SendError};
use crate::packet::{Cx, IcmpError, IcmpErrorKind, IpInput, Offload};
use crate::path_mtu::PathMtus;
use crate::reassembly::ReassemblyConfig;
use crate::rng::{Keyed, Rng};
use crate::route::Route;
use crate::stats::{DropReason, LaneStats};
use crate::steering::{steer, steer_ip};
use crate::tcp::{Tcp, TcpConfig};
use crate::time::Time;
use crate::top::Top;
use crate::tunnel::{TunnelConfig, TunnelError, Tunnels};
use crate::udp::{Outcome, Udp, UdpConfig};
use crate::wire::{IpProtocol, MacAddr, Malformed};

/// Frames waiting to be handed to another lane.
const REDIRECTS: usize = 1024;

/// Configuration of a lane.
#[derive(Debug, Clone)]
pub struct LaneConfig {
    /// The bucket it is the lane of.
    pub bucket: Bucket,
    /// How flows are steered in this host.
    pub rss: Arc<Rss>,
    /// The host's interfaces; `meta().interface` of a frame is an index into them.
    pub interfaces: Vec<InterfaceConfig>,
    /// Routes beyond the networks of the interfaces.
    pub routes: Vec<Route>,
    /// The host's tunnels: interfaces that follow `interfaces`, in this order. [`Lane::check_tunnels`] finds mistakes.
    pub tunnels: Vec<TunnelConfig>,
    /// Limits and habits of IP and of what lies below it.
    pub ip: IpConfig,
    /// Limits of UDP.
    pub udp: UdpConfig,
    /// Limits and habits of TCP.
    pub tcp: TcpConfig,
    /// Limits of reassembly.
    pub reassembly: ReassemblyConfig,
    /// Seeds of the lane's randomness and hash tables: secret, and different for every lane.
    pub seed: [u64; 4],
}

impl LaneConfig {
    /// Of a host with these interfaces: no routes beyond their networks, no tunnels, and limits by default. To be changed for a host that is more.
    #[must_use]
    pub fn new(bucket: Bucket, rss: Arc<Rss>, interfaces: Vec<InterfaceConfig>, seed: [u64; 4]) -> Self {
        Self {
            bucket,
            rss,
            interfaces,
            routes: Vec::new(),
            tunnels: Vec::new(),
            ip: IpConfig::default(),
            udp: UdpConfig::default(),
            tcp: TcpConfig::default(),
            reassembly: ReassemblyConfig::default(),
            seed,
        }
    }
}

/// A packet for another lane of the same host.
#[derive(Debug)]
pub struct Redirect {
    /// Whose lane.
    pub bucket: Bucket,
    /// The packet.
    pub frame: Frame,
    /// Where its data starts.
    pub class: Class,
}

/// How far a frame has come when it reaches a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// As from the link: its data starts at the Ethernet header.
    Ethernet,
    /// Ethernet and IP were checked in another lane, and the packet is whole, if perhaps in a chain of frames: its
    /// data starts at the IP header (`ip_direct` and `ip6_direct` of FreeBSD's netisr).
    IpDirect,
    /// Out of a tunnel, with nothing of the inner packet looked at yet: its data starts at the inner Ethernet header.
    InnerEthernet,
    /// As before, for a tunnel that carries IP: its data starts at the inner IP header.
    InnerIp,
}

/// One lane.
#[derive(Debug)]
pub struct Lane {
    bucket: Bucket,
    pub(crate) rss: Arc<Rss>,
    pub(crate) ip: Ip,
    pub(crate) udp: Udp,
    pub(crate) tcp: Tcp,
    pub(crate) rng: Rng,
    /// For all transports.
    pub(crate) paths: PathMtus,
    pub(crate) offload: Offload,
    /// Flows with most packets and bytes, if somebody watches.
    pub(crate) top: Top,
    /// UDP flows, if somebody wants their records.
    pub(crate) datagram_flows: DatagramFlows,
    /// Either of the two is on: frames are counted.
    pub(crate) counts_frames: bool,
    redirects: VecDeque<Redirect>,
    /// TCP is asked next, before what stands in IP's output queue.
    pub(crate) tcp_turn: bool,
    /// What comes in now is part of a burst.
    in_burst: bool,
    /// Who waits for room in the output queue of which interface.
    pub(crate) senders: Vec<(u8, Waker)>,
    /// Which local ports' answers come here; made when first asked.
    pub(crate) home: Option<Arc<HomePorts>>,
}

impl Lane {
    /// A lane without sockets.
    #[must_use]
    pub fn new(config: &LaneConfig) -> Self {
        let [a, b, c, d] = config.seed;
        // What every interface offers can be relied on for any packet.
        let offload = config.interfaces.iter().map(|i| i.offload).reduce(|x, y| Offload {
            checksum: x.checksum && y.checksum,
            segmentation: x.segmentation.min(y.segmentation),
        });
        // What goes into a tunnel no link can cut.
        let offload = offload.map(|o| match config.tunnels.is_empty() {
            true => o,
            false => Offload { segmentation: 0, ..o },
        });
        Self {
            bucket: config.bucket,
            rss: config.rss.clone(),
            ip: Ip::new(
                &config.interfaces,
                &config.tunnels,
                &config.routes,
                config.reassembly,
                &config.ip,
                config.bucket.0,
                [a, b],
            ),
            udp: Udp::new(config.udp, c),
            tcp: Tcp::new(config.tcp.clone(), tcp_secret(config.seed)),
            rng: Rng::new(d),
            paths: PathMtus::new(b.rotate_left(41)),
            offload: offload.unwrap_or_default(),
            top: Top::default(),
            datagram_flows: DatagramFlows::default(),
            counts_frames: false,
            redirects: VecDeque::new(),
            tcp_turn: false,
            in_burst: false,
            senders: Vec::new(),
            home: None,
        }
    }

    /// Looks for mistakes in a host's tunnels: the first that cannot work, by its place, and why.
    ///
    /// # Errors
    /// See [`TunnelError`].
    pub fn check_tunnels(
        interfaces: &[InterfaceConfig],
        tunnels: &[TunnelConfig],
        routes: &[Route],
    ) -> Result<(), (usize, TunnelError)> {
        Tunnels::check(interfaces, tunnels, routes)
    }

    /// The bucket whose lane this is.
    #[must_use]
    pub fn bucket(&self) -> Bucket {
        self.bucket
    }

    /// How flows are steered in this host.
    #[must_use]
    pub fn rss(&self) -> &Rss {
        &self.rss
    }

    #[inline]
    pub(crate) fn cx<'a>(
        rng: &'a mut Rng,
        paths: &'a mut PathMtus,
        offload: Offload,
        now: Time,
        frames: &'a Pool,
    ) -> Cx<'a> {
        Cx { now, frames, rng, paths, offload }
    }

    /// What the fast path of datagrams needs of the lane.
    #[inline]
    pub(crate) fn datagrams(&mut self) -> Datagrams<'_> {
        Datagrams { ip: &mut self.ip, udp: &mut self.udp, paths: &self.paths, offload: self.offload }
    }

    pub(crate) fn offload(&self) -> Offload {
        self.offload
    }

    /// Takes in a frame from a link of the host or from another lane.
    #[inline(always)]
    pub fn input(&mut self, now: Time, frames: &Pool, frame: Frame, class: Class) {
        if self.counts_frames {
            self.count_received(now, &frame, class);
        }
        let frame = match class {
            Class::Ethernet | Class::InnerEthernet if may_be_segment(&frame) => {
                return self.segment_input(now, frames, frame, class);
            }
            Class::Ethernet | Class::InnerEthernet => match self.datagram_input(frame) {
                Ok(()) => return,
                Err(frame) => frame,
            },
            Class::IpDirect | Class::InnerIp => frame,
        };
        self.slow_input(now, frames, frame, class);
    }

    /// Delivers a datagram of the usual kind; gives any other frame back.
    #[inline(never)]
    fn datagram_input(&mut self, frame: Frame) -> Result<(), Frame> {
        let mut run = Run::default();
        self.datagrams().fast_input(frame, &mut run)?;
        run.end(&mut self.ip.stats);
        Ok(())
    }

    /// Takes in what looks like a segment of TCP.
    #[inline(never)]
    fn segment_input(&mut self, now: Time, frames: &Pool, frame: Frame, class: Class) {
        match self.ip.fast_segment(frame) {
            Ok(packet) => {
                let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
                if self.in_burst {
                    self.tcp.burst_input(&mut cx, packet);
                } else {
                    self.tcp.input(&mut cx, packet);
                }
            }
            Err(frame) => self.slow_input(now, frames, frame, class),
        }
    }

    /// Takes in a frame of any kind.
    #[inline(never)]
    fn slow_input(&mut self, now: Time, frames: &Pool, frame: Frame, class: Class) {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        let inbound = match class {
            Class::Ethernet | Class::InnerEthernet => self.ip.input(&mut cx, frame),
            Class::InnerIp => self.ip.input_ip(&mut cx, frame),
            Class::IpDirect => self.ip.input_direct(&mut cx, frame),
        };
        match inbound {
            Inbound::Done => {}
            Inbound::Transport(packet) => self.transport(now, frames, packet),
            Inbound::Whole(packet) => self.whole(now, frames, packet),
            Inbound::Inner { frame, ethernet } => self.inner(now, frames, frame, ethernet),
            Inbound::Speaker(packet) => self.for_speaker(packet),
            Inbound::Error(error, packet) => self.icmp_error(now, frames, &error, packet),
        }
    }

    /// As [`Lane::input`], for a frame of a burst, which [`Lane::end_burst`] ends. Until then TCP may hold segments, to join those of one
    /// flow. In between no other calls than for frames are allowed.
    #[inline(always)]
    pub fn input_in_burst(&mut self, now: Time, frames: &Pool, frame: Frame, class: Class) {
        self.in_burst = true;
        self.input(now, frames, frame, class);
        self.in_burst = false;
    }

    /// As [`Lane::input_in_burst`] of each frame, from a link of the host. What is the same for datagrams of one flow that follow one another
    /// is looked at once.
    // A function of its own, whose loop has all registers for itself.
    #[inline(never)]
    pub fn input_burst(&mut self, now: Time, frames: &Pool, burst: impl Iterator<Item = Frame>) {
        let mut run = Run::default();
        let counts = self.counts_frames;
        for frame in burst {
            if counts {
                self.count_received(now, &frame, Class::Ethernet);
            }
            let frame = if may_be_segment(&frame) {
                frame
            } else {
                match self.datagrams().fast_input(frame, &mut run) {
                    Ok(()) => continue,
                    Err(frame) => frame,
                }
            };
            run.interrupt();
            self.in_burst = true;
            self.segment_input(now, frames, frame, Class::Ethernet);
            self.in_burst = false;
        }
        run.end(&mut self.ip.stats);
    }

    /// Handles what was held of a burst. Without effect, and cheap, if nothing was.
    #[inline]
    pub fn end_burst(&mut self, now: Time, frames: &Pool) {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        self.tcp.end_burst(&mut cx);
    }

    /// A packet put together from its fragments: now its ports can be seen and it goes to the lane of its flow.
    fn whole(&mut self, now: Time, frames: &Pool, mut packet: Frame) {
        let (bucket, _) = steer_ip(&self.rss, &mut packet);
        if bucket == self.bucket {
            // Ends here: what comes in this way is no fragment any more.
            self.input(now, frames, packet, Class::IpDirect);
            return;
        }
        let v4 = packet.data().first().is_some_and(|b| b >> 4 == 4);
        let ip = if v4 { &mut self.ip.stats.ip } else { &mut self.ip.stats.ip6 };
        ip.reassembled_elsewhere += 1;
        self.redirect(Redirect { bucket, frame: packet, class: Class::IpDirect });
    }

    /// What a tunnel carried: it has a flow of its own, and goes to that flow's lane. Ends, since each tunnel within
    /// another has a higher level.
    fn inner(&mut self, now: Time, frames: &Pool, mut packet: Frame, ethernet: bool) {
        let (class, (bucket, _)) = match ethernet {
            true => (Class::InnerEthernet, steer(&self.rss, &mut packet)),
            false => (Class::InnerIp, steer_ip(&self.rss, &mut packet)),
        };
        if bucket == self.bucket {
            return self.input(now, frames, packet, class);
        }
        self.ip.stats.tunnel.redirected += 1;
        self.redirect(Redirect { bucket, frame: packet, class });
    }

    #[inline]
    fn transport(&mut self, now: Time, frames: &Pool, packet: IpInput) {
        if packet.ip.protocol == IpProtocol::UDP.0 {
            if self.ip.is_dhcp(&packet) {
                return self.dhcp_input(packet);
            }
            if let Some(bucket) = self.udp.datagram_elsewhere(&packet) {
                return self.datagram_for(bucket, packet);
            }
            if let Outcome::Unreachable(packet) = self.udp.input(packet, &mut self.ip.stats) {
                let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
                self.ip.port_unreachable(&mut cx, packet);
            }
        } else {
            // IP lets nothing else through.
            self.tcp_input(now, frames, packet);
        }
    }

    /// A datagram for a connected socket that another lane has.
    #[cold]
    fn datagram_for(&mut self, bucket: Bucket, packet: IpInput) {
        let v4 = packet.ip.dst.is_ipv4();
        let ip = if v4 { &mut self.ip.stats.ip } else { &mut self.ip.stats.ip6 };
        // It is counted where it is delivered.
        ip.delivered = ip.delivered.saturating_sub(1);
        self.ip.stats.udp.elsewhere += 1;
        self.hand_over(bucket, packet);
    }

    /// Gives a packet, as it came, to another lane.
    fn hand_over(&mut self, bucket: Bucket, mut packet: IpInput) {
        let header = usize::from(packet.ip.header_len);
        if packet.frame.push_front(header).is_some() {
            self.redirect(Redirect { bucket, frame: packet.frame, class: Class::IpDirect });
        } else {
            self.ip.drop(DropReason::NoHeadroom);
        }
    }

    #[inline(never)]
    fn tcp_input(&mut self, now: Time, frames: &Pool, packet: IpInput) {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        if self.in_burst {
            self.tcp.input_in_burst(&mut cx, packet);
        } else {
            self.tcp.input(&mut cx, packet);
        }
    }

    /// An error about a packet of ours: for the transport here, or for the lane that sent it.
    fn icmp_error(&mut self, now: Time, frames: &Pool, error: &IcmpError, packet: IpInput) {
        let port = |i: usize| u16::from_be_bytes([error.quoted[i], error.quoted[i + 1]]);
        let reply = Flow {
            src: error.remote,
            dst: error.local,
            src_port: port(2),
            dst_port: port(0),
            protocol: Protocol(error.protocol),
            fragment: false,
        };
        let home = self.rss.steer(&reply).bucket;
        let ends = (Endpoint::new(error.local, port(0)), Endpoint::new(error.remote, port(2)));
        let udp = IpProtocol(error.protocol) == IpProtocol::UDP;
        // A connected socket may stand elsewhere than its answers come to.
        // Guard: `self.udp.is_connected(ends.0, ends.1)` as `false` fails lane/elsewhere::an_error_reaches
        if home != self.bucket && !(udp && self.udp.is_connected(ends.0, ends.1)) {
            return self.hand_over(home, packet);
        }
        // Guard: `self.udp.elsewhere(ends.0, ends.1).filter(|_| udp)` as `None` fails
        // lane/elsewhere::an_error_reaches
        if let Some(bucket) = self.udp.elsewhere(ends.0, ends.1).filter(|_| udp) {
            return self.hand_over(bucket, packet);
        }
        let known = match IpProtocol(error.protocol) {
            IpProtocol::UDP => {
                let known = self.udp.icmp_error(error);
                if let (true, IcmpErrorKind::PacketTooBig(mtu)) = (known, error.kind) {
                    let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
                    self.ip.path_too_small(&mut cx, error.remote, mtu);
                }
                known
            }
            IpProtocol::TCP => {
                let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
                self.tcp.icmp_error(&mut cx, error)
            }
            _ => false,
        };
        if !known {
            self.ip.drop(DropReason::IcmpUnrelated);
        }
    }

    /// A packet that the lane speaking for the host has to see: that of bucket 0.
    fn for_speaker(&mut self, packet: IpInput) {
        self.hand_over(Bucket(0), packet);
    }

    fn redirect(&mut self, redirect: Redirect) {
        // Guard: `self.redirects.len() >= REDIRECTS` as `false` fails lane::tests::redirects_are_bounded
        if self.redirects.len() >= REDIRECTS {
            self.ip.drop(DropReason::RedirectFull);
        } else {
            self.redirects.push_back(redirect);
        }
    }

    /// The next packet that belongs to another lane.
    #[inline]
    pub fn poll_redirect(&mut self) -> Option<Redirect> {
        self.redirects.pop_front()
    }

    /// The next message for the host's other lanes.
    #[inline]
    pub fn poll_event(&mut self) -> Option<LaneEvent> {
        let path = |(to, mtu)| LaneEvent::PathMtu { to, mtu };
        self.ip.poll_event().or_else(|| self.paths.poll_news().map(path))
    }

    /// Takes in what another lane of the host learnt.
    pub fn tell(&mut self, now: Time, event: LaneEvent) {
        match event {
            LaneEvent::PathMtu { to, mtu } => self.paths.told(now, to, mtu),
            event => self.ip.told(now, event, &mut self.rng),
        }
    }

    /// When [`Lane::on_timer`] wants to be called; `None` if there is nothing to wait for.
    #[inline]
    #[must_use]
    pub fn poll_at(&self) -> Option<Time> {
        if self.ip.has_lost() {
            return Some(Time::ZERO);
        }
        let flows = self.datagram_flows.next_deadline();
        let all = [self.ip.next_deadline(), self.tcp.next_deadline(), self.paths.next_deadline(), flows];
        all.into_iter().flatten().min()
    }

    /// Runs the timers that are due.
    pub fn on_timer(&mut self, now: Time, frames: &Pool) {
        self.paths.expire(now);
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        self.ip.on_timer(&mut cx);
        if self.ip.has_lost() {
            self.end_what_was_lost(now);
        }
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        self.tcp.on_timer(&mut cx);
        self.datagram_flows.on_timer(now);
    }

    /// The lane's counters.
    #[must_use]
    pub fn stats(&self) -> LaneStats {
        let mut stats = LaneStats { tcp: *self.tcp.stats(), ..self.ip.stats.clone() };
        let flows = self.datagram_flows.counts();
        stats.udp.flow_records += flows.ended;
        stats.udp.flow_records_active += flows.active;
        stats.udp.flow_records_no_room += flows.no_room;
        stats.udp.flow_records_lost += flows.lost;
        stats
    }

    /// Calls `f` with the layer, the name and the count of every reason for which the lane can drop a packet, always in the same order.
    pub fn drops(&self, f: &mut dyn FnMut(&'static str, &'static str, u64)) {
        let drops = &self.ip.stats.drops;
        DropReason::ALL.iter().for_each(|reason| f("stack", reason.name(), drops.get(*reason)));
        Malformed::ALL.iter().for_each(|reason| f("malformed", reason.name(), drops.get_malformed(*reason)));
        let tcp = self.tcp.stats();
        crate::tcp::DropReason::ALL.iter().for_each(|reason| f("tcp", reason.name(), tcp.dropped(*reason)));
    }

    /// The shared link of an interface is up, for the first time or again. The lane of bucket 0 probes the host's addresses for
    /// duplicates, announces them and reports groups, but this must be called in every lane. Without this call a lane only answers, as
    /// for links in memory.
    pub fn link_up(&mut self, now: Time, frames: &Pool, interface: u8) {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        self.ip.link_up(&mut cx, interface);
    }

    /// Joins a multicast group on an interface and reports it to the network. `false` if the lane had joined it already.
    pub fn join(&mut self, now: Time, frames: &Pool, interface: u8, group: IpAddr) -> bool {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        self.ip.join(&mut cx, interface, group)
    }

    /// Leaves a multicast group. `false` if the lane was not in it.
    pub fn leave(&mut self, now: Time, frames: &Pool, interface: u8, group: IpAddr) -> bool {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        self.ip.leave(&mut cx, interface, group)
    }

    /// Sets the MTU of a link, bytes of IP packet. Packets have at most this length from now on, those of existing connections included,
    /// whose longer segments in flight are sent again. Segments of existing connections do not become longer.
    pub fn set_mtu(&mut self, now: Time, frames: &Pool, interface: u8, mtu: u16) {
        if self.ip.set_mtu(interface, mtu) {
            let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
            let ip = &self.ip;
            self.tcp.narrow(&mut cx, |paths, remote| ip.mtu_to(paths, remote));
        }
    }

    /// The source address for packets to `destination` when the application does not choose one.
    #[must_use]
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        self.ip.source_for(destination)
    }

    /// Whether `address` is one of the host's own, claimed networks included.
    #[must_use]
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.ip.is_local(address)
    }

    /// Largest UDP payload towards `destination` that fits one packet, bytes; longer ones leave in fragments.
    pub fn max_payload(&self, destination: IpAddr) -> Result<usize, SendError> {
        let mtu = self.ip.mtu_to(&self.paths, destination).ok_or(SendError::NoRoute)?;
        Ok(usize::from(mtu).saturating_sub(if destination.is_ipv4() { 28 } else { 48 }))
    }

    /// The bucket in which answers to a UDP datagram from `local` to `remote` arrive.
    #[inline]
    #[must_use]
    pub fn reply_bucket(&self, local: Endpoint, remote: Endpoint) -> Bucket {
        self.rss.steer(&flow(IpProtocol::UDP, remote, local)).bucket
    }

    /// Neighbours with their Ethernet addresses: interface, address, Ethernet address.
    pub fn neighbours(&self) -> impl Iterator<Item = (u8, IpAddr, MacAddr)> + '_ {
        self.ip.neighbours.known()
    }
}

/// Keys of TCP's sequence numbers, cookies and tables: which of the lane's other secrets they come from cannot be told
/// from them, nor they from those.
fn tcp_secret([a, b, c, d]: [u64; 4]) -> [u64; 3] {
    let keyed = Keyed::new(a ^ c.rotate_left(32), b ^ d.rotate_left(32));
    [b"tcp 0", b"tcp 1", b"tcp 2"].map(|name| keyed.hash(name))
}

/// The flow of a packet as its receiver sees it.
#[inline]
pub(crate) fn flow(protocol: IpProtocol, source: Endpoint, destination: Endpoint) -> Flow {
    Flow {
        src: source.ip,
        dst: destination.ip,
        src_port: source.port,
        dst_port: destination.port,
        protocol: Protocol(protocol.0),
        fragment: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// What waits for other lanes is bounded, and what does not fit is dropped under its name: a stranger chooses how many
    /// fragments and tunnelled packets are another lane's.
    #[test]
    fn redirects_are_bounded() {
        let pool = testing::pool(REDIRECTS + 10);
        let mut lane = testing::lane(testing::interface(1), [1, 2, 3, 4]);
        for _ in 0..REDIRECTS + 3 {
            let frame = pool.alloc().unwrap();
            lane.redirect(Redirect { bucket: Bucket(1), frame, class: Class::IpDirect });
        }
        assert_eq!(lane.stats().drops.get(DropReason::RedirectFull), 3);
        assert_eq!(std::iter::from_fn(|| lane.poll_redirect()).count(), REDIRECTS);
        assert_eq!(pool.free(), REDIRECTS + 10);
    }
}
