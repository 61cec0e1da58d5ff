//! The table called from Rust as packetdrill calls it from C, for tests of the object behind it.

use std::ffi::CString;
use std::io::IoSliceMut;
use std::net::SocketAddr;

use super::place::last_error;
use super::table::PollFd;
use super::{Address, Answer, Errno, Make, Table, address};

/// A filled table. Calls may be made from several threads.
#[derive(Debug)]
pub struct Caller {
    table: Table,
}

// SAFETY: the functions of a table may be called from any thread, as packetdrill does from two.
unsafe impl Send for Caller {}
// SAFETY: as above.
unsafe impl Sync for Caller {}

macro_rules! function {
    ($self:ident.$name:ident) => {
        $self.table.$name.expect("every function of the table is filled in")
    };
}

/// -1 and `errno` to an error.
fn checked<N: Copy + PartialOrd + From<i8>>(n: N) -> Answer<N> {
    if n < N::from(0) { Err(last_error()) } else { Ok(n) }
}

#[allow(clippy::missing_errors_doc, reason = "each is the error number of the call it is named after")]
impl Caller {
    /// Has [`init`](super::init) fill a table for what `make` makes.
    #[must_use]
    pub fn new(make: Make, flags: &str) -> Self {
        let flags = CString::new(flags).unwrap_or_default();
        let mut table = Table::empty();
        // SAFETY: a C string and a table of our own.
        unsafe { super::init(flags.as_ptr(), &raw mut table, make) };
        Self { table }
    }

    /// `socket(2)`.
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Answer<i32> {
        // SAFETY: the table's own pointer, until `free`; so in all that follows.
        checked(unsafe { function!(self.socket)(self.table.userdata, domain, kind, protocol) })
    }

    /// `bind(2)`.
    pub fn bind(&self, fd: i32, to: SocketAddr) -> Answer<()> {
        let to = address::to_bytes(to);
        // SAFETY: an address and its length.
        let result =
            unsafe { function!(self.bind)(self.table.userdata, fd, to.as_ptr().cast(), to.len() as u32) };
        checked(result).map(drop)
    }

    /// `listen(2)`.
    pub fn listen(&self, fd: i32, backlog: i32) -> Answer<()> {
        // SAFETY: as for `socket`.
        checked(unsafe { function!(self.listen)(self.table.userdata, fd, backlog) }).map(drop)
    }

    /// `accept(2)`: the new descriptor and the peer.
    pub fn accept(&self, fd: i32) -> Answer<(i32, SocketAddr)> {
        let mut room = [0_u64; 16];
        let mut len = size_of_val(&room) as u32;
        // SAFETY: room for an address and its length.
        let fd = checked(unsafe {
            function!(self.accept)(self.table.userdata, fd, room.as_mut_ptr().cast(), &raw mut len)
        })?;
        // SAFETY: the address that was written, or zeros.
        match unsafe { address::from_c(room.as_ptr().cast(), len) }? {
            Address::Inet(peer) => Ok((fd, peer)),
            Address::Unspecified => Err(Errno(libc::EAFNOSUPPORT)),
        }
    }

    /// `connect(2)`.
    pub fn connect(&self, fd: i32, to: SocketAddr) -> Answer<()> {
        let to = address::to_bytes(to);
        // SAFETY: an address and its length.
        let result =
            unsafe { function!(self.connect)(self.table.userdata, fd, to.as_ptr().cast(), to.len() as u32) };
        checked(result).map(drop)
    }

    /// `read(2)`.
    pub fn read(&self, fd: i32, into: &mut [u8]) -> Answer<usize> {
        // SAFETY: a buffer and its length.
        let n =
            unsafe { function!(self.read)(self.table.userdata, fd, into.as_mut_ptr().cast(), into.len()) };
        checked(n).map(|n| n as usize)
    }

