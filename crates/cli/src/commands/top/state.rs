//! What is shown: the last reading, what happened since the one before, and what the user chose.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use flowlane::control::{Change, LaneMove, LaneRate, LiveView, TimesView};

/// Shortest time between readings.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);
/// Longest.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// Times that the keys choose, milliseconds.
const STEPS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
/// Moves that are kept.
const MOVES: usize = 200;
/// Readings whose times are summed: a minute at an interval of a second.
const TIMES: usize = 60;
/// A question that takes longer is told.
const SLOW: Duration = Duration::from_secs(2);

/// What fills the screen below the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    All,
    Lanes,
    Queues,
    Drops,
    Moves,
    Times,
    Help,
}

impl Page {
    /// Pages with a digit, in its order, and their names.
    pub(super) const CHOSEN: [(Self, &'static str); 6] = [
        (Self::All, "all"),
        (Self::Lanes, "lanes"),
        (Self::Queues, "queues"),
        (Self::Drops, "drops"),
        (Self::Moves, "moves"),
        (Self::Times, "times"),
    ];
}

/// By what lanes are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Load,
    Frames,
    Connections,
    Bucket,
    Worker,
}

impl Order {
    /// In the order of the key, and the title of the column.
    const ALL: [(Self, &'static str); 5] = [
        (Self::Load, "load %"),
        (Self::Frames, "frames/s"),
        (Self::Connections, "conns"),
        (Self::Bucket, "lane"),
        (Self::Worker, "worker"),
    ];

    fn at(self, steps: usize) -> (Self, &'static str) {
        let at = Self::ALL.iter().position(|(order, _)| *order == self).unwrap_or(0);
        Self::ALL[(at + steps) % Self::ALL.len()]
    }

    pub(super) fn next(self) -> Self {
        self.at(1).0
    }

    pub(super) fn previous(self) -> Self {
        self.at(Self::ALL.len() - 1).0
    }

    /// The title of the column.
    pub(super) fn title(self) -> &'static str {
        self.at(0).1
    }

    fn compare(self, a: &LaneRate, b: &LaneRate) -> Ordering {
        let first = match self {
            Self::Load => b.load.total_cmp(&a.load),
            Self::Frames => b.frames.total_cmp(&a.frames),
            Self::Connections => (b.connections + b.sockets).cmp(&(a.connections + a.sockets)),
            Self::Bucket => Ordering::Equal,
            Self::Worker => a.worker.cmp(&b.worker),
        };
        first.then_with(|| (&a.host, a.bucket).cmp(&(&b.host, b.bucket)))
    }
}

/// Whether what is shown is of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    Live,
    Paused,
    /// A question has had no answer for so many seconds.
    Slow(u64),
    /// Why there is no answer.
    Lost(String),
}

/// All that is drawn.
#[derive(Debug)]
pub(super) struct State {
    /// Where the instance is asked.
    place: String,
    interval: Duration,
    page: Page,
    before_help: Page,
    order: Order,
    reversed: bool,
    paused: bool,
    waits: Duration,
    lost: Option<String>,
    scrolled: usize,
    /// Processes that ended while they were watched.
    note: Option<String>,
    reading: Option<LiveView>,
    change: Option<Change>,
    /// When, in the instance's seconds, and what; the newest first.
    moves: VecDeque<(u64, LaneMove)>,
    times: VecDeque<Vec<TimesView>>,
}

impl State {
    pub(super) fn new(interval: Duration, place: String) -> Self {
        Self {
            place,
            interval,
            page: Page::All,
            before_help: Page::All,
            order: Order::Load,
            reversed: false,
            paused: false,
            waits: Duration::ZERO,
            lost: None,
            scrolled: 0,
            note: None,
            reading: None,
            change: None,
            moves: VecDeque::new(),
            times: VecDeque::new(),
        }
    }

    /// A reading has come.
    pub(super) fn take(&mut self, reading: LiveView) {
        self.lost = None;
        match self.reading.as_ref() {
            Some(before) if before.is_same_run(&reading) => {
                let change = reading.since(before);
                let at = reading.instance.uptime_ms / 1000;
                change.moves.iter().for_each(|moved| self.moves.push_front((at, moved.clone())));
                self.moves.truncate(MOVES);
                self.times.push_front(change.times.clone());
                self.times.truncate(TIMES);
                self.change = Some(change);
            }
            Some(before) => {
                let (was, is) = (before.instance.pid, reading.instance.pid);
                self.note = Some(format!("process {was} has ended, this is process {is}"));
                self.moves.clear();
                self.times.clear();
                self.change = None;
                self.scrolled = 0;
            }
            None => {}
        }
        self.reading = Some(reading);
    }

