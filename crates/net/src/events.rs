//! Events of a runtime for `tracing`: each event is a function here.
//!
//! | target | level: events |
//! |---|---|
//! | `flowlane::link` | info: opened, waits for its carrier, closed, up again, MTU changed, takes frames again; warn: down, no carrier, gone, takes no frames, a note of the opening, an address that somebody else has |
//! | `flowlane::worker` | info: runtime started; debug: worker began, with its processor, and ended; warn: no free frames |
//! | `flowlane::watchdog` | error: a worker stands still, with its trace; warn: a worker is given no processor; info: it turns again |
//! | `flowlane::lane` | warn: TCP is short of memory; info: it has memory again; debug: move begun, lane sent, arrived, move given up |
//! | `flowlane::socket` | warn: a target of a relay is down; info: it is up again; debug: listening |
//! | `flowlane::card` | warn: its table was changed by others, it was set again, it refuses a change, it does not what it shows |
//! | [`flowlane::notice`](NOTICE) | warn: what whoever runs a program should see without asking for events, a line each |
//!
//! A library does not print: a program decides what it does with notices. The command `flowlane` writes each as a line to standard error.
//!
//! All of them are rare. There are no events for packets, which are counted ([`stats`](crate::stats)). Without a subscriber an event costs
//! the load of one number.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use flowlane_stack::Lane;
use flowlane_stack::time::Time;
use flowlane_stack::wire::MacAddr;
use flowlane_sys::netdev::watch::LinkState;
use tracing::{debug, error, info, warn};

const LINK: &str = "flowlane::link";
const WORKER: &str = "flowlane::worker";
const LANE: &str = "flowlane::lane";
const SOCKET: &str = "flowlane::socket";
const CARD: &str = "flowlane::card";
const WATCHDOG: &str = "flowlane::watchdog";

/// Target of notices, which whoever runs a program should see without asking for events: the message is a line for people.
pub const NOTICE: &str = "flowlane::notice";

/// A worker without free frames, and a lane without memory, is told of once in so long: it may happen many times a second.
const SELDOM: Duration = Duration::from_secs(1);

/// What was told of a lane's lack of memory for TCP.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// There is one now.
    pub(crate) now: bool,
    /// It was told that it began.
    told: bool,
    /// When that was told last.
    at: Option<Time>,
}

/// A target of a relay is down, or up again.
#[cold]
pub(crate) fn relay_target(target: &dyn Display, up: bool) {
    if up {
        info!(target: SOCKET, relay_target = %target, "is up again");
    } else {
        warn!(target: SOCKET, relay_target = %target, "is down");
    }
}

/// A link lost its carrier when it was opened, and waits until it is back.
#[cold]
pub(crate) fn link_waits(link: &str) {
    info!(target: LINK, link, "waits for its carrier");
}

/// A link has waited for its carrier in vain.
#[cold]
pub(crate) fn link_has_no_carrier(link: &str) {
    warn!(target: LINK, link, "has no carrier yet");
}

#[cold]
pub(crate) fn link_opened(link: &str, number: usize, mac: MacAddr, mtu: u16, queues: usize, mode: &str) {
    let mode = Some(mode).filter(|mode| !mode.is_empty());
    info!(target: LINK, link, number, %mac, mtu, queues, mode, "opened");
}

/// Notes on the link, for the user.
#[cold]
pub(crate) fn link_note(link: &str, note: &str) {
    warn!(target: LINK, link, "{note}");
}

#[cold]
pub(crate) fn link_closed(link: &str) {
    info!(target: LINK, link, "closed");
}

/// `mtu`: longest packet that is sent from now on, bytes.
#[cold]
pub(crate) fn link_changed(interface: &str, state: LinkState, mtu: u16) {
    match state {
        LinkState::Up | LinkState::Mtu(_) => info!(target: LINK, interface, mtu, "the interface {state}"),
        _ => warn!(target: LINK, interface, "the interface {state}"),
    }
}

/// A queue of the link with this number took nothing for a second, or takes frames again. No queue: it is another worker's.
#[cold]
pub(crate) fn link_dead(number: usize, queue: Option<u16>, dead: bool) {
    if dead {
        warn!(target: LINK, number, queue, "takes no frames: what is for it is dropped");
    } else {
        info!(target: LINK, number, queue, "takes frames again");
    }
}

#[cold]
pub(crate) fn address_duplicate(host: &str, address: IpAddr, mac: MacAddr) {
    warn!(target: LINK, host, %address, %mac, "somebody else has the address: it is not used");
    let mend = "so give one of the two another address";
    warn!(target: NOTICE, "{host}: {address} is not used: {mac} has it on this link, {mend}");
}

#[cold]
pub(crate) fn address_given(host: &str, address: IpAddr, server: Ipv4Addr, lease: Option<u64>) {
    let time = lease.map_or_else(|| "for ever".to_owned(), |seconds| format!("for {seconds} s"));
    info!(target: LINK, host, %address, %server, lease, "an address by DHCP");
    warn!(target: NOTICE, "{host}: {address} by DHCP from {server}, {time}");
}

