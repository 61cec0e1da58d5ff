//! `flowlane rss plan`: finds sources that reach given buckets.
//!
//! For a sender: the target's steering is known, and the command finds source addresses, or source ports of one address, that the target's
//! card puts into given buckets. For a client (`--replies`): it finds local ports for which replies reach given buckets of ours; these are
//! solved for ([`HomePorts`]), not searched, as the stack does for every connection that it opens. If ports are not hashed, only addresses
//! make a difference, and the output says so.

use super::steering::{self, DefaultKey, End, Steering, Which};
use crate::exit::Missed;
use crate::rule_file::RuleOption;
use anyhow::{Context, bail};
use flowlane::Prefix;
use flowlane_rss::{Bucket, Flow, HomePorts, Protocol, Rss};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// Most source addresses that are tried; an IPv6 prefix has too many to try all.
const LIMIT: usize = 1 << 24;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// Destination of the packets.
    #[arg(long, value_name = "DST[:PORT]")]
    to: End,
    /// Source addresses: one address, ADDRESS/LENGTH or FIRST-LAST.
    #[arg(long, value_name = "ADDR|RANGE")]
    from: String,
    /// Source ports to choose from (with --replies: local ports).
    #[arg(long, value_name = "A-B", default_value = "49152-65535")]
    ports: String,
    /// Buckets to reach: numbers and ranges such as 0,3 or 4-7, or 'all'.
    #[arg(long, value_name = "LIST|all", default_value = "all")]
    buckets: String,
    /// Number of all buckets, a power of two [default: at least two for each worker].
    #[arg(long, value_name = "N")]
    of: Option<usize>,
    /// Sources to find for each bucket.
    #[arg(long, value_name = "N", default_value_t = 4)]
    count: usize,
    /// Find local ports for which replies reach these buckets: the steering is ours, not the target's.
    #[arg(long)]
    replies: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    steering: Steering,
    #[command(flatten)]
    rule: RuleOption,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One result.
#[derive(Debug, Clone, Copy)]
struct Source {
    bucket: Bucket,
    ip: IpAddr,
    port: Option<u16>,
    hash: u32,
}

impl Plan {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let rule = self.rule.read()?;
        let rss = match &rule {
            Some(_) if self.of.is_some() => bail!("--of: with --rss buckets are the card's queues"),
            Some(rule) => rule.steering()?,
            None => self.steering.build(self.of, DefaultKey::Microsoft, true)?,
        };
        let mut wanted = steering::buckets("--buckets", &self.buckets, rss.buckets.len())?;
        if rule.is_some() && self.buckets == "all" {
            // Queues that a card's table does not name cannot be reached.
            wanted.retain(|queue| !rss.slots_of_bucket(*queue).is_empty());
        }
        let (first, last) = addresses(&self.from)?;
        if first.is_ipv4() != self.to.ip.is_ipv4() {
            bail!("--from and --to: addresses of two families");
        }
        if self.count == 0 {
            bail!("--count 0: nothing to find");
        }
        let ports = ports(&self.ports)?;
        let protocol = self.which.protocol(true);
        let to = SocketAddr::new(self.to.ip, self.to.port.unwrap_or(0));
        let probe = Flow::new(SocketAddr::new(first, 1), to, protocol);
        if let Some(rule) = &rule {
            rule.must_know(&probe)?;
        }
        let with_ports = rss.config.type_of(&probe).has_ports();
        if with_ports && self.to.port.is_none() {
            bail!("--to {}: these packets are hashed with ports, so give one", self.to.ip);
        }
        let found = match (self.replies, with_ports) {
            (true, true) => self.replies(&rss, &wanted, (first, last), to, &ports)?,
            (true, false) => self.by_address(&rss, &wanted, (first, last), to, protocol)?,
            (false, true) => self.by_port(&rss, &wanted, (first, last), to, &ports),
            (false, false) => self.by_address(&rss, &wanted, (first, last), to, protocol)?,
        };
        self.print(&rss, &found, with_ports)?;
        let missing: Vec<String> = wanted
            .iter()
            .filter(|b| !found.iter().any(|s| s.bucket == **b))
            .map(ToString::to_string)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let what = if with_ports { "address or port" } else { "address (ports are not hashed)" };
        Err(Missed(format!("no {what} given reaches bucket {}", missing.join(", "))).into())
    }

    /// Tries the source ports of each address in turn: a hash is cheap, and there are 65535 ports.
    fn by_port(
        &self,
        rss: &Rss,
        wanted: &[Bucket],
        (first, last): (IpAddr, IpAddr),
        to: SocketAddr,
        ports: &RangeInclusive<u16>,
    ) -> Vec<Source> {
        let protocol = self.which.protocol(true);
        let mut book = Book::new(wanted, self.count);
        'all: for ip in sources(first, last, to) {
            for port in ports.clone() {
                let steered = rss.steer(&Flow::new(SocketAddr::new(ip, port), to, protocol));
                if book.add(Source { bucket: steered.bucket, ip, port: Some(port), hash: steered.hash }) {
                    break 'all;
                }
            }
        }
        book.sources()
    }

    /// Solves for the local ports whose replies reach the buckets.
    fn replies(
        &self,
        rss: &Rss,
        wanted: &[Bucket],
        (first, last): (IpAddr, IpAddr),
        to: SocketAddr,
        ports: &RangeInclusive<u16>,
    ) -> anyhow::Result<Vec<Source>> {
        let protocol = self.which.protocol(true);
        let mut book = Book::new(wanted, self.count);
        for &bucket in wanted {
            let home = HomePorts::new(rss, &rss.slots_of_bucket(bucket));
            for ip in sources(first, last, to) {
                let solved = home.to(ip, to, protocol)?;
                let usable = solved.iter().filter(|port| *port != 0 && ports.contains(port));
                for port in usable {
                    let steered = rss.steer(&Flow::new(to, SocketAddr::new(ip, port), protocol));
                    book.add(Source { bucket: steered.bucket, ip, port: Some(port), hash: steered.hash });
                    if book.has_enough(bucket) {
                        break;
                    }
                }
                if book.has_enough(bucket) {
                    break;
                }
            }
        }
        Ok(book.sources())
    }

    /// Tries source addresses, for cards that hash addresses only.
    fn by_address(
        &self,
        rss: &Rss,
        wanted: &[Bucket],
        (first, last): (IpAddr, IpAddr),
        to: SocketAddr,
        protocol: Protocol,
    ) -> anyhow::Result<Vec<Source>> {
        let mut book = Book::new(wanted, self.count);
        for ip in sources(first, last, to) {
            let flow = Flow::new(SocketAddr::new(ip, 0), to, protocol);
            let steered = rss.steer(&if self.replies { flow.reply() } else { flow });
            if book.add(Source { bucket: steered.bucket, ip, port: None, hash: steered.hash }) {
                break;
            }
        }
        Ok(book.sources())
    }

    fn print(&self, rss: &Rss, found: &[Source], with_ports: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            let sources: Vec<_> = found
                .iter()
                .map(|s| {
                    serde_json::json!({
                        "bucket": s.bucket.0, "worker": rss.buckets.worker_of(s.bucket).0,
                        "address": s.ip, "port": s.port, "hash": s.hash,
                    })
                })
                .collect();
            let value = serde_json::json!({
                "version": 1, "key": self.rule.in_words().unwrap_or_else(|| self.steering.key_in_words()), "direction": if self.replies { "replies" } else { "requests" },
                "ports-hashed": with_ports, "buckets": rss.buckets.len(), "sources": sources,
            });
            return writeln!(out, "{value}");
        }
        writeln!(out, "# key {}", self.rule.in_words().unwrap_or_else(|| self.steering.key_in_words()))?;
        if !with_ports {
            writeln!(out, "# ports are not hashed: every port of an address goes the same way")?;
        }
        let head = if self.replies { "local end" } else { "source" };
        writeln!(out, "{:>6} {:>6}  {:<8}  {head}", "bucket", "worker", "hash")?;
        for s in found {
            let end = s.port.map_or_else(|| s.ip.to_string(), |port| SocketAddr::new(s.ip, port).to_string());
            let worker = rss.buckets.worker_of(s.bucket);
            writeln!(out, "{:>6} {:>6}  {:08x}  {end}", s.bucket, worker, s.hash)?;
        }
        Ok(())
    }
}

