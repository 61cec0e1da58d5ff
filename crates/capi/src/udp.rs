//! UDP sockets of a lane.
//!
//! A socket is a task that receives in batches, calls the program with each batch, and sends back what the program marked. Nothing is
//! allocated for a batch.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};

use flowlane::{Bind, SendError, SocketError, UdpSocket};

use crate::address::Address;
use crate::batch::{Batch, MOST};
use crate::error::{Error, FLOWLANE_ERR_WRONG_LANE, guarded};
use crate::lane::Lane;
use crate::pointer::{User, borrowed, bytes, give, sized};
use crate::task::Task;

/// What a program is told of a UDP socket.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct UdpEvents {
    /// sizeof(flowlane_udp_events)
    pub size: usize,
    /// Datagrams came: `count` of them, at least one.
    pub received:
        Option<unsafe extern "C" fn(udp: *mut Udp, batch: *mut Batch, count: usize, user: *mut c_void)>,
    /// There may be room again, after a send found none. May be null.
    pub room: Option<unsafe extern "C" fn(udp: *mut Udp, user: *mut c_void)>,
    /// The network reported an error of a datagram that was sent, as that nobody listens there. May be null.
    pub failed: Option<unsafe extern "C" fn(udp: *mut Udp, code: i32, user: *mut c_void)>,
    /// The last callback: the socket was closed, or its lane has ended. May be null.
    pub closed: Option<unsafe extern "C" fn(udp: *mut Udp, user: *mut c_void)>,
}

/// A UDP socket of a lane.
#[derive(Debug)]
pub struct Udp {
    lane: Arc<Lane>,
    task: Task,
    socket: UdpSocket,
    events: UdpEvents,
    user: User,
    closing: AtomicBool,
    /// There may be room again, after a send found none.
    has_room: AtomicBool,
    /// Who is told of that; made by the first send without room.
    room: OnceLock<Waker>,
}

/// Tells a socket's task of room.
struct Room(Weak<Udp>);

impl Wake for Room {
    fn wake(self: Arc<Self>) {
        if let Some(udp) = self.0.upgrade() {
            udp.has_room.store(true, Ordering::Relaxed);
            udp.task.wake();
        }
    }
}

/// Why a socket's task goes on.
enum Next {
    Received(Result<usize, SocketError>),
    Room,
    Close,
}

impl Udp {
    fn handle(self: &Arc<Self>) -> *mut Self {
        Arc::as_ptr(self).cast_mut()
    }

    async fn next(&self, batch: &mut Batch) -> Next {
        let mut receive = pin!(self.socket.recv_batch(&mut batch.datagrams, MOST));
        std::future::poll_fn(|cx| {
            self.task.runs(cx);
            if self.closing.load(Ordering::Relaxed) {
                return Poll::Ready(Next::Close);
            }
            if self.has_room.load(Ordering::Relaxed) {
                self.has_room.store(false, Ordering::Relaxed);
                return Poll::Ready(Next::Room);
            }
            receive.as_mut().poll(cx).map(Next::Received)
        })
        .await
    }

    /// Calls the program with a batch.
    fn received(self: &Arc<Self>, batch: &mut Batch) {
        let Some(callback) = self.events.received else { return };
        let (handle, count) = (self.handle(), batch.datagrams.len());
        // SAFETY: the program's callback, with handles that are valid until it returns.
        self.lane.call(|_| unsafe { callback(handle, batch, count, self.user.get()) });
    }

    fn failed(self: &Arc<Self>, error: SocketError) {
        let Some(callback) = self.events.failed else { return };
        let handle = self.handle();
        let code = guarded(|| Err(error.into()));
        // SAFETY: as for `received`.
        self.lane.call(|_| unsafe { callback(handle, code, self.user.get()) });
    }

    fn room(self: &Arc<Self>) {
        let Some(callback) = self.events.room else { return };
        let handle = self.handle();
        // SAFETY: as for `received`.
        self.lane.call(|_| unsafe { callback(handle, self.user.get()) });
    }

    /// Has the task told when there is room for what goes to `to`.
    #[cold]
    fn wait_for_room(self: &Arc<Self>, to: Option<SocketAddr>) -> Result<(), Error> {
        let room = self.room.get_or_init(|| Arc::new(Room(Arc::downgrade(self))).into());
        Ok(self.socket.wake_on_room(&Context::from_waker(room), to.map(Into::into))?)
    }
}

