//! Messages to workers: from each other, from tasks on other threads, and from the runtime's handle.
//!
//! Messages are rare and pass through a queue that allocates. Frames pass through netisr, which does not.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane_stack::LaneEvent;

use super::order::{Expectation, MoveId, Order};
use crate::capture::Tap;
use crate::lane::{Ready, SocketHandle};
use crate::stats::{LaneTop, WorkerReport};

/// A message to a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// Run a task of one of your lanes.
    Run(Ready),
    /// Tell a host's lanes what one of them learnt.
    Event {
        /// The host.
        host: usize,
        /// What.
        event: Box<LaneEvent>,
    },
    /// The link of an interface is back: say so on it.
    LinkUp {
        /// The host.
        host: usize,
        /// Interface of the host.
        interface: u8,
    },
    /// A socket was dropped away from its lane: close it.
    Close {
        /// Index of the lane.
        lane: u32,
        /// The socket.
        socket: SocketHandle,
    },
    /// Report what you counted; with a list of sockets, if that is wanted.
    Report(mpsc::Sender<WorkerReport>, bool),
    /// Lanes are to keep their flows as is wished now.
    WatchFlows,
    /// Tell the flows of a lane with most packets and bytes.
    TopFlows {
        /// Index of the lane.
        lane: u32,
        /// Of its kernel sockets, the first slot to look at: some are looked at a time.
        from: u32,
        /// Who asks, and is told where to go on if there are more.
        to: mpsc::SyncSender<(LaneTop, Option<u32>)>,
    },
    /// Copy frames for a capture.
    Capture(Arc<Tap>),
    /// A capture is over.
    EndCapture {
        /// Its number.
        number: u64,
    },
    /// A lane is about to come to you from `from`: hold frames for it that others send you directly.
    Expect {
        /// Index of the lane.
        lane: u32,
        /// Who holds it now, and is to be asked for it.
        from: usize,
        /// The move, and its end.
        expectation: Expectation,
    },
    /// Give a lane to another worker.
    Give {
        /// Index of the lane.
        lane: u32,
        /// Who gets it.
        to: usize,
        /// The move.
        order: Arc<Order>,
    },
    /// A move of a lane that you have part in was given up.
    GivenUp {
        /// Index of the lane.
        lane: u32,
    },
    /// A lane has gone from `from` to `to`.
    Gone {
        /// Index of the lane.
        lane: u32,
        /// Number of the move.
        number: u32,
        /// Who had it, and forwards what is on its way.
        from: usize,
        /// Who has it.
        to: usize,
    },
    /// Packets of a lane come on another queue of its link from now on.
    Requeued {
        /// Index of the lane.
        lane: u32,
        /// The move that asked for it: the worker that has the lane holds what comes by its own queues until a marker comes from the old
        /// one's worker. `None` where nobody asked.
        asked: Option<MoveId>,
        /// The queue; `None`: the card could not be changed.
        queue: Option<u16>,
    },
    /// End the connections of your lanes, with so much time to do so, then report and end.
    Stop(mpsc::Sender<WorkerReport>, Duration),
}
