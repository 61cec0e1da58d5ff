//! A connection on kernel sockets goes from its lane to another.

use super::TcpStream;
use crate::context::LaneRef;
use crate::error::SocketError;
use crate::kernel::Travelling;
use crate::tcp::Id;
use crate::tcp::ends::Ends;

/// A connection that has left its lane and is in no other yet. Dropping it closes it.
#[derive(Debug)]
pub struct Departed {
    travelling: Travelling,
    ends: Ends,
}

impl TcpStream {
    /// Takes the connection out of its lane, for a task of another lane of the host to go on with it ([`Departed::arrive`]). The stream itself is
    /// [closed](SocketError::Closed) from then on, and dropping it changes nothing. Bytes that have been received and not read go along, as does
    /// what the kernel still has to send.
    ///
    /// On our own stack the flow hash decides which lane has a connection, so there it cannot leave.
    ///
    /// ```no_run
    /// # use flowlane::{Bucket, SpawnError, TcpStream, spawn_on};
    /// fn go(mut stream: TcpStream, to: Bucket) -> Result<(), Box<dyn std::error::Error>> {
    ///     let departed = stream.depart()?;
    ///     spawn_on(to, async move { departed.arrive()?.write_all(b"from here").await })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`SocketError::Unsupported`] on our own stack, with [`Io::Uring`](crate::Io::Uring), before it is connected, and after it sent without
    /// copying ([`TcpStream::queue_zc`]): the connection stays as it is. On another lane.
    pub fn depart(&mut self) -> Result<Departed, SocketError> {
        let Id::Kernel(id) = self.id else {
            return Err(SocketError::Unsupported("take a connection of our own stack to another lane"));
        };
        let travelling = self.lane.with(|slot, _, _| slot.sockets()?.depart(id))??;
        Ok(Departed { travelling, ends: self.ends.clone() })
    }
}

impl Departed {
    /// The connection, in the lane of the calling task.
    ///
    /// # Errors
    /// [`SocketError::WrongLane`] outside a lane, [`SocketError::Closed`] in one without kernel sockets, or what the kernel says: the connection
    /// is closed then.
    pub fn arrive(self) -> Result<TcpStream, SocketError> {
        let lane = LaneRef::current()?;
        let id = lane.with(|slot, _, _| slot.sockets()?.arrive(self.travelling))??;
        Ok(TcpStream { lane, id: Id::Kernel(id), ends: self.ends })
    }
}
