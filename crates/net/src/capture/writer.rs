//! The thread that writes a capture's file, and what is known of it meanwhile.
//!
//! It looks at every worker's ring twenty times a second, or without pause while there is something. A block is written whole or not at all:
//! if the disk is full the file gets the blocks that still fit and is cut back to the last whole one, so that it can be read.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::chunk::Kind;
use super::pcapng::{Blocks, Interface};
use super::{CaptureOptions, Tap, create};
use crate::events;

/// How often rings are looked at.
const EVERY: Duration = Duration::from_millis(50);
/// How long workers are waited for at the end: one that does not turn has nothing more to say.
const LAST: Duration = Duration::from_secs(1);
/// Bytes that are written at once.
const AT_ONCE: usize = 256 << 10;
/// Room that is kept for the statistics of an interface at the end of the file.
const STATISTICS: u64 = 64;

/// Why a capture ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was stopped, or the runtime has.
    Stopped,
    /// It lasted as long as it was to last.
    Time,
    /// The file is as large as it may be.
    Full,
    /// Nobody asked for its status any more.
    Forgotten,
    /// The file could not be written.
    Failed(String),
}

/// What a capture has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaptureStatus {
    /// The file.
    pub path: PathBuf,
    /// Frames in the file.
    pub frames: u64,
    /// Of them, those that were dropped.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Frames that were to be captured and are not in the file: the writer was behind, or the disk was full.
    pub missed: u64,
    /// Why it ended, if it has.
    pub ended: Option<Ended>,
}

#[derive(Debug)]
struct Known {
    status: CaptureStatus,
    stop: bool,
    asked: Instant,
    /// The thread has ended, and the file is closed.
    closed: bool,
}

/// A capture that runs, or has.
#[derive(Debug)]
pub(crate) struct Writer {
    known: Arc<(Mutex<Known>, Condvar)>,
    tap: Arc<Tap>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Makes the file and starts the thread. `over` tells the workers that it is over.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub(crate) fn start(
        options: &CaptureOptions,
        interfaces: &[Interface],
        tap: Arc<Tap>,
        over: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let mut file = create(&options.path, options.overwrite)?;
        let mut blocks = Blocks::default();
        blocks.header(interfaces, options.snap);
        if let Err(error) = file.write_all(&blocks.bytes) {
            drop(file);
            let _ = std::fs::remove_file(&options.path);
            return Err(error);
        }
        let status = CaptureStatus {
            path: options.path.clone(),
            bytes: blocks.bytes.len() as u64,
            ..CaptureStatus::default()
        };
        let now = Instant::now();
        let known = Known { status, stop: false, asked: now, closed: false };
        let known = Arc::new((Mutex::new(known), Condvar::new()));
        blocks.bytes.clear();
        let mut work = Work {
            known: known.clone(),
            tap: tap.clone(),
            file,
            blocks,
            pending: Vec::new(),
            counts: vec![0; interfaces.len()],
            written: 0,
            unwritten: 0,
            frames: 0,
            dropped: 0,
            missed: 0,
            told: 0,
            max: options.max_bytes.saturating_sub(STATISTICS * interfaces.len() as u64),
            until: options.lasts.map(|lasts| now + lasts),
            lease: options.lease,
        };
        work.written = work.status().bytes;
        let run = move || work.run(over);
        let thread = thread::Builder::new().name("flowlane-capture".into()).spawn(run)?;
        Ok(Self { known, tap, thread: Mutex::new(Some(thread)) })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it has done so far. Who asks shows that it is still wanted.
    pub(crate) fn status(&self) -> CaptureStatus {
        let mut known = self.known();
        known.asked = Instant::now();
        known.status.clone()
    }

    /// Whether it has ended and its file is closed.
    pub(crate) fn has_ended(&self) -> bool {
        self.known().closed
    }

    /// Ends it, and waits until its file is closed.
    pub(crate) fn stop(&self) -> CaptureStatus {
        self.known().stop = true;
        self.known.1.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.status()
    }
}

impl Writer {
    /// As [`Writer::stop`], when no worker has begun: none is waited for.
    pub(super) fn stop_unheard(&self) -> CaptureStatus {
        self.tap.workers.store(0, Ordering::Release);
        self.stop()
    }
}

/// A block that waits.
#[derive(Debug, Clone, Copy)]
struct Pending {
    /// Where it ends in the blocks.
    end: usize,
    /// If it is a frame: its interface, and whether it was dropped.
    frame: Option<(u32, bool)>,
}

struct Work {
    known: Arc<(Mutex<Known>, Condvar)>,
    tap: Arc<Tap>,
    file: File,
    /// Blocks that are not written yet.
    blocks: Blocks,
    /// What they are.
    pending: Vec<Pending>,
    /// Frames of each interface.
    counts: Vec<u64>,
    /// Bytes in the file.
    written: u64,
    frames: u64,
    dropped: u64,
    missed: u64,
    /// Frames that the disk had no room for.
    unwritten: u64,
    /// Of the missed, those that a packet of the file tells.
    told: u64,
    max: u64,
    until: Option<Instant>,
    lease: Option<Duration>,
}

impl Work {
    fn status(&self) -> CaptureStatus {
        self.known.0.lock().unwrap_or_else(PoisonError::into_inner).status.clone()
    }

