//! The key of the hash: 16 to 52 bytes, 40 on most cards.
//!
//! An IPv6 tuple with ports has 36 bytes and uses 40 bytes of key; longer keys exist for cards that hash more, shorter ones for IPv4 alone.
//! Behind its end a key counts as zeros. Anyone who knows the key can aim a flood at one bucket, and many drivers use the published key, so
//! the stack uses a new random key by default. Randomness comes from the caller.

use core::fmt;
use core::str::FromStr;

/// Longest key in bytes.
pub(crate) const MAX_KEY: usize = 52;
/// Shortest key in bytes.
pub(crate) const MIN_KEY: usize = 16;

/// A key of the Toeplitz hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Zeros after `len`.
    bytes: [u8; MAX_KEY],
    len: u8,
}

/// Why something is not a usable key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// Not 16 to 52 bytes long.
    Length(usize),
    /// Not an even number of hexadecimal digits.
    NotHex,
    /// Leaves buckets that packets cannot reach by differing in one field.
    Useless {
        /// IPv4 or IPv6.
        family: &'static str,
        /// The field without enough effect.
        field: &'static str,
        /// Buckets that can be reached by changing it.
        reached: usize,
        /// Buckets there are.
        buckets: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "key of {len} bytes: must be {MIN_KEY} to {MAX_KEY}"),
            Self::NotHex => write!(f, "key is not an even number of hexadecimal digits"),
            Self::Useless { family, field, reached, buckets } => write!(
                f,
                "useless key: over {family} the {field} reaches {reached} of {buckets} buckets; take another key"
            ),
        }
    }
}

impl core::error::Error for KeyError {}

impl Key {
    /// The key published with the definition of the hash, 40 bytes. Tests and default of most cards; known to everyone.
    pub const MICROSOFT: Self = Self::padded([
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ]);

    /// The key 6d5a repeated, 40 bytes: both directions of a flow have the same hash.
    ///
    /// Bought with entropy: source and destination cancel where they are equal.
    #[must_use]
    pub const fn symmetric() -> Self {
        let mut bytes = [0; 40];
        let mut i = 0;
        while i < 40 {
            bytes[i] = if i % 2 == 0 { 0x6d } else { 0x5a };
            i += 1;
        }
        Self::padded(bytes)
    }

    const fn padded(short: [u8; 40]) -> Self {
        let mut bytes = [0; MAX_KEY];
        let mut i = 0;
        while i < 40 {
            bytes[i] = short[i];
            i += 1;
        }
        Self { bytes, len: 40 }
    }

    /// A key of these bytes.
    ///
    /// # Errors
    /// If there are fewer than 16 or more than 52.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        // Guard: `!(MIN_KEY..=MAX_KEY).contains(&bytes.len())` as `bytes.len() > MAX_KEY` fails key::tests
        if !(MIN_KEY..=MAX_KEY).contains(&bytes.len()) {
            return Err(KeyError::Length(bytes.len()));
        }
        let mut padded = [0; MAX_KEY];
        padded[..bytes.len()].copy_from_slice(bytes);
        Ok(Self { bytes: padded, len: bytes.len() as u8 })
    }

    /// A 40-byte key from a source of random bytes.
    #[must_use]
    pub fn random(mut fill: impl FnMut(&mut [u8])) -> Self {
        let mut bytes = [0; 40];
        fill(&mut bytes);
        Self::padded(bytes)
    }

    /// A key from hexadecimal digits, in pairs that colons, spaces or hyphens may separate.
    ///
    /// # Errors
    /// If something else is there or the length is wrong.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let mut bytes = [0; MAX_KEY + 1];
        let mut len = 0;
        let mut high = None;
        for c in text.chars() {
            let Some(digit) = c.to_digit(16) else {
                match c {
                    // Guard: `high.is_none()` as `true` fails key::tests
                    ':' | ' ' | '-' if high.is_none() => continue,
                    _ => return Err(KeyError::NotHex),
                }
            };
            high = match high {
                None => Some(digit),
                Some(first) => {
                    // Longer keys are counted but not kept.
                    if let Some(byte) = bytes.get_mut(len) {
                        *byte = (first << 4 | digit) as u8;
                    }
                    len += 1;
                    None
                }
            };
        }
        if high.is_some() {
            return Err(KeyError::NotHex);
        }
        Self::new(bytes.get(..len).ok_or(KeyError::Length(len))?)
    }

    /// The key's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The key followed by zeros.
    pub(crate) fn zero_filled(&self) -> &[u8; MAX_KEY] {
        &self.bytes
    }

    /// The 32 key bits from bit `at` on, counted from the first; zeros after the end.
    ///
    /// This is what a set data bit at position `at` adds to the hash.
    #[must_use]
    pub fn window(&self, at: usize) -> u32 {
        let byte = |i: usize| u64::from(self.bytes.get(i).copied().unwrap_or(0));
        let first = at / 8;
        let forty = (0..5).fold(0, |word, i| word << 8 | byte(first + i));
        (forty >> (8 - at % 8)) as u32
    }
}

impl FromStr for Key {
    type Err = KeyError;

    /// `microsoft`, `symmetric` or hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        match text {
            "microsoft" => Ok(Self::MICROSOFT),
            "symmetric" => Ok(Self::symmetric()),
            hex => Self::from_hex(hex),
        }
    }
}

impl fmt::Display for Key {
    /// Hexadecimal digits without separators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    /// Without the key itself, since anyone who reads it in a log can aim packets at a bucket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_there_and_back() {
        let text = Key::MICROSOFT.to_string();
        assert_eq!(text, "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa");
        assert_eq!(text.parse(), Ok(Key::MICROSOFT));
        assert_eq!("microsoft".parse(), Ok(Key::MICROSOFT));
        assert_eq!("symmetric".parse(), Ok(Key::symmetric()));
        let colons =
            Key::MICROSOFT.as_bytes().iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join(":");
        assert_eq!(Key::from_hex(&colons), Ok(Key::MICROSOFT));
    }

    #[test]
    fn bad_keys_say_why() {
        assert_eq!(Key::from_hex(""), Err(KeyError::Length(0)));
        assert_eq!(Key::from_hex(&"00".repeat(15)), Err(KeyError::Length(15)));
        assert_eq!(Key::from_hex(&"00".repeat(53)), Err(KeyError::Length(53)));
        assert_eq!(Key::from_hex(&"00".repeat(90)), Err(KeyError::Length(90)));
        assert_eq!(Key::from_hex("6d5"), Err(KeyError::NotHex));
        assert_eq!(Key::from_hex("6:d5a"), Err(KeyError::NotHex));
        assert_eq!(Key::from_hex("6d5g"), Err(KeyError::NotHex));
        assert!(Key::from_hex(&"0f".repeat(16)).is_ok() && Key::from_hex(&"0f".repeat(52)).is_ok());
        assert_eq!(KeyError::Length(3).to_string(), "key of 3 bytes: must be 16 to 52");
    }

    #[test]
    fn windows_slide_and_end_in_zeros() {
        let key = Key::MICROSOFT;
        assert_eq!(key.window(0), 0x6d5a_56da);
        assert_eq!(key.window(8), 0x5a56_da25);
        assert_eq!(key.window(4), 0xd5a5_6da2);
        assert_eq!(key.window(39 * 8), 0xfa00_0000);
        assert_eq!(key.window(40 * 8), 0);
        assert_eq!(key.window(4000), 0);
    }

    #[test]
    fn debug_hides_the_key() {
        assert_eq!(format!("{:?}", Key::MICROSOFT), "Key(40 bytes)");
    }
}
