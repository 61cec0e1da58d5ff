//! The messages of one connection: written, read back, and compared byte by byte.
//!
//! One future, written by hand, serves every mode, so that a waiting connection has no buffer and no second task. It writes what is due and
//! reads what has arrived; if neither is possible, it waits for room, bytes or the next send time, whichever is first. The end of the run
//! wakes it from outside.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use flowlane::{OwnedBytes, Sleep, TcpStream, Time};

use super::Mode;
use super::lane::Lane;
use super::outcome::{First, Trouble};
use super::pattern;
use super::resizes::Resize;
use crate::run::clock;

/// Rounds of writing and reading before the worker does its other work.
const ROUNDS: usize = 16;
/// A copy of at most this many bytes takes too little time to read the clock again.
const SHORT: usize = 4096;
/// Messages from this size on, bytes, are passed to the socket without a copy.
pub(super) const GIVEN: usize = 16 << 10;
/// Groups in which the moments of one connection are passed over, if there are more of them.
const GROUPS: u64 = 256;
/// Messages of one connection that may wait for their answers.
const OUTSTANDING: usize = 1024;

thread_local! {
    /// Where bytes are read to: they are compared and forgotten, so one for each thread is enough.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; pattern::LONGEST]);
}

/// Moments of one connection among many, in [planned](Lane::planned) time: the `nth` and then every `step`-th of an even schedule of all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slots {
    start: u64,
    nth: u64,
    step: u64,
    /// Of all connections together, a second.
    rate: u64,
}

impl Slots {
    /// Those of a lane's connection that stays, of all there are from then on.
    pub(super) fn of(resize: &Resize, nth: u64, rate: u64) -> Self {
        Self::numbered(resize.from, resize.mine.start + nth, (resize.all, rate))
    }

    /// Those of the connection with this number among all, of which there are so many, with so many messages a second.
    pub(super) fn numbered(start: u64, number: u64, (all, rate): (u64, u64)) -> Self {
        Self { start, nth: number, step: all, rate }
    }

    /// The same, but for what was due before a moment.
    pub(super) fn since(mut self, moment: u64) -> Self {
        self.pass(moment, |_, _| ());
        self
    }

    fn peek(&self) -> u64 {
        let nanos = u128::from(self.nth) * 1_000_000_000 / u128::from(self.rate.max(1));
        self.start.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// After the next moment, connections have `of` times the rate for each `left`. `all`: connections and messages a second before.
    fn raise(&mut self, (of, left): (u32, u32), (all, rate): (u64, u64)) {
        // Guard: `rate.saturating_mul(of.into())` as `rate` fails talk::tests::connections_take_the_share
        let (step, rate) = (all.saturating_mul(left.into()), rate.saturating_mul(of.into()));
        if (step, rate) != (self.step, self.rate) {
            *self = Self { start: self.peek(), nth: 0, step, rate };
        }
    }

    fn advance(&mut self) {
        self.nth = self.nth.saturating_add(self.step);
    }

    /// Passes over all moments before `limit` in a bounded number of groups, however many they are: `each` is given the moment in the
    /// middle of a group, and how many it has.
    fn pass(&mut self, limit: u64, mut each: impl FnMut(u64, u64)) {
        // The first turn whose moment, rounded down to a nanosecond, is not before the limit.
        let span = u128::from(limit.saturating_sub(self.start));
        let first =
            u64::try_from((span * u128::from(self.rate.max(1))).div_ceil(1_000_000_000)).unwrap_or(u64::MAX);
        let mut left = first.saturating_sub(self.nth).div_ceil(self.step.max(1));
        // Guard: `(left / GROUPS).max(1)` as `1` fails tcp::talk
        let group = (left / GROUPS).max(1);
        while left > 0 {
            let n = group.min(left);
            let middle = Self { nth: self.nth + (n - 1) / 2 * self.step, ..*self };
            each(middle.peek(), n);
            self.nth = self.nth.saturating_add(n.saturating_mul(self.step));
            left -= n;
        }
    }

    /// Nothing is due any more.
    fn end(&mut self) {
        self.nth = u64::MAX;
    }
}

/// What a connection is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    /// Where in the pattern it begins.
    pub(super) phase: u64,
    /// When messages are due; as fast as possible without.
    pub(super) slots: Option<Slots>,
    /// Its number among the lane's connections that stay, and how often their number was changed when it was begun.
    pub(super) nth: u64,
    pub(super) resized: usize,
    /// When the first was due and begun, if it was begun with the connection.
    pub(super) begun: Option<(u64, u64)>,
}