/// What was found so far, for each bucket that is wanted.
struct Book {
    count: usize,
    found: BTreeMap<Bucket, Vec<Source>>,
    open: usize,
}

impl Book {
    fn new(wanted: &[Bucket], count: usize) -> Self {
        Self { count, found: wanted.iter().map(|b| (*b, Vec::new())).collect(), open: wanted.len() }
    }

    /// Adds a source if its bucket still needs one; `true` if no bucket needs more.
    fn add(&mut self, source: Source) -> bool {
        if let Some(list) = self.found.get_mut(&source.bucket).filter(|list| list.len() < self.count) {
            list.push(source);
            if list.len() == self.count {
                self.open -= 1;
            }
        }
        self.open == 0
    }

    fn has_enough(&self, bucket: Bucket) -> bool {
        self.found.get(&bucket).is_none_or(|list| list.len() >= self.count)
    }

    fn sources(self) -> Vec<Source> {
        self.found.into_values().flatten().collect()
    }
}

/// An address, a prefix (its host addresses) or a range, as its first and last address.
fn addresses(text: &str) -> anyhow::Result<(IpAddr, IpAddr)> {
    if let Some((first, last)) = text.split_once('-') {
        let parse = |s: &str| s.trim().parse::<IpAddr>().with_context(|| format!("--from '{s}'"));
        let (first, last) = (parse(first)?, parse(last)?);
        if first.is_ipv4() != last.is_ipv4() || first > last {
            bail!("--from {text}: the last address is not behind the first");
        }
        return Ok((first, last));
    }
    let prefix: Prefix = text.parse().context("--from")?;
    let count = prefix.count();
    // Leave out the network's own address and the broadcast address, as hosts do.
    let host = prefix.address().is_ipv4() && count > 2;
    let (low, high) = if host { (1, count - 2) } else { (0, count - 1) };
    match (prefix.nth(low), prefix.nth(high)) {
        (Some(first), Some(last)) => Ok((first, last)),
        _ => bail!("--from {text}: no addresses"),
    }
}

/// The source addresses to try: not the destination, and at most [`LIMIT`].
fn sources(first: IpAddr, last: IpAddr, to: SocketAddr) -> impl Iterator<Item = IpAddr> {
    between(first, last).take(LIMIT).filter(move |ip| *ip != to.ip())
}

fn between(first: IpAddr, last: IpAddr) -> Box<dyn Iterator<Item = IpAddr>> {
    match (first, last) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Box::new((a.to_bits()..=b.to_bits()).map(|n| IpAddr::V4(n.into()))),
        (IpAddr::V6(a), IpAddr::V6(b)) => Box::new((a.to_bits()..=b.to_bits()).map(|n| IpAddr::V6(n.into()))),
        _ => Box::new(std::iter::empty()),
    }
}

fn ports(text: &str) -> anyhow::Result<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => bail!("--ports {text}: must be PORT or FIRST-LAST, from 1 to 65535"),
    }
}
