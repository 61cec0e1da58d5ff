//! Whether text that comes in pieces is UTF-8 (RFC 3629): as soon as no further byte could make it so, it is not.

use std::str;

/// The check of one message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Utf8 {
    /// A character that is not whole yet.
    begun: [u8; 4],
    len: u8,
}

/// It is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotUtf8;

impl Utf8 {
    /// Takes the next bytes.
    #[inline]
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), NotUtf8> {
        while self.len > 0 {
            let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
            let len = usize::from(self.len);
            self.begun[len] = *first;
            bytes = rest;
            self.len += 1;
            match str::from_utf8(&self.begun[..=len]) {
                Ok(_) => self.len = 0,
                // Of four bytes a character is whole, or wrong.
                Err(e) if e.error_len().is_none() => {}
                Err(_) => return Err(NotUtf8),
            }
        }
        let Err(e) = str::from_utf8(bytes) else { return Ok(()) };
        // Guard: `e.error_len().is_some()` as `false` fails ws::utf8
        if e.error_len().is_some() {
            return Err(NotUtf8);
        }
        let rest = &bytes[e.valid_up_to()..];
        self.begun[..rest.len()].copy_from_slice(rest);
        self.len = rest.len() as u8;
        Ok(())
    }

    /// The message ends here.
    #[inline]
    pub(super) fn end(&mut self) -> Result<(), NotUtf8> {
        // Guard: `std::mem::take(self).len == 0` as `true` fails ws::utf8
        if std::mem::take(self).len == 0 { Ok(()) } else { Err(NotUtf8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], cut: usize) -> Result<(), NotUtf8> {
        let mut utf8 = Utf8::default();
        bytes.chunks(cut).try_for_each(|piece| utf8.feed(piece))?;
        utf8.end()
    }

    #[test]
    fn text_is_text_however_it_is_cut() {
        let good = "Hello-µ@ßöäüàá-UTF-8!! κόσμε 𐍈 \u{10ffff}".as_bytes();
        let bad: [&[u8]; 8] = [
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
            b"\xc0\xaf",
            b"\xf4\x90\x80\x80",
            b"abc\x80",
            b"\xe2\x82",
            b"\xff",
            b"\xf0\x8f\xbf\xbf",
            b"\xc3\xc3\xa4",
        ];
        for cut in 1..12 {
            assert_eq!(check(good, cut), Ok(()), "{cut}");
            for text in bad {
                assert_eq!(check(text, cut), Err(NotUtf8), "{text:x?} {cut}");
            }
        }
    }

    #[test]
    fn it_fails_at_the_first_byte_that_cannot_be() {
        let mut utf8 = Utf8::default();
        assert_eq!(utf8.feed(b"ok\xf4"), Ok(()));
        assert_eq!(utf8.feed(b"\x90"), Err(NotUtf8));
    }
}
