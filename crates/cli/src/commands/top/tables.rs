//! The tables: workers, lanes, queues, drops, moves, times, keys. Each is a list of lines that fit the width.
//!
//! Columns stand in the order of their importance; those that find no room are left out, from the right.

use flowlane::control::{Change, TimesView};
use flowlane::stats::StepTimes;
use flowlane_load::report::text::plain;
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};

use super::state::State;
use super::words::{age, block, percent, percent_or_dash, short};
use crate::units::show_nanos;

/// A table: its first line is the head.
pub(super) type Lines = Vec<Line<'static>>;

/// A column: its title and width; negative for text that begins at its left end.
type Column = (&'static str, isize);

/// What is in a column of a line, and whether it is bad news.
struct Cell(String, bool);

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self(text, false)
    }
}

/// A number that should be 0.
fn bad(n: f64) -> Cell {
    Cell(short(n), n > 0.0)
}

fn table(columns: &[Column], rows: Vec<Vec<Cell>>, width: usize) -> Lines {
    marked_table(columns, "", rows, width)
}

/// A table with the title of one column marked.
fn marked_table(columns: &[Column], marked: &str, rows: Vec<Vec<Cell>>, width: usize) -> Lines {
    let mut room = width;
    let fit = columns.iter().take_while(|(_, wide)| {
        let wide = wide.unsigned_abs() + 1;
        room.checked_sub(wide).is_some_and(|left| {
            room = left;
            true
        })
    });
    let shown = fit.count();
    let title = |(title, wide): &Column| {
        let span = Span::from(pad(title, *wide)).bold();
        if *title == marked { span.reversed() } else { span }
    };
    let head: Vec<Span<'static>> = columns[..shown].iter().map(title).collect();
    let row = |cells: Vec<Cell>| {
        let spans = cells.into_iter().zip(&columns[..shown]).map(|(Cell(text, is_bad), (_, wide))| {
            let style = if is_bad { Style::new().red() } else { Style::new() };
            Span::styled(pad(&text, *wide), style)
        });
        Line::from(spans.collect::<Vec<_>>())
    };
    std::iter::once(Line::from(head)).chain(rows.into_iter().map(row)).collect()
}

/// A blank and the text in its column. What is too long is cut.
fn pad(text: &str, wide: isize) -> String {
    let columns = wide.unsigned_abs();
    let text: String = text.chars().take(columns).collect();
    if wide < 0 { format!(" {text:<columns$}") } else { format!(" {text:>columns$}") }
}

/// One line that says that there is nothing.
pub(super) fn nothing(words: &'static str) -> Lines {
    vec![Line::from(words).dim()]
}

/// Workers, with the share of their time in each step.
pub(super) fn workers(change: &Change, count: usize, width: usize) -> Lines {
    const SHORT: [&str; 7] = ["recv", "stack", "tasks", "netisr", "send", "look", "asleep"];
    let (names, wide) = if width >= 80 { (StepTimes::FIELDS, 8) } else { (SHORT, 6) };
    let mut columns: Vec<Column> = vec![("worker", 6)];
    columns.extend(names.iter().map(|name| (*name, wide)));
    columns.push(("lanes", 5));
    let perf = change.workers.iter().any(|worker| worker.derived.is_some());
    if perf {
        columns.extend([("IPC", 5), ("instr/pkt", 9), ("miss/pkt", 8), ("switch/s", 8)]);
    }
    columns.extend([("turns/s", 7), ("sleeps/s", 8), ("free", 7), ("no frame/s", 10)]);
    let row = |number: usize| match change.workers.iter().find(|w| w.worker == number) {
        None => {
            let silent = std::iter::once(Cell("silent".into(), true));
            std::iter::once(Cell::from(number.to_string())).chain(silent).collect()
        }
        Some(worker) => {
            let mut cells: Vec<Cell> = vec![number.to_string().into()];
            cells.extend(worker.steps.iter().map(|share| Cell::from(percent(*share))));
            cells.push(worker.lanes.to_string().into());
            if perf {
                let derived = worker.derived.unwrap_or_default();
                let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short).into();
                cells.push(figure(derived.instructions_per_cycle));
                cells.push(figure(derived.instructions_per_packet));
                cells.push(figure(derived.misses_per_packet));
                cells.push(figure(worker.switches));
            }
            cells.push(short(worker.turns).into());
            cells.push(short(worker.sleeps).into());
            cells.push(short(worker.frames_free as f64).into());
            cells.push(bad(worker.frames_exhausted));
            cells
        }
    };
    table(&columns, (0..count).map(row).collect(), width)
}

