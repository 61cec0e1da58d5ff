//! Figures of one lane.

use flowlane_stack::stats::LaneStats;
use flowlane_stack::tcp::TcpSnapshot;
use flowlane_stack::time::Time;
use flowlane_stack::top::TopReport;
use flowlane_stack::udp::SocketInfo;
use flowlane_sys::figures;
use serde::{Deserialize, Serialize};

use super::{RelayCounts, ServiceFigures};
use crate::error::Failed;
use crate::kernel::{KernelSockets, KernelStats};

figures! {
    /// What the runtime counts of a lane, beside the counters of its stack.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct LaneCounts {
        aligned: count "frames that came in on a queue of the lane's own worker";
        redirected: count "frames that another worker handed over";
        task_runs: count "times a task ran";
        panics: count "tasks that panicked";
        moves: count "times the lane moved";
        /// Of each turn a share, by the frames and tasks of the lane in it.
        #[serde(default)]
        busy_nanos: count "nanoseconds that workers spent on the lane";
        sockets: gauge "UDP sockets";
        /// Those being closed included, those in TIME-WAIT not.
        connections: gauge "TCP connections";
        #[serde(skip)]
        time_waits: gauge "TCP connections in TIME-WAIT";
    }
}

/// One lane as its worker reports it.
#[derive(Debug, Clone)]
pub struct LaneReport {
    /// Host, by order of configuration.
    pub host: usize,
    /// The lane's bucket.
    pub bucket: u16,
    /// The worker that holds it.
    pub worker: usize,
    /// Counters of the stack; in a lane of kernel sockets those of its words that fit them.
    pub stats: LaneStats,
    /// What the runtime counts of it.
    pub counts: LaneCounts,
    /// Counters of the kernel sockets, in a lane that uses them.
    pub kernel: Option<KernelStats>,
    /// Counters of a relay, in a lane that is one.
    pub relay: Option<Box<RelayCounts>>,
    /// Figures of the values that the lane owns.
    pub services: Vec<ServiceFigures>,
    /// How the lane's first task failed, if it did: the lane no longer serves.
    pub failure: Option<Failed>,
    /// Its UDP sockets, at most [`SOCKETS_SHOWN`]; none in a report of [`Handle::counters`](crate::Handle::counters).
    pub sockets: Vec<SocketInfo>,
    /// Its TCP listeners and connections, at most [`SOCKETS_SHOWN`], and how many there are in which state. No rows in a report of
    /// [`Handle::counters`](crate::Handle::counters). Kernel sockets are counted in it, and have no rows and no round-trip times there.
    pub tcp: TcpSnapshot,
    /// The rows of its kernel sockets, in a lane that uses them.
    pub kernel_sockets: KernelSockets,
}

/// The flows of one lane with most packets and bytes ([`Handle::top_flows`](crate::Handle::top_flows)).
#[derive(Debug, Clone)]
pub struct LaneTop {
    /// Host, by order of configuration.
    pub host: usize,
    /// The lane's bucket.
    pub bucket: u16,
    /// The worker that holds it.
    pub worker: usize,
    /// When, on the runtime's clock.
    pub at: Time,
    /// Its flows; `None` if it does not keep them.
    pub top: Option<TopReport>,
}

/// Sockets listed in one lane's report.
pub const SOCKETS_SHOWN: usize = 1024;

/// Places in which the TCP connections that a report lists are searched for: a lane with very many does not stop for longer.
pub const CONNECTIONS_LOOKED_AT: usize = 16_384;
