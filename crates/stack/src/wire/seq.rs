//! TCP sequence numbers: 32 bits that wrap.
//!
//! RFC 9293 §3.4.
//!
//! "Before" and "after" have a meaning only for numbers less than half the space apart, which those of one connection
//! always are. The comparison operators mean that. Two numbers exactly half the space apart are neither before nor
//! after each other, so no operator holds between them; and because the order goes round in a circle there is no
//! smallest number and no `Ord`.

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(pub u32);

const HALF: u32 = 0x8000_0000;

impl SeqNum {
    /// How far this is past `earlier`, going forwards. If it is before, the result is more than half the space.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: SeqNum) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The signed distance from `other` to this.
    #[inline]
    #[must_use]
    pub const fn distance(self, other: SeqNum) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Whether this is one of the `len` numbers from `start` on.
    #[inline]
    #[must_use]
    pub const fn is_within(self, start: SeqNum, len: u32) -> bool {
        self.since(start) < len
    }

    /// The later of two.
    #[inline]
    #[must_use]
    pub fn max(self, other: SeqNum) -> SeqNum {
        if other > self { other } else { self }
    }

    /// The earlier of two.
    #[inline]
    #[must_use]
    pub fn min(self, other: SeqNum) -> SeqNum {
        if other < self { other } else { self }
    }
}

impl PartialOrd for SeqNum {
    #[inline]
    fn partial_cmp(&self, other: &SeqNum) -> Option<Ordering> {
        match self.since(*other) {
            0 => Some(Ordering::Equal),
            HALF => None,
            1..HALF => Some(Ordering::Greater),
            _ => Some(Ordering::Less),
        }
    }

    #[inline]
    fn lt(&self, other: &SeqNum) -> bool {
        self.since(*other) > HALF
    }

    #[inline]
    fn le(&self, other: &SeqNum) -> bool {
        other.since(*self) < HALF
    }

    #[inline]
    fn gt(&self, other: &SeqNum) -> bool {
        other.since(*self) > HALF
    }

    #[inline]
    fn ge(&self, other: &SeqNum) -> bool {
        self.since(*other) < HALF
    }
}

impl Add<u32> for SeqNum {
    type Output = SeqNum;

    #[inline]
    fn add(self, len: u32) -> SeqNum {
        SeqNum(self.0.wrapping_add(len))
    }
}

impl AddAssign<u32> for SeqNum {
    #[inline]
    fn add_assign(&mut self, len: u32) {
        *self = *self + len;
    }
}

impl Sub<u32> for SeqNum {
    type Output = SeqNum;

    #[inline]
    fn sub(self, len: u32) -> SeqNum {
        SeqNum(self.0.wrapping_sub(len))
    }
}

impl SubAssign<u32> for SeqNum {
    #[inline]
    fn sub_assign(&mut self, len: u32) {
        *self = *self - len;
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_survives_the_wrap() {
        let a = SeqNum(u32::MAX - 2);
        let b = a + 5;
        assert_eq!(b, SeqNum(2));
        assert_eq!([a < b, a <= b, a > b, a >= b], [true, true, false, false]);
        assert_eq!([b < a, b <= a, b > a, b >= a], [false, false, true, true]);
        assert_eq!(b.since(a), 5);
        assert_eq!((a.distance(b), b.distance(a)), (-5, 5));
        assert_eq!((a.max(b), a.min(b), b.max(a), b.min(a)), (b, a, b, a));
        assert_eq!(b - 5, a);
    }

    #[test]
    fn windows() {
        let start = SeqNum(u32::MAX);
        assert!(start.is_within(start, 1) && SeqNum(0).is_within(start, 2));
        assert!(
            !start.is_within(start, 0)
                && !SeqNum(0).is_within(start, 1)
                && !(start - 1).is_within(start, HALF)
        );
    }

    proptest! {
        #[test]
        fn operators_agree(a in any::<u32>(), d in prop_oneof![any::<u32>(), Just(0), Just(HALF), Just(HALF - 1), Just(HALF + 1)]) {
            let (a, b) = (SeqNum(a), SeqNum(a) + d);
            let order = a.partial_cmp(&b);
            prop_assert_eq!(a < b, order == Some(Ordering::Less));
            prop_assert_eq!(a > b, order == Some(Ordering::Greater));
            prop_assert_eq!(a <= b, matches!(order, Some(Ordering::Less | Ordering::Equal)));
            prop_assert_eq!(a >= b, matches!(order, Some(Ordering::Greater | Ordering::Equal)));
            prop_assert_eq!(order, b.partial_cmp(&a).map(Ordering::reverse));
            if d < HALF {
                prop_assert!(a <= b);
            }
        }
    }
}
