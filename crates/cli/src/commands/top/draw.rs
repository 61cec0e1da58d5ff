//! How the state is laid out.
//!
//! ```text
//!   who it is ............................ live     one line
//!   rates: requests, packets, bits, drops, ...      one to three lines
//!   workers                                         a line each, up to a third of the rows
//!   what the user chose                             the rest
//!   keys                                            the last line
//! ```

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use flowlane::control::{Change, LiveView};
use flowlane_load::report::text::plain;

use super::state::{Page, State, Status};
use super::tables::{self, Lines};
use super::words::{age, percent_or_dash, short};
use crate::wrap::wrapped;

/// Least columns and rows.
const LEAST: (u16, u16) = (40, 10);
/// Most lines of rates.
const RATES: usize = 3;

/// Draws everything.
pub(super) fn draw(f: &mut Frame, state: &mut State) {
    let area = f.area();
    // Guard: `area.width < LEAST.0 || area.height < LEAST.1` as `false` fails
    // top::tests::a_terminal_that_is_too_small
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let words = format!(
            "top takes {} columns and {} rows; here are {} and {} (q ends)",
            LEAST.0, LEAST.1, area.width, area.height
        );
        f.render_widget(Paragraph::new(words).wrap(Wrap { trim: true }), area);
        return;
    }
    let width = usize::from(area.width);
    let rows = usize::from(area.height) - 1;
    let mut lines = head(state, width);
    lines.extend(below(state, width, rows.saturating_sub(lines.len())));
    lines.truncate(rows);
    f.render_widget(Paragraph::new(lines), Rect { height: area.height - 1, ..area });
    let last = Rect { y: area.bottom() - 1, height: 1, ..area };
    f.render_widget(Paragraph::new(foot(state, width)), last);
}

/// Who it is, and the rates.
fn head(state: &State, width: usize) -> Lines {
    // Guard: `waiting(state, width)` as `Lines::default()` fails
    // top::tests::an_instance_that_has_never_answered_is_waited_for
    let Some(reading) = state.reading() else { return waiting(state, width) };
    let mut lines = vec![title(state, reading, width)];
    if let Status::Lost(why) = state.status() {
        let text = format!("no answer: {}; below: the last numbers", plain(&why));
        lines.extend(wrapped(&text, width).into_iter().map(|line| Line::from(line).red()));
    } else if let Some(note) = state.note() {
        lines.push(Line::from(note.to_owned()).yellow());
    }
    match state.change() {
        Some(change) => lines.extend(rates(state, change, width)),
        None => lines.push(Line::from("measuring ...").dim()),
    }
    lines
}

/// Before the first reading: of whom an answer is waited for.
fn waiting(state: &State, width: usize) -> Lines {
    let time = match state.status() {
        Status::Slow(seconds) => format!(" for {seconds} s"),
        _ => String::new(),
    };
    let text = format!(
        "waiting for an answer of the instance at {}{time}: it may be stopped (SIGCONT) or busy",
        plain(state.place())
    );
    let mut lines: Lines = wrapped(&text, width).into_iter().map(Line::from).collect();
    if let Status::Lost(why) = state.status() {
        let text = format!("no answer: {}", plain(&why));
        lines.extend(wrapped(&text, width).into_iter().map(|line| Line::from(line).red()));
    }
    lines
}

fn title(state: &State, reading: &LiveView, width: usize) -> Line<'static> {
    let silent = reading.worker_count.saturating_sub(reading.workers.len());
    let (status, is_bad) = match state.status() {
        Status::Lost(_) => ("no answer".to_owned(), true),
        Status::Slow(seconds) => (format!("no answer for {seconds} s"), true),
        Status::Paused => ("paused".to_owned(), false),
        Status::Live if silent > 0 => (format!("{silent} of {} workers silent", reading.worker_count), true),
        Status::Live => (format!("every {}", interval(state)), false),
    };
    let instance = &reading.instance;
    let mut links: Vec<&str> = Vec::new();
    for host in &reading.hosts {
        let of_host = host.links.iter().map(String::as_str);
        for link in of_host.chain(host.kernel.then_some("kernel sockets")) {
            if !links.contains(&link) {
                links.push(link);
            }
        }
    }
    let who = format!(
        "{}, process {}, up {}, {}",
        instance.name,
        instance.pid,
        age(instance.uptime_ms / 1000),
        links.join(", ")
    );
    let room = width.saturating_sub(status.chars().count() + 1);
    let who: String = plain(&who).chars().take(room).collect();
    let status = if is_bad { Span::from(status).red() } else { Span::from(status).dim() };
    Line::from(vec![Span::from(format!("{who:<room$} ")).bold(), status])
}

fn interval(state: &State) -> String {
    let millis = state.interval().as_millis();
    if millis.is_multiple_of(1000) { format!("{} s", millis / 1000) } else { format!("{millis} ms") }
}

