//! Accepting and receiving by `io_uring` in place of epoll and a system call for each.
//!
//! ```text
//!   fresh ── first read ──▶ standing ── bytes in buffers of the ring ──▶ pieces ──▶ reads of the task
//!                              │ ▲
//!      no buffer free, nobody  ▼ │ read until nothing is there
//!      reads, ring full:      ended ───── still no buffer free ──▶ starved
//!      reads are system calls                                       epoll tells when, until a quarter of the buffers is free
//! ```
//!
//! * A worker has one [`Ring`], kept by its thread. What its lanes ask for waits until the worker looks for events, or sleeps: one system call
//!   for all of it ([`Poller`](super::Poller)).
//! * A receive stands until it is ended. Bytes are in buffers of the ring until the task reads them. Of a connection that nobody reads, [`HELD`]
//!   buffers end the receive, and what comes then stays in the socket, where the peer feels it. A receive that finds no buffer ends as well:
//!   the task reads by system calls until nothing is there, and only then the receive stands again. So progress never depends on buffers.
//! * The kernel keeps a socket open while something is asked about it. So closing is asked for behind the end of the receive.
//! * Room to write, connecting, sends without copies and all of UDP are told by epoll, whose descriptor the ring watches. A connection is
//!   registered there when it first needs that.
//! * Splicing wants bytes in the socket. A connection that is spliced goes over to epoll for good.

mod accept;
mod moving;
mod receive;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;

use flowlane_sys::kernel::socket::errno;
use flowlane_sys::kernel::uring::{Completion, Ring};

use super::slab::{Flags, SocketId};
use super::{KernelLane, errors};

/// Buffers of a worker, and bytes of each: memory for what was received and not read yet.
pub(super) const BUFFERS: u16 = 1024;
pub(super) const BUFFER: usize = 4096;
/// Buffers that a connection may hold before its receive is ended. The kernel may fill some tens more until it hears of that.
const HELD: usize = 16;
/// Connections that may wait in a lane for somebody to accept them. Further ones wait in the kernel.
const UNACCEPTED: usize = 128;

thread_local! {
    /// Of the worker that runs on this thread.
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// Calls `f` with the ring of this thread, if there is one.
#[inline]
pub(super) fn with<R>(f: impl FnOnce(&mut Ring) -> R) -> Option<R> {
    RING.try_with(|ring| ring.try_borrow_mut().ok()?.as_mut().map(f)).ok().flatten()
}

/// Gives this thread a ring, and takes the one that it had.
pub(super) fn keep(ring: Option<Ring>) -> Option<Ring> {
    RING.try_with(|kept| kept.try_borrow_mut().ok().and_then(|mut kept| std::mem::replace(&mut *kept, ring)))
        .ok()
        .flatten()
}

/// Names a socket in completions: lane, generation (14 bits), slot.
pub(super) fn name(lane: u16, id: SocketId) -> u64 {
    u64::from(lane) << 46 | u64::from(id.generation & GENERATIONS) << 32 | u64::from(id.slot)
}

const GENERATIONS: u32 = (1 << 14) - 1;

/// Who is to know of a completion: the lane's index.
pub(super) fn lane_of(completion: &Completion) -> usize {
    let (Completion::Accepted { name, .. }
    | Completion::Received { name, .. }
    | Completion::Readable { name, .. }) = completion;
    (name >> 46) as usize
}

/// How what comes on a socket reaches its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// As if there were no ring.
    #[default]
    Epoll,
    /// Nobody has read yet.
    Fresh,
    /// The ring accepts or receives.
    Standing,
    /// It was told to end that.
    Ending,
    /// It has ended that: system calls, until nothing is there.
    Ended,
    /// No buffer is free, or no descriptor: for now as if there were no ring.
    Starved,
    /// The stream has ended, with this error of the kernel if not 0, which is to be told once.
    Over(i32),
}

/// A piece of a stream, received and not read, or not all of it.
#[derive(Debug)]
enum Piece {
    /// In a buffer of the ring, from a byte on.
    Lent(u16, usize),
    /// The same in memory of the lane, which has left the ring's worker since.
    Own(Vec<u8>, usize),
}

