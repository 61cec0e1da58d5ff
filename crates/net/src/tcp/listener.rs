//! Listeners: they accept the connections that the flow hash, or the kernel's, assigns to their lane.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::task::{Context, Poll, ready};

use flowlane_rss::Bucket;
use flowlane_stack::tcp::{ListenOptions, ListenerId};

use super::Id;
use super::ends::Ends;
use super::stream::TcpStream;
use crate::context::{self, LaneRef, budget};
use crate::error::SocketError;
use crate::events;
use crate::lane::SocketHandle;

/// A listening socket of one lane.
#[derive(Debug)]
pub struct TcpListener {
    lane: LaneRef,
    id: Id<ListenerId>,
}

impl TcpListener {
    /// Listens in the lane of the calling task on a port, of one address of ours or of all.
    ///
    /// On kernel sockets port 0 chooses a free port, returned by [`TcpListener::local_addr`]; the other lanes can then listen on it.
    ///
    /// # Errors
    /// [`SocketError::Listen`], or [`SocketError::WrongLane`] outside a lane.
    pub fn bind(local: Option<IpAddr>, port: u16, options: ListenOptions) -> Result<Self, SocketError> {
        let lane = LaneRef::current()?;
        let id = lane.with(|slot, _, _| match slot.own_kernel() {
            Some(kernel) => Ok(Id::Kernel(kernel.listen(local, port, &options)?)),
            None => Ok::<_, SocketError>(Id::Stack(slot.lane.tcp_listen(local, port, options)?)),
        })??;
        events::listening(lane.id().index, local, port);
        Ok(Self { lane, id })
    }

    /// As [`TcpListener::bind`], on a socket of the kernel, also in a host that has these only beside its own
    /// ([`Host::beside_kernel`](crate::Host::beside_kernel)).
    ///
    /// # Errors
    /// As [`TcpListener::bind`]; [`SocketError::Closed`] if the host has no kernel sockets.
    pub fn bind_by_kernel(
        local: Option<IpAddr>,
        port: u16,
        options: ListenOptions,
    ) -> Result<Self, SocketError> {
        let lane = LaneRef::current()?;
        let id = lane.with(|slot, _, _| slot.sockets()?.listen(local, port, &options))??;
        events::listening(lane.id().index, local, port);
        Ok(Self { lane, id: Id::Kernel(id) })
    }

    /// Listens in the lane of the calling task if its bucket is one of `buckets`; `None` if it is not. Called in every
    /// lane of a host, this is a listener bound to chosen buckets.
    ///
    /// The flow hash of a connection selects its bucket, whichever lanes listen. A SYN whose hash selects a bucket without a listener is
    /// answered with a reset, as for a closed port, and counted as `no-connection`. It is not handed to a lane that listens: choose the
    /// peers, or change the table, so that connections reach the right buckets. On kernel sockets the kernel spreads all connections over
    /// the lanes that listen.
    ///
    /// # Errors
    /// As [`TcpListener::bind`]; [`SocketError::NoSuchBucket`] if the host has no such bucket.
    pub fn bind_in(
        buckets: &[Bucket],
        local: Option<IpAddr>,
        port: u16,
        options: ListenOptions,
    ) -> Result<Option<Self>, SocketError> {
        let (here, count) =
            context::with_current(|slot, _| (slot.lane.bucket(), slot.lane.rss().buckets.len()))?;
        if let Some(beyond) = buckets.iter().find(|b| usize::from(b.0) >= count) {
            return Err(SocketError::NoSuchBucket(*beyond));
        }
        if buckets.contains(&here) { Self::bind(local, port, options).map(Some) } else { Ok(None) }
    }

    /// Accepts in the lane of the calling task from a Unix socket that listens, in a host of kernel sockets. Lanes that do so share the socket: whoever
    /// looks first gets a connection. Streams are as any other, but have no addresses: both ends are unspecified.
    ///
    /// # Errors
    /// [`SocketError::NoDescriptor`]; [`SocketError::Kernel`] with the kernel's number; [`SocketError::Unsupported`] on our own stack, which has no
    /// Unix sockets; [`SocketError::WrongLane`] outside a lane.
    pub fn at_path(listener: &UnixListener) -> Result<Self, SocketError> {
        let lane = LaneRef::current()?;
        let number = |e: io::Error| SocketError::Kernel(e.raw_os_error().unwrap_or(0));
        listener.set_nonblocking(true).map_err(number)?;
        let id = lane.with(|slot, _, _| match slot.own_kernel() {
            Some(kernel) => kernel.listen_at_path(listener.as_fd()),
            None => Err(SocketError::Unsupported("listen at a path")),
        })??;
        Ok(Self { lane, id: Id::Kernel(id) })
    }

    /// Listens on `port` of all our addresses, with the usual options.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn on_port(port: u16) -> Result<Self, SocketError> {
        Self::bind(None, port, ListenOptions::default())
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// On another lane.
    pub fn try_accept(&self) -> Result<Option<TcpStream>, SocketError> {
        self.lane.with(|slot, _, _| match self.id {
            Id::Stack(id) => Ok(slot.lane.tcp_mut().accept(id)?.map(|a| TcpStream {
                lane: self.lane.clone(),
                id: Id::Stack(a.id),
                ends: Ends::new(Some(a.local), a.remote),
            })),
            Id::Kernel(id) => Ok(slot.sockets()?.accept(id)?.map(|(id, remote)| TcpStream {
                lane: self.lane.clone(),
                id: Id::Kernel(id),
                ends: Ends::new(None, remote),
            })),
        })?
    }

