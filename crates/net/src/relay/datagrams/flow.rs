//! What a flow is: the ends it has on the side of the client, its socket, and what the tasks of its lane share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use flowlane_stack::address::Endpoint;
use flowlane_stack::time::Time;
use flowlane_stack::udp::Datagram;

use crate::task::now;
use crate::udp::UdpSocket;

/// A flow's ends on the side of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) client: Endpoint,
    pub(super) asked: Endpoint,
    /// The kernel's interface, if addresses mean nothing without it.
    pub(super) link: u16,
}

impl Key {
    #[inline]
    pub(super) fn of(datagram: &Datagram) -> Self {
        let (client, asked) = (datagram.source, datagram.destination);
        let local = matches!(asked.ip, std::net::IpAddr::V6(ip) if ip.is_unicast_link_local());
        Self { client, asked, link: if local { datagram.frame().meta().queue } else { 0 } }
    }

    /// A hash of addresses and ports that is the same in every lane and at every start.
    pub(super) fn hash(&self) -> u32 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        for end in [self.client, self.asked] {
            match end.ip {
                std::net::IpAddr::V4(ip) => ip.octets().into_iter().for_each(&mut add),
                std::net::IpAddr::V6(ip) => ip.octets().into_iter().for_each(&mut add),
            }
            end.port.to_be_bytes().into_iter().for_each(&mut add);
        }
        (hash >> 32) as u32 ^ hash as u32
    }
}

/// A flow. Only tasks of one lane have it: what is atomic here is never contended.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) socket: UdpSocket,
    pub(super) target: usize,
    /// When something passed, in either direction; microseconds.
    pub(super) last: AtomicU64,
    /// It is to end, since its target refuses and there are others.
    pub(super) moves: AtomicBool,
    pub(super) waker: Mutex<Option<Waker>>,
}

/// What the tasks of a lane share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The clients' socket.
    pub(super) socket: UdpSocket,
    /// Whether `gone` has something.
    pub(super) any: AtomicBool,
    pub(super) gone: Mutex<Gone>,
    /// Until when each target is shunned; microseconds.
    pub(super) shunned: Box<[AtomicU64]>,
}

impl Shared {
    /// What tasks that serve this socket share, with so many targets.
    pub(super) fn new(socket: UdpSocket, targets: usize) -> Self {
        let shunned = (0..targets).map(|_| AtomicU64::new(0)).collect();
        Self { socket, any: AtomicBool::new(false), gone: Mutex::default(), shunned }
    }
}

#[derive(Debug, Default)]
pub(super) struct Gone {
    pub(super) flows: Vec<Key>,
    pub(super) waker: Option<Waker>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn micros() -> u64 {
    now().unwrap_or(Time::ZERO).as_micros()
}

/// Kept by the lane: when it goes, the task that receives goes, too, though its waker is kept.
pub(super) struct LaneGoes(pub(super) Arc<Shared>);

impl Drop for LaneGoes {
    fn drop(&mut self) {
        let waker = lock(&self.0.gone).waker.take();
        drop(waker);
    }
}

/// Puts a flow that has ended on the list.
pub(super) struct Leaves(pub(super) Arc<Shared>, pub(super) Key);

impl Drop for Leaves {
    fn drop(&mut self) {
        let Self(shared, key) = self;
        let mut gone = lock(&shared.gone);
        gone.flows.push(*key);
        shared.any.store(true, Relaxed);
        if let Some(waker) = &gone.waker {
            waker.wake_by_ref();
        }
    }
}