/// What the ring has for a socket.
#[derive(Debug, Default)]
struct Incoming {
    state: State,
    /// Epoll tells when there is room, and when the connection is over.
    watched: bool,
    pieces: VecDeque<Piece>,
}

impl Incoming {
    /// Calls `take` with each piece in turn, which says how many bytes of it it took, until it takes less than all.
    fn take(&mut self, mut take: impl FnMut(&[u8]) -> usize) {
        let pieces = &mut self.pieces;
        while let Some(piece) = pieces.front_mut() {
            let all = match piece {
                Piece::Lent(buffer, at) => {
                    let done = with(|ring| {
                        let left = ring.bytes(*buffer).get(*at..).unwrap_or_default();
                        let taken = take(left);
                        let all = taken >= left.len();
                        if all {
                            ring.give_back(*buffer);
                        }
                        *at += taken;
                        all
                    });
                    done.unwrap_or(true)
                }
                Piece::Own(bytes, at) => {
                    *at += take(bytes.get(*at..).unwrap_or_default());
                    *at >= bytes.len()
                }
            };
            if !all {
                break;
            }
            pieces.pop_front();
        }
    }

    fn give_back_all(&mut self) {
        self.take(<[u8]>::len);
    }
}

/// What a lane has to do with the ring of its worker.
#[derive(Debug, Default)]
pub(super) struct RingSide {
    /// By slot.
    incoming: Vec<Incoming>,
    /// Of each listener the connections that nobody has accepted yet.
    accepted: HashMap<u32, VecDeque<OwnedFd>>,
    /// Requests whose last completion has not come.
    standing: usize,
}

impl KernelLane {
    /// For a worker that has a ring.
    pub(crate) fn by_ring(mut self, ring: bool) -> Self {
        self.ring = ring.then(Box::default);
        self
    }

    fn incoming(&mut self, slot: u32) -> Option<&mut Incoming> {
        self.ring.as_mut()?.incoming.get_mut(slot as usize)
    }

    fn state(&self, slot: u32) -> State {
        let side = self.ring.as_ref();
        side.and_then(|side| side.incoming.get(slot as usize)).map_or(State::Epoll, |i| i.state)
    }

    fn set_state(&mut self, slot: u32, state: State) {
        if let Some(incoming) = self.incoming(slot) {
            incoming.state = state;
        }
    }

    /// Whether a new socket is the ring's. Others are registered with epoll.
    pub(super) fn is_for_ring(&self, flags: Flags) -> bool {
        // A listener at a path is one socket for several lanes, and the ring's way to end an accept would end that of all.
        // Guard: `flags.has(Flags::LISTENER) && flags.has(Flags::PATH)` as `false` fails
        // listener::tests::lanes_share_a_socket
        let shared = flags.has(Flags::LISTENER) && flags.has(Flags::PATH);
        self.ring.is_some()
            && flags.has(Flags::STREAM | Flags::LISTENER)
            && !flags.has(Flags::LINGERS)
            && !shared
    }

    /// A socket has its place. `watched`: it is registered with epoll for room to write.
    pub(super) fn place(&mut self, id: SocketId, for_ring: bool, watched: bool) {
        let Some(side) = &mut self.ring else { return };
        let slot = id.slot as usize;
        if side.incoming.len() <= slot {
            side.incoming.resize_with(slot + 1, Incoming::default);
        }
        let incoming = &mut side.incoming[slot];
        incoming.state = if for_ring { State::Fresh } else { State::Epoll };
        incoming.watched = watched;
        if for_ring && self.sockets.get(id).is_some_and(|s| s.flags.has(Flags::LISTENER)) {
            self.stand(id);
        }
    }

    /// Has the ring accept or receive, if it has a buffer.
    fn stand(&mut self, id: SocketId) {
        let (Some(side), Some(socket)) = (&mut self.ring, self.sockets.get_mut(id)) else { return };
        let listener = socket.flags.has(Flags::LISTENER);
        let name = name(self.lane, id);
        let stands = with(|ring| {
            if listener {
                ring.accept(socket.fd(), name);
            } else if ring.free_buffers() == 0 {
                return State::Starved;
            } else {
                ring.receive(socket.fd(), name);
            }
            State::Standing
        });
        socket.flags.clear(Flags::READABLE);
        match stands {
            Some(State::Standing) => {}
            other => return self.go_to_epoll(id, other.unwrap_or_default()),
        }
        side.standing += 1;
        side.incoming[id.slot as usize].state = State::Standing;
        self.stats.ring_receives += u64::from(!listener);
    }

