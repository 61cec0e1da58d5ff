//! `flowlane rss learn`: learns how a card steers, from the queues (and hashes) of probe packets.
//!
//! The learner is in `flowlane_rss::learn`; this module has the emulated cards that it probes, the output, and the file. Commands with
//! `--rss FILE` use the file in place of a key.

use crate::exit::Missed;
use crate::rule_file::{self, Rule};
use crate::steering;
use anyhow::{Context, bail};
use flowlane_rss::emulated::{CARDS, Card, CardOptions};
use flowlane_rss::learn::{Answer, LearnError, Learned, Options, learn};
use flowlane_rss::{Flow, HashType, PacketKind, UdpFields};
use flowlane_stack::rng::Rng;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Instant;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Learn {
    /// Emulated card to learn, or 'all'; an unknown name lists them.
    #[arg(long, value_name = "NAME|all")]
    emulated: String,
    /// Slots of the emulated card's table, 2 to 2048.
    #[arg(long, value_name = "N", default_value_t = 128)]
    slots: usize,
    /// Queues of the emulated card.
    #[arg(long, value_name = "N", default_value_t = 4)]
    queues: u16,
    /// The emulated card hashes UDP over addresses and ports.
    #[arg(long)]
    udp_4tuple: bool,
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

/// The result of learning one card.
struct Outcome {
    card: &'static str,
    hashes: bool,
    learned: Result<Learned, LearnError>,
    probes: usize,
    milliseconds: f64,
    /// Compared packets that were predicted wrong.
    wrong: usize,
}

impl Learn {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let kinds = rule_file::kinds("--kinds", &self.kinds)?;
        let seed = steering::seed(self.seed)?;
        if self.probes == 0 || self.probes > 10_000_000 {
            bail!("--probes {}: must be 1 to 10000000", self.probes);
        }
        if self.unseen > 100_000_000 {
            bail!("--unseen {}: at most 100000000", self.unseen);
        }
        if self.emulated == "all" {
            if self.output.is_some() {
                bail!("--output: one card's rule goes into a file, not all");
            }
            return self.all(&kinds, seed);
        }
        let outcome = self.one(&self.emulated, !self.no_hashes, &kinds, seed)?;
        let from = format!(
            "{} of the emulated card {}, seed {seed}, {} probes",
            if outcome.learned.as_ref().is_ok_and(|l| l.hashes) { "hashes and queues" } else { "queues" },
            outcome.card,
            outcome.probes
        );
        if let (Some(path), Ok(learned)) = (&self.output, &outcome.learned) {
            Rule::of(learned, &kinds).write(path, learned, &from).context("--output")?;
        }
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", self.document(&outcome))?;
        } else if let Ok(learned) = &outcome.learned {
            self.text(&mut out, &outcome, learned)?;
        }
        drop(out);
        match outcome.learned {
            Ok(_) if outcome.wrong > 0 => {
                let of = self.unseen;
                Err(Missed(format!("{} of {of} other packets are not predicted", outcome.wrong)).into())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Missed(format!("{}: {error}", outcome.card)).into()),
        }
    }

    /// Learns a card and compares the result with it.
    fn one(&self, name: &str, hashes: bool, kinds: &[PacketKind], seed: u64) -> anyhow::Result<Outcome> {
        let udp = if self.udp_4tuple { UdpFields::Four } else { UdpFields::Two };
        let options = CardOptions { seed, slots: self.slots, queues: self.queues, udp };
        let mut card = Card::new(name, &options).context("--emulated")?;
        let untouched = card.clone();
        // What sends probes from a program on the card has disturbed it.
        card.disturb();
        let options = Options { seed: seed ^ 0x5eed, kinds: kinds.to_vec(), hashes, probes: self.probes };
        let mut probes = 0;
        let mut oracle = |flows: &[Flow]| {
            probes += flows.len();
            let answer = |flow| {
                let got = card.receive(flow);
                let hash = (got.hash_type != HashType::None).then_some(got.hash);
                Some(Answer { hash, queue: got.queue })
            };
            flows.iter().map(answer).collect()
        };
        let start = Instant::now();
        let learned = learn(&options, &mut oracle);
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        let wrong = learned.as_ref().map_or(0, |learned| self.compare(&untouched, learned, kinds, seed));
        Ok(Outcome { card: untouched.name(), hashes, learned, probes, milliseconds, wrong })
    }

    /// Number of random packets, none of them a probe, that are predicted wrong.
    fn compare(&self, card: &Card, learned: &Learned, kinds: &[PacketKind], seed: u64) -> usize {
        let mut rng = Rng::new(seed ^ 0x07e5);
        let mut wrong = 0;
        for i in 0..self.unseen {
            let flow = any(&mut rng, kinds[i % kinds.len()]);
            let (hash, _) = card.hash(&flow);
            let queue = if card.name() == "table-ignored" { 0 } else { card.table().bucket_of(hash).0 };
            let (predicted, at) = learned.predict(&flow);
            wrong += usize::from(at != queue || (learned.hashes && predicted.unwrap_or(0) != hash));
        }
        wrong
    }

    fn text(&self, mut out: impl Write, outcome: &Outcome, learned: &Learned) -> io::Result<()> {
        let rule = &learned.rule;
        writeln!(out, "card      {}", outcome.card)?;
        let hash = match (learned.hashes, rule.toeplitz_key(), rule.arrangement().name()) {
            (true, Some(_), _) => "Toeplitz under one key".to_owned(),
            (true, None, "plain") => "affine, not Toeplitz under one key".to_owned(),
            (true, None, arrangement) => format!("affine once fields are arranged: {arrangement}"),
            (false, _, arrangement) => format!("not reported; affine bits found, fields {arrangement}"),
        };
        writeln!(out, "hash      {hash}")?;
        let queues = learned.table.slots().iter().map(|queue| queue.0).max().unwrap_or(0) + 1;
        writeln!(out, "table     {} slots, {queues} queues", learned.table.len())?;
        let time = format!("{:.1} ms", outcome.milliseconds);
        writeln!(out, "probes    {} in {time}, {} lost", outcome.probes, learned.lost)?;
        writeln!(out, "confirmed {} fresh packets", learned.verified)?;
        writeln!(out, "compared  {} other packets: {} wrong", self.unseen, outcome.wrong)?;
        for finding in &learned.findings {
            for (i, line) in folded(&finding.to_string(), 68).into_iter().enumerate() {
                writeln!(out, "{:<10}{line}", if i == 0 { "found" } else { "" })?;
            }
        }
        if let Some(path) = &self.output {
            writeln!(out, "written   {}", path.display())?;
        }
        Ok(())
    }

    /// Learns every emulated card, from hashes and from queues alone.
    fn all(&self, kinds: &[PacketKind], seed: u64) -> anyhow::Result<()> {
        let mut outcomes = Vec::new();
        for (card, _) in CARDS {
            for hashes in [true, false] {
                outcomes.push(self.one(card, hashes, kinds, seed)?);
            }
        }
        let mut out = io::stdout().lock();
        if self.json {
            let cards: Vec<_> = outcomes.iter().map(|outcome| self.document(outcome)).collect();
            writeln!(out, "{}", serde_json::json!({ "version": 1, "seed": seed, "cards": cards }))?;
        } else {
            let (slots, queues) = (self.slots, self.queues);
            writeln!(
                out,
                "{slots} slots, {queues} queues, seed {seed}, {} other packets each\n",
                self.unseen
            )?;
            writeln!(
                out,
                "{:<17} {:<6} {:>6} {:>8}  {:>5}  verdict",
                "card", "from", "probes", "ms", "wrong"
            )?;
            for outcome in &outcomes {
                let from = if outcome.hashes { "hashes" } else { "queues" };
                let wrong = if outcome.learned.is_ok() { outcome.wrong.to_string() } else { "-".into() };
                let verdict = verdict(&outcome.learned);
                writeln!(
                    out,
                    "{:<17} {from:<6} {:>6} {:>8.1}  {wrong:>5}  {verdict}",
                    outcome.card, outcome.probes, outcome.milliseconds
                )?;
            }
        }
        drop(out);
        let wrong: usize = outcomes.iter().map(|outcome| outcome.wrong).sum();
        if wrong > 0 {
            return Err(Missed(format!("{wrong} packets are not predicted")).into());
        }
        Ok(())
    }

    fn document(&self, outcome: &Outcome) -> serde_json::Value {
        let learned = outcome.learned.as_ref().ok();
        serde_json::json!({
            "version": 1,
            "card": outcome.card,
            "from": if outcome.hashes { "hashes" } else { "queues" },
            "learned": learned.is_some(),
            "verdict": verdict(&outcome.learned),
            "why": outcome.learned.as_ref().err().map(ToString::to_string),
            "findings": learned.map_or(Vec::new(), |l| l.findings.iter().map(ToString::to_string).collect()),
            "toeplitz": learned.is_some_and(|l| l.hashes && l.rule.toeplitz_key().is_some()),
            "arrangement": learned.map(|l| l.rule.arrangement().name()),
            "slots": learned.map(|l| l.table.len()),
            "probes": outcome.probes,
            "milliseconds": outcome.milliseconds,
            "confirmed": learned.map_or(0, |l| l.verified),
            "unseen": self.unseen,
            "wrong": outcome.wrong,
        })
    }
}

