//! Records of connections over the loopback, against what both ends know.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::task::{Poll, Waker};

use flowlane_rss::{Key, Rss};
use flowlane_stack::Connect;
use flowlane_stack::tcp::{FirstData, ListenOptions, SocketOptions};
use flowlane_sys::kernel::epoll::{Epoll, Events};
use flowlane_sys::kernel::options::TcpInfo;

use super::*;
use crate::kernel::{Ports, Steer, Steering};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// A lane that makes records, and its events.
struct Scene {
    lane: KernelLane,
    epoll: Arc<Epoll>,
    events: Events,
    records: FlowRecords,
}

impl Scene {
    fn new(records: FlowRecords) -> Self {
        let epoll = Arc::new(Epoll::new().unwrap());
        let steering = Steering::new(Steer::None, Arc::new(Rss::new(Key::MICROSOFT, 1)), 0, &[], 1);
        let mut lane = KernelLane::new(epoll.clone(), 0, 0, Arc::new(Ports::new(steering, 0)));
        lane.record_flows(records.clone(), Instant::now(), 5);
        Self { lane, epoll, events: Events::new(8), records }
    }

    fn turn(&mut self) {
        self.epoll.wait(&mut self.events, PATIENCE).unwrap();
        assert!(!self.events.is_empty(), "nothing happens");
        (0..self.events.len()).for_each(|i| self.lane.on_event(self.events.get(i).unwrap()));
    }

    /// A connection that the lane accepted, and its other end.
    fn accepted(&mut self) -> (SocketId, TcpStream) {
        let lane = &mut self.lane;
        let listener = lane.listen(Some(Ipv4Addr::LOCALHOST.into()), 0, &ListenOptions::default()).unwrap();
        let peer = TcpStream::connect(lane.local_address(listener).unwrap()).unwrap();
        self.turn();
        let (id, _) = self.lane.accept(listener).unwrap().unwrap();
        self.lane.expect_data(id);
        (id, peer)
    }

    /// Reads a connection to its end: how many bytes.
    fn read_all(&mut self, id: SocketId) -> usize {
        let (mut all, mut room) = (0, vec![0; 1 << 16]);
        loop {
            match self.lane.recv(id, &mut room).unwrap() {
                Some(0) => return all,
                Some(n) => all += n,
                None => {
                    self.lane.wake_on(id, flowlane_stack::tcp::Interest::Read, Waker::noop()).unwrap();
                    self.turn();
                }
            }
        }
    }

    fn only(&self) -> FlowRecord {
        let record = self.records.try_next().expect("a record");
        assert_eq!(self.records.try_next(), None, "a connection has one");
        record
    }
}

/// What was written to a connection and read from it is in its record to the byte, also what the kernel sends after the close; the peer's FIN is
/// no byte, whoever closes first.
#[test]
fn a_record_has_the_bytes_of_both_streams() {
    for (ours_first, sent, came) in [(false, 0, 0), (false, 100_000, 70_000), (true, 3, 5), (true, 0, 1)] {
        let mut s = Scene::new(FlowRecords::new(8));
        let (id, mut peer) = s.accepted();
        let (ours, theirs) = (s.lane.local_address(id).unwrap(), peer.local_addr().unwrap());
        let mut written = 0;
        peer.write_all(&vec![1; came]).unwrap();
        let block = vec![2; sent];
        while written < sent {
            written += s.lane.send(id, &block[written..]).unwrap().unwrap_or(0);
        }
        if ours_first {
            s.lane.shutdown(id, Shutdown::Write).unwrap();
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), sent);
        }
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(s.read_all(id), came);
        s.lane.close(id);
        let record = s.only();
        assert_eq!((record.sent.bytes, record.received.bytes), (sent as u64, came as u64), "{record:?}");
        assert_eq!((record.local, record.remote, record.active), (ours, theirs, false));
        assert_eq!((record.end, record.protocol, record.bucket), (FlowEnd::Closed, IpProtocol::TCP, 5));
        assert!(record.by_kernel && record.received.octets == 0 && record.began < record.ended);
        // The handshake's last segment, data and the FIN came in one segment at least.
        assert!(record.received.segments >= 1 && record.retransmitted == 0, "{record:?}");
        drop(peer);
    }
}

