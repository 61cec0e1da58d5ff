//! `flowlane top`: a running instance on a terminal, as `top` shows processes.
//!
//! ```text
//!   reader thread ── /v1/live over the control socket ──▶┐
//!   keys thread   ── keys, sizes ───────────────────────▶├── this thread: state ▶ screen
//!   signal thread ── ^C from outside, TERM, stop, go on ▶┘
//! ```
//!
//! All numbers are the instance's ([`LiveView`]), and what happened between two readings is computed in one place
//! ([`Change`](flowlane::control::Change)). The reader has one question under way at a time, so a slow instance is asked less often, and the
//! display stays alive: it says since when there is no answer, of the first question, too. An instance that ends is waited for; one that is started again is shown from
//! its beginning.

mod draw;
mod reader;
mod state;
mod tables;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests;
mod words;

use std::io::{IsTerminal, stdout};
use std::os::raw::c_int;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use flowlane::control::LiveView;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::instance;
use crate::interrupt;
use crate::terminal::{Out, Screen, is_dumb};
use crate::units;
use reader::{NoAnswer, Reader};
use state::{Order, State};

/// Watch a running instance on the terminal: rates, workers, lanes, queues, drops, moves.
///
/// It shows the numbers of an instance that was started with --control, once per interval. Keys: 1 to 6 choose what is shown, s sorts
/// lanes, p pauses, + and - change the interval, h lists all keys, q ends it.
#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// Time between two readings.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    interval: Duration,
    /// Control socket of the instance [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// What happened.
enum Happened {
    Answer(Result<Box<LiveView>, NoAnswer>),
    Input(Event),
    /// No more keys will come.
    NoInput,
    Signal(i32),
}

/// Time that the first reading may take before the terminal is taken without it, and that until the second, with which there are rates.
const FIRST: Duration = Duration::from_millis(250);
/// Further signals that end a program which does not handle them, and whose senders do not expect that it has a terminal to restore.
const DEADLY: [c_int; 7] = [SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU];
/// How often the display says for how long it has waited.
const TICK: Duration = Duration::from_secs(1);

impl Top {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        ensure!(
            (state::SHORTEST..=state::LONGEST).contains(&self.interval),
            "--interval: must be between 100ms and 60s"
        );
        if !stdout().is_terminal() || is_dumb() {
            bail!(
                "top draws on a terminal, and standard output is none: 'flowlane stat --interval' prints lines"
            );
        }
        let (columns, rows) = terminal::size().context("the terminal")?;
        ensure!(
            columns > 0 && rows > 0,
            "the terminal does not say its size: 'stty cols 80 rows 24' sets it"
        );
        let named = self.control.is_some();
        let path = self.control.map_or_else(instance::only, Ok)?;
        let mut state = State::new(self.interval, path.display().to_string());
        let mut reader = Reader::new(path, named);
        let (say, happened) = mpsc::channel();
        let (ask, asked) = mpsc::channel::<()>();
        spawn("flowlane-reader", say.clone(), move |say| {
            asked.iter().all(|()| say.send(Happened::Answer(reader.ask().map(Box::new))).is_ok())
        })?;
        let under_way = first(&mut state, &ask, &happened)?;
        // Before the terminal is taken, so that a signal finds it restored.
        let heard = [SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT].into_iter().chain(interrupt::heeded(&DEADLY));
        let mut signals = Signals::new(heard).context("signal handlers")?;
        let mut screen = Screen::open(Out::Stdout).context("the terminal")?;
        spawn("flowlane-signals", say.clone(), move |say| {
            signals.forever().try_for_each(|s| say.send(Happened::Signal(s))).is_ok()
        })?;
        spawn("flowlane-keys", say, |say| {
            while let Ok(event) = event::read() {
                if say.send(Happened::Input(event)).is_err() {
                    return false;
                }
            }
            say.send(Happened::NoInput).is_ok()
        })?;
        let ended = watch(&mut screen, &mut state, under_way, &ask, &happened);
        drop(screen);
        match ended? {
            Some(signal) => Ok(emulate_default_handler(signal)?),
            None => Ok(()),
        }
    }
}

fn spawn<F>(name: &str, say: Sender<Happened>, body: F) -> anyhow::Result<()>
where
    F: FnOnce(Sender<Happened>) -> bool + Send + 'static,
{
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || body(say)).context("starting a thread").map(drop)
}

