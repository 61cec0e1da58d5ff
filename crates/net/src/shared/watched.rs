//! Whether lanes keep their flows with most packets and bytes, as it was asked for last. Workers read it when they are told that it has
//! changed, and when a lane comes to them that was on its way meanwhile.

use std::sync::{Mutex, PoisonError};

use flowlane_stack::top::TopConfig;

/// What is wanted of lanes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TopWish {
    /// Grows with each change.
    pub(crate) number: u32,
    /// `None`: nothing.
    pub(crate) config: Option<TopConfig>,
}

/// The wish that counts.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<TopWish>);

impl Watched {
    pub(crate) fn set(&self, config: Option<TopConfig>) {
        let mut wish = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *wish = TopWish { number: wish.number + 1, config };
    }

    pub(crate) fn get(&self) -> TopWish {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
