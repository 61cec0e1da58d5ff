//! A connection is open for use: its handshake is complete, or Fast Open (RFC 7413) lets it begin before that.

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::input::Stop;
use crate::tcp::lane::Core;
use crate::tcp::lane::flow_records::FlowEnd;
use crate::tcp::lane::listeners::Listener;
use crate::tcp::lane::peers::{Draft, Lesson, Path};
use crate::tcp::segment::Segment;
use crate::wire::TcpFlags;

impl Core {
    /// The handshake of a passive connection is complete: into the accept queue.
    pub(crate) fn hand_over(
        &mut self,
        cx: &mut Cx<'_>,
        c: &mut Connection,
        seg: &Segment,
    ) -> Result<(), Stop> {
        let Some(listener) = self.listeners.of(c) else {
            // Nobody listens any more: as to a segment of no connection (RFC 9293 §3.10.7.1).
            let sent = self.refuse(cx, &c.tuple(), seg, c.reply_meta());
            self.count_answer(c, sent);
            self.kill(c, cx.now, FlowEnd::HalfOpen, None);
            c.detach();
            return Err(Stop::Done);
        };
        if listener.is_full() {
            self.stats.listen_overflows += 1;
            return Err(Stop::Drop(DropReason::BacklogFull));
        }
        listener.enqueue(c.id());
        // Guard: `c.has(Flags::IN_SYN_BACKLOG)` as `false` fails listen::handshakes_that_are_over
        if c.has(Flags::IN_SYN_BACKLOG) {
            listener.end_handshake();
        }
        c.set_in_syn_backlog(false);
        c.set_in_accept_queue(true);
        self.stats.syncache_completed += 1;
        self.stats.connection_accepts += 1;
        Ok(())
    }
}

impl Connection {
    /// An early connection has come: into the accept queue, with the data of its SYN.
    pub(crate) fn open_early(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &mut Segment) {
        if let Some(listener) = core.listeners.of(self) {
            enqueue(listener, self);
        }
        core.stats.fast_open_passive += 1;
        core.stats.connection_accepts += 1;
        if seg.len > 0 {
            seg.seq += 1;
            seg.flags = seg.flags.without(TcpFlags::SYN);
            let before = self.rcv.nxt();
            if let Err(Stop::Drop(reason)) = self.take_data(core, cx, seg) {
                core.stats.drop(reason);
            }
            self.fast.put(Marks::SYN_DATA, self.rcv.nxt() != before);
        }
    }

    /// The peer has answered our SYN: what of its data arrived, and what is to be remembered for the next time.
    pub(crate) fn fast_open_answered(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) {
        let (asked, sent) = (self.fast.has(Marks::ASKED), self.fast.has(Marks::DATA));
        if !asked && !sent {
            return;
        }
        let acked = seg.ack.since(self.snd.una()).min(self.snd.outstanding());
        if acked > 0 {
            self.acknowledge(core, cx, seg, acked, self.snd.wnd());
        }
        let left = self.snd.outstanding() > 0;
        // A cookie that was not asked for is no use: it may be anybody's.
        let cookie = seg.options.fast_open.filter(|option| asked && !option.is_request());
        let lost = asked && self.retransmits() > 0 && cookie.is_none() && left;
        let form = if self.fast.has(Marks::EXPERIMENTAL) { Draft::Yes } else { Draft::No };
        let refused = asked && self.retransmits() == 0 && cookie.is_none() && !sent;
        let default = if self.is_ipv4() { 536 } else { 1220 };
        let lesson = Lesson {
            mss: seg.options.mss.unwrap_or(default),
            cookie,
            refused: refused.then_some(form),
            lost,
        };
        core.fast_peers.learn(cx.now, Path::of(&self.tuple()), &lesson, core.config.fast_open_peers);
        core.stats.fast_open_cookies_received += u64::from(cookie.is_some());
        if left {
            // RFC 7413 §4.2.2: what was not taken is sent again at once.
            if let Some(tx) = self.tx.get_mut() {
                for index in 0..tx.board.len() {
                    tx.board.mark_lost(index);
                }
            }
            self.arm_rto(core, cx.now);
            core.stats.fast_open_active_refused += 1;
        } else if sent {
            self.fast.put(Marks::SYN_DATA, true);
            core.stats.fast_open_active += 1;
        }
    }
}

fn enqueue(listener: &mut Listener, c: &mut Connection) {
    listener.enqueue(c.id());
    c.set_in_accept_queue(true);
}
