//! Learning from packets that come by themselves: out of captures, or off an interface.
//!
//! The packets are gathered as flows with a queue and a hash, of each flow a few, so that memory does not grow with the traffic. What
//! they leave open is printed, and kept in the file.

use super::super::check::packet;
use super::report::Report;
use super::{Learn, said};
use crate::capture::{self, Captured};
use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::rule_file::Rule;
use crate::stdout;
use anyhow::{Context, bail};
use flowlane_rss::learn::{Gaps, LearnError, Learned, Seen, SeenOptions, learn_seen};
use flowlane_rss::{Flow, PacketKind};
use flowlane_sys::netdev::Interface;
use flowlane_sys::packet::sample::Sampler;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Flows that are kept, and packets of each.
const FLOWS: usize = 1 << 16;
const EACH: u8 = 4;
/// How often packets are taken out.
const TURN: Duration = Duration::from_millis(5);
/// Samples a second that are taken at most.
const RATE: f64 = 50_000.0;
/// Samples that can wait.
const WAITING: usize = 4096;

/// Packets, a few of each flow.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    packets: Vec<Seen>,
    /// The four bytes of the hash as a capture has them, beside the packets.
    raw: Vec<Option<[u8; 4]>>,
    of_flow: HashMap<Flow, u8>,
    /// All that were looked at, those without queue and hash included.
    looked: u64,
    pub(super) told: u64,
}

impl Gathered {
    pub(super) fn add(&mut self, packet: Seen, raw: Option<[u8; 4]>) {
        self.looked += 1;
        if packet.queue.is_none() && packet.hash.is_none() {
            return;
        }
        self.told += 1;
        let full = self.of_flow.len() >= FLOWS;
        let count = match self.of_flow.get_mut(&packet.flow) {
            Some(count) => count,
            None if full => return,
            None => self.of_flow.entry(packet.flow).or_insert(0),
        };
        if *count < EACH {
            *count += 1;
            self.packets.push(packet);
            self.raw.push(raw);
        }
    }

    /// Reads the hashes in this order.
    fn hashes(&mut self, order: fn([u8; 4]) -> u32) {
        for (packet, raw) in self.packets.iter_mut().zip(&self.raw) {
            packet.hash = raw.map(order);
        }
    }
}

impl Learn {
    /// Out of files.
    pub(super) fn captures(&self, kinds: &[PacketKind]) -> anyhow::Result<()> {
        let mut gathered = Gathered::default();
        let (mut packets, mut cut) = (0, false);
        for name in &self.capture {
            let (path, queue) = file_and_queue(name)?;
            let contents = capture::read(Path::new(path), |captured| {
                if let Some((seen, raw)) = seen(&captured, queue) {
                    gathered.add(seen, raw);
                }
            });
            let contents = contents.context("--capture")?;
            packets += contents.packets;
            cut |= contents.cut;
        }
        if gathered.told == 0 {
            bail!(
                "--capture: none of {packets} packets has a queue or a hash (pcapng's epb_queue and epb_hash; FILE=N is a file of queue N)"
            );
        }
        let card = format!(
            "{}, {packets} packets{}",
            names(&self.capture),
            if cut { ", cut off in the last" } else { "" }
        );
        let options = self.options(kinds)?;
        let begin = Instant::now();
        // The hash is four bytes: DPDK writes them in the order of its processor, others as on the wire.
        gathered.hashes(u32::from_be_bytes);
        let mut learned = learn_seen(&gathered.packets, &options);
        if options.hashes && gathered.raw.iter().any(Option::is_some) && !clean(&learned) {
            gathered.hashes(u32::from_le_bytes);
            let other = learn_seen(&gathered.packets, &options);
            if clean(&other) || (learned.is_err() && other.is_ok()) {
                learned = other;
            }
        }
        self.conclude(&card, learned, begin.elapsed(), kinds)
    }

