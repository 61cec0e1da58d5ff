//! `flowlane load memcached`: gets and sets of a memcached, each accounted for, and every value verified if that is asked for.

mod mix;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::{Endpoint, Rss, TcpConfig, zone};
use flowlane_load::memcached::{self, MemcachedCounts, MemcachedLoad, MemcachedLoadConfig, REQUESTS};
use flowlane_load::report::SnapshotsTo;
use flowlane_load::{ClientRange, Part, Phase, Sources};

use super::course::{Course, Judgement, Load, Needs, Words};
use super::rate_in_words;
use super::reach::Named;
use crate::say::say;
use crate::units::{self, show_count};
use mix::MixOptions;

/// Most connections of a run, and most requests in flight on one.
const MOST: u64 = 1_000_000;
const DEEPEST: u64 = 10_000;
/// The port of memcached.
const PORT: u16 = 11211;

/// Send gets and sets to a memcached.
#[derive(Debug, Args)]
pub(crate) struct Memcached {
    /// Server: HOST or HOST:PORT [port: 11211].
    #[arg(value_name = "SERVER", value_parser = server)]
    named: Named,
    /// Connections, which stay open.
    #[arg(long, short, default_value = "16", value_parser = units::count)]
    connections: u64,
    /// Most requests in flight on a connection; without --rate there are always so many.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    depth: u64,
    /// Requests per second over all connections, at times fixed in advance [default: as fast as answers come].
    #[arg(long, short, value_parser = units::rate, group = "open_loop")]
    rate: Option<u64>,
    /// Poisson arrivals of requests in place of evenly spaced ones.
    #[arg(long, requires = "open_loop")]
    poisson: bool,
    /// Ask for each key on a connection of the lane that has it: of flowlane serve memcached, whose lanes it asks for ('stats lanes').
    #[arg(long, conflicts_with = "target_key")]
    by_lane: bool,
    /// Store all items before the run.
    #[arg(long)]
    fill: bool,
    /// Time before the measurement in which the rate grows evenly from zero.
    #[arg(long, value_parser = units::duration, requires = "rate")]
    ramp: Option<Duration>,
    /// Limit for connecting, for an answer, and for what is outstanding at the end.
    #[arg(long, default_value = "5s", value_parser = units::duration)]
    timeout: Duration,
    #[command(flatten)]
    mix: MixOptions,
    #[command(flatten)]
    course: Course,
}

/// A target whose port may be left out.
fn server(text: &str) -> Result<Named, String> {
    let bare = match text.parse::<std::net::IpAddr>() {
        Ok(ip) => Some(SocketAddr::new(ip, PORT).to_string()),
        Err(_) if text.ends_with(']') || !text.contains(':') && !text.is_empty() => {
            Some(format!("{text}:{PORT}"))
        }
        Err(_) => None,
    };
    super::target(bare.as_deref().unwrap_or(text))
}

impl Load for Memcached {
    const NAME: &'static str = "load memcached";
    const TCP: bool = true;
    const PREPARES: bool = true;
    type Kind = memcached::Common;
    type Config = MemcachedLoadConfig;

