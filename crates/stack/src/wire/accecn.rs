//! The TCP option of accurate ECN (RFC 9768 §3.2.3): how many payload bytes came with each mark.
//!
//! ```text
//!   order 0:  172, length, EE0B, ECEB, EE1B          order 1:  174, length, EE1B, ECEB, EE0B
//! ```
//!
//! Each field has the low 24 bits of a counter. Fields may be left out from the end, so the length is 11, 8, 5 or 2. Of any other length the
//! whole fields are read that fit, and the rest is padding (§3.2.3, forward compatibility).

use core::num::NonZeroU8;

/// Counters of accurate ECN.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AccEcnOption {
    /// 172 or 174.
    kind: NonZeroU8,
    count: u8,
    fields: [[u8; 3]; 3],
}

impl AccEcnOption {
    /// Kind of the order EE0B, ECEB, EE1B.
    pub const ORDER_0: u8 = 172;
    /// Kind of the order EE1B, ECEB, EE0B.
    pub const ORDER_1: u8 = 174;
    /// Bytes of the longest on the wire, the no-op behind it included.
    pub const MAX_WIRE_LEN: usize = 12;

    /// The first `count` fields, at most three, of the order that begins with EE1B (`order_1`) or with EE0B. Counters are r.e0b, r.ceb, r.e1b.
    #[must_use]
    pub fn new(order_1: bool, [e0b, ceb, e1b]: [u32; 3], count: usize) -> Self {
        let kind = if order_1 { Self::ORDER_1 } else { Self::ORDER_0 };
        let counters = if order_1 { [e1b, ceb, e0b] } else { [e0b, ceb, e1b] };
        let count = count.min(3);
        let mut fields = [[0; 3]; 3];
        for (field, counter) in fields.iter_mut().zip(counters).take(count) {
            let [_, high, middle, low] = counter.to_be_bytes();
            *field = [high, middle, low];
        }
        Self { kind: NonZeroU8::new(kind).unwrap_or(NonZeroU8::MAX), count: count as u8, fields }
    }

    /// What stands behind kind and length; `None` if the kind is another.
    pub(super) fn read(kind: u8, data: &[u8]) -> Option<Self> {
        let kind = NonZeroU8::new(kind).filter(|kind| matches!(kind.get(), Self::ORDER_0 | Self::ORDER_1))?;
        let mut option = Self { kind, count: 0, fields: [[0; 3]; 3] };
        for (field, bytes) in option.fields.iter_mut().zip(data.chunks_exact(3)) {
            field.copy_from_slice(bytes);
            option.count += 1;
        }
        Some(option)
    }

    fn field(&self, order_0: usize) -> Option<u32> {
        let at = if self.kind.get() == Self::ORDER_1 { 2 - order_0 } else { order_0 };
        let [high, middle, low] = *self.fields.get(..usize::from(self.count))?.get(at)?;
        Some(u32::from_be_bytes([0, high, middle, low]))
    }

    /// EE0B: bytes that came with ECT(0), modulo 2^24.
    #[must_use]
    pub fn e0b(&self) -> Option<u32> {
        self.field(0)
    }

    /// ECEB: bytes that came with CE, modulo 2^24.
    #[must_use]
    pub fn ceb(&self) -> Option<u32> {
        self.field(1)
    }

    /// EE1B: bytes that came with ECT(1), modulo 2^24.
    #[must_use]
    pub fn e1b(&self) -> Option<u32> {
        self.field(2)
    }

    /// Fields there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes on the wire of an option of so many fields, no-ops behind it included.
    #[must_use]
    pub const fn len_of(fields: usize) -> usize {
        (2 + 3 * fields).next_multiple_of(4)
    }

    pub(super) const fn wire_len(&self) -> usize {
        Self::len_of(self.count())
    }

    /// Writes it to the front of `bytes`.
    pub(super) fn emit(&self, bytes: &mut [u8; Self::MAX_WIRE_LEN]) {
        (bytes[0], bytes[1]) = (self.kind.get(), 2 + 3 * self.count);
        for (place, field) in bytes[2..].chunks_exact_mut(3).zip(&self.fields).take(self.count()) {
            place.copy_from_slice(field);
        }
    }
}

