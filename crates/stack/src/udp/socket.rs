//! A UDP socket and the datagrams in its queue.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::fmt;
use std::task::Waker;

use flowlane_rss::Bucket;
use flowlane_sys::frame::Frame;

use super::key::Key;
use crate::address::Endpoint;
use crate::chain;
use crate::packet::IcmpErrorKind;

/// Handle of a socket of one lane. The handle of a closed socket stays invalid, also when its slot is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpHandle {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// Binding of a socket: the datagrams that it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bind {
    /// Only datagrams to this address; `None` for all of ours.
    pub local_ip: Option<IpAddr>,
    /// Only datagrams to this port; 0 lets the lane choose one.
    pub local_port: u16,
    /// Only datagrams from this peer, which is also where [`send`](crate::Lane::udp_send) goes by default.
    pub remote: Option<Endpoint>,
    /// Datagrams to every port that no other socket has (`local_port` is then 0). One such socket a lane: for load
    /// generators, whose clients are many addresses and ports and no list of sockets.
    pub any_port: bool,
    /// Datagrams that may wait; `None` for the lane's default.
    pub queue: Option<usize>,
}

impl Bind {
    /// A wildcard socket on `port`.
    #[must_use]
    pub fn port(port: u16) -> Self {
        Self { local_port: port, ..Self::default() }
    }

    pub(super) fn key(&self) -> Key {
        Key { local_ip: self.local_ip, local_port: self.local_port, remote: self.remote }
    }
}

/// Why a socket could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError {
    /// The address and port are taken in this lane.
    InUse,
    /// The address is not ours.
    NotOurAddress,
    /// No ephemeral port is free.
    NoPort,
    /// The lane has as many sockets as it may have.
    TooManySockets,
    /// There is no route to the peer.
    NoRoute,
    /// Answers of that peer arrive in the lane of this bucket, whatever the port.
    OtherLane(Bucket),
    /// Too many sockets of other lanes have answers that arrive in the lane of this bucket.
    TooManyElsewhere(Bucket),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherLane(bucket) => {
                return write!(f, "answers of that peer come to bucket {}: bind there", bucket.0);
            }
            Self::TooManyElsewhere(bucket) => {
                return write!(
                    f,
                    "too many sockets elsewhere have their answers come to bucket {}: bind there",
                    bucket.0
                );
            }
            Self::InUse => "the address and port are in use",
            Self::NotOurAddress => "the address is not one of ours",
            Self::NoPort => "no ephemeral port is free",
            Self::TooManySockets => "too many sockets",
            Self::NoRoute => "no route to the peer",
        })
    }
}

impl std::error::Error for BindError {}

/// A received datagram in its frame.
///
/// The payload can be changed in place, and the frame sent back with
/// [`Lane::udp_reply`](crate::Lane::udp_reply).
#[derive(Debug)]
pub struct Datagram {
    pub(crate) frame: Frame,
    /// Who sent it.
    pub source: Endpoint,
    /// Our address and port that it was sent to.
    pub destination: Endpoint,
    /// Type of service or traffic class, ECN in the low two bits.
    pub traffic_class: u8,
    /// Interface of the host that received it.
    pub interface: u8,
    /// Sum of the payload ([`Sum::kept`](crate::wire::Sum)), as long as it is known, which is until somebody gets the payload to change it; 0
    /// if not.
    pub(crate) sum: u32,
}

const _: () = assert!(size_of::<Datagram>() <= 64);

impl Datagram {
    /// A datagram from another source than a lane's UDP: its payload is the whole frame.
    #[must_use]
    pub fn new(frame: Frame, source: Endpoint, destination: Endpoint) -> Self {
        Self { frame, source, destination, traffic_class: 0, interface: 0, sum: 0 }
    }

    /// The frame, its data the payload, with the others of its chain.
    #[must_use]
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The frame, to change what is known of it.
    pub fn frame_mut(&mut self) -> &mut Frame {
        // Guard: `self.sum = 0` as `{}` fails fastpath::tests::answers_of_a_batch
        self.sum = 0;
        &mut self.frame
    }

