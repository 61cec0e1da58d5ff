//! What a shard counts: each figure is declared once, under the name that memcached gives it.
//!
//! From these lines come the answer to `stats`, the counters of every view, and the sum over lanes. What is counted by size class as well
//! (`ClassCounts`) is summed here, too, because most readers want the sum.

flowlane_sys::figures! {
    /// Counters of one shard and of the connections of its lane.
    pub struct Counts {
        curr_connections: gauge "connections that are open";
        total_connections: count "connections accepted";
        rejected_connections: count "connections closed because there were too many";
        idle_kicks: count "connections closed for being idle";
        slow_readers: count "connections closed because their peer did not read";
        lost_connections: count "connections that the peer or the network ended badly";
        bad_lines: count "connections closed because a line was too long";
        bytes_read: count "bytes received";
        bytes_written: count "bytes sent";
        cmd_get: count "keys asked for";
        cmd_set: count "values to store";
        cmd_flush: count "times all items were to be dropped";
        cmd_touch: count "keys to be given another time to live";
        cmd_meta: count "meta commands that ask about an item";
        get_hits: count "keys asked for and found";
        get_misses: count "keys asked for and not found";
        get_expired: count "of them, those that had expired";
        get_flushed: count "of them, those that had been flushed";
        delete_misses: count "keys to delete that were not there";
        delete_hits: count "keys deleted";
        incr_misses: count "keys to increment that were not there";
        incr_hits: count "keys incremented";
        decr_misses: count "keys to decrement that were not there";
        decr_hits: count "keys decremented";
        cas_misses: count "comparisons with keys that were not there";
        cas_hits: count "comparisons that held";
        cas_badval: count "comparisons that failed";
        touch_hits: count "keys given another time to live";
        touch_misses: count "keys to be given another time to live that were not there";
        store_too_large: count "values refused for their size";
        store_no_memory: count "values refused for want of memory";
        limit_maxbytes as "limit-maxbytes": gauge "bytes that items and all that is kept about them may take";
        bytes: gauge "bytes of items, as memcached counts them";
        allocated_bytes: gauge "bytes taken for items and all that is kept about them";
        curr_items: gauge "items";
        total_items: count "items stored";
        evictions: count "items dropped for want of memory";
        evicted_unfetched: count "of them, those that nobody had asked for";
        evicted_active: count "of them, those that were asked for lately";
        expired_unfetched: count "items that expired before anybody asked for them";
        reclaimed: count "items dropped because they had expired or had been flushed";
        pages_moved: count "pages of memory that went from one size class to another";
        handed_over: count "requests that another lane answered";
        taken_over: count "requests of other lanes that were answered here";
        batches: count "batches of requests sent to other lanes";
        moved_connections: count "connections that came from another lane to that of their keys";
        moves_refused: count "connections that were to move and could not";
        ssl_handshake_errors: count "connections closed because their TLS handshake failed";
        udp_requests: count "datagrams that asked something";
        udp_bad: count "datagrams that were too short to ask anything";
        udp_parts: count "datagrams refused for being parts of longer requests";
        udp_incomplete: count "datagrams that ended within a request";
        udp_too_long: count "answers that were too long for datagrams";
        udp_unsent: count "answers by datagrams that could not be sent";
    }
}

/// Counters of one size class, which `stats slabs` and `stats items` show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClassCounts {
    pub(crate) get_hits: u64,
    pub(crate) cmd_set: u64,
    pub(crate) delete_hits: u64,
    pub(crate) incr_hits: u64,
    pub(crate) decr_hits: u64,
    pub(crate) cas_hits: u64,
    pub(crate) cas_badval: u64,
    pub(crate) touch_hits: u64,
    pub(crate) evicted: u64,
    pub(crate) evicted_nonzero: u64,
    pub(crate) evicted_unfetched: u64,
    pub(crate) evicted_active: u64,
    pub(crate) expired_unfetched: u64,
    pub(crate) reclaimed: u64,
    pub(crate) out_of_memory: u64,
    /// Seconds between the last use of the item that was evicted last and its eviction.
    pub(crate) evicted_time: u64,
    /// Bytes of the items, as memcached counts them.
    pub(crate) requested: u64,
}

impl ClassCounts {
    /// Adds those of another lane.
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.get_hits, other.get_hits),
            (&mut self.cmd_set, other.cmd_set),
            (&mut self.delete_hits, other.delete_hits),
            (&mut self.incr_hits, other.incr_hits),
            (&mut self.decr_hits, other.decr_hits),
            (&mut self.cas_hits, other.cas_hits),
            (&mut self.cas_badval, other.cas_badval),
            (&mut self.touch_hits, other.touch_hits),
            (&mut self.evicted, other.evicted),
            (&mut self.evicted_nonzero, other.evicted_nonzero),
            (&mut self.evicted_unfetched, other.evicted_unfetched),
            (&mut self.evicted_active, other.evicted_active),
            (&mut self.expired_unfetched, other.expired_unfetched),
            (&mut self.reclaimed, other.reclaimed),
            (&mut self.out_of_memory, other.out_of_memory),
            (&mut self.requested, other.requested),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum += more);
        self.evicted_time = self.evicted_time.max(other.evicted_time);
    }
}
