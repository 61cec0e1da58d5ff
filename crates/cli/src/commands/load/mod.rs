//! `flowlane load`: traffic from many clients on any link, with latencies that count from the intended send time.

#[cfg(feature = "agents")]
mod agents;
mod bursts;
mod compare;
mod course;
mod find;
mod given;
mod home;
mod http;
mod memcached;
mod near;
mod reach;
mod set;
mod side;
mod tcp;
mod udp;
mod ws;

use std::time::Duration;

use clap::Subcommand;
use flowlane::metrics::steering::{self, QueueSteering};
use flowlane::zone;
use flowlane_load::resolve::resolve;

use self::reach::Named;
use crate::address;
use crate::typed::Typed;
use crate::units::show_count;

/// Interval between updates of the display.
const EVERY: Duration = Duration::from_millis(100);

/// Kinds of traffic.
#[derive(Debug, Subcommand)]
pub(crate) enum Load {
    /// Send HTTP requests, over kernel sockets or any link.
    Http(Typed<Box<http::Http>>),
    /// Send UDP datagrams to an echo or discard server.
    Udp(Typed<Box<udp::Udp>>),
    /// Open TCP connections to an echo, discard or source server.
    Tcp(Typed<Box<tcp::Tcp>>),
    /// Send gets and sets to a memcached, and verify the values.
    Memcached(Typed<Box<memcached::Memcached>>),
    /// Send messages over WebSockets to a server that echoes them.
    Ws(Typed<Box<ws::Ws>>),
    #[cfg(feature = "agents")]
    Agent(Typed<Box<agents::Agent>>),
    Compare(Typed<compare::Compare>),
    Set(Typed<set::Set>),
}

impl Load {
    /// Runs the generator.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Http(Typed(http)) => http.run(),
            Self::Udp(Typed(udp)) => course::Load::run(*udp),
            Self::Tcp(Typed(tcp)) => course::Load::run(*tcp),
            Self::Memcached(Typed(memcached)) => course::Load::run(*memcached),
            Self::Ws(Typed(ws)) => course::Load::run(*ws),
            #[cfg(feature = "agents")]
            Self::Agent(Typed(agent)) => agent.run(),
            Self::Compare(Typed(compare)) => compare.run(),
            Self::Set(Typed(set)) => set.run(),
        }
    }

    /// Makes a part of a run that others conduct; returns what came of it, in words.
    #[cfg(feature = "agents")]
    fn make_part(self, errand: agents::Errand, scenario: Option<String>) -> anyhow::Result<String> {
        match self {
            Self::Http(Typed(mut http)) => http.make_part(errand, scenario),
            Self::Tcp(Typed(tcp)) => course::part::make(*tcp, errand),
            Self::Udp(Typed(udp)) => course::part::make(*udp, errand),
            Self::Memcached(Typed(memcached)) => course::part::make(*memcached, errand),
            Self::Ws(Typed(ws)) => course::part::make(*ws, errand),
            Self::Agent(_) | Self::Compare(_) | Self::Set(Typed(_)) => {
                Err(anyhow::anyhow!("makes no such load"))
            }
        }
    }
}

/// Share of frames that arrived on the worker of their bucket, 0 to 1; `None` for kernel sockets.
fn alignment(kernel: bool, counted: &flowlane::stats::Report, host: usize) -> Option<f64> {
    (!kernel).then(|| counted.steering(host).alignment())
}

/// How frames arrived on each queue; none for kernel sockets.
fn arrivals(kernel: bool, counted: &flowlane::stats::Report, host: usize) -> Vec<QueueSteering> {
    if kernel { Vec::new() } else { steering::queues(counted, host) }
}

/// A schedule in words.
fn rate_in_words(per_second: u64, poisson: bool) -> String {
    let law = if poisson { "Poisson" } else { "constant" };
    format!("{law} {}/s", show_count(per_second))
}

/// Parses `ADDRESS:PORT` or `HOST:PORT`.
fn target(text: &str) -> Result<Named, String> {
    address::port_of(text)?;
    if text.starts_with('[') && text.contains('%') {
        return Ok(Named(vec![zone::parse(text)?]));
    }
    if let Ok(address) = text.parse() {
        return Ok(Named(vec![address]));
    }
    let named =
        text.rsplit_once(':').filter(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok());
    let Some((host, port)) = named.filter(|(host, _)| !host.is_empty()) else {
        return Err("ADDRESS:PORT, as 10.11.2.1:7, [fd00::1]:7 or [fe80::1%eth0]:7, or HOST:PORT".into());
    };
    let port = port.parse().map_err(|_| format!("'{port}' is not a port number"))?;
    let mut found = resolve(host, port).map_err(|e| format!("'{host}' cannot be resolved: {e}"))?;
    found.dedup();
    if found.is_empty() { Err(format!("'{host}' has no address")) } else { Ok(Named(found)) }
}