    fn run(&mut self, over: impl FnOnce()) {
        let mut ended = loop {
            let (some, end) = self.pass();
            let end = end.or_else(|| self.asked_to_end());
            self.tell(None);
            if let Some(end) = end {
                break end;
            }
            if !some {
                self.wait();
            }
        };
        self.tap.over.store(true, Ordering::Relaxed);
        over();
        if matches!(ended, Ended::Stopped | Ended::Time | Ended::Forgotten) {
            let deadline = Instant::now() + LAST;
            while self.tap.workers.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            if let (_, Some(end)) = self.pass() {
                ended = end;
            }
        }
        if !matches!(ended, Ended::Failed(_)) {
            self.statistics();
            if let Err(error) = self.flush() {
                ended = failed(&error);
            }
        }
        if let Ended::Failed(why) = &ended {
            events::capture_failed(&self.status().path, why);
        }
        self.tell(Some(ended));
    }

    /// Waits for a moment, or until somebody stops it.
    fn wait(&self) {
        let known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.stop {
            drop(self.known.1.wait_timeout(known, EVERY));
        }
    }

    fn asked_to_end(&self) -> Option<Ended> {
        let known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.stop || self.tap.workers.load(Ordering::Acquire) == 0 {
            Some(Ended::Stopped)
        } else if self.until.is_some_and(|until| Instant::now() >= until) {
            Some(Ended::Time)
        // Guard: `self.lease.is_some_and(|lease| known.asked.elapsed() > lease)` as `false` fails
        // capture::tests::a_forgotten_capture_ends
        } else if self.lease.is_some_and(|lease| known.asked.elapsed() > lease) {
            Some(Ended::Forgotten)
        } else {
            None
        }
    }

    fn tell(&self, ended: Option<Ended>) {
        let mut known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.closed = ended.is_some();
        let status = &mut known.status;
        (status.frames, status.dropped, status.bytes) = (self.frames, self.dropped, self.written);
        status.missed = self.missed + self.unwritten;
        status.ended = ended;
    }

    /// Writes what is in the rings. Whether there was something, and why it is over, if it is.
    fn pass(&mut self) -> (bool, Option<Ended>) {
        let mut some = false;
        for worker in 0..self.tap.rings.len() {
            // No more than there are chunks: others have their turn.
            for _ in 0..64 {
                let Some(chunk) = self.tap.rings[worker].take() else { break };
                some = true;
                self.missed = self.tap.rings.iter().map(super::chunk::Ring::lost).sum();
                let full = self.put(worker, &chunk);
                self.tap.rings[worker].give_back(chunk);
                if full {
                    return (true, Some(self.flush().map_or_else(|e| failed(&e), |()| Ended::Full)));
                }
                if self.blocks.bytes.len() >= AT_ONCE
                    && let Err(error) = self.flush()
                {
                    return (true, Some(failed(&error)));
                }
            }
        }
        self.missed = self.tap.rings.iter().map(super::chunk::Ring::lost).sum();
        let end = self.flush().err().as_ref().map(failed);
        (some, end)
    }