    /// Off an interface, whatever comes.
    pub(super) fn listen(&self, interface: &str, kinds: &[PacketKind]) -> anyhow::Result<()> {
        // What is wrong with the options is said before the wait.
        self.options(kinds)?;
        let gathered = listen(interface, self.time)?;
        let card = format!("{interface}, {} packets", gathered.looked);
        self.learn_from(&gathered, interface, &card, kinds)
    }

    /// From what was gathered off an interface. `card`: where from, in words.
    pub(super) fn learn_from(
        &self,
        gathered: &Gathered,
        interface: &str,
        card: &str,
        kinds: &[PacketKind],
    ) -> anyhow::Result<()> {
        let options = self.options(kinds)?;
        if gathered.told == 0 {
            let seconds = self.time.as_secs_f64();
            let why = match gathered.looked {
                0 => format!("no IP packet came in {seconds} s"),
                n => format!("{n} packets came in {seconds} s, and the driver tells neither queue nor hash"),
            };
            return Err(Missed(format!("{interface}: {why}")).into());
        }
        let begin = Instant::now();
        let mut learned = learn_seen(&gathered.packets, &options);
        if options.hashes && matches!(learned, Err(LearnError::NotAffine { .. } | LearnError::NoTable { .. }))
        {
            // Where the card tells no hash, the kernel's own may be in its place.
            learned = learn_seen(&gathered.packets, &SeenOptions { hashes: false, ..options }).or(learned);
        }
        self.conclude(card, learned, begin.elapsed(), kinds)
    }

    pub(super) fn options(&self, kinds: &[PacketKind]) -> anyhow::Result<SeenOptions> {
        let key = self.key.as_deref().map(|text| text.parse().context("--key")).transpose()?;
        Ok(SeenOptions {
            kinds: kinds.to_vec(),
            hashes: !self.no_hashes,
            slots: self.slots,
            keys: key.into_iter().collect(),
        })
    }

    fn conclude(
        &self,
        card: &str,
        learned: Result<(Learned, Gaps), LearnError>,
        time: Duration,
        kinds: &[PacketKind],
    ) -> anyhow::Result<()> {
        let told = learned.as_ref();
        let has_table = told.is_ok_and(|(_, gaps)| gaps.unseen.is_some());
        let written = self.output.as_deref().filter(|_| has_table);
        if let (Some(path), Ok((learned, gaps))) = (written, &learned) {
            let from = format!("{} of {card}", said(learned.hashes));
            let known: Vec<PacketKind> = gaps.extents.iter().map(|extent| extent.span.kind()).collect();
            Rule::of(learned, &known).in_part(gaps).write(path, learned, &from).context("--output")?;
        }
        let report = Report {
            card,
            from: if told.is_ok_and(|(learned, _)| !learned.hashes) || self.no_hashes {
                "queues"
            } else {
                "hashes"
            },
            learned: told.map(|(learned, _)| learned),
            gaps: told.ok().map(|(_, gaps)| gaps),
            probes: told.map_or(0, |(learned, _)| learned.probes),
            milliseconds: time.as_secs_f64() * 1e3,
            unseen: 0,
            wrong: 0,
            written,
        };
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", crate::document::value(report.document()))?;
        } else if let Ok((learned, _)) = told {
            out.write_all(report.page(learned).as_bytes())?;
        }
        drop(out);
        let missing = kinds.len() < PacketKind::ALL.len()
            && told.is_ok_and(|(_, gaps)| gaps.extents.len() < kinds.len());
        match learned {
            Err(error) => Err(Missed(format!("{card}: {error}")).into()),
            Ok(_) if self.output.is_some() && !has_table => {
                Err(Missed("nothing written: the file needs queues, and no packet has one".into()).into())
            }
            Ok(_) if missing => Err(Missed("not all of --kinds came".into()).into()),
            Ok(_) => Ok(()),
        }
    }
}

