//! The lane's TCP: what is done with listeners and connections is a method of [`Tcp`], which the lane lends. To listen and to connect
//! the lane is asked itself, since that takes its addresses, routes and home ports.
//!
//! A handle works in the lane that returned it, and is invalid once its connection or listener has been closed. Segments that an operation
//! sends are built when [`Lane::poll_output`] is called.

use core::cell::Cell;
use core::net::{IpAddr, SocketAddr};

use flowlane_rss::{Bucket, HashType, Protocol};
use flowlane_sys::frame::{Frame, Pool};

use crate::address::Endpoint;
use crate::lane::{Lane, flow};
use crate::packet::{Cx, IpOutput, Room};
use crate::tcp::{
    ConnId, ConnectError, ConnectOptions, FastOpen, FirstData, ListenError, ListenOptions, ListenerId,
    Prefetched, Scarcity, SocketOptions, Tcp,
};
use crate::time::Time;
use crate::udp::FIRST_HOME_PORT;
use crate::wire::{IpProtocol, classify};

/// A connection to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// Our address; `None` for what the routes prefer.
    pub local_ip: Option<IpAddr>,
    /// Our port; 0 for one whose replies arrive in this lane.
    pub local_port: u16,
    /// The peer.
    pub remote: Endpoint,
    /// Options of the socket.
    pub options: SocketOptions,
}

impl Connect {
    /// To a peer, from wherever the routes prefer.
    #[must_use]
    pub fn to(remote: Endpoint) -> Self {
        Self { local_ip: None, local_port: 0, remote, options: SocketOptions::default() }
    }
}

impl Lane {
    /// Asks TCP for segments until one has passed IP, past what stands in IP's queue. One that cannot go is lost, as on a
    /// wire, and counted by IP; TCP sends it again.
    // The usual segment without a loop, whose preparations it would pay for.
    pub(crate) fn pull_tcp(&mut self, now: Time, frames: &Pool, room: Option<&[usize]>) -> Option<Frame> {
        if let Some(room) = room {
            return self.pull_tcp_with_room(now, frames, room);
        }
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        let out = self.tcp.next_output(&mut cx)?;
        match self.ip.fast_segment_output(now, out) {
            Ok(frame) => Some(frame),
            Err(out) => self.pull_tcp_past(now, frames, out),
        }
    }

    /// `out` takes the slow way through IP; if it does not come out there, the next one that does.
    #[inline(never)]
    fn pull_tcp_past(&mut self, now: Time, frames: &Pool, out: IpOutput) -> Option<Frame> {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        let mut out = Some(out);
        while let Some(packet) = out {
            self.ip.watch_output();
            let _ = self.ip.send_in_turn(&mut cx, packet);
            if let Some(frame) = self.ip.poll_watched() {
                return Some(frame);
            }
            out = self.tcp.poll_output(&mut cx);
        }
        None
    }

    /// As [`pull_tcp`](Self::pull_tcp), of what is for links with room.
    #[inline(never)]
    fn pull_tcp_with_room(&mut self, now: Time, frames: &Pool, room: &[usize]) -> Option<Frame> {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        loop {
            let ways = self.ip.ways(room);
            let (is_open, closed) = (|link| ways.is_open(link), |to| ways.closed(to));
            let told = Room { is_open: &is_open, closed: &closed };
            let out = self.tcp.poll_output_to(&mut cx, Some(&told))?;
            if self.ip.ways(room).closed(out.dst).is_some() {
                // An answer to a stranger: it waits as a datagram does, and is counted if there is no room for that.
                let _ = self.ip.send(&mut cx, out);
                continue;
            }
            let out = match self.ip.fast_segment_output(now, out) {
                Ok(frame) => return Some(frame),
                Err(out) => out,
            };
            self.ip.watch_output();
            let _ = self.ip.send_in_turn(&mut cx, out);
            if let Some(frame) = self.ip.poll_watched() {
                return Some(frame);
            }
        }
    }