/// The outcome in a word or two.
fn verdict(learned: &Result<Learned, LearnError>) -> &'static str {
    use flowlane_rss::learn::Finding::{Misdirects, OneQueue};
    match learned {
        Ok(l) if l.findings.iter().any(|f| matches!(f, OneQueue(_))) => "learned, table ignored",
        Ok(l) if l.findings.iter().any(|f| matches!(f, Misdirects { .. })) => "learned, misdirects",
        Ok(_) => "learned",
        Err(LearnError::NotAffine { .. } | LearnError::NotAffineQueues { .. }) => "not affine",
        Err(LearnError::NoTable { .. }) => "one queue",
        Err(LearnError::Off { .. }) => "RSS off",
        Err(_) => "not learned",
    }
}

/// A random packet of this kind.
fn any(rng: &mut Rng, kind: PacketKind) -> Flow {
    let mut sixteen = || (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_be_bytes();
    let mut address = || -> IpAddr {
        let [a, b, c, d, ..] = sixteen();
        if kind.is_ipv4() { [a, b, c, d].into() } else { sixteen().into() }
    };
    let (src, dst) = (address(), address());
    let ports = rng.next_u32();
    let protocol = match kind {
        PacketKind::TcpIpv4 | PacketKind::TcpIpv6 => flowlane_rss::Protocol::TCP,
        PacketKind::UdpIpv4 | PacketKind::UdpIpv6 => flowlane_rss::Protocol::UDP,
        PacketKind::Ipv4 | PacketKind::Ipv6 => flowlane_rss::Protocol(253),
    };
    let end = |ip, port| SocketAddr::new(ip, port);
    Flow::new(end(src, (ports >> 16) as u16), end(dst, ports as u16), protocol)
}

/// Wraps a text into lines of at most `columns` columns.
fn folded(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let fits = lines.last().is_some_and(|line| line.len() + word.len() < columns);
        match lines.last_mut() {
            Some(line) if fits && !line.is_empty() => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) if line.is_empty() => line.push_str(word),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
