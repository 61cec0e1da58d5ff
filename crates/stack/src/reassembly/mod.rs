//! Reassembly of fragments: IPv4 (RFC 791, RFC 815, RFC 1122 section 3.3.2) and IPv6 (RFC 8200 section 4.5).
//!
//! All fragments of a datagram come to one lane, because they are steered by their addresses alone. There they wait:
//!
//! ```text
//!   fragment ─▶ key ─▶ table ─▶ datagram ─▶ pieces, in order ─▶ all there? ─▶ one chain of frames
//!                                  │ │
//!                by age: one list ─┘ └─ by source: one list a network, /24 or /64
//!                a family and trust
//! ```
//!
//! **Cost.** A fragment costs one lookup in a table with a secret seed and a few words in slabs: the same with ten pending datagrams and with a
//! hundred thousand. Nothing is copied: a piece is the frame it arrived in, and the reassembled datagram is the chain of them. Datagrams
//! of one family have equal timeouts, so the next to expire is first in the list.
//!
//! **Overlaps.** Overlapping fragments are an attack or a fault: the datagram is discarded, with its later fragments (RFC 5722 section 4, RFC
//! 8200 section 4.5), for both families, and no error is sent. A fragment that repeats a held one byte for byte is dropped alone, and so
//! is one that lies behind the end of its datagram or moves the end.
//!
//! **Room.** Datagrams, fragments and bytes are bounded, in total and for each source network ([`ReassemblyConfig`]). A network beyond its
//! share loses its own oldest datagram. When the lane is full, the oldest datagram is evicted of the class that has more than half:
//! networks that have completed a datagram lately (proven), or all others. So senders of first fragments only, from any number of
//! invented addresses, evict one another.
//!
//! **Work.** Eviction costs work. While there is no room, new datagrams of unproven networks are accepted at a bounded rate, and the rest is
//! dropped early ([`ReassemblyConfig::strangers`]).
//!
//! Invariants: the totals equal the contents of the slabs; a datagram's pieces do not overlap and lie before its end; nothing here sends a
//! packet.

mod budget;
mod header;
mod key;
mod list;
mod pieces;
mod room;
mod sources;

pub use key::Key;

use core::time::Duration;

use flowlane_sys::frame::Frame;
use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::stats::{DropReason, IpStats, LaneStats};
use crate::time::Time;
use budget::Budget;
use header::{Unfit, restore};
use list::{Link, List};
use pieces::{PieceSlab, Pieces, Place};
use room::{Age, Held};
use sources::Sources;

/// Limits of a lane's reassembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReassemblyConfig {
    /// Datagrams pending; 0 refuses all fragments.
    pub datagrams: usize,
    /// Fragments held, and so frames.
    pub fragments: usize,
    /// Bytes of the buffers held, counted whole.
    pub bytes: usize,
    /// Fragments held of one datagram; one more is taken if it completes it.
    pub per_datagram: usize,
    /// How long an IPv4 datagram may take from its first fragment to arrive to its last.
    pub timeout_v4: Duration,
    /// The same for IPv6 (RFC 8200 section 4.5: 60 seconds).
    pub timeout_v6: Duration,
    /// While there is no room: limit of new datagrams per second of unproven networks. Further ones are dropped early.
    pub strangers: u32,
}

impl Default for ReassemblyConfig {
    /// 1024 datagrams, 1024 fragments, 4 MiB; 64 fragments a datagram; 30 and 60 seconds; 100 000 strangers a second.
    fn default() -> Self {
        Self {
            datagrams: 1024,
            fragments: 1024,
            bytes: 4 << 20,
            per_datagram: 64,
            timeout_v4: Duration::from_secs(30),
            timeout_v6: Duration::from_secs(60),
            strangers: 100_000,
        }
    }
}

impl ReassemblyConfig {
    /// How many of `limit` one source network may have: a quarter, but enough for one whole datagram.
    fn share(&self, limit: usize) -> usize {
        (limit / 4).max(self.per_datagram + 1).min(limit)
    }
}

