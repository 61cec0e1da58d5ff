//! What a program does with a connection.

use std::ffi::{CStr, c_char, c_void};
use std::net::Shutdown;
use std::time::Duration;

use flowlane::{Connect, SocketOptions, TcpStream};

use super::connection::{CLOSING, ENDED, PAUSED, READ, Tcp, TcpEvents, WAITS};
use crate::address::Address;
use crate::error::{Error, guarded};
use crate::lane::Lane;
use crate::named::{algorithm, c_name};
use crate::pointer::{borrowed, bytes, give, room, sized, text};

/// Begins to connect from a port whose replies arrive in this lane, where the host has such ports. local may be null, and so may its address be
/// of family 0 and its port 0. timeout_nanos: how long the peer has to answer, 0 for as long as TCP tries. `opened` or `closed` follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_connect(
    lane: *mut Lane,
    remote: *const Address,
    local: *const Address,
    timeout_nanos: u64,
    events: *const TcpEvents,
    user: *mut c_void,
    tcp: *mut *mut Tcp,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, structs and place for a result.
        unsafe {
            let lane = Lane::at(lane)?;
            let remote = borrowed(remote, "the remote address")?.socket("the remote end")?;
            let local = local.as_ref().copied().unwrap_or_default();
            let events = events_of(events)?;
            if tcp.is_null() {
                return Err(Error::invalid("the place for the connection is a null pointer"));
            }
            let connect =
                Connect { local_ip: local.ip()?, local_port: local.port, ..Connect::to(remote.into()) };
            let timeout = (timeout_nanos > 0).then(|| Duration::from_nanos(timeout_nanos));
            let made = Tcp::begin(lane, TcpStream::begin(connect)?, events, user, timeout)?;
            give(tcp, made, "the connection")
        }
    })
}

/// The events of connections.
///
/// # Safety
/// As for [`sized`].
pub(super) unsafe fn events_of(events: *const TcpEvents) -> Result<TcpEvents, Error> {
    // SAFETY: the caller's.
    let events =
        unsafe { sized(events, std::mem::offset_of!(TcpEvents, writable), "the connection's events") }?;
    match events.readable {
        Some(_) => Ok(events),
        None => Err(Error::invalid("a connection needs the callback 'readable'")),
    }
}

/// Reads what is there, at most `size` bytes; to `n` how many, 0 at the end of the stream. FLOWLANE_ERR_AGAIN: nothing is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_read(
    tcp: *mut Tcp,
    buffer: *mut c_void,
    size: usize,
    n: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, buffer and place for a result.
        unsafe {
            let tcp = borrowed(tcp, "the connection")?;
            let buffer = room(buffer.cast::<u8>(), size, "the buffer")?;
            if buffer.is_empty() {
                return Err(Error::invalid("a buffer of no bytes: the end of the stream could not be told"));
            }
            match tcp.stream.try_read(buffer) {
                Ok(Some(read)) => {
                    tcp.set(if read == 0 { READ | ENDED } else { READ });
                    give(n, read, "the number of bytes")
                }
                Ok(None) => {
                    tcp.set(READ);
                    Err(Error::AGAIN)
                }
                Err(e) => {
                    // On another lane nothing was read.
                    tcp.lane.here()?;
                    tcp.set(READ | ENDED);
                    Err(e.into())
                }
            }
        }
    })
}

/// Writes what there is room for; to `n` how many bytes. FLOWLANE_ERR_AGAIN: there is none, `writable` is called when there is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_write(
    tcp: *mut Tcp,
    data: *const c_void,
    len: usize,
    n: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, bytes and place for a result.
        unsafe {
            let tcp = borrowed(tcp, "the connection")?;
            let data = bytes(data, len, "the data")?;
            // What is sent without a copy goes before what is written after it.
            // Guard: `tcp.sends.all_queued()` as `true` fails capi/every_function
            let written = if tcp.sends.all_queued() { tcp.stream.try_write(data)? } else { None };
            match written {
                Some(written) => give(n, written, "the number of bytes"),
                None => {
                    tcp.lane.here()?;
                    tcp.set(WAITS);
                    tcp.task.wake();
                    Err(Error::AGAIN)
                }
            }
        }
    })
}

/// Does something with a connection of the lane whose callback runs.
///
/// # Safety
/// The handle is null or valid.
unsafe fn with(tcp: *const Tcp, f: impl FnOnce(&Tcp) -> Result<(), Error>) -> i32 {
    guarded(|| {
        // SAFETY: the caller's.
        let tcp = unsafe { borrowed(tcp, "the connection") }?;
        tcp.lane.here()?;
        f(tcp)
    })
}

/// Tells the peer that nothing more is written, once what was written is sent. Reading goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_shutdown(tcp: *mut Tcp) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        with(tcp, |tcp| {
            if !tcp.sends.all_queued() {
                return Err(Error::AGAIN);
            }
            Ok(tcp.stream.shutdown(Shutdown::Write)?)
        })
    }
}

