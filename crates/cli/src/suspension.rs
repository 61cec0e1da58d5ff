//! `--suspend-irqs`: the interrupts of a card stay off while workers on kernel sockets are busy.
//!
//! A worker that finds events in epoll has the kernel leave the card's interrupts off (`irq-suspend-timeout` of a [NAPI](flowlane_sys::netdev::napi)),
//! and takes packets in itself when it asks again. When it finds none, they come back. The settings are the card's, and take `CAP_NET_ADMIN`, which no
//! thread that sees packets may have. So a second process of this program, which sees no packet, sets them, waits for the end of the first, be it
//! `kill -9`, and sets what is still as it was set back to what was found.
//!
//! ```text
//!   flowlane serve --suspend-irqs ...              flowlane restore-interrupts NAME NANOSECONDS
//!     start it, wait for its line  ◀── ready 4 ───  note the NAPIs, give up all privileges but one, set them
//!     give up privileges, work ...                  wait
//!     end, or killed: end of file  ──────────────▶  set them as they were, end
//! ```
//!
//! One instance at a time does so for a card: the second process holds a name (an abstract socket of the network namespace) that only one can have.
//! Others use the card as that one has set it. If both processes are killed the settings stay; they last until the card is removed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use flowlane_sys::netdev::Interface;
use flowlane_sys::netdev::napi::{Napi, Napis};
use flowlane_sys::privilege;
use flowlane_sys::words::counted;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::say::say;
use crate::stdout;

/// How long interrupts stay off at most. They come back before that whenever a worker has nothing to do, so this is for one that hangs.
const SOME: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_secs(10);
/// How they are deferred, without which suspending has no effect: after so many empty polls, so many nanoseconds apart, they are switched on.
const DEFER: u32 = 2;
const FLUSH: u64 = 200_000;

/// What is wanted: of which card, and for how long at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suspension {
    card: String,
    longest: Duration,
}

/// The second process, if there is one.
static RUNNING: Mutex<Vec<(String, Child)>> = Mutex::new(Vec::new());

impl Suspension {
    /// For this card.
    ///
    /// # Errors
    /// A time that makes no sense.
    pub(crate) fn new(card: &str, longest: Duration) -> anyhow::Result<Self> {
        ensure!(SOME.contains(&longest), "--suspend-irqs {longest:?}: must be from 100us to 10s");
        Ok(Self { card: card.to_owned(), longest })
    }

    /// Has the card's interrupts suspended from now on, and until [`end`]; what was done, in words. To be called before privileges are given up.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(crate) fn begin(&self) -> anyhow::Result<String> {
        let Self { card, longest } = self;
        self.begun()
            .map(|done| format!("{card}: {done}, {longest:?} at most"))
            .with_context(|| format!("--suspend-irqs: {card}"))
    }

    fn begun(&self) -> anyhow::Result<String> {
        // Reading takes no privilege, so what a privilege would not mend is said first.
        let found = napis(&self.card)?.list().map_err(old_or)?;
        ensure!(
            !found.is_empty(),
            "it has no NAPI, whose interrupts could wait (a veth has one while 'ethtool -K {} gro on' holds)",
            self.card
        );
        ensure!(privilege::has(privilege::CAP_NET_ADMIN), "changing its settings needs CAP_NET_ADMIN");
        // In a process group of its own, so that ^C reaches only the first process.
        let mut child = Command::new("/proc/self/exe")
            .args(["restore-interrupts", &self.card, &self.longest.as_nanos().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting the process that sets it back")?;
        let mut line = String::new();
        if let Some(from) = child.stdout.take() {
            let _ = BufReader::new(from).read_line(&mut line);
        }
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        match word {
            "ready" => {
                let queues = counted(rest.parse().unwrap_or(0), "queue");
                running().push((self.card.clone(), child));
                Ok(format!("interrupts of {queues} wait while workers are busy"))
            }
            "taken" => {
                let _ = child.wait();
                Ok("interrupts wait as another instance has set it, until that ends".to_owned())
            }
            "error" => {
                let _ = child.wait();
                bail!("{rest}")
            }
            _ => {
                let _ = child.wait();
                bail!("the process that sets it back has not begun")
            }
        }
    }
}

fn running() -> std::sync::MutexGuard<'static, Vec<(String, Child)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn napis(card: &str) -> anyhow::Result<Napis> {
    Napis::open(&Interface::find(card)?).map_err(|e| match e.raw_os_error() {
        // No family at all.
        Some(2) => old_or(io::ErrorKind::Unsupported.into()),
        _ => e.into(),
    })
}

/// What a kernel says that cannot do it, in words.
fn old_or(error: io::Error) -> anyhow::Error {
    if error.kind() != io::ErrorKind::Unsupported {
        return error.into();
    }
    let this = rustix::system::uname().release().to_string_lossy().into_owned();
    anyhow::anyhow!("suspending interrupts needs Linux 6.13 (this is {this})")
}

/// Has the card set as it was, and waits for that.
pub(crate) fn end() {
    for (card, mut child) in std::mem::take(&mut *running()) {
        // The end of its input is its sign.
        drop(child.stdin.take());
        if !child.wait().is_ok_and(|status| status.success()) {
            say!(
                "flowlane: {card}: the settings of its interrupts (irq-suspend-timeout of its NAPIs) could not be set back"
            );
        }
    }
}