/// A connection at work.
pub(super) struct Talk {
    stream: TcpStream,
    task: Task,
    mode: Mode,
    /// Bytes it writes, or reads if it only reads.
    total: u64,
    written: u64,
    read: u64,
    /// Bytes of the message being written that are still to come; of the share that may be read, when reading.
    left: u64,
    /// Messages on their way: where each ends in the stream, and when it was to be sent and was.
    waiting: VecDeque<(u64, (u64, u64))>,
    /// When the first byte was asked for, until it comes.
    first: Option<u64>,
    alarm: Option<(u64, Sleep)>,
    shut: bool,
    eof: bool,
    stood: bool,
    /// From when on it ends, since fewer are wanted.
    leaves: Option<u64>,
    /// Bytes that had been sent when the run ended, if more waited then.
    sent_at_end: Option<u64>,
}

impl Talk {
    /// Over a connection that stands since `now`.
    pub(super) fn new(lane: &Lane, stream: TcpStream, task: Task, now: u64) -> Self {
        let config = &lane.common.config;
        let mode = config.mode;
        let total = match mode {
            Mode::Connect => config.size as u64,
            _ => config.total.unwrap_or(u64::MAX),
        };
        let first = (mode == Mode::Read).then_some(now);
        Self {
            stream,
            task,
            mode,
            total,
            written: 0,
            read: 0,
            left: 0,
            waiting: VecDeque::new(),
            first,
            alarm: None,
            shut: false,
            eof: false,
            stood: false,
            leaves: None,
            sent_at_end: None,
        }
    }

    /// Bytes that have been sent for the first time, if more wait for the far side to take some.
    fn sent(&self) -> Option<u64> {
        let unsent = self.stream.info().ok()?.unsent;
        (unsent > 0).then(|| self.written.saturating_sub(u64::from(unsent)))
    }

    /// Whether bytes wait that are only written, and none of them has been sent since the run ended.
    pub(super) fn is_stuck(&self) -> bool {
        self.sent_at_end.is_some() && self.sent_at_end == self.sent()
    }

    /// Whether bytes that are only written are with the far side's TCP, all of them, and nobody there has read to their end: buffers take what
    /// fits them without a reader.
    pub(super) fn is_unread(&self) -> bool {
        let acknowledged = || self.stream.info().is_ok_and(|info| info.unacknowledged == 0);
        self.mode == Mode::Write && self.written > 0 && !self.eof && acknowledged()
    }

    /// What it goes over.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// So many bytes of the first message went out with the SYN.
    pub(super) fn has_written(&mut self, lane: &Lane, n: usize, now: u64) -> Result<(), Trouble> {
        lane.inner().sent_with_syn(self.stream.info()?.syn_data);
        if self.next_message(lane, now)? {
            self.wrote(n);
            lane.inner().wrote(now, n);
        }
        Ok(())
    }

    fn wrote(&mut self, n: usize) {
        self.written += n as u64;
        self.left -= n as u64;
    }

