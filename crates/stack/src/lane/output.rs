//! Output of a lane: frames that IP has queued and segments that TCP builds on demand, in turn; frames for tunnels are encapsulated.

use flowlane_sys::frame::{Frame, Pool};

use crate::lane::Lane;
use crate::time::Time;

impl Lane {
    /// The next frame to send, from the Ethernet header on; `meta().interface` is the interface. Frames queued by IP and segments of TCP
    /// alternate.
    #[inline]
    pub fn poll_output(&mut self, now: Time, frames: &Pool) -> Option<Frame> {
        self.poll_output_of(now, frames, None)
    }

    /// As [`Lane::poll_output`], for a host with several links: the next frame for a link with room. `room` is the room of each in
    /// frames, by interface; frames for a link without room wait, and do not block others.
    #[inline]
    pub fn poll_output_to(&mut self, now: Time, frames: &Pool, room: &[usize]) -> Option<Frame> {
        self.poll_output_of(now, frames, Some(room))
    }

    #[inline]
    fn poll_output_of(&mut self, now: Time, frames: &Pool, room: Option<&[usize]>) -> Option<Frame> {
        loop {
            let frame = self.next_output(now, frames, room)?;
            if self.counts_frames {
                self.count_sent(now, &frame);
            }
            if !self.ip.is_inner(&frame) {
                return Some(frame);
            }
            if let Some(outer) = self.encapsulated(now, frames, frame) {
                return Some(outer);
            }
        }
    }

    /// Sends a frame for an inner interface as its outer packet: that, if it need not wait for its next hop. Ends, since
    /// the interface of an outer packet has a lower level.
    #[inline(never)]
    fn encapsulated(&mut self, now: Time, frames: &Pool, mut frame: Frame) -> Option<Frame> {
        while self.ip.is_inner(&frame) {
            let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
            self.ip.watch_output();
            self.ip.encapsulate(&mut cx, &self.rss, frame);
            frame = self.ip.poll_watched()?;
            if self.counts_frames {
                self.count_sent(now, &frame);
            }
        }
        Some(frame)
    }

    #[inline]
    fn next_output(&mut self, now: Time, frames: &Pool, room: Option<&[usize]>) -> Option<Frame> {
        let mut frame = None;
        if self.tcp.has_output() && (self.tcp_turn || self.ip.output_len() == 0) {
            frame = self.pull_tcp(now, frames, room);
            self.tcp_turn = false;
        }
        if frame.is_none() {
            frame = self.ip.poll_output(room);
            self.tcp_turn = true;
            if frame.is_none() && room.is_some() && self.tcp.has_output() {
                // IP's frames wait for a link without room; that is no reason for TCP to wait.
                frame = self.pull_tcp(now, frames, room);
            }
        }
        self.wake_senders();
        frame
    }

    /// Appends up to `max` frames to send to `into`, as repeated [`Lane::poll_output`]; for hosts with one link.
    #[inline]
    pub fn drain_output(&mut self, now: Time, frames: &Pool, max: usize, into: &mut Vec<Frame>) -> usize {
        if !self.ip.tunnels.is_empty() {
            let before = into.len();
            into.extend(std::iter::from_fn(|| self.poll_output(now, frames)).take(max));
            return into.len() - before;
        }
        let mut n = 0;
        while n < max && self.tcp.has_output() {
            let Some(frame) = self.next_output(now, frames, None) else { break };
            if self.counts_frames {
                self.count_sent(now, &frame);
            }
            into.push(frame);
            n += 1;
        }
        let drained = self.ip.drain_output(max - n, into);
        if self.counts_frames {
            for frame in &into[into.len() - drained..] {
                self.count_sent(now, frame);
            }
        }
        n += drained;
        if n > 0 {
            self.wake_senders();
        }
        n
    }

    /// Wakes who waits for room in the output queue, if there is some.
    #[inline]
    fn wake_senders(&mut self) {
        if !self.senders.is_empty() {
            let ip = &self.ip;
            self.senders.retain_mut(|(interface, waker)| {
                let waits = !ip.has_room(*interface);
                if !waits {
                    waker.wake_by_ref();
                }
                waits
            });
        }
    }

    /// Whether [`Lane::poll_output`] may have something.
    #[inline]
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.ip.output_len() > 0 || self.tcp.has_output()
    }

    /// Frames in the output queue. Segments that connections would make when asked are not among them.
    #[inline]
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.ip.output_len()
    }
}
