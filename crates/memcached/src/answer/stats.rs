//! Answers to `stats`: lines of names and numbers, with memcached's names for what is there as well.
//!
//! Numbers are of all lanes together. What memcached tells about its inside and this has not (its threads' buffers, its crawler, its log) is
//! left out; what is only here stands at the end. Names and their order are memcached's, so that its exporters and scripts find theirs.

use std::fmt::Display;
use std::fmt::Write as _;

use crate::counts::Counts;
use crate::map::LaneMap;
use crate::store::Snapshot;

/// What of the process and the server's options `stats` tells.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The process.
    pub pid: u32,
    /// Seconds since it began.
    pub uptime: u64,
    /// Seconds since 1970.
    pub time: i64,
    /// Microseconds of processor time so far, in user mode and in the kernel.
    pub usage: [u64; 2],
    /// Most connections.
    pub max_connections: u64,
    /// Workers.
    pub threads: u64,
    /// Bytes that all stores may take.
    pub memory: u64,
    /// Largest item, bytes.
    pub item_max: u64,
    /// TCP port.
    pub port: u16,
    /// The address it listens on; `None` for all.
    pub address: Option<String>,
    /// UDP port; 0 for none.
    pub udp_port: u16,
    /// The Unix socket it listens on.
    pub path: Option<String>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// The lanes, and that of the connection.
    pub lanes: LaneMap,
    /// Seconds after which an idle connection is closed; 0 for never.
    pub idle: u64,
    /// What happens to connections whose keys are in another lane.
    pub placement: &'static str,
}

/// What `stats` can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing named: the counters.
    General,
    /// Each size class: its items.
    Items,
    /// Each size class: its chunks.
    Slabs,
    /// Items by size.
    Sizes,
    /// The options.
    Settings,
    /// Counters are set to 0.
    Reset,
    /// Which lane has a key; which of them this is.
    Lanes,
}

impl Kind {
    /// By the words behind `stats`; `None`: there is no such.
    #[must_use]
    pub fn of(words: &[u8]) -> Option<Self> {
        let first = crate::protocol::Words::of(words).next();
        Some(match first {
            None => Self::General,
            Some(b"items") => Self::Items,
            Some(b"slabs") => Self::Slabs,
            Some(b"sizes") => Self::Sizes,
            Some(b"settings") => Self::Settings,
            Some(b"reset") => Self::Reset,
            Some(b"lanes") => Self::Lanes,
            Some(_) => return None,
        })
    }
}

/// Appends the answer.
pub fn write(kind: Kind, all: &Snapshot, about: &About, out: &mut Vec<u8>) {
    let mut text = String::new();
    match kind {
        Kind::General => general(all, about, &mut text),
        Kind::Items => items(all, &mut text),
        Kind::Slabs => slabs(all, &mut text),
        Kind::Sizes => stat(&mut text, "sizes_status", "disabled"),
        Kind::Settings => settings(about, &mut text),
        Kind::Reset => text.push_str("RESET\r\n"),
        Kind::Lanes => return about.lanes.write(out),
    }
    if kind != Kind::Reset {
        text.push_str("END\r\n");
    }
    out.extend_from_slice(text.as_bytes());
}

fn stat(out: &mut String, name: &str, value: impl Display) {
    let _ = write!(out, "STAT {name} {value}\r\n");
}

/// Lines of counters, by their names.
macro_rules! stats {
    ($out:expr, $counts:expr, $($name:ident)*) => {
        $(stat($out, stringify!($name), $counts.$name);)*
    };
}

fn general(all: &Snapshot, about: &About, out: &mut String) {
    let c: &Counts = &all.counts;
    stat(out, "pid", about.pid);
    stat(out, "uptime", about.uptime);
    stat(out, "time", about.time);
    stat(out, "version", crate::protocol::VERSION);
    stat(out, "pointer_size", usize::BITS);
    for (name, micros) in ["rusage_user", "rusage_system"].into_iter().zip(about.usage) {
        stat(out, name, format_args!("{}.{:06}", micros / 1_000_000, micros % 1_000_000));
    }
    stat(out, "max_connections", about.max_connections);
    stats!(out, c, curr_connections total_connections rejected_connections);
    stats!(out, c, cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired get_flushed);
    stats!(out, c, delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits);
    stats!(out, c, cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory);
    stat(out, "auth_cmds", 0);
    stat(out, "auth_errors", 0);
    if about.idle > 0 {
        stats!(out, c, idle_kicks);
    }
    stats!(out, c, bytes_read bytes_written);
    stat(out, "limit_maxbytes", about.memory);
    stat(out, "accepting_conns", 1);
    stat(out, "listen_disabled_num", 0);
    stat(out, "threads", about.threads);
    stat(out, "hash_power_level", all.buckets.max(1).ilog2());
    stat(out, "hash_bytes", all.table_bytes);
    stat(out, "hash_is_expanding", 0);
    stat(out, "slabs_moved", c.pages_moved);
    stats!(out, c, bytes curr_items total_items);
    stat(out, "slab_global_page_pool", 0);
    stats!(out, c, expired_unfetched evicted_unfetched evicted_active evictions reclaimed);
    if about.tls {
        stats!(out, c, ssl_handshake_errors);
    }
    // Of this server alone.
    stats!(out, c, allocated_bytes slow_readers lost_connections bad_lines handed_over taken_over batches);
    stats!(out, c, moved_connections moves_refused);
    if about.udp_port != 0 {
        stats!(out, c, udp_requests udp_bad udp_parts udp_incomplete udp_too_long udp_unsent);
    }
    stat(out, "lanes", all.lanes);
}

