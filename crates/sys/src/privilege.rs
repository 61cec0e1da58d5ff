//! Giving up privileges once everything is open.
//!
//! Packet sockets, TAP queues and AF_XDP rings keep working without capabilities; only opening them needs some. So a program opens its
//! links, calls [`drop_all`], and handles packets without privileges. Capabilities belong to threads: call it before the workers start,
//! so that they inherit the reduced set.

use std::io;

/// Result of dropping privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Capabilities in effect before, one bit each.
    pub before: u64,
    /// Capabilities in effect afterwards: none, or the one that was to be kept.
    pub after: u64,
    /// Whether neither this process nor programs that it executes can gain privileges (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privileges: bool,
}

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

/// Number of `CAP_NET_BIND_SERVICE`.
pub const CAP_NET_BIND_SERVICE: u32 = 10;
/// Number of `CAP_NET_ADMIN`.
pub const CAP_NET_ADMIN: u32 = 12;
/// Number of `CAP_NET_RAW`.
pub const CAP_NET_RAW: u32 = 13;
/// Number of `CAP_IPC_LOCK`.
pub const CAP_IPC_LOCK: u32 = 14;
/// Number of `CAP_SYS_ADMIN`.
pub const CAP_SYS_ADMIN: u32 = 21;
/// Number of `CAP_BPF`.
pub const CAP_BPF: u32 = 39;

/// The capabilities of this thread, in halves.
fn sets() -> io::Result<[Sets; 2]> {
    let header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 writes two sets; pid 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
    if result == 0 { Ok(sets) } else { Err(io::Error::last_os_error()) }
}

/// Capabilities in effect for this thread, one bit each.
#[must_use]
pub fn effective() -> u64 {
    sets().map_or(0, |[low, high]| u64::from(high.effective) << 32 | u64::from(low.effective))
}

/// Whether this thread has capability number `capability` in effect.
#[must_use]
pub fn has(capability: u32) -> bool {
    effective() >> capability & 1 == 1
}

/// The capabilities that anything here needs, and their names.
pub const NAMES: [(u32, &str); 6] = [
    (CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
    (CAP_NET_ADMIN, "CAP_NET_ADMIN"),
    (CAP_NET_RAW, "CAP_NET_RAW"),
    (CAP_IPC_LOCK, "CAP_IPC_LOCK"),
    (CAP_SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CAP_BPF, "CAP_BPF"),
];

/// The name of a capability, if anything here needs it.
#[must_use]
pub fn name(capability: u32) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == capability).map(|&(_, name)| name)
}

/// The names of those of `needed` that this thread does not have. `CAP_SYS_ADMIN` stands for `CAP_BPF`, as it does in the kernel.
pub(crate) fn lacking(needed: &[u32]) -> Vec<&'static str> {
    let had = |n: u32| has(n) || n == CAP_BPF && has(CAP_SYS_ADMIN);
    needed.iter().filter(|&&n| !had(n)).filter_map(|&n| name(n)).collect()
}

/// Drops every capability of this thread, ambient ones included, and sets `no_new_privs`.
///
/// # Errors
/// The kernel's; none is expected.
pub fn drop_all() -> io::Result<Report> {
    drop_all_but_these(0)
}

/// Drops every capability of this thread but the one of this number, if it has it: as [`drop_all`] otherwise.
///
/// # Errors
/// As [`drop_all`].
pub fn drop_all_but(capability: u32) -> io::Result<Report> {
    drop_all_but_these(1u64.checked_shl(capability).unwrap_or(0))
}

/// Drops every capability of this thread but those of the bits in `kept`, of which it keeps those that it has: as [`drop_all`]
/// otherwise.
///
/// # Errors
/// As [`drop_all`].
pub fn drop_all_but_these(kept: u64) -> io::Result<Report> {
    let before = effective();
    let kept = kept & before;
    let header = Header { version: VERSION_3, pid: 0 };
    let half = |bits: u64| Sets { effective: bits as u32, permitted: bits as u32, inheritable: 0 };
    let sets = [half(kept & u64::from(u32::MAX)), half(kept >> 32)];
    // SAFETY: these calls take numbers, and capset reads the header and two sets.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: takes numbers only.
    let no_new_privileges = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } == 1;
    Ok(Report { before, after: effective(), no_new_privileges })
}

/// Has the programs that this thread executes keep a capability which it has, though neither their user nor their file gives it to them
/// (capabilities(7), "ambient"). To be called after the others are dropped, which ends it. Without the capability it does nothing.
///
/// # Errors
/// `EPERM` where securebits forbid it.
pub fn pass_on(capability: u32) -> io::Result<()> {
    if !has(capability) {
        return Ok(());
    }
    let header = Header { version: VERSION_3, pid: 0 };
    let mut sets = sets()?;
    sets[(capability / 32) as usize].inheritable |= 1 << (capability % 32);
    // SAFETY: capset reads the header and two sets, and prctl takes numbers.
    let done = unsafe {
        libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) == 0
            && libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// In a process whose user is nobody, with one ambient capability: what it executes has that one only if it is passed on.
    #[test]
    fn a_program_has_what_is_passed_on() {
        const INSIDE: &str = "FLOWLANE_TEST_PASS_ON";
        if std::env::var_os(INSIDE).is_some() {
            let has_it = || {
                let status = Command::new("cat").arg("/proc/self/status").output().unwrap().stdout;
                let status = String::from_utf8(status).unwrap();
                let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
                u64::from_str_radix(mask.trim(), 16).unwrap() == 1 << CAP_NET_ADMIN
            };
            assert!(has_it(), "by setpriv");
            drop_all_but(CAP_NET_ADMIN).unwrap();
            assert!(!has_it(), "dropped for programs");
            pass_on(CAP_NET_ADMIN).unwrap();
            assert!(has_it(), "passed on");
            pass_on(CAP_NET_RAW).unwrap();
            return;
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all,+net_admin"]);
        command.args(["--ambient-caps=-all,+net_admin", "--bounding-set=-all,+net_admin"]);
        command.arg(std::env::current_exe().unwrap()).env(INSIDE, "1");
        let tried = command.args(["--exact", "privilege::tests::a_program_has_what_is_passed_on"]).output();
        match tried {
            Ok(output) if output.status.success() => {}
            // As a test that fails ends.
            Ok(output) if output.status.code() == Some(101) => {
                panic!("{}", String::from_utf8_lossy(&output.stdout))
            }
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                crate::skipped(format_args!(
                    "skipped, because nobody cannot run this with CAP_NET_ADMIN: {}",
                    why.trim()
                ));
            }
            Err(e) => crate::skipped(format_args!("skipped, because there is no setpriv: {e}")),
        }
    }

    #[test]
    fn one_is_left_if_it_was_there() {
        std::thread::spawn(|| {
            let had = has(CAP_NET_ADMIN);
            let report = drop_all_but(CAP_NET_ADMIN).unwrap();
            assert_eq!(report.after, u64::from(had) << CAP_NET_ADMIN);
            assert_eq!(drop_all_but(CAP_BPF).unwrap().after, 0, "what is gone does not come back");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn nothing_is_left_after_dropping() {
        // On a thread of its own: capabilities are per thread, and other tests may need them.
        std::thread::spawn(|| {
            let report = drop_all().unwrap();
            assert_eq!((report.after, report.no_new_privileges), (0, true));
            assert!(!has(CAP_NET_ADMIN));
        })
        .join()
        .unwrap();
    }
}
