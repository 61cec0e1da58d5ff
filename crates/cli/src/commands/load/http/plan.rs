//! The options of requests and their schedule, and the plan made from them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use flowlane::{BucketMap, HashConfig, Indirection, Key, Rss, Toeplitz, UdpFields};
use flowlane_http::tls::Trust;
use flowlane_load::fill::{Data, Order};
use flowlane_load::http::curl::{Curl, Piece};
use flowlane_load::http::form::{self, Field};
use flowlane_load::http::grpc::{Call, Descriptors};
use flowlane_load::http::{
    AimLaw, Behaviour, Body, Checks, EventStream, Follow, Pace, Plan, Pool, Request, Target, Think, Url,
    Version, check,
};
use flowlane_load::scenario::Instead;
use flowlane_load::{ClientRange, Phase, timeline};

use super::super::find;
use super::login::LoginOptions;
use super::positive;
use super::replay::ReplayOptions;
use super::via::ViaOptions;
use crate::units;

/// Default of `--connections`.
const CONNECTIONS: u64 = 100;

/// Default of `--duration`.
const DURATION: Duration = Duration::from_secs(10);

/// Options of requests and their schedule.
#[derive(Debug, Args)]
pub(super) struct PlanOptions {
    /// Concurrent connections [default: 100]. With a scenario: the sum over all pools, in place of the file's.
    #[arg(long, short, value_parser = positive)]
    connections: Option<u64>,
    /// Most connections to open per 10 ms, until all are established.
    #[arg(long, default_value = "1000", value_parser = positive, conflicts_with = "scenario")]
    burst: u64,
    /// Open loop: requests per second, at times fixed in advance [default: a closed loop, as fast as answers come]. With a scenario: the
    /// sum over all open loops, in place of the file's.
    #[arg(long, short, value_parser = units::frequency, group = "open_loop")]
    rate: Option<f64>,
    /// Poisson arrivals: independent send times in place of evenly spaced ones.
    #[arg(long, requires = "open_loop", conflicts_with = "scenario")]
    poisson: bool,
    /// Time before the measurement in which the load grows evenly from zero.
    #[arg(long, value_parser = units::duration, conflicts_with = "scenario")]
    ramp: Option<Duration>,
    /// Time before the measurement with the full load.
    #[arg(long, value_parser = units::duration, conflicts_with = "scenario")]
    warm_up: Option<Duration>,
    /// Duration of the measurement [default: 10s]. With a scenario: of all measured phases together.
    #[arg(long, short, value_parser = units::duration)]
    duration: Option<Duration>,
    /// Time to wait at the end for answers that are outstanding.
    #[arg(long, default_value = "5s", value_parser = units::duration, conflicts_with = "scenario")]
    waiting: Duration,
    /// Time without progress after which a connection has failed.
    #[arg(long, default_value = "5s", value_parser = units::duration, conflicts_with = "scenario")]
    timeout: Duration,
    /// Limit for a whole request, from sending it to the end of its answer [default: none].
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "scenario")]
    request_timeout: Option<Duration>,
    /// Total number of requests; the run ends with the last.
    #[arg(long, short = 'n', value_parser = positive, conflicts_with_all = ["find_rate", "scenario"])]
    requests: Option<u64>,
    /// Requests on one connection before it is closed and another opened [default: no limit].
    #[arg(long, value_parser = positive, conflicts_with = "scenario")]
    requests_per_connection: Option<u64>,
    /// Open a new connection for each request.
    #[arg(long, conflicts_with_all = ["requests_per_connection", "scenario"])]
    no_keepalive: bool,
    /// TCP Fast Open: each request goes with the SYN of its connection, once the target has given a cookie; with --no-keepalive, for
    /// requests that may be repeated.
    #[arg(long, conflicts_with_all = ["http2", "half_open", "syn_only", "write_rate", "scenario"])]
    fast_open: bool,
    /// Total number of connections.
    #[arg(long, value_parser = positive, conflicts_with_all = ["find_rate", "scenario"])]
    connections_in_all: Option<u64>,
    /// Think time between an answer and the next request of a connection: 10ms, exp:10ms (exponential), or a list: 10ms,1s.
    #[arg(long, value_parser = think, conflicts_with_all = ["rate", "find_rate", "scenario"])]
    think: Option<Think>,
    /// Request method [default: GET, or POST with a body].
    #[arg(long, short = 'X', conflicts_with = "scenario")]
    method: Option<String>,
    /// Header field of requests: 'Name: value'. May be repeated.
    #[arg(long, short = 'H', value_parser = header, conflicts_with = "scenario")]
    header: Vec<(String, String)>,
    /// Request body: this text.
    #[arg(long, conflicts_with_all = ["body_size", "body_file", "form", "scenario"])]
    body: Option<String>,
    /// Request body: this many bytes of a pattern.
    #[arg(long, value_parser = units::size, conflicts_with_all = ["body_file", "form", "scenario"])]
    body_size: Option<usize>,
    /// Request body: the content of this file or pipe, at most 1 GiB; '-' is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["form", "scenario"])]
    body_file: Option<PathBuf>,
    /// Field of a form of several parts (multipart/form-data): 'name=value', 'name=@FILE' (a file with its name) or 'name=<FILE' (a value
    /// that a file has), behind which ';type=TYPE' and ';filename=NAME' may follow. May be repeated.
    #[arg(long, short = 'F', value_name = "FIELD", value_parser = Field::parse, conflicts_with_all = ["grpc", "scenario"])]
    form: Vec<Field>,
    /// File of rows, comma-separated, whose first line names the columns: {{NAME}} in a path, header or --body stands for a field of the
    /// request's row. At most 256 MiB.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    data: Option<PathBuf>,
    /// How rows are used: in-order, random, once (each at most once; the run ends with the last), or share (rows of its own for each
    /// worker's lanes).
    #[arg(long, value_name = "ORDER", default_value = "in-order", requires = "data")]
    data_order: Order,
    /// Keep cookies: each connection, and with HTTP/2 each stream, is a client with its own.
    #[arg(long, conflicts_with = "scenario")]
    cookies: bool,
    /// Answers are streams of server-sent events: measure when the first and the last event of each comes, and the time between two.
    #[arg(long, conflicts_with = "scenario")]
    events: bool,
    /// Data of the event behind the last, as '[DONE]': a stream that ends without it has failed.
    #[arg(long, value_name = "TEXT", requires = "events")]
    events_end: Option<String>,
    /// Requests are calls of gRPC, over HTTP/2, of the method that the URL's path names: /package.Service/Method. The message is the body
    /// (--body-file), empty without one. A call has failed if its status is not 0. With --events the times of an answer's messages are measured.
    #[arg(long, conflicts_with_all = ["scenario", "pipeline", "body_size"])]
    grpc: bool,
    /// The body is JSON, of which the message is made by this file of descriptors: 'protoc --include_imports --descriptor_set_out=FILE'.
    #[arg(long, value_name = "FILE", requires = "grpc")]
    grpc_descriptors: Option<PathBuf>,
    /// Send the message so often in a call, for a method that takes a stream.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "grpc")]
    grpc_messages: u32,
    /// Statuses that are not errors: 200, 2xx, 200-299, lists of these, or any [default: all below 400].
    #[arg(long, value_name = "STATUS", value_parser = statuses, conflicts_with = "scenario")]
    expect_status: Option<Statuses>,
    /// Length that the content of an answer must have, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = units::size, conflicts_with = "scenario")]
    expect_length: Option<usize>,
    /// SHA-256 digest that the content of an answer must have.
    #[arg(long, value_name = "DIGEST", value_parser = check::sha256, conflicts_with = "scenario")]
    expect_sha256: Option<[u8; 32]>,
    /// Text that the content of an answer must contain.
    #[arg(long, value_name = "TEXT", conflicts_with = "scenario")]
    expect_contains: Option<String>,
    /// Limit for the content of an answer, in bytes; a longer answer fails.
    #[arg(long, default_value = "1024Mi", value_parser = units::size, conflicts_with = "scenario")]
    max_body: usize,
    /// Pipelining: requests in flight on one connection, HTTP/1 only.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "scenario")]
    pipeline: Option<u16>,
    /// Speak HTTP/2, with so many concurrent streams on a connection [default: 1].
    #[arg(
        long,
        value_name = "STREAMS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u16).range(1..),
        conflicts_with_all = ["pipeline", "scenario"]
    )]
    http2: Option<u16>,
    /// Speak HTTP/3, over QUIC, with so many concurrent streams on a connection [default: 1].
    #[arg(
        long,
        value_name = "STREAMS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u16).range(1..),
        conflicts_with_all = ["http2", "pipeline", "grpc", "fast_open", "scenario"]
    )]
    http3: Option<u16>,
    /// Follow redirects, so many for one request at most [default: 10], to hosts of the targets. The latency is that of the whole.
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10",
        value_parser = clap::value_parser!(u32).range(1..=1000),
        conflicts_with_all = ["pipeline", "scenario"]
    )]
    follow: Option<u32>,
    /// Follow redirects to any host: answers then choose where requests go.
    #[arg(long, conflicts_with = "scenario")]
    follow_anywhere: bool,
    /// Slow clients: bytes per second that each connection reads.
    #[arg(long, value_parser = positive, conflicts_with = "scenario")]
    read_rate: Option<u64>,
    /// Slow clients: bytes per second that each connection writes.
    #[arg(long, value_parser = positive, conflicts_with = "scenario")]
    write_rate: Option<u64>,
    #[command(flatten)]
    login: LoginOptions,
    #[command(flatten)]
    via: ViaOptions,
    /// Connect, and send nothing until the end.
    #[arg(long, conflicts_with = "scenario")]
    half_open: bool,
    /// Begin connections at --rate, and abort each after 1 ms. Not on kernel sockets.
    #[arg(long, requires = "rate", conflicts_with_all = ["half_open", "find_rate", "scenario"])]
    syn_only: bool,
    /// Distribution of connections over the target's buckets: even, zipf:POWER, one:BUCKET, moving:TIME. Needs --target-key.
    #[arg(long, value_parser = law, requires = "target_key")]
    aim: Option<AimLaw>,
    /// RSS key of the target: microsoft, symmetric or hexadecimal digits.
    #[arg(long, value_parser = super::super::side::key)]
    target_key: Option<Key>,
    /// Number of buckets of the target, a power of two.
    #[arg(long, default_value = "8")]
    target_buckets: usize,
    /// Poll shortly before a request is due: more exact send times, more processor time.
    #[arg(long)]
    pub(super) exact: bool,
    /// How late requests may be sent, so that several are sent together with less processor time; with --rate [default: each when it is
    /// due].
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "exact")]
    pub(super) slack: Option<Duration>,
    /// Lateness of requests above which the schedule counts as not kept [default: the largest of 5ms, 1 % of the median latency and a
    /// tenth of the time between two requests].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) slip_budget: Option<Duration>,
}

