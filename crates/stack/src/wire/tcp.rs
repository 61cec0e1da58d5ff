//! The TCP header.
//!
//! RFC 9293 §3.1 (the header), RFC 3168 §6.1 (the ECN flags), RFC 9768 (the ninth flag).
//!
//! ```text
//!    0               8               16                            31
//!   | source port                   | destination port              |
//!   | sequence number                                               |
//!   | acknowledgment number                                         |
//!   | offset| 0   | flags           | window                        |
//!   | checksum                      | urgent pointer                |
//!   | options, padded to four bytes                                 |
//! ```
//!
//! Parsing the header and parsing its options are two steps: the header alone finds the connection, and a connection
//! may know a faster way to its options than the general one. See [`tcp_options`](super::tcp_options).

use core::fmt;
use core::ops::{BitOr, BitOrAssign, Range};

use super::{Malformed, SeqNum, Sum, TcpOptions, Timestamps, be16, be32, room};

/// Length of the header without options.
pub const HEADER_LEN: usize = 20;
/// Length of the longest possible header.
pub const MAX_HEADER_LEN: usize = 60;

/// The control bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u16);

impl TcpFlags {
    /// None of them.
    pub const NONE: TcpFlags = TcpFlags(0);
    /// No more data from the sender.
    pub const FIN: TcpFlags = TcpFlags(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: TcpFlags = TcpFlags(0x002);
    /// Reset the connection.
    pub const RST: TcpFlags = TcpFlags(0x004);
    /// Push.
    pub const PSH: TcpFlags = TcpFlags(0x008);
    /// The acknowledgment number counts.
    pub const ACK: TcpFlags = TcpFlags(0x010);
    /// The urgent pointer counts.
    pub const URG: TcpFlags = TcpFlags(0x020);
    /// ECN: congestion was experienced.
    pub const ECE: TcpFlags = TcpFlags(0x040);
    /// ECN: the congestion window was reduced.
    pub const CWR: TcpFlags = TcpFlags(0x080);
    /// Accurate ECN.
    pub const AE: TcpFlags = TcpFlags(0x100);

    const ALL: u16 = 0x1ff;
    const NAMES: [(TcpFlags, &str); 9] = [
        (TcpFlags::SYN, "SYN"),
        (TcpFlags::FIN, "FIN"),
        (TcpFlags::RST, "RST"),
        (TcpFlags::PSH, "PSH"),
        (TcpFlags::ACK, "ACK"),
        (TcpFlags::URG, "URG"),
        (TcpFlags::ECE, "ECE"),
        (TcpFlags::CWR, "CWR"),
        (TcpFlags::AE, "AE"),
    ];

    /// Whether all of `flags` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, flags: TcpFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, flags: TcpFlags) -> bool {
        self.0 & flags.0 != 0
    }

    /// These flags without `flags`.
    #[inline]
    #[must_use]
    pub const fn without(self, flags: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 & !flags.0)
    }
}

impl BitOr for TcpFlags {
    type Output = TcpFlags;

