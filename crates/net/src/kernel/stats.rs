//! Counters of a lane on kernel sockets.

use flowlane_stack::stats::{Counter, Counters, LaneStats};
use serde::Serialize;

macro_rules! counters {
    ($($field:ident: $slug:literal, $text:literal;)+) => {
        /// Counters of a lane that uses the kernel's sockets.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub struct KernelStats {
            $(#[doc = concat!($text, ".")] pub $field: u64,)+
        }

        impl Counters for KernelStats {
            fn each(&self, f: &mut dyn FnMut(Counter)) {
                $(f(Counter::count($slug, $text, self.$field));)+
            }

            fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

counters! {
    accepted: "accepted", "connections accepted";
    connecting: "connecting", "connection attempts";
    fast_opened: "fast-opened", "of these, attempts with data in their SYN (Fast Open)";
    connected: "connected", "attempts that succeeded";
    connect_failed: "connect-failed", "attempts that failed";
    home_ports: "home-ports", "attempts, UDP sockets at a port whose answers hash to their lane";
    ports_elsewhere: "ports-elsewhere", "attempts, UDP sockets at another port as no such was free";
    closed: "closed", "connections closed";
    ended_badly: "ended-badly", "connections reset, timed out or cut off";
    reads: "reads", "reads that brought bytes or the end of a stream";
    read_bytes: "read-bytes", "bytes read";
    reads_in_vain: "reads-in-vain", "reads that found nothing";
    writes: "writes", "writes that took bytes";
    written_bytes: "written-bytes", "bytes written";
    writes_in_vain: "writes-in-vain", "writes that found no room";
    file_writes: "file-writes", "of these, writes of files by the kernel alone";
    zerocopy_sends: "zerocopy-sends", "writes that the kernel was to send without copying them";
    zerocopy_copied: "zerocopy-copied", "of these, writes that the kernel copied after all";
    zerocopy_skipped: "zerocopy-skipped", "writes copied: small, or those before were copied, too";
    zerocopy_refused: "zerocopy-refused", "writes copied: no memory for completions, or an old kernel";
    zerocopy_cut_off: "zerocopy-cut-off", "connections closed, then reset with sends outstanding";
    datagram_reads: "datagram-reads", "reads that brought datagrams";
    datagram_writes: "datagram-writes", "writes that took datagrams";
    datagrams_received: "datagrams-received", "datagrams received";
    datagrams_sent: "datagrams-sent", "datagrams sent";
    merged_received: "merged-received", "messages received of several datagrams merged by the kernel";
    merged_sent: "merged-sent", "messages of several datagrams sent for the kernel to take apart";
    merging_refused: "merging-refused", "times the kernel refused to merge datagrams";
    datagrams_overflown: "datagrams-overflown", "datagrams the kernel dropped because the socket was full";
    datagrams_dropped: "datagrams-dropped", "datagrams dropped because they could not be sent";
    datagrams_cut: "datagrams-cut", "datagrams dropped because no frame was free for their end";
    aligned: "aligned", "connections and sampled datagrams from the worker's processor";
    elsewhere: "elsewhere", "connections and sampled datagrams from another processor";
    elsewhere_thread: "elsewhere-thread", "of these, because the worker's thread was moved";
    elsewhere_unsteered: "elsewhere-unsteered", "of these, because sockets are not steered by processor";
    elsewhere_no_worker: "elsewhere-no-worker", "of these, because no worker is bound to that processor";
    elsewhere_sender: "elsewhere-sender", "of these, because a local sender changed its processor";
    elsewhere_rps: "elsewhere-rps", "of these, because RPS spreads the card's packets";
    elsewhere_interrupt: "elsewhere-interrupt", "of these, because the queue's interrupt was moved";
    ring_receives: "ring-receives", "receives handed to io_uring";
    ring_starved: "ring-starved", "of these, receives that ended because no buffer was free";
    ring_held_back: "ring-held-back", "of these, receives ended because nobody read what had come";
    ring_overflown: "ring-overflown", "accepts and receives that ended because the ring was full";
    steering_refused: "steering-refused", "times the kernel refused a program that picks sockets";
    no_descriptor: "no-descriptor", "connections refused because no descriptor was free";
    errors: "errors", "system calls that failed otherwise";
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
