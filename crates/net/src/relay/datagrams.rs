//! A relay of UDP: a connected socket to a target for each flow, which is a client and the address that it asked.
//!
//! ```text
//!   client ─▶ socket of the lane ─▶ table ─▶ connected socket of the flow ─▶ target
//!   client ◀─ socket of the lane ◀── task of the flow ◀──────────────────────┘
//! ```
//!
//! The lane that receives a flow's first datagram has the flow: the table belongs to the task that receives, and needs no lock. A task for
//! each flow waits for answers, for its time to be over, and for the end of the service. What it leaves behind is put on a list
//! ([`Shared`]), from which the table is cleaned.
//!
//! Nobody waits for room: what finds none is dropped and counted, so that one slow direction stops no other flow.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flowlane_stack::SendError;
use flowlane_stack::address::Endpoint;
use flowlane_stack::packet::IcmpErrorKind;
use flowlane_stack::time::Time;
use flowlane_stack::udp::{BindError, Datagram};

use super::{Balance, Open, Relay, TRIES, counts, target};
use crate::context;
use crate::error::SocketError;
use crate::service::InLane;
use crate::task::{Sleep, keep, now, sleep, sleep_until, spawn, yield_now};
use crate::udp::UdpSocket;

/// Most datagrams of clients in one batch, and most answers.
const BATCH: usize = 64;
const ANSWERS: usize = 32;
/// Pause before frames are tried again.
const SOON: Duration = Duration::from_millis(1);
/// For so long a target that refused gets no flows while there are others.
const SHUNNED: Duration = Duration::from_secs(1);
/// Time without a datagram after which a flow ends, if the configuration has none: without an end the table would only grow.
const IDLE: Duration = Duration::from_secs(60);

/// A flow's ends on the side of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    client: Endpoint,
    asked: Endpoint,
    /// The kernel's interface, if addresses mean nothing without it.
    link: u16,
}

impl Key {
    #[inline]
    fn of(datagram: &Datagram) -> Self {
        let (client, asked) = (datagram.source, datagram.destination);
        let local = matches!(asked.ip, std::net::IpAddr::V6(ip) if ip.is_unicast_link_local());
        Self { client, asked, link: if local { datagram.frame().meta().queue } else { 0 } }
    }

    /// A hash of addresses and ports that is the same in every lane and at every start.
    fn hash(&self) -> u32 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        for end in [self.client, self.asked] {
            match end.ip {
                std::net::IpAddr::V4(ip) => ip.octets().into_iter().for_each(&mut add),
                std::net::IpAddr::V6(ip) => ip.octets().into_iter().for_each(&mut add),
            }
            end.port.to_be_bytes().into_iter().for_each(&mut add);
        }
        (hash >> 32) as u32 ^ hash as u32
    }
}

