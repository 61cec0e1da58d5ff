//! Two lanes, each driven by hand, on a wire of two queues: no runtime, no tasks.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowlane::link::{LinkInfo, Queue, QueueStats};
use flowlane::poll_loop::{PollConfig, PollLoop};
use flowlane::wire::MacAddr;
use flowlane::{Bind, Connect, Endpoint, Interface, OpenLink, State};
use flowlane_sys::frame::{Frame, MemoryConfig, Pool};

const PATIENCE: Duration = Duration::from_secs(60);

/// Packets on their way in one direction: copies, since each side has frames of its own.
type Way = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// One end of the wire. Every so many packets one is lost.
struct End {
    from: Way,
    to: Way,
    sent: usize,
    lost_one_in: usize,
}

impl Queue for End {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let mut from = self.from.lock().unwrap();
        let n = from.len().min(max);
        for packet in from.drain(..n) {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&packet));
            into.push(frame);
        }
        n
    }

    fn room(&mut self) -> usize {
        64 - self.to.lock().unwrap().len().min(64)
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let n = frames.len();
        for frame in frames.drain(..) {
            self.sent += 1;
            if !self.sent.is_multiple_of(self.lost_one_in) {
                self.to.lock().unwrap().push_back(frame.chunks().flatten().copied().collect());
            }
        }
        n
    }

    fn flush(&mut self) -> bool {
        true
    }

    fn ready(&mut self) -> bool {
        !self.from.lock().unwrap().is_empty()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
}

fn link(last: u8, from: &Way, to: &Way, lost_one_in: usize) -> OpenLink {
    let end = End { from: from.clone(), to: to.clone(), sent: 0, lost_one_in };
    let info = LinkInfo::new(format!("wire:{last}"), MacAddr([2, 0, 0, 0, 0, last]), 1500, 1);
    Box::new(move |_, _| Ok((info, vec![Box::new(end)])))
}

fn at(address: &str) -> PollConfig {
    let interface = Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let memory =
        MemoryConfig { frames_per_home: 2048, huge_pages: false, lock: false, ..MemoryConfig::default() };
    PollConfig { interface, memory, ..PollConfig::default() }
}

fn pair(lost_one_in: usize) -> [PollLoop; 2] {
    let (there, back) = (Way::default(), Way::default());
    let open =
        |last, from, to, address| PollLoop::open(link(last, from, to, lost_one_in), &at(address)).unwrap();
    [open(1, &back, &there, "10.0.0.1/24"), open(2, &there, &back, "10.0.0.2/24")]
}

/// Both loops take turns until `done`; one that has nothing to do waits for its next deadline, as a program of its own would.
fn run(loops: &mut [PollLoop; 2], mut done: impl FnMut(&mut [PollLoop; 2]) -> bool) {
    let begun = Instant::now();
    while !done(loops) {
        assert!(begun.elapsed() < PATIENCE, "it does not come to an end");
        let busy = loops.each_mut().map(PollLoop::turn);
        if busy == [false, false] {
            let next = loops.iter().filter_map(PollLoop::next_deadline).min();
            loops[0].wait(next).unwrap();
        }
    }
}

#[test]
fn datagrams_there_and_back() {
    let mut loops = pair(usize::MAX);
    let server = loops[1].lane().0.udp_bind(Bind { local_port: 7, ..Bind::default() }).unwrap();
    let to = Endpoint::new("10.0.0.2".parse().unwrap(), 7);
    let (lane, now, frames) = loops[0].lane();
    let client = lane.udp_bind(Bind { remote: Some(to), ..Bind::default() }).unwrap();
    lane.udp_send(now, frames, client, b"hello", None, None).unwrap();
    let mut answer = None;
    run(&mut loops, |[ours, theirs]| {
        let (lane, now, frames) = theirs.lane();
        if let Some(datagram) = lane.udp_receive(server) {
            lane.udp_send(now, frames, server, datagram.payload(), None, Some(datagram.source)).unwrap();
        }
        answer = answer.take().or_else(|| ours.lane().0.udp_receive(client).map(|d| d.payload().to_vec()));
        answer.is_some()
    });
    assert_eq!(answer.unwrap(), b"hello");
}

/// A stream, with losses, so that timers have their part in it.
#[test]
fn a_stream_on_a_wire_that_loses() {
    const BYTES: usize = 300_000;
    let mut loops = pair(50);
    let listener = loops[1].lane().0.tcp_listen(None, 80, Default::default()).unwrap();
    let (lane, now, frames) = loops[0].lane();
    let to = Connect::to(Endpoint::new("10.0.0.2".parse().unwrap(), 80));
    let client = lane.tcp_connect(now, frames, to).unwrap();
    let (mut sent, mut got, mut server, mut ended) = (0, Vec::new(), None, false);
    run(&mut loops, |[ours, theirs]| {
        let (lane, now, frames) = ours.lane();
        if lane.tcp().info(client).is_ok_and(|info| info.state == State::Established) {
            let piece: Vec<u8> = (sent..BYTES.min(sent + 4096)).map(|i| (i % 251) as u8).collect();
            if sent < BYTES {
                sent += lane.with_tcp(now, frames, |tcp, cx| tcp.send(cx, client, &piece)).unwrap_or(0);
            } else if !ended {
                ended = true;
                lane.with_tcp(now, frames, |tcp, cx| tcp.shutdown(cx, client, Shutdown::Write)).unwrap();
            }
        }
        let (lane, now, frames) = theirs.lane();
        server = server.or_else(|| lane.tcp_mut().accept(listener).unwrap().map(|accepted| accepted.id));
        let Some(server) = server else { return false };
        let mut buffer = [0; 8192];
        loop {
            match lane.with_tcp(now, frames, |tcp, cx| tcp.recv(cx, server, &mut buffer)) {
                Ok(0) => return got.len() == BYTES,
                Ok(n) => got.extend_from_slice(&buffer[..n]),
                Err(_) => return false,
            }
        }
    });
    assert!(got.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8));
}
