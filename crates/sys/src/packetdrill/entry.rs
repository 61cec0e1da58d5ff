//! The functions of the table: pointers to slices, results to `errno`, panics to `EIO`.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::table::{PollFd, Table};
use super::{Address, Answer, ControlMessage, Errno, Interest, PollEntry, SendCall, SharedObject, address};

type Data = *mut c_void;
type Object = Arc<dyn SharedObject>;

/// The object of this process, for the preloaded `getsockopt`.
static OBJECT: Mutex<Option<Object>> = Mutex::new(None);

/// Most entries of `poll`, parts of a vector, and events of `epoll_wait` in one call.
const MOST: usize = 1024;
/// Most bytes of one buffer that is looked at.
const MOST_BYTES: usize = isize::MAX as usize;

/// Makes an object and fills the table with the functions that drive it. Without an object, because the flags are wrong, a
/// line says why on the standard error, and the process ends with code 2: packetdrill has no other way to be told.
///
/// # Safety
/// `flags` is null or a C string; `table` is valid for writing.
pub unsafe fn init(
    flags: *const c_char,
    table: *mut Table,
    make: fn(Option<&str>) -> Result<Object, String>,
) {
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
trait Number {
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
unsafe fn call<R: Number>(data: Data, what: impl FnOnce(&dyn SharedObject) -> Answer<R>) -> R {
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

/// # Safety
/// `at` is null or valid for `len` bytes of writing.
unsafe fn bytes_mut<'a>(at: *mut c_void, len: usize) -> Answer<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if at.is_null() || len > MOST_BYTES {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) })
}

/// # Safety
/// `at` is null or valid for `len` bytes of reading.
unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Answer<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if at.is_null() || len > MOST_BYTES {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) })
}

/// # Safety
/// `at` is null or points to `count` vectors.
unsafe fn vectors<'a>(at: *const libc::iovec, count: usize) -> Answer<&'a [libc::iovec]> {
    if count > MOST {
        return Err(Errno(libc::EINVAL));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// # Safety
/// The vectors point to memory valid for writing, no two to the same.
unsafe fn slices_mut<'a>(at: *const libc::iovec, count: usize) -> Answer<Vec<IoSliceMut<'a>>> {
    // SAFETY: as the caller promises.
    unsafe {
        vectors(at, count)?.iter().map(|v| bytes_mut(v.iov_base, v.iov_len).map(IoSliceMut::new)).collect()
    }
}

/// # Safety
/// The vectors point to memory valid for reading.
unsafe fn slices<'a>(at: *const libc::iovec, count: usize) -> Answer<Vec<IoSlice<'a>>> {
    // SAFETY: as the caller promises.
    unsafe { vectors(at, count)?.iter().map(|v| bytes(v.iov_base, v.iov_len).map(IoSlice::new)).collect() }
}

fn count_of(n: c_int) -> Answer<usize> {
    usize::try_from(n).map_err(|_| Errno(libc::EINVAL))
}

unsafe extern "C" fn read(data: Data, fd: c_int, at: *mut c_void, len: usize) -> isize {
    // SAFETY: as for `recv`.
    unsafe { recv(data, fd, at, len, 0) }
}

unsafe extern "C" fn readv(data: Data, fd: c_int, at: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: the vectors are the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let mut into = slices_mut(at, count_of(count)?)?;
            o.receive(fd, &mut into, 0).map(|got| got.len as isize)
        })
    }
}

unsafe extern "C" fn recv(data: Data, fd: c_int, at: *mut c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the buffer is the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let mut into = [IoSliceMut::new(bytes_mut(at, len)?)];
            o.receive(fd, &mut into, flags).map(|got| got.len as isize)
        })
    }
}

unsafe extern "C" fn recvfrom(
    data: Data,
    fd: c_int,
    at: *mut c_void,
    len: usize,
    flags: c_int,
    source: *mut libc::sockaddr,
    source_len: *mut u32,
) -> isize {
    // SAFETY: buffer and address are the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let mut into = [IoSliceMut::new(bytes_mut(at, len)?)];
            let got = o.receive(fd, &mut into, flags)?;
            match got.source {
                Some(from) => address::to_c(from, source, source_len),
                None if !source_len.is_null() => *source_len = 0,
                None => {}
            }
            Ok(got.len as isize)
        })
    }
}

unsafe extern "C" fn recvmsg(data: Data, fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the message and all it points to are the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let message = message.as_mut().ok_or(Errno(libc::EFAULT))?;
            let mut into = slices_mut(message.msg_iov, message.msg_iovlen as usize)?;
            let got = o.receive(fd, &mut into, flags)?;
            match got.source {
                Some(from) => {
                    address::to_c(from, message.msg_name.cast(), &raw mut message.msg_namelen);
                }
                None => message.msg_namelen = 0,
            }
            message.msg_flags = got.flags;
            put_control(message, &got.control);
            Ok(got.len as isize)
        })
    }
}

