//! The flags of a port.

use core::fmt;

/// A set of flags.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Frames leave with the VLAN's tag, whatever the group says.
    pub const ADDTAG: Flags = Flags(1);
    /// Frames leave without the VLAN's tag, whatever the group says.
    pub const STRIPTAG: Flags = Flags(2);
    /// Every frame that comes is payload, its tags too: it gets the port's VLAN, and one tag more where it leaves tagged.
    pub const DOUBLETAG: Flags = Flags(4);
    /// Frames that come with a VLAN's tag are dropped.
    pub const DROPTAGGED: Flags = Flags(8);
    /// Frames that come without a VLAN's tag are dropped. One with priority only (VLAN 0) is without.
    pub const DROPUNTAGGED: Flags = Flags(16);
    /// Frames of a VLAN of which the port is no member are dropped.
    pub const INGRESS: Flags = Flags(32);
    /// Only the first source address seen since the port is up may send.
    pub const FIRSTLOCK: Flags = Flags(64);

    /// The flags by name.
    pub const NAMES: [(&'static str, Flags); 7] = [
        ("addtag", Flags::ADDTAG),
        ("striptag", Flags::STRIPTAG),
        ("doubletag", Flags::DOUBLETAG),
        ("droptagged", Flags::DROPTAGGED),
        ("dropuntagged", Flags::DROPUNTAGGED),
        ("ingress", Flags::INGRESS),
        ("firstlock", Flags::FIRSTLOCK),
    ];

    /// The flag of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Flags> {
        Flags::NAMES.iter().find(|(known, _)| *known == name).map(|(_, flag)| *flag)
    }

    /// Whether all of `flags` are set.
    #[inline]
    #[must_use]
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Those in either.
    #[must_use]
    pub const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    /// Those not in `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// The names of those that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.iter().filter(move |(_, flag)| self.has(*flag)).map(|(name, _)| *name)
    }
}

impl fmt::Display for Flags {
    /// The names, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, name) in self.names().enumerate() {
            write!(f, "{}{name}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}
