//! Loads that are changed while they run, and what a server hears of that.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use flowlane_load::http::{Pace, Pool, Version};
use flowlane_load::{Change, Changed, Unchanged};

use super::kit::{Heard, good, ms, ok, plan, pool, rate, run_turned};

/// Changes that are asked for one after the other, each as soon as the load takes it.
fn in_turn(changes: &[Change], of: impl Fn(Change) -> Result<Changed, Unchanged>, next: &Cell<usize>) {
    if let Some(change) = changes.get(next.get()) {
        match of(*change) {
            Ok(_) => next.set(next.get() + 1),
            Err(why) => assert_eq!(why, Unchanged::NotBegun),
        }
    }
}

/// What was due follows from the moments that were agreed, whenever that was: to one request in each lane.
#[test]
fn a_paused_and_faster_load_sends_what_its_changes_say() {
    let heard = Arc::new(Heard::default());
    let server = good(&heard, |_, _, _| ok(b"hello"));
    let plan = plan(Pool { connections: 8, pace: rate(1000.0), ..pool() }, ms(3000));
    let (next, changes) = (Cell::new(0), [Change::Pause, Change::Rate(2000.0), Change::Resume]);
    let ran =
        run_turned(2, plan, &server, |changer| in_turn(&changes, |change| changer.change(change), &next));
    assert_eq!(ran.outcome.failure, None);
    let [paused, faster, resumed] = ran.outcome.changes[..] else { panic!("{:?}", ran.outcome.changes) };
    assert_eq!((paused.paused, faster.paused, resumed.paused, resumed.rate), (true, true, false, 2000.0));
    assert!(paused.at <= faster.at && faster.at < resumed.at && resumed.at < ms(3000));
    let due = 1000.0 * paused.at.as_secs_f64() + 2000.0 * (ms(3000) - resumed.at).as_secs_f64();
    let counts = ran.counts();
    assert!((counts.sent + counts.unsent).abs_diff(due as u64) <= 2, "{counts:?}, {due}");
    assert_eq!((counts.answered, counts.failed, heard.requests()), (counts.sent, 0, counts.sent));
}

#[test]
fn what_has_no_schedule_of_its_own_is_not_changed() {
    let closed = Pool { pace: Pace::Closed, ..pool() };
    let http2 = Pool { version: Version::Http2 { streams: 4 }, pace: rate(10.0), ..pool() };
    for (pool, why) in [(closed, Unchanged::Closed), (http2, Unchanged::Streams)] {
        let heard = Arc::new(Heard::default());
        let server = good(&heard, |_, _, _| ok(b"hello"));
        let seen = RefCell::new(Vec::new());
        let ran = run_turned(1, plan(Pool { connections: 1, ..pool }, ms(300)), &server, |changer| {
            seen.borrow_mut().push(changer.change(Change::Rate(5.0)));
        });
        assert!(
            !seen.borrow().is_empty() && seen.borrow().iter().all(|s| *s == Err(why.clone())),
            "{seen:?}"
        );
        assert_eq!(ran.outcome.changes, []);
    }
}