    /// The address and port listened on; the address is unspecified for a listener on all of ours.
    ///
    /// # Errors
    /// On another lane.
    pub fn local_addr(&self) -> Result<SocketAddr, SocketError> {
        self.lane.with(|slot, _, _| match self.id {
            Id::Stack(id) => {
                let (ip, port) = slot.lane.tcp().listens_on(id)?;
                Ok(SocketAddr::new(ip.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), port))
            }
            Id::Kernel(id) => slot.sockets()?.local_address(id),
        })?
    }

    /// Waits for a connection. One task at a time waits on a listener.
    ///
    /// # Errors
    /// On another lane.
    pub async fn accept(&self) -> Result<TcpStream, SocketError> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`TcpListener::accept`], for futures written by hand.
    ///
    /// # Errors
    /// On another lane.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<TcpStream, SocketError>> {
        ready!(budget::poll(cx));
        if let Id::Kernel(_) = self.id {
            self.lane.with(|slot, now, _| slot.sockets().map(|kernel| kernel.try_again(now)))??;
        }
        if let Some(stream) = self.try_accept()? {
            budget::spend(0);
            return Poll::Ready(Ok(stream));
        }
        self.lane.with(|slot, now, _| match self.id {
            Id::Stack(id) => Ok(slot.lane.tcp_mut().register_accept(id, cx.waker())?),
            Id::Kernel(id) => {
                let kernel = slot.sockets()?;
                kernel.wake_on_accept(id, cx.waker())?;
                if let Some(at) = kernel.tries_again_at(now) {
                    // Guard: no `slot.sleepers.add(at, cx.waker());` fails tcp::listener
                    slot.sleepers.add(at, cx.waker());
                }
                Ok::<_, SocketError>(())
            }
        })??;
        Poll::Pending
    }

    /// How many connections wait to be accepted, and how many handshakes are under way; the kernel does not tell the
    /// latter, and is taken to have none.
    ///
    /// # Errors
    /// On another lane.
    pub fn backlog(&self) -> Result<(usize, usize), SocketError> {
        self.lane.with(|slot, _, _| match self.id {
            Id::Stack(id) => Ok(slot.lane.tcp().backlog(id)?),
            Id::Kernel(id) => slot.sockets()?.backlog(id),
        })?
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let socket = match self.id {
            Id::Stack(id) => SocketHandle::Listener(id),
            Id::Kernel(id) => SocketHandle::Kernel(id),
        };
        self.lane.close(socket);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream as Peer};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use flowlane_rss::{Key, Rss};

    use super::*;
    use crate::{Host, Io, Runtime};

    /// A connection that found no descriptor, not even the reserve, and after which nobody comes: nothing but time is an occasion to look again.
    #[test]
    fn a_listener_without_a_descriptor_tries_again_by_itself() {
        let (say, said) = mpsc::channel();
        let host = Host::kernel("server", Arc::new(Rss::new(Key::MICROSOFT, 1)), move || {
            let say = say.clone();
            async move {
                if crate::current().unwrap().bucket.0 > 0 {
                    return;
                }
                let here = Some(Ipv4Addr::LOCALHOST.into());
                let listener = TcpListener::bind(here, 0, ListenOptions::default()).unwrap();
                let peer = Peer::connect(listener.local_addr().unwrap()).unwrap();
                let Id::Kernel(id) = listener.id else { return };
                while !listener.lane.with(|slot, _, _| slot.sockets().unwrap().starve(id)).unwrap() {
                    crate::yield_now().await;
                }
                let accepted = listener.accept().await.unwrap();
                let _ = say.send((accepted.peer_addr(), peer.local_addr().unwrap()));
            }
        });
        let mut builder = Runtime::builder().workers(1).pin(false);
        builder.host(host);
        let runtime = builder.start().unwrap();
        let (accepted, peer) = said.recv_timeout(Duration::from_secs(30)).expect("nobody looked again");
        assert_eq!(accepted, peer);
        drop(runtime);
    }

    /// A socket at a path serves both lanes, and goes on when one has closed its own, with a ring, too.
    #[test]
    fn lanes_share_a_socket_at_a_path() {
        let path = std::env::temp_dir().join(format!("flowlane-listener-{}.sock", std::process::id()));
        let ring = flowlane_sys::kernel::uring::probe().is_ok();
        for io in [Io::Epoll, Io::Uring].into_iter().take(1 + usize::from(ring)) {
            let (listener, file) = crate::socket_file::SocketFile::listen(&path, 0o600).unwrap();
            let listener = Arc::new(listener);
            let (say, said) = mpsc::channel();
            let host = Host::kernel("server", Arc::new(Rss::new(Key::MICROSOFT, 1)), move || {
                let (say, listener) = (say.clone(), listener.clone());
                async move {
                    let listener = TcpListener::at_path(&listener).unwrap();
                    if crate::current().unwrap().bucket.0 > 0 {
                        drop(listener);
                        let _ = say.send(None);
                        return;
                    }
                    loop {
                        let stream = listener.accept().await.unwrap();
                        let mut byte = [0];
                        assert_eq!(stream.read(&mut byte).await, Ok(1));
                        stream.write_all(&byte).await.unwrap();
                        let _ = say.send(Some((stream.local_addr(), stream.peer_addr())));
                    }
                }
            });
            let mut builder = Runtime::builder().workers(1).pin(false).io(io);
            builder.host(host);
            let runtime = builder.start().unwrap();
            let next = || said.recv_timeout(Duration::from_secs(30)).expect("a lane says nothing");
            assert_eq!(next(), None, "the other lane has closed its own");
            for byte in 0..3u8 {
                let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
                client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                let mut back = [99];
                client.write_all(&[byte]).unwrap();
                client.read_exact(&mut back).unwrap();
                assert_eq!(back, [byte]);
                let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
                assert_eq!(next(), Some((nowhere, nowhere)));
            }
            drop((runtime, file));
            assert!(!path.exists());
        }
    }
}
