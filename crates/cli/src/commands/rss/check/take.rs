//! The sampling of a check: packets are sampled and threads looked at meanwhile; counters are read before and after.

use super::counters::{Counters, Received};
use super::packet::{self, Seen};
use super::share::{self, Share};
use super::sockets::Sockets;
use crate::interrupt::Interrupt;
use anyhow::Context;
use flowlane::card::Card;
use flowlane_rss::Flow;
use flowlane_sys::packet::sample::Sampler;
use flowlane_sys::process::own_time;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Time between two readings of samples at first, when the rate of packets is not known yet.
const FIRST_TURN: Duration = Duration::from_millis(20);
/// The same later.
const TURN: Duration = Duration::from_millis(100);
/// Time between two looks at threads, at least.
const LOOK: Duration = Duration::from_millis(200);
/// The time between two looks is at least so many times the processor time of one.
const LOOKS: u32 = 400;
/// Most samples that are kept.
const MOST: usize = 200_000;
/// Most flows whose sockets are searched for.
const FLOWS: usize = 4096;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) seen: Vec<Seen>,
    /// Samples that are not IP.
    pub(super) others: u64,
    pub(super) sockets: Sockets,
    pub(super) before: Counters,
    pub(super) after: Counters,
    pub(super) seconds: f64,
    /// Processor time of this process meanwhile, seconds.
    pub(super) own_seconds: f64,
}

/// Samples for this time, about `rate` packets a second.
pub(super) fn take(card: &Card, time: Duration, rate: u32, interrupt: &Interrupt) -> anyhow::Result<Taken> {
    let interface = &card.interface;
    let from_zero = card.driver_name() == "veth";
    let wanted = f64::from(rate).min(MOST as f64 / time.as_secs_f64());
    let mut sampler = Sampler::open(interface, share::waiting(wanted))?;
    let counter = Received::of(interface.name());
    let mut taken = Taken { before: Counters::read(interface.name()), ..Taken::default() };
    let (begin, own) = (Instant::now(), own_time());
    let mut share = Share::new(wanted);
    let mut packets = counter.now();
    let (mut last, mut looked, mut found, mut look) = (begin, begin, 0, LOOK);
    let mut fresh: HashSet<Flow> = HashSet::new();
    // ^C ends the sampling, and what was seen is judged.
    while begin.elapsed() < time && !interrupt.came() {
        let turn = (begin.elapsed() / 10).clamp(FIRST_TURN, TURN);
        std::thread::sleep(turn.min(time.saturating_sub(begin.elapsed())));
        let mut got = 0;
        while let Some(sample) = sampler.take() {
            got += 1;
            match packet::of(&sample, from_zero) {
                Some(seen) if taken.seen.len() < MOST => {
                    taken.seen.push(seen);
                    if fresh.len() < FLOWS {
                        fresh.insert(seen.flow);
                    }
                }
                Some(_) => {}
                None => taken.others += 1,
            }
        }
        let now = counter.now();
        let came = now.zip(packets).map(|(now, before)| now.saturating_sub(before));
        sampler.set_share(share.next(got, came, last.elapsed())).context("taking samples")?;
        (packets, last) = (now, Instant::now());
        if looked.elapsed() >= look {
            looked = Instant::now();
            // Sockets are searched for at the start, after each third, and at the end.
            if !fresh.is_empty() && found <= begin.elapsed().as_millis() * 3 / time.as_millis().max(1) {
                found += 1;
                taken.sockets.find(&fresh);
            } else {
                let before = own_time();
                taken.sockets.look();
                look = LOOK.max(Duration::from_micros(own_time().saturating_sub(before)) * LOOKS);
            }
        }
    }
    taken.sockets.find(&fresh);
    taken.seconds = begin.elapsed().as_secs_f64();
    taken.own_seconds = own_time().saturating_sub(own) as f64 / 1e6;
    taken.after = Counters::read(interface.name());
    Ok(taken)
}
