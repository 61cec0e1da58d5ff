//! The epoll instance of a worker, or its ring ([`ring`](super::ring)), polled between turns and used for sleeping.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use flowlane_stack::time::Time;
use flowlane_sys::kernel::epoll::{Epoll, Event, Events};
use flowlane_sys::kernel::socket::errno;
use flowlane_sys::kernel::uring::{self, Completion, Ring};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{KernelLane, ring};
use crate::error::StartError;

/// Events taken at once.
const BATCH: usize = 1024;
/// A worker that is busy with other things looks at its sockets this often.
const EVERY: Duration = Duration::from_micros(20);
/// Names the worker's own bell.
const BELL: u64 = u64::MAX;
/// Waits of 100 ms for the kernel to end the requests of a lane, which takes it none.
const PATIENCE: u32 = 50;

/// By what kernel sockets of connections are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Io {
    /// Readiness by `epoll(7)`, and a system call for each accept and receive.
    #[default]
    Epoll,
    /// Accepts and receives by `io_uring(7)`, many by one system call. Without it the start fails.
    Uring,
    /// `io_uring(7)`, or `epoll(7)` where there is none or with busy polling.
    Auto,
}

/// What a look brings.
#[derive(Debug)]
pub(crate) enum News {
    /// Readiness of a socket.
    Event(Event),
    /// What the ring has done.
    Completion(Completion),
}

/// Named by completions about the poller itself.
const OWN: u64 = 0xffff << 46;
const BELL_RANG: u64 = OWN;
const EPOLL_SAYS: u64 = OWN + 1;

/// The epoll instance of one worker, its ring if it has one, and what they last gave.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) epoll: Arc<Epoll>,
    events: Events,
    ring: Option<ByRing>,
    next_look: Time,
    /// A wait has just said all there is to say, be it nothing.
    rested: bool,
    /// System calls made.
    #[cfg(test)]
    calls: u32,
}

/// With a ring, which watches bell and epoll.
#[derive(Debug)]
struct ByRing {
    /// Until the worker's thread has it ([`ring::with`]).
    ring: Option<Ring>,
    /// Counts up when the ring has something, for a worker that sleeps on its links as well.
    signal: OwnedFd,
    /// The ring knows of it: from the first such sleep on.
    signalled: bool,
    bell: OwnedFd,
    told: Vec<Completion>,
    /// Epoll has more to say than it said.
    more: bool,
}

