//! UDP sockets of a lane, as tasks use them.
//!
//! A socket belongs to the lane whose task created it and works only there; it moves with its lane. Used on another lane it returns
//! [`SocketError::WrongLane`], never another lane's data. Datagrams are handled in batches: one wake-up and one access to the lane for many
//! datagrams.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::{Context, Poll, ready};

use flowlane_stack::address::Endpoint;
use flowlane_stack::packet::IcmpErrorKind;
use flowlane_stack::udp::{Bind, Datagram, UdpHandle};
use flowlane_stack::{Lane, SendError, Unsent};
use flowlane_sys::frame::Meta;

use crate::context::{LaneRef, budget};
use crate::error::SocketError;
use crate::kernel::{Lost, SocketId};
use crate::lane::SocketHandle;

/// A socket of the stack's, or one of the kernel's.
#[derive(Debug, Clone, Copy)]
enum Id {
    Stack(UdpHandle),
    Kernel(SocketId),
}

/// A UDP socket of one lane.
#[derive(Debug)]
pub struct UdpSocket {
    lane: LaneRef,
    id: Id,
}

impl UdpSocket {
    /// Makes a socket in the lane of the calling task.
    ///
    /// # Errors
    /// [`SocketError::Bind`], or [`SocketError::WrongLane`] outside a lane.
    pub fn bind(bind: Bind) -> Result<Self, SocketError> {
        let lane = LaneRef::current()?;
        let id = lane.with(|slot, _, _| match slot.own_kernel() {
            Some(kernel) => Ok(Id::Kernel(kernel.udp_bind(&bind)?)),
            None => Ok::<_, SocketError>(Id::Stack(slot.lane.udp_bind(bind)?)),
        })??;
        Ok(Self { lane, id })
    }

    /// As [`UdpSocket::bind`], on a socket of the kernel, also in a host that has these only beside its own
    /// ([`Host::beside_kernel`](crate::Host::beside_kernel)).
    ///
    /// # Errors
    /// As [`UdpSocket::bind`]; [`SocketError::Closed`] if the host has no kernel sockets.
    pub fn bind_by_kernel(bind: Bind) -> Result<Self, SocketError> {
        let lane = LaneRef::current()?;
        let id = lane.with(|slot, _, _| slot.sockets()?.udp_bind(&bind))??;
        Ok(Self { lane, id: Id::Kernel(id) })
    }