/// A fragment: its headers were read and its length judged by the caller.
#[derive(Debug)]
pub struct Fragment {
    /// The payload of the fragment, not empty; its headers lie in the headroom.
    pub frame: Frame,
    /// Which datagram it is part of.
    pub key: Key,
    /// Bytes of headers before the payload, for IPv6 with the fragment header, which is the last of them.
    pub header_len: u16,
    /// Where the payload lies in the datagram, bytes; a multiple of eight.
    pub offset: u16,
    /// More follows; the payload is then a multiple of eight bytes.
    pub more: bool,
    /// ECN codepoint: the low two bits of type of service or traffic class.
    pub ecn: u8,
}

/// Result for a fragment.
#[derive(Debug)]
pub enum Verdict {
    /// It waits for the others.
    Held,
    /// It was the last one missing: the datagram as a packet without fragmentation, its data from the IP header on.
    Whole(Frame),
    /// It was dropped, and counted.
    Dropped,
}

/// A datagram that did not complete in time.
#[derive(Debug)]
pub struct Expired {
    /// Its first fragment, if that had come: data the payload, headers in the headroom.
    pub first: Option<Frame>,
    /// Bytes of headers before that payload.
    pub header_len: u16,
    /// Over IPv6.
    pub v6: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The slot is free.
    Free,
    /// Pieces are missing.
    Pending,
    /// Discarded: later fragments of it are dropped until it expires.
    GivenUp,
}

/// One datagram.
#[derive(Debug)]
struct Entry {
    key: Key,
    hash: u64,
    opened: Time,
    /// In order of arrival, also among those that came at one time.
    serial: u64,
    age: Link,
    of_source: Link,
    source: u32,
    pieces: Pieces,
    /// Bytes of the whole datagram, once its last fragment has come.
    end: Option<u32>,
    /// Bytes of buffers held.
    buffers: u32,
    /// Bytes of headers before the first fragment.
    header_len: u16,
    /// ECN codepoints seen, as a set.
    ecn: u8,
    proven: bool,
    state: State,
}

/// The fragments of one lane.
#[derive(Debug)]
pub struct Reassembly {
    config: ReassemblyConfig,
    /// At most `config.datagrams`; a datagram keeps its slot.
    entries: Vec<Entry>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: FixedState,
    /// Datagrams there ever were.
    opened: u64,
    /// Oldest first, by family and trust.
    ages: [List; Age::COUNT],
    held: [Held; 2],
    pieces: PieceSlab,
    sources: Sources,
    budget: Budget,
}

impl Reassembly {
    /// Nothing pending. The seed is secret: it keeps others from choosing datagrams whose keys collide.
    #[must_use]
    pub fn new(config: ReassemblyConfig, seed: u64) -> Self {
        Self {
            config,
            entries: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            opened: 0,
            ages: [List::EMPTY; Age::COUNT],
            held: [Held::default(); 2],
            pieces: PieceSlab::new(),
            sources: Sources::new(seed.rotate_left(32)),
            budget: Budget::new(config.strangers),
        }
    }

    /// Takes in a fragment. Everything that is dropped for it, itself or others, is counted in `stats`.
    #[inline]
    pub fn input(&mut self, now: Time, fragment: Fragment, stats: &mut LaneStats) -> Verdict {
        let hash = fragment.key.hash(&self.hasher);
        let place = self.table.find_bucket_index(hash, |&i| self.entries[i as usize].key == fragment.key);
        let found = place.and_then(|place| self.table.get_bucket(place)).copied();
        if found.is_none() && self.is_full() && self.is_flood(now, fragment.key) {
            return dropped(stats, fragment.key.is_v6(), DropReason::FragmentFlood);
        }
        let Some(at) = found.or_else(|| self.open(now, hash, fragment.key, stats)) else {
            return dropped(stats, fragment.key.is_v6(), DropReason::FragmentNoRoom);
        };
        match self.judge(at, &fragment) {
            Judgement::Keep(after) => self.keep(at, after, fragment, stats),
            Judgement::Complete(after) => self.complete(now, (at, place), after, fragment, stats),
            Judgement::Drop(reason) => dropped(stats, fragment.key.is_v6(), reason),
            Judgement::GiveUp(reason) => {
                self.give_up(at, reason, stats);
                dropped(stats, fragment.key.is_v6(), reason)
            }
        }
    }

