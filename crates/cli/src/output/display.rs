//! The full-screen display during a run: numbers, rate and latency over the last two minutes, pools and buckets.
//!
//! It draws on standard error's alternate screen ([`terminal`](crate::terminal)) until it is dropped, at the first `q` or ^C. After that ^C
//! is a signal again, so a second one ends a program that hangs.

use std::io::stderr;
use std::time::Duration;

use flowlane_load::report::text::{plain, show_bytes};
use flowlane_load::report::{Frame, Point};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, LineGauge, Paragraph, Row, Sparkline, Table};

use crate::progress::fitting;
use crate::terminal::{Out, Screen};
use crate::units::{show_count, show_nanos};

/// Most buckets with a bar of their own; more do not fit a terminal.
const BUCKETS: usize = 64;

/// The display while it has the terminal.
#[derive(Debug)]
pub(super) struct Display(Screen);

/// Stage of a run.
#[derive(Debug)]
pub(super) enum Stage {
    /// Opening connections: the share that is established, 0 to 1, and the text to show.
    Connecting(f64, String),
    /// Sending, for this many seconds in all.
    Running(f64),
}

impl Stage {
    /// Progress, 0 to 1, and the text to show.
    fn progress(&self, elapsed: f64) -> (f64, String) {
        match self {
            Self::Connecting(share, words) => (share.clamp(0.0, 1.0), words.clone()),
            Self::Running(duration) => {
                let share = if *duration > 0.0 { (elapsed / duration).clamp(0.0, 1.0) } else { 0.0 };
                (share, format!("{:.0} of {duration:.0} s", elapsed.min(*duration)))
            }
        }
    }
}

/// Least columns and rows that the display needs.
const LEAST: (u16, u16) = (40, 8);

/// Checks that the terminal is large enough. One whose size was never set reports 0 by 0 and is refused.
///
/// # Errors
/// The terminal's size and the size needed, in words.
pub(super) fn has_room() -> Result<(), String> {
    // The size of the terminal on standard error; crossterm asks for another one.
    let (columns, rows) =
        rustix::termios::tcgetwinsize(stderr()).map_or(LEAST, |size| (size.ws_col, size.ws_row));
    if columns >= LEAST.0 && rows >= LEAST.1 {
        return Ok(());
    }
    Err(format!(
        "the terminal has {columns} columns and {rows} rows; the display takes {} and {}",
        LEAST.0, LEAST.1
    ))
}

impl Display {
    /// Takes the terminal; `None` if that fails.
    pub(super) fn open() -> Option<Self> {
        Screen::open(Out::Stderr).ok().map(Self)
    }

    /// Draws the state of the run; `false` if the user pressed `q` or ^C.
    pub(super) fn show(&mut self, frame: &Frame, stage: &Stage, pools: &[String]) -> bool {
        // A terminal that is closed does not end the run.
        let _ = self.0.draw(|f| draw(f, frame, stage, pools));
        while event::poll(Duration::ZERO).unwrap_or(false) {
            if let Ok(Event::Key(key)) = event::read()
                && key.kind == KeyEventKind::Press
            {
                let control_c =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return false;
                }
            }
        }
        true
    }
}

