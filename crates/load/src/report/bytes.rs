//! Numbers and texts as bytes, and back: of what this writes, [`super::travel`] makes records.
//!
//! Numbers are in LEB128. Whoever reads says how large a number may be; what is not as it should be is [`Damaged`].

/// Most bytes of a text.
const TEXT: u64 = 1024;

/// What came is no record of this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged: {0}")]
pub struct Damaged(pub &'static str);

/// What is written.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(super) fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.number(*number));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// What is left to read.
#[derive(Debug)]
pub(super) struct In<'a>(pub(super) &'a [u8]);

impl In<'_> {
    pub(super) fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(Damaged("it ends early"))?;
            self.0 = rest;
            let bits = u64::from(first & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if first & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Damaged("a number is too long"))
    }

    /// A number that is at most `most`.
    pub(super) fn upto(&mut self, most: u64) -> Result<u64, Damaged> {
        let number = self.number()?;
        if number > most { Err(Damaged("a number is too large")) } else { Ok(number) }
    }

    pub(super) fn text(&mut self) -> Result<String, Damaged> {
        let length = self.upto(TEXT)? as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Damaged("it ends early"))?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Damaged("a text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_end() {
        for number in [0, 1, 127, 128, 300, u64::MAX >> 1, u64::MAX] {
            let mut out = Out::default();
            out.number(number);
            let mut from = In(&out.0);
            assert_eq!((from.number(), from.0.len()), (Ok(number), 0));
        }
        assert!(In(&[0x80; 10]).number().is_err());
        assert!(In(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number().is_err());
    }
}
