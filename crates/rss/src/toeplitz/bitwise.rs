//! The hash by its definition: one window of the key for each set bit.

use crate::Key;

pub(super) fn hash(key: &Key, data: &[u8]) -> u32 {
    let bits = data.iter().flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1 == 1));
    bits.enumerate().filter(|&(_, set)| set).fold(0, |sum, (at, _)| sum ^ key.window(at))
}
