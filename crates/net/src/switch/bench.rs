//! Two workers for tests, led from turn to turn by hand, over links in memory.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowlane_stack::time::Time;
use flowlane_switch::config::{Config, PortConfig};
use flowlane_switch::{PortId, Seed, Switch};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

use super::ask::{Ask, Leaving, Post};
use super::egress::Egress;
use super::news::mesh;
use super::worker::Worker;
use crate::link::{Queue, QueueStats};
use crate::runtime::relay::relay;
use crate::wake::Wake;

/// A link in memory: what comes, what was sent, and whether it takes anything.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) comes: VecDeque<Frame>,
    pub(super) sent: Vec<u8>,
    pub(super) takes: bool,
}

#[derive(Clone, Default)]
pub(super) struct Fake(pub(super) Arc<Mutex<Wire>>);

impl Queue for Fake {
    fn receive(&mut self, _: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let mut wire = self.0.lock().unwrap();
        let n = wire.comes.len().min(max);
        into.extend(wire.comes.drain(..n));
        n
    }

    fn room(&mut self) -> usize {
        256
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let mut wire = self.0.lock().unwrap();
        if !wire.takes {
            return 0;
        }
        let n = frames.len();
        wire.sent.extend(frames.drain(..).map(|frame| frame.data()[14]));
        n
    }

    fn flush(&mut self) -> bool {
        true
    }

    fn ready(&mut self) -> bool {
        !self.0.lock().unwrap().comes.is_empty()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
}

pub(super) struct Bench {
    pub(super) workers: [Worker; 2],
    pub(super) posts: [Post; 2],
    pub(super) pools: [Pool; 2],
    /// Of port 0, where frames come, and of port 1, where they leave.
    pub(super) wires: [Fake; 2],
    pub(super) now: Time,
}

impl Bench {
    /// Port 0 is on worker 0, port 1 on worker 1.
    pub(super) fn new() -> Self {
        let config = MemoryConfig {
            frames_per_home: 256,
            homes: 2,
            lock: false,
            huge_pages: false,
            ..MemoryConfig::default()
        };
        let memory = FrameMemory::new(&config).unwrap();
        let wakes = [0, 1].map(|n| Arc::new(Wake::new(u32::MAX, n).unwrap()));
        let wires = [Fake::default(), Fake::default()];
        let now = Time::from_secs(100);
        let mut news = mesh(2, &wakes).into_iter();
        let (to_one, from_zero) = relay(wakes[1].clone());
        let (to_zero, from_one) = relay(wakes[0].clone());
        let queue = |n: usize| vec![Box::new(wires[n].clone()) as Box<dyn Queue>];
        let mut ports = [
            vec![
                Egress::new(queue(0), None, vec![from_one]),
                Egress::new(Vec::new(), Some(to_one), Vec::new()),
            ],
            vec![
                Egress::new(Vec::new(), Some(to_zero), Vec::new()),
                Egress::new(queue(1), None, vec![from_zero]),
            ],
        ]
        .into_iter();
        let mut config = Config::new(vec![PortConfig::new("a"), PortConfig::new("b")]);
        config.probe = 0;
        let mut posts = Vec::new();
        let workers = [0, 1].map(|n| {
            let (sender, inbox) = channel();
            posts.push(Post { sender, wake: wakes[n].clone() });
            let mut switch = Switch::new(config.clone(), Seed([1, 2, 3, 4]), 2, now).unwrap();
            (0..2).for_each(|n| switch.set_link(PortId::new(n).unwrap(), true));
            let (ports, news) = (ports.next().unwrap(), news.next().unwrap());
            Worker::new(n, switch, ports, news, inbox, wakes[n].clone(), Duration::ZERO, channel().0)
        });
        let pools = [0, 1].map(|n| memory.attach(n).unwrap());
        let Ok(posts) = posts.try_into() else { unreachable!("one for each worker") };
        Self { workers, posts, pools, wires, now }
    }

    pub(super) fn turn(&mut self, worker: usize) {
        self.now += Duration::from_micros(10);
        self.workers[worker].turn(&self.pools[worker], self.now);
    }

    /// Frames with these numbers come on port 0.
    pub(super) fn come(&self, numbers: std::ops::Range<u8>) {
        for n in numbers {
            let mut frame = self.pools[0].alloc().unwrap();
            let head = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0, n];
            assert!(frame.extend_from_slice(&head) && frame.extend_from_slice(&[0; 45]));
            self.wires[0].0.lock().unwrap().comes.push_back(frame);
        }
    }

    pub(super) fn sent(&self) -> Vec<u8> {
        self.wires[1].0.lock().unwrap().sent.clone()
    }

    /// Asks worker 0 for port 0, for worker 1.
    pub(super) fn release(&self) -> Receiver<Result<(), String>> {
        let (done, answer) = channel();
        let (port, to) = (PortId::new(0).unwrap(), self.posts[1].clone());
        self.posts[0].ask(Ask::Release(Leaving { port, to, since: None, done }));
        answer
    }
}
