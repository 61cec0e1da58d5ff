//! What is asked, when and how, from the command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::{BucketMap, HashConfig, Indirection, Key, Rss, Toeplitz, UdpFields};
use flowlane_http::tls::Trust;
use flowlane_load::ClientRange;
use flowlane_load::http::{
    AimLaw, Behaviour, Body, Checks, Pace, Phase, Plan, Pool, Request, Target, Think, Url, Version, check,
};
use flowlane_load::scenario::Instead;

use super::positive;
use crate::units;

/// Connections when none are asked for.
const CONNECTIONS: u64 = 100;

/// How long a run lasts when nobody says so.
const DURATION: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Debug, Args)]
pub(super) struct Asked {
    /// Connections at once [default: 100]; with a scenario, of all its pools together in the place of its own.
    #[arg(long, short, value_parser = positive)]
    connections: Option<u64>,
    /// Connections begun in 10 ms at most, until all stand.
    #[arg(long, default_value = "1000", value_parser = positive, conflicts_with = "scenario")]
    burst: u64,
    /// Requests a second, at moments fixed beforehand; as fast as answers come without. With a scenario, of all its open
    /// loops together in the place of its own.
    #[arg(long, short, value_parser = units::frequency)]
    rate: Option<f64>,
    /// Requests at independent moments instead of evenly.
    #[arg(long, requires = "rate", conflicts_with = "scenario")]
    poisson: bool,
    /// Before the rest, grow evenly from nothing during this time; not in the figures.
    #[arg(long, value_parser = units::duration, conflicts_with = "scenario")]
    ramp: Option<Duration>,
    /// Before what is measured, the same load for this time, not in the figures.
    #[arg(long, value_parser = units::duration, conflicts_with = "scenario")]
    warm_up: Option<Duration>,
    /// How long requests are sent [default: 10s]; with a scenario, how long its measured phases last together.
    #[arg(long, short, value_parser = units::duration)]
    duration: Option<Duration>,
    /// How long answers on their way are waited for at the end.
    #[arg(long, default_value = "5s", value_parser = units::duration, conflicts_with = "scenario")]
    waiting: Duration,
    /// How long a connection may make no progress.
    #[arg(long, default_value = "5s", value_parser = units::duration, conflicts_with = "scenario")]
    timeout: Duration,
    /// How long a request may take in all, from when it is sent to the end of its answer.
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "scenario")]
    request_timeout: Option<Duration>,
    /// Requests in all; the run ends with the last.
    #[arg(long, short = 'n', value_parser = positive, conflicts_with = "scenario")]
    requests: Option<u64>,
    /// Requests on each connection, which is then closed and another opened.
    #[arg(long, value_parser = positive, conflicts_with = "scenario")]
    requests_per_connection: Option<u64>,
    /// A connection for each request.
    #[arg(long, conflicts_with_all = ["requests_per_connection", "scenario"])]
    no_keepalive: bool,
    /// Connections in all.
    #[arg(long, value_parser = positive, conflicts_with = "scenario")]
    connections_in_all: Option<u64>,
    /// Time between an answer and the next request of a connection: 10ms, exp:10ms, or a list: 10ms,1s.
    #[arg(long, value_parser = think, conflicts_with_all = ["rate", "scenario"])]
    think: Option<Think>,
    /// Method [default: GET, or POST with a body].
    #[arg(long, short = 'X', conflicts_with = "scenario")]
    method: Option<String>,
    /// A header: 'Name: value'. May be repeated.
    #[arg(long, short = 'H', value_parser = header, conflicts_with = "scenario")]
    header: Vec<(String, String)>,
    /// Body: this text.
    #[arg(long, conflicts_with_all = ["body_size", "body_file", "scenario"])]
    body: Option<String>,
    /// Body: so many bytes of a pattern.
    #[arg(long, value_parser = units::size, conflicts_with_all = ["body_file", "scenario"])]
    body_size: Option<usize>,
    /// Body: what is in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    body_file: Option<PathBuf>,
    /// Statuses that are no error: 200, 2xx, 200-299, lists of them, any [default: below 400].
    #[arg(long, value_name = "STATUS", value_parser = statuses, conflicts_with = "scenario")]
    expect_status: Option<Statuses>,
    /// Bytes that content must have.
    #[arg(long, value_name = "BYTES", value_parser = units::size, conflicts_with = "scenario")]
    expect_length: Option<usize>,
    /// SHA-256 that content must have.
    #[arg(long, value_name = "DIGEST", value_parser = check::sha256, conflicts_with = "scenario")]
    expect_sha256: Option<[u8; 32]>,
    /// What content must contain.
    #[arg(long, value_name = "TEXT", conflicts_with = "scenario")]
    expect_contains: Option<String>,
    /// Longest content; what is longer is given up.
    #[arg(long, default_value = "1024Mi", value_parser = units::size, conflicts_with = "scenario")]
    max_body: usize,
    /// Requests on their way at once on a connection.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "scenario")]
    pipeline: Option<u16>,
    /// Speak HTTP/2, with so many streams at once on a connection.
    #[arg(
        long,
        value_name = "STREAMS",
        value_parser = clap::value_parser!(u16).range(1..),
        conflicts_with_all = ["pipeline", "scenario"]
    )]
    http2: Option<u16>,
    /// Bytes a second that each client reads.
    #[arg(long, value_parser = positive, conflicts_with = "scenario")]
    read_rate: Option<u64>,
    /// Bytes a second that each client writes.
    #[arg(long, value_parser = positive, conflicts_with = "scenario")]
    write_rate: Option<u64>,
    /// Believe any certificate.
    #[arg(long, short = 'k', conflicts_with = "scenario")]
    insecure: bool,
    /// Believe the certificates in this PEM file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["insecure", "scenario"])]
    ca: Option<PathBuf>,
    /// Connect, and then say nothing until the end.
    #[arg(long, conflicts_with = "scenario")]
    half_open: bool,
    /// Begin connections and give them up before they stand; at --rate. Not on kernel sockets.
    #[arg(long, requires = "rate", conflicts_with_all = ["half_open", "scenario"])]
    syn_only: bool,
    /// Buckets of the target that connections hit: even, zipf:POWER, one:BUCKET, moving:TIME. Needs --target-key.
    #[arg(long, value_parser = law, requires = "target_key")]
    aim: Option<AimLaw>,
    /// RSS key of the target: microsoft, symmetric or hexadecimal.
    #[arg(long, value_parser = super::place::key)]
    target_key: Option<Key>,
    /// Buckets of the target: a power of two.
    #[arg(long, default_value = "8")]
    target_buckets: usize,
    /// Stay awake for a moment before a request is due: more exact, at the price of some processor time.
    #[arg(long)]
    pub(super) exact: bool,
    /// How late requests may be sent, so that those due meanwhile go together, for less processor time; with --rate [default:
    /// each at its moment].
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "exact")]
    pub(super) slack: Option<Duration>,
    /// How late requests may be sent before the schedule counts as not kept [default: 1ms, 1 % of the median latency or a
    /// tenth of the time between two requests, whichever is most].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) slip_budget: Option<Duration>,
}

