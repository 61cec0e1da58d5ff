//! Errors before the first thread runs.

use std::fmt;
use std::io;
use std::net::IpAddr;

use flowlane_stack::tunnel::TunnelError;
use flowlane_sys::frame::MemoryError;
use flowlane_sys::words::counted;

use super::{Failed, OpenError, mended};
use crate::capture::CaptureError;

/// Why a runtime could not be started.
///
/// Its debug form is its text, so that a `main` that returns it says in words what is wrong.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Workers must be 1 to 64.
    #[error("{0} workers: must be from 1 to 64")]
    Workers(usize),
    /// A processor that workers were to be bound to and may not be.
    #[error("processor {0}: this process may not run on it, or there is none")]
    Processor(usize),
    /// Fewer processors were named than there are workers.
    #[error("{} for {}: name as many", counted(*given, "processor"), counted(*workers, "worker"))]
    Processors {
        /// Processors named.
        given: usize,
        /// Workers of the runtime.
        workers: usize,
    },
    /// The host's steering was made for another number of workers.
    #[error(
        "host '{host}': steering for {}, but the runtime has {workers}: give Rss::new and Builder::workers the same number",
        counted(*given, "worker")
    )]
    Steering {
        /// The host.
        host: String,
        /// Highest worker its bucket map names, plus one.
        given: usize,
        /// Workers of the runtime.
        workers: usize,
    },
    /// A host's interface has no link or too many, or a host on kernel sockets has one.
    #[error("host '{0}': as many links as interfaces are needed, and none on kernel sockets")]
    Links(String),
    /// More lanes than a host on kernel sockets can have.
    #[error("{0} buckets in all: with kernel sockets at most 65536")]
    Lanes(usize),
    /// A tunnel that cannot work.
    #[error("host '{host}': tunnel {local} to {remote}: {error}")]
    Tunnel {
        /// The host.
        host: String,
        /// The tunnel's local address outside.
        local: IpAddr,
        /// The far side's.
        remote: IpAddr,
        /// What is wrong.
        error: TunnelError,
    },
    /// A link that was opened without any queue.
    #[error("{0} has no queue")]
    NoQueue(String),
    /// A link without an interface, whose packets no host would receive.
    #[error("{0}: no interface is on it")]
    NoInterface(String),
    /// Two interfaces on one link that are on the same VLAN.
    #[error("{link}: two interfaces are {}: give each a VLAN of its own", vlan.map_or("untagged".to_owned(), |v| format!("on VLAN {v}")))]
    Vlan {
        /// The link.
        link: String,
        /// The VLAN; `None` for untagged.
        vlan: Option<u16>,
    },
    /// Frame memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A thread or descriptor could not be made.
    #[error("starting a worker: {}", mended(.0))]
    Thread(#[source] io::Error),
    /// No randomness from the kernel.
    #[error("the kernel gives no randomness: {0}")]
    Entropy(#[source] io::Error),
    /// A link could not be opened.
    #[error(transparent)]
    Link(#[from] OpenError),
    /// The first task of a lane panicked, or ended with an error, before any packet was handled.
    #[error("host '{host}', lane {bucket}: {failed}")]
    FirstTask {
        /// The host.
        host: String,
        /// Bucket of the lane.
        bucket: u16,
        /// How it failed.
        failed: Failed,
    },
    /// A capture that was to begin with the runtime ([`Builder::capture`](crate::Builder::capture)).
    #[error("capture: {0}")]
    Capture(#[from] CaptureError),
    /// Something else that the application does before the start failed.
    #[error("{0}")]
    Other(String),
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
