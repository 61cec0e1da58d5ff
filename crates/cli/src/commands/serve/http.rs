//! `flowlane serve http`: its arguments, its host, and its own output beside that of every service.

use super::Service;
use super::documents::{HttpBucket, HttpCounts, HttpInterval, HttpSummary, errors};
use super::opening::{self, Listening, Told};
use super::plan::{self, Plan};
use super::tls::TlsArguments;
use super::unix_socket::{AtPath, UnixSocketArguments};
use crate::document::value;
use crate::stdout;
use crate::units;
use anyhow::bail;
use flowlane::control::{Additions, CountView};
use flowlane::{Bind, Host, UdpSocket};
use flowlane_http::h1::{Limits, MAX_FIELDS};
use flowlane_http::server::{Counter, Counts, Options, Server, Stall, Timeouts};
use flowlane_http::tls::Alpn;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Arguments of the web server.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_help = "\
Endpoints: /size/N, /size?size=N, /line, /status/N, /delay/MS, /echo, /events/N/MS, and /ws, a WebSocket; with ?chunked the answer has no Content-Length.
With --dir, all other paths are files.")]
pub(crate) struct HttpArguments {
    #[command(flatten)]
    tcp: plan::TcpArguments,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten, next_help_heading = "HTTP")]
    unix: UnixSocketArguments,
    /// Do not offer HTTP/2.
    #[arg(long, help_heading = "HTTP")]
    no_http2: bool,
    /// Offer HTTP/3 as well, on the UDP port of the same number; answers over TCP say so (Alt-Svc). With --tls or --cert.
    #[arg(long, help_heading = "HTTP")]
    http3: bool,
    /// Take requests of HTTP/3 in early data (0-RTT), if they do nothing but ask (GET, HEAD, OPTIONS, TRACE); others are answered 425.
    #[arg(long, requires = "http3", help_heading = "HTTP")]
    early_data: bool,
    /// While so many handshakes of HTTP/3 in a lane are not complete, have clients prove their addresses (Retry); 0: always.
    #[arg(long, value_name = "N", requires = "http3", help_heading = "HTTP", default_value = "1k", value_parser = units::count)]
    retry_above: u64,
    /// Serve the files below this directory.
    #[arg(long, value_name = "DIR", help_heading = "HTTP")]
    dir: Option<PathBuf>,
    /// Stop answering for FOR at the end of every EVERY (1s,100ms): a known stall to test load generators with.
    #[arg(long, value_name = "EVERY,FOR", help_heading = "HTTP", value_parser = Stalls::from_str)]
    stall: Option<Stalls>,
    /// Most requests on one connection before it is closed, HTTP/1 only [default: no limit].
    #[arg(long, value_name = "N", help_heading = "HTTP", value_parser = units::count)]
    keepalive: Option<u64>,
    /// Most open connections in each lane; further ones are closed.
    #[arg(long, value_name = "N", help_heading = "HTTP", default_value = "1M", value_parser = units::count)]
    max_connections: u64,
    /// Most bytes in the head of a request.
    #[arg(long, value_name = "SIZE", help_heading = "HTTP", default_value = "16Ki", value_parser = units::size)]
    max_head: usize,
    /// Most header fields in a request, up to 128.
    #[arg(long, value_name = "N", help_heading = "HTTP", default_value_t = 100)]
    max_fields: u16,
    /// Most bytes in the body of a request.
    #[arg(long, value_name = "SIZE", help_heading = "HTTP", default_value = "1024Mi", value_parser = units::size)]
    max_body: usize,
    /// Most bytes in a message of a WebSocket.
    #[arg(long, value_name = "SIZE", help_heading = "HTTP", default_value = "1Mi", value_parser = units::size)]
    max_message: usize,
    /// Agree to compressed messages of a WebSocket (permessage-deflate), if a client offers them; they go back compressed.
    #[arg(long, help_heading = "HTTP")]
    ws_deflate: bool,
    /// Most memory for answers that peers do not read, in bytes over all lanes.
    #[arg(long, value_name = "SIZE", help_heading = "HTTP", default_value = "256Mi", value_parser = units::size)]
    max_memory: usize,
    /// Limit for receiving a head, a TLS handshake, or an HTTP/2 frame.
    #[arg(long, value_name = "TIME", help_heading = "HTTP", default_value = "10s", value_parser = units::duration)]
    head_timeout: Duration,
    /// Limit for the time between requests.
    #[arg(long, value_name = "TIME", help_heading = "HTTP", default_value = "75s", value_parser = units::duration)]
    idle_timeout: Duration,
    /// Limit for the time without progress of a request or response body.
    #[arg(long, value_name = "TIME", help_heading = "HTTP", default_value = "30s", value_parser = units::duration)]
    body_timeout: Duration,
}

