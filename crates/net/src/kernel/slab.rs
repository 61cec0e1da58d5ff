//! Sockets of a lane by number. The place of a closed socket is reused with a new generation.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Waker;

use flowlane_stack::tcp::Failure;

/// Names a socket of a lane. One that outlives its socket is an error, never another socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// What is known of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Flags(u16);

impl Flags {
    /// A read is worth trying.
    pub(super) const READABLE: Self = Self(1);
    /// A write is worth trying.
    pub(super) const WRITABLE: Self = Self(2);
    /// The peer sends no more, or worse: reads are worth trying for ever.
    pub(super) const ENDED: Self = Self(4);
    /// Both directions are over.
    pub(super) const OVER: Self = Self(8);
    /// The kernel has an error to tell.
    pub(super) const FAILED: Self = Self(16);
    /// Not connected yet.
    pub(super) const CONNECTING: Self = Self(32);
    /// This side has been shut down.
    pub(super) const WRITE_SHUT: Self = Self(64);
    /// Listens.
    pub(super) const LISTENER: Self = Self(128);
    /// A task waits to read, or to accept.
    pub(super) const READER: Self = Self(256);
    /// A task waits to write.
    pub(super) const WRITER: Self = Self(512);
    /// An IPv4 socket.
    pub(super) const V4: Self = Self(1024);
    /// A connection.
    pub(super) const STREAM: Self = Self(2048);

    /// A UDP socket that tells where datagrams came to, and may be told where they come from.
    pub(super) const TELLS: Self = Self(4096);
    /// A connection that sends memory without copying it: its error queue has completions.
    pub(super) const ZERO_COPY: Self = Self(8192);
    /// Closed, and kept for the completions that are still to come.
    pub(super) const LINGERS: Self = Self(16384);
    /// A connection whose peer's last byte is here: a read of less than it could take has come to the end.
    pub(super) const HAS_ALL: Self = Self(32768);
    /// A connection that epoll does not watch yet, because nobody has waited for it. It is the bit of [`Flags::LINGERS`], which such
    /// connections do not have.
    pub(super) const UNWATCHED: Self = Self(16384);
    /// A connection whose last byte has been read. It is the bit of [`Flags::TELLS`], which connections do not have.
    pub(super) const AT_END: Self = Self(4096);
    /// A listener at a path. It is the bit of [`Flags::HAS_ALL`], which listeners do not have.
    pub(super) const PATH: Self = Self(32768);

    pub(super) const fn empty() -> Self {
        Self(0)
    }

