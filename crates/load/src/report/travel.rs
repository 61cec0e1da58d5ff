//! Records and snapshots as bytes, for runs that several generators make together: each sends its own, and one merges all.
//!
//! Numbers are in LEB128. A histogram is a list of its values, each the difference from the one before, with their counts: recording them again
//! gives the same histogram, so nothing is lost on the way. What comes may be from anyone: [`Limits`] says what a run can have, every length
//! is checked against it before there is memory for it, and what is not as it should be is [`Damaged`].

use std::borrow::Cow;
use std::ops::Range;

use hdrhistogram::Histogram;

use super::counted::Counted;
use super::kinds::ErrorKind;
use super::parts::{Parts, Share};
use super::periods::fine::Fine;
use super::recorder::{LaneRecord, Snapshot, Spectra};
use super::series::{MOST, Slot, small};
use super::tally::Tally;
use super::times::{LONGEST, Times};

/// Most of a count, and of the times in a histogram or errors of a kind: so much that no lane gets there, and so little that the sum over all lanes fits.
const MOST_OF_ALL: u64 = 1 << 47;
const MOST_OF_ONE: u64 = 1 << 40;
/// Most different values of a histogram, of any that we make: three digits up to a minute.
const VALUES: u64 = 64 << 10;
/// Most seconds of a snapshot.
const SECONDS: u64 = 16;
/// Most bytes of a text.
const TEXT: u64 = 1024;

/// What the records of a run can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The lanes of their sender.
    pub lanes: Range<u16>,
    /// Pools.
    pub pools: usize,
    /// Phases.
    pub phases: usize,
    /// Requests of a pool.
    pub requests: usize,
}

/// What came is no record of this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged: {0}")]
pub struct Damaged(pub &'static str);

/// What is written.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.number(*number));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn histogram(&mut self, histogram: &Histogram<u64>) {
        self.number(histogram.iter_recorded().count() as u64);
        let mut last = 0;
        for value in histogram.iter_recorded() {
            let nanos = value.value_iterated_to().min(LONGEST);
            self.number(nanos - last);
            self.number(value.count_at_value());
            last = nanos;
        }
    }
}

/// What is left to read.
#[derive(Debug)]
pub(super) struct In<'a>(pub(super) &'a [u8]);

impl In<'_> {
    pub(super) fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(Damaged("it ends early"))?;
            self.0 = rest;
            let bits = u64::from(first & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if first & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Damaged("a number is too long"))
    }

    /// A number that is at most `most`.
    pub(super) fn upto(&mut self, most: u64) -> Result<u64, Damaged> {
        let number = self.number()?;
        if number > most { Err(Damaged("a number is too large")) } else { Ok(number) }
    }

    pub(super) fn text(&mut self) -> Result<String, Damaged> {
        let length = self.upto(TEXT)? as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Damaged("it ends early"))?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Damaged("a text is not UTF-8"))
    }

    /// The values of a histogram, with their counts.
    fn histogram(&mut self, mut record: impl FnMut(u64, u64)) -> Result<u64, Damaged> {
        let (mut last, mut total) = (0u64, 0u64);
        let values = self.upto(VALUES)?;
        for _ in 0..values {
            let (step, count) = (self.number()?, self.number()?);
            last = last.checked_add(step).filter(|v| *v <= LONGEST).ok_or(Damaged("a time is too long"))?;
            total = total
                .checked_add(count)
                .filter(|n| *n <= MOST_OF_ONE)
                .ok_or(Damaged("there are too many times"))?;
            record(last, count);
        }
        Ok(values)
    }

    fn times(&mut self) -> Result<Times, Damaged> {
        let mut times = Times::default();
        self.histogram(|nanos, count| times.record_n(nanos, count))?;
        Ok(times)
    }

    fn small(&mut self) -> Result<Option<Histogram<u64>>, Damaged> {
        // Without any there is no need of its memory.
        if self.0.first() == Some(&0) {
            self.0 = &self.0[1..];
            return Ok(None);
        }
        let mut histogram = small();
        self.histogram(|nanos, count| histogram.saturating_record_n(nanos.max(1), count))?;
        Ok(Some(histogram))
    }
}