/// `EVERY,FOR`.
#[derive(Debug, Clone, Copy)]
struct Stalls(Stall);

impl FromStr for Stalls {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (every, length) = text.split_once(',').ok_or("two times are needed: EVERY,FOR as in 1s,100ms")?;
        let time = |text: &str| units::duration(text.trim()).map_err(|e| e.to_string());
        let (every, length) = (time(every)?, time(length)?);
        if length.is_zero() || length >= every {
            return Err("the second time must be more than 0 and less than the first".to_owned());
        }
        Ok(Self(Stall { every, length }))
    }
}

/// The web server of a plan.
pub(super) struct Http {
    server: Server,
    path: Option<AtPath>,
    http3: bool,
    json: bool,
    before: Counts,
}

/// The plan, and the server that belongs to it.
pub(super) fn plan(arguments: HttpArguments) -> anyhow::Result<(Plan, Http)> {
    let mut a = arguments;
    if a.keepalive == Some(0) {
        bail!("--keepalive 0: a connection must carry at least one request");
    }
    if a.max_message == 0 {
        bail!("--max-message 0: must be at least 1");
    }
    if a.max_connections == 0 {
        bail!("--max-connections 0: must be at least 1");
    }
    if !(1..=MAX_FIELDS).contains(&usize::from(a.max_fields)) {
        bail!("--max-fields {}: from 1 to {MAX_FIELDS}", a.max_fields);
    }
    let head = u32::try_from(a.max_head).ok().filter(|n| (64..=1 << 20).contains(n));
    let Some(head) = head else { bail!("--max-head {}: from 64 to 1Mi", a.max_head) };
    for (name, time) in [
        ("--head-timeout", a.head_timeout),
        ("--idle-timeout", a.idle_timeout),
        ("--body-timeout", a.body_timeout),
    ] {
        if time.is_zero() {
            bail!("{name} 0: must be more than 0");
        }
    }
    a.tcp.without_port(a.unix.is_given());
    let mut plan = Plan::tcp(Service::Http, a.tcp)?;
    a.unix.apply(&mut plan)?;
    let alpn = if a.no_http2 { Alpn::Http1 } else { Alpn::Both };
    let tls = a.tls.build(&plan.addresses, alpn)?;
    if a.http3 {
        check_http3(&plan, tls.is_some(), a.unix.is_given())?;
        plan.udp_port = Some(plan.port);
    }
    let options = Options {
        limits: Limits { head, fields: a.max_fields },
        timeouts: Timeouts {
            head: a.head_timeout,
            idle: a.idle_timeout,
            body: a.body_timeout,
            write: a.body_timeout,
        },
        max_body: a.max_body as u64,
        max_message: a.max_message as u64,
        ws_deflate: a.ws_deflate,
        requests_per_connection: a.keepalive.unwrap_or(u64::MAX),
        connections_per_lane: a.max_connections,
        memory: a.max_memory as u64,
        stall: a.stall.map(|s| s.0),
        dir: a.dir,
        tls,
        http2: !a.no_http2,
        http3: a.http3,
        early_data: a.early_data,
        retry_above: a.retry_above,
        alt_svc: a.http3.then(|| format!("h3=\":{}\"; ma=86400", plan.port)),
    };
    let server = Server::new(options, plan.rss.buckets.len())?;
    let (json, path) = (plan.json, a.unix.listen()?);
    Ok((plan, Http { server, path, http3: a.http3, json, before: Counts::default() }))
}

/// Refuses HTTP/3 where there is no UDP port for it.
fn check_http3(plan: &Plan, encrypted: bool, at_path: bool) -> anyhow::Result<()> {
    if !encrypted {
        bail!("--http3: QUIC is always encrypted: --tls or --cert is needed");
    }
    if at_path {
        bail!("--http3: is on a UDP port: not with a Unix socket");
    }
    if plan.port == 0 {
        bail!("--http3: answers over TCP say which port it is on: choose one");
    }
    if plan.listen.is_some() {
        bail!("--http3: all lanes have the UDP port: not with chosen buckets");
    }
    Ok(())
}

