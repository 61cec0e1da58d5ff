//! Records and snapshots as bytes, for runs that several generators make together: each sends its own, and one merges all.
//!
//! A histogram is a list of its values, each the difference from the one before, with their counts: recording them again
//! gives the same histogram, so nothing is lost on the way. What comes may be from anyone: [`Limits`] says what a run can have, every length
//! is checked against it before there is memory for it, and what is not as it should be is [`Damaged`].

use std::borrow::Cow;
use std::ops::Range;

use hdrhistogram::Histogram;

pub use super::bytes::Damaged;
use super::bytes::{In, Out};
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
            write_histogram(&times.0, &mut to);
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
                    Some(latency) => write_histogram(latency, &mut to),
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
        let mut counted = || read_times(&mut from).map(Counted::from);
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
                    let latency = read_small(&mut from)?.map(Box::new);
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

    /// The number of its pool.
    #[must_use]
    pub fn pool(&self) -> usize {
        self.pool
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
            passed: None,
        };
        *bytes = from.0;
        Ok(snapshot)
    }
}

fn write_histogram(histogram: &Histogram<u64>, to: &mut Out) {
    to.number(histogram.iter_recorded().count() as u64);
    let mut last = 0;
    for value in histogram.iter_recorded() {
        let nanos = value.value_iterated_to().min(LONGEST);
        to.numbers(&[nanos - last, value.count_at_value()]);
        last = nanos;
    }
}

/// The values of a histogram, with their counts.
fn read_histogram(from: &mut In<'_>, mut record: impl FnMut(u64, u64)) -> Result<(), Damaged> {
    let (mut last, mut total) = (0u64, 0u64);
    for _ in 0..from.upto(VALUES)? {
        let (step, count) = (from.number()?, from.number()?);
        last = last.checked_add(step).filter(|v| *v <= LONGEST).ok_or(Damaged("a time is too long"))?;
        total = total
            .checked_add(count)
            .filter(|n| *n <= MOST_OF_ONE)
            .ok_or(Damaged("there are too many times"))?;
        record(last, count);
    }
    Ok(())
}

fn read_times(from: &mut In<'_>) -> Result<Times, Damaged> {
    let mut times = Times::default();
    read_histogram(from, |nanos, count| times.record_n(nanos, count))?;
    Ok(times)
}

fn read_small(from: &mut In<'_>) -> Result<Option<Histogram<u64>>, Damaged> {
    // Without any there is no need of its memory.
    if let Some(rest) = from.0.strip_prefix(&[0]) {
        from.0 = rest;
        return Ok(None);
    }
    let mut histogram = small();
    read_histogram(from, |nanos, count| histogram.saturating_record_n(nanos.max(1), count))?;
    Ok(Some(histogram))
}

fn lane(from: &mut In<'_>, limits: &Limits) -> Result<u16, Damaged> {
    let bucket = from.upto(u64::from(u16::MAX))? as u16;
    // Guard: `limits.lanes.contains(&bucket)` as `true` fails report::travel::tests::damaged_records
    if limits.lanes.contains(&bucket) { Ok(bucket) } else { Err(Damaged("it is of a lane of another part")) }
}

fn pool(from: &mut In<'_>, limits: &Limits) -> Result<usize, Damaged> {
    let pool = from.number()? as usize;
    if pool < limits.pools { Ok(pool) } else { Err(Damaged("it is of a pool that there is not")) }
}

fn write_slot(slot: &Slot, to: &mut Out) {
    to.numbers(&[slot.from, slot.length, slot.sent, slot.answered, slot.failed]);
    to.numbers(&[slot.bytes_sent, slot.bytes_received, slot.opened, slot.concurrency]);
    write_histogram(&slot.latency().0, to);
    write_histogram(&slot.slip().0, to);
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
            slot.pack(read_small(from)?.as_ref(), read_small(from)?.as_ref());
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
    to.number(tally.firsts.len() as u64);
    for (name, first) in &tally.firsts {
        to.text(name);
        to.text(first);
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
    for _ in 0..from.upto(super::tally::CODES as u64)? {
        tally.firsts.push((Cow::Owned(from.text()?), from.text()?.into_boxed_str()));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests;
