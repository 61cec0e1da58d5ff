//! A connection: a task that waits for it, and calls the program.
//!
//! `readable` is called again as long as there is something to read, each time in a later turn of the worker if the program has read nothing;
//! [`flowlane_tcp_pause`](super::stream::flowlane_tcp_pause) holds it back. Nothing is allocated for what is read and written.

use std::ffi::c_void;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flowlane::{Sleep, TcpStream};

use super::sends::Sends;
use crate::error::{
    Error, FLOWLANE_ERR_STOPPED, FLOWLANE_ERR_TIMED_OUT, FLOWLANE_ERR_WRONG_LANE, FLOWLANE_OK, guarded,
};
use crate::lane::Lane;
use crate::pointer::User;
use crate::task::Task;

/// What a program is told of a connection.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpEvents {
    /// sizeof(flowlane_tcp_events)
    pub size: usize,
    /// It stands: the first callback, of one that was accepted and of one that was connected. Its user pointer is that of the listener or of
    /// flowlane_tcp_connect; flowlane_tcp_set_user gives it one of its own. May be null.
    pub opened: Option<unsafe extern "C" fn(tcp: *mut Tcp, user: *mut c_void)>,
    /// There is something to read, or the end, or an error, which flowlane_tcp_read tells.
    pub readable: Option<unsafe extern "C" fn(tcp: *mut Tcp, user: *mut c_void)>,
    /// There is room again, after flowlane_tcp_write said FLOWLANE_ERR_AGAIN. May be null.
    pub writable: Option<unsafe extern "C" fn(tcp: *mut Tcp, user: *mut c_void)>,
    /// The last callback. code is 0 if the program closed it, FLOWLANE_ERR_STOPPED if its lane has ended, or why it could not be
    /// connected; in the last case `opened` was not called. May be null.
    pub closed: Option<unsafe extern "C" fn(tcp: *mut Tcp, code: i32, user: *mut c_void)>,
}

/// A connection of a lane.
#[derive(Debug)]
pub struct Tcp {
    pub(super) lane: Arc<Lane>,
    pub(super) task: Task,
    pub(super) stream: TcpStream,
    events: TcpEvents,
    pub(super) user: User,
    /// Bits below. Only the lane's thread writes them.
    flags: AtomicU32,
    pub(super) sends: Sends,
}

/// The program wants it closed.
pub(super) const CLOSING: u32 = 1;
/// The program wants to hear of nothing to read.
pub(super) const PAUSED: u32 = 2;
/// The program has read the end or an error: there is nothing more to read.
pub(super) const ENDED: u32 = 4;
/// A write found no room.
pub(super) const WAITS: u32 = 8;
/// The program has read something.
pub(super) const READ: u32 = 16;

impl Tcp {
    /// Makes a connection of the lane whose callback runs, with a task of its own; it is closed if it does not stand after `timeout`.
    pub(super) fn begin(
        lane: Arc<Lane>,
        stream: TcpStream,
        events: TcpEvents,
        user: *mut c_void,
        timeout: Option<Duration>,
    ) -> Result<*mut Self, Error> {
        let made = Arc::new(Self {
            task: Task::new(lane.wakers()),
            stream,
            events,
            user: User::new(user),
            flags: AtomicU32::new(0),
            sends: Sends::new(lane.wakers()),
            lane,
        });
        let handle = Arc::as_ptr(&made).cast_mut();
        let serving = Serving {
            tcp: made,
            opened: false,
            code: FLOWLANE_ERR_STOPPED,
            timeout: timeout.map(flowlane::sleep),
        };
        flowlane::spawn(serving).map_err(|e| Error::new(FLOWLANE_ERR_WRONG_LANE, e))?;
        Ok(handle)
    }

    #[inline]
    pub(super) fn is(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flags != 0
    }

    #[inline]
    pub(super) fn set(&self, flags: u32) {
        self.flags.store(self.flags.load(Ordering::Relaxed) | flags, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn clear(&self, flags: u32) {
        self.flags.store(self.flags.load(Ordering::Relaxed) & !flags, Ordering::Relaxed);
    }

    fn call(self: &Arc<Self>, callback: Option<unsafe extern "C" fn(*mut Self, *mut c_void)>) {
        let Some(callback) = callback else { return };
        let handle = Arc::as_ptr(self).cast_mut();
        // SAFETY: the program's callback, with a handle that is valid until the connection's last callback.
        self.lane.call(|_| unsafe { callback(handle, self.user.get()) });
    }
}

/// The task of a connection; its end is the connection's.
struct Serving {
    tcp: Arc<Tcp>,
    opened: bool,
    /// How it ended.
    code: i32,
    /// Until when it must stand.
    timeout: Option<Sleep>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Whatever is still to be sent without a copy is given up.
        self.tcp.set(CLOSING);
        self.tcp.sends.task.wake();
        if let Some(closed) = self.tcp.events.closed {
            let handle = Arc::as_ptr(&self.tcp).cast_mut();
            // SAFETY: the program's callback, the last with this handle, which is valid until it returns.
            unsafe { closed(handle, self.code, self.tcp.user.get()) };
        }
    }
}

impl Serving {
    /// Waits until the connection stands.
    fn open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), i32>> {
        if self.opened {
            return Poll::Ready(Ok(()));
        }
        match self.tcp.stream.poll_connected(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(e)) => return Poll::Ready(Err(guarded(|| Err(e.into())))),
            Poll::Pending => {
                let Some(timeout) = &mut self.timeout else { return Poll::Pending };
                ready!(Pin::new(timeout).poll(cx));
                return Poll::Ready(Err(FLOWLANE_ERR_TIMED_OUT));
            }
        }
        self.opened = true;
        self.timeout = None;
        self.tcp.call(self.tcp.events.opened);
        Poll::Ready(Ok(()))
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<i32> {
        self.tcp.task.runs(cx);
        if self.tcp.is(CLOSING) {
            return Poll::Ready(FLOWLANE_OK);
        }
        if let Err(code) = ready!(self.open(cx)) {
            return Poll::Ready(code);
        }
        let tcp = &self.tcp;
        loop {
            let mut called = false;
            if tcp.is(WAITS) && tcp.sends.all_queued() && tcp.stream.poll_writable(cx).is_ready() {
                tcp.clear(WAITS);
                tcp.call(tcp.events.writable);
                called = true;
            }
            // Guard: `PAUSED` as `0` fails capi/every_function
            if !tcp.is(PAUSED | ENDED | CLOSING) {
                match tcp.stream.poll_readable(cx) {
                    Poll::Pending => {}
                    // It is the lane's own, so this is its end.
                    Poll::Ready(Err(_)) => return Poll::Ready(FLOWLANE_ERR_STOPPED),
                    Poll::Ready(Ok(())) => {
                        tcp.clear(READ);
                        tcp.call(tcp.events.readable);
                        if !tcp.is(READ | PAUSED | ENDED | CLOSING) {
                            // The program has left it there: others come first.
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                        called = true;
                    }
                }
            }
            if tcp.is(CLOSING) {
                return Poll::Ready(FLOWLANE_OK);
            }
            if !called {
                return Poll::Pending;
            }
        }
    }
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.code = ready!(self.turn(cx));
        Poll::Ready(())
    }
}
