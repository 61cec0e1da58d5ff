//! `flowlane serve relay`: its arguments, its host, and its own output beside that of every service.

use super::Service;
use super::documents::{RelayInterval, RelaySummary, RelayTarget};
use super::opening::{self, Listening, Seen, Told};
use super::plan::{self, FromKernel, Plan};
use crate::address;
use crate::document::{Named, value};
use crate::fast_open;
use crate::say::say;
use crate::stdout;
use crate::units;
use crate::wrap::listed;
use anyhow::{Context, bail, ensure};
use flowlane::relay::{Balance, MOST_TARGETS, Proxy, Relay, RelayConfig};
use flowlane::stats::Figures;
use flowlane::stats::{RelayCounts, Report, TargetStats};
use flowlane::{Bind, Host, Prefix, SocketError, Steer, TcpListener, UdpSocket, zone};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of the relay.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct RelayArguments {
    #[command(flatten)]
    tcp: plan::TcpArguments,
    /// Relay UDP: each client's flow has a socket of its own to one of the targets.
    #[arg(long, help_heading = "Relay")]
    udp: bool,
    /// Where connections go: 10.0.0.2:80, [fd00::2]:80 or, link-local, [fe80::2%eth0]:80. May be repeated, for one of several targets (--balance).
    #[arg(long, value_name = "ADDR:PORT", required = true, value_delimiter = ',', value_parser = target, help_heading = "Relay")]
    to: Vec<SocketAddr>,
    /// Reach targets by kernel sockets, though clients come over a link of ours.
    #[arg(long, value_name = "kernel", value_parser = via, help_heading = "Relay")]
    via: Option<Via>,
    /// Accept clients on kernel sockets, though targets are reached over a link of ours: kernel, on all addresses of the machine, or
    /// kernel:ADDR.
    #[arg(long, value_name = "kernel[:ADDR]", value_parser = from, help_heading = "Relay")]
    from: Option<FromKernel>,
    /// Which of several targets a connection gets: hash, by the hash of its flow, so that a target that goes down moves only its own flows;
    /// least, the one with fewest connections in the lane.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Kind::Hash, help_heading = "Relay")]
    balance: Kind,
    /// Connect to each target at this interval; one that does not answer three times gets no connections until it answers twice
    /// [default: 2s, if given without a value].
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", value_parser = units::duration, help_heading = "Relay")]
    health: Option<Duration>,
    /// Limit for connecting to a target, and for a client's PROXY header [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = units::duration, help_heading = "Relay")]
    connect_timeout: Option<Duration>,
    /// Limit for the time in which nothing passes on a connection, before both sides are reset; 0s for none. With --udp, for a flow, before
    /// its socket is closed [default: 10m, with --udp 1m].
    #[arg(long, value_name = "TIME", value_parser = units::duration, help_heading = "Relay")]
    idle_timeout: Option<Duration>,
    /// Most open connections in each lane; further ones are reset. With --udp most flows, whose further datagrams are dropped.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = units::count, help_heading = "Relay")]
    max_connections: u64,
    /// Clients send a PROXY header, version 1 or 2, before anything else; those that do not are reset.
    #[arg(long, help_heading = "Relay")]
    proxy_in: bool,
    /// Send targets a PROXY header of this version, which tells them who the client is.
    #[arg(long, value_name = "VERSION", value_enum, help_heading = "Relay")]
    proxy_out: Option<Version>,
}

/// Values of `--balance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Hash,
    Least,
}

/// Values of `--via`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Via {
    Kernel,
}

/// The value of `--via`.
fn via(text: &str) -> Result<Via, String> {
    match text {
        "kernel" => Ok(Via::Kernel),
        _ => Err("must be kernel; without it targets are reached over the link (--link)".to_owned()),
    }
}

/// The value of `--from`.
fn from(text: &str) -> Result<FromKernel, String> {
    if text == "kernel" {
        return Ok(FromKernel(None, 0));
    }
    let address =
        text.strip_prefix("kernel:").ok_or("must be kernel, or kernel: and an address of this machine")?;
    let (ip, zone) = zone::parse_ip(address)?;
    address::ours_for_kernel(ip, zone).map_err(|e| e.to_string())?;
    Ok(FromKernel(Some(ip), zone))
}

