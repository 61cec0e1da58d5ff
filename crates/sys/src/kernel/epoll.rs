//! Readiness by `epoll(7)`, edge-triggered: a socket is registered once for all events.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

/// Events of one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The number it was registered with.
    pub token: u64,
    bits: u32,
}

impl Event {
    /// A read will not wait: data, a connection, the end of the stream or an error.
    #[inline]
    #[must_use]
    pub fn readable(self) -> bool {
        self.bits
            & (libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32
            != 0
    }

    /// A write will not wait: room, or an error.
    #[inline]
    #[must_use]
    pub fn writable(self) -> bool {
        self.bits & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// The peer sends no more, or the connection is over.
    #[inline]
    #[must_use]
    pub fn ended(self) -> bool {
        self.bits & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// The peer's last byte has been received: what can be read now is the rest of the stream. Nothing urgent is in it, at which
    /// a read would stop short of the end.
    #[inline]
    #[must_use]
    pub fn has_all(self) -> bool {
        // Guard: `libc::EPOLLPRI | libc::EPOLLHUP | libc::EPOLLERR` as `libc::EPOLLHUP | libc::EPOLLERR`
        // fails runtime/relay::short::nothing_behind
        let but = libc::EPOLLPRI | libc::EPOLLHUP | libc::EPOLLERR;
        self.bits & (libc::EPOLLRDHUP | but) as u32 == libc::EPOLLRDHUP as u32
    }

    /// Both directions are over.
    #[inline]
    #[must_use]
    pub fn over(self) -> bool {
        self.bits & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// Both directions are over, and not only something in the error queue.
    #[inline]
    #[must_use]
    pub fn hung_up(self) -> bool {
        self.bits & libc::EPOLLHUP as u32 != 0
    }

    /// The same for a socket whose completions of sends without copies come by its error queue: without what only says that there
    /// are some. A connection that has failed has ended as well.
    #[inline]
    #[must_use]
    pub fn without_completions(self) -> Self {
        let ended = self.bits & libc::EPOLLHUP as u32 != 0;
        Self { bits: if ended { self.bits } else { self.bits & !(libc::EPOLLERR as u32) }, ..self }
    }

    /// The socket has a pending error.
    #[inline]
    #[must_use]
    pub fn failed(self) -> bool {
        self.bits & libc::EPOLLERR as u32 != 0
    }
}

/// Room for a batch of events.
pub struct Events {
    room: Vec<libc::epoll_event>,
    filled: usize,
}

impl Events {
    /// Room for `count` events, at least one.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { room: vec![libc::epoll_event { events: 0, u64: 0 }; count.max(1)], filled: 0 }
    }

    /// How many the last wait brought.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the last wait brought none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// One of them.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Event> {
        let event = self.room.get(..self.filled)?.get(index)?;
        Some(Event { token: event.u64, bits: event.events })
    }

    /// Forgets them.
    #[inline]
    pub fn clear(&mut self) {
        self.filled = 0;
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("room", &self.room.len()).field("filled", &self.filled).finish()
    }
}

/// Seconds and nanoseconds, 64 bits each on every machine.
#[repr(C)]
struct KernelTimespec {
    sec: i64,
    nsec: i64,
}

impl Epoll {
    /// A new instance.
    ///
    /// # Errors
    /// Too many descriptors are open.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved; a non-negative result is a descriptor that is ours alone.
        unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { fd: OwnedFd::from_raw_fd(fd) }) }
        }
    }

    /// Has waits poll the card's queue of the instance's sockets for up to so many microseconds before they sleep; 0 ends that. With `prefer`
    /// the card's interrupts stay off while the application polls often enough, if the card is told to defer them (`napi_defer_hard_irqs`).
    ///
    /// # Errors
    /// The kernel's: `ENOTTY` if it is older than Linux 6.9, or built without busy polling.
    pub fn set_busy_poll(&self, micros: u32, prefer: bool) -> io::Result<()> {
        let wish = libc::epoll_params {
            busy_poll_usecs: micros,
            // What the kernel takes without a privilege; 0 would be its default of 8.
            busy_poll_budget: 64,
            prefer_busy_poll: u8::from(prefer),
            __pad: 0,
        };
        // SAFETY: the kernel reads one structure of this size.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::EPIOCSPARAMS, &raw const wish) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// What [`Epoll::set_busy_poll`] has set.
    ///
    /// # Errors
    /// As there.
    pub fn busy_poll(&self) -> io::Result<(u32, bool)> {
        let mut now =
            libc::epoll_params { busy_poll_usecs: 0, busy_poll_budget: 0, prefer_busy_poll: 0, __pad: 0 };
        // SAFETY: the kernel writes one structure of this size.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::EPIOCGPARAMS, &raw mut now) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((now.busy_poll_usecs, now.prefer_busy_poll != 0))
    }

    /// Registers a socket for all events, edge-triggered. Events that are pending now are reported by the next wait.
    ///
    /// # Errors
    /// The kernel's: no memory, too many registrations (`/proc/sys/fs/epoll/max_user_watches`).
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let all = libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd, all as u32, token)
    }

    /// Registers a socket, edge-triggered, for room to write and for its end alone.
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn add_writable(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, (libc::EPOLLOUT | libc::EPOLLET) as u32, token)
    }

    /// Has a socket that is registered report what it would by [`Epoll::add_writable`].
    ///
    /// # Errors
    /// It was not registered.
    pub fn report_writable(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, (libc::EPOLLOUT | libc::EPOLLET) as u32, token)
    }

    /// Has a socket that is registered report all events, as if it came by [`Epoll::add`].
    ///
    /// # Errors
    /// It was not registered.
    pub fn report_all(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let all = libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_MOD, fd, all as u32, token)
    }

    /// Registers a descriptor, level-triggered: it is reported for as long as it is readable.
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn add_level(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, token)
    }

    /// Takes a descriptor out. Closing it does as much.
    ///
    /// # Errors
    /// It was not registered.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, what: i32, fd: BorrowedFd<'_>, events: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: the event is valid for the call and only read.
        let done = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), what, fd.as_raw_fd(), &raw mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for events, at most for `timeout`, exact to the nanosecond if the kernel supports it (Linux 5.11); `None` waits without limit.
    /// Returns the number of events; a signal counts as a timeout.
    ///
    /// # Errors
    /// None is expected of a valid instance.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.filled = 0;
        let n = match timeout {
            None => self.wait_millis(events, -1),
            Some(Duration::ZERO) => self.wait_millis(events, 0),
            Some(timeout) => self.wait_exactly(events, timeout),
        };
        match n {
            Ok(n) => {
                events.filled = n;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(e) => Err(e),
        }
    }

    fn wait_millis(&self, events: &mut Events, millis: i32) -> io::Result<usize> {
        let room = &mut events.room;
        // SAFETY: the kernel writes at most as many events as there is room for.
        let n =
            unsafe { libc::epoll_wait(self.fd.as_raw_fd(), room.as_mut_ptr(), room.len() as i32, millis) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    fn wait_exactly(&self, events: &mut Events, timeout: Duration) -> io::Result<usize> {
        static MISSING: AtomicBool = AtomicBool::new(false);
        if !MISSING.load(Ordering::Relaxed) {
            let time = KernelTimespec {
                sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                nsec: i64::from(timeout.subsec_nanos()),
            };
            let room = &mut events.room;
            // SAFETY: the kernel writes at most as many events as there is room for, and reads the time; no signal mask.
            let n = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    self.fd.as_raw_fd(),
                    room.as_mut_ptr(),
                    room.len() as libc::c_int,
                    &raw const time,
                    std::ptr::null::<libc::sigset_t>(),
                    0usize,
                )
            };
            if n >= 0 {
                return Ok(n as usize);
            }
            let e = io::Error::last_os_error();
            if e.raw_os_error() != Some(libc::ENOSYS) {
                return Err(e);
            }
            MISSING.store(true, Ordering::Relaxed);
        }
        // An older kernel: `ppoll` is as exact, at the price of a second call.
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        crate::poll::wait_readable(&[self.fd.as_fd()], Some(ns))?;
        self.wait_millis(events, 0)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
