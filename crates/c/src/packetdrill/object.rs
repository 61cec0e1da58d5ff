//! The trait of a stack that packetdrill can drive, without any C.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

/// An error number of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Result of a call.
pub type Answer<T> = Result<T, Errno>;

/// An address handed to `bind`, `connect` or `sendto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// `AF_INET` or `AF_INET6`.
    Inet(SocketAddr),
    /// `AF_UNSPEC`.
    Unspecified,
}

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlMessage {
    /// Protocol level, `SOL_...`.
    pub level: i32,
    /// Type within the level.
    pub kind: i32,
    /// Data, in the machine's byte order.
    pub data: Vec<u8>,
}

/// Result of a receiving call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes.
    pub len: usize,
    /// Sender; datagrams only.
    pub source: Option<SocketAddr>,
    /// `msg_flags`.
    pub flags: i32,
    /// Control messages.
    pub control: Vec<ControlMessage>,
}

/// Arguments of a sending call.
#[derive(Debug)]
pub struct SendCall<'a> {
    /// The bytes.
    pub data: &'a [IoSlice<'a>],
    /// `MSG_...`.
    pub flags: i32,
    /// Where to.
    pub destination: Option<Address>,
    /// Control messages.
    pub control: Vec<ControlMessage>,
}

/// One entry of `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollEntry {
    /// The descriptor; a negative one is passed over.
    pub fd: i32,
    /// Events to wait for.
    pub events: i16,
    /// Events that have occurred.
    pub found: i16,
}

/// What `epoll` watches and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// `EPOLL...`.
    pub events: u32,
    /// The caller's.
    pub data: u64,
}

/// Creates an object from the text of `--so_flags`, or returns what is wrong with it, in one line.
pub type Make = fn(Option<&str>) -> Result<Arc<dyn SharedObject>, String>;

/// A stack behind packetdrill's table. Called by two threads; a call that has to wait sleeps.
///
/// Descriptors are numbers that [`open_place`](super::open_place) gave, because packetdrill closes what is left open by
/// itself. The clock is the object's own.
#[allow(
    clippy::missing_errors_doc,
    reason = "every one returns the error number of the call it is named after"
)]
pub trait SharedObject: Send + Sync + 'static {
    /// `socket(2)`.
    fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Answer<i32>;
    /// `bind(2)`.
    fn bind(&self, fd: i32, address: Address) -> Answer<()>;
    /// `listen(2)`.
    fn listen(&self, fd: i32, backlog: i32) -> Answer<()>;
    /// `accept(2)`: the new descriptor and the peer, in the family of the socket.
    fn accept(&self, fd: i32) -> Answer<(i32, SocketAddr)>;
    /// `connect(2)`.
    fn connect(&self, fd: i32, address: Address) -> Answer<()>;
    /// `read`, `readv`, `recv`, `recvfrom`, `recvmsg`.
    fn receive(&self, fd: i32, into: &mut [IoSliceMut<'_>], flags: i32) -> Answer<Received>;
    /// `write`, `writev`, `send`, `sendto`, `sendmsg`: how many bytes were taken.
    fn send(&self, fd: i32, call: SendCall<'_>) -> Answer<usize>;
    /// `fcntl(2)` with an integer or no argument.
    fn fcntl(&self, fd: i32, command: i32, argument: i32) -> Answer<i32>;
    /// `ioctl(2)`: what is written to the caller's integer; `argument` is what stood there.
    fn ioctl(&self, fd: i32, request: u64, argument: i32) -> Answer<i32>;
    /// `close(2)`.
    fn close(&self, fd: i32) -> Answer<()>;
    /// `shutdown(2)`.
    fn shutdown(&self, fd: i32, how: i32) -> Answer<()>;
    /// `getsockopt(2)`: the whole value, at most `room` bytes of which are given to the caller.
    fn get_option(&self, fd: i32, level: i32, name: i32, room: usize) -> Answer<Vec<u8>>;
    /// `setsockopt(2)`.
    fn set_option(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Answer<()>;
    /// `poll(2)`: how many entries found something. `timeout_ms`: negative waits for ever.
    fn poll(&self, entries: &mut [PollEntry], timeout_ms: i32) -> Answer<i32>;
    /// An IP packet arrives.
    fn netdev_send(&self, packet: &[u8]) -> Answer<()>;
    /// The next IP packet that leaves: its length, 0 if none comes, and when it left, microseconds of
    /// [`SharedObject::now_micros`].
    fn netdev_receive(&self, into: &mut [u8]) -> Answer<(usize, i64)>;
    /// Lets time pass.
    fn sleep_micros(&self, micros: u32);
    /// The clock of the whole test, microseconds since 1970.
    fn now_micros(&self) -> i64;
    /// `epoll_create(2)`.
    fn epoll_create(&self) -> Answer<i32>;
    /// `epoll_ctl(2)`.
    fn epoll_ctl(&self, epoll: i32, operation: i32, fd: i32, interest: Option<Interest>) -> Answer<()>;
    /// `epoll_wait(2)`: at most `max` events.
    fn epoll_wait(&self, epoll: i32, max: usize, timeout_ms: i32) -> Answer<Vec<Interest>>;
    /// `pipe(2)`: the end to read, the end to write.
    fn pipe(&self) -> Answer<[i32; 2]>;
    /// `splice(2)` without offsets.
    fn splice(&self, from: i32, to: i32, len: usize, flags: u32) -> Answer<usize>;
    /// The program has run a command of the script's.
    fn ran(&self, _command: &str) {}
    /// Whether the descriptor is one of this object's.
    fn owns(&self, fd: i32) -> bool;
}
