//! Numbers as memcached reads and writes them, which is as C's `strtoull` and its like do.
//!
//! Space before a number and a sign are taken; what stands behind must be space, or nothing. A number that is too large for its type is cut to the
//! type's bits where memcached does that, so that clients get the same answers.

/// What C's `isspace` takes.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Sign and digits: whether it is negative, and the magnitude; `None` if it is none, or beyond 64 bits.
fn read(text: &[u8]) -> Option<(bool, u64)> {
    let start = text.iter().position(|b| !is_space(*b))?;
    let text = &text[start..];
    let (negative, text) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 || text.get(digits).is_some_and(|b| !is_space(*b)) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    Some((negative, text[..digits].iter().try_fold(0, add)?))
}

/// An unsigned number of 64 bits. A negative one is taken modulo 2^64 if that is not negative as a signed number.
#[must_use]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let (negative, magnitude) = read(text)?;
    if !negative {
        return Some(magnitude);
    }
    Some(magnitude.wrapping_neg()).filter(|n| (*n as i64) >= 0)
}

/// The low 32 bits of an unsigned number.
#[must_use]
pub fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).map(|n| n as u32)
}

/// The low 32 bits of a signed number of 64 bits.
#[must_use]
pub fn signed_32(text: &[u8]) -> Option<i32> {
    let (negative, magnitude) = read(text)?;
    let number =
        if negative { 0i64.checked_sub_unsigned(magnitude)? } else { i64::try_from(magnitude).ok()? };
    Some(number as i32)
}

/// Room for the digits of a number.
#[derive(Debug, Clone, Copy, Default)]
pub struct Digits([u8; 20]);

impl Digits {
    /// The digits of a number, without leading zeros.
    pub fn of(&mut self, mut number: u64) -> &[u8] {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.0[at..];
            }
        }
    }
}

/// The end of a line, put together from its last byte: numbers with a space before each, and `\r\n`.
pub(crate) struct Line {
    text: [u8; Self::ROOM],
    at: usize,
}

impl Line {
    /// Three numbers at most.
    const ROOM: usize = 3 * 21 + 2;

    /// Puts a number before what there is.
    #[inline]
    pub(crate) fn number(&mut self, mut number: u64) {
        let mut at = self.at;
        loop {
            at -= 1;
            self.text[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.at = at - 1;
        self.text[self.at] = b' ';
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text[self.at..]
    }
}

impl Default for Line {
    fn default() -> Self {
        let mut text = [0; Self::ROOM];
        text[Self::ROOM - 2..].copy_from_slice(b"\r\n");
        Self { text, at: Self::ROOM - 2 }
    }
}

/// Appends the digits of a number.
#[inline]
pub fn write(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(Digits::default().of(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            (" \t7", Some(7)),
            ("+7", Some(7)),
            ("7 ", Some(7)),
            ("7 x", Some(7)),
            ("7x", None),
            ("", None),
            (" ", None),
            ("-", None),
            ("-5", None),
            ("-0", Some(0)),
            ("-18446744073709551615", Some(1)),
            ("0x10", None),
        ] {
            assert_eq!(unsigned(text.as_bytes()), number, "{text:?}");
        }
        assert_eq!(unsigned_32(b"4294967297"), Some(1), "cut to 32 bits");
        for (text, number) in [
            ("-1", Some(-1)),
            ("2147483647", Some(i32::MAX)),
            ("4294967295", Some(-1)),
            ("9223372036854775807", Some(-1)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(0)),
            ("1.5", None),
        ] {
            assert_eq!(signed_32(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_written() {
        for number in [0, 9, 10, 4_294_967_296, u64::MAX] {
            assert_eq!(Digits::default().of(number), number.to_string().as_bytes());
            let mut line = Line::default();
            [number, 7, number].into_iter().for_each(|n| line.number(n));
            assert_eq!(line.text(), format!(" {number} 7 {number}\r\n").as_bytes());
        }
    }
}
