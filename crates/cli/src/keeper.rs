//! A second process that restores a card's settings after the run has given up its privileges.
//!
//! When an XDP program is removed, virtio's driver forgets its RSS, and merging that generic mode switched off stays off ([`CardSettings`]).
//! Restoring these takes `CAP_NET_ADMIN`, which no thread that sees packets may have. So if settings could be lost, the run starts a second
//! process of this program before it opens the link. This process notes the card's settings, keeps that one capability, and reads nothing but
//! a pipe from the first process. It restores the settings when the first process closes the link or dies.
//!
//! A run that changes the card's RSS notes the previous settings in a state file ([`flowlane::card::Held`]). The second process restores them,
//! too. So the file is left over only if both processes were killed. The next start finds it then ([`put_back_what_was_left`]), or
//! `flowlane rss restore` does. During the run the second process changes the table when lanes move, and sets the card again when it has
//! forgotten its settings ([`access`]). If the driver forgets RSS, the file exists from the start, although nothing is changed: whoever finds it
//! sets the card again.
//!
//! ```text
//!   flowlane serve ...                              flowlane restore-card NAME
//!     start it, wait for its line  ◀──── ready ─────  note the card, give up all privileges but one
//!     open link, give up privileges, work ...         wait
//!     a lane moved  ─────── 1 slots 3=1 17=1 ───────▶ set them
//!                   ◀──────── 1 ok, or: 1 error WHY ─
//!     the card forgot  ────────── 2 again ──────────▶ set all of it
//!     link closed: end, end of file  ────────────────▶ set the card as it was, end
//!     killed: end of file  ──────────────────────────▶ wait until it is gone, set the card as it was, end
//! ```

mod asking;

use self::asking::{NoAnswer, SAYS};
use crate::say::say;
use crate::stdout;
use crate::trace;
use anyhow::Context;
use flowlane::card::{self, Access, CardRss, Control, Held, Outcome, Owner, Place, Why};
use flowlane_sys::netdev::Interface;
use flowlane_sys::netdev::settings::CardSettings;
use flowlane_sys::privilege;
use std::io::Write;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the run waits for a change by the second process before it counts it as refused.
const PATIENCE: Duration = Duration::from_secs(5);

/// A second process, its card, and the pipes to it.
struct Keeper {
    interface: String,
    child: Child,
    reached: Arc<Mutex<Reached>>,
}

/// Whether the second process can be asked.
enum Reached {
    By(Pipes),
    /// It cannot, for this reason.
    Not(String),
}

type Pipes = asking::Pipes<ChildStdin, ChildStdout>;

/// The second processes, one for each card.
static KEEPERS: Mutex<Vec<Keeper>> = Mutex::new(Vec::new());
/// Cards that this process has changed.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// Arguments of the second process. It is not meant for users.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreCard {
    /// The interface.
    interface: String,
}

/// Restores a card that a killed run has left changed, and reports that on standard error. Later calls for the same interface do nothing.
pub(crate) fn put_back_what_was_left(interface: &str) {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut seen = locked(&SEEN);
    if seen.iter().any(|name| name == interface) {
        return;
    }
    seen.push(interface.to_owned());
    let Ok(place) = Place::usual() else { return };
    match card::put_back(&place, interface, Why::Stale) {
        // A run that still uses the card is in the way only if this one changes the card, too.
        Ok(Outcome::Nothing | Outcome::InUse(_)) => {}
        Ok(outcome) => say!("flowlane: {interface}: {outcome}"),
        Err(e) => say!("flowlane: {e}"),
    }
}

/// What a run does to a card, beside attaching a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changes {
    /// Nothing.
    Nothing,
    /// VLAN tags may have to be left in packets.
    Tags,
    /// Key, table or fields of RSS.
    Rss,
}

/// Starts the second process of a card, if settings could be lost: the card forgets some after XDP, or the run is going to change RSS. To be
/// called before the link is opened.
pub(crate) fn watch_over(interface: &str, changes: Changes) {
    if locked(&KEEPERS).iter().any(|keeper| keeper.interface == interface) {
        return;
    }
    let found = Interface::find(interface).and_then(|found| CardSettings::record(&found));
    if !found.is_ok_and(|settings| changes == Changes::Rss || settings.at_stake(changes == Changes::Tags))
        || !privilege::has(privilege::CAP_NET_ADMIN)
    {
        return;
    }
    // In a process group of its own, so that ^C reaches only the first process.
    let child = Command::new("/proc/self/exe")
        .args(["restore-card", interface])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let Ok(mut child) = child else { return };
    let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else { return };
    let mut pipes = Pipes::new(to, from);
    if pipes.is_ready() {
        tracing::debug!(target: trace::CARD, interface, "another process keeps its settings");
        let reached = Arc::new(Mutex::new(Reached::By(pipes)));
        locked(&KEEPERS).push(Keeper { interface: interface.to_owned(), child, reached });
    }
}

/// Access to a card through the second process, during the run. Without a second process, because the privilege is missing, the card can be read
/// but not changed. `None` if there is no such interface.
pub(crate) fn access(interface: &str) -> Option<Box<dyn Access>> {
    let control = Interface::find(interface).and_then(|found| Control::open(&found)).ok()?;
    let keepers = locked(&KEEPERS);
    let keeper = keepers.iter().find(|keeper| keeper.interface == interface);
    Some(Box::new(ByKeeper { control, reached: keeper.map(|keeper| keeper.reached.clone()) }))
}

/// A card that is read directly and changed by the second process.
struct ByKeeper {
    /// For reading, which takes no privileges.
    control: Control,
    reached: Option<Arc<Mutex<Reached>>>,
}