    /// The payload of a datagram in one frame; of a chain only the first part, see [`is_chained`](Datagram::is_chained).
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.frame.data()
    }

    /// Whether the payload is in several parts, as of a reassembled datagram.
    #[inline]
    #[must_use]
    pub fn is_chained(&self) -> bool {
        self.frame.is_chained()
    }

    /// All parts of the payload, in order.
    #[must_use]
    pub fn chunks(&self) -> flowlane_sys::frame::Chunks<'_> {
        self.frame.chunks()
    }

    /// Bytes of payload, all parts together.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.frame.chain_len()
    }

    /// Whether the payload is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the payload, all parts of it, into `out` as far as it fits there, and returns how many bytes.
    pub fn read(&self, out: &mut [u8]) -> usize {
        chain::read(&self.frame, out)
    }

    /// The first part of the payload, to change in place.
    #[inline]
    #[must_use]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        // Guard: `self.sum = 0` as `{}` fails fastpath::tests::answers_of_a_batch
        self.sum = 0;
        self.frame.data_mut()
    }

    /// Shortens the payload to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        // Guard: `self.sum = 0` as `{}` fails fastpath::tests::answers_of_a_batch
        self.sum = 0;
        self.frame.truncate_chain(len);
    }

    /// Flow hash as the card delivered or the stack computed it.
    #[inline]
    #[must_use]
    pub fn flow_hash(&self) -> u32 {
        self.frame.meta().hash
    }

    /// Number of the hash type (`flowlane_rss::HashType`).
    #[inline]
    #[must_use]
    pub fn hash_type(&self) -> u8 {
        self.frame.meta().hash_type
    }

    /// When the link received it, nanoseconds on the link's clock; 0 when the link does not say.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.frame.meta().timestamp
    }

    /// The frame itself, its data the payload; with the others of its chain.
    #[must_use]
    pub fn into_frame(self) -> Frame {
        self.frame
    }
}

/// A socket as statistics show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketInfo {
    /// Its name.
    pub handle: UdpHandle,
    /// Bound address.
    pub local_ip: Option<IpAddr>,
    /// Bound port; 0 for "any port".
    pub local_port: u16,
    /// Peer of a connected socket.
    pub remote: Option<Endpoint>,
    /// Datagrams waiting.
    pub queued: usize,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams dropped because the queue was full.
    pub dropped: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Flow hash of the last datagram received.
    pub hash: u32,
    /// Number of its hash type; 0 when there was none.
    pub hash_type: u8,
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) generation: u32,
    pub(super) open: bool,
    pub(super) key: Key,
    pub(super) limit: u32,
    pub(super) queue: VecDeque<Datagram>,
    /// Whom to wake; kept from one wait to the next, since it is nearly always the same task.
    waker: Option<Waker>,
    /// Whether a task waits.
    armed: bool,
    pub(super) error: Option<IcmpErrorKind>,
    pub(super) received: u64,
    pub(super) dropped: u64,
    pub(super) sent: u64,
    pub(super) hash: u32,
    pub(super) hash_type: u8,
}

impl Socket {
    pub(super) fn new(generation: u32, key: Key, limit: usize) -> Self {
        Self {
            generation,
            open: true,
            key,
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            queue: VecDeque::new(),
            waker: None,
            armed: false,
            error: None,
            received: 0,
            dropped: 0,
            sent: 0,
            hash: 0,
            hash_type: 0,
        }
    }

    /// Lets `waker` be woken by the next event.
    #[inline]
    pub(super) fn arm(&mut self, waker: &Waker) {
        match &self.waker {
            Some(w) if w.will_wake(waker) => {}
            _ => self.waker = Some(waker.clone()),
        }
        self.armed = true;
    }

    /// Wakes the waiting task for the last time: the socket is closed.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.armed = false;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Wakes the waiting task.
    #[inline]
    pub(super) fn wake(&mut self) {
        if self.armed {
            self.armed = false;
            if let Some(waker) = &self.waker {
                waker.wake_by_ref();
            }
        }
    }

    pub(super) fn info(&self, slot: u32) -> SocketInfo {
        SocketInfo {
            handle: UdpHandle { slot, generation: self.generation },
            local_ip: self.key.local_ip,
            local_port: self.key.local_port,
            remote: self.key.remote,
            queued: self.queue.len(),
            received: self.received,
            dropped: self.dropped,
            sent: self.sent,
            hash: self.hash,
            hash_type: self.hash_type,
        }
    }
}
