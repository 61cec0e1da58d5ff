//! Forwarding in memory: bursts of 32 frames of 64 bytes between two ports with VLANs and learning, over tables of 10 to 100,000 addresses.
//!
//! Each address sends as often as the others, in an order without pattern. Frames come from the pool, go through [`Switch::forward`], and go back
//! into the burst for the other port.
#![allow(missing_docs, reason = "made by a macro")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowlane_stack::time::Time;
use flowlane_switch::{Change, Config, Output, PortId, Seed, Switch, config::PortConfig};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

const BURST: usize = 32;

struct Run {
    switch: Switch,
    output: Output,
    frames: Vec<Frame>,
    addresses: u64,
    at: u64,
    now: Time,
    pool: Pool,
}

fn port(n: usize) -> PortId {
    PortId::new(n).unwrap_or_default()
}

impl Run {
    fn new(addresses: u64, words: &str) -> Run {
        let plain = Config::new((0..4).map(|n| PortConfig::new(&format!("p{n}"))).collect());
        let config =
            Change::parse(&plain, &format!("config addresses 131072 {words}")).map(|change| change.config);
        let mut switch =
            Switch::new(config.unwrap_or(plain), Seed([3, 5, 7, 9]), 1, Time::ZERO).expect("a configuration");
        (0..4).for_each(|n| switch.set_link(port(n), true));
        let pool =
            FrameMemory::new(&MemoryConfig { frames_per_home: 1024, lock: false, ..MemoryConfig::default() })
                .expect("memory")
                .attach(0)
                .expect("a home");
        let frames = (0..BURST).filter_map(|_| pool.alloc()).collect();
        let mut run = Run {
            switch,
            output: Output::new(4, 1024),
            frames,
            addresses,
            at: 0,
            now: Time::from_secs(1),
            pool,
        };
        // Half of the addresses are on either side.
        for n in 0..addresses {
            let mut frame = run.pool.alloc().expect("a frame");
            write(&mut frame, u64::MAX >> 16, n);
            run.switch.forward(port(n as usize % 2), &mut vec![frame], run.now, &mut run.output);
            run.output.clear();
        }
        assert_eq!(run.switch.known(None) as u64, addresses);
        run
    }

    /// One burst from one side to the other.
    #[inline(never)]
    fn burst(&mut self) {
        let side = self.at & 1;
        for frame in &mut self.frames {
            // A step that is prime to the number of addresses: each comes as often, none soon again.
            self.at = (self.at + 7_654_321) % self.addresses;
            let src = (self.at & !1) | side;
            let dst = (((self.at + self.addresses / 2) % self.addresses) & !1) | (side ^ 1);
            write(frame, dst, src);
        }
        self.switch.forward(port(side as usize), &mut self.frames, self.now, &mut self.output);
        let to = self.output.port(port(side as usize ^ 1));
        assert_eq!(to.len(), BURST);
        core::mem::swap(&mut self.frames, to);
        self.output.settle();
    }
}

fn write(frame: &mut Frame, dst: u64, src: u64) {
    frame.reset(flowlane_sys::frame::HEADROOM);
    let mut bytes = [0; 60];
    let number = |n: u64| if n == u64::MAX >> 16 { n } else { 0x0200_0000_0000 | n };
    bytes[..6].copy_from_slice(&number(dst).to_be_bytes()[2..]);
    bytes[6..12].copy_from_slice(&number(src).to_be_bytes()[2..]);
    bytes[12..14].copy_from_slice(&[8, 0]);
    assert!(frame.extend_from_slice(&bytes));
}

fn forward(c: &mut Criterion) {
    let mut group = c.benchmark_group("forward");
    group.throughput(Throughput::Elements(BURST as u64));
    let trunk = "config vlan_mode dot1q vlangroup 1 members none vlangroup 10 members 0,1t,2,3 port 0 pvid 10 port 1 pvid 10 port 2 pvid 10 port 3 pvid 10";
    let access = trunk.replace("1t", "1");
    for (name, words) in [("plain", ""), ("vlan", access.as_str())] {
        for addresses in [10, 1_000, 10_000, 100_000] {
            let mut run = Run::new(addresses, words);
            group.bench_function(format!("{name}/{addresses}"), |b| b.iter(|| black_box(&mut run).burst()));
        }
    }
    let mut run = Run::new(1_000, trunk);
    // Untagged to tagged is a push; the frames come back as they were written.
    group.bench_function("push or pop/1000", |b| b.iter(|| black_box(&mut run).burst()));
    group.finish();
}

criterion_group!(benches, forward);
criterion_main!(benches);
