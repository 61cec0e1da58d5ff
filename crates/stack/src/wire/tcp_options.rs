//! TCP options.
//!
//! RFC 9293 §3.2 (the format, maximum segment size), RFC 7323 (window scale, timestamps), RFC 2018 (selective
//! acknowledgment), RFC 2883 (its use for duplicates), RFC 7413 (Fast Open, and the experimental form of its draft), RFC 9768 §3.2.3
//! (counters of accurate ECN).
//!
//! Reading never fails. A list that stops making sense (an option of length zero or one, or past the end) is read up
//! to there and marked [`broken`](TcpOptions::broken); an option of the wrong length for its kind, or of a kind that is
//! not known, is skipped. What is allowed only with SYN is not enforced here. If an option comes twice, the last
//! counts.
//!
//! Nearly every segment of a connection either has no options or has "no-op, no-op, timestamps" and nothing else,
//! so that layout is recognised by its first four bytes.
//!
//! The SYN's customary twenty bytes, below, are recognised the same way.
//!
//! Writing follows the order that Linux made customary, padded with no-ops in front so that four-byte numbers are
//! aligned:
//!
//! ```text
//!   mss(4)  sackOK(2) timestamps(10)  nop wscale(3)  nop nop sack(2+8n)      with both sackOK and timestamps
//!   mss(4)  nop nop sackOK(2)  nop wscale(3)                                 without timestamps
//!           nop nop timestamps(10)  nop nop sack(2+8n)                       later on
//! ```
//!
//! The counters of accurate ECN stand behind segment size and timestamps, with no-ops behind them. Fast Open stands behind all of these,
//! with no-ops behind it, too.

use super::{AccEcnOption, SeqNum, Sum, array_at, be16, be32};

/// The most bytes of options a header can hold.
pub const MAX_LEN: usize = 40;
/// The most blocks an SACK option can hold.
pub const MAX_SACK_BLOCKS: usize = 4;
/// The largest shift that may be used (RFC 7323 §2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const TIMESTAMPS_LEN: u8 = 10;
const FAST_OPEN: u8 = 34;
/// RFC 4727's first number for experiments, with the draft's magic number of Fast Open (RFC 6994).
const EXPERIMENT: u8 = 254;
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];

/// The two clocks of the timestamps option.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The receiver's clock as the sender last saw it.
    pub echo: u32,
}

impl Timestamps {
    /// What stands before the two clocks: kind and length, with two no-ops in front.
    pub(super) const KIND: u32 = u32::from_be_bytes([NOP, NOP, TIMESTAMPS, TIMESTAMPS_LEN]);
}

/// Bytes that have arrived: from `left` up to but not including `right`. Not checked to be in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBlock {
    /// The first sequence number.
    pub left: SeqNum,
    /// The one after the last.
    pub right: SeqNum,
}

/// Up to four blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; MAX_SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// No block.
    pub const EMPTY: SackBlocks =
        SackBlocks { blocks: [SackBlock { left: SeqNum(0), right: SeqNum(0) }; MAX_SACK_BLOCKS], len: 0 };

    /// Adds a block; false if there are four already.
    #[inline]
    pub fn push(&mut self, block: SackBlock) -> bool {
        match self.blocks.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = block;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// Leaves the last block out.
    pub fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = SackBlock::default();
        }
    }

    /// The blocks, in the order of the wire.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[SackBlock] {
        self.blocks.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A Fast Open option (RFC 7413 §2): a cookie, or the request for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FastOpenOption {
    bytes: [u8; FastOpenOption::MAX],
    len: u8,
    experimental: bool,
}

impl FastOpenOption {
    /// The least and the most bytes of a cookie.
    pub const MIN: usize = 4;
    /// The most bytes of a cookie.
    pub const MAX: usize = 16;

    /// Asks for a cookie; `experimental`: in the form of the draft, which old servers know.
    #[must_use]
    pub const fn request(experimental: bool) -> Self {
        Self { bytes: [0; Self::MAX], len: 0, experimental }
    }

    /// Carries a cookie; `None` if it cannot be one: 4 to 16 bytes, an even number.
    #[must_use]
    pub fn cookie(cookie: &[u8], experimental: bool) -> Option<Self> {
        if !(Self::MIN..=Self::MAX).contains(&cookie.len()) || cookie.len() % 2 != 0 {
            return None;
        }
        let mut option = Self::request(experimental);
        option.bytes[..cookie.len()].copy_from_slice(cookie);
        option.len = cookie.len() as u8;
        Some(option)
    }

    /// The cookie's bytes; none in a request.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether it asks for a cookie.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }

