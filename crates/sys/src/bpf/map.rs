//! BPF maps: memory shared by a program and this process.

use super::{Command, address, call, call_fd, kernel_name};
use crate::error::{Error, Result};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Kinds of map used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Keys of any fixed size.
    Hash = 1,
    /// Keys 0 to `entries - 1`.
    Array = 2,
    /// Longest-prefix match; the key is a `u32` prefix length (machine order) and the address (network order).
    LpmTrie = 11,
    /// AF_XDP sockets by queue.
    XskMap = 17,
    /// Sockets of a `SO_REUSEPORT` group by index.
    ReuseportSockArray = 20,
    /// Records without keys, in the order in which they came; its entries are bytes (Linux 5.8). See [`super::RingBuffer`].
    RingBuffer = 27,
}

/// A BPF map. Freed with the last descriptor and the last program that uses it.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

#[repr(C)]
struct CreateAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
struct ElementAttributes {
    map_fd: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Map {
    /// A new, empty (arrays: zeroed) map.
    ///
    /// # Errors
    /// [`Error::MissingCapability`], or the kernel's refusal of the sizes.
    pub fn new(
        kind: MapKind,
        name: &str,
        key_size: usize,
        value_size: usize,
        entries: usize,
    ) -> Result<Self> {
        const NO_PREALLOC: u32 = 1;
        let mut attributes = CreateAttributes {
            map_type: kind as u32,
            key_size: key_size as u32,
            value_size: value_size as u32,
            max_entries: entries as u32,
            map_flags: if kind == MapKind::LpmTrie { NO_PREALLOC } else { 0 },
            inner_map_fd: 0,
            numa_node: 0,
            map_name: kernel_name(name),
        };
        // SAFETY: the layout of BPF_MAP_CREATE, which holds no addresses and returns a descriptor.
        let fd = unsafe { call_fd(Command::MapCreate, &mut attributes) }
            .map_err(|e| Error::from_io(e, format!("BPF map {name}"), "CAP_BPF"))?;
        Ok(Self { fd, key_size, value_size })
    }

    /// A map that somebody else made, with keys and values of these sizes.
    pub(crate) fn of(fd: OwnedFd, key_size: usize, value_size: usize) -> Self {
        Self { fd, key_size, value_size }
    }

    /// An array with one value of `bytes` bytes.
    ///
    /// # Errors
    /// As [`Map::new`].
    pub fn block(name: &str, bytes: usize) -> Result<Self> {
        Self::new(MapKind::Array, name, 4, bytes, 1)
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// The kernel's: no such key in an array, map full, no memory.
    ///
    /// # Panics
    /// When `key` or `value` are not of the map's sizes.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!((key.len(), value.len()), (self.key_size, self.value_size), "sizes of the map");
        let mut attributes = self.element(key, address(value));
        // SAFETY: the layout of BPF_MAP_UPDATE_ELEM; the kernel reads key_size and value_size bytes, checked above.
        unsafe { call(Command::MapUpdate, &mut attributes) }.map(drop)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    ///
    /// # Panics
    /// When `key` is not of the map's size.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        assert_eq!(key.len(), self.key_size, "size of the map's key");
        let mut value = vec![0u8; self.value_size];
        let mut attributes = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: the layout of BPF_MAP_LOOKUP_ELEM; the kernel reads key_size bytes and writes value_size bytes (no
        // kind of map here is per processor, which would be more).
        unsafe { call(Command::MapLookup, &mut attributes) }?;
        Ok(value)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// `NotFound` when it is not there.
    ///
    /// # Panics
    /// When `key` is not of the map's size.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        assert_eq!(key.len(), self.key_size, "size of the map's key");
        let mut attributes = self.element(key, 0);
        // SAFETY: the layout of BPF_MAP_DELETE_ELEM; the kernel reads key_size bytes.
        unsafe { call(Command::MapDelete, &mut attributes) }.map(drop)
    }

    fn element(&self, key: &[u8], value: u64) -> ElementAttributes {
        ElementAttributes { map_fd: as_fd_number(self) as u32, zero: 0, key: address(key), value, flags: 0 }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The descriptor's number, as instructions and argument blocks hold it.
pub(super) fn as_fd_number(fd: &impl AsFd) -> i32 {
    fd.as_fd().as_raw_fd()
}
