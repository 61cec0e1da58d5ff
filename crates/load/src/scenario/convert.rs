//! Conversion of a scenario file into a plan; errors have their line and column.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flowlane_http::tls::{ClientIdentity, Trust, Versions};

use super::BadScenario;
use super::file::{self, Followed, KeepAlive, Text};
use crate::fill::{Capture, Data, Order, Template};
use crate::http::curl::basic;
use crate::http::{
    Aws, AwsScope, Behaviour, Body, Checks, Directions, EventStream, Follow, Pace, Plan, Pool, Request,
    Target, Think, Url, Version, Via, check, form, grpc,
};
use crate::run::timeline::Phase;
use crate::units;

/// How a plan is made.
pub(super) struct ConvertOptions<'a> {
    /// In the place of all targets.
    pub(super) urls: &'a [Url],
    /// Names are resolved and files read.
    pub(super) resolve: bool,
    pub(super) seed: u64,
    pub(super) directory: Option<&'a Path>,
}

type Result<T> = std::result::Result<T, BadScenario>;

/// The text, for messages.
struct Cx<'a> {
    text: &'a str,
    wish: &'a ConvertOptions<'a>,
}

impl Cx<'_> {
    fn bad<T>(&self, span: std::ops::Range<usize>, what: impl std::fmt::Display) -> Result<T> {
        Err(BadScenario::at(self.text, &span, what.to_string()))
    }

    /// A text that means something.
    fn read<T, E: std::fmt::Display>(
        &self,
        text: &Text,
        f: impl FnOnce(&str) -> std::result::Result<T, E>,
    ) -> Result<T> {
        f(text.get_ref()).or_else(|e| self.bad(text.span(), e))
    }

    fn option<T, E: std::fmt::Display>(
        &self,
        text: Option<&Text>,
        f: impl FnOnce(&str) -> std::result::Result<T, E>,
    ) -> Result<Option<T>> {
        text.map(|t| self.read(t, f)).transpose()
    }
}

pub(super) fn plan(file: &file::File, text: &str, wish: &ConvertOptions<'_>) -> Result<Plan> {
    let cx = Cx { text, wish };
    let time = |t: Option<&Text>, default| Ok(cx.option(t, units::duration)?.unwrap_or(default));
    let rate = cx.option(file.rate.as_ref(), units::frequency)?;
    let shares: f64 =
        file.pool.get_ref().iter().filter_map(|p| p.get_ref().share.as_ref()).map(|s| *s.get_ref()).sum();
    if let Some(rate) = file.rate.as_ref().filter(|_| shares == 0.0) {
        return cx.bad(
            rate.span(),
            "no pool has a share of this rate: give one to those that send at it, share = 1",
        );
    }
    let mut pools = Vec::new();
    for (i, pool) in file.pool.get_ref().iter().enumerate() {
        pools.push(cx.pool(pool, i, rate, shares)?);
    }
    let phases = file.phase.iter().map(|p| cx.phase(p)).collect::<Result<Vec<_>>>()?;
    let plan = Plan {
        pools,
        phases: if phases.is_empty() { vec![Phase::hold(Duration::from_secs(10))] } else { phases },
        timeout: time(file.timeout.as_ref(), Duration::from_secs(5))?,
        request_timeout: file.request_timeout.as_ref().map(|t| time(Some(t), Duration::ZERO)).transpose()?,
        waiting: time(file.waiting.as_ref(), Duration::from_secs(5))?,
        max_body: cx.option(file.max_body.as_ref(), units::size)?.map_or(1 << 30, |n| n as u64),
        seed: wish.seed,
    };
    match plan.check() {
        Ok(()) => Ok(plan),
        // The pool it names is better found than the file's beginning.
        Err(e) => {
            let named =
                plan.pools.iter().position(|p| e.to_string().starts_with(&format!("pool '{}'", p.name)));
            let span =
                named.and_then(|i| file.pool.get_ref().get(i)).map_or(file.pool.span(), toml::Spanned::span);
            cx.bad(span, e)
        }
    }
}

