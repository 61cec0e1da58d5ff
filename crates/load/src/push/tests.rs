//! What snapshots and the report say of the same run, and how both are written.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::figures::FIGURES;
use super::labels::Labels;
use super::remote_write;
use super::state::State;
use crate::report::live::{self, Live};
use crate::report::{About, ErrorKind, PoolAbout, Recorder, Run, Sample, SnapshotsTo, Span, join};

const SECOND: u64 = 1_000_000_000;

/// Half of the run is not measured; after each of its seconds, what snapshots said, and then the report.
fn states(seconds: u64) -> (Vec<State>, Run) {
    let (to, from) = live::channel();
    let names = ["a".to_owned(), "b".to_owned()];
    let span = Span::new(SECOND, SECOND * (1 + seconds / 2)..u64::MAX);
    let mut recorders: Vec<Recorder> = (0..4u16)
        .map(|i| {
            let to = SnapshotsTo::from(to.clone()).with_counts();
            Recorder::new(i % 2, usize::from(i / 2), 1, span.clone()).reporting_to(to)
        })
        .collect();
    let mut live = Live::new();
    live.add_up();
    let mut states = vec![State::of_live(&live, &names)];
    for ms in 0..seconds * 1000 + 500 {
        let now = SECOND + ms * 1_000_000;
        for (i, recorder) in recorders.iter_mut().enumerate() {
            recorder.sent(now, now + ms, 100);
            if ms % 10 == 3 {
                recorder.error(now, now, ErrorKind::Reset, || "reset");
            } else {
                let done = now + 1000 * (i as u64 + 1) * (ms % 777 + 1);
                recorder.answered(&Sample { intended: now, sent: now, first_byte: done, done, code: 200 });
            }
            recorder.tick(now);
        }
        live.take(&from);
        if ms % 1000 == 999 {
            states.push(State::of_live(&live, &names));
        }
    }
    let pool = |name: &String| PoolAbout { name: name.clone(), ..PoolAbout::default() };
    let elapsed = Duration::from_millis(seconds * 1000 + 500);
    let about =
        About { elapsed, measured: elapsed, pools: names.iter().map(pool).collect(), ..About::default() };
    let end = SECOND + elapsed.as_nanos() as u64;
    let run = join(about, recorders.into_iter().map(|r| r.finish(end)).collect());
    states.push(State::of_run(&run));
    (states, run)
}

#[test]
fn counters_only_grow_and_end_at_the_counts_of_the_report() {
    let (states, run) = states(4);
    for pair in states.windows(2) {
        for (before, after) in pair[0].pools.iter().zip(&pair[1].pools) {
            assert_eq!(before.name, after.name);
            for figure in FIGURES.iter().filter(|figure| figure.is_counter()) {
                let after = figure.counts(after);
                for (label, count) in figure.counts(before) {
                    let now = after.iter().find(|(other, _)| *other == label);
                    assert!(now.is_some_and(|(_, now)| *now >= count), "{} {label:?}", figure.name);
                }
            }
            for figure in FIGURES {
                let (Some(before), Some(after)) = (figure.times(before), figure.times(after)) else {
                    continue;
                };
                let after: BTreeMap<u64, u64> = after.classes().collect();
                for (nanos, count) in before.classes() {
                    assert!(after.get(&nanos).is_some_and(|now| *now >= count), "{} {nanos}", figure.name);
                }
            }
        }
    }
    let last = states.last().unwrap();
    for (pool, part) in last.pools.iter().zip(&run.pools) {
        assert_eq!(pool.sent, part.counts.sent + part.unmeasured.sent);
        assert!(part.counts.sent > 0 && part.unmeasured.sent > 0);
        assert_eq!((pool.slip.count(), pool.latency.count()), (pool.sent, pool.answered));
        assert_eq!(pool.counts.as_ref().unwrap().errors["reset"].count, pool.failed);
    }
    // A whole second before the end is known while the run goes on.
    assert!(states[states.len() - 2].pools[1].latency.count() > 2000);
}

#[test]
fn agents_have_no_counts_by_kind_and_none_are_made_up() {
    let (to, from) = live::channel();
    let mut recorder = Recorder::new(0, 0, 1, Span::all(0)).reporting_to(to);
    recorder.sent(0, 0, 1);
    recorder.tick(SECOND);
    let mut live = Live::new();
    live.take(&from);
    let state = State::of_live(&live, &["all".to_owned()]);
    assert_eq!((state.pools[0].sent, &state.pools[0].counts), (1, &None));
    let known: Vec<&str> =
        FIGURES.iter().filter(|f| !f.counts(&state.pools[0]).is_empty()).map(|f| f.name).collect();
    assert!(
        known.contains(&"flowlane_load_requests_sent") && !known.contains(&"flowlane_load_requests_unsent")
    );
}

#[test]
fn names_in_prometheus_have_unit_and_kind_and_the_page_has_all_of_them() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/push.md")).unwrap();
    for figure in FIGURES {
        let name = figure.prometheus();
        assert!(page.contains(&format!("`{name}`")), "{name}");
        assert!(figure.text.len() <= 64, "{}", figure.text);
    }
    let names: Vec<String> = FIGURES.iter().map(super::figures::Figure::prometheus).collect();
    for name in ["requests_sent_total", "sent_bytes_total", "concurrency", "latency_seconds"] {
        assert!(names.contains(&format!("flowlane_load_{name}")), "{names:?}");
    }
}

#[test]
fn labels_have_one_place_each() {
    let label = |given: &[&str]| {
        Labels::new("run".into(), &given.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>())
    };
    let labels = label(&["testid=7=8", "service.name=shop", "deployment.environment=test"]).unwrap();
    let plain: Vec<(String, &str)> = labels.plain().collect();
    let expected =
        [("job", "shop"), ("instance", "run"), ("testid", "7=8"), ("deployment_environment", "test")];
    assert_eq!(plain, expected.map(|(name, value)| (name.to_owned(), value)));
    assert!(labels.attributes().any(|pair| pair == ("deployment.environment", "test")));
    for wrong in ["", "a", "=b", "a=", "1a=b", "a-b=c", "__name__=x", "pool=x", "le=1"] {
        assert!(label(&[wrong]).is_err(), "{wrong}");
    }
    assert!(label(&["a.b=1", "a_b=2"]).is_err());
}

#[test]
fn series_are_sorted_and_bounded_by_what_the_run_has() {
    let (states, _) = states(1);
    let labels = Labels::new("i".into(), &["zone=z".to_owned(), "area=a".to_owned()]).unwrap();
    let series = remote_write::names(states.last().unwrap(), &labels);
    assert!(series.iter().all(|labels| labels.is_sorted()), "{series:?}");
    // Two histograms of 53 buckets, a sum and a count, and twelve counts and more of each of two pools.
    assert!((2 * (2 * 55 + 12)..300).contains(&series.len()), "{}", series.len());
    assert!(states[0].at <= SystemTime::now());
}
