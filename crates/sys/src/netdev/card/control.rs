//! Changing a card's RSS: one command for key, function and table together, one for the fields of each kind of flow, and reading back what
//! the driver accepted.

use super::Told;
use super::ethtool::{ChannelCounts, Counts, Ethtool, Offloads};
use super::fields::{Fields, FlowKind};
use super::rss::{Function, HashKey, Rss, TableChange, Transform};
use crate::error::Result;
use crate::netdev::Interface;
use std::io;

/// A table to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Table {
    /// The kernel's own: every queue in turn. It does not count as set by hand, so the number of queues can be lowered.
    Default,
    /// The queue of each slot.
    Slots(Vec<u32>),
}

/// The settings to change. `None` and empty: no change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// The key.
    pub key: Option<HashKey>,
    /// How the hash is made.
    pub function: Option<Function>,
    /// Transform of the fields before hashing.
    pub transform: Option<Transform>,
    /// The table.
    pub table: Option<Table>,
    /// Which fields are hashed, by kind of flow.
    pub fields: Vec<(FlowKind, Fields)>,
}

/// A part of a [`Change`] that the driver did not take.
#[derive(Debug)]
pub struct Refusal {
    /// The part: "the key", "the fields of udp4".
    pub what: String,
    /// The driver's error; `None` where it took it in silence, and shows something else.
    pub why: Option<io::Error>,
}

/// Why a card is not as it was to be.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetError {
    /// It takes `CAP_NET_ADMIN`.
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// The change does not fit the card; nothing was changed.
    Unfit {
        /// The interface.
        interface: String,
        /// Why.
        why: String,
    },
    /// The driver did not take these. Everything else was set.
    NotTaken {
        /// The interface.
        interface: String,
        /// Each part.
        refused: Vec<Refusal>,
    },
}

