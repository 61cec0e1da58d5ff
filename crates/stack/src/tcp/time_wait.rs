//! A segment for a connection in TIME-WAIT: RFC 9293 §3.10.7.4, RFC 6191 (reuse by a newer SYN), RFC 1337 (resets are ignored).
//!
//! One reset is not ignored: that which answers our answer to a SYN. A program that is started again, and whose timestamps begin anew, asks
//! for a new connection with an older timestamp than the last one's. RFC 6191 refuses that SYN, and the answer has its sender reset what we
//! remember (RFC 9293 §3.10.7.3) and ask once more. What RFC 1337 protects from is an old segment whose answer is reset by a peer that asks
//! for nothing; only an old SYN could still do that.
//!
//! The records are in `lane/time_wait.rs`.

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::Seq;
use crate::tcp::connection::accecn::handshake;
use crate::tcp::connection::sequence::ts_clock;
use crate::tcp::lane::Core;
use crate::tcp::lane::time_wait::Record;
use crate::tcp::segment::Segment;
use crate::wire::{TcpFlags, TcpHeader, TcpOptions, Timestamps};

/// What a segment for a record leads to.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Dealt with.
    Done,
    /// A new connection may begin; its initial sequence number must be after this one.
    Reuse(Seq),
}

impl Core {
    /// A segment for a connection in TIME-WAIT.
    pub(crate) fn time_wait_input(&mut self, cx: &mut Cx<'_>, slot: u32, seg: &Segment) -> Verdict {
        let Some(record) = self.time_wait.get(slot).copied() else { return Verdict::Done };
        self.stats.drop(DropReason::TimeWait);
        // RFC 1337 §3, fix F1: a reset does not end TIME-WAIT; but RFC 9293 §3.10.7.4 for that of a peer that asks for a new connection.
        // Guard: `seg.is(TcpFlags::RST)` as `false` fails time_wait::resets_are
        if seg.is(TcpFlags::RST) {
            // Guard: `record.syn_refused` as `true` fails time_wait::resets_are_ignored
            // Guard: `seg.seq == record.rcv_nxt` as `true` fails time_wait::a_peer_that_begins_anew
            if record.syn_refused && seg.seq == record.rcv_nxt {
                self.stats.time_wait_reset += 1;
                self.forget_time_wait(slot);
            }
            return Verdict::Done;
        }
        if seg.is(TcpFlags::SYN) && !seg.is(TcpFlags::ACK) {
            // RFC 6191 §2: a SYN with a newer timestamp, or else with a higher sequence number, may reuse it.
            let newer = match (record.ts_recent, seg.options.timestamps) {
                // Guard: `(new.value.wrapping_sub(old) as i32) > 0` as `true` fails
                // time_wait::timestamps_tell
                (Some(old), Some(new)) if new.value != old => (new.value.wrapping_sub(old) as i32) > 0,
                // Guard: `seg.seq > record.rcv_nxt` as `true` fails tcp::tests::time_wait
                _ => seg.seq > record.rcv_nxt,
            };
            if newer {
                self.reuse_time_wait(slot);
                return Verdict::Reuse(record.snd_nxt);
            }
            self.time_wait.refuse_syn(slot);
        }
        // RFC 9293 §3.10.7.4, fifth step: "if the ACK bit is off, drop the segment".
        if !seg.is(TcpFlags::ACK) && !seg.is(TcpFlags::SYN) {
            return Verdict::Done;
        }
        // RFC 9293 §3.10.7.4: only a retransmitted FIN is expected; acknowledge it and wait anew.
        let old = seg.sequence_len() > 0 || seg.seq != record.rcv_nxt;
        // Guard: `!old` as `false` fails time_wait::a_plain_acknowledgement
        if !old {
            return Verdict::Done;
        }
        // Guard: `seg.is(TcpFlags::FIN) && seg.end() == record.rcv_nxt` as `false` fails
        // tcp::tests::time_wait
        if seg.is(TcpFlags::FIN) && seg.end() == record.rcv_nxt {
            let expires = cx.now + self.config.time_wait;
            if expires.saturating_duration_since(record.expires) > self.config.time_wait / 8 {
                self.time_wait.renew(slot, expires);
            }
        }
        self.acknowledge_for(cx, &record);
        Verdict::Done
    }

    /// The acknowledgement that a record sends; whether there was room for it.
    pub(crate) fn acknowledge_for(&mut self, cx: &mut Cx<'_>, record: &Record) -> bool {
        let header = TcpHeader {
            src_port: record.tuple.local_port,
            dst_port: record.tuple.remote_port,
            seq: record.snd_nxt,
            ack: record.rcv_nxt,
            flags: TcpFlags::ACK | handshake::flags(record.ace),
            window: record.window,
            urgent: 0,
        };
        let timestamps =
            record.ts_recent.map(|echo| Timestamps { value: ts_clock(cx.now, record.ts_offset), echo });
        let options = TcpOptions { timestamps, ..TcpOptions::default() };
        self.stats.ack_only_sent += 1;
        self.reply(cx, &record.tuple, &header, &options, record.meta)
    }
}