/// Whether all was found as cards usually do it.
fn clean(learned: &Result<(Learned, Gaps), LearnError>) -> bool {
    learned.as_ref().is_ok_and(|(learned, _)| {
        let mut kinds = PacketKind::ALL.into_iter().filter_map(|kind| learned.rule.map(kind));
        // A key's columns overlap; those of a hash whose bytes are in another order do not.
        let overlap = |map: &flowlane_rss::Affine| {
            map.columns().windows(2).all(|pair| pair[1] == 0 || pair[0] << 1 == pair[1] & !1)
        };
        kinds.all(overlap)
    })
}

/// What a captured packet says; nothing of packets that were sent, and of those that are not IP.
fn seen(captured: &Captured, queue: Option<u16>) -> Option<(Seen, Option<[u8; 4]>)> {
    if captured.sent {
        return None;
    }
    let flow = captured.flow()?;
    let queue = queue.or_else(|| captured.queue.and_then(|queue| u16::try_from(queue).ok()));
    Some((Seen { flow, hash: captured.hash.map(u32::from_be_bytes), queue }, captured.hash))
}

/// `FILE` or `FILE=QUEUE`; a file whose name has such an end is taken by its name.
fn file_and_queue(name: &str) -> anyhow::Result<(&str, Option<u16>)> {
    match name.rsplit_once('=') {
        Some((path, queue)) if !Path::new(name).exists() => match queue.parse() {
            Ok(queue) if usize::from(queue) < flowlane_rss::MAX_BUCKETS => Ok((path, Some(queue))),
            _ => bail!("--capture {name}: '{queue}' is not a queue (0 to {})", flowlane_rss::MAX_BUCKETS - 1),
        },
        _ => Ok((name, None)),
    }
}

fn names(files: &[String]) -> String {
    let base = |file: &String| {
        Path::new(file).file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    };
    match files {
        [one] => base(one),
        [first, rest @ ..] => format!("{} and {} more", base(first), rest.len()),
        [] => String::new(),
    }
}

/// What comes on an interface in this time, or until flows are enough.
fn listen(interface: &str, time: Duration) -> anyhow::Result<Gathered> {
    let card = flowlane::card::read(interface)?;
    let from_zero = card.driver_name() == "veth";
    let mut sampler = Sampler::open(&Interface::find(interface)?, WAITING)?;
    sampler.set_share(1.0).context("taking samples")?;
    let mut gathered = Gathered::default();
    let begin = Instant::now();
    let mut share = 1.0;
    // ^C ends the listening, and the rule is made of what came.
    let interrupt = Interrupt::listen()?;
    while begin.elapsed() < time && gathered.of_flow.len() < FLOWS && !interrupt.came() {
        std::thread::sleep(TURN.min(time.saturating_sub(begin.elapsed())));
        let mut got = 0;
        while let Some(sample) = sampler.take() {
            got += 1;
            if let Some(seen) = packet::of(&sample, from_zero) {
                let queue = seen.queue.and_then(|queue| u16::try_from(queue).ok());
                let hash = (seen.hash != 0).then_some(seen.hash);
                gathered.add(Seen { flow: seen.flow, hash, queue }, None);
            }
        }
        // Fewer of many: another flow says more than the same again.
        let fits = RATE * TURN.as_secs_f64() / f64::from(got.max(1)) * share;
        share = fits.clamp(share / 8.0, share * 2.0).min(1.0);
        sampler.set_share(share).context("taking samples")?;
    }
    Ok(gathered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_queue() {
        assert_eq!(file_and_queue("a.pcap").unwrap(), ("a.pcap", None));
        assert_eq!(file_and_queue("a=b.pcap=3").unwrap(), ("a=b.pcap", Some(3)));
        for bad in ["a.pcap=", "a.pcap=x", "a.pcap=-1", "a.pcap=70000"] {
            assert!(file_and_queue(bad).is_err(), "{bad}");
        }
    }
}
