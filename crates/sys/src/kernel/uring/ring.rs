//! The ring itself.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use super::Completion;
use super::buffers::Buffers;

/// Requests that may wait for an enter. Further ones cost one of their own.
const REQUESTS: u32 = 512;
/// Completions that the ring has room for. The kernel keeps further ones until there is room again.
pub(super) const COMPLETIONS: u32 = 4096;
/// The only group of buffers.
const GROUP: u16 = 0;
/// What a number for a request may be: its upper two bits are ours.
const NAME: u64 = (1 << 62) - 1;
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const WATCH: u64 = 2;
/// Cancels and closes, of which nobody wants to hear.
const SILENT: u64 = 3;

/// A ring, and the buffers that it receives into.
pub struct Ring {
    ring: IoUring,
    /// `None` only while it is dropped.
    buffers: Option<Buffers>,
    /// Requests for which there was no room in the ring's queue, and the kernel took none off it.
    waiting: VecDeque<Entry>,
    /// Requests whose last completion has not come.
    pub(super) standing: usize,
    enabled: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("standing", &self.standing).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring with so many buffers of so many bytes, powers of two. It works once it is [enabled](Ring::enable).
    ///
    /// # Errors
    /// The kernel's: `ENOSYS` and `EPERM` if there is no `io_uring` here or it is not allowed, `EINVAL` if the kernel is older than Linux 6.1, `ENOMEM` if
    /// the process may not lock so much memory.
    pub fn new(buffers: u16, size: usize) -> io::Result<Self> {
        let ring: IoUring = IoUring::builder()
            .dontfork()
            .setup_cqsize(COMPLETIONS)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .build(REQUESTS)?;
        let mut buffers = Buffers::new(buffers, size)?;
        // SAFETY: the ring of entries is of that address and length, and outlives its registration: the memory is given up only when the kernel uses
        // it no more (`Drop`).
        unsafe {
            ring.submitter().register_buf_ring_with_flags(buffers.address(), buffers.count(), GROUP, 0)
        }?;
        buffers.provide_all();
        Ok(Self { ring, buffers: Some(buffers), waiting: VecDeque::new(), standing: 0, enabled: false })
    }

    /// Has this thread be the ring's.
    ///
    /// # Errors
    /// It is enabled already.
    pub fn enable(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        self.enabled = true;
        Ok(())
    }

    /// Takes connections of a listening socket until it is cancelled. `name`, below 2^62, is in each completion.
    pub fn accept(&mut self, fd: BorrowedFd<'_>, name: u64) {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let entry = opcode::AcceptMulti::new(Fd(fd.as_raw_fd())).flags(flags).build();
        self.stand(entry.user_data(data(ACCEPT, name)));
    }

    /// Receives the bytes of a connection until it is cancelled, or no buffer is free (`ENOBUFS`).
    pub fn receive(&mut self, fd: BorrowedFd<'_>, name: u64) {
        let entry = opcode::RecvMulti::new(Fd(fd.as_raw_fd()), GROUP).build();
        self.stand(entry.user_data(data(RECEIVE, name)));
    }

    /// Says whenever a descriptor becomes readable.
    pub fn watch(&mut self, fd: BorrowedFd<'_>, name: u64) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        self.stand(entry.user_data(data(WATCH, name)));
    }

    /// Ends an accept. Its last completion is an error, `ECANCELED` if nothing else.
    pub fn cancel_accept(&mut self, name: u64) {
        self.cancel(data(ACCEPT, name));
    }

    /// Ends a receive, likewise.
    pub fn cancel_receive(&mut self, name: u64) {
        self.cancel(data(RECEIVE, name));
    }

    fn cancel(&mut self, data: u64) {
        self.push(silent(opcode::AsyncCancel::new(data).build()));
    }

    /// Closes a descriptor at the next enter, after all that was asked about it.
    pub fn close(&mut self, fd: OwnedFd) {
        // It is the kernel's from here on.
        self.push(silent(opcode::Close::new(Fd(fd.into_raw_fd())).build()));
    }

    fn stand(&mut self, entry: Entry) {
        self.standing += 1;
        self.push(entry);
    }

    fn push(&mut self, entry: Entry) {
        if self.waiting.is_empty() && self.ring.submission().is_full() {
            let _ = self.ring.submit();
        }
        self.waiting.push_back(entry);
        self.queue();
    }

    /// Puts what waits into the ring's queue, in order, while there is room.
    fn queue(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.waiting.front() {
            // SAFETY: none of the entries made here refers to memory of ours but to the buffers, which the ring keeps. Descriptors are the kernel's to
            // check.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.waiting.pop_front();
        }
    }