    /// Any of these.
    #[inline]
    pub(super) const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flags: Self) {
        self.0 |= flags.0;
    }

    #[inline]
    pub(super) fn clear(&mut self, flags: Self) {
        self.0 &= !flags.0;
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    pub(super) flags: Flags,
    /// How the connection ended, once that has been told.
    pub(super) failure: Option<Failure>,
    /// Kept from one wait to the next: whether somebody waits, the flags say.
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Socket {
    /// The socket itself, and who waits for it.
    pub(super) fn apart(self) -> (OwnedFd, [Option<Waker>; 2]) {
        (self.fd, [self.reader, self.writer])
    }

    /// A connection that is registered when a task first waits for it.
    #[inline]
    pub(super) fn is_unwatched(&self) -> bool {
        self.flags.has(Flags::UNWATCHED) && self.flags.has(Flags::STREAM)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Wakes who waits for what is there now.
    #[inline]
    pub(super) fn wake(&mut self, now: Flags) {
        if now.has(Flags::READABLE) && self.flags.has(Flags::READER) {
            self.flags.clear(Flags::READER);
            if let Some(waker) = &self.reader {
                waker.wake_by_ref();
            }
        }
        if now.has(Flags::WRITABLE) && self.flags.has(Flags::WRITER) {
            self.flags.clear(Flags::WRITER);
            if let Some(waker) = &self.writer {
                waker.wake_by_ref();
            }
        }
    }

    /// Wakes `waker` when a read is worth trying; at once if it is. One at a time waits.
    #[inline]
    pub(super) fn wait_to_read(&mut self, waker: &Waker) {
        if self.flags.has(Flags::READABLE) {
            return waker.wake_by_ref();
        }
        self.flags.set(Flags::READER);
        keep(&mut self.reader, waker);
    }

    /// Wakes `waker` when a write is worth trying; at once if it is. One at a time waits.
    #[inline]
    pub(super) fn wait_to_write(&mut self, waker: &Waker) {
        if self.flags.has(Flags::WRITABLE) {
            return waker.wake_by_ref();
        }
        self.flags.set(Flags::WRITER);
        keep(&mut self.writer, waker);
    }
}

#[inline]
fn keep(place: &mut Option<Waker>, waker: &Waker) {
    if !place.as_ref().is_some_and(|old| old.will_wake(waker)) {
        *place = Some(waker.clone());
    }
}

/// A place for a socket.
#[derive(Debug, Default)]
struct Place {
    socket: Option<Socket>,
    generation: u32,
}

/// The sockets.
#[derive(Debug, Default)]
pub(super) struct Slab {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Slab {
    /// The name that the next socket will have.
    pub(super) fn next_id(&mut self) -> SocketId {
        if self.free.is_empty() {
            self.free.push(self.places.len() as u32);
            self.places.push(Place::default());
        }
        let slot = self.free.last().copied().unwrap_or_default();
        SocketId { slot, generation: self.places[slot as usize].generation }
    }

    /// Takes a socket in under the name that was announced.
    pub(super) fn insert(&mut self, fd: OwnedFd, flags: Flags) {
        let id = self.next_id();
        self.free.pop();
        self.places[id.slot as usize].socket =
            Some(Socket { fd, flags, failure: None, reader: None, writer: None });
    }

    pub(super) fn remove(&mut self, id: SocketId) -> Option<Socket> {
        let place = self.places.get_mut(id.slot as usize).filter(|p| p.generation == id.generation)?;
        let socket = place.socket.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(socket)
    }

    #[inline]
    pub(super) fn get(&self, id: SocketId) -> Option<&Socket> {
        // Guard: `p.generation == id.generation` as `true` fails kernel::slab
        self.places.get(id.slot as usize).filter(|p| p.generation == id.generation)?.socket.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.places.get_mut(id.slot as usize).filter(|p| p.generation == id.generation)?.socket.as_mut()
    }

    /// The name of the socket in a slot.
    pub(super) fn id_in(&self, slot: u32) -> Option<SocketId> {
        let place = self.places.get(slot as usize)?;
        place.socket.as_ref().map(|_| SocketId { slot, generation: place.generation })
    }

    pub(super) fn in_slot(&self, slot: u32) -> Option<&Socket> {
        self.places.get(slot as usize)?.socket.as_ref()
    }

    pub(super) fn in_slot_mut(&mut self, slot: u32) -> Option<&mut Socket> {
        self.places.get_mut(slot as usize)?.socket.as_mut()
    }

    /// As [`Slab::remove`], of whichever socket is there.
    pub(super) fn remove_slot(&mut self, slot: u32) -> Option<Socket> {
        let generation = self.places.get(slot as usize)?.generation;
        self.remove(SocketId { slot, generation })
    }

    /// By slot and as much of the generation as a token holds.
    #[inline]
    pub(super) fn at(&mut self, slot: u32, generation: u16) -> Option<&mut Socket> {
        // Guard: `p.generation as u16 == generation` as `true` fails kernel::slab
        self.places.get_mut(slot as usize).filter(|p| p.generation as u16 == generation)?.socket.as_mut()
    }

    /// The name of the socket in a slot, by as much of the generation as `mask` has.
    #[inline]
    pub(super) fn named(&self, slot: u32, generation: u32, mask: u32) -> Option<SocketId> {
        let place = self.places.get(slot as usize).filter(|p| p.generation & mask == generation)?;
        place.socket.as_ref().map(|_| SocketId { slot, generation: place.generation })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SocketId, &Socket)> {
        self.iter_from(0)
    }

    /// Those in this slot and behind it.
    pub(super) fn iter_from(&self, first: u32) -> impl Iterator<Item = (SocketId, &Socket)> {
        self.places.iter().enumerate().skip(first as usize).filter_map(|(slot, place)| {
            let socket = place.socket.as_ref()?;
            Some((SocketId { slot: slot as u32, generation: place.generation }, socket))
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Socket> {
        self.places.iter_mut().filter_map(|place| place.socket.as_mut())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_sys::kernel::socket;

    #[test]
    fn a_name_outlives_its_socket_in_vain() {
        let mut slab = Slab::default();
        let first = slab.next_id();
        assert_eq!((first, slab.len()), (slab.next_id(), 0), "announced, not taken");
        slab.insert(socket::tcp(true).unwrap(), Flags::V4);
        assert_eq!(slab.len(), 1);
        assert!(slab.remove(first).is_some() && slab.remove(first).is_none());
        let second = slab.next_id();
        slab.insert(socket::tcp(true).unwrap(), Flags::V4);
        assert_eq!(second.slot, first.slot, "the place is used again");
        assert!(slab.get(first).is_none() && slab.get_mut(first).is_none() && slab.get(second).is_some());
        assert!(slab.at(first.slot, first.generation as u16).is_none());
    }

    #[test]
    fn a_socket_is_small() {
        assert!(size_of::<Place>() <= 48, "{} bytes", size_of::<Place>());
    }
}
