//! The ends of the application's writes and records in unsent data.

use crate::tcp::Seq;
use std::collections::VecDeque;

/// Ends of writes that are remembered, beside the last.
const MAX_PUSHES: usize = 256;

/// Ends of records that a connection remembers; beyond it they are as if nothing had been said.
const MAX_RECORDS: usize = 4096;

/// The ends, in order.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Where the last write ends: PSH goes there.
    last: Option<Seq>,
    /// Where those before it end.
    pushes: VecDeque<Seq>,
    /// Where records end that no segment may reach across.
    records: VecDeque<Seq>,
}

impl Writes {
    /// Where the last write ends, if it is not known to be sent.
    #[inline]
    pub(crate) const fn last(&self) -> Option<Seq> {
        self.last
    }

    /// A write ends at `end`; where the one before it did.
    #[inline]
    pub(crate) fn end_at(&mut self, end: Option<Seq>) -> Option<Seq> {
        core::mem::replace(&mut self.last, end)
    }

    /// The last of the ends, or `nxt` if that is later.
    #[inline]
    pub(crate) fn last_push(&self, nxt: Seq) -> Seq {
        self.pushes.back().map_or(nxt, |last| nxt.max(*last))
    }

    /// A write ends at `end` behind which there is another.
    pub(crate) fn push_at(&mut self, end: Seq) {
        if self.pushes.len() < MAX_PUSHES {
            self.pushes.push_back(end);
        }
    }

    /// Whether a write ends at or before `end`.
    #[inline]
    pub(crate) fn has_push_before(&self, end: Seq) -> bool {
        self.pushes.front().is_some_and(|push| *push <= end)
    }

    /// A record ends at `end`.
    pub(crate) fn end_record(&mut self, end: Seq) {
        if self.records.len() < MAX_RECORDS && self.records.back() != Some(&end) {
            self.records.push_back(end);
        }
    }

    /// The end of the record that is being sent.
    #[inline]
    pub(crate) fn record_end(&self) -> Option<Seq> {
        self.records.front().copied()
    }

    /// Everything before `end` is sent.
    #[inline]
    pub(crate) fn sent(&mut self, end: Seq) {
        if self.records.front().is_some_and(|record| *record <= end) {
            self.records.pop_front();
        }
        while self.pushes.front().is_some_and(|push| *push <= end) {
            self.pushes.pop_front();
        }
    }

    /// For another flight.
    pub(crate) fn reset(&mut self) {
        self.last = None;
        for list in [&mut self.pushes, &mut self.records] {
            if list.capacity() > 0 {
                *list = VecDeque::new();
            }
        }
    }
}
