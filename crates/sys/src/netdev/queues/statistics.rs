//! Counts of queues in a driver's own statistics (`ethtool -S`), which each driver names as it likes.
//!
//! ```text
//!   rx_queue_0_packets, rx0_packets, rx-0.packets, rx-0.rx_packets       igb, ixgbe, mlx5, virtio, ice, i40e, sfc
//!   queue_0_rx_cnt, rx_packets[0], rvec_0_rx_pkts, rx_q-0_pkts           ena, gve, nfp, idpf
//!   [0]: rx_ucast_packets, [0]: rx_mcast_packets                         bnxt: added up
//!   Queue[0] InPackets                                                   atlantic
//!   Rx Queue#, then   ucast pkts rx, ...                                 vmxnet3: the queue is the value of the line before
//! ```
//!
//! A name is taken apart into words and numbers, and counts if it has one number, one direction, one unit, and no word that is not known to be harmless:
//! `rx0_xdp_drops` and `rx_queue_0_csum_err` say something else. The number has to be that of a queue the interface has, so that sizes of packets
//! (`rx_64_bytes`) are not taken for queues.

use super::super::Interface;
use super::super::card::ethtool::Ethtool;
use super::super::card::{Told, Untold};
use super::{Count, Counts, MOST, Source};

/// Reads the counts of `interface` among its driver's statistics.
///
/// # Errors
/// The driver has no statistics, or none of single queues.
pub fn read(interface: &Interface) -> Told<Counts> {
    let statistics = Ethtool::open(interface).map_err(|_| Untold::Unsupported)?.statistics()?;
    let queues = interface.channels().map_or([MOST; 2], |found| [found.receive, found.transmit]);
    found(&statistics, queues).ok_or(Untold::Unsupported)
}

/// The counts among statistics, each a name and its value. `queues`: how many queues receive and transmit.
#[must_use]
pub fn found(statistics: &[(String, u64)], queues: [u32; 2]) -> Option<Counts> {
    let mut counts = [Vec::new(), Vec::new()];
    let mut section = None;
    for (name, value) in statistics {
        if let Some(direction) = heading(name) {
            section = u32::try_from(*value).ok().map(|queue| (direction, queue));
            continue;
        }
        let Some(said) = taken_apart(name) else { continue };
        let under = section.filter(|_| name.starts_with("  "));
        let (Some(queue), Some(direction)) =
            (said.queue.or(under.map(|u| u.1)), said.direction.or(under.map(|u| u.0)))
        else {
            continue;
        };
        let at = usize::from(direction == Direction::Transmit);
        // Guard: `queue < queues[at].min(MOST)` as `true` fails
        // queues::statistics::tests::other_statistics_are_not_taken_for_queues
        if queue < queues[at].min(MOST) {
            add(&mut counts[at], queue, said.unit, *value);
        }
    }
    let [receive, transmit] = counts;
    Counts { source: Source::Statistics, receive, transmit }.checked()
}

fn add(counts: &mut Vec<Count>, queue: u32, unit: Unit, value: u64) {
    // Drivers list queue after queue, so the last one is nearly always the one.
    let at = counts.iter().rposition(|count| count.queue == queue).unwrap_or_else(|| {
        counts.push(Count { queue, ..Count::default() });
        counts.len() - 1
    });
    let sum = match unit {
        Unit::Packets => &mut counts[at].packets,
        Unit::Bytes => &mut counts[at].bytes,
    };
    *sum = Some(sum.unwrap_or(0).wrapping_add(value));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Receive,
    Transmit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Packets,
    Bytes,
}

/// What a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Named {
    direction: Option<Direction>,
    queue: Option<u32>,
    unit: Unit,
}

/// vmxnet3's line before the counts of a queue.
fn heading(name: &str) -> Option<Direction> {
    match name {
        "Rx Queue#" => Some(Direction::Receive),
        "Tx Queue#" => Some(Direction::Transmit),
        _ => None,
    }
}

fn taken_apart(name: &str) -> Option<Named> {
    let (mut direction, mut queue, mut unit) = (None, None, None);
    for word in words(name) {
        let word = word.as_str();
        let way = match word {
            "rx" | "rxq" | "in" => Some(Direction::Receive),
            "tx" | "txq" | "out" => Some(Direction::Transmit),
            _ => None,
        };
        let what = match word {
            "packets" | "pkts" | "cnt" | "frames" => Some(Unit::Packets),
            "bytes" | "octets" => Some(Unit::Bytes),
            _ => None,
        };
        if way.is_some() {
            // `rx-0.rx_packets` says it twice.
            if direction.is_some() && direction != way {
                return None;
            }
            direction = way;
        } else if what.is_some() {
            if unit.is_some() {
                return None;
            }
            unit = what;
        } else if word.bytes().all(|b| b.is_ascii_digit()) {
            if queue.is_some() {
                return None;
            }
            queue = Some(word.parse().ok()?);
        } else if !["queue", "q", "ring", "rvec", "ucast", "mcast", "bcast"].contains(&word) {
            return None;
        }
    }
    Some(Named { direction, queue, unit: unit? })
}

