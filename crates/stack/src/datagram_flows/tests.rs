use super::*;
use crate::rng::Rng;
use crate::testing::{self, datagram, frame};
use crate::top::key::{counted, is_tcp, look_closely};
use crate::{Class, Lane};
use flowlane_sys::frame::{Frame, Pool};
use std::collections::HashMap;

const OURS: u32 = 0x0a00_0001;
const IDLE: Duration = Duration::from_secs(5);

fn flows(most: usize, active: Option<Duration>) -> DatagramFlows {
    DatagramFlows::new(RecordOptions { most, active, idle: IDLE, seed: [0x1234_5678_9abc_def1, 77] })
}

/// A datagram of the flow with this peer's port.
fn pass(flows: &mut DatagramFlows, pool: &Pool, now: Time, port: u32, received: bool, size: u16) {
    let ((a, b), (c, d)) = ((OURS + 1 + (port >> 16), port as u16), (OURS, 7));
    let bytes = if received { datagram(a, b, c, d, size) } else { datagram(c, d, a, b, size) };
    count(flows, now, &frame(pool, &bytes), received);
}

/// As a lane counts a frame, without a table of the largest flows.
fn count(flows: &mut DatagramFlows, now: Time, frame: &Frame, received: bool) {
    if is_tcp(frame.data()) {
        return;
    }
    if let Some((key, weight)) = counted(frame, true, received) {
        flows.count(now, key, weight, received);
    }
}

fn taken(flows: &mut DatagramFlows) -> Vec<FlowRecord> {
    std::iter::from_fn(|| flows.poll()).collect()
}

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// The sum of a flow's records is what passed, in each direction, and their times follow one another, whatever becomes of the flow, and
/// however seldom records are taken.
#[test]
fn the_sum_of_records_is_what_passed() {
    let pool = testing::pool(64);
    for (seed, most, active) in
        [(1, 100, Some(1)), (2, 3, Some(1)), (3, 100, None), (4, 3, None), (5, 1, Some(3))]
    {
        let mut rng = Rng::new(seed);
        let mut flows = flows(most, active.map(Duration::from_secs));
        let mut truth: HashMap<u16, [FlowTotals; 2]> = HashMap::new();
        let (mut now, mut records) = (at(1000), Vec::new());
        for step in 0..20_000 {
            now += Duration::from_millis(u64::from(rng.below(9)));
            // Each kilosecond other ports: those before fall silent.
            let port = 1 + rng.below(30) as u16 + step / 2000 * 100;
            let (received, size) = (rng.below(3) > 0, rng.below(500) as u16);
            pass(&mut flows, &pool, now, port.into(), received, size);
            let totals = &mut truth.entry(port).or_default()[usize::from(received)];
            totals.segments += 1;
            totals.bytes += u64::from(size);
            totals.octets += u64::from(size) + 28;
            if flows.next_deadline().unwrap() <= now {
                flows.on_timer(now);
                assert!(flows.watch.as_ref().unwrap().waiting.len() <= most);
            }
            if rng.below(4) == 0 {
                records.extend(flows.poll());
            }
        }
        let standing = taken(&mut flows);
        records.extend(standing);
        let (before, counts) = (records.len() as u64, flows.counts());
        flows.end_all(now, |record| records.push(record));
        assert_eq!((counts, flows.counts().lost, counts.no_room), (flows.counts(), 0, 0));
        assert_eq!(counts.ended + counts.active, before);
        assert_eq!(counts.active > 0, active.is_some());
        // With an active timeout that is shorter than the other, a flow that falls silent has had its last record before.
        assert!(active.is_some() || counts.ended >= 200, "{counts:?}");
        let mut ended: HashMap<u16, Time> = HashMap::new();
        for record in &records {
            let left = truth.get_mut(&record.remote.port()).unwrap();
            for (left, had) in left.iter_mut().zip([record.sent, record.received]) {
                left.segments -= had.segments;
                left.bytes -= had.bytes;
                left.octets -= had.octets;
            }
            let since = ended.insert(record.remote.port(), record.ended).unwrap_or(Time::ZERO);
            assert!(
                since <= record.began && record.began <= record.ended && record.ended <= now,
                "{record:?}"
            );
        }
        assert!(truth.values().flatten().all(|left| *left == FlowTotals::default()), "{truth:?}");
    }
}

/// A flow ends when nothing came for the idle timeout, not before, at most a second later, and its end is its last packet. A deadline says when.
#[test]
fn silence_ends_a_flow() {
    let pool = testing::pool(8);
    let mut flows = flows(10, None);
    pass(&mut flows, &pool, at(1000), 5, false, 10);
    pass(&mut flows, &pool, at(1900), 5, true, 20);
    pass(&mut flows, &pool, at(1950), 6, true, 0);
    let due = flows.next_deadline().unwrap();
    assert!(due > at(1900) + IDLE && due <= at(1900) + IDLE + STEP, "{due:?}");
    flows.on_timer(at(1900) + IDLE);
    assert_eq!(taken(&mut flows), []);
    flows.on_timer(due);
    let [record] = taken(&mut flows)[..] else { panic!("{flows:?}") };
    assert_eq!((record.end, record.began, record.ended), (FlowEnd::Idle, at(1000), at(1900)));
    assert_eq!((record.active, record.protocol), (true, IpProtocol::UDP));
    assert_eq!(record.sent, FlowTotals { bytes: 10, segments: 1, octets: 38 });
    assert_eq!(record.received, FlowTotals { bytes: 20, segments: 1, octets: 48 });
    // It is a new flow now, and the peer's.
    pass(&mut flows, &pool, due, 5, true, 0);
    flows.end_all(due, |record| assert!(!record.active && record.end == FlowEnd::LaneEnded));
}