fn items(all: &Snapshot, out: &mut String) {
    for (n, class) in all.classes.iter().enumerate() {
        if class.items == 0 {
            continue;
        }
        let mut stat = |name: &str, value: u64| stat(out, &format!("items:{}:{name}", n + 1), value);
        stat("number", class.items);
        stat("number_hot", 0);
        stat("number_warm", 0);
        stat("number_cold", class.items);
        stat("age_hot", 0);
        stat("age_warm", 0);
        stat("age", class.age);
        stat("mem_requested", class.counts.requested);
        stat("evicted", class.counts.evicted);
        stat("evicted_nonzero", class.counts.evicted_nonzero);
        stat("evicted_time", class.counts.evicted_time);
        stat("outofmemory", class.counts.out_of_memory);
        stat("tailrepairs", 0);
        stat("reclaimed", class.counts.reclaimed);
        stat("expired_unfetched", class.counts.expired_unfetched);
        stat("evicted_unfetched", class.counts.evicted_unfetched);
        stat("evicted_active", class.counts.evicted_active);
    }
}

fn slabs(all: &Snapshot, out: &mut String) {
    let mut active = 0u64;
    for (n, class) in all.classes.iter().enumerate().filter(|(_, class)| class.pages > 0) {
        active += 1;
        let mut stat = |name: &str, value: u64| stat(out, &format!("{}:{name}", n + 1), value);
        let chunks = class.pages * class.places;
        stat("chunk_size", class.size);
        stat("chunks_per_page", class.places);
        stat("total_pages", class.pages);
        stat("total_chunks", chunks);
        stat("used_chunks", class.used);
        stat("free_chunks", chunks - class.used);
        stat("free_chunks_end", 0);
        stat("get_hits", class.counts.get_hits);
        stat("cmd_set", class.counts.cmd_set);
        stat("delete_hits", class.counts.delete_hits);
        stat("incr_hits", class.counts.incr_hits);
        stat("decr_hits", class.counts.decr_hits);
        stat("cas_hits", class.counts.cas_hits);
        stat("cas_badval", class.counts.cas_badval);
        stat("touch_hits", class.counts.touch_hits);
    }
    stat(out, "active_slabs", active);
    stat(out, "total_malloced", all.page_bytes());
}

fn settings(about: &About, out: &mut String) {
    stat(out, "maxbytes", about.memory);
    stat(out, "maxconns", about.max_connections);
    stat(out, "tcpport", about.port);
    stat(out, "udpport", about.udp_port);
    stat(out, "inter", about.address.as_deref().unwrap_or("NULL"));
    stat(out, "verbosity", 0);
    stat(out, "evictions", "on");
    stat(out, "domain_socket", about.path.as_deref().unwrap_or("NULL"));
    stat(out, "shutdown_command", "no");
    stat(out, "growth_factor", "1.20");
    stat(out, "num_threads", about.threads);
    stat(out, "detail_enabled", "no");
    stat(out, "cas_enabled", "yes");
    stat(out, "auth_enabled_sasl", "no");
    stat(out, "item_size_max", about.item_max);
    stat(out, "maxconns_fast", "yes");
    stat(out, "slab_reassign", "yes");
    stat(out, "slab_chunk_max", 16 << 10);
    stat(out, "flush_enabled", "yes");
    stat(out, "hash_algorithm", "siphash13");
    stat(out, "lru_segmented", "no");
    stat(out, "idle_timeout", about.idle);
    stat(out, "ssl_enabled", if about.tls { "yes" } else { "no" });
    stat(out, "placement", about.placement);
}
