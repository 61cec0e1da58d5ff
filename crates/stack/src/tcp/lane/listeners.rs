//! The listeners of a lane. What they do with segments is in `listen`.
//!
//! A listener is found by address and port, an exact address before the wildcard. It bounds handshakes under way
//! (`syn_backlog`) and connections waiting to be accepted (`backlog`).

use crate::tcp::config::{FastOpenListen, ListenOptions, SocketOptions};
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
    local: Option<IpAddr>,
    port: u16,
    options: ListenOptions,
    /// Handshakes under way.
    half_open: u32,
    /// Early to be accepted.
    queue: VecDeque<ConnId>,
    waker: Option<Waker>,
    /// Cookies sent until recently are honoured until then.
    cookies_until: Time,
    /// Those that may be used before their handshake is over.
    early: Early,
}

impl Named for Listener {
    #[inline]
    fn id(&self) -> ConnId {
        self.id
    }
}

impl Listener {
    /// The address, `None` for all of ours, and the port.
    pub(crate) const fn listens_on(&self) -> (Option<IpAddr>, u16) {
        (self.local, self.port)
    }

    /// What connections get that it makes, and its bounds.
    pub(crate) const fn options(&self) -> &ListenOptions {
        &self.options
    }

    /// Connections made from now on get other options.
    pub(crate) fn set_socket_options(&mut self, socket: SocketOptions) {
        self.options.socket = socket;
    }

    /// Data in SYNs is taken otherwise from now on.
    pub(crate) fn set_fast_open(&mut self, fast_open: Option<FastOpenListen>) {
        self.options.fast_open = fast_open;
    }

    /// As many connections wait to be accepted as may.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.options.backlog as usize
    }

    /// Connections that wait to be accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// A connection waits to be accepted.
    pub(crate) fn enqueue(&mut self, id: ConnId) {
        self.queue.push_back(id);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Takes the connection that has waited longest.
    pub(crate) fn dequeue(&mut self) -> Option<ConnId> {
        self.queue.pop_front()
    }

    /// Wakes `waker` when a connection waits to be accepted; immediately if one does.
    pub(crate) fn wake_on_arrival(&mut self, waker: &Waker) {
        if self.queue.is_empty() {
            self.waker = Some(waker.clone());
        } else {
            waker.wake_by_ref();
        }
    }

    /// Nobody listens any more: wakes who waits for a connection. Connections that were not accepted.
    pub(crate) fn end(self) -> VecDeque<ConnId> {
        if let Some(waker) = self.waker {
            waker.wake();
        }
        self.queue
    }

    /// Handshakes under way.
    pub(crate) const fn handshakes(&self) -> u32 {
        self.half_open
    }

    /// As many handshakes are under way as may.
    #[inline]
    pub(crate) const fn is_syn_backlog_full(&self) -> bool {
        self.half_open >= self.options.syn_backlog
    }

    /// A handshake begins.
    pub(crate) fn begin_handshake(&mut self) {
        self.half_open += 1;
    }

    /// A handshake is over, one way or the other.
    pub(crate) fn end_handshake(&mut self) {
        // Guard: `self.half_open.saturating_sub(1)` as `self.half_open` fails
        // handshake::a_reset_ends_both_kinds handshake::syn_ack_is_repeated
        self.half_open = self.half_open.saturating_sub(1);
    }

    /// A cookie is sent: cookies are honoured until `until`.
    pub(crate) fn sends_cookie(&mut self, until: Time) {
        self.cookies_until = until;
    }

    /// Cookies that are honoured may be on their way.
    #[inline]
    pub(crate) fn honours_cookies(&self, now: Time) -> bool {
        self.cookies_until >= now
    }

    /// Connections that may be used before their handshake is over.
    pub(crate) const fn early(&self) -> &Early {
        &self.early
    }

    /// As [`early`](Self::early), to count one more or less.
    pub(crate) fn early_mut(&mut self) -> &mut Early {
        &mut self.early
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
        // Guard: `self.by_port.contains_key(&(local, port))` as `false` fails tcp::tests::listen
        if self.by_port.contains_key(&(local, port)) {
            return Err(ListenError::InUse);
        }
        let made = self.all.insert_with(|id| Listener {
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
        let id = made.id;
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
        // Guard: `self.exact == 0` as `true` fails listen::exact_before_wildcard
        let exact = if self.exact == 0 { None } else { self.by_port.get(&(Some(local), port)) };
        exact.or_else(|| self.by_port.get(&(None, port))).copied()
    }

    /// The listener a connection came from, unless that is gone and another has its place.
    pub(crate) fn of(&mut self, c: &Connection) -> Option<&mut Listener> {
        let listener = self.all.get_slot_mut(c.listener())?;
        let same = listener.port == c.local_port() && listener.local.is_none_or(|local| local == c.local());
        same.then_some(listener)
    }

    /// A handshake is over, one way or the other.
    pub(crate) fn syn_done(&mut self, c: &Connection) {
        if let Some(listener) = self.of(c) {
            listener.end_handshake();
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