    /// There is no answer.
    pub(super) fn lost(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// A question has been under way for so long.
    pub(super) fn waits(&mut self, time: Duration) {
        self.waits = time;
    }

    pub(super) fn status(&self) -> Status {
        match &self.lost {
            Some(why) => Status::Lost(why.clone()),
            None if self.waits >= SLOW => Status::Slow(self.waits.as_secs()),
            None if self.paused => Status::Paused,
            None => Status::Live,
        }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn pause(&mut self) {
        self.paused = !self.paused;
    }

    pub(super) fn slower(&mut self) {
        let now = self.interval.as_millis() as u64;
        let next = STEPS.into_iter().find(|step| *step > now);
        self.interval = next.map_or(self.interval, Duration::from_millis);
    }

    pub(super) fn faster(&mut self) {
        let now = self.interval.as_millis() as u64;
        let next = STEPS.into_iter().rev().find(|step| *step < now);
        self.interval = next.map_or(self.interval, Duration::from_millis);
    }

    pub(super) fn sort(&mut self, step: fn(Order) -> Order) {
        self.order = step(self.order);
        self.scrolled = 0;
    }

    pub(super) fn reverse(&mut self) {
        self.reversed = !self.reversed;
        self.scrolled = 0;
    }

    /// The page of a digit, from 0.
    pub(super) fn page(&mut self, number: usize) {
        if let Some((page, _)) = Page::CHOSEN.get(number) {
            self.page = *page;
            self.scrolled = 0;
        }
    }

    pub(super) fn next_page(&mut self, forward: bool) {
        let all = Page::CHOSEN.len();
        let at = Page::CHOSEN.iter().position(|(page, _)| *page == self.page).unwrap_or(0);
        self.page((at + if forward { 1 } else { all - 1 }) % all);
    }

    /// Shows the keys, or what was shown before.
    pub(super) fn help(&mut self) {
        if self.page == Page::Help {
            self.page = self.before_help;
        } else {
            self.before_help = self.page;
            self.page = Page::Help;
        }
        self.scrolled = 0;
    }

    pub(super) fn scroll(&mut self, lines: isize) {
        self.scrolled = self.scrolled.saturating_add_signed(lines);
    }

    /// The first line of `all` that is shown where there is room for so many. It is no longer beyond the end afterwards.
    pub(super) fn first_line(&mut self, all: usize, room: usize) -> usize {
        // Guard: `self.scrolled.min(all.saturating_sub(room))` as `self.scrolled` fails
        // top::tests::long_tables_scroll
        self.scrolled = self.scrolled.min(all.saturating_sub(room));
        self.scrolled
    }

    pub(super) fn shows(&self) -> Page {
        self.page
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    pub(super) fn reading(&self) -> Option<&LiveView> {
        self.reading.as_ref()
    }

    pub(super) fn change(&self) -> Option<&Change> {
        self.change.as_ref()
    }

    pub(super) fn moves(&self) -> impl Iterator<Item = &(u64, LaneMove)> {
        self.moves.iter()
    }

    /// Lanes in the order that was chosen.
    pub(super) fn lanes(&self) -> Vec<&LaneRate> {
        let mut lanes: Vec<&LaneRate> = self.change.iter().flat_map(|change| &change.lanes).collect();
        lanes.sort_by(|a, b| self.order.compare(a, b));
        if self.reversed {
            lanes.reverse();
        }
        lanes
    }

    /// Times of the last readings, summed.
    pub(super) fn times(&self) -> Vec<TimesView> {
        let mut all: Vec<TimesView> = self.times.front().cloned().unwrap_or_default();
        for list in &mut all {
            let older = self.times.iter().skip(1).flatten().filter(|older| older.name == list.name);
            for older in older {
                list.counts.iter_mut().zip(&older.counts).for_each(|(sum, count)| *sum += count);
            }
        }
        all
    }
}
