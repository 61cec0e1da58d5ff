//! The cost of many connections: memory of an idle one, and time of a segment among few and among many.
//!
//! Two instances of the TCP code back to back, without links, lanes and tasks, so that only connections are measured. Memory is the
//! growth of the process, both ends included ([`super::idle`] includes sockets and tasks). A segment is timed over exchanges on
//! connections picked at random; an exchange has three segments: 64 bytes there, 64 back, and the last acknowledgement. Exchanges run
//! one at a time, each segment handled before the next is known, or many at once, so that segments come in bursts as from a card, for
//! which a worker prefetches.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flowlane::{ListenOptions, TcpConfig, Time};
use flowlane_stack::PathMtus;
use flowlane_stack::packet::{Cx, IpInput, IpMeta, IpOutput, Offload};
use flowlane_stack::rng::Rng;
use flowlane_stack::tcp::{AHEAD, ConnId, ConnectOptions, ListenerId, Tcp};
use flowlane_sys::frame::{FrameMemory, MemoryConfig, Pool};

use super::Common;
use super::cold::Cold;
use super::machine::{resident, thread_time};
use super::table::Report;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PORT: u16 = 80;
/// Connections of the small case.
const FEW: usize = 10;
/// Bytes there and back.
const SIZE: usize = 64;
/// Concurrent exchanges: as many as the frames that a worker takes from a queue in one turn.
const BURST: usize = 64;
/// Cold objects visited in a round.
const VISITS: usize = 1 << 20;
/// Bursts picked in advance, untimed: a random choice among a million costs more than a segment.
const PICKED: usize = 64;

/// The frames of both ends: a thread has one pool to which its frames return, and frames of another pool take a slow path.
fn pool() -> anyhow::Result<Rc<Pool>> {
    let memory = MemoryConfig {
        frames_per_home: 4096,
        frame_size: 2048,
        homes: 1,
        huge_pages: false,
        lock: false,
        ..MemoryConfig::default()
    };
    Ok(Rc::new(FrameMemory::new(&memory)?.attach(0)?))
}

/// Two ends, and the connections between them.
struct Pair {
    ends: [Tcp; 2],
    rng: Rng,
    paths: PathMtus,
    pool: Rc<Pool>,
    now: Time,
    listener: ListenerId,
    ids: Vec<[ConnId; 2]>,
    burst: VecDeque<IpOutput>,
}

impl Pair {
    fn new(connections: usize, pool: Rc<Pool>) -> anyhow::Result<Self> {
        let config = TcpConfig {
            max_connections: connections + 1,
            delayed_ack: Duration::ZERO,
            ..TcpConfig::default()
        };
        let mut ends = [Tcp::new(config.clone(), [1, 2, 3]), Tcp::new(config, [4, 5, 6])];
        let listener = ends[1].listen(None, PORT, ListenOptions::default())?;
        let ids = Vec::with_capacity(connections);
        Ok(Self {
            ends,
            rng: Rng::new(1),
            paths: PathMtus::new(1),
            pool,
            now: Time::from_secs(10),
            listener,
            ids,
            burst: VecDeque::new(),
        })
    }