/// When the table is full, who was silent for longest makes room. That is the only record which can be lost, and then it is counted.
#[test]
fn a_full_table_makes_room() {
    let pool = testing::pool(8);
    let mut flows = flows(3, None);
    (0..MOST as u32).for_each(|port| pass(&mut flows, &pool, at(1000), port, true, 0));
    // All but five came again later.
    (0..100).chain(105..MOST as u32).for_each(|port| pass(&mut flows, &pool, at(3000), port, true, 0));
    (0..5).for_each(|port| pass(&mut flows, &pool, at(3000), MOST as u32 + port, true, 0));
    let records = taken(&mut flows);
    let ports: Vec<u16> = records.iter().map(|record| record.remote.port()).collect();
    assert_eq!(ports, [100, 101, 102]);
    assert!(records.iter().all(|record| record.end == FlowEnd::NoRoom));
    assert_eq!(flows.counts(), Counts { ended: 5, active: 0, no_room: 5, lost: 2 });
    let mut standing = 0;
    flows.end_all(at(3000), |_| standing += 1);
    assert_eq!(standing, MOST);
}

/// Many that are due at once do not hold the lane: some at a time, and the deadline stays until all are done.
#[test]
fn many_ends_are_spread_over_turns() {
    let pool = testing::pool(8);
    let mut flows = flows(1000, Some(Duration::from_secs(60)));
    (0..200).for_each(|port| pass(&mut flows, &pool, at(1000), port, true, 0));
    let now = at(1000) + IDLE + STEP;
    let mut turns = Vec::new();
    while flows.next_deadline().is_some_and(|due| due <= now) {
        flows.on_timer(now);
        turns.push(taken(&mut flows).len());
    }
    assert_eq!(turns, [64, 64, 64, 8]);
    assert_eq!(flows.next_deadline(), None);
}

/// Only UDP, in any shape: fragments are a flow without ports, IPv6, and what is padded.
#[test]
fn udp_only() {
    let pool = testing::pool(8);
    let mut flows = flows(10, None);
    let plain = datagram(OURS + 1, 5, OURS, 7, 2);
    let mut tcp = datagram(OURS + 1, 5, OURS, 7, 30);
    tcp[23] = 6;
    let mut fragment = plain.clone();
    fragment[20] = 0x20;
    let mut v6 = vec![2; 12];
    v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64]);
    v6.extend([0xfd; 32]);
    v6.extend([0, 5, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4]);
    let mut v6_tcp = v6.clone();
    v6_tcp[20] = 6;
    v6_tcp.extend([0x50; 20]);
    // Behind another header.
    let mut v6_behind = vec![2; 12];
    v6_behind.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 28, 0, 64]);
    v6_behind.extend([0xfd; 32]);
    v6_behind.extend([6, 0, 1, 4, 0, 0, 0, 0, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    assert!(look_closely(&frame(&pool, &v6_behind), true, true).is_some());
    for bytes in [&plain, &tcp, &fragment, &v6, &v6_tcp, &v6_behind, &[&plain[..], &[0; 16]].concat()] {
        count(&mut flows, at(1000), &frame(&pool, bytes), true);
    }
    for len in 0..plain.len() {
        count(&mut flows, at(1000), &frame(&pool, &tcp[..len]), true);
    }
    let mut records = Vec::new();
    flows.end_all(at(1000), |record| records.push(record));
    let of = |record: &FlowRecord| (record.remote.port(), record.received);
    let totals = |bytes, segments, octets| FlowTotals { bytes, segments, octets };
    let all: Vec<_> = records.iter().map(of).collect();
    assert_eq!(all, [(5, totals(4, 2, 60)), (0, totals(10, 1, 30)), (5, totals(4, 1, 52))]);
}

/// A lane gives records of UDP with the interface of the peer, also while its table of the largest flows is on, and none when it is told to stop.
#[test]
fn a_lane_gives_records() {
    let pool = testing::pool(64);
    let mut lane: Lane = testing::lane(testing::interface(1), [1, 2, 3, 4]);
    let now = Time::from_secs(1);
    let came = |lane: &mut Lane| {
        let bytes = datagram(OURS + 1, 5, OURS, 7, 2);
        lane.input(now, &pool, frame(&pool, &bytes), Class::Ethernet);
    };
    came(&mut lane);
    lane.watch_flows(now, 10, None, IDLE);
    came(&mut lane);
    lane.watch_top(Some(&crate::top::TopConfig::new([1, 2])));
    came(&mut lane);
    lane.watch_top(None);
    came(&mut lane);
    let due = lane.poll_at().unwrap();
    assert!(due <= now + IDLE + STEP);
    lane.on_timer(now + IDLE + STEP, &pool);
    let record = lane.poll_flow().unwrap();
    assert_eq!((record.interface, record.received.segments, record.end), (Some(0), 3, FlowEnd::Idle));
    assert_eq!(lane.stats().udp.flow_records, 1);
    came(&mut lane);
    lane.watch_flows(now, 0, None, IDLE);
    came(&mut lane);
    lane.end_flows(now, |record| panic!("{record:?}"));
}
