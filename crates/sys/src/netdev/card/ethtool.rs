//! Commands of `SIOCETHTOOL` (linux/ethtool.h) to one interface, their blocks read and written as words in machine order.
//!
//! ```text
//!   driver    (0x03)   command, driver's name (32 bytes), version (32), firmware (32), bus (32), ...
//!   address   (0x20)   command, bytes, address
//!   names     (0x1b)   command, which names, how many, then 32 bytes each
//!   counts    (0x1d)   command, how many, then 8 bytes each
//!   rings     (0x2d)   command, kind of flow, number (8 bytes)
//!   offloads  (0x3a)   command, blocks, blocks x (available, requested, active, never changed)
//!   channels  (0x3c get, 0x3d set)   command, at most (receive, transmit, other, both), now (the same four)
//! ```

use super::super::{Interface, control, request};
use super::{Told, Untold};
use crate::error::Result;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const GET_DRIVER: u32 = 0x03;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_PERMANENT_ADDRESS: u32 = 0x20;
const GET_RINGS: u32 = 0x2d;
const GET_SET_INFO: u32 = 0x37;
const GET_OFFLOADS: u32 = 0x3a;
const SET_OFFLOADS: u32 = 0x3b;
const GET_CHANNELS: u32 = 0x3c;
const SET_CHANNELS: u32 = 0x3d;
/// Sets of names: statistics and offloads.
const NAMES_OF_STATISTICS: u32 = 1;
const NAMES_OF_OFFLOADS: u32 = 4;
/// Names of a set that are read at most; cards with hundreds of queues have some thousands of statistics.
const NAMES: u32 = 1 << 14;
/// Names and numbers that there is room for. The kernel writes as many as the driver has at that moment, whatever was asked for, and somebody may
/// have raised the number of queues in between: so there is room for eight times as many. What is not written to takes no memory.
const ROOM: usize = 8 * NAMES as usize;
/// Bytes of a name.
const NAME: usize = 32;
/// Bits of offloads are counted in blocks of 32; Linux has 3 of them.
const BLOCKS: usize = 8;

/// Offloads that have to do with receiving: the kernel's name and that of `ethtool -K`.
const OFFLOADS: [(&str, &str); 7] = [
    ("rx-hashing", "rxhash"),
    ("rx-ntuple-filter", "ntuple"),
    ("rx-lro", "lro"),
    ("rx-gro", "gro"),
    ("rx-gro-hw", "rx-gro-hw"),
    ("rx-vlan-hw-parse", "rxvlan"),
    ("rx-vlan-filter", "rx-vlan-filter"),
];

/// Driver of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// Its name, as `virtio_net`.
    pub name: String,
    /// Bus address of the card, as `0000:00:03.0`; empty without one.
    pub bus: String,
}

/// Numbers of queues by what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Receive only.
    pub receive: u32,
    /// Transmit only.
    pub transmit: u32,
    /// Neither: for the driver's own interrupts.
    pub other: u32,
    /// Both.
    pub combined: u32,
}

impl Counts {
    /// Queues that receive.
    #[must_use]
    pub fn receiving(self) -> u32 {
        self.receive.saturating_add(self.combined)
    }

    /// Queues that transmit.
    #[must_use]
    pub fn transmitting(self) -> u32 {
        self.transmit.saturating_add(self.combined)
    }
}

/// Numbers of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelCounts {
    /// In use.
    pub now: Counts,
    /// At most.
    pub most: Counts,
}

/// An offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    /// It is at work.
    pub on: bool,
    /// Nobody can change that.
    pub fixed: bool,
}

/// Those offloads that have to do with receiving and that the kernel knows, by their names in `ethtool -K`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offloads(Vec<(&'static str, Offload)>);

impl Offloads {
    /// Those of these names.
    #[must_use]
    pub fn new(list: Vec<(&'static str, Offload)>) -> Self {
        Self(list)
    }

    /// The one of a name, as `rxhash`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Offload> {
        self.iter().find(|(found, _)| *found == name).map(|(_, offload)| offload)
    }

    /// All, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Offload)> + '_ {
        self.0.iter().copied()
    }
}

/// Commands to the driver of one interface. It stays usable in whatever network namespace its user is later.
#[derive(Debug)]
pub struct Ethtool {
    interface: Interface,
    /// Opened in the network namespace of the interface.
    socket: OwnedFd,
}