/// A flow. Only tasks of one lane have it: what is atomic here is never contended.
#[derive(Debug)]
struct Flow {
    socket: UdpSocket,
    target: usize,
    /// When something passed, in either direction; microseconds.
    last: AtomicU64,
    /// It is to end, since its target refuses and there are others.
    moves: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// What the tasks of a lane share.
#[derive(Debug)]
struct Shared {
    /// The clients' socket.
    socket: UdpSocket,
    /// Whether `gone` has something.
    any: AtomicBool,
    gone: Mutex<Gone>,
    /// Until when each target is shunned; microseconds.
    shunned: Box<[AtomicU64]>,
}

#[derive(Debug, Default)]
struct Gone {
    flows: Vec<Key>,
    waker: Option<Waker>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros() -> u64 {
    now().unwrap_or(Time::ZERO).as_micros()
}

/// Kept by the lane: when it goes, the task that receives goes, too, though its waker is kept.
struct LaneGoes(Arc<Shared>);

impl Drop for LaneGoes {
    fn drop(&mut self) {
        let waker = lock(&self.0.gone).waker.take();
        drop(waker);
    }
}

impl Relay {
    /// Relays the datagrams of a socket until the service is stopped, and ends all flows then. Call it in every lane, each with its own
    /// socket on the port of the service; `each` is shown every batch.
    ///
    /// Of the configuration, what concerns connecting, health checks and the PROXY protocol means nothing here. Flows end after
    /// [`RelayConfig::idle`](super::RelayConfig::idle), or after a minute if it is `None`.
    ///
    /// # Errors
    /// The socket cannot receive, or the call is outside a lane.
    pub async fn serve_datagrams(
        &self,
        socket: UdpSocket,
        each: impl FnMut(&[Datagram]) + Send,
    ) -> Result<(), SocketError> {
        let base = self.begin()?;
        let at = self.0.service.here()?;
        let shunned = self.0.targets.iter().map(|_| AtomicU64::new(0)).collect();
        let shared =
            Arc::new(Shared { socket, any: AtomicBool::new(false), gone: Mutex::default(), shunned });
        keep(LaneGoes(shared.clone())).map_err(|_| SocketError::WrongLane)?;
        let mut front = Front {
            lane: InOneLane { relay: self.clone(), base, at: at.clone(), shared },
            flows: HashMap::new(),
            run: Vec::new(),
        };
        let (mut stopping, mut serving) = (pin!(at.stopping()), pin!(front.serve(each)));
        poll_fn(|cx| match stopping.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => serving.as_mut().poll(cx),
        })
        .await
    }
}

/// The relay in one lane.
#[derive(Debug, Clone)]
struct InOneLane {
    relay: Relay,
    /// Place of the counters of the first target.
    base: usize,
    at: InLane,
    shared: Arc<Shared>,
}

impl InOneLane {
    /// Targets that refused a moment ago, a bit for each.
    fn shunned(&self) -> u64 {
        let now = micros();
        let shunned = self.shared.shunned.iter().enumerate().filter(|(_, until)| now < until.load(Relaxed));
        shunned.fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// The network said that a flow's target cannot be reached; whether the flow is to go to another.
    fn refused(&self, flow: &Flow, kind: IcmpErrorKind) -> bool {
        self.relay.count(self.base + flow.target, |t| match kind {
            IcmpErrorKind::PortUnreachable => t.refused += 1,
            _ => t.unreachable += 1,
        });
        let until = micros() + SHUNNED.as_micros() as u64;
        self.shared.shunned[flow.target].store(until, Relaxed);
        let shunned = self.shunned();
        let targets = self.relay.0.targets.iter().enumerate();
        targets.filter(|(at, t)| shunned & 1 << at == 0 && t.is_up()).count() > 0
    }

    /// A socket to a target; `None` if there is none to be had, which is counted.
    fn reach(&self, key: &Key) -> Option<(usize, UdpSocket)> {
        let (targets, config) = (&self.relay.0.targets, &self.relay.0.config);
        let hash = if config.balance == Balance::Hash && targets.len() > 1 { key.hash() } else { 0 };
        let (mut tried, shunned) = (0, self.shunned());
        for _ in 0..TRIES {
            let next = context::with_current(|slot, _| {
                let counts = slot.relay.as_deref();
                let turn = counts.map_or(0, |c| c.relay.accepted as usize);
                let open =
                    |at: usize| counts.and_then(|c| c.targets.get(self.base + at)).map_or(0, |(_, t)| t.open);
                let of = |out: u64| target::choose(targets, config.balance, hash, out, turn, open);
                of(tried | shunned).or_else(|| of(tried))
            });
            let Ok(Some(at)) = next else { break };
            tried |= 1 << at;
            let error = match self.connect(targets[at].address) {
                Ok(socket) => return Some((at, socket)),
                Err(error) => error,
            };
            self.relay.count(self.base + at, |t| match error {
                SocketError::Bind(BindError::NoRoute) => t.unreachable += 1,
                SocketError::NoDescriptor => t.no_descriptor += 1,
                _ => t.connect_failed += 1,
            });
            if error == SocketError::NoDescriptor {
                // Another target needs one, too.
                break;
            }
        }
        counts(|counts| {
            *(if tried == 0 { &mut counts.relay.no_target } else { &mut counts.relay.unreached }) += 1;
        });
        None
    }

    fn connect(&self, to: SocketAddr) -> Result<UdpSocket, SocketError> {
        if self.relay.0.config.by_kernel { UdpSocket::connect_by_kernel(to) } else { UdpSocket::connect(to) }
    }

    /// Waits for answers to a flow, until it ends.
    async fn answer(self, key: Key, flow: Arc<Flow>, of_lane: Open) {
        let _leaves = Leaves(self.shared.clone(), key);
        let of_target = Open::of_target(self.base + flow.target);
        let end = self.answers(&key, &flow).await;
        drop(of_target);
        if end != End::Stopped {
            of_lane.ended();
        }
        self.relay.count(self.base + flow.target, |t| match end {
            End::Idle => t.idle_ended += 1,
            End::Moves => t.target_resets += 1,
            End::Lost => t.lost += 1,
            End::Stopped => {}
        });
    }

    async fn answers(&self, key: &Key, flow: &Flow) -> End {
        let mut quiet = Quiet { limit: self.relay.0.config.idle.unwrap_or(IDLE), timer: None };
        let mut stopping = pin!(self.at.stopping());
        let mut batch = Vec::new();
        loop {
            let next = {
                let mut received = pin!(flow.socket.recv_batch(&mut batch, ANSWERS));
                poll_fn(|cx| {
                    let mut waker = lock(&flow.waker);
                    if waker.is_none() {
                        *waker = Some(cx.waker().clone());
                    }
                    drop(waker);
                    if stopping.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Err(End::Stopped));
                    }
                    if flow.moves.load(Relaxed) {
                        return Poll::Ready(Err(End::Moves));
                    }
                    if let Poll::Ready(received) = received.as_mut().poll(cx) {
                        return Poll::Ready(Ok(received));
                    }
                    if quiet.is_over(flow, cx) { Poll::Ready(Err(End::Idle)) } else { Poll::Pending }
                })
                .await
            };
            match next {
                Err(end) => return end,
                Ok(Ok(n)) => {
                    flow.last.store(micros(), Relaxed);
                    let sent =
                        self.shared.socket.try_pass_batch(&mut batch, Some(key.asked), key.client, key.link);
                    let sent = sent.unwrap_or_default();
                    counts(|counts| counts.relay.no_room += sent.no_room);
                    self.relay.count(self.base + flow.target, |t| {
                        t.to_client_datagrams += sent.datagrams;
                        t.to_client_bytes += sent.bytes;
                    });
                    if n == ANSWERS {
                        yield_now().await;
                    }
                }
                Ok(Err(SocketError::Network(kind))) => {
                    if self.refused(flow, kind) {
                        return End::Moves;
                    }
                }
                // Kernel sockets only: all frames are in use.
                Ok(Err(SocketError::Send(SendError::NoFrame))) => sleep(SOON).await,
                Ok(Err(_)) => return End::Lost,
            }
        }
    }
}