impl Access for ByKeeper {
    fn rss(&mut self) -> Result<CardRss, String> {
        self.control.rss().map_err(|e| e.to_string())
    }

    fn set_slots(&mut self, slots: &[(usize, u32)]) -> Result<(), String> {
        let slots = slots.iter().fold(String::new(), |text, (slot, queue)| format!("{text} {slot}={queue}"));
        self.ask(&format!("slots{slots}"))
    }

    fn set_again(&mut self) -> Result<(), String> {
        self.ask("again")
    }
}

impl ByKeeper {
    fn ask(&mut self, request: &str) -> Result<(), String> {
        let Some(reached) = &self.reached else {
            return Err("changing a card's RSS needs CAP_NET_ADMIN".to_owned());
        };
        let mut reached = locked(reached);
        match &mut *reached {
            Reached::Not(why) => Err(why.clone()),
            Reached::By(pipes) => match pipes.ask(request, PATIENCE) {
                Ok(answer) => answer,
                Err(NoAnswer::Late(why)) => Err(why),
                Err(NoAnswer::Gone(why)) => {
                    *reached = Reached::Not(why.clone());
                    Err(why)
                }
            },
        }
    }
}

/// Keeps the changes of a card until the links are closed.
pub(crate) fn hold(held: Held) {
    locked(&HELD).push(held);
}

fn locked<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To be called when the links are closed: has their cards restored, and waits for that.
pub(crate) fn links_are_closed() {
    // With privileges this restores the cards; without them the second processes do.
    locked(&HELD).clear();
    let keepers = std::mem::take(&mut *locked(&KEEPERS));
    keepers.into_iter().for_each(Keeper::end);
}

/// To be called when the link of one card is closed and the run goes on: as [`links_are_closed`] for that card.
pub(crate) fn link_is_closed(interface: &str) {
    let keepers: Vec<_> = locked(&KEEPERS).extract_if(.., |keeper| keeper.interface == interface).collect();
    keepers.into_iter().for_each(Keeper::end);
}

impl Keeper {
    /// Has the card restored, and waits for that.
    fn end(self) {
        let Self { mut child, reached, interface } = self;
        let before = std::mem::replace(&mut *locked(&reached), Reached::Not("the run ends".to_owned()));
        if let Reached::By(pipes) = before
            && let Some(what) = pipes.end()
        {
            say!("flowlane: {interface}: {what}");
        }
        match child.wait() {
            Ok(status) if status.success() => {
                tracing::info!(target: trace::CARD, interface, "a card's settings are as they were");
            }
            ended => {
                tracing::warn!(target: trace::CARD, interface, "a card's settings could not be set again");
                let how = ended.map_or_else(|e| e.to_string(), |status| status.to_string());
                say!(
                    "flowlane: {interface}: the process that keeps its settings has not set them again ({how}): \
                     'flowlane rss restore {interface}' does"
                );
            }
        }
    }
}

impl RestoreCard {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let parent = parent_id();
        let mut settings = CardSettings::record(&Interface::find(&self.interface)?)?;
        privilege::drop_all_but(privilege::CAP_NET_ADMIN).context("giving up privileges")?;
        let mut card = Changing { interface: &self.interface, parent, held: None };
        if settings.forgets() {
            // If this process is killed, the file tells that the card has forgotten its settings. If the file cannot be written, the run goes on.
            let _ = card.held();
        }
        writeln!(stdout::lock(), "ready")?;
        let ended = serve(&mut card)?;
        if !ended {
            // The first process was killed. The kernel removes its XDP program when it closes its files, usually at once.
            for _ in 0..500 {
                if parent_id() != parent {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        drop(card);
        let lost = settings.restore_lost().with_context(|| format!("{}: setting it again", self.interface));
        if let Ok(place) = Place::usual() {
            let outcome = card::put_back(&place, &self.interface, Why::EndOf(parent))?;
            if matches!(outcome, Outcome::Changed(..)) && ended {
                writeln!(stdout::lock(), "{SAYS}{outcome}")?;
            }
        }
        lost
    }
}

/// Serves the requests of the first process. Returns `true` if that announced its end.
fn serve(card: &mut Changing<'_>) -> anyhow::Result<bool> {
    for line in std::io::stdin().lines() {
        let line = line?;
        if line == "end" {
            return Ok(true);
        }
        let (number, request) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match card.carry_out(request) {
            Ok(()) => "ok".to_owned(),
            Err(why) => format!("error {}", why.replace('\n', " ")),
        };
        writeln!(stdout::lock(), "{number} {answer}")?;
    }
    Ok(false)
}

/// A card that the second process changes.
struct Changing<'a> {
    interface: &'a str,
    parent: u32,
    /// Its previous settings, noted before the first change unless the first process has done so.
    held: Option<Held>,
}

impl Changing<'_> {
    fn carry_out(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let request = words.next();
        let slots: Option<Vec<(usize, u32)>> = words
            .map(|word| {
                let (slot, queue) = word.split_once('=')?;
                Some((slot.parse().ok()?, queue.parse().ok()?))
            })
            .collect();
        let held = self.held()?;
        match (request, slots) {
            (Some("slots"), Some(slots)) => held.set_slots(&slots).map_err(|e| e.to_string()),
            (Some("again"), Some(_)) => held.set_again().map_err(|e| e.to_string()),
            _ => Err("no such request".to_owned()),
        }
    }

    fn held(&mut self) -> Result<&mut Held, String> {
        if self.held.is_none() {
            let place = Place::usual().map_err(|e| e.to_string())?;
            let owner = Owner::of(self.parent).map_err(|e| e.to_string())?;
            self.held = Some(Held::resume(&place, self.interface, owner).map_err(|e| e.to_string())?);
        }
        self.held.as_mut().ok_or_else(String::new)
    }
}
