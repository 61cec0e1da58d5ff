//! The listeners of a lane. What they do with segments is in `listen`.
//!
//! A listener is found by address and port, an exact address before the wildcard. It bounds handshakes under way
//! (`syn_backlog`) and connections waiting to be accepted (`backlog`).

use crate::tcp::config::ListenOptions;
use crate::tcp::connection::Connection;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::lane::early::Early;
use crate::tcp::table::{ConnId, Named, Slab};
use crate::time::Time;
use core::net::IpAddr;
use core::task::Waker;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Names a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) ConnId);

/// Why a port cannot be listened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenError {
    /// There is such a listener already.
    InUse,
    /// Port 0 is not a port to listen on.
    PortZero,
    /// The address is not ours.
    NotOurAddress,
}

impl core::fmt::Display for ListenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::InUse => "somebody listens on this address and port already",
            Self::PortZero => "port 0 cannot be listened on",
            Self::NotOurAddress => "the address to listen on is not ours",
        })
    }
}

impl core::error::Error for ListenError {}

impl From<ListenError> for std::io::Error {
    fn from(error: ListenError) -> Self {
        let kind = match error {
            ListenError::InUse => std::io::ErrorKind::AddrInUse,
            ListenError::PortZero => std::io::ErrorKind::InvalidInput,
            ListenError::NotOurAddress => std::io::ErrorKind::AddrNotAvailable,
        };
        Self::new(kind, error)
    }
}

/// One listener.
#[derive(Debug)]
pub(crate) struct Listener {
    id: ConnId,
    pub(crate) local: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) options: ListenOptions,
    /// Handshakes under way.
    pub(crate) half_open: u32,
    /// Early to be accepted.
    pub(crate) queue: VecDeque<ConnId>,
    pub(crate) waker: Option<Waker>,
    /// Cookies sent until recently are honoured until then.
    pub(crate) cookies_until: Time,
    /// Those that may be used before their handshake is over.
    pub(crate) early: Early,
}

impl Named for Listener {
    #[inline]
    fn id(&self) -> ConnId {
        self.id
    }
}

/// All listeners of a lane.
#[derive(Debug)]
pub(crate) struct Listeners {
    by_port: HashMap<(Option<IpAddr>, u16), u32, FixedState>,
    /// Those of one address.
    exact: usize,
    all: Slab<Listener>,
}

impl Listeners {
    pub(crate) fn new(seed: u64) -> Self {
        Self { by_port: HashMap::with_hasher(FixedState::with_seed(seed)), exact: 0, all: Slab::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.all.iter()
    }

    pub(crate) fn add(
        &mut self,
        local: Option<IpAddr>,
        port: u16,
        options: ListenOptions,
    ) -> Result<ListenerId, ListenError> {
        if port == 0 {
            return Err(ListenError::PortZero);
        }
        if self.by_port.contains_key(&(local, port)) {
            return Err(ListenError::InUse);
        }
        let id = self.all.insert_with(|id| Listener {
            id,
            local,
            port,
            options,
            half_open: 0,
            queue: VecDeque::new(),
            waker: None,
            cookies_until: Time::ZERO,
            early: Early::default(),
        });
        self.by_port.insert((local, port), id.slot);
        self.exact += usize::from(local.is_some());
        Ok(ListenerId(id))
    }

    /// Gives the memory of accept queues back, but for `least` entries of each.
    pub(crate) fn trim(&mut self, least: usize) {
        for slot in 0..self.all.slots() {
            if let Some(listener) = self.all.get_slot_mut(slot) {
                listener.queue.shrink_to(least);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        let listener = self.all.remove(id.0)?;
        self.by_port.remove(&(listener.local, listener.port));
        self.exact -= usize::from(listener.local.is_some());
        Some(listener)
    }

    pub(crate) fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.all.get_mut(id.0)
    }

    pub(crate) fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.all.get(id.0)
    }

    pub(crate) fn slot_mut(&mut self, slot: u32) -> Option<&mut Listener> {
        self.all.get_slot_mut(slot)
    }

    /// Who listens there: the exact address first (MUST-42).
    pub(crate) fn find(&self, local: IpAddr, port: u16) -> Option<u32> {
        if self.by_port.is_empty() {
            return None;
        }
        let exact = if self.exact == 0 { None } else { self.by_port.get(&(Some(local), port)) };
        exact.or_else(|| self.by_port.get(&(None, port))).copied()
    }

    /// The listener a connection came from, unless that is gone and another has its place.
    pub(crate) fn of(&mut self, c: &Connection) -> Option<&mut Listener> {
        let listener = self.all.get_slot_mut(c.listener())?;
        let same = listener.port == c.tuple().local_port
            && listener.local.is_none_or(|local| local == c.tuple().local);
        same.then_some(listener)
    }

    /// A handshake is over, one way or the other.
    pub(crate) fn syn_done(&mut self, c: &Connection) {
        if let Some(listener) = self.of(c) {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
    }

    /// The handshake of an early connection is over, one way or the other.
    pub(crate) fn fast_open_over(&mut self, c: &mut Connection) {
        if c.fast.has(Marks::PENDING) {
            c.fast.put(Marks::PENDING, false);
            if let Some(listener) = self.of(c) {
                listener.early.over();
            }
        }
    }
}
