//! What a driver forgets when an XDP program comes or goes, recorded before and set again after: RSS and offloads.
//!
//! * An XDP program in generic mode switches merging (LRO, `rx-gro-hw`) off, and nobody switches it on again.
//! * virtio-net switches its RSS off, silently: `ethtool -x` still shows the key and the table. To set the key again, as it is,
//!   switches it on.
//!
//! Commands of `SIOCETHTOOL` (linux/ethtool.h), whose blocks are read and written here as words in machine order:
//!
//! ```text
//!   RSS     (0x46 get, 0x47 set)   command, context, slots, key bytes, function and 3 bytes, 0, slots words, key
//!   fields  (0x29 get, 0x2a set)   command, kind of flow, fields (8 bytes)
//!   offload (0x3a get, 0x3b set)   command, blocks, blocks x (get: available, requested, active, never changed;
//!                                                             set: valid, requested)
//!   queues  (0x3c get)             command, four maxima, receive, transmit, other, combined
//!   driver  (0x03)                 command, driver's name (32 bytes), ...
//!   flags   (0x25 get)             command, flags
//! ```
//!
//! What is as recorded already is left alone, since some drivers interrupt their work for it. Setting needs `CAP_NET_ADMIN`.

use super::{Interface, control};
use crate::error::Result;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const DRIVER: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const GET_CHANNELS: u32 = 0x3c;
const GET_FIELDS: u32 = 0x29;
const SET_FIELDS: u32 = 0x2a;
const GET_OFFLOADS: u32 = 0x3a;
const SET_OFFLOADS: u32 = 0x3b;
const GET_RSS: u32 = 0x46;
const SET_RSS: u32 = 0x47;

/// TCP and UDP over IPv4, TCP and UDP over IPv6.
const FLOWS: [u32; 4] = [1, 2, 5, 6];
/// "Leave the table alone."
const NO_CHANGE: u32 = u32::MAX;
/// Words before the table.
const RSS_HEAD: usize = 6;
/// Bits of offloads are counted in blocks of 32; Linux has 3 of them.
const BLOCKS: usize = 8;

/// The card's RSS.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rss {
    /// Function and its variant, as the kernel packs them.
    function: u32,
    table: Vec<u32>,
    /// In words, zeros at the end.
    key: Vec<u32>,
    key_len: u32,
    fields: [Option<[u32; 2]>; FLOWS.len()],
}

/// How an interface was set up when it was recorded.
#[derive(Debug)]
pub struct CardSettings {
    interface: Interface,
    /// Opened in the network namespace of the interface, so that it can be set from any.
    socket: OwnedFd,
    rss: Option<Rss>,
    /// The requested offloads, a bit each.
    offloads: Vec<u32>,
    /// The driver forgets its RSS without showing that.
    forgets: bool,
}

impl CardSettings {
    /// Records how `interface`, of the calling thread's network namespace, is set up. What the driver does not tell is left
    /// alone for ever.
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn record(interface: &Interface) -> Result<Self> {
        let socket = control(libc::AF_INET)?;
        let mut settings =
            Self { interface: interface.clone(), socket, rss: None, offloads: Vec::new(), forgets: false };
        settings.rss = settings.read_rss();
        settings.offloads = settings.read_offloads().unwrap_or_default();
        settings.forgets =
            settings.rss.is_some() && settings.driver().is_some_and(|name| name == "virtio_net");
        Ok(settings)
    }

    /// Whether an XDP program changes what its going does not change back, as far as is known: RSS of a driver that forgets it, or
    /// merging, in generic mode.
    #[must_use]
    pub fn at_stake(&self) -> bool {
        const LARGE_RECEIVE: u32 = 1 << 15;
        let mut flags = [GET_FLAGS, 0];
        self.forgets || (self.ioctl(&mut flags).is_ok() && flags[1] & LARGE_RECEIVE != 0)
    }

    /// Records RSS anew: somebody may have changed it since.
    pub fn refresh_rss(&mut self) {
        self.rss = self.read_rss();
    }

    /// Sets RSS again as it was recorded.
    ///
    /// # Errors
    /// The kernel's: `CAP_NET_ADMIN` is missing, or the interface is gone.
    pub fn restore_rss(&self) -> io::Result<()> {
        let (Some(old), Some(new)) = (&self.rss, self.read_rss()) else { return Ok(()) };
        // A table that names queues which are not there is not in force: the number of queues was lowered since, and virtio
        // switched RSS off for it. Switched on, it would send packets to where nobody listens.
        if self.forgets && self.queues().is_some_and(|queues| old.table.iter().any(|&q| q >= queues)) {
            return Ok(());
        }
        let table = new.table != old.table;
        if table || new.key != old.key || new.function != old.function || self.forgets {
            self.write_rss(old, table)?;
        }
        for ((flow, old), new) in FLOWS.iter().zip(old.fields).zip(new.fields) {
            if let Some(fields) = old.filter(|_| old != new) {
                self.ioctl(&mut [SET_FIELDS, *flow, fields[0], fields[1]])?;
            }
        }
        Ok(())
    }

