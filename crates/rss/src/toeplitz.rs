//! The Toeplitz hash: three forms of one sum.
//!
//! Slide a window of 32 bits along the key, one bit for each bit of data, first bit of the first byte first; the hash
//! is the exclusive or of the windows at the set bits. Past the end of the key the window fills with zeros. Data are
//! source address, destination address, source port, destination port, in network order.
//!
//! * [`Form::Bitwise`] is that definition: the reference for tests.
//! * [`Form::Table`] looks up each byte in a table of 256 sums for its place. Runs everywhere; bytes at a time.
//! * [`Form::Avx2`] and [`Form::Avx512`] multiply without carries (see `flowlane_sys::toeplitz`).
//!
//! All forms agree on every input: the tests compare them. [`Toeplitz::new`] takes the fastest this processor has.

mod bitwise;
mod table;
#[cfg(test)]
mod tests;

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use flowlane_sys::toeplitz::{Columns4, Level, Vector};

use crate::Key;
use table::Table;

/// A way to compute the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Bit by bit, by the definition. Slow.
    Bitwise,
    /// A table of 256 sums for each byte of the data.
    Table,
    /// Carry-less products, one tuple at a time.
    Avx2,
    /// Carry-less products and bit matrices, sixteen tuples at a time.
    Avx512,
}

impl Form {
    /// All forms, plainest first.
    pub const ALL: [Self; 4] = [Self::Bitwise, Self::Table, Self::Avx2, Self::Avx512];
}

/// Computes hashes under one key.
///
/// Holds tables of 1 KiB for each byte of the key (40 KiB for the usual key) and the vector forms' share of the key,
/// 1 KiB; made once and shared. No method allocates.
#[derive(Clone)]
pub struct Toeplitz {
    vector: Option<Vector>,
    table: Table,
    key: Key,
    bitwise: bool,
}

impl Toeplitz {
    /// Under `key`, in the fastest form of this processor.
    #[must_use]
    pub fn new(key: &Key) -> Self {
        let vector = Vector::new(key.zero_filled());
        Self { vector, table: Table::new(key), key: *key, bitwise: false }
    }

    /// Under `key`, in the given form; `None` if this processor lacks it.
    #[must_use]
    pub fn with_form(key: &Key, form: Form) -> Option<Self> {
        let vector = match form {
            Form::Bitwise | Form::Table => None,
            Form::Avx2 => Some(Vector::with_level(key.zero_filled(), Level::Avx2)?),
            Form::Avx512 => Some(Vector::with_level(key.zero_filled(), Level::Avx512)?),
        };
        Some(Self { vector, table: Table::new(key), key: *key, bitwise: form == Form::Bitwise })
    }

    /// The form in use.
    #[must_use]
    pub fn form(&self) -> Form {
        match &self.vector {
            Some(vector) if vector.level() == Level::Avx512 => Form::Avx512,
            Some(_) => Form::Avx2,
            None if self.bitwise => Form::Bitwise,
            None => Form::Table,
        }
    }

    /// The key in use.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Hash of any bytes. Those beyond the key's length add nothing.
    ///
    /// Lengths other than 12 and 36 use the table. Where the length is known beforehand, [`hash12`](Self::hash12) and
    /// [`hash36`](Self::hash36) are quicker.
    #[must_use]
    #[inline]
    pub fn hash(&self, data: &[u8]) -> u32 {
        if let Ok(tuple) = data.try_into() {
            self.hash12(tuple)
        } else if let Ok(tuple) = data.try_into() {
            self.hash36(tuple)
        } else {
            self.portable(data)
        }
    }

    /// Hash of an IPv4 tuple with ports.
    #[must_use]
    #[inline]
    pub fn hash12(&self, tuple: &[u8; 12]) -> u32 {
        match &self.vector {
            Some(vector) => vector.tuple12(tuple),
            None => self.portable(tuple),
        }
    }

    /// Hash of an IPv6 tuple with ports.
    #[must_use]
    #[inline]
    pub fn hash36(&self, tuple: &[u8; 36]) -> u32 {
        match &self.vector {
            Some(vector) => vector.tuple36(tuple),
            None => self.portable(tuple),
        }
    }

