//! `--replay`: the requests of a recording, each at its own time ([`flowlane_load::http::replay`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use flowlane_load::http::replay::{self, Format, Wishes};
use flowlane_load::http::{Pace, Plan, Request};
use flowlane_load::timeline;

/// How long the last request waits for a connection at least.
const LEAST: Duration = Duration::from_secs(1);

/// Options of a replay.
#[derive(Debug, Args)]
#[command(next_help_heading = "Replay")]
pub(super) struct ReplayOptions {
    /// Send the requests of a recording to the target, each at its own time: a HAR file, an access log in the common or combined format, or a
    /// capture (pcap, pcapng) of plain HTTP/1. --duration and --requests end it early, --header replaces fields.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "rate", "poisson", "ramp", "find_rate", "scenario", "curl", "method", "body", "body_size", "body_file", "data", "cookies", "follow",
        "pipeline", "think", "half_open", "syn_only", "fast_open", "events",
    ])]
    replay: Option<PathBuf>,
    /// How many times faster than it was recorded: 2, 0.5 [default: 1].
    #[arg(long, value_name = "TIMES", value_parser = speed, requires = "replay")]
    speed: Option<f64>,
    /// Format of the recording: har, log or capture [default: what it looks like].
    #[arg(long, value_name = "FORMAT", requires = "replay")]
    replay_format: Option<Format>,
    /// Only requests that were to this host: HOST or HOST:PORT. An access log has no hosts.
    #[arg(long, value_name = "HOST", requires = "replay")]
    replay_host: Option<String>,
}

/// From a thousandth to a million.
fn speed(text: &str) -> Result<f64, String> {
    let times = text.strip_suffix('x').unwrap_or(text).parse::<f64>().ok();
    times
        .filter(|times| (0.001..=1e6).contains(times))
        .ok_or_else(|| format!("'{text}': a number from 0.001 to 1000000, as 2 for twice as fast"))
}

impl ReplayOptions {
    /// Has a plan of one pool replay the recording, if there is one. `warm_up` and `duration` of the replay, as far as they are given.
    pub(super) fn apply(
        &self,
        plan: &mut Plan,
        warm_up: Option<Duration>,
        duration: Option<Duration>,
    ) -> anyhow::Result<()> {
        let (Some(file), Some(pool)) = (&self.replay, plan.pools.first_mut()) else { return Ok(()) };
        let asked = pool.requests.first().cloned().unwrap_or_default();
        let own =
            |name: &str| ["connection", "content-length"].iter().any(|own| name.eq_ignore_ascii_case(own));
        if let Some((name, _)) = asked.headers.iter().find(|(name, _)| own(name)) {
            bail!("--header {name}: each request of a replay has its own");
        }
        let before = warm_up.unwrap_or_default();
        let wishes = Wishes {
            format: self.replay_format,
            speed: self.speed.unwrap_or(1.0),
            host: self.replay_host.clone(),
            fields: asked.headers.clone(),
            most: pool.total_requests.take(),
            within: duration.map(|duration| before.saturating_add(duration)),
        };
        let recording =
            replay::read(file, &wishes).map_err(|why| anyhow!("--replay {}: {why}", file.display()))?;
        let whole = recording.duration();
        ensure!(
            before.is_zero() || before < whole,
            "--warm-up {before:?}: the replay is over after {whole:?}, so nothing would be measured"
        );
        // The run ends with the last answer. A last request that finds no connection free waits for one, as those before it do.
        plan.phases =
            timeline::usual(None, warm_up, (whole + plan.waiting.max(LEAST)).saturating_sub(before));
        let per_second = recording.requests() as f64 / whole.as_secs_f64().max(1.0);
        pool.pace = Pace::Rate { per_second, poisson: false };
        let of_method = |method: &String| Request {
            name: Some(method.clone()),
            method: method.clone(),
            path: Some("/".into()),
            headers: Vec::new(),
            ..asked.clone()
        };
        pool.requests = recording.methods().iter().map(of_method).collect();
        pool.replay = Some(recording.into());
        plan.check()?;
        Ok(())
    }

    /// What is replayed, for the report.
    pub(super) fn shown(&self, plan: &Plan) -> Option<(String, String)> {
        let recording = plan.pools.first()?.replay.as_ref()?;
        let file = self.replay.as_deref().map(Path::display)?;
        Some(("replay".into(), format!("{} {file}: {}", recording.format().words(), recording.words())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read() {
        assert_eq!((speed("2"), speed("0.5x")), (Ok(2.0), Ok(0.5)));
        for wrong in ["", "0", "-1", "NaN", "inf", "fast", "1e7"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }
}
