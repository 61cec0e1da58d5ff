//! The hash of a configuration: Toeplitz under a key, or the general rule of a card with another hash.

use core::net::IpAddr;
use std::sync::Arc;

use crate::packet::Tuple;
use crate::{Affine, Arrangement, Flow, HashConfig, HashType, Key, PacketKind, Toeplitz};

/// A general rule: for each kind of packet an affine map of its arranged bits, or none where the kind is not hashed.
///
/// Describes any card that [`learn`](crate::learn) can learn. Maps that are equal are shared. No method but the
/// constructors allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct General {
    arrangement: Arrangement,
    /// By [`PacketKind`].
    maps: [Option<Arc<Affine>>; 6],
}

impl General {
    /// These maps, in the order of [`PacketKind::ALL`].
    #[must_use]
    pub fn new(arrangement: Arrangement, maps: [Option<Affine>; 6]) -> Self {
        let mut shared: [Option<Arc<Affine>>; 6] = [const { None }; 6];
        for (i, map) in maps.into_iter().enumerate() {
            let Some(map) = map else { continue };
            let known = shared.iter().flatten().find(|known| ***known == map).cloned();
            shared[i] = Some(known.unwrap_or_else(|| Arc::new(map)));
        }
        Self { arrangement, maps: shared }
    }

    /// Toeplitz under `key` behind an arrangement, of the fields that `config` switches on.
    #[must_use]
    pub fn toeplitz(key: &Key, config: &HashConfig, arrangement: Arrangement) -> Self {
        Self::new(arrangement, PacketKind::ALL.map(|kind| fields(kind, config, |bit| key.window(bit))))
    }

    /// Toeplitz under `key` of source xor destination, twice (`symmetric-xor`), of the fields that `config` switches on.
    #[must_use]
    pub fn symmetric_xor(key: &Key, config: &HashConfig) -> Self {
        let map = |kind: PacketKind| {
            let n = 8 * kind.address();
            fields(kind, config, |bit| {
                let (at, width) = if bit < 2 * n { (bit % n, n) } else { (2 * n + bit % 16, 16) };
                key.window(at) ^ key.window(at + width)
            })
        };
        Self::new(Arrangement::Plain, PacketKind::ALL.map(map))
    }

    /// The arrangement of fields before hashing.
    #[must_use]
    pub fn arrangement(&self) -> Arrangement {
        self.arrangement
    }

    /// The map for a kind of packet; `None` if it is not hashed.
    #[must_use]
    pub fn map(&self, kind: PacketKind) -> Option<&Affine> {
        self.maps[kind as usize].as_deref()
    }

    /// The hash of a packet; `None` if it is not hashed.
    #[must_use]
    #[inline]
    pub fn hash(&self, flow: &Flow) -> Option<u32> {
        let mut tuple = Tuple::of(flow)?;
        let map = self.map(tuple.kind)?;
        self.arrangement.apply(&mut tuple);
        Some(map.hash(tuple.data()))
    }

    /// Which fields this rule hashes, in the words of hash types.
    #[must_use]
    pub fn config(&self) -> HashConfig {
        let on = |kind: PacketKind| self.map(kind).is_some();
        let ports = |kind: PacketKind| {
            let from = kind.bits() - 32;
            self.map(kind).is_some_and(|map| map.columns().iter().skip(from).any(|&column| column != 0))
        };
        let any = |kinds: [PacketKind; 3]| kinds.into_iter().any(on);
        HashConfig {
            ipv4: any([PacketKind::Ipv4, PacketKind::TcpIpv4, PacketKind::UdpIpv4]),
            tcp_ipv4: ports(PacketKind::TcpIpv4),
            udp_ipv4: ports(PacketKind::UdpIpv4),
            ipv6: any([PacketKind::Ipv6, PacketKind::TcpIpv6, PacketKind::UdpIpv6]),
            tcp_ipv6: ports(PacketKind::TcpIpv6),
            udp_ipv6: ports(PacketKind::UdpIpv6),
        }
    }

