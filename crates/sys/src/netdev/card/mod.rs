//! A card's RSS: read as a whole, changed in one message, checked by reading back.
//!
//! ```text
//!   Card::read(interface)     everything that the driver reports, without privileges
//!   Control::set(change)      key, function, table, fields: CAP_NET_ADMIN
//! ```
//!
//! There are two ways to read RSS: ethtool's netlink family (Linux 6.3; extra contexts since 6.12, fields since 6.17), and the older
//! command of `SIOCETHTOOL`. Both give the same [`Rss`]. [`Card::read`] uses netlink if the kernel supports it, and the command otherwise.
//! Everything but RSS is read by commands, and everything is set by commands: every kernel has them, and one command sets key,
//! function and table together. A value that the driver does not report is an [`Untold`], never a guess.
//!
//! | | |
//! |---|---|
//! | [`ethtool`] | the commands of `SIOCETHTOOL`: driver, channels, offloads |
//! | [`fields`] | kinds of flows, and which fields of them are hashed |
//! | [`rss`] | key, function and table |
//! | `netlink` | the same by netlink |
//! | [`rules`] | n-tuple rules, which override the table |
//! | [`control`] | changes |
//!
//! A driver reports its own state, which may be wrong: virtio's does not report that its card has switched RSS off
//! ([`forgets_after_xdp`]), and some cards ignore their table. Only received packets show what the card does.

pub mod control;
pub mod ethtool;
pub mod fields;
mod netlink;
pub mod rss;
pub mod rules;

use super::Interface;
use crate::error::Result;
use ethtool::{ChannelCounts, Driver, Ethtool, Offloads};
use rss::{Context, Rss};
use rules::Rules;
use std::io;

/// Why something is not known of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Untold {
    /// The driver or the kernel has no such thing, or does not tell.
    Unsupported,
    /// It takes `CAP_NET_ADMIN` here.
    NotPermitted,
    /// The kernel's error number.
    Failed(i32),
}

impl std::fmt::Display for Untold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the driver does not tell"),
            Self::NotPermitted => f.write_str("not permitted without CAP_NET_ADMIN"),
            Self::Failed(number) => write!(f, "{}", io::Error::from_raw_os_error(*number)),
        }
    }
}

impl std::error::Error for Untold {}

impl From<io::Error> for Untold {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            // A driver without operations says EOPNOTSUPP, one with others EINVAL for kinds of flows that it does not know.
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOENT) | None => Self::Unsupported,
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            Some(number) => Self::Failed(number),
        }
    }
}

/// A value reported by the driver, or why it is not known.
pub type Told<T> = std::result::Result<T, Untold>;

/// Which way RSS was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// ethtool's netlink family, Linux 6.3.
    Netlink,
    /// The commands of `SIOCETHTOOL`.
    Ioctl,
}

/// Settings of a card, as reported by its driver.
#[derive(Debug, Clone)]
pub struct Card {
    /// The interface.
    pub interface: Interface,
    /// Driver and bus address.
    pub driver: Told<Driver>,
    /// The address that the card was made with.
    pub permanent_mac: Told<[u8; 6]>,
    /// Numbers of queues, now and at most.
    pub channels: Told<ChannelCounts>,
    /// Queues that RSS may name.
    pub rings: Told<u32>,
    /// The spreading of what no rule and no context takes (context 0).
    pub rss: Told<Rss>,
    /// Further spreadings, to which rules send packets.
    pub contexts: Told<Vec<Context>>,
    /// Rules that override the table.
    pub rules: Told<Rules>,
    /// Offloads that have to do with receiving.
    pub offloads: Told<Offloads>,
    /// How [`Card::rss`] was read.
    pub way: Way,
}

impl Card {
    /// Reads how `interface`, of the calling thread's network namespace, is set up. Needs no privileges on usual kernels.
    ///
    /// # Errors
    /// A socket cannot be opened. A value that the driver does not report is an [`Untold`] instead.
    pub fn read(interface: &Interface) -> Result<Self> {
        let ethtool = Ethtool::open(interface)?;
        let mut netlink = netlink::Ethnl::open(interface).ok();
        let by_netlink = netlink.as_mut().and_then(|netlink| netlink.rss(&ethtool).ok());
        let way = if by_netlink.is_some() { Way::Netlink } else { Way::Ioctl };
        let rules = ethtool.rules();
        let contexts = match netlink.as_mut().map(|netlink| netlink.contexts(&ethtool)) {
            Some(Ok(contexts)) => Ok(contexts),
            _ => ethtool.contexts(),
        };
        Ok(Self {
            interface: interface.clone(),
            driver: ethtool.driver(),
            permanent_mac: ethtool.permanent_mac(),
            channels: ethtool.channels(),
            rings: ethtool.rings(),
            rss: by_netlink.map_or_else(|| ethtool.rss(), Ok),
            contexts,
            rules,
            offloads: ethtool.offloads(),
            way,
        })
    }

    /// Reads the spreading by one way: `None` where the kernel does not have that way. For comparisons.
    ///
    /// # Errors
    /// As [`Card::read`].
    pub fn read_rss(interface: &Interface, way: Way) -> Result<Option<Rss>> {
        let ethtool = Ethtool::open(interface)?;
        Ok(match way {
            Way::Ioctl => ethtool.rss().ok(),
            Way::Netlink => netlink::Ethnl::open(interface).ok().and_then(|mut n| n.rss(&ethtool).ok()),
        })
    }

    /// The driver's name; empty where it does not tell.
    #[must_use]
    pub fn driver_name(&self) -> &str {
        self.driver.as_ref().map_or("", |driver| &driver.name)
    }
}

/// Whether a driver switches RSS off, silently, when an XDP program comes or goes or the number of queues changes, while it still shows
/// key and table. To set the key again switches it on.
#[must_use]
pub fn forgets_after_xdp(driver: &str) -> bool {
    driver == "virtio_net"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_tells_little_and_says_so() {
        let lo = Interface::find("lo").unwrap();
        let card = Card::read(&lo).unwrap();
        assert_eq!(card.rss.as_ref().unwrap_err(), &Untold::Unsupported);
        assert_eq!(card.rss.as_ref().unwrap_err().to_string(), "the driver does not tell");
        assert_eq!((card.way, card.driver_name()), (Way::Ioctl, ""));
        assert_eq!(card.channels, Err(Untold::Unsupported));
        assert!(card.offloads.is_ok(), "offloads are known of every interface");
    }

    #[test]
    fn the_two_ways_agree_on_every_interface_here() {
        let mut compared = 0;
        for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let Ok(interface) = Interface::find(&entry.file_name().to_string_lossy()) else { continue };
            let read = |way| Card::read_rss(&interface, way).unwrap();
            if let (Some(netlink), Some(ioctl)) = (read(Way::Netlink), read(Way::Ioctl)) {
                assert_eq!(netlink, ioctl, "{}", interface.name());
                compared += 1;
            }
        }
        if compared == 0 {
            crate::skipped("skipped, because no interface here tells of RSS by netlink and by ioctl");
        }
    }

    #[test]
    fn reasons_come_from_error_numbers() {
        let of = |number| Untold::from(io::Error::from_raw_os_error(number));
        assert_eq!(of(libc::EOPNOTSUPP), Untold::Unsupported);
        assert_eq!(of(libc::EPERM), Untold::NotPermitted);
        assert_eq!(of(libc::EIO), Untold::Failed(libc::EIO));
    }
}