    fn on<R>(&mut self, end: usize, what: impl FnOnce(&mut Tcp, &mut Cx<'_>) -> R) -> R {
        let offload = Offload::default();
        let mut cx =
            Cx { now: self.now, frames: &self.pool, rng: &mut self.rng, paths: &mut self.paths, offload };
        what(&mut self.ends[end], &mut cx)
    }

    /// Delivers the segments that one end sends; `false` if there were none.
    fn deliver(&mut self, from: usize) -> bool {
        let mut burst = std::mem::take(&mut self.burst);
        self.on(from, |tcp, cx| {
            while let Some(out) = tcp.poll_output(cx) {
                burst.push_back(out);
            }
        });
        let any = !burst.is_empty();
        let crowded = burst.len() > 1 && self.ends[1 - from].is_crowded();
        while !burst.is_empty() {
            if crowded {
                look_ahead(&self.ends[1 - from], &burst);
            }
            for out in burst.drain(..burst.len().min(AHEAD)) {
                let ip = meta(&out);
                self.on(1 - from, |tcp, cx| tcp.input_in_burst(cx, IpInput { frame: out.frame, ip }));
            }
        }
        self.on(1 - from, Tcp::end_burst);
        self.burst = burst;
        any
    }

    fn pump(&mut self) {
        while self.deliver(0) | self.deliver(1) {}
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        let n = self.ids.len() as u32;
        let ip = Ipv4Addr::from(0x0b00_0000 + n / 50_000);
        let local = SocketAddr::new(ip.into(), 10_000 + (n % 50_000) as u16);
        let options = ConnectOptions::default();
        let a = self.on(0, |tcp, cx| tcp.connect(cx, local, SocketAddr::new(SERVER, PORT), &options))?;
        self.pump();
        let b = self.ends[1].accept(self.listener)?.context("the connection did not come")?;
        self.ids.push([a, b.id]);
        Ok(())
    }

    /// Request, answer, and the answer's acknowledgement: three segments.
    fn exchange(&mut self, [a, b]: [ConnId; 2]) -> anyhow::Result<()> {
        let mut buffer = [1; SIZE];
        self.on(0, |tcp, cx| tcp.send(cx, a, &buffer))?;
        self.deliver(0);
        self.on(1, |tcp, cx| tcp.recv(cx, b, &mut buffer))?;
        self.on(1, |tcp, cx| tcp.send(cx, b, &buffer))?;
        self.pump();
        self.on(0, |tcp, cx| tcp.recv(cx, a, &mut buffer))?;
        self.now += Duration::from_micros(10);
        for end in 0..2 {
            self.on(end, Tcp::on_timer);
        }
        self.pump();
        Ok(())
    }

    /// As `exchange`, for several different connections at once, which the application prefetches.
    fn exchanges(&mut self, all: &[[ConnId; 2]]) -> anyhow::Result<()> {
        let mut buffer = [1; SIZE];
        for end in 0..2 {
            for some in all.chunks(AHEAD) {
                for ids in some {
                    self.ends[end].prefetch_id(ids[end]);
                }
                for ids in some {
                    let id = ids[end];
                    if end > 0 {
                        self.on(end, |tcp, cx| tcp.recv(cx, id, &mut buffer))?;
                    }
                    self.on(end, |tcp, cx| tcp.send(cx, id, &buffer))?;
                }
            }
            self.pump();
        }
        for [a, _] in all {
            self.on(0, |tcp, cx| tcp.recv(cx, *a, &mut buffer))?;
        }
        self.now += Duration::from_micros(10 * all.len() as u64);
        for end in 0..2 {
            self.on(end, Tcp::on_timer);
        }
        self.pump();
        Ok(())
    }

    /// Concurrent exchanges, in bursts.
    fn at_once(&self) -> usize {
        self.ids.len().min(BURST)
    }

    /// Picks random connections before the clock starts: [`PICKED`] times `at_once`; those used at once are different.
    fn pick(&mut self, at_once: usize, picked: &mut Vec<[ConnId; 2]>) {
        picked.clear();
        for _ in 0..PICKED {
            // Picked connections are swapped to the front.
            for front in 0..at_once {
                let at = front + self.rng.below((self.ids.len() - front) as u32) as usize;
                self.ids.swap(front, at);
                picked.push(self.ids[front]);
            }
        }
    }

    /// Nanoseconds of processor time per segment, over exchanges on random connections, `at_once` at a time.
    fn segment(&mut self, time: Duration, at_once: usize) -> anyhow::Result<f64> {
        let (begin, mut used, mut n) = (Instant::now(), 0.0, 0u32);
        let mut picked = Vec::with_capacity(PICKED * at_once);
        while begin.elapsed() < time {
            self.pick(at_once, &mut picked);
            let from = thread_time();
            for together in picked.chunks(at_once) {
                match together {
                    [one] => self.exchange(*one)?,
                    all => self.exchanges(all)?,
                }
            }
            used += thread_time() - from;
            n += picked.len() as u32;
        }
        Ok(used * 1e9 / f64::from(n) / 3.0)
    }
}

/// Prefetches the connections of the next segments of a burst, as a worker does before it hands them to a lane.
fn look_ahead(tcp: &Tcp, burst: &VecDeque<IpOutput>) {
    let mut expected = [None; AHEAD];
    for (out, place) in burst.iter().zip(&mut expected) {
        let header = out.frame.data();
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        *place = Some(tcp.prefetch(SocketAddr::new(out.dst, port(2)), SocketAddr::new(out.src, port(0))));
    }
    for expected in expected.into_iter().flatten() {
        tcp.prefetch_connection(expected);
    }
}

fn meta(out: &IpOutput) -> IpMeta {
    IpMeta {
        src: out.src,
        dst: out.dst,
        protocol: out.protocol,
        hop_limit: out.hop_limit,
        traffic_class: out.traffic_class,
        header_len: 20,
        interface: 0,
        mtu: 1500,
        unicast: true,
    }
}

/// Measures, and adds the rows.
pub(crate) fn rows(report: &mut Report, common: &Common, many: usize) -> anyhow::Result<()> {
    let pool = pool()?;
    let mut few = Pair::new(FEW, pool.clone())?;
    let mut all = Pair::new(many, pool)?;
    for _ in 0..FEW {
        few.connect()?;
    }
    // The memory of both ends without connections, and their frames, are allocated before.
    all.connect()?;
    let id = all.ids[0];
    all.exchange(id)?;
    let before = resident()?;
    for _ in 1..many {
        all.connect()?;
    }
    for i in 0..many {
        all.exchange(all.ids[i])?;
    }
    let grown = resident()?.saturating_sub(before);
    ensure!(all.ends.iter().all(|e| e.connections() == many), "a connection was lost");
    let handles = std::mem::size_of::<[ConnId; 2]>() * many;
    let each = (grown as f64 - handles as f64) / (2 * many) as f64;
    report.row(format!("idle connection among {many}, one end, engine alone"), "bytes", &[each], None);
    let (mut alone_few, mut alone_many) = (Vec::new(), Vec::new());
    let (mut burst_few, mut burst_many) = (Vec::new(), Vec::new());
    for _ in 0..common.rounds {
        alone_few.push(few.segment(common.round(), 1)?);
        alone_many.push(all.segment(common.round(), 1)?);
        burst_few.push(few.segment(common.round(), few.at_once())?);
        burst_many.push(all.segment(common.round(), all.at_once())?);
    }
    let row = |how: &str, n: usize| format!("a segment on a random one of {n} connections, {how}");
    let ways =
        [("in bursts", burst_many, burst_few, many.min(BURST)), ("one at a time", alone_many, alone_few, 1)];
    for (how, of_many, of_few, at_once) in ways {
        report.row(row(how, many), "ns", &of_many, Some(("ten", &of_few)));
        report.row(row(how, FEW), "ns", &of_few, None);
        if at_once > 1 {
            report.note(format!(
                "bursts are of {at_once} exchanges at once among {many}, of {FEW} among {FEW}"
            ));
        }
    }
    drop((few, all));
    let (mut alone, mut asked) = (Vec::new(), Vec::new());
    let cold = Cold::new(2 * many);
    for _ in 0..common.rounds {
        alone.push(cold.one_at_a_time(VISITS));
        asked.push(cold.asked_for(VISITS));
    }
    let row = |how: &str| format!("a bare object of four cache lines, one of {} at random, {how}", 2 * many);
    report.row(row("one at a time"), "ns", &alone, None);
    report.row(row("asked for in advance"), "ns", &asked, None);
    report.note("what memory alone costs a segment: each of an exchange's three finds one end or one line of the table cold");
    Ok(())
}
