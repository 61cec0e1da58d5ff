//! Transforms that some cards apply to addresses and ports before hashing.
//!
//! Sorting the two ends, or taking their *or*, is not affine, but the hash after it is. So a hash that is affine in pieces is an
//! arrangement followed by an affine map. Exclusive or of the two ends (`symmetric-xor`) is linear and needs no arrangement.

use crate::packet::Tuple;

/// The order and form in which source and destination are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// As they are.
    #[default]
    Plain,
    /// The lower address first, and its port before the other; between equal addresses the lower port.
    Sorted,
    /// The lower address first, and the lower port first, whichever address it belongs to.
    SortedApart,
    /// For each pair its *or*, then its exclusive or (`symmetric-or-xor`).
    OrXor,
}

impl Arrangement {
    /// All of them, the plainest first.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Sorted, Self::SortedApart, Self::OrXor];

    /// The name, as in `sorted-apart`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sorted => "sorted",
            Self::SortedApart => "sorted-apart",
            Self::OrXor => "or-xor",
        }
    }

    /// The arrangement of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }

    /// Arranges a packet's tuple. Doing it twice is doing it once, but for [`OrXor`](Self::OrXor).
    #[inline]
    pub(crate) fn apply(self, tuple: &mut Tuple) {
        let n = tuple.kind.address();
        let (addresses, ports) = tuple.bytes.split_at_mut(2 * n);
        let (src, dst) = addresses.split_at_mut(n);
        let (from, to) = ports[..4].split_at_mut(2);
        match self {
            Self::Plain => {}
            Self::Sorted => {
                if (&*src, &*from) > (&*dst, &*to) {
                    src.swap_with_slice(dst);
                    from.swap_with_slice(to);
                }
            }
            Self::SortedApart => {
                if src > dst {
                    src.swap_with_slice(dst);
                }
                if from > to {
                    from.swap_with_slice(to);
                }
            }
            Self::OrXor => {
                let pairs = src.iter_mut().zip(dst).chain(from.iter_mut().zip(to));
                for (a, b) in pairs {
                    (*a, *b) = (*a | *b, *a ^ *b);
                }
            }
        }
    }

    /// A tuple that is arranged to this one, if there is any.
    pub(crate) fn undo(self, arranged: &Tuple) -> Option<Tuple> {
        let mut tuple = *arranged;
        if self == Self::OrXor {
            let n = tuple.kind.address();
            let (addresses, ports) = tuple.bytes.split_at_mut(2 * n);
            let (src, dst) = addresses.split_at_mut(n);
            let (from, to) = ports[..4].split_at_mut(2);
            for (a, b) in src.iter_mut().zip(dst).chain(from.iter_mut().zip(to)) {
                // Both ends have what is in the or and not in the exclusive or; the first has all of that.
                *b = *a & !*b;
            }
        }
        let mut again = tuple;
        self.apply(&mut again);
        (again == *arranged).then_some(tuple)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketKind;
    use crate::random::Random;

    fn tuple(src: u8, dst: u8, from: u8, to: u8) -> Tuple {
        let mut bytes = [0; 36];
        (bytes[3], bytes[7], bytes[9], bytes[11]) = (src, dst, from, to);
        Tuple { kind: PacketKind::TcpIpv4, bytes }
    }

    fn arranged(arrangement: Arrangement, mut tuple: Tuple) -> Tuple {
        arrangement.apply(&mut tuple);
        tuple
    }

    #[test]
    fn by_hand() {
        use Arrangement::{OrXor, Plain, Sorted, SortedApart};
        let rows = [
            (Plain, tuple(5, 3, 1, 2), tuple(5, 3, 1, 2)),
            (Sorted, tuple(5, 3, 1, 2), tuple(3, 5, 2, 1)),
            (Sorted, tuple(3, 5, 2, 1), tuple(3, 5, 2, 1)),
            (Sorted, tuple(3, 3, 2, 1), tuple(3, 3, 1, 2)),
            (SortedApart, tuple(5, 3, 1, 2), tuple(3, 5, 1, 2)),
            (SortedApart, tuple(3, 5, 2, 1), tuple(3, 5, 1, 2)),
            (OrXor, tuple(5, 3, 1, 2), tuple(7, 6, 3, 3)),
        ];
        for (arrangement, before, after) in rows {
            assert_eq!(arranged(arrangement, before), after, "{arrangement:?}");
        }
    }

    /// Both directions of a flow are the same once arranged, and what can be arranged to is known.
    #[test]
    fn symmetric_and_undone() {
        let mut random = Random::new(1);
        for kind in PacketKind::ALL {
            for arrangement in Arrangement::ALL {
                for _ in 0..50 {
                    let mut bytes = random.bytes::<36>();
                    bytes[kind.bits() / 8..].fill(0);
                    let tuple = Tuple { kind, bytes };
                    let after = arranged(arrangement, tuple);
                    assert_eq!(arranged(arrangement, arrangement.undo(&after).unwrap()), after);
                    if arrangement != Arrangement::Plain && kind.has_ports() {
                        let reply = Tuple::of(&tuple.flow().reply()).unwrap();
                        assert_eq!(arranged(arrangement, reply), after, "{arrangement:?}");
                    }
                }
            }
        }
        assert_eq!(Arrangement::OrXor.undo(&tuple(1, 2, 0, 0)), None);
        assert_eq!(Arrangement::Sorted.undo(&tuple(2, 1, 0, 0)), None);
    }

    #[test]
    fn names_there_and_back() {
        assert!(Arrangement::ALL.iter().all(|&a| Arrangement::from_name(a.name()) == Some(a)));
        assert_eq!(Arrangement::from_name("shuffled"), None);
    }
}
