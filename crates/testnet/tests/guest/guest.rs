//! The guest: what it is told to do, and the programs that run in it.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// For the guest to come up and to do anything that it is told.
const PATIENCE: Duration = Duration::from_secs(120);

/// The wire to the guest's shell (`guest/init`).
#[derive(Debug)]
pub(crate) struct Guest {
    wire: BufReader<UnixStream>,
    number: u64,
    /// Why nothing can be asked any more: the guest has ended, or its shell is stuck.
    lost: Option<String>,
}

/// What a command in the guest came to.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its exit code.
    pub(crate) code: i32,
    /// What it printed and complained of.
    pub(crate) said: String,
}

impl Done {
    /// How many tests passed, of a test program that ran.
    pub(crate) fn passed(&self) -> u32 {
        let words = self.said.rsplit_once("test result: ok. ").map(|(_, words)| words);
        words.and_then(|words| words.split_once(" passed")?.0.parse().ok()).unwrap_or(0)
    }
}

impl Guest {
    /// The guest, for one test at a time; `None`, having said why, where there is none.
    pub(crate) fn get() -> Option<MutexGuard<'static, Self>> {
        static GUEST: OnceLock<Mutex<Guest>> = OnceLock::new();
        let Ok(path) = std::env::var("FLOWLANE_GUEST") else {
            flowlane_testnet::skipped(
                "skipped, because there is no guest here: crates/testnet/guest/run boots one",
            );
            return None;
        };
        let guest = GUEST.get_or_init(|| Mutex::new(Self::connect(&path)));
        // A test that failed leaves the guest in order: each begins by tidying up.
        Some(guest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Guest::get`], if it is the newer one, whose cards the older one does not have.
    pub(crate) fn newer() -> Option<MutexGuard<'static, Self>> {
        Self::of_kind(
            "newer",
            "skipped, because this guest has none of these cards: crates/testnet/guest/run --newer boots one that has",
        )
    }

    /// As [`Guest::get`], if it has two NUMA nodes.
    pub(crate) fn numa() -> Option<MutexGuard<'static, Self>> {
        Self::of_kind(
            "numa",
            "skipped, because this guest has one NUMA node: crates/testnet/guest/run --numa boots one with two",
        )
    }

    fn of_kind(wanted: &str, otherwise: &str) -> Option<MutexGuard<'static, Self>> {
        let guest = Self::get()?;
        if std::env::var("FLOWLANE_GUEST_KIND").is_ok_and(|kind| kind == wanted) {
            return Some(guest);
        }
        flowlane_testnet::skipped(otherwise);
        None
    }

    fn connect(path: &str) -> Self {
        let wire = UnixStream::connect(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut guest = Self { wire: BufReader::new(wire), number: 0, lost: None };
        // What is said before its shell listens is lost, so it is asked until it answers.
        let deadline = Instant::now() + PATIENCE;
        while let Err(e) = guest.ask("true", Duration::from_secs(2)) {
            let late = Instant::now() >= deadline || e.kind() != ErrorKind::TimedOut;
            assert!(!late, "the guest did not come up: {e}");
        }
        guest
    }

    /// Has the guest's shell run `command`; [`ErrorKind::TimedOut`] if it has not finished after `patience`.
    fn ask(&mut self, command: &str, patience: Duration) -> io::Result<Done> {
        assert!(!command.contains('\n'), "one line at a time");
        self.number += 1;
        let end = format!("@done {} ", self.number);
        self.wire.get_mut().write_all(format!("{} {command}\n", self.number).as_bytes())?;
        self.wire.get_ref().set_read_timeout(Some(patience))?;
        let mut said = Vec::<u8>::new();
        loop {
            let begin = said.len();
            // A read that ran into the limit keeps what it got; that is of a question whose answer nobody waits for.
            match self.wire.read_until(b'\n', &mut said) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it has ended")),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    return Err(io::Error::new(ErrorKind::TimedOut, format!("no end after {patience:?}")));
                }
                Err(e) => return Err(e),
            }
            let line = String::from_utf8_lossy(&said[begin..]).into_owned();
            if let Some(code) = line.strip_prefix(&end) {
                said.truncate(begin);
                let code = code.trim().parse().unwrap();
                return Ok(Done { code, said: String::from_utf8_lossy(&said).trim_end().to_owned() });
            }
            if line.starts_with("@done ") {
                said.clear();
            }
        }
    }

    /// Has the guest's shell run `command`, one line. Once that failed nothing is asked any more: each further test would
    /// wait as long.
    pub(crate) fn run(&mut self, command: &str) -> Done {
        if self.lost.is_none() {
            match self.ask(command, PATIENCE) {
                Ok(done) => return done,
                Err(e) => self.lost = Some(format!("{command}: {e}")),
            }
        }
        panic!("the guest is lost: {}", self.lost.as_deref().unwrap_or_default())
    }

    /// As [`Guest::run`], of what has to succeed: what it said.
    pub(crate) fn must(&mut self, command: &str) -> String {
        let done = self.run(command);
        assert_eq!(done.code, 0, "in the guest: {command}: {}", done.said);
        done.said
    }

    /// Starts `flowlane` with these arguments and waits until it listens: what it said until then.
    pub(crate) fn start(&mut self, arguments: &str) -> Done {
        self.run(&format!("start flowlane flowlane {arguments}"))
    }

    /// Ends what [`Guest::start`] started as ^C does. What it printed, and its complaints behind a '!'.
    pub(crate) fn finish(&mut self) -> Done {
        self.run("finish flowlane")
    }
}
