//! Answers to SYNs that no connection stands behind: see `half_open`.

use crate::tcp::segment::Segment;
use crate::tcp::table::Tuple;
use crate::wire::TcpFlags;
use core::net::SocketAddr;
use std::collections::VecDeque;
use std::task::Waker;

/// Capacity of the queue, answers; further answers are lost and counted.
const WAITING: usize = 1 << 14;

/// The answer to a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynAnswer {
    /// Our end.
    pub local: SocketAddr,
    /// The end that answered.
    pub remote: SocketAddr,
    /// Acknowledgement number: the SYN's sequence number plus one.
    pub ack: u32,
    /// It refuses, by a reset; without that it is willing, by a SYN of its own.
    pub refused: bool,
}

/// State of a lane with half-open clients.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    quiet: bool,
    heard: VecDeque<SynAnswer>,
    missed: u64,
    waker: Option<Waker>,
}

impl HalfOpen {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, heard: VecDeque::new(), missed: 0, waker: None }
    }

    /// Takes an answer to such a SYN; `true` if nothing more is to be done with it.
    #[cold]
    pub(crate) fn hear(&mut self, tuple: &Tuple, seg: &Segment) -> bool {
        let refused = seg.flags.contains(TcpFlags::RST);
        if !seg.flags.contains(TcpFlags::ACK) || !(refused || seg.flags.contains(TcpFlags::SYN)) {
            return false;
        }
        if self.heard.len() >= WAITING {
            self.missed += 1;
        } else {
            self.heard.push_back(SynAnswer {
                local: SocketAddr::new(tuple.local, tuple.local_port),
                remote: SocketAddr::new(tuple.remote, tuple.remote_port),
                ack: seg.ack.0,
                refused,
            });
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        self.quiet
    }

    /// Appends what was heard to `into`; how many answers came in vain since the last time, for want of room.
    pub(crate) fn take(&mut self, into: &mut Vec<SynAnswer>) -> u64 {
        into.extend(self.heard.drain(..));
        std::mem::take(&mut self.missed)
    }

    /// Wakes `waker` when something is heard.
    pub(crate) fn wake(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }
}
