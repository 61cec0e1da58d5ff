//! `pcap:IN,OUT`: packets from a capture file, packets into one; and a mirror that records any link.
//!
//! The reading side gives the packets of the input as fast as they are taken, and then no more. Since a file has no
//! RSS, everything is received on queue 0; the classifier of the worker sends it on. The writing side is one file for
//! all queues. Files written are classic pcap with nanosecond time stamps (magic `a1b23c4d`), Ethernet; read is either
//! resolution and byte order.
//!
//! Recording costs a lock and a buffered write per packet: it is for debugging, not for speed. A link without recording has no cost, since
//! [`Mirror`] wraps its queues only on request. If the file cannot be written any more (disk full), recording stops and is
//! counted, and traffic continues.

use super::{LinkInfo, OpenError, Outstanding, Queue, QueueStats};
use crate::written;
use flowlane_stack::wire::MacAddr;
use flowlane_sys::frame::{Frame, Pool};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of a packet that are recorded at most.
const SNAP_LEN: u32 = 262_144;

/// How to open a pcap link.
#[derive(Debug, Clone)]
pub struct PcapOptions {
    /// File to receive from; `None`: nothing is received.
    pub input: Option<PathBuf>,
    /// File for sent packets; `None` to discard them.
    pub output: Option<PathBuf>,
    /// The link's Ethernet address.
    pub mac: MacAddr,
    /// The link's MTU, bytes.
    pub mtu: u16,
    /// Clock for the time stamps of sent packets: nanoseconds since 1970.
    pub clock: fn() -> u64,
}

/// Opens the link with a queue for each worker. Only [`Queue::ready`] shows the end of the input: it then returns `false` for ever.
///
/// # Errors
/// [`OpenError::Capture`]; [`OpenError::Option`] when the input is not of Ethernet.
pub fn open(options: &PcapOptions, workers: usize) -> Result<(LinkInfo, Vec<Box<dyn Queue>>), OpenError> {
    let show = |p: &Option<PathBuf>| p.as_ref().map_or(String::new(), |p| p.display().to_string());
    let name = format!("pcap:{},{}", show(&options.input), show(&options.output));
    let mut input = options.input.as_deref().map(Input::open).transpose()?;
    let output = options.output.as_deref().map(|path| Capture::create(path, options.clock)).transpose()?;
    let queues = (0..workers.max(1))
        .map(|i| {
            let input = if i == 0 { input.take() } else { None };
            let stats = QueueStats::default();
            Box::new(PcapQueue { input, output: output.clone(), queue: i as u16, stats }) as Box<dyn Queue>
        })
        .collect::<Vec<_>>();
    let info = LinkInfo::new(name, options.mac, options.mtu, queues.len());
    Ok((info, queues))
}

/// A capture file being read, with the packet that comes next.
struct Input {
    reader: PcapReader<BufReader<File>>,
    next: Option<(u64, Vec<u8>)>,
    bad: u64,
    _noted: written::Noted,
}

impl Input {
    fn open(path: &Path) -> Result<Self, OpenError> {
        let file = File::open(path).map_err(|source| OpenError::Capture { path: path.to_owned(), source })?;
        let noted = written::note_read(&file);
        let reader = PcapReader::new(BufReader::new(file))
            .map_err(|e| OpenError::Capture { path: path.to_owned(), source: to_io(e) })?;
        // Guard: `reader.header().datalink != DataLink::ETHERNET` as `false` fails link::pcap
        if reader.header().datalink != DataLink::ETHERNET {
            let what = format!("is of {:?}, not of Ethernet", reader.header().datalink);
            return Err(OpenError::Option { link: format!("pcap:{}", path.display()), what });
        }
        let mut input = Self { reader, next: None, bad: 0, _noted: noted };
        input.advance();
        Ok(input)
    }

    fn advance(&mut self) {
        self.next = None;
        match self.reader.next_packet() {
            Some(Ok(packet)) => {
                let time = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(0);
                self.next = Some((time, packet.data.into_owned()));
            }
            // A file cut short ends here; what was whole has been delivered.
            Some(Err(_)) => self.bad += 1,
            None => {}
        }
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("more", &self.next.is_some()).finish_non_exhaustive()
    }
}

