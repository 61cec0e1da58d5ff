//! `flowlane rss why`: follows one flow step by step through the card and the kernel with their current settings, and through a running
//! instance on the card.
//!
//! It changes nothing and sends no packet. Whether the card obeys its settings is for `rss check`.

mod json;
mod run;
mod text;

use super::hash::flow_of;
use super::way::{Spread, Way};
use crate::lab_card;
use crate::rss_options::{End, Which};
use crate::rule_file::Rule;
use crate::stdout;
use anyhow::bail;
use flowlane::card::{Card, Surroundings};
use flowlane_rss::{Flow, Protocol};
use run::Run;
pub(super) use run::is_on;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    /// Source address; with a port the packet is taken as TCP or UDP.
    #[arg(value_name = "SRC[:PORT]")]
    source: End,
    /// Destination address, usually one of this machine.
    #[arg(value_name = "DST[:PORT]")]
    destination: End,
    /// Interface that receives the packet [default: the only one that is a card].
    #[arg(value_name = "IFACE", value_parser = crate::interface::named)]
    interface: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Take the packet as a fragment.
    #[arg(long)]
    fragment: bool,
    /// The card's rule and table, from a file written by 'rss learn' [default: as reported by the driver].
    #[arg(long, value_name = "FILE")]
    rss: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The content of the page for one flow.
struct Explained {
    flow: Flow,
    /// Whether ports were given.
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
        let card = lab_card::read(&interface)?;
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
        stdout::lock().write_all(said.as_bytes())?;
        Ok(())
    }
}

/// The only interface with a hardware device, or else the only Ethernet interface that is not loopback.
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

/// The flow's protocol in words, for messages.
fn protocol(flow: &Flow) -> String {
    let fragment = if flow.fragment { ", a fragment" } else { "" };
    format!("{}{fragment}", super::way::protocol(Protocol(flow.protocol.0)))
}

#[cfg(test)]
mod tests;