    /// Whether it has the form of the draft (kind 254) instead of the standard's (kind 34).
    #[must_use]
    pub const fn is_experimental(&self) -> bool {
        self.experimental
    }

    /// Bytes on the wire, no-ops behind it included.
    const fn wire_len(&self) -> usize {
        let head = if self.experimental { 4 } else { 2 };
        (head + self.len as usize).next_multiple_of(4)
    }

    /// What is read from the bytes behind kind and length, or behind the magic number.
    fn read(data: &[u8], experimental: bool) -> Option<Self> {
        if data.is_empty() { Some(Self::request(experimental)) } else { Self::cookie(data, experimental) }
    }
}

impl core::fmt::Debug for FastOpenOption {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.experimental { "FOEXP" } else { "FO" })?;
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The options of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpOptions {
    /// The longest segment the sender wants to receive.
    pub mss: Option<u16>,
    /// The shift of the sender's windows, at most [`MAX_WINDOW_SCALE`] however large it was.
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgment.
    pub sack_permitted: bool,
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgments.
    pub sack: SackBlocks,
    /// Fast Open; means something with SYN only.
    pub fast_open: Option<FastOpenOption>,
    /// Counters of accurate ECN; mean nothing in a SYN without ACK.
    pub accecn: Option<AccEcnOption>,
    /// The list stopped making sense before its end. Read only.
    pub broken: bool,
}

impl TcpOptions {
    /// Reads the bytes between the fixed header and the data.
    #[inline(always)]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> TcpOptions {
        if bytes.is_empty() {
            return TcpOptions::default();
        }
        if let Ok(h) = <&[u8; 12]>::try_from(bytes) {
            if be32(h, 0) == Timestamps::KIND {
                let timestamps = Timestamps { value: be32(h, 4), echo: be32(h, 8) };
                return TcpOptions { timestamps: Some(timestamps), ..TcpOptions::default() };
            }
        }
        if let Ok(h) = <&[u8; 20]>::try_from(bytes) {
            if let Some(options) = customary_syn(h) {
                return options;
            }
        }
        parse_list(bytes)
    }

    /// Length on the wire when emitted: a multiple of four.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len_without_sack() + sack_len(self.fitting_blocks())
    }

    /// Whether nothing would be emitted.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn len_without_sack(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += 4;
        }
        if self.timestamps.is_some() {
            // SACK permitted takes the place of the two no-ops.
            len += 12;
        } else if self.sack_permitted {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        if let Some(fast_open) = &self.fast_open {
            len += fast_open.wire_len();
        }
        if let Some(accecn) = &self.accecn {
            len += accecn.wire_len();
        }
        len
    }

    /// The options as they are written, if they are those of nearly every SYN.
    #[inline(always)]
    pub(super) fn as_customary_syn(&self) -> Option<[u32; 5]> {
        let others = self.fast_open.is_some() || self.accecn.is_some() || !self.sack.is_empty();
        let (Some(mss), Some(shift), Some(timestamps), true, false) =
            (self.mss, self.window_scale, self.timestamps, self.sack_permitted, others)
        else {
            return None;
        };
        let [high, low] = mss.to_be_bytes();
        Some([
            u32::from_be_bytes([MSS, 4, high, low]),
            u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMPS, TIMESTAMPS_LEN]),
            timestamps.value,
            timestamps.echo,
            u32::from_be_bytes([NOP, WINDOW_SCALE, 3, shift]),
        ])
    }

    /// How many SACK blocks fit behind the other options.
    #[inline]
    fn fitting_blocks(&self) -> usize {
        let blocks = usize::from(self.sack.len);
        if blocks == 0 { 0 } else { blocks.min(MAX_LEN.saturating_sub(self.len_without_sack() + 4) / 8) }
    }

    /// Writes the options to the front of `bytes` and returns their length. SACK blocks that do not fit are left out from
    /// the end; with timestamps, three fit.
    ///
    /// # Panics
    /// If `bytes` is too short.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        self.emit_summed(bytes).0
    }

    /// As [`emit`](TcpOptions::emit), and returns the sum over what was written beside its length.
    #[inline]
    pub(super) fn emit_summed(&self, bytes: &mut [u8]) -> (usize, Sum) {
        let mut out = Writer { bytes, at: 0, sum: Sum::EMPTY };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            out.put([MSS, 4, high, low]);
        }
        if let Some(timestamps) = self.timestamps {
            let front = if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] };
            out.put([front[0], front[1], TIMESTAMPS, TIMESTAMPS_LEN]);
            out.put(timestamps.value.to_be_bytes());
            out.put(timestamps.echo.to_be_bytes());
        }
        if let Some(accecn) = &self.accecn {
            put_accecn(&mut out, accecn);
        }
        if self.sack_permitted && self.timestamps.is_none() {
            out.put([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            out.put([NOP, WINDOW_SCALE, 3, shift]);
        }
        let fitting = self.fitting_blocks();
        if fitting > 0 {
            out.put([NOP, NOP, SACK, 2 + 8 * fitting as u8]);
            for block in self.sack.as_slice().iter().take(fitting) {
                out.put(block.left.0.to_be_bytes());
                out.put(block.right.0.to_be_bytes());
            }
        }
        if let Some(fast_open) = &self.fast_open {
            put_fast_open(&mut out, fast_open);
        }
        (out.at, out.sum)
    }
}

