//! `flowlane serve memcached`: its arguments, which are memcached's where memcached has them, its host, and its own output beside that of every service.

use super::flows::Flows;
use super::plan::{self, Plan};
use super::{Event, Service, tcp};
use crate::stdout;
use crate::units;
use anyhow::{Context, ensure};
use flowlane::stats::{Report, ServiceFigures};
use flowlane::{Host, ListenOptions};
use flowlane_memcached::server::{Options, Server};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Arguments of the cache.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(
    mut_arg("port", |arg| arg.short('p').default_value("11211")),
    mut_arg("workers", |arg| arg.short('t')),
    mut_arg("addr", |arg| arg.short('l'))
)]
pub(crate) struct MemcachedArguments {
    #[command(flatten)]
    tcp: plan::TcpArguments,
    /// Memory for items and all that is kept about them, in MiB, or with a unit: 1Gi. Lanes have equal shares of it.
    #[arg(long, short = 'm', value_name = "MIB", default_value = "64", value_parser = megabytes, help_heading = "Memcached")]
    memory: usize,
    /// Most connections; further ones are told so and closed.
    #[arg(long, short = 'c', value_name = "N", default_value = "1024", value_parser = units::count, help_heading = "Memcached")]
    max_connections: u64,
    /// Largest item in bytes, or with a unit: 2m. At most half of a lane's memory.
    #[arg(long, short = 'I', value_name = "SIZE", default_value = "1m", value_parser = item_size, help_heading = "Memcached")]
    max_item_size: usize,
    /// Most memory for requests on their way and answers that peers do not read, in bytes over all lanes.
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = units::size, help_heading = "Memcached")]
    max_buffers: usize,
    /// Close connections on which nothing came or went for so long [default: never].
    #[arg(long, value_name = "TIME", value_parser = idle_time, help_heading = "Memcached")]
    idle_timeout: Option<Duration>,
    /// UDP port, as memcached has it: 0, since UDP is not served.
    #[arg(long, short = 'U', value_name = "PORT", default_value = "0", value_parser = no_udp, help_heading = "Memcached")]
    udp_port: u16,
}

/// Mebibytes without a unit, else a size.
fn megabytes(text: &str) -> Result<usize, String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let number = text.parse::<usize>().ok().and_then(|n| n.checked_mul(1 << 20));
        return number.ok_or_else(|| "more than any machine has".to_owned());
    }
    units::size(text).map_err(|e| e.to_string())
}

/// A size, of which the units may also be memcached's `k` and `m`, which are 1024 and 1024 times 1024.
fn item_size(text: &str) -> Result<usize, String> {
    let binary = text.strip_suffix(['k', 'K']).map(|n| format!("{n}Ki"));
    let binary = binary.or_else(|| text.strip_suffix(['m', 'M']).map(|n| format!("{n}Mi")));
    units::size(binary.as_deref().unwrap_or(text)).map_err(|e| e.to_string())
}

/// Seconds without a unit, as memcached has it, else a time.
fn idle_time(text: &str) -> Result<Duration, String> {
    let seconds = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = if seconds { format!("{text}s") } else { text.to_owned() };
    units::duration(&text).map_err(|e| e.to_string())
}

fn no_udp(text: &str) -> Result<u16, String> {
    match text {
        "0" => Ok(0),
        _ => Err("UDP is not served: leave the option out, or give 0".to_owned()),
    }
}

/// The cache of a plan.
pub(super) struct Memcached {
    server: Server,
    json: bool,
    before: Vec<ServiceFigures>,
}

/// The plan, and the server that belongs to it.
pub(super) fn plan(arguments: MemcachedArguments) -> anyhow::Result<(Plan, Memcached)> {
    let mut a = arguments;
    ensure!(a.max_connections > 0, "--max-connections 0: must be at least 1");
    let _ = a.udp_port;
    // One store for each worker: a request for another lane's key costs two messages.
    a.tcp.one_bucket_a_worker();
    let plan = Plan::tcp(Service::Memcached, a.tcp)?;
    let lanes = plan.rss.buckets.len();
    let options = Options {
        memory: a.memory,
        item_max: a.max_item_size,
        connections: a.max_connections,
        buffers: a.max_buffers,
        idle: a.idle_timeout.filter(|idle| !idle.is_zero()),
        port: plan.port,
        address: plan.addresses.first().map(|address| address.address().to_string()),
        workers: plan.workers,
    };
    let server = Server::new(options, lanes).with_context(|| {
        format!(
            "--memory, --max-item-size, --max-buffers: {} MiB in {lanes} lanes (see --workers, --buckets)",
            a.memory >> 20
        )
    })?;
    let json = plan.json;
    Ok((plan, Memcached { server, json, before: Vec::new() }))
}