impl Http {
    /// The host that serves.
    pub(super) fn host(&self, plan: &Plan, told: Told) -> Host {
        let path = self.path.as_ref().map(|path| path.listener.clone());
        let (listening, server) =
            (Listening::of(plan, Server::listen_options()).at_path(path), self.server.clone());
        let bind = Bind { local_ip: plan.bind(), local_port: plan.port, ..Bind::default() };
        let (quic, by_kernel) = (self.http3, plan.from_kernel.is_some());
        let socket = move || match (quic, by_kernel) {
            (false, _) => Ok(None),
            (true, true) => UdpSocket::bind_by_kernel(bind).map(Some),
            (true, false) => UdpSocket::bind(bind).map(Some),
        };
        opening::host(
            plan,
            told,
            move || Ok((listening.open()?, socket()?)),
            move |(listener, socket), seen| {
                let server = server.clone();
                async move {
                    if let Some(socket) = socket {
                        let server = server.clone();
                        // The lane has ended.
                        let _ = flowlane::spawn(async move { server.serve_datagrams(socket).await });
                    }
                    let Some(listener) = listener else { return Ok(()) };
                    server.serve_each(listener, |stream| seen.connection(stream)).await
                }
            },
        )
    }

    /// Closes its connections in order, within `grace`.
    pub(super) fn stop(&self, grace: Duration) {
        self.server.stop_within(grace);
    }

    /// What the web page shows of it.
    pub(super) fn additions(&self) -> impl Fn() -> Additions + Send + Sync + use<> {
        let server = self.server.clone();
        move || {
            let total = server.total();
            let count = |text: &str, count| CountView { text: text.to_owned(), count, at_us: None };
            let counts = vec![
                count("Requests", total.get(Counter::Requests)),
                count("Errors", total.get(Counter::ServerError) + total.errors()),
            ];
            Additions { times: Vec::new(), counts }
        }
    }

    /// Prints the counts since the last interval.
    pub(super) fn interval(&mut self, took: Duration) -> io::Result<()> {
        let now = self.server.total();
        let counts = now.since(&self.before);
        self.before = now;
        let rate = (counts.get(Counter::Requests) as f64 / took.as_secs_f64().max(1e-9)).round() as u64;
        let mut out = stdout::lock();
        if self.json {
            let line = HttpInterval {
                version: 1,
                kind: "http-interval",
                connections_open: now.open(),
                counts: HttpCounts(counts),
                errors: errors(&counts),
                seconds: took.as_secs_f64(),
                requests_per_second: rate,
            };
            writeln!(out, "{}", value(line))?;
        } else {
            writeln!(
                out,
                "http: {rate} requests/s, 2xx {}, 3xx {}, 4xx {}, 5xx {}, errors {}, connections {}",
                counts.get(Counter::Success),
                counts.get(Counter::Redirection),
                counts.get(Counter::ClientError),
                counts.get(Counter::ServerError),
                counts.errors(),
                now.open(),
            )?;
        }
        out.flush()
    }

    /// Prints the totals, at the end.
    pub(super) fn summary(&self) -> io::Result<()> {
        let counts = self.server.total();
        let mut out = stdout::lock();
        if self.json {
            let lanes = self.server.counts();
            let buckets = lanes.iter().enumerate().map(|(bucket, lane)| HttpBucket {
                bucket,
                requests: lane.get(Counter::Requests),
                connections: lane.get(Counter::Connections),
                errors: lane.errors(),
            });
            let document = HttpSummary {
                version: 1,
                kind: "http-summary",
                connections_open: counts.open(),
                counts: HttpCounts(counts),
                errors: errors(&counts),
                buckets: buckets.collect(),
            };
            writeln!(out, "{}", value(document))?;
            return out.flush();
        }
        for (_, text, value) in counts.each_count().filter(|c| c.2 > 0) {
            writeln!(out, "http: {value} {text}")?;
        }
        for (name, value) in counts.each_error().filter(|e| e.1 > 0) {
            writeln!(out, "http: {value} errors: {name}")?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls() {
        let stall = "1s,100ms".parse::<Stalls>().map(|s| s.0);
        assert_eq!(stall, Ok(Stall { every: Duration::from_secs(1), length: Duration::from_millis(100) }));
        for bad in ["", "1s", "1s,", "1s,1s", "1s,2s", "1s,0s", "x,y"] {
            assert!(bad.parse::<Stalls>().is_err(), "{bad}");
        }
    }
}
