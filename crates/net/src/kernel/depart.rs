//! A connection leaves its lane, and comes to another of its host.
//!
//! ```text
//!   socket in a slab ─ depart ─▶ descriptor, what is known of it, its flow ─ arrive ─▶ socket in the other lane's slab
//! ```
//!
//! It costs a system call to leave epoll's instance and one to enter the other's. What comes meanwhile waits in the kernel: a connection that has
//! arrived counts as readable and writable until a call says otherwise, so nothing is missed.

use std::os::fd::OwnedFd;

use flowlane_stack::tcp::Failure;

use super::KernelLane;
use super::slab::{Flags, SocketId};
use super::standing::Standing;
use crate::error::SocketError;

/// What stays true of a connection in whichever lane it is.
const LASTING: [Flags; 6] =
    [Flags::STREAM, Flags::V4, Flags::WRITE_SHUT, Flags::ENDED, Flags::HAS_ALL, Flags::AT_END];

/// A connection in no lane. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Travelling {
    fd: OwnedFd,
    flags: Flags,
    failure: Option<Failure>,
    /// Its flow, if records of flows are made.
    flow: Option<Standing>,
}

impl KernelLane {
    /// Takes a connection out of the lane. Who waits for it here is woken, and finds that it is closed.
    pub(crate) fn depart(&mut self, id: SocketId) -> Result<Travelling, SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        // Guard: `self.ring.is_some() || socket.flags.has(Flags::CONNECTING | Flags::ZERO_COPY)` as `false`
        // fails kernel::depart::tests::what_the_kernel_is_busy_with
        if self.ring.is_some() || socket.flags.has(Flags::CONNECTING | Flags::ZERO_COPY) {
            return Err(SocketError::Unsupported(
                "leave their lane while io_uring receives, or before they are connected, or while they send without copying",
            ));
        }
        if !socket.is_unwatched() {
            // Nothing can be wrong with it but that it is gone already.
            let _ = self.epoll.remove(socket.fd());
        }
        socket.wake(Flags::READABLE | Flags::WRITABLE);
        let flow = self.flow_departs(id);
        let socket = self.sockets.remove(id).ok_or(SocketError::Closed)?;
        let (known, failure) = (socket.flags, socket.failure);
        let lasting = LASTING.into_iter().filter(|flag| known.has(*flag));
        // Guard: `all | flag` as `flag` fails kernel::depart::tests::a_connection_goes_on
        let flags = lasting.fold(Flags::empty(), |all, flag| all | flag);
        let (fd, wakers) = socket.apart();
        let closed = if self.closed.is_empty() { None } else { self.closed.remove(&id.slot) };
        closed.iter().for_each(std::task::Waker::wake_by_ref);
        // Wakers last: dropping one may drop a task, and with it other sockets.
        drop((wakers, closed));
        Ok(Travelling { fd, flags, failure, flow })
    }

    /// Takes in a connection that has left another lane of the host. It is registered at the first wait.
    pub(crate) fn arrive(&mut self, travelling: Travelling) -> Result<SocketId, SocketError> {
        let Travelling { fd, flags, failure, flow } = travelling;
        let id = self.insert_accepted(fd, flags | Flags::READABLE | Flags::WRITABLE)?;
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.failure = failure;
        }
        flow.into_iter().for_each(|flow| self.flow_arrives(id, flow));
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Shutdown, TcpStream};
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use flowlane_rss::{Key, Rss};
    use flowlane_stack::Connect;
    use flowlane_stack::tcp::{FirstData, Interest, ListenOptions};
    use flowlane_sys::kernel::epoll::{Epoll, Events};

    use super::*;
    use crate::flow_records::FlowRecords;
    use crate::kernel::{Ports, Steer, Steering};

    const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

    fn lane(number: u16, ports: &Arc<Ports>, records: &FlowRecords) -> (KernelLane, Arc<Epoll>, Events) {
        let epoll = Arc::new(Epoll::new().unwrap());
        let mut lane = KernelLane::new(epoll.clone(), number, usize::from(number), ports.clone());
        lane.record_flows(records.clone(), Instant::now(), number);
        (lane, epoll, Events::new(8))
    }

    /// What came before the move, during it and after it is read in the other lane, and the end of the stream is found; the first lane knows
    /// nothing of the connection any more. Its flow is one record, of the lane where it ends.
    #[test]
    fn a_connection_goes_on_in_another_lane() {
        for watched in [false, true] {
            let steering = Steering::new(Steer::None, Arc::new(Rss::new(Key::MICROSOFT, 1)), 0, &[], 1);
            let (ports, records) = (Arc::new(Ports::new(steering, 0)), FlowRecords::new(8));
            let [(mut from, epoll, mut events), (mut to, other, mut news)] =
                [0, 1].map(|number| lane(number, &ports, &records));
            let here = Some(Ipv4Addr::LOCALHOST.into());
            let listener = from.listen(here, 0, &ListenOptions::default()).unwrap();
            let mut peer = TcpStream::connect(from.local_address(listener).unwrap()).unwrap();
            peer.set_read_timeout(PATIENCE).unwrap();
            epoll.wait(&mut events, PATIENCE).unwrap();
            from.on_event(events.get(0).unwrap());
            let (id, _) = from.accept(listener).unwrap().unwrap();
            peer.write_all(b"before").unwrap();
            if watched {
                from.wake_on(id, Interest::Read, Waker::noop()).unwrap();
                epoll.wait(&mut events, PATIENCE).unwrap();
            }
            let travelling = from.depart(id).unwrap();
            if watched {
                // What epoll had said in this turn names nobody now.
                from.on_event(events.get(0).unwrap());
            }
            assert_eq!(from.recv(id, &mut [0; 8]), Err(SocketError::Closed));
            assert!(from.depart(id).is_err());
            peer.write_all(b" during").unwrap();
            let id = to.arrive(travelling).unwrap();
            let mut got = Vec::new();
            let mut read = |lane: &mut KernelLane, until: &[u8]| {
                while got != until {
                    let mut room = [0; 32];
                    match lane.recv(id, &mut room).unwrap() {
                        Some(0) => break,
                        Some(n) => got.extend_from_slice(&room[..n]),
                        None => {
                            lane.wake_on(id, Interest::Read, Waker::noop()).unwrap();
                            assert!(other.wait(&mut news, PATIENCE).is_ok() && !news.is_empty());
                            lane.on_event(news.get(0).unwrap());
                        }
                    }
                }
            };
            read(&mut to, b"before during");
            peer.write_all(b" after").unwrap();
            read(&mut to, b"before during after");
            assert_eq!(to.send(id, b"answer"), Ok(Some(6)));
            let mut answer = [0; 6];
            peer.read_exact(&mut answer).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            read(&mut to, b"what never comes");
            assert_eq!(got, b"before during after");
            to.close(id);
            assert_eq!(
                (from.stats.closed, to.stats.closed, from.connections(), to.connections()),
                (0, 1, 0, 0)
            );
            drop((from, to));
            let told: Vec<_> = std::iter::from_fn(|| records.try_next()).collect();
            assert_eq!(told.len(), 1, "{told:?}");
            let flow = &told[0];
            assert_eq!((flow.bucket, flow.received.bytes, flow.sent.bytes, flow.active), (1, 19, 6, false));
        }
    }

    /// A ring may be receiving for it, and what has no peer yet has nowhere to be missed.
    #[test]
    fn what_the_kernel_is_busy_with_stays() {
        let steering = Steering::new(Steer::None, Arc::new(Rss::new(Key::MICROSOFT, 1)), 0, &[], 1);
        let (ports, epoll) = (Arc::new(Ports::new(steering, 0)), Arc::new(Epoll::new().unwrap()));
        for ring in [true, false] {
            let mut lane = KernelLane::new(epoll.clone(), 0, 0, ports.clone()).by_ring(ring);
            let peer = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let connect = Connect::to(peer.local_addr().unwrap().into());
            let (id, _) = lane.connect(&connect, FirstData::default()).unwrap();
            if ring {
                // As if it stood.
                lane.sockets.get_mut(id).unwrap().flags.clear(Flags::CONNECTING);
            }
            assert!(matches!(lane.depart(id), Err(SocketError::Unsupported(_))), "ring: {ring}");
            assert_eq!(lane.connections(), 1);
        }
    }
}
