//! Key, function and table of a card, and the command that sets them together.
//!
//! ```text
//!   RSS (0x46 get, 0x47 set)   command, context, slots, key bytes, function and transform and 2 bytes, 0, slots words, key
//! ```

use super::ethtool::{Ethtool, bytes, words};
use super::fields::{Fields, FlowKind, told};
use super::{Told, Untold};
use std::io;

const GET_RSS: u32 = 0x46;
const SET_RSS: u32 = 0x47;
/// "Leave the table alone."
const NO_CHANGE: u32 = u32::MAX;
/// Words before the table.
const HEAD: usize = 6;
/// Contexts that are looked for where the kernel has no list of them.
const CONTEXTS: u32 = 64;

/// How a hash is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// The driver does not tell.
    Untold,
    /// The hash of RSS, with a key.
    Toeplitz,
    /// Exclusive or of the bytes.
    Xor,
    /// CRC32 of the fields.
    Crc32,
    /// Another one: the kernel's bits `ETH_RSS_HASH_*`.
    Other(u8),
}

impl Function {
    pub(super) fn of_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Untold,
            1 => Self::Toeplitz,
            2 => Self::Xor,
            4 => Self::Crc32,
            other => Self::Other(other),
        }
    }

    /// The kernel's bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::Untold => 0,
            Self::Toeplitz => 1,
            Self::Xor => 2,
            Self::Crc32 => 4,
            Self::Other(bits) => bits,
        }
    }

    /// The one of these bits.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self::of_bits(bits)
    }
}

impl std::fmt::Display for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Untold => f.write_str("a function that the driver does not name"),
            Self::Toeplitz => f.write_str("toeplitz"),
            Self::Xor => f.write_str("xor"),
            Self::Crc32 => f.write_str("crc32"),
            Self::Other(bits) => write!(f, "function {bits:#x}"),
        }
    }
}

/// Transform of the fields before hashing (`input_xfrm`, Linux 6.8). Older kernels have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    /// Nothing.
    None,
    /// Source and destination become their exclusive or, in both places.
    SymmetricXor,
    /// Source and destination become their or and their exclusive or.
    SymmetricOrXor,
    /// Another one: the kernel's bits `RXH_XFRM_*`.
    Other(u8),
}

impl Transform {
    /// The one of the kernel's bits.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::None,
            1 => Self::SymmetricXor,
            2 => Self::SymmetricOrXor,
            other => Self::Other(other),
        }
    }

    /// The kernel's bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::SymmetricXor => 1,
            Self::SymmetricOrXor => 2,
            Self::Other(bits) => bits,
        }
    }
}

impl std::fmt::Display for Transform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::SymmetricXor => f.write_str("symmetric-xor"),
            Self::SymmetricOrXor => f.write_str("symmetric-or-xor"),
            Self::Other(bits) => write!(f, "transform {bits:#x}"),
        }
    }
}

/// The key of a hash. Debug output does not show it: anyone who knows it can aim packets at a queue.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct HashKey(pub Vec<u8>);

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HashKey({} bytes)", self.0.len())
    }
}

impl std::fmt::Display for HashKey {
    /// Hexadecimal digits, the bytes apart by colons, as `ethtool -X IFACE hkey` takes them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

/// How packets are spread over queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rss {
    /// How the hash is made.
    pub function: Function,
    /// Transform of the fields before hashing.
    pub transform: Transform,
    /// The key; empty where the driver shows none.
    pub key: HashKey,
    /// The queue of each slot; empty where the driver shows no table.
    pub table: Vec<u32>,
    /// The fields of each kind of flow, in the order of [`FlowKind::ALL`].
    pub fields: Vec<(FlowKind, Told<Fields>)>,
}

impl Rss {
    /// The fields of a kind of flow.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn fields_of(&self, kind: FlowKind) -> Told<Fields> {
        told(&self.fields, kind)
    }

    /// Whether the table is what the kernel makes for `queues` queues: slot `i` names queue `i % queues`.
    #[must_use]
    pub fn is_default_table(&self, queues: u32) -> bool {
        queues > 0 && self.table.iter().enumerate().all(|(slot, &queue)| slot as u32 % queues == queue)
    }
}

