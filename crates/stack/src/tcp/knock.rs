//! Knocking: SYNs that no connection stands behind, and what comes back to them.
//!
//! A generator of half-open clients needs to send a SYN and then *not* to behave as TCP does: an ordinary lane would
//! complete the handshake, or reset what it does not know. A lane that knocks remembers nothing of its SYNs; whoever sent
//! them chose the sequence number and tells the answers by it. What is heard waits in a queue of bounded length, and a
//! quiet lane sends nothing back: no acknowledgement and no reset. Everything else the lane does stays as it is.
//!
//! Only segments of no connection that acknowledge something and have SYN or RST count as heard (RFC 9293 §3.10.7.3 is
//! where an ordinary client would take them).

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::task::Waker;

use super::segment::{Segment, is_plain};
use super::table::Tuple;
use super::{Core, Seq, Tcp};
use crate::packet::Cx;
use crate::tcp::lane::ReplyMeta;
use crate::wire::{TcpFlags, TcpHeader, TcpOptions};

/// Answers that wait to be taken; what comes on top of that is counted and lost.
const WAITING: usize = 1 << 14;

/// What came back to a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Our end.
    pub local: SocketAddr,
    /// The end that answered.
    pub remote: SocketAddr,
    /// What it acknowledges: the SYN's sequence number and one.
    pub ack: u32,
    /// It refuses, by a reset; without that it is willing, by a SYN of its own.
    pub refused: bool,
}

/// What a lane that knocks keeps.
#[derive(Debug)]
pub(crate) struct Knocks {
    quiet: bool,
    heard: VecDeque<Heard>,
    missed: u64,
    waker: Option<Waker>,
}

impl Core {
    /// Takes an answer to a SYN that was knocked; `true` if nothing more is to be done with it.
    #[cold]
    pub(crate) fn knock_input(&mut self, tuple: &Tuple, seg: &Segment) -> bool {
        let Some(knocks) = &mut self.knocks else { return false };
        let refused = seg.flags.contains(TcpFlags::RST);
        if !seg.flags.contains(TcpFlags::ACK) || !(refused || seg.flags.contains(TcpFlags::SYN)) {
            return false;
        }
        if knocks.heard.len() >= WAITING {
            knocks.missed += 1;
        } else {
            knocks.heard.push_back(Heard {
                local: SocketAddr::new(tuple.local, tuple.local_port),
                remote: SocketAddr::new(tuple.remote, tuple.remote_port),
                ack: seg.ack.0,
                refused,
            });
        }
        if let Some(waker) = knocks.waker.take() {
            waker.wake();
        }
        knocks.quiet
    }
}

impl Tcp {
    /// From now on answers to SYNs that belong to no connection are kept for [`Tcp::knocks_heard`]. `quiet`: nothing is
    /// sent back to them; otherwise they are reset like any stranger's.
    pub fn knock_open(&mut self, quiet: bool) {
        let knocks = Knocks { quiet, heard: VecDeque::new(), missed: 0, waker: None };
        self.core.knocks = Some(Box::new(knocks));
    }

    /// Sends a SYN with that sequence number and segment size; `false` when there is no room now.
    pub fn knock(
        &mut self,
        cx: &mut Cx<'_>,
        local: SocketAddr,
        remote: SocketAddr,
        seq: u32,
        mss: u16,
    ) -> bool {
        let plain = is_plain(local.ip()) && is_plain(remote.ip()) && local.is_ipv4() == remote.is_ipv4();
        if !plain || self.core.knocks.is_none() || self.core.replies.len() >= self.core.config.max_replies {
            return false;
        }
        let tuple = Tuple {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        let header = TcpHeader {
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            seq: Seq(seq),
            ack: Seq(0),
            flags: TcpFlags::SYN,
            window: u16::MAX,
            urgent: 0,
        };
        let options = TcpOptions { mss: Some(mss), ..TcpOptions::default() };
        let before = self.core.replies.len();
        self.core.reply(cx, &tuple, &header, &options, ReplyMeta::default());
        self.core.replies.len() > before
    }

    /// Appends what was heard to `into`; returns how many answers came in vain since the last time, for want of room.
    pub fn knocks_heard(&mut self, into: &mut Vec<Heard>) -> u64 {
        let Some(knocks) = &mut self.core.knocks else { return 0 };
        into.extend(knocks.heard.drain(..));
        std::mem::take(&mut knocks.missed)
    }

    /// Wakes `waker` when something is heard. A later one replaces it.
    pub fn knock_wake(&mut self, waker: &Waker) {
        if let Some(knocks) = &mut self.core.knocks {
            knocks.waker = Some(waker.clone());
        }
    }
}
