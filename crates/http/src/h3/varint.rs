//! Integers of QUIC, of one, two, four or eight bytes (RFC 9000 §16).

/// The largest.
const MOST: u64 = (1 << 62) - 1;

/// Appends an integer in as few bytes as it needs; what is too large becomes the largest.
pub fn varint(value: u64, out: &mut Vec<u8>) {
    match value.min(MOST) {
        value @ 0..=0x3f => out.push(value as u8),
        value @ 0x40..=0x3fff => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        value @ 0x4000..=0x3fff_ffff => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        value => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// The integer at the beginning of these bytes, and its length; `None` if it is not whole.
pub(super) fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut varint = Varint::default();
    bytes.iter().enumerate().find_map(|(i, byte)| Some((varint.push(*byte)?, i + 1)))
}

/// An integer that comes byte by byte.
#[derive(Debug, Clone, Copy, Default)]
pub struct Varint {
    value: u64,
    /// Bytes that are missing.
    left: u8,
}

impl Varint {
    /// Takes the next byte; the integer, once it is whole, and then it begins anew.
    #[inline]
    pub fn push(&mut self, byte: u8) -> Option<u64> {
        if self.left == 0 {
            self.left = 1 << (byte >> 6);
            self.value = u64::from(byte & 0x3f);
        } else {
            self.value = self.value << 8 | u64::from(byte);
        }
        self.left -= 1;
        (self.left == 0).then_some(self.value)
    }

    /// Whether none of it has come.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_the_rfc() {
        // RFC 9000 §A.1; the last is 37 in two bytes.
        let known: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in known {
            assert_eq!(read(bytes), Some((value, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), None, "{value} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_written_is_as_short_as_can_be() {
        for (value, length) in
            [(0, 1), (63, 1), (64, 2), (16_383, 2), (16_384, 4), (1 << 29, 4), (1 << 30, 8), (MOST, 8)]
        {
            let mut out = Vec::new();
            varint(value, &mut out);
            assert_eq!((read(&out), out.len()), (Some((value, length)), length));
        }
        let mut out = Vec::new();
        varint(u64::MAX, &mut out);
        assert_eq!(read(&out), Some((MOST, 8)));
    }
}
