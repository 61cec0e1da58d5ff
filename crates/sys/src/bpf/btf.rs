//! Finding kernel functions in the kernel's own type information.
//!
//! Programs call functions that are not numbered helpers ("kfuncs") by their number in the BTF of the running kernel,
//! which it offers as a file. The format: a header, then records of one common head (name, kind and count, size or
//! type) and a tail whose length depends on the kind; their number is their place in the list, from 1.

use crate::error::{Error, Result};

const KIND_FUNC: u32 = 12;

/// The number of the kernel function `name`, for [`Assembler::call_kfunc`](super::asm::Assembler::call_kfunc).
///
/// # Errors
/// [`Error::KernelTooOld`] when the kernel has no such function or no type information.
pub fn kfunc(name: &'static str) -> Result<u32> {
    let missing = || Error::KernelTooOld { feature: name, needs: "6.3 (and with BTF)" };
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|_| missing())?;
    find_function(&btf, name).ok_or_else(missing)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Walks the records of `btf` up to the function called `name`.
fn find_function(btf: &[u8], name: &str) -> Option<u32> {
    let header = word(btf, 4)? as usize;
    let types = header + word(btf, 8)? as usize;
    let types_end = types + word(btf, 12)? as usize;
    let strings = header + word(btf, 16)? as usize;
    let (mut at, mut id) = (types, 1);
    while at < types_end {
        let info = word(btf, at + 4)?;
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        if kind == KIND_FUNC {
            let start = strings + word(btf, at)? as usize;
            let text = btf.get(start..start + name.len() + 1)?;
            if text[..name.len()] == *name.as_bytes() && text[name.len()] == 0 {
                return Some(id);
            }
        }
        at += 12 + tail(kind, count)?;
        id += 1;
    }
    None
}

/// Bytes after the common head, by kind; `None` for a kind that is not known here.
fn tail(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        2 | 7..=12 | 16 | 18 => 0,
        // integer, variable, declaration tag
        1 | 14 | 17 => 4,
        3 => 12,                       // array
        4 | 5 | 15 | 19 => 12 * count, // struct, union, section, 64-bit enumeration
        6 | 13 => 8 * count,           // enumeration, function prototype
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_function_after_records_with_tails() {
        // string table: "\0a\0rx_hash\0"
        let strings = b"\0a\0rx_hash\0";
        let mut types: Vec<u8> = Vec::new();
        let mut record = |words: &[u32]| types.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        record(&[1, 1 << 24, 4, 32]); // an integer
        record(&[1, 4 << 24 | 2, 8, 1, 1, 0, 1, 1, 32]); // a struct of two members
        record(&[3, 12 << 24, 1]); // the function
        let mut btf: Vec<u8> = vec![0x9f, 0xeb, 1, 0];
        btf.extend(
            [24u32, 0, types.len() as u32, types.len() as u32, strings.len() as u32]
                .iter()
                .flat_map(|w| w.to_ne_bytes()),
        );
        btf.extend(&types);
        btf.extend(strings);
        assert_eq!(find_function(&btf, "rx_hash"), Some(3));
        assert_eq!(find_function(&btf, "rx_has"), None);
        for cut in 0..btf.len() {
            let _ = find_function(&btf[..cut], "rx_hash"); // must not panic
        }
    }
}
