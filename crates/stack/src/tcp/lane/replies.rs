//! Answers of the lane's: segments that no connection sends. They wait in a queue of bounded length and go out in turn with the
//! connections' own.

use crate::packet::{Cx, IpOutput, Offload};
use crate::stats::tcp::DropReason;
use crate::tcp::TCP;
use crate::tcp::connection::Connection;
use crate::tcp::lane::Core;
use crate::tcp::segment::{Segment, pseudo};
use crate::tcp::table::Tuple;
use crate::wire::{Sum, TcpFlags, TcpHeader, TcpOptions, tcp};
use core::net::IpAddr;
use flowlane_sys::frame::{Checksum, Frame};

impl Core {
    /// Whether there is room for one more.
    pub(crate) fn may_reply(&self) -> bool {
        self.replies.len() < self.config.max_replies
    }

    /// Whether one waits to go out.
    #[inline]
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// The next one to go out.
    #[inline]
    pub(crate) fn next_reply(&mut self) -> Option<IpOutput> {
        self.replies.pop_front()
    }

    /// An answer for a connection was `sent`, as the last there is.
    pub(crate) fn count_answer(&mut self, c: &Connection, sent: bool) {
        if let (true, Some(answer)) = (sent, self.replies.back()) {
            self.flows.answered(c, answer.frame.chain_len());
        }
    }

    /// Queues a segment that belongs to no connection; whether there was room.
    pub(crate) fn reply(
        &mut self,
        cx: &mut Cx<'_>,
        tuple: &Tuple,
        header: &TcpHeader,
        options: &TcpOptions,
        meta: ReplyMeta,
    ) -> bool {
        // Guard: `!self.may_reply()` as `false` fails attacks::replies_are
        if !self.may_reply() {
            self.stats.drop(DropReason::RepliesFull);
            return false;
        }
        let Some(mut frame) = cx.frames.alloc() else {
            self.stats.no_frame += 1;
            return false;
        };
        let len = tcp::HEADER_LEN + options.len();
        let Some(room) = frame.push_back(len) else { return false };
        if cx.offload.checksum {
            let written = header.emit_summed(options, room);
            seal(&mut frame, tuple.local, tuple.remote, cx.offload, written);
        } else {
            // A flood is answered here: no byte is read again.
            header.emit_with_checksum(options, pseudo(tuple.local, tuple.remote, len), room);
        }
        (frame.meta_mut().hash, frame.meta_mut().hash_type) = (meta.hash, meta.hash_type);
        self.stats.packets_sent += 1;
        self.replies.push_back(IpOutput {
            frame,
            src: tuple.local,
            dst: tuple.remote,
            protocol: TCP.0,
            hop_limit: self.config.hop_limit,
            traffic_class: meta.tos,
            dont_fragment: dont_fragment(tuple.local),
        });
        true
    }

    /// As [`refuse`](Self::refuse), for a stranger or who may be one: limited, but for lanes with half-open clients, where resets answer what the lane
    /// itself asked for.
    pub(crate) fn refuse_stranger(&mut self, cx: &mut Cx<'_>, tuple: &Tuple, seg: &Segment, meta: ReplyMeta) {
        if self.half_open.is_none() && !self.resets.take(cx, self.config.resets_per_second) {
            self.stats.resets_limited += 1;
            return;
        }
        self.refuse(cx, tuple, seg, meta);
    }

    /// A reset in answer to a segment that belongs to no connection (RFC 9293 §3.10.7.1, and MUST-11's kind).
    /// Whether there was room for it.
    pub(crate) fn refuse(&mut self, cx: &mut Cx<'_>, tuple: &Tuple, seg: &Segment, meta: ReplyMeta) -> bool {
        // Guard: `seg.is(TcpFlags::ACK)` as `false` fails attacks::segments_for_nobody
        let (flags, seq, ack) = if seg.is(TcpFlags::ACK) {
            (TcpFlags::RST, seg.ack, crate::wire::SeqNum(0))
        } else {
            (TcpFlags::RST | TcpFlags::ACK, crate::wire::SeqNum(0), seg.end())
        };
        let header = TcpHeader {
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            seq,
            ack,
            flags,
            window: 0,
            urgent: 0,
        };
        self.stats.resets_sent += 1;
        self.stats.control_sent += 1;
        self.reply(cx, tuple, &header, &TcpOptions::default(), meta)
    }
}

impl Connection {
    /// What answers for this connection say beside their headers.
    pub(crate) fn reply_meta(&self) -> ReplyMeta {
        ReplyMeta { hash: self.flow_hash(), hash_type: self.hash_type(), tos: self.tos() }
    }
}

/// What a reply says beside its header.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReplyMeta {
    pub(crate) hash: u32,
    pub(crate) hash_type: u8,
    pub(crate) tos: u8,
}

/// Fills in the checksum (RFC 9293 §3.1, MUST-2), or leaves it to the link. `written`: the bytes of the header, whose checksum is
/// zero, and their sum.
#[inline(always)]
pub(crate) fn seal(
    frame: &mut Frame,
    local: IpAddr,
    remote: IpAddr,
    offload: Offload,
    (header, sum): (usize, Sum),
) {
    let pseudo = pseudo(local, remote, frame.chain_len());
    if offload.checksum {
        tcp::put_checksum(pseudo.fold(), frame.data_mut());
        frame.meta_mut().checksum = Checksum::Partial;
        return;
    }
    let sum = sum.combine(pseudo, 0);
    let payload = frame.data().get(header..).unwrap_or_default();
    let sum = if frame.is_chained() {
        let mut at = 0;
        let add = |sum: Sum, chunk: &[u8]| {
            let sum = sum.add_bytes_at(at, chunk);
            at += chunk.len();
            sum
        };
        core::iter::once(payload).chain(frame.chunks().skip(1)).fold(sum, add)
    } else {
        sum.add_bytes(payload)
    };
    // Guard: no `tcp::put_checksum(sum.finish(), frame.data_mut());` fails lossy::any_weather
    tcp::put_checksum(sum.finish(), frame.data_mut());
}

/// RFC 1191 §3: path MTU discovery needs DF on IPv4; IPv6 has no other way.
pub(crate) const fn dont_fragment(local: IpAddr) -> bool {
    local.is_ipv4()
}