/// Writes control messages as far as there is room.
///
/// # Safety
/// The message's control buffer is null or valid for its length.
unsafe fn put_control(message: &mut libc::msghdr, list: &[ControlMessage]) {
    let room = message.msg_controllen as usize;
    let mut used = 0;
    // SAFETY: every header and its data lie within the buffer, which `CMSG_NXTHDR` checks.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        for one in list {
            let space = libc::CMSG_SPACE(one.data.len() as c_uint) as usize;
            if header.is_null() || used + space > room {
                message.msg_flags |= libc::MSG_CTRUNC;
                break;
            }
            (*header).cmsg_level = one.level;
            (*header).cmsg_type = one.kind;
            (*header).cmsg_len = libc::CMSG_LEN(one.data.len() as c_uint) as _;
            std::ptr::copy_nonoverlapping(one.data.as_ptr(), libc::CMSG_DATA(header), one.data.len());
            used += space;
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    message.msg_controllen = used as _;
}

/// Reads control messages.
///
/// # Safety
/// The message's control buffer is null or valid for its length.
unsafe fn take_control(message: &libc::msghdr) -> Vec<ControlMessage> {
    let mut list = Vec::new();
    // SAFETY: the macros stay within the buffer; a header's length is checked before its data is read.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() && list.len() < MOST {
            let empty = libc::CMSG_LEN(0) as usize;
            let len = ((*header).cmsg_len as usize).saturating_sub(empty);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(header), len).to_vec();
            list.push(ControlMessage { level: (*header).cmsg_level, kind: (*header).cmsg_type, data });
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    list
}

unsafe extern "C" fn write(data: Data, fd: c_int, at: *const c_void, len: usize) -> isize {
    // SAFETY: as for `send`.
    unsafe { send(data, fd, at, len, 0) }
}

unsafe extern "C" fn writev(data: Data, fd: c_int, at: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: the vectors are the caller's, valid for reading.
    unsafe {
        call(data, |o| {
            let list = slices(at, count_of(count)?)?;
            let call = SendCall { data: &list, flags: 0, destination: None, control: Vec::new() };
            o.send(fd, call).map(|n| n as isize)
        })
    }
}

unsafe extern "C" fn send(data: Data, fd: c_int, at: *const c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: as for `sendto`.
    unsafe { sendto(data, fd, at, len, flags, std::ptr::null(), 0) }
}

unsafe extern "C" fn sendto(
    data: Data,
    fd: c_int,
    at: *const c_void,
    len: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_len: u32,
) -> isize {
    // SAFETY: buffer and address are the caller's, valid for reading.
    unsafe {
        call(data, |o| {
            let list = [IoSlice::new(bytes(at, len)?)];
            let destination = destination(to, to_len)?;
            o.send(fd, SendCall { data: &list, flags, destination, control: Vec::new() }).map(|n| n as isize)
        })
    }
}

/// # Safety
/// As for [`address::from_c`].
unsafe fn destination(to: *const libc::sockaddr, len: u32) -> Answer<Option<Address>> {
    if to.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { address::from_c(to, len) }.map(Some)
}

unsafe extern "C" fn sendmsg(data: Data, fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the message and all it points to are the caller's, valid for reading.
    unsafe {
        call(data, |o| {
            let message = message.as_ref().ok_or(Errno(libc::EFAULT))?;
            let list = slices(message.msg_iov, message.msg_iovlen as usize)?;
            let destination = destination(message.msg_name.cast(), message.msg_namelen)?;
            let control = take_control(message);
            o.send(fd, SendCall { data: &list, flags, destination, control }).map(|n| n as isize)
        })
    }
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
                || request == SIOCOUTQNSD;
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

unsafe extern "C" fn close(data: Data, fd: c_int) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe { call(data, |o| o.close(fd).map(|()| 0)) }
}

unsafe extern "C" fn shutdown(data: Data, fd: c_int, how: c_int) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe { call(data, |o| o.shutdown(fd, how).map(|()| 0)) }
}

unsafe extern "C" fn getsockopt(
    data: Data,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    // SAFETY: value and length are the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let len = len.as_mut().ok_or(Errno(libc::EFAULT))?;
            let room = *len as i32;
            if room < 0 {
                return Err(Errno(libc::EINVAL));
            }
            let answer = o.get_option(fd, level, name, room as usize)?;
            let n = answer.len().min(room as usize);
            bytes_mut(value, n)?.copy_from_slice(&answer[..n]);
            *len = n as u32;
            Ok(0)
        })
    }
}