fn to_io(e: PcapError) -> io::Error {
    match e {
        PcapError::IoError(e) => e,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

/// A capture file being written, by any number of queues.
#[derive(Clone)]
pub struct Capture {
    shared: Arc<Mutex<CaptureFile>>,
    clock: fn() -> u64,
}

struct CaptureFile {
    writer: PcapWriter<BufWriter<File>>,
    lost: u64,
}

impl Capture {
    /// Makes the file, or empties it. `clock` gives nanoseconds since 1970.
    ///
    /// # Errors
    /// [`OpenError::Capture`].
    pub fn create(path: &Path, clock: fn() -> u64) -> Result<Self, OpenError> {
        let error = |source| OpenError::Capture { path: path.to_owned(), source };
        let file = written::open_for_writing(path, 0o666).map_err(error)?;
        if file.metadata().map_err(error)?.is_file() {
            file.set_len(0).map_err(error)?;
        }
        let header = PcapHeader {
            version_major: 2,
            version_minor: 4,
            ts_correction: 0,
            ts_accuracy: 0,
            snaplen: SNAP_LEN,
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::native(),
        };
        let writer = PcapWriter::with_header(BufWriter::with_capacity(1 << 16, file), header)
            .map_err(|e| error(to_io(e)))?;
        Ok(Self { shared: Arc::new(Mutex::new(CaptureFile { writer, lost: 0 })), clock })
    }

    /// Writes one frame, its chain in one piece and a tag held beside the data put back in. `timestamp` of the frame
    /// counts if it has one.
    pub fn record(&self, frame: &Frame) {
        let mut bytes = frame.chunks().collect::<Vec<_>>().concat();
        if let (Some(tag), true) = (frame.meta().vlan, bytes.len() >= 12) {
            bytes.splice(12..12, [[0x81, 0x00], tag.to_be_bytes()].concat());
        }
        let time = if frame.meta().timestamp != 0 { frame.meta().timestamp } else { (self.clock)() };
        let packet = PcapPacket {
            timestamp: Duration::from_nanos(time),
            orig_len: bytes.len() as u32,
            data: Cow::Owned(bytes),
        };
        let mut file = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if file.writer.write_packet(&packet).is_err() {
            file.lost += 1;
        }
    }

    /// Packets that could not be written.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).lost
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct PcapQueue {
    input: Option<Input>,
    output: Option<Capture>,
    queue: u16,
    stats: QueueStats,
}

impl Queue for PcapQueue {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let Some(input) = self.input.as_mut() else { return 0 };
        let mut count = 0;
        while count < max {
            let Some((time, data)) = &input.next else { break };
            let Some(mut frame) = pool.alloc() else {
                self.stats.rx_no_frame += 1;
                break;
            };
            if frame.extend_from_slice(data) {
                frame.meta_mut().queue = self.queue;
                frame.meta_mut().timestamp = *time;
                self.stats.rx_frames += 1;
                self.stats.rx_bytes += data.len() as u64;
                into.push(frame);
                count += 1;
            } else {
                self.stats.rx_bad += 1;
            }
            input.advance();
        }
        count
    }

    fn room(&mut self) -> usize {
        usize::MAX
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len();
        for frame in frames.drain(..) {
            self.stats.tx_frames += 1;
            self.stats.tx_bytes += frame.chain_len() as u64;
            if let Some(output) = &self.output {
                output.record(&frame);
            }
        }
        count
    }

    fn flush(&mut self) -> bool {
        true
    }

    fn ready(&mut self) -> bool {
        self.input.as_ref().is_some_and(|i| i.next.is_some())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn waits(&self) -> bool {
        self.input.is_some()
    }

    fn stats(&self) -> QueueStats {
        let bad = self.input.as_ref().map_or(0, |i| i.bad);
        QueueStats { rx_bad: self.stats.rx_bad + bad, ..self.stats }
    }
}

/// A queue whose packets, both ways, are recorded.
#[derive(Debug)]
pub struct Mirror<Q: ?Sized> {
    capture: Capture,
    inner: Box<Q>,
}

impl<Q: Queue + ?Sized> Mirror<Q> {
    /// Records what passes through `inner`.
    #[must_use]
    pub fn new(inner: Box<Q>, capture: Capture) -> Self {
        Self { capture, inner }
    }
}

impl<Q: Queue + ?Sized> Queue for Mirror<Q> {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let before = into.len();
        let count = self.inner.receive(pool, into, max);
        for frame in &into[before..] {
            self.capture.record(frame);
        }
        count
    }

    fn room(&mut self) -> usize {
        self.inner.room()
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        // Recorded before they go: afterwards they are no longer ours. What would not go is not recorded.
        let count = self.inner.room().min(frames.len());
        for frame in &frames[..count] {
            self.capture.record(frame);
        }
        let mut going: Vec<Frame> = frames.drain(..count).collect();
        let taken = self.inner.transmit(&mut going);
        if !going.is_empty() {
            going.append(frames);
            *frames = going;
        }
        taken
    }

    fn flush(&mut self) -> bool {
        self.inner.flush()
    }

    fn ready(&mut self) -> bool {
        self.inner.ready()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn clear_error(&mut self) -> bool {
        self.inner.clear_error()
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }

    fn outstanding(&self) -> Option<Outstanding> {
        self.inner.outstanding()
    }
}

#[cfg(test)]
mod tests;
