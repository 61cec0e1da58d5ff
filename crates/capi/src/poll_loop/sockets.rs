//! Sockets of a loop, by number. A number is of one kind of socket, and is not given again when its socket is closed.

use std::ffi::c_void;
use std::net::Shutdown;

use flowlane::{Bind, Connect, ListenOptions, SendError, Time};
use flowlane_stack::tcp::{self, ConnId, ListenerId};
use flowlane_stack::udp::UdpHandle;
use flowlane_stack::{Lane, Unsent};
use flowlane_sys::frame::Pool;

use super::Loop;
use crate::address::Address;
use crate::batch::{Batch, MOST};
use crate::error::{Error, FLOWLANE_ERR_CLOSED, FLOWLANE_ERR_NO_FRAME, FLOWLANE_ERR_UNSUPPORTED, guarded};
use crate::pointer::{borrowed, bytes, give, room};

/// A socket of a loop's lane.
#[derive(Debug, Clone, Copy)]
pub(super) enum Socket {
    Udp(UdpHandle),
    Listener(ListenerId),
    Connection(ConnId),
}

/// There is something to read, the end, an error, or a connection to accept.
pub const FLOWLANE_READABLE: u32 = 1;
/// There is room to write.
pub const FLOWLANE_WRITABLE: u32 = 2;
/// The connection is over.
pub const FLOWLANE_OVER: u32 = 4;

impl Loop {
    fn add(&mut self, socket: Socket) -> u64 {
        self.last += 1;
        self.sockets.insert(self.last, socket);
        self.last
    }

    fn socket(&self, number: u64) -> Result<Socket, Error> {
        self.sockets.get(&number).copied().ok_or(Error::plain(FLOWLANE_ERR_CLOSED))
    }

    fn udp(&self, number: u64) -> Result<UdpHandle, Error> {
        match self.socket(number)? {
            Socket::Udp(handle) => Ok(handle),
            _ => Err(Error::new(FLOWLANE_ERR_UNSUPPORTED, format!("socket {number} is not one of UDP"))),
        }
    }

    fn connection(&self, number: u64) -> Result<ConnId, Error> {
        match self.socket(number)? {
            Socket::Connection(id) => Ok(id),
            _ => Err(Error::new(FLOWLANE_ERR_UNSUPPORTED, format!("socket {number} is no connection"))),
        }
    }

    fn parts(&mut self) -> (&mut Lane, Time, &Pool) {
        self.lane.lane()
    }
}

/// Opens a UDP socket, as flowlane_udp_open does in a lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_udp(
    handle: *mut Loop,
    local: *const Address,
    remote: *const Address,
    socket: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, structs and place for a result.
        unsafe {
            let here = Loop::at(handle)?;
            let local = borrowed(local, "the local address")?;
            let remote = remote.as_ref().map(|remote| remote.socket("the remote end")).transpose()?;
            let remote = remote.map(Into::into);
            let bind = Bind { local_ip: local.ip()?, local_port: local.port, remote, ..Bind::default() };
            let bound = here.parts().0.udp_bind(bind).map_err(flowlane::SocketError::from)?;
            give(socket, here.add(Socket::Udp(bound)), "the socket")
        }
    })
}

/// Takes the datagrams that wait, up to 64 of them: FLOWLANE_ERR_AGAIN if there are none. The batch is the loop's; it is valid until the next
/// call of this function for any socket of the loop. What is marked in it is sent by flowlane_loop_reply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_receive(
    handle: *mut Loop,
    socket: u64,
    batch: *mut *mut Batch,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and places for results.
        unsafe {
            let here = Loop::at(handle)?;
            let udp = here.udp(socket)?;
            here.batch.keep_marked();
            here.batch.datagrams.clear();
            let n = here.lane.lane().0.udp_receive_batch(udp, &mut here.batch.datagrams, MOST);
            if n == 0 {
                return match here.parts().0.udp_take_error(udp) {
                    Some(error) => Err(flowlane::SocketError::Network(error).into()),
                    None => Err(Error::AGAIN),
                };
            }
            give(count, n, "the number of datagrams")?;
            give(batch, &raw mut here.batch, "the batch")
        }
    })
}