/// How a flow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing passed for too long.
    Idle,
    /// The target refuses, and there are others.
    Moves,
    /// Something is wrong with the socket.
    Lost,
    /// With the service.
    Stopped,
}

/// Puts a flow that has ended on the list.
struct Leaves(Arc<Shared>, Key);

impl Drop for Leaves {
    fn drop(&mut self) {
        let Self(shared, key) = self;
        let mut gone = lock(&shared.gone);
        gone.flows.push(*key);
        shared.any.store(true, Relaxed);
        if let Some(waker) = &gone.waker {
            waker.wake_by_ref();
        }
    }
}

/// How long nothing has passed. One timer for the flow: it is not set again for each datagram, but looks when it fires. So an end costs
/// what it costs, and a flow that lives one look in the whole time.
#[derive(Debug)]
struct Quiet {
    limit: Duration,
    timer: Option<Sleep>,
}

impl Quiet {
    fn is_over(&mut self, flow: &Flow, cx: &mut Context<'_>) -> bool {
        let due = || Time::from_micros(flow.last.load(Relaxed)) + self.limit;
        let mut timer = self.timer.take().unwrap_or_else(|| sleep_until(due()));
        while Pin::new(&mut timer).poll(cx).is_ready() {
            if now().is_ok_and(|now| now >= due()) {
                return true;
            }
            timer = sleep_until(due());
        }
        self.timer = Some(timer);
        false
    }
}

