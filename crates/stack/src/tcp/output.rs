//! Output: which segment a connection sends next.
//!
//! Transmit is pulled. Each call builds one segment (or one batch for the link to cut): what was lost first, then a
//! probe, then new data, then our FIN, then a bare acknowledgement. Whether new data may go is decided in `segmenter`.

use super::connection::{Connection, Flags, State};
use super::flight::Phase;
use super::lane::{Core, seal};
use super::sent::{self, Sent, ts_clock};
use super::{Seq, TCP};
use crate::packet::{Cx, IpOutput};
use crate::wire::{SackBlock, SackBlocks, TcpFlags, TcpHeader, TcpOptions, Timestamps, tcp};
use core::net::IpAddr;
use flowlane_sys::frame::{Frame, Segmentation};

/// There is no free frame; try again later.
#[derive(Debug)]
pub(crate) struct NoFrame;

/// One segment to be built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seq: Seq,
    /// Where the payload lies in the send buffer.
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) flags: TcpFlags,
    /// Payload of one segment, if the link is to cut.
    pub(crate) segment_size: u32,
    /// New data of which no more goes out now.
    pub(crate) last: bool,
    /// It ends a burst: PSH, but not when it is sent again.
    pub(crate) push: bool,
}

/// RFC 1191 §3: path MTU discovery needs DF on IPv4; IPv6 has no other way.
pub(crate) const fn dont_fragment(local: IpAddr) -> bool {
    local.is_ipv4()
}

/// ECT(0) (RFC 3168 §5).
const ECT0: u8 = 2;

impl Connection {
    /// Whether `next_segment` may have something to say. True too often is harmless.
    #[inline]
    pub(crate) fn wants_output(&self) -> bool {
        const DUE: [Flags; 4] = [Flags::ACK_NOW, Flags::PROBE_WINDOW, Flags::PROBE_ALIVE, Flags::PROBE_TAIL];
        if DUE.iter().any(|flag| self.has(*flag)) {
            return true;
        }
        let Some(tx) = &self.tx else {
            return self.has(Flags::FIN_QUEUED) && !self.has(Flags::FIN_SENT) && self.state.is_synchronized();
        };
        tx.sent.lost > tx.sent.retrans
            || tx.sent.is_empty() && matches!(self.state, State::SynSent | State::SynReceived)
            || self.state.is_synchronized()
                && (self.unsent() > 0 || self.has(Flags::FIN_QUEUED) && !self.has(Flags::FIN_SENT))
    }

    /// The next segment to send now, if any.
    pub(crate) fn next_segment(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
    ) -> Result<Option<IpOutput>, NoFrame> {
        if self.state == State::Closed {
            return Ok(None);
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return self.next_handshake(core, cx);
        }
        if let Some(out) = self.next_retransmission(core, cx)? {
            return Ok(Some(out));
        }
        if let Some(plan) = self.plan_new(core, cx) {
            return self.send_new(core, cx, plan).map(Some);
        }
        if self.has(Flags::PROBE_TAIL) {
            if let Some(out) = self.probe_tail(core, cx)? {
                return Ok(Some(out));
            }
        }
        if self.has(Flags::PROBE_WINDOW) || self.has(Flags::PROBE_ALIVE) {
            return self.send_probe(core, cx).map(Some);
        }
        if self.has(Flags::ACK_NOW) {
            return self.send_ack(core, cx).map(Some);
        }
        Ok(None)
    }