#[cold]
fn put_fast_open(out: &mut Writer<'_>, option: &FastOpenOption) {
    let mut bytes = [NOP; 4 + FastOpenOption::MAX];
    let head: &[u8] = if option.experimental {
        &[EXPERIMENT, 4 + option.len, FAST_OPEN_MAGIC[0], FAST_OPEN_MAGIC[1]]
    } else {
        &[FAST_OPEN, 2 + option.len]
    };
    let cookie = option.as_slice();
    bytes[..head.len()].copy_from_slice(head);
    bytes[head.len()..head.len() + cookie.len()].copy_from_slice(cookie);
    for four in bytes[..option.wire_len()].chunks_exact(4) {
        out.put([four[0], four[1], four[2], four[3]]);
    }
}

#[cold]
fn put_accecn(out: &mut Writer<'_>, option: &AccEcnOption) {
    let mut bytes = [NOP; AccEcnOption::MAX_WIRE_LEN];
    option.emit(&mut bytes);
    for four in bytes[..option.wire_len()].chunks_exact(4) {
        out.put([four[0], four[1], four[2], four[3]]);
    }
}

/// Everything goes out in groups of four bytes.
struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
    sum: Sum,
}

impl Writer<'_> {
    #[inline(always)]
    #[track_caller]
    fn put(&mut self, four: [u8; 4]) {
        self.bytes[self.at..self.at + 4].copy_from_slice(&four);
        self.at += 4;
        self.sum = self.sum.add_u32(u32::from_be_bytes(four));
    }
}

#[inline]
const fn sack_len(blocks: usize) -> usize {
    if blocks == 0 { 0 } else { 4 + 8 * blocks }
}

/// The options of nearly every SYN, in their customary order.
#[inline]
fn customary_syn(h: &[u8; 20]) -> Option<TcpOptions> {
    let customary = h[..2] == [MSS, 4]
        && be32(h, 4) == u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMPS, TIMESTAMPS_LEN])
        && h[16..19] == [NOP, WINDOW_SCALE, 3];
    customary.then(|| TcpOptions {
        mss: Some(be16(h, 2)),
        window_scale: Some(h[19].min(MAX_WINDOW_SCALE)),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: be32(h, 8), echo: be32(h, 12) }),
        ..TcpOptions::default()
    })
}

#[inline(never)]
fn parse_list(bytes: &[u8]) -> TcpOptions {
    let mut options = TcpOptions::default();
    let mut rest = bytes;
    while let Some((&kind, after)) = rest.split_first() {
        match kind {
            END => break,
            NOP => {
                rest = after;
                continue;
            }
            _ => {}
        }
        let len = after.first().map_or(0, |len| usize::from(*len));
        let (Some(data), Some(next)) = (rest.get(2..len), rest.get(len..)) else {
            // Guard: no `options.broken = true;` fails attacks::cut_segments options::absurd
            // wire::tcp_options
            options.broken = true;
            break;
        };
        read_option(&mut options, kind, data);
        rest = next;
    }
    options
}

