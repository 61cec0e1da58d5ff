//! What the trials came to, as RFC 9004 §6 has it reported.

use serde::{Deserialize, Serialize};

use crate::find::{Ended, Limit};

/// One complete search for the longest burst.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Trial {
    /// Datagrams of the longest burst that came back whole; of a trial that was given up, so far.
    pub longest: Option<u64>,
    /// Datagrams of the shortest burst that did not, twice.
    pub fails_at: Option<u64>,
    /// Bursts sent.
    pub bursts: u64,
    /// Bursts that were not sent at the rate they were meant for, and sent again.
    pub slow: u64,
    /// Mean of the rates at which its other bursts were sent, datagrams per second; 0 without any.
    pub rate: f64,
    /// Whether it was given up since a burst could not be sent at the rate that was asked for.
    pub too_slow: bool,
}

/// Mean, ends and deviation.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Spread {
    /// Mean.
    pub average: f64,
    /// Least.
    pub min: f64,
    /// Most.
    pub max: f64,
    /// Standard deviation of a sample: divided by one less than their number.
    pub stdev: f64,
}

impl Spread {
    /// Of these; `None` of nothing.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let average = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - average).powi(2)).sum();
        let stdev = if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let ends = values.iter().fold((f64::INFINITY, 0.0f64), |(min, max), v| (min.min(*v), max.max(*v)));
        (!values.is_empty()).then_some(Self { average, min: ends.0, max: ends.1, stdev })
    }
}

/// A back-to-back benchmark: the document of `--json` and `--save`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FoundBursts {
    /// 1.
    pub version: u32,
    /// The version of the program.
    pub program: String,
    /// The command.
    pub command: String,
    /// What was asked.
    pub targets: Vec<String>,
    /// Payload of a datagram in the mean, bytes.
    pub payload: f64,
    /// The lengths between which was searched, datagrams.
    pub between: [u64; 2],
    /// How near the bounds of a trial were to come: 0.01 is 1 %, and a datagram at least.
    pub within: f64,
    /// Trials that were asked for.
    pub trials_asked: u64,
    /// The rate of bursts that was asked for, datagrams per second; as fast as the generator can without it.
    pub rate_asked: Option<f64>,
    /// The rates at which bursts were really sent, datagrams per second, by trial.
    pub rate: Option<Spread>,
    /// The longest burst without loss, datagrams, over all complete trials.
    pub longest: Option<Spread>,
    /// How long the average of the longest bursts takes at their rate, seconds (RFC 9004 §5.5).
    pub implied_buffer_seconds: Option<f64>,
    /// The highest rate without loss, datagrams per second, as it was given.
    pub throughput: Option<f64>,
    /// The same without what was passed on meanwhile, seconds: the time that the buffer holds (RFC 9004 §5.5). Not if the throughput is unknown, or not below
    /// the rate of the bursts, so that none had to wait.
    pub corrected_buffer_seconds: Option<f64>,
    /// Packets that our own side dropped, which count as lost.
    pub dropped: u64,
    /// What kept longer bursts from passing.
    pub limit: Option<Limit>,
    /// Why it ended.
    pub ended: Ended,
    /// How long it took, seconds.
    pub seconds: f64,
    /// The trials, in their order.
    pub trials: Vec<Trial>,
}

impl FoundBursts {
    /// Works out what the trials came to.
    pub fn conclude(&mut self) {
        let of =
            |value: fn(&Trial) -> Option<f64>| -> Vec<f64> { self.trials.iter().filter_map(value).collect() };
        self.longest = Spread::of(&of(|trial| trial.longest.filter(|_| !trial.too_slow).map(|n| n as f64)));
        self.rate = Spread::of(&of(|trial| (trial.rate > 0.0).then_some(trial.rate)));
        let rate = self.rate_asked.or(self.rate.map(|rate| rate.average));
        let implied = self.longest.zip(rate).map(|(longest, rate)| longest.average / rate);
        self.implied_buffer_seconds = implied.map(rounded);
        let passed_on = self.throughput.zip(rate).map(|(throughput, rate)| throughput / rate);
        // Guard: `*share < 1.0` as `true` fails find::burst::tests::the_buffer_is_worked_out
        let passed_on = passed_on.filter(|share| *share < 1.0);
        self.corrected_buffer_seconds =
            implied.zip(passed_on).map(|(time, share)| rounded(time * (1.0 - share)));
        let any = |what: fn(&Trial) -> bool| self.trials.iter().any(what);
        // A trial that was given up has shown nothing of what is measured.
        let none_passes = any(|trial| trial.longest.is_none() && trial.fails_at.is_some());
        self.limit = match () {
            () if any(|trial| trial.too_slow) => Some(Limit::Generator),
            () if !any(|trial| trial.fails_at.is_some()) => None,
            () if self.dropped > 0 => Some(Limit::Network),
            () => Some(Limit::Server),
        };
        self.ended = match () {
            () if none_passes => Ended::NoneHolds,
            () if any(|trial| !trial.too_slow && trial.longest.is_some() && trial.fails_at.is_none()) => {
                Ended::AllHold
            }
            () => Ended::Narrow,
        };
    }
}

/// To nanoseconds.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}