impl LaneRecord {
    /// Adds the record to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut to = Out(std::mem::take(out));
        to.numbers(&[u64::from(self.bucket), self.pool as u64, self.flows, self.concurrency_max]);
        write_tally(&self.measured, &mut to);
        write_tally(&self.unmeasured, &mut to);
        let Spectra { latency, service, connect, tls, first_byte, slip, no_last_byte } = &self.spectra;
        to.number(u64::from(*no_last_byte));
        for counted in [latency, service, connect, tls, first_byte, slip] {
            let mut times = Times::default();
            counted.add_to(&mut times);
            to.histogram(&times.0);
        }
        to.number(self.slots.len() as u64);
        self.slots.iter().for_each(|slot| write_slot(slot, &mut to));
        self.fine_latency.write(&mut to);
        self.fine_slip.write(&mut to);
        for shares in [&self.parts.phases, &self.parts.requests] {
            to.number(shares.len() as u64);
            for share in shares {
                to.numbers(&[share.sent, share.answered, share.failed, share.unsent]);
                match &share.latency {
                    Some(latency) => to.histogram(latency),
                    None => to.number(0),
                }
            }
        }
        *out = to.0;
    }

    /// Takes a record from the beginning of `bytes`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &mut &[u8], limits: &Limits) -> Result<Self, Damaged> {
        let mut from = In(bytes);
        let (bucket, pool) = (lane(&mut from, limits)?, pool(&mut from, limits)?);
        let (flows, concurrency_max) = (from.upto(MOST_OF_ALL)?, from.upto(MOST_OF_ALL)?);
        let (measured, unmeasured) = (read_tally(&mut from)?, read_tally(&mut from)?);
        let no_last_byte = from.upto(1)? == 1;
        let mut counted = || from.times().map(Counted::from);
        let spectra = Spectra {
            latency: counted()?,
            service: counted()?,
            connect: counted()?,
            tls: counted()?,
            first_byte: counted()?,
            slip: counted()?,
            no_last_byte,
        };
        let slots = read_slots(&mut from, MOST as u64)?;
        let (fine_latency, fine_slip) = (Fine::read(&mut from)?, Fine::read(&mut from)?);
        let mut shares = |most: usize| -> Result<Vec<Share>, Damaged> {
            let count = from.upto(most as u64)?;
            (0..count)
                .map(|_| {
                    let mut number = || from.upto(MOST_OF_ALL);
                    let [sent, answered, failed, unsent] = [number()?, number()?, number()?, number()?];
                    let latency = from.small()?.map(Box::new);
                    Ok(Share { sent, answered, failed, unsent, latency })
                })
                .collect()
        };
        let parts =
            Parts { phases: shares(limits.phases)?, requests: shares(limits.requests)?, ..Parts::default() };
        *bytes = from.0;
        Ok(Self {
            bucket,
            pool,
            flows,
            measured,
            unmeasured,
            spectra,
            concurrency_max,
            slots,
            fine_latency,
            fine_slip,
            parts,
            // Agents are given no load of such streams.
            events: None,
        })
    }

    /// How late what this lane sent was, of the measured part of the run.
    #[must_use]
    pub fn slip(&self) -> Times {
        let mut times = Times::default();
        self.spectra.slip.add_to(&mut times);
        times
    }

    /// Its counts: requests sent, answered and failed, over the whole run.
    #[must_use]
    pub fn counts(&self) -> [u64; 3] {
        let both = |f: fn(&Tally) -> u64| f(&self.measured) + f(&self.unmeasured);
        [both(|t| t.sent), both(|t| t.answered), both(|t| t.errors)]
    }

    /// Requests of the measured part that were due: those sent, and those not.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.measured.sent + self.measured.unsent
    }
}

impl Snapshot {
    /// Adds the snapshot to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut to = Out(std::mem::take(out));
        to.numbers(&[
            u64::from(self.bucket),
            self.pool as u64,
            self.at,
            self.nanos,
            self.sent,
            self.answered,
        ]);
        to.numbers(&[self.failed, self.bytes_received, self.concurrency, self.closed.len() as u64]);
        self.closed.iter().for_each(|slot| write_slot(slot, &mut to));
        *out = to.0;
    }

    /// Takes a snapshot from the beginning of `bytes`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &mut &[u8], limits: &Limits) -> Result<Self, Damaged> {
        let mut from = In(bytes);
        let snapshot = Self {
            bucket: lane(&mut from, limits)?,
            pool: pool(&mut from, limits)?,
            at: from.upto(MOST_OF_ALL)?,
            nanos: from.upto(MOST_OF_ALL)?,
            sent: from.upto(MOST_OF_ALL)?,
            answered: from.upto(MOST_OF_ALL)?,
            failed: from.upto(MOST_OF_ALL)?,
            bytes_received: from.upto(MOST_OF_ALL)?,
            concurrency: from.upto(MOST_OF_ALL)?,
            closed: read_slots(&mut from, SECONDS)?,
        };
        *bytes = from.0;
        Ok(snapshot)
    }
}