    /// Does what can be done now.
    pub(super) fn poll(&mut self, lane: &Lane, cx: &mut Context<'_>) -> Poll<Result<(), Trouble>> {
        let mut now = clock();
        self.follow(lane, now);
        for _ in 0..ROUNDS {
            let wrote = self.write(lane, cx, &mut now)?;
            let read = self.read(lane, cx, &mut now)?;
            // Asked once: another thread may end the run meanwhile, and who is done by that stood to the end.
            let run_ends = lane.ending(now);
            if run_ends && !self.stood {
                self.stood = true;
                self.sent_at_end = if self.mode == Mode::Write { self.sent() } else { None };
                lane.inner().counts.standing += 1;
                self.leave_unsent(lane, now);
            }
            if self.is_done(lane, run_ends || self.leaves.is_some_and(|at| now >= at))? {
                return Poll::Ready(Ok(()));
            }
            if !wrote && !read {
                if !self.rang(cx) {
                    return Poll::Pending;
                }
                now = clock();
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether it begins nothing more.
    #[inline]
    fn ending(&self, lane: &Lane, now: u64) -> bool {
        lane.ending(now) || self.leaves.is_some_and(|at| now >= at)
    }

    /// Follows what was agreed of how many connections there are, as far as it has begun all that was its before.
    fn follow(&mut self, lane: &Lane, now: u64) {
        if !self.mode.stays() {
            return;
        }
        while let Some(resize) = lane.resizes.nth(self.task.resized) {
            let has_more = match &self.task.slots {
                Some(slots) => slots.peek() < resize.from,
                None => now < resize.at,
            };
            if has_more {
                return;
            }
            self.task.resized += 1;
            // Guard: `self.task.nth < resize.count()` as `true` fails load/staying::connections_of_tcp
            let is_wanted = self.leaves.is_none() && self.task.nth < resize.count();
            if !is_wanted {
                self.leaves.get_or_insert(resize.at);
            }
            match &mut self.task.slots {
                Some(slots) if is_wanted => *slots = Slots::of(&resize, self.task.nth, slots.rate),
                Some(slots) => slots.end(),
                None => {}
            }
        }
    }

    /// Begins nothing more, and counts what was due by now and was not begun. Once all bytes are through, nothing was due.
    pub(super) fn leave_unsent(&mut self, lane: &Lane, now: u64) {
        let limit = lane.planned(lane.end.min(now.saturating_add(1)));
        while let Some(slots) = &mut self.task.slots {
            let next = lane.resizes.nth(self.task.resized).map_or(u64::MAX, |next| next.from);
            if self.written.max(self.read) < self.total {
                let mut inner = lane.inner();
                slots.pass(limit.min(next), |due, n| inner.unsent(lane.comes(due), now, n));
            }
            if limit <= next || slots.peek() < next {
                return slots.end();
            }
            self.follow(lane, now);
        }
    }

    /// Whether the moment waited for, if any, has come.
    fn rang(&mut self, cx: &mut Context<'_>) -> bool {
        let rang = self.alarm.as_mut().is_some_and(|(_, sleep)| Pin::new(sleep).poll(cx).is_ready());
        if rang {
            self.alarm = None;
        }
        rang
    }

    fn wait_for(&mut self, moment: u64) {
        if self.alarm.as_ref().is_none_or(|(at, _)| *at != moment) {
            self.alarm = Some((moment, flowlane::sleep_until(Time::from_nanos(moment))));
        }
    }

    /// Writes what is due of one message.
    fn write(&mut self, lane: &Lane, cx: &mut Context<'_>, now: &mut u64) -> Result<bool, Trouble> {
        if self.mode == Mode::Read {
            return Ok(false);
        }
        if self.left == 0 && !self.next_message(lane, *now)? {
            return Ok(false);
        }
        let bytes = pattern::slice(self.task.phase + self.written, self.left.min(1 << 16) as usize);
        let polled = if bytes.len() >= GIVEN {
            self.stream.poll_write_owned(cx, &mut OwnedBytes::new(bytes))
        } else {
            self.stream.poll_write(cx, bytes)
        };
        let Poll::Ready(taken) = polled else { return Ok(false) };
        let n = taken?;
        self.wrote(n);
        if n > SHORT {
            *now = clock();
        }
        let mut inner = lane.inner();
        inner.wrote(*now, n);
        if self.left == 0 && self.mode == Mode::Write {
            self.answers(lane, &mut inner, *now, self.written);
        }
        Ok(true)
    }

    /// Begins the next message, if one is due; ends the stream behind the last.
    fn next_message(&mut self, lane: &Lane, now: u64) -> Result<bool, Trouble> {
        if self.shut {
            return Ok(false);
        }
        let last = self.written >= self.total;
        if last || self.ending(lane, now) && self.task.begun.is_none() {
            if matches!(self.mode, Mode::Write | Mode::Echo) {
                self.stream.shutdown(Shutdown::Write)?;
                self.shut = true;
            }
            return Ok(false);
        }
        let most = if self.mode == Mode::Hold { 1 } else { OUTSTANDING };
        if self.waiting.len() >= most {
            return Ok(false);
        }
        let with_connection = self.task.begun.take();
        let Some(moments) = with_connection.or_else(|| Some((self.due(lane, now)?, now))) else {
            return Ok(false);
        };
        self.left = (lane.common.config.size as u64).min(self.total - self.written);
        self.waiting.push_back((self.written + self.left, moments));
        if self.written == 0 {
            self.first = Some(moments.0);
        }
        let mut inner = lane.inner();
        inner.counts.messages += 1;
        if with_connection.is_none() {
            inner.sent(moments.0, moments.1);
        }
        Ok(true)
    }

    /// When the next message was to be begun, if that is not still to come.
    fn due(&mut self, lane: &Lane, now: u64) -> Option<u64> {
        self.follow(lane, now);
        let Some(slots) = &mut self.task.slots else { return Some(now) };
        let due = lane.comes(slots.peek());
        if due > now {
            // Who has connections of others is no faster on its own.
            // Guard: `!lane.takes_over()` as `true` fails load/staying::connections_that_take_over
            if let Some(raised) = lane.common.gate.raised().filter(|_| !lane.takes_over()) {
                slots.raise(raised, (lane.common.turns.all(), lane.common.config.rate.unwrap_or(1)));
            }
            if due < lane.end {
                self.wait_for(due);
            }
            return None;
        }
        slots.advance();
        Some(due)
    }

    /// Reads what came, as much as is due.
    fn read(&mut self, lane: &Lane, cx: &mut Context<'_>, now: &mut u64) -> Result<bool, Trouble> {
        if self.eof {
            return Ok(false);
        }
        let paced = self.mode == Mode::Read && self.task.slots.is_some();
        if paced && self.left == 0 {
            if self.ending(lane, *now) {
                return Ok(false);
            }
            let Some(due) = self.due(lane, *now) else { return Ok(false) };
            self.left = lane.common.config.size as u64;
            self.waiting.push_back((self.read + self.left, (due, *now)));
            lane.inner().sent(due, *now);
        }
        let most = if paced { self.left.min(pattern::LONGEST as u64) as usize } else { pattern::LONGEST };
        SCRATCH.with_borrow_mut(|scratch| {
            let Poll::Ready(got) = self.stream.poll_read(cx, &mut scratch[..most]) else { return Ok(false) };
            let n = got?;
            *now = clock();
            self.came(lane, &scratch[..n], paced, *now)?;
            Ok(true)
        })
    }

    fn came(&mut self, lane: &Lane, bytes: &[u8], paced: bool, now: u64) -> Result<(), Trouble> {
        if bytes.is_empty() {
            self.eof = true;
            return Ok(());
        }
        let config = &lane.common.config;
        let echoed = matches!(self.mode, Mode::Echo | Mode::Connect | Mode::Hold);
        let surplus = echoed && self.read + bytes.len() as u64 > self.written;
        let checked = echoed || self.mode == Mode::Read && config.verify;
        if surplus || checked && !pattern::matches(self.task.phase + self.read, bytes) {
            return Err(Trouble::Corrupt((self.read == 0).then(|| First::of(bytes))));
        }
        self.read += bytes.len() as u64;
        if paced {
            self.left -= bytes.len() as u64;
        }
        let mut inner = lane.inner();
        inner.read(now, bytes.len());
        if let Some(first) = self.first.take() {
            inner.first_byte(now.saturating_sub(first));
        }
        if echoed || paced {
            self.answers(lane, &mut inner, now, self.read);
        }
        Ok(())
    }

    /// Messages that end before `to` are done.
    fn answers(&mut self, lane: &Lane, inner: &mut super::lane::Inner, now: u64, to: u64) {
        while let Some((_, moments)) = self.waiting.pop_front_if(|(end, _)| *end <= to) {
            inner.answered(moments, now, lane.common.timeout);
        }
    }

    /// Whether there is nothing left to do, or nothing more is begun (`ending`); an error if the far side ends too early.
    fn is_done(&self, lane: &Lane, ending: bool) -> Result<bool, Trouble> {
        let answered = self.waiting.is_empty() && self.left == 0;
        let done = match self.mode {
            Mode::Read => self.eof || ending || self.read >= self.total,
            Mode::Write => self.eof && self.shut,
            Mode::Echo => self.eof && self.shut && self.read == self.written,
            Mode::Connect | Mode::Syn | Mode::HalfOpen => self.read >= self.total,
            Mode::Hold => answered && (ending || self.written >= self.total),
        };
        if !done && self.eof {
            return Err(Trouble::ClosedEarly);
        }
        // With a total, the stream must have been as long.
        if self.mode == Mode::Read && self.eof && lane.common.config.total.is_some_and(|t| self.read < t) {
            return Err(Trouble::ClosedEarly);
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_turns() {
        let rate = 1000;
        let mut moments = Vec::new();
        for nth in 0..3 {
            let mut slots = Slots { start: 5, nth, step: 3, rate };
            for _ in 0..4 {
                moments.push(slots.peek());
                slots.advance();
            }
        }
        moments.sort_unstable();
        let even: Vec<u64> = (0..12).map(|n| 5 + n * 1_000_000).collect();
        assert_eq!(moments, even);
    }

    #[test]
    fn connections_take_the_share_of_others() {
        let mut slots = Slots { start: 5, nth: 2, step: 4, rate: 1000 };
        slots.advance();
        for _ in 0..2 {
            // Said twice, done once: three of six lanes are left.
            slots.raise((6, 3), (4, 1000));
            assert_eq!(slots.peek(), 6_000_005);
        }
        slots.advance();
        assert_eq!(slots.peek(), 8_000_005, "twice as often");
        slots.raise((6, 1), (4, 1000));
        slots.advance();
        assert_eq!(slots.peek(), 8_000_005 + 666_666, "six times");
    }

    #[test]
    fn moments_are_passed_over_one_by_one_or_in_groups() {
        for (rate, limit) in [(1000, 200_000_005), (1000, 200_000_006), (7, 30_000_000_000), (3, 5), (3, 0)] {
            let slots = Slots { start: 5, nth: 2, step: 3, rate };
            let (mut one, mut passed, mut expected) = (slots, Vec::new(), Vec::new());
            while one.peek() < limit {
                expected.push((one.peek(), 1));
                one.advance();
            }
            let mut all = slots;
            all.pass(limit, |moment, n| passed.push((moment, n)));
            assert_eq!((passed, all.nth), (expected, one.nth), "{rate} {limit}");
        }
        let mut slots = Slots { start: 5, nth: 2, step: 3, rate: 3_000_000_000 };
        let (mut groups, mut sum) = (0, 0);
        slots.pass(3_600_000_000_005, |moment, n| {
            assert!((5..3_600_000_000_005).contains(&moment));
            (groups, sum) = (groups + 1, sum + n);
            assert!(groups <= GROUPS + 1, "{groups}");
        });
        assert_eq!((sum, slots.peek()), (3_600_000_000_000, 3_600_000_000_005));
    }
}
