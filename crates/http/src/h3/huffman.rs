//! The Huffman code of HPACK and QPACK (RFC 7541 §5.2, Appendix B).
//!
//! The code is canonical: codes of one length follow one another in the order of their symbols, and the shorter come first. So the lengths
//! say all of it.

/// Length of each symbol's code, bits.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
/// The longest code, which that of the end has as well, bits.
const LONGEST: usize = 30;

/// Codes of one length: the first code, how many there are, and where their symbols begin in [`SYMBOLS`].
#[derive(Clone, Copy)]
struct Row {
    first: u32,
    count: u32,
    place: u32,
}

/// The symbols in the order of their codes.
const SYMBOLS: [u8; 256] = symbols();
const ROWS: [Row; LONGEST + 1] = rows();
const CODES: [u32; 256] = codes();

const fn symbols() -> [u8; 256] {
    let (mut symbols, mut n, mut length) = ([0; 256], 0, 1);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                symbols[n] = symbol as u8;
                n += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
}

const fn rows() -> [Row; LONGEST + 1] {
    let mut rows = [Row { first: 0, count: 0, place: 0 }; LONGEST + 1];
    let (mut code, mut place, mut length) = (0, 0, 1);
    while length <= LONGEST {
        let (mut count, mut symbol) = (0, 0);
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                count += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        rows[length] = Row { first: code, count, place };
        code += count;
        place += count;
        length += 1;
    }
    rows
}

const fn codes() -> [u32; 256] {
    let (mut codes, mut length) = ([0; 256], 1);
    while length <= LONGEST {
        let row = ROWS[length];
        let mut n = 0;
        while n < row.count {
            codes[SYMBOLS[(row.place + n) as usize] as usize] = row.first + n;
            n += 1;
        }
        length += 1;
    }
    codes
}

/// Length of a text in this code, bytes.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    text.iter().map(|b| usize::from(LENGTHS[usize::from(*b)])).sum::<usize>().div_ceil(8)
}

/// Appends a text in this code.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for byte in text {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODES[usize::from(*byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // The rest of the byte is the beginning of the code of the end, all ones.
        out.push((bits << (8 - count)) as u8 | (0xff >> count));
    }
}

/// Appends the text that these bytes are in this code. `None`: they are no text, or what is behind it is no padding (RFC 7541 §5.2).
pub(super) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut code, mut length) = (0u32, 0usize);
    for byte in bytes {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            length += 1;
            let row = ROWS.get(length)?;
            let nth = code.wrapping_sub(row.first);
            if nth < row.count {
                out.push(SYMBOLS[(row.place + nth) as usize]);
                (code, length) = (0, 0);
            }
        }
    }
    // At most seven bits of padding, all ones.
    // Guard: `(length < 8 && code == (1 << length) - 1)` as `true` fails h3::huffman::
    (length < 8 && code == (1 << length) - 1).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From RFC 7541 §C.4 and §C.6.
    const KNOWN: [(&str, &[u8]); 4] = [
        ("www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]),
        ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
        ("custom-value", &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]),
        ("private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
    ];

    #[test]
    fn texts_of_the_rfc() {
        for (text, code) in KNOWN {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!((&out[..], encoded_len(text.as_bytes())), (code, code.len()), "{text}");
            out.clear();
            decode(code, &mut out).unwrap();
            assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn every_byte_comes_back() {
        for first in 0..=255u8 {
            let text = [first, first.wrapping_mul(7), 0, 255, first];
            let (mut code, mut out) = (Vec::new(), Vec::new());
            encode(&text, &mut code);
            decode(&code, &mut out).unwrap();
            assert_eq!(out, text);
        }
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        let mut out = Vec::new();
        // "0" is 00000, so that 11 ones are missing, or wrong, or too many.
        assert_eq!(decode(&[0b0000_0111], &mut out), Some(()));
        assert_eq!(out, b"0");
        assert_eq!(decode(&[0b0000_0110], &mut out), None);
        assert_eq!(decode(&[0b0000_0111, 0xff], &mut out), None);
        // The end itself is no symbol.
        assert_eq!(decode(&[0xff; 5], &mut out), None);
    }
}
