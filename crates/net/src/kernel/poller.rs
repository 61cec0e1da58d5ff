//! A worker's part: the epoll instance, looked at between turns and slept on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use flowlane_stack::time::Time;
use flowlane_sys::kernel::epoll::{Epoll, Event, Events};
use rustix::fd::BorrowedFd;

/// Events taken at once.
const BATCH: usize = 1024;
/// A worker that is busy with other things looks at its sockets this often.
const EVERY: Duration = Duration::from_micros(20);
/// Names the worker's own bell.
const BELL: u64 = u64::MAX;

/// The epoll instance of one worker, and the events that it last gave.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) epoll: Arc<Epoll>,
    events: Events,
    next_look: Time,
}

impl Poller {
    /// A poller for a worker whose bell wakes it from sleep.
    pub(crate) fn new(bell: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add_level(bell, BELL)?;
        Ok(Self { epoll: Arc::new(epoll), events: Events::new(BATCH), next_look: Time::ZERO })
    }

    /// Looks, if nobody has for a while, or if the worker has nothing better to do. `true` if there are events.
    #[inline]
    pub(crate) fn look(&mut self, now: Time, idle: bool) -> bool {
        if self.events.is_empty() && (idle || now >= self.next_look) {
            self.wait(Some(Duration::ZERO));
            self.next_look = now + EVERY;
        }
        !self.events.is_empty()
    }

    /// Sleeps until something happens, or `timeout` is over. What has come waits for the next look.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) {
        // It can fail only for a reason that would be a fault of ours; then nothing has happened.
        let _ = self.epoll.wait(&mut self.events, timeout);
    }

    /// Takes the events, each with the index of its lane.
    #[inline]
    pub(crate) fn drain(&mut self, mut f: impl FnMut(usize, Event)) {
        for i in 0..self.events.len() {
            if let Some(event) = self.events.get(i).filter(|e| e.token != BELL) {
                f((event.token >> 48) as usize, event);
            }
        }
        self.events.clear();
    }
}
