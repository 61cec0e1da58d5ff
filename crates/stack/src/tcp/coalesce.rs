//! Coalescing segments of one flow in a burst, as receive offloads of cards and kernels do (LRO, GRO).
//!
//! A link delivers bursts, and in a burst the segments of a bulk transfer follow one another. They are joined before input processing, so
//! that one pass through its steps, one acknowledgement and one wake-up serve all of them.
//!
//! ```text
//!   parse, checksum ──▶ next of a run? ── yes ──▶ joined ──┐ the run ends: PSH, FIN, 64 KiB, end of the burst,
//!                            │ no                          │ or a segment of its flow that does not follow
//!                            ├─ begins one ──▶ held ───────┤
//!                            └─ neither ──▶ input ◀────────┘
//! ```
//!
//! **Conditions.** The payload is exactly what its connection expects next, with nothing out of order, inside the window; acknowledgement, window,
//! timestamps and ECN marks are equal; ACK is the only flag but for the three of ECN, which are equal. The last segment may have PSH and FIN. All other segments are processed
//! alone, so duplicate acknowledgements (`answers`), SACK, resets, challenges and window probes are the same as without coalescing.
//! Checksums have been verified for each segment before.
//!
//! **Acknowledgements.** RFC 9293 §3.8.6.3 and RFC 5681 §4.2 require one for at least every second full segment. A joined run is acknowledged
//! once, as Linux does after GRO: separate acknowledgements would leave in one burst anyway, each superseded by the next before the
//! sender has received the first. Senders that count bytes (RFC 3465, ours and Linux's) grow their window as before. A run has at most
//! [`MAX_BYTES`], which bounds the distance between acknowledgements.
//!
//! **Bounds.** At most [`MAX_RUNS`] flows at once, each of the segments of one burst; nothing outlives [`Tcp::end_burst`].

use crate::packet::{Cx, IpInput};
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::segment::Segment;
use crate::tcp::table::{ConnId, Tuple};
use crate::tcp::{Seq, Tcp};
use crate::wire::TcpFlags;
use flowlane_sys::frame::Frame;

/// Flows with a run at once: a burst holds segments of few flows, or few segments of many.
const MAX_RUNS: usize = 8;
/// Payload bytes of a run: what the largest batch of a link holds too.
const MAX_BYTES: u32 = 1 << 16;

/// Segments of one flow, joined.
#[derive(Debug)]
struct Run {
    hash: u32,
    id: ConnId,
    tuple: Tuple,
    /// The first of them, with the length of all and the flags of the last.
    seg: Segment,
    /// Payload of the others, in order.
    more: Vec<Frame>,
    /// The right edge of the connection's window.
    right: Seq,
}

/// The runs of a burst.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    /// Lists for further runs, so that none is allocated twice.
    spare: Vec<Vec<Frame>>,
}

impl Runs {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Which of them is this flow's.
    fn of(&self, hash: u32, tuple: &Tuple) -> Option<usize> {
        self.runs.iter().position(|run| run.hash == hash && run.tuple == *tuple)
    }
}

/// What the last segment of a run may have, and what all of one may have: the bits of accurate ECN's counter (RFC 9768 §3.2.2).
const LAST: TcpFlags = TcpFlags(TcpFlags::PSH.0 | TcpFlags::FIN.0);
const COUNTER: TcpFlags = TcpFlags(TcpFlags::AE.0 | TcpFlags::CWR.0 | TcpFlags::ECE.0);

/// Nothing in the header keeps a segment from being the first of a run.
#[inline]
fn is_plain(seg: &Segment) -> bool {
    seg.flags.without(COUNTER) == TcpFlags::ACK && seg.options.sack.is_empty()
}

impl Run {
    /// Whether `seg` follows what has been joined.
    #[inline]
    fn is_followed_by(&self, seg: &Segment) -> bool {
        let first = &self.seg;
        // Guard: `seg.flags.without(LAST) == first.flags` as `true` fails coalesce::counters_of_accurate_ecn
        // Guard: `seg.seq == first.seq + first.len` as `true` fails coalesce::a_bad_checksum
        // Guard: `seg.ack == first.ack` as `true` fails coalesce::an_acknowledgement_within
        // Guard: `seg.end() <= self.right` as `true` fails coalesce::what_is_beyond
        seg.flags.without(LAST) == first.flags
            && seg.options.sack.is_empty()
            && seg.seq == first.seq + first.len
            && (seg.len > 0 || seg.is(TcpFlags::FIN))
            && seg.ack == first.ack
            && seg.window == first.window
            && seg.ecn == first.ecn
            && seg.options.timestamps == first.options.timestamps
            && first.len + seg.len <= MAX_BYTES
            && seg.end() <= self.right
    }

