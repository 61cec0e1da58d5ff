//! A run that is the same every time: two pools in three lanes for eight seconds, with a server that stalls for half a
//! second, errors, a warm-up, and strings that mean harm.

use std::time::{Duration, UNIX_EPOCH};

use flowlane_load::report::Period;
use flowlane_load::report::model::{Phase, Setup};
use flowlane_load::report::{
    About, ErrorKind, LaneRecord, PhaseSpan, PoolAbout, Recorder, Run, Sample, Span, Usage, join,
};
use flowlane_stack::rng::Rng;

/// Text that breaks out of whatever does not escape it: markup, quotes, control characters, other directions of writing.
pub(crate) const HOSTILE: &str = "</script><script>alert(1)</script>\"'&<>,;=\n\r\t\u{0}\u{1b}[2J\u{202e}x\u{fffe}\u{1f980} =1+1 ]]> <!-- %s {} \\";

const SECOND: u64 = 1_000_000_000;
const START: u64 = 5 * SECOND;
const SECONDS: u64 = 8;

/// The run; `strange` is what strangers said, and all service times are `scale` times as long.
pub(crate) fn run_scaled(strange: &str, seed: u64, scale: f64) -> Run {
    let spans = [(1, false), (SECONDS, true)]
        .map(|(end, measured)| PhaseSpan { end: START + end * SECOND, measured });
    let measured = START + SECOND..START + SECONDS * SECOND;
    let span = Span { start: START, measured, phases: spans.to_vec() };
    let mut records: Vec<LaneRecord> = Vec::new();
    for lane in 0..3u16 {
        for pool in 0..2 {
            let mut recorder = Recorder::new(lane * 2, pool, 50, span.clone()).with_requests(2);
            fill(
                &mut recorder,
                strange,
                &mut Rng::new(seed ^ u64::from(lane) << 8 ^ pool as u64),
                pool,
                scale,
            );
            records.push(recorder.finish(START + SECONDS * SECOND));
        }
    }
    let phase = |name: &str, from: u64, to: u64, measured| Phase {
        name: name.into(),
        from_seconds: from as f64,
        to_seconds: to as f64,
        measured,
        load: format!("{to} 00/s"),
        figures: None,
    };
    let pool = |name: &str, schedule: &str| PoolAbout {
        name: name.into(),
        targets: vec![format!("http://10.11.2.1/{strange}")],
        schedule: schedule.into(),
        requests: vec!["GET /small".into(), format!("upload {strange}")],
    };
    let about = About {
        setup: Setup {
            command: "load http".into(),
            program: "0.0.0".into(),
            targets: vec![format!("http://10.11.2.1:8080/{strange}"), "http://10.11.2.2/".into()],
            link: "kernel".into(),
            workers: 2,
            seed: Some(seed),
            schedule: "constant 1 200/s".into(),
            open_loop: true,
            scenario: Some(format!("scenarios/{strange}.toml")),
            name: format!("two pools {strange}"),
            about: format!("fast and slow ones {strange}"),
            more: [("header".to_owned(), strange.to_owned())].into(),
        },
        started: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        elapsed: Duration::from_secs(SECONDS),
        measured: Duration::from_secs(SECONDS - 1),
        phases: vec![phase("warm-up", 0, 1, false), phase("hold", 1, SECONDS, true)],
        pools: vec![pool("fast", "5 shares"), pool(&format!("slow {strange}"), "1 share")],
        usage: Usage {
            user: Duration::from_millis(120),
            system: Duration::from_millis(230),
            memory: 9 << 20,
            wall: Duration::from_secs(SECONDS),
            ..Usage::default()
        },
        alignment: Some(0.9987),
        home_ports: None,
        drops: [("no-listener".to_owned(), 3)].into(),
        thresholds: ["p99 > 20ms", "errors > 5%", "pool=fast p50 > 1s"]
            .iter()
            .map(|t| t.parse().unwrap())
            .collect(),
        ..About::default()
    };
    let mut run = join(about, records);
    let steps_ns = (0..24).map(|i| if i == 7 { 0 } else { 90_000 + 4_000 * i }).collect();
    run.periods.push(Period { of: "latency".into(), period_ns: 33_000_000, share: 0.052, steps_ns });
    run
}

enum Event {
    Sent { intended: u64 },
    Answered(Sample),
    Reset { intended: u64 },
    TimedOut { intended: u64 },
    Again { tls: u64 },
}

/// Requests of one pool in one lane: service times of about a millisecond, ten times that in the second pool, and a stall
/// from 4.0 to 4.5 seconds during which nothing is answered.
fn fill(recorder: &mut Recorder, strange: &str, rng: &mut Rng, pool: usize, scale: f64) {
    let mut events = events(rng, pool, scale);
    events.sort_by_key(|(moment, _)| *moment);
    recorder.connected(START, 300_000);
    for (now, event) in events {
        match event {
            Event::Sent { intended } => {
                recorder.sent(intended, now, 120);
                recorder.request_sent(which(intended), intended);
                recorder.concurrency(now, 10 + u64::from(rng.below(20)));
            }
            Event::Answered(sample) => {
                recorder.answered(&sample);
                recorder.request_answered(which(sample.intended), sample.intended, sample.done);
                recorder.received(now, 700);
            }
            Event::Reset { intended } => {
                recorder.request_failed(which(intended), intended, None);
                recorder.error(intended, now, ErrorKind::Reset, || format!("reset by {strange}"));
            }
            Event::TimedOut { intended } => {
                recorder.request_failed(which(intended), intended, Some(now));
                recorder.timed_out(intended, now, || format!("no answer from {strange}"));
            }
            Event::Again { tls } => {
                recorder.closed(now);
                recorder.connected(now, tls / 10);
                recorder.tls(now, tls);
            }
        }
        recorder.tick(now);
    }
}

/// Every third request is the second.
fn which(intended: u64) -> u16 {
    u16::from((intended / 3_000_000).is_multiple_of(3))
}

fn events(rng: &mut Rng, pool: usize, scale: f64) -> Vec<(u64, Event)> {
    let each = if pool == 0 { 3_000_000 } else { 15_000_000 };
    let stall = START + 4 * SECOND..START + 4 * SECOND + SECOND / 2;
    let mut events = Vec::new();
    for n in 0..SECONDS * SECOND / each {
        let intended = START + n * each;
        let sent = intended + 5_000 + u64::from(rng.below(30_000));
        events.push((sent, Event::Sent { intended }));
        // A long tail: so many times longer as a coin falls on the same side in a row.
        let times = (1 + rng.next_u32().trailing_zeros().min(9)) * if pool == 0 { 1 } else { 10 };
        let service = (f64::from((400_000 + rng.below(500_000)) * times) * scale) as u64;
        let done = if stall.contains(&(sent + service)) { stall.end + service } else { sent + service };
        events.push(match rng.below(400) {
            0 => (done, Event::Reset { intended }),
            1 => (intended + SECOND, Event::TimedOut { intended }),
            2..5 => (done, Event::Again { tls: 2_000_000 + u64::from(rng.below(400_000)) }),
            other => {
                let code = if other < 350 { 200 } else { [302, 404, 503][other as usize % 3] };
                (
                    done,
                    Event::Answered(Sample { intended, sent, first_byte: done - service / 10, done, code }),
                )
            }
        });
    }
    events
}
