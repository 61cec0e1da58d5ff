//! Stands in for the vector forms where there are none: other processors, and compilers before Rust 1.89.
//!
//! A [`Vector`] has no values here, so its methods cannot be called and cost nothing.

use super::{Columns4, KEY_BYTES, Level};

/// The vector forms of the hash under one key; none exist for this target.
#[derive(Clone, Debug)]
pub enum Vector {}

impl Vector {
    /// Always `None` here.
    #[must_use]
    pub fn new(_key: &[u8; KEY_BYTES]) -> Option<Self> {
        None
    }

    /// Always `None` here.
    #[must_use]
    pub fn with_level(_key: &[u8; KEY_BYTES], _level: Level) -> Option<Self> {
        None
    }

    /// The level in use.
    #[must_use]
    pub fn level(&self) -> Level {
        match *self {}
    }

    /// Hash of a 12-byte tuple.
    #[must_use]
    pub fn tuple12(&self, _tuple: &[u8; 12]) -> u32 {
        match *self {}
    }

    /// Hash of an IPv4 tuple given by field.
    #[must_use]
    pub fn ipv4(&self, _src: [u8; 4], _dst: [u8; 4], _ports: [u8; 4]) -> u32 {
        match *self {}
    }

    /// Hash of a 36-byte tuple.
    #[must_use]
    pub fn tuple36(&self, _tuple: &[u8; 36]) -> u32 {
        match *self {}
    }

    /// Hash of an IPv6 tuple given by field.
    #[must_use]
    pub fn ipv6(&self, _src: &[u8; 16], _dst: &[u8; 16], _ports: [u8; 4]) -> u32 {
        match *self {}
    }

    /// Hashes of 12-byte tuples.
    pub fn batch12(&self, _tuples: &[[u8; 12]], _hashes: &mut [u32]) {
        match *self {}
    }

    /// Hashes of 36-byte tuples.
    pub fn batch36(&self, _tuples: &[[u8; 36]], _hashes: &mut [u32]) {
        match *self {}
    }

    /// Hashes of IPv4 tuples laid out by field.
    pub fn columns4(&self, _columns: Columns4<'_>, _hashes: &mut [u32]) {
        match *self {}
    }
}
