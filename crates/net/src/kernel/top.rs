//! What has passed on a lane's kernel sockets, for who asks: some sockets at a time, so that the lane does not stop for long.

use std::net::SocketAddr;
use std::time::Duration;

use flowlane_stack::time::Time;
use flowlane_stack::top::{TopCount, TopFlow, TopReport, TopTotals};
use flowlane_stack::wire::IpProtocol;
use flowlane_sys::kernel::options;
use flowlane_sys::kernel::socket;

use super::KernelLane;
use super::counted::Counted;
use super::slab::{Flags, Socket, SocketId};

/// Sockets that are looked at between two turns of the worker, two or three system calls each.
const AT_ONCE: usize = 256;

impl KernelLane {
    /// Adds the connections and the connected sockets of datagrams in some slots from `from` on to a report. Where to go on, if
    /// there are more.
    pub(crate) fn top_flows(&self, now: Time, from: u32, report: &mut TopReport) -> Option<u32> {
        for (looked_at, (id, socket)) in self.sockets.iter_from(from).enumerate() {
            if looked_at == AT_ONCE {
                return Some(id.slot);
            }
            let Some(flow) = self.top_flow(id, socket, now) else { continue };
            report.counted.packets += flow.packets.count;
            report.counted.octets += flow.octets.count;
            report.flows.push(flow);
        }
        None
    }

    /// `None` of what is no flow, or is gone as it is looked at.
    fn top_flow(&self, id: SocketId, socket: &Socket, now: Time) -> Option<TopFlow> {
        if socket.flags.has(Flags::STREAM) {
            let local = socket::local_address(socket.fd()).ok()?;
            let remote = socket::peer_address(socket.fd()).ok()?;
            let info = options::tcp_info(socket.fd()).ok()?;
            let counted = Counted::of_connection(&info, false, false);
            let mut flow = flow(IpProtocol::TCP, local, remote, counted, now);
            let idle = Duration::from_millis(info.since_sent.min(info.since_received).into());
            flow.last = Time::from_nanos(now.as_nanos().saturating_sub(idle.as_nanos() as u64));
            return Some(flow);
        }
        let ends = self.udp.ends(id.slot)?;
        Some(flow(IpProtocol::UDP, ends.local, ends.remote?, Counted::of_datagrams(ends), now))
    }
}

fn flow(protocol: IpProtocol, local: SocketAddr, remote: SocketAddr, counted: Counted, now: Time) -> TopFlow {
    let mut flow = TopFlow::by_kernel(protocol, local.into(), remote.into(), now);
    let (sent, received) = (counted.sent, counted.received);
    let exact = |count| TopCount { count, error: 0 };
    flow.packets = exact(sent.segments + received.segments);
    flow.octets = exact(sent.bytes + received.bytes);
    flow.sent = TopTotals { packets: sent.segments, octets: sent.bytes };
    flow.received = TopTotals { packets: received.segments, octets: received.bytes };
    flow
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use flowlane_rss::{Key, Rss};
    use flowlane_stack::udp::Bind;
    use flowlane_sys::kernel::epoll::Epoll;

    use super::*;
    use crate::kernel::{Ports, Steer, Steering};

    /// All of them in some looks, each once; a socket without a peer is no flow.
    #[test]
    fn sockets_are_looked_at_some_at_a_time() {
        let steering = Steering::new(Steer::None, Arc::new(Rss::new(Key::MICROSOFT, 1)), 0, &[], 1);
        let epoll = Arc::new(Epoll::new().unwrap());
        let mut lane = KernelLane::new(epoll, 0, 0, Arc::new(Ports::new(steering, 0)));
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        lane.udp_bind(&Bind::default()).unwrap();
        for _ in 0..AT_ONCE + 9 {
            lane.udp_bind(&Bind { remote: Some(peer.into()), ..Bind::default() }).unwrap();
        }
        let now = Time::from_secs(7);
        let (mut report, mut looks, mut from) = (TopReport::default(), 0, Some(0));
        while let Some(slot) = from {
            from = lane.top_flows(now, slot, &mut report);
            looks += 1;
            assert!(report.flows.len() <= looks * AT_ONCE);
        }
        assert_eq!((report.flows.len(), looks), (AT_ONCE + 9, 2));
        let mut ports: Vec<_> = report.flows.iter().map(|flow| flow.local.port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), AT_ONCE + 9);
        assert!(report.flows.iter().all(|flow| flow.by_kernel && SocketAddr::from(flow.remote) == peer));
    }
}