fn draw(f: &mut ratatui::Frame, frame: &Frame, stage: &Stage, pools: &[String]) {
    let pool_rows = if frame.pools.len() > 1 { frame.pools.len().min(8) as u16 + 2 } else { 0 };
    let bucket_rows = if frame.buckets.len() > 1 { 5 } else { 0 };
    let [head, numbers, rate, latency, pools_at, buckets] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Min(4),
        Constraint::Min(4),
        Constraint::Length(pool_rows),
        Constraint::Length(bucket_rows),
    ])
    .areas(f.area());
    let (share, words) = stage.progress(frame.elapsed.as_secs_f64());
    let label = format!("{words}, q ends it");
    f.render_widget(LineGauge::default().ratio(share).label(label).filled_style(Style::new().cyan()), head);
    draw_numbers(f, frame, numbers);
    let each = |p: &Point| if p.seconds > 0.0 { (p.answered as f64 / p.seconds) as u64 } else { 0 };
    let rates: Vec<u64> = frame.seconds.iter().map(each).collect();
    sparkline(f, "answers a second", &rates, rate, Style::new().green(), &show_count);
    let p99: Vec<u64> = frame.seconds.iter().map(|p| p.p99_ns).collect();
    sparkline(f, "latency p99", &p99, latency, Style::new().yellow(), &show_nanos);
    if pool_rows > 0 {
        draw_pools(f, frame, pools, pools_at);
    }
    if bucket_rows > 0 {
        let shares: Vec<u64> =
            frame.buckets.iter().take(BUCKETS).map(|(_, n)| n.answered_rate as u64).collect();
        bars(f, &shares, frame, buckets);
    }
}

fn draw_numbers(f: &mut ratatui::Frame, frame: &Frame, area: Rect) {
    let now = &frame.total;
    let rate = |r: f64| show_count(r.round().max(0.0) as u64);
    let failed = format!("{} failed", show_count(now.failed));
    let last = frame.last().copied().unwrap_or_default();
    let times = [
        ("p50", last.p50_ns),
        ("p90", last.p90_ns),
        ("p99", last.p99_ns),
        ("p99.9", last.p99_9_ns),
        ("max", last.max_ns),
        ("slip p99", last.slip_p99_ns),
    ];
    let times: Vec<String> =
        times.iter().map(|(name, nanos)| format!("{name} {}", show_nanos(*nanos))).collect();
    let columns = usize::from(area.width) + 1;
    let whole = |line: String| Line::from(fitting(&line, columns).to_owned());
    let lines = vec![
        whole(format!(
            "{}/s sent   {}/s answered   {}/s received   {} at once",
            rate(now.sent_rate),
            rate(now.answered_rate),
            show_bytes(now.bytes_rate),
            show_count(now.concurrency)
        )),
        whole(format!("{} sent   {} answered", show_count(now.sent), show_count(now.answered))),
        if now.failed > 0 { Line::from(failed).red() } else { Line::from(failed) },
        whole(times.join("   ")).bold(),
    ];
    f.render_widget(Paragraph::new(lines), area);
}

fn sparkline(
    f: &mut ratatui::Frame,
    name: &str,
    values: &[u64],
    area: Rect,
    style: Style,
    show: &dyn Fn(u64) -> String,
) {
    // The newest seconds that fit.
    let newest = &values[values.len().saturating_sub(usize::from(area.width))..];
    let most = newest.iter().copied().max().unwrap_or(0);
    let now = newest.last().copied().unwrap_or(0);
    let title = format!("{name}: {} now, {} at most ", show(now), show(most));
    let block = Block::new().borders(Borders::TOP).title(title);
    f.render_widget(Sparkline::default().block(block).data(newest).max(most.max(1)).style(style), area);
}

fn draw_pools(f: &mut ratatui::Frame, frame: &Frame, names: &[String], area: Rect) {
    let rows = frame.pools.iter().enumerate().map(|(i, now)| {
        let last = frame.pool_seconds.get(i).copied().unwrap_or_default();
        let name = names.get(i).map_or_else(|| format!("pool {i}"), |n| plain(n));
        Row::new(
            [
                name,
                show_count(now.sent_rate.max(0.0) as u64),
                show_count(now.answered_rate.max(0.0) as u64),
                show_count(now.failed),
                show_nanos(last.p50_ns),
                show_nanos(last.p99_ns),
                show_nanos(last.max_ns),
            ]
            .map(Cell::from),
        )
    });
    let widths = [20, 11, 11, 9, 9, 9, 9].map(Constraint::Length);
    let head = Row::new(["pool", "sent/s", "answered/s", "failed", "p50", "p99", "max"]).bold();
    f.render_widget(Table::new(rows, widths).header(head).block(Block::new().borders(Borders::TOP)), area);
}

