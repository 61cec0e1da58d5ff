//! Who runs the command, and what the kernel lets them do.

use std::fs;
use std::path::PathBuf;

use flowlane::control;
use flowlane_sys::kernel::limits::{self, Limit};
use flowlane_sys::privilege;
use rustix::fs::Access;

#[derive(Debug, Clone)]
pub(in super::super) struct User {
    pub(in super::super) number: u32,
    /// Capabilities in effect, one bit each.
    pub(in super::super) capabilities: u64,
    /// In a user namespace of its own, as in a container without root: capabilities hold there alone. `None`: not to be told.
    pub(in super::super) confined: Option<bool>,
    /// Capabilities of a file do not count (`no_new_privs`).
    pub(in super::super) no_new: Option<bool>,
    /// A filter of system calls is in force.
    pub(in super::super) filtered: Option<bool>,
    pub(in super::super) files: Option<Limit>,
    pub(in super::super) locked: Option<Limit>,
    /// Where sockets of `--control` are, and why they cannot be there.
    pub(in super::super) directory: PathBuf,
    pub(in super::super) directory_fault: Option<String>,
    /// The file of this program.
    pub(in super::super) program: Option<PathBuf>,
}

impl User {
    pub(super) fn look() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let of = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse::<u32>().ok())
        };
        let directory = control::default_directory();
        Self {
            number: rustix::process::geteuid().as_raw(),
            capabilities: privilege::effective(),
            confined: fs::read_to_string("/proc/self/uid_map").ok().map(|map| !is_whole(&map)),
            no_new: of("NoNewPrivs").map(|n| n != 0),
            filtered: of("Seccomp").map(|n| n != 0),
            files: limits::open_files().ok(),
            locked: limits::locked_memory().ok(),
            directory_fault: fault(&directory),
            directory,
            program: std::env::current_exe().ok(),
        }
    }

    pub(in super::super) fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// Bytes that may be locked without the capability.
    pub(in super::super) fn may_lock(&self) -> u64 {
        self.locked.map_or(0, |limit| limit.soft)
    }
}

/// Whether a map of users is that of the first namespace: everybody to themselves.
fn is_whole(map: &str) -> bool {
    let mut words = map.split_whitespace();
    words.next() == Some("0") && words.next() == Some("0") && words.next() == Some("4294967295")
}

/// Why nobody of this user could make a socket there.
fn fault(directory: &std::path::Path) -> Option<String> {
    // It is made when it is needed.
    let existing = directory.ancestors().find(|part| part.exists())?;
    if !existing.is_dir() {
        return Some(format!("{} is no directory", existing.display()));
    }
    let fault = rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK).err()?;
    Some(format!("{}: {fault}", existing.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_namespace_is_told_by_its_map() {
        assert!(is_whole("         0          0 4294967295\n"));
        for confined in ["0 1000 1\n", "1000 1000 1\n", "0 0 65536\n", ""] {
            assert!(!is_whole(confined), "{confined}");
        }
    }

    #[test]
    fn a_directory_that_is_none_is_a_fault() {
        let here = std::env::temp_dir();
        assert_eq!(fault(&here.join("flowlane-doctor/not/yet")), None);
        assert!(
            fault(std::path::Path::new("/proc/self/status/x")).is_some_and(|f| f.contains("no directory"))
        );
    }
}
