//! Errors of setting up a device, a program or a privilege: each is one line that says what is wrong and how to fix it.
//!
//! Only set-up returns these. Once a queue is open, errors of single packets are counted, not returned.

use crate::privilege;
use std::io;

/// Result of a set-up operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be set up.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No network interface of this name in this network namespace.
    NoSuchInterface {
        /// The name as given.
        name: String,
    },
    /// The kernel wants a capability that this process lacks.
    MissingCapability {
        /// `CAP_NET_ADMIN`; several as in `CAP_NET_RAW and CAP_BPF`.
        capability: String,
        /// What was being done.
        doing: String,
    },
    /// Frame memory that the kernel is to keep in its place is more than this user may lock.
    LockedMemory {
        /// Bytes of the frame memory.
        bytes: u64,
    },
    /// The running kernel lacks a feature.
    KernelTooOld {
        /// The feature.
        feature: &'static str,
        /// First kernel that has it.
        needs: &'static str,
    },
    /// Another program already uses a queue.
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// Another program already uses the whole interface.
    DeviceBusy {
        /// The interface.
        interface: String,
        /// Who holds it, as far as the kernel tells.
        owner: String,
    },
    /// Another program takes the packets for an address, or those of an interface.
    AddressBusy {
        /// The interface.
        interface: String,
        /// The address or network, and its VLAN; `it`: the whole interface.
        address: String,
        /// The number of the program's process, as far as the kernel tells.
        owner: Option<u32>,
    },
    /// The interface or its driver does not support an option.
    Unsupported {
        /// The interface.
        interface: String,
        /// What it cannot do, and what to do instead.
        what: String,
    },
    /// A value given by the caller makes no sense.
    Invalid(String),
    /// The kernel's verifier refused one of our programs: a fault of ours, or a kernel that differs from all tested.
    Verifier {
        /// Name of the program.
        program: String,
        /// The kernel's error.
        source: io::Error,
        /// End of the verifier's log.
        log: String,
    },
    /// Any other error of the operating system.
    System {
        /// What was being done.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// The last error of the operating system, while `doing`. "Not permitted" becomes [`Error::MissingCapability`].
    pub(crate) fn last(doing: impl Into<String>, capability: &'static str) -> Self {
        Self::from_io(io::Error::last_os_error(), doing, capability)
    }

    /// As [`Error::last`], of an error at hand.
    pub(crate) fn from_io(source: io::Error, doing: impl Into<String>, capability: &'static str) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::MissingCapability { capability: capability.to_owned(), doing: doing.into() }
            }
            _ => Self::System { doing: doing.into(), source },
        }
    }

    /// The same, but a missing capability becomes all of those that the whole needs (their numbers) and this thread lacks, so that
    /// one line names all. Where none is lacking the kernel does not let them count, and it is said so.
    pub(crate) fn of_what_needs(self, needed: &[u32]) -> Self {
        let Self::MissingCapability { doing, .. } = self else { return self };
        match privilege::lacking(needed).as_slice() {
            [] => Self::System {
                doing: format!(
                    "{doing}, though the program has the capabilities for it (in a user namespace, as of a container, they may not \
                     count: run it outside)"
                ),
                source: io::Error::from_raw_os_error(libc::EPERM),
            },
            [rest @ .., last] if !rest.is_empty() => {
                Self::MissingCapability { capability: format!("{} and {last}", rest.join(", ")), doing }
            }
            [only, ..] => Self::MissingCapability { capability: (*only).to_owned(), doing },
        }
    }

    /// The system's error number, if this came from one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::System { source, .. } | Self::Verifier { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchInterface { name } => {
                write!(
                    f,
                    "no network interface '{name}' here: see 'ip link' (interfaces belong to a network namespace)"
                )
            }
            Self::MissingCapability { capability, doing } => {
                write!(f, "{doing}: not permitted: run as root or give the program {capability}")
            }
            Self::LockedMemory { bytes } => write!(
                f,
                "{} KiB of frame memory are more than may be locked: give the program CAP_IPC_LOCK, raise 'ulimit -l', or run as root",
                bytes.div_ceil(1024)
            ),
            Self::KernelTooOld { feature, needs } => {
                write!(f, "this kernel has no {feature}: it came with Linux {needs}")
            }
            Self::QueueBusy { interface, queue } => write!(
                f,
                "{interface}: queue {queue} is already taken by another program: stop it, or use other queues"
            ),
            Self::DeviceBusy { interface, owner } => {
                write!(f, "{interface}: already taken by {owner}: stop it first")
            }
            Self::AddressBusy { interface, address, owner } => {
                let who = owner.map_or("another program".to_owned(), |pid| format!("process {pid}"));
                if address == "it" {
                    write!(
                        f,
                        "{interface}: already taken by {who}: stop that first, or use another interface"
                    )
                } else {
                    write!(
                        f,
                        "{interface}: {address} is already served by {who}: stop that first, or use another address"
                    )
                }
            }
            Self::Unsupported { interface, what } => write!(f, "{interface}: {what}"),
            Self::Invalid(what) => f.write_str(what),
            Self::Verifier { program, source, log } => {
                write!(f, "the kernel refused the BPF program {program}: {source}{}", verdict(log))
            }
            Self::System { doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } | Self::Verifier { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What the verifier said in the end, without the instructions and registers that it lists before, and the statistics behind.
fn verdict(log: &str) -> String {
    const ENOUGH: usize = 160;
    let mut lines =
        log.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("processed "));
    // "17: (61) r0 = *(u32 *)(r9 +0)" is an instruction, and so is what the log's beginning leaves of one.
    let number = |line: &str| line.split_once(':').is_some_and(|(n, _)| n.parse::<u32>().is_ok());
    match lines.next_back() {
        Some(line) if !number(line) && line.len() <= ENOUGH => format!(": {line}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(log: &str) -> String {
        let source = io::Error::from_raw_os_error(libc::EACCES);
        Error::Verifier { program: "claim".to_owned(), source, log: log.to_owned() }.to_string()
    }

    #[test]
    fn of_the_verifiers_log_a_message_has_the_verdict() {
        let before = "the kernel refused the BPF program claim: Permission denied (os error 13)";
        let log = "0: R1=ctx() R10=fp0\n0: (61) r0 = *(u32 *)(r9 +0)\nR9 !read_ok\nprocessed 1 insns (limit 1000000)\n";
        assert_eq!(refused(log), format!("{before}: R9 !read_ok"));
        assert_eq!(
            refused("785: (af) r9 ^= r1     ; R1=scalar()\n786: (71) r1 = *(u8 *)(r10 -21)\n"),
            before
        );
        assert_eq!(refused(&"x".repeat(600)), before);
        assert_eq!(refused(""), before);
    }

    /// What this thread has is said to be of no use, what it lacks is named.
    #[test]
    fn a_missing_capability_is_named_with_the_others_that_are_missing() {
        let needed = [privilege::CAP_NET_RAW, privilege::CAP_NET_ADMIN, privilege::CAP_BPF];
        let refused = || Error::from_io(io::Error::from_raw_os_error(libc::EPERM), "a socket", "CAP_NET_RAW");
        let with = |kept: u64| {
            let kept = kept & privilege::effective();
            let named = move || {
                privilege::drop_all_but_these(kept).unwrap();
                refused().of_what_needs(&needed).to_string()
            };
            (kept, std::thread::spawn(named).join().unwrap())
        };
        let line = |names: &str| format!("a socket: not permitted: run as root or give the program {names}");
        assert_eq!(with(0).1, line("CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"));
        for (bits, names) in [
            (1 << privilege::CAP_NET_RAW, "CAP_NET_ADMIN and CAP_BPF"),
            (1 << privilege::CAP_NET_RAW | 1 << privilege::CAP_BPF, "CAP_NET_ADMIN"),
            (1 << privilege::CAP_SYS_ADMIN, "CAP_NET_RAW and CAP_NET_ADMIN"),
        ] {
            let (kept, said) = with(bits);
            if kept == bits {
                assert_eq!(said, line(names));
            } else {
                crate::skipped(
                    "skipped, because this process does not have the capabilities to give up (run as root)",
                );
            }
        }
        let all = needed.iter().fold(0, |bits, n| bits | 1 << n);
        let (kept, said) = with(all);
        assert!(kept != all || said.contains("user namespace"), "{said}");
    }
}