impl std::fmt::Display for SetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotPermitted { interface } => {
                write!(
                    f,
                    "{interface}: changing its RSS: not permitted: run as root or give the program CAP_NET_ADMIN"
                )
            }
            Self::Unfit { interface, why } => write!(f, "{interface}: {why}"),
            Self::NotTaken { interface, refused } => {
                write!(f, "{interface}: the driver did not take ")?;
                for (i, Refusal { what, why }) in refused.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    match why {
                        Some(why) => write!(f, "{what} ({why})")?,
                        None => write!(f, "{what} (it shows another value)")?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for SetError {}

/// Changes one card. It works in whatever network namespace its user is later, and takes `CAP_NET_ADMIN` when something is set.
#[derive(Debug)]
pub struct Control {
    ethtool: Ethtool,
}

impl Control {
    /// For an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn open(interface: &Interface) -> Result<Self> {
        Ok(Self { ethtool: Ethtool::open(interface)? })
    }

    /// The interface's name.
    #[must_use]
    pub fn interface(&self) -> &str {
        self.ethtool.interface().name()
    }

    /// Numbers of queues now.
    ///
    /// # Errors
    /// The driver does not report them.
    pub fn channels(&self) -> Told<ChannelCounts> {
        self.ethtool.channels()
    }

    /// Offloads that have to do with receiving, now.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn offloads(&self) -> Told<Offloads> {
        self.ethtool.offloads()
    }

    /// The RSS settings as the driver reports them now.
    ///
    /// # Errors
    /// The driver does not report them.
    pub fn rss(&self) -> Told<Rss> {
        self.ethtool.rss()
    }

    /// Sets the numbers of queues, and reads them back. Most drivers stop and start their card for it.
    ///
    /// # Errors
    /// [`SetError::NotPermitted`], [`SetError::NotTaken`].
    pub fn set_channels(&self, wanted: Counts) -> std::result::Result<(), SetError> {
        let interface = || self.ethtool.interface().name().to_owned();
        let why = match self.ethtool.set_channels(wanted) {
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                return Err(SetError::NotPermitted { interface: interface() });
            }
            Err(e) => Some(e),
            Ok(()) if self.ethtool.channels().is_ok_and(|channels| channels.now != wanted) => None,
            Ok(()) => return Ok(()),
        };
        let refused = vec![Refusal { what: "the number of queues".to_owned(), why }];
        Err(SetError::NotTaken { interface: interface(), refused })
    }

    /// Makes a change, and reads back the result.
    ///
    /// Key, function, transform and table are one command, and are set even where they are as they were: a driver that forgot
    /// them ([`forgets_after_xdp`](super::forgets_after_xdp)) learns them again. Fields that are as they should be are left alone.
    ///
    /// # Errors
    /// [`SetError`]. After [`SetError::NotTaken`] the rest is set.
    pub fn set(&self, change: &Change) -> std::result::Result<(), SetError> {
        let interface = || self.ethtool.interface().name().to_owned();
        let unfit = |why: String| SetError::Unfit { interface: interface(), why };
        let now = self.rss().map_err(|why| unfit(format!("has no RSS to set: {why}")))?;
        self.check(change, &now).map_err(unfit)?;
        let mut refused = Vec::new();
        let Change { key, function, transform, table, fields } = change;
        if key.is_some() || function.is_some() || transform.is_some() || table.is_some() {
            let wanted = Rss {
                key: key.clone().unwrap_or_else(|| now.key.clone()),
                function: function.unwrap_or(now.function),
                transform: transform.unwrap_or(now.transform),
                table: Vec::new(),
                fields: Vec::new(),
            };
            let entries = match table {
                None => TableChange::Keep,
                Some(Table::Default) => TableChange::Default,
                Some(Table::Slots(slots)) => TableChange::Slots(slots),
            };
            if let Err(error) = self.ethtool.write_rss(&wanted, entries) {
                let parts = [
                    (key.is_some(), "the key"),
                    (function.is_some(), "the function"),
                    (transform.is_some(), "the transform"),
                    (table.is_some(), "the table"),
                ];
                let named: Vec<&str> = parts.iter().filter(|part| part.0).map(|part| part.1).collect();
                refused.push(Refusal { what: named.join(" and "), why: Some(error) });
            }
        }
        for &(kind, wanted) in fields {
            if now.fields_of(kind) != Ok(wanted) {
                if let Err(error) = self.ethtool.set_fields(kind, wanted) {
                    refused.push(Refusal { what: format!("the fields of {kind}"), why: Some(error) });
                }
            }
        }
        if refused.iter().any(|r| r.why.as_ref().is_some_and(|e| e.raw_os_error() == Some(libc::EPERM))) {
            return Err(SetError::NotPermitted { interface: interface() });
        }
        if refused.is_empty() {
            refused = self.differences(change);
        }
        if refused.is_empty() { Ok(()) } else { Err(SetError::NotTaken { interface: interface(), refused }) }
    }

    /// Lets slots name other queues, all of them in one command.
    ///
    /// # Errors
    /// As [`Control::set`]; a slot or a queue that is not there.
    pub fn set_slots(&self, slots: &[(usize, u32)]) -> std::result::Result<(), SetError> {
        let unfit =
            |why: String| SetError::Unfit { interface: self.ethtool.interface().name().to_owned(), why };
        let now = self.rss().map_err(|why| unfit(format!("has no RSS to set: {why}")))?;
        let mut table = now.table;
        let len = table.len();
        for &(slot, queue) in slots {
            *table
                .get_mut(slot)
                .ok_or_else(|| unfit(format!("has no slot {slot}: its table has {len}")))? = queue;
        }
        self.set(&Change { table: Some(Table::Slots(table)), ..Change::default() })
    }

    /// Why a change cannot be, before anything is done.
    fn check(&self, change: &Change, now: &Rss) -> std::result::Result<(), String> {
        if let Some(key) = &change.key {
            if key.0.len() != now.key.0.len() {
                return Err(format!("its key has {} bytes, not {}", now.key.0.len(), key.0.len()));
            }
        }
        if let Some(Table::Slots(slots)) = &change.table {
            if slots.len() != now.table.len() {
                return Err(format!("its table has {} slots, not {}", now.table.len(), slots.len()));
            }
            let rings = self.ethtool.rings().unwrap_or(u32::MAX);
            if let Some(queue) = slots.iter().find(|&&queue| queue >= rings) {
                return Err(format!("has no queue {queue}: it receives on {rings}"));
            }
        }
        Ok(())
    }

    /// What the driver shows otherwise than it was set.
    fn differences(&self, change: &Change) -> Vec<Refusal> {
        let Ok(now) = self.rss() else { return Vec::new() };
        let mut refused = Vec::new();
        let mut differs = |what: String| refused.push(Refusal { what, why: None });
        if change.key.as_ref().is_some_and(|key| *key != now.key) {
            differs("the key".to_owned());
        }
        // "Untold" leaves it as it is.
        if change.function.is_some_and(|function| function != Function::Untold && function != now.function) {
            differs("the function".to_owned());
        }
        if change.transform.is_some_and(|transform| transform != now.transform) {
            differs("the transform".to_owned());
        }
        match &change.table {
            Some(Table::Slots(slots)) if *slots != now.table => differs("the table".to_owned()),
            Some(Table::Default) if self.ethtool.rings().is_ok_and(|n| !now.is_default_table(n)) => {
                differs("the table".to_owned());
            }
            _ => {}
        }
        for &(kind, wanted) in &change.fields {
            if now.fields_of(kind) != Ok(wanted) {
                differs(format!("the fields of {kind}"));
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_without_rss_says_so() {
        let control = Control::open(&Interface::find("lo").unwrap()).unwrap();
        let said = control.set(&Change::default()).unwrap_err().to_string();
        assert_eq!(said, "lo: has no RSS to set: the driver does not tell");
        assert!(control.set_slots(&[(0, 0)]).is_err());
    }

    #[test]
    fn refusals_are_named_in_one_line() {
        let error = SetError::NotTaken {
            interface: "eth0".into(),
            refused: vec![
                Refusal { what: "the key".into(), why: Some(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) },
                Refusal { what: "the fields of udp4".into(), why: None },
            ],
        };
        assert_eq!(
            error.to_string(),
            "eth0: the driver did not take the key (Operation not supported (os error 95)), \
             the fields of udp4 (it shows another value)"
        );
    }
}
