//! Queues that are emptied into lists: of datagrams in a socket, of frames that are to be sent.

use std::collections::VecDeque;

/// Moves all of a queue to the end of a list, at once: the queue's memory, whole from its beginning, is a list for that long. Nothing is
/// allocated unless the list grows.
#[inline]
pub(crate) fn append_all<T>(queue: &mut VecDeque<T>, into: &mut Vec<T>) {
    let mut all = Vec::from(std::mem::take(queue));
    into.append(&mut all);
    *queue = VecDeque::from(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever in its memory the queue begins: all is there, in order, and the queue keeps its memory.
    #[test]
    fn all_of_a_queue_moves_in_order() {
        for start in 0..8 {
            let mut queue: VecDeque<usize> = VecDeque::with_capacity(8);
            queue.extend(0..start);
            queue.drain(..);
            queue.extend([1, 2]);
            (0..start).for_each(|n| {
                queue.pop_front();
                queue.push_back(n + 3);
            });
            let (expected, room) = (queue.iter().copied().collect::<Vec<_>>(), queue.capacity());
            let mut list = vec![0];
            append_all(&mut queue, &mut list);
            assert_eq!(list[1..], expected);
            assert!(queue.is_empty() && queue.capacity() == room);
        }
    }
}