    /// Has the kernel count on this `eventfd(2)` that there are completions, or work that an enter turns into some: for threads that wait for
    /// other things, too. The ring's own descriptor is no substitute: a thread that sleeps in `poll(2)` on it is not woken by such work
    /// (`IORING_SETUP_DEFER_TASKRUN`). Read the counter first, then enter, and sleep once the ring [is quiet](Ring::is_quiet): work that an enter
    /// leaves is not counted again. What another `eventfd(2)` sets off is counted late, or not at all: wait on that one as well.
    ///
    /// # Errors
    /// The kernel's: no memory, or the ring has one already.
    pub fn signal(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.submitter().register_eventfd(eventfd.as_raw_fd())
    }

    /// Whether an enter would bring nothing: nothing is asked for, and the kernel has nothing to do.
    #[inline]
    #[must_use]
    pub fn is_quiet(&mut self) -> bool {
        let asked = self.ring.submission();
        asked.is_empty() && !asked.taskrun() && !asked.cq_overflow()
    }

    /// Tells the kernel what was asked for, and has it do what it can.
    #[inline]
    pub fn enter(&mut self) {
        if !self.is_quiet() {
            // It can fail only for want of memory, or because the kernel keeps completions: then the next one goes on.
            let _ = self.ring.submit();
            self.queue();
        }
    }

    /// The same, and waits for a completion, at most for `timeout`; `None` waits without limit. A signal ends it, too.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        let _ = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(Duration::ZERO) => return self.enter(),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        self.queue();
    }

    /// Takes the next completion.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ring.completion().next()?;
            let (name, result) = (entry.user_data() & NAME, entry.result());
            let more = cqueue::more(entry.flags());
            let kind = entry.user_data() >> 62;
            if kind != SILENT && !more {
                self.standing = self.standing.saturating_sub(1);
            }
            match kind {
                ACCEPT if result < 0 => {
                    return Some(Completion::Accepted { name, result: Err(-result), more });
                }
                ACCEPT => {
                    // SAFETY: the kernel has made this descriptor for the request, and nobody else knows it.
                    let fd = unsafe { OwnedFd::from_raw_fd(result) };
                    return Some(Completion::Accepted { name, result: Ok(fd), more });
                }
                RECEIVE if result < 0 => {
                    return Some(Completion::Received { name, result: Err(-result), more });
                }
                RECEIVE => {
                    let buffer = cqueue::buffer_select(entry.flags());
                    let result = Ok(buffer.filter(|id| self.lend(*id, result as u32)));
                    return Some(Completion::Received { name, result, more });
                }
                WATCH => return Some(Completion::Readable { name, more }),
                _ => {}
            }
        }
    }

    /// Notes what is in a buffer. One without bytes goes back at once.
    fn lend(&mut self, id: u16, len: u32) -> bool {
        let Some(buffers) = &mut self.buffers else { return false };
        let lent = buffers.lend(id, len.max(1));
        if len == 0 {
            buffers.give_back(id);
        }
        lent && len > 0
    }

    /// What is in a buffer that a completion named; nothing once it was given back.
    #[inline]
    #[must_use]
    pub fn bytes(&self, buffer: u16) -> &[u8] {
        self.buffers.as_ref().map_or(&[], |buffers| buffers.bytes(buffer))
    }

    /// Buffers that the kernel has, to receive into. Without one it ends a receive as soon as it is asked for, even if nothing has come.
    #[must_use]
    pub fn free_buffers(&self) -> usize {
        self.buffers.as_ref().map_or(0, Buffers::provided)
    }

    /// Gives a buffer back, so that the kernel may use it again.
    #[inline]
    pub fn give_back(&mut self, buffer: u16) {
        if let Some(buffers) = &mut self.buffers {
            buffers.give_back(buffer);
        }
    }
}

/// Times that the end of a ring waits for its requests to end.
const LAST: u32 = 100;

impl Drop for Ring {
    fn drop(&mut self) {
        if self.enabled {
            self.enter();
            let all = CancelBuilder::any();
            let _ = self.ring.submitter().register_sync_cancel(Some(Timespec::new().sec(1)), all);
            for _ in 0..LAST {
                // Connections that nobody has heard of are closed here.
                while self.next_completion().is_some() {}
                if self.standing == 0 {
                    break;
                }
                self.wait(Some(Duration::from_millis(10)));
            }
        }
        // What is registered is let go of before its memory is.
        let gone = self.ring.submitter().unregister_buf_ring(GROUP).is_ok() && self.standing == 0;
        if let Some(buffers) = self.buffers.take().filter(|_| !gone) {
            buffers.leak();
        }
    }
}

fn data(kind: u64, name: u64) -> u64 {
    kind << 62 | name & NAME
}

fn silent(entry: Entry) -> Entry {
    entry.flags(Flags::SKIP_SUCCESS).user_data(data(SILENT, 0))
}