impl core::fmt::Debug for AccEcnOption {
    /// As packetdrill writes it.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let order_0 = [("e0b", self.e0b()), ("ceb", self.ceb()), ("e1b", self.e1b())];
        let mut fields = order_0;
        if self.kind.get() == Self::ORDER_1 {
            fields.reverse();
        }
        f.write_str("ECN")?;
        fields
            .iter()
            .filter_map(|(name, value)| Some((name, (*value)?)))
            .try_for_each(|(name, value)| write!(f, " {name} {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TcpOptions, Timestamps};
    use super::*;

    const COUNTERS: [u32; 3] = [0x0501_0203, 0x0004_0506, 0x0007_0809];

    fn emitted(option: AccEcnOption) -> Vec<u8> {
        let options = TcpOptions { accecn: Some(option), ..TcpOptions::default() };
        let mut bytes = [0xa5; 40];
        let len = options.emit(&mut bytes);
        assert_eq!(len, options.len());
        assert_eq!(TcpOptions::parse(&bytes[..len]), options);
        bytes[..len].to_vec()
    }

    /// Figure 4 and table 5: both orders, all lengths.
    #[test]
    fn orders_and_lengths() {
        let option = AccEcnOption::new(false, COUNTERS, 3);
        assert_eq!(emitted(option), [172, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1]);
        assert_eq!(
            (option.e0b(), option.ceb(), option.e1b()),
            (Some(0x010203), Some(0x040506), Some(0x070809))
        );
        let option = AccEcnOption::new(true, COUNTERS, 2);
        assert_eq!(emitted(option), [174, 8, 7, 8, 9, 4, 5, 6]);
        assert_eq!((option.e0b(), option.ceb(), option.e1b()), (None, Some(0x040506), Some(0x070809)));
        assert_eq!(emitted(AccEcnOption::new(true, COUNTERS, 1)), [174, 5, 7, 8, 9, 1, 1, 1]);
        assert_eq!(emitted(AccEcnOption::new(false, COUNTERS, 0)), [172, 2, 1, 1]);
        assert_eq!(format!("{:?}", AccEcnOption::new(true, [1, 2, 3], 3)), "ECN e1b 3 ceb 2 e0b 1");
    }

    /// §3.2.3: of any other length the whole fields are used.
    #[test]
    fn other_lengths_are_padded() {
        for (len, fields) in
            [(2, 0), (3, 0), (4, 0), (5, 1), (7, 1), (8, 2), (10, 2), (11, 3), (14, 3), (20, 3)]
        {
            let mut bytes = vec![9; len];
            (bytes[0], bytes[1]) = (172, len as u8);
            let option = TcpOptions::parse(&bytes).accecn.unwrap();
            assert_eq!(option.count(), fields, "{len}");
            assert_eq!(option.e0b(), (fields > 0).then_some(0x090909));
        }
        assert!(TcpOptions::parse(&[172, 1]).broken && TcpOptions::parse(&[172, 9, 1, 2]).broken);
    }

    /// The order of a SYN-ACK, as Linux has it.
    #[test]
    fn beside_others() {
        let full = Some(AccEcnOption::new(true, [1, 0, 1], 3));
        let options = TcpOptions {
            mss: Some(1460),
            sack_permitted: true,
            window_scale: Some(7),
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            accecn: full,
            ..TcpOptions::default()
        };
        let mut bytes = [0; 40];
        let len = options.emit(&mut bytes);
        assert_eq!((len, options.len()), (32, 32));
        assert_eq!(bytes[16..28], [174, 11, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(TcpOptions::parse(&bytes[..len]), options);
        let options = TcpOptions { timestamps: None, ..options };
        let len = options.emit(&mut bytes);
        assert_eq!((len, bytes[4], bytes[16..20] == [1, 1, 4, 2]), (24, 174, true));
        assert_eq!(TcpOptions::parse(&bytes[..len]), options);
    }
}
