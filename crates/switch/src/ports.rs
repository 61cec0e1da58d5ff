//! Ports by number, and sets of them.

use core::fmt;

/// Ports that a switch can have.
pub const MAX_PORTS: usize = 64;

/// The number of a port, from 0; always below [`MAX_PORTS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PortId(u8);

impl PortId {
    /// Port `number`; `None` if no switch has so many.
    #[must_use]
    pub const fn new(number: usize) -> Option<PortId> {
        if number < MAX_PORTS { Some(PortId(number as u8)) } else { None }
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize & (MAX_PORTS - 1)
    }

    /// From the low six bits of `bits`.
    #[inline]
    pub(crate) const fn of_bits(bits: u64) -> PortId {
        PortId((bits & (MAX_PORTS as u64 - 1)) as u8)
    }

    /// The set of this port alone.
    #[inline]
    #[must_use]
    pub const fn alone(self) -> PortSet {
        PortSet(1 << self.index())
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.0)
    }
}

/// A set of ports: a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PortSet(pub u64);

impl PortSet {
    /// No port.
    pub const NONE: PortSet = PortSet(0);
    /// Every port that a switch can have.
    pub const ALL: PortSet = PortSet(u64::MAX);

    /// The first `count` ports.
    #[must_use]
    pub const fn first(count: usize) -> PortSet {
        if count >= MAX_PORTS { PortSet::ALL } else { PortSet((1 << count) - 1) }
    }

    /// Whether `port` is one of them.
    #[inline]
    #[must_use]
    pub const fn has(self, port: PortId) -> bool {
        self.0 >> port.index() & 1 != 0
    }

    /// Those in either.
    #[inline]
    #[must_use]
    pub const fn or(self, other: PortSet) -> PortSet {
        PortSet(self.0 | other.0)
    }

    /// Those in both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: PortSet) -> PortSet {
        PortSet(self.0 & other.0)
    }

    /// Those not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: PortSet) -> PortSet {
        PortSet(self.0 & !other.0)
    }

    /// Takes `port` in, or leaves it out.
    #[inline]
    pub const fn set(&mut self, port: PortId, to: bool) {
        if to {
            self.0 |= 1 << port.index();
        } else {
            self.0 &= !(1 << port.index());
        }
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many.
    #[inline]
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl Iterator for PortSet {
    type Item = PortId;

    /// The lowest of them, which leaves the set.
    #[inline]
    fn next(&mut self) -> Option<PortId> {
        if self.0 == 0 {
            return None;
        }
        let lowest = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(PortId::of_bits(lowest.into()))
    }
}

impl FromIterator<PortId> for PortSet {
    fn from_iter<I: IntoIterator<Item = PortId>>(ports: I) -> PortSet {
        ports.into_iter().fold(PortSet::NONE, |set, port| set.or(port.alone()))
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.map(PortId::index)).finish()
    }
}
