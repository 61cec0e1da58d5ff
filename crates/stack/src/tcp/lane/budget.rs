//! How many answers of one kind a lane gives in a second: see `challenge`.

use crate::packet::Cx;

/// What is left of this second's answers of one kind.
#[derive(Debug, Default)]
pub(crate) struct ChallengeBudget {
    second: u64,
    left: u32,
}

impl ChallengeBudget {
    pub(crate) fn take(&mut self, cx: &mut Cx<'_>, limit: u32) -> bool {
        let second = cx.now.as_nanos() / 1_000_000_000 + 1;
        if self.second != second {
            self.second = second;
            self.left = (limit / 2).saturating_add(cx.rng.below(limit.max(1)));
        }
        // Guard: `self.left == 0` as `false` fails guards::the_lanes_challenges_are_limited
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}