/// A line for each worker with a block for each of its lanes, as high as its load.
pub(super) fn map(change: &Change, count: usize, width: usize) -> Lines {
    let room = width.saturating_sub(16);
    let line = |number: usize| {
        let own = || change.lanes.iter().filter(|lane| lane.worker == number);
        let load: f64 = own().map(|lane| lane.load).sum();
        let blocks: String = own().take(room).map(|lane| block(lane.load)).collect();
        let more = if own().count() > room { "…" } else { "" };
        Line::from(format!(" {number:>5} {:>6}  {blocks}{more}", percent(load)))
    };
    let head = Line::from("worker  load %  its lanes, by bucket").bold();
    std::iter::once(head).chain((0..count).map(line)).collect()
}

/// Lanes in the order that was chosen.
pub(super) fn lanes(state: &State, width: usize) -> Lines {
    let lanes = state.lanes();
    let several = lanes.iter().any(|lane| lane.host != lanes[0].host);
    let mut columns: Vec<Column> = vec![
        ("lane", 5),
        ("worker", 6),
        ("load %", 6),
        ("frames/s", 8),
        ("handed/s", 8),
        ("conns", 7),
        ("drops/s", 7),
        ("runs/s", 7),
        ("moves", 6),
        ("sockets", 7),
    ];
    if several {
        columns.insert(0, ("host", -10));
    }
    let row = |lane: &&flowlane::control::LaneRate| {
        let mut cells: Vec<Cell> = Vec::new();
        if several {
            cells.push(plain(&lane.host).into());
        }
        cells.extend([
            lane.bucket.to_string().into(),
            lane.worker.to_string().into(),
            percent(lane.load).into(),
            short(lane.frames).into(),
            short(lane.redirected).into(),
            short(lane.connections as f64).into(),
            bad(lane.dropped),
            short(lane.runs).into(),
            lane.moves.to_string().into(),
            lane.sockets.to_string().into(),
        ]);
        cells
    };
    marked_table(&columns, state.order().title(), lanes.iter().map(row).collect(), width)
}

/// Queues, with how frames of their host arrived at their worker.
pub(super) fn queues(change: &Change, width: usize) -> Lines {
    if change.queues.is_empty() {
        return nothing("No queues: packets come through kernel sockets.");
    }
    let columns: [Column; 9] = [
        ("queue", -16),
        ("worker", 6),
        ("in/s", 7),
        ("out/s", 7),
        ("aligned", 7),
        ("lost/s", 7),
        ("bit/s in", 8),
        ("bit/s out", 9),
        ("calls/s", 8),
    ];
    let row = |q: &flowlane::control::QueueRate| {
        let number = q.queue.map_or_else(|| "-".to_owned(), |number| number.to_string());
        vec![
            format!("{} {}:{number}", plain(&q.host), q.interface).into(),
            q.worker.to_string().into(),
            short(q.frames_in).into(),
            short(q.frames_out).into(),
            percent_or_dash(q.aligned).into(),
            bad(q.lost),
            short(q.bits_in).into(),
            short(q.bits_out).into(),
            short(q.calls).into(),
        ]
    };
    table(&columns, change.queues.iter().map(row).collect(), width)
}

