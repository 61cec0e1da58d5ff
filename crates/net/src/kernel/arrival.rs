//! Where the packets of a connection arrive, and why that is not where its worker is.
//!
//! The kernel tells of each socket the processor that handled its last packet (`SO_INCOMING_CPU`) and the card's queue by which it came
//! (`SO_INCOMING_NAPI_ID`). A connection is *aligned* if that processor is its worker's. If not, what is known of the host says why, as far
//! as anything does.

use std::fmt;
use std::os::fd::BorrowedFd;

use flowlane_sys::affinity;
use flowlane_sys::kernel::options::{self, Number};

use super::slab::SocketId;
use super::steer::Steering;
use super::{KernelLane, KernelStats, errors};
use crate::error::SocketError;

/// Where the last packet of a connection arrived, on kernel sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The processor that handled it.
    pub processor: u32,
    /// The number of the card's queue (NAPI), as the kernel counts; 0 if it came by none, as over the loopback.
    pub queue: u32,
    /// The processor that the lane's worker is bound to.
    pub worker: u32,
    /// Why the two are not the same; `None` if they are.
    pub elsewhere: Option<Elsewhere>,
}

/// Why a connection is not handled where its packets arrive: the first of these that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elsewhere {
    /// The worker's thread runs on another processor than that to which it was bound: somebody has moved it.
    ThreadMoved,
    /// The host is not steered by processor ([`Steer`](crate::Steer)): it is a matter of chance.
    NotSteered,
    /// No worker is bound to the processor: an interrupt or RPS leads there.
    NoWorker,
    /// It came by no queue of a card but straight from its sender's processor, which has changed since the connection began: another thread
    /// there, or XPS at the other end of a veth.
    Sender,
    /// The card's packets are spread by RPS.
    Rps,
    /// The processor of the queue's interrupt has changed since the connection began, or the card's table.
    Interrupt,
}

impl Elsewhere {
    /// Its name, as in the counter `elsewhere-NAME`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ThreadMoved => "thread",
            Self::NotSteered => "unsteered",
            Self::NoWorker => "no-worker",
            Self::Sender => "sender",
            Self::Rps => "rps",
            Self::Interrupt => "interrupt",
        }
    }
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ThreadMoved => "the worker's thread was moved to another processor",
            Self::NotSteered => "connections are not steered by processor",
            Self::NoWorker => "no worker is bound to the processor where it arrives",
            Self::Sender => "the processor of its sender on this machine has changed",
            Self::Rps => "RPS spreads the card's packets",
            Self::Interrupt => "the processor of the queue's interrupt has changed",
        })
    }
}

/// What is known when a packet has arrived elsewhere.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The worker's processor, and that on which its thread is.
    worker: u32,
    thread: Option<u32>,
    steered: bool,
    /// Whether a worker is bound to the packet's processor.
    served: bool,
    queue: u32,
    rps: bool,
}

impl Seen {
    fn why(self) -> Elsewhere {
        match self {
            // Guard: `thread != worker` as `false` fails kernel::arrival
            Self { thread: Some(thread), worker, .. } if thread != worker => Elsewhere::ThreadMoved,
            Self { steered: false, .. } => Elsewhere::NotSteered,
            Self { served: false, .. } => Elsewhere::NoWorker,
            Self { queue: 0, .. } => Elsewhere::Sender,
            Self { rps: true, .. } => Elsewhere::Rps,
            _ => Elsewhere::Interrupt,
        }
    }
}

/// Looks where the last packet of a socket arrived; `None` where the kernel does not say.
fn look(worker: u32, steering: &Steering, fd: BorrowedFd<'_>) -> Option<(u32, Option<Elsewhere>)> {
    let processor = u32::try_from(options::get(fd, Number::INCOMING_CPU).ok()?).ok()?;
    if processor == worker {
        return Some((processor, None));
    }
    let (steered, rps) = (steering.is_by_processor(), steering.has_rps());
    let served = steering.serves(processor);
    let seen = Seen { worker, thread: affinity::current_cpu(), steered, served, queue: queue_of(fd), rps };
    Some((processor, Some(seen.why())))
}

fn queue_of(fd: BorrowedFd<'_>) -> u32 {
    options::get(fd, Number::INCOMING_QUEUE).ok().and_then(|queue| u32::try_from(queue).ok()).unwrap_or(0)
}

/// Counts so many arrivals at a socket as aligned, or not, by where its last packet arrived. Nothing is asked where the worker is not
/// bound to a processor, `cpu`.
#[inline]
pub(super) fn judge(
    cpu: Option<u32>,
    steering: &Steering,
    stats: &mut KernelStats,
    fd: BorrowedFd<'_>,
    arrived: u64,
) {
    let Some((_, elsewhere)) = cpu.and_then(|cpu| look(cpu, steering, fd)) else { return };
    let Some(why) = elsewhere else {
        stats.aligned += arrived;
        return;
    };
    stats.elsewhere += arrived;
    *match why {
        Elsewhere::ThreadMoved => &mut stats.elsewhere_thread,
        Elsewhere::NotSteered => &mut stats.elsewhere_unsteered,
        Elsewhere::NoWorker => &mut stats.elsewhere_no_worker,
        Elsewhere::Sender => &mut stats.elsewhere_sender,
        Elsewhere::Rps => &mut stats.elsewhere_rps,
        Elsewhere::Interrupt => &mut stats.elsewhere_interrupt,
    } += arrived;
}

impl KernelLane {
    /// Where the last packet of a connection arrived; `None` if the worker is bound to no processor.
    pub(crate) fn arrival(&self, id: SocketId) -> Result<Option<Arrival>, SocketError> {
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        let Some(worker) = self.cpu else { return Ok(None) };
        let Some((processor, elsewhere)) = look(worker, &self.ports.steering, socket.fd()) else {
            return Err(errors::other(&std::io::Error::last_os_error()));
        };
        Ok(Some(Arrival { processor, queue: queue_of(socket.fd()), worker, elsewhere }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_that_holds_is_told() {
        let clean = Seen { worker: 1, thread: Some(1), steered: true, served: true, queue: 8193, rps: false };
        assert_eq!(clean.why(), Elsewhere::Interrupt);
        let rps = Seen { rps: true, ..clean };
        assert_eq!(rps.why(), Elsewhere::Rps);
        let sender = Seen { queue: 0, ..rps };
        assert_eq!(sender.why(), Elsewhere::Sender, "what no card receives no setting of a card spreads");
        let unserved = Seen { served: false, ..sender };
        assert_eq!(unserved.why(), Elsewhere::NoWorker);
        let unsteered = Seen { steered: false, ..unserved };
        assert_eq!(unsteered.why(), Elsewhere::NotSteered);
        assert_eq!(Seen { thread: None, ..unsteered }.why(), Elsewhere::NotSteered);
        assert_eq!(Seen { thread: Some(3), ..unsteered }.why(), Elsewhere::ThreadMoved);
    }
}
