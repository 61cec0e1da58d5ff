//! Names of functions by their addresses in this process.
//!
//! `/proc/self/maps` says which file an address comes from, and that file's own symbol table (`.symtab`, else `.dynsym`) which function. An
//! installed `flowlane` has its table: only the lines are stripped. Everything in a file is checked before it is used: a strange one gives no
//! names. Nothing is kept: files are read anew for each trace, which are few.

use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Largest table that is read, bytes.
const LARGEST: u64 = 256 << 20;
/// Names longer than this are cut: generic ones have no end.
const LONGEST: usize = 200;
/// Below this is the standard library's beginning of a thread.
const BOTTOM: &str = "__rust_begin_short_backtrace";

/// The mappings of this process, and the tables that were read.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    maps: Vec<Mapping>,
    tables: HashMap<PathBuf, Option<Table>>,
}

#[derive(Debug)]
struct Mapping {
    addresses: Range<u64>,
    offset: u64,
    path: PathBuf,
}

/// Functions of a file, by address within it.
#[derive(Debug)]
struct Table {
    /// Offset in the file, address and length of what is loaded.
    loaded: Vec<(u64, u64, u64)>,
    /// Address, size and name, in order.
    functions: Vec<(u64, u64, u32)>,
    names: Vec<u8>,
}

impl Symbols {
    pub(super) fn read() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self { maps: maps.lines().filter_map(mapping).collect(), tables: HashMap::new() }
    }

    /// A line for each address of a stack, the innermost first, to where the program's own part ends.
    pub(super) fn names(&mut self, addresses: &[usize]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (i, address) in addresses.iter().enumerate() {
            // The address to return to may be that of the next function.
            let name = self.name(*address as u64 - u64::from(i > 0 && *address > 0));
            if name.contains(BOTTOM) {
                break;
            }
            names.push(name);
        }
        names
    }

    fn name(&mut self, address: u64) -> String {
        let Some(mapping) = self.maps.iter().find(|m| m.addresses.contains(&address)) else {
            return format!("{address:#x}");
        };
        let table = self.tables.entry(mapping.path.clone()).or_insert_with(|| Table::read(&mapping.path));
        let offset = address - mapping.addresses.start + mapping.offset;
        if let Some(name) = table.as_ref().and_then(|table| table.name(offset)) {
            return name.chars().take(LONGEST).collect();
        }
        let file = mapping.path.file_name().unwrap_or(mapping.path.as_os_str()).to_string_lossy();
        format!("{file}+{offset:#x}")
    }
}

/// A line of `maps`: `addresses permissions offset device inode path`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(words.nth(1)?)?;
    let path = PathBuf::from(words.nth(2)?);
    Some(Mapping { addresses: hex(start)?..hex(end)?, offset, path })
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(|n| u64::from(u16::from_ne_bytes(n)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_ne_bytes)
}

/// So many bytes of a file.
fn part(file: &File, at: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= LARGEST)?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

impl Table {
    /// The functions of an ELF file of 64 bits in this machine's byte order.
    fn read(path: &Path) -> Option<Self> {
        // The program's own file may have been replaced since it began.
        let own = fs::read_link("/proc/self/exe").is_ok_and(|own| own == path);
        let file = File::open(if own { Path::new("/proc/self/exe") } else { path }).ok()?;
        let head = part(&file, 0, 64)?;
        if head.get(..5)? != b"\x7fELF\x02" {
            return None;
        }
        let table = |at: usize, size: usize, count: usize, of: u64| {
            let (size, count) = (u16_at(&head, size)?, u16_at(&head, count)?);
            let bytes = part(&file, u64_at(&head, at)?, size * count)?;
            (size >= of).then(|| bytes.chunks_exact(size as usize).map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        // Program headers: what is loaded from where.
        let load = |h: &Vec<u8>| {
            let is_loaded = u32_at(h, 0)? == 1;
            is_loaded.then_some((u64_at(h, 8)?, u64_at(h, 16)?, u64_at(h, 32)?))
        };
        let loaded = table(0x20, 0x36, 0x38, 56)?.iter().filter_map(load).collect();
        // Sections: the table of symbols, else that of what other files may use.
        let sections = table(0x28, 0x3a, 0x3c, 64)?;
        let of_kind = |kind: u32| sections.iter().find(|s| u32_at(s, 4) == Some(kind));
        let symbols = of_kind(2).or_else(|| of_kind(11))?;
        let content = |s: &Vec<u8>| part(&file, u64_at(s, 24)?, u64_at(s, 32)?);
        let names = content(sections.get(u32_at(symbols, 40)? as usize)?)?;
        let function = |s: &[u8]| {
            let is_function = *s.get(4)? & 0xf == 2 && u64_at(s, 8)? > 0;
            is_function.then_some((u64_at(s, 8)?, u64_at(s, 16)?, u32_at(s, 0)?))
        };
        let mut functions: Vec<_> = content(symbols)?.chunks_exact(24).filter_map(function).collect();
        functions.sort_unstable();
        Some(Self { loaded, functions, names })
    }

    /// The name of the function at an offset of the file.
    fn name(&self, offset: u64) -> Option<String> {
        let (from, to, _) = self.loaded.iter().find(|(from, _, len)| offset.wrapping_sub(*from) < *len)?;
        let address = offset - from + to;
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.functions.get(after.checked_sub(1)?)?;
        if address - start >= (*size).max(1) {
            return None;
        }
        let name = self.names.get(*name as usize..)?.split(|byte| *byte == 0).next()?;
        Some(format!("{:#}", rustc_demangle::demangle(std::str::from_utf8(name).ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_with_a_name() -> u32 {
        std::hint::black_box(7)
    }

    #[test]
    fn functions_have_their_names() {
        a_function_with_a_name();
        let own = a_function_with_a_name as *const () as usize;
        let names = Symbols::read().names(&[own, own + 1, 0, usize::MAX]);
        assert!(names[0].ends_with("symbols::tests::a_function_with_a_name"), "{names:?}");
        assert_eq!(names[1], names[0]);
        assert_eq!((&*names[2], &*names[3]), ("0x0", "0xfffffffffffffffe"));
    }

    #[test]
    fn strange_files_have_none() {
        let path = std::env::temp_dir().join(format!("flowlane-elf-{}", std::process::id()));
        let whole = fs::read("/proc/self/exe").unwrap();
        let head = whole[..4096].to_vec();
        let mut far = head.clone();
        far[0x28..0x30].copy_from_slice(&u64::MAX.to_ne_bytes());
        for strange in [
            Vec::new(),
            b"\x7fELF\x02".to_vec(),
            b"#!/bin/sh\n".to_vec(),
            head[..64].to_vec(),
            head,
            far,
            vec![0xff; 4096],
        ] {
            fs::write(&path, &strange).unwrap();
            assert!(Table::read(&path).is_none());
        }
        fs::remove_file(&path).unwrap();
        assert!(
            mapping("55d0-55e0 r-xp 00002000 fe:01 1234 /usr/bin/cat").is_some_and(|m| m.offset == 0x2000)
        );
        assert!(["", "7ffe-7fff rw-p 0 00:00 0", "x-y z"].into_iter().all(|line| mapping(line).is_none()));
    }
}
