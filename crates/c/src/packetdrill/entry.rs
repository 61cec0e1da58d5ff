//! The functions of the table: pointers to slices, results to `errno`, panics to `EIO`.

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::data::{read, readv, recv, recvfrom, recvmsg, send, sendmsg, sendto, write, writev};
use super::table::Table;
use super::wait::{
    epoll_create, epoll_ctl, epoll_wait, getsockopt, gettimeofday, netdev_receive, netdev_send, pipe, poll,
    setsockopt, splice, usleep,
};
use super::{Answer, Errno, Make, SharedObject, address};

pub(super) type Data = *mut c_void;
type Object = Arc<dyn SharedObject>;

/// The object of this process, for the preloaded `getsockopt`.
pub(super) static OBJECT: Mutex<Option<Object>> = Mutex::new(None);

/// Most entries of `poll`, parts of a vector, and events of `epoll_wait` in one call.
pub(super) const MOST: usize = 1024;

/// Makes an object and fills the table with the functions that drive it. Without an object, because the flags are wrong, a
/// line says why on the standard error, and the process ends with code 2: packetdrill has no other way to be told.
///
/// # Safety
/// `flags` is null or a C string; `table` is valid for writing.
pub unsafe fn init(flags: *const c_char, table: *mut Table, make: Make) {
    let text = if flags.is_null() {
        None
    } else {
        // SAFETY: a C string, as the caller promises.
        Some(unsafe { CStr::from_ptr(flags) }.to_string_lossy())
    };
    let made = catch_unwind(AssertUnwindSafe(|| make(text.as_deref())));
    let object = match made.unwrap_or_else(|_| Err("a fault of the shim itself".into())) {
        Ok(object) => object,
        Err(why) => {
            eprintln!("packetdrill shim: {why}");
            std::process::exit(2);
        }
    };
    *OBJECT.lock().unwrap_or_else(PoisonError::into_inner) = Some(object.clone());
    let userdata = Box::into_raw(Box::new(object)).cast::<c_void>();
    // SAFETY: valid for writing, as the caller promises.
    unsafe { table.write(filled(userdata)) };
}

fn filled(userdata: Data) -> Table {
    Table {
        userdata,
        free: Some(free),
        socket: Some(socket),
        bind: Some(bind),
        listen: Some(listen),
        accept: Some(accept),
        connect: Some(connect),
        read: Some(read),
        readv: Some(readv),
        recv: Some(recv),
        recvfrom: Some(recvfrom),
        recvmsg: Some(recvmsg),
        write: Some(write),
        writev: Some(writev),
        send: Some(send),
        sendto: Some(sendto),
        sendmsg: Some(sendmsg),
        fcntl: Some(fcntl),
        ioctl: Some(ioctl),
        close: Some(close),
        shutdown: Some(shutdown),
        getsockopt: Some(getsockopt),
        setsockopt: Some(setsockopt),
        poll: Some(poll),
        netdev_send: Some(netdev_send),
        netdev_receive: Some(netdev_receive),
        usleep: Some(usleep),
        gettimeofday: Some(gettimeofday),
        epoll_create: Some(epoll_create),
        epoll_ctl: Some(epoll_ctl),
        epoll_wait: Some(epoll_wait),
        pipe: Some(pipe),
        splice: Some(splice),
    }
}

/// Numbers that C returns.
pub(super) trait Number {
    const FAILED: Self;
}
impl Number for c_int {
    const FAILED: Self = -1;
}
impl Number for isize {
    const FAILED: Self = -1;
}

fn set_errno(errno: Errno) {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = errno.0 };
}

/// Runs a call of the object: an error becomes -1 and `errno`, a panic `EIO`.
///
/// # Safety
/// `data` is the pointer that `init` made, and `free` has not been called.
pub(super) unsafe fn call<R: Number>(data: Data, what: impl FnOnce(&dyn SharedObject) -> Answer<R>) -> R {
    // SAFETY: as the caller promises; the box lives until `free`.
    let object = unsafe { &*data.cast::<Object>() }.clone();
    match catch_unwind(AssertUnwindSafe(|| what(&*object))) {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => {
            set_errno(errno);
            R::FAILED
        }
        Err(_) => {
            set_errno(Errno(libc::EIO));
            R::FAILED
        }
    }
}

unsafe extern "C" fn free(data: Data) {
    *OBJECT.lock().unwrap_or_else(PoisonError::into_inner) = None;
    // SAFETY: made by `init`, and this is the last call.
    let object = unsafe { Box::from_raw(data.cast::<Object>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(object)));
}

unsafe extern "C" fn socket(data: Data, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: packetdrill calls with the table's own pointer.
    unsafe { call(data, |o| o.socket(domain, kind, protocol)) }
}

unsafe extern "C" fn bind(data: Data, fd: c_int, at: *const libc::sockaddr, len: u32) -> c_int {
    // SAFETY: the address is valid for its length.
    unsafe { call(data, |o| o.bind(fd, address::from_c(at, len)?).map(|()| 0)) }
}

unsafe extern "C" fn listen(data: Data, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe { call(data, |o| o.listen(fd, backlog).map(|()| 0)) }
}

unsafe extern "C" fn accept(data: Data, fd: c_int, at: *mut libc::sockaddr, len: *mut u32) -> c_int {
    // SAFETY: the address is null or valid for the length.
    unsafe {
        call(data, |o| {
            let (new, peer) = o.accept(fd)?;
            address::to_c(peer, at, len);
            Ok(new)
        })
    }
}

unsafe extern "C" fn connect(data: Data, fd: c_int, at: *const libc::sockaddr, len: u32) -> c_int {
    // SAFETY: the address is valid for its length.
    unsafe { call(data, |o| o.connect(fd, address::from_c(at, len)?).map(|()| 0)) }
}

unsafe extern "C" fn fcntl(data: Data, fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe { call(data, |o| o.fcntl(fd, command, argument as c_int)) }
}

unsafe extern "C" fn ioctl(data: Data, fd: c_int, request: c_ulong, value: *mut c_int) -> c_int {
    // SAFETY: requests that are answered here have an integer.
    unsafe {
        call(data, |o| {
            // Requests that write must not be read as a pointer when there is no argument.
            let known = request == libc::FIONREAD as c_ulong
                || request == libc::TIOCOUTQ as c_ulong
                || request == SIOCOUTQNSD
                || request == SIOCATMARK;
            if !known {
                return o.ioctl(fd, request as u64, 0).map(|_| 0);
            }
            let value = value.as_mut().ok_or(Errno(libc::EFAULT))?;
            *value = o.ioctl(fd, request as u64, 0)?;
            Ok(0)
        })
    }
}

/// Bytes not yet sent (`linux/sockios.h`).
const SIOCOUTQNSD: c_ulong = 0x894b;

/// Whether the next byte is at the urgent mark (`asm-generic/sockios.h`).
const SIOCATMARK: c_ulong = 0x8905;

unsafe extern "C" fn close(data: Data, fd: c_int) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe { call(data, |o| o.close(fd).map(|()| 0)) }
}

unsafe extern "C" fn shutdown(data: Data, fd: c_int, how: c_int) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe { call(data, |o| o.shutdown(fd, how).map(|()| 0)) }
}
