//! The time of a check: packets are sampled, threads looked at, counters read before and after.

use super::counters::{self, Counters};
use super::packet::{self, Seen};
use super::share::Share;
use super::sockets::Sockets;
use anyhow::Context;
use flowlane::card::Card;
use flowlane_rss::Flow;
use flowlane_sys::packet::sample::Sampler;
use flowlane_sys::process::own_time;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How often samples are taken out, and threads looked at.
const TURN: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(200);
/// Samples that are kept in all.
const MOST: usize = 200_000;
/// Flows whose sockets are looked for.
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
    /// Seconds of processor time that this process used meanwhile.
    pub(super) own_seconds: f64,
}

/// Looks for so long, at about `rate` packets a second.
pub(super) fn take(card: &Card, time: Duration, rate: u32) -> anyhow::Result<Taken> {
    let interface = &card.interface;
    let from_zero = card.driver_name() == "veth";
    let sampler = Sampler::open(interface)?;
    let mut taken = Taken { before: Counters::read(interface.name()), ..Taken::default() };
    let (begin, own) = (Instant::now(), own_time());
    let mut share = Share::new(f64::from(rate).min(MOST as f64 / time.as_secs_f64()));
    let mut packets = counters::received(interface.name());
    let (mut last, mut looked, mut found) = (begin, begin, 0);
    let mut fresh: HashSet<Flow> = HashSet::new();
    while begin.elapsed() < time {
        std::thread::sleep(TURN.min(time.saturating_sub(begin.elapsed())));
        let mut got = 0;
        while let Some(sample) = sampler.next().context("taking samples")? {
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
        let now = counters::received(interface.name());
        let came = now.zip(packets).map(|(now, before)| now.saturating_sub(before));
        sampler.set_share(share.next(got, came, last.elapsed())).context("taking samples")?;
        (packets, last) = (now, Instant::now());
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            // Sockets are looked for three times: at the start and after each third.
            if !fresh.is_empty() && found <= begin.elapsed().as_millis() * 3 / time.as_millis().max(1) {
                found += 1;
                taken.sockets.find(&fresh);
            } else {
                taken.sockets.look();
            }
        }
    }
    taken.sockets.find(&fresh);
    taken.seconds = begin.elapsed().as_secs_f64();
    taken.own_seconds = own_time().saturating_sub(own) as f64 / 1e6;
    taken.after = Counters::read(interface.name());
    Ok(taken)
}