    /// Once the program is gone: switches on what was on when this was recorded, and sets RSS again.
    ///
    /// # Errors
    /// As [`CardSettings::restore_rss`].
    pub fn restore(&self) -> io::Result<()> {
        let now = self.read_offloads().unwrap_or_default();
        let mut words = vec![SET_OFFLOADS, self.offloads.len() as u32];
        for (old, new) in self.offloads.iter().zip(&now) {
            words.extend([old & !new, *old]);
        }
        let lost = now.len() == self.offloads.len() && words[2..].chunks_exact(2).any(|block| block[0] != 0);
        let offloads = if lost { self.ioctl(&mut words) } else { Ok(()) };
        self.restore_rss().and(offloads)
    }

    /// As [`CardSettings::restore`], of what gets lost without anybody having wished it, and nothing else: somebody may have
    /// changed RSS since it was recorded.
    ///
    /// # Errors
    /// As [`CardSettings::restore_rss`].
    pub fn restore_lost(&mut self) -> io::Result<()> {
        self.rss = if self.forgets { self.read_rss() } else { None };
        self.restore()
    }

    fn read_rss(&self) -> Option<Rss> {
        let mut head = [GET_RSS, 0, 0, 0, 0, 0];
        self.ioctl(&mut head).ok()?;
        let (slots, key_len) = (head[2] as usize, head[3]);
        // A table is at most some thousand slots, a key some tens of bytes.
        if (slots == 0 && key_len == 0) || slots > 1 << 16 || key_len > 1 << 10 {
            return None;
        }
        let mut words = vec![0; RSS_HEAD + slots + key_len.div_ceil(4) as usize];
        words[..4].copy_from_slice(&[GET_RSS, 0, head[2], key_len]);
        self.ioctl(&mut words).ok()?;
        let (table, key) = words[RSS_HEAD..].split_at(slots);
        let fields = FLOWS.map(|flow| {
            let mut words = [GET_FIELDS, flow, 0, 0];
            self.ioctl(&mut words).ok().map(|()| [words[2], words[3]])
        });
        Some(Rss { function: words[4], table: table.to_vec(), key: key.to_vec(), key_len, fields })
    }

    /// Sets key and function, and the table if it is wished: a table that was set by hand keeps the number of queues from
    /// being lowered, so one that is as it was is not set.
    fn write_rss(&self, rss: &Rss, table: bool) -> io::Result<()> {
        let (slots, entries) =
            if table { (rss.table.len() as u32, &rss.table[..]) } else { (NO_CHANGE, &[][..]) };
        if slots == NO_CHANGE && rss.key_len == 0 {
            return Ok(());
        }
        let mut words = vec![SET_RSS, 0, slots, rss.key_len, rss.function, 0];
        words.extend(entries);
        words.extend(&rss.key);
        self.ioctl(&mut words)
    }

    fn read_offloads(&self) -> Option<Vec<u32>> {
        let mut words = [0; 2 + 4 * BLOCKS];
        (words[0], words[1]) = (GET_OFFLOADS, BLOCKS as u32);
        self.ioctl(&mut words).ok()?;
        let blocks = (words[1] as usize).min(BLOCKS);
        Some(words[2..].chunks_exact(4).take(blocks).map(|block| block[1]).collect())
    }

    /// Queues that receive.
    fn queues(&self) -> Option<u32> {
        // struct ethtool_channels, as in `Interface::channels`.
        let mut words = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        self.ioctl(&mut words).ok()?;
        Some(words[5] + words[8])
    }

    fn driver(&self) -> Option<String> {
        // struct ethtool_drvinfo: 196 bytes.
        let mut words = [0; 49];
        words[0] = DRIVER;
        self.ioctl(&mut words).ok()?;
        let name = words[1..9].iter().flat_map(|w| w.to_ne_bytes()).take_while(|&b| b != 0).collect();
        String::from_utf8(name).ok()
    }

    /// One command; `words` is as long as its block.
    fn ioctl(&self, words: &mut [u32]) -> io::Result<()> {
        let mut request = super::request(&self.interface.name).map_err(io::Error::other)?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: SIOCETHTOOL reads the name and reads and writes the block that `ifr_data` names, which is writable. Each
        // caller's block is as long as its command's structure with the lengths that it announces.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Name of an interface's driver, where it tells.
#[must_use]
pub fn driver(interface: &Interface) -> Option<String> {
    let socket = control(libc::AF_INET).ok()?;
    CardSettings { interface: interface.clone(), socket, rss: None, offloads: Vec::new(), forgets: false }
        .driver()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_rss_is_left_alone() {
        let lo = Interface::find("lo").unwrap();
        let settings = CardSettings::record(&lo).unwrap();
        assert_eq!((&settings.rss, settings.forgets), (&None, false));
        assert!(!settings.offloads.is_empty(), "offloads are known of every interface");
        assert_eq!(driver(&lo), None);
        // Nothing is different, so nothing is set, and no privilege is needed.
        std::thread::spawn(move || {
            crate::privilege::drop_all().unwrap();
            settings.restore().unwrap();
        })
        .join()
        .unwrap();
    }
}
