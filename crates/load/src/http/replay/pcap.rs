//! Reading of capture files: pcap, with times in micro- and nanoseconds of either byte order, and pcapng (draft-ietf-opsawg-pcap,
//! draft-ietf-opsawg-pcapng).
//!
//! A packet of more than [`LONGEST`] bytes is none: tcpdump captures as much of each at most. A file that ends in the middle of a packet, as
//! one that is still written, ends before it.

use std::io::{self, ErrorKind, Read};

/// Most bytes of a packet, and of a block of pcapng that has one; other blocks are passed over.
const LONGEST: u32 = 256 << 10;
const LONGEST_BLOCK: u32 = LONGEST + 4096;
/// Most interfaces of a section of pcapng.
const MOST_INTERFACES: usize = 4096;
const SECOND: u64 = 1_000_000_000;

/// A packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// Nanoseconds since 1970.
    pub(super) at: u64,
    /// The link's type (LINKTYPE_...).
    pub(super) link: u32,
    /// What was captured of it.
    pub(super) data: &'a [u8],
}

/// Whether a file that begins so is a capture.
pub(super) fn is_capture(begin: &[u8]) -> bool {
    begin.first_chunk().is_some_and(|magic| *magic == NG || classic(*magic).is_some())
}

const NG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Byte order, and nanoseconds of a unit of time.
fn classic(magic: [u8; 4]) -> Option<(bool, u64)> {
    match u32::from_be_bytes(magic) {
        0xa1b2_c3d4 => Some((true, 1000)),
        0xd4c3_b2a1 => Some((false, 1000)),
        0xa1b2_3c4d => Some((true, 1)),
        0x4d3c_b2a1 => Some((false, 1)),
        _ => None,
    }
}

/// An interface of pcapng.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link: u32,
    /// Units of a second.
    units: u64,
    /// Added to times, seconds.
    offset: u64,
}

#[derive(Debug)]
enum Kind {
    Classic { big: bool, unit: u64, link: u32 },
    Ng { big: bool, interfaces: Vec<Interface> },
}

/// The packets of a file.
#[derive(Debug)]
pub(super) struct Packets<R> {
    input: R,
    kind: Kind,
    buffer: Vec<u8>,
}

fn number(bytes: &[u8], at: usize, big: bool) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.first_chunk()).copied().unwrap_or_default();
    if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

fn half(bytes: &[u8], at: usize, big: bool) -> u16 {
    let two = bytes.get(at..at + 2).and_then(|two| two.first_chunk()).copied().unwrap_or_default();
    if big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
}

