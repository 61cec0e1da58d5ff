//! How the rule for one kind of packet may follow from that for another.
//!
//! Cards have one hash function for all kinds, with different input. For shorter input, Toeplitz uses the first columns and CRC the last. So
//! before a kind is learned without a model, the first and the last columns of every known map are tried, with and without ports, and with
//! any constant. That saves most probes.

use crate::{Affine, PacketKind};

/// Possible columns of a kind whose rule follows from a known one.
pub(super) fn candidates(kind: PacketKind, known: &[(PacketKind, Affine)]) -> Vec<Vec<u32>> {
    let full = kind.bits();
    let lengths = if kind.has_ports() { &[full, full - 32][..] } else { &[full - 32][..] };
    let mut found: Vec<Vec<u32>> = Vec::new();
    // Kinds of the same address family come first.
    let same = known.iter().filter(|(other, _)| other.is_ipv4() == kind.is_ipv4());
    let rest = known.iter().filter(|(other, _)| other.is_ipv4() != kind.is_ipv4());
    for (other, map) in same.chain(rest) {
        let columns = map.columns();
        let addresses = other.bits() - 32;
        let hashed = if columns[addresses..].iter().any(|&c| c != 0) { other.bits() } else { addresses };
        for &len in lengths.iter().filter(|&&len| len <= hashed) {
            for from in [0, hashed - len] {
                let mut wanted = columns[from..from + len].to_vec();
                wanted.resize(full, 0);
                if !found.contains(&wanted) {
                    found.push(wanted);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn first_and_last_columns_with_and_without_ports() {
        let long = Affine::toeplitz(&Key::MICROSOFT, 288);
        let known = [(PacketKind::TcpIpv6, long.clone())];
        let all = candidates(PacketKind::TcpIpv4, &known);
        assert_eq!(all.len(), 4);
        assert!(all.iter().all(|columns| columns.len() == 96));
        assert_eq!(all[0], long.columns()[..96]);
        assert_eq!(all[1], long.columns()[192..]);
        assert_eq!((&all[2][..64], &all[2][64..]), (&long.columns()[..64], &[0; 32][..]));
        assert_eq!(all[3][..64], long.columns()[224..]);
        assert_eq!(candidates(PacketKind::Ipv6, &known).len(), 2);
        assert!(candidates(PacketKind::Ipv6, &[(PacketKind::TcpIpv4, Affine::new(&[0; 96], 0))]).is_empty());
    }
}
