//! TIME-WAIT: what must be remembered of a connection after its end (RFC 9293 §3.6.1), and no more. What segments for it lead to is
//! in `time_wait`.
//!
//! All records live equally long, so their expiry is a queue; a record whose time was renewed has its old entry skipped.

use crate::tcp::Seq;
use crate::tcp::config::TcpConfig;
use crate::tcp::lane::Core;
use crate::tcp::lane::replies::ReplyMeta;
use crate::tcp::table::{ConnId, Named, Slab, Tuple};
use crate::tcp::tuple_table::Found;
use crate::time::Time;
use std::collections::VecDeque;

/// A connection that is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    /// Its name, given by [`Core::enter_time_wait`].
    pub(crate) id: ConnId,
    pub(crate) tuple: Tuple,
    pub(crate) table_hash: u32,
    pub(crate) snd_nxt: Seq,
    pub(crate) rcv_nxt: Seq,
    /// Window to show, unscaled.
    pub(crate) window: u16,
    /// What its acknowledgements feed back with accurate ECN: three bits.
    pub(crate) ace: u8,
    pub(crate) meta: ReplyMeta,
    /// TS.Recent, if timestamps were on.
    pub(crate) ts_recent: Option<u32>,
    pub(crate) ts_offset: u32,
    pub(crate) since: Time,
    pub(crate) expires: Time,
    /// A SYN was answered by where we are: the peer asks for a new connection.
    pub(crate) syn_refused: bool,
}

impl Named for Record {
    #[inline]
    fn id(&self) -> ConnId {
        self.id
    }
}

/// So far ahead of its end a record's place in the table is asked for, and twice as far the record.
const EXPECTED: usize = 4;

/// All records of a lane.
#[derive(Debug)]
pub(crate) struct TimeWaits {
    records: Slab<Record>,
    expiry: VecDeque<(Time, ConnId)>,
}

impl TimeWaits {
    pub(crate) const fn new() -> Self {
        Self { records: Slab::new(), expiry: VecDeque::new() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.records.len()
    }

    /// Those among the first so many places.
    pub(crate) fn first(&self, slots: usize) -> impl Iterator<Item = &Record> {
        self.records.first(slots)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Record> {
        self.records.get_slot(slot)
    }

    /// Gives memory back that is not needed any more.
    pub(crate) fn trim(&mut self) {
        self.records.trim();
        self.expiry.shrink_to(2 * self.expiry.len());
    }

    /// A record's time begins anew, and ends at `expires`.
    pub(crate) fn renew(&mut self, slot: u32, expires: Time) {
        if let Some(id) = self.records.update_slot(slot, |r| r.expires = expires) {
            self.expiry.push_back((expires, id));
        }
    }

    /// A SYN for a record was refused.
    pub(crate) fn refuse_syn(&mut self, slot: u32) {
        self.records.update_slot(slot, |r| r.syn_refused = true);
    }

    /// When the oldest entry is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.expiry.front().map(|(at, _)| *at)
    }
}

impl Record {
    /// Whether our side may open the same four-tuple again (RFC 6191 §2, the active opener's view): the peer can tell the
    /// new connection by its timestamps once a second has passed.
    pub(crate) fn may_reopen(&self, config: &TcpConfig, now: Time) -> bool {
        config.timestamps
            && self.ts_recent.is_some()
            && now.saturating_duration_since(self.since).as_secs() >= 1
    }
}

impl Core {
    /// Remembers a connection that is over; `slot` is where it is, if the table still leads to it. Whether the table now leads
    /// to the record instead.
    pub(crate) fn enter_time_wait(&mut self, record: Record, slot: Option<u32>) -> bool {
        // They may not take what connections need.
        // Guard: `self.config.max_memory / 8 / PER_RECORD` as `usize::MAX` fails bounds/receive::time_wait
        let max = self.config.max_time_wait.min(self.config.max_memory / 8 / PER_RECORD);
        if max == 0 {
            return false;
        }
        // Guard: `self.time_wait.len() >= max || self.time_wait.expiry.len() >= 2 * max` as `false` fails
        // tcp::tests::time_wait
        while self.time_wait.len() >= max || self.time_wait.expiry.len() >= 2 * max {
            self.prefetch_oldest();
            let Some((_, id)) = self.time_wait.expiry.pop_front() else { break };
            self.stats.time_wait_overflow += u64::from(self.time_wait.records.get(id).is_some());
            self.drop_time_wait(id);
        }
        self.stats.time_wait_entered += 1;
        let id = self.time_wait.records.insert_with(|id| Record { id, ..record }).id;
        self.count_fixed();
        self.time_wait.expiry.push_back((record.expires, id));
        let (hash, found) = (record.table_hash, Found::TimeWait(id.slot));
        let in_place = slot.is_some_and(|slot| self.table.replace(hash, Found::Connection(slot), found));
        if !in_place {
            self.table.insert(hash, found);
        }
        in_place
    }

    /// Asks for what the records that go next lead to: they are the ones that nobody has touched for longest.
    fn prefetch_oldest(&self) {
        let expiry = &self.time_wait.expiry;
        if let Some((_, id)) = expiry.get(2 * EXPECTED) {
            self.time_wait.records.prefetch(id.slot, usize::MAX);
        }
        if let Some(record) = expiry.get(EXPECTED).and_then(|(_, id)| self.time_wait.get(id.slot)) {
            self.table.prefetch(record.table_hash);
        }
    }

    fn drop_time_wait(&mut self, id: ConnId) {
        if let Some(record) = self.time_wait.records.remove(id) {
            self.table.remove(record.table_hash, Found::TimeWait(id.slot));
            self.count_fixed();
        }
    }

    /// Forgets a record for a new connection.
    pub(crate) fn reuse_time_wait(&mut self, slot: u32) {
        if self.forget_time_wait(slot) {
            self.stats.time_wait_reused += 1;
        }
    }

    /// Forgets a record by slot; whether there was one.
    pub(crate) fn forget_time_wait(&mut self, slot: u32) -> bool {
        let record = self.time_wait.records.get_slot(slot).copied();
        if let Some(record) = record {
            self.table.remove(record.table_hash, Found::TimeWait(slot));
            self.time_wait.records.remove_slot(slot);
            self.count_fixed();
        }
        record.is_some()
    }

    /// Forgets what has lived long enough.
    pub(crate) fn expire_time_wait(&mut self, now: Time) {
        while let Some(&(at, id)) = self.time_wait.expiry.front() {
            if at > now {
                return;
            }
            self.prefetch_oldest();
            self.time_wait.expiry.pop_front();
            if self.time_wait.records.get(id).is_some_and(|record| record.expires <= now) {
                self.drop_time_wait(id);
            }
        }
    }
}

/// Bytes of a TIME-WAIT record: its places in the slab, in the table and in the queue of those that expire.
pub(crate) const PER_RECORD: usize = Slab::<Record>::ENTRY_SIZE + 64;