/// Ranges of statuses; a name of its own, since clap takes a vector for an option that is repeated.
#[derive(Debug, Clone)]
struct Statuses(Vec<std::ops::RangeInclusive<u16>>);

fn statuses(text: &str) -> Result<Statuses, String> {
    check::statuses(text).map(Statuses)
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| format!("'{text}': a header is 'Name: value'"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn think(text: &str) -> Result<Think, String> {
    let time = |s: &str| units::duration(s.trim()).map_err(|e| e.to_string());
    if let Some(mean) = text.strip_prefix("exp:") {
        return time(mean).map(Think::Exponential);
    }
    let times: Vec<Duration> = text.split(',').map(time).collect::<Result<_, _>>()?;
    Ok(if let [one] = times[..] { Think::Constant(one) } else { Think::List(times) })
}

fn law(text: &str) -> Result<AimLaw, String> {
    let bad = || format!("'{text}': even, zipf:POWER, one:BUCKET or moving:TIME");
    match text.split_once(':') {
        None if text == "even" => Ok(AimLaw::Even),
        Some(("zipf", power)) => {
            let power: f64 = power.parse().map_err(|_| bad())?;
            if (0.0..=100.0).contains(&power) { Ok(AimLaw::Zipf(power)) } else { Err(bad()) }
        }
        Some(("one", bucket)) => bucket.parse().map(AimLaw::One).map_err(|_| bad()),
        Some(("moving", time)) => units::duration(time).map(AimLaw::Moving).map_err(|e| e.to_string()),
        _ => Err(bad()),
    }
}

impl Asked {
    /// What stands in the place of a scenario's figures.
    pub(super) fn instead(&self) -> Instead {
        Instead { duration: self.duration, connections: self.connections, rate: self.rate }
    }

    /// The plan.
    pub(super) fn plan(&self, urls: &[Url], clients: &[ClientRange], seed: u64) -> anyhow::Result<Plan> {
        let target = |url: &Url| Ok(Target { url: url.clone(), addresses: url.resolve()?, weight: 1.0 });
        let targets: Vec<Target> = urls.iter().map(target).collect::<anyhow::Result<_>>()?;
        let first = targets.first().cloned().context("a URL is needed")?;
        let number = |n: Option<u64>, default: u64| usize::try_from(n.unwrap_or(default));
        let pool = Pool {
            targets,
            requests: vec![self.request()?],
            pace: match self.rate {
                None => Pace::Closed,
                Some(rate) => Pace::Rate { per_second: rate, poisson: self.poisson },
            },
            connections: number(self.connections, CONNECTIONS).context("--connections")?,
            burst: number(Some(self.burst), 0).context("--burst")?,
            think: self.think.clone().unwrap_or_default(),
            requests_per_connection: if self.no_keepalive { Some(1) } else { self.requests_per_connection },
            total_requests: self.requests,
            total_connections: self.connections_in_all,
            read_rate: self.read_rate,
            write_rate: self.write_rate,
            version: match (self.http2, self.pipeline) {
                (Some(streams), _) => Version::Http2 { streams },
                (None, pipeline) => Version::Http1 { pipeline: pipeline.unwrap_or(1) },
            },
            trust: match &self.ca {
                _ if self.insecure => Trust::Anybody,
                Some(file) => Trust::File(file.clone()),
                None => Trust::Native,
            },
            clients: clients.to_vec(),
            behaviour: match (self.half_open, self.syn_only) {
                (true, _) => Behaviour::HalfOpen,
                (_, true) => Behaviour::SynOnly,
                _ => Behaviour::Normal,
            },
            ..Pool::new("all", first)
        };
        let plan = Plan {
            pools: vec![pool],
            phases: self.phases(),
            timeout: self.timeout,
            request_timeout: self.request_timeout,
            waiting: self.waiting,
            max_body: self.max_body as u64,
            seed,
        };
        plan.check()?;
        Ok(plan)
    }

    fn phases(&self) -> Vec<Phase> {
        let before = |name: &str, duration: Option<Duration>, from: f64| {
            duration.map(|duration| Phase { name: name.into(), duration, from, to: 1.0, measured: false })
        };
        let ramp = before("ramp", self.ramp, 0.0);
        let warm_up = before("warm-up", self.warm_up, 1.0);
        ramp.into_iter().chain(warm_up).chain([Phase::hold(self.duration.unwrap_or(DURATION))]).collect()
    }

    fn request(&self) -> anyhow::Result<Request> {
        let body = match (&self.body, self.body_size, &self.body_file) {
            (Some(text), ..) => Body::Bytes(text.as_bytes().into()),
            (_, Some(size), _) => Body::Generated(size as u64),
            (_, _, Some(file)) => Body::Bytes(
                std::fs::read(file).with_context(|| format!("--body-file {}", file.display()))?.into(),
            ),
            _ => Body::None,
        };
        let default = if body.is_empty() { "GET" } else { "POST" };
        let checks = Checks {
            status: self.expect_status.clone().map(|s| s.0).unwrap_or_default(),
            length: self.expect_length.map(|n| n as u64),
            sha256: self.expect_sha256,
            contains: self.expect_contains.clone().map(String::into_bytes),
        };
        let request = Request {
            method: self.method.clone().unwrap_or_else(|| default.into()),
            headers: self.header.clone(),
            body,
            checks,
            ..Request::default()
        };
        request.check()?;
        Ok(request)
    }

    /// How the target is steered, and which of its buckets are to be hit.
    pub(super) fn aim(&self) -> anyhow::Result<Option<(Arc<Rss>, AimLaw)>> {
        let Some(key) = &self.target_key else { return Ok(None) };
        let n = self.target_buckets;
        let law = self.aim.clone().unwrap_or(AimLaw::Even);
        if let AimLaw::One(bucket) = law {
            ensure!(
                usize::from(bucket) < n,
                "--aim one:{bucket}: the target has {n} buckets (--target-buckets)"
            );
        }
        let map = BucketMap::new(n, 1).context("--target-buckets")?;
        let table = Indirection::new(Indirection::DEFAULT_SLOTS.max(n), n).context("--target-buckets")?;
        let config = HashConfig::with_udp(UdpFields::Two);
        Ok(Some((Arc::new(Rss::from_parts(Toeplitz::new(key), config, table, map)), law)))
    }
}