/// Values of `--proxy-out`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Version {
    V1,
    V2,
}

/// A target, as it is given.
fn target(text: &str) -> Result<SocketAddr, String> {
    address::port_of(text)?;
    let at = zone::parse(text)?;
    let ip = at.ip();
    let broadcast = matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
    if at.port() == 0 || ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err("not an address and a port that one can connect to".to_owned());
    }
    Ok(at)
}

/// The relay of a plan.
pub(super) struct Relaying {
    relay: Relay,
    udp: bool,
    by_kernel: bool,
    json: bool,
    before: RelayCounts,
}

/// The plan, and the relay that belongs to it.
pub(super) fn plan(arguments: RelayArguments) -> anyhow::Result<(Plan, Relaying)> {
    let mut a = arguments;
    ensure!(a.max_connections > 0, "--max-connections 0: must be at least 1");
    ensure!(a.connect_timeout.is_none_or(|t| !t.is_zero()), "--connect-timeout 0s: must be more than 0");
    if a.udp {
        check_udp(&a)?;
    }
    if a.health.is_some_and(|every| every < Duration::from_millis(10)) {
        bail!("--health: must be at least 10ms");
    }
    ensure!(a.to.len() <= MOST_TARGETS, "--to: {} targets, at most {MOST_TARGETS}", a.to.len());
    for (i, to) in a.to.iter().enumerate() {
        ensure!(!a.to[..i].contains(to), "--to {to}: given twice");
    }
    let by_kernel = a.via == Some(Via::Kernel);
    a.tcp.beside_kernel(by_kernel || a.from.is_some());
    let mut plan = if a.udp { Plan::udp_relay(a.tcp)? } else { Plan::tcp(Service::Relay, a.tcp)? };
    if a.from.is_some() {
        ensure!(
            !by_kernel,
            "--from kernel: not with --via kernel; without --link both sides are kernel sockets"
        );
        ensure!(
            !plan.link.is_kernel(),
            "--from kernel: without a link of ours both sides are kernel sockets"
        );
        ensure!(
            plan.listen.is_none(),
            "--listen-buckets: not with --from kernel, which spreads connections itself"
        );
        if plan.fast_open.is_some() {
            fast_open::check_kernel(fast_open::End::Server)?;
        }
    }
    plan.from_kernel = a.from;
    ensure!(
        !(by_kernel && plan.link.is_kernel()),
        "--via kernel: without a link of ours both sides are kernel sockets"
    );
    let idle = a.idle_timeout.unwrap_or(Duration::from_secs(if a.udp { 60 } else { 600 }));
    a.to.iter().try_for_each(|to| check_target(&plan, *to, by_kernel))?;
    let tell = |target: SocketAddr, up: bool| {
        say!("flowlane: target {target} is {}", if up { "up again" } else { "down" });
    };
    let config = RelayConfig {
        targets: a.to,
        by_kernel,
        balance: if a.balance == Kind::Hash { Balance::Hash } else { Balance::Least },
        connect_timeout: a.connect_timeout.unwrap_or(Duration::from_secs(5)),
        idle: Some(idle).filter(|idle| !idle.is_zero()),
        health: a.health,
        proxy_in: a.proxy_in,
        proxy_out: a.proxy_out.map(|v| if v == Version::V1 { Proxy::V1 } else { Proxy::V2 }),
        most: a.max_connections,
        tell: Some(Arc::new(tell)),
    };
    let relay = Relay::new(config, plan.rss.buckets.len());
    let json = plan.json;
    Ok((plan, Relaying { relay, udp: a.udp, by_kernel, json, before: RelayCounts::default() }))
}