/// Sends the marked datagrams of the last batch back to their senders; to `sent` how many. Those without room are dropped. The batch is used up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_reply(handle: *mut Loop, socket: u64, sent: *mut usize) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            let here = Loop::at(handle)?;
            let udp = here.udp(socket)?;
            here.batch.keep_marked();
            let (lane, now, frames) = here.lane.lane();
            let mut done = 0;
            for datagram in here.batch.datagrams.drain(..) {
                match lane.udp_reply(now, frames, udp, datagram) {
                    Ok(()) => done += 1,
                    Err(Unsent { returned, .. }) => drop(returned),
                }
            }
            give(sent, done, "the number of datagrams")
        }
    })
}

/// Sends a datagram, as flowlane_udp_send does in a lane; FLOWLANE_ERR_AGAIN: there is no room before the next turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_send(
    handle: *mut Loop,
    socket: u64,
    data: *const c_void,
    len: usize,
    to: *const Address,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, bytes and address.
        unsafe {
            let here = Loop::at(handle)?;
            let udp = here.udp(socket)?;
            let to = to.as_ref().map(|to| to.socket("the destination")).transpose()?;
            let data = bytes(data, len, "the data")?;
            let (lane, now, frames) = here.parts();
            match lane.udp_send(now, frames, udp, data, None, to.map(Into::into)) {
                Err(SendError::NoFrame) => Err(Error::plain(FLOWLANE_ERR_NO_FRAME)),
                sent => Ok(sent.map_err(flowlane::SocketError::from)?),
            }
        }
    })
}

/// Listens on a port; backlog as for flowlane_listener_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_listen(
    handle: *mut Loop,
    local: *const Address,
    backlog: u32,
    socket: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, struct and place for a result.
        unsafe {
            let here = Loop::at(handle)?;
            let local = borrowed(local, "the local address")?;
            let usual = ListenOptions::default();
            let backlog = if backlog == 0 { usual.backlog } else { backlog };
            let options = ListenOptions { backlog, ..usual };
            let id = here
                .parts()
                .0
                .tcp_listen(local.ip()?, local.port, options)
                .map_err(flowlane::SocketError::from)?;
            give(socket, here.add(Socket::Listener(id)), "the socket")
        }
    })
}

/// Takes a connection that waits; FLOWLANE_ERR_AGAIN if there is none. peer may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_accept(
    handle: *mut Loop,
    listener: u64,
    socket: *mut u64,
    peer: *mut Address,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and places for results.
        unsafe {
            let here = Loop::at(handle)?;
            let Socket::Listener(id) = here.socket(listener)? else {
                return Err(Error::new(
                    FLOWLANE_ERR_UNSUPPORTED,
                    format!("socket {listener} does not listen"),
                ));
            };
            if socket.is_null() {
                return Err(Error::invalid("the place for the connection is a null pointer"));
            }
            let accepted = here.parts().0.tcp_mut().accept(id).map_err(flowlane::SocketError::from)?;
            let accepted = accepted.ok_or(Error::AGAIN)?;
            if !peer.is_null() {
                give(peer, accepted.remote.into(), "the peer")?;
            }
            give(socket, here.add(Socket::Connection(accepted.id)), "the socket")
        }
    })
}

/// Begins to connect; the connection stands when flowlane_loop_ready says that it is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_connect(
    handle: *mut Loop,
    remote: *const Address,
    socket: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, struct and place for a result.
        unsafe {
            let here = Loop::at(handle)?;
            let remote = borrowed(remote, "the remote address")?.socket("the remote end")?;
            let (lane, now, frames) = here.parts();
            let begun = lane.tcp_connect(now, frames, Connect::to(remote.into()));
            let id = begun.map_err(flowlane::SocketError::from)?;
            give(socket, here.add(Socket::Connection(id)), "the socket")
        }
    })
}

