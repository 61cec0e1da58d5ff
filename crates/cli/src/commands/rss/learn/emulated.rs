//! Learning emulated cards, one or all of them, and comparing what was learned with the card.

use super::super::documents::Cards;
use super::report::{self, Report};
use super::{Learn, said};
use crate::document::value;
use crate::exit::Missed;
use crate::rule_file::Rule;
use crate::stdout;
use anyhow::{Context, bail};
use flowlane_rss::emulated::{CARDS, Card, CardOptions};
use flowlane_rss::learn::{Answer, LearnError, Learned, Options, learn};
use flowlane_rss::{Flow, HashType, Indirection, PacketKind, UdpFields};
use flowlane_stack::rng::Rng;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

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
    pub(super) fn emulated(&self, name: &str, kinds: &[PacketKind], seed: u64) -> anyhow::Result<()> {
        if name == "all" {
            if self.output.is_some() {
                bail!("--output: one card's rule goes into a file, not all");
            }
            return self.all(kinds, seed);
        }
        let outcome = self.one(name, !self.no_hashes, kinds, seed)?;
        let from = format!(
            "{} of the emulated card {}, seed {seed}, {} probes",
            said(outcome.learned.as_ref().is_ok_and(|l| l.hashes)),
            outcome.card,
            outcome.probes
        );
        if let (Some(path), Ok(learned)) = (&self.output, &outcome.learned) {
            Rule::of(learned, kinds).write(path, learned, &from).context("--output")?;
        }
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", value(self.report(&outcome).document()))?;
        } else if let Ok(learned) = &outcome.learned {
            out.write_all(self.report(&outcome).page(learned).as_bytes())?;
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

    fn report<'a>(&'a self, outcome: &'a Outcome) -> Report<'a> {
        Report {
            card: outcome.card,
            from: if outcome.hashes { "hashes" } else { "queues" },
            learned: outcome.learned.as_ref(),
            gaps: None,
            probes: outcome.probes,
            milliseconds: outcome.milliseconds,
            unseen: self.unseen,
            wrong: outcome.wrong,
            written: self.output.as_deref(),
        }
    }

    /// Learns a card and compares the result with it.
    fn one(&self, name: &str, hashes: bool, kinds: &[PacketKind], seed: u64) -> anyhow::Result<Outcome> {
        let udp = if self.udp_4tuple { UdpFields::Four } else { UdpFields::Two };
        let slots = self.slots.unwrap_or(Indirection::DEFAULT_SLOTS);
        let options = CardOptions { seed, slots, queues: self.queues, udp };
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

    /// Learns every emulated card, from hashes and from queues alone.
    fn all(&self, kinds: &[PacketKind], seed: u64) -> anyhow::Result<()> {
        let mut outcomes = Vec::new();
        for (card, _) in CARDS {
            for hashes in [true, false] {
                outcomes.push(self.one(card, hashes, kinds, seed)?);
            }
        }
        let mut out = stdout::lock();
        if self.json {
            let cards = outcomes.iter().map(|outcome| self.report(outcome).document()).collect();
            writeln!(out, "{}", value(Cards { version: 1, seed, cards }))?;
        } else {
            let (slots, queues) = (self.slots.unwrap_or(Indirection::DEFAULT_SLOTS), self.queues);
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
                let verdict = report::verdict(outcome.learned.as_ref());
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