fn bars(f: &mut ratatui::Frame, shares: &[u64], frame: &Frame, area: Rect) {
    let (least, most) =
        (shares.iter().copied().min().unwrap_or(0), shares.iter().copied().max().unwrap_or(0));
    let title = format!(
        "{} buckets, answers a second in each: {} to {} ",
        frame.buckets.len(),
        show_count(least),
        show_count(most)
    );
    // As wide as fits, so that a few buckets are bars rather than dots.
    let wide = (usize::from(area.width) / shares.len().max(1)).clamp(1, 6);
    let data: Vec<Option<u64>> = shares
        .iter()
        .flat_map(|s| (0..wide).map(move |i| if wide > 1 && i + 1 == wide { None } else { Some(*s) }))
        .collect();
    let block = Block::new().borders(Borders::TOP).title(title);
    f.render_widget(
        Sparkline::default().block(block).data(data).max(most.max(1)).style(Style::new().cyan()),
        area,
    );
}

#[cfg(test)]
mod tests {
    use flowlane_load::report::live::Now;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Color;

    use super::*;

    fn frame() -> Frame {
        let now = Now {
            sent: 5000,
            answered: 4990,
            failed: 7,
            concurrency: 12,
            answered_rate: 998.0,
            ..Now::default()
        };
        let second = |i: u64| Point {
            at_seconds: i as f64,
            seconds: 1.0,
            answered: 900 + i * 20,
            p99_ns: 1_000_000 * (i + 1),
            slip_p99_ns: 7_000,
            ..Point::default()
        };
        Frame {
            elapsed: Duration::from_secs(5),
            total: now,
            pools: vec![now, Now { failed: 3, ..now }],
            buckets: (0..8).map(|b| (b, Now { answered_rate: f64::from(b) * 10.0, ..now })).collect(),
            seconds: (0..5).map(second).collect(),
            pool_seconds: vec![second(1), second(2)],
        }
    }

    fn drawn(width: u16, height: u16, frame: &Frame, pools: &[String]) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|f| draw(f, frame, &Stage::Running(10.0), pools)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn it_shows_how_far_connecting_is() {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        for (share, filled) in [(0.0, 0), (0.5, 15), (7.0, 31)] {
            let stage = Stage::Connecting(share, "connecting: 5 of 10 open after 1.5 s".into());
            terminal.draw(|f| draw(f, &Frame::default(), &stage, &[])).unwrap();
            let text = terminal.backend().to_string();
            let head = text.lines().next().unwrap();
            assert!(head.contains("connecting: 5 of 10 open after 1.5 s, q ends it"), "{text}");
            assert!(!text.contains(" of 10 s,"), "{text}");
            let buffer = terminal.backend().buffer();
            let cyan = (0..80).filter(|&x| buffer[(x, 0)].fg == Color::Cyan).count();
            assert!(cyan >= filled && (cyan > 0) == (share > 0.0), "{share}: {cyan} of the gauge");
        }
    }

    #[test]
    fn it_shows_numbers_past_pools_and_buckets() {
        let pools = ["fast".to_owned(), "slow\u{1b}[2J".to_owned()];
        let text = drawn(100, 30, &frame(), &pools);
        for word in [
            "5 of 10 s",
            "998/s answered",
            "7 failed",
            "12 at once",
            "slip p99 7.00 us",
            "answers a second: 980 now, 980 at most",
            "latency p99: 5.00 ms now",
            "fast",
            "slow\\u{1b}[2J",
            "8 buckets, answers a second in each: 0 to 70",
            "█",
        ] {
            assert!(text.contains(word), "{word} in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn terminals_of_any_size_and_runs_that_said_nothing_yet_are_fine() {
        for (width, height) in [(1, 1), (2, 40), (300, 2), (80, 24), (20, 9)] {
            drawn(width, height, &frame(), &[]);
            drawn(width, height, &Frame::default(), &[]);
        }
    }
}
