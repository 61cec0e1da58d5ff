//! `flowlane serve memcached`: its plan, its host, and its own output beside that of every service. [`arguments`] has its arguments, which are memcached's where
//! memcached has them.

mod arguments;

use super::Service;
use super::documents::{MemcachedInterval, MemcachedSummary};
use super::opening::{self, Listening, Seen, Told};
use super::plan::Plan;
use super::unix_socket::AtPath;
use crate::document;
use crate::stdout;
use anyhow::{Context, ensure};
use flowlane::stats::{Report, ServiceFigures};
use flowlane::{Bind, Host, Io, SocketError, Steer, TcpListener, TcpStream, UdpSocket};
use flowlane_http::tls::{Alpn, ServerTls};
use flowlane_memcached::server::{Options, Server};
use flowlane_sys::words::legible;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use arguments::MemcachedArguments;

/// The cache of a plan.
pub(super) struct Memcached {
    server: Server,
    tls: Option<ServerTls>,
    udp_port: u16,
    path: Option<AtPath>,
    json: bool,
    before: Vec<ServiceFigures>,
}

/// Time for a handshake of TLS, and for a peer whose handshake failed to read why.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The plan, and the server that belongs to it.
pub(super) fn plan(arguments: MemcachedArguments) -> anyhow::Result<(Plan, Memcached)> {
    let mut a = arguments;
    a.apply_extended()?;
    a.check()?;
    // One store for each worker: a request for another lane's key costs two messages.
    a.tcp.one_bucket_a_worker();
    a.tcp.without_port(a.unix.is_given() || a.udp_port > 0);
    let mut plan = Plan::tcp(Service::Memcached, a.tcp)?;
    let lanes = plan.rss.buckets.len();
    let tls = a.tls.build(&plan.addresses, Alpn::Nothing)?;
    plan.tls = tls.is_some();
    ensure!(
        // Guard: `a.udp_port == 0 || tls.is_none()` as `true` fails cli/serve_memcached::bad_arguments
        a.udp_port == 0 || tls.is_none(),
        "--udp-port {}: datagrams are not encrypted: not with --tls or --cert",
        a.udp_port
    );
    ensure!(a.udp_port == 0 || plan.listen.is_none(), "--udp-port: not with --listen-buckets");
    a.unix.apply(&mut plan)?;
    ensure!(
        // Guard: `!a.placement.is_move() || plan.link.is_kernel()` as `true` fails
        // cli/serve_memcached::bad_arguments
        !a.placement.is_move() || plan.link.is_kernel(),
        "--placement move: on a link RSS says in which lane a connection is: use it without --link, or leave it out"
    );
    if a.placement.is_move() {
        ensure!(
            // Guard: `plan.io != Io::Uring` as `true` fails cli/serve_memcached::bad_arguments
            plan.io != Io::Uring,
            "--placement move: not with --io uring, whose receives belong to one lane: use --io epoll, or leave it out"
        );
        plan.io = Io::Epoll;
    }
    plan.udp_port = Some(a.udp_port).filter(|port| *port > 0);
    let known = !plan.link.is_kernel() || plan.steer == Steer::Hash || lanes == 1;
    let options = Options {
        memory: a.memory,
        item_max: a.max_item_size,
        connections: a.max_connections,
        buffers: a.max_buffers,
        idle: a.idle_timeout.filter(|idle| !idle.is_zero()),
        port: plan.port,
        address: plan.addresses.first().map(|address| address.address().to_string()),
        workers: plan.workers,
        udp_port: a.udp_port,
        path: plan.path.as_ref().map(|path| legible(&path.to_string_lossy())),
        tls: plan.tls,
        steering: Some(plan.rss.clone()).filter(|_| known && plan.path.is_none()),
        placement: a.placement.into(),
    };
    let server = Server::new(options, lanes).with_context(|| {
        format!(
            "--memory, --max-item-size, --max-buffers: {} MiB in {lanes} lanes (see --workers, --buckets)",
            a.memory >> 20
        )
    })?;
    if a.udp_port > 0 && !plan.bind().is_some_and(|ip| ip.is_loopback()) {
        plan.note = Some(plan.note.map_or(UDP_NOTE.to_owned(), |note| format!("{note}; {UDP_NOTE}")));
    }
    let (json, path) = (plan.json, a.unix.listen()?);
    Ok((plan, Memcached { server, tls, udp_port: a.udp_port, path, json, before: Vec::new() }))
}

/// What is said when datagrams may come from anywhere.
const UDP_NOTE: &str = "UDP: answers are longer than requests, and go wherever these say that they come from: let only your clients reach this port";