impl Poller {
    /// A poller for a worker whose bell wakes it from sleep.
    pub(crate) fn new(bell: BorrowedFd<'_>, ring: Option<Ring>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let ring = match ring {
            Some(ring) => Some(ByRing {
                signal: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
                signalled: false,
                ring: Some(ring),
                bell: bell.try_clone_to_owned()?,
                told: Vec::new(),
                more: false,
            }),
            None => {
                epoll.add_level(bell, BELL)?;
                None
            }
        };
        Ok(Self {
            epoll: Arc::new(epoll),
            events: Events::new(BATCH),
            ring,
            next_look: Time::ZERO,
            rested: false,
            #[cfg(test)]
            calls: 0,
        })
    }

    /// Rings for pollers, or why there can be none here, in words.
    pub(crate) fn rings(count: usize) -> Result<Vec<Ring>, String> {
        uring::rings(count, ring::BUFFERS, ring::BUFFER).map_err(|e| ring::why_not(&e))
    }

    /// Whether there is a ring.
    pub(crate) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// On the thread of the worker, before anything else.
    pub(crate) fn begin(&mut self) {
        let Some(by_ring) = &mut self.ring else { return };
        let Some(mut ring) = by_ring.ring.take() else { return };
        if ring.enable().is_err() {
            // No fault of the kernel's is known that does this. Lanes find no ring then, and use epoll.
            let _ = self.epoll.add_level(by_ring.bell.as_fd(), BELL);
            self.ring = None;
            return;
        }
        ring.watch(by_ring.bell.as_fd(), BELL_RANG);
        ring.watch(self.epoll.as_fd(), EPOLL_SAYS);
        ring::keep(Some(ring));
    }

    /// Readable when there may be news since [`Poller::prepare_to_sleep`], of sockets. The bell is to be waited on itself.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // Guard: `ring.signal.as_fd()` as `ring.bell.as_fd()` fails poller::tests::a_sleep_among_links
        self.ring.as_ref().map_or(self.epoll.as_fd(), |ring| ring.signal.as_fd())
    }

    /// How long they are polled, in words for people.
    pub(crate) fn polls(time: Duration) -> String {
        if time.is_zero() {
            "polled before workers sleep".to_owned()
        } else {
            format!("polled for {time:?} before workers sleep")
        }
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
        } else if !self.has_news() && (idle || now >= self.next_look) {
            self.ask(Some(Duration::ZERO));
            self.next_look = now + EVERY;
        }
        self.has_news()
    }

    #[inline]
    fn has_news(&self) -> bool {
        !self.events.is_empty() || self.ring.as_ref().is_some_and(|ring| !ring.told.is_empty())
    }

    /// Before a sleep on [`Poller::fd`] and others: asks what was left for the next look. `true` if there are news, or the kernel has not done or told
    /// all yet: then there is no sleep.
    pub(crate) fn prepare_to_sleep(&mut self) -> bool {
        let Some(by_ring) = &mut self.ring else { return self.has_news() };
        if !by_ring.signalled {
            by_ring.signalled =
                ring::with(|ring| ring.signal(by_ring.signal.as_fd())).is_some_and(|done| done.is_ok());
        }
        // Before the ring is asked: what comes later counts again.
        let _ = rustix::io::read(&by_ring.signal, &mut [0_u8; 8]);
        let heard = by_ring.signalled;
        self.ask(Some(Duration::ZERO));
        // What was asked for and not taken, and what the kernel put off, counts no more.
        // Guard: `!ring::with(Ring::is_quiet).unwrap_or(true)` as `false` fails
        // poller::tests::no_sleep_while_the_ring
        !heard || self.has_news() || !ring::with(Ring::is_quiet).unwrap_or(true)
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
        let Some(by_ring) = &mut self.ring else {
            // It can fail only for a reason that would be a fault of ours; then nothing has happened.
            let _ = self.epoll.wait(&mut self.events, timeout);
            return;
        };
        let timeout = if by_ring.more { Some(Duration::ZERO) } else { timeout };
        ring::with(|ring| {
            ring.wait(timeout);
            while let Some(completion) = ring.next_completion() {
                match completion {
                    Completion::Readable { name: BELL_RANG, more } => {
                        if !more {
                            ring.watch(by_ring.bell.as_fd(), BELL_RANG);
                        }
                    }
                    Completion::Readable { more, .. } => {
                        by_ring.more = true;
                        if !more {
                            ring.watch(self.epoll.as_fd(), EPOLL_SAYS);
                        }
                    }
                    other => by_ring.told.push(other),
                }
            }
        });
        if by_ring.more && self.events.is_empty() {
            let _ = self.epoll.wait(&mut self.events, Some(Duration::ZERO));
            by_ring.more = self.events.len() == BATCH;
        }
    }

    /// Takes the news, each with the index of its lane.
    #[inline]
    pub(crate) fn drain(&mut self, mut f: impl FnMut(usize, News)) {
        // What a connection has received comes before its end.
        if let Some(ring) = &mut self.ring {
            for completion in ring.told.drain(..) {
                f(ring::lane_of(&completion), News::Completion(completion));
            }
        }
        for i in 0..self.events.len() {
            if let Some(event) = self.events.get(i).filter(|e| e.token != BELL) {
                f((event.token >> 48) as usize, News::Event(event));
            }
        }
        self.events.clear();
    }

    /// A lane is about to leave: has the ring end what it does for it, and hands over what came before that.
    pub(crate) fn release(&mut self, lane: usize, kernel: &mut KernelLane) {
        let mut standing = kernel.end_all();
        for _ in 0..PATIENCE {
            if standing == 0 {
                break;
            }
            // What others are told waits for the next look.
            self.ask(Some(Duration::from_millis(100)));
            let Some(by_ring) = &mut self.ring else { break };
            for completion in std::mem::take(&mut by_ring.told) {
                if ring::lane_of(&completion) == lane {
                    kernel.on_completion(completion);
                } else {
                    by_ring.told.push(completion);
                }
            }
            standing = kernel.standing();
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Lanes are gone before.
        if self.ring.as_ref().is_some_and(|by_ring| by_ring.ring.is_none()) {
            drop(ring::keep(None));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// A sleep that ends because something is due is followed by the turn that wakes a task and the turn that runs it: none of
    /// them looks at the sockets again, until a while has passed.
    #[test]
    fn a_sleep_is_a_look() {
        sleep_and_look(None);
        match Poller::rings(1) {
            Ok(mut rings) => sleep_and_look(rings.pop()),
            Err(why) => flowlane_testnet::skipped(format_args!("skipped, because {why}")),
        }
    }

    fn sleep_and_look(ring: Option<Ring>) {
        let at = |micros: u64| Time::from_nanos(1_000_000 + micros * 1000);
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut poller = Poller::new(bell.as_fd(), ring).unwrap();
        poller.begin();
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
        // The ring keeps its own watches to itself.
        assert_eq!(poller.look(at(27), false), !poller.has_ring());
        poller.drain(|_, _| panic!("a bell is no socket"));
        assert!(!poller.look(at(28), false));
        assert_eq!(poller.calls, 4);
    }

    /// A worker that also has links sleeps on a descriptor of the poller: what happens while it sleeps ends the sleep, each time.
    #[test]
    fn a_sleep_among_links_hears_of_sockets() {
        sleep_among_links(None);
        match Poller::rings(1) {
            Ok(mut rings) => sleep_among_links(rings.pop()),
            Err(why) => flowlane_testnet::skipped(format_args!("skipped, because {why}")),
        }
    }

    fn sleep_among_links(ring: Option<Ring>) {
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (mut socket, mut peer) = UnixStream::pair().unwrap();
        let mut poller = Poller::new(bell.as_fd(), ring).unwrap();
        poller.begin();
        poller.epoll.add(socket.as_fd(), 7).unwrap();
        let me = rustix::thread::gettid().as_raw_nonzero();
        let until = Instant::now() + Duration::from_secs(30);
        for _ in 0..5 {
            // What was there before, such as room to write.
            while poller.prepare_to_sleep() || poller.look(Time::ZERO, true) {
                poller.drain(|_, _| {});
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let asleep = || {
                        let stat = std::fs::read_to_string(format!("/proc/self/task/{me}/stat")).unwrap();
                        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
                    };
                    while !asleep() && Instant::now() < until {
                        std::thread::yield_now();
                    }
                    peer.write_all(b"x").unwrap();
                });
                let mut news = 0;
                while news == 0 {
                    assert!(Instant::now() < until, "asleep for 30 s");
                    if !poller.prepare_to_sleep() {
                        let mut fds = [PollFd::from_borrowed_fd(poller.fd(), PollFlags::IN)];
                        let woken = poll(&mut fds, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap();
                        assert_eq!(woken, 1, "not woken");
                    }
                    poller.look(Time::ZERO, true);
                    poller.drain(|_, _| news += 1);
                }
            });
            socket.read_exact(&mut [0]).unwrap();
        }
    }

    /// More than the kernel does by one enter: what it puts off counts no more, so it is asked again in place of a sleep.
    #[test]
    fn no_sleep_while_the_ring_has_more_to_do() {
        let mut rings = match Poller::rings(1) {
            Ok(rings) => rings,
            Err(why) => return flowlane_testnet::skipped(format_args!("skipped, because {why}")),
        };
        let fds: Vec<_> = (0..100).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        let mut poller = Poller::new(fds[0].as_fd(), rings.pop()).unwrap();
        poller.begin();
        // Of which nobody hears.
        let watch = |ring: &mut Ring| fds.iter().for_each(|fd| ring.watch(fd.as_fd(), BELL_RANG));
        ring::with(watch).unwrap();
        assert!(!poller.prepare_to_sleep());
        for fd in &fds {
            rustix::io::write(fd, &1_u64.to_ne_bytes()).unwrap();
        }
        while poller.prepare_to_sleep() {
            assert!(!poller.has_news());
        }
        assert!(ring::with(Ring::is_quiet).unwrap(), "asleep with work left");
    }
}