    /// The key, if this is Toeplitz as cards usually do it: every kind under one key, with or without ports as
    /// [`config`](Self::config) says.
    #[must_use]
    pub fn toeplitz_key(&self) -> Option<Key> {
        // Of the longest data, and of data with ports: addresses alone do not show the whole key.
        let maps = [PacketKind::TcpIpv6, PacketKind::UdpIpv6, PacketKind::Ipv6, PacketKind::TcpIpv4];
        let rests = [PacketKind::UdpIpv4, PacketKind::Ipv4];
        let longest = maps.into_iter().chain(rests).find_map(|kind| self.map(kind))?;
        let key = longest.toeplitz_key()?;
        (Self::toeplitz(&key, &self.config(), self.arrangement) == *self
            && self.arrangement == Arrangement::Plain)
            .then_some(key)
    }
}

/// The map for a kind whose bit `i` adds `column(i)`, of the fields that are on.
fn fields(kind: PacketKind, config: &HashConfig, column: impl Fn(usize) -> u32) -> Option<Affine> {
    let (addresses, ports) = match kind {
        PacketKind::Ipv4 => (config.ipv4, false),
        PacketKind::TcpIpv4 => (config.ipv4, config.tcp_ipv4),
        PacketKind::UdpIpv4 => (config.ipv4, config.udp_ipv4),
        PacketKind::Ipv6 => (config.ipv6, false),
        PacketKind::TcpIpv6 => (config.ipv6, config.tcp_ipv6),
        PacketKind::UdpIpv6 => (config.ipv6, config.udp_ipv6),
    };
    let hashed = kind.bits() - 32;
    let value = |bit| if bit < hashed || ports { column(bit) } else { 0 };
    (addresses || ports).then(|| Affine::new(&(0..kind.bits()).map(value).collect::<Vec<_>>(), 0))
}

/// Computes the hash of a packet.
#[allow(clippy::large_enum_variant, reason = "one in a configuration, and the large one is the usual one")]
#[derive(Clone, Debug)]
pub enum Hasher {
    /// Toeplitz under a key, in the fastest form of this processor.
    Toeplitz(Toeplitz),
    /// Any other rule.
    General(General),
}

impl Hasher {
    /// The key, where the hash is Toeplitz.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Toeplitz(toeplitz) => Some(toeplitz.key()),
            Self::General(_) => None,
        }
    }

    /// The hash of a packet for which a configuration computes a hash of this type.
    #[inline]
    pub(crate) fn hash_as(&self, hash_type: HashType, flow: &Flow) -> u32 {
        if hash_type == HashType::None {
            return 0;
        }
        let toeplitz = match self {
            Self::Toeplitz(toeplitz) => toeplitz,
            Self::General(general) => return general.hash(flow).unwrap_or(0),
        };
        let (a, b) = if hash_type.has_ports() { (flow.src_port, flow.dst_port) } else { (0, 0) };
        match (flow.src, flow.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => toeplitz.hash_v4_ports(src, dst, a, b),
            (IpAddr::V6(src), IpAddr::V6(dst)) => toeplitz.hash_v6_ports(src, dst, a, b),
            _ => 0,
        }
    }

    /// What each bit of the destination port adds to the hash of such a packet, lowest bit first; `None` if that depends on the
    /// rest of the packet.
    pub(crate) fn port_columns(&self, kind: PacketKind) -> Option<[u32; 16]> {
        let last = kind.bits() - 1;
        match self {
            Self::Toeplitz(toeplitz) => Some(core::array::from_fn(|i| toeplitz.key().window(last - i))),
            Self::General(general) if general.arrangement == Arrangement::Plain => {
                let columns = general.map(kind).map_or(&[][..], Affine::columns);
                Some(core::array::from_fn(|i| columns.get(last - i).copied().unwrap_or(0)))
            }
            Self::General(_) => None,
        }
    }
}

impl From<Toeplitz> for Hasher {
    fn from(toeplitz: Toeplitz) -> Self {
        Self::Toeplitz(toeplitz)
    }
}

