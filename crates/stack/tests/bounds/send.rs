//! What strangers ask for and do not acknowledge.

use std::time::Duration;

use crate::kit::{BESIDE, FULL, World, many, my_turn};

/// Applications write all they may to strangers who acknowledge nothing, and strangers whose answers arrive go on meanwhile.
#[test]
fn answers_that_nobody_acknowledges() {
    let _turn = my_turn();
    let bound = 16 << 20;
    let mut w = World::new(bound, 8192, many());
    let all = w.connect(2000);
    w.strangers.iter_mut().for_each(|s| s.deaf = true);
    let bytes = vec![0; 16 << 10];
    for _ in 0..20 {
        for (_, id) in &all {
            let _ = w.with(|tcp, cx| tcp.send(cx, *id, &bytes));
            w.most();
        }
        w.pass(Duration::from_millis(5));
    }
    assert!(w.tcp.stats().memory_waits > 0);
    w.check(bound + BESIDE);
    // One that nobody has written to yet, and whose peer answers.
    let (n, id) = w.connect(1)[0];
    let mut written = 0;
    for _ in 0..100 {
        written += w.with(|tcp, cx| tcp.send(cx, id, &bytes)).unwrap_or(0);
        w.pass(Duration::from_millis(5));
        w.send(n, 0, FULL);
        w.hear();
        w.read(id);
    }
    assert!(written > 100_000 && w.strangers[n].heard > 100_000, "{written} bytes written");
    w.check(bound + BESIDE);
    // What nobody waits for any more is not kept while others need the memory.
    for (_, id) in &all {
        w.with(|tcp, cx| tcp.close(cx, *id)).unwrap();
    }
    w.pass(Duration::from_secs(30));
    assert!(w.tcp.stats().orphan_drops > 0);
    assert!(w.tcp.buffer_memory() < bound * 7 / 8);
    w.check(bound + BESIDE);
}
