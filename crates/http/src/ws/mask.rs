//! The mask of a client's frames (RFC 6455 §5.3), a word at a time.

/// Masks or unmasks bytes that begin `at` bytes behind the begin of a payload: the same is done for both.
#[inline]
pub fn apply(key: [u8; 4], at: u64, bytes: &mut [u8]) {
    let mut turned = key;
    // Guard: `(at % 4) as usize` as `0` fails ws::mask
    turned.rotate_left((at % 4) as usize);
    let [a, b, c, d] = turned;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut words = bytes.chunks_exact_mut(8);
    for chunk in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        chunk.copy_from_slice(&(u64::from_ne_bytes(eight) ^ word).to_ne_bytes());
    }
    // A word is twice the key, so what is left begins with the key's first byte.
    words.into_remainder().iter_mut().zip(turned.into_iter().cycle()).for_each(|(byte, key)| *byte ^= key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_what_bytes_do_wherever_they_are_cut() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        let plain: Vec<u8> = (0..100u8).collect();
        let masked: Vec<u8> = plain.iter().enumerate().map(|(i, byte)| byte ^ key[i % 4]).collect();
        for cut in 0..plain.len() {
            let mut bytes = plain.clone();
            let (first, second) = bytes.split_at_mut(cut);
            apply(key, 0, first);
            apply(key, cut as u64, second);
            assert_eq!(bytes, masked, "{cut}");
        }
    }
}
