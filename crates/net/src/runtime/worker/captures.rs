//! What a worker does for captures: it copies the frames that its lanes take in, drop and put out into chunks ([`crate::capture`]).
//!
//! A frame is copied before its lane has it, since the lane keeps it or changes it; afterwards the lane's counters of drops tell whether it
//! was dropped. The reason is that of the counter that grew while the frame was handled. For that, segments that are captured are not joined with
//! others of their burst. A frame that no capture wants costs a look at its flow. Frames that are handed to another worker are captured there,
//! except those that are lost on the way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flowlane_stack::Class;
use flowlane_stack::time::Time;
use flowlane_sys::frame::{Frame, Pool};

use super::Worker;
use super::hosts::HostView;
use super::ports::Ports;
use crate::capture::Tap;
use crate::capture::chunk::{Chunk, EMPTY_HEADER, Kind, Record, segment_of};
use crate::lane::LaneSlot;
use crate::runtime::netisr::Parcel;
use crate::shared::Shared;

/// How old a frame may become in a chunk that is not full.
const OLD: Duration = Duration::from_millis(20);

/// A capture at one worker.
#[derive(Debug)]
struct Mine {
    tap: Arc<Tap>,
    worker: usize,
    chunk: Option<Chunk>,
}

/// The captures at one worker.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    all: Vec<Mine>,
    /// Used while a lane is asked for output: frames that each of its ports had before.
    marks: Vec<usize>,
    /// Counters of drops before a frame was handled.
    before: Vec<u64>,
}

impl Drop for Mine {
    fn drop(&mut self) {
        self.flush();
        self.tap.workers.fetch_sub(1, Ordering::Release);
    }
}

impl Mine {
    fn flush(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            self.tap.rings[self.worker].put(chunk);
        }
    }

    /// Whether it is to have a frame of a lane.
    #[inline]
    fn wants(&self, slot: Place, frame: &Frame, ethernet: bool) -> bool {
        !self.tap.over.load(Ordering::Relaxed) && self.tap.filter.lets(slot.lane, frame, ethernet)
    }

    /// When the chunk at hand is old.
    fn due(&self) -> Option<Time> {
        self.chunk.as_ref().filter(|chunk| !chunk.records.is_empty()).map(|chunk| chunk.since + OLD)
    }

    /// Sees to it that there is a chunk with room for a frame, if there is one; counts the frame as missed if not.
    fn make_room(&mut self, frame: &Frame, now: Time) {
        let most = frame.chain_len().min(self.tap.snap) + EMPTY_HEADER;
        if self.chunk.as_ref().is_some_and(|chunk| !chunk.has_room(most)) {
            self.flush();
        }
        if self.chunk.is_none() {
            self.chunk = self.tap.rings[self.worker].fresh();
            match &mut self.chunk {
                Some(chunk) => chunk.since = now,
                None => self.tap.rings[self.worker].lose(),
            }
        }
    }

    /// Copies a frame of a lane that it [`wants`](Self::wants). Its record still lacks what became of it.
    fn copy(
        &mut self,
        slot: Place,
        now: Time,
        frame: &Frame,
        ethernet: bool,
        kind: Kind,
        queue: Option<u16>,
    ) -> bool {
        self.make_room(frame, now);
        let Self { tap, chunk: Some(chunk), .. } = self else { return false };
        let (length, kept) = chunk.copy(frame, tap.snap, ethernet);
        let meta = frame.meta();
        let first = tap.first_interface.get(slot.host).copied().unwrap_or(0);
        // The one behind a host's last is for packets without a link's header.
        let last = tap.first_interface.get(slot.host + 1).map_or(first, |next| next - 1);
        let interface =
            if ethernet { (first + u32::from(meta.interface)).min(last.saturating_sub(1)) } else { last };
        chunk.records.push(Record {
            time: tap.epoch.saturating_add(now.as_nanos()),
            kind,
            interface,
            host: slot.host as u16,
            bucket: slot.bucket,
            queue,
            hash: meta.hash,
            hash_type: meta.hash_type,
            segment: segment_of(frame),
            length,
            kept,
        });
        true
    }

    /// The frame copied last was dropped, or not. One that was not dropped is taken back where only dropped ones are wanted.
    fn judge(&mut self, dropped: Option<(&'static str, &'static str)>, keep: bool) {
        let Some(chunk) = &mut self.chunk else { return };
        match (dropped, chunk.records.last_mut()) {
            (Some((layer, reason)), Some(record)) => record.kind = Kind::Dropped(layer, reason),
            (None, Some(record)) if !keep => {
                let kept = record.kept;
                chunk.records.pop();
                chunk.take_back(kept);
            }
            _ => {}
        }
    }
}

/// Which lane a frame is of.
#[derive(Debug, Clone, Copy)]
struct Place {
    lane: u32,
    host: usize,
    bucket: u16,
}

impl Place {
    fn of(slot: &LaneSlot) -> Self {
        Self { lane: slot.id.index, host: slot.host, bucket: slot.lane.bucket().0 }
    }
}

