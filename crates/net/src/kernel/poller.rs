//! The epoll instance of a worker, polled between turns and used for sleeping.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use flowlane_stack::time::Time;
use flowlane_sys::kernel::epoll::{Epoll, Event, Events};
use flowlane_sys::kernel::socket::errno;
use rustix::fd::BorrowedFd;

use crate::error::StartError;

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
    /// A wait has just said all there is to say, be it nothing.
    rested: bool,
    /// System calls made.
    #[cfg(test)]
    calls: u32,
}

impl Poller {
    /// A poller for a worker whose bell wakes it from sleep.
    pub(crate) fn new(bell: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add_level(bell, BELL)?;
        Ok(Self {
            epoll: Arc::new(epoll),
            events: Events::new(BATCH),
            next_look: Time::ZERO,
            rested: false,
            #[cfg(test)]
            calls: 0,
        })
    }

    /// Has waits poll the queues of the sockets' cards for so long before they sleep.
    pub(crate) fn busy_poll(&self, time: Duration) -> Result<(), StartError> {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.epoll.set_busy_poll(micros, true).map_err(|e| {
            let why = match e.raw_os_error() {
                Some(errno::ENOTTY) => "needs Linux 6.9, built with CONFIG_NET_RX_BUSY_POLL".to_owned(),
                Some(errno::EINVAL) => format!("{time:?} is too long"),
                _ => e.to_string(),
            };
            StartError::Other(format!("busy polling: {why}"))
        })
    }

    /// Looks, if nobody has for a while, or if the worker has nothing better to do. A sleep that is over was a look: what is
    /// due then, such as a request of a load, costs no other. `true` if there are events.
    #[inline]
    pub(crate) fn look(&mut self, now: Time, idle: bool) -> bool {
        if std::mem::take(&mut self.rested) {
            self.next_look = now + EVERY;
        } else if self.events.is_empty() && (idle || now >= self.next_look) {
            self.ask(Some(Duration::ZERO));
            self.next_look = now + EVERY;
        }
        !self.events.is_empty()
    }

    /// Sleeps until something happens, or `timeout` is over. What has come waits for the next look.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) {
        self.ask(timeout);
        self.rested = true;
    }

    fn ask(&mut self, timeout: Option<Duration>) {
        #[cfg(test)]
        {
            self.calls += 1;
        }
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// A sleep that ends because something is due is followed by the turn that wakes a task and the turn that runs it: none of
    /// them looks at the sockets again, until a while has passed.
    #[test]
    fn a_sleep_is_a_look() {
        let at = |micros: u64| Time::from_nanos(1_000_000 + micros * 1000);
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut poller = Poller::new(bell.as_fd()).unwrap();
        poller.wait(Some(Duration::ZERO));
        assert!(!poller.look(at(0), false) && !poller.look(at(3), false));
        assert_eq!(poller.calls, 1);
        assert!(!poller.look(at(25), false), "busy with other things for long");
        assert_eq!(poller.calls, 2);
        assert!(!poller.look(at(26), true), "nothing better to do");
        assert_eq!(poller.calls, 3);
        // What came with the sleep is there.
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
        poller.wait(None);
        assert!(poller.look(at(27), false));
        poller.drain(|_, _| panic!("a bell is no socket"));
        assert!(!poller.look(at(28), false));
        assert_eq!(poller.calls, 4);
    }
}
