//! `flowlane rss why`: one flow step by step through the card as it is now, the kernel behind it, and a run of ours on it.
//!
//! Everything is read, nothing is changed, no packet is sent. What a card does with its settings only packets tell (`rss check`).

mod json;
mod run;
mod text;

use super::hash::flow_of;
use super::steering::{End, Which};
use super::way::{Spread, Way};
use crate::rule_file::Rule;
use anyhow::bail;
use flowlane::card::{self, Card, Surroundings};
use flowlane_rss::{Flow, Protocol};
use run::Run;
pub(super) use run::is_on;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    /// Who sends the packet: address, with a port to take it as TCP or UDP.
    #[arg(value_name = "SRC[:PORT]")]
    source: End,
    /// Who receives it: an address of this machine, as a rule.
    #[arg(value_name = "DST[:PORT]")]
    destination: End,
    /// The interface on which it comes; without it the only one that is a card.
    #[arg(value_name = "IFACE")]
    interface: Option<String>,
    #[command(flatten)]
    which: Which,
    /// The packet is a fragment.
    #[arg(long)]
    fragment: bool,
    /// The card's rule and table, from a file that 'rss learn' wrote, in place of what the driver tells.
    #[arg(long, value_name = "FILE")]
    rss: Option<PathBuf>,
    /// Print JSON (docs/schema/rss-why-v1.json).
    #[arg(long)]
    json: bool,
}

/// What is said of one flow.
struct Explained {
    flow: Flow,
    /// Ports are known.
    ports: bool,
    card: Card,
    around: Surroundings,
    spread: Result<Spread, String>,
    way: Way,
    runs: Vec<Run>,
}

impl Why {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let flow = flow_of(self.source, self.destination, self.which, self.fragment)?;
        let ports = self.source.port.is_some();
        let file = self.rss.as_deref().map(Rule::read).transpose()?;
        if let Some(rule) = &file {
            rule.must_know(&flow)?;
        }
        let interface = match self.interface {
            Some(name) => name,
            None => only_card(Path::new("/sys/class/net"))?,
        };
        let card = card::read(&interface)?;
        let around = Surroundings::read(Path::new("/"), &interface);
        let spread = Spread::of(&card, file.as_ref());
        if let Ok(spread) = &spread
            && !ports
            && spread.config().type_of(&flow).has_ports()
        {
            bail!("{interface} hashes {} with ports: give both", flow.protocol);
        }
        let way = Way::of(&flow, &card, &around, spread.as_ref().map_err(String::as_str));
        let runs = run::on(&interface, &flow);
        let explained = Explained { flow, ports, card, around, spread, way, runs };
        let said =
            if self.json { format!("{}\n", json::document(&explained)) } else { text::page(&explained) };
        std::io::stdout().lock().write_all(said.as_bytes())?;
        Ok(())
    }
}

/// The only interface with a device under it; else the only one of Ethernet that is not loopback.
fn only_card(net: &Path) -> anyhow::Result<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(net).into_iter().flatten().flatten().take(4096) {
        let ethernet =
            std::fs::read_to_string(entry.path().join("type")).is_ok_and(|kind| kind.trim() == "1");
        if ethernet {
            let device = entry.path().join("device").exists();
            names.push((entry.file_name().to_string_lossy().into_owned(), device));
        }
    }
    names.sort_unstable();
    let cards: Vec<&str> = names.iter().filter(|name| name.1).map(|name| name.0.as_str()).collect();
    let all: Vec<&str> = names.iter().map(|name| name.0.as_str()).collect();
    match (cards.as_slice(), all.as_slice()) {
        ([only], _) | ([], [only]) => Ok((*only).to_owned()),
        ([], []) => bail!("there is no Ethernet interface: 'flowlane rss hash' asks without one"),
        ([], several) | (several, _) => {
            let some = several.iter().take(8).copied().collect::<Vec<_>>().join(", ");
            bail!("name the interface behind the flow: there are {some}")
        }
    }
}

/// What is behind the flow's protocol number, for messages.
fn protocol(flow: &Flow) -> String {
    let fragment = if flow.fragment { ", a fragment" } else { "" };
    format!("{}{fragment}", super::way::protocol(Protocol(flow.protocol.0)))
}

#[cfg(test)]
mod tests;
