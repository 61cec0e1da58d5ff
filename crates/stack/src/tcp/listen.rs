//! Listeners: RFC 9293 §3.10.7.2, with backlogs.
//!
//! A listener is found by address and port, an exact address before the wildcard. It bounds handshakes under way
//! (`syn_backlog`) and connections waiting to be accepted (`backlog`). When the former is full, cookies take over
//! (`syn_cookies`); when the latter is, the last step of the handshake is ignored and the peer will repeat it.

use super::config::{ListenOptions, SynCookies};
use super::connection::{Connection, Flags, State};
use super::fast_open::Waiting;
use super::input::{Stop, refuse, refuse_stranger};
use super::lane::{Core, ReplyMeta};
use super::segment::Segment;
use super::table::{ConnId, Named, Slab, Tuple};
use super::{Seq, ecn, handshake};
use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::flow_records::FlowEnd;
use crate::time::Time;
use crate::wire::TcpFlags;
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
    /// Somebody listens there already.
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
    /// Waiting to be accepted.
    pub(crate) queue: VecDeque<ConnId>,
    pub(crate) waker: Option<Waker>,
    /// Cookies sent until recently are honoured until then.
    pub(crate) cookies_until: Time,
    /// Those that may be used before their handshake is over.
    pub(crate) early: Waiting,
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
            early: Waiting::default(),
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
}

impl Core {
    /// A segment for no connection, but perhaps for a listener. `after`: the initial sequence number must be beyond this
    /// one (RFC 6191). Returns a connection to be put into the slab.
    pub(crate) fn listen_input(
        &mut self,
        cx: &mut Cx<'_>,
        tuple: &Tuple,
        seg: &Segment,
        after: Option<Seq>,
        connections: usize,
    ) -> Option<Connection> {
        let meta = ReplyMeta { hash: seg.hash, hash_type: seg.hash_type, tos: 0 };
        let listening = if self.ending { None } else { self.listeners.find(tuple.local, tuple.local_port) };
        let Some(slot) = listening else {
            if seg.is(TcpFlags::RST) {
                self.stats.drop(DropReason::ResetForNobody);
            } else {
                // RFC 9293 §3.10.7.1.
                self.stats.drop(DropReason::NoConnection);
                refuse_stranger(self, cx, tuple, seg, meta);
            }
            return None;
        };
        // First: RST is ignored.
        if seg.is(TcpFlags::RST) {
            self.stats.drop(DropReason::ResetForNobody);
            return None;
        }
        // Second: ACK. No handshake of this peer is known, so it is a cookie or a mistake.
        if seg.is(TcpFlags::ACK) {
            if !seg.is(TcpFlags::SYN) {
                if let Some(connection) = self.cookie_input(cx, slot, tuple, seg, connections) {
                    return Some(connection);
                }
                // The acknowledgement of a cookie may have been lost or overtaken by what came after it. A reset now
                // would end a connection that the peer's next retransmission of its first segment can still make.
                if self.listeners.slot_mut(slot).is_some_and(|listener| listener.cookies_until >= cx.now) {
                    self.stats.drop(DropReason::BadCookie);
                    return None;
                }
            }
            self.stats.drop(DropReason::NotSyn);
            refuse_stranger(self, cx, tuple, seg, meta);
            return None;
        }
        // Third: SYN.
        if !seg.is(TcpFlags::SYN) {
            self.stats.drop(DropReason::NotSyn);
            return None;
        }
        if seg.is(TcpFlags::FIN) {
            self.stats.drop(DropReason::BadFlags);
            return None;
        }
        self.syn_input(cx, slot, tuple, seg, after, connections)
    }

    fn syn_input(
        &mut self,
        cx: &mut Cx<'_>,
        slot: u32,
        tuple: &Tuple,
        seg: &Segment,
        after: Option<Seq>,
        connections: usize,
    ) -> Option<Connection> {
        let listener = self.listeners.slot_mut(slot)?;
        if listener.queue.len() >= listener.options.backlog as usize {
            self.stats.listen_overflows += 1;
            self.stats.drop(DropReason::BacklogFull);
            return None;
        }
        let full =
            listener.half_open >= listener.options.syn_backlog || connections >= self.config.max_connections;
        let cookie = match self.config.syn_cookies {
            SynCookies::Off => false,
            SynCookies::WhenFull => full,
            SynCookies::Always => true,
        };
        if cookie {
            self.send_cookie(cx, slot, tuple, seg);
            return None;
        }
        if full {
            let many = connections >= self.config.max_connections;
            self.stats.drop(if many { DropReason::TooManyConnections } else { DropReason::SynBacklogFull });
            return None;
        }
        let options = listener.options.socket;
        if !self.may_connect() {
            self.stats.drop(DropReason::LaneMemory);
            return None;
        }
        let welcome = self.fast_open_welcome(cx.now, slot, tuple, seg);
        if let (false, Some(listener)) = (welcome.early, self.listeners.slot_mut(slot)) {
            listener.half_open += 1;
        }
        self.stats.syncache_added += 1;
        let secrets = self.secrets(tuple);
        let iss = match after {
            // RFC 6191 §2 by way of RFC 1122 §4.2.2.13: beyond anything the old connection used.
            Some(old) => old + 64_000 + 1,
            None => secrets.isn(cx.now),
        };
        let mut c = handshake::connection(
            self,
            *tuple,
            State::SynReceived,
            (iss, secrets.ts_offset),
            seg.mtu,
            &options,
        );
        c.came_from(slot);
        c.set_in_syn_backlog(!welcome.early);
        self.fast_open_mark(&mut c, &welcome);
        c.take_peer_syn(self, cx, seg);
        c.set_flow_hash(seg.hash, seg.hash_type);
        c.agree_on_ecn(ecn::agrees(self.config.ecn, seg));
        c.snd.first_window(u32::from(seg.window), seg.seq, iss);
        Some(c)
    }

    /// The handshake of a passive connection is complete: into the accept queue.
    pub(crate) fn hand_over(
        &mut self,
        cx: &mut Cx<'_>,
        c: &mut Connection,
        seg: &Segment,
    ) -> Result<(), Stop> {
        let Some(listener) = self.listeners.of(c) else {
            // Nobody listens any more: as to a segment of no connection (RFC 9293 §3.10.7.1).
            let sent = refuse(self, cx, c.tuple(), seg, c.reply_meta());
            self.flows.answered(c, sent);
            self.kill(c, cx.now, FlowEnd::HalfOpen, None);
            c.detach();
            return Err(Stop::Done);
        };
        if listener.queue.len() >= listener.options.backlog as usize {
            self.stats.listen_overflows += 1;
            return Err(Stop::Drop(DropReason::BacklogFull));
        }
        listener.queue.push_back(c.id());
        listener.half_open = listener.half_open.saturating_sub(u32::from(c.has(Flags::IN_SYN_BACKLOG)));
        if let Some(waker) = listener.waker.take() {
            waker.wake();
        }
        c.set_in_syn_backlog(false);
        c.set_in_accept_queue(true);
        self.stats.syncache_completed += 1;
        self.stats.connection_accepts += 1;
        Ok(())
    }
}
