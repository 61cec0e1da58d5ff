//! Learning a card by probes: frames sent by an interface at the other end of its cable, and looked for as they come.
//!
//! ```text
//!   learner ─▶ tuple ─▶ frame with a number ─▶ far interface ═cable═▶ card ─▶ queue, hash
//!      ▲                                                                          │
//!      └───────────── answer of that number ◀── sampler (a filter in the kernel) ◀┘
//! ```
//!
//! Probes have any addresses, so nobody may take them for traffic. Their Ethernet destination is an address made up for this run, which no
//! host has: the interface is made promiscuous meanwhile, its kernel sees that they are for somebody else and drops them. The same
//! holds for every host between; a router that forwarded them would have to own that address. A run sends at most
//! `--probes` of them, of 62 to 94 bytes.

use super::super::check::packet;
use super::report::Report;
use super::{Learn, said};
use crate::exit::Missed;
use crate::rule_file::Rule;
use crate::stdout;
use anyhow::{Context, bail};
use flowlane_rss::learn::{Answer, LearnError, Learned, Options, learn};
use flowlane_rss::{Flow, PacketKind, Protocol};
use flowlane_stack::rng::Rng;
use flowlane_stack::wire::IpProtocol;
use flowlane_stack::wire::checksum::{Sum, checksum};
use flowlane_sys::netdev::Interface;
use flowlane_sys::packet::sample::Sampler;
use flowlane_sys::packet::{Promiscuous, RawSender};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Probes under way at once.
pub(super) const BATCH: usize = 256;
/// Samples that can wait: the probes, and other packets that come meanwhile.
pub(super) const WAITING: usize = 4096;
/// A probe that has not come when nothing has come for so long is lost.
const QUIET: Duration = Duration::from_millis(300);
pub(super) const TURN: Duration = Duration::from_micros(200);
/// Bytes behind the transport header: whose probe, and which.
pub(super) const MARK: usize = 20;

impl Learn {
    /// Sends probes by `from`, `IFACE` or `IFACE@NETNS`, and learns what `interface` does with them.
    pub(super) fn probe(
        &self,
        interface: &str,
        from: &str,
        kinds: &[PacketKind],
        seed: u64,
    ) -> anyhow::Result<()> {
        let mut cable =
            Cable::new(interface, from, seed).with_context(|| format!("{interface}, probes from {from}"))?;
        let begin = Instant::now();
        let mut hashes = !self.no_hashes;
        let mut learned = self.ask(&mut cable, kinds, seed, hashes);
        // What the kernel computes itself where the card reports nothing is no affine hash. The queues are the card's all the same.
        if hashes && matches!(learned, Err(LearnError::NotAffine { .. })) && !cable.broken() {
            hashes = false;
            learned = match self.ask(&mut cable, kinds, seed, false) {
                Err(LearnError::NotAffineQueues { .. }) => learned,
                other => other,
            };
        }
        cable.check()?;
        let card = format!("{interface}, probes from {from}");
        if let (Some(path), Ok(learned)) = (&self.output, &learned) {
            let what = format!("{} of {card}, seed {seed}, {} sent", said(learned.hashes), cable.sent);
            Rule::of(learned, kinds).write(path, learned, &what).context("--output")?;
        }
        let report = Report {
            card: &card,
            from: if learned.as_ref().map_or(hashes, |learned| learned.hashes) { "hashes" } else { "queues" },
            learned: learned.as_ref(),
            gaps: None,
            probes: cable.sent,
            milliseconds: begin.elapsed().as_secs_f64() * 1e3,
            unseen: 0,
            wrong: 0,
            written: self.output.as_deref(),
        };
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", crate::document::value(report.document()))?;
        } else if let Ok(learned) = &learned {
            out.write_all(report.page(learned).as_bytes())?;
        }
        drop(out);
        learned.map(drop).map_err(|error| Missed(format!("{interface}: {error}")).into())
    }

    fn ask(
        &self,
        cable: &mut Cable,
        kinds: &[PacketKind],
        seed: u64,
        hashes: bool,
    ) -> Result<Learned, LearnError> {
        let options = Options { seed, kinds: kinds.to_vec(), hashes, probes: self.probes };
        learn(&options, &mut |flows: &[Flow]| cable.ask(flows))
    }
}

/// Both ends.
struct Cable {
    sampler: Sampler,
    sender: RawSender,
    _promiscuous: Promiscuous,
    from_zero: bool,
    interface: String,
    marks: Marks,
    sent: usize,
    came: usize,
    without_queue: usize,
    error: Option<io::Error>,
}