    /// SYN, SYN-ACK, or the acknowledgement of a duplicate.
    fn next_handshake(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<Option<IpOutput>, NoFrame> {
        let Some(tx) = &mut self.tx else { return Ok(None) };
        let first = tx.sent.is_empty();
        if !first && tx.sent.next_lost().is_none() {
            if self.has(Flags::ACK_NOW) && self.state == State::SynReceived {
                return self.send_ack(core, cx).map(Some);
            }
            self.clear(Flags::ACK_NOW);
            return Ok(None);
        }
        let out = self.send_syn(core, cx)?;
        let now = cx.now;
        if let Some(tx) = &mut self.tx {
            if first {
                tx.sent.push(Sent { seq: self.snd_una, len: 1, at: now, flags: sent::SYN });
                tx.since = Some(now);
            } else {
                tx.sent.retransmitted(0, now);
            }
        }
        if first {
            self.arm_rto(core, now);
        } else {
            self.retransmits += 1;
            self.set(Flags::SYN_LOST);
            core.stats.packets_retransmitted += 1;
            core.stats.syncache_retransmitted += u64::from(self.state == State::SynReceived);
        }
        Ok(Some(out))
    }

    /// Something deemed lost, if the window lets it out (RFC 6675 §5, rule C.1; RFC 6937).
    fn next_retransmission(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<Option<IpOutput>, NoFrame> {
        let outstanding = self.outstanding();
        let cwnd = self.congestion.cwnd;
        let Some(tx) = &mut self.tx else { return Ok(None) };
        let Some(index) = tx.sent.next_lost() else { return Ok(None) };
        let in_flight = tx.in_flight(outstanding);
        if in_flight >= cwnd && in_flight > 0 {
            return Ok(None);
        }
        let out = self.retransmit(core, cx, index)?;
        if let Some(tx) = &self.tx {
            if tx.phase == Phase::Recovery {
                core.stats.sack_rexmits += 1;
                core.stats.sack_rexmit_bytes += out.frame.chain_len() as u64;
            }
        }
        Ok(Some(out))
    }

    /// Sends the record at `index` again, at most one segment of it.
    pub(crate) fn retransmit(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        index: usize,
    ) -> Result<IpOutput, NoFrame> {
        let mss = self.effective_mss();
        let data_seq = self.data_seq();
        let Some(tx) = &mut self.tx else { return Err(NoFrame) };
        let Some(&record) = tx.sent.get(index) else { return Err(NoFrame) };
        let data = record.len - u32::from(record.is(sent::FIN));
        if data > mss {
            tx.sent.split(index, mss);
        }
        let record = tx.sent.get(index).copied().unwrap_or(record);
        let fin = record.is(sent::FIN);
        let len = record.len - u32::from(fin);
        let mut flags = TcpFlags::ACK;
        if fin {
            flags |= TcpFlags::FIN;
        }
        if record.is(sent::PUSH) && len > 0 {
            flags |= TcpFlags::PSH;
        }
        let plan = Plan {
            seq: record.seq,
            offset: record.seq.since(data_seq),
            len,
            flags,
            segment_size: 0,
            last: false,
            push: false,
        };
        let out = self.build(core, cx, &plan)?;
        if let Some(tx) = &mut self.tx {
            tx.sent.retransmitted(index, cx.now);
            tx.prr.out += record.len;
        }
        self.retransmits += 1;
        core.stats.packets_retransmitted += 1;
        core.stats.bytes_retransmitted += u64::from(len);
        Ok(out)
    }

    /// Sends what was planned and notes it.
    fn send_new(&mut self, core: &mut Core, cx: &mut Cx<'_>, plan: Plan) -> Result<IpOutput, NoFrame> {
        let (fin, now) = (plan.flags.contains(TcpFlags::FIN), cx.now);
        let answers = self.rcv_nxt != self.last_ack_sent;
        let push = if plan.push { TcpFlags::PSH } else { TcpFlags::default() };
        let out = self.build(core, cx, &Plan { flags: plan.flags | push, ..plan })?;
        let mut tx = match self.tx.take() {
            Some(tx) => tx,
            None => core.flight(),
        };
        let first = tx.sent.is_empty();
        let len = plan.len + u32::from(fin);
        let mut flags = 0;
        if fin {
            flags |= sent::FIN;
            self.set(Flags::FIN_SENT);
            core.stats.control_sent += 1;
        }
        if plan.flags.contains(TcpFlags::PSH) {
            flags |= sent::PUSH;
        }
        tx.sent.push(Sent { seq: plan.seq, len, at: now, flags });
        tx.prr.out += len;
        if first {
            tx.since = Some(now);
        }
        let end = plan.seq + len;
        if tx.records.front().is_some_and(|record| *record <= end) {
            tx.records.pop_front();
        }
        while tx.pushes.front().is_some_and(|push| *push <= end) {
            tx.pushes.pop_front();
        }
        let outstanding = end.since(self.snd_una);
        if self.snd_una >= tx.peak_end || outstanding > tx.peak {
            (tx.peak, tx.peak_end) = (outstanding, end);
        }
        self.tx = Some(tx);
        self.snd_nxt = end;
        if plan.len > 0 {
            core.stats.data_packets_sent += u64::from(plan.len.div_ceil(plan.segment_size.max(1)));
            core.stats.data_bytes_sent += u64::from(plan.len);
            if plan.len < self.effective_mss() {
                self.snd_sml = self.snd_nxt;
            }
            // An answer to data within the time of a delayed acknowledgement: the two sides converse.
            if answers && now.saturating_duration_since(self.heard_at) < core.config.delayed_ack {
                self.set(Flags::INTERACTIVE);
            }
            self.sent_ms = now.as_millis() as u32;
        }
        self.clear(Flags::FORCE | Flags::PROBE_TAIL);
        if first || self.rtx_kind_is_probe() {
            self.arm_rto(core, now);
        }
        self.arm_tail_probe(core, now);
        Ok(out)
    }

    /// RFC 8985 §7.3: new data if the windows let it out, else the last segment again.
    fn probe_tail(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<Option<IpOutput>, NoFrame> {
        let Some(last) = self.tx.as_ref().map(|tx| tx.sent.len()).filter(|len| *len > 0) else {
            self.clear(Flags::PROBE_TAIL);
            return Ok(None);
        };
        let mss = self.effective_mss();
        let mut index = last - 1;
        if let Some(tx) = &mut self.tx {
            let Some(&record) = tx.sent.get(index) else { return Ok(None) };
            let data = record.len - u32::from(record.is(sent::FIN));
            if data > mss {
                // The last segment of a batch.
                let tail = match data % mss {
                    0 => mss,
                    rest => rest,
                };
                tx.sent.split(index, data - tail);
                index += 1;
            }
        }
        let out = self.retransmit(core, cx, index)?;
        self.clear(Flags::PROBE_TAIL);
        if let Some(tx) = &mut self.tx {
            tx.tlp_is_retrans = true;
        }
        core.stats.tail_loss_probes += 1;
        Ok(Some(out))
    }

    /// A probe with an old sequence number and no data: whatever the peer's window, it must answer. Used for a closed
    /// window (RFC 9293 §3.8.6.1, MUST-35) and for keep-alive (§3.8.4).
    fn send_probe(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<IpOutput, NoFrame> {
        let plan = Plan {
            seq: self.snd_una - 1,
            offset: 0,
            len: 0,
            flags: TcpFlags::ACK,
            segment_size: 0,
            last: false,
            push: false,
        };
        let out = self.build(core, cx, &plan)?;
        if self.has(Flags::PROBE_WINDOW) {
            core.stats.window_probes_sent += 1;
        } else {
            core.stats.keepalive_probes_sent += 1;
        }
        self.clear(Flags::PROBE_WINDOW | Flags::PROBE_ALIVE);
        Ok(out)
    }

    /// A bare acknowledgement.
    fn send_ack(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<IpOutput, NoFrame> {
        let old_adv = self.rcv_adv;
        let nothing_new = self.rcv_nxt == self.last_ack_sent;
        let delayed = self.has(Flags::ACK_WAS_DELAYED);
        let plan = Plan {
            seq: self.snd_nxt,
            offset: 0,
            len: 0,
            flags: TcpFlags::ACK,
            segment_size: 0,
            last: false,
            push: false,
        };
        let out = self.build(core, cx, &plan)?;
        core.stats.ack_only_sent += 1;
        core.stats.delayed_acks_sent += u64::from(delayed);
        core.stats.window_updates_sent += u64::from(nothing_new && self.rcv_adv != old_adv);
        Ok(out)
    }

    /// SYN or SYN-ACK (RFC 9293 §3.5, RFC 7323 §2.2 and §3.2, RFC 3168 §6.1.1).
    fn send_syn(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<IpOutput, NoFrame> {
        let answer = self.state == State::SynReceived;
        let mut flags = TcpFlags::SYN;
        if answer {
            flags |= TcpFlags::ACK;
            if self.has(Flags::ECN) {
                flags |= TcpFlags::ECE;
            }
        } else if self.has(Flags::ECN_OFFERED) {
            flags |= TcpFlags::ECE | TcpFlags::CWR;
        }
        let options = TcpOptions {
            mss: Some(self.rcv_mss),
            window_scale: self.has(Flags::SCALING).then_some(self.rcv_scale),
            sack_permitted: self.has(Flags::SACK),
            timestamps: self.has(Flags::TIMESTAMPS).then(|| Timestamps {
                value: ts_clock(cx.now, self.ts_offset),
                echo: if answer { self.ts_recent } else { 0 },
            }),
            ..TcpOptions::default()
        };
        // RFC 7323 §2.2: the window of a SYN is never scaled.
        let window = self.recv_limit.min(0xffff);
        let header = TcpHeader {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: self.snd_una,
            ack: if answer { self.rcv_nxt } else { Seq(0) },
            flags,
            window: window as u16,
            urgent: 0,
        };
        let mut frame = cx.frames.alloc().ok_or(NoFrame)?;
        let room = frame.push_back(tcp::HEADER_LEN + options.len()).ok_or(NoFrame)?;
        header.emit(&options, room);
        if answer {
            self.last_ack_sent = self.rcv_nxt;
            self.rcv_adv = self.rcv_adv.max(self.rcv_nxt + window);
        }
        self.clear(Flags::ACK_NOW);
        core.stats.control_sent += 1;
        Ok(self.finish(core, cx, frame, 0))
    }

    /// Options of a segment after the handshake.
    fn segment_options(&mut self, core: &mut Core, cx: &Cx<'_>) -> TcpOptions {
        let mut options = TcpOptions::default();
        if self.has(Flags::TIMESTAMPS) {
            options.timestamps =
                Some(Timestamps { value: ts_clock(cx.now, self.ts_offset), echo: self.ts_recent });
        }
        if self.has(Flags::SACK) {
            if let Some(rx) = &mut self.rx {
                if rx.dsack.is_some() || !rx.early.is_empty() {
                    let max = if options.timestamps.is_some() { 3 } else { 4 };
                    options.sack = sack_blocks(rx, max, &mut core.stats.dsacks_sent);
                    core.stats.sack_options_sent += 1;
                }
            }
        }
        options
    }

    /// Builds the segment of `plan`: header, options and payload, acknowledging everything received.
    pub(crate) fn build(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        plan: &Plan,
    ) -> Result<IpOutput, NoFrame> {
        let mut frame = cx.frames.alloc().ok_or(NoFrame)?;
        let mut options = self.segment_options(core, cx);
        // RFC 6691 §3: options come out of the segment size; those of an acknowledgement do not fit beside full data.
        let full = self.effective_mss();
        if plan.len > 0 && plan.len + 40 > full && !options.sack.is_empty() {
            options.sack = SackBlocks::EMPTY;
        }
        let mut flags = plan.flags;
        if self.has(Flags::ECN) {
            if self.has(Flags::ECE) {
                flags |= TcpFlags::ECE;
            }
            if plan.len > 0 && self.has(Flags::CWR) && plan.seq == self.snd_nxt {
                flags |= TcpFlags::CWR;
                self.clear(Flags::CWR);
            }
        }
        let header = TcpHeader {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: plan.seq,
            ack: self.rcv_nxt,
            flags,
            window: self.advertise(core, cx),
            urgent: 0,
        };
        let room = frame.push_back(tcp::HEADER_LEN + options.len()).ok_or(NoFrame)?;
        header.emit(&options, room);
        if plan.len > 0 {
            let Some(tx) = &self.tx else { return Err(NoFrame) };
            let (a, b) = tx.data.slices(plan.offset as usize, plan.len as usize);
            debug_assert_eq!(a.len() + b.len(), plan.len as usize, "payload beyond the buffer");
            fill(&mut frame, a, b, cx)?;
            if plan.segment_size > 0 && plan.len > plan.segment_size {
                let meta = frame.meta_mut();
                meta.segmentation =
                    if self.tuple.local.is_ipv4() { Segmentation::TcpV4 } else { Segmentation::TcpV6 };
                meta.segment_size = plan.segment_size as u16;
            }
        }
        self.acknowledged_everything();
        // A report of a duplicate may have been all that was held.
        if self.rx.as_ref().is_some_and(|rx| rx.is_idle()) {
            if let Some(rx) = self.rx.take() {
                core.give_inflow(rx);
            }
        }
        // RFC 3168 §6.1.4, §6.1.5: ECT on new data only, not on acknowledgements, retransmissions and probes.
        let ecn = if plan.len > 0 && plan.seq == self.snd_nxt && self.has(Flags::ECN) { ECT0 } else { 0 };
        Ok(self.finish(core, cx, frame, ecn))
    }

    /// Every segment that carries an acknowledgement makes a delayed one unnecessary.
    fn acknowledged_everything(&mut self) {
        self.last_ack_sent = self.rcv_nxt;
        self.unacked_segments = 0;
        self.clear(Flags::ACK_NOW | Flags::ACK_DELAYED | Flags::ACK_WAS_DELAYED);
        self.ack_at = super::connection::NEVER;
    }

    /// Checksum and where to.
    fn finish(&self, core: &mut Core, cx: &Cx<'_>, mut frame: Frame, ecn: u8) -> IpOutput {
        seal(&mut frame, self.tuple.local, self.tuple.remote, cx.offload);
        let meta = frame.meta_mut();
        (meta.hash, meta.hash_type) = (self.hash, self.hash_type);
        core.stats.packets_sent += 1;
        IpOutput {
            frame,
            src: self.tuple.local,
            dst: self.tuple.remote,
            protocol: TCP.0,
            hop_limit: core.config.hop_limit,
            traffic_class: self.tos | ecn,
            dont_fragment: dont_fragment(self.tuple.local),
        }
    }

    /// The reset that ends this connection (RFC 9293 §3.5.2: at SND.NXT), for the reply queue.
    pub(crate) fn send_reset(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let header = TcpHeader {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: TcpFlags::RST | TcpFlags::ACK,
            window: 0,
            urgent: 0,
        };
        core.stats.resets_sent += 1;
        core.stats.control_sent += 1;
        // RFC 7323 §3.2: a reset should carry timestamps too.
        let timestamps = self.has(Flags::TIMESTAMPS) && self.state != State::SynSent;
        let options = TcpOptions {
            timestamps: timestamps
                .then(|| Timestamps { value: ts_clock(cx.now, self.ts_offset), echo: self.ts_recent }),
            ..TcpOptions::default()
        };
        let tuple = self.tuple;
        core.reply(cx, &tuple, &header, &options, self.reply_meta());
    }
}

/// D-SACK first, then the ranges held (RFC 2883 §4, RFC 2018 §4).
fn sack_blocks(rx: &mut super::recv_buffer::Inflow, max: usize, dsacks: &mut u64) -> SackBlocks {
    let mut blocks = SackBlocks::EMPTY;
    let mut room = max;
    if let Some((left, right)) = rx.dsack.take() {
        blocks.push(SackBlock { left, right });
        *dsacks += 1;
        room -= 1;
    }
    let mut ranges = [(Seq(0), Seq(0)); 4];
    let n = rx.early.blocks(&mut ranges[..room]);
    for &(left, right) in &ranges[..n] {
        blocks.push(SackBlock { left, right });
    }
    blocks
}

/// Puts payload behind the header; what does not fit goes into further frames of a chain.
#[inline]
fn fill(frame: &mut Frame, a: &[u8], b: &[u8], cx: &Cx<'_>) -> Result<(), NoFrame> {
    let len = a.len() + b.len();
    if len <= frame.tailroom() {
        let fits = frame.extend_from_slice(a) && (b.is_empty() || frame.extend_from_slice(b));
        debug_assert!(fits);
        return Ok(());
    }
    let here = frame.tailroom();
    let piece = |at: usize, n: usize| {
        let x = &a[at.min(a.len())..(at + n).min(a.len())];
        let y = &b[at.saturating_sub(a.len())..(at + n).saturating_sub(a.len())];
        (x, y)
    };
    // From the last frame to the first, because appending to a single frame is cheap.
    let mut chain: Option<Frame> = None;
    let size = frame.capacity();
    let rest = len - here;
    for n in (0..rest.div_ceil(size)).rev() {
        let mut next = cx.frames.alloc().ok_or(NoFrame)?;
        next.reset(0);
        let at = here + n * size;
        let (x, y) = piece(at, size.min(len - at));
        let fits = next.extend_from_slice(x) && next.extend_from_slice(y);
        debug_assert!(fits);
        if let Some(chain) = chain.take() {
            next.append(chain);
        }
        chain = Some(next);
    }
    let (x, y) = piece(0, here);
    let fits = frame.extend_from_slice(x) && frame.extend_from_slice(y);
    debug_assert!(fits);
    if let Some(chain) = chain {
        frame.append(chain);
    }
    Ok(())
}
