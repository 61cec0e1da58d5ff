use super::*;
use crate::report::{About, Recorder, Sample, join};
use crate::run::timeline::{Phase, span};
use flowlane_stack::rng::Rng;
use std::time::Duration;

/// Nanoseconds of a bin of the fine series.
const BIN: u64 = 1_000_000;
const LIMITS: Limits = Limits { lanes: 0..4, pools: 2, phases: 2, requests: 3 };

/// What a lane recorded in twelve seconds, of anything there is.
fn recorder(lane: u16, pool: usize, requests: u64) -> Recorder {
    let phase = |seconds, measured| Phase { measured, ..Phase::hold(Duration::from_secs(seconds)) };
    let mut rng = Rng::new(u64::from(lane) + 7);
    let mut recorder =
        Recorder::new(lane, pool, 9, span(&[phase(2, false), phase(10, true)], 5)).with_requests(3);
    for i in 0..requests {
        let (at, nanos) = (5 + i * BIN / 2, u64::from(rng.below(1 << 30)) >> rng.below(28));
        recorder.sent(at, at + nanos / 10, 100);
        recorder.request_sent((i % 3) as u16, at);
        let (sent, done) = (at + nanos / 10, at + nanos);
        recorder.answered(&Sample { intended: at, sent, first_byte: done, done, code: 200 + (i % 5) as u16 });
        recorder.request_answered((i % 3) as u16, at, done);
        recorder.received(done, 1000);
    }
    recorder.error(3_000_000_000, 3_000_000_000, ErrorKind::Reset, || "é reset");
    recorder.timed_out(3_000_000_000, 9_000_000_000, || "late");
    recorder.tally(3_000_000_000).named("reordered", 17);
    recorder.tally(3_000_000_000).told("unasked", || "'SSH-2.0'".to_owned());
    recorder.connected(20, 5_000);
    recorder.unsent(4_000_000_000, 15_000_000_000, 3);
    recorder.concurrency(6_000_000_000, 11);
    recorder
}

fn bytes(record: &LaneRecord) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.write(&mut bytes);
    bytes
}

/// The report that is made of records that came over the network is that of the records.
#[test]
fn nothing_is_lost_on_the_way() {
    let records =
        || (0..4).map(|i| recorder(i, usize::from(i) % 2, 30_000).finish(15_000_000_005)).collect::<Vec<_>>();
    let about = || About {
        elapsed: Duration::from_secs(12),
        measured: Duration::from_secs(10),
        phases: crate::timeline::shown(&[
            Phase::hold(Duration::from_secs(2)),
            Phase::hold(Duration::from_secs(10)),
        ]),
        ..About::default()
    };
    let came = records()
        .iter()
        .map(|record| {
            let bytes = bytes(record);
            let mut rest = bytes.as_slice();
            let came = LaneRecord::read(&mut rest, &LIMITS).unwrap();
            assert!(rest.is_empty());
            came
        })
        .collect::<Vec<_>>();
    let (here, there) = (join(about(), records()), join(about(), came));
    assert!(here.total.counts.answered > 100_000 && here.total.counts.errors["reset"].example == "é reset");
    assert!(here.phases.iter().all(|phase| phase.figures.as_ref().is_some_and(|f| f.latency.count() > 0)));
    assert!(!here.total.series.is_empty() && here.pools[1].requests.is_empty());
    assert_eq!(here, there);
}

#[test]
fn snapshots_travel_whole() {
    let (to, from) = crate::report::live::channel();
    let mut recorder = recorder(2, 1, 30_000).reporting_to(to);
    recorder.tick(15_000_000_005);
    let snapshot = from.recv().unwrap();
    assert!(!snapshot.closed.is_empty());
    let mut bytes = Vec::new();
    snapshot.write(&mut bytes);
    let came = Snapshot::read(&mut bytes.as_slice(), &LIMITS).unwrap();
    assert_eq!(format!("{came:?}"), format!("{snapshot:?}"));
    assert_eq!(came.closed, snapshot.closed);
}

/// Whatever comes: an error or a record, no panic.
#[test]
fn damaged_records_are_refused() {
    let whole = bytes(&recorder(1, 0, 300).finish(15_000_000_005));
    for length in (0..whole.len()).step_by(whole.len() / 100).chain(whole.len() - 40..whole.len()) {
        assert!(LaneRecord::read(&mut &whole[..length], &LIMITS).is_err(), "{length}");
    }
    let mut rng = Rng::new(5);
    for _ in 0..100 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(3) {
            let at = if rng.below(2) == 0 { rng.below(400) } else { rng.below(bytes.len() as u32) };
            bytes[at as usize] = rng.below(256) as u8;
        }
        if let Ok(record) = LaneRecord::read(&mut bytes.as_slice(), &LIMITS) {
            let _ = join(About::default(), vec![record]);
        }
    }
    let ours = |limits: Limits| LaneRecord::read(&mut whole.as_slice(), &limits).map(|_| ());
    assert_eq!(ours(LIMITS), Ok(()));
    for (limits, what) in [
        (Limits { lanes: 2..4, ..LIMITS }, "another part"),
        (Limits { pools: 0, ..LIMITS }, "a pool"),
        (Limits { phases: 1, ..LIMITS }, "too large"),
        (Limits { requests: 2, ..LIMITS }, "too large"),
    ] {
        assert!(ours(limits).unwrap_err().to_string().contains(what), "{what}");
    }
}
