//! The lane's interface to TCP: listeners and connections by handle.
//!
//! A handle works in the lane that returned it, and is invalid once its connection or listener has been closed. Segments that an operation
//! sends are built when [`Lane::poll_output`] is called.

use core::cell::Cell;
use core::net::{IpAddr, SocketAddr};
use std::net::Shutdown;
use std::task::Waker;

use flowlane_rss::{Bucket, HashType, Protocol};
use flowlane_sys::block::OwnedBytes;
use flowlane_sys::frame::{Frame, Pool};

use crate::address::Endpoint;
use crate::lane::{Lane, flow};
use crate::packet::{Cx, Room};
use crate::tcp::{
    Accepted, ConnId, ConnectError, ConnectOptions, Failure, FastOpen, FastOpenListen, FirstData, Interest,
    ListenError, ListenOptions, ListenerId, Prefetched, Readiness, RecvError, Scarcity, SendError,
    SocketOptions, StaleError, SynAnswer, Tcp, TcpConfig, TcpInfo, TcpSnapshot,
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
    pub(crate) fn pull_tcp(&mut self, now: Time, frames: &Pool, room: Option<&[usize]>) -> Option<Frame> {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        while let Some(out) = match room {
            None => self.tcp.poll_output(&mut cx),
            Some(room) => {
                let ways = self.ip.ways(room);
                let (is_open, closed) = (|link| ways.is_open(link), |to| ways.closed(to));
                self.tcp.poll_output_to(&mut cx, &Room { is_open: &is_open, closed: &closed })
            }
        } {
            if room.is_some_and(|room| self.ip.ways(room).closed(out.dst).is_some()) {
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
        None
    }

    /// Whether the lane has so many connections that prefetching for a burst is worthwhile.
    #[inline]
    #[must_use]
    pub fn tcp_is_crowded(&self) -> bool {
        self.tcp.is_crowded()
    }

    /// Asks for the memory that leads to a frame's connection; to be followed by [`Lane::tcp_prefetch_connection`] once all
    /// frames of a burst were seen. The frame's data starts at the Ethernet header. Changes nothing.
    #[inline]
    #[must_use]
    pub fn tcp_prefetch(&self, frame: &Frame) -> Option<Prefetched> {
        let flow = classify(frame.data()).flow().filter(|flow| flow.protocol == IpProtocol::TCP)?;
        let (src, dst) = flow.ports?;
        let addresses = flow.addresses;
        Some(self.tcp.prefetch(SocketAddr::new(addresses.dst(), dst), SocketAddr::new(addresses.src(), src)))
    }

    /// Asks for the connection's own memory.
    #[inline]
    pub fn tcp_prefetch_connection(&self, expected: Prefetched) {
        self.tcp.prefetch_connection(expected);
    }

    #[inline]
    fn with_tcp<R>(&mut self, now: Time, frames: &Pool, f: impl FnOnce(&mut Tcp, &mut Cx<'_>) -> R) -> R {
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

    /// Stops listening; connections that were not accepted are reset.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn tcp_close_listener(&mut self, now: Time, frames: &Pool, id: ListenerId) -> Result<(), StaleError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.close_listener(cx, id))
    }

    /// Changes the options of the connections that a listener makes from now on.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn tcp_set_listen_options(
        &mut self,
        id: ListenerId,
        socket: SocketOptions,
    ) -> Result<(), StaleError> {
        self.tcp.set_listen_options(id, socket)
    }

    /// Changes whether and how a listener takes data in SYNs.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn tcp_set_listen_fast_open(
        &mut self,
        id: ListenerId,
        fast_open: Option<FastOpenListen>,
    ) -> Result<(), StaleError> {
        self.tcp.set_listen_fast_open(id, fast_open)
    }

    /// Whether an attempt to connect to this peer could carry data now; from an address that is chosen as for
    /// [`Connect::local_ip`].
    #[must_use]
    pub fn tcp_fast_open_ready(&self, now: Time, local: Option<IpAddr>, peer: IpAddr, how: FastOpen) -> bool {
        let local = local.or_else(|| self.source_for(peer));
        local.is_some_and(|local| self.tcp.fast_open_ready(now, local, peer, how))
    }

    /// Forgets cookies and all else that is known of peers for Fast Open.
    pub fn tcp_forget_fast_open_peers(&mut self) {
        self.tcp.forget_fast_open_peers();
    }

    /// The next connection of a listener.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn tcp_accept(&mut self, id: ListenerId) -> Result<Option<Accepted>, StaleError> {
        self.tcp.accept(id)
    }

    /// Wakes `waker` when a connection waits to be accepted. A later one replaces it.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn tcp_wake_on_accept(&mut self, id: ListenerId, waker: &Waker) -> Result<(), StaleError> {
        self.tcp.register_accept(id, waker)
    }

    /// The address, `None` for all of ours, and the port of a listener.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn tcp_listens_on(&self, id: ListenerId) -> Result<(Option<IpAddr>, u16), StaleError> {
        self.tcp.listens_on(id)
    }

    /// How many connections wait to be accepted, and how many handshakes are under way.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn tcp_backlog(&self, id: ListenerId) -> Result<(usize, usize), StaleError> {
        self.tcp.backlog(id)
    }

    /// Starts to open a connection; [`Interest::Write`] is ready when it is established.
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
        let remote = connect.remote;
        let mtu = self.ip.first_mtu_to(&self.paths, remote.ip).ok_or(ConnectError::NoRoute)?;
        let ip = match connect.local_ip {
            Some(ip) if !self.ip.is_local(ip) => return Err(ConnectError::NotOurAddress),
            Some(ip) => ip,
            None => self.source_for(remote.ip).ok_or(ConnectError::NoRoute)?,
        };
        let port = match connect.local_port {
            0 => self.tcp_home_port(now, ip, remote)?,
            port => port,
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
            tcp.connect_with(cx, local.into(), remote.into(), &options, data)
        })
    }

    /// From now on this lane has half-open clients: see [`SynAnswer`].
    pub fn tcp_half_open(&mut self, quiet: bool) {
        self.tcp.half_open(quiet);
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

    /// Appends the answers to such SYNs to `into`; returns the number of answers lost because they were not taken in time.
    pub fn tcp_syn_answers(&mut self, into: &mut Vec<SynAnswer>) -> u64 {
        self.tcp.syn_answers(into)
    }

    /// Wakes `waker` when an answer arrives. A later waker replaces it.
    pub fn tcp_wake_on_syn_answer(&mut self, waker: &Waker) {
        self.tcp.wake_on_syn_answer(waker);
    }

    /// A free local port for a connection from `local` to `remote` whose replies come to this lane.
    fn tcp_home_port(&mut self, now: Time, local: IpAddr, remote: Endpoint) -> Result<u16, ConnectError> {
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
            return self.tcp.port_given_up(now, local, peer).ok_or(ConnectError::NoPort);
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
        Ok(port)
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

    /// Queues bytes to be sent; how many were taken.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if none could be taken now.
    #[inline]
    pub fn tcp_send(
        &mut self,
        now: Time,
        frames: &Pool,
        id: ConnId,
        bytes: &[u8],
    ) -> Result<usize, SendError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.send(cx, id, bytes))
    }

    /// As [`Lane::tcp_send`], without copying: segments refer to the bytes in place. Accepted bytes are removed from `bytes`.
    ///
    /// # Errors
    /// As for [`Lane::tcp_send`].
    pub fn tcp_send_owned(
        &mut self,
        now: Time,
        frames: &Pool,
        id: ConnId,
        bytes: &mut OwnedBytes,
    ) -> Result<usize, SendError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.send_owned(cx, id, bytes))
    }

    /// As [`Lane::tcp_send`]; a last small segment waits for what follows (`MSG_MORE`).
    ///
    /// # Errors
    /// As for [`Lane::tcp_send`].
    pub fn tcp_send_more(
        &mut self,
        now: Time,
        frames: &Pool,
        id: ConnId,
        bytes: &[u8],
    ) -> Result<usize, SendError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.send_with(cx, id, bytes, true))
    }

    /// Ends a record (`MSG_EOR`): bytes written after this share no segment with bytes written before. At most 4096 ends are kept for a
    /// connection.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_end_record(&mut self, id: ConnId) -> Result<(), StaleError> {
        self.tcp.end_record(id)
    }

    /// Reads bytes; 0 at the end of the stream.
    ///
    /// # Errors
    /// [`RecvError::WouldBlock`] if there are none now.
    #[inline]
    pub fn tcp_recv(
        &mut self,
        now: Time,
        frames: &Pool,
        id: ConnId,
        into: &mut [u8],
    ) -> Result<usize, RecvError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.recv(cx, id, into))
    }

    /// As [`Lane::tcp_recv`], but the bytes stay.
    ///
    /// # Errors
    /// As for [`Lane::tcp_recv`].
    pub fn tcp_peek(&mut self, id: ConnId, into: &mut [u8]) -> Result<usize, RecvError> {
        self.tcp.peek(id, into)
    }

    /// Takes the next payload in the frame in which it was received; `None` at the end of the stream.
    ///
    /// # Errors
    /// As for [`Lane::tcp_recv`].
    pub fn tcp_recv_frame(
        &mut self,
        now: Time,
        frames: &Pool,
        id: ConnId,
    ) -> Result<Option<Frame>, RecvError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.recv_frame(cx, id))
    }

    /// Number of bytes to read before the urgent mark; see [`Tcp::urgent_mark`].
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_urgent_mark(&self, id: ConnId) -> Result<Option<u32>, StaleError> {
        self.tcp.urgent_mark(id)
    }

    /// Readiness of a connection now.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_readiness(&self, id: ConnId) -> Result<Readiness, StaleError> {
        self.tcp.readiness(id)
    }

    /// Wakes `waker` once when the connection may be ready; immediately if it is.
    ///
    /// # Errors
    /// If there is no such connection.
    #[inline]
    pub fn tcp_wake_on(&mut self, id: ConnId, interest: Interest, waker: &Waker) -> Result<(), StaleError> {
        self.tcp.register(id, interest, waker)
    }

    /// Ends one direction or both, keeping the handle.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_shutdown(
        &mut self,
        now: Time,
        frames: &Pool,
        id: ConnId,
        how: Shutdown,
    ) -> Result<(), StaleError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.shutdown(cx, id, how))
    }

    /// Gives the handle up: what was written is still sent, then the end of the stream, as `linger` says.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_close(&mut self, now: Time, frames: &Pool, id: ConnId) -> Result<(), StaleError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.close(cx, id))
    }

    /// Gives the handle up and resets the connection.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_abort(&mut self, now: Time, frames: &Pool, id: ConnId) -> Result<(), StaleError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.abort(cx, id))
    }

    /// Takes no new connections from now on, and ends all there are: by FIN behind what was written, or by RST if `at_once`.
    /// Applications keep their handles.
    pub fn tcp_end_all(&mut self, now: Time, frames: &Pool, at_once: bool) {
        self.with_tcp(now, frames, |tcp, cx| tcp.end_all(cx, at_once));
    }

    /// Number of connections that have not ended.
    #[must_use]
    pub fn tcp_unfinished(&self) -> usize {
        self.tcp.unfinished()
    }

    /// A connection's options.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_options(&self, id: ConnId) -> Result<SocketOptions, StaleError> {
        self.tcp.options(id)
    }

    /// Sends acknowledgements at once (`on`), or delays them so that they can go with data.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_quick_ack(&mut self, id: ConnId, on: bool) -> Result<(), StaleError> {
        self.tcp.quick_ack(id, on)
    }

    /// Changes a connection's options.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_set_options(
        &mut self,
        now: Time,
        frames: &Pool,
        id: ConnId,
        options: &SocketOptions,
    ) -> Result<(), StaleError> {
        self.with_tcp(now, frames, |tcp, cx| tcp.set_options(cx, id, options))
    }

    /// A look at a connection.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_info(&self, id: ConnId) -> Result<TcpInfo, StaleError> {
        self.tcp.info(id)
    }

    /// Our end of a connection, and the peer's.
    ///
    /// # Errors
    /// If there is no such connection.
    #[inline]
    pub fn tcp_ends(&self, id: ConnId) -> Result<(SocketAddr, SocketAddr), StaleError> {
        self.tcp.ends(id)
    }

    /// How a connection failed, if it did; returned once.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn tcp_take_failure(&mut self, id: ConnId) -> Result<Option<Failure>, StaleError> {
        self.tcp.take_failure(id)
    }

    /// Every connection of the lane, those being closed included; for showing.
    pub fn tcp_connections(&self) -> impl Iterator<Item = (ConnId, TcpInfo)> + '_ {
        self.tcp.list()
    }

    /// Changes the configuration of the lane's TCP. Connections keep negotiated values; timeouts, limits and the offers of new connections
    /// follow.
    pub fn tcp_configure(&mut self, config: TcpConfig) {
        self.tcp.configure(config);
    }

    /// A look at listeners and connections: no more than `scan` of them are looked at, and at most `rows` shown.
    #[must_use]
    pub fn tcp_snapshot(&self, rows: usize, scan: usize) -> TcpSnapshot {
        self.tcp.snapshot(rows, scan)
    }

    /// How many places connections take in the lists of those that wait for a link without room.
    #[must_use]
    pub fn tcp_waiting_for_links(&self) -> usize {
        self.tcp.waiting_for_links()
    }

    /// Whether memory is short, so that no connection gets more than a fair share, given that it `was` so before: a shortage ends when a
    /// quarter of what was held at its beginning is free again.
    #[inline]
    #[must_use]
    pub fn tcp_is_short_of_memory(&self, was: bool) -> bool {
        self.tcp.is_in_shortage(was)
    }

    /// Memory that TCP's buffers, connections and records hold, and the bound for it; bytes.
    #[must_use]
    pub fn tcp_memory(&self) -> (usize, usize) {
        self.tcp.memory_and_bound()
    }

    /// How many connections the lane has, and how many four-tuples wait in TIME-WAIT.
    #[must_use]
    pub fn tcp_counts(&self) -> (usize, usize) {
        (self.tcp.connections(), self.tcp.time_waits())
    }
}
