//! The cost of memory alone: a lower bound of the cost of a segment on a random one of very many connections.
//!
//! There are as many objects as ends of connections, each with as many cache lines as a plain exchange touches, visited in random order.
//! Either each object names the next, as with segments that arrive one at a time, or several are prefetched, as a worker does for a burst.

use flowlane_stack::rng::Rng;
use flowlane_stack::tcp::AHEAD;
use flowlane_sys::prefetch::{prefer_huge_pages, prefetch};

use super::machine::thread_time;

/// Cache lines of an object, which are those of a connection.
const LINES: usize = 4;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    next: u32,
    value: u32,
}

/// As an entry of the connection table: four cache lines that are visited and one that is not.
#[derive(Clone)]
struct Object([Line; LINES + 1]);

/// Objects in random order.
pub(crate) struct Cold {
    objects: Vec<Object>,
    order: Vec<u32>,
}

impl Cold {
    pub(crate) fn new(count: usize) -> Self {
        let mut rng = Rng::new(1);
        let mut order: Vec<u32> = (0..count as u32).collect();
        for at in (1..count).rev() {
            order.swap(at, rng.below(at as u32 + 1) as usize);
        }
        let mut objects = Vec::with_capacity(count);
        prefer_huge_pages(&mut objects);
        objects.resize(count, Object([Line { next: 0, value: 1 }; LINES + 1]));
        for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
            objects[*from as usize].0[0].next = *to;
        }
        Self { objects, order }
    }

    /// Nanoseconds of processor time per visit; each object is known only when the one before has been read.
    pub(crate) fn one_at_a_time(&self, visits: usize) -> f64 {
        let (mut at, mut sum) = (0, 0u32);
        let begin = thread_time();
        for _ in 0..visits {
            let object = &self.objects[at as usize];
            prefetch(&object.0[..LINES]);
            sum = sum.wrapping_add(object.sum());
            at = object.0[0].next;
        }
        std::hint::black_box(sum);
        (thread_time() - begin) * 1e9 / visits as f64
    }

    /// The same with [`AHEAD`] objects prefetched.
    pub(crate) fn asked_for(&self, visits: usize) -> f64 {
        let mut sum = 0u32;
        let begin = thread_time();
        for some in self.order.chunks(AHEAD).cycle().take(visits / AHEAD) {
            for at in some {
                prefetch(&self.objects[*at as usize].0[..LINES]);
            }
            for at in some {
                sum = sum.wrapping_add(self.objects[*at as usize].sum());
            }
        }
        std::hint::black_box(sum);
        (thread_time() - begin) * 1e9 / visits as f64
    }
}

impl Object {
    fn sum(&self) -> u32 {
        self.0[..LINES].iter().map(|line| line.value).fold(0, u32::wrapping_add)
    }
}
