//! A bad path between two interfaces: it forwards frames with a rate, a drop-tail queue, a delay and random loss.
//!
//! ```text
//! bottleneck FORWARD BACK [--rate MBIT] [--queue MS] [--delay MS] [--jitter MS] [--loss PERCENT] [--loss-back PERCENT] [--seed N]
//!     [--mark MS] [--seconds N]
//! ```
//!
//! Frames that come in at the interface FORWARD leave at BACK through a queue of `--rate` (0, as without it: no limit) that
//! holds `--queue` milliseconds of it and drops what comes when it is full; before it, each frame is lost with probability
//! `--loss`. Frames the other way are not limited, and lost with `--loss-back`. Both ways take `--delay` milliseconds, and up to `--jitter` more
//! at random, in order: without it, with a full queue, the flow whose host answers a few microseconds earlier gets each place
//! that becomes free (Floyd and Jacobson, "On traffic phase effects in packet-switched gateways", 1992). The queue is computed
//! from the times of arrival, so that a program that wakes late delays frames but does not change what is dropped.
//!
//! With `--mark`, IPv4 frames with ECT(1) that wait longer in the queue are marked with Congestion Experienced, as a queue of L4S does.
//!
//! Losses follow `--seed`. ARP is never lost. One line at the end says what was forwarded, lost, dropped and marked, and the longest
//! queue. For kernels without `netem`; `benches/tcp/loss.sh`, `rto.sh` and `share.sh` use it.

use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};
use flowlane_sys::packet::{self, PacketOptions, PacketQueue};
use flowlane_sys::poll;
use flowlane_sys::queue::Queue;
use std::collections::VecDeque;
use std::error::Error;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Frames taken from a link at once.
const BURST: usize = 64;

/// What one way does to frames.
#[derive(Default)]
struct Way {
    /// Nanoseconds for a byte, 0 without a limit.
    byte_ns: f64,
    /// The longest queue.
    queue: Duration,
    delay: Duration,
    jitter: Duration,
    /// Frames with ECT(1) that wait longer are marked.
    mark: Option<Duration>,
    /// When the last frame arrives.
    last: Duration,
    /// Of 2^32.
    loss: u64,
    /// When the frames queued by now have left.
    free_at: Duration,
    /// Frames under way and when they arrive.
    under_way: VecDeque<(Duration, Frame)>,
    forwarded: u64,
    lost: u64,
    dropped: u64,
    marked: u64,
    longest: Duration,
}

/// Congestion Experienced in place of ECT(1), in an Ethernet frame with IPv4; whether it was that. The checksum follows (RFC 1624).
fn mark(frame: &mut [u8]) -> bool {
    let Some(header) = frame.get_mut(12..34).filter(|header| header[..2] == [8, 0] && header[3] & 3 == 1)
    else {
        return false;
    };
    header[3] |= 3;
    let sum = u32::from(!u16::from_be_bytes([header[12], header[13]])) + 2;
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[12..14].copy_from_slice(&sum.to_be_bytes());
    true
}

impl Way {
    /// A frame has come at `now`.
    fn take(&mut self, now: Duration, mut frame: Frame, random: u64) {
        let is_arp = frame.data().get(12..14) == Some(&[8, 6]);
        if !is_arp && random & 0xffff_ffff < self.loss {
            self.lost += 1;
            return;
        }
        let waits = self.free_at.saturating_sub(now);
        let takes = Duration::from_nanos((frame.len() as f64 * self.byte_ns) as u64);
        if self.byte_ns > 0.0 && waits + takes > self.queue {
            self.dropped += 1;
            return;
        }
        self.longest = self.longest.max(waits);
        if self.mark.is_some_and(|most| waits > most) {
            self.marked += u64::from(mark(frame.data_mut()));
        }
        self.free_at = now + waits + takes;
        let late = self.jitter.mul_f64((random >> 32) as f64 / 4_294_967_296.0);
        self.last = self.last.max(self.free_at + self.delay + late);
        self.under_way.push_back((self.last, frame));
    }