impl Ethtool {
    /// For an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn open(interface: &Interface) -> Result<Self> {
        Ok(Self { interface: interface.clone(), socket: control(libc::AF_INET)? })
    }

    /// The interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// One command; `words` is as long as its block.
    pub(in super::super) fn call(&self, words: &mut [u32]) -> io::Result<()> {
        let mut request = request(&self.interface.name).map_err(io::Error::other)?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: SIOCETHTOOL reads the name and reads and writes the block that `ifr_data` names, which is writable. Each
        // caller's block is as long as its command's structure with the lengths that it announces.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Driver and bus address of the card.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn driver(&self) -> Told<Driver> {
        // struct ethtool_drvinfo: 196 bytes.
        let mut words = [0; 49];
        words[0] = GET_DRIVER;
        self.call(&mut words)?;
        Ok(Driver { name: text(&words[1..9]), bus: text(&words[25..33]) })
    }

    /// The Ethernet address that the card was made with.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn permanent_mac(&self) -> Told<[u8; 6]> {
        let mut words = [GET_PERMANENT_ADDRESS, 32, 0, 0, 0, 0, 0, 0, 0, 0];
        self.call(&mut words)?;
        let bytes = bytes(&words[2..]);
        match bytes.first_chunk::<6>() {
            Some(mac) if words[1] == 6 && *mac != [0; 6] => Ok(*mac),
            _ => Err(Untold::Unsupported),
        }
    }

    /// Numbers of queues.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn channels(&self) -> Told<ChannelCounts> {
        let mut words = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        self.call(&mut words)?;
        let counts = |at: usize| Counts {
            receive: words[at],
            transmit: words[at + 1],
            other: words[at + 2],
            combined: words[at + 3],
        };
        Ok(ChannelCounts { now: counts(5), most: counts(1) })
    }

    /// Sets the numbers of queues.
    pub(super) fn set_channels(&self, wanted: Counts) -> io::Result<()> {
        let Counts { receive, transmit, other, combined } = wanted;
        // What there may be at most is not looked at.
        self.call(&mut [SET_CHANNELS, 0, 0, 0, 0, receive, transmit, other, combined])
    }

    /// Queues that RSS may name.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn rings(&self) -> Told<u32> {
        let mut words = [GET_RINGS, 0, 0, 0];
        self.call(&mut words)?;
        u32::try_from(long(&words[2..4])).map_err(|_| Untold::Unsupported)
    }

    /// Offloads that have to do with receiving.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn offloads(&self) -> Told<Offloads> {
        let names = self.names_of_offloads()?;
        let blocks = self.offload_blocks()?;
        let offload = |name: &str| {
            let bit = names.iter().position(|found| found == name)?;
            let [available, _, active, never] = *blocks.get(bit / 32)?;
            let is_set = |word: u32| word >> (bit % 32) & 1 != 0;
            Some(Offload { on: is_set(active), fixed: !is_set(available) || is_set(never) })
        };
        let known = |(kernel, short): &(&str, &'static str)| Some((*short, offload(kernel)?));
        Ok(Offloads(OFFLOADS.iter().filter_map(known).collect()))
    }

    /// Whether an offload is at work, by the kernel's name; `false` where there is none of this name.
    pub(in super::super) fn offload(&self, name: &str) -> io::Result<bool> {
        let Some(bit) = self.names_of_offloads()?.iter().position(|found| found == name) else {
            return Ok(false);
        };
        Ok(self.offload_blocks()?.get(bit / 32).is_some_and(|block| block[2] >> (bit % 32) & 1 != 0))
    }

    /// Switches an offload off, by the kernel's name; one that the kernel does not have is off.
    pub(in super::super) fn switch_off(&self, name: &str) -> io::Result<()> {
        let Some(bit) = self.names_of_offloads()?.iter().position(|found| found == name) else {
            return Ok(());
        };
        let mut blocks = vec![[0, 0]; self.offload_blocks()?.len().max(bit / 32 + 1)];
        blocks[bit / 32] = [1 << (bit % 32), 0];
        self.request_offloads(&blocks)
    }

    /// The driver's own statistics by name, in its order. A card may be asked for them, which takes some drivers a millisecond.
    ///
    /// # Errors
    /// The driver has none, or as many as nobody reads.
    pub fn statistics(&self) -> Told<Vec<(String, u64)>> {
        let names = self.names(NAMES_OF_STATISTICS)?;
        if names.is_empty() {
            return Err(Untold::Unsupported);
        }
        let mut block = vec![0; 2 + ROOM * 2];
        (block[0], block[1]) = (GET_STATISTICS, names.len() as u32);
        self.call(&mut block)?;
        if block[1] as usize != names.len() {
            return Err(Untold::Unsupported);
        }
        Ok(names
            .into_iter()
            .zip(block[2..].chunks_exact(2))
            .map(|(name, value)| (name, long(value)))
            .collect())
    }

    fn names_of_offloads(&self) -> io::Result<Vec<String>> {
        self.names(NAMES_OF_OFFLOADS)
    }

    /// The names of a set.
    fn names(&self, set: u32) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: command, reserved, a mask of 64 bits, then the number of names.
        let mask = (1u64 << set).to_ne_bytes();
        let half = |at: usize| u32::from_ne_bytes([mask[at], mask[at + 1], mask[at + 2], mask[at + 3]]);
        let mut info = [GET_SET_INFO, 0, half(0), half(4), 0];
        self.call(&mut info)?;
        let count = info[4];
        if count > NAMES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut strings = vec![0; 3 + ROOM * NAME / 4];
        strings[..3].copy_from_slice(&[GET_STRINGS, set, count]);
        self.call(&mut strings)?;
        let count = strings[2].min(count) as usize;
        Ok(strings[3..].chunks_exact(NAME / 4).take(count).map(text).collect())
    }

    /// Blocks of 32 offloads: available, requested, active, never changed.
    pub(in super::super) fn offload_blocks(&self) -> io::Result<Vec<[u32; 4]>> {
        let mut words = [0; 2 + 4 * BLOCKS];
        (words[0], words[1]) = (GET_OFFLOADS, BLOCKS as u32);
        self.call(&mut words)?;
        let blocks = (words[1] as usize).min(BLOCKS);
        Ok(words[2..].chunks_exact(4).take(blocks).map(|b| [b[0], b[1], b[2], b[3]]).collect())
    }

    /// Requests offloads, for each block of 32: which, and what of them.
    pub(in super::super) fn request_offloads(&self, blocks: &[[u32; 2]]) -> io::Result<()> {
        let mut words = vec![SET_OFFLOADS, blocks.len() as u32];
        words.extend(blocks.iter().flatten());
        self.call(&mut words)
    }
}

/// Words as bytes, in the order of memory.
pub(super) fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// Bytes as words, in the order of memory, with zeros at the end.
pub(super) fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_ne_bytes(word)
    };
    bytes.chunks(4).map(word).collect()
}

/// Two words as one number.
pub(super) fn long(words: &[u32]) -> u64 {
    let bytes = bytes(words);
    bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = bytes(words).into_iter().take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
