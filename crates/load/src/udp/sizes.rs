//! Sizes of payloads: one, or several in turn.
//!
//! The size of a datagram follows from its flow and its number in it, so that an answer's size can be checked without a record of each.

use std::str::FromStr;
use std::sync::Arc;

use super::payload::MIN_PAYLOAD;
use crate::units;

/// Largest payload of a datagram over IPv4.
const LARGEST: usize = 65_507;
/// Most datagrams in a round of all sizes.
const ROUND: usize = 4096;

/// The simple IMIX: 7 packets of 40 bytes, 4 of 576 and 1 of 1500 (RFC 6985 has its history). Its smallest packet does not hold the generator's
/// header, so those have the smallest payload that does.
const IMIX: [(usize, usize); 3] = [(40, 7), (576, 4), (1500, 1)];

/// Payload sizes, which datagrams of a flow have in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadSizes(Arc<[usize]>);

impl From<usize> for PayloadSizes {
    fn from(size: usize) -> Self {
        Self(Arc::new([size]))
    }
}

impl PayloadSizes {
    /// The simple IMIX as IP packets with so many bytes of headers before the payload.
    #[must_use]
    pub fn imix(headers: usize) -> Self {
        Self::mixed(&IMIX.map(|(packet, weight)| (packet.saturating_sub(headers).max(MIN_PAYLOAD), weight)))
    }

    /// Each size as often as its weight says, evenly spread over the round: smooth weighted round robin.
    fn mixed(weights: &[(usize, usize)]) -> Self {
        let all: usize = weights.iter().map(|(_, weight)| weight).sum();
        let mut credit: Vec<isize> = vec![0; weights.len()];
        let turn = |_| {
            let mut best = 0;
            for (at, (_, weight)) in weights.iter().enumerate() {
                credit[at] += *weight as isize;
                if credit[at] > credit[best] {
                    best = at;
                }
            }
            credit[best] -= all as isize;
            weights[best].0
        };
        Self((0..all).map(turn).collect())
    }

    /// The size of a datagram of a flow.
    #[inline]
    #[must_use]
    pub fn of(&self, flow: u32, sequence: u64) -> usize {
        let n = self.0.len() as u64;
        if n == 1 { self.0[0] } else { self.0[(sequence.wrapping_add(flow.into()) % n) as usize] }
    }

    /// Whether there is one alone.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.0.len() == 1
    }

    /// The smallest and the largest.
    #[must_use]
    pub fn ends(&self) -> (usize, usize) {
        self.0.iter().fold((usize::MAX, 0), |(low, high), size| (low.min(*size), high.max(*size)))
    }

    /// The mean, bytes.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<usize>() as f64 / self.0.len() as f64
    }
}

impl FromStr for PayloadSizes {
    type Err = String;

    /// `510`, or `36x7,548x4,1472`: sizes, each with how often it comes in a round.
    fn from_str(text: &str) -> Result<Self, String> {
        let one = |part: &str| {
            let (size, weight) = part.split_once('x').unwrap_or((part, "1"));
            let size = units::size(size).map_err(|e| e.to_string())?;
            let weight: usize = weight.parse().map_err(|_| format!("'{part}': a size, or SIZExTIMES"))?;
            // Guard: `!(MIN_PAYLOAD..=LARGEST).contains(&size)` as `false` fails
            // udp::sizes::tests::what_is_no_size_is_refused
            if !(MIN_PAYLOAD..=LARGEST).contains(&size) {
                return Err(format!(
                    "{size} bytes: from {MIN_PAYLOAD} (the generator's header) to what the link's MTU allows"
                ));
            }
            Ok((size, weight))
        };
        let weights: Vec<(usize, usize)> = text.split(',').map(one).collect::<Result<_, String>>()?;
        let all = weights.iter().try_fold(0, |sum: usize, (_, weight)| sum.checked_add(*weight));
        // Guard: `weights.iter().any(|(_, weight)| *weight == 0)` as `false` fails
        // udp::sizes::tests::what_is_no_size_is_refused
        if weights.iter().any(|(_, weight)| *weight == 0) || all.is_none_or(|all| all > ROUND) {
            return Err(format!("'{text}': a round has from 1 to {ROUND} datagrams"));
        }
        Ok(Self::mixed(&weights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_in_turn_as_often_as_they_are_to() {
        let mixed: PayloadSizes = "36x7,548x4,1472".parse().unwrap();
        assert_eq!(mixed, PayloadSizes::imix(28));
        for flow in [0, 5, u32::MAX] {
            let round: Vec<usize> = (100..112).map(|n| mixed.of(flow, n)).collect();
            let count = |size| round.iter().filter(|s| **s == size).count();
            assert_eq!([36, 548, 1472].map(count), [7, 4, 1], "{round:?}");
            assert!(round.windows(3).all(|three| three.iter().any(|s| *s != 36)), "{round:?}: spread");
        }
        assert_eq!((mixed.ends(), mixed.is_one()), ((36, 1472), false));
        assert!((mixed.mean() - (36.0 * 7.0 + 548.0 * 4.0 + 1472.0) / 12.0).abs() < 1e-9);
        assert_eq!(PayloadSizes::imix(48).ends(), (36, 1452));
        let one: PayloadSizes = "1k".parse().unwrap();
        assert!(one.is_one() && one.of(7, u64::MAX) == 1000 && one == PayloadSizes::from(1000));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "x",
            "35",
            "65508",
            "100x",
            "100x0",
            "100x4097",
            "100,,200",
            "100x-1",
            "100x18446744073709551615,100x9",
        ] {
            assert!(text.parse::<PayloadSizes>().is_err(), "{text}");
        }
    }
}