    fn named(&self) -> &Named {
        &self.named
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.timeout.is_zero(), "--timeout must be more than 0");
        let n = self.connections;
        ensure!((1..=MOST).contains(&n), "--connections {n}: from 1 to 1M");
        ensure!((1..=DEEPEST).contains(&self.depth), "--depth {}: from 1 to 10k", self.depth);
        Ok(())
    }

    fn plan(
        &self,
        rss: &Rss,
        clients: &[ClientRange],
        phases: Vec<Phase>,
    ) -> anyhow::Result<MemcachedLoadConfig> {
        let near = &self.course.near;
        let (target, seed) = (Endpoint::from(self.course.target), near.seed()?);
        let connections = usize::try_from(self.connections).context("--connections")?;
        let sources = self.course.sources(rss, clients, connections, seed)?;
        Ok(MemcachedLoadConfig {
            target,
            sources,
            connections,
            depth: usize::try_from(self.depth).context("--depth")?,
            rate: self.rate,
            poisson: self.poisson,
            mix: self.mix.plan()?,
            by_lane: self.by_lane,
            fill: self.fill,
            phases,
            timeout: self.timeout,
            exact: near.exact(),
            seed,
            snapshots: None,
        })
    }

    fn sources(config: &mut MemcachedLoadConfig) -> &mut Sources {
        &mut config.sources
    }

    fn ramp(&self) -> Option<Duration> {
        self.ramp
    }

    fn seed(config: &MemcachedLoadConfig) -> u64 {
        config.seed
    }

    fn at(&self, config: MemcachedLoadConfig, per_second: u64) -> MemcachedLoadConfig {
        MemcachedLoadConfig { rate: Some(per_second), ..config }
    }

    fn alone(config: MemcachedLoadConfig, phases: Vec<Phase>) -> MemcachedLoadConfig {
        MemcachedLoadConfig { rate: None, connections: 1, depth: 1, phases, ..config }
    }

    /// The first run stores the items.
    fn again(config: &mut MemcachedLoadConfig) {
        config.fill = false;
    }

    fn announce(&self) {
        if self.fill && !self.course.outputs.are_quiet() {
            say!("flowlane: {} items are stored before the run", show_count(self.mix.keys()));
        }
    }

    fn prepared(
        config: MemcachedLoadConfig,
        to: Option<SnapshotsTo>,
        part: Option<Part>,
    ) -> anyhow::Result<MemcachedLoad> {
        Ok(MemcachedLoad::part(MemcachedLoadConfig { snapshots: to, ..config }, part)?)
    }

    #[cfg(feature = "agents")]
    fn patience(&self) -> Duration {
        self.timeout
    }

    fn needs(&self, config: &MemcachedLoadConfig, _: &[ClientRange]) -> anyhow::Result<Needs> {
        let connections = self.course.share(config.connections, config.sources.lanes());
        let default = TcpConfig::default();
        Ok(Needs {
            // A lane may hold all connections, if the hash puts them there.
            tcp: TcpConfig { max_connections: default.max_connections.max(connections), ..default },
            frames: Some((connections / self.course.near.workers() * 2).clamp(1 << 13, 1 << 17)),
            descriptors: connections,
        })
    }

    fn words(&self, config: &MemcachedLoadConfig) -> Words {
        let mut connections = format!("{} connections", show_count(config.connections as u64));
        if config.depth > 1 {
            connections = format!("{connections} with up to {} requests in flight", config.depth);
        }
        let schedule = match config.rate {
            Some(rate) => format!("{}, {connections}", rate_in_words(rate, config.poisson)),
            None => format!("closed loop, {connections}"),
        };
        let mut more = self.mix.words(&config.mix, config.fill);
        if config.by_lane {
            more.insert("by lane".to_owned(), "each key on a connection of its lane".to_owned());
        }
        let requests = REQUESTS.map(str::to_owned).to_vec();
        Words { schedule, open_loop: config.rate.is_some(), requests, more }
    }

    fn judge(&self, counts: &MemcachedCounts, interrupted: bool) -> Judgement {
        Judgement { failure: self.failure(counts, interrupted), failures_count: !interrupted }
    }
}

impl Memcached {
    /// Reasons for which a run fails without any `--fail`.
    fn failure(&self, counts: &MemcachedCounts, interrupted: bool) -> Option<String> {
        if counts.wrong > 0 {
            return Some(format!(
                "{} gets brought a value that is not the one of its key",
                show_count(counts.wrong)
            ));
        }
        if interrupted || counts.answered > 0 || counts.requests == 0 {
            return None;
        }
        Some(format!(
            "{} answers nothing: does a memcached have this port? ({} requests failed)",
            zone::show(self.course.target),
            show_count(counts.failed())
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_may_be_left_out() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:11211"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("::1", "[::1]:11211"),
            ("[::1]", "[::1]:11211"),
            ("[fd00::1]:7", "[fd00::1]:7"),
        ] {
            assert_eq!(server(text).unwrap().0, [address.parse().unwrap()], "{text}");
        }
        let local = server("localhost").unwrap().0;
        assert!(!local.is_empty() && local.iter().all(|a| a.port() == PORT), "{local:?}");
        for wrong in ["", ":7", "localhost:x", "a b:c"] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }
}
