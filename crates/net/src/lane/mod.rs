//! A lane with the runtime's state for it. It moves between workers as a whole, in one box.
//!
//! Everything here is a value and knows nothing of the worker that holds it.

mod owned;
mod report;
mod sleepers;
mod under_way;

pub(crate) use sleepers::{SleepId, Sleepers};
pub(crate) use under_way::{LastReports, UnderWay};

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::panic::Location;
use std::sync::Arc;

use async_task::Runnable;
use flowlane_stack::Lane;
use flowlane_stack::tcp::{ConnId, ListenerId};
use flowlane_stack::time::Time;
use flowlane_stack::udp::UdpHandle;
use flowlane_sys::frame::Pool;

use crate::dhcp::Dhcp;
use crate::error::{Failed, SocketError};
use crate::events::{self, Shortage};
use crate::flow_records::FlowRecords;
use crate::kernel::{KernelLane, SocketId};
use crate::link::Groups;
use crate::stats::RelayCounts;

pub use owned::Owned;
pub(crate) use owned::Place;

/// Names a lane of a runtime for ever. Two runtimes in one process share no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LaneId {
    pub(crate) runtime: u32,
    /// Index among all lanes of the runtime.
    pub(crate) index: u32,
}

/// What is known of a task: its lane, and the line of the program that began it, by which people know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskId {
    pub(crate) lane: LaneId,
    pub(crate) begun: &'static Location<'static>,
}

/// A task that is ready to run.
pub(crate) type Ready = Runnable<TaskId>;

/// What a socket of any kind holds of its lane.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SocketHandle {
    Udp(UdpHandle),
    Listener(ListenerId),
    Connection(ConnId),
    Kernel(SocketId),
}

/// Counters that only the runtime can keep. They stay with the lane when it moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LaneCounters {
    /// Frames that arrived on a queue of the lane's own worker.
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

/// What [`keep`](crate::keep) was given.
pub(crate) struct Kept(
    #[expect(dead_code, reason = "is dropped in its time")] pub(crate) Box<dyn Any + Send>,
);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

/// A lane as a worker holds it.
#[derive(Debug)]
pub(crate) struct LaneSlot {
    pub(crate) id: LaneId,
    pub(crate) host: usize,
    /// The stack. In a lane of kernel sockets it has no interfaces, and nothing to do.
    pub(crate) lane: Lane,
    /// Queue for records of its flows, if enabled.
    pub(crate) flows: Option<FlowRecords>,
    /// The wish by which it keeps its flows with most packets.
    pub(crate) top_wish: u32,
    /// The kernel's sockets, in a host that uses them, alone or beside its own.
    pub(crate) kernel: Option<Box<KernelLane>>,
    /// What it counts as a relay, if it is one.
    pub(crate) relay: Option<Box<RelayCounts>>,
    /// Of each link of the host, how to have multicast groups let through.
    pub(crate) groups: Arc<[Option<Groups>]>,
    /// The client of DHCP, in the lane that has it.
    pub(crate) dhcp: Option<Box<Dhcp>>,
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
    /// Values that its tasks use.
    pub(crate) owned: Vec<Place>,
    /// Tasks that were ready when the lane was parked for a move.
    pub(crate) parked: Vec<Ready>,
    /// While it is on its way from one worker to another.
    pub(crate) under_way: Option<UnderWay>,
    /// Lack of memory for TCP.
    pub(crate) shortage: Shortage,
}

impl LaneSlot {
    /// A lane of this host, with nothing beside it yet.
    pub(crate) fn new(id: LaneId, host: usize, lane: Lane, groups: Arc<[Option<Groups>]>) -> Self {
        Self {
            id,
            host,
            lane,
            flows: None,
            top_wish: 0,
            kernel: None,
            relay: None,
            groups,
            dhcp: None,
            sleepers: Sleepers::default(),
            counters: LaneCounters::default(),
            work: 0,
            touched: false,
            waiting: false,
            rooms: Vec::new(),
            failure: None,
            ending: false,
            kept: Vec::new(),
            owned: Vec::new(),
            parked: Vec::new(),
            under_way: None,
            shortage: Shortage::default(),
        }
    }

    /// Its first task failed: tells so, and remembers it.
    #[cold]
    pub(crate) fn fail(&mut self, host: &str, failed: Failed) {
        self.counters.panics += u64::from(failed.panicked);
        events::lane_failed(host, self.lane.bucket().0, &failed);
        self.failure = Some(failed);
    }

    /// Closes a socket. One that is closed already stays so.
    pub(crate) fn close(&mut self, now: Time, frames: &Pool, socket: SocketHandle) {
        match socket {
            SocketHandle::Udp(socket) => {
                self.lane.udp_close(socket);
            }
            SocketHandle::Listener(listener) => {
                let _ = self.lane.with_tcp(now, frames, |tcp, cx| tcp.close_listener(cx, listener));
            }
            SocketHandle::Connection(connection) => {
                let _ = self.lane.with_tcp(now, frames, |tcp, cx| tcp.close(cx, connection));
            }
            SocketHandle::Kernel(socket) => {
                if let Some(kernel) = &mut self.kernel {
                    kernel.close(socket);
                }
            }
        }
    }

    /// Moves records of ended flows to the host's queue, as far as there is room.
    #[inline]
    pub(crate) fn hand_over_flows(&mut self) {
        if let Some(records) = &self.flows {
            records.take_from(&mut self.lane);
        }
    }

    /// The lane ends, and with it the flows that stand.
    pub(crate) fn end_flows(&mut self, now: Time) {
        if let Some(records) = self.flows.take() {
            records.take_last(&mut self.lane, now);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.end_flows();
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

    /// The kernel's sockets, if the host's sockets are those of the kernel; not if it has them beside its own.
    #[inline]
    pub(crate) fn own_kernel(&mut self) -> Option<&mut KernelLane> {
        self.kernel.as_deref_mut().filter(|kernel| !kernel.is_beside())
    }

    /// The kernel's sockets, for a handle of one of them.
    #[inline]
    pub(crate) fn sockets(&mut self) -> Result<&mut KernelLane, SocketError> {
        self.kernel.as_deref_mut().ok_or(SocketError::Closed)
    }
}