/// Asks for the first reading. An instance that answers, or refuses, does so before the terminal is taken; of one that does not, it is
/// returned since when it is asked.
fn first(
    state: &mut State,
    ask: &Sender<()>,
    happened: &Receiver<Happened>,
) -> anyhow::Result<Option<Instant>> {
    ask.send(()).context("the reader has ended")?;
    let asked = Instant::now();
    match happened.recv_timeout(FIRST) {
        Ok(Happened::Answer(answer)) => state.take(*answer.map_err(|e| anyhow!(e.why))?),
        // Nothing else is listened to yet.
        Ok(_) | Err(_) => return Ok(Some(asked)),
    }
    Ok(None)
}

/// Shows what happens until the user has enough, or a signal that is returned ends it. `under_way`: when the question under way was asked.
fn watch(
    screen: &mut Screen,
    state: &mut State,
    mut under_way: Option<Instant>,
    ask: &Sender<()>,
    happened: &Receiver<Happened>,
) -> anyhow::Result<Option<i32>> {
    // When the next question is due.
    let mut due = Instant::now() + FIRST.min(state.interval());
    loop {
        state.waits(under_way.map_or(Duration::ZERO, |asked| asked.elapsed()));
        if screen.draw(|f| draw::draw(f, state)).is_err() {
            // The terminal is gone.
            return Ok(None);
        }
        if under_way.is_none() && !state.is_paused() && Instant::now() >= due {
            ask.send(()).context("the reader has ended")?;
            under_way = Some(Instant::now());
        }
        let wait = match under_way {
            Some(_) => TICK,
            None if state.is_paused() => TICK,
            None => due.saturating_duration_since(Instant::now()),
        };
        match happened.recv_timeout(wait) {
            Ok(Happened::Answer(answer)) => {
                due = under_way.take().unwrap_or_else(Instant::now) + state.interval();
                match answer {
                    Ok(reading) => state.take(*reading),
                    // Nothing was ever watched that could come back.
                    Err(e) if state.reading().is_none() && !e.is_silent => bail!(e.why),
                    Err(e) => {
                        state.lost(e.why);
                        due = due.max(Instant::now() + TICK);
                    }
                }
            }
            Ok(Happened::Input(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                match pressed(state, key) {
                    Pressed::Known => due = due.min(Instant::now() + state.interval()),
                    Pressed::Stop => stop(screen)?,
                    Pressed::Quit => return Ok(None),
                }
            }
            // A new size is noticed when it is drawn.
            Ok(Happened::Input(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Happened::Signal(SIGTSTP)) => stop(screen)?,
            Ok(Happened::Signal(SIGCONT)) => screen.take_again().context("the terminal")?,
            Ok(Happened::Signal(SIGINT) | Happened::NoInput) => return Ok(None),
            Ok(Happened::Signal(signal)) => return Ok(Some(signal)),
            Err(RecvTimeoutError::Disconnected) => bail!("the threads of the display have ended"),
        }
    }
}

/// Stops this process, as ^Z does, with the terminal restored for as long.
fn stop(screen: &mut Screen) -> anyhow::Result<()> {
    screen.give_back();
    emulate_default_handler(SIGTSTP)?;
    screen.take_again().context("the terminal")
}

enum Pressed {
    Known,
    Stop,
    Quit,
}

fn pressed(state: &mut State, key: KeyEvent) -> Pressed {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c') => return Pressed::Quit,
            KeyCode::Char('z') => return Pressed::Stop,
            _ => return Pressed::Known,
        }
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Pressed::Quit,
        KeyCode::Char('p' | ' ') => state.pause(),
        KeyCode::Char('s') => state.sort(Order::next),
        KeyCode::Char('S') => state.sort(Order::previous),
        KeyCode::Char('r') => state.reverse(),
        KeyCode::Char('+' | '=') => state.slower(),
        KeyCode::Char('-') => state.faster(),
        KeyCode::Char('h' | '?') => state.help(),
        KeyCode::Char(digit @ '1'..='6') => state.page(digit as usize - '1' as usize),
        KeyCode::Tab => state.next_page(true),
        KeyCode::BackTab => state.next_page(false),
        KeyCode::Down | KeyCode::Char('j') => state.scroll(1),
        KeyCode::Up | KeyCode::Char('k') => state.scroll(-1),
        KeyCode::PageDown => state.scroll(10),
        KeyCode::PageUp => state.scroll(-10),
        KeyCode::Home | KeyCode::Char('g') => state.scroll(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => state.scroll(isize::MAX),
        _ => {}
    }
    Pressed::Known
}
