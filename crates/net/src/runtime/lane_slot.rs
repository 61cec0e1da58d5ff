//! A lane with what the runtime keeps beside it. This is what moves between workers: whole, in one box.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use flowlane_stack::Lane;
use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use super::flows::FlowRecords;
use super::message::SocketHandle;
use crate::events::Shortage;
use crate::kernel::KernelLane;
use crate::link::Groups;
use crate::socket::SocketError;
use crate::stats::Failed;
use crate::task::{Kept, Ready, Sleepers};

/// Names a lane of a runtime for ever. Two runtimes in one process share no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LaneId {
    pub(crate) runtime: u32,
    /// Index among all lanes of the runtime.
    pub(crate) index: u32,
}

/// Names a sleeping task of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SleepId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Counters that only the runtime can keep. They stay with the lane when it moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LaneCounters {
    /// Frames that came in on a queue of the lane's own worker.
    pub(crate) aligned: u64,
    /// Frames that another worker handed over.
    pub(crate) redirected: u64,
    /// Times a task of the lane ran.
    pub(crate) task_runs: u64,
    /// Tasks that panicked.
    pub(crate) panics: u64,
    /// Times the lane moved.
    pub(crate) moves: u64,
    /// Time spent on it.
    pub(crate) nanos: u64,
}

/// A lane as a worker holds it.
#[derive(Debug)]
pub(crate) struct LaneSlot {
    pub(crate) id: LaneId,
    pub(crate) host: usize,
    /// The stack. In a lane of kernel sockets it has no interfaces, and nothing to do.
    pub(crate) lane: Lane,
    /// Where records of its flows go, if somebody wants them.
    pub(crate) flows: Option<FlowRecords>,
    /// The kernel's sockets, in a host that uses them.
    pub(crate) kernel: Option<Box<KernelLane>>,
    /// Of each link of the host, how to have multicast groups let through.
    pub(crate) groups: Arc<[Option<Groups>]>,
    pub(crate) sleepers: Sleepers,
    pub(crate) counters: LaneCounters,
    /// Frames and tasks of this turn.
    pub(crate) work: u32,
    /// In the worker's list of lanes to be looked after this turn.
    pub(crate) touched: bool,
    /// In the worker's list of lanes that wait for room.
    pub(crate) waiting: bool,
    /// Used while a lane of several links is asked for output: the room of each.
    pub(crate) rooms: Vec<usize>,
    /// How its first task failed.
    pub(crate) failure: Option<Failed>,
    /// The runtime is ending: that sockets are closed is no failure.
    pub(crate) ending: bool,
    /// What tasks had it keep until its end.
    pub(crate) kept: Vec<Kept>,
    /// Tasks that were ready when the lane was parked for a move.
    pub(crate) parked: Vec<Ready>,
    /// Lack of memory for TCP.
    pub(crate) shortage: Shortage,
}

impl LaneSlot {
    /// Its first task failed: says so in a line, and remembers it.
    #[cold]
    pub(crate) fn fail(&mut self, host: &str, failed: Failed) {
        self.counters.panics += u64::from(failed.panicked);
        let bucket = self.lane.bucket().0;
        let line = format!("flowlane: host '{host}', lane {bucket}: {failed}");
        // Nobody may read it.
        let _ = writeln!(std::io::stderr(), "{}", line.replace('\n', " "));
        self.failure = Some(failed);
    }

    /// Closes a socket. One that is closed already stays so.
    pub(crate) fn close(&mut self, now: Time, frames: &Pool, socket: SocketHandle) {
        match socket {
            SocketHandle::Udp(socket) => {
                self.lane.udp_close(socket);
            }
            SocketHandle::Listener(listener) => {
                let _ = self.lane.tcp_close_listener(now, frames, listener);
            }
            SocketHandle::Connection(connection) => {
                let _ = self.lane.tcp_close(now, frames, connection);
            }
            SocketHandle::Kernel(socket) => {
                if let Some(kernel) = &mut self.kernel {
                    kernel.close(socket);
                }
            }
        }
    }

    /// Joins a multicast group: on the link, then in the lane. `false` if the lane was in it already.
    pub(crate) fn join(
        &mut self,
        now: Time,
        frames: &Pool,
        interface: u8,
        group: IpAddr,
    ) -> Result<bool, SocketError> {
        if let Some(Some(link)) = self.groups.get(usize::from(interface)).filter(|_| group.is_multicast()) {
            let denied = rustix::io::Errno::PERM.raw_os_error();
            link.join(group).map_err(|e| SocketError::Kernel(e.raw_os_error().unwrap_or(denied)))?;
        }
        Ok(self.lane.join(now, frames, interface, group))
    }

    /// The kernel's sockets, and the stack, which knows how the host is steered.
    pub(crate) fn both(&mut self) -> Result<(&Lane, &mut KernelLane), SocketError> {
        Ok((&self.lane, self.kernel.as_deref_mut().ok_or(SocketError::Closed)?))
    }

    /// The kernel's sockets, for a handle of one of them.
    #[inline]
    pub(crate) fn sockets(&mut self) -> Result<&mut KernelLane, SocketError> {
        self.kernel.as_deref_mut().ok_or(SocketError::Closed)
    }
}