impl Taps {
    /// Whether anything is captured.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.all.is_empty()
    }

    pub(crate) fn add(&mut self, tap: Arc<Tap>, worker: usize) {
        self.all.push(Mine { tap, worker, chunk: None });
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.all.retain(|mine| mine.tap.number != number);
    }

    /// Gives a frame to its lane, as [`Lane::input`](flowlane_stack::Lane::input); `in_burst`: as
    /// [`Lane::input_in_burst`](flowlane_stack::Lane::input_in_burst), unless it is captured.
    #[cold]
    #[inline(never)]
    pub(crate) fn input(
        &mut self,
        slot: &mut LaneSlot,
        shared: &Shared,
        (turn, frames): (Time, &Pool),
        (frame, class): (Frame, Class),
        in_burst: bool,
    ) {
        let place = Place::of(slot);
        let ethernet = matches!(class, Class::Ethernet | Class::InnerEthernet);
        let mut wanted = 0_u32;
        for (i, mine) in self.all.iter().enumerate() {
            wanted |= u32::from(mine.wants(place, &frame, ethernet)) << i;
        }
        // Guard: `wanted == 0` as `false` fails runtime/capture_bursts
        if wanted == 0 {
            return match in_burst {
                true => slot.lane.input_in_burst(turn, frames, frame, class),
                false => slot.lane.input(turn, frames, frame, class),
            };
        }
        // What is held of others is handled before, so that their drops are not taken for those of this one.
        // Guard: `slot.lane.end_burst(turn, frames)` as `()` fails runtime/capture_bursts
        slot.lane.end_burst(turn, frames);
        // What comes for the second time is of interest only if it is dropped now.
        let first = class == Class::Ethernet;
        let queue = first.then_some(frame.meta().queue);
        let (now, mut copied) = (shared.now(), 0_u32);
        // Guard: `wanted >> i & 1 == 1` as `true` fails runtime/capture_bursts
        for (i, mine) in self.all.iter_mut().enumerate().filter(|(i, _)| wanted >> i & 1 == 1) {
            copied |= u32::from(mine.copy(place, now, &frame, ethernet, Kind::Received, queue)) << i;
        }
        if copied == 0 {
            return slot.lane.input(turn, frames, frame, class);
        }
        let before = &mut self.before;
        before.clear();
        slot.lane.drops(&mut |_, _, count| before.push(count));
        slot.lane.input(turn, frames, frame, class);
        let (mut at, mut dropped) = (0, None);
        slot.lane.drops(&mut |layer, reason, count| {
            if before.get(at).is_some_and(|was| *was != count) {
                dropped = dropped.or(Some((layer, reason)));
            }
            at += 1;
        });
        for (i, mine) in self.all.iter_mut().enumerate() {
            if copied >> i & 1 == 1 {
                let keep = first && !mine.tap.filter.drops_only;
                mine.judge(dropped, keep);
            }
        }
    }

    /// A frame that is dropped on its way to the lane of a bucket.
    #[cold]
    #[inline(never)]
    pub(crate) fn dropped(
        &mut self,
        (lane, host, bucket): (u32, usize, u16),
        now: Time,
        frame: &Frame,
        (layer, reason): (&'static str, &'static str),
    ) {
        let place = Place { lane, host, bucket };
        for mine in self.all.iter_mut().filter(|mine| mine.wants(place, frame, true)) {
            mine.copy(place, now, frame, true, Kind::Dropped(layer, reason), Some(frame.meta().queue));
        }
    }

    /// A lane is about to be asked for output.
    pub(crate) fn mark(&mut self, slot: &LaneSlot, host: &HostView, ports: &Ports) {
        self.marks.clear();
        self.marks.extend(host.ports_of(slot.lane.bucket()).iter().map(|p| ports.get(*p).output().len()));
    }

    /// It has put its output there.
    #[cold]
    #[inline(never)]
    pub(crate) fn sent(&mut self, slot: &LaneSlot, host: &HostView, ports: &Ports, shared: &Shared) {
        let mut now = None;
        let (place, used) = (Place::of(slot), host.ports_of(slot.lane.bucket()));
        for (i, p) in used.iter().enumerate() {
            if used[..i].contains(p) {
                continue;
            }
            let port = ports.get(*p);
            for frame in &port.output()[self.marks[i].min(port.output().len())..] {
                for mine in self.all.iter_mut().filter(|mine| !mine.tap.filter.drops_only) {
                    if mine.wants(place, frame, true) {
                        let now = *now.get_or_insert_with(|| shared.now());
                        mine.copy(place, now, frame, true, Kind::Sent, port.index());
                    }
                }
            }
        }
    }

    /// A turn is over: what has waited for long goes to the writer.
    pub(crate) fn turned(&mut self, now: Time) {
        for mine in &mut self.all {
            if mine.due().is_some_and(|due| due <= now) {
                mine.flush();
            }
        }
    }

    /// When the first frame goes to the writer, though its chunk is not full: a sleep ends then. Were chunks given away before each sleep,
    /// short sleeps would use them up faster than the writer looks.
    pub(crate) fn due(&self) -> Option<Time> {
        self.all.iter().filter_map(Mine::due).min()
    }
}

impl Worker {
    /// Hands a frame over to another worker, which captures it; unless it is lost on the way.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_over_captured(&mut self, owner: usize, lane: u32, frame: Frame) {
        if !self.netisr.takes(owner) {
            let place = self.lane_place(lane);
            self.taps.dropped(place, self.now, &frame, ("netisr", "ring-full"));
        }
        self.netisr.send(owner, Parcel::Frame { lane, class: Class::Ethernet, frame });
    }

    /// The lane of a frame, for captures of what is lost on its way there.
    pub(super) fn lane_place(&self, lane: u32) -> (u32, usize, u16) {
        let (host, bucket) = self.hosts.place_of(lane).map_or((0, 0), |(host, bucket)| (host, bucket.0));
        (lane, host, bucket)
    }
}