/// Closes a connection in order: what was written is still sent. After `closed` its handle is not valid any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_close(tcp: *mut Tcp) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        with(tcp, |tcp| {
            tcp.set(CLOSING);
            tcp.task.wake();
            Ok(())
        })
    }
}

/// Resets a connection and closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_abort(tcp: *mut Tcp) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        with(tcp, |tcp| {
            tcp.set(CLOSING);
            tcp.task.wake();
            Ok(tcp.stream.abort()?)
        })
    }
}

/// Whether `readable` is held back. What the peer sends waits, until its window is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_pause(tcp: *mut Tcp, pause: bool) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        with(tcp, |tcp| {
            if pause {
                tcp.set(PAUSED);
            } else if tcp.is(PAUSED) {
                tcp.clear(PAUSED);
                tcp.task.wake();
            }
            Ok(())
        })
    }
}

/// Whether small segments are sent at once, without Nagle's algorithm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_nodelay(tcp: *mut Tcp, nodelay: bool) -> i32 {
    // SAFETY: the program's handle.
    unsafe { with(tcp, |tcp| Ok(tcp.stream.set_nodelay(nodelay)?)) }
}

/// Gives a connection another congestion control: "cubic", "newreno", "bbr" or "prague", which is "cubic" on a connection that has not agreed on
/// accurate ECN. FLOWLANE_ERR_SYSTEM: the kernel, whose socket it is, does not have it or keeps it for root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_set_congestion(tcp: *mut Tcp, name: *const c_char) -> i32 {
    // SAFETY: the program's handle and text.
    unsafe {
        with(tcp, |tcp| {
            // Guard: `algorithm(text(name, "the congestion control")?)?` as `flowlane::Algorithm::Cubic` fails
            // capi/every_function
            let congestion = Some(algorithm(text(name, "the congestion control")?)?);
            // Guard: `SocketOptions { congestion, ..tcp.stream.options()? }` as `tcp.stream.options()?` fails
            // capi/every_function
            let options = SocketOptions { congestion, ..tcp.stream.options()? };
            Ok(tcp.stream.set_options(&options)?)
        })
    }
}

/// The congestion control of a connection, by its name, which is valid for ever; a null pointer for one of the kernel's that Flowlane does not
/// have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_congestion(tcp: *const Tcp, name: *mut *const c_char) -> i32 {
    // SAFETY: the program's handle and place for a result.
    unsafe {
        with(tcp, |tcp| {
            // Guard: `tcp.stream.info()?.congestion.and_then(c_name)` as `None` fails capi/every_function
            let known = tcp.stream.info()?.congestion.and_then(c_name);
            give(name, known.map_or(std::ptr::null(), CStr::as_ptr), "the name")
        })
    }
}

/// Our end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_local(tcp: *const Tcp, local: *mut Address) -> i32 {
    // SAFETY: the program's handle and place for a result.
    unsafe { with(tcp, |tcp| give(local, tcp.stream.local_addr().into(), "the address")) }
}

/// The peer's end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_peer(tcp: *const Tcp, peer: *mut Address) -> i32 {
    // SAFETY: the program's handle and place for a result.
    unsafe { with(tcp, |tcp| give(peer, tcp.stream.peer_addr().into(), "the address")) }
}

/// Which flow it is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TcpFlow {
    /// Hash of what it receives, as the host's steering makes it.
    pub hash: u32,
    /// What the hash covers, by FreeBSD's numbers.
    pub hash_type: u32,
    /// The lane's bucket.
    pub bucket: u32,
}

/// The flow of a connection. On kernel sockets the bucket is that of the lane that has it: which it is, the kernel chose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_flow(tcp: *const Tcp, flow: *mut TcpFlow) -> i32 {
    // SAFETY: the program's handle and place for a result.
    unsafe {
        with(tcp, |tcp| {
            let (hash, hash_type, bucket) = tcp.stream.flow()?;
            let (hash_type, bucket) = (u32::from(hash_type.as_u8()), u32::from(bucket.0));
            give(flow, TcpFlow { hash, hash_type, bucket }, "the flow")
        })
    }
}

/// The program's pointer of a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_user(tcp: *const Tcp) -> *mut c_void {
    // SAFETY: the program's handle.
    unsafe { tcp.as_ref() }.map_or(std::ptr::null_mut(), |tcp| tcp.user.get())
}

/// Gives a connection another pointer of the program's; a null handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_set_user(tcp: *mut Tcp, user: *mut c_void) {
    // SAFETY: the program's handle.
    if let Some(tcp) = unsafe { tcp.as_ref() } {
        tcp.user.set(user);
    }
}

/// The lane of a connection; a null handle has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_tcp_lane(tcp: *const Tcp) -> *mut Lane {
    // SAFETY: the program's handle.
    unsafe { tcp.as_ref() }.map_or(std::ptr::null_mut(), |tcp| std::sync::Arc::as_ptr(&tcp.lane).cast_mut())
}