    /// Ends an accept or a receive; its last completion tells when it has ended.
    fn end(&mut self, id: SocketId, listener: bool) {
        self.set_state(id.slot, State::Ending);
        let name = name(self.lane, id);
        with(|ring| if listener { ring.cancel_accept(name) } else { ring.cancel_receive(name) });
    }

    /// The ring has no more to do with a socket, or not for now.
    fn go_to_epoll(&mut self, id: SocketId, state: State) {
        let token = self.token(id);
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.flags.clear(Flags::READABLE);
        let side = self.ring.as_mut();
        let Some(incoming) = side.and_then(|side| side.incoming.get_mut(id.slot as usize)) else { return };
        incoming.state = state;
        let registered = match std::mem::replace(&mut incoming.watched, true) {
            true => self.epoll.report_all(socket.fd(), token),
            false => self.epoll.add(socket.fd(), token),
        };
        self.stats.errors += u64::from(registered.is_err());
    }

    /// There are buffers again.
    fn come_back(&mut self, id: SocketId) {
        let token = self.token(id);
        if let Some(socket) = self.sockets.get(id) {
            self.stats.errors += u64::from(self.epoll.report_writable(socket.fd(), token).is_err());
        }
        self.stand(id);
    }

    /// Has epoll tell when there is room to write, or when the connection is over, if it does not yet.
    pub(super) fn watch(&mut self, id: SocketId) {
        let token = self.token(id);
        let Some(incoming) = self.incoming(id.slot).filter(|i| i.state != State::Epoll && !i.watched) else {
            return;
        };
        incoming.watched = true;
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if self.epoll.add_writable(socket.fd(), token).is_err() {
            // Too many are registered. Whoever writes tries again and again.
            self.stats.errors += 1;
            socket.flags.set(Flags::WRITABLE);
            self.set_watched(id.slot, false);
        }
    }

    fn set_watched(&mut self, slot: u32, watched: bool) {
        if let Some(incoming) = self.incoming(slot) {
            incoming.watched = watched;
        }
    }

    /// What epoll says of a socket, without what the ring will say.
    pub(super) fn told_by_epoll(&self, slot: u32, mut now: Flags) -> Flags {
        if matches!(self.state(slot), State::Standing | State::Ending) {
            now.clear(Flags::READABLE | Flags::ENDED | Flags::HAS_ALL);
        }
        now
    }

    /// The ring says something about a socket.
    pub(crate) fn on_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { name, result, more } => self.on_accepted(name, result, more),
            Completion::Received { name, result, more } => self.on_received(name, result, more),
            Completion::Readable { .. } => {}
        }
    }

    /// The socket of a completion, if it is still there. `more`: the request stays.
    fn named(&mut self, name: u64, more: bool) -> Option<SocketId> {
        if !more && let Some(side) = &mut self.ring {
            side.standing = side.standing.saturating_sub(1);
        }
        self.sockets.named(name as u32, (name >> 32) as u32 & GENERATIONS, GENERATIONS)
    }

    fn wake_reader(&mut self, id: SocketId, now: Flags) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.flags.set(now);
            socket.wake(now);
        }
    }

    /// Has the kernel do what was asked of the ring; whether there was anything. Then descriptors that were closed are free.
    pub(super) fn settle(&self) -> bool {
        self.ring.is_some()
            && with(|ring| {
                let asked = !ring.is_quiet();
                ring.enter();
                asked
            })
            .unwrap_or(false)
    }
}

/// What a kernel without `io_uring` says, in words.
pub(super) fn why_not(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(errno::ENOSYS) => "this kernel has no io_uring, or a seccomp filter hides it".to_owned(),
        Some(errno::EPERM | errno::EACCES) => {
            "not permitted here: kernel.io_uring_disabled (sysctl) is set, or a seccomp filter refuses it"
                .to_owned()
        }
        Some(errno::EINVAL) => "needs Linux 6.1".to_owned(),
        Some(errno::ENOMEM) => "no memory may be locked for it: raise 'ulimit -l'".to_owned(),
        _ => errors::other(e).to_string(),
    }
}
