//! Building one segment: header, options, payload, checksum.

use crate::packet::{Cx, IpOutput};
use crate::tcp::connection::recv_buffer::Inflow;
use crate::tcp::connection::{Connection, Flags, Lists, State};
use crate::tcp::lane::Core;
use crate::tcp::lane::replies::{dont_fragment, seal};
use crate::tcp::output::NoFrame;
use crate::tcp::output::payload::fill;
use crate::tcp::{Seq, TCP, ecn};
use crate::wire::tcp::{CUSTOMARY_SYN, WITH_TIMESTAMPS};
use crate::wire::tcp_options::MAX_LEN;
use crate::wire::{SackBlocks, Sum, TcpFlags, TcpHeader, TcpOptions, tcp};
use flowlane_sys::frame::{Frame, Segmentation};

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

impl Plan {
    /// Segments of `size` bytes that the payload fills. Where it fills one, which is nearly always, nothing is divided.
    #[inline]
    pub(crate) fn segments(&self, size: u32) -> u32 {
        if self.len <= size { u32::from(self.len > 0) } else { self.len.div_ceil(size.max(1)) }
    }

    /// An acknowledgement with nothing else in it.
    pub(crate) const fn bare(seq: Seq) -> Self {
        Self { seq, offset: 0, len: 0, flags: TcpFlags::ACK, segment_size: 0, last: false, push: false }
    }
}

/// Writes header and options of a SYN; their bytes and sum.
#[inline(always)]
fn write_syn(frame: &mut Frame, header: &TcpHeader, options: &TcpOptions) -> Result<(usize, Sum), NoFrame> {
    let room = frame.push_back(CUSTOMARY_SYN).and_then(|room| room.first_chunk_mut()).ok_or(NoFrame)?;
    if let Some(sum) = header.emit_customary_syn(options, room) {
        return Ok((CUSTOMARY_SYN, sum));
    }
    frame.truncate(0);
    let room = frame.push_back(tcp::HEADER_LEN + options.len()).ok_or(NoFrame)?;
    Ok(header.emit_summed(options, room))
}

impl Connection {
    /// SYN or SYN-ACK (RFC 9293 §3.5, RFC 7323 §2.2 and §3.2, RFC 3168 §6.1.1). Fast Open's option and data go with the first one
    /// only: what was lost may have been lost for them (RFC 7413 §4.1.3.1).
    pub(super) fn send_syn(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        first: bool,
        data: u32,
    ) -> Result<IpOutput, NoFrame> {
        let answer = self.state() == State::SynReceived;
        let mut flags = TcpFlags::SYN | self.ecn_setup(answer);
        if answer {
            flags |= TcpFlags::ACK;
        }
        let mut options = TcpOptions {
            mss: Some(self.mss.rcv()),
            window_scale: self.has(Flags::SCALING).then_some(self.scale.rcv()),
            sack_permitted: self.has(Flags::SACK),
            timestamps: self.has(Flags::TIMESTAMPS).then(|| self.stamps.option(cx.now)),
            fast_open: self.fast_open_option().filter(|_| first),
            ..TcpOptions::default()
        };
        // RFC 9768 §3.2.3.2: the first one tries whether the option comes through.
        // Guard: `first && answer && self.is_accurate()` as `answer && self.is_accurate()` fails
        // accurate::syn_acks_fall_back
        if first && answer && self.is_accurate() {
            options.accecn = ecn::syn_ack_option(&core.config, &options);
            core.stats.accecn_options_sent += u64::from(options.accecn.is_some());
        }
        let window = self.first_window(core, cx);
        let header = TcpHeader {
            src_port: self.local_port(),
            dst_port: self.remote_port(),
            seq: self.snd.una(),
            ack: if answer { self.rcv.nxt() } else { Seq(0) },
            flags,
            window: window as u16,
            urgent: 0,
        };
        let mut frame = cx.frames.alloc().ok_or(NoFrame)?;
        let written = write_syn(&mut frame, &header, &options)?;
        if let (true, Some(tx)) = (data > 0, self.tx.get_mut()) {
            fill(&mut frame, &mut tx.data, (0, data as usize), false, cx)?;
        }
        if options.fast_open.is_some() {
            self.fast_open_is_sent();
        }
        if answer {
            self.rcv.advertised(self.rcv.adv().max(self.rcv.nxt() + window));
            self.acknowledged_everything();
        }
        self.ack_went_out();
        core.stats.control_sent += 1;
        Ok(self.finish(core, cx, frame, written, 0))
    }

