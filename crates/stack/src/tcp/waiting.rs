//! Connections that wait for a link: in a host with several links, those whose next segment is for a link without room.
//!
//! They are in a separate list for each link, so that a search for a segment to send never passes over connections that may not send.
//! Each moves from the ready list to its link's list once, and is served from there when the link has room. In a host with one link these
//! lists are empty.

use crate::tcp::Tcp;
use crate::tcp::connection::Flags;
use std::collections::VecDeque;

use crate::packet::Room;

/// Slots of connections by the link they wait for, each in order.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    links: Vec<VecDeque<u32>>,
}

impl Waiting {
    /// Whether a connection waits.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.links.iter().any(|list| !list.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.links.iter().map(VecDeque::len).sum()
    }

    fn list(&mut self, link: u8) -> &mut VecDeque<u32> {
        let at = usize::from(link);
        if self.links.len() <= at {
            self.links.resize_with(at + 1, VecDeque::new);
        }
        &mut self.links[at]
    }
}

impl Tcp {
    /// Places in the lists of those that wait for a link.
    #[must_use]
    pub fn waiting_for_links(&self) -> usize {
        self.waiting.len()
    }

    /// The next connection that has something to send and whose link has room: first of those that waited for it.
    #[inline(never)]
    pub(super) fn next_ready(&mut self, room: &Room<'_>) -> Option<u32> {
        for (link, list) in self.waiting.links.iter_mut().enumerate() {
            while !list.is_empty() && (room.is_open)(link as u8) {
                let Some(slot) = list.pop_front() else { break };
                // It may be over, and its slot another's.
                if self.connections.get_slot(slot).is_some_and(|c| c.has(Flags::QUEUED)) {
                    return Some(slot);
                }
            }
        }
        while let Some(slot) = self.core.next_ready() {
            let Some(c) = self.connections.get_slot(slot) else { continue };
            match (room.closed)(c.remote()) {
                None => return Some(slot),
                Some(link) => {
                    self.waiting.list(link).push_back(slot);
                    if self.waiting.len() > 2 * self.connections.len() + 64 {
                        self.sift_waiting();
                    }
                }
            }
        }
        None
    }

    /// Takes out what is left of connections that are over: a link that is down never has room, and they would pile up.
    #[cold]
    fn sift_waiting(&mut self) {
        let connections = &mut self.connections;
        let mut kept = Vec::with_capacity(connections.len());
        for list in &mut self.waiting.links {
            list.retain(|slot| match connections.get_slot_mut(*slot) {
                Some(c) if c.has(Flags::QUEUED) => {
                    // Each once.
                    c.leave_ready_list();
                    kept.push(*slot);
                    true
                }
                _ => false,
            });
        }
        for slot in kept {
            if let Some(c) = connections.get_slot_mut(slot) {
                c.wait_for_output();
            }
        }
    }
}