    #[inline]
    fn portable(&self, data: &[u8]) -> u32 {
        if self.bitwise { bitwise::hash(&self.key, data) } else { self.table.hash(data) }
    }

    /// Hash of two IPv4 addresses.
    #[must_use]
    #[inline]
    pub fn hash_v4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> u32 {
        // Zero bits add nothing, so ports of zero are no ports.
        self.hash_v4_ports(src, dst, 0, 0)
    }

    /// Hash of two IPv4 addresses and two ports.
    #[must_use]
    #[inline]
    pub fn hash_v4_ports(&self, src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> u32 {
        let (src, dst, ports) = (src.octets(), dst.octets(), ports(src_port, dst_port));
        match &self.vector {
            Some(vector) => vector.ipv4(src, dst, ports),
            None => {
                let mut tuple = [0; 12];
                tuple[..4].copy_from_slice(&src);
                tuple[4..8].copy_from_slice(&dst);
                tuple[8..].copy_from_slice(&ports);
                self.portable(&tuple)
            }
        }
    }

    /// Hash of two IPv6 addresses.
    #[must_use]
    #[inline]
    pub fn hash_v6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> u32 {
        self.hash_v6_ports(src, dst, 0, 0)
    }

    /// Hash of two IPv6 addresses and two ports.
    #[must_use]
    #[inline]
    pub fn hash_v6_ports(&self, src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> u32 {
        let (src, dst, ports) = (src.octets(), dst.octets(), ports(src_port, dst_port));
        match &self.vector {
            Some(vector) => vector.ipv6(&src, &dst, ports),
            None => {
                let mut tuple = [0; 36];
                tuple[..16].copy_from_slice(&src);
                tuple[16..32].copy_from_slice(&dst);
                tuple[32..].copy_from_slice(&ports);
                self.portable(&tuple)
            }
        }
    }

    /// Hashes of IPv4 tuples with ports that lie one after the other.
    ///
    /// # Panics
    /// If there are not as many `hashes` as `tuples`.
    pub fn batch12(&self, tuples: &[[u8; 12]], hashes: &mut [u32]) {
        assert_eq!(tuples.len(), hashes.len(), "as many hashes as tuples");
        match &self.vector {
            Some(vector) => vector.batch12(tuples, hashes),
            None => tuples.iter().zip(hashes).for_each(|(tuple, hash)| *hash = self.portable(tuple)),
        }
    }

    /// Hashes of IPv6 tuples with ports that lie one after the other.
    ///
    /// # Panics
    /// If there are not as many `hashes` as `tuples`.
    pub fn batch36(&self, tuples: &[[u8; 36]], hashes: &mut [u32]) {
        assert_eq!(tuples.len(), hashes.len(), "as many hashes as tuples");
        match &self.vector {
            Some(vector) => vector.batch36(tuples, hashes),
            None => tuples.iter().zip(hashes).for_each(|(tuple, hash)| *hash = self.portable(tuple)),
        }
    }

    /// Hashes of IPv4 tuples laid out by field: the cheapest way to hash many.
    ///
    /// # Panics
    /// If the columns and `hashes` differ in length.
    pub fn columns4(&self, columns: Columns4<'_>, hashes: &mut [u32]) {
        assert_eq!(columns.len(), hashes.len(), "as many hashes as tuples");
        if let Some(vector) = &self.vector {
            return vector.columns4(columns, hashes);
        }
        for (i, hash) in hashes.iter_mut().enumerate() {
            let [a, b] = [columns.src_port[i], columns.dst_port[i]].map(u16::from_be_bytes);
            *hash = self.hash_v4_ports(columns.src[i].into(), columns.dst[i].into(), a, b);
        }
    }
}

impl fmt::Debug for Toeplitz {
    /// Not the tables: they would give the key away.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toeplitz").field("form", &self.form()).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Both ports in network order.
#[inline]
fn ports(src: u16, dst: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (src.to_be_bytes(), dst.to_be_bytes());
    [a, b, c, d]
}
