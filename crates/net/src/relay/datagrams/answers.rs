//! The task of a flow: it waits for answers, for the flow's time to be over, and for the end of the service.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane_stack::SendError;
use flowlane_stack::time::Time;

use super::flow::{Flow, Key, Leaves, lock, micros};
use super::{InOneLane, SOON};
use crate::error::SocketError;
use crate::relay::{Open, counts};
use crate::task::{Sleep, now, sleep, sleep_until, yield_now};

/// Most answers in one batch.
const ANSWERS: usize = 32;
/// Time without a datagram after which a flow ends, if the configuration has none: without an end the table would only grow.
const IDLE: Duration = Duration::from_secs(60);

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

impl InOneLane {
    /// Waits for answers to a flow, until it ends.
    pub(super) async fn answer(self, key: Key, flow: Arc<Flow>, of_lane: Open) {
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
                    // Guard: `quiet.is_over(flow, cx)` as `false` fails
                    // runtime/relay::datagrams::flows_that_are_quiet
                    if quiet.is_over(flow, cx) { Poll::Ready(Err(End::Idle)) } else { Poll::Pending }
                })
                .await
            };
            match next {
                Err(end) => return end,
                Ok(Ok(n)) => {
                    flow.last.store(micros(), Relaxed);
                    // Guard: `Some(key.asked)` as `None` fails runtime/relay::datagrams::ours_to_ours
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
