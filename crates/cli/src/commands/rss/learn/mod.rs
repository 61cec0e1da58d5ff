//! `flowlane rss learn`: learns how a card steers, from the queues (and hashes) of probe packets.
//!
//! The learner is the crate's (`flowlane_rss::learn`). Here is where packets come from: a capture ([`passive`]), an interface and what
//! comes on it ([`passive`]) or what is sent to it for that purpose, by this machine ([`probes`]) or another ([`far`]), and emulated cards ([`emulated`]). The file that is written takes
//! the place of a key wherever `--rss FILE` is an option.

mod emulated;
mod far;
mod passive;
mod probes;
mod report;

pub(crate) use far::Probes;

use crate::{rule_file, steering, units};
use anyhow::bail;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(override_usage = "flowlane rss learn [OPTIONS] <IFACE|--capture FILE|--emulated NAME>")]
#[command(group = clap::ArgGroup::new("packets").required(true).args(["interface", "capture", "emulated"]))]
pub(crate) struct Learn {
    /// Learn what this interface does with packets: those that come by themselves, or probes.
    #[arg(value_name = "IFACE", value_parser = crate::interface::named)]
    interface: Option<String>,
    /// Send probes by the interface at the other end of its cable, which may be in another network namespace.
    #[arg(long, value_name = "IFACE[@NETNS]", requires = "interface")]
    probe_from: Option<String>,
    /// Look for the probes of this seed, which 'flowlane rss probes' sends on another machine.
    #[arg(long, value_name = "SEED", requires = "interface", conflicts_with = "probe_from")]
    far_probes: Option<u64>,
    /// Without --probe-from: how long to look at the interface, at most.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    time: Duration,
    /// Learn from a capture: pcapng with queues or hashes, or FILE=N for a file of what came on queue N; again for more files.
    #[arg(long, value_name = "FILE[=QUEUE]")]
    capture: Vec<String>,
    /// Emulated card to learn, or 'all'; an unknown name lists them.
    #[arg(long, value_name = "NAME|all")]
    emulated: Option<String>,
    /// Slots of the emulated card's table, 2 to 2048 [default: 128]; of an interface or a capture, if they are known.
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Queues of the emulated card.
    #[arg(long, value_name = "N", default_value_t = 4)]
    queues: u16,
    /// The emulated card hashes UDP over addresses and ports.
    #[arg(long)]
    udp_4tuple: bool,
    /// A key to try where packets have queues and no hash; the published one and 6d5a repeated are tried anyway.
    #[arg(long, value_name = "KEY", conflicts_with = "emulated")]
    key: Option<String>,
    /// Learn from queues alone, as if the card reported no hash.
    #[arg(long)]
    no_hashes: bool,
    /// Kinds of packets to learn: ipv4, tcp-ipv4, udp-ipv4, ipv6, tcp-ipv6, udp-ipv6.
    #[arg(long, value_name = "LIST|all", default_value = "all")]
    kinds: String,
    /// Most probe packets to send.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    probes: usize,
    /// Packets, none of them a probe, on which the result is compared with the emulated card.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    unseen: usize,
    /// Seed of the emulated card and of the probes [default: random].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the result to a file for --rss FILE, readable by its owner only.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Learn {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let kinds = rule_file::kinds("--kinds", &self.kinds)?;
        if self.probes == 0 || self.probes > 10_000_000 {
            bail!("--probes {}: must be 1 to 10000000", self.probes);
        }
        if self.unseen > 100_000_000 {
            bail!("--unseen {}: at most 100000000", self.unseen);
        }
        if let Some(slots) = self.slots.filter(|slots| !(2..=flowlane_rss::MAX_SLOTS).contains(slots)) {
            bail!("--slots {slots}: must be 2 to {}", flowlane_rss::MAX_SLOTS);
        }
        if self.time < Duration::from_millis(100) || self.time > Duration::from_secs(3600) {
            bail!("--for: must be 100ms to 1h");
        }
        if let (Some(interface), Some(seed)) = (&self.interface, self.far_probes) {
            return self.look_for_probes(interface, seed, &kinds);
        }
        if self.probe_from.is_some() && self.interface.is_none() {
            bail!("--probe-from: name the interface that the probes come to");
        }
        match (&self.emulated, &self.interface, &self.probe_from) {
            (Some(name), ..) => self.emulated(name, &kinds, steering::seed(self.seed)?),
            (None, Some(interface), Some(from)) => {
                self.probe(interface, from, &kinds, steering::seed(self.seed)?)
            }
            (None, Some(interface), None) => self.listen(interface, &kinds),
            (None, None, _) => self.captures(&kinds),
        }
    }
}

/// What a rule was made of.
fn said(hashes: bool) -> &'static str {
    if hashes { "hashes and queues" } else { "queues" }
}
