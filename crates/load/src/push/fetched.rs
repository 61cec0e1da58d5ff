//! The same figures for whoever fetches them: `/metrics` of a run (`--metrics`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flowlane::metrics::{Kind, Metric, Sample};

use super::buckets::buckets;
use super::figures::{FIGURES, Figure, Values};
use super::state::{PoolState, State};
use crate::report::SnapshotsTo;
use crate::report::live::Live;

/// How often what is fetched changes.
const EVERY: Duration = Duration::from_millis(250);

/// The newest state of a run, to be fetched.
#[derive(Debug)]
pub struct Fetched {
    newest: Arc<Mutex<State>>,
    pools: Vec<String>,
    next: Instant,
}

impl Fetched {
    /// Of a run with these pools, which begins now: all is zero. `live` keeps what is fetched from now on.
    #[must_use]
    pub fn new(pools: &[String], live: &mut Live) -> Self {
        live.add_up();
        let state = State::of_live(live, pools);
        Self { newest: Arc::new(Mutex::new(state)), pools: pools.to_vec(), next: Instant::now() }
    }

    /// The way for snapshots that have what is fetched.
    #[must_use]
    pub fn asks(&self, to: SnapshotsTo) -> SnapshotsTo {
        to.with_counts()
    }

    /// Takes what is known, four times a second at most.
    pub fn look(&mut self, live: &Live) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + EVERY;
            let state = State::of_live(live, &self.pools);
            *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = state;
        }
    }

    /// What gives the newest figures, from any thread.
    pub fn reader(&self) -> impl Fn() -> Vec<Metric> + Send + Sync + 'static {
        let newest = self.newest.clone();
        move || {
            let state = newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
            FIGURES.iter().map(|figure| metric(figure, &state)).collect()
        }
    }
}

fn metric(figure: &Figure, state: &State) -> Metric {
    let kind = match figure.values {
        Values::Times(_) => Kind::Histogram,
        _ if figure.is_counter() => Kind::Counter,
        _ => Kind::Gauge,
    };
    Metric {
        name: figure.family(),
        kind,
        unit: figure.unit.word().to_owned(),
        help: figure.text.to_owned(),
        samples: state.pools.iter().flat_map(|pool| samples(figure, pool)).collect(),
    }
}

fn samples(figure: &Figure, pool: &PoolState) -> Vec<Sample> {
    let sample = |label: Option<(&str, &str)>, value| {
        let labels = [("pool", pool.name.as_str())].into_iter().chain(label);
        let labels: BTreeMap<String, String> =
            labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Sample { labels, value }
    };
    let Some(times) = figure.times(pool) else {
        return figure.counts(pool).into_iter().map(|(label, count)| sample(label, count as f64)).collect();
    };
    let (buckets, sum) = buckets(times);
    let mut samples: Vec<Sample> =
        buckets.iter().map(|(bound, count)| sample(Some(("le", bound)), *count as f64)).collect();
    samples.push(sample(None, sum));
    samples
}