    /// Sends what has arrived by now.
    fn deliver(&mut self, now: Duration, to: &mut PacketQueue, ready: &mut Vec<Frame>) {
        while self.under_way.front().is_some_and(|(due, _)| *due <= now) {
            ready.extend(self.under_way.pop_front().map(|(_, frame)| frame));
            self.forwarded += 1;
        }
        // What finds no room waits in `ready` for the next turn.
        to.transmit(ready);
        let _ = to.flush();
    }
}

fn open(interface: &str) -> Result<PacketQueue, Box<dyn Error>> {
    let mut options = PacketOptions::new(interface, 1, vec![]);
    options.claims = vec![(IpAddr::from([0; 4]), 0), (IpAddr::from([0; 16]), 0)];
    options.ring_size = 4096;
    Ok(packet::open(&options)?.remove(0))
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Nothing is under way for so long: time to look at the clock.
const IDLE: Duration = Duration::from_millis(100);

fn forward(
    pool: &Pool,
    queues: &mut [PacketQueue; 2],
    ways: &mut [Way; 2],
    (mut seed, seconds): (u64, f64),
) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let end = Duration::from_secs_f64(seconds);
    let mut came = Vec::with_capacity(BURST);
    let mut ready = [vec![], vec![]];
    loop {
        let now = start.elapsed();
        if now >= end {
            return Ok(());
        }
        let mut any = false;
        for from in [0, 1] {
            any |= queues[from].receive(pool, &mut came, BURST) > 0;
            for frame in came.drain(..) {
                ways[from].take(now, frame, random(&mut seed));
            }
            ways[from].deliver(now, &mut queues[1 - from], &mut ready[from]);
        }
        if any || queues.iter_mut().any(Queue::ready) {
            continue;
        }
        let next = ways.iter().filter_map(|way| Some(way.under_way.front()?.0)).min().unwrap_or(now + IDLE);
        let stuck = ready.iter().any(|frames| !frames.is_empty());
        let wait = if stuck { Duration::from_micros(100) } else { next.saturating_sub(start.elapsed()) };
        let fds: Vec<_> = queues.iter().filter_map(Queue::fd).collect();
        poll::wait_readable(&fds, Some(wait.min(IDLE).as_nanos() as u64))?;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [into, out, ..] = &arguments[..] else {
        return Err("bottleneck FORWARD BACK [OPTION VALUE]...".into());
    };
    let number = |name: &str, default: f64| -> Result<f64, Box<dyn Error>> {
        let Some(at) = arguments.iter().position(|a| a == name) else { return Ok(default) };
        let value = arguments.get(at + 1).ok_or_else(|| format!("{name} wants a number"))?;
        Ok(value.parse().map_err(|_| format!("{name} wants a number, not {value}"))?)
    };
    let memory = MemoryConfig { frames_per_home: 32_768, lock: false, ..MemoryConfig::default() };
    let pool = FrameMemory::new(&memory)?.attach(0)?;
    let millis =
        |name, default| Ok::<_, Box<dyn Error>>(Duration::from_secs_f64(number(name, default)? / 1e3));
    let (rate, delay, jitter) = (number("--rate", 0.0)?, millis("--delay", 0.0)?, millis("--jitter", 0.0)?);
    let loss = |name| {
        Ok::<_, Box<dyn Error>>((number(name, 0.0)?.clamp(0.0, 100.0) / 100.0 * 4_294_967_296.0) as u64)
    };
    let there = Way {
        byte_ns: if rate > 0.0 { 8e3 / rate } else { 0.0 },
        queue: millis("--queue", 100.0)?,
        delay,
        jitter,
        loss: loss("--loss")?,
        mark: arguments.iter().any(|a| a == "--mark").then(|| millis("--mark", 0.0)).transpose()?,
        ..Way::default()
    };
    let mut ways = [there, Way { delay, jitter, loss: loss("--loss-back")?, ..Way::default() }];
    let mut queues = [open(into)?, open(out)?];
    let run = (number("--seed", 1.0)? as u64, number("--seconds", 1e6)?);
    println!("forwarding");
    forward(&pool, &mut queues, &mut ways, run)?;
    let Way { forwarded, lost, dropped, marked, longest, .. } = &ways[0];
    println!(
        "{forwarded} forwarded, {lost} lost, {dropped} dropped, {marked} marked, longest queue {longest:.1?}"
    );
    Ok(())
}