/// Ranges of statuses. A type of its own, since clap reads a vector as an option that may be repeated.
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

/// The body of a command line of curl: its text, which may have placeholders, or files.
fn curl_body(curl: &Curl) -> anyhow::Result<Body> {
    let texts = curl.body.iter().map(|piece| match piece {
        Piece::Text(text) => Some(text.as_str()),
        Piece::File { .. } => None,
    });
    if let Some(texts) = texts.collect::<Option<Vec<_>>>() {
        return Ok(if texts.is_empty() { Body::None } else { Body::Text(texts.join("&").into()) });
    }
    let mut bytes = Vec::new();
    for (i, piece) in curl.body.iter().enumerate() {
        if i > 0 {
            bytes.push(b'&');
        }
        match piece {
            Piece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Piece::File { path, whole } => {
                let content = Body::of_file(path).with_context(|| format!("--curl: @{}", path.display()))?;
                let Body::Bytes(content) = content else { continue };
                bytes.extend(content.iter().filter(|b| *whole || !matches!(b, b'\r' | b'\n' | 0)));
            }
        }
    }
    Ok(Body::Bytes(bytes.into()))
}

impl PlanOptions {
    /// The options that replace a scenario's figures.
    pub(super) fn instead(&self) -> Instead {
        Instead { duration: self.duration, connections: self.connections, rate: self.rate }
    }

