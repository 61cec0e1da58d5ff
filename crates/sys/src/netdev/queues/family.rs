//! Questions to the netdev family (linux/netdev.h), of one interface.

use super::super::Interface;
use super::super::card::{Told, Untold};
use super::super::genl::{ALL, Family, attribute, find, number, unsigned};
use super::{Count, Counts, Features, MOST, Source};
use std::io;

const DEV_GET: u8 = 1;
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;
const QSTATS_GET: u8 = 12;

/// The interface's number, in questions and answers about devices, NAPIs and counts.
const INDEX: u16 = 1;
/// Attributes of a device.
const DEV_XDP: u16 = 3;
const DEV_SEGMENTS: u16 = 4;
const DEV_METADATA: u16 = 5;
/// Attributes of a queue.
const QUEUE_NUMBER: u16 = 1;
const QUEUE_INDEX: u16 = 2;
const QUEUE_DIRECTION: u16 = 3;
const QUEUE_NAPI: u16 = 4;
/// Attributes of a NAPI.
const NAPI_NUMBER: u16 = 2;
const NAPI_INTERRUPT: u16 = 3;
/// Attributes of counts, and the scope that asks for those of queues.
const OF_DIRECTION: u16 = 2;
const OF_QUEUE: u16 = 3;
const SCOPE: u16 = 4;
const EACH_QUEUE: u64 = 1;
const RX_PACKETS: u16 = 8;
const RX_BYTES: u16 = 9;
const TX_PACKETS: u16 = 10;
const TX_BYTES: u16 = 11;
const RX_DROPS: u16 = 13;
const TX_DROPS: u16 = 24;
/// Directions.
const RECEIVE: u32 = 0;
const TRANSMIT: u32 = 1;

/// The family, for one interface.
#[derive(Debug)]
pub(super) struct Netdev {
    family: Family,
    index: u32,
}

impl Netdev {
    /// For an interface of the calling thread's network namespace. Fails where the kernel has no such family.
    pub(super) fn open(interface: &Interface) -> io::Result<Self> {
        Ok(Self { family: Family::open("netdev")?, index: interface.index() })
    }

    /// What the driver can do for XDP.
    pub(super) fn features(&mut self) -> Told<Features> {
        let mut found = None;
        let index = self.of_interface(INDEX);
        self.family.ask(DEV_GET, 0, &index, |body| found = features(body))?;
        found.ok_or(Untold::Unsupported)
    }

    /// Counts of all queues.
    pub(super) fn counts(&mut self) -> Told<Counts> {
        let mut counts = Counts { source: Source::Netdev, receive: Vec::new(), transmit: Vec::new() };
        // The scope is a number of 4 or 8 bytes, as the sender likes.
        let scope = attribute(SCOPE, &EACH_QUEUE.to_ne_bytes());
        let question = [self.of_interface(INDEX), scope].concat();
        let index = self.index;
        self.family.ask(QSTATS_GET, ALL, &question, |body| match count(body, index) {
            Some((RECEIVE, count)) if counts.receive.len() < MOST as usize => counts.receive.push(count),
            Some((TRANSMIT, count)) if counts.transmit.len() < MOST as usize => counts.transmit.push(count),
            _ => {}
        })?;
        counts.checked().ok_or(Untold::Unsupported)
    }

    /// Receive queues with their interrupts.
    pub(super) fn interrupts(&mut self) -> Told<Vec<(u32, u32)>> {
        let (mut queues, mut napis) = (Vec::new(), Vec::new());
        let index = self.index;
        let question = self.of_interface(QUEUE_INDEX);
        self.family.ask(QUEUE_GET, ALL, &question, |body| queues.extend(queue(body, index)))?;
        let question = self.of_interface(INDEX);
        self.family.ask(NAPI_GET, ALL, &question, |body| napis.extend(napi(body, index)))?;
        Ok(joined(queues, &napis))
    }

    fn of_interface(&self, kind: u16) -> Vec<u8> {
        attribute(kind, &self.index.to_ne_bytes())
    }
}

fn features(body: &[u8]) -> Option<Features> {
    Some(Features {
        xdp: find(body, DEV_XDP).and_then(unsigned)?,
        zero_copy_segments: find(body, DEV_SEGMENTS).and_then(number),
        metadata: find(body, DEV_METADATA).and_then(unsigned).unwrap_or(0),
    })
}

/// Direction and count of a queue of the interface.
fn count(body: &[u8], index: u32) -> Option<(u32, Count)> {
    let small = |kind| find(body, kind).and_then(number);
    let long = |kind| find(body, kind).and_then(unsigned);
    // Guard: `small(INDEX)? != index` as `false` fails
    // queues::family::tests::counts_are_of_one_interface_and_one_direction
    if small(INDEX)? != index {
        return None;
    }
    let (direction, queue) = (small(OF_DIRECTION)?, small(OF_QUEUE)?);
    let [packets, bytes, drops] = match direction {
        RECEIVE => [RX_PACKETS, RX_BYTES, RX_DROPS],
        _ => [TX_PACKETS, TX_BYTES, TX_DROPS],
    };
    Some((direction, Count { queue, packets: long(packets), bytes: long(bytes), drops: long(drops) }))
}

