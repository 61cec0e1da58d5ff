//! Leaves a card as it was found, although the run has given up its privileges by then.
//!
//! When an XDP program goes virtio's driver forgets its RSS, and merging that generic mode switched off stays off
//! ([`CardSettings`]). To set it again takes `CAP_NET_ADMIN`, which no thread that sees packets is to have. So where something is at
//! stake a second process of this program is started before the link is opened: it notes how the card is, keeps that one capability,
//! reads nothing but a pipe from us, and sets the card again when we close the link, or die.
//!
//! A run that changes the card's RSS notes in a state file how it was ([`flowlane::card::Held`]). The second process puts that back, too, so
//! the file is left only where both were killed: the next start finds it then ([`put_back_what_was_left`]), or `flowlane rss restore`.
//!
//! ```text
//!   flowlane serve ...                              flowlane restore-card NAME
//!     start it, wait for its line  ◀────────────────  card noted, privileges given up but one
//!     open link, give up privileges, work ...         wait
//!     link closed: 'x', end of file  ────────────────▶ set the card, end
//!     killed: end of file  ──────────────────────────▶ wait until we are gone, set the card, end
//! ```

use crate::say::say;
use crate::trace;
use anyhow::Context;
use flowlane::card::{self, Held, Outcome, Place, Why};
use flowlane_sys::netdev::Interface;
use flowlane_sys::netdev::settings::CardSettings;
use flowlane_sys::privilege;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Those who wait for the end, each with its card.
static KEEPERS: Mutex<Vec<(String, Child)>> = Mutex::new(Vec::new());
/// Cards that we have changed.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// The second process; not for people.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreCard {
    /// The interface.
    interface: String,
}

/// Puts back what a run that was killed has left on a card, and says so; once, however often it is asked.
pub(crate) fn put_back_what_was_left(interface: &str) {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut seen = locked(&SEEN);
    if seen.iter().any(|name| name == interface) {
        return;
    }
    seen.push(interface.to_owned());
    let Ok(place) = Place::usual() else { return };
    match card::put_back(&place, interface, Why::Stale) {
        // Whether another run's settings matter shows when the card is to be changed.
        Ok(Outcome::Nothing | Outcome::InUse(_)) => {}
        Ok(outcome) => say!("flowlane: {interface}: {outcome}"),
        Err(e) => say!("flowlane: {e}"),
    }
}

/// Has a card set again when the run ends, if anything is at stake: what XDP makes it forget, or RSS that the run is going to change. Before
/// its link is opened.
pub(crate) fn watch_over(interface: &str, changes_rss: bool) {
    if locked(&KEEPERS).iter().any(|(watched, _)| watched == interface) {
        return;
    }
    let found = Interface::find(interface).and_then(|found| CardSettings::record(&found));
    if !found.is_ok_and(|settings| changes_rss || settings.at_stake())
        || !privilege::has(privilege::CAP_NET_ADMIN)
    {
        return;
    }
    // Of a group of its own, so that ^C is for us alone.
    let child = Command::new("/proc/self/exe")
        .args(["restore-card", interface])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let Ok(mut child) = child else { return };
    let ready = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut String::new()));
    if matches!(ready, Some(Ok(1..))) {
        tracing::debug!(target: trace::CARD, interface, "another process keeps its settings");
        locked(&KEEPERS).push((interface.to_owned(), child));
    }
}

/// Keeps a card as it was changed until the links are closed.
pub(crate) fn hold(held: Held) {
    locked(&HELD).push(held);
}

fn locked<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Links are closed: has their cards set again and waits for that.
pub(crate) fn links_are_closed() {
    // With privileges this puts them back; without it is for those who have them.
    locked(&HELD).clear();
    for (_, mut child) in std::mem::take(&mut *locked(&KEEPERS)) {
        if let Some(mut pipe) = child.stdin.take() {
            let _ = pipe.write_all(b"x");
        }
        match child.wait() {
            Ok(status) if status.success() => {
                tracing::info!(target: trace::CARD, "a card's settings are as they were");
            }
            _ => tracing::warn!(target: trace::CARD, "a card's settings could not be set again"),
        }
    }
}

impl RestoreCard {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let parent = parent_id();
        let mut settings = CardSettings::record(&Interface::find(&self.interface)?)?;
        privilege::drop_all_but(privilege::CAP_NET_ADMIN).context("giving up privileges")?;
        writeln!(std::io::stdout(), "ready")?;
        let mut told = Vec::new();
        std::io::stdin().read_to_end(&mut told)?;
        if told.is_empty() {
            // It was killed, and the kernel takes its program off the card as it closes its files: at once, mostly.
            for _ in 0..500 {
                if parent_id() != parent {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let lost = settings.restore_lost().with_context(|| format!("{}: setting it again", self.interface));
        if let Ok(place) = Place::usual() {
            card::put_back(&place, &self.interface, Why::EndOf(parent))?;
        }
        lost
    }
}
