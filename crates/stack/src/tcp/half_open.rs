//! Half-open clients: SYNs without connections, and the answers to them.
//!
//! A generator of half-open clients sends SYNs and must *not* behave as TCP does: an ordinary lane would complete the handshake or reset
//! an unknown segment. Such a lane keeps no state of its SYNs; the generator chose the sequence numbers and recognises the answers by
//! them. Answers wait in a bounded queue, and a quiet lane sends nothing back, neither an acknowledgement nor a reset. Otherwise the lane
//! behaves as usual.
//!
//! Only segments that belong to no connection, acknowledge something and have SYN or RST count as answers (an ordinary client handles
//! them by RFC 9293 §3.10.7.3).

use crate::tcp::lane::half_open::{HalfOpen, SynAnswer};
use crate::tcp::lane::replies::ReplyMeta;
use crate::tcp::segment::is_plain;
use crate::tcp::table::Tuple;
use crate::tcp::{Seq, Tcp};
use core::net::SocketAddr;
use std::task::Waker;

use crate::packet::Cx;
use crate::wire::{TcpFlags, TcpHeader, TcpOptions};

impl Tcp {
    /// From now on answers to SYNs that belong to no connection are kept for [`Tcp::syn_answers`]. `quiet`: nothing is
    /// sent back to them; otherwise they are reset like any stranger's.
    pub fn half_open(&mut self, quiet: bool) {
        self.core.keep_syn_answers(HalfOpen::new(quiet));
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
        if !plain || self.core.half_open().is_none() || !self.core.may_reply() {
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
        self.core.reply(cx, &tuple, &header, &options, ReplyMeta::default())
    }

    /// Appends received answers to `into`; returns the number of answers lost for lack of room since the last call.
    pub fn syn_answers(&mut self, into: &mut Vec<SynAnswer>) -> u64 {
        self.core.half_open().map_or(0, |half_open| half_open.take(into))
    }

    /// Wakes `waker` when an answer arrives. A later waker replaces it.
    pub fn wake_on_syn_answer(&mut self, waker: &Waker) {
        if let Some(half_open) = self.core.half_open() {
            half_open.wake(waker);
        }
    }
}