    /// `readv(2)`.
    pub fn readv(&self, fd: i32, into: &mut [IoSliceMut<'_>]) -> Answer<usize> {
        // SAFETY: `IoSliceMut` has the layout of `iovec`, which the standard library guarantees.
        let n = unsafe {
            function!(self.readv)(self.table.userdata, fd, into.as_ptr().cast(), into.len() as i32)
        };
        checked(n).map(|n| n as usize)
    }

    /// `recvmsg(2)` with room for 256 bytes of control messages: bytes, `msg_flags`, length of the control messages.
    pub fn recvmsg(&self, fd: i32, into: &mut [IoSliceMut<'_>], flags: i32) -> Answer<(usize, i32, usize)> {
        let mut control = [0_u64; 32];
        // SAFETY: all zeros is an empty message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = into.as_mut_ptr().cast();
        message.msg_iovlen = into.len() as _;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: a message that points to buffers of ours.
        let n = unsafe { function!(self.recvmsg)(self.table.userdata, fd, &raw mut message, flags) };
        checked(n).map(|n| (n as usize, message.msg_flags, message.msg_controllen as usize))
    }

    /// `write(2)`.
    pub fn write(&self, fd: i32, bytes: &[u8]) -> Answer<usize> {
        // SAFETY: a buffer and its length.
        let n = unsafe { function!(self.write)(self.table.userdata, fd, bytes.as_ptr().cast(), bytes.len()) };
        checked(n).map(|n| n as usize)
    }

    /// `sendto(2)`.
    pub fn sendto(&self, fd: i32, bytes: &[u8], flags: i32, to: SocketAddr) -> Answer<usize> {
        let to = address::to_bytes(to);
        // SAFETY: a buffer, an address, and their lengths.
        let n = unsafe {
            function!(self.sendto)(
                self.table.userdata,
                fd,
                bytes.as_ptr().cast(),
                bytes.len(),
                flags,
                to.as_ptr().cast(),
                to.len() as u32,
            )
        };
        checked(n).map(|n| n as usize)
    }

    /// `fcntl(2)`.
    pub fn fcntl(&self, fd: i32, command: i32, argument: i32) -> Answer<i32> {
        // SAFETY: as for `socket`.
        checked(unsafe { function!(self.fcntl)(self.table.userdata, fd, command, argument.into()) })
    }

    /// `ioctl(2)`: the integer it writes.
    pub fn ioctl(&self, fd: i32, request: u64) -> Answer<i32> {
        let mut value = 0;
        // SAFETY: room for an integer.
        checked(unsafe { function!(self.ioctl)(self.table.userdata, fd, request as _, &raw mut value) })?;
        Ok(value)
    }

    /// `close(2)`.
    pub fn close(&self, fd: i32) -> Answer<()> {
        // SAFETY: as for `socket`.
        checked(unsafe { function!(self.close)(self.table.userdata, fd) }).map(drop)
    }

    /// `shutdown(2)`.
    pub fn shutdown(&self, fd: i32, how: i32) -> Answer<()> {
        // SAFETY: as for `socket`.
        checked(unsafe { function!(self.shutdown)(self.table.userdata, fd, how) }).map(drop)
    }

    /// `getsockopt(2)` with room for `room` bytes.
    pub fn getsockopt(&self, fd: i32, level: i32, name: i32, room: usize) -> Answer<Vec<u8>> {
        let mut value = vec![0_u8; room];
        let mut len = room as u32;
        // SAFETY: a buffer and its length.
        checked(unsafe {
            function!(self.getsockopt)(
                self.table.userdata,
                fd,
                level,
                name,
                value.as_mut_ptr().cast(),
                &raw mut len,
            )
        })?;
        value.truncate(len as usize);
        Ok(value)
    }

    /// `setsockopt(2)`.
    pub fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Answer<()> {
        // SAFETY: a buffer and its length.
        let result = unsafe {
            function!(self.setsockopt)(
                self.table.userdata,
                fd,
                level,
                name,
                value.as_ptr().cast(),
                value.len() as u32,
            )
        };
        checked(result).map(drop)
    }

    /// `poll(2)` of one descriptor: what was found.
    pub fn poll(&self, fd: i32, events: i16, timeout_ms: i32) -> Answer<i16> {
        let mut one = PollFd { fd, events, revents: 0 };
        // SAFETY: one entry.
        checked(unsafe { function!(self.poll)(self.table.userdata, &raw mut one, 1, timeout_ms) })?;
        Ok(one.revents)
    }

    /// An IP packet arrives.
    pub fn netdev_send(&self, packet: &[u8]) -> Answer<()> {
        // SAFETY: a buffer and its length.
        let result =
            unsafe { function!(self.netdev_send)(self.table.userdata, packet.as_ptr().cast(), packet.len()) };
        checked(result).map(drop)
    }

    /// The next packet that leaves, empty if none does, and when it left, microseconds.
    pub fn netdev_receive(&self) -> Answer<(Vec<u8>, i64)> {
        let mut packet = vec![0_u8; 65_535];
        let (mut len, mut micros) = (packet.len(), 0);
        // SAFETY: a buffer, its length, and room for a time.
        checked(unsafe {
            function!(self.netdev_receive)(
                self.table.userdata,
                packet.as_mut_ptr().cast(),
                &raw mut len,
                &raw mut micros,
            )
        })?;
        packet.truncate(len);
        Ok((packet, micros))
    }

    /// Lets time pass.
    pub fn usleep(&self, micros: u32) -> Answer<()> {
        // SAFETY: as for `socket`.
        checked(unsafe { function!(self.usleep)(self.table.userdata, micros) }).map(drop)
    }

    /// `gettimeofday(2)`, microseconds since 1970.
    pub fn now(&self) -> Answer<i64> {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: room for a time; no time zone.
        checked(unsafe {
            function!(self.gettimeofday)(self.table.userdata, &raw mut time, std::ptr::null_mut())
        })?;
        Ok(time.tv_sec as i64 * 1_000_000 + time.tv_usec as i64)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // SAFETY: the last call.
        unsafe { function!(self.free)(self.table.userdata) };
    }
}
