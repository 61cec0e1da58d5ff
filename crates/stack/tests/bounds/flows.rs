//! A lane that makes records of UDP flows, and floods of far more flows than it has room for.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::HashMap;
use std::time::Duration;

use flowlane_stack::tcp::{FlowEnd, FlowRecord};
use flowlane_stack::wire::{IpProtocol, UdpHeader};

use crate::host::{Host, US_V6, udp, v6};
use crate::kit::my_turn;

/// Flows that a lane knows at most, and records that may wait here.
const ROOM: u64 = 4096;
const MOST: usize = 256;
/// Bytes for both, and at least so many: the flood filled the room.
const BOUND: (usize, usize) = (500 << 10, 700 << 10);
const IDLE: Duration = Duration::from_secs(15);
/// Flows that were there before the flood, and go on in it.
const REGULARS: u32 = 8;
const REGULAR_PORT: u16 = 7;

/// A datagram of stranger `n`, over either family. There is no way back to any, so the lane keeps nothing else of them.
fn datagram(n: u32, port: u16) -> Vec<u8> {
    if n % 2 == 0 {
        return udp(Ipv4Addr::from(0x0b00_0000 + n), port, b"flood");
    }
    let mut datagram = vec![7; 13];
    UdpHeader { src_port: 9, dst_port: port, len: 13, checksum: 0 }.emit(&mut datagram);
    v6(Ipv6Addr::from(0xfd01 << 112 | u128::from(n)), US_V6, IpProtocol::UDP, &datagram)
}

struct Flood {
    host: Host,
    /// Strangers so far.
    n: u32,
    /// Datagrams of each of the regulars.
    regular: u64,
    /// Bytes held when records began.
    before: usize,
    most: usize,
    records: Vec<FlowRecord>,
}

impl Flood {
    /// Strangers have been here before records are made: what else the lane keeps of them is there.
    fn new() -> Self {
        let host = Host::new(|_| {});
        let mut flood = Self { host, n: 100, regular: 0, before: 0, most: 0, records: Vec::new() };
        flood.strangers(5000);
        flood.host.lane.watch_flows(flood.host.now, MOST, None, IDLE);
        flood.before = flood.host.held();
        flood.records.reserve(1 << 16);
        flood.before = flood.host.held();
        flood
    }

    fn strangers(&mut self, count: u32) {
        for _ in 0..count {
            self.host.give(&datagram(self.n, 9));
            self.most = self.most.max(self.host.held().saturating_sub(self.before));
            self.n += 1;
        }
    }

    /// For so many rounds of 100 ms: a datagram of each regular, and so many strangers. Records are taken, or not.
    fn rounds(&mut self, rounds: usize, strangers: u32, takes: bool) {
        for _ in 0..rounds {
            (0..REGULARS).for_each(|n| self.host.give(&datagram(n, REGULAR_PORT)));
            self.regular += 1;
            for _ in 0..100 {
                self.strangers(strangers / 100);
                self.host.tick();
                while let Some(record) = takes.then(|| self.host.lane.poll_flow()).flatten() {
                    self.records.push(record);
                }
            }
        }
    }

    /// How many flows made room, and how many records were lost.
    fn counts(&self) -> (u64, u64) {
        let stats = self.host.lane.stats().udp;
        (stats.flow_records_no_room, stats.flow_records_lost)
    }

    /// Of each regular: its records, and the packets in them.
    fn regulars(&self) -> Vec<(usize, u64)> {
        let mut all: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for record in self.records.iter().filter(|record| record.local.port() == REGULAR_PORT) {
            let (records, packets) = all.entry(record.remote.ip()).or_default();
            *records += 1;
            *packets += record.received.segments;
        }
        assert_eq!(all.len(), REGULARS as usize);
        all.into_values().collect()
    }

    /// The end of the lane's records: the room was full, and no more than that was ever held.
    fn end(&mut self, what: &str) {
        println!("{what}: {} flows, {:?}, {} bytes at most", self.n, self.counts(), self.most);
        assert!(self.most >= BOUND.0 && self.most <= BOUND.1, "{what}: {} bytes", self.most);
        let records = &mut self.records;
        let mut standing = 0;
        self.host.lane.end_flows(self.host.now, |record| {
            standing += u64::from(record.end == FlowEnd::LaneEnded);
            records.push(record);
        });
        assert_eq!(standing, ROOM, "{what}");
    }
}

/// Fewer new flows in a second than there is room for: who speaks ten times a second is never put out for them.
#[test]
fn flows_in_use_stay_in_a_flood() {
    let _turn = my_turn();
    let mut flood = Flood::new();
    flood.rounds(50, 300, true);
    let (no_room, lost) = flood.counts();
    assert_eq!((no_room, lost), (u64::from(REGULARS) + 15_000 - ROOM, 0));
    flood.end("a flood of 3000 flows a second");
    assert_eq!(flood.regulars(), [(1, flood.regular); REGULARS as usize]);
}

/// Many times more than that: all flows are put out in turn and begin anew. While records are taken, not one packet of them is lost.
#[test]
fn what_a_flood_puts_out_has_its_records() {
    let _turn = my_turn();
    let mut flood = Flood::new();
    flood.rounds(12, 3000, true);
    let (no_room, lost) = flood.counts();
    assert!(no_room > 30_000 && lost == 0, "{no_room} {lost}");
    flood.end("a flood of 30000 flows a second");
    let all = flood.regulars();
    assert!(all.iter().all(|(records, packets)| *records > 1 && *packets == flood.regular), "{all:?}");
}

/// The same while nobody takes records: they are lost and counted, memory is what it was, and counting goes on behind the flood.
#[test]
fn records_that_nobody_takes_are_lost_in_a_flood() {
    let _turn = my_turn();
    let mut flood = Flood::new();
    flood.rounds(12, 3000, false);
    let (no_room, lost) = flood.counts();
    assert_eq!((no_room > 30_000, lost), (true, no_room - MOST as u64));
    // Who takes them now has those that waited, and of the regulars all that passes from here on.
    let began = flood.regular;
    while let Some(record) = flood.host.lane.poll_flow() {
        assert_eq!(record.end, FlowEnd::NoRoom);
        flood.records.push(record);
    }
    assert_eq!(flood.records.len(), MOST);
    flood.records.clear();
    flood.rounds(5, 0, true);
    // Of the regulars, those that had been put out came back, and no record of them was lost.
    let back = flood.counts().0 - no_room;
    assert!(back <= u64::from(REGULARS) && flood.counts().1 == lost, "{:?}", flood.counts());
    flood.end("a flood whose records nobody takes");
    let (least, most) = (flood.regular - began, flood.regular);
    assert!(flood.regulars().iter().all(|(_, packets)| (least..most).contains(packets)));
}