/// `getsockopt` for any descriptor of the process: the object's are answered by it, others by the kernel.
///
/// # Safety
/// As for the C library's function.
pub unsafe fn get_option_of_any(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    let object = OBJECT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(mut object) = object.filter(|o| o.owns(fd)) {
        let data = (&raw mut object).cast::<c_void>();
        // SAFETY: the object outlives the call; value and length are as the caller promises.
        return unsafe { getsockopt(data, fd, level, name, value, len) };
    }
    // SAFETY: the arguments go to the kernel as they are.
    unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int }
}

unsafe extern "C" fn setsockopt(
    data: Data,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> c_int {
    // SAFETY: the value is the caller's, valid for reading.
    unsafe { call(data, |o| o.set_option(fd, level, name, bytes(value, len as usize)?).map(|()| 0)) }
}

unsafe extern "C" fn poll(data: Data, list: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int {
    // SAFETY: the list is the caller's, valid for its length.
    unsafe {
        call(data, |o| {
            let count = count as usize;
            if count > MOST {
                return Err(Errno(libc::EINVAL));
            }
            if list.is_null() && count > 0 {
                return Err(Errno(libc::EFAULT));
            }
            let list = if count == 0 { &mut [][..] } else { std::slice::from_raw_parts_mut(list, count) };
            let mut entries: Vec<PollEntry> =
                list.iter().map(|p| PollEntry { fd: p.fd, events: p.events, found: 0 }).collect();
            let n = o.poll(&mut entries, timeout)?;
            for (to, from) in list.iter_mut().zip(&entries) {
                to.revents = from.found;
            }
            Ok(n)
        })
    }
}

unsafe extern "C" fn netdev_send(data: Data, at: *const c_void, len: usize) -> c_int {
    // SAFETY: the packet is the caller's.
    unsafe { call(data, |o| o.netdev_send(bytes(at, len)?).map(|()| 0)) }
}

unsafe extern "C" fn netdev_receive(
    data: Data,
    at: *mut c_void,
    len: *mut usize,
    micros: *mut c_longlong,
) -> c_int {
    // SAFETY: buffer, length and time are the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let (Some(len), Some(micros)) = (len.as_mut(), micros.as_mut()) else {
                return Err(Errno(libc::EFAULT));
            };
            (*len, *micros) = o.netdev_receive(bytes_mut(at, *len)?)?;
            Ok(0)
        })
    }
}

unsafe extern "C" fn usleep(data: Data, micros: c_uint) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe {
        call(data, |o| {
            o.sleep_micros(micros);
            Ok(0)
        })
    }
}

unsafe extern "C" fn gettimeofday(data: Data, at: *mut libc::timeval, _zone: *mut c_void) -> c_int {
    // SAFETY: the time is the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let at = at.as_mut().ok_or(Errno(libc::EFAULT))?;
            let now = o.now_micros();
            at.tv_sec = (now / 1_000_000) as _;
            at.tv_usec = (now % 1_000_000) as _;
            Ok(0)
        })
    }
}

unsafe extern "C" fn epoll_create(data: Data, size: c_int) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe { call(data, |o| if size <= 0 { Err(Errno(libc::EINVAL)) } else { o.epoll_create() }) }
}

unsafe extern "C" fn epoll_ctl(
    data: Data,
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    // SAFETY: the event is null or the caller's.
    unsafe {
        call(data, |o| {
            let interest = event.as_ref().map(|e| Interest { events: e.events, data: e.u64 });
            o.epoll_ctl(epoll, operation, fd, interest).map(|()| 0)
        })
    }
}

unsafe extern "C" fn epoll_wait(
    data: Data,
    epoll: c_int,
    events: *mut libc::epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: there is room for `max` events.
    unsafe {
        call(data, |o| {
            if max <= 0 {
                return Err(Errno(libc::EINVAL));
            }
            if events.is_null() {
                return Err(Errno(libc::EFAULT));
            }
            let found = o.epoll_wait(epoll, (max as usize).min(MOST), timeout)?;
            for (i, one) in found.iter().enumerate() {
                events.add(i).write_unaligned(libc::epoll_event { events: one.events, u64: one.data });
            }
            Ok(found.len() as c_int)
        })
    }
}

unsafe extern "C" fn pipe(data: Data, ends: *mut c_int) -> c_int {
    // SAFETY: room for two integers.
    unsafe {
        call(data, |o| {
            if ends.is_null() {
                return Err(Errno(libc::EFAULT));
            }
            let [read, write] = o.pipe()?;
            ends.write(read);
            ends.add(1).write(write);
            Ok(0)
        })
    }
}

unsafe extern "C" fn splice(
    data: Data,
    from: c_int,
    _from_offset: *mut i64,
    to: c_int,
    _to_offset: *mut i64,
    len: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: offsets of streams are not looked at.
    unsafe { call(data, |o| o.splice(from, to, len, flags).map(|n| n as isize)) }
}