impl Cx<'_> {
    fn phase(&self, phase: &file::Phase) -> Result<Phase> {
        let share = |s: Option<&toml::Spanned<f64>>, default: f64| match s {
            None => Ok(default),
            Some(s) if (0.0..=1000.0).contains(s.get_ref()) => Ok(*s.get_ref()),
            Some(s) => self.bad(s.span(), "a share of the load is a number from 0 to 1000"),
        };
        let name = phase.name.clone().unwrap_or_else(|| "hold".into());
        let from = share(phase.from.as_ref(), 1.0)?;
        Ok(Phase {
            duration: self.read(&phase.duration, units::duration)?,
            from,
            to: share(phase.to.as_ref(), from.max(if phase.from.is_some() { 0.0 } else { 1.0 }))?,
            measured: phase.measured.unwrap_or(!matches!(name.as_str(), "warm-up" | "cool-down")),
            name,
        })
    }

    /// The version of HTTP that a pool speaks.
    fn version(&self, pool: &file::Pool, requests: &[Request]) -> Result<Version> {
        Ok(match (&pool.pipeline, &pool.http2, &pool.http3) {
            (_, Some(_), Some(http3)) => {
                return self.bad(http3.span(), "a pool speaks HTTP/2 or HTTP/3, not both");
            }
            (Some(_), None, Some(http3)) => {
                return self.bad(http3.span(), "a pool pipelines or speaks HTTP/3, not both");
            }
            (Some(_), Some(http2), None) => {
                return self.bad(http2.span(), "a pool pipelines or speaks HTTP/2, not both");
            }
            (Some(pipeline), None, None) => Version::Http1 { pipeline: *pipeline.get_ref() },
            (None, Some(streams), None) => Version::Http2 { streams: *streams.get_ref() },
            (None, None, Some(streams)) => Version::Http3 { streams: *streams.get_ref() },
            (None, None, None) if requests.iter().any(|request| request.grpc) => {
                Version::Http2 { streams: 1 }
            }
            (None, None, None) => Version::Http1 { pipeline: 1 },
        })
    }

    fn pool(
        &self,
        written: &toml::Spanned<file::Pool>,
        i: usize,
        rate: Option<f64>,
        shares: f64,
    ) -> Result<Pool> {
        let pool = written.get_ref();
        let name = pool.name.clone().unwrap_or_else(|| format!("pool {}", i + 1));
        let pace = match (&pool.rate, &pool.share) {
            (Some(_), Some(share)) => {
                return self.bad(share.span(), "a pool has a rate or a share, not both");
            }
            (Some(rate), None) => Some(self.read(rate, units::frequency)?),
            (None, Some(share)) => {
                let Some(rate) = rate else {
                    return self.bad(share.span(), "a share needs a rate of all: rate = \"...\" at the top");
                };
                if !share.get_ref().is_finite() || *share.get_ref() <= 0.0 {
                    return self.bad(share.span(), "a share is a number above 0");
                }
                Some(rate * share.get_ref() / shares)
            }
            (None, None) => None,
        };
        let pace = pace.map_or(Pace::Closed, |per_second| Pace::Rate { per_second, poisson: pool.poisson });
        let via = self.via(pool)?;
        if pool.follow_anywhere && pool.follow.is_none() {
            return self
                .bad(written.span(), "follow-anywhere is for redirects that are followed: follow = true");
        }
        let target = self.targets(pool, &via, written.span())?;
        let bytes = |t: &Option<Text>| Ok(self.option(t.as_ref(), units::size)?.map(|n| n as u64));
        if let (Some(_), Some(step)) = (pool.request.first(), pool.step.first()) {
            return self.bad(step.span(), "a pool has requests or steps, not both");
        }
        let written_requests = if pool.step.is_empty() { &pool.request } else { &pool.step };
        let mut requests =
            written_requests.iter().map(|r| self.request(r, &target)).collect::<Result<Vec<_>>>()?;
        if requests.is_empty() {
            requests.push(Request::default());
        }
        let aws = self.login(pool, &mut requests)?;
        let version = self.version(pool, &requests)?;
        let data = self.data(pool, &requests, &target)?;
        let first = Target { weight: 1.0, ..target[0].clone() };
        Ok(Pool {
            targets: target,
            requests,
            steps: !pool.step.is_empty(),
            cookies: pool.cookies,
            data,
            pace,
            connections: pool.connections.as_ref().map_or(100, |c| *c.get_ref() as usize),
            burst: pool.burst.as_ref().map_or(1000, |c| *c.get_ref() as usize),
            think: self.think(pool.think.as_ref())?,
            requests_per_connection: match pool.keep_alive.as_ref().map(toml::Spanned::get_ref) {
                None | Some(KeepAlive::Kept(true)) => None,
                Some(KeepAlive::Kept(false)) => Some(1),
                Some(KeepAlive::Requests(n)) => Some(*n),
            },
            fast_open: pool.fast_open,
            total_requests: pool.requests.as_ref().map(|n| *n.get_ref()),
            read_rate: bytes(&pool.read_rate)?,
            write_rate: bytes(&pool.write_rate)?,
            version,
            trust: match (&pool.ca, pool.insecure) {
                (_, true) => Trust::Anybody,
                (Some(file), false) => Trust::File(self.path(file.get_ref())),
                (None, false) => Trust::Native,
            },
            identity: self.identity(pool)?,
            tls: self.versions(pool)?,
            resume: pool.tls_resume,
            early_data: pool.early_data,
            via,
            aws,
            follow: match pool.follow.as_ref().map(toml::Spanned::get_ref) {
                None | Some(Followed::Any(false)) => None,
                Some(Followed::Any(true)) => {
                    Some(Follow { anywhere: pool.follow_anywhere, ..Follow::default() })
                }
                Some(Followed::Most(most)) => Some(Follow { most: *most, anywhere: pool.follow_anywhere }),
            },
            clients: pool.clients.iter().map(|c| self.read(c, str::parse)).collect::<Result<_>>()?,
            behaviour: match &pool.behaviour {
                None => Behaviour::Normal,
                Some(text) => self.read(text, behaviour)?,
            },
            ..Pool::new(&name, first)
        })
    }

    /// Who asks: how requests are signed, if they are; otherwise they get the field of the login.
    fn login(&self, pool: &file::Pool, requests: &mut [Request]) -> Result<Option<Aws>> {
        let user = pool.user.as_ref();
        if let Some(written) = &pool.aws_sigv4 {
            let scope = self.read(written, str::parse::<AwsScope>)?;
            let token = pool.aws_session.as_ref().map(|token| token.get_ref().as_str());
            let aws = Aws::new(scope, user.map(|user| user.get_ref().as_str()), token);
            return aws.map(Some).or_else(|e| self.bad(written.span(), e));
        }
        if let Some(token) = &pool.aws_session {
            return self
                .bad(token.span(), "a session is for requests that are signed: aws-sigv4 = \"aws:amz:...\"");
        }
        let Some(user) = user else { return Ok(None) };
        if !user.get_ref().contains(':') || user.get_ref().contains(char::is_control) {
            return self.bad(user.span(), "a login is NAME:PASSWORD");
        }
        requests.iter_mut().for_each(|request| request.headers.push(basic(user.get_ref())));
        Ok(None)
    }

    fn targets(&self, pool: &file::Pool, via: &Via, span: std::ops::Range<usize>) -> Result<Vec<Target>> {
        let resolve = |url: &Url| {
            if self.wish.resolve {
                return via.addresses(url).map_err(|e| e.to_string());
            }
            // To be checked, not to be used.
            Ok(vec![std::net::SocketAddr::from(([192, 0, 2, 1], url.port))])
        };
        if !self.wish.urls.is_empty() {
            let target = |url: &Url| {
                let addresses = resolve(url).or_else(|e| self.bad(span.clone(), e))?;
                Ok(Target { url: url.clone(), addresses, weight: 1.0 })
            };
            return self.wish.urls.iter().map(target).collect();
        }
        if pool.target.is_empty() {
            return self.bad(span, "this pool has no target: target = [{ url = \"http://...\" }]");
        }
        let target = |t: &file::Target| {
            let url: Url = self.read(&t.url, str::parse)?;
            let addresses = self.read(&t.url, |_| resolve(&url))?;
            Ok(Target { url, addresses, weight: t.weight.as_ref().map_or(1.0, |w| *w.get_ref()) })
        };
        pool.target.iter().map(target).collect()
    }

    /// The file of rows. Before it is read, it is taken to have all columns that are asked for.
    fn data(&self, pool: &file::Pool, requests: &[Request], targets: &[Target]) -> Result<Option<Arc<Data>>> {
        let Some(written) = &pool.data else { return Ok(None) };
        let (file, order) = match written.get_ref() {
            file::Data::File(file) => (file, None),
            file::Data::InOrder(data) => (&data.file, data.order.as_ref()),
        };
        let order = order.map_or(Ok(Order::default()), |order| order.parse());
        let order = order.or_else(|e| self.bad(written.span(), e))?;
        if !self.wish.resolve {
            let captured = |name: &&str| requests.iter().flat_map(|r| &r.captures).any(|c| c.name == *name);
            let texts = requests.iter().flat_map(Request::texts);
            let paths = targets.iter().map(|target| target.url.path.as_str());
            let mut names: Vec<String> = texts
                .chain(paths)
                .flat_map(Template::names)
                .filter(|n| !captured(n))
                .map(str::to_owned)
                .collect();
            names.sort_unstable();
            names.dedup();
            return Ok(Some(Data::stand_in(names).into()));
        }
        let path = self.path(file);
        let data = Data::of_file(&path, order);
        data.map(|data| Some(data.into()))
            .or_else(|e| self.bad(written.span(), format!("{}: {e}", path.display())))
    }

    fn via(&self, pool: &file::Pool) -> Result<Via> {
        let directions = Directions {
            connect_to: pool.connect_to.iter().map(|t| self.read(t, str::parse)).collect::<Result<_>>()?,
            resolve: pool.resolve.iter().map(|t| self.read(t, str::parse)).collect::<Result<_>>()?,
        };
        Ok(Via {
            directions,
            proxy: self.option(pool.proxy.as_ref(), str::parse)?,
            unix_socket: pool.unix_socket.as_ref().map(|path| self.path(path.get_ref())),
        })
    }

    /// The clients' own certificate.
    fn identity(&self, pool: &file::Pool) -> Result<Option<ClientIdentity>> {
        match (&pool.cert, &pool.cert_key) {
            (Some(cert), key) => Ok(Some(ClientIdentity {
                certificates: self.path(cert.get_ref()),
                key: self.path(key.as_ref().unwrap_or(cert).get_ref()),
            })),
            (None, Some(key)) => self.bad(key.span(), "the key of which certificate? cert = \"...\""),
            (None, None) => Ok(None),
        }
    }

    fn versions(&self, pool: &file::Pool) -> Result<Versions> {
        let usual = Versions::default();
        let versions = Versions {
            min: self.option(pool.tls_min.as_ref(), str::parse)?.unwrap_or(usual.min),
            max: self.option(pool.tls_max.as_ref(), str::parse)?.unwrap_or(usual.max),
        };
        match pool.tls_min.as_ref().or(pool.tls_max.as_ref()) {
            Some(text) if versions.min > versions.max => self.bad(text.span(), "tls-min is above tls-max"),
            _ => Ok(versions),
        }
    }

    fn think(&self, think: Option<&toml::Spanned<toml::Value>>) -> Result<Think> {
        let Some(written) = think else { return Ok(Think::None) };
        let bad = |what: String| self.bad(written.span(), what);
        let time = |value: &toml::Value| match value {
            toml::Value::String(text) => units::duration(text).map_err(|e| e.to_string()),
            other => Err(format!("{other} is not a time such as \"10ms\"")),
        };
        let think = match written.get_ref() {
            toml::Value::Array(list) => {
                list.iter().map(time).collect::<std::result::Result<_, _>>().map(Think::List)
            }
            toml::Value::Table(table) => match (table.len(), table.get("exponential")) {
                (1, Some(mean)) => time(mean).map(Think::Exponential),
                _ => Err("think is a time, a list of times, or { exponential = \"1s\" }".to_owned()),
            },
            other => time(other).map(Think::Constant),
        };
        think.or_else(bad)
    }

    fn request(&self, written: &toml::Spanned<file::Request>, targets: &[Target]) -> Result<Request> {
        let request = written.get_ref();
        let form = !request.form.is_empty();
        let bodies = [request.body.is_some(), request.body_size.is_some(), request.body_file.is_some(), form];
        if bodies.iter().filter(|b| **b).count() > 1 {
            return self.bad(written.span(), "a request has one of body, body-size, body-file and form");
        }
        let body = match (&request.body, &request.body_size, &request.body_file) {
            (Some(text), ..) => Body::Text(text.as_str().into()),
            (_, Some(size), _) => Body::Generated(self.read(size, units::size)? as u64),
            (_, _, Some(file)) if self.wish.resolve => {
                let path = self.path(file.get_ref());
                self.read(file, |_| Body::of_file(&path).map_err(|e| format!("{}: {e}", path.display())))?
            }
            _ => Body::None,
        };
        let checks = Checks {
            status: self.option(request.status.as_ref(), check::statuses)?.unwrap_or_default(),
            length: request.length,
            sha256: self.option(request.sha256.as_ref(), check::sha256)?,
            contains: request.contains.as_ref().map(|c| c.clone().into_bytes()),
        };
        let default = if body.is_empty() && !form { "GET" } else { "POST" };
        let weight = request.weight.as_ref().map_or(1.0, |w| *w.get_ref());
        let made = Request {
            name: request.name.clone(),
            method: request.method.clone().unwrap_or_else(|| default.into()),
            path: request.path.clone(),
            headers: request.headers.iter().map(|(n, v)| (n.clone(), v.clone())).collect(),
            body,
            checks,
            weight,
            captures: self.captures(request)?,
            pause: self.think(request.think.as_ref())?,
            events: match request.events.as_ref().map(|e| (e.span(), e.get_ref())) {
                None | Some((_, file::Events::Any(false))) => None,
                Some((_, file::Events::Any(true))) => Some(EventStream::default()),
                Some((span, file::Events::Ending(of))) => {
                    Some(EventStream::ending_with(Some(&of.end)).or_else(|e| self.bad(span, e))?)
                }
            },
            grpc: false,
        };
        let fields = request.form.iter().map(|field| self.read(field, form::Field::parse));
        let made = match fields.collect::<Result<Vec<_>>>()? {
            fields if form && self.wish.resolve => {
                form::fill(made, &fields, |path| self.path(path)).or_else(|e| self.bad(written.span(), e))?
            }
            _ => made,
        };
        made.check().or_else(|e| self.bad(written.span(), e))?;
        let (span, descriptors, messages) = match request.grpc.as_ref().map(|g| (g.span(), g.get_ref())) {
            None | Some((_, file::Grpc::Plain(false))) => return Ok(made),
            Some((span, file::Grpc::Plain(true))) => (span, None, None),
            Some((span, file::Grpc::Described(of))) => (span, of.descriptors.as_deref(), of.messages),
        };
        let descriptors = match descriptors {
            None => None,
            // Files are not read, so there is no message.
            Some(_) if !self.wish.resolve => return Ok(Request { grpc: true, ..made }),
            Some(file) => {
                let path = self.path(file);
                let read = grpc::Descriptors::of_file(&path);
                Some(read.or_else(|e| self.bad(span.clone(), format!("{}: {e}", path.display())))?)
            }
        };
        let call = grpc::Call { descriptors, messages: messages.unwrap_or(1) };
        let targets: Vec<_> = targets.iter().map(|target| &target.url).collect();
        call.of(made, &targets).or_else(|e| self.bad(span, e))
    }

    fn captures(&self, request: &file::Request) -> Result<Vec<Capture>> {
        let capture = |(name, written): (&String, &toml::Spanned<file::Capture>)| {
            let from = written.get_ref();
            let made =
                Capture::new(name, from.json.as_deref(), from.regex.as_deref(), from.header.as_deref());
            made.or_else(|e| self.bad(written.span(), e))
        };
        request.capture.iter().map(capture).collect()
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.wish.directory.map_or_else(|| path.into(), |d| d.join(path))
    }
}

/// What clients are like, by name.
fn behaviour(text: &str) -> std::result::Result<Behaviour, String> {
    match text {
        "normal" => Ok(Behaviour::Normal),
        "half-open" => Ok(Behaviour::HalfOpen),
        "syn-only" => Ok(Behaviour::SynOnly),
        _ => Err(format!("'{text}': clients are normal, half-open or syn-only")),
    }
}