/// The task's hold of its socket; its end is the socket's.
struct Serving(Arc<Udp>);

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(closed) = self.0.events.closed {
            // SAFETY: the program's callback, the last of this socket, which lives until it returns.
            unsafe { closed(self.0.handle(), self.0.user.get()) };
        }
    }
}

async fn serve(serving: Serving) {
    let udp = &serving.0;
    // SAFETY: the steering is the lane's, which the socket keeps; the batch is dropped before the socket.
    let mut batch = unsafe { Batch::new(udp.lane.rss()) };
    loop {
        match udp.next(&mut batch).await {
            Next::Close | Next::Received(Err(SocketError::Closed | SocketError::WrongLane)) => return,
            Next::Room => udp.room(),
            Next::Received(Err(error)) => udp.failed(error),
            Next::Received(Ok(_)) => {
                udp.received(&mut batch);
                batch.keep_marked();
                if !batch.datagrams.is_empty() && udp.socket.reply_batch(&mut batch.datagrams).await.is_err()
                {
                    return;
                }
            }
        }
    }
}

/// Opens a socket in a lane. local is where it receives: an address of the host's or of family 0 for all of them, and a port, 0 for one that
/// is free. With a remote, which may be null, it is connected: it receives only from there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_udp_open(
    lane: *mut Lane,
    local: *const Address,
    remote: *const Address,
    events: *const UdpEvents,
    user: *mut c_void,
    udp: *mut *mut Udp,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, structs and place for a result.
        unsafe {
            let lane = Lane::at(lane)?;
            let local = borrowed(local, "the local address")?;
            let remote = remote.as_ref().map(|remote| remote.socket("the remote end")).transpose()?;
            let events = sized(events, std::mem::offset_of!(UdpEvents, room), "the socket's events")?;
            if events.received.is_none() {
                return Err(Error::invalid("a UDP socket needs the callback 'received'"));
            }
            let bind = Bind {
                local_ip: local.ip()?,
                local_port: local.port,
                remote: remote.map(Into::into),
                ..Bind::default()
            };
            let socket = UdpSocket::bind(bind)?;
            let made = Arc::new(Udp {
                task: Task::new(lane.wakers()),
                lane,
                socket,
                events,
                user: User::new(user),
                closing: AtomicBool::new(false),
                has_room: AtomicBool::new(false),
                room: OnceLock::new(),
            });
            give(udp, made.handle(), "the socket")?;
            flowlane::spawn(serve(Serving(made))).map_err(|e| Error::new(FLOWLANE_ERR_WRONG_LANE, e))?;
            Ok(())
        }
    })
}

/// Sends a datagram: to `to`, or of a connected socket, if that is null, to its peer. FLOWLANE_ERR_AGAIN: there is no room; `room` is called
/// when there may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_udp_send(
    udp: *mut Udp,
    data: *const c_void,
    len: usize,
    to: *const Address,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, bytes and address.
        let (udp, data, to) =
            unsafe { (borrowed(udp, "the socket")?, bytes(data, len, "the data")?, to.as_ref().copied()) };
        let destination = to.map(|to| to.socket("the destination")).transpose()?;
        match udp.socket.try_send(data, None, destination.map(Into::into)) {
            Err(SocketError::Send(SendError::Full)) => {
                // SAFETY: handles of sockets are those of an `Arc`, which keeps its share.
                let shared = ManuallyDrop::new(unsafe { Arc::from_raw(std::ptr::from_ref(udp)) });
                shared.wait_for_room(destination)?;
                Err(Error::AGAIN)
            }
            sent => Ok(sent?),
        }
    })
}

/// Where the socket receives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_udp_local(udp: *const Udp, local: *mut Address) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            let (ip, port) = borrowed(udp, "the socket")?.socket.local()?;
            give(local, Address::of(ip, port), "the address")
        }
    })
}

/// Closes a socket: after `closed` its handle is not valid any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_udp_close(udp: *mut Udp) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let udp = unsafe { borrowed(udp, "the socket") }?;
        udp.lane.here()?;
        udp.closing.store(true, Ordering::Relaxed);
        udp.task.wake();
        Ok(())
    })
}