    /// Options of a segment after the handshake.
    fn segment_options(&mut self, core: &mut Core, cx: &Cx<'_>) -> TcpOptions {
        let mut options = TcpOptions::default();
        if self.has(Flags::TIMESTAMPS) {
            options.timestamps = Some(self.stamps.option(cx.now));
        }
        if self.has(Flags::SACK) {
            if let Some(mut rx) = self.rx.take() {
                options.sack = self.sack_blocks(&mut rx, &mut core.stats.dsacks_sent);
                core.stats.sack_options_sent += u64::from(!options.sack.is_empty());
                self.rx.put_back(rx);
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
        let new = plan.len > 0 && plan.seq == self.snd.nxt();
        let written = if self.has_only_timestamps() {
            let window = self.advertise(core, cx);
            let header = self.header(plan.seq, plan.flags, window);
            let room = frame.push_back(WITH_TIMESTAMPS).and_then(|room| room.first_chunk_mut());
            let sum = header.emit_with_timestamps(self.stamps.option(cx.now), room.ok_or(NoFrame)?);
            (WITH_TIMESTAMPS, sum)
        } else {
            self.write_header(core, cx, &mut frame, plan, new)?
        };
        if plan.len > 0 {
            let Some(tx) = self.tx.get_mut() else { return Err(NoFrame) };
            let cut = plan.segment_size > 0 && plan.len > plan.segment_size;
            fill(&mut frame, &mut tx.data, (plan.offset as usize, plan.len as usize), cut, cx)?;
            if cut {
                let meta = frame.meta_mut();
                meta.segmentation = if self.is_ipv4() { Segmentation::TcpV4 } else { Segmentation::TcpV6 };
                meta.segment_size = plan.segment_size as u16;
            }
        }
        self.acknowledged_everything();
        self.drop_idle_inflow(core);
        let ecn = if new { self.ecn_field() } else { 0 };
        Ok(self.finish(core, cx, frame, written, ecn))
    }

    /// Whether a segment after the handshake has the timestamps and no option beside them, nor a flag that is not planned.
    #[inline]
    fn has_only_timestamps(&self) -> bool {
        // Guard: `self.rx.get().is_none_or(Inflow::has_no_blocks)` as `true` fails guards::blocks_go_with_data
        self.has(Flags::TIMESTAMPS)
            && !self.has(Flags::ECN)
            && (!self.has(Flags::SACK) || self.rx.get().is_none_or(Inflow::has_no_blocks))
    }

    /// Acknowledges everything received.
    #[inline(always)]
    fn header(&self, seq: Seq, flags: TcpFlags, window: u16) -> TcpHeader {
        TcpHeader {
            src_port: self.local_port(),
            dst_port: self.remote_port(),
            seq,
            ack: self.rcv.nxt(),
            flags,
            window,
            urgent: 0,
        }
    }

    /// Writes header and options of the segment of `plan`, whatever they are; their bytes and sum. `new`: it has new data.
    #[inline(never)]
    fn write_header(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        frame: &mut Frame,
        plan: &Plan,
        new: bool,
    ) -> Result<(usize, Sum), NoFrame> {
        let mut options = self.segment_options(core, cx);
        if plan.len > 0 && !options.sack.is_empty() {
            // RFC 6691 §3: options come out of the segment size, which has room for timestamps already. RFC 2018 §4: as many blocks as fit.
            let spare = self.effective_mss().saturating_sub(plan.len);
            let others = TcpOptions { sack: SackBlocks::EMPTY, ..options }.len();
            // Guard: `(options.len() - others) as u32 > spare` as `false` fails guards::blocks_go_with_data
            while !options.sack.is_empty() && (options.len() - others) as u32 > spare {
                options.sack.pop();
            }
            core.stats.sack_options_sent -= u64::from(options.sack.is_empty());
        }
        let mut flags = plan.flags;
        if self.has(Flags::ECN) {
            // What new data has left to options, if it is cut by the link in each piece of it; bare acknowledgements have what there is.
            let piece = if plan.segment_size > 0 { plan.len.min(plan.segment_size) } else { plan.len };
            let spare = self.effective_mss().saturating_sub(piece) as usize;
            let blocks = options.len() - TcpOptions { sack: SackBlocks::EMPTY, ..options }.len();
            let room = match (plan.len > 0, new) {
                (false, _) => Some(MAX_LEN),
                (true, true) => Some(spare.saturating_sub(blocks)),
                (true, false) => None,
            };
            let bare = plan.len == 0 && !plan.flags.contains(TcpFlags::FIN);
            flags |= self.ecn_of_segment(core, cx.now, (&mut options, room), (new, bare));
        }
        let window = self.advertise(core, cx);
        let header = self.header(plan.seq, flags, window);
        let room = frame.push_back(tcp::HEADER_LEN + options.len()).ok_or(NoFrame)?;
        Ok(header.emit_summed(&options, room))
    }

    /// The first of the acknowledgements that answer one segment each.
    pub(super) fn send_answer(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<IpOutput, NoFrame> {
        let mut frame = cx.frames.alloc().ok_or(NoFrame)?;
        let noted = self.is_in(Lists::OWES);
        let answer = self.first_answer(core);
        let timestamps = self.has(Flags::TIMESTAMPS);
        let mut options = TcpOptions {
            timestamps: timestamps.then(|| self.stamps.option(cx.now)),
            sack: answer.blocks,
            ..TcpOptions::default()
        };
        let mut flags = TcpFlags::ACK;
        if self.has(Flags::ECN) {
            flags |= self.ecn_of_segment(core, cx.now, (&mut options, Some(MAX_LEN)), (false, true));
        }
        // RFC 5681 §2: with another window it would be no duplicate to a sender that counts them.
        let hole = self.rx.get().is_some_and(|rx| !rx.early.is_empty());
        let counted = hole && !self.has(Flags::SACK) && answer.ack == self.rcv.last_ack_sent();
        let header = TcpHeader {
            src_port: self.local_port(),
            dst_port: self.remote_port(),
            seq: self.snd.nxt(),
            ack: answer.ack,
            flags,
            // Guard: `noted` as `false` fails guards::a_noted_answer
            // Guard: `counted` as `false` fails answers::duplicates_without_sack_have_one_window
            window: if noted || counted {
                self.show(answer.ack, self.rcv.adv())
            } else {
                self.advertise(core, cx)
            },
            urgent: 0,
        };
        let room = frame.push_back(tcp::HEADER_LEN + options.len()).ok_or(NoFrame)?;
        let written = header.emit_summed(&options, room);
        core.stats.ack_only_sent += 1;
        core.stats.sack_options_sent += u64::from(!answer.blocks.is_empty());
        self.rcv.ack_sent(self.rcv.last_ack_sent().max(answer.ack));
        if noted {
            self.answered(core);
            if answer.ack == self.rcv.nxt() && !self.has(Flags::ACK_NOW) {
                self.acknowledged_everything();
            }
        } else {
            self.acknowledged_everything();
        }
        self.drop_idle_inflow(core);
        Ok(self.finish(core, cx, frame, written, 0))
    }

    /// A report of a duplicate may have been all that was held.
    #[inline]
    fn drop_idle_inflow(&mut self, core: &mut Core) {
        if let Some(rx) = self.rx.take_if(Inflow::is_idle) {
            core.give_inflow(rx);
        }
    }

    /// Checksum and where to.
    #[inline(always)]
    fn finish(
        &self,
        core: &mut Core,
        cx: &Cx<'_>,
        mut frame: Frame,
        written: (usize, Sum),
        ecn: u8,
    ) -> IpOutput {
        let (src, dst) = (self.local(), self.remote());
        seal(&mut frame, src, dst, cx.offload, written);
        let meta = frame.meta_mut();
        (meta.hash, meta.hash_type) = (self.flow_hash(), self.hash_type());
        core.stats.packets_sent += 1;
        IpOutput {
            frame,
            src,
            dst,
            protocol: TCP.0,
            hop_limit: self
                .options()
                .and_then(|o| o.hop_limit)
                .map_or(core.config.hop_limit, |hops| hops.max(1)),
            traffic_class: self.tos() | ecn,
            dont_fragment: dont_fragment(src),
        }
    }
}
