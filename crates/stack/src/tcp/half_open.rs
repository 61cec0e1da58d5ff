//! Half-open clients: SYNs that no connection stands behind, and what comes back to them.
//!
//! A generator of half-open clients needs to send a SYN and then *not* to behave as TCP does: an ordinary lane would
//! complete the handshake, or reset what it does not know. Such a lane remembers nothing of its SYNs; whoever sent
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
pub struct SynAnswer {
    /// Our end.
    pub local: SocketAddr,
    /// The end that answered.
    pub remote: SocketAddr,
    /// What it acknowledges: the SYN's sequence number and one.
    pub ack: u32,
    /// It refuses, by a reset; without that it is willing, by a SYN of its own.
    pub refused: bool,
}

/// What a lane with half-open clients keeps.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    quiet: bool,
    heard: VecDeque<SynAnswer>,
    missed: u64,
    waker: Option<Waker>,
}

impl Core {
    /// Takes an answer to such a SYN; `true` if nothing more is to be done with it.
    #[cold]
    pub(crate) fn syn_answer_input(&mut self, tuple: &Tuple, seg: &Segment) -> bool {
        let Some(half_open) = &mut self.half_open else { return false };
        let refused = seg.flags.contains(TcpFlags::RST);
        if !seg.flags.contains(TcpFlags::ACK) || !(refused || seg.flags.contains(TcpFlags::SYN)) {
            return false;
        }
        if half_open.heard.len() >= WAITING {
            half_open.missed += 1;
        } else {
            half_open.heard.push_back(SynAnswer {
                local: SocketAddr::new(tuple.local, tuple.local_port),
                remote: SocketAddr::new(tuple.remote, tuple.remote_port),
                ack: seg.ack.0,
                refused,
            });
        }
        if let Some(waker) = half_open.waker.take() {
            waker.wake();
        }
        half_open.quiet
    }
}

impl Tcp {
    /// From now on answers to SYNs that belong to no connection are kept for [`Tcp::syn_answers`]. `quiet`: nothing is
    /// sent back to them; otherwise they are reset like any stranger's.
    pub fn half_open(&mut self, quiet: bool) {
        let half_open = HalfOpen { quiet, heard: VecDeque::new(), missed: 0, waker: None };
        self.core.half_open = Some(Box::new(half_open));
    }

    /// Sends a SYN with that sequence number and segment size; `false` when there is no room now.
    pub fn send_syn(
        &mut self,
        cx: &mut Cx<'_>,
        local: SocketAddr,
        remote: SocketAddr,
        seq: u32,
        mss: u16,
    ) -> bool {
        let plain = is_plain(local.ip()) && is_plain(remote.ip()) && local.is_ipv4() == remote.is_ipv4();
        if !plain || self.core.half_open.is_none() || self.core.replies.len() >= self.core.config.max_replies
        {
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
    pub fn syn_answers(&mut self, into: &mut Vec<SynAnswer>) -> u64 {
        let Some(half_open) = &mut self.core.half_open else { return 0 };
        into.extend(half_open.heard.drain(..));
        std::mem::take(&mut half_open.missed)
    }

    /// Wakes `waker` when something is heard. A later one replaces it.
    pub fn wake_on_syn_answer(&mut self, waker: &Waker) {
        if let Some(half_open) = &mut self.core.half_open {
            half_open.waker = Some(waker.clone());
        }
    }
}
