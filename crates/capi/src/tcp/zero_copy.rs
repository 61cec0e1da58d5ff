//! Sending memory of the program's without a copy: it is lent, and comes back when nothing refers to it any more.
//!
//! One task of a connection, made with its first such send, queues memory in order; what is written meanwhile waits until all of it is
//! queued, so that bytes are sent in the order in which the program gave them.

use std::ffi::c_void;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use flowlane::SendZcError;

use super::connection::{CLOSING, Tcp};
use super::sends::{Memory, SendDone};
use crate::error::{Error, FLOWLANE_ERR_CLOSED, FLOWLANE_ERR_WRONG_LANE, FLOWLANE_OK, guarded};
use crate::lane::Lane;
use crate::pointer::{User, borrowed, bytes};

impl Tcp {
    /// The next memory to send; `None` when the connection is to end.
    async fn next_send(&self) -> Option<Memory> {
        std::future::poll_fn(|cx| {
            self.sends.task.runs(cx);
            let mut waiting = self.sends.lock();
            if self.is(CLOSING) {
                return Poll::Ready(None);
            }
            waiting.memory.pop_front().map_or(Poll::Pending, |memory| Poll::Ready(Some(memory)))
        })
        .await
    }

    fn queued(&self) {
        let left = self.sends.unqueued.load(Ordering::Relaxed).saturating_sub(1);
        self.sends.unqueued.store(left, Ordering::Relaxed);
        if left == 0 {
            self.task.wake();
        }
    }
}

/// Queues one send after the other, until the connection is closed. Those that still wait then are given back.
async fn serve(tcp: Arc<Tcp>) {
    while let Some(memory) = tcp.next_send().await {
        let mut queueing = pin!(tcp.stream.queue_zc(memory));
        let queued = std::future::poll_fn(|cx| {
            if tcp.is(CLOSING) { Poll::Ready(None) } else { queueing.as_mut().poll(cx).map(Some) }
        });
        let Some(queued) = queued.await else { break };
        match queued {
            Ok(sending) => {
                let lane = tcp.lane.clone();
                // In a task of the lane nothing is in the way of another one.
                drop(flowlane::spawn(async move { back(&lane, sending.await) }));
            }
            Err(e) => back(&tcp.lane, Err(e)),
        }
        tcp.queued();
    }
    let left: Vec<Memory> = tcp.sends.lock().memory.drain(..).collect();
    tcp.lane.call(|_| drop(left));
}

/// Tells the program how it went.
fn back(lane: &Arc<Lane>, sent: Result<Memory, SendZcError<Memory>>) {
    let (mut memory, code) = match sent {
        Ok(memory) => (memory, FLOWLANE_OK),
        Err(SendZcError { buffer, error, .. }) => (buffer, guarded(|| Err(error.into()))),
    };
    lane.call(|_| memory.give_back(code));
}

/// Sends memory from where it is, behind what was written before. It belongs to the library until `done` is called with it: when the peer has
/// acknowledged it (code 0), or when the connection has ended before and nothing refers to it (code below zero). `done` is called once in
/// any case, if the connection is closed perhaps after `closed`, and at the end of the runtime perhaps on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_send_zc(
    tcp: *mut Tcp,
    data: *mut c_void,
    len: usize,
    done: SendDone,
    user: *mut c_void,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and memory.
        let tcp = unsafe { borrowed(tcp, "the connection") }?;
        tcp.lane.here()?;
        // SAFETY: as above.
        unsafe { bytes(data, len, "the data") }?;
        if done.is_none() || data.is_null() {
            return Err(Error::invalid(
                "memory that is lent needs a callback when it is free, and an address",
            ));
        }
        if tcp.is(CLOSING) {
            return Err(Error::plain(FLOWLANE_ERR_CLOSED));
        }
        let memory = Memory { data, len, done, user: User::new(user) };
        let mut waiting = tcp.sends.lock();
        waiting.memory.push_back(memory);
        tcp.sends.unqueued.store(tcp.sends.unqueued.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let begin = !std::mem::replace(&mut waiting.has_task, true);
        drop(waiting);
        if begin {
            // SAFETY: handles of connections are those of an `Arc`, which lives while its lane's callbacks run.
            let shared = unsafe {
                Arc::increment_strong_count(std::ptr::from_ref(tcp));
                Arc::from_raw(std::ptr::from_ref(tcp))
            };
            flowlane::spawn(serve(shared)).map_err(|e| Error::new(FLOWLANE_ERR_WRONG_LANE, e))?;
        }
        tcp.sends.task.wake();
        Ok(())
    })
}
