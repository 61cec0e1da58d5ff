//! Listeners: they accept what the flow hash, or the kernel's, gives their lane.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use flowlane::{ListenOptions, SocketError, TcpListener, TcpStream};

use super::connection::{Tcp, TcpEvents};
use super::stream::events_of;
use crate::address::Address;
use crate::error::{Error, FLOWLANE_ERR_WRONG_LANE, guarded};
use crate::lane::Lane;
use crate::pointer::{User, borrowed, give};
use crate::task::Task;

/// A listener of a lane.
#[derive(Debug)]
pub struct Listener {
    lane: Arc<Lane>,
    task: Task,
    listener: TcpListener,
    /// Those of its connections.
    events: TcpEvents,
    user: User,
    closing: AtomicBool,
}

impl Listener {
    /// The next connection; `None` when it is to end.
    async fn accept(&self) -> Option<Result<TcpStream, SocketError>> {
        std::future::poll_fn(|cx| {
            self.task.runs(cx);
            if self.closing.load(Ordering::Relaxed) {
                return Poll::Ready(None);
            }
            self.listener.poll_accept(cx).map(Some)
        })
        .await
    }
}

async fn serve(listener: Arc<Listener>) {
    loop {
        match listener.accept().await {
            None | Some(Err(SocketError::Closed | SocketError::WrongLane)) => return,
            // The listener looks again by itself when there may be a descriptor.
            Some(Err(_)) => flowlane::yield_now().await,
            Some(Ok(stream)) => {
                let (lane, events) = (listener.lane.clone(), listener.events);
                // In a task of the lane nothing is in the way of another one.
                let _ = Tcp::begin(lane, stream, events, listener.user.get(), None);
            }
        }
    }
}

/// Listens in a lane, on an address of the host's or, of family 0, on all of them. In every lane of a host, so that all connections are accepted.
/// backlog: connections that may wait, 0 for the usual number. `events` are those of the connections. On kernel sockets port 0 is a free one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_listener_open(
    lane: *mut Lane,
    local: *const Address,
    backlog: u32,
    events: *const TcpEvents,
    user: *mut c_void,
    listener: *mut *mut Listener,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, structs and place for a result.
        unsafe {
            let lane = Lane::at(lane)?;
            let local = borrowed(local, "the local address")?;
            let events = events_of(events)?;
            let usual = ListenOptions::default();
            let backlog = if backlog == 0 { usual.backlog } else { backlog };
            if listener.is_null() {
                return Err(Error::invalid("the place for the listener is a null pointer"));
            }
            let opened = TcpListener::bind(local.ip()?, local.port, ListenOptions { backlog, ..usual })?;
            let made = Arc::new(Listener {
                task: Task::new(lane.wakers()),
                lane,
                listener: opened,
                events,
                user: User::new(user),
                closing: AtomicBool::new(false),
            });
            give(listener, Arc::as_ptr(&made).cast_mut(), "the listener")?;
            flowlane::spawn(serve(made)).map_err(|e| Error::new(FLOWLANE_ERR_WRONG_LANE, e))?;
            Ok(())
        }
    })
}

/// Where it listens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_listener_local(listener: *const Listener, local: *mut Address) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            give(local, borrowed(listener, "the listener")?.listener.local_addr()?.into(), "the address")
        }
    })
}

/// Closes a listener. Its handle is not valid any more; its connections go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_listener_close(listener: *mut Listener) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let listener = unsafe { borrowed(listener, "the listener") }?;
        listener.lane.here()?;
        listener.closing.store(true, Ordering::Relaxed);
        listener.task.wake();
        Ok(())
    })
}
