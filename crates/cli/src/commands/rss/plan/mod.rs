//! `flowlane rss plan`: finds sources that reach given buckets.
//!
//! For a sender: the target's steering is known, and the command finds source addresses, or source ports of one address, that the target's
//! card puts into given buckets. For a client (`--replies`): it finds local ports for which replies reach given buckets of ours; these are
//! solved for ([`HomePorts`]), not searched, as the stack does for every connection that it opens. If ports are not hashed, only addresses
//! make a difference, and the output says so.
//!
//! Two questions more are answered for the flows of a list or a capture ([`flows`]): which key spreads them ([`keys`]), and what another
//! table would move ([`change`]).

mod change;
mod flows;
mod keys;
mod target;

use super::documents;
use crate::document::value;
use crate::exit::Missed;
use crate::rss_options::{self, End, Steering, Which};
use crate::rule_file::RuleOption;
use crate::stdout;
use anyhow::{Context, bail};
use flowlane::Prefix;
use flowlane_rss::{Bucket, Flow, HomePorts, Protocol};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use target::Target;

/// Most source addresses that are tried; an IPv6 prefix has too many to try all.
const LIMIT: usize = 1 << 24;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// Destination of the packets.
    #[arg(long, value_name = "DST[:PORT]", required_unless_present_any = ["find_key", "change_to"])]
    to: Option<End>,
    /// Source addresses: one address, ADDRESS/LENGTH or FIRST-LAST.
    #[arg(long, value_name = "ADDR|RANGE", required_unless_present_any = ["find_key", "change_to"])]
    from: Option<String>,
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
    /// So many sources in all, as many for each bucket, and one more for the first ones if it does not divide.
    #[arg(long, value_name = "N", conflicts_with = "count")]
    streams: Option<usize>,
    /// The steering is this card's, as its driver tells it now: buckets are its queues.
    #[arg(long, value_name = "IFACE", value_parser = crate::interface::named, help_heading = "Steering")]
    #[arg(conflicts_with_all = ["rss", "key", "slots", "workers", "udp_4tuple"])]
    card: Option<String>,
    /// Search for a key that spreads the flows of --flows as the table does, for 'ethtool -X IFACE hkey'.
    #[arg(long, conflicts_with_all = ["to", "from", "change_to"], requires = "flows")]
    find_key: bool,
    /// What this table would move: 'equal N' or 'weight W0 W1 ...' as for ethtool, queues such as 0,1,2,3, or a file of 'rss learn'.
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["to", "from"])]
    change_to: Option<String>,
    /// The flows: a list with 'SRC[:PORT] DST[:PORT] [tcp|udp]' in each line, or a capture.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "from"])]
    flows: Option<PathBuf>,
    /// Keys to try.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "find_key")]
    tries: usize,
    /// Seed of the keys to try; random by default.
    #[arg(long, value_name = "N", requires = "find_key")]
    seed: Option<u64>,
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
        if self.find_key {
            return self.find_key();
        }
        if let Some(table) = &self.change_to {
            return self.change(table);
        }
        let (Some(end), Some(from)) = (self.to, &self.from) else { bail!("--to and --from: give both") };
        let target = Target::of(self.card.as_deref(), &self.rule, &self.steering, self.of, true)?;
        let rss = &target.rss;
        let mut wanted = rss_options::buckets("--buckets", &self.buckets, rss.buckets.len())?;
        if target.queues && self.buckets == "all" {
            // Queues that a card's table does not name cannot be reached.
            wanted.retain(|queue| !rss.slots_of_bucket(*queue).is_empty());
        }
        let (first, last) = addresses(from)?;
        if first.is_ipv4() != end.ip.is_ipv4() {
            bail!("--from and --to: addresses of two families");
        }
        if self.count == 0 || self.streams == Some(0) {
            bail!("--{} 0: nothing to find", if self.count == 0 { "count" } else { "streams" });
        }
        if let Some(streams) = self.streams.filter(|n| *n > LIMIT) {
            bail!("--streams {streams}: at most {LIMIT}");
        }
        let ports = ports(&self.ports)?;
        let protocol = self.which.protocol(true);
        let to = SocketAddr::new(end.ip, end.port.unwrap_or(0));
        let probe = Flow::new(SocketAddr::new(first, 1), to, protocol);
        target.must_know_kind(&probe)?;
        let with_ports = rss.config.type_of(&probe).has_ports();
        if with_ports && end.port.is_none() {
            bail!("--to {}: these packets are hashed with ports, so give one", end.ip);
        }
        let found = match (self.replies, with_ports) {
            (true, true) => self.replies(&target, &wanted, (first, last), to, &ports)?,
            (true, false) => self.by_address(&target, &wanted, (first, last), to, protocol)?,
            (false, true) => self.by_port(&target, &wanted, (first, last), to, &ports),
            (false, false) => self.by_address(&target, &wanted, (first, last), to, protocol)?,
        };
        self.print(&target, &found, with_ports)?;
        let book = self.book(&wanted);
        let missing: Vec<String> = wanted
            .iter()
            .filter(|b| {
                let n = found.iter().filter(|s| s.bucket == **b).count();
                // Each of so many streams was asked for; of the others some.
                n == 0 && book.wants(**b) > 0 || self.streams.is_some() && n < book.wants(**b)
            })
            .map(ToString::to_string)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let what = if with_ports { "address or port" } else { "address (ports are not hashed)" };
        let enough = if self.streams.is_some() {
            "too few of the addresses and ports given reach".into()
        } else {
            format!("no {what} given reaches")
        };
        Err(Missed(format!("{enough} {} {}", target.unit(), missing.join(", "))).into())
    }

    /// How many sources each bucket wants.
    fn book(&self, wanted: &[Bucket]) -> Book {
        match self.streams {
            Some(streams) => {
                let (each, more) = (streams / wanted.len().max(1), streams % wanted.len().max(1));
                Book::new(
                    wanted.iter().enumerate().map(|(i, bucket)| (*bucket, each + usize::from(i < more))),
                )
            }
            None => Book::new(wanted.iter().map(|bucket| (*bucket, self.count))),
        }
    }

    /// Tries the source ports of each address in turn: a hash is cheap, and there are 65535 ports.
    fn by_port(
        &self,
        target: &Target,
        wanted: &[Bucket],
        (first, last): (IpAddr, IpAddr),
        to: SocketAddr,
        ports: &RangeInclusive<u16>,
    ) -> Vec<Source> {
        let protocol = self.which.protocol(true);
        let mut book = self.book(wanted);
        'all: for ip in sources(first, last, to) {
            for port in ports.clone() {
                let flow = Flow::new(SocketAddr::new(ip, port), to, protocol);
                if !target.knows(&flow) {
                    continue;
                }
                let steered = target.rss.steer(&flow);
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
        target: &Target,
        wanted: &[Bucket],
        (first, last): (IpAddr, IpAddr),
        to: SocketAddr,
        ports: &RangeInclusive<u16>,
    ) -> anyhow::Result<Vec<Source>> {
        let (rss, protocol) = (&target.rss, self.which.protocol(true));
        let mut book = self.book(wanted);
        for &bucket in wanted {
            let home = HomePorts::new(rss, &rss.slots_of_bucket(bucket));
            for ip in sources(first, last, to) {
                let solved = home.to(ip, to, protocol)?;
                let usable = solved.iter().filter(|port| *port != 0 && ports.contains(port));
                for port in usable {
                    let flow = Flow::new(to, SocketAddr::new(ip, port), protocol);
                    if !target.knows(&flow) {
                        continue;
                    }
                    let steered = rss.steer(&flow);
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
        target: &Target,
        wanted: &[Bucket],
        (first, last): (IpAddr, IpAddr),
        to: SocketAddr,
        protocol: Protocol,
    ) -> anyhow::Result<Vec<Source>> {
        let mut book = self.book(wanted);
        for ip in sources(first, last, to) {
            let flow = Flow::new(SocketAddr::new(ip, 0), to, protocol);
            let flow = if self.replies { flow.reply() } else { flow };
            if !target.knows(&flow) {
                continue;
            }
            let steered = target.rss.steer(&flow);
            if book.add(Source { bucket: steered.bucket, ip, port: None, hash: steered.hash }) {
                break;
            }
        }
        Ok(book.sources())
    }

    fn print(&self, target: &Target, found: &[Source], with_ports: bool) -> io::Result<()> {
        let rss = &target.rss;
        let mut out = stdout::lock();
        if self.json {
            let source = |s: &Source| documents::Source {
                bucket: s.bucket.0,
                worker: rss.buckets.worker_of(s.bucket).0,
                address: s.ip,
                port: s.port,
                hash: s.hash,
            };
            let document = documents::Plan {
                version: 1,
                key: target.by.clone(),
                direction: if self.replies { "replies" } else { "requests" },
                ports_hashed: with_ports,
                buckets: rss.buckets.len(),
                sources: found.iter().map(source).collect(),
            };
            return writeln!(out, "{}", value(document));
        }
        writeln!(out, "# key {}", target.by)?;
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

/// What was found so far, and how many each bucket wants.
struct Book {
    found: BTreeMap<Bucket, (usize, Vec<Source>)>,
    open: usize,
}

impl Book {
    fn new(wanted: impl Iterator<Item = (Bucket, usize)>) -> Self {
        let found: BTreeMap<Bucket, (usize, Vec<Source>)> =
            wanted.map(|(b, count)| (b, (count, Vec::new()))).collect();
        let open = found.values().filter(|(count, _)| *count > 0).count();
        Self { found, open }
    }

    /// Adds a source if its bucket still needs one; `true` if no bucket needs more.
    fn add(&mut self, source: Source) -> bool {
        if let Some((count, list)) =
            self.found.get_mut(&source.bucket).filter(|(count, list)| list.len() < *count)
        {
            list.push(source);
            if list.len() == *count {
                self.open -= 1;
            }
        }
        self.open == 0
    }

    fn wants(&self, bucket: Bucket) -> usize {
        self.found.get(&bucket).map_or(0, |(count, _)| *count)
    }

    fn has_enough(&self, bucket: Bucket) -> bool {
        self.found.get(&bucket).is_none_or(|(count, list)| list.len() >= *count)
    }

    fn sources(self) -> Vec<Source> {
        self.found.into_values().flat_map(|(_, list)| list).collect()
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