    #[inline]
    fn bitor(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

impl BitOrAssign for TcpFlags {
    #[inline]
    fn bitor_assign(&mut self, other: TcpFlags) {
        self.0 |= other.0;
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (flag, name) in TcpFlags::NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The header of a segment, without its options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// The first byte's sequence number; with SYN, the SYN's.
    pub seq: SeqNum,
    /// The next sequence number expected, if ACK is set.
    pub ack: SeqNum,
    /// The control bits.
    pub flags: TcpFlags,
    /// The window as it stands, not scaled.
    pub window: u16,
    /// The urgent pointer, if URG is set.
    pub urgent: u16,
}

impl TcpHeader {
    /// Reads a header from an IP payload. The range is that of the data; the options are `segment[20..range.start]`. The
    /// checksum is not verified: see [`intact`].
    ///
    /// # Errors
    /// [`Malformed::TcpShort`], [`Malformed::TcpDataOffset`].
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(TcpHeader, Range<usize>), Malformed> {
        let Some(h) = segment.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::TcpShort);
        };
        let offset_and_flags = be16(h, 12);
        let header_len = usize::from(offset_and_flags >> 12) * 4;
        if header_len < HEADER_LEN || header_len > segment.len() {
            return Err(Malformed::TcpDataOffset);
        }
        let header = TcpHeader {
            src_port: be16(h, 0),
            dst_port: be16(h, 2),
            seq: SeqNum(be32(h, 4)),
            ack: SeqNum(be32(h, 8)),
            flags: TcpFlags(offset_and_flags & TcpFlags::ALL),
            window: be16(h, 14),
            urgent: be16(h, 18),
        };
        Ok((header, header_len..segment.len()))
    }

    /// How much of the sequence space a segment with this header and `data_len` bytes takes (RFC 9293 §3.4).
    #[inline]
    #[must_use]
    pub const fn sequence_len(&self, data_len: u32) -> u32 {
        data_len + self.flags.contains(TcpFlags::SYN) as u32 + self.flags.contains(TcpFlags::FIN) as u32
    }

    /// Writes the header and its options, with a checksum of zero, to the front of `segment` and returns their length. See
    /// [`fill_checksum`] and [`put_checksum`].
    ///
    /// # Panics
    /// If `segment` is too short.
    #[inline]
    pub fn emit(&self, options: &TcpOptions, segment: &mut [u8]) -> usize {
        let header_len = HEADER_LEN + options.emit(segment.get_mut(HEADER_LEN..).unwrap_or_default());
        write(&self.words(header_len), 0, segment);
        header_len
    }

    /// As [`emit`](TcpHeader::emit), and returns the sum over what was written beside its length, so that no byte of it is read again.
    #[inline]
    pub(crate) fn emit_summed(&self, options: &TcpOptions, segment: &mut [u8]) -> (usize, Sum) {
        let (options_len, sum) = options.emit_summed(segment.get_mut(HEADER_LEN..).unwrap_or_default());
        let header_len = HEADER_LEN + options_len;
        let words = self.words(header_len);
        write(&words, 0, segment);
        (header_len, words.iter().fold(sum, |sum, word| sum.add_u32(*word)))
    }

    /// As [`emit_summed`](TcpHeader::emit_summed) of a SYN with the customary options; `None` if it has others.
    #[inline(always)]
    pub(crate) fn emit_customary_syn(
        &self,
        options: &TcpOptions,
        segment: &mut [u8; CUSTOMARY_SYN],
    ) -> Option<Sum> {
        let [f, g, h, i, j] = options.as_customary_syn()?;
        let [a, b, c, d, e] = self.words(CUSTOMARY_SYN);
        Some(put_words(segment, [a, b, c, d, e, f, g, h, i, j]))
    }

    /// As [`emit_summed`](TcpHeader::emit_summed) of a header whose only option is timestamps, as nearly all have.
    #[inline(always)]
    pub(crate) fn emit_with_timestamps(
        &self,
        timestamps: Timestamps,
        segment: &mut [u8; WITH_TIMESTAMPS],
    ) -> Sum {
        let [a, b, c, d, e] = self.words(WITH_TIMESTAMPS);
        put_words(segment, [a, b, c, d, e, Timestamps::KIND, timestamps.value, timestamps.echo])
    }

    /// Writes the header and its options to the front of `segment`, behind which the data already stand, with the checksum
    /// over all of `segment` and the pseudo-header. Returns the length of header and options.
    ///
    /// The same as [`emit`](TcpHeader::emit) and [`fill_checksum`], and faster.
    ///
    /// # Panics
    /// If `segment` is too short.
    #[inline]
    pub fn emit_with_checksum(&self, options: &TcpOptions, pseudo: Sum, segment: &mut [u8]) -> usize {
        let (options_len, sum) = options.emit_summed(segment.get_mut(HEADER_LEN..).unwrap_or_default());
        let header_len = HEADER_LEN + options_len;
        let words = self.words(header_len);
        let sum = words.iter().fold(sum.combine(pseudo, 0), |sum, word| sum.add_u32(*word));
        let sum = sum.add_bytes(segment.get(header_len..).unwrap_or_default());
        write(&words, sum.finish(), segment);
        header_len
    }

    /// The fixed header with a checksum of zero, as numbers in host order.
    #[inline(always)]
    fn words(&self, header_len: usize) -> [u32; 5] {
        let offset_and_flags = (header_len as u32) << 26 | u32::from(self.flags.0 & TcpFlags::ALL) << 16;
        [
            u32::from(self.src_port) << 16 | u32::from(self.dst_port),
            self.seq.0,
            self.ack.0,
            offset_and_flags | u32::from(self.window),
            u32::from(self.urgent),
        ]
    }
}

/// Bytes of a header whose only option is timestamps.
pub(crate) const WITH_TIMESTAMPS: usize = HEADER_LEN + 12;
/// Bytes of a SYN with the customary options.
pub(crate) const CUSTOMARY_SYN: usize = HEADER_LEN + 20;

/// Writes words, and adds them up. A few numbers of 32 bits cannot overflow 64.
#[inline(always)]
fn put_words<const N: usize>(place: &mut [u8], words: [u32; N]) -> Sum {
    let mut sum = Sum::EMPTY;
    for (place, word) in place.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
        sum = sum.add_few(word);
    }
    sum
}

