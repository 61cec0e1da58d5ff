//! Base 64 (RFC 4648 section 4) as memcached reads it for keys: what is no digit is passed over, and what stands behind the padding is not read.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        b'=' => 0,
        _ => return None,
    })
}

/// The bytes; `None` if there are none, or the digits do not fill groups of four.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.iter().copied().filter(|b| digit(*b).is_some()).collect();
    if digits.is_empty() || !digits.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3);
    for group in digits.chunks(4) {
        let word = group.iter().fold(0, |word, b| word << 6 | u32::from(digit(*b).unwrap_or(0)));
        out.extend_from_slice(&word.to_be_bytes()[1..]);
        match group.iter().filter(|b| **b == b'=').count() {
            0 => {}
            pad @ 1..=2 => {
                out.truncate(out.len() - pad);
                break;
            }
            _ => return None,
        }
    }
    (!out.is_empty()).then_some(out)
}

/// Appends the digits for these bytes, with padding.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        for n in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * n)) as usize & 63];
            out.push(if n <= group.len() { digit } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648 section 10.
    #[test]
    fn published_vectors() {
        for (plain, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            let mut out = Vec::new();
            encode(plain.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
            assert_eq!(decode(text.as_bytes()).unwrap(), plain.as_bytes());
        }
        assert_eq!(decode(b"Zm-9v").unwrap(), b"foo", "what is no digit is passed over");
        for bad in ["", "Zg", "Zg=", "Z===", "-"] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
