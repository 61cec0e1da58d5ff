//! The task that receives from clients: it has the table of flows, and passes on what they send.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use flowlane_stack::SendError;
use flowlane_stack::udp::Datagram;

use super::flow::{Flow, Key, lock, micros};
use super::{InOneLane, SOON};
use crate::error::SocketError;
use crate::relay::{Open, counts};
use crate::task::{sleep, spawn, yield_now};

/// Most datagrams of clients in one batch.
const BATCH: usize = 64;

/// The task that receives from clients, with the table of flows.
pub(super) struct Front {
    lane: InOneLane,
    flows: HashMap<Key, Arc<Flow>>,
    /// Datagrams of one flow, that came one after the other.
    run: Vec<Datagram>,
}

impl Front {
    pub(super) fn new(lane: InOneLane) -> Self {
        Self { lane, flows: HashMap::new(), run: Vec::new() }
    }

    pub(super) async fn serve(
        &mut self,
        mut each: impl FnMut(&[Datagram]) + Send,
    ) -> Result<(), SocketError> {
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
            // Guard: no `self.flows.remove(&key);` fails runtime/relay::datagrams::flows_that_are_quiet
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
