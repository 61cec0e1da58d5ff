//! The lane's interface to UDP sockets.

use core::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;
use std::vec::Drain;

use flowlane_rss::{HashType, HomePorts};
use flowlane_sys::frame::{Frame, Pool};

use crate::address::Endpoint;
use crate::ip::{SendError, longest_payload};
use crate::lane::{Lane, flow};
use crate::packet::IcmpErrorKind;
use crate::time::Time;
use crate::udp::{Bind, BindError, Datagram, FIRST_HOME_PORT, SocketInfo, UdpElsewhere, UdpHandle};
use crate::wire::IpProtocol;

/// Data that could not be sent, and why.
#[derive(Debug)]
pub struct Unsent<T> {
    /// Why.
    pub error: SendError,
    /// The data, if it can be sent later; `None` if it was dropped.
    pub returned: Option<T>,
}

impl Lane {
    /// Makes a UDP socket in this lane.
    ///
    /// A connected socket without a port gets one whose answers arrive in this lane. If there is none, because UDP is steered by
    /// addresses alone and these belong to another bucket, it gets any port. Then, as with a port given by the caller, the lane in which
    /// its datagrams arrive hands them over, if the lanes of the host share their sockets ([`Lane::share_udp`]). If not, the error names
    /// that bucket.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn udp_bind(&mut self, mut bind: Bind) -> Result<UdpHandle, BindError> {
        // Peers are found by what packets have.
        bind.remote = bind.remote.map(Endpoint::without_zone);
        if let Some(ip) = bind.local_ip {
            let group = match ip {
                std::net::IpAddr::V4(a) => a.is_multicast() || a.is_broadcast(),
                std::net::IpAddr::V6(a) => a.is_multicast(),
            };
            if !group && !self.ip.is_local(ip) {
                return Err(BindError::NotOurAddress);
            }
        }
        match bind.remote {
            Some(remote) => self.udp_connect(bind, remote),
            None => self.udp.bind(bind, &mut self.rng),
        }
    }

    fn udp_connect(&mut self, mut bind: Bind, remote: Endpoint) -> Result<UdpHandle, BindError> {
        let ip = match bind.local_ip {
            Some(ip) => ip,
            None => self.source_for(remote.ip).ok_or(BindError::NoRoute)?,
        };
        bind.local_ip = Some(ip);
        if bind.local_port == 0 {
            bind.local_port = match self.home_port(ip, remote) {
                Err(BindError::OtherLane(_)) if self.udp.is_shared() => self.port_elsewhere(ip, remote)?,
                port => port?,
            };
        }
        let home = self.reply_bucket(Endpoint::new(ip, bind.local_port), remote);
        self.udp.connect(bind, home, &mut self.rng)
    }

    /// A free local port for datagrams from `local` to `remote`, wherever their answers come to.
    fn port_elsewhere(&mut self, local: IpAddr, remote: Endpoint) -> Result<u16, BindError> {
        let rss = &self.rss;
        let home = |port| rss.steer(&flow(IpProtocol::UDP, remote, Endpoint::new(local, port))).bucket;
        self.udp.port_elsewhere(home, local, remote, &mut self.rng).ok_or(BindError::NoPort)
    }

    /// The lanes of this lane's host tell one another about their connected UDP sockets from now on: each is given the same. To be called
    /// before the first socket is made.
    pub fn share_udp(&mut self, elsewhere: Arc<UdpElsewhere>) {
        let here = self.bucket();
        self.udp.share(elsewhere, here);
    }

    /// A free local port for datagrams from `local` to `remote` whose answers come to this lane.
    fn home_port(&mut self, local: IpAddr, remote: Endpoint) -> Result<u16, BindError> {
        let (home, random) = (self.home_ports(), self.rng.next_u32());
        let rss = &self.rss;
        let other =
            || rss.steer(&flow(IpProtocol::UDP, remote, Endpoint::new(local, FIRST_HOME_PORT))).bucket;
        let (port, tried) = self.udp.home_port(&home, random, (local, remote), other);
        self.ip.stats.udp.ports_tried += tried;
        port
    }

    /// The solver of this lane's home ports, made when first needed: it takes some 20 KiB.
    pub(crate) fn home_ports(&mut self) -> Arc<HomePorts> {
        if let Some(home) = &self.home {
            return home.clone();
        }
        let slots = self.rss().slots_of_bucket(self.bucket());
        let home = Arc::new(HomePorts::new(self.rss(), &slots));
        self.home = Some(home.clone());
        home
    }

    /// Closes a socket; what waits in it is freed. `false` if the handle is stale.
    pub fn udp_close(&mut self, handle: UdpHandle) -> bool {
        if let Some(ends @ (local, port, remote)) = self.udp.connected(handle) {
            let home = self.reply_bucket(Endpoint::new(local, port), remote);
            self.udp.release(ends, home);
        }
        self.udp.close(handle)
    }

    /// Whether the handle names an open socket of this lane.
    #[must_use]
    pub fn udp_is_open(&self, handle: UdpHandle) -> bool {
        self.udp.is_open(handle)
    }

    /// The next datagram of a socket.
    #[inline]
    pub fn udp_receive(&mut self, handle: UdpHandle) -> Option<Datagram> {
        self.udp.receive(handle)
    }

    /// Moves up to `max` datagrams that wait in a socket to `into`; returns how many.
    #[inline]
    pub fn udp_receive_batch(&mut self, handle: UdpHandle, into: &mut Vec<Datagram>, max: usize) -> usize {
        self.udp.receive_batch(handle, into, max)
    }

    /// An ICMP error that a connected socket met since the last call.
    pub fn udp_take_error(&mut self, handle: UdpHandle) -> Option<IcmpErrorKind> {
        self.udp.take_error(handle)
    }

    /// Wakes `waker` once when the socket gets a datagram, an error, or is closed.
    #[inline]
    pub fn udp_wake_on_receive(&mut self, handle: UdpHandle, waker: &Waker) {
        self.udp.wake_on_receive(handle, waker);
    }

    /// Wakes `waker` once when the output queue has room for what goes to `destination`.
    pub fn wake_on_room(&mut self, destination: std::net::IpAddr, waker: &Waker) {
        let interface = self.ip.output_interface(destination);
        if !self.senders.iter().any(|(i, w)| *i == interface && w.will_wake(waker)) {
            self.senders.push((interface, waker.clone()));
        }
    }

    /// Address and port a socket is bound to; the address is `None` for a wildcard, the port 0 for "any port".
    #[must_use]
    pub fn udp_local(&self, handle: UdpHandle) -> Option<(Option<std::net::IpAddr>, u16)> {
        self.udp.local(handle)
    }

    /// The peer of a connected socket.
    #[must_use]
    pub fn udp_remote(&self, handle: UdpHandle) -> Option<Endpoint> {
        self.udp.remote(handle)
    }

    /// Calls `f` for every open socket.
    pub fn udp_sockets(&self, f: &mut dyn FnMut(SocketInfo)) {
        self.udp.each(f);
    }

    /// Flow hash, and its type, of what `local` receives from `remote`.
    #[must_use]
    pub fn udp_hash(&self, local: Endpoint, remote: Endpoint) -> (u32, HashType) {
        self.rss().transmit_hash(&flow(IpProtocol::UDP, local, remote))
    }

    /// Sends `payload` from a socket, in fragments if it is longer than the MTU allows. `destination` defaults to the socket's peer,
    /// `source` to what the socket is bound to and the routes prefer; a source given must be an address of ours.
    ///
    /// # Errors
    /// See [`SendError`]; `TooLong` for more than 65507 bytes over IPv4, 65527 over IPv6. After `Full` and `NoFrame` trying again later
    /// may succeed.
    pub fn udp_send(
        &mut self,
        now: Time,
        frames: &Pool,
        handle: UdpHandle,
        payload: &[u8],
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<(), SendError> {
        let (source, destination) = self.udp_ends(handle, source, destination)?;
        if !self.ip.has_room_for(&self.paths, destination.ip, payload.len()) {
            return Err(SendError::Full);
        }
        let frame = self.ip.udp_payload(&self.paths, frames, payload, destination.ip)?;
        self.udp_emit(now, frames, handle, frame, source, destination)
    }

    /// Sends a payload that is in a frame already, without copying it.
    ///
    /// # Errors
    /// As [`Lane::udp_send`]; after `Full` the frame is given back unchanged.
    pub fn udp_send_frame(
        &mut self,
        now: Time,
        frames: &Pool,
        handle: UdpHandle,
        payload: Frame,
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<(), Unsent<Frame>> {
        let (source, destination) = match self.udp_ends(handle, source, destination) {
            Ok(ends) => ends,
            Err(error) => return Err(Unsent { error, returned: Some(payload) }),
        };
        if !self.ip.has_room_for(&self.paths, destination.ip, payload.chain_len()) {
            return Err(Unsent { error: SendError::Full, returned: Some(payload) });
        }
        self.udp_emit(now, frames, handle, payload, source, destination)
            .map_err(|error| Unsent { error, returned: None })
    }

    /// Sends a received datagram's payload, in its current state, back to its sender, in its frame.
    ///
    /// # Errors
    /// As [`Lane::udp_send`]; after `Full` the datagram is given back unchanged.
    #[inline]
    pub fn udp_reply(
        &mut self,
        now: Time,
        frames: &Pool,
        handle: UdpHandle,
        datagram: Datagram,
    ) -> Result<(), Unsent<Datagram>> {
        match self.datagrams().fast_reply(now, handle, datagram) {
            Ok(()) => Ok(()),
            Err(datagram) => self.slow_reply(now, frames, handle, datagram),
        }
    }

    /// Sends received datagrams' payloads, in their current state and in order, back to their senders, in their frames: all of `batch`, or as
    /// many as find room. Those that cannot be sent are dropped and counted. Returns how many were sent, and the one that found no room.
    ///
    /// The same as [`Lane::udp_reply`] of each, but what is the same for all is done once.
    #[inline]
    pub fn udp_reply_batch(
        &mut self,
        now: Time,
        frames: &Pool,
        handle: UdpHandle,
        batch: &mut Drain<'_, Datagram>,
    ) -> (usize, Option<Datagram>) {
        let mut sent = 0;
        loop {
            sent += self.datagrams().fast_replies(now, handle, batch);
            let Some(datagram) = batch.next() else { return (sent, None) };
            match self.slow_reply(now, frames, handle, datagram) {
                Ok(()) => sent += 1,
                Err(Unsent { returned: Some(datagram), .. }) => return (sent, Some(datagram)),
                Err(_) => {}
            }
        }
    }

    #[inline(never)]
    fn slow_reply(
        &mut self,
        now: Time,
        frames: &Pool,
        handle: UdpHandle,
        datagram: Datagram,
    ) -> Result<(), Unsent<Datagram>> {
        if !self.ip.has_room_for(&self.paths, datagram.source.ip, datagram.len()) {
            return Err(Unsent { error: SendError::Full, returned: Some(datagram) });
        }
        let (destination, mut source) = (datagram.source, datagram.destination);
        if !self.ip.is_local(source.ip) {
            // It came to a broadcast or multicast address; nobody can send from those.
            match self.source_for(destination.ip) {
                Some(ip) => source.ip = ip,
                None => return Err(Unsent { error: SendError::NoSource, returned: None }),
            }
        }
        // The hash stays with the frame: the answer's transmit hash is the receive hash of its own reply, which is
        // the flow this datagram came in on.
        self.ip.stats.udp.sent_on_original += 1;
        self.udp_put(now, frames, handle, datagram.frame, source, destination)
            .map_err(|error| Unsent { error, returned: None })
    }

    /// Source and destination of a datagram to be sent.
    #[inline]
    fn udp_ends(
        &self,
        handle: UdpHandle,
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<(Endpoint, Endpoint), SendError> {
        let (local_ip, local_port) = self.udp.local(handle).ok_or(SendError::Closed)?;
        let destination = match destination {
            Some(destination) => destination,
            None => self.udp.remote(handle).ok_or(SendError::NoDestination)?,
        };
        if destination.ip.is_unspecified() {
            return Err(SendError::Unspecified);
        }
        let source = match source {
            Some(source) if self.ip.is_local(source.ip) => source,
            Some(_) => return Err(SendError::NoSource),
            None => {
                let ip = match local_ip {
                    Some(ip) => ip,
                    None => self.ip.source_for(destination.ip).ok_or(SendError::NoRoute)?,
                };
                Endpoint::new(ip, local_port)
            }
        };
        Ok((source, destination))
    }

    /// Attaches the transmit hash and sends.
    #[inline]
    fn udp_emit(
        &mut self,
        now: Time,
        frames: &Pool,
        handle: UdpHandle,
        mut frame: Frame,
        source: Endpoint,
        destination: Endpoint,
    ) -> Result<(), SendError> {
        let (hash, kind) = self.rss().transmit_hash(&flow(IpProtocol::UDP, source, destination));
        let meta = frame.meta_mut();
        meta.hash = hash;
        meta.hash_type = HashType::as_u8(kind);
        self.udp_put(now, frames, handle, frame, source, destination)
    }

    #[inline]
    fn udp_put(
        &mut self,
        now: Time,
        frames: &Pool,
        handle: UdpHandle,
        frame: Frame,
        source: Endpoint,
        destination: Endpoint,
    ) -> Result<(), SendError> {
        let frame = match (source.ip, destination.ip) {
            (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
                let ends = (src, source.port, dst, destination.port);
                match self.datagrams().fast_output(now, handle, frame, ends) {
                    Ok(()) => return Ok(()),
                    Err(frame) => frame,
                }
            }
            _ => frame,
        };
        if frame.chain_len() > longest_payload(destination.ip.is_ipv4()) {
            return Err(SendError::TooLong);
        }
        let offload = self.offload();
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, offload, now, frames);
        let Some(out) = self.udp.datagram(handle, frame, source, destination, &cx) else {
            return Err(SendError::TooBig(self.ip.mtu_to(&self.paths, destination.ip).unwrap_or(0)));
        };
        self.ip.send(&mut cx, out)?;
        self.ip.stats.udp.sent += 1;
        Ok(())
    }
}
