//! Lists of a lane's listeners and connections for display, at a bounded cost.

use crate::stats::Histogram;
use crate::tcp::Tcp;
use crate::tcp::config::Algorithm;
use crate::tcp::connection::{Connection, State};
use crate::tcp::table::Tuple;
use core::net::{IpAddr, SocketAddr};

/// One line of a lane's table of TCP, as `netstat -a` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpRow {
    /// State; `None` for a listener.
    pub state: Option<State>,
    /// Our address; `None` for all.
    pub local_ip: Option<IpAddr>,
    /// Our port.
    pub local_port: u16,
    /// The peer; `None` for a listener.
    pub remote: Option<SocketAddr>,
    /// Bytes waiting to be read; connections waiting to be accepted, for a listener.
    pub recv_queue: u32,
    /// Bytes written and not acknowledged; for a listener, how many may wait to be accepted.
    pub send_queue: u32,
    /// Flow hash of received packets.
    pub hash: u32,
    /// Its type.
    pub hash_type: u8,
    /// Congestion control of a connection.
    pub congestion: Option<Algorithm>,
    /// What a connection has agreed on of ECN; `None` for nothing.
    pub ecn: Option<Agreed>,
}

/// Which explicit congestion notification a connection has agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Agreed {
    /// Classic (RFC 3168).
    Classic,
    /// Accurate (RFC 9768), with so many packets that came with Congestion Experienced, and so many of ours that the peer received so.
    Accurate {
        /// r.cep without what it begins with.
        received: u32,
        /// s.cep without what it begins with.
        delivered: u32,
    },
}

impl Agreed {
    fn of(c: &Connection) -> Option<Self> {
        let info = c.accurate_info();
        let accurate = info.map(|info| Self::Accurate {
            received: info.received.ce_packets,
            delivered: info.delivered.ce_packets,
        });
        accurate.or(c.uses_ecn().then_some(Self::Classic))
    }
}

/// A snapshot of a lane's listeners and connections, at a bounded cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpSnapshot {
    /// Listeners first, then connections, then what waits in TIME-WAIT.
    pub rows: Vec<TcpRow>,
    /// Connections and TIME-WAIT records there are in all.
    pub connections: usize,
    /// Listeners there are in all.
    pub listeners: usize,
    /// How many of `connections` are in each state, by [`State::index`].
    pub states: [usize; State::COUNT],
    /// Samples of round-trip times (RFC 6298 section 4) of all connections so far.
    pub rtts: Histogram,
}

impl Tcp {
    /// A snapshot of all there is, with at most `rows` rows, searched for in at most `scan` places.
    #[must_use]
    pub fn snapshot(&self, rows: usize, scan: usize) -> TcpSnapshot {
        let mut snapshot = TcpSnapshot {
            connections: self.connections.len() + self.core.time_wait.len(),
            listeners: self.core.listeners.len(),
            rtts: self.core.rtts.clone(),
            ..TcpSnapshot::default()
        };
        for l in self.core.listeners.iter().take(rows) {
            let (local_ip, local_port) = l.listens_on();
            snapshot.rows.push(TcpRow {
                state: None,
                local_ip,
                local_port,
                remote: None,
                recv_queue: l.waiting() as u32,
                send_queue: l.options().backlog,
                hash: 0,
                hash_type: 0,
                congestion: None,
                ecn: None,
            });
        }
        let room = rows.saturating_sub(snapshot.rows.len());
        for c in self.connections.first(scan).take(room) {
            let queues = (c.readable(), c.buffered());
            snapshot.rows.push(TcpRow {
                congestion: Some(c.congestion.algorithm()),
                ecn: Agreed::of(c),
                ..row(c.state(), &c.tuple(), queues, (c.flow_hash(), c.hash_type()))
            });
        }
        for (state, count) in self.core.states.iter() {
            snapshot.states[state.index()] = count as usize;
        }
        snapshot.states[State::TimeWait.index()] += self.core.time_wait.len();
        let room = rows.saturating_sub(snapshot.rows.len());
        for record in self.core.time_wait.first(scan).take(room) {
            let flow = (record.meta.hash, record.meta.hash_type);
            snapshot.rows.push(row(State::TimeWait, &record.tuple, (0, 0), flow));
        }
        snapshot
    }
}

fn row(state: State, tuple: &Tuple, queues: (u32, u32), flow: (u32, u8)) -> TcpRow {
    TcpRow {
        state: Some(state),
        local_ip: Some(tuple.local),
        local_port: tuple.local_port,
        remote: Some(SocketAddr::new(tuple.remote, tuple.remote_port)),
        recv_queue: queues.0,
        send_queue: queues.1,
        hash: flow.0,
        hash_type: flow.1,
        congestion: None,
        ecn: None,
    }
}