/// Reasons for drops: with `growing` only those that drop now.
pub(super) fn drops(change: &Change, growing: bool, width: usize) -> Lines {
    let mut drops: Vec<_> = change.drops.iter().filter(|drop| !growing || drop.rate > 0.0).collect();
    drops.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.count.cmp(&a.count)));
    if drops.is_empty() {
        return nothing(if growing { "No drops." } else { "No drops since the instance began." });
    }
    let several = drops.iter().any(|drop| drop.host != drops[0].host);
    let columns: [Column; 3] = [("drops/s", 8), ("in all", 8), ("reason", 19 - width.max(40) as isize)];
    let row = |drop: &&flowlane::control::DropRate| {
        let host = if several && !drop.host.is_empty() { format!("{}, ", drop.host) } else { String::new() };
        let reason = format!("{host}{}: {}", drop.layer, drop.text);
        vec![bad(drop.rate), short(drop.count as f64).into(), plain(&reason).into()]
    };
    table(&columns, drops.iter().map(row).collect(), width)
}

/// Moves that were seen, the newest first.
pub(super) fn moves(state: &State, width: usize) -> Lines {
    let now = state.reading().map_or(0, |reading| reading.instance.uptime_ms / 1000);
    let several = state.change().is_some_and(|c| c.lanes.iter().any(|lane| lane.host != c.lanes[0].host));
    let row = |(at, moved): &(u64, flowlane::control::LaneMove)| {
        let host = if several { format!(" of {}", plain(&moved.host)) } else { String::new() };
        let words = format!("lane {}{host}: worker {} to worker {}", moved.bucket, moved.from, moved.to);
        vec![Cell::from(format!("{} ago", age(now.saturating_sub(*at)))), words.into()]
    };
    let rows: Vec<Vec<Cell>> = state.moves().map(row).collect();
    if rows.is_empty() {
        return nothing("No lane has moved while this was watched.");
    }
    table(&[("moved", 13), ("", 15 - width.max(40) as isize)], rows, width)
}

/// How long things took: quantiles, and how often each class of time came.
pub(super) fn times(state: &State, width: usize) -> Lines {
    let mut lines = Lines::new();
    for list in state.times() {
        lines.push(Line::from(format!("{}: {}", plain(&list.text), quantiles(&list))).bold());
        let most = list.counts.iter().copied().max().unwrap_or(0).max(1);
        let first = list.counts.iter().position(|count| *count > 0).unwrap_or(list.counts.len());
        let last = list.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        for class in first..last {
            let room = width.saturating_sub(26);
            let bar = "█".repeat((list.counts[class] * room as u64).div_ceil(most) as usize);
            let bound = list.bounds_us.get(class).map_or_else(|| "longer".into(), |us| time(u64::from(*us)));
            lines.push(Line::from(format!("  {bound:>10} {:>8}  {bar}", short(list.counts[class] as f64))));
        }
    }
    if lines.is_empty() { nothing("No times are measured here.") } else { lines }
}

/// Half of the times, 99 %, 99.9 %.
pub(super) fn quantiles(list: &TimesView) -> String {
    let at = |part| list.quantile_us(part).map(time);
    match (at(0.5), at(0.99), at(0.999)) {
        (Some(p50), Some(p99), Some(p999)) => format!("p50 {p50}   p99 {p99}   p99.9 {p999}"),
        _ => "no samples".to_owned(),
    }
}

/// A time in microseconds, as far as it is known.
fn time(us: u64) -> String {
    if us == u64::MAX { "over a minute".to_owned() } else { show_nanos(us.saturating_mul(1000)) }
}

/// The keys.
pub(super) fn keys() -> Lines {
    [
        "1  all                  workers, lanes, queues, drops that grow, moves",
        "2  lanes                which lane is where, and what it does",
        "3  queues               packets, bits, losses of each queue",
        "4  drops                every reason that has a packet",
        "5  moves                lanes that moved while this was watched",
        "6  times                round-trip times, and the program's own, last 60",
        "Tab, Shift-Tab          the next of these, the one before",
        "s, S                    sort lanes by the next column, the one before",
        "r                       sort the other way round",
        "Up, Down, PgUp, PgDn    scroll; Home and End: to the ends",
        "p, space                pause, go on",
        "+, -                    a longer, a shorter interval",
        "^Z                      stop; fg goes on",
        "h, ?                    these lines, and back",
        "q, Esc, ^C              end",
    ]
    .map(Line::from)
    .to_vec()
}