/// Refuses options that mean nothing without connections.
fn check_udp(a: &RelayArguments) -> anyhow::Result<()> {
    for (option, given) in [("--proxy-in", a.proxy_in), ("--proxy-out", a.proxy_out.is_some())] {
        ensure!(!given, "{option}: not with --udp: the PROXY protocol is for connections");
    }
    ensure!(
        a.connect_timeout.is_none(),
        "--connect-timeout: not with --udp: there is nothing to wait for (see --idle-timeout)"
    );
    ensure!(
        a.health.is_none(),
        "--health: not with --udp: a check is a connection, and datagrams that a target refuses are noticed without"
    );
    let endless = a.idle_timeout.is_some_and(|idle| idle.is_zero());
    ensure!(!endless, "--idle-timeout 0s: must be more than 0 with --udp: nothing else ends a flow");
    Ok(())
}

/// Refuses a target that the relay itself would be, and one that our addresses do not reach.
fn check_target(plan: &Plan, to: SocketAddr, by_kernel: bool) -> anyhow::Result<()> {
    let ours = |ip| plan.addresses.iter().map(Prefix::address).any(|a| a == ip);
    let all = match plan.from_kernel {
        Some(FromKernel(address, _)) => address.is_none_or(|address| address == to.ip()),
        None => plan.link.is_kernel() && plan.addresses.is_empty(),
    };
    // An address of this machine can be bound.
    let own =
        ours(to.ip()) && plan.from_kernel.is_none() || all && std::net::UdpSocket::bind((to.ip(), 0)).is_ok();
    ensure!(to.port() != plan.port || !own, "--to {to}: is the relay itself (see --port)");
    if plan.link.is_kernel() || by_kernel {
        address::for_kernel(to).context("--to")?;
    } else {
        let family = plan.asked.family(to.is_ipv4())
            || plan.addresses.iter().any(|a| a.address().is_ipv4() == to.is_ipv4());
        ensure!(family, "--to {to}: none of our addresses (--addr) is of its family");
    }
    Ok(())
}

/// Has one lane ask the targets whether they are there.
fn check_in_one(relay: &Relay) -> Result<(), SocketError> {
    let first = flowlane::current().is_ok_and(|lane| lane.bucket.0 == 0);
    if first { relay.check() } else { Ok(()) }
}

impl Relaying {
    /// The host that relays.
    pub(super) fn host(&self, plan: &Plan, told: Told) -> Host {
        if self.udp {
            return self.datagrams(plan, told);
        }
        let (listening, checked) = (Listening::of(plan, Relay::listen_options()), self.relay.clone());
        let open = move || {
            check_in_one(&checked)?;
            listening.open()
        };
        let relay = self.relay.clone();
        let serve = move |listener: Option<TcpListener>, seen: Seen| {
            let relay = relay.clone();
            async move {
                let Some(listener) = listener else { return Ok(()) };
                relay.serve_each(listener, |stream: &flowlane::TcpStream| seen.connection(stream)).await
            }
        };
        self.beside(plan, opening::host(plan, told, open, serve))
    }

    /// Gives a host on a link of ours kernel sockets, too, if one side has those. Clients come to the lanes of their flows.
    fn beside(&self, plan: &Plan, host: Host) -> Host {
        match (plan.from_kernel, self.by_kernel) {
            (Some(FromKernel(_, zone)), _) => host.beside_kernel().steer(Steer::Hash).zone(zone),
            (None, true) => host.beside_kernel(),
            (None, false) => host,
        }
    }

    /// The host that relays datagrams.
    fn datagrams(&self, plan: &Plan, told: Told) -> Host {
        let bind = Bind { local_ip: plan.bind(), ..Bind::port(plan.port) };
        let (checked, from_kernel) = (self.relay.clone(), plan.from_kernel.is_some());
        let open = move || {
            check_in_one(&checked)?;
            if from_kernel { UdpSocket::bind_by_kernel(bind) } else { UdpSocket::bind(bind) }
        };
        let relay = self.relay.clone();
        let serve = move |socket, seen: Seen| {
            let relay = relay.clone();
            async move { relay.serve_datagrams(socket, |batch| seen.datagrams(batch)).await }
        };
        self.beside(plan, opening::host(plan, told, open, serve))
    }

    /// Lets open connections end, within `grace`, and resets the rest.
    pub(super) fn stop(&self, grace: Duration) {
        self.relay.stop_within(grace);
    }