    #[inline]
    fn join(&mut self, seg: Segment) {
        let first = &mut self.seg;
        first.len += seg.len;
        first.merged += seg.merged;
        first.largest = first.largest.max(seg.largest);
        first.flags = seg.flags;
        if seg.len > 0 {
            self.more.extend(seg.frame);
        }
    }

    /// No further segment may be joined.
    #[inline]
    fn is_over(&self) -> bool {
        self.seg.is(TcpFlags::PSH | TcpFlags::FIN) || self.seg.len + self.seg.largest > MAX_BYTES
    }
}

impl Connection {
    /// Whether a run may begin with `seg`, which is plain data.
    #[inline]
    fn may_begin(&self, seg: &Segment) -> bool {
        seg.len < MAX_BYTES / 2
            && seg.seq == self.rcv.nxt()
            && seg.end() <= self.rcv.adv()
            && matches!(self.state(), State::Established | State::FinWait1 | State::FinWait2)
            && !self.has(Flags::DETACHED | Flags::READ_SHUT)
            && self.rx.get().is_none_or(|rx| rx.early.is_empty() && rx.fin().is_none())
    }
}

impl Tcp {
    /// Takes a packet of a burst, which [`Tcp::end_burst`] ends. Until then it may be held, to be joined with the following packets; no
    /// other calls are allowed in between.
    pub fn input_in_burst(&mut self, cx: &mut Cx<'_>, packet: IpInput) {
        self.burst_input(cx, packet);
    }

    /// The same, as part of its caller, where the packet is made and stays.
    #[inline(always)]
    pub(crate) fn burst_input(&mut self, cx: &mut Cx<'_>, packet: IpInput) {
        if !self.core.config.coalesce {
            return self.input(cx, packet);
        }
        let Some((header, data)) = self.check(&packet) else { return };
        let tuple = Tuple::of_input(&packet.ip, &header);
        let mut seg = Segment::new(packet, &header, data);
        self.core.stats.merged_received += u64::from(seg.merged - 1);
        let hash = self.core.table.hash(&tuple);
        let run = if self.runs.is_empty() { None } else { self.runs.of(hash, &tuple) };
        if let Some(at) = run {
            let run = &mut self.runs.runs[at];
            if run.is_followed_by(&seg) {
                run.join(seg);
                self.core.stats.coalesced_received += 1;
                if run.is_over() {
                    self.end_run(cx, at);
                }
                return;
            }
            self.end_run(cx, at);
        }
        let Some(id) = self.run_for(hash, &tuple, &seg) else {
            return self.segment_input(cx, hash, &tuple, &mut seg);
        };
        let right = self.connections.get(id).map_or(seg.seq, |c| c.rcv.adv());
        let more = self.runs.spare.pop().unwrap_or_default();
        self.runs.runs.push(Run { hash, id, tuple, seg, more, right });
    }

    /// The connection of a segment with which a run may begin.
    #[inline]
    fn run_for(&self, hash: u32, tuple: &Tuple, seg: &Segment) -> Option<ConnId> {
        // Most segments that cannot begin one say so themselves, and need not be looked up twice.
        let can = is_plain(seg) && seg.len > 0;
        if !can || self.runs.runs.len() >= MAX_RUNS {
            return None;
        }
        let slot = self.find_hashed(hash, tuple)?;
        let c = self.connections.get_slot(slot)?;
        c.may_begin(seg).then_some(c.id())
    }

    /// Handles what was held: to be called when the last packet of a burst was given in.
    #[inline]
    pub fn end_burst(&mut self, cx: &mut Cx<'_>) {
        while !self.runs.is_empty() {
            self.end_run(cx, 0);
        }
    }

    fn end_run(&mut self, cx: &mut Cx<'_>, at: usize) {
        let Run { hash, id, tuple, mut seg, mut more, .. } = self.runs.runs.remove(at);
        // From the last to the first, because appending to a single frame is cheap.
        let chain = more.drain(..).rev().reduce(|tail, mut frame| {
            frame.append(tail);
            frame
        });
        self.runs.spare.push(more);
        if let (Some(chain), Some(frame)) = (chain, &mut seg.frame) {
            frame.append(chain);
        }
        if self.connections.get(id).is_some() {
            self.connection_input(cx, id.slot, &mut seg);
        } else {
            self.segment_input(cx, hash, &tuple, &mut seg);
        }
    }
}
