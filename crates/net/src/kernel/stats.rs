//! Counters of a lane on kernel sockets.

use flowlane_stack::stats::LaneStats;
use flowlane_sys::figures;

figures! {
    /// Counters of a lane that uses the kernel's sockets.
    pub struct KernelStats {
        accepted: count "connections accepted";
        connecting: count "connection attempts";
        fast_opened: count "of these, attempts with data in their SYN (Fast Open)";
        connected: count "attempts that succeeded";
        connect_failed: count "attempts that failed";
        home_ports: count "attempts, UDP sockets at a port whose answers hash to their lane";
        ports_elsewhere: count "attempts, UDP sockets at another port as no such was free";
        closed: count "connections closed";
        ended_badly: count "connections reset, timed out or cut off";
        reads: count "reads that brought bytes or the end of a stream";
        read_bytes: count "bytes read";
        reads_in_vain: count "reads that found nothing";
        writes: count "writes that took bytes";
        written_bytes: count "bytes written";
        writes_in_vain: count "writes that found no room";
        file_writes: count "of these, writes of files by the kernel alone";
        zerocopy_sends: count "writes that the kernel was to send without copying them";
        zerocopy_copied: count "of these, writes that the kernel copied after all";
        zerocopy_skipped: count "writes copied: small, or those before were copied, too";
        zerocopy_refused: count "writes copied: no memory for completions, or an old kernel";
        zerocopy_cut_off: count "connections closed, then reset with sends outstanding";
        datagram_reads: count "reads that brought datagrams";
        datagram_writes: count "writes that took datagrams";
        datagrams_received: count "datagrams received";
        datagrams_sent: count "datagrams sent";
        merged_received: count "messages received of several datagrams merged by the kernel";
        merged_sent: count "messages of several datagrams sent for the kernel to take apart";
        merging_refused: count "times the kernel refused to merge datagrams";
        datagrams_overflown: count "datagrams the kernel dropped because the socket was full";
        datagrams_dropped: count "datagrams dropped because they could not be sent";
        datagrams_cut: count "datagrams dropped because no frame was free for their end";
        aligned: count "connections and sampled datagrams from the worker's processor";
        elsewhere: count "connections and sampled datagrams from another processor";
        elsewhere_thread: count "of these, because the worker's thread was moved";
        elsewhere_unsteered: count "of these, because sockets are not steered by processor";
        elsewhere_no_worker: count "of these, because no worker is bound to that processor";
        elsewhere_sender: count "of these, because a local sender changed its processor";
        elsewhere_rps: count "of these, because RPS spreads the card's packets";
        elsewhere_interrupt: count "of these, because the queue's interrupt was moved";
        ring_receives: count "receives handed to io_uring";
        ring_starved: count "of these, receives that ended because no buffer was free";
        ring_held_back: count "of these, receives ended because nobody read what had come";
        ring_overflown: count "accepts and receives that ended because the ring was full";
        steering_refused: count "times the kernel refused a program that picks sockets";
        no_descriptor: count "connections refused because no descriptor was free";
        errors: count "system calls that failed otherwise";
    }
}

impl KernelStats {
    /// Datagrams and connections that were lost here.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.datagrams_overflown + self.datagrams_dropped + self.datagrams_cut + self.no_descriptor
    }

    /// Puts what the stack's own counters have words for there too, so that whatever shows those shows these: connections,
    /// bytes and datagrams. Segments the kernel keeps to itself; reads and writes are none.
    pub(crate) fn show_in(&self, stats: &mut LaneStats) {
        let tcp = &mut stats.tcp;
        tcp.connection_accepts += self.accepted;
        tcp.connection_requests += self.connecting;
        tcp.bad_attempts += self.connect_failed;
        tcp.established += self.accepted + self.connected;
        tcp.closed += self.closed;
        tcp.in_sequence_bytes += self.read_bytes;
        tcp.data_bytes_sent += self.written_bytes;
        stats.udp.received += self.datagrams_received;
        stats.udp.delivered += self.datagrams_received;
        stats.udp.sent += self.datagrams_sent;
    }
}