/// The task that receives from clients, with the table of flows.
struct Front {
    lane: InOneLane,
    flows: HashMap<Key, Arc<Flow>>,
    /// Datagrams of one flow, that came one after the other.
    run: Vec<Datagram>,
}

impl Front {
    async fn serve(&mut self, mut each: impl FnMut(&[Datagram]) + Send) -> Result<(), SocketError> {
        let shared = self.lane.shared.clone();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let received = {
                let mut receiving = pin!(shared.socket.recv_batch(&mut batch, BATCH));
                let mut known = false;
                poll_fn(|cx| {
                    if !known {
                        known = true;
                        let mut gone = lock(&shared.gone);
                        if !gone.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                            gone.waker = Some(cx.waker().clone());
                        }
                    }
                    self.clean();
                    receiving.as_mut().poll(cx)
                })
                .await
            };
            match received {
                Ok(n) => {
                    each(&batch);
                    self.pass(&mut batch);
                    if n == BATCH {
                        yield_now().await;
                    }
                }
                // Kernel sockets only: all frames are in use.
                Err(SocketError::Send(SendError::NoFrame)) => sleep(SOON).await,
                // Said of no flow in particular.
                Err(SocketError::Network(_)) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes flows that have ended out of the table.
    fn clean(&mut self) {
        let shared = &self.lane.shared;
        if !shared.any.load(Relaxed) {
            return;
        }
        let gone = {
            let mut gone = lock(&shared.gone);
            shared.any.store(false, Relaxed);
            std::mem::take(&mut gone.flows)
        };
        for key in gone {
            self.flows.remove(&key);
        }
        // After a burst the memory goes, too.
        if self.flows.capacity() > 1024 && self.flows.len() < self.flows.capacity() / 8 {
            self.flows.shrink_to(self.flows.len() * 2);
        }
    }

    /// Passes datagrams of clients on to targets.
    fn pass(&mut self, batch: &mut Vec<Datagram>) {
        let now = micros();
        let mut current: Option<(Key, Arc<Flow>)> = None;
        for datagram in batch.drain(..) {
            let key = Key::of(&datagram);
            if current.as_ref().is_none_or(|(of, _)| *of != key) {
                if let Some((_, flow)) = current.take() {
                    self.send(&flow, now);
                }
                current = self.flow(key, now).map(|flow| (key, flow));
            }
            if current.is_some() {
                self.run.push(datagram);
            }
        }
        if let Some((_, flow)) = current {
            self.send(&flow, now);
        }
    }

    /// Sends what came of one flow.
    fn send(&mut self, flow: &Flow, now: u64) {
        flow.last.store(now, Relaxed);
        let lane = &self.lane;
        let to = lane.relay.0.targets[flow.target].address;
        let sent = flow.socket.try_pass_batch(&mut self.run, None, to.into(), 0).unwrap_or_default();
        counts(|counts| counts.relay.no_room += sent.no_room);
        lane.relay.count(lane.base + flow.target, |t| {
            t.to_target_datagrams += sent.datagrams;
            t.to_target_bytes += sent.bytes;
        });
        if sent.reported.is_some_and(|kind| lane.refused(flow, kind)) {
            flow.moves.store(true, Relaxed);
            let waker = lock(&flow.waker).take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// The flow of a datagram, which may be new; `None` if there is no place for it, or no target, which is counted.
    fn flow(&mut self, key: Key, now: u64) -> Option<Arc<Flow>> {
        if let Some(flow) = self.flows.get(&key) {
            return Some(flow.clone());
        }
        let of_lane = Open::of_lane(self.lane.relay.0.config.most)?;
        let Some((target, socket)) = self.lane.reach(&key) else {
            of_lane.ended();
            return None;
        };
        let (moves, waker) = (AtomicBool::new(false), Mutex::new(None));
        let flow = Arc::new(Flow { socket, target, last: AtomicU64::new(now), moves, waker });
        // Outside a lane nobody is here.
        spawn(self.lane.clone().answer(key, flow.clone(), of_lane)).ok()?;
        self.flows.insert(key, flow.clone());
        Some(flow)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Flows have a waker of their own task, which would keep it.
        for (_, flow) in self.flows.drain() {
            let waker = lock(&flow.waker).take();
            drop(waker);
        }
    }
}
