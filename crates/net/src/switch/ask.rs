//! What workers are asked, and how.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use flowlane_switch::table::Entry;
use flowlane_switch::{Change, PortId};

use super::view::View;
use crate::wake::Wake;

/// What a worker is asked.
pub(super) enum Ask {
    Change(Change, Sender<Result<(), String>>),
    Link(PortId, bool),
    Mtu(PortId, u32),
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
