//! Bytes found eight at a time.

/// The low bit of each of eight bytes, and the high one.
const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Where the first of eight bytes is that is below `bound`, at most 128. A subtraction borrows from bytes above it alone, so the first is right.
#[inline]
fn below(word: u64, bound: u8) -> Option<usize> {
    let found = word.wrapping_sub(LOW * u64::from(bound)) & !word & HIGH;
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Where `byte` first is.
#[inline]
pub(crate) fn byte(text: &[u8], byte: u8) -> Option<usize> {
    first(text, |word| below(word ^ (LOW * u64::from(byte)), 1), |b| b == byte)
}

/// Where the first byte is that is a space or a control character.
#[inline]
pub(crate) fn blank(text: &[u8]) -> Option<usize> {
    first(text, |word| below(word, b' ' + 1), |b| b <= b' ')
}

#[inline]
fn first(text: &[u8], of: impl Fn(u64) -> Option<usize>, is: impl Fn(u8) -> bool) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        if let Some(at) = of(u64::from_le_bytes(*word)) {
            return Some(8 * n + at);
        }
    }
    let at = rest.iter().position(|b| is(*b))?;
    Some(text.len() - rest.len() + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place, among bytes that differ from it by little.
    #[test]
    fn what_is_found_is_the_first() {
        for wanted in 0..=255u8 {
            for fill in [0, b' ', b'!', 0x7f, 0x80, 0xa0, 0xff, wanted ^ 1, wanted.wrapping_add(1)] {
                for at in 0..20 {
                    let mut text = [fill; 20];
                    text[at] = wanted;
                    text[(at + 7).min(19)] = wanted;
                    assert_eq!(byte(&text, wanted), text.iter().position(|b| *b == wanted));
                    assert_eq!(blank(&text), text.iter().position(|b| *b <= b' '));
                    assert_eq!(byte(&text[..at], wanted), text[..at].iter().position(|b| *b == wanted));
                }
            }
        }
    }
}