    /// The plan.
    pub(super) fn plan(
        &self,
        urls: &[Url],
        curl: Option<&Curl>,
        clients: &[ClientRange],
        seed: u64,
    ) -> anyhow::Result<Plan> {
        if self.fast_open {
            ensure!(
                self.no_keepalive || self.requests_per_connection == Some(1),
                "--fast-open: needs --no-keepalive: only the first request of a connection can go with its SYN"
            );
            ensure!(
                !urls.iter().any(|url| url.https),
                "--fast-open: not with https: the TLS handshake comes before the request"
            );
        }
        ensure!(
            !self.follow_anywhere || self.follow.is_some() || curl.is_some_and(|curl| curl.follow),
            "--follow-anywhere: is for redirects that are followed: --follow"
        );
        let via = self.via.via()?;
        let target = |url: &Url| Ok(Target { url: url.clone(), addresses: via.addresses(url)?, weight: 1.0 });
        let targets: Vec<Target> = urls.iter().map(target).collect::<anyhow::Result<_>>()?;
        let first = targets.first().cloned().context("a URL is needed")?;
        let number = |n: Option<u64>, default: u64| usize::try_from(n.unwrap_or(default));
        let pool = Pool {
            targets,
            requests: vec![self.call(self.request(curl)?, urls)?],
            data: self.data()?,
            cookies: self.cookies,
            pace: match self.rate {
                None => Pace::Closed,
                Some(rate) => Pace::Rate { per_second: rate, poisson: self.poisson },
            },
            connections: number(self.connections, CONNECTIONS).context("--connections")?,
            burst: number(Some(self.burst), 0).context("--burst")?,
            think: self.think.clone().unwrap_or_default(),
            requests_per_connection: if self.no_keepalive { Some(1) } else { self.requests_per_connection },
            fast_open: self.fast_open,
            total_requests: self.requests,
            total_connections: self.connections_in_all,
            read_rate: self.read_rate,
            write_rate: self.write_rate,
            version: match (self.http2, self.http3, self.pipeline) {
                (_, Some(streams), _) => Version::Http3 { streams },
                (Some(streams), ..) => Version::Http2 { streams },
                (None, None, None) if self.grpc || curl.is_some_and(|curl| curl.http2) => {
                    Version::Http2 { streams: 1 }
                }
                (None, None, pipeline) => Version::Http1 { pipeline: pipeline.unwrap_or(1) },
            },
            trust: if curl.is_some_and(|curl| curl.insecure) { Trust::Anybody } else { self.via.trust() },
            identity: self.via.identity(),
            tls: self.via.versions()?,
            resume: self.via.tls_resume,
            early_data: self.via.early_data,
            via,
            aws: self.login.aws(curl)?,
            follow: self
                .follow
                .or(curl.filter(|curl| curl.follow).map(|_| Follow::MOST))
                .map(|most| Follow { most, anywhere: self.follow_anywhere }),
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

    /// Has the plan replay a recording, if there is one.
    pub(super) fn replay(&self, options: &ReplayOptions, plan: &mut Plan) -> anyhow::Result<()> {
        options.apply(plan, self.warm_up, self.duration)
    }

    /// The plan of the runs of a search.
    pub(super) fn of_a_search(&self, mut plan: Plan) -> Plan {
        plan.phases = find::phases(self.warm_up, self.duration);
        plan
    }

    /// Whether requests come at independent times.
    pub(super) fn poisson(&self) -> bool {
        self.poisson
    }

    fn phases(&self) -> Vec<Phase> {
        timeline::usual(self.ramp, self.warm_up, self.duration.unwrap_or(DURATION))
    }

    fn data(&self) -> anyhow::Result<Option<Arc<Data>>> {
        let Some(file) = &self.data else { return Ok(None) };
        let data = Data::of_file(file, self.data_order);
        let said = file.to_string_lossy();
        // What curl has behind its --data.
        let hint = match said.strip_prefix('@') {
            _ if file.exists() => String::new(),
            Some(name) => format!(" (rows, one for each request; a body is --body-file {name})"),
            None if said.contains(['=', '{']) => {
                format!(" (a file of rows, one for each request; a body is --body '{said}')")
            }
            None => String::new(),
        };
        Ok(Some(data.with_context(|| format!("--data {said}{hint}"))?.into()))
    }

    /// The request as a call of gRPC, if it is to be one.
    fn call(&self, request: Request, urls: &[Url]) -> anyhow::Result<Request> {
        if !self.grpc {
            return Ok(request);
        }
        let descriptors = self.grpc_descriptors.as_ref().map(|file| {
            Descriptors::of_file(file).with_context(|| format!("--grpc-descriptors {}", file.display()))
        });
        let call = Call { descriptors: descriptors.transpose()?, messages: self.grpc_messages };
        Ok(call.of(request, &urls.iter().collect::<Vec<_>>())?)
    }

    fn request(&self, curl: Option<&Curl>) -> anyhow::Result<Request> {
        let body = match (&self.body, self.body_size, &self.body_file) {
            (Some(text), ..) => Body::Text(text.as_str().into()),
            (_, Some(size), _) => Body::Generated(size as u64),
            (_, _, Some(file)) if file.as_os_str() == "-" => {
                Body::of_input(std::io::stdin().lock()).context("--body-file -: standard input")?
            }
            (_, _, Some(file)) => {
                Body::of_file(file).with_context(|| format!("--body-file {}", file.display()))?
            }
            _ => curl.map(curl_body).transpose()?.unwrap_or(Body::None),
        };
        let fields = if self.form.is_empty() { curl.map_or(&[][..], |curl| &curl.form) } else { &self.form };
        let method = self.method.clone().or_else(|| curl?.method.clone());
        let mut headers = curl.map_or_else(Vec::new, |curl| curl.headers.clone());
        headers.extend(self.header.iter().cloned());
        headers.extend(self.login.field()?);
        let default = if body.is_empty() && fields.is_empty() { "GET" } else { "POST" };
        let checks = Checks {
            status: self.expect_status.clone().map(|s| s.0).unwrap_or_default(),
            length: self.expect_length.map(|n| n as u64),
            sha256: self.expect_sha256,
            contains: self.expect_contains.clone().map(String::into_bytes),
        };
        let request = Request {
            method: method.unwrap_or_else(|| default.into()),
            headers,
            body,
            checks,
            events: match self.events {
                true => Some(
                    EventStream::ending_with(self.events_end.as_deref())
                        .map_err(|e| anyhow!("--events-end: {e}"))?,
                ),
                false => None,
            },
            ..Request::default()
        };
        let request = match fields {
            [] => request,
            fields => form::fill(request, fields, |path| path.into())?,
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