    /// A wildcard socket on `port`: what the flow hash sends to this lane. Bind it in every lane to get all.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn on_port(port: u16) -> Result<Self, SocketError> {
        Self::bind(Bind::port(port))
    }

    /// A connected socket, from a port whose answers arrive in this lane if there is one. Otherwise, as with a port chosen by the caller
    /// ([`UdpSocket::bind`]), the lane in which they arrive hands them over, possibly from another worker, at a higher cost for each.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`]. [`BindError::TooManyElsewhere`](crate::BindError::TooManyElsewhere): 4096 sockets of other lanes have
    /// answers that arrive in that lane.
    pub fn connect(remote: SocketAddr) -> Result<Self, SocketError> {
        Self::bind(Bind { remote: Some(remote.into()), ..Bind::default() })
    }

    /// As [`UdpSocket::connect`], on a socket of the kernel also in a host that has those only beside its own.
    pub(crate) fn connect_by_kernel(remote: SocketAddr) -> Result<Self, SocketError> {
        Self::bind_by_kernel(Bind { remote: Some(remote.into()), ..Bind::default() })
    }

    /// The address and port it is bound to; the address is `None` for a wildcard.
    ///
    /// # Errors
    /// On another lane, or closed.
    pub fn local(&self) -> Result<(Option<IpAddr>, u16), SocketError> {
        self.lane.with(|slot, _, _| match self.id {
            Id::Stack(handle) => slot.lane.udp_local(handle).ok_or(SocketError::Closed),
            Id::Kernel(id) => slot.sockets()?.udp_local(id),
        })?
    }

    /// Appends up to `max` datagrams that wait to `into`; returns how many, perhaps none.
    ///
    /// # Errors
    /// On another lane, closed, or what the network reported about a connected socket.
    #[inline]
    pub fn try_recv_batch(&self, into: &mut Vec<Datagram>, max: usize) -> Result<usize, SocketError> {
        self.lane.with(|slot, _, frames| {
            let handle = match self.id {
                Id::Stack(handle) => handle,
                Id::Kernel(id) => {
                    let (stack, kernel) = slot.both()?;
                    return kernel.udp_receive(id, frames, stack, into, max);
                }
            };
            received(&mut slot.lane, handle, into, max)
        })?
    }

    /// Waits for datagrams and appends up to `max` of them to `into`; returns how many, at least one.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv_batch`].
    pub async fn recv_batch(&self, into: &mut Vec<Datagram>, max: usize) -> Result<usize, SocketError> {
        poll_fn(move |cx| self.poll_recv_batch(cx, into, max)).await
    }

    fn poll_recv_batch(
        &self,
        cx: &mut Context<'_>,
        into: &mut Vec<Datagram>,
        max: usize,
    ) -> Poll<Result<usize, SocketError>> {
        ready!(budget::poll(cx));
        let max = max.max(1);
        let n = self.lane.with(|slot, _, frames| {
            let n = match self.id {
                Id::Stack(handle) => received(&mut slot.lane, handle, into, max)?,
                Id::Kernel(id) => {
                    let (stack, kernel) = slot.both()?;
                    kernel.udp_receive(id, frames, stack, into, max)?
                }
            };
            if n == 0 {
                match self.id {
                    Id::Stack(handle) => slot.lane.udp_wake_on_receive(handle, cx.waker()),
                    Id::Kernel(id) => slot.sockets()?.wake_on_datagram(id, cx.waker())?,
                }
            }
            Ok::<_, SocketError>(n)
        })??;
        if n == 0 {
            return Poll::Pending;
        }
        budget::spend_operations(n);
        Poll::Ready(Ok(n))
    }

    /// Waits for one datagram.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv_batch`].
    pub async fn recv(&self) -> Result<Datagram, SocketError> {
        let mut one = Vec::with_capacity(1);
        loop {
            self.recv_batch(&mut one, 1).await?;
            if let Some(datagram) = one.pop() {
                return Ok(datagram);
            }
        }
    }

    /// Waits for one datagram and copies its payload, as far as it fits, to `buffer`; returns the length and the sender.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv_batch`].
    pub async fn recv_from(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), SocketError> {
        let datagram = self.recv().await?;
        let n = datagram.read(buffer);
        Ok((n, datagram.source.into()))
    }

    /// Sends `payload` if there is room now. `destination` defaults to the peer, `source` to what the socket is bound to.
    ///
    /// # Errors
    /// On another lane, or [`SocketError::Send`]; after `Full` and `NoFrame` trying later may succeed.
    #[inline]
    pub fn try_send(
        &self,
        payload: &[u8],
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<(), SocketError> {
        self.lane.with(|slot, now, frames| match self.id {
            Id::Stack(handle) => Ok(slot.lane.udp_send(now, frames, handle, payload, source, destination)?),
            Id::Kernel(id) => slot.sockets()?.udp_send(id, payload, source, destination),
        })?
    }

    /// Sends `payload` as datagrams of `size` bytes, the last of which may be shorter, if there is room now: at least one of them, and
    /// returns how many. Call it again with the rest. Kernel sockets take up to 64 in one system call (`UDP_SEGMENT`).
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`]; then none has gone. [`SendError::TooLong`] for a `size` of 0.
    #[inline]
    pub fn try_send_segments(
        &self,
        payload: &[u8],
        size: usize,
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<usize, SocketError> {
        if size == 0 {
            return Err(SendError::TooLong.into());
        }
        match self.id {
            Id::Stack(_) => {
                self.try_send(&payload[..size.min(payload.len())], source, destination).map(|()| 1)
            }
            Id::Kernel(id) => self
                .lane
                .with(|slot, _, _| slot.sockets()?.udp_send_some(id, payload, size, source, destination))?,
        }
    }

    /// As [`UdpSocket::try_send_segments`], all of them, waiting for room.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send_segments`], without `Full`; some may have gone.
    pub async fn send_segments(
        &self,
        payload: &[u8],
        size: usize,
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<(), SocketError> {
        let mut rest = payload;
        poll_fn(|cx| {
            while !rest.is_empty() {
                ready!(budget::poll(cx));
                match self.try_send_segments(rest, size, source, destination) {
                    Ok(n) => {
                        let sent = n.saturating_mul(size).min(rest.len());
                        budget::spend(sent);
                        rest = &rest[sent..];
                    }
                    Err(SocketError::Send(SendError::Full)) => return self.wait_for_room(cx, destination),
                    Err(e) => return Poll::Ready(Err(e)),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Whether the kernel says when each datagram was received: `frame().meta().timestamp`, nanoseconds since 1970. Off unless asked for.
    ///
    /// # Errors
    /// On another lane; on a link, whose own timestamps are there without asking.
    pub fn set_timestamps(&self, on: bool) -> Result<(), SocketError> {
        self.lane.with(|slot, _, _| match self.id {
            Id::Stack(_) => {
                Err(SocketError::Unsupported("ask for timestamps: links give those that they have"))
            }
            Id::Kernel(id) => slot.sockets()?.udp_timestamps(id, on),
        })?
    }

    /// Has datagrams of QUIC go to the lane that their connection ID names: so many bytes, of which the first two are the number of the
    /// [lane](crate::current), high byte first. These are packets with a short header, and Handshake packets (RFC 9000 §17); all others, and
    /// those of which the ID names no lane, go by the [host's rule](crate::Steer), without which nothing changes here. To be said in every lane.
    /// Whoever sends an ID chooses a lane by it. The kernel finds the lane, so on our own stack, and with a program that the kernel refuses
    /// (`steering-refused` of [`KernelStats`](crate::KernelStats)), datagrams come by their flow: look at the ID once more, and pass on what
    /// another lane's names.
    ///
    /// # Errors
    /// On another lane, or closed.
    pub fn steer_by_connection_id(&self, length: u8) -> Result<(), SocketError> {
        self.lane.with(|slot, _, _| match self.id {
            Id::Stack(_) => Ok(()),
            Id::Kernel(id) => slot.sockets()?.steer_by_id(id, length),
        })?
    }

    /// Sends `payload` to `destination`, waiting for room.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`], without `Full`.
    pub async fn send_to(&self, payload: &[u8], destination: SocketAddr) -> Result<(), SocketError> {
        self.send_ends(payload, None, Some(destination.into())).await
    }

    /// Sends `payload` to the peer of a connected socket, waiting for room.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`], without `Full`.
    pub async fn send(&self, payload: &[u8]) -> Result<(), SocketError> {
        self.send_ends(payload, None, None).await
    }

    async fn send_ends(
        &self,
        payload: &[u8],
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<(), SocketError> {
        poll_fn(|cx| {
            ready!(budget::poll(cx));
            match self.try_send(payload, source, destination) {
                Err(SocketError::Send(SendError::Full)) => self.wait_for_room(cx, destination),
                other => {
                    budget::spend(payload.len());
                    Poll::Ready(other)
                }
            }
        })
        .await
    }

    fn wait_for_room(
        &self,
        cx: &mut Context<'_>,
        destination: Option<Endpoint>,
    ) -> Poll<Result<(), SocketError>> {
        self.wake_on_room(cx, destination)?;
        Poll::Pending
    }

    /// Wakes the task once when there may be room for datagrams to `destination`, or of a connected socket to its peer: for futures written by
    /// hand, after [`UdpSocket::try_send`] has returned `Full`.
    ///
    /// # Errors
    /// On another lane; [`SendError::NoDestination`] if there is none.
    pub fn wake_on_room(&self, cx: &Context<'_>, destination: Option<Endpoint>) -> Result<(), SocketError> {
        self.lane.with(|slot, _, _| match self.id {
            Id::Stack(handle) => {
                let destination = destination.or_else(|| slot.lane.udp_remote(handle));
                let destination = destination.ok_or(SocketError::Send(SendError::NoDestination))?;
                slot.lane.wake_on_room(destination.ip, cx.waker());
                Ok(())
            }
            Id::Kernel(id) => slot.sockets()?.wake_on_room(id, cx.waker()),
        })?
    }

    /// Sends every datagram of `batch`, with its current payload, back to its sender, in its own frame and in order, waiting for room.
    /// Datagrams that cannot be sent are dropped and counted by the lane. Returns the number sent.
    ///
    /// # Errors
    /// On another lane.
    pub async fn reply_batch(&self, batch: &mut Vec<Datagram>) -> Result<usize, SocketError> {
        let handle = match self.id {
            Id::Stack(handle) => handle,
            Id::Kernel(id) => return self.reply_by_kernel(id, batch).await,
        };
        let mut waiting = batch.drain(..);
        let (mut sent, mut left) = self
            .lane
            .with(|slot, now, frames| slot.lane.udp_reply_batch(now, frames, handle, &mut waiting))?;
        // What found no room waits for it, and those behind it.
        while let Some(datagram) = left.take() {
            let mut held = Some(datagram);
            let (n, rest) = poll_fn(|cx| {
                let polled = self.lane.with(|slot, now, frames| {
                    let Some(datagram) = held.take() else { return Poll::Ready((0, None)) };
                    match slot.lane.udp_reply(now, frames, handle, datagram) {
                        Err(Unsent { returned: Some(datagram), .. }) => {
                            slot.lane.wake_on_room(datagram.source.ip, cx.waker());
                            held = Some(datagram);
                            Poll::Pending
                        }
                        done => {
                            let (n, rest) = slot.lane.udp_reply_batch(now, frames, handle, &mut waiting);
                            Poll::Ready((n + usize::from(done.is_ok()), rest))
                        }
                    }
                });
                polled.map_or_else(|e| Poll::Ready(Err(e)), |polled| polled.map(Ok))
            })
            .await?;
            (sent, left) = (sent + n, rest);
        }
        Ok(sent)
    }

    async fn reply_by_kernel(&self, id: SocketId, batch: &mut Vec<Datagram>) -> Result<usize, SocketError> {
        let (mut done, mut sent) = (0, 0);
        let end = poll_fn(|cx| {
            let polled = self.lane.with(|slot, _, _| {
                let kernel = slot.sockets()?;
                sent += kernel.udp_reply(id, batch, &mut done, &mut Lost::default())?;
                if done < batch.len() {
                    kernel.wake_on_room(id, cx.waker())?;
                    return Ok(Poll::Pending);
                }
                Ok(Poll::Ready(()))
            })?;
            polled.map_or_else(|e: SocketError| Poll::Ready(Err(e)), |ready| ready.map(Ok))
        })
        .await;
        batch.clear();
        end.map(|()| sent)
    }

    /// Sends the payloads of datagrams that another socket received, in their own frames and in order, from `source` (as in
    /// [`UdpSocket::try_send`]) to `destination`, as far as there is room now. What finds none is dropped, and told; what cannot be sent
    /// is dropped and counted by the lane. `link`: the kernel's interface by which a link-local source sends.
    ///
    /// # Errors
    /// On another lane, or closed. `batch` is empty afterwards in any case.
    pub(crate) fn try_pass_batch(
        &self,
        batch: &mut Vec<Datagram>,
        source: Option<Endpoint>,
        destination: Endpoint,
        link: u16,
    ) -> Result<Passed, SocketError> {
        let mut passed = Passed::default();
        let done = self.lane.with(|slot, now, frames| {
            let id = match self.id {
                Id::Kernel(id) => id,
                Id::Stack(handle) => {
                    for mut datagram in batch.drain(..) {
                        anew(&mut datagram, link);
                        let bytes = datagram.len() as u64;
                        // Nobody can send from the address of a broadcast.
                        let source = source.filter(|source| slot.lane.is_local(source.ip));
                        let (frame, to) = (datagram.into_frame(), Some(destination));
                        match slot.lane.udp_send_frame(now, frames, handle, frame, source, to) {
                            Ok(()) => passed.add(1, bytes),
                            Err(Unsent { error: SendError::Full, .. }) => passed.no_room += 1,
                            Err(_) => {}
                        }
                    }
                    return Ok(());
                }
            };
            let from = source.unwrap_or(Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), 0));
            for datagram in batch.iter_mut() {
                anew(datagram, link);
                // It goes back to whom it has as its sender.
                (datagram.source, datagram.destination) = (destination, from);
            }
            let (mut done, mut lost) = (0, Lost::default());
            let sent = slot.sockets()?.udp_reply(id, batch, &mut done, &mut lost)? as u64;
            let bytes: u64 = batch[..done].iter().map(|d| d.len() as u64).sum();
            passed.add(sent, bytes - lost.bytes);
            passed.no_room = (batch.len() - done) as u64;
            passed.reported = lost.reported;
            Ok(())
        });
        batch.clear();
        done.map_err(SocketError::from).and_then(|done| done).map(|()| passed)
    }

    /// The bucket in which answers to a datagram from `local` to `remote` arrive.
    ///
    /// # Errors
    /// On another lane; for kernel sockets, where the kernel chooses the lane.
    pub fn reply_bucket(
        &self,
        local: Endpoint,
        remote: Endpoint,
    ) -> Result<flowlane_rss::Bucket, SocketError> {
        self.handle("tell the bucket of an answer")?;
        Ok(self.lane.with(|slot, _, _| slot.lane.reply_bucket(local, remote))?)
    }

    /// Joins a multicast group on an interface of the host.
    ///
    /// # Errors
    /// On another lane; for kernel sockets; if the link cannot join the group.
    pub fn join(&self, interface: u8, group: IpAddr) -> Result<bool, SocketError> {
        self.handle("join multicast groups")?;
        self.lane.with(|slot, now, frames| slot.join(now, frames, interface, group))?
    }

    /// The stack's handle; kernel sockets cannot do this.
    fn handle(&self, what: &'static str) -> Result<UdpHandle, SocketError> {
        match self.id {
            Id::Stack(handle) => Ok(handle),
            Id::Kernel(_) => Err(SocketError::Unsupported(what)),
        }
    }
}

/// Takes what waits in a socket of the stack, or tells what the network reported, or that it is closed.
#[inline]
fn received(
    lane: &mut Lane,
    handle: UdpHandle,
    into: &mut Vec<Datagram>,
    max: usize,
) -> Result<usize, SocketError> {
    let n = lane.udp_receive_batch(handle, into, max);
    if n > 0 {
        return Ok(n);
    }
    if let Some(error) = lane.udp_take_error(handle) {
        return Err(SocketError::Network(error));
    }
    if lane.udp_is_open(handle) { Ok(0) } else { Err(SocketError::Closed) }
}

/// What became of datagrams that were to be passed on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Passed {
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
    /// Dropped for lack of room.
    pub(crate) no_room: u64,
    /// What the network had said of an earlier one.
    pub(crate) reported: Option<IcmpErrorKind>,
}

impl Passed {
    fn add(&mut self, datagrams: u64, bytes: u64) {
        self.datagrams += datagrams;
        self.bytes += bytes;
    }
}

/// The payload of a datagram to be sent: nothing that its reception said of the frame holds any longer.
fn anew(datagram: &mut Datagram, link: u16) {
    *datagram.frame_mut().meta_mut() = Meta { queue: link, ..Meta::default() };
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let socket = match self.id {
            Id::Stack(handle) => SocketHandle::Udp(handle),
            Id::Kernel(id) => SocketHandle::Kernel(id),
        };
        self.lane.close(socket);
    }
}
