//! What a worker keeps of each move while it lasts: the frames and tasks that may not reach their lane yet.

use std::collections::VecDeque;
use std::sync::Arc;

use flowlane_stack::Class;
use flowlane_stack::time::Time;
use flowlane_sys::frame::Frame;

use super::requeue::Drain;
use crate::lane::Ready;
use crate::shared::{Expectation, Order, Stage};

/// Frames held for one lane at once.
const HELD: usize = 16_384;

/// A lane on its way out.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) lane: u32,
    /// Since when.
    pub(super) since: Time,
    pub(super) to: usize,
    pub(super) order: Arc<Order>,
    pub(super) held: VecDeque<(Class, Frame)>,
}

/// A lane on its way in.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) lane: u32,
    pub(super) from: usize,
    pub(super) here: bool,
    /// Workers whose marker has not come.
    pub(super) unmarked: Vec<usize>,
    pub(super) held: VecDeque<(usize, Class, Frame)>,
    pub(super) tasks: Vec<Ready>,
    pub(super) expectation: Expectation,
    /// The card was asked to send the lane's packets here; what comes by this worker's own queues is held meanwhile.
    pub(super) asked: bool,
    /// When it did so.
    pub(super) answered: Option<Time>,
    /// The old queue's marker has come before the card's answer was read.
    pub(super) emptied: bool,
}

impl Arriving {
    /// A lane that is to come from `from`, one of so many workers: their markers are awaited.
    pub(super) fn new(lane: u32, from: usize, workers: usize, expectation: Expectation) -> Self {
        Self {
            lane,
            from,
            here: false,
            unmarked: (0..workers).filter(|w| *w != from).collect(),
            held: VecDeque::new(),
            tasks: Vec::new(),
            expectation,
            asked: false,
            answered: None,
            emptied: false,
        }
    }

    /// Number of the move.
    pub(super) fn number(&self) -> u32 {
        self.expectation.0.number()
    }
}

/// The moves that a worker has part in.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(super) leaving: Vec<Leaving>,
    pub(super) arriving: Vec<Arriving>,
    pub(super) drains: Vec<Drain>,
    /// Frames dropped because too many were held.
    pub(crate) overflow: u64,
}

impl Moves {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.leaving.is_empty() && self.arriving.is_empty()
    }

    /// Whether a queue here has lost a bucket, and is being emptied.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        !self.drains.is_empty()
    }

    /// Where in the list is the lane that comes by the move of this number, if it does. What is late of another move finds none.
    pub(super) fn arriving_by(&self, lane: u32, number: u32) -> Option<usize> {
        // Guard: `a.number() == number` as `true` fails moving::tests::a_marker_of_an_earlier_move
        self.arriving.iter().position(|a| a.lane == lane && a.number() == number)
    }

    /// Whether the card was asked to send the packets of a lane here.
    pub(crate) fn is_awaited(&self, lane: u32) -> bool {
        self.arriving.iter().any(|a| a.lane == lane && a.asked)
    }

    /// Whether a lane is on its way here.
    pub(crate) fn has_one_under_way(&self) -> bool {
        self.arriving.iter().any(|a| !a.here && a.expectation.0.stage() == Stage::Sent)
    }

    /// Whether something is to be looked at again soon.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_giving() || self.is_draining() || self.arriving.iter().any(|a| a.answered.is_some())
    }

    /// Whether some lane is on its way out.
    #[inline]
    pub(crate) fn is_giving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether a lane is parked, to be given away.
    #[inline]
    pub(crate) fn is_leaving(&self, lane: u32) -> bool {
        self.leaving.iter().any(|l| l.lane == lane)
    }

    /// Keeps a frame that may not be delivered yet; gives it back if it may.
    pub(crate) fn hold(&mut self, lane: u32, via: usize, class: Class, frame: Frame) -> Option<Frame> {
        // Guard: `l.lane == lane` as `false` fails moving::tests::a_lane_goes_when moving::tests::a_lane_that_stays
        if let Some(leaving) = self.leaving.iter_mut().find(|l| l.lane == lane) {
            if leaving.held.len() < HELD {
                leaving.held.push_back((class, frame));
            } else {
                self.overflow += 1;
            }
            return None;
        }
        let Some(arriving) = self.arriving.iter_mut().find(|a| a.lane == lane) else { return Some(frame) };
        if via == arriving.from || !arriving.unmarked.contains(&via) {
            return Some(frame);
        }
        if arriving.held.len() < HELD {
            arriving.held.push_back((via, class, frame));
        } else {
            self.overflow += 1;
        }
        None
    }

    /// Keeps a task of a lane that is on its way in; gives it back otherwise.
    pub(crate) fn park_task(&mut self, lane: u32, ready: Ready) -> Option<Ready> {
        match self.arriving.iter_mut().find(|a| a.lane == lane && !a.here) {
            Some(arriving) => {
                arriving.tasks.push(ready);
                None
            }
            None => Some(ready),
        }
    }
}
