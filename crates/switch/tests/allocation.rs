//! Forwarding allocates nothing: not for known addresses, new ones, those that move, floods, tags put on and taken off, nor when time passes.
//! An allocation inside the closure ends the test process.
#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "each program, and the fuzz target, uses a part")]
#[path = "switch/common/mod.rs"]
mod common;

use std::time::Duration;

use assert_no_alloc::{AllocDisabler, assert_no_alloc};
use common::{ALL, Bench, frame, mac, port};
use flowlane_sys::frame::Frame;

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

#[test]
fn forwarding_allocates_nothing() {
    let words = "config vlan_mode dot1q vlangroup 1 members none vlangroup 10 members 0,1t,2 port 0 pvid 10 port 1 pvid 0 port 2 pvid 10";
    let mut bench = Bench::words(3, words);
    let mut burst: Vec<Frame> = Vec::with_capacity(8);
    let mut forwarded = 0;
    for round in 0..50 {
        let new = 100 + round as u8;
        // Known addresses there and back, an address nobody has, everybody, a new address, and one that moves.
        let frames = [
            (0, frame(mac(2), mac(1), &[], 60)),
            (1, frame(mac(1), mac(2), &[(0x8100, 10)], 60)),
            (0, frame(mac(99), mac(1), &[], 60)),
            (2, frame(ALL, mac(3), &[], 60)),
            (2, frame(mac(1), mac(new), &[], 60)),
            (if round % 10 == 0 { 2 } else { 0 }, frame(mac(2), mac(4), &[], 60)),
        ];
        for (from, bytes) in frames {
            burst.push(bench.frame(&bytes));
            let Bench { switch, output, now, .. } = &mut bench;
            assert_no_alloc(|| switch.forward(port(from), &mut burst, *now, output));
            for to in bench.output.used() {
                forwarded += bench.output.port(to).drain(..).count();
            }
            bench.output.settle();
        }
        bench.now += Duration::from_millis(700);
    }
    assert!(forwarded >= 50 * 8, "{forwarded}");
}
