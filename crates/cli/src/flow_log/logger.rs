//! The thread that writes the files.
//!
//! When the disk is full, or the directory gone, the rows at hand are lost and counted, one line says why, and it is tried again with a new
//! file after a while.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowlane::FlowRecords;
use flowlane_stack::time::Time;

use super::files::{Part, Target};
use super::table::{Row, Table};
use crate::say::say;

/// Records that wait to be written, at most: about 2.5 MB.
const WAITING: usize = 1 << 14;
/// Rows of a row group, which are in memory until it is full: about 3 MB.
const GROUP: usize = if cfg!(test) { 16 } else { 1 << 14 };
/// How often the queue is emptied.
const EVERY: Duration = Duration::from_millis(100);
/// How long it is after a fault before the disk is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// What became of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Logged {
    /// Records in files that are whole.
    pub(crate) written: u64,
    /// Those files.
    pub(crate) files: u64,
    /// Records that could not be written: a fault of the disk, or as many bytes as were allowed.
    pub(crate) failed: u64,
    /// Records that found no room in a lane's ring or in the queue.
    pub(crate) lost: u64,
}

/// A log that runs.
#[derive(Debug)]
pub(crate) struct FlowLog {
    records: FlowRecords,
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Logged>,
}

impl FlowLog {
    /// A queue for the records of a log.
    pub(crate) fn queue() -> FlowRecords {
        FlowRecords::new(WAITING)
    }

    /// Makes the first file and starts the thread; `now`: the lanes' clock.
    ///
    /// # Errors
    /// The file cannot be made, or there is no thread to be had.
    pub(crate) fn start(records: FlowRecords, target: &Target, now: Time) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let mut logger = Logger {
            records: records.clone(),
            target: target.clone(),
            number: target.first_number()?,
            epoch: SystemTime::now() - Duration::from_nanos(now.as_nanos()),
            rows: Vec::new(),
            part: None,
            finish_at: Instant::now(),
            retry_at: Instant::now(),
            bytes: 0,
            complained: false,
            full: false,
            done: Logged::default(),
        };
        logger.begin()?;
        let first = logger.number - 1;
        let run = move || {
            while matches!(stopped.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
                logger.turn(false);
            }
            logger.turn(true);
            if logger.done.files == 1 {
                logger.target.name_only(first);
            }
            logger.done
        };
        let thread = thread::Builder::new().name("flowlane-flow-log".into()).spawn(run)?;
        Ok(Self { records, stop, thread })
    }

    /// Writes what is left, after the runtime has stopped; `in_lanes`: records that the rings of the lanes had no room for.
    pub(crate) fn end(self, in_lanes: u64) -> Logged {
        let _ = self.stop.send(());
        let done = self.thread.join().unwrap_or_default();
        Logged { lost: in_lanes + self.records.lost(), ..done }
    }
}

struct Logger {
    records: FlowRecords,
    target: Target,
    /// Of the next file.
    number: u32,
    /// When the lanes' clock was zero.
    epoch: SystemTime,
    rows: Vec<Row>,
    part: Option<Part>,
    finish_at: Instant,
    retry_at: Instant,
    /// Of finished files.
    bytes: u64,
    complained: bool,
    /// All bytes that were allowed are used.
    full: bool,
    done: Logged,
}

impl Logger {
    fn begin(&mut self) -> io::Result<()> {
        let part = loop {
            match Part::begin(&self.target, self.number) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.number += 1,
                other => break other?,
            }
        };
        self.number += 1;
        self.finish_at = Instant::now() + self.target.every;
        self.part = Some(part);
        Ok(())
    }

    /// Takes what waits, and writes what is due; `last`: all of it.
    fn turn(&mut self, last: bool) {
        // No more than waited when it began: lanes may be faster than the disk.
        for _ in 0..WAITING {
            let Some(record) = self.records.try_next() else { break };
            let (began, ended) = (self.nanos(record.began), self.nanos(record.ended));
            self.rows.push(Row { record, began, ended });
            if self.rows.len() == GROUP {
                self.write();
            }
        }
        if !last && Instant::now() < self.finish_at {
            return;
        }
        let empty = self.rows.is_empty() && self.part.as_ref().is_none_or(|part| part.rows() == 0);
        if empty && !last {
            // A file without rows is of no use to anybody: it waits for some.
            self.finish_at = Instant::now() + self.target.every;
        } else {
            self.write();
            self.finish();
        }
    }

    fn nanos(&self, time: Time) -> i64 {
        let at = self.epoch + Duration::from_nanos(time.as_nanos());
        at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
    }

    /// Writes the rows at hand, to a new file if there is none.
    fn write(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        let all = rows.len();
        rows.truncate(self.fitting(all));
        self.done.failed += (all - rows.len()) as u64;
        if rows.len() < all {
            self.filled();
        }
        if rows.is_empty() {
            if self.full {
                self.finish();
            }
            return;
        }
        if self.part.is_none() {
            let begun = if Instant::now() >= self.retry_at { self.begin() } else { Ok(()) };
            if let Err(error) = begun {
                self.fault(&error);
            }
        }
        let Some(part) = &mut self.part else {
            self.done.failed += rows.len() as u64;
            return;
        };
        let written = part.write(&rows);
        let (bytes, size) = (part.bytes(), self.target.size);
        if let Err(error) = written {
            self.done.failed += rows.len() as u64;
            self.done.failed += self.part.take().map_or(0, Part::give_up);
            self.fault(&error);
        } else if bytes >= size || self.full {
            self.finish();
        }
    }

    /// How many of so many rows there is room for: all files of a run together have at most `max` bytes, footers included.
    fn fitting(&self, rows: usize) -> usize {
        if self.full {
            return 0;
        }
        let with = |rows: usize| match &self.part {
            Some(part) => part.at_most(rows as u64),
            None => Table::new_at_most(rows as u64),
        };
        let fits = |rows: &usize| self.bytes + with(*rows) <= self.target.most;
        // Guard: `fits(&rows)` as `true` fails flow_log::tests::files_are_bounded
        if fits(&rows) { rows } else { (0..rows).rev().find(fits).unwrap_or(0) }
    }

    /// Finishes the file.
    fn finish(&mut self) {
        self.finish_at = Instant::now() + self.target.every;
        let Some(part) = self.part.take() else { return };
        let rows = part.rows();
        match part.finish() {
            Ok(bytes) => {
                self.done.written += rows;
                self.done.files += 1;
                self.bytes += bytes;
            }
            Err(error) => {
                self.done.failed += rows;
                self.fault(&error);
            }
        }
    }

    /// Says once that there is no more room.
    fn filled(&mut self) {
        if !std::mem::replace(&mut self.full, true) {
            let (target, most) = (&self.target, self.target.most);
            say!(
                "flowlane: --flow-log {target}: max={most} bytes are used: later records are counted, not written"
            );
        }
    }

    /// Says once what went wrong.
    fn fault(&mut self, error: &io::Error) {
        self.retry_at = Instant::now() + AGAIN;
        if !std::mem::replace(&mut self.complained, true) {
            say!("flowlane: --flow-log {}: {error}: records are lost", self.target);
        }
    }
}