/// A connection of ours; how a connection ends is told.
#[test]
fn a_record_tells_how_it_ended() {
    let mut s = Scene::new(FlowRecords::new(8));
    let to = |address: SocketAddr| Connect {
        remote: address.into(),
        local_ip: None,
        local_port: 0,
        options: SocketOptions::default(),
    };
    let none = FirstData { bytes: &[], rest_follows: false };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |s: &mut Scene| {
        let (id, _) = s.lane.connect(&to(address), none).unwrap();
        while s.lane.poll_connected(id, Waker::noop()) == Poll::Pending {
            s.turn();
        }
        (id, listener.accept().unwrap().0)
    };
    // We reset it.
    let (id, peer) = connect(&mut s);
    s.lane.abort(id).unwrap();
    let record = s.only();
    assert_eq!((record.end, record.active, record.remote), (FlowEnd::ResetByUs, true, address));
    drop(peer);
    // We close it with bytes that nobody read: the kernel resets it.
    let (id, mut peer) = connect(&mut s);
    peer.write_all(b"unread").unwrap();
    s.turn();
    s.lane.close(id);
    let record = s.only();
    assert_eq!((record.end, record.received.bytes), (FlowEnd::ResetByUs, 6));
    // The peer resets it.
    let (id, mut peer) = connect(&mut s);
    assert_eq!(s.lane.send(id, b"never read"), Ok(Some(10)));
    peer.read_exact(&mut [0]).unwrap();
    drop(peer);
    while !s.lane.is_readable(id).unwrap() {
        s.turn();
    }
    s.lane.close(id);
    let record = s.only();
    assert_eq!((record.end, record.sent.bytes), (FlowEnd::ResetByPeer, 10));
    // The lane ends before it.
    let (_id, _peer) = connect(&mut s);
    s.lane.end_flows();
    assert_eq!(s.only().end, FlowEnd::LaneEnded);
    // Nobody listens any more, and nobody makes records.
    drop(listener);
    let (id, _) = s.lane.connect(&to(address), none).unwrap();
    s.lane.close(id);
    assert_eq!(s.records.try_next(), None);
    let mut s = Scene::new(FlowRecords::new(8));
    let (id, _) = s.lane.connect(&to(address), none).unwrap();
    while s.lane.poll_connected(id, Waker::noop()) == Poll::Pending {
        s.turn();
    }
    s.lane.close(id);
    let record = s.only();
    assert_eq!((record.end, record.received.bytes, record.rtt), (FlowEnd::Refused, 0, None));
}

/// A connection that stands has a record each time the active timeout has passed in which something passed, and their sum is what passed. A
/// record without room is made later.
#[test]
fn records_of_a_connection_that_stands_add_up() {
    let every = Duration::from_secs(60);
    let mut s = Scene::new(FlowRecords::new(1).active_timeout(every));
    let (id, mut peer) = s.accepted();
    let due = s.lane.flows_due().unwrap();
    s.lane.look_at_flows(Time::from_nanos(due.as_nanos() - 1));
    assert_eq!(s.records.try_next(), None, "not before its time");
    let (mut sums, mut now) = ([0; 4], due);
    let add = |sums: &mut [u64; 4], record: FlowRecord| {
        let totals =
            [record.sent.bytes, record.received.bytes, record.sent.segments, record.received.segments];
        sums.iter_mut().zip(totals).for_each(|(sum, n)| *sum += n);
        record.end
    };
    for round in 0..4_u64 {
        peer.write_all(&[7; 1000]).unwrap();
        let mut room = [0; 2000];
        while s.lane.recv(id, &mut room).unwrap() != Some(1000) {
            s.lane.wake_on(id, flowlane_stack::tcp::Interest::Read, Waker::noop()).unwrap();
            s.turn();
        }
        assert_eq!(s.lane.send(id, b"answer"), Ok(Some(6)));
        peer.read_exact(&mut [0; 6]).unwrap();
        s.lane.look_at_flows(now);
        if round == 1 {
            // The one before was not taken.
            assert!(s.lane.flows_due().unwrap() > now);
            assert_eq!(s.lane.flows_due().unwrap(), now + AGAIN);
        }
        if round > 0 {
            assert_eq!(add(&mut sums, s.only()), FlowEnd::ActiveTimeout);
        }
        now = s.lane.flows_due().unwrap();
    }
    let info = options::tcp_info(s.lane.sockets.get(id).unwrap().fd()).unwrap();
    // Nothing passes, unless it is a late acknowledgement: no record.
    s.lane.look_at_flows(now);
    if let Some(record) = s.records.try_next() {
        assert_eq!((record.sent.bytes, record.received.bytes), (0, 0));
        add(&mut sums, record);
    }
    s.lane.close(id);
    add(&mut sums, s.only());
    assert_eq!(sums[..2], [24, 4000]);
    assert_eq!(sums[2], u64::from(info.segments_sent));
    let late = sums[3] - u64::from(info.segments_received);
    assert!(late <= 1, "{late} segments more");
    assert_eq!(s.lane.flows_due(), None);
}

/// The kernel counts segments modulo 2^32, and a FIN like a byte where it is not sent, or came in order.
#[test]
fn counts_of_the_kernel_are_read_as_they_are_meant() {
    let info = TcpInfo {
        bytes_sent: 100,
        bytes_retrans: 30,
        not_sent: 11,
        bytes_received: 8,
        segments_sent: 4,
        ..TcpInfo::default()
    };
    let of = |state, rest| {
        let counted = Counted::of_connection(&TcpInfo { state, ..info }, rest, rest);
        (counted.sent.bytes, counted.received.bytes)
    };
    let (established, fin_wait_1, time_wait, closed, close_wait, last_ack) = (1, 4, 6, 7, 8, 9);
    assert_eq!((of(established, true), of(established, false)), ((81, 8), (70, 8)));
    assert_eq!((of(fin_wait_1, true), of(close_wait, true)), ((80, 8), (81, 7)));
    assert_eq!((of(last_ack, true), of(time_wait, false)), ((80, 7), (70, 7)));
    assert_eq!((of(closed, true), of(closed, false)), ((81, 7), (70, 8)));
    let now = Counted::of_connection(&info, false, false);
    let mut before = now;
    before.sent.segments = u64::from(u32::MAX);
    assert_eq!(now.since(&before, IpProtocol::TCP).sent.segments, 5);
    assert_eq!(now.since(&before, IpProtocol::UDP).sent.segments, 0);
}