    /// Prints the counts since the last interval.
    pub(super) fn interval(&mut self, report: &Report, took: Duration) -> io::Result<()> {
        // The only host.
        let now = report.relay(0).unwrap_or_default();
        let second = took.as_secs_f64().max(1e-9);
        let of = |counts: &RelayCounts, get: fn(&TargetStats) -> u64| {
            counts.targets.iter().map(|(_, t)| get(t)).sum::<u64>()
        };
        let since = |get: fn(&TargetStats) -> u64| of(&now, get).saturating_sub(of(&self.before, get));
        let (connections, failed) = (since(|t| t.connections), since(TargetStats::failed));
        let (up, down) = (since(|t| t.to_target_bytes), since(|t| t.to_client_bytes));
        let what = if self.udp { "flows" } else { "connections" };
        let rate = |count: u64| (count as f64 / second).round() as u64;
        let mut out = stdout::lock();
        if self.json {
            let line = RelayInterval {
                version: 1,
                kind: "relay-interval",
                seconds: second,
                connections,
                connections_per_second: rate(connections),
                connections_open: now.relay.open,
                connects_failed: failed,
                to_target_bytes: up,
                to_client_bytes: down,
            };
            writeln!(out, "{}", value(line))?;
        } else {
            let parts = [
                format!("{} {what}/s", rate(connections)),
                format!("open {}", now.relay.open),
                format!("bytes/s to targets {}", rate(up)),
                format!("to clients {}", rate(down)),
                format!("failed connects {failed}"),
            ];
            writeln!(out, "{}", listed("relay:", &parts))?;
        }
        self.before = now;
        out.flush()
    }

    /// Prints the totals, at the end.
    pub(super) fn summary(&self, report: &Report, host: usize) -> io::Result<()> {
        let counts = report.relay(host).unwrap_or_default();
        let mut out = stdout::lock();
        if self.json {
            let targets = counts.targets.iter();
            let targets =
                targets.map(|(name, stats)| RelayTarget { target: name.clone(), counts: Named(*stats) });
            let document = RelaySummary {
                version: 1,
                kind: "relay-summary",
                counts: Named(counts.relay),
                targets: targets.collect(),
            };
            writeln!(out, "{}", value(document))?;
            return out.flush();
        }
        for (name, t) in &counts.targets {
            let parts = [
                format!("{} {}", if self.udp { "flows" } else { "connections" }, t.connections),
                format!("bytes to it {}", t.to_target_bytes),
                format!("from it {}", t.to_client_bytes),
                format!("failed connects {}", t.failed()),
                format!("resets {} of clients", t.client_resets),
                format!("{} of the target", t.target_resets),
            ];
            writeln!(out, "{}", listed(&format!("target {name}:"), &parts))?;
            let mut rest = Vec::new();
            t.each(&mut |c| {
                if c.value > 0 && !SAID.contains(&c.name) {
                    rest.push(format!("{} {}", c.value, c.text));
                }
            });
            for line in rest {
                writeln!(out, "    {line}")?;
            }
        }
        let mut rest = Vec::new();
        counts.relay.each(&mut |c| {
            if c.value > 0 {
                rest.push(format!("relay: {} {}", c.value, c.text));
            }
        });
        for line in rest {
            writeln!(out, "{line}")?;
        }
        out.flush()
    }
}

/// Counters of a target that have their place in its line.
const SAID: [&str; 6] =
    ["up", "connections", "to-target-bytes", "to-client-bytes", "client-resets", "target-resets"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(target("10.0.0.2:80"), Ok(SocketAddr::from(([10, 0, 0, 2], 80))));
        assert!(target("[fd00::2]:80").is_ok_and(|at| at.is_ipv6()));
        for bad in ["10.0.0.2", "fd00::2:80", "web:80", ":80", "10.0.0.2:0", "0.0.0.0:80", "[ff02::1]:80", ""]
        {
            assert!(target(bad).is_err_and(|why| !why.contains('\n')), "{bad}");
        }
    }
}