    /// Makes blocks of a chunk; `true` if the file has no room for all of them.
    fn put(&mut self, worker: usize, chunk: &super::chunk::Chunk) -> bool {
        let mut at = 0;
        for record in &chunk.records {
            let data = &chunk.bytes[at..at + record.kept as usize];
            at += record.kept as usize;
            let before = self.blocks.bytes.len();
            self.blocks.packet(record, data, worker, self.missed - self.told);
            // Guard: `self.written + self.blocks.bytes.len() as u64 > self.max` as `false` fails
            // capture::tests::a_full_file_is_whole
            if self.written + self.blocks.bytes.len() as u64 > self.max {
                self.blocks.bytes.truncate(before);
                return true;
            }
            self.told = self.missed;
            self.frames += 1;
            let dropped = matches!(record.kind, Kind::Dropped(..));
            self.dropped += u64::from(dropped);
            let frame = Some((record.interface, dropped));
            self.pending.push(Pending { end: self.blocks.bytes.len(), frame });
            if let Some(count) = self.counts.get_mut(record.interface as usize) {
                *count += 1;
            }
        }
        false
    }

    fn statistics(&mut self) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let time = now.map_or(0, |now| now.as_nanos() as u64);
        for (interface, count) in self.counts.clone().into_iter().enumerate() {
            // Which interface a frame was of that was not looked at is not known.
            let missed = if interface == 0 { self.missed } else { 0 };
            self.blocks.statistics(interface as u32, time, count, missed);
            self.pending.push(Pending { end: self.blocks.bytes.len(), frame: None });
        }
    }

    /// Writes what waits, as many whole blocks as fit.
    fn flush(&mut self) -> io::Result<()> {
        if self.blocks.bytes.is_empty() {
            return Ok(());
        }
        let (before, ends) = (self.written, self.pending.iter().map(|block| block.end));
        let (whole, written) =
            write_blocks(&mut self.file, &self.blocks.bytes, &ends.collect::<Vec<_>>(), |file, whole| {
                let end = before + whole as u64;
                let _ = file.set_len(end);
                let _ = file.seek(SeekFrom::Start(end));
            });
        self.written += whole as u64;
        for block in self.pending.iter().filter(|block| block.end > whole) {
            let Some((interface, dropped)) = block.frame else { continue };
            self.frames -= 1;
            self.dropped -= u64::from(dropped);
            self.unwritten += 1;
            if let Some(count) = self.counts.get_mut(interface as usize) {
                *count -= 1;
            }
        }
        self.pending.clear();
        self.blocks.bytes.clear();
        written
    }
}

/// Writes blocks, which end at `ends`: all at once, and if that fails as many as fit. `cut` takes back what is behind so many bytes of them.
/// The bytes of whole blocks that are written, and why they are not all.
pub(super) fn write_blocks<W: Write>(
    file: &mut W,
    bytes: &[u8],
    ends: &[usize],
    mut cut: impl FnMut(&mut W, usize),
) -> (usize, io::Result<()>) {
    let (some, all) = write_some(file, bytes);
    if all.is_ok() {
        return (bytes.len(), all);
    }
    let whole = ends.partition_point(|end| *end <= some);
    let mut done = whole.checked_sub(1).map_or(0, |last| ends[last]);
    cut(file, done);
    // A file system may refuse a large write and take a small one.
    for end in &ends[whole..] {
        let (_, one) = write_some(file, &bytes[done..*end]);
        if one.is_err() {
            // Guard: `cut(file, done)` as `()` fails capture::tests::a_full_disk
            cut(file, done);
            return (done, one);
        }
        done = *end;
    }
    (done, Ok(()))
}

/// How many bytes are written, and why they are not all.
fn write_some(file: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match file.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

fn failed(error: &io::Error) -> Ended {
    Ended::Failed(crate::written::in_words(error))
}
