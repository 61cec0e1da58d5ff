//! Closing: CLOSE and ABORT of RFC 9293 §3.10.4 and §3.10.5, and the way into TIME-WAIT.

use crate::packet::Cx;
use crate::tcp::connection::recv_buffer::Inflow;
use crate::tcp::connection::{Connection, Flags, Lists, State};
use crate::tcp::lane::Core;
use crate::tcp::lane::flow_records::FlowEnd;
use crate::tcp::lane::time_wait::Record;
use crate::tcp::table::ConnId;
use crate::tcp::tuple_table::Found;
use crate::wire::{TcpFlags, TcpHeader, TcpOptions};
use core::time::Duration;

impl Connection {
    /// The application will not send any more: FIN behind what is queued.
    pub(crate) fn close_send(&mut self, core: &mut Core) {
        match self.state() {
            State::Established => self.enter(&mut core.states, State::FinWait1),
            State::CloseWait => self.enter(&mut core.states, State::LastAck),
            // RFC 9293 §3.10.4, SYN-RECEIVED: the FIN goes out after the handshake.
            State::SynReceived => {}
            // Nobody could have written anything in SYN-SENT when that was said to delete the connection; data in the SYN is sent.
            State::SynSent if self.buffered() > 0 => {}
            _ => return,
        }
        self.queue_fin();
        self.uncork();
    }

    /// The application gives up its handle.
    pub(crate) fn close(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        self.detach();
        self.forget_reader();
        if let Some(tx) = self.tx.get_mut() {
            *tx.writer_mut() = None;
        }
        self.forget_watchers();
        let linger = self.options().and_then(|o| o.linger);
        let unread = self.readable() > 0;
        match self.state() {
            State::Closed | State::TimeWait => core.unlink(self),
            State::SynSent if self.buffered() == 0 => core.kill(self, cx.now, FlowEnd::GivenUp, None),
            // RFC 9293 §3.6.1 (MUST-... of RFC 1122 §4.2.2.13), RFC 2525 §2.17: unread data is lost, and the peer is told.
            // Guard: `unread` as `false` fails close::close_with_unread_data_resets
            _ if unread || linger == Some(Duration::ZERO) => self.abort(core, cx),
            _ => {
                if !self.state().may_receive() {
                    if let Some(rx) = self.rx.take_if(Inflow::is_idle) {
                        core.give_inflow(rx);
                    }
                }
                self.close_send(core);
                match linger {
                    Some(limit) => self.timers.limit_life(cx.now, limit),
                    None => self.timers.stop_life(),
                }
                if self.state() == State::FinWait2 {
                    self.arm_fin_wait_2(core, cx.now);
                }
            }
        }
    }

    /// The reset that ends this connection (RFC 9293 §3.5.2: at SND.NXT), for the reply queue.
    pub(crate) fn send_reset(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let header = TcpHeader {
            src_port: self.local_port(),
            dst_port: self.remote_port(),
            seq: self.snd.nxt(),
            ack: self.rcv.nxt(),
            flags: TcpFlags::RST | TcpFlags::ACK,
            window: (self.rcv.wnd() >> self.scale.rcv()).min(0xffff) as u16,
            urgent: 0,
        };
        core.stats.resets_sent += 1;
        core.stats.control_sent += 1;
        // RFC 7323 §3.2: a reset should carry timestamps too.
        let timestamps = self.has(Flags::TIMESTAMPS) && self.state() != State::SynSent;
        let options = TcpOptions {
            timestamps: timestamps.then(|| self.stamps.option(cx.now)),
            ..TcpOptions::default()
        };
        let sent = core.reply(cx, &self.tuple(), &header, &options, self.reply_meta());
        core.count_answer(self, sent);
    }

    /// RFC 9293 §3.10.5.
    pub(crate) fn abort(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        if self.state().is_synchronized() && self.state() != State::TimeWait
            || self.state() == State::SynReceived
        {
            self.send_reset(core, cx);
        }
        let end = if self.state() == State::SynSent { FlowEnd::GivenUp } else { FlowEnd::ResetByUs };
        core.kill(self, cx.now, end, None);
    }

    /// Leaves a small record behind (RFC 9293 §3.6.1, MUST-13).
    pub(crate) fn enter_time_wait(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let record = Record {
            ace: self.last_ace(),
            id: ConnId::NOBODY,
            tuple: self.tuple(),
            table_hash: self.table_hash(),
            snd_nxt: self.snd.nxt(),
            rcv_nxt: self.rcv.nxt(),
            window: (self.rcv.wnd() >> self.scale.rcv()).min(0xffff) as u16,
            meta: self.reply_meta(),
            // Guard: `self.has(Flags::TIMESTAMPS).then_some(self.stamps.recent())` as `None` fails
            // time_wait::timestamps_tell
            ts_recent: self.has(Flags::TIMESTAMPS).then_some(self.stamps.recent()),
            ts_offset: self.stamps.offset(),
            since: cx.now,
            expires: cx.now + core.config.time_wait,
            syn_refused: false,
        };
        // The acknowledgement of the peer's FIN is the record's from here on.
        self.enter(&mut core.states, State::TimeWait);
        let ack = self.has(Flags::ACK_NOW);
        let slot = self.is_in(Lists::LINKED).then_some(self.id().slot);
        let in_place = core.enter_time_wait(record, slot);
        self.drop_acks();
        if ack {
            let sent = core.acknowledge_for(cx, &record);
            core.count_answer(self, sent);
        }
        if let Some(slot) = slot {
            if !in_place {
                core.table.remove(self.table_hash(), Found::Connection(slot));
            }
            core.unlinked(self, cx.now, FlowEnd::Closed);
        }
        core.unlink(self);
        self.wake_all();
    }
}
