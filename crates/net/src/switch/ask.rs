//! What workers are asked, and how.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use flowlane_stack::time::Time;
use flowlane_switch::table::Entry;
use flowlane_switch::{Change, PortId};

use super::egress::Egress;
use super::view::View;
use crate::link::Queue;
use crate::runtime::relay::Relay;
use crate::wake::Wake;

/// What a worker is asked.
pub(super) enum Ask {
    Change(Change, Sender<Result<(), String>>),
    Link(PortId, bool),
    Mtu(PortId, u32),
    /// A host has been plugged in, or out with no queues.
    Plug(PortId, Vec<Box<dyn Queue>>),
    /// A port has been added: its queues here.
    Attach(PortId, Egress),
    /// A port has been removed: give back what there is of it.
    Detach(PortId, Sender<Egress>),
    /// Give the queues of a port away.
    Release(Leaving),
    /// Take the queues of a port.
    Adopt(PortId, Moved),
    /// Another worker has the queues of a port: this is how it is woken.
    Repoint(PortId, Arc<Wake>),
    View(Sender<View>),
    Addresses(Sender<Vec<Entry>>),
    Stop,
}

/// Where a worker is asked.
#[derive(Clone)]
pub(super) struct Post {
    pub(super) sender: Sender<Ask>,
    pub(super) wake: Arc<Wake>,
}

impl Post {
    pub(super) fn ask(&self, ask: Ask) {
        // A worker that has ended answers nothing.
        let _ = self.sender.send(ask);
        self.wake.ring();
    }
}

/// A port that is about to leave a worker.
pub(super) struct Leaving {
    pub(super) port: PortId,
    /// The worker that gets it.
    pub(super) to: Post,
    /// Since when it waits; set by the worker.
    pub(super) since: Option<Time>,
    /// Says that it has left, or why not.
    pub(super) done: Sender<Result<(), String>>,
}

/// What moves.
pub(super) struct Moved {
    pub(super) queues: Vec<Box<dyn Queue>>,
    pub(super) relays: Vec<Relay>,
}