impl Memcached {
    /// The host that serves.
    pub(super) fn host(&self, plan: &Plan, told: Told) -> Host {
        let path = self.path.as_ref().map(|path| path.listener.clone());
        let tcp = plan.port > 0 || path.is_some();
        let listening = Listening::of(plan, Server::listen_options()).at_path(path);
        let (bind, udp_port) = (plan.bind(), self.udp_port);
        let open = move || {
            let listener = if tcp { listening.open()? } else { None };
            let bind = Bind { local_ip: bind, ..Bind::port(udp_port) };
            let socket = if udp_port > 0 { Some(UdpSocket::bind(bind)?) } else { None };
            Ok((listener, socket))
        };
        let (server, tls) = (self.server.clone(), self.tls.clone());
        opening::host(plan, told, open, move |(listener, socket), seen| {
            serve(server.clone(), tls.clone(), listener, socket, seen)
        })
    }

    /// Closes its connections in order, within `grace`.
    pub(super) fn stop(&self, grace: Duration) {
        self.server.stop_within(grace);
    }

    /// Prints the counts since the last interval.
    pub(super) fn interval(&mut self, report: &Report, took: Duration) -> io::Result<()> {
        // The only host.
        let now = report.services(0);
        let second = took.as_secs_f64().max(1e-9);
        let rate = |names: &[&str]| {
            let of = |all: &[ServiceFigures]| names.iter().map(|name| value(all, name)).sum::<u64>();
            (of(&now).saturating_sub(of(&self.before)) as f64 / second).round() as u64
        };
        let line = MemcachedInterval {
            version: 1,
            kind: "memcached-interval",
            seconds: took.as_secs_f64(),
            gets_per_second: rate(&["cmd-get"]),
            hits_per_second: rate(&["get-hits"]),
            sets_per_second: rate(&["cmd-set"]),
            evictions_per_second: rate(&["evictions"]),
            handed_over_per_second: rate(&["handed-over"]),
            items: value(&now, "curr-items"),
            bytes: value(&now, "allocated-bytes"),
            connections: value(&now, "curr-connections"),
        };
        self.before = now;
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", document::value(line))?;
        } else {
            writeln!(
                out,
                "memcached: {} gets/s, {} hits/s, {} sets/s, {} evictions/s, {} handed over/s, items {}, bytes {}, connections {}",
                line.gets_per_second,
                line.hits_per_second,
                line.sets_per_second,
                line.evictions_per_second,
                line.handed_over_per_second,
                line.items,
                line.bytes,
                line.connections
            )?;
        }
        out.flush()
    }

    /// Prints the totals, at the end.
    pub(super) fn summary(&self, report: &Report, host: usize) -> io::Result<()> {
        let services = report.services(host);
        let figures = services.iter().flat_map(|service| &service.figures);
        let mut out = stdout::lock();
        if self.json {
            let figures = figures.map(|figure| (figure.name, figure.value)).collect();
            let document = MemcachedSummary { version: 1, kind: "memcached-summary", figures };
            writeln!(out, "{}", document::value(document))?;
            return out.flush();
        }
        for figure in figures.filter(|figure| figure.value > 0) {
            writeln!(out, "memcached: {} {}", figure.value, figure.text)?;
        }
        out.flush()
    }
}

/// One lane: connections, plain or encrypted, and datagrams, until the service stops.
async fn serve(
    server: Server,
    tls: Option<ServerTls>,
    listener: Option<TcpListener>,
    socket: Option<UdpSocket>,
    seen: Seen,
) -> Result<(), SocketError> {
    let lane = Arc::new(server.begin()?);
    let datagrams = match socket {
        None => None,
        Some(socket) => {
            let (lane, seen) = (lane.clone(), seen.clone());
            let serving = async move { lane.serve_datagrams(socket, |batch| seen.datagrams(batch)).await };
            Some(flowlane::spawn(serving).map_err(|_| SocketError::WrongLane)?)
        }
    };
    let each = |stream: &TcpStream| seen.connection(stream);
    match (listener, tls) {
        (None, _) => {}
        (Some(listener), None) => lane.serve(listener, each).await?,
        (Some(listener), Some(tls)) => {
            let through = |stream| {
                let tls = tls.clone();
                async move { tls.accept_within(stream, HANDSHAKE, HANDSHAKE).await.ok() }
            };
            lane.serve_through(listener, each, through).await?;
        }
    }
    match datagrams {
        None => Ok(()),
        Some(datagrams) => datagrams.await.map_err(|_| SocketError::Closed)?,
    }
}

/// One figure; 0 if there is none.
fn value(all: &[ServiceFigures], name: &str) -> u64 {
    let figures = all.iter().flat_map(|service| &service.figures);
    figures.filter(|figure| figure.name == name).map(|figure| figure.value).sum()
}