/// Whether a listener or a connection is FLOWLANE_READABLE, FLOWLANE_WRITABLE, FLOWLANE_OVER: bits of `ready`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_ready(handle: *mut Loop, socket: u64, ready: *mut u32) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            let here = Loop::at(handle)?;
            let bit = |is: bool, bit: u32| if is { bit } else { 0 };
            let bits = match here.socket(socket)? {
                Socket::Udp(_) => {
                    return Err(Error::new(
                        FLOWLANE_ERR_UNSUPPORTED,
                        "a UDP socket is asked by flowlane_loop_receive",
                    ));
                }
                Socket::Listener(id) => {
                    let backlog = here.parts().0.tcp().backlog(id).map_err(flowlane::SocketError::from)?;
                    bit(backlog.0 > 0, FLOWLANE_READABLE)
                }
                Socket::Connection(id) => {
                    let is = here.parts().0.tcp().readiness(id).map_err(flowlane::SocketError::from)?;
                    bit(is.readable, FLOWLANE_READABLE)
                        | bit(is.writable, FLOWLANE_WRITABLE)
                        | bit(is.closed || is.failure.is_some(), FLOWLANE_OVER)
                }
            };
            give(ready, bits, "the result")
        }
    })
}

/// Reads from a connection, as flowlane_tcp_read does in a lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_read(
    handle: *mut Loop,
    socket: u64,
    buffer: *mut c_void,
    size: usize,
    n: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, buffer and place for a result.
        unsafe {
            let here = Loop::at(handle)?;
            let id = here.connection(socket)?;
            let buffer = room(buffer.cast::<u8>(), size, "the buffer")?;
            if buffer.is_empty() {
                return Err(Error::invalid("a buffer of no bytes: the end of the stream could not be told"));
            }
            let (lane, now, frames) = here.parts();
            match lane.with_tcp(now, frames, |tcp, cx| tcp.recv(cx, id, buffer)) {
                Ok(read) => give(n, read, "the number of bytes"),
                Err(tcp::RecvError::WouldBlock) => Err(Error::AGAIN),
                Err(tcp::RecvError::Failed(failure)) => Err(flowlane::SocketError::from(failure).into()),
                Err(_) => Err(Error::plain(FLOWLANE_ERR_CLOSED)),
            }
        }
    })
}

/// Writes to a connection what there is room for, as flowlane_tcp_write does in a lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_write(
    handle: *mut Loop,
    socket: u64,
    data: *const c_void,
    len: usize,
    n: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, bytes and place for a result.
        unsafe {
            let here = Loop::at(handle)?;
            let id = here.connection(socket)?;
            let data = bytes(data, len, "the data")?;
            let (lane, now, frames) = here.parts();
            match lane.with_tcp(now, frames, |tcp, cx| tcp.send(cx, id, data)) {
                Ok(written) => give(n, written, "the number of bytes"),
                Err(tcp::SendError::WouldBlock) => Err(Error::AGAIN),
                Err(tcp::SendError::Failed(failure)) => Err(flowlane::SocketError::from(failure).into()),
                Err(_) => Err(Error::plain(FLOWLANE_ERR_CLOSED)),
            }
        }
    })
}

/// Ends the writing direction of a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_shutdown(handle: *mut Loop, socket: u64) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let here = unsafe { Loop::at(handle) }?;
        let id = here.connection(socket)?;
        let (lane, now, frames) = here.parts();
        let shut = lane.with_tcp(now, frames, |tcp, cx| tcp.shutdown(cx, id, Shutdown::Write));
        Ok(shut.map_err(flowlane::SocketError::from)?)
    })
}

/// Closes a socket of any kind; a connection in order. Its number is of no socket any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_close(handle: *mut Loop, socket: u64) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let here = unsafe { Loop::at(handle) }?;
        let closed = here.socket(socket)?;
        here.sockets.remove(&socket);
        let (lane, now, frames) = here.parts();
        // One that the stack has forgotten is closed.
        match closed {
            Socket::Udp(handle) => drop(lane.udp_close(handle)),
            Socket::Listener(id) => drop(lane.with_tcp(now, frames, |tcp, cx| tcp.close_listener(cx, id))),
            Socket::Connection(id) => drop(lane.with_tcp(now, frames, |tcp, cx| tcp.close(cx, id))),
        }
        Ok(())
    })
}