/// The rates, as many as fit.
fn rates(state: &State, change: &Change, width: usize) -> Lines {
    let total = &change.total;
    let pair = |name: &str, unit: &str, a: f64, b: f64| {
        (format!("{name} {} in, {} out{unit}", short(a), short(b)), false)
    };
    let mut items: Vec<(String, bool)> = Vec::new();
    for count in &change.counts {
        let text = format!("{} {}/s", plain(&count.text.to_lowercase()), short(count.rate));
        items.push((text, count.rate > 0.0 && count.text == "Errors"));
    }
    if !total.kernel {
        items.push(pair("packets/s", "", total.packets_in, total.packets_out));
    }
    items.push(pair("bit/s", "", total.bits_in, total.bits_out));
    items.push((format!("drops {}/s", short(total.dropped)), total.dropped > 0.0));
    if !total.kernel {
        items.push((format!("aligned {} %", percent_or_dash(total.aligned)), false));
    }
    let listening = total.tcp_states.get("LISTEN").copied().unwrap_or(0);
    let connections = total.tcp_states.values().sum::<u64>().saturating_sub(listening);
    items.push((format!("connections {}", short(connections as f64)), false));
    items.push((format!("processors {:.2} of {}", total.load, workers(state)), false));
    for list in state.times() {
        if list.counts.iter().any(|count| *count > 0) {
            let name = if list.name == "tcp-rtt" { "RTT" } else { &list.name };
            items.push((format!("{} {}", plain(name), tables::quantiles(&list).replace("   ", " ")), false));
        }
    }
    filled(items, width)
}

/// Items in lines, with blanks between them.
fn filled(items: Vec<(String, bool)>, width: usize) -> Lines {
    let mut lines: Vec<Vec<Span<'static>>> = vec![Vec::new()];
    let mut used = 0;
    for (text, is_bad) in items {
        let wide = text.chars().count() + if used > 0 { 3 } else { 0 };
        if used > 0 && used + wide > width {
            if lines.len() == RATES {
                break;
            }
            lines.push(Vec::new());
            used = 0;
        }
        if used > 0 {
            lines.last_mut().into_iter().for_each(|line| line.push(Span::from("   ")));
        }
        used += text.chars().count() + if used > 0 { 3 } else { 0 };
        let span = if is_bad { Span::from(text).red() } else { Span::from(text) };
        lines.last_mut().into_iter().for_each(|line| line.push(span.clone()));
    }
    lines.into_iter().map(Line::from).collect()
}

fn workers(state: &State) -> usize {
    state.reading().map_or(0, |reading| reading.worker_count)
}

/// What is below the rates, in so many rows.
fn below(state: &mut State, width: usize, rows: usize) -> Lines {
    if state.shows() == Page::Help {
        return scrolled(state, tables::keys(), 0, rows);
    }
    let Some(change) = state.change().cloned() else { return Lines::new() };
    let count = workers(state);
    let mut lines = Lines::new();
    let map = state.shows() == Page::Lanes;
    let of_workers =
        if map { tables::map(&change, count, width) } else { tables::workers(&change, count, width) };
    lines.extend(cut(of_workers, (rows / 3).max(3)));
    let left = rows.saturating_sub(lines.len());
    match state.shows() {
        Page::All => lines.extend(all(state, &change, width, left)),
        page => {
            let (table, heads) = match page {
                Page::Lanes => (tables::lanes(state, width), 1),
                Page::Queues => (tables::queues(&change, width), 1),
                Page::Drops => (tables::drops(&change, false, width), 1),
                Page::Moves => (tables::moves(state, width), 1),
                _ => (tables::times(state, width), 0),
            };
            lines.extend(scrolled(state, table, heads, left));
        }
    }
    lines
}

/// Lanes, queues, drops that grow and moves, a few lines of each: in turns, and lanes take two at a time.
fn all(state: &State, change: &Change, width: usize, rows: usize) -> Lines {
    let sections = [
        tables::lanes(state, width),
        tables::queues(change, width),
        tables::drops(change, true, width),
        tables::moves(state, width),
    ];
    let mut given = [0; 4];
    let mut left = rows;
    let wants = |given: &[usize; 4], s: usize| given[s] < sections[s].len();
    while left > 0 && (0..4).any(|s| wants(&given, s)) {
        for s in [0, 0, 1, 2, 3] {
            if left > 0 && wants(&given, s) {
                given[s] += 1;
                left -= 1;
            }
        }
    }
    sections.into_iter().zip(given).flat_map(|(lines, rows)| cut(lines, rows)).collect()
}

/// The first lines; the last of them says how many there are besides.
fn cut(mut lines: Lines, rows: usize) -> Lines {
    if lines.len() > rows && rows > 1 {
        let more = lines.len() - rows + 1;
        lines.truncate(rows - 1);
        lines.push(Line::from(format!(" ... {more} more")).dim());
    }
    lines.truncate(rows);
    lines
}

/// The lines that the user has scrolled to, below those of the head.
fn scrolled(state: &mut State, lines: Lines, heads: usize, rows: usize) -> Lines {
    let heads = heads.min(lines.len());
    let room = rows.saturating_sub(heads);
    let first = state.first_line(lines.len() - heads, room);
    let mut lines = lines;
    let body = lines.split_off(heads);
    lines.extend(body.into_iter().skip(first).take(room));
    lines
}

/// The keys that fit.
fn foot(state: &State, width: usize) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    let mut add = |text: String, chosen: bool| {
        let span = Span::from(text);
        let wide = span.width() + usize::from(used > 0);
        if used + wide > width {
            return;
        }
        if used > 0 {
            spans.push(Span::from(" "));
        }
        used += wide;
        spans.push(if chosen { span.reversed() } else { span });
    };
    add("q quit".into(), false);
    add("h keys".into(), state.shows() == Page::Help);
    for (i, (page, name)) in Page::CHOSEN.iter().enumerate() {
        add(format!("{} {name}", i + 1), state.shows() == *page);
    }
    add("s sort".into(), false);
    add("p pause".into(), state.is_paused());
    add(format!("+- every {}", interval(state)), false);
    Line::from(spans)
}
