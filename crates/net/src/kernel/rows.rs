//! Lists of a lane's listeners, connections and UDP sockets for display, at a bounded cost.
//!
//! The kernel is asked for each: five system calls, one or two more where a worker is bound to a processor; one for a UDP socket.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use flowlane_stack::tcp::{Algorithm, State};
use flowlane_sys::kernel::options;
use flowlane_sys::kernel::socket;

use super::datagrams::Ends;
use super::slab::{Flags, Socket, SocketId};
use super::{Arrival, KernelLane};

/// One line of a lane's table of TCP on kernel sockets, as `netstat -a` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelRow {
    /// State; `None` for a listener.
    pub state: Option<State>,
    /// Our end.
    pub local: SocketAddr,
    /// The peer; `None` for a listener.
    pub remote: Option<SocketAddr>,
    /// Bytes waiting to be read; connections waiting to be accepted, for a listener.
    pub recv_queue: u32,
    /// Bytes not sent, and segments not acknowledged times their size; for a listener, how many connections may wait.
    pub send_queue: u32,
    /// Flow hash of received packets, and its type, by the host's own rule.
    pub flow: (u32, u8),
    /// Where the last packet of a connection arrived, and why that is not its worker's processor; `None` where workers are not bound to
    /// processors.
    pub arrival: Option<Arrival>,
    /// Congestion control of a connection; `None` if it is one that our own stack does not have.
    pub congestion: Option<Algorithm>,
}

/// One UDP socket of a lane on kernel sockets, as `netstat -a` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelUdpRow {
    /// Our end.
    pub local: SocketAddr,
    /// The peer of a connected socket.
    pub remote: Option<SocketAddr>,
    /// Memory of what waits to be read in the kernel, bytes.
    pub recv_queue: u32,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that the kernel dropped: the socket was full, or the checksum was wrong.
    pub dropped: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Flow hash of the last datagram received, and its type, by the host's own rule.
    pub flow: (u32, u8),
}

/// Listeners, connections and UDP sockets of a lane on kernel sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelSockets {
    /// Listeners and connections, so many as were wanted.
    pub rows: Vec<KernelRow>,
    /// Connections there are in all.
    pub connections: usize,
    /// Listeners there are in all.
    pub listeners: usize,
    /// How many of `connections` are in each state, by [`State::index`]: as the kernel says of those in `rows`, as their lane knows of others.
    pub states: [usize; State::COUNT],
    /// UDP sockets, so many as were wanted. How many there are the lane's report says.
    pub udp: Vec<KernelUdpRow>,
}

impl KernelLane {
    /// At most `most` listeners and connections, and as many UDP sockets.
    pub(crate) fn list(&self, most: usize) -> KernelSockets {
        let mut list = KernelSockets::default();
        for (id, socket) in self.sockets.iter() {
            if !socket.flags.has(Flags::STREAM | Flags::LISTENER) {
                if list.udp.len() < most
                    && let Some(ends) = self.udp.ends(id.slot)
                {
                    list.udp.push(udp_row(ends, socket));
                }
                continue;
            }
            let row = if list.rows.len() < most { self.row(id, socket) } else { None };
            if socket.flags.has(Flags::LISTENER) {
                list.listeners += 1;
            } else {
                list.connections += 1;
                let state = row.and_then(|row| row.state).unwrap_or_else(|| known_state(socket));
                list.states[state.index()] += 1;
            }
            list.rows.extend(row);
        }
        list
    }

    /// `None` of one that is gone as it is looked at.
    fn row(&self, id: SocketId, socket: &Socket) -> Option<KernelRow> {
        let local = socket::local_address(socket.fd()).ok()?;
        let info = options::tcp_info(socket.fd()).ok()?;
        if socket.flags.has(Flags::LISTENER) {
            let (recv_queue, send_queue) = (info.unacked + self.unaccepted(id.slot) as u32, info.sacked);
            let (state, remote, flow, arrival) = (None, None, (0, 0), None);
            let congestion = None;
            return Some(KernelRow {
                state,
                local,
                remote,
                recv_queue,
                send_queue,
                flow,
                arrival,
                congestion,
            });
        }
        let recv_queue =
            rustix::io::ioctl_fionread(socket.fd().as_fd()).unwrap_or(0) + self.unread(id.slot) as u64;
        Some(KernelRow {
            state: Some(super::options::state(info.state)),
            local,
            remote: socket::peer_address(socket.fd()).ok(),
            recv_queue: u32::try_from(recv_queue).unwrap_or(u32::MAX),
            send_queue: info.not_sent.saturating_add(info.unacked.saturating_mul(info.snd_mss)),
            flow: (0, 0),
            arrival: self.arrival(id).ok().flatten(),
            congestion: super::options::congestion(socket.fd()).ok().flatten(),
        })
    }
}

/// The state of a connection as far as its lane knows, without asking the kernel.
fn known_state(socket: &Socket) -> State {
    let has = |flags| socket.flags.has(flags);
    match (has(Flags::ENDED | Flags::HAS_ALL | Flags::AT_END), has(Flags::WRITE_SHUT)) {
        _ if has(Flags::CONNECTING) => State::SynSent,
        _ if has(Flags::OVER) || socket.failure.is_some() => State::Closed,
        (true, true) => State::LastAck,
        (true, false) => State::CloseWait,
        (false, true) => State::FinWait2,
        (false, false) => State::Established,
    }
}

fn udp_row(ends: &Ends, socket: &Socket) -> KernelUdpRow {
    // A kernel that does not tell has dropped what it said with the datagrams that came.
    let told = options::Memory { waiting: 0, dropped: ends.lost };
    let memory = options::memory(socket.fd()).unwrap_or(told);
    KernelUdpRow {
        local: ends.local,
        remote: ends.remote,
        recv_queue: memory.waiting,
        received: ends.received,
        dropped: memory.dropped.into(),
        sent: ends.sent,
        flow: (ends.hash.0, ends.hash.1.as_u8()),
    }
}
