//! Forwards so many bursts of 32 frames of 64 bytes between two ports and ends: for counting instructions (`benches/switch/instructions.sh`).
//!
//! `forward BURSTS [WORDS]`: WORDS change the configuration of four ports. With `BURSTS` 0 it does what comes before, alone.
#![allow(clippy::unwrap_used, reason = "a tool for measuring")]

use flowlane_stack::time::Time;
use flowlane_switch::{Change, Config, Output, PortId, Seed, Switch, config::PortConfig};
use flowlane_sys::frame::{Frame, FrameMemory, HEADROOM, MemoryConfig};

const BURST: usize = 32;

/// What is counted.
#[inline(never)]
fn one_burst(switch: &mut Switch, from: PortId, frames: &mut Vec<Frame>, now: Time, output: &mut Output) {
    switch.forward(from, frames, now, output);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let bursts: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let words = arguments.next().unwrap_or_default();
    let plain = Config::new((0..4).map(|n| PortConfig::new(&format!("p{n}"))).collect());
    let config = Change::parse(&plain, &words).unwrap().config;
    let mut switch = Switch::new(config, Seed([3, 5, 7, 9]), 1, Time::ZERO).unwrap();
    let port = |n: u64| PortId::new(n as usize).unwrap();
    (0..4).for_each(|n| switch.set_link(port(n), true));
    let memory =
        MemoryConfig { frames_per_home: 256, lock: false, huge_pages: false, ..MemoryConfig::default() };
    let pool = FrameMemory::new(&memory).unwrap().attach(0).unwrap();
    let (mut output, mut frames, now) = (Output::new(4, 64), Vec::with_capacity(BURST), Time::from_secs(1));
    let bytes = |dst: u8, src: u8| {
        let mut bytes = [0; 60];
        (bytes[0], bytes[5], bytes[6], bytes[11], bytes[12]) = (2, dst, 2, src, 8);
        bytes
    };
    // Both stations are known before it begins.
    for n in 0..2 + bursts {
        let (from, to) = (n & 1, n & 1 ^ 1);
        let count = if n < 2 { 1 } else { BURST };
        while frames.len() < count {
            frames.push(pool.alloc().unwrap());
        }
        for frame in &mut frames {
            frame.reset(HEADROOM);
            assert!(frame.extend_from_slice(&bytes(1 + to as u8, 1 + from as u8)));
        }
        one_burst(&mut switch, port(from), &mut frames, now, &mut output);
        if n < 2 {
            output.clear();
            frames.clear();
            continue;
        }
        let sent: &mut Vec<Frame> = output.port(port(to));
        assert_eq!(sent.len(), BURST);
        core::mem::swap(&mut frames, sent);
        output.settle();
    }
    println!("{} frames", bursts * BURST as u64);
}
