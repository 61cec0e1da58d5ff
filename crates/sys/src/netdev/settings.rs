//! Settings that a driver loses when an XDP program is attached or detached, recorded before and restored after: RSS and offloads.
//!
//! * An XDP program in generic mode switches merging (LRO, `rx-gro-hw`) off; the kernel does not switch it on again.
//! * virtio-net switches its RSS off silently: `ethtool -x` still shows the key and the table. Setting the same key again switches it on.
//!
//! RSS and offloads are read and set by [`card`](super::card). Settings that are still as recorded are not set, since some drivers
//! interrupt traffic for it. Setting needs `CAP_NET_ADMIN`.

use super::Interface;
use super::card::ethtool::Ethtool;
use super::card::forgets_after_xdp;
use super::card::rss::{Rss, TableChange};
use crate::error::Result;
use std::io;

const GET_FLAGS: u32 = 0x25;

/// How an interface was set up when it was recorded.
#[derive(Debug)]
pub struct CardSettings {
    /// It can be set from any network namespace.
    ethtool: Ethtool,
    rss: Option<Rss>,
    /// The requested offloads, a bit each.
    offloads: Vec<u32>,
    /// The driver forgets its RSS without showing that.
    forgets: bool,
}

impl CardSettings {
    /// Records the settings of `interface`, in the calling thread's network namespace. Settings that the driver does not report are never
    /// changed.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn record(interface: &Interface) -> Result<Self> {
        let ethtool = Ethtool::open(interface)?;
        let rss = ethtool.rss().ok();
        let offloads = requested(&ethtool).unwrap_or_default();
        let forgets = rss.is_some() && ethtool.driver().is_ok_and(|driver| forgets_after_xdp(&driver.name));
        Ok(Self { ethtool, rss, offloads, forgets })
    }

    /// Whether an XDP program changes what its going does not change back, as far as is known: RSS of a driver that forgets it, or
    /// merging, in generic mode; with `tagged` packets, what [`CardSettings::leave_tags`] changes, too.
    #[must_use]
    pub fn at_stake(&self, tagged: bool) -> bool {
        const RECEIVE_VLAN: u32 = 1 << 8;
        const LARGE_RECEIVE: u32 = 1 << 15;
        let changed = LARGE_RECEIVE | if tagged { RECEIVE_VLAN } else { 0 };
        let mut flags = [GET_FLAGS, 0];
        self.forgets || (self.ethtool.call(&mut flags).is_ok() && flags[1] & changed != 0)
    }

    /// Whether the driver forgets its RSS without showing that when an XDP program comes or goes.
    #[must_use]
    pub fn forgets(&self) -> bool {
        self.forgets
    }

    /// Records RSS again, since it may have been changed meanwhile.
    pub fn refresh_rss(&mut self) {
        self.rss = self.ethtool.rss().ok();
    }

    /// Sets RSS again as it was recorded.
    ///
    /// # Errors
    /// The kernel's: `CAP_NET_ADMIN` is missing, or the interface has been removed.
    pub fn restore_rss(&self) -> io::Result<()> {
        let (Some(old), Ok(new)) = (&self.rss, self.ethtool.rss()) else { return Ok(()) };
        // A table that names queues which are not there is not in force: the number of queues was lowered since, and virtio
        // switched RSS off for it. Switched on, it would send packets to where nobody listens.
        if self.forgets
            && self.ethtool.channels().is_ok_and(|c| old.table.iter().any(|&q| q >= c.now.receiving()))
        {
            return Ok(());
        }
        let table = new.table != old.table;
        let entries = if table { TableChange::Slots(&old.table) } else { TableChange::Keep };
        if table
            || new.key != old.key
            || new.function != old.function
            || new.transform != old.transform
            || self.forgets
        {
            // A table that was set by hand keeps the number of queues from being lowered, so one that is as it was is not set.
            self.ethtool.write_rss(old, entries)?;
        }
        for (kind, fields) in &old.fields {
            if let Some(fields) = fields.ok().filter(|fields| new.fields_of(*kind) != Ok(*fields)) {
                self.ethtool.set_fields(*kind, fields)?;
            }
        }
        Ok(())
    }

    /// Leaves VLAN tags in received packets, where the card takes them off: an XDP program and the sockets behind it do not see a tag
    /// beside the packet. Whether that was to be done. [`CardSettings::restore`] switches it on again.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::Unsupported`] where the driver always takes them off.
    pub fn leave_tags(&self) -> io::Result<bool> {
        const NAME: &str = "rx-vlan-hw-parse";
        if !self.ethtool.offload(NAME)? {
            return Ok(false);
        }
        self.ethtool.switch_off(NAME)?;
        if self.ethtool.offload(NAME)? { Err(io::ErrorKind::Unsupported.into()) } else { Ok(true) }
    }

    /// After the program is detached: switches on the offloads that were on when recorded, and sets RSS again.
    ///
    /// # Errors
    /// As [`CardSettings::restore_rss`].
    pub fn restore(&self) -> io::Result<()> {
        let now = requested(&self.ethtool).unwrap_or_default();
        let blocks: Vec<[u32; 2]> =
            self.offloads.iter().zip(&now).map(|(old, new)| [old & !new, *old]).collect();
        let lost = now.len() == self.offloads.len() && blocks.iter().any(|block| block[0] != 0);
        let offloads = if lost { self.ethtool.request_offloads(&blocks) } else { Ok(()) };
        self.restore_rss().and(offloads)
    }

    /// As [`CardSettings::restore`], but only for settings that a driver loses by itself, since RSS may have been changed on purpose
    /// after it was recorded.
    ///
    /// # Errors
    /// As [`CardSettings::restore_rss`].
    pub fn restore_lost(&mut self) -> io::Result<()> {
        self.rss = if self.forgets { self.ethtool.rss().ok() } else { None };
        self.restore()
    }
}

/// The requested offloads.
fn requested(ethtool: &Ethtool) -> io::Result<Vec<u32>> {
    Ok(ethtool.offload_blocks()?.into_iter().map(|[_, requested, ..]| requested).collect())
}

/// Name of an interface's driver, if reported.
#[must_use]
pub fn driver(interface: &Interface) -> Option<String> {
    Some(Ethtool::open(interface).ok()?.driver().ok()?.name)
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
