//! A list of flows in an order, by their places in a vector.

use super::Flow;

/// No place.
const NONE: u32 = u32::MAX;

/// Where a flow is in a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    before: u32,
    after: u32,
    listed: bool,
}

impl Place {
    pub(super) const NONE: Self = Self { before: NONE, after: NONE, listed: false };
}

/// The list: of each flow, one of its places.
#[derive(Debug)]
pub(super) struct List {
    place: fn(&mut Flow) -> &mut Place,
    first: u32,
    last: u32,
}

impl List {
    pub(super) fn new(place: fn(&mut Flow) -> &mut Place) -> Self {
        Self { place, first: NONE, last: NONE }
    }

    /// The flow at the front.
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Puts a flow that is not in the list at its end.
    pub(super) fn push(&mut self, flows: &mut [Flow], at: u32) {
        let last = core::mem::replace(&mut self.last, at);
        match flows.get_mut(last as usize) {
            Some(flow) => (self.place)(flow).after = at,
            None => self.first = at,
        }
        if let Some(flow) = flows.get_mut(at as usize) {
            *(self.place)(flow) = Place { before: last, after: NONE, listed: true };
        }
    }

    /// Takes a flow out, if it is there.
    pub(super) fn remove(&mut self, flows: &mut [Flow], at: u32) {
        let Some(flow) = flows.get_mut(at as usize) else { return };
        let Place { before, after, listed } = core::mem::replace((self.place)(flow), Place::NONE);
        if !listed {
            return;
        }
        match flows.get_mut(before as usize) {
            Some(flow) => (self.place)(flow).after = after,
            None => self.first = after,
        }
        match flows.get_mut(after as usize) {
            Some(flow) => (self.place)(flow).before = before,
            None => self.last = before,
        }
    }
}