    /// What is to be done with a fragment of datagram `at`, without doing it.
    #[inline]
    fn judge(&self, at: u32, fragment: &Fragment) -> Judgement {
        let entry = &self.entries[at as usize];
        if entry.state == State::GivenUp {
            return Judgement::Drop(DropReason::FragmentGivenUp);
        }
        let Ok(len) = u16::try_from(fragment.frame.chain_len()) else {
            return Judgement::Drop(DropReason::FragmentTooLong);
        };
        // Guard: `len == 0` as `false` fails reassembly/a_fragment_of_nothing
        if len == 0 {
            return Judgement::Drop(DropReason::FragmentInvalid);
        }
        let ends = u32::from(fragment.offset) + u32::from(len);
        // Nothing lies beyond the end, and there is one end (table of docs/fragments.md).
        let beyond = match entry.end {
            Some(end) => ends > end || (!fragment.more && ends != end),
            None => !fragment.more && ends < self.pieces.end(&entry.pieces),
        };
        // Guard: `beyond` as `false` fails reassembly reassembly/
        if beyond {
            return Judgement::Drop(DropReason::FragmentPastEnd);
        }
        match self.pieces.place(&entry.pieces, fragment.offset, len, &fragment.frame) {
            Place::Duplicate => Judgement::Drop(DropReason::FragmentDuplicate),
            // Guard: `Judgement::GiveUp(DropReason::FragmentOverlap)` as
            // `Judgement::Drop(DropReason::FragmentOverlap)` fails reassembly/
            Place::Overlap => Judgement::GiveUp(DropReason::FragmentOverlap),
            Place::After(after) => {
                let end = if fragment.more { entry.end } else { Some(ends) };
                if end == Some(entry.pieces.bytes + u32::from(len)) {
                    Judgement::Complete(after)
                // Guard: `usize::from(entry.pieces.count) >= self.config.per_datagram` as `false` fails
                // reassembly/
                } else if usize::from(entry.pieces.count) >= self.config.per_datagram {
                    Judgement::GiveUp(DropReason::FragmentTooMany)
                } else {
                    Judgement::Keep(after)
                }
            }
        }
    }

    /// Makes room for a fragment and puts it among its kin.
    #[inline]
    fn keep(&mut self, at: u32, after: u32, fragment: Fragment, stats: &mut LaneStats) -> Verdict {
        let buffers = buffers(&fragment.frame);
        if !self.make_room(at, buffers, stats) {
            return dropped(stats, fragment.key.is_v6(), DropReason::FragmentNoRoom);
        }
        let len = fragment.frame.chain_len() as u16;
        let entry = &mut self.entries[at as usize];
        entry.take_note(&fragment, len);
        entry.buffers += buffers as u32;
        let source = self.sources.get(entry.source);
        source.fragments += 1;
        source.bytes += buffers;
        let held = &mut self.held[usize::from(entry.proven)];
        held.fragments += 1;
        held.bytes += buffers;
        self.pieces.insert(&mut entry.pieces, after, fragment.offset, len, fragment.frame);
        Verdict::Held
    }

