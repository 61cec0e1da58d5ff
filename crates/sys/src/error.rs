//! What can go wrong when a device, a program or a privilege is set up, each on one line that says what is wrong and
//! how to mend it.
//!
//! Only set-up fails with these. Once a queue is open, what goes wrong with one packet is counted, not returned.

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
        /// `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_BPF`.
        capability: &'static str,
        /// What was being done.
        doing: String,
    },
    /// The running kernel does not know a feature.
    KernelTooOld {
        /// The feature.
        feature: &'static str,
        /// First kernel that has it.
        needs: &'static str,
    },
    /// A queue already belongs to somebody else.
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface as a whole already belongs to somebody else.
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
        /// The address, network or interface, and its VLAN.
        address: String,
        /// The number of the program's process, as far as the kernel tells.
        owner: Option<u32>,
    },
    /// The interface or its driver cannot do what was asked.
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
            Some(libc::EPERM | libc::EACCES) => Self::MissingCapability { capability, doing: doing.into() },
            _ => Self::System { doing: doing.into(), source },
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
                write!(
                    f,
                    "{interface}: {address} is already served by {who}: stop that first, or use another "
                )?;
                f.write_str(if address == "it" { "interface" } else { "address" })
            }
            Self::Unsupported { interface, what } => write!(f, "{interface}: {what}"),
            Self::Invalid(what) => f.write_str(what),
            Self::Verifier { program, source, log } => {
                write!(
                    f,
                    "the kernel refused the BPF program {program}: {source}: {}",
                    log.trim_end().replace('\n', "; ")
                )
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
