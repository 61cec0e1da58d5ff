//! The table: packetdrill's ABI.

use std::ffi::{c_int, c_long, c_longlong, c_short, c_uint, c_ulong, c_void};

type Data = *mut c_void;
type Addr = libc::sockaddr;
type Len = libc::socklen_t;
type Size = libc::ssize_t;

/// The functions that packetdrill calls, in its order. Every one is given `userdata` first.
#[repr(C)]
#[allow(missing_docs, reason = "each is the function of the C library that it is named after")]
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub userdata: Data,
    pub free: Option<unsafe extern "C" fn(Data)>,
    pub socket: Option<unsafe extern "C" fn(Data, c_int, c_int, c_int) -> c_int>,
    pub bind: Option<unsafe extern "C" fn(Data, c_int, *const Addr, Len) -> c_int>,
    pub listen: Option<unsafe extern "C" fn(Data, c_int, c_int) -> c_int>,
    pub accept: Option<unsafe extern "C" fn(Data, c_int, *mut Addr, *mut Len) -> c_int>,
    pub connect: Option<unsafe extern "C" fn(Data, c_int, *const Addr, Len) -> c_int>,
    pub read: Option<unsafe extern "C" fn(Data, c_int, *mut c_void, usize) -> Size>,
    pub readv: Option<unsafe extern "C" fn(Data, c_int, *const libc::iovec, c_int) -> Size>,
    pub recv: Option<unsafe extern "C" fn(Data, c_int, *mut c_void, usize, c_int) -> Size>,
    pub recvfrom:
        Option<unsafe extern "C" fn(Data, c_int, *mut c_void, usize, c_int, *mut Addr, *mut Len) -> Size>,
    pub recvmsg: Option<unsafe extern "C" fn(Data, c_int, *mut libc::msghdr, c_int) -> Size>,
    pub write: Option<unsafe extern "C" fn(Data, c_int, *const c_void, usize) -> Size>,
    pub writev: Option<unsafe extern "C" fn(Data, c_int, *const libc::iovec, c_int) -> Size>,
    pub send: Option<unsafe extern "C" fn(Data, c_int, *const c_void, usize, c_int) -> Size>,
    pub sendto:
        Option<unsafe extern "C" fn(Data, c_int, *const c_void, usize, c_int, *const Addr, Len) -> Size>,
    pub sendmsg: Option<unsafe extern "C" fn(Data, c_int, *const libc::msghdr, c_int) -> Size>,
    /// Variadic in C, called with no or one `int`. On the machines that packetdrill runs on, such a call passes its
    /// arguments as a call of a function with fixed ones does.
    pub fcntl: Option<unsafe extern "C" fn(Data, c_int, c_int, c_long) -> c_int>,
    /// As `fcntl`, with no or one `int *`.
    pub ioctl: Option<unsafe extern "C" fn(Data, c_int, c_ulong, *mut c_int) -> c_int>,
    pub close: Option<unsafe extern "C" fn(Data, c_int) -> c_int>,
    pub shutdown: Option<unsafe extern "C" fn(Data, c_int, c_int) -> c_int>,
    pub getsockopt: Option<unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut c_void, *mut Len) -> c_int>,
    pub setsockopt: Option<unsafe extern "C" fn(Data, c_int, c_int, c_int, *const c_void, Len) -> c_int>,
    pub poll: Option<unsafe extern "C" fn(Data, *mut PollFd, c_ulong, c_int) -> c_int>,
    pub netdev_send: Option<unsafe extern "C" fn(Data, *const c_void, usize) -> c_int>,
    pub netdev_receive: Option<unsafe extern "C" fn(Data, *mut c_void, *mut usize, *mut c_longlong) -> c_int>,
    pub usleep: Option<unsafe extern "C" fn(Data, c_uint) -> c_int>,
    pub gettimeofday: Option<unsafe extern "C" fn(Data, *mut libc::timeval, *mut c_void) -> c_int>,
    pub epoll_create: Option<unsafe extern "C" fn(Data, c_int) -> c_int>,
    pub epoll_ctl: Option<unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut libc::epoll_event) -> c_int>,
    pub epoll_wait: Option<unsafe extern "C" fn(Data, c_int, *mut libc::epoll_event, c_int, c_int) -> c_int>,
    pub pipe: Option<unsafe extern "C" fn(Data, *mut c_int) -> c_int>,
    pub splice: Option<unsafe extern "C" fn(Data, c_int, *mut i64, c_int, *mut i64, usize, c_uint) -> Size>,
}

/// `struct pollfd`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PollFd {
    pub(super) fd: c_int,
    pub(super) events: c_short,
    pub(super) revents: c_short,
}

impl Table {
    /// A table without functions.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            userdata: std::ptr::null_mut(),
            free: None,
            socket: None,
            bind: None,
            listen: None,
            accept: None,
            connect: None,
            read: None,
            readv: None,
            recv: None,
            recvfrom: None,
            recvmsg: None,
            write: None,
            writev: None,
            send: None,
            sendto: None,
            sendmsg: None,
            fcntl: None,
            ioctl: None,
            close: None,
            shutdown: None,
            getsockopt: None,
            setsockopt: None,
            poll: None,
            netdev_send: None,
            netdev_receive: None,
            usleep: None,
            gettimeofday: None,
            epoll_create: None,
            epoll_ctl: None,
            epoll_wait: None,
            pipe: None,
            splice: None,
        }
    }
}
