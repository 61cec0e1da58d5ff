//! The functions of the table that move bytes: buffers, vectors and control messages.

use std::ffi::{c_int, c_uint, c_void};
use std::io::{IoSlice, IoSliceMut};

use super::entry::{Data, MOST, call};
use super::{Address, Answer, ControlMessage, Errno, SendCall, address};

/// Most bytes of one buffer that is looked at.
const MOST_BYTES: usize = isize::MAX as usize;

/// # Safety
/// `at` is null or valid for `len` bytes of writing.
pub(super) unsafe fn bytes_mut<'a>(at: *mut c_void, len: usize) -> Answer<&'a mut [u8]> {
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
pub(super) unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Answer<&'a [u8]> {
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
pub(super) unsafe fn vectors<'a>(at: *const libc::iovec, count: usize) -> Answer<&'a [libc::iovec]> {
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
pub(super) unsafe fn slices_mut<'a>(at: *const libc::iovec, count: usize) -> Answer<Vec<IoSliceMut<'a>>> {
    // SAFETY: as the caller promises.
    unsafe {
        vectors(at, count)?.iter().map(|v| bytes_mut(v.iov_base, v.iov_len).map(IoSliceMut::new)).collect()
    }
}

/// # Safety
/// The vectors point to memory valid for reading.
pub(super) unsafe fn slices<'a>(at: *const libc::iovec, count: usize) -> Answer<Vec<IoSlice<'a>>> {
    // SAFETY: as the caller promises.
    unsafe { vectors(at, count)?.iter().map(|v| bytes(v.iov_base, v.iov_len).map(IoSlice::new)).collect() }
}

pub(super) fn count_of(n: c_int) -> Answer<usize> {
    usize::try_from(n).map_err(|_| Errno(libc::EINVAL))
}

pub(super) unsafe extern "C" fn read(data: Data, fd: c_int, at: *mut c_void, len: usize) -> isize {
    // SAFETY: as for `recv`.
    unsafe { recv(data, fd, at, len, 0) }
}

pub(super) unsafe extern "C" fn readv(data: Data, fd: c_int, at: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: the vectors are the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let mut into = slices_mut(at, count_of(count)?)?;
            o.receive(fd, &mut into, 0).map(|got| got.len as isize)
        })
    }
}

pub(super) unsafe extern "C" fn recv(
    data: Data,
    fd: c_int,
    at: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the buffer is the caller's, valid for writing.
    unsafe {
        call(data, |o| {
            let mut into = [IoSliceMut::new(bytes_mut(at, len)?)];
            o.receive(fd, &mut into, flags).map(|got| got.len as isize)
        })
    }
}

pub(super) unsafe extern "C" fn recvfrom(
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

pub(super) unsafe extern "C" fn recvmsg(
    data: Data,
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> isize {
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
pub(super) unsafe fn put_control(message: &mut libc::msghdr, list: &[ControlMessage]) {
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
pub(super) unsafe fn take_control(message: &libc::msghdr) -> Vec<ControlMessage> {
    let mut list = Vec::new();
    let end = message.msg_control as usize + message.msg_controllen as usize;
    // SAFETY: the macros stay within the buffer; a header's length is checked before its data is read.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() && list.len() < MOST {
            let empty = libc::CMSG_LEN(0) as usize;
            // The macros look at the length of a header only to find the next.
            let Some(len) = ((*header).cmsg_len as usize).checked_sub(empty) else { break };
            if len > end.saturating_sub(libc::CMSG_DATA(header) as usize) {
                break;
            }
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(header), len).to_vec();
            list.push(ControlMessage { level: (*header).cmsg_level, kind: (*header).cmsg_type, data });
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    list
}

pub(super) unsafe extern "C" fn write(data: Data, fd: c_int, at: *const c_void, len: usize) -> isize {
    // SAFETY: as for `send`.
    unsafe { send(data, fd, at, len, 0) }
}

pub(super) unsafe extern "C" fn writev(data: Data, fd: c_int, at: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: the vectors are the caller's, valid for reading.
    unsafe {
        call(data, |o| {
            let list = slices(at, count_of(count)?)?;
            let call = SendCall { data: &list, flags: 0, destination: None, control: Vec::new() };
            o.send(fd, call).map(|n| n as isize)
        })
    }
}

pub(super) unsafe extern "C" fn send(
    data: Data,
    fd: c_int,
    at: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: as for `sendto`.
    unsafe { sendto(data, fd, at, len, flags, std::ptr::null(), 0) }
}

pub(super) unsafe extern "C" fn sendto(
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
pub(super) unsafe fn destination(to: *const libc::sockaddr, len: u32) -> Answer<Option<Address>> {
    if to.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { address::from_c(to, len) }.map(Some)
}

pub(super) unsafe extern "C" fn sendmsg(
    data: Data,
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A header that claims more than the buffer holds, or less than itself, ends the list; one that fits is read.
    #[test]
    fn control_messages_are_read_within_their_buffer() {
        let mut buffer = [0_u64; 4];
        for (len, expected) in
            [(24, Some(8)), (20, Some(4)), (33, None), (1 << 20, None), (3, None), (0, None)]
        {
            // SAFETY: all zeros is an empty message; the buffer is aligned and longer than a header.
            let list = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_control = buffer.as_mut_ptr().cast();
                message.msg_controllen = size_of_val(&buffer) as _;
                (*libc::CMSG_FIRSTHDR(&raw const message)).cmsg_len = len;
                take_control(&message)
            };
            assert_eq!(list.first().map(|one| one.data.len()), expected, "{len}");
        }
    }
}
