//! The functions of the table for options, readiness, packets and time.

use std::ffi::{c_int, c_longlong, c_uint, c_ulong, c_void};
use std::sync::PoisonError;

use super::data::{bytes, bytes_mut};
use super::entry::{Data, MOST, OBJECT, call};
use super::table::PollFd;
use super::{Errno, Interest, PollEntry};

pub(super) unsafe extern "C" fn getsockopt(
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
pub unsafe extern "C" fn get_option_of_any(
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

pub(super) unsafe extern "C" fn setsockopt(
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

pub(super) unsafe extern "C" fn poll(data: Data, list: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int {
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

pub(super) unsafe extern "C" fn netdev_send(data: Data, at: *const c_void, len: usize) -> c_int {
    // SAFETY: the packet is the caller's.
    unsafe { call(data, |o| o.netdev_send(bytes(at, len)?).map(|()| 0)) }
}

pub(super) unsafe extern "C" fn netdev_receive(
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

pub(super) unsafe extern "C" fn usleep(data: Data, micros: c_uint) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe {
        call(data, |o| {
            o.sleep_micros(micros);
            Ok(0)
        })
    }
}

pub(super) unsafe extern "C" fn gettimeofday(
    data: Data,
    at: *mut libc::timeval,
    _zone: *mut c_void,
) -> c_int {
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

pub(super) unsafe extern "C" fn epoll_create(data: Data, size: c_int) -> c_int {
    // SAFETY: the table's own pointer.
    unsafe { call(data, |o| if size <= 0 { Err(Errno(libc::EINVAL)) } else { o.epoll_create() }) }
}

pub(super) unsafe extern "C" fn epoll_ctl(
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

pub(super) unsafe extern "C" fn epoll_wait(
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

pub(super) unsafe extern "C" fn pipe(data: Data, ends: *mut c_int) -> c_int {
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

pub(super) unsafe extern "C" fn splice(
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