/// A further spreading, beside the card's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Its number, by which rules name it.
    pub id: u32,
    /// Its table; its key is empty and its function untold where it shares the card's.
    pub rss: Rss,
}

/// What to do with the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum TableChange<'a> {
    Keep,
    /// As the kernel makes it. It does not count as set by hand then, so the number of queues can be lowered.
    Default,
    Slots(&'a [u32]),
}

impl Ethtool {
    /// The card's spreading, by ioctl.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn rss(&self) -> Told<Rss> {
        self.context(0)
    }

    /// Contexts by their numbers, where the kernel has no list of them: as many as are found from 1 on.
    pub(super) fn contexts(&self) -> Told<Vec<Context>> {
        let mut found = Vec::new();
        for id in 1..=CONTEXTS {
            match self.context(id) {
                Ok(rss) => found.push(Context { id, rss }),
                // A driver without contexts says so at the first.
                Err(why) if id == 1 && why != Untold::Unsupported => return Err(why),
                Err(_) => {}
            }
        }
        Ok(found)
    }

    fn context(&self, id: u32) -> Told<Rss> {
        let mut head = [GET_RSS, id, 0, 0, 0, 0];
        self.call(&mut head)?;
        let (slots, key_len) = (head[2] as usize, head[3] as usize);
        // A table is at most some thousand slots, a key some tens of bytes.
        if (slots == 0 && key_len == 0) || slots > 1 << 16 || key_len > 1 << 10 {
            return Err(Untold::Unsupported);
        }
        let mut block = vec![0; HEAD + slots + key_len.div_ceil(4)];
        block[..4].copy_from_slice(&[GET_RSS, id, head[2], head[3]]);
        self.call(&mut block)?;
        let [function, transform, ..] = block[4].to_ne_bytes();
        let (table, key) = block[HEAD..].split_at(slots);
        let mut key = bytes(key);
        key.truncate(key_len);
        Ok(Rss {
            function: Function::of_bits(function),
            transform: Transform::from_bits(transform),
            key: HashKey(key),
            table: table.to_vec(),
            fields: self.all_fields(id),
        })
    }

    /// Sets key, function and table in one command. Everything but the table is set even if it is as it was: a driver that forgot it
    /// learns it again. What the driver has none of is left out.
    ///
    /// A table that is reset has a command of its own: kernels look for the key behind the table that is not there then.
    pub(in super::super) fn write_rss(&self, rss: &Rss, table: TableChange<'_>) -> io::Result<()> {
        let entries = match table {
            TableChange::Keep => None,
            TableChange::Default => {
                self.command(0, &[], rss, &[])?;
                None
            }
            TableChange::Slots(entries) => Some(entries),
        };
        match entries {
            None if rss.key.0.is_empty() => Ok(()),
            None => self.command(NO_CHANGE, &[], rss, &rss.key.0),
            Some(entries) => self.command(entries.len() as u32, entries, rss, &rss.key.0),
        }
    }

    fn command(&self, slots: u32, entries: &[u32], rss: &Rss, key: &[u8]) -> io::Result<()> {
        let how = u32::from_ne_bytes([rss.function.bits(), rss.transform.bits(), 0, 0]);
        let mut block = vec![SET_RSS, 0, slots, key.len() as u32, how, 0];
        block.extend(entries);
        block.extend(words(key));
        self.call(&mut block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_key_and_display_does_not() {
        let key = HashKey(vec![0x6d, 0x5a, 0x01]);
        assert_eq!((format!("{key:?}"), key.to_string()), ("HashKey(3 bytes)".into(), "6d:5a:01".into()));
    }

    #[test]
    fn bits_there_and_back() {
        for bits in 0..=16 {
            assert_eq!(Function::from_bits(bits).bits(), bits);
            assert_eq!(Transform::from_bits(bits).bits(), bits);
        }
        assert_eq!(Function::from_bits(4), Function::Crc32);
        assert_eq!(Transform::from_bits(2).to_string(), "symmetric-or-xor");
    }
}
