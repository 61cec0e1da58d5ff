//! `flowlane rss hash`: one packet's way from its fields to its worker.

use super::documents;
use crate::document::value;
use crate::rss_options::{DefaultKey, End, Steering, Which};
use crate::rule_file::RuleOption;
use crate::stdout;
use anyhow::bail;
use flowlane_rss::{Explanation, Fields, Flow, Protocol, Rss};
use std::io::{self, Write};
use std::net::SocketAddr;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Hash {
    /// Source address; with a port the packet is hashed as TCP or UDP.
    #[arg(value_name = "SRC[:PORT]")]
    source: End,
    /// Destination address.
    #[arg(value_name = "DST[:PORT]")]
    destination: End,
    #[command(flatten)]
    which: Which,
    /// Take the packet as a fragment.
    #[arg(long)]
    fragment: bool,
    #[command(flatten)]
    steering: Steering,
    #[command(flatten)]
    rule: RuleOption,
    /// Number of buckets, a power of two [default: at least two for each worker].
    #[arg(long, value_name = "N")]
    buckets: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Hash {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let flow = flow_of(self.source, self.destination, self.which, self.fragment)?;
        let ports = self.source.port.is_some();
        if !ports && flow.protocol == Protocol::UDP && self.steering.udp_4tuple && !self.fragment {
            bail!("with --udp-4tuple UDP is hashed with ports: give both");
        }
        let rss = match self.rule.read()? {
            Some(_) if self.buckets.is_some() => bail!("--buckets: with --rss they are the card's queues"),
            Some(rule) => {
                rule.must_know(&flow)?;
                let rss = rule.steering()?;
                if !ports && rss.config.type_of(&flow).has_ports() {
                    bail!("this card hashes {} with ports: give both", flow.protocol);
                }
                rss
            }
            None => self.steering.build(self.buckets, DefaultKey::Microsoft, false)?,
        };
        let key = self.rule.in_words().unwrap_or_else(|| self.steering.key_in_words());
        let why = rss.explain(&flow);
        let out = stdout::lock();
        if self.json {
            json(out, &rss, &why, &key)?;
        } else {
            text(out, &rss, &why, ports, &key)?;
        }
        Ok(())
    }
}

/// The packet that two ends and a protocol name.
///
/// # Errors
/// Ends of two families, a port on one side only, TCP without ports.
pub(super) fn flow_of(a: End, b: End, which: Which, fragment: bool) -> anyhow::Result<Flow> {
    if a.ip.is_ipv4() != b.ip.is_ipv4() {
        bail!("{} and {}: addresses of two families", a.ip, b.ip);
    }
    if a.port.is_some() != b.port.is_some() {
        bail!("give a port on both sides or on none");
    }
    let protocol = which.protocol(a.port.is_some());
    if a.port.is_none() && protocol == Protocol::TCP && !fragment {
        bail!("TCP is hashed with ports: give both");
    }
    let end = |e: End| SocketAddr::new(e.ip, e.port.unwrap_or(0));
    Ok(Flow { fragment, ..Flow::new(end(a), end(b), protocol) })
}

fn fields(fields: Fields) -> &'static str {
    match fields {
        Fields::None => "nothing",
        Fields::Addresses => "addresses",
        Fields::AddressesAndPorts => "addresses and ports",
    }
}

fn input(why: &Explanation) -> String {
    why.input().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(mut out: impl Write, rss: &Rss, why: &Explanation, ports: bool, key: &str) -> io::Result<()> {
    let (flow, steered) = (&why.flow, &why.steered);
    let end = |ip, port| if ports { SocketAddr::new(ip, port).to_string() } else { ip.to_string() };
    let (from, to) = (end(flow.src, flow.src_port), end(flow.dst, flow.dst_port));
    let fragment = if flow.fragment { ", a fragment" } else { "" };
    let protocol = match flow.protocol {
        Protocol(253) => "any protocol without ports".to_owned(),
        protocol => protocol.to_string(),
    };
    // Two addresses of IPv6 may be wider than a terminal.
    let one_line = format!("packet  {from} -> {to}, {protocol}{fragment}");
    if one_line.len() <= 80 {
        writeln!(out, "{one_line}")?;
    } else {
        writeln!(out, "packet  {from}\n     -> {to}, {protocol}{fragment}")?;
    }
    writeln!(out, "fields  {} ({})", fields(why.fields), why.reason)?;
    writeln!(out, "input   {}", input(why))?;
    writeln!(out, "key     {key}")?;
    writeln!(out, "hash    {:08x}", steered.hash)?;
    writeln!(out, "type    {} ({:#04x})", steered.hash_type, steered.hash_type.as_u8())?;
    writeln!(out, "slot    {} of {}", steered.slot, rss.table.len())?;
    writeln!(out, "bucket  {} of {}", steered.bucket, rss.buckets.len())?;
    writeln!(out, "worker  {}", steered.worker)?;
    let reply = rss.steer(&flow.reply());
    writeln!(out, "reply   hash {:08x}, bucket {} as the same card sees it", reply.hash, reply.bucket)
}

fn json(mut out: impl Write, rss: &Rss, why: &Explanation, key: &str) -> io::Result<()> {
    let (flow, steered) = (&why.flow, &why.steered);
    let with_ports = why.fields == Fields::AddressesAndPorts;
    let document = documents::Hash {
        version: 1,
        key: key.to_owned(),
        source: flow.src,
        source_port: with_ports.then_some(flow.src_port),
        destination: flow.dst,
        destination_port: with_ports.then_some(flow.dst_port),
        protocol: flow.protocol.0,
        fragment: flow.fragment,
        fields: fields(why.fields),
        reason: why.reason,
        input: input(why),
        hash: steered.hash,
        hash_hex: format!("{:08x}", steered.hash),
        hash_type: steered.hash_type.name(),
        type_number: steered.hash_type.as_u8(),
        slot: steered.slot,
        slots: rss.table.len(),
        bucket: steered.bucket.0,
        buckets: rss.buckets.len(),
        worker: steered.worker.0,
    };
    writeln!(out, "{}", value(document))
}
