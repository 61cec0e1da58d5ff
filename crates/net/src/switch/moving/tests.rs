//! What the first worker forwarded leaves before the second forwards anything.

use std::time::Duration;

use crate::switch::bench::Bench;

#[test]
fn a_port_leaves_only_after_what_came_on_it() {
    let mut bench = Bench::new();
    bench.come(0..10);
    bench.turn(0);
    let moved = bench.release();
    // The ring to the other worker has the frames, and then its link does not take them.
    for worker in [0, 0, 1, 0, 1, 0] {
        bench.turn(worker);
        assert!(moved.try_recv().is_err(), "frames are still on their way");
    }
    bench.come(10..20);
    bench.turn(0);
    assert_eq!(bench.wires[0].0.lock().unwrap().comes.len(), 10, "they wait in the interface");
    bench.wires[1].0.lock().unwrap().takes = true;
    bench.turn(1);
    bench.turn(0);
    assert_eq!(moved.try_recv(), Ok(Ok(())));
    bench.turn(0);
    bench.turn(1);
    assert_eq!(bench.sent(), (0..20).collect::<Vec<u8>>());
    // The first worker has no way to it but the ring, which moved along.
    bench.come(20..25);
    bench.turn(0);
    assert_eq!(bench.sent().len(), 20);
    bench.turn(1);
    assert_eq!(bench.sent(), (0..25).collect::<Vec<u8>>());
}

#[test]
fn a_port_stays_when_a_link_takes_nothing() {
    let mut bench = Bench::new();
    bench.come(0..3);
    bench.turn(0);
    let moved = bench.release();
    bench.turn(0);
    bench.turn(1);
    bench.now += Duration::from_millis(1500);
    bench.turn(0);
    let why = moved.try_recv().unwrap().unwrap_err();
    assert!(why.starts_with("port a stays where it is"), "{why}");
    // And works.
    bench.come(3..6);
    bench.turn(0);
    bench.wires[1].0.lock().unwrap().takes = true;
    bench.turn(1);
    assert_eq!(bench.sent(), [0, 1, 2, 3, 4, 5]);
}
