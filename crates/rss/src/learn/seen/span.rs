//! The flows that others determine: those whose bits are a sum of an odd number of theirs.
//!
//! An affine map that is known at some points is known at every sum of an odd number of them, and nowhere else. A [`Span`] contains these points as
//! independent rows. A flow outside of it may have any hash.

use super::super::system::{CONSTANT, Row, first_bit, row};
use crate::packet::Tuple;
use crate::{Arrangement, Flow, PacketKind};

/// The flows of one kind that are determined.
#[derive(Clone, Debug)]
pub struct Span {
    kind: PacketKind,
    arrangement: Arrangement,
    /// Rows by the index of the first bit that is set.
    rows: Vec<Option<Row>>,
    rank: usize,
}

impl Span {
    /// An empty span.
    pub(crate) fn new(kind: PacketKind, arrangement: Arrangement) -> Self {
        Self { kind, arrangement, rows: vec![None; CONSTANT + 1], rank: 0 }
    }

    /// Adds a packet, and with it all sums that follow.
    pub(crate) fn add(&mut self, tuple: &Tuple) {
        self.add_row(self.row_of(tuple));
    }

    /// Adds the effect of one bit, without the constant; [`CONSTANT`] is the constant itself.
    pub(crate) fn add_bit(&mut self, bit: usize) {
        let mut row = [0; 5];
        row[bit / 64] |= 1 << (63 - bit % 64);
        self.add_row(row);
    }

    pub(crate) fn add_row(&mut self, row: Row) {
        let rest = self.reduced(row);
        if let Some(first) = first_bit(&rest) {
            self.rows[first] = Some(rest);
            self.rank += 1;
        }
    }

    fn row_of(&self, tuple: &Tuple) -> Row {
        let mut arranged = *tuple;
        self.arrangement.apply(&mut arranged);
        row(&arranged)
    }

    fn reduced(&self, mut row: Row) -> Row {
        // Adding a row clears its first bit and changes none before it.
        for known in self.rows.iter().enumerate().filter_map(|(at, known)| Some((at, known.as_ref()?))) {
            let (at, known) = known;
            if row[at / 64] >> (63 - at % 64) & 1 == 1 {
                row.iter_mut().zip(known).for_each(|(a, b)| *a ^= b);
            }
        }
        row
    }

    pub(crate) fn contains_tuple(&self, tuple: &Tuple) -> bool {
        // Guard: `first_bit(&self.reduced(self.row_of(tuple))).is_none()` as `true` fails
        // odd_sums_and_no_others
        tuple.kind == self.kind && first_bit(&self.reduced(self.row_of(tuple))).is_none()
    }

    /// Whether a flow is determined.
    #[must_use]
    pub fn contains(&self, flow: &Flow) -> bool {
        Tuple::of(flow).is_some_and(|tuple| self.contains_tuple(&tuple))
    }

    /// The kind of packets.
    #[must_use]
    pub fn kind(&self) -> PacketKind {
        self.kind
    }

    /// Independent flows.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// As many as determine all: one more than the kind has bits.
    #[must_use]
    pub fn whole(&self) -> usize {
        if self.kind.has_ports() { self.kind.bits() + 1 } else { self.kind.bits() - 31 }
    }

    /// Whether every flow of the kind is determined.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.rank == self.whole()
    }

    /// The rows: for each 37 bytes, the bits of a packet and the constant in the highest bit of the last.
    #[must_use]
    pub fn to_rows(&self) -> Vec<[u8; 37]> {
        let bytes = |row: &Row| {
            let mut all = row.iter().flat_map(|word| word.to_be_bytes());
            core::array::from_fn(|_| all.next().unwrap_or(0))
        };
        self.rows.iter().flatten().map(bytes).collect()
    }

    /// The span of such rows.
    #[must_use]
    pub fn from_rows(kind: PacketKind, arrangement: Arrangement, rows: &[[u8; 37]]) -> Self {
        let mut span = Self::new(kind, arrangement);
        for bytes in rows {
            let mut row: Row = [0; 5];
            for (i, byte) in bytes.iter().enumerate() {
                row[i / 8] |= u64::from(*byte) << (56 - 8 * (i % 8));
            }
            // Bits behind the constant are not used.
            row[4] &= !((1 << 31) - 1);
            span.add_row(row);
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    fn flow(src: u8, port: u16) -> Flow {
        let end = |last: u8, port| std::net::SocketAddr::from(([10, 0, 0, last], port));
        Flow::new(end(src, port), end(9, 80), Protocol::TCP)
    }

    /// Sums of three are determined, sums of two are not, and the rows say the same when read again.
    #[test]
    fn odd_sums_and_no_others() {
        let mut span = Span::new(PacketKind::TcpIpv4, Arrangement::Plain);
        for (src, port) in [(1, 8), (2, 8), (1, 16)] {
            span.add(&Tuple::of(&flow(src, port)).unwrap());
        }
        let again = Span::from_rows(PacketKind::TcpIpv4, Arrangement::Plain, &span.to_rows());
        for span in [&span, &again] {
            assert_eq!((span.rank(), span.whole(), span.is_whole()), (3, 97, false));
            assert!(span.contains(&flow(1, 8)));
            assert!(span.contains(&flow(2, 16)), "the sum of all three");
            assert!(!span.contains(&flow(3, 8)) && !span.contains(&flow(1, 24)), "no odd sums");
            assert!(!span.contains(&Flow { protocol: Protocol::UDP, ..flow(1, 8) }));
        }
        (0..=CONSTANT).filter(|bit| *bit < 96 || *bit == CONSTANT).for_each(|bit| span.add_bit(bit));
        assert!(span.is_whole() && span.contains(&flow(7, 777)));
    }
}