impl<R: Read> Packets<R> {
    /// Reads the beginning of a file.
    pub(super) fn new(mut input: R) -> Result<Self, String> {
        let mut magic = [0; 4];
        input.read_exact(&mut magic).map_err(|_| "it is too short for a capture".to_owned())?;
        let buffer = Vec::new();
        if magic == NG {
            let mut packets = Self { input, kind: Kind::Ng { big: false, interfaces: Vec::new() }, buffer };
            packets.section().map_err(|e| e.to_string())?;
            return Ok(packets);
        }
        let (big, unit) = classic(magic).ok_or("it is no capture: neither pcap nor pcapng")?;
        let mut rest = [0; 20];
        input.read_exact(&mut rest).map_err(|_| "it is too short for a capture".to_owned())?;
        // The upper bits say how long the checksum behind each frame is.
        let link = number(&rest, 16, big) & 0x0fff_ffff;
        Ok(Self { input, kind: Kind::Classic { big, unit, link }, buffer })
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// What is not as it should be; nothing behind it can be read.
    pub(super) fn next(&mut self) -> io::Result<Option<Packet<'_>>> {
        let found = match self.kind {
            Kind::Classic { big, unit, link } => self.next_classic(big, unit, link),
            Kind::Ng { .. } => self.next_block(),
        };
        match found {
            Ok(Some((at, link, range))) => Ok(Some(Packet { at, link, data: &self.buffer[range] })),
            Ok(None) => Ok(None),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn next_classic(&mut self, big: bool, unit: u64, link: u32) -> io::Result<Option<Where>> {
        let mut head = [0; 16];
        self.input.read_exact(&mut head)?;
        let of = |at| number(&head, at, big);
        let length = of(8);
        // Guard: `length > LONGEST` as `false` fails replay::tests::damaged_captures_are_read_up_to
        if length > LONGEST {
            return Err(bad("a packet is longer than any"));
        }
        self.fill(length as usize)?;
        let at = u64::from(of(0)) * SECOND + u64::from(of(4)) * unit;
        Ok(Some((at, link, 0..length as usize)))
    }

    /// Reads `length` bytes into the buffer, which grows with what there is.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        self.buffer.clear();
        let read = (&mut self.input).take(length as u64).read_to_end(&mut self.buffer)?;
        if read < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// The head of a section, behind its first four bytes, which are the same in either byte order.
    fn section(&mut self) -> io::Result<()> {
        let mut head = [0; 8];
        self.input.read_exact(&mut head)?;
        let big = match u32::from_be_bytes([head[4], head[5], head[6], head[7]]) {
            0x1a2b_3c4d => true,
            0x4d3c_2b1a => false,
            _ => return Err(bad("a section has no byte order")),
        };
        self.kind = Kind::Ng { big, interfaces: Vec::new() };
        let length = number(&head, 0, big);
        self.pass(length.checked_sub(12).ok_or_else(|| bad("a block is shorter than its head"))?)
    }

    /// Passes over so many bytes.
    fn pass(&mut self, length: u32) -> io::Result<()> {
        let passed = io::copy(&mut (&mut self.input).take(length.into()), &mut io::sink())?;
        if passed < u64::from(length) { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn next_block(&mut self) -> io::Result<Option<Where>> {
        loop {
            let mut head = [0; 4];
            self.input.read_exact(&mut head)?;
            if head == NG {
                self.section()?;
                continue;
            }
            let Kind::Ng { big, .. } = self.kind else { return Ok(None) };
            let kind = number(&head, 0, big);
            self.input.read_exact(&mut head)?;
            let length = number(&head, 0, big);
            let body = length.checked_sub(12).ok_or_else(|| bad("a block is shorter than its head"))?;
            if !matches!(kind, 1 | 3 | 6) {
                self.pass(body.saturating_add(4))?;
                continue;
            }
            if length > LONGEST_BLOCK {
                return Err(bad("a block is longer than any packet"));
            }
            // The length comes again behind the block.
            self.fill(body as usize + 4)?;
            self.buffer.truncate(body as usize);
            match kind {
                1 => self.interface(big)?,
                _ => {
                    if let Some(found) = self.packet(kind, big)? {
                        return Ok(Some(found));
                    }
                }
            }
        }
    }

    /// An interface: its link's type, and the options about time.
    fn interface(&mut self, big: bool) -> io::Result<()> {
        let block = &self.buffer;
        let mut interface = Interface { link: u32::from(half(block, 0, big)), units: 1_000_000, offset: 0 };
        let mut at = 8;
        while at + 4 <= block.len() {
            let (code, length) = (half(block, at, big), usize::from(half(block, at + 2, big)));
            let Some(value) = block.get(at + 4..at + 4 + length) else { break };
            match (code, value) {
                (0, _) => break,
                (9, [resolution]) => {
                    let exponent = u32::from(resolution & 0x7f);
                    let units = if resolution & 0x80 == 0 {
                        10u64.checked_pow(exponent)
                    } else {
                        1u64.checked_shl(exponent)
                    };
                    interface.units = units.ok_or_else(|| bad("an interface has times that are too fine"))?;
                }
                (14, value) if value.len() == 8 => {
                    let (first, second) =
                        (u64::from(number(value, 0, big)), u64::from(number(value, 4, big)));
                    interface.offset = if big { first << 32 | second } else { second << 32 | first };
                }
                _ => {}
            }
            at += 4 + length.next_multiple_of(4);
        }
        if let Kind::Ng { interfaces, .. } = &mut self.kind {
            if interfaces.len() >= MOST_INTERFACES {
                return Err(bad("a section has more than 4096 interfaces"));
            }
            interfaces.push(interface);
        }
        Ok(())
    }

    /// A packet with a time. A simple one (3) has none, so that it cannot be replayed.
    fn packet(&self, kind: u32, big: bool) -> io::Result<Option<Where>> {
        let Kind::Ng { interfaces, .. } = &self.kind else { return Ok(None) };
        if kind == 3 {
            return Ok(None);
        }
        let of = |at| number(&self.buffer, at, big);
        let interface = interfaces.get(of(0) as usize).ok_or_else(|| bad("a packet is of no interface"))?;
        let length = of(12) as usize;
        // Guard: `length > self.buffer.len() - 20` as `false` fails
        // replay::tests::damaged_captures_are_read_up_to
        if self.buffer.len() < 20 || length > self.buffer.len() - 20 {
            return Err(bad("a packet is longer than its block"));
        }
        let time = u64::from(of(4)) << 32 | u64::from(of(8));
        let nanos = u128::from(time) * u128::from(SECOND) / u128::from(interface.units);
        let nanos = nanos + u128::from(interface.offset) * u128::from(SECOND);
        let at = u64::try_from(nanos).map_err(|_| bad("a packet has a time of no age"))?;
        Ok(Some((at, interface.link, 20..20 + length)))
    }
}

/// Time, link, and place in the buffer.
type Where = (u64, u32, std::ops::Range<usize>);

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the capture is damaged: {what}"))
}
