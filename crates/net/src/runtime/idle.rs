//! Going to sleep without missing anything.
//!
//! The order is what counts: say that you sleep, fence, look once more at everything that can bring work, and only
//! then wait (see `flowlane_sys::doorbell`). What is waited on: the worker's own descriptor, which others signal, and
//! the descriptors of its links. A worker with kernel sockets has an epoll instance for them; without links it sleeps on
//! that alone, and what ended its sleep is what it does next.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::worker::{Idle, Worker};
use flowlane_stack::time::Time;

impl Worker {
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
        self.turns.sleeps += 1;
        if self.ports.is_empty()
            && let Some(poller) = &mut self.poller
        {
            let left = match self.next_deadline {
                Time::MAX => None,
                deadline => Some(deadline.saturating_duration_since(shared.now())),
            };
            poller.wait(left);
            wake.woke();
            return;
        }
        let timeout = self.timeout();
        let links: Vec<BorrowedFd<'_>> = self.ports.iter().filter_map(|p| p.queue.fd()).collect();
        let mut fds = Vec::with_capacity(links.len() + 1);
        fds.push(PollFd::from_borrowed_fd(wake.fd(), PollFlags::IN));
        fds.extend(links.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if let Some(poller) = &self.poller {
            fds.push(PollFd::from_borrowed_fd(poller.epoll.as_fd(), PollFlags::IN));
        }
        // Interrupted or not: the loop looks at everything anyway.
        let _ = poll(&mut fds, timeout.as_ref());
        drop(fds);
        wake.woke();
        // What the kernel's sockets have to say comes first.
        self.idle_turn = true;
    }

    /// Whether there is nothing to gain from looking again before sleep.
    pub(super) fn sleeps_at_once(&self) -> bool {
        self.poller.is_some() && self.ports.is_empty() && self.idle != Idle::Spin
    }

    /// Time until the next deadline; `None` if there is none.
    fn timeout(&self) -> Option<Timespec> {
        if self.next_deadline == Time::MAX {
            return None;
        }
        let left = self.next_deadline.saturating_duration_since(self.shared.now());
        Some(Timespec {
            tv_sec: left.as_secs().min(3600) as i64,
            tv_nsec: i64::from(left.subsec_nanos()) as _,
        })
    }
}
