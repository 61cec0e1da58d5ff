//! How a frame leaves: with the tag that its port wants, in its own buffer or as a copy (IEEE 802.1Q §6.9.2, §8.6.1).
//!
//! A tag goes into the headroom in front of the frame, or is left behind as headroom: the addresses move by four bytes, the payload stays.

use flowlane_sys::frame::{Frame, HEADROOM};

use super::ingress::Carried;
use crate::drops::Drop;
use crate::ports::{PortId, PortSet};

const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// Gives a frame that carries its VLAN's tag somewhere the tag that it is to leave with.
#[inline]
pub(super) fn dress(frame: &mut Frame, carried: Carried, wanted: Option<u16>, tpid: u16) -> Result<(), Drop> {
    match (carried, wanted) {
        (Carried::Nowhere, None) => {}
        (Carried::Inside, Some(tci)) => {
            let tci = tci.to_be_bytes();
            // Writing costs a copy if the data are somebody's block.
            if frame.data()[ADDRESSES + 2..ADDRESSES + 4] != tci {
                frame.data_mut()[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tci);
            }
        }
        (Carried::Inside, None) => {
            frame.data_mut().copy_within(..ADDRESSES, TAG);
            let _ = frame.trim_front(TAG);
        }
        (Carried::Beside, None) => frame.meta_mut().vlan = None,
        (Carried::Nowhere | Carried::Beside, Some(tci)) => {
            if !frame.insert_tag(tpid, tci) {
                return Err(Drop::NoHeadroom);
            }
        }
    }
    Ok(())
}

/// A copy of a frame with its tag beside the data, if there is one. `None`: there is no memory for it.
pub(super) fn copy(frame: &Frame) -> Option<Frame> {
    let mut first = Frame::like(frame)?;
    first.reset(HEADROOM);
    let mut rest: Option<Frame> = None;
    let mut chunks = frame.chunks();
    let mut piece = chunks.next().unwrap_or_default();
    loop {
        let into = rest.as_mut().unwrap_or(&mut first);
        let n = piece.len().min(into.tailroom());
        let _ = into.extend_from_slice(&piece[..n]);
        piece = &piece[n..];
        while piece.is_empty() {
            let Some(next) = chunks.next() else {
                if let Some(rest) = rest {
                    first.append(rest);
                }
                return Some(first);
            };
            piece = next;
        }
        if rest.as_ref().map_or(first.tailroom(), Frame::tailroom) == 0 {
            let mut more = Frame::like(frame)?;
            more.reset(0);
            if let Some(full) = rest.replace(more) {
                first.append(full);
            }
        }
    }
}

/// Frames to send, by port. Its memory is taken once; a port takes so many of a burst and no more.
#[derive(Debug)]
pub struct Output {
    ports: Vec<Vec<Frame>>,
    used: PortSet,
}

impl Output {
    /// For `ports` ports, each of which holds `room` frames between two times that it is emptied.
    #[must_use]
    pub fn new(ports: usize, room: usize) -> Output {
        Output { ports: (0..ports).map(|_| Vec::with_capacity(room)).collect(), used: PortSet::NONE }
    }

    /// Makes room for as many ports as there are now. Those that there were keep what they have.
    pub fn grow(&mut self, ports: usize, room: usize) {
        while self.ports.len() < ports {
            self.ports.push(Vec::with_capacity(room));
        }
    }

    /// Ports that have frames to send, as far as is known: some may have been emptied.
    #[inline]
    #[must_use]
    pub fn used(&self) -> PortSet {
        self.used
    }

    /// The frames of a port, in their order, to be taken from the front.
    #[inline]
    pub fn port(&mut self, port: PortId) -> &mut Vec<Frame> {
        &mut self.ports[port.index()]
    }

    /// Takes note that a port has frames that did not come from the switch.
    pub fn touch(&mut self, port: PortId) {
        self.used.set(port, true);
    }

    /// Takes note of which ports still have frames. Call it after emptying ports.
    pub fn settle(&mut self) {
        let ports = &self.ports;
        self.used = self.used.filter(|port| !ports[port.index()].is_empty()).collect();
    }

    /// Drops everything; how many frames.
    pub fn clear(&mut self) -> usize {
        let all = self.ports.iter().map(Vec::len).sum();
        self.ports.iter_mut().for_each(Vec::clear);
        self.used = PortSet::NONE;
        all
    }

    /// `false`, and the frame is dropped: the port has as many as it holds.
    #[inline]
    pub(super) fn push(&mut self, port: PortId, frame: Frame) -> bool {
        let frames = &mut self.ports[port.index()];
        if frames.len() == frames.capacity() {
            return false;
        }
        frames.push(frame);
        self.used.set(port, true);
        true
    }
}