/// Runs of letters and runs of digits, in lower case. A capital after a small letter begins a word: `InPackets`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars().take(LONGEST) {
        let breaks = before.is_ascii_digit() != c.is_ascii_digit()
            || before.is_ascii_lowercase() && c.is_ascii_uppercase()
            || !c.is_ascii_alphanumeric();
        if breaks {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Characters of a name.
const LONGEST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[(&str, u64)], queues: [u32; 2]) -> Option<Counts> {
        let list: Vec<_> = names.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        found(&list, queues)
    }

    /// Every driver's way to say: queue 1 has received 7 packets and 9 bytes, and sent 5 packets.
    #[test]
    fn names_of_many_drivers_say_the_same() {
        for names in [
            ["rx_queue_1_packets", "rx_queue_1_bytes", "tx_queue_1_packets"],
            ["rx1_packets", "rx1_bytes", "tx1_packets"],
            ["rx-1.packets", "rx-1.bytes", "tx-1.packets"],
            ["rx-1.rx_packets", "rx-1.rx_bytes", "tx-1.tx_packets"],
            ["queue_1_rx_cnt", "queue_1_rx_bytes", "queue_1_tx_cnt"],
            ["rx_packets[1]", "rx_bytes[1]", "tx_packets[1]"],
            ["rvec_1_rx_pkts", "rvec_1_rx_bytes", "rvec_1_tx_pkts"],
            ["rx_q-1_pkts", "rx_q-1_bytes", "tx_q-1_pkts"],
            ["rxq1_packets", "rxq1_bytes", "txq1_packets"],
            ["q1_rx_packets", "q1_rx_bytes", "q1_tx_packets"],
            ["[1]: rx_ucast_packets", "[1]: rx_ucast_bytes", "[1]: tx_ucast_packets"],
            ["Queue[1] InPackets", "Queue[1] InOctets", "Queue[1] OutPackets"],
            ["Rx ring  1 frames", "Rx ring  1 bytes", "Tx ring  1 frames"],
        ] {
            let counts = of(&[(names[0], 7), (names[1], 9), (names[2], 5)], [4, 4]);
            let counts = counts.unwrap_or_else(|| panic!("{names:?}"));
            let receive = Count { queue: 1, packets: Some(7), bytes: Some(9), drops: None };
            let transmit = Count { queue: 1, packets: Some(5), ..Count::default() };
            assert_eq!((counts.receive, counts.transmit), (vec![receive], vec![transmit]), "{names:?}");
        }
    }

    #[test]
    fn kinds_of_packets_are_added_up() {
        let counts = of(&[("[0]: rx_ucast_packets", 7), ("[0]: rx_mcast_packets", 2)], [1, 1]).unwrap();
        assert_eq!(counts.receive[0].packets, Some(9));
    }

    #[test]
    fn a_number_of_two_digits_is_one_number() {
        let counts = of(&[("rx_queue_12_packets", 7)], [16, 16]).unwrap();
        assert_eq!(counts.receive[0].queue, 12);
    }

    #[test]
    fn vmxnet3_says_the_queue_before() {
        let names = [
            ("Tx Queue#", 0),
            ("  TSO pkts tx", 90),
            ("  ucast pkts tx", 3),
            ("Tx Queue#", 1),
            ("  ucast pkts tx", 4),
            ("Rx Queue#", 0),
            ("  LRO pkts rx", 91),
            ("  ucast pkts rx", 5),
            ("  ucast bytes rx", 300),
            ("  mcast pkts rx", 1),
            ("  pkts rx OOB", 92),
            ("tx timeout count", 93),
        ];
        let counts = of(&names, [1, 2]).unwrap();
        assert_eq!(counts.receive, [Count { queue: 0, packets: Some(6), bytes: Some(300), drops: None }]);
        assert_eq!(counts.transmit.iter().map(|c| c.packets).collect::<Vec<_>>(), [Some(3), Some(4)]);
    }

    #[test]
    fn other_statistics_are_not_taken_for_queues() {
        for name in [
            "rx_packets",
            "rx_queue_0_xdp_packets",
            "rx_queue_0_drops",
            "rx_queue_0_csum_err",
            "rx0_xsk_packets",
            "rx_prio0_bytes",
            "rx_65_127_bytes",
            "rx_64_bytes",
            "rx_0_tx_packets",
            "rx0_packets_bytes",
            "  ucast pkts rx",
            "ch0_events",
            "rx99999999999999999999_packets",
            "",
        ] {
            assert_eq!(of(&[(name, 1)], [4, 4]), None, "{name}");
        }
    }
}