impl Cable {
    fn new(interface: &str, from: &str, seed: u64) -> anyhow::Result<Self> {
        let card = flowlane::card::read(interface)?;
        let near = Interface::find(interface)?;
        let sampler = Sampler::open(&near, WAITING)?;
        let promiscuous = Promiscuous::hold(&near)?;
        let sender = sender(from)?;
        let mut rng = Rng::new(seed ^ u64::from(std::process::id()) << 32);
        let marks = Marks::new(&mut rng);
        sampler.set_share(1.0).context("taking samples")?;
        Ok(Self {
            sampler,
            sender,
            _promiscuous: promiscuous,
            from_zero: card.driver_name() == "veth",
            interface: interface.to_owned(),
            marks,
            sent: 0,
            came: 0,
            without_queue: 0,
            error: None,
        })
    }

    fn broken(&self) -> bool {
        self.error.is_some() || self.without_queue > 0
    }

    /// What kept answers from coming, if it was not the way.
    fn check(&mut self) -> anyhow::Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error).with_context(|| format!("{}: probes", self.interface));
        }
        if self.without_queue > 0 {
            bail!("{}: its driver does not tell on which queue packets came", self.interface);
        }
        if self.came == 0 {
            bail!(
                "{}: none of {} probes came: is this the interface at the other end of the cable, and are both up?",
                self.interface,
                self.sent
            );
        }
        Ok(())
    }

    fn ask(&mut self, flows: &[Flow]) -> Vec<Option<Answer>> {
        let mut answers = vec![None; flows.len()];
        for (at, batch) in flows.chunks(BATCH).enumerate() {
            if self.broken() {
                break;
            }
            if let Err(error) = self.batch(batch, &mut answers[at * BATCH..]) {
                self.error = Some(error);
            }
        }
        answers
    }

    fn batch(&mut self, flows: &[Flow], answers: &mut [Option<Answer>]) -> io::Result<()> {
        let first = self.sent;
        let mut open = flows.len();
        for (i, flow) in flows.iter().enumerate() {
            send(&self.sender, &frame(flow, self.marks.macs, &self.marks.of(first + i)))?;
        }
        self.sent += flows.len();
        let mut heard = Instant::now();
        while open > 0 && heard.elapsed() < QUIET {
            let Some(sample) = self.sampler.take() else {
                std::thread::sleep(TURN);
                continue;
            };
            let Some(number) = self.marks.number(&sample.bytes) else { continue };
            // A late one of an earlier batch counts as lost.
            let Some(answer) = number.checked_sub(first).and_then(|i| answers.get_mut(i)) else { continue };
            heard = Instant::now();
            self.came += 1;
            let queue = packet::of(&sample, self.from_zero).and_then(|seen| u16::try_from(seen.queue?).ok());
            let Some(queue) = queue else {
                self.without_queue += 1;
                return Ok(());
            };
            if answer.replace(Answer { hash: (sample.hash != 0).then_some(sample.hash), queue }).is_none() {
                open -= 1;
            }
        }
        Ok(())
    }
}

/// How probes of one set are told from other packets.
pub(super) struct Marks {
    /// Source and destination of the frames.
    pub(super) macs: [[u8; 6]; 2],
    /// Whose probes these are.
    cookie: [u8; 12],
}

impl Marks {
    pub(super) fn new(rng: &mut Rng) -> Self {
        // Locally administered, of one host each.
        let mut mac = || {
            let bytes = rng.next_u64().to_be_bytes();
            [0x02, bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]
        };
        let macs = [mac(), mac()];
        let mut cookie = *b"flowlane\0\0\0\0";
        cookie[8..].copy_from_slice(&rng.next_u32().to_be_bytes());
        Self { macs, cookie }
    }

    /// The mark of a probe.
    pub(super) fn of(&self, number: usize) -> [u8; MARK] {
        let mut mark = [0; MARK];
        mark[..12].copy_from_slice(&self.cookie);
        mark[12..].copy_from_slice(&(number as u64).to_be_bytes());
        mark
    }

    /// The number of a probe of this set.
    pub(super) fn number(&self, frame: &[u8]) -> Option<usize> {
        let mark: &[u8; MARK] = frame.last_chunk()?;
        let (cookie, number) = mark.split_at(12);
        let number = u64::from_be_bytes(number.try_into().ok()?);
        // Guard: `cookie == self.cookie` as `true` fails far::tests::a_seed_makes_one_set
        (cookie == self.cookie).then_some(usize::try_from(number).ok()?)
    }
}

/// `ENOBUFS` of Linux on every processor that it runs on but MIPS and Alpha.
const ENOBUFS: i32 = 105;

/// Sends a frame. Without room the next ones wait for those before.
pub(super) fn send(sender: &RawSender, frame: &[u8]) -> io::Result<()> {
    let begin = Instant::now();
    while let Err(error) = sender.send(frame) {
        let full = error.raw_os_error() == Some(ENOBUFS) || error.kind() == io::ErrorKind::WouldBlock;
        if !full || begin.elapsed() > QUIET {
            return Err(error);
        }
        std::thread::sleep(TURN);
    }
    Ok(())
}

