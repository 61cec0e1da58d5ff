//! Blocks of pcapng (IETF draft-ietf-opsawg-pcapng): section header, interfaces, packets with options, statistics. In the machine's byte
//! order, which the section header tells.

use std::fmt::Write;

use super::chunk::{Kind, Record};

const SECTION: u32 = 0x0a0d_0d0a;
const ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// The link type of all interfaces: Ethernet. libpcap, and so tcpdump, reads no file with several.
const ETHERNET: u16 = 1;
/// Options: every block's end and comment.
const END: u16 = 0;
const COMMENT: u16 = 1;
/// The algorithm of `epb_hash` that is Toeplitz.
const TOEPLITZ: u8 = 5;
/// Nanoseconds: `if_tsresol`.
const NANOSECONDS: u8 = 9;

/// An interface of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) description: String,
}

/// Blocks, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) bytes: Vec<u8>,
    comment: String,
}

impl Blocks {
    /// The beginning of a file.
    pub(super) fn header(&mut self, interfaces: &[Interface], snap: usize) {
        let begin = self.begin(SECTION);
        self.u32(ORDER);
        self.bytes.extend(1_u16.to_ne_bytes());
        self.bytes.extend(0_u16.to_ne_bytes());
        self.bytes.extend(u64::MAX.to_ne_bytes());
        self.option(4, concat!("flowlane ", env!("CARGO_PKG_VERSION")).as_bytes());
        self.end(begin);
        for interface in interfaces {
            let begin = self.begin(INTERFACE);
            self.bytes.extend(ETHERNET.to_ne_bytes());
            self.bytes.extend(0_u16.to_ne_bytes());
            self.u32(snap as u32);
            self.option(2, interface.name.as_bytes());
            self.option(3, interface.description.as_bytes());
            self.option(9, &[NANOSECONDS]);
            self.end(begin);
        }
    }

    /// A packet, taken by `worker`. `lost`: how many were not captured since the one before.
    pub(super) fn packet(&mut self, record: &Record, data: &[u8], worker: usize, lost: u64) {
        let begin = self.begin(PACKET);
        self.u32(record.interface);
        self.time(record.time);
        self.u32(data.len() as u32);
        self.u32(record.length);
        self.bytes.extend_from_slice(data);
        self.pad(data.len());
        let mut comment = std::mem::take(&mut self.comment);
        comment.clear();
        describe(record, worker, &mut comment);
        self.option(COMMENT, comment.as_bytes());
        self.comment = comment;
        let direction: u32 = if record.kind == Kind::Sent { 2 } else { 1 };
        self.option(2, &direction.to_ne_bytes());
        if record.hash_type != 0 {
            let [a, b, c, d] = record.hash.to_be_bytes();
            self.option(3, &[TOEPLITZ, a, b, c, d]);
        }
        if lost > 0 {
            self.option(4, &lost.to_ne_bytes());
        }
        if let Some(queue) = record.queue {
            self.option(6, &u32::from(queue).to_ne_bytes());
        }
        self.end(begin);
    }

    /// What was captured on an interface until `time`, and not captured for lack of room.
    pub(super) fn statistics(&mut self, interface: u32, time: u64, captured: u64, lost: u64) {
        let begin = self.begin(STATISTICS);
        self.u32(interface);
        self.time(time);
        self.option(4, &captured.to_ne_bytes());
        self.option(5, &lost.to_ne_bytes());
        self.end(begin);
    }

    fn u32(&mut self, n: u32) {
        self.bytes.extend(n.to_ne_bytes());
    }

    fn time(&mut self, nanos: u64) {
        self.u32((nanos >> 32) as u32);
        self.u32(nanos as u32);
    }

    /// Zeros up to a multiple of four.
    fn pad(&mut self, len: usize) {
        self.bytes.resize(self.bytes.len() + len.next_multiple_of(4) - len, 0);
    }

    fn begin(&mut self, kind: u32) -> usize {
        let begin = self.bytes.len();
        self.u32(kind);
        self.u32(0);
        begin
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        // Longer ones are cut where a character may end; ours are short.
        let value = &value[..value.len().min(1024)];
        self.bytes.extend(code.to_ne_bytes());
        self.bytes.extend((value.len() as u16).to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad(value.len());
    }

    fn end(&mut self, begin: usize) {
        self.bytes.extend(END.to_ne_bytes());
        self.bytes.extend(0_u16.to_ne_bytes());
        let len = (self.bytes.len() - begin + 4) as u32;
        self.u32(len);
        self.bytes[begin + 4..begin + 8].copy_from_slice(&len.to_ne_bytes());
    }
}

/// The comment of a packet: `dropped: stack udp-no-socket; worker 1, queue 3, hash 1a2b3c4d, type 81, bucket 5`.
fn describe(record: &Record, worker: usize, into: &mut String) {
    // Writing to a string does not fail.
    let _ = match record.kind {
        Kind::Received => into.write_str("received"),
        Kind::Sent => into.write_str("sent"),
        Kind::Dropped(layer, reason) => write!(into, "dropped: {layer} {reason}"),
    };
    let _ = write!(into, "; worker {worker}");
    if let Some(queue) = record.queue {
        let _ = write!(into, ", queue {queue}");
    }
    if record.hash_type != 0 {
        let _ = write!(into, ", hash {:08x}, type {:02x}", record.hash, record.hash_type);
    }
    let _ = write!(into, ", bucket {}", record.bucket);
    if record.host > 0 {
        let _ = write!(into, ", host {}", record.host);
    }
    if record.segment > 0 {
        let what = if record.kind == Kind::Sent { "to be cut into" } else { "merged from" };
        let _ = write!(into, ", {what} packets of {} bytes", record.segment);
    }
}
