//! Progress during a run: a status line that is overwritten, a line for each second, or a full-screen display.
//!
//! The thread that waits for the end of the run calls [`Watch::tick`] a few times a second, which takes the lanes' new snapshots and
//! shows them. Everything goes to standard error; standard output has the results only.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use flowlane::Handle;
use flowlane::control::ListenError;
use flowlane_load::push::Feed;
use flowlane_load::report::{Abort, Aborted, Frame, Live, Snapshot, SnapshotsTo, live, text};
use flowlane_load::{Phase, timeline};

use ratatui::crossterm;

use super::Outputs;
use super::display::{Display, Stage, has_room};
use super::metrics::RunMetrics;
use super::web::Web;
use crate::say::say;
use crate::terminal::is_dumb;
use crate::units::show_count;

/// The display of a run.
#[derive(Debug)]
pub(crate) struct Watch {
    from: Receiver<Snapshot>,
    live: Live,
    duration: f64,
    pools: Vec<String>,
    view: View,
    /// Seconds of connecting for which a line was printed.
    said: u64,
    web: Option<Web>,
    metrics: Option<RunMetrics>,
    /// Where figures are pushed.
    feed: Option<Feed>,
    quiet: bool,
    /// Conditions that end the run, and the one that has.
    abort: Option<Abort>,
    aborted: Option<Aborted>,
}

#[derive(Debug)]
enum View {
    Nothing,
    Status,
    /// A line for each second; printed up to this time, seconds.
    Lines(f64),
    Display(Display),
}

impl Outputs {
    /// Starts the display of a run of these phases, and opens the socket of its web page. Recorders send their snapshots to the channel
    /// returned with it.
    pub(crate) fn watch(&self, phases: &[Phase], pools: &[String]) -> anyhow::Result<(Watch, SnapshotsTo)> {
        let web = self.web.map(Web::listen).transpose()?;
        let terminal = std::io::stderr().is_terminal() && !is_dumb();
        let view = if self.quiet {
            View::Nothing
        } else if self.tui && terminal {
            // A terminal that is too small shows lines.
            let room = has_room().inspect_err(|why| say!("flowlane: --tui: {why}; lines instead"));
            room.ok().and_then(|()| Display::open()).map_or(View::Lines(0.0), View::Display)
        } else if self.lines || self.tui {
            View::Lines(0.0)
        } else if terminal {
            View::Status
        } else {
            View::Nothing
        };
        let (to, from) = live::channel();
        let pools = pools.to_vec();
        let mut live = Live::new();
        if web.is_some() {
            live.count_latencies();
        }
        let metrics = self.metrics.map(|at| RunMetrics::listen(at, &pools, &mut live)).transpose()?;
        let abort = self.abort(phases, &pools);
        let mut feed = self.push.start(&pools)?;
        if let Some(feed) = &mut feed {
            feed.prepare(&mut live);
            feed.look(&live);
        }
        let to = SnapshotsTo::from(to);
        let to = abort.as_ref().map_or(to.clone(), |abort| abort.asks(to));
        let to = feed.as_ref().map_or(to.clone(), |feed| feed.asks(to));
        let to = metrics.as_ref().map_or(to.clone(), |metrics| metrics.asks(to));
        Ok((
            Watch {
                from,
                live,
                duration: timeline::duration(phases).as_secs_f64(),
                pools,
                view,
                said: 0,
                web,
                metrics,
                feed,
                quiet: self.quiet,
                abort,
                aborted: None,
            },
            to,
        ))
    }
}

impl Watch {
    /// Serves the run's web page and metrics, if they were asked for.
    pub(crate) fn serve(&mut self, handle: Handle, name: &str) -> Result<(), ListenError> {
        self.serve_metrics(Some((handle.clone(), name)))?;
        let Some(web) = &mut self.web else { return Ok(()) };
        if let Some(address) = web.serve(handle, name)?
            && self.says()
        {
            say!("flowlane: web page http://{address}/");
        }
        Ok(())
    }

