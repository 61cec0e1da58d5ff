//! The loop of a worker: receive from each port, forward, send, tell the others, sleep.

use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use flowlane_stack::time::Time;
use flowlane_switch::{Drop, Event, Output, PortId, Switch};
use flowlane_sys::frame::{Frame, Pool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ROOM;
use super::ask::{Ask, Leaving};
use super::egress::Egress;
use super::news::Rings;
use super::view::View;
use crate::runtime::idle::Patience;
use crate::runtime::relay::Relay;
use crate::wake::Wake;

/// Frames taken from a queue at once.
const BURST: usize = 64;
/// Between two looks at what has become old.
const TICK: Duration = Duration::from_millis(100);
/// A link that did not take all is asked again after this time.
const RETRY: Duration = Duration::from_millis(1);

/// The clock of all workers.
pub(super) fn clock() -> Time {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Time::from_nanos(START.elapsed().as_nanos() as u64 + 1)
}

/// A worker.
pub(super) struct Worker {
    index: usize,
    pub(super) switch: Switch,
    pub(super) ports: Vec<Egress>,
    pub(super) output: Output,
    news: Rings,
    inbox: Receiver<Ask>,
    wake: Arc<Wake>,
    poll: Duration,
    patience: Patience,
    say: Sender<String>,
    burst: Vec<Frame>,
    tick: Time,
    /// A port whose queues are about to go to another worker.
    pub(super) leaving: Option<Leaving>,
    stopping: bool,
}

impl Worker {
    #[expect(clippy::too_many_arguments, reason = "called once")]
    pub(super) fn new(
        index: usize,
        switch: Switch,
        ports: Vec<Egress>,
        news: Rings,
        inbox: Receiver<Ask>,
        wake: Arc<Wake>,
        poll: Duration,
        say: Sender<String>,
    ) -> Worker {
        let output = Output::new(ports.len(), ROOM);
        let (burst, patience) = (Vec::with_capacity(BURST), Patience::default());
        let tick = Time::ZERO;
        Worker {
            index,
            switch,
            ports,
            output,
            news,
            inbox,
            wake,
            poll,
            patience,
            say,
            burst,
            tick,
            leaving: None,
            stopping: false,
        }
    }

    /// Works until told to stop. `pool` is this thread's.
    pub(super) fn run(&mut self, pool: &Pool) {
        let mut idle_since: Option<Time> = None;
        while !self.stopping {
            let now = clock();
            let busy = self.turn(pool, now);
            if busy {
                if let Some(since) = idle_since.take() {
                    self.patience.worked(now.saturating_duration_since(since));
                }
                continue;
            }
            let since = *idle_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= self.patience.limit(self.poll) {
                self.patience.slept();
                self.sleep(pool, now);
                idle_since = None;
            } else {
                std::hint::spin_loop();
            }
        }
    }

    pub(super) fn turn(&mut self, pool: &Pool, now: Time) -> bool {
        let mut busy = self.asked(now);
        for n in 0..self.ports.len() {
            busy |= self.receive(n, pool, now);
        }
        let switch = &mut self.switch;
        busy |= self.news.hear(|news| switch.hear(news, now));
        if now >= self.tick {
            self.tick = now + TICK;
            self.switch.tick(now);
            self.tell_events();
        }
        // One instance looks for loops; it learns of those that others see.
        if self.index == 0 && now >= self.switch.probe_due() {
            self.switch.probe(now, pool, &mut self.output);
        }
        if self.index == 0 && now >= self.switch.query_due() {
            self.switch.query(now, pool, &mut self.output);
        }
        self.send();
        let used = self.output.used();
        let mut over = used.is_empty();
        for (n, port) in self.ports.iter_mut().enumerate() {
            let waits = PortId::new(n).is_some_and(|id| used.has(id));
            over &= port.flush(waits);
        }
        self.news.tell(self.switch.news());
        // Who is about to give a port away does not sleep until it has.
        busy | self.go_on_leaving(over, now)
    }

    /// Receives from the queues of a port and from workers that have none.
    fn receive(&mut self, n: usize, pool: &Pool, now: Time) -> bool {
        let Some(id) = PortId::new(n) else { return false };
        let mut some = false;
        // While a port is on its way to another worker nothing new is begun, so that nothing is overtaken.
        // Guard: `self.leaving.is_some()` as `false` fails switch::moving::tests::a_port_leaves
        let queues = if self.leaving.is_some() { 0 } else { self.ports[n].queues.len() };
        for q in 0..queues {
            if self.ports[n].queues[q].receive(pool, &mut self.burst, BURST) > 0 {
                some = true;
                self.switch.forward(id, &mut self.burst, now, &mut self.output);
                self.send();
            }
        }
        for r in 0..self.ports[n].relays.len() {
            let frames = self.output.port(id);
            let room = ROOM.saturating_sub(frames.len());
            if self.ports[n].relays[r].receive(room, frames) > 0 {
                some = true;
                self.ports[n].transmit(frames);
                self.output.touch(id);
            }
        }
        some
    }

    /// Gives to the links what they take.
    fn send(&mut self) {
        for id in self.output.used() {
            self.ports[id.index()].transmit(self.output.port(id));
        }
        self.output.settle();
    }

    fn tell_events(&mut self) {
        while let Some(event) = self.switch.next_event() {
            let name = |port: PortId| self.switch.config().name(port).to_owned();
            let line = match event {
                Event::Blocked { port, from } => format!(
                    "port {}: a loop: a probe of port {} came back here; the port is blocked for {} s",
                    name(port),
                    name(from),
                    self.switch.config().block
                ),
                Event::Unblocked { port } if self.index == 0 => {
                    format!("port {}: no longer blocked", name(port))
                }
                // Moves are in the counters; a person who wants the addresses asks with RUST_LOG.
                Event::Moved { fid, mac, from, to, .. } => {
                    tracing::debug!(target: "flowlane::switch", fid, %mac, from = name(from), to = name(to), "an address moved");
                    continue;
                }
                Event::Unblocked { .. } => continue,
            };
            let _ = self.say.send(line);
        }
    }

    /// Does what the handle asks.
    fn asked(&mut self, now: Time) -> bool {
        let mut some = false;
        loop {
            match self.inbox.try_recv() {
                Ok(ask) => self.answer(ask, now),
                Err(TryRecvError::Empty) => return some,
                Err(TryRecvError::Disconnected) => {
                    self.stopping = true;
                    return some;
                }
            }
            some = true;
        }
    }

    fn answer(&mut self, ask: Ask, now: Time) {
        match ask {
            Ask::Change(change, done) => {
                let _ = done.send(self.switch.change(change, now).map_err(|e| e.0));
            }
            Ask::Link(port, up) => self.link(port, up),
            Ask::Mtu(port, mtu) => self.switch.set_link_mtu(port, mtu),
            Ask::Plug(port, queues) => {
                if let Some(egress) = self.ports.get_mut(port.index()) {
                    *egress = Egress::new(queues, None, Vec::new());
                }
            }
            Ask::Attach(port, egress) => self.attach(port, egress, now),
            Ask::Detach(port, done) => {
                // Guard: no `self.output.port(port).clear();` fails switch::ports::tests::what_waits
                self.output.port(port).clear();
                let none = Egress::new(Vec::new(), None, Vec::new());
                let _ = done.send(std::mem::replace(&mut self.ports[port.index()], none));
            }
            Ask::Release(leaving) => self.leaving = Some(leaving),
            Ask::Adopt(port, moved) => self.adopt(port, moved),
            Ask::Repoint(port, wake) => {
                if let Some(egress) = self.ports.get_mut(port.index()) {
                    egress.repoint(wake);
                }
            }
            Ask::View(done) => {
                let queues = self.ports.iter().map(|port| (port.stats(), port.receives())).collect();
                let _ = done.send(View::of(&self.switch, queues, self.news.lost));
            }
            Ask::Addresses(done) => {
                let _ = done.send(self.switch.addresses().collect());
            }
            Ask::Stop => self.stopping = true,
        }
    }

    fn attach(&mut self, port: PortId, egress: Egress, now: Time) {
        // What others said of the port that had the number before came before they gave it back.
        let switch = &mut self.switch;
        // Guard: no `self.news.hear(|news| switch.hear(news, now));` fails
        // switch::ports::tests::what_was_learnt
        self.news.hear(|news| switch.hear(news, now));
        self.output.grow(port.index() + 1, ROOM);
        match self.ports.get_mut(port.index()) {
            Some(vacant) => *vacant = egress,
            None => self.ports.push(egress),
        }
    }

    fn link(&mut self, port: PortId, up: bool) {
        self.switch.set_link(port, up);
        if !up {
            // What waits would come late.
            let frames = self.output.port(port);
            let waiting = frames.len() as u64;
            frames.clear();
            self.switch.lost(port, Drop::LinkDown, waiting);
        }
    }

    /// Sleeps until there is something to do: said, looked once more, waited (`flowlane_sys::doorbell`).
    fn sleep(&mut self, pool: &Pool, now: Time) {
        self.wake.prepare_sleep();
        let waits = self.ports.iter_mut().any(|port| {
            port.queues.iter_mut().any(|queue| queue.ready()) || port.relays.iter_mut().any(Relay::ready)
        });
        if waits || self.news.ready() {
            self.wake.woke();
            return;
        }
        match self.inbox.try_recv() {
            Ok(ask) => {
                self.wake.woke();
                self.answer(ask, now);
                return;
            }
            Err(TryRecvError::Disconnected) => self.stopping = true,
            Err(TryRecvError::Empty) => {}
        }
        pool.flush();
        let mut until = self.tick;
        if self.index == 0 {
            until = until.min(self.switch.probe_due()).min(self.switch.query_due());
        }
        if !self.output.used().is_empty() || self.ports.iter().any(Egress::waits) {
            until = until.min(now + RETRY);
        }
        self.wait(until.saturating_duration_since(clock()));
        self.wake.woke();
    }

    fn wait(&mut self, time: Duration) {
        let timeout =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) as _ };
        let mut places = Vec::new();
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::from_borrowed_fd(self.wake.fd(), PollFlags::IN)];
        for (n, port) in self.ports.iter().enumerate() {
            for (q, queue) in port.queues.iter().enumerate().filter(|(q, _)| !port.broken[*q]) {
                if let Some(fd) = queue.fd() {
                    fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                    places.push((n, q));
                }
            }
        }
        let _ = poll(&mut fds, Some(&timeout));
        let bad = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        let failed: Vec<_> = fds[1..]
            .iter()
            .zip(places)
            .filter(|(fd, _)| fd.revents().intersects(bad))
            .map(|(_, place)| place)
            .collect();
        drop(fds);
        for (n, q) in failed {
            self.ports[n].broken[q] = !self.ports[n].queues[q].clear_error();
            // A TAP interface is gone, and with it its port.
            if let Some(port) = PortId::new(n).filter(|_| self.ports[n].broken[q]) {
                self.link(port, false);
            }
        }
    }
}
