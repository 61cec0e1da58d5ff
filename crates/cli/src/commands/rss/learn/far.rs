//! Probes from another machine: one command sends them there, another looks at the queues that they come on here.
//!
//! ```text
//!   far machine:  flowlane rss probes IFACE --seed 42
//!   near machine: flowlane rss learn IFACE --far-probes 42
//! ```
//!
//! Both sides derive the same set of probes from the seed: flows, numbers, and the Ethernet addresses, which no host has. So the near side needs no
//! answer, no connection and no clock of the far side: it knows each probe by its number, says how many came, and ends when all have. The far
//! side repeats the set until it is stopped. A switch floods frames for an address that it does not know; a router does not pass them on.

use super::super::check::packet;
use super::Learn;
use super::passive::Gathered;
use super::probes::{BATCH, Marks, TURN, WAITING, frame, send};
use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::stdout;
use crate::units;
use anyhow::{Context, bail};
use flowlane_rss::learn::Seen;
use flowlane_rss::{Flow, PacketKind, Protocol};
use flowlane_stack::rng::Rng;
use flowlane_sys::netdev::Interface;
use flowlane_sys::packet::sample::Sampler;
use flowlane_sys::packet::{Promiscuous, RawSender};
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Probes of each kind: a quarter is kept aside, and the rest has to span the 289 dimensions of TCP over IPv6.
const OF_KIND: usize = 480;

/// Arguments of the far side.
#[derive(Debug, clap::Args)]
pub(crate) struct Probes {
    /// Interface to send on, in the same Ethernet segment as the card to be learned.
    #[arg(value_name = "IFACE", value_parser = crate::interface::named)]
    interface: String,
    /// Seed of the probes, the same as for 'rss learn --far-probes'.
    #[arg(long, value_name = "N")]
    seed: u64,
    /// How long to repeat the set of 2880 probes [default: until ^C].
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
    /// Probes a second.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    rate: u32,
}

impl Probes {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if !(1..=1_000_000).contains(&self.rate) {
            bail!("--rate {}: must be 1 to 1000000", self.rate);
        }
        let interface = &self.interface;
        let sender = RawSender::open(&Interface::find(interface)?).with_context(|| interface.clone())?;
        let interrupt = Interrupt::listen()?;
        let (marks, flows) = set(self.seed);
        let frames: Vec<Vec<u8>> =
            flows.iter().enumerate().map(|(i, flow)| frame(flow, marks.macs, &marks.of(i))).collect();
        let begin = Instant::now();
        let mut sent = 0_usize;
        let goes_on = || !interrupt.came() && self.time.is_none_or(|time| begin.elapsed() < time);
        while goes_on() {
            let due = (begin.elapsed().as_secs_f64() * f64::from(self.rate)) as usize + 1;
            let until = due.min(sent + BATCH);
            while sent < until {
                send(&sender, &frames[sent % frames.len()]).with_context(|| interface.clone())?;
                sent += 1;
            }
            std::thread::sleep(TURN);
        }
        let passes = sent as f64 / frames.len() as f64;
        writeln!(
            stdout::lock(),
            "{sent} probes sent on {interface}: the set of seed {} {passes:.1} times",
            self.seed
        )?;
        Ok(())
    }
}

impl Learn {
    /// Looks for the probes of a seed on `interface` until all have come or the time is over.
    pub(super) fn look_for_probes(
        &self,
        interface: &str,
        seed: u64,
        kinds: &[PacketKind],
    ) -> anyhow::Result<()> {
        // What is wrong with the options is said before the wait.
        self.options(kinds)?;
        let from_zero = flowlane::card::read(interface)?.driver_name() == "veth";
        let near = Interface::find(interface)?;
        let mut sampler = Sampler::open(&near, WAITING)?;
        let _promiscuous = Promiscuous::hold(&near)?;
        sampler.set_share(1.0).context("taking samples")?;
        let (marks, flows) = set(seed);
        let mut came = vec![false; flows.len()];
        let mut gathered = Gathered::default();
        let begin = Instant::now();
        while begin.elapsed() < self.time && came.iter().any(|came| !came) {
            let Some(sample) = sampler.take() else {
                std::thread::sleep(TURN);
                continue;
            };
            // A number, but another flow: it was changed on its way.
            let Some(number) = marks.number(&sample.bytes).filter(|n| *n < flows.len()) else { continue };
            let Some(seen) = packet::of(&sample, from_zero).filter(|seen| seen.flow == flows[number]) else {
                continue;
            };
            came[number] = true;
            let queue = seen.queue.and_then(|queue| u16::try_from(queue).ok());
            let hash = (seen.hash != 0).then_some(seen.hash);
            gathered.add(Seen { flow: seen.flow, hash, queue }, None);
        }
        let distinct = came.iter().filter(|came| **came).count();
        if distinct == 0 {
            let seconds = self.time.as_secs_f64();
            return Err(Missed(format!(
                "{interface}: none of the probes of seed {seed} came in {seconds} s: does 'flowlane rss probes IFACE --seed {seed}' run in the \
                 same Ethernet segment?"
            ))
            .into());
        }
        let card = format!("{interface}, {distinct} of {} probes of seed {seed}", flows.len());
        self.learn_from(&gathered, interface, &card, kinds)
    }
}

/// The probes of a seed, the same on every machine: how they are marked, and their flows.
fn set(seed: u64) -> (Marks, Vec<Flow>) {
    let mut rng = Rng::new(seed);
    let marks = Marks::new(&mut rng);
    let mut flows = Vec::with_capacity(PacketKind::ALL.len() * OF_KIND);
    for _ in 0..OF_KIND {
        flows.extend(PacketKind::ALL.map(|kind| flow(kind, &mut rng)));
    }
    (marks, flows)
}

/// A packet with random addresses and ports. Addresses are of one host each, since cards may treat groups in another way.
fn flow(kind: PacketKind, rng: &mut Rng) -> Flow {
    let mut address = || match kind.is_ipv4() {
        true => IpAddr::from((rng.next_u32() & 0x7fff_ffff | 0x0100_0000).to_be_bytes()),
        false => {
            let bytes = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
            IpAddr::from((bytes & !(0xff << 120) | 0x20 << 120).to_be_bytes())
        }
    };
    let (src, dst) = (address(), address());
    let protocol = match kind {
        PacketKind::TcpIpv4 | PacketKind::TcpIpv6 => Protocol::TCP,
        PacketKind::UdpIpv4 | PacketKind::UdpIpv6 => Protocol::UDP,
        // For experiments (RFC 3692).
        _ => Protocol(253),
    };
    let mut port = || if protocol == Protocol(253) { 0 } else { rng.next_u32() as u16 };
    let ports = (port(), port());
    Flow::new((src, ports.0).into(), (dst, ports.1).into(), protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both machines make the same set of a seed, of all kinds, each probe known by its number, and another of another seed.
    #[test]
    fn a_seed_makes_one_set() {
        let ((marks, flows), (same_marks, same), (others, other)) = (set(42), set(42), set(43));
        assert_eq!((marks.macs, &flows), (same_marks.macs, &same));
        assert!(flows.iter().zip(&other).all(|(one, two)| one != two));
        assert_eq!(flows.len(), 2880, "as the help says");
        for kind in PacketKind::ALL {
            assert_eq!(flows.iter().filter(|flow| PacketKind::of(flow) == Some(kind)).count(), OF_KIND);
        }
        for (i, flow) in flows.iter().enumerate().step_by(97) {
            let frame = frame(flow, marks.macs, &marks.of(i));
            assert_eq!((marks.number(&frame), others.number(&frame)), (Some(i), None));
        }
    }
}
