//! The window of a closed loop: a limit of the datagrams in flight, until answers arrive or time out.
//!
//! Each datagram in flight has a place in the window, whose number it carries. An answer frees its place if the place still belongs to that
//! datagram; the place of a datagram given up as lost may have been taken by another.

/// The places of one lane.
#[derive(Debug)]
pub(crate) struct Window {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    flow: u32,
    sequence: u64,
    /// When its datagram was sent; `None` when free.
    since: Option<u64>,
}

impl Window {
    /// A window of so many.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            places: vec![Place { flow: 0, sequence: 0, since: None }; size],
            free: (0..size as u32).rev().collect(),
        }
    }

    /// A place that is free.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// The place from [`Window::peek`] now waits for that datagram.
    #[inline]
    pub(crate) fn take(&mut self, flow: u32, sequence: u64, now: u64) {
        if let Some(slot) = self.free.pop() {
            self.places[slot as usize] = Place { flow, sequence, since: Some(now) };
        }
    }

    /// An answer came.
    #[inline]
    pub(crate) fn answered(&mut self, slot: u32, flow: u32, sequence: u64) {
        // Guard: `place.since.is_some()` as `true` fails window::tests
        // Guard: `(place.flow, place.sequence) == (flow, sequence)` as `true` fails window::tests
        if let Some(place) = self.places.get_mut(slot as usize)
            && place.since.is_some()
            && (place.flow, place.sequence) == (flow, sequence)
        {
            place.since = None;
            self.free.push(slot);
        }
    }

    /// Frees the places of datagrams sent before `limit`: they count as lost unless they come late.
    pub(crate) fn give_up_before(&mut self, limit: u64) {
        for (slot, place) in self.places.iter_mut().enumerate() {
            // Guard: `since < limit` as `true` fails window::tests
            if place.since.is_some_and(|since| since < limit) {
                place.since = None;
                self.free.push(slot as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_freed_and_given_up() {
        let mut window = Window::new(2);
        assert_eq!(window.peek(), Some(0));
        window.take(7, 0, 100);
        window.take(8, 0, 200);
        assert_eq!(window.peek(), None);
        window.answered(0, 7, 1);
        window.answered(0, 8, 0);
        window.answered(9, 7, 0);
        assert_eq!(window.peek(), None);
        window.answered(0, 7, 0);
        window.answered(0, 7, 0);
        assert_eq!(window.peek(), Some(0));
        window.take(7, 1, 300);
        window.give_up_before(250);
        assert_eq!(window.peek(), Some(1));
        // The answer to what was given up frees nothing of another's.
        window.take(9, 0, 400);
        window.answered(1, 8, 0);
        assert_eq!(window.peek(), None);
    }
}