/// Arguments of the second process. It is not meant for users.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreInterrupts {
    /// The interface.
    interface: String,
    /// How long its interrupts stay off at most, nanoseconds.
    nanos: u64,
}

impl RestoreInterrupts {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        // Who ends a service tells all its processes; this one ends with the other.
        let told = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, told.clone())?;
        }
        let said = |line: String| writeln!(stdout::lock(), "{line}");
        let interface = Interface::find(&self.interface)?;
        let name = format!("flowlane-interrupts-{}", interface.index());
        // Guard: `UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)` as
        // `UnixDatagram::unbound()` fails cli/suspend::of_two_instances
        let Ok(_held) = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?) else {
            return Ok(said("taken".to_owned())?);
        };
        let mut napis = napis(&self.interface)?;
        privilege::drop_all_but(privilege::CAP_NET_ADMIN).context("giving up privileges")?;
        let kept = match Kept::suspend(&mut napis, self.nanos) {
            Ok(kept) => kept,
            Err(e) => return Ok(said(format!("error {e}"))?),
        };
        said(format!("ready {}", kept.0.len()))?;
        let _ = io::stdin().read_to_end(&mut Vec::new());
        // Guard: no `kept.restore(&mut napis)?;` fails cli/suspend::the_card_is_as_it_was
        kept.restore(&mut napis)?;
        Ok(())
    }
}

/// NAPIs as they were found, and as they were set.
#[derive(Debug)]
struct Kept(Vec<(Napi, Napi)>);

impl Kept {
    /// Has the interrupts of all NAPIs suspended for so long at most. On an error all are as they were.
    fn suspend(napis: &mut Napis, longest: u64) -> io::Result<Self> {
        let mut kept = Self(Vec::new());
        for found in napis.list()? {
            let ours = ours(found, longest);
            if let Err(e) = napis.set(&ours) {
                let _ = kept.restore(napis);
                return Err(e);
            }
            kept.0.push((found, ours));
        }
        Ok(kept)
    }

    /// Sets what is still as it was set back to what was found. NAPIs that are gone need nothing.
    fn restore(&self, napis: &mut Napis) -> io::Result<()> {
        for (at, now) in napis.list()?.into_iter().enumerate() {
            let Some(wanted) = self.as_found(at, &now) else { continue };
            match napis.set(&wanted) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// How a NAPI, the `at`th of its card, is to be set; `None` if it is as it should be. Drivers make NAPIs anew, as when an interface goes down and
    /// up: then the number is another, and the suspension may have stayed.
    fn as_found(&self, at: usize, now: &Napi) -> Option<Napi> {
        let same = self.0.iter().find(|(found, _)| found.number == now.number);
        let (found, ours) = same.or_else(|| self.0.get(at)).or_else(|| self.0.first())?;
        let mut wanted = *now;
        // Guard: `now.suspend == ours.suspend` as `true` fails suspension::tests::what_another
        if now.suspend == ours.suspend {
            wanted.suspend = found.suspend;
        }
        if now.defer == ours.defer {
            wanted.defer = found.defer;
        }
        if now.flush == ours.flush {
            wanted.flush = found.flush;
        }
        (wanted != *now).then_some(wanted)
    }
}

/// How a NAPI is set: what somebody has said of deferring stays.
fn ours(found: Napi, longest: u64) -> Napi {
    let or = |found: u64, ours: u64| if found == 0 { ours } else { found };
    Napi {
        suspend: longest,
        defer: if found.defer == 0 { DEFER } else { found.defer },
        flush: or(found.flush, FLUSH),
        ..found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Napi = Napi { number: 7, defer: 0, flush: 0, suspend: 0 };
    const LONGEST: u64 = 20_000_000;

    #[test]
    fn what_is_set_is_set_back() {
        let set = ours(FOUND, LONGEST);
        assert_eq!(set, Napi { number: 7, defer: DEFER, flush: FLUSH, suspend: LONGEST });
        let kept = Kept(vec![(FOUND, set)]);
        assert_eq!(kept.as_found(0, &set), Some(FOUND));
        assert_eq!(kept.as_found(0, &FOUND), None, "nothing to do");
        // Made anew, it has lost all but one.
        let anew = Napi { number: 8, suspend: LONGEST, ..FOUND };
        assert_eq!(kept.as_found(0, &anew), Some(Napi { number: 8, ..FOUND }));
        assert_eq!(kept.as_found(3, &anew), Some(Napi { number: 8, ..FOUND }), "one more than there were");
        assert_eq!(Kept(Vec::new()).as_found(0, &anew), None);
    }

    #[test]
    fn what_another_has_said_stays() {
        let tuned = Napi { defer: 5, flush: 9_000, ..FOUND };
        let set = ours(tuned, LONGEST);
        assert_eq!((set.defer, set.flush), (5, 9_000));
        let kept = Kept(vec![(tuned, set)]);
        let changed = Napi { suspend: 3, flush: 1, ..set };
        assert_eq!(kept.as_found(0, &changed), None);
        assert_eq!(kept.as_found(0, &set), Some(tuned));
    }

    #[test]
    fn times_have_bounds() {
        assert!(Suspension::new("eth0", Duration::from_millis(20)).is_ok());
        for wrong in [Duration::ZERO, Duration::from_secs(11)] {
            let said = Suspension::new("eth0", wrong).unwrap_err().to_string();
            assert!(said.ends_with("must be from 100us to 10s"), "{said}");
        }
    }
}