#[cold]
pub(crate) fn address_lost(host: &str, address: IpAddr, why: &str) {
    warn!(target: LINK, host, %address, why, "an address is not used any more");
    warn!(target: NOTICE, "{host}: {address} is not used any more, and its connections have failed: {why}");
}

#[cold]
pub(crate) fn address_not_claimed(host: &str, address: IpAddr, error: &flowlane_sys::error::Error) {
    warn!(target: LINK, host, %address, %error, "the link does not take the address's packets");
    warn!(target: NOTICE, "{host}: {address}: {error}");
}

#[cold]
pub(crate) fn started(workers: usize, lanes: usize) {
    info!(target: WORKER, workers, lanes, "runtime started");
}

#[cold]
pub(crate) fn worker_began(worker: usize, processor: Option<usize>) {
    match processor {
        Some(processor) => debug!(target: WORKER, worker, processor, "began, bound to a processor"),
        None => debug!(target: WORKER, worker, "began, on any processor"),
    }
}

#[cold]
pub(crate) fn worker_ended(worker: usize, turns: u64) {
    debug!(target: WORKER, worker, turns, "ended");
}

/// A worker has no free frame for its lanes' output. `told` is when that was told last.
#[cold]
pub(crate) fn no_frames(worker: usize, now: Time, told: &mut Option<Time>) {
    if told.is_none_or(|told| now.saturating_duration_since(told) >= SELDOM) {
        *told = Some(now);
        warn!(target: WORKER, worker, "no free frame for output: lanes wait");
    }
}

/// A worker stands still.
#[cold]
pub(crate) fn worker_stalled(worker: usize, task: Option<&str>, trace: &str, words: &dyn Display) {
    error!(target: WATCHDOG, worker, task, trace, "{words}");
}

/// It turns again.
#[cold]
pub(crate) fn worker_goes_on(worker: usize, stood: Duration) {
    info!(target: WATCHDOG, worker, ?stood, "turns again");
}

/// A worker could turn, and others have its processor.
#[cold]
pub(crate) fn worker_starved(worker: usize, limit: Duration) {
    warn!(target: WATCHDOG, worker, ?limit, "was given no processor");
}

#[cold]
pub(crate) fn card(link: &str, what: &str) {
    warn!(target: CARD, link, "{what}");
    warn!(target: NOTICE, "{link}: {what}");
}

/// A card delivers hashes of another key or other fields than it says; once a host and worker.
#[cold]
pub(crate) fn foreign_hash(host: &str, flow: &str, delivered: u32, ours: u32) {
    let example = format_args!("({flow}: {delivered:08x}, not {ours:08x})");
    warn!(target: NOTICE, "{host}: the card's hash is not that of its key and fields {example}, so hashes are computed");
}

/// Packets come on other queues than the card's table names, and nobody can set it again.
#[cold]
pub(crate) fn strays(host: &str) {
    let what =
        "packets come on other queues than the card's table names, and are handed over to their workers";
    warn!(target: NOTICE, "{host}: {what}");
}

/// The first task of a lane failed: the lane no longer serves.
#[cold]
pub(crate) fn lane_failed(host: &str, bucket: u16, failed: &dyn Display) {
    warn!(target: NOTICE, "host '{host}', lane {bucket}: {failed}");
}

#[cold]
pub(crate) fn capture_failed(file: &Path, why: &str) {
    warn!(target: NOTICE, "capture {}: {why}: it has ended", file.display());
}

/// A shortage of TCP's memory has begun in a lane, or ended. Beginnings are told at most once a second, ends if the beginning was.
#[cold]
pub(crate) fn shortage(host: &str, lane: &Lane, now: Time, shortage: &mut Shortage) {
    let bucket = lane.bucket().0;
    let (held, bound) = lane.tcp().memory_and_bound();
    shortage.now = !shortage.now;
    if !shortage.now {
        if std::mem::take(&mut shortage.told) {
            info!(target: LANE, host, bucket, held, bound, "TCP has memory again");
        }
    } else if shortage.at.is_none_or(|at| now.saturating_duration_since(at) >= SELDOM) {
        (shortage.told, shortage.at) = (true, Some(now));
        warn!(target: LANE, host, bucket, held, bound, "TCP is short of memory: windows open no further than a fair share");
    }
}

#[cold]
pub(crate) fn move_begun(lane: u32, from: usize, to: usize) {
    debug!(target: LANE, lane, from, to, "move begun");
}

/// `held`: frames that follow the lane.
#[cold]
pub(crate) fn lane_sent(lane: u32, from: usize, to: usize, held: usize) {
    debug!(target: LANE, lane, from, to, held, "sent");
}

#[cold]
pub(crate) fn lane_arrived(lane: u32, to: usize) {
    debug!(target: LANE, lane, to, "arrived");
}

#[cold]
pub(crate) fn move_given_up(lane: u32, from: usize, to: usize) {
    debug!(target: LANE, lane, from, to, "move given up");
}

#[cold]
pub(crate) fn listening(lane: u32, address: Option<IpAddr>, port: u16) {
    match address {
        Some(address) => debug!(target: SOCKET, lane, %address, port, "listening"),
        None => debug!(target: SOCKET, lane, port, "listening on all addresses"),
    }
}
