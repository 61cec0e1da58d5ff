//! Latency of a request on a random one of very many idle connections.
//!
//! One connection at a time is picked at random and its task is woken to send a request; the time ends when the task has read the whole
//! answer. Task, stream and connection of both ends have not been used since the connection was made or last picked, so with very many
//! connections they are in no cache. No connection is picked twice before each was picked once.
//!
//! All tasks of a run are on one thread and share a [`Desk`] there, so that a connection's own memory, which is measured, has only the
//! state that its task needs to wait.

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
/// Upper bound of the histograms, nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// The quantiles that are shown.
const SHOWN: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.99", 0.9999), ("max", 1.0)];

/// State shared by the asking task and the tasks of connections.
#[derive(Debug, Default)]
struct Desk {
    /// Wakers of the connections' tasks.
    held: Vec<Waker>,
    /// Whether the task that is woken now sends a request.
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

/// Reserves the wakers of this many more connections, so that they do not count as a connection's memory.
pub(crate) fn reserve(connections: usize) {
    with_desk(|desk| desk.held.reserve_exact(connections));
}

/// Echoes bytes until the peer ends the connection.
pub(crate) fn serve(stream: TcpStream) {
    let _ = spawn(async move { poll_fn(|cx| poll_serve(&stream, cx)).await });
}

fn poll_serve(stream: &TcpStream, cx: &mut Context<'_>) -> Poll<()> {
    let mut buffer = [0; SIZE];
    loop {
        match stream.poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            // The send buffer has room: at most one request is unsent.
            Poll::Ready(Ok(n @ 1..)) if matches!(stream.try_write(&buffer[..n]), Ok(Some(m)) if m == n) => {}
            Poll::Ready(_) => return Poll::Ready(()),
        }
    }
}

/// Holds a connection and sends a request when woken for it, until the peer ends the connection.
pub(crate) fn hold(stream: TcpStream) {
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

/// Sends requests one after the other, and the latencies of each round (nanoseconds) to `results`. Ends early if a connection ends.
pub(crate) async fn ask(rounds: u32, seed: u64, results: mpsc::Sender<Histogram<u64>>) {
    // Ends of connections after this point belong to the end of the run.
    let mut held = with_desk(|desk| std::mem::take(&mut desk.held));
    let mut rng = Rng::new(seed);
    let mut front = 0;
    'rounds: for _ in 0..rounds {
        let mut times = histogram();
        for _ in 0..ASKED {
            // Picked connections are swapped to the front.
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

/// Latency of one request, nanoseconds; `None` if the connection ended.
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

/// Adds the rows: very many connections, with few as the baseline.
pub(crate) fn rows(report: &mut Report, many: (usize, &[Histogram<u64>]), few: (usize, &[Histogram<u64>])) {
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