/// Opens `IFACE` or `IFACE@NETNS`.
fn sender(from: &str) -> anyhow::Result<RawSender> {
    let Some((name, namespace)) = from.split_once('@') else {
        return Ok(RawSender::open(&Interface::find(from)?)?);
    };
    if namespace.is_empty() || namespace.contains('/') {
        bail!("--probe-from {from}: '{namespace}' is no network namespace's name ('ip netns')");
    }
    let path = Path::new("/run/netns").join(namespace);
    let _inside = flowlane_sys::netns::enter_path(&path)?;
    Ok(RawSender::open(&Interface::find(name)?)?)
}

/// An Ethernet frame of this flow, with the mark behind its transport header.
pub(super) fn frame(flow: &Flow, [from, to]: [[u8; 6]; 2], mark: &[u8; MARK]) -> Vec<u8> {
    let mut segment = transport(flow);
    segment.extend(mark);
    let len = segment.len() as u16;
    let protocol = IpProtocol(flow.protocol.0);
    let (kind, header, pseudo) = match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, flow.protocol.0, 0, 0];
            header[2..4].copy_from_slice(&(20 + len).to_be_bytes());
            header.extend([src.octets(), dst.octets()].concat());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            (0x0800_u16, header, Sum::pseudo_v4(src, dst, protocol, len))
        }
        (src, dst) => {
            let six = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let (src, dst) = (six(src), six(dst));
            let mut header = vec![0x60, 0, 0, 0, 0, 0, flow.protocol.0, 64];
            header[4..6].copy_from_slice(&len.to_be_bytes());
            header.extend([src.octets(), dst.octets()].concat());
            (0x86dd, header, Sum::pseudo_v6(src, dst, protocol, u32::from(len)))
        }
    };
    let at = match flow.protocol {
        Protocol::TCP => Some(16),
        Protocol::UDP => Some(6),
        _ => None,
    };
    if let Some(at) = at {
        let sum = match pseudo.add_bytes(&segment).finish() {
            // Zero says that there is none.
            0 if flow.protocol == Protocol::UDP => 0xffff,
            sum => sum,
        };
        segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    [&to[..], &from, &kind.to_be_bytes(), &header, &segment].concat()
}

/// The transport header, its checksum still zero; nothing for a protocol without ports.
fn transport(flow: &Flow) -> Vec<u8> {
    let ports = [flow.src_port.to_be_bytes(), flow.dst_port.to_be_bytes()].concat();
    match flow.protocol {
        // A segment that acknowledges something.
        Protocol::TCP => [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]].concat(),
        Protocol::UDP => [&ports[..], &(8 + MARK as u16).to_be_bytes(), &[0, 0]].concat(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_stack::wire::classify;

    /// Every kind of probe reads as the flow that it is of, with sums that are right.
    #[test]
    fn probes_are_what_they_say() {
        let ends = [("192.0.2.1:5", "198.51.100.2:6"), ("[2001:db8::1]:5", "[2001:db8::2]:6")];
        for (src, dst) in ends {
            for protocol in [Protocol::TCP, Protocol::UDP, Protocol(253)] {
                let mut flow = Flow::new(src.parse().unwrap(), dst.parse().unwrap(), protocol);
                let frame = frame(&flow, [[2; 6], [6; 6]], &[9; MARK]);
                let ip = if flow.src.is_ipv4() { 20 } else { 40 };
                let ports = match protocol {
                    Protocol::TCP => 20,
                    Protocol::UDP => 8,
                    _ => 0,
                };
                assert_eq!(frame.len(), 14 + ip + ports + MARK);
                let found = classify(&frame).flow().unwrap();
                if protocol == Protocol(253) {
                    (flow.src_port, flow.dst_port) = (0, 0);
                }
                assert_eq!(found.ports.unwrap_or((0, 0)), (flow.src_port, flow.dst_port));
                assert_eq!((found.addresses.src(), found.addresses.dst()), (flow.src, flow.dst));
                assert_eq!((found.protocol.0, found.fragment), (protocol.0, false));
                let ip = &frame[14..];
                let (header, src_dst) = if flow.src.is_ipv4() { (20, 12..20) } else { (40, 8..40) };
                if flow.src.is_ipv4() {
                    assert_eq!(checksum(&ip[..20]), 0);
                }
                if protocol != Protocol(253) {
                    let rest = &ip[header..];
                    let sum = Sum::default()
                        .add_bytes(&ip[src_dst])
                        .add_u16(u16::from(protocol.0))
                        .add_u16(rest.len() as u16)
                        .add_bytes(rest);
                    assert!(sum.is_intact());
                }
            }
        }
    }
}
