//! Opening a connection (active OPEN, RFC 9293 §3.10.1).

use crate::packet::Cx;
use crate::tcp::config::SocketOptions;
use crate::tcp::connection::State;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::error::ConnectError;
use crate::tcp::segment::is_plain;
use crate::tcp::table::{ConnId, Tuple};
use crate::tcp::tuple_table::Found;
use crate::tcp::write::Source;
use crate::tcp::{Seq, Tcp, handshake};
use crate::time::Time;
use core::net::SocketAddr;

/// Parameters of a connection attempt, besides the addresses.
#[derive(Debug, Clone, Copy)]
pub struct ConnectOptions {
    /// MTU towards the peer, bytes of IP packet.
    pub mtu: u16,
    /// Flow hash that the replies will have.
    pub hash: u32,
    /// Its type.
    pub hash_type: u8,
    /// Options of the socket.
    pub socket: SocketOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { mtu: 1500, hash: 0, hash_type: 0, socket: SocketOptions::default() }
    }
}

/// The first data to send.
#[derive(Debug, Clone, Copy, Default)]
pub struct FirstData<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether the rest, which does not fit the SYN, will be written right after the handshake, so that its acknowledgement may wait for
    /// that.
    pub rest_follows: bool,
}

impl Tcp {
    /// Starts to open a connection (RFC 9293 §3.10.1). The caller has chosen a local port whose replies arrive in this lane.
    ///
    /// # Errors
    /// The four-tuple is in use or invalid, or there are too many connections.
    pub fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        local: SocketAddr,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<ConnId, ConnectError> {
        self.connect_with(cx, local, remote, options, FirstData::default()).map(|(id, _)| id)
    }

    /// As [`connect`](Self::connect), with data in the SYN as far as `fast_open` of the options and the peer's cookie allow. Returns the
    /// number of bytes accepted. Such data may be delivered twice (RFC 7413 §6.1).
    ///
    /// # Errors
    /// As for `connect`.
    pub fn connect_with(
        &mut self,
        cx: &mut Cx<'_>,
        local: SocketAddr,
        remote: SocketAddr,
        options: &ConnectOptions,
        data: FirstData<'_>,
    ) -> Result<(ConnId, usize), ConnectError> {
        self.open(cx, (local, remote), options, data, false)
    }

    /// As [`connect_with`](Self::connect_with). `is_free`: the caller has asked [`is_free`](Self::is_free) just now, without `reopen`.
    pub(crate) fn open(
        &mut self,
        cx: &mut Cx<'_>,
        (local, remote): (SocketAddr, SocketAddr),
        options: &ConnectOptions,
        data: FirstData<'_>,
        is_free: bool,
    ) -> Result<(ConnId, usize), ConnectError> {
        let plain = is_plain(local.ip()) && is_plain(remote.ip());
        let fits = local.is_ipv4() == remote.is_ipv4() && local.port() != 0 && remote.port() != 0;
        if !plain || !fits {
            return Err(ConnectError::BadAddress);
        }
        if self.connections.len() >= self.core.config.max_connections {
            return Err(ConnectError::TooMany);
        }
        let tuple = Tuple {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        let hash = self.core.table.hash(&tuple);
        let after = if is_free { None } else { self.clear_way(cx, &tuple, hash)? };
        let secrets = self.core.secrets(&tuple);
        let iss = after.map_or_else(|| secrets.isn(cx.now), |old| old + 64_000 + 1);
        let c = handshake::connection(
            &mut self.core,
            &mut self.connections,
            (tuple, hash),
            State::SynSent,
            (iss, secrets.ts_offset),
            options.mtu,
            &options.socket,
        );
        c.opened_by_us();
        c.ask_for_ecn(&self.core.config);
        c.set_flow_hash(options.hash, options.hash_type);
        self.core.stats.connection_requests += 1;
        let room = self.core.fast_open_ask(cx, c, options.socket.fast_open);
        let id = c.id();
        self.link(id.slot, cx.now);
        let mut taken = 0;
        if let (false, Some(c)) = (data.bytes.is_empty(), self.connections.get_slot_mut(id.slot)) {
            let bytes = Source::Copied(&data.bytes[..data.bytes.len().min(room)]);
            taken = c.take_for_sending(&mut self.core, cx.now, bytes);
            c.fast.put(Marks::REST, data.rest_follows && taken < data.bytes.len());
        }
        self.finish(id.slot);
        Ok((id, taken))
    }

    /// Whether a connection with these ends can be opened without a conflict. `reopen`: also in place of a TIME-WAIT record whose peer can
    /// distinguish old segments from new ones (RFC 6191).
    #[must_use]
    pub fn is_free(&self, now: Time, local: SocketAddr, remote: SocketAddr, reopen: bool) -> bool {
        let tuple = Tuple {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        let mut free = self.core.listeners.find(tuple.local, tuple.local_port).is_none();
        let (connections, time_wait) = (&self.connections, &self.core.time_wait);
        self.core.table.find(self.core.table.hash(&tuple), |found| match found {
            Found::Connection(slot) => {
                let taken = connections.get_slot(slot).is_some_and(|c| c.is_of(&tuple));
                free &= !taken;
                taken
            }
            Found::TimeWait(slot) => {
                let Some(record) = time_wait.get(slot).filter(|r| r.tuple == tuple) else { return false };
                free &= reopen && record.may_reopen(&self.core.config, now);
                true
            }
        });
        free
    }

    /// Is the four-tuple free? A TIME-WAIT record gives way if the peer can tell old from new (RFC 6191).
    fn clear_way(&mut self, cx: &Cx<'_>, tuple: &Tuple, hash: u32) -> Result<Option<Seq>, ConnectError> {
        let (connections, time_wait) = (&self.connections, &self.core.time_wait);
        let found = self.core.table.find(hash, |found| match found {
            Found::Connection(slot) => connections.get_slot(slot).is_some_and(|c| c.is_of(tuple)),
            Found::TimeWait(slot) => time_wait.get(slot).is_some_and(|r| r.tuple == *tuple),
        });
        match found {
            None => Ok(None),
            Some(Found::Connection(_)) => Err(ConnectError::InUse),
            Some(Found::TimeWait(slot)) => {
                let record = self.core.time_wait.get(slot).ok_or(ConnectError::InUse)?;
                if !record.may_reopen(&self.core.config, cx.now) {
                    return Err(ConnectError::InUse);
                }
                let old = record.snd_nxt;
                self.core.reuse_time_wait(slot);
                Ok(Some(old))
            }
        }
    }
}