impl Memcached {
    /// The host that serves.
    pub(super) fn host(&self, plan: &Plan, flows: Option<Flows>, events: Sender<Event>) -> Host {
        let (bind, port, fast_open) = (plan.bind(), plan.port, tcp::fast_open(plan));
        let (listen, server) = (plan.listen.clone(), self.server.clone());
        plan.host(move || {
            let (flows, events) = (flows.clone(), events.clone());
            let (listen, server) = (listen.clone(), server.clone());
            async move {
                let lane = server.begin()?;
                let options = ListenOptions { fast_open, ..Server::listen_options() };
                let listener = tcp::open(listen.as_deref(), bind, port, options, &events);
                drop(events);
                let Some(listener) = listener else { return Ok(()) };
                let each = |stream: &flowlane::TcpStream| {
                    if let Some(flows) = &flows
                        && let Ok((hash, kind, bucket)) = stream.flow()
                    {
                        flows.connection(bucket.0, hash, kind.as_u8());
                    }
                };
                lane.serve(listener, each).await
            }
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
        let (gets, sets, hits) = (rate(&["cmd-get"]), rate(&["cmd-set"]), rate(&["get-hits"]));
        let rates = [
            ("gets-per-second", gets),
            ("hits-per-second", hits),
            ("sets-per-second", sets),
            ("evictions-per-second", rate(&["evictions"])),
            ("handed-over-per-second", rate(&["handed-over"])),
            ("items", value(&now, "curr-items")),
            ("bytes", value(&now, "allocated-bytes")),
            ("connections", value(&now, "curr-connections")),
        ];
        self.before = now;
        let mut out = stdout::lock();
        if self.json {
            let mut line = json!({"version": 1, "kind": "memcached-interval", "seconds": took.as_secs_f64()});
            rates.iter().for_each(|(name, value)| line[*name] = json!(value));
            writeln!(out, "{line}")?;
        } else {
            let [_, _, _, (_, evictions), (_, over), (_, items), (_, bytes), (_, connections)] = rates;
            writeln!(
                out,
                "memcached: {gets} gets/s, {hits} hits/s, {sets} sets/s, {evictions} evictions/s, {over} handed over/s, \
                 items {items}, bytes {bytes}, connections {connections}"
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
            let mut document = json!({"version": 1, "kind": "memcached-summary"});
            for figure in figures {
                document[figure.name] = Value::from(figure.value);
            }
            writeln!(out, "{document}")?;
            return out.flush();
        }
        for figure in figures.filter(|figure| figure.value > 0) {
            writeln!(out, "memcached: {} {}", figure.value, figure.text)?;
        }
        out.flush()
    }
}

/// One figure; 0 if there is none.
fn value(all: &[ServiceFigures], name: &str) -> u64 {
    let figures = all.iter().flat_map(|service| &service.figures);
    figures.filter(|figure| figure.name == name).map(|figure| figure.value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_memcacheds_options() {
        assert_eq!(megabytes("64"), Ok(64 << 20));
        assert_eq!(megabytes("1Gi"), Ok(1 << 30));
        assert_eq!(item_size("2m"), Ok(2 << 20));
        assert_eq!(item_size("512k"), Ok(512 << 10));
        assert_eq!(item_size("4096"), Ok(4096));
        assert_eq!(idle_time("30"), Ok(Duration::from_secs(30)));
        assert_eq!(idle_time("200ms"), Ok(Duration::from_millis(200)));
        for bad in ["", "x", "-1", "99999999999999999999"] {
            assert!(megabytes(bad).is_err() && item_size(bad).is_err() && idle_time(bad).is_err(), "{bad}");
        }
    }
}