/// Number and NAPI of a receive queue of the interface.
fn queue(body: &[u8], index: u32) -> Option<(u32, u32)> {
    let small = |kind| find(body, kind).and_then(number);
    let ours = small(QUEUE_INDEX)? == index && small(QUEUE_DIRECTION)? == RECEIVE;
    let (queue, napi) = (small(QUEUE_NUMBER)?, small(QUEUE_NAPI)?);
    // Guard: `ours && queue < MOST` as `true` fails
    // queues::family::tests::queues_are_joined_with_interrupts_by_napi
    (ours && queue < MOST).then_some((queue, napi))
}

/// Number and interrupt of a NAPI of the interface.
fn napi(body: &[u8], index: u32) -> Option<(u32, u32)> {
    let small = |kind| find(body, kind).and_then(number);
    // Guard: `small(INDEX)? == index` as `true` fails
    // queues::family::tests::queues_are_joined_with_interrupts_by_napi
    (small(INDEX)? == index).then_some((small(NAPI_NUMBER)?, small(NAPI_INTERRUPT)?))
}

fn joined(mut queues: Vec<(u32, u32)>, napis: &[(u32, u32)]) -> Vec<(u32, u32)> {
    queues.sort_unstable();
    queues.dedup_by_key(|queue| queue.0);
    let interrupt = |napi| napis.iter().find(|found| found.0 == napi).map(|found| found.1);
    queues.into_iter().filter_map(|(queue, napi)| Some((queue, interrupt(napi)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_of(kind: u16, value: u32) -> Vec<u8> {
        attribute(kind, &value.to_ne_bytes())
    }

    /// As Linux 6.18 answers for queue 3 of virtio: 4 bytes for a small number, 8 for a great one.
    fn counted() -> Vec<u8> {
        [
            number_of(INDEX, 7),
            number_of(OF_DIRECTION, RECEIVE),
            number_of(OF_QUEUE, 3),
            number_of(RX_PACKETS, 41),
            attribute(RX_BYTES, &(5u64 << 32).to_ne_bytes()),
            number_of(RX_DROPS, 2),
        ]
        .concat()
    }

    #[test]
    fn counts_are_of_one_interface_and_one_direction() {
        let (direction, found) = count(&counted(), 7).unwrap();
        assert_eq!(direction, RECEIVE);
        let all = (found.queue, found.packets, found.bytes, found.drops);
        assert_eq!(all, (3, Some(41), Some(5 << 32), Some(2)));
        assert_eq!(count(&counted(), 8), None, "another interface's");
        let sent = [number_of(1, 7), number_of(2, TRANSMIT), number_of(3, 0), number_of(10, 9)].concat();
        assert_eq!(count(&sent, 7).map(|(d, c)| (d, c.packets, c.bytes)), Some((TRANSMIT, Some(9), None)));
        for cut in 0..counted().len() {
            let _ = count(&counted()[..cut], 7); // must not panic
        }
    }

    #[test]
    fn queues_are_joined_with_interrupts_by_napi() {
        let asked = |number, direction, napi| {
            let of = [number_of(1, number), number_of(2, 7), number_of(3, direction), number_of(4, napi)];
            queue(&of.concat(), 7)
        };
        assert_eq!(asked(1, RECEIVE, 8193), Some((1, 8193)));
        assert_eq!(asked(1, TRANSMIT, 8193), None);
        assert_eq!(asked(MOST, RECEIVE, 8193), None);
        let of = [number_of(INDEX, 7), number_of(NAPI_NUMBER, 8193), number_of(NAPI_INTERRUPT, 27)].concat();
        assert_eq!((napi(&of, 7), napi(&of, 8)), (Some((8193, 27)), None));
        assert_eq!(napi(&of[..16], 7), None, "a NAPI without an interrupt");
        assert_eq!(joined(vec![(1, 8193), (0, 8194), (2, 9)], &[(8193, 27), (8194, 26)]), [(0, 26), (1, 27)]);
    }

    #[test]
    fn features_need_their_first_attribute() {
        let of = [attribute(3, &0x0fu64.to_ne_bytes()), number_of(4, 1), attribute(5, &2u64.to_ne_bytes())];
        let found = features(&of.concat()).unwrap();
        assert!(found.zero_copy() && found.hash() && found.zero_copy_segments == Some(1));
        assert_eq!(features(&number_of(4, 1)), None);
    }
}