#[inline(always)]
fn write(words: &[u32; 5], checksum: u16, segment: &mut [u8]) {
    let h = room::<HEADER_LEN>(segment);
    let last = words[4] | u32::from(checksum) << 16;
    for (place, word) in h.chunks_exact_mut(4).zip([words[0], words[1], words[2], words[3], last]) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

/// Whether a segment is intact. `segment` is header and data and nothing behind them, `pseudo` the sum over the
/// pseudo-header with the segment's length.
#[inline]
#[must_use]
pub fn intact(pseudo: Sum, segment: &[u8]) -> bool {
    pseudo.add_bytes(segment).is_intact()
}

/// Computes the checksum of a segment whose header stands at its front, and writes it there. Whatever the field held is
/// ignored.
///
/// # Panics
/// If `segment` is shorter than 20 bytes.
#[inline]
pub fn fill_checksum(pseudo: Sum, segment: &mut [u8]) {
    put_checksum(0, segment);
    let checksum = pseudo.add_bytes(segment).finish();
    put_checksum(checksum, segment);
}

/// Writes the checksum field: for a card that computes the rest, the folded sum over the pseudo-header.
///
/// # Panics
/// If `segment` is shorter than 20 bytes.
#[inline]
pub fn put_checksum(checksum: u16, segment: &mut [u8]) {
    room::<HEADER_LEN>(segment)[16..18].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::IpProtocol;
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    const HEADER: TcpHeader = TcpHeader {
        src_port: 40_000,
        dst_port: 80,
        seq: SeqNum(0x0102_0304),
        ack: SeqNum(0xf1f2_f3f4),
        flags: TcpFlags(0x118),
        window: 0xabcd,
        urgent: 0,
    };

    fn timestamps() -> TcpOptions {
        TcpOptions { timestamps: Some(Timestamps { value: 1, echo: 2 }), ..TcpOptions::default() }
    }

    fn pseudo(len: usize) -> Sum {
        Sum::pseudo_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, IpProtocol::TCP, len as u16)
    }

    #[test]
    fn every_truncated_length_is_refused() {
        let mut segment = [0; 40];
        assert_eq!(HEADER.emit(&timestamps(), &mut segment), 32);
        for cut in 0..32 {
            let want = if cut < 20 { Malformed::TcpShort } else { Malformed::TcpDataOffset };
            assert_eq!(TcpHeader::parse(&segment[..cut]), Err(want), "{cut}");
        }
        assert_eq!(TcpHeader::parse(&segment), Ok((HEADER, 32..40)));
        segment[12] = 0x4f;
        assert_eq!(TcpHeader::parse(&segment), Err(Malformed::TcpDataOffset));
    }

    #[test]
    fn timestamps_alone_are_written_the_same() {
        let (mut one, mut other) = ([0xa5; WITH_TIMESTAMPS], [0; WITH_TIMESTAMPS]);
        let sum = HEADER.emit_with_timestamps(timestamps().timestamps.unwrap(), &mut one);
        let (len, summed) = HEADER.emit_summed(&timestamps(), &mut other);
        assert_eq!((len, one), (WITH_TIMESTAMPS, other));
        assert_eq!((sum.fold(), summed.fold()), (Sum::EMPTY.add_bytes(&one).fold(), sum.fold()));
    }

    #[test]
    fn customary_options_of_a_syn_are_written_the_same() {
        let options =
            TcpOptions { mss: Some(1460), window_scale: Some(7), sack_permitted: true, ..timestamps() };
        let (mut one, mut other) = ([0xa5; CUSTOMARY_SYN], [0; CUSTOMARY_SYN]);
        let sum = HEADER.emit_customary_syn(&options, &mut one).unwrap();
        let (len, summed) = HEADER.emit_summed(&options, &mut other);
        assert_eq!((len, one), (CUSTOMARY_SYN, other));
        assert_eq!((sum.fold(), summed.fold()), (Sum::EMPTY.add_bytes(&one).fold(), sum.fold()));
        for other in [
            TcpOptions { mss: None, ..options },
            TcpOptions { sack_permitted: false, ..options },
            TcpOptions { fast_open: Some(crate::wire::FastOpenOption::request(false)), ..options },
            timestamps(),
        ] {
            assert_eq!(HEADER.emit_customary_syn(&other, &mut one), None);
        }
    }

    #[test]
    fn flags_have_names_and_set_operations() {
        let flags = TcpFlags::SYN | TcpFlags::ACK;
        assert_eq!(flags.to_string(), "SYN|ACK");
        assert_eq!(TcpFlags::NONE.to_string(), "none");
        assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::SYN | TcpFlags::FIN));
        assert!(flags.intersects(TcpFlags::SYN | TcpFlags::FIN));
        assert_eq!(flags.without(TcpFlags::ACK), TcpFlags::SYN);
        let header = TcpHeader { flags: TcpFlags::SYN | TcpFlags::FIN, ..HEADER };
        assert_eq!((header.sequence_len(10), HEADER.sequence_len(10)), (12, 10));
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_buffer_too_small_is_our_bug() {
        HEADER.emit(&TcpOptions::default(), &mut [0; 19]);
    }

    proptest! {
        #[test]
        fn round_trip(a in any::<(u16, u16, u32, u32)>(), b in any::<(u16, u16)>(), flags in 0u16..512, ts in any::<bool>(),
                      data in proptest::collection::vec(any::<u8>(), 0..50)) {
            let header = TcpHeader {
                src_port: a.0, dst_port: a.1, seq: SeqNum(a.2), ack: SeqNum(a.3),
                flags: TcpFlags(flags), window: b.0, urgent: b.1,
            };
            let options = if ts { timestamps() } else { TcpOptions::default() };
            let mut segment = vec![0xa5; 20 + options.len()];
            header.emit(&options, &mut segment);
            segment.extend(&data);
            let (parsed, payload) = TcpHeader::parse(&segment).unwrap();
            prop_assert_eq!(parsed, header);
            prop_assert_eq!(&segment[payload.clone()], &data[..]);
            prop_assert_eq!(TcpOptions::parse(&segment[20..payload.start]), options);
            fill_checksum(pseudo(segment.len()), &mut segment);
            prop_assert!(intact(pseudo(segment.len()), &segment));
            let mut at_once = [&vec![0xa5; 20 + options.len()], &data[..]].concat();
            prop_assert_eq!(header.emit_with_checksum(&options, pseudo(segment.len()), &mut at_once), 20 + options.len());
            prop_assert_eq!(&at_once, &segment);
            let mut summed = [&vec![0xa5; 20 + options.len()], &data[..]].concat();
            let (len, sum) = header.emit_summed(&options, &mut summed);
            prop_assert_eq!(len, 20 + options.len());
            put_checksum(pseudo(segment.len()).combine(sum, 0).add_bytes(&data).finish(), &mut summed);
            prop_assert_eq!(&summed, &segment);
            segment[3] ^= 1;
            prop_assert!(!intact(pseudo(segment.len()), &segment));
        }

        #[test]
        fn any_bytes(segment in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((_, payload)) = TcpHeader::parse(&segment) {
                prop_assert!(payload.start >= 20 && payload.end == segment.len());
                let _ = TcpOptions::parse(&segment[20..payload.start]);
            }
        }
    }
}
