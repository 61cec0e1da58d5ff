//! `load udp --find-burst`: the longest burst that passes without loss, by RFC 9004 ([`flowlane_load::find::burst`]).

use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use flowlane::zone;
use flowlane_load::find::burst::{FoundBursts, Trial, line};
use flowlane_load::find::{Ended, Found, Limit};
use flowlane_load::report::model;
use flowlane_load::report::text::plain;
use flowlane_load::udp::Bursts;
use flowlane_load::{LoadConfig, Phase};

use super::course::{Course, Load, Runs};
use super::find::Find;

use crate::exit::{EndedBy, Missed, Slipped};
use crate::say::say;
use crate::units;

/// Lengths between which is searched unless it is said, and how near a trial's bounds come.
const BETWEEN: (f64, f64) = (10.0, 100_000.0);
const WITHIN: f64 = 0.01;
/// Trials (RFC 2544 §26.4, RFC 9004 §5.4).
const TRIALS: u64 = 50;
/// Most datagrams of a burst.
const LONGEST: f64 = 1e8;

/// Options of a search for bursts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Search")]
pub(super) struct BurstOptions {
    /// Find the longest burst of datagrams that comes back without loss, and from it the time that the buffer on the way holds (RFC 9004). --between has the
    /// lengths [default: 10..100k], --within how near a trial comes [default: 1%].
    #[arg(long, group = "search", conflicts_with_all = [
        "rate", "window", "poisson", "ramp", "burst", "flows", "slots", "discard", "warm_up", "duration", "slip_budget", "fail", "abort", "html", "csv", "hdr",
        "junit", "markdown", "tui", "lines", "web", "metrics", "push",
    ])]
    find_burst: bool,
    /// Complete searches of which the average is taken [default: 50].
    #[arg(long, value_name = "N", value_parser = units::count, requires = "find_burst")]
    trials: Option<u64>,
    /// Datagrams per second within a burst [default: as fast as they can be sent].
    #[arg(long, value_name = "RATE", value_parser = units::frequency, requires = "find_burst")]
    burst_rate: Option<f64>,
    /// The highest rate without loss, for the corrected time: 92k, or a file that --find-rate 'lost <= 0' --save has written.
    #[arg(long, value_name = "RATE|FILE", requires = "find_burst")]
    throughput: Option<String>,
}

impl BurstOptions {
    /// Whether bursts are searched.
    pub(super) fn is_wanted(&self) -> bool {
        self.find_burst
    }

    /// Refuses what cannot be meant.
    pub(super) fn check(&self, find: &Find) -> anyhow::Result<()> {
        if !self.find_burst {
            return Ok(());
        }
        let (shortest, longest) = find.between.unwrap_or(BETWEEN);
        let whole = |length: f64| length >= 1.0 && length.fract() == 0.0 && length <= LONGEST;
        ensure!(
            whole(shortest) && whole(longest),
            "--between: lengths of bursts are whole numbers from 1 to 100M"
        );
        let trials = self.trials.unwrap_or(TRIALS);
        ensure!((1..=100_000).contains(&trials), "--trials {trials}: from 1 to 100000");
        self.throughput().map(drop)
    }

    /// The highest rate without loss, as it is given.
    fn throughput(&self) -> anyhow::Result<Option<f64>> {
        let Some(given) = &self.throughput else { return Ok(None) };
        if let Ok(rate) = units::frequency(given) {
            return Ok(Some(rate));
        }
        let of = || format!("--throughput {given}");
        let file = std::fs::read(given).with_context(of)?;
        let found: Found = serde_json::from_slice(&file)
            .map_err(|_| anyhow!("neither a rate nor a file that --find-rate has saved"))
            .with_context(of)?;
        Ok(Some(found.rate.with_context(of).context("a search that found no rate")?))
    }

    /// Searches, and writes what was found.
    ///
    /// # Errors
    /// A run that cannot be made; no burst passes, or the time was up ([`Missed`]); bursts were slower than asked ([`Slipped`]); a signal ([`EndedBy`]).
    pub(super) fn search<L>(&self, runs: &Runs<'_, L>, course: &Course) -> anyhow::Result<()>
    where
        L: Load<Config = LoadConfig>,
    {
        let begin = Instant::now();
        let (between, within) =
            (course.find.between.unwrap_or(BETWEEN), course.find.within.unwrap_or(WITHIN));
        let (to, from) = mpsc::channel();
        let between = (between.0 as u64, between.1 as u64);
        let trials_asked = self.trials.unwrap_or(TRIALS);
        let bursts = Bursts { between, within, trials: trials_asked, rate: self.burst_rate, to: to.clone() };
        let phases = vec![Phase::hold(course.find.longest())];
        let config = LoadConfig { bursts: Some(bursts), phases, ..runs.config.clone() };
        let (payload, quiet) = (config.sizes.mean(), course.outputs.are_quiet());
        let (run, trials) = std::thread::scope(|scope| {
            let heard = scope.spawn(move || hear(&from, quiet));
            let run = runs.measure(config, None);
            // Somebody may still have a sender: this is the end.
            let _ = to.send(None);
            (run, heard.join().unwrap_or_default())
        });
        let run = run?;
        if run.ended == model::Ended::Failed {
            bail!(Missed(plain(&run.failure().unwrap_or_else(|| "the run failed".to_owned()))));
        }
        let mut found = FoundBursts {
            version: 1,
            program: env!("CARGO_PKG_VERSION").into(),
            command: L::NAME.into(),
            targets: vec![zone::show(course.target).to_string()],
            payload,
            between: between.into(),
            within,
            trials_asked,
            rate_asked: self.burst_rate,
            rate: None,
            longest: None,
            implied_buffer_seconds: None,
            throughput: self.throughput()?,
            corrected_buffer_seconds: None,
            dropped: run.drops.values().sum(),
            limit: None,
            ended: Ended::Narrow,
            seconds: 0.0,
            trials,
        };
        found.conclude();
        let complete = found.trials.len() as u64 == trials_asked || found.limit == Some(Limit::Generator);
        found.ended = match runs.interrupt.came() {
            true => Ended::Interrupted,
            false if !complete => Ended::Time,
            false => found.ended,
        };
        found.seconds = (begin.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        course.outputs.write_bursts(&found)?;
        verdict(&found, runs.interrupt.signal())
    }
}

/// Takes trials as they come, and says what each showed.
fn hear(from: &mpsc::Receiver<Option<Trial>>, quiet: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    while let Ok(Some(trial)) = from.recv() {
        if !quiet {
            say!("{}", line(trials.len() + 1, &trial));
        }
        trials.push(trial);
    }
    trials
}

/// The exit code that what was found has.
fn verdict(found: &FoundBursts, signal: Option<u8>) -> anyhow::Result<()> {
    match (found.ended, found.limit) {
        (Ended::Interrupted, _) => {
            bail!(EndedBy(signal.unwrap_or(2), "the search was ended before its time".into()))
        }
        (Ended::Time, _) => bail!(Missed("the time was up before all trials were made (--find-for)".into())),
        (_, Some(Limit::Generator)) => {
            bail!(Slipped(
                "this generator does not send bursts at that rate: a lower --burst-rate, or another machine"
                    .into()
            ))
        }
        (Ended::NoneHolds, _) => bail!(Missed("not even the shortest bursts pass without loss".into())),
        _ => Ok(()),
    }
}
