//! Heads as QPACK has them without a dynamic table (RFC 9204 §4.5).

use super::fault::Fault;
use super::huffman;
use super::table::TABLE;

/// Writes a head: the block of a HEADERS frame.
#[derive(Debug, Clone)]
pub struct Block {
    bytes: Vec<u8>,
}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}

impl Block {
    /// An empty head.
    #[must_use]
    pub fn new() -> Self {
        let mut block = Self { bytes: Vec::new() };
        block.clear();
        block
    }

    /// Begins anew; memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        // No entry of the dynamic table is needed, and the base is that many (RFC 9204 §4.5.1).
        self.bytes.extend_from_slice(&[0, 0]);
    }

    /// Adds a field. Its name is in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let mut named = None;
        for (i, (known, its)) in TABLE.iter().enumerate().filter(|(_, (known, _))| known.as_bytes() == name) {
            if its.as_bytes() == value {
                return integer(0b1100_0000, 6, i, &mut self.bytes);
            }
            named = named.or(Some((i, known)));
        }
        match named {
            Some((i, _)) => integer(0b0101_0000, 4, i, &mut self.bytes),
            None => text(0b0010_0000, 3, name, &mut self.bytes),
        }
        text(0, 7, value, &mut self.bytes);
    }

    /// The block.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Appends an integer behind the `high` bits of its first byte, of which it has `bits` (RFC 7541 §5.1).
fn integer(high: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    let most = (1usize << bits) - 1;
    if value < most {
        return out.push(high | value as u8);
    }
    out.push(high | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a text whose length has `bits` bits, in whichever form is shorter.
fn text(high: u8, bits: u32, text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_len(text);
    if coded < text.len() {
        integer(high | 1 << bits, bits, coded, out);
        huffman::encode(text, out);
    } else {
        integer(high, bits, text.len(), out);
        out.extend_from_slice(text);
    }
}

/// Reads a block from its beginning on.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// # Errors
    /// The head needs entries of a dynamic table.
    pub(super) fn new(block: &'a [u8]) -> Result<Self, Fault> {
        let mut decoder = Self { rest: block };
        let needed = decoder.integer(8)?;
        decoder.integer(7)?;
        // Guard: `needed == 0` as `true` fails h3::qpack::
        if needed == 0 { Ok(decoder) } else { Err(Fault::Decompression) }
    }

    /// Appends the next name and its value; where the name ends, or `None` at the end of the block.
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<usize>, Fault> {
        let Some(first) = self.rest.first().copied() else { return Ok(None) };
        let name = |index: usize| TABLE.get(index).ok_or(Fault::Decompression);
        match first {
            0b1100_0000.. => {
                let (name, value) = name(self.integer(6)?)?;
                out.extend_from_slice(name.as_bytes());
                let end = out.len();
                out.extend_from_slice(value.as_bytes());
                return Ok(Some(end));
            }
            0b0101_0000..=0b0101_1111 | 0b0111_0000..=0b0111_1111 => {
                out.extend_from_slice(name(self.integer(4)?)?.0.as_bytes());
            }
            0b0010_0000..=0b0011_1111 => self.text(3, out)?,
            // Entries of the dynamic table.
            _ => return Err(Fault::Decompression),
        }
        let end = out.len();
        self.text(7, out)?;
        Ok(Some(end))
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let (first, rest) = self.rest.split_first().ok_or(Fault::Decompression)?;
        self.rest = rest;
        Ok(*first)
    }

    fn integer(&mut self, bits: u32) -> Result<usize, Fault> {
        let most = (1usize << bits) - 1;
        let mut value = usize::from(self.byte()?) & most;
        if value < most {
            return Ok(value);
        }
        // No length and no index needs more than these.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Fault::Decompression)
    }

    fn text(&mut self, bits: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
        let coded = self.rest.first().is_some_and(|first| first >> bits & 1 == 1);
        let length = self.integer(bits)?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(Fault::Decompression)?;
        self.rest = rest;
        if coded {
            return huffman::decode(text, out).ok_or(Fault::Decompression);
        }
        out.extend_from_slice(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: &[u8]) -> Result<Vec<(String, String)>, Fault> {
        let (mut decoder, mut out, mut fields) = (Decoder::new(block)?, Vec::new(), Vec::new());
        while let Some(end) = decoder.next(&mut out)? {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.push((text(&out[..end]), text(&out[end..])));
            out.clear();
        }
        Ok(fields)
    }

    #[test]
    fn heads_come_back_and_are_short() {
        let long = "x".repeat(300);
        let fields = [
            (":method", "GET"),
            (":path", "/index.html"),
            ("content-type", "text/plain"),
            ("x-own", "1"),
            ("x-long-name-of-our-own", &long),
            ("cookie", "\u{1}\u{2}"),
            ("x-frame-options", "sameorigin"),
            ("empty", ""),
        ];
        let mut block = Block::new();
        for (name, value) in fields {
            block.field(name.as_bytes(), value.as_bytes());
        }
        let said = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read(block.bytes()).unwrap(), said);
        block.clear();
        block.field(b":status", b"200");
        assert_eq!(block.bytes(), [0, 0, 0xc0 | 25]);
    }

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 9204 §B.1: a literal with the name of entry 1.
        let block =
            [0x00, 0x00, 0x51, 0x0b, 0x2f, 0x69, 0x6e, 0x64, 0x65, 0x78, 0x2e, 0x68, 0x74, 0x6d, 0x6c];
        assert_eq!(read(&block).unwrap(), [(":path".to_owned(), "/index.html".to_owned())]);
    }

    #[test]
    fn what_needs_a_table_or_is_cut_is_refused() {
        let bad: [&[u8]; 10] = [
            &[],
            &[0],
            // RFC 9204 §B.2: entries of the dynamic table are needed.
            &[0x03, 0x81, 0x10, 0x11],
            // They are said to be needed, and none is named.
            &[0x03, 0x81, 0xc0 | 25],
            // An entry of the dynamic table, by index, by name, and behind the base.
            &[0, 0, 0x80],
            &[0, 0, 0x40, 0],
            &[0, 0, 0x10],
            &[0, 0, 0x00, 0x00],
            // Entry 99 of the static table, and an integer without end.
            &[0, 0, 0xff, 36],
            &[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ];
        for block in bad {
            assert_eq!(read(block), Err(Fault::Decompression), "{block:x?}");
        }
        let mut block = Block::new();
        block.field(b"x-name", b"a value that is not short");
        for cut in 3..block.bytes().len() {
            assert_eq!(read(&block.bytes()[..cut]), Err(Fault::Decompression), "cut at {cut}");
        }
    }
}
