//! Loads that are changed while they run, and what a server hears of that.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flowlane_load::http::{Pace, Pool, Version};
use flowlane_load::{Change, Changed, Unchanged};

use super::h2::http2;
use super::kit::{Heard, Serve, good, ms, ok, plan, pool, rate, run_turned, serve};

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

/// Connections that are open at the server come to be as many as was said, more and fewer, and no request is lost with one that is closed.
// Long: two runs of four seconds, in which connections come and go three times.
#[test]
fn connections_are_opened_and_closed() {
    for pace in [Pace::Closed, rate(2000.0)] {
        let heard = Arc::new(Heard::default());
        let server = good(&heard, |_, _, _| ok(b"hello"));
        come_and_go(&heard, &server, Pool { connections: 8, pace, ..pool() });
    }
}

/// The same of HTTP/2, with several requests at once on each.
// Long: the same.
#[test]
fn connections_of_streams_are_opened_and_closed() {
    for pace in [Pace::Closed, rate(2000.0)] {
        let heard = Arc::new(Heard::default());
        let pool = Pool { connections: 8, pace, version: Version::Http2 { streams: 3 }, ..pool() };
        come_and_go(&heard, &http2(&heard), pool);
    }
}

/// Eight connections become twenty, four and twelve.
fn come_and_go(heard: &Arc<Heard>, answers: &Serve, pool: Pool) {
    let open = Arc::new(AtomicUsize::new(0));
    let (answers, count) = (answers.clone(), open.clone());
    let server = serve(move |stream| {
        let (answers, open) = (answers.clone(), Open::one(&count));
        async move {
            answers(stream).await;
            drop(open);
        }
    });
    let (sizes, next) = ([20, 4, 12], Cell::new(0usize));
    let ran = run_turned(2, plan(pool, ms(4000)), &server, |changer| {
        let before = next.get().checked_sub(1).map_or(8u32, |last| sizes[last]);
        if open.load(Ordering::Relaxed) == before as usize && next.get() < sizes.len() {
            let few = changer.change(Change::Connections(1));
            assert!(
                matches!(few, Err(Unchanged::FewConnections(4) | Unchanged::NotBegun | Unchanged::Ending)),
                "{few:?}"
            );
            in_turn(&sizes.map(Change::Connections), |change| changer.change(change), &next);
        }
    });
    assert_eq!((ran.outcome.failure.as_ref(), next.get(), ran.outcome.changes.len()), (None, 3, 3));
    let counts = ran.counts();
    assert_eq!((counts.answered, counts.failed, heard.requests()), (counts.sent, 0, counts.sent));
    // Eight, twelve more, and eight after all but four were closed.
    assert_eq!(heard.connections(), 28);
}

/// One of the connections that are open, while it is.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn one(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn what_has_no_schedule_of_its_own_is_not_changed() {
    let heard = Arc::new(Heard::default());
    let server = good(&heard, |_, _, _| ok(b"hello"));
    let seen = RefCell::new(Vec::new());
    let closed = Pool { pace: Pace::Closed, connections: 1, ..pool() };
    let ran = run_turned(1, plan(closed, ms(300)), &server, |changer| {
        seen.borrow_mut().push(changer.change(Change::Rate(5.0)));
    });
    assert!(
        !seen.borrow().is_empty() && seen.borrow().iter().all(|s| *s == Err(Unchanged::Closed)),
        "{seen:?}"
    );
    assert_eq!(ran.outcome.changes, []);
}