    /// The last piece: the datagram leaves. `place` is where the table has it, if it had to be looked up.
    #[inline]
    fn complete(
        &mut self,
        now: Time,
        (at, place): (u32, Option<usize>),
        after: u32,
        fragment: Fragment,
        stats: &mut LaneStats,
    ) -> Verdict {
        let len = fragment.frame.chain_len() as u16;
        let entry = &mut self.entries[at as usize];
        entry.take_note(&fragment, len);
        let (header_len, ecn) = (usize::from(entry.header_len), entry.ecn);
        let count = u64::from(entry.pieces.count) + 1;
        let payload = entry.pieces.bytes as usize + usize::from(len);
        let v6 = entry.key.is_v6();
        let mut pieces = self.release(at);
        let chain = self.pieces.finish(&mut pieces, after, fragment.frame);
        self.remove(at, place, Some(now));
        let Some(mut whole) = chain else { return Verdict::Dropped };
        let reason = match restore(&mut whole, v6, header_len, payload, ecn) {
            Ok(()) => {
                family(stats, v6).reassembled += 1;
                return Verdict::Whole(whole);
            }
            Err(Unfit::TooLong) => DropReason::FragmentTooLong,
            Err(Unfit::Ecn) => DropReason::FragmentEcn,
            Err(Unfit::Header) => DropReason::FragmentInvalid,
        };
        for _ in 0..count {
            let _ = dropped(stats, v6, reason);
        }
        Verdict::Dropped
    }

    /// Gives a datagram up but remembers it, so that what is still to come of it makes no new one.
    #[cold]
    fn give_up(&mut self, at: u32, reason: DropReason, stats: &mut LaneStats) {
        let mut pieces = self.release(at);
        let entry = &mut self.entries[at as usize];
        entry.state = State::GivenUp;
        let v6 = entry.key.is_v6();
        for _ in 0..pieces.count {
            let _ = dropped(stats, v6, reason);
        }
        self.pieces.clear(&mut pieces);
    }

    /// Datagrams pending now, those given up among them.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.table.len()
    }

    /// Fragments held now.
    #[must_use]
    pub fn fragments(&self) -> usize {
        self.held[0].fragments + self.held[1].fragments
    }

    /// Bytes of the buffers held now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held[0].bytes + self.held[1].bytes
    }

    /// Bytes of bookkeeping without frames; it grows to the peak number of pending datagrams and does not shrink.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.free.capacity() * 4
            + self.table.allocation_size()
            + self.pieces.footprint()
            + self.sources.footprint()
    }

    /// Source networks on record: with datagrams pending, or proven.
    #[must_use]
    pub fn networks(&self) -> usize {
        self.sources.len()
    }
}

/// What is to be done with a fragment.
enum Judgement {
    Keep(u32),
    Complete(u32),
    Drop(DropReason),
    GiveUp(DropReason),
}

impl Entry {
    fn new(now: Time, serial: u64, key: Key, hash: u64, (source, proven): (u32, bool)) -> Self {
        Self {
            key,
            hash,
            opened: now,
            serial,
            age: Link::ALONE,
            of_source: Link::ALONE,
            source,
            pieces: Pieces::EMPTY,
            end: None,
            buffers: 0,
            header_len: 0,
            ecn: 0,
            proven,
            state: State::Pending,
        }
    }

    /// Notes what a fragment says beside its bytes.
    #[inline]
    fn take_note(&mut self, fragment: &Fragment, len: u16) {
        if fragment.offset == 0 {
            self.header_len = fragment.header_len;
        }
        if !fragment.more {
            self.end = Some(u32::from(fragment.offset) + u32::from(len));
        }
        self.ecn |= 1 << (fragment.ecn & 3);
    }
}

/// Bytes of the buffers of a chain.
#[inline]
fn buffers(frame: &Frame) -> usize {
    if frame.is_chained() { frame.capacity() * frame.chunks().count() } else { frame.capacity() }
}

fn family(stats: &mut LaneStats, v6: bool) -> &mut IpStats {
    if v6 { &mut stats.ip6 } else { &mut stats.ip }
}

/// Counts a fragment as dropped.
fn dropped(stats: &mut LaneStats, v6: bool, reason: DropReason) -> Verdict {
    family(stats, v6).fragments_dropped += 1;
    stats.drops.count(reason);
    Verdict::Dropped
}
