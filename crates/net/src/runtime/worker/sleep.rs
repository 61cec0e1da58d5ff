//! Going to sleep without lost wake-ups.
//!
//! The order is what counts: say that you sleep, fence, look once more at everything that can bring work, and only
//! then wait (see `flowlane_sys::doorbell`). What is waited on: the worker's own descriptor, which others signal, and
//! the descriptors of its links. A worker with kernel sockets has an epoll instance for them; without links it sleeps on
//! that alone, and what ended its sleep is what it does next. Links that did not take all of the output are no reason to
//! stay awake: the sleep ends when they are to be asked again ([`ports`](super::ports)).

use std::time::Duration;

use flowlane_stack::time::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Worker;
use crate::shared::Place;

/// How often it is seen to that the output of a lane that is to move has left.
const GIVING: Duration = Duration::from_micros(100);

impl Worker {
    /// Whether something falls due so soon that a sleep would be too coarse.
    pub(super) fn is_due_within(&self, time: Duration) -> bool {
        self.lanes.next_deadline() <= self.now + time
    }

    /// Sleeps until there is work, or the next deadline.
    pub(super) fn sleep(&mut self) {
        let shared = self.shared.clone();
        let wake = &shared.posts[self.index].wake;
        wake.prepare_sleep();
        if self.has_work() {
            wake.woke();
            return;
        }
        // Frames of others that wait here for company would starve their owners while this worker sleeps.
        self.frames.flush();
        let now = shared.now();
        self.meter.falls_asleep(now);
        let deadline = self.wake_at();
        self.meter.at(Place::Asleep);
        let alone = self.ports.are_kernels_only();
        if let Some(poller) = self.ports.poller() {
            if alone {
                let left = match deadline {
                    Time::MAX => None,
                    deadline => Some(deadline.saturating_duration_since(now)),
                };
                poller.wait(left);
            }
            if alone || poller.prepare_to_sleep() {
                self.meter.woke(wake.woke());
                return;
            }
        }
        let timeout = timeout(deadline, now);
        let mut fds = vec![PollFd::from_borrowed_fd(wake.fd(), PollFlags::IN)];
        fds.extend(self.ports.to_wait_for().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // Interrupted or not: the loop looks at everything anyway.
        let _ = poll(&mut fds, timeout.as_ref());
        let bad = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        let polled = fds.iter().skip(1).enumerate();
        let failed: Vec<usize> =
            polled.filter(|(_, fd)| fd.revents().intersects(bad)).map(|(i, _)| i).collect();
        drop(fds);
        self.meter.woke(wake.woke());
        if !failed.is_empty() {
            self.ports.clear_errors(&failed);
        }
        // What the kernel's sockets have to say comes first.
        self.cycle.set_found_nothing(true);
    }

    /// Whether there is nothing to gain from looking again before sleep.
    pub(super) fn sleeps_at_once(&self) -> bool {
        self.ports.are_kernels_only() && !self.cycle.spins()
    }

    /// When a sleep has to end: at the next deadline, when a link that took nothing is asked again, or when captured frames have waited for long.
    fn wake_at(&self) -> Time {
        let leaving = self.moves.is_waiting().then(|| self.now + GIVING);
        [self.retry_at(), leaving, self.cycle.ends_at(), self.taps.due()]
            .into_iter()
            .flatten()
            .fold(self.lanes.next_deadline(), Time::min)
    }
}

/// Time from `now` until `deadline`; `None` if there is none.
fn timeout(deadline: Time, now: Time) -> Option<Timespec> {
    if deadline == Time::MAX {
        return None;
    }
    let left = deadline.saturating_duration_since(now);
    Some(Timespec { tv_sec: left.as_secs().min(3600) as i64, tv_nsec: i64::from(left.subsec_nanos()) as _ })
}