    /// Serves the run's metrics, if they were asked for, behind those of the runtime that makes it, if one here does.
    pub(crate) fn serve_metrics(&mut self, runtime: Option<(Handle, &str)>) -> Result<(), ListenError> {
        let Some(metrics) = &mut self.metrics else { return Ok(()) };
        if let Some(address) = metrics.serve(runtime)?
            && self.says()
        {
            say!("flowlane: metrics http://{address}/metrics");
        }
        Ok(())
    }

    /// Whether lines have their place on the terminal.
    fn says(&self) -> bool {
        !self.quiet && !matches!(self.view, View::Display(_))
    }

    /// Takes what the lanes sent.
    fn take(&mut self) {
        self.live.take(&self.from);
        if let Some(web) = &self.web {
            web.show(&self.live);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.look(&self.live);
        }
        if let Some(feed) = &mut self.feed {
            feed.look(&self.live);
        }
    }

    /// Updates the display; `false` if the user ends the run, or a condition does.
    pub(crate) fn tick(&mut self, elapsed: Duration) -> bool {
        self.take();
        if let Some(aborted) = self.abort.as_mut().and_then(|abort| abort.look(&self.live)) {
            self.aborted = Some(aborted);
            self.interrupted();
            return false;
        }
        if matches!(self.view, View::Nothing) {
            return true;
        }
        let frame = self.live.frame(elapsed);
        match &mut self.view {
            View::Nothing => {}
            View::Status => {
                let columns = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
                let line: String = text::status(&frame, self.duration, columns.max(20));
                // An error means that standard error is closed.
                let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
            }
            View::Lines(printed) => lines(&frame, printed),
            View::Display(display) => {
                if !display.show(&frame, &Stage::Running(self.duration), &self.pools) {
                    return self.leave();
                }
            }
        }
        true
    }

    /// The user ends the run: restores the terminal, so that a second ^C ends the program.
    fn leave(&mut self) -> bool {
        self.view = View::Status;
        false
    }

    /// As [`Watch::tick`], while connections are opened: `standing` of `of` are established.
    pub(crate) fn connecting(&mut self, elapsed: Duration, standing: u64, of: u64) -> bool {
        let words = format!(
            "connecting: {} of {} open after {:.1} s",
            show_count(standing),
            show_count(of),
            elapsed.as_secs_f64()
        );
        self.take();
        match &mut self.view {
            View::Nothing => {}
            View::Status => drop(write!(std::io::stderr(), "\r{words}\x1b[K")),
            // One line per second; most runs connect in less.
            View::Lines(_) => {
                if elapsed.as_secs() > self.said {
                    self.said = elapsed.as_secs();
                    let _ = writeln!(std::io::stderr(), "{words}");
                }
            }
            View::Display(display) => {
                let share = if of > 0 { standing as f64 / of as f64 } else { 1.0 };
                if !display.show(&self.live.frame(elapsed), &Stage::Connecting(share, words), &self.pools) {
                    return self.leave();
                }
            }
        }
        true
    }

    /// Ends the display and restores the terminal; the condition that has ended the run, if one has.
    pub(crate) fn end(self) -> Option<Aborted> {
        if matches!(self.view, View::Status) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.aborted
    }

    /// Leaves the full-screen display, since the run is ended by a signal or a condition.
    pub(crate) fn interrupted(&mut self) {
        if matches!(self.view, View::Display(_)) {
            self.view = View::Status;
        }
    }
}

fn lines(frame: &Frame, printed: &mut f64) {
    for point in frame.seconds.iter().filter(|p| p.at_seconds >= *printed) {
        // Repeated every 20 lines.
        if (point.at_seconds as u64).is_multiple_of(20) {
            let _ = writeln!(std::io::stderr(), "{}", text::second_head());
        }
        let _ = writeln!(std::io::stderr(), "{}", text::second(point));
    }
    if let Some(last) = frame.last() {
        *printed = printed.max(last.at_seconds + last.seconds);
    }
}
