//! Networks to test on: namespaces, and veth pairs that behave like a card with RSS; and [`Program`]s to test in them.
//!
//! ```text
//!     far namespace (the kernel is the peer)          near side (Flowlane is here)
//!   ┌───────────────────────────────────────┐      ┌─────────────────────────────┐
//!   │ sockets ─▶ IP ─▶ tcx_rss ─▶ far end ══╪══════╪═▶ near end, queue 0, 1, ... │
//!   └───────────────────────────────────────┘      └─────────────────────────────┘
//!          hash and queue by Toeplitz        checksum offload off: sums are in the packets
//! ```
//!
//! Namespaces and interfaces are removed when their value is dropped, also when a test panics. Names contain the process number, so that
//! concurrent runs do not collide. All of it needs root (or the capabilities named by [`requires`]) and the `ip` program of iproute2; a
//! test that cannot run prints so:
//!
//! ```no_run
//! if let Err(why) = flowlane_testnet::requires() {
//!     flowlane_testnet::skipped(why); // "skipped, because ..."
//!     return;
//! }
//! ```
//!
//! # Stability
//!
//! A part of the command and of the crate `flowlane-net`, published because they need it. It promises nothing: any release may change it.
#![forbid(unsafe_code)]

mod card;
mod namespace;
mod program;
mod scratch;
mod skipped;
mod tagged;

pub use card::{Card, CardConfig, Hook, MICROSOFT_KEY};
pub use namespace::Namespace;
pub use program::{Ended, PATIENCE, Program, eventually, eventually_or, free_port};
pub use scratch::Scratch;
pub use skipped::{skipped, summary as what_was_skipped};
pub use tagged::Tagged;

use flowlane_sys::privilege;
use std::process::{Command, Stdio};

/// Why a network could not be made: one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no `ip` program.
    NoIproute(std::io::Error),
    /// `ip` refused.
    Ip {
        /// Its arguments.
        arguments: String,
        /// Its words.
        said: String,
    },
    /// A set-up call failed.
    Sys(flowlane_sys::error::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoIproute(e) => write!(f, "cannot run 'ip' ({e}): install iproute2"),
            Self::Ip { arguments, said } => write!(f, "ip {arguments}: {}", said.trim()),
            Self::Sys(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<flowlane_sys::error::Error> for Error {
    fn from(e: flowlane_sys::error::Error) -> Self {
        Self::Sys(e)
    }
}

/// Runs `ip` with these arguments, split at spaces.
///
/// # Errors
/// [`Error::NoIproute`], or [`Error::Ip`] with what it said.
pub fn ip(arguments: &str) -> Result<(), Error> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .map_err(Error::NoIproute)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Ip { arguments: arguments.to_owned(), said })
}

/// Whether namespaces and cards can be made here.
///
/// # Errors
/// A line for the test's output that begins "skipped, because".
pub fn requires() -> Result<(), String> {
    for (capability, name) in [
        (privilege::CAP_SYS_ADMIN, "CAP_SYS_ADMIN"),
        (privilege::CAP_NET_ADMIN, "CAP_NET_ADMIN"),
        (privilege::CAP_NET_RAW, "CAP_NET_RAW"),
        (privilege::CAP_BPF, "CAP_BPF"),
    ] {
        if !privilege::has(capability) {
            return Err(format!("skipped, because making network namespaces needs {name} (run as root)"));
        }
    }
    // One try tells more than many questions.
    static TRIED: std::sync::OnceLock<Result<(), String>> = std::sync::OnceLock::new();
    TRIED
        .get_or_init(|| {
            Card::new(&CardConfig::for_test("try", 2)).map(drop).map_err(|e| format!("skipped, because {e}"))
        })
        .clone()
}

/// Asserts that no thread of a process has any capability left, nor can ever get one.
///
/// # Panics
/// If one has, or the process is gone.
pub fn assert_no_privileges(process: u32) {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    for thread in threads.unwrap_or_else(|e| panic!("process {process}: {e}")).flatten() {
        // One that ended meanwhile has none.
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { continue };
        for (name, wanted) in
            [("CapEff:", "0000000000000000"), ("CapPrm:", "0000000000000000"), ("NoNewPrivs:", "1")]
        {
            let found = status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            assert_eq!(found, Some(wanted), "{name} {status}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const ASKED: &str = "FLOWLANE_TEST_SKIPS";

    #[test]
    fn one_that_is_skipped_when_asked() {
        if std::env::var_os(ASKED).is_some() {
            super::skipped("skipped, because it was asked to be");
        }
    }

    /// As `cargo test` shows it: this program runs the test above, which passes, and lets its output be captured.
    #[test]
    fn what_is_skipped_is_seen() {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--exact", "tests::one_that_is_skipped_when_asked"]).env(ASKED, "1");
        let output = command.output().expect("it runs once more");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("one_that_is_skipped_when_asked: skipped, because it was asked to be\n"),
            "{said}"
        );
    }
}
