//! Base 64 as in RFC 4648 §4, with padding: how histograms travel in JSON. The usual HDR tools expect it so.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as text.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                text.push(char::from(DIGITS[(word >> (18 - 6 * digit) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// Text as bytes; `None` unless it is base 64, whole and padded.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|c| **c == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for (i, chunk) in text.chunks(4).enumerate() {
        let last = (i + 1) * 4 == text.len();
        let pads = if last { padding } else { 0 };
        let mut word = 0;
        for c in &chunk[..4 - pads] {
            word = word << 6 | digit(*c)?;
        }
        word <<= 6 * pads;
        bytes.extend_from_slice(&word.to_be_bytes()[1..4 - pads]);
    }
    Some(bytes)
}

fn digit(c: u8) -> Option<u32> {
    Some(u32::from(match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rfcs_own_examples() {
        // RFC 4648 §10.
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), plain.as_bytes());
        }
    }

    #[test]
    fn anything_goes_there_and_back_and_nonsense_does_not() {
        let mut rng = flowlane_stack::rng::Rng::new(4648);
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
            assert_eq!(decode(&encode(&bytes)).as_deref(), Some(&bytes[..]));
        }
        for text in ["Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9v!m9v", "Zm9vé"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