    /// Asks for the memory that leads to a frame's connection; to be followed by [`Tcp::prefetch_connection`] once all
    /// frames of a burst were seen. The frame's data starts at the Ethernet header. Changes nothing.
    #[inline]
    #[must_use]
    pub fn tcp_prefetch(&self, frame: &Frame) -> Option<Prefetched> {
        let flow = classify(frame.data()).flow().filter(|flow| flow.protocol == IpProtocol::TCP)?;
        let (src, dst) = flow.ports?;
        let addresses = flow.addresses;
        Some(self.tcp.prefetch(SocketAddr::new(addresses.dst(), dst), SocketAddr::new(addresses.src(), src)))
    }

    /// The lane's TCP, for what only looks. Handles are valid in the lane that gave them.
    #[inline]
    #[must_use]
    pub fn tcp(&self) -> &Tcp {
        &self.tcp
    }

    /// The lane's TCP, for what sends nothing. To listen and to connect, ask the lane: it knows addresses, routes and home ports.
    #[inline]
    #[must_use]
    pub fn tcp_mut(&mut self) -> &mut Tcp {
        &mut self.tcp
    }

    /// The lane's TCP with what the lane lends it, for what may send.
    #[inline]
    pub fn with_tcp<R>(&mut self, now: Time, frames: &Pool, f: impl FnOnce(&mut Tcp, &mut Cx<'_>) -> R) -> R {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        f(&mut self.tcp, &mut cx)
    }

    /// Listens in this lane on a port, of one of our addresses or of all. The listener gets the connections whose flow hash selects this
    /// lane's bucket; to accept all, listen in every lane.
    ///
    /// # Errors
    /// There is such a listener already, or the address is not ours.
    pub fn tcp_listen(
        &mut self,
        local: Option<IpAddr>,
        port: u16,
        options: ListenOptions,
    ) -> Result<ListenerId, ListenError> {
        if local.is_some_and(|ip| !self.ip.is_local(ip)) {
            return Err(ListenError::NotOurAddress);
        }
        self.tcp.listen(local, port, options)
    }

    /// Whether an attempt to connect to this peer could carry data now; from an address that is chosen as for
    /// [`Connect::local_ip`].
    #[must_use]
    pub fn tcp_fast_open_ready(&self, now: Time, local: Option<IpAddr>, peer: IpAddr, how: FastOpen) -> bool {
        let local = local.or_else(|| self.source_for(peer));
        local.is_some_and(|local| self.tcp.fast_open_ready(now, local, peer, how))
    }

    /// Starts to open a connection; [`Interest::Write`](crate::tcp::Interest::Write) is ready when it is established.
    ///
    /// # Errors
    /// See [`ConnectError`]; [`ConnectError::OtherLane`] if replies to the given port, or to all available ports, arrive in another lane.
    pub fn tcp_connect(
        &mut self,
        now: Time,
        frames: &Pool,
        connect: Connect,
    ) -> Result<ConnId, ConnectError> {
        self.tcp_connect_with(now, frames, connect, FirstData::default()).map(|(id, _)| id)
    }

    /// As [`Lane::tcp_connect`], with data in the SYN if [`SocketOptions::fast_open`] is on and the peer is known to accept it. Returns
    /// the number of bytes in the SYN. They may be delivered twice, so use it for idempotent requests only.
    ///
    /// # Errors
    /// As for [`Lane::tcp_connect`].
    pub fn tcp_connect_with(
        &mut self,
        now: Time,
        frames: &Pool,
        connect: Connect,
        data: FirstData<'_>,
    ) -> Result<(ConnId, usize), ConnectError> {
        let remote = connect.remote.without_zone();
        let mtu = self.ip.first_mtu_to(&self.paths, remote.ip).ok_or(ConnectError::NoRoute)?;
        let ip = match connect.local_ip {
            Some(ip) if !self.ip.is_local(ip) => return Err(ConnectError::NotOurAddress),
            Some(ip) => ip,
            None => self.source_for(remote.ip).ok_or(ConnectError::NoRoute)?,
        };
        let (port, is_free) = match connect.local_port {
            0 => self.tcp_home_port(now, ip, remote)?,
            port => (port, false),
        };
        let local = Endpoint::new(ip, port);
        // The hash that the replies will have, and with it where they come to.
        let (hash, kind) = self.rss().transmit_hash(&flow(IpProtocol::TCP, local, remote));
        let bucket = self.rss().bucket_of(hash);
        if bucket != self.bucket() {
            return Err(ConnectError::OtherLane(bucket));
        }
        let options = ConnectOptions { mtu, hash, hash_type: HashType::as_u8(kind), socket: connect.options };
        self.with_tcp(now, frames, |tcp, cx| {
            tcp.open(cx, (local.into(), remote.into()), &options, data, is_free)
        })
    }

    /// Sends a SYN without a connection; `false` if there is no room now, or no route.
    pub fn tcp_send_syn(
        &mut self,
        now: Time,
        frames: &Pool,
        local: Endpoint,
        remote: Endpoint,
        seq: u32,
    ) -> bool {
        let mtu = self.ip.first_mtu_to(&self.paths, remote.ip);
        let Some(mtu) = mtu.filter(|_| self.ip.is_local(local.ip)) else {
            return false;
        };
        let headers = if remote.ip.is_ipv4() { 40 } else { 60 };
        let mss = mtu.saturating_sub(headers);
        self.with_tcp(now, frames, |tcp, cx| tcp.send_syn(cx, local.into(), remote.into(), seq, mss))
    }

    /// A free local port for a connection from `local` to `remote` whose replies come to this lane; and whether none of its kind was used
    /// of late.
    fn tcp_home_port(
        &mut self,
        now: Time,
        local: IpAddr,
        remote: Endpoint,
    ) -> Result<(u16, bool), ConnectError> {
        let home = self.home_ports();
        let peer = SocketAddr::from(remote);
        let turn = self.tcp.port_turn(local, peer);
        let known = self.tcp.scarcity_of_ports(now, local, peer);
        let ports = home.to(local, remote.into(), Protocol::TCP).map_err(|_| ConnectError::NoRoute)?;
        if ports.is_empty() {
            return Err(ConnectError::OtherLane(
                self.tcp_reply_bucket(Endpoint::new(local, FIRST_HOME_PORT), remote),
            ));
        }
        if known == Some(Scarcity::None) {
            let port = self.tcp.port_given_up(now, local, peer).ok_or(ConnectError::NoPort)?;
            return Ok((port, false));
        }
        let (tcp, tried) = (&self.tcp, Cell::new(0));
        let pick = |reopen: bool| {
            let used = |port: u16| {
                tried.set(tried.get() + 1);
                port < FIRST_HOME_PORT || !tcp.is_free(now, SocketAddr::new(local, port), peer, reopen)
            };
            ports.pick_unused(turn.first, used)
        };
        // Ports in TIME-WAIT only when there are no others.
        let unused = if known.is_none() { pick(false) } else { None };
        let picked = unused.or_else(|| pick(true));
        let tried = tried.get();
        self.tcp.ports_tried(tried);
        match (picked, unused) {
            (None, _) => self.tcp.note_scarcity(now, local, peer, Scarcity::None),
            (_, None) if known.is_none() => self.tcp.note_scarcity(now, local, peer, Scarcity::TimeWait),
            _ => {}
        }
        let (port, passed) = picked.ok_or(ConnectError::NoPort)?;
        self.tcp.port_taken(turn, passed);
        Ok((port, unused.is_some()))
    }

    /// The bucket in which replies of a connection from `local` to `remote` arrive.
    #[must_use]
    pub fn tcp_reply_bucket(&self, local: Endpoint, remote: Endpoint) -> Bucket {
        self.rss().steer(&flow(IpProtocol::TCP, remote, local)).bucket
    }

    /// Flow hash, and its type, of what a connection from `local` to `remote` receives.
    #[must_use]
    pub fn tcp_hash(&self, local: Endpoint, remote: Endpoint) -> (u32, HashType) {
        self.rss().transmit_hash(&flow(IpProtocol::TCP, local, remote))
    }
}
