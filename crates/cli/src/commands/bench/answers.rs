//! How soon any one of very many connections answers, when nothing else is asked.
//!
//! One connection at a time is picked at random, its task is told to send a request, and the time runs from there until the
//! task has read the whole answer. The task, the stream and the connection of both ends have not been touched since the
//! connection was made or last picked, so with very many of them all of that comes from memory. No connection is picked twice
//! before each was picked once.
//!
//! The tasks of a run are on one thread and share a [`Desk`] there: a connection's own memory, which is measured, holds
//! nothing for this but what its task needs to wait.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use flowlane::{TcpStream, Time, precise_now, spawn};
use flowlane_stack::rng::Rng;
use hdrhistogram::Histogram;

use super::table::Report;

/// Bytes of a request and of its answer.
const SIZE: usize = 64;
/// Requests of one round.
const ASKED: usize = 10_000;
/// Longer than anybody waits, nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// The quantiles that are shown.
const SHOWN: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.99", 0.9999), ("max", 1.0)];

/// Where the one who asks and the tasks of connections meet.
#[derive(Debug, Default)]
struct Desk {
    /// What wakes the task of each connection.
    held: Vec<Waker>,
    /// The task that is woken now is to send a request.
    told: bool,
    /// Bytes of the answer that have not been read yet.
    missing: usize,
    /// When all of it had been read, nanoseconds; `None` if the connection ended instead.
    answered: Option<Option<u64>>,
    asker: Option<Waker>,
}

impl Desk {
    fn answer(&mut self, at: Option<u64>) {
        self.answered = Some(at);
        if let Some(asker) = self.asker.take() {
            asker.wake();
        }
    }
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
}

fn with_desk<R>(what: impl FnOnce(&mut Desk) -> R) -> R {
    DESK.with_borrow_mut(what)
}

/// The time now, nanoseconds.
fn clock() -> Option<u64> {
    precise_now().ok().map(Time::as_nanos)
}

/// Makes room for so many more connections: a [`Waker`] for each, which are no part of them.
pub(super) fn reserve(connections: usize) {
    with_desk(|desk| desk.held.reserve_exact(connections));
}

/// Sends back what comes until the peer ends the connection.
pub(super) fn serve(stream: TcpStream) {
    let _ = spawn(async move { poll_fn(|cx| poll_serve(&stream, cx)).await });
}

fn poll_serve(stream: &TcpStream, cx: &mut Context<'_>) -> Poll<()> {
    let mut buffer = [0; SIZE];
    loop {
        match stream.poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            // There is room: one request at a time is all that ever waits to be sent.
            Poll::Ready(Ok(n @ 1..)) if matches!(stream.try_write(&buffer[..n]), Ok(Some(m)) if m == n) => {}
            Poll::Ready(_) => return Poll::Ready(()),
        }
    }
}

/// Holds a connection, and asks when told to, until the peer ends it.
pub(super) fn hold(stream: TcpStream) {
    let task = async move {
        poll_fn(|cx| {
            with_desk(|desk| desk.held.push(cx.waker().clone()));
            Poll::Ready(())
        })
        .await;
        poll_fn(|cx| poll_hold(&stream, cx)).await;
    };
    let _ = spawn(task);
}

fn poll_hold(stream: &TcpStream, cx: &mut Context<'_>) -> Poll<()> {
    if with_desk(|desk| std::mem::take(&mut desk.told))
        && !matches!(stream.try_write(&[7; SIZE]), Ok(Some(SIZE)))
    {
        with_desk(|desk| desk.answer(None));
        return Poll::Ready(());
    }
    let mut buffer = [0; SIZE];
    loop {
        match stream.poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(n @ 1..)) => with_desk(|desk| {
                desk.missing = desk.missing.saturating_sub(n);
                if desk.missing == 0 {
                    desk.answer(clock());
                }
            }),
            Poll::Ready(_) => {
                with_desk(|desk| desk.answer(None));
                return Poll::Ready(());
            }
        }
    }
}

/// Asks one after the other; sends the times of each round, nanoseconds. It ends early if a connection does.
pub(super) async fn ask(rounds: u32, seed: u64, results: mpsc::Sender<Histogram<u64>>) {
    // Connections that end now, with the run, have nothing to say.
    let mut held = with_desk(|desk| std::mem::take(&mut desk.held));
    let mut rng = Rng::new(seed);
    let mut front = 0;
    'rounds: for _ in 0..rounds {
        let mut times = histogram();
        for _ in 0..ASKED {
            // Those picked are swapped to the front.
            let at = front + rng.below((held.len() - front) as u32) as usize;
            held.swap(front, at);
            let Some(took) = ask_one(&held[front]).await else { break 'rounds };
            times.saturating_record(took);
            front = (front + 1) % held.len();
        }
        if results.send(times).is_err() {
            break;
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

/// How long a connection took to answer, nanoseconds.
async fn ask_one(task: &Waker) -> Option<u64> {
    with_desk(|desk| (desk.told, desk.missing, desk.answered) = (true, SIZE, None));
    let from = clock()?;
    task.wake_by_ref();
    let answered = poll_fn(|cx| {
        with_desk(|desk| match desk.answered.take() {
            Some(answered) => Poll::Ready(answered),
            None => {
                desk.asker = Some(cx.waker().clone());
                Poll::Pending
            }
        })
    });
    Some(answered.await?.saturating_sub(from))
}

/// Adds the rows: of very many connections beside few.
pub(super) fn rows(report: &mut Report, many: (usize, &[Histogram<u64>]), few: (usize, &[Histogram<u64>])) {
    let of = |times: &[Histogram<u64>], q: f64| -> Vec<f64> {
        times.iter().map(|t| t.value_at_quantile(q) as f64 / 1e3).collect()
    };
    let name =
        |n: usize, shown: &str| format!("a random one of {n} connections answers, asked alone, {shown}");
    for (shown, q) in SHOWN {
        let theirs = of(few.1, q);
        report.row(name(many.0, shown), "us", &of(many.1, q), Some(("few", &theirs)));
        report.row(name(few.0, shown), "us", &theirs, None);
    }
    report.note(format!(
        "asked one at a time, {ASKED} in a round, none twice while others were not: from when its task is told to write {SIZE} bytes \
         until it has read {SIZE}"
    ));
}