fn lane(from: &mut In<'_>, limits: &Limits) -> Result<u16, Damaged> {
    let bucket = from.upto(u64::from(u16::MAX))? as u16;
    if limits.lanes.contains(&bucket) { Ok(bucket) } else { Err(Damaged("it is of a lane of another part")) }
}

fn pool(from: &mut In<'_>, limits: &Limits) -> Result<usize, Damaged> {
    let pool = from.number()? as usize;
    if pool < limits.pools { Ok(pool) } else { Err(Damaged("it is of a pool that there is not")) }
}

fn write_slot(slot: &Slot, to: &mut Out) {
    to.numbers(&[slot.from, slot.length, slot.sent, slot.answered, slot.failed]);
    to.numbers(&[slot.bytes_sent, slot.bytes_received, slot.opened, slot.concurrency]);
    to.histogram(&slot.latency().0);
    to.histogram(&slot.slip().0);
}

fn read_slots(from: &mut In<'_>, most: u64) -> Result<Vec<Slot>, Damaged> {
    let count = from.upto(most)?;
    (0..count)
        .map(|_| {
            // More seconds than there are in a thousand years, and then a multiple of the length.
            let (at, length) = (from.upto(1 << 35)?, from.upto(1 << 30)?);
            if !length.is_power_of_two() || !at.is_multiple_of(length) {
                return Err(Damaged("an interval is none"));
            }
            let mut number = || from.upto(MOST_OF_ALL);
            let mut slot = Slot {
                from: at,
                length,
                sent: number()?,
                answered: number()?,
                failed: number()?,
                bytes_sent: number()?,
                bytes_received: number()?,
                opened: number()?,
                concurrency: number()?,
                ..Slot::default()
            };
            slot.pack(from.small()?.as_ref(), from.small()?.as_ref());
            Ok(slot)
        })
        .collect()
}

fn write_tally(tally: &Tally, to: &mut Out) {
    to.numbers(&[tally.sent, tally.answered, tally.unsent, tally.held_up, tally.bytes_sent]);
    to.numbers(&[tally.bytes_received, tally.opened, tally.not_opened, tally.closed, tally.other_codes]);
    to.number(tally.codes.len() as u64);
    tally.codes.iter().for_each(|(code, count)| to.numbers(&[u64::from(*code), *count]));
    for (count, example) in tally.kinds.iter().zip(&tally.examples) {
        to.number(*count);
        to.text(example.as_deref().unwrap_or_default());
    }
    to.number(tally.named.len() as u64);
    for (name, count) in &tally.named {
        to.text(name);
        to.number(*count);
    }
}

fn read_tally(from: &mut In<'_>) -> Result<Tally, Damaged> {
    let mut number = || from.upto(MOST_OF_ALL);
    let mut tally = Tally {
        sent: number()?,
        answered: number()?,
        unsent: number()?,
        held_up: number()?,
        bytes_sent: number()?,
        bytes_received: number()?,
        opened: number()?,
        not_opened: number()?,
        closed: number()?,
        other_codes: number()?,
        ..Tally::default()
    };
    for _ in 0..from.upto(super::tally::CODES as u64)? {
        let code = from.upto(u64::from(u16::MAX))? as u16;
        tally.codes.push((code, from.upto(MOST_OF_ALL)?));
    }
    for i in 0..ErrorKind::ALL.len() {
        let (count, example) = (from.upto(MOST_OF_ONE)?, from.text()?);
        (tally.kinds[i], tally.errors) = (count, tally.errors + count);
        tally.examples[i] = (count > 0).then(|| example.into_boxed_str());
    }
    for _ in 0..from.upto(super::tally::CODES as u64)? {
        tally.named.push((Cow::Owned(from.text()?), from.upto(MOST_OF_ALL)?));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests;