impl From<General> for Hasher {
    /// Toeplitz where the rule is that, so that the fast forms are used.
    fn from(general: General) -> Self {
        match general.toeplitz_key() {
            Some(key) => Self::Toeplitz(Toeplitz::new(&key)),
            None => Self::General(general),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UdpFields;
    use crate::random::Random;

    fn flow(random: &mut Random, kind: PacketKind) -> Flow {
        let mut bytes = random.bytes::<36>();
        bytes[kind.bits() / 8..].fill(0);
        Tuple { kind, bytes }.flow()
    }

    #[test]
    fn toeplitz_is_recognised_and_equal() {
        let mut random = Random::new(1);
        for udp in [UdpFields::Two, UdpFields::Four] {
            let config = HashConfig::with_udp(udp);
            // The last bit of the key has no part in any hash.
            let mut bytes = random.bytes::<40>();
            bytes[39] &= !1;
            let key = Key::new(&bytes).unwrap();
            let general = General::toeplitz(&key, &config, Arrangement::Plain);
            assert_eq!((general.toeplitz_key(), general.config()), (Some(key), config));
            let fast = Hasher::from(general.clone());
            assert!(matches!(fast, Hasher::Toeplitz(_)));
            for kind in PacketKind::ALL {
                for _ in 0..100 {
                    let flow = flow(&mut random, kind);
                    let hash_type = config.type_of(&flow);
                    assert_eq!(Some(fast.hash_as(hash_type, &flow)), general.hash(&flow), "{flow:?}");
                }
            }
        }
    }

    #[test]
    fn other_rules_are_not_taken_for_toeplitz() {
        let config = HashConfig::default();
        for arrangement in Arrangement::ALL.into_iter().skip(1) {
            assert_eq!(General::toeplitz(&Key::MICROSOFT, &config, arrangement).toeplitz_key(), None);
        }
        assert_eq!(General::symmetric_xor(&Key::MICROSOFT, &config).toeplitz_key(), None);
        let plain = General::toeplitz(&Key::MICROSOFT, &config, Arrangement::Plain);
        let mut maps = PacketKind::ALL.map(|kind| plain.map(kind).cloned());
        maps[1] = Some(Affine::toeplitz(&Key::symmetric(), 96));
        assert_eq!(General::new(Arrangement::Plain, maps).toeplitz_key(), None);
    }

    #[test]
    fn symmetric_xor_hashes_what_it_says() {
        let mut random = Random::new(2);
        let key = Key::random(|bytes| random.fill(bytes));
        let general = General::symmetric_xor(&key, &HashConfig::with_udp(UdpFields::Four));
        let toeplitz = Toeplitz::new(&key);
        for kind in [PacketKind::TcpIpv4, PacketKind::UdpIpv6] {
            let flow = flow(&mut random, kind);
            let data = Tuple::of(&flow).unwrap();
            let n = kind.address();
            let b = data.bytes;
            let addresses: Vec<u8> = (0..n).map(|i| b[i] ^ b[n + i]).collect();
            let ports: Vec<u8> = (0..2).map(|i| b[2 * n + i] ^ b[2 * n + 2 + i]).collect();
            let input = [&addresses[..], &addresses, &ports, &ports].concat();
            assert_eq!(general.hash(&flow), Some(toeplitz.hash(&input)));
            assert_eq!(general.hash(&flow.reply()), general.hash(&flow));
        }
    }

    #[test]
    fn kinds_without_a_map_are_not_hashed() {
        let config = HashConfig { ipv6: false, tcp_ipv6: false, udp_ipv6: false, ..HashConfig::default() };
        let general = General::toeplitz(&Key::MICROSOFT, &config, Arrangement::Sorted);
        let mut random = Random::new(3);
        assert_eq!(general.hash(&flow(&mut random, PacketKind::TcpIpv6)), None);
        assert!(general.hash(&flow(&mut random, PacketKind::TcpIpv4)).is_some());
        assert_eq!(general.config(), config);
    }
}