fn read_option(options: &mut TcpOptions, kind: u8, data: &[u8]) {
    match (kind, data.len()) {
        (MSS, 2) => options.mss = array_at::<2>(data, 0).map(|d| be16(d, 0)),
        (WINDOW_SCALE, 1) => options.window_scale = data.first().map(|shift| (*shift).min(MAX_WINDOW_SCALE)),
        (SACK_PERMITTED, 0) => options.sack_permitted = true,
        (TIMESTAMPS, 8) => {
            options.timestamps =
                array_at::<8>(data, 0).map(|d| Timestamps { value: be32(d, 0), echo: be32(d, 4) });
        }
        (SACK, 8 | 16 | 24 | 32) => {
            options.sack = SackBlocks::EMPTY;
            let mut at = 0;
            while let Some(d) = array_at::<8>(data, at) {
                options.sack.push(SackBlock { left: SeqNum(be32(d, 0)), right: SeqNum(be32(d, 4)) });
                at += 8;
            }
        }
        // Of an odd length it is passed over; any other impossible length takes back what came before it.
        (FAST_OPEN, len) if len % 2 == 0 => options.fast_open = FastOpenOption::read(data, false),
        (AccEcnOption::ORDER_0 | AccEcnOption::ORDER_1, _) => {
            options.accecn = AccEcnOption::read(kind, data);
        }
        (EXPERIMENT, len) if len >= 2 && len % 2 == 0 && data[..2] == FAST_OPEN_MAGIC => {
            options.fast_open = FastOpenOption::read(&data[2..], true);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TS: Timestamps = Timestamps { value: 0x0102_0304, echo: 0x0506_0708 };

    fn sack(n: u32) -> SackBlocks {
        let mut sack = SackBlocks::EMPTY;
        for i in 0..n {
            assert!(sack.push(SackBlock { left: SeqNum(i * 100), right: SeqNum(i * 100 + 50) }));
        }
        sack
    }

    fn emitted(options: TcpOptions) -> Vec<u8> {
        let mut bytes = [0xa5; MAX_LEN];
        let len = options.emit(&mut bytes);
        assert_eq!(len, options.len());
        bytes[..len].to_vec()
    }

    #[test]
    fn the_customary_layouts() {
        let syn = TcpOptions {
            mss: Some(1460),
            sack_permitted: true,
            window_scale: Some(8),
            ..TcpOptions::default()
        };
        assert_eq!(emitted(syn), [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 8]);
        let with_ts = TcpOptions { timestamps: Some(TS), ..syn };
        assert_eq!(emitted(with_ts), [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 8]);
        let data = TcpOptions { timestamps: Some(TS), ..TcpOptions::default() };
        assert_eq!(emitted(data), [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        let ack = TcpOptions { sack: sack(1), ..TcpOptions::default() };
        assert_eq!(emitted(ack), [1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 50]);
        assert!(emitted(TcpOptions::default()).is_empty());
    }

    #[test]
    fn four_blocks_fit_and_three_beside_timestamps() {
        let four = TcpOptions { sack: sack(4), ..TcpOptions::default() };
        assert_eq!(TcpOptions::parse(&emitted(four)), four);
        let beside = TcpOptions { timestamps: Some(TS), ..four };
        assert_eq!(emitted(beside).len(), 40);
        assert_eq!(TcpOptions::parse(&emitted(beside)).sack, sack(3));
        assert!(!{ sack(4) }.push(SackBlock::default()));
    }

    #[test]
    fn fast_open_stands_last() {
        let syn = TcpOptions { mss: Some(1460), window_scale: Some(8), ..TcpOptions::default() };
        let with = |option| TcpOptions { fast_open: Some(option), ..syn };
        let head = [2, 4, 5, 180, 1, 3, 3, 8];
        let cookie = |bytes: &[u8], experimental| FastOpenOption::cookie(bytes, experimental).unwrap();
        for (option, wire) in [
            (FastOpenOption::request(false), &[34, 2, 1, 1][..]),
            (FastOpenOption::request(true), &[254, 4, 0xf9, 0x89]),
            (cookie(&[1, 2, 3, 4], false), &[34, 6, 1, 2, 3, 4, 1, 1]),
            (cookie(&[1, 2, 3, 4, 5, 6], false), &[34, 8, 1, 2, 3, 4, 5, 6]),
            (cookie(&[1, 2, 3, 4], true), &[254, 8, 0xf9, 0x89, 1, 2, 3, 4]),
        ] {
            let bytes = emitted(with(option));
            assert_eq!(bytes, [&head, wire].concat());
            assert_eq!(TcpOptions::parse(&bytes), with(option));
        }
        // The longest beside all that a SYN carries.
        let all = TcpOptions { sack_permitted: true, timestamps: Some(TS), ..with(cookie(&[9; 16], true)) };
        assert_eq!(emitted(all).len(), 40);
    }

    #[test]
    fn impossible_cookies_are_none() {
        for bad in [0, 1, 2, 3, 5, 18, 17] {
            assert_eq!(FastOpenOption::cookie(&vec![1; bad], false), None, "{bad}");
        }
        let read = |bytes: &[u8]| TcpOptions::parse(bytes).fast_open;
        assert_eq!(read(&[34, 4, 1, 2]), None);
        assert_eq!(read(&[254, 6, 0xf9, 0x89, 1, 2]), None);
        assert_eq!(read(&[254, 4, 0xf9, 0x88]), None, "somebody else's experiment");
        assert_eq!(read(&[254, 3, 0xf9, 1]), None);
        let kept = FastOpenOption::cookie(&[1, 2, 3, 4], false);
        assert_eq!(read(&[34, 6, 1, 2, 3, 4, 34, 5, 9, 9, 9]), kept, "an odd one is passed over");
        assert_eq!(read(&[34, 6, 1, 2, 3, 4, 34, 4, 9, 9]), None, "the last counts");
    }

    #[test]
    fn lists_that_stop_making_sense_are_read_up_to_there() {
        for bad in [&[2, 4, 5][..], &[2, 0, 5, 180], &[2, 1, 5, 180], &[8], &[30, 41, 0, 0]] {
            let bytes = [&[3, 3, 7, 1][..], bad].concat();
            let want = TcpOptions { window_scale: Some(7), broken: true, ..TcpOptions::default() };
            assert_eq!(TcpOptions::parse(&bytes), want, "{bad:?}");
        }
    }

    #[test]
    fn unknown_kinds_and_wrong_lengths_are_skipped() {
        for other in
            [&[254, 5, 1, 2, 3][..], &[2, 3, 5], &[3, 2], &[4, 3, 0], &[8, 9, 0, 0, 0, 0, 0, 0, 0], &[5, 2]]
        {
            let bytes = [other, &[2, 4, 5, 180]].concat();
            let want = TcpOptions { mss: Some(1460), ..TcpOptions::default() };
            assert_eq!(TcpOptions::parse(&bytes), want, "{other:?}");
        }
        assert_eq!(TcpOptions::parse(&[0, 2, 4, 5, 180]), TcpOptions::default());
        assert_eq!(TcpOptions::parse(&[3, 3, 200]).window_scale, Some(14));
    }

    fn any_options() -> impl Strategy<Value = TcpOptions> {
        let blocks = proptest::collection::vec(any::<(u32, u32)>(), 0..=4);
        let cookie = (proptest::collection::vec(any::<u8>(), 0..=16), any::<bool>());
        let fast_open = proptest::option::of(
            cookie.prop_filter_map("a cookie", |(bytes, exp)| FastOpenOption::read(&bytes, exp)),
        );
        (
            any::<Option<u16>>(),
            proptest::option::of(0u8..=14),
            any::<bool>(),
            any::<Option<(u32, u32)>>(),
            blocks,
            fast_open,
        )
            .prop_map(|(mss, window_scale, sack_permitted, ts, blocks, fast_open)| {
                let mut options = TcpOptions {
                    mss,
                    window_scale,
                    sack_permitted,
                    timestamps: ts.map(|(value, echo)| Timestamps { value, echo }),
                    fast_open,
                    ..TcpOptions::default()
                };
                for (left, right) in blocks {
                    options.sack.push(SackBlock { left: SeqNum(left), right: SeqNum(right) });
                }
                options
            })
    }

    proptest! {
        /// The layouts that are recognised at once are read as any other list.
        #[test]
        fn the_short_ways_read_what_the_long_way_reads(
            bytes in proptest::sample::select(vec![
                vec![2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 8],
                vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
            ]),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let mut bytes = bytes;
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            prop_assert_eq!(TcpOptions::parse(&bytes), parse_list(&bytes));
        }

        #[test]
        fn round_trip(options in any_options()) {
            let bytes = emitted(options);
            prop_assert!(bytes.len() <= MAX_LEN && bytes.len() % 4 == 0);
            let parsed = TcpOptions::parse(&bytes);
            let fitting = parsed.sack.as_slice().len();
            prop_assert_eq!(parsed.sack.as_slice(), &options.sack.as_slice()[..fitting]);
            prop_assert_eq!(TcpOptions { sack: options.sack, ..parsed }, options);
            // A block is left out only if there is no room for it.
            prop_assert!(fitting == options.sack.as_slice().len() || bytes.len() > MAX_LEN - 12);
        }

        #[test]
        fn the_short_way_equals_the_long_way(mut bytes in any::<[u8; 12]>(), layout in any::<bool>()) {
            if layout {
                bytes[..4].copy_from_slice(&[1, 1, 8, 10]);
            }
            prop_assert_eq!(TcpOptions::parse(&bytes), parse_list(&bytes));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..12, Just(34), Just(254)], 0..=40)) {
            let parsed = TcpOptions::parse(&bytes);
            let again = TcpOptions::parse(&emitted(parsed));
            prop_assert_eq!((again.mss, again.timestamps), (parsed.mss, parsed.timestamps));
            prop_assert_eq!(again.fast_open, parsed.fast_open);
        }
    }
}
