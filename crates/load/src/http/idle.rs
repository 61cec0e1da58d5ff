//! A queue of idle connections, the longest idle first.
//!
//! A connection that leaves from the middle, since the server closed it, leaves a stale entry, which is recognised by its ticket. So
//! leaving costs only an occasional sweep, and a hundred thousand connections may leave at once.

use std::collections::VecDeque;

/// The queue. Each connection in it stores its ticket; 0 means none.
#[derive(Debug, Default)]
pub(super) struct Idle {
    queue: VecDeque<(u32, u32)>,
    live: usize,
    last: u32,
}

impl Idle {
    /// Connections in it.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Adds a connection and returns its ticket.
    #[inline]
    pub(super) fn push(&mut self, conn: u32) -> u32 {
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.queue.push_back((conn, self.last));
        self.live += 1;
        self.last
    }

    /// Takes the connection that has been idle longest; `holds` returns the ticket of a connection.
    #[inline]
    pub(super) fn pop(&mut self, holds: impl Fn(u32) -> u32) -> Option<u32> {
        while let Some((conn, ticket)) = self.queue.pop_front() {
            // Guard: `holds(conn) == ticket` as `true` fails http::idle
            if holds(conn) == ticket {
                self.live -= 1;
                return Some(conn);
            }
        }
        None
    }

    /// A connection has left, and has no ticket any more.
    pub(super) fn left(&mut self, holds: impl Fn(u32) -> u32) {
        self.live -= 1;
        if self.queue.len() > 2 * self.live + 64 {
            self.queue.retain(|(conn, ticket)| holds(*conn) == *ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_stack::rng::Rng;

    /// Against a plain list, by dice.
    #[test]
    fn it_is_a_list_from_which_anybody_may_leave() {
        let mut rng = Rng::new(5);
        let (mut idle, mut model, mut tickets) = (Idle::default(), Vec::new(), vec![0u32; 40]);
        for _ in 0..20_000 {
            let conn = rng.below(40);
            match (rng.below(3), model.iter().position(|c| *c == conn)) {
                (0, Some(at)) => {
                    model.remove(at);
                    tickets[conn as usize] = 0;
                    idle.left(|c| tickets[c as usize]);
                }
                (1, _) => {
                    let first = (!model.is_empty()).then(|| model.remove(0));
                    assert_eq!(idle.pop(|c| tickets[c as usize]), first);
                    if let Some(first) = first {
                        tickets[first as usize] = 0;
                    }
                }
                (_, None) => {
                    model.push(conn);
                    tickets[conn as usize] = idle.push(conn);
                }
                _ => {}
            }
            assert_eq!((idle.len(), idle.is_empty()), (model.len(), model.is_empty()));
            assert!(idle.queue.len() <= 2 * model.len() + 66);
        }
    }
}
