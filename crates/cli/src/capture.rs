//! Reading capture files for what they say of a card: the packets, and the queue and hash that each came with.
//!
//! pcapng has options for both (`epb_queue`, `epb_hash`), which xdpdump, DPDK's dumpcap and our own `--pcap FILE.pcapng` write. Classic
//! pcap has neither; a file may be named as one queue's, though.
//!
//! ```text
//!   pcapng   blocks: type, length, body, length again     section header: byte order; interface: link type
//!            packet: interface, time, lengths, bytes, options (code, length, value, up to a multiple of 4)
//!   pcap     header: byte order, link type; then for each packet time, lengths, bytes
//! ```
//!
//! The file may be anybody's. A block is at most 16 MiB, only headers are kept, and what does not make sense ends the reading with a line
//! that says where. Link types are Ethernet and bare IP; packets of others are counted and left out. What is compressed is not read.

use anyhow::{Context, bail, ensure};
use flowlane_rss::{Flow, Protocol};
use flowlane_stack::wire::{classify, classify_ip};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Largest block or packet.
const LARGEST: u32 = 16 << 20;
/// Bytes of a packet that are kept: headers, with extensions.
const KEPT: usize = 256;

const SECTION: u32 = 0x0a0d_0d0a;
const ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const SIMPLE: u32 = 3;
const PACKET: u32 = 6;
const FLAGS: u16 = 2;
const HASH: u16 = 3;
const QUEUE: u16 = 6;
/// The algorithm of an `epb_hash` that is a flow's.
const TOEPLITZ: u8 = 5;
const ETHERNET: u32 = 1;
/// Bare IP, by its several numbers.
const BARE_IP: [u32; 4] = [12, 101, 228, 229];

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Its first bytes.
    pub(crate) bytes: Vec<u8>,
    /// Without an Ethernet header.
    pub(crate) bare: bool,
    /// The queue that it came on.
    pub(crate) queue: Option<u32>,
    /// The four bytes of its flow hash, as they are in the file.
    pub(crate) hash: Option<[u8; 4]>,
    /// It was sent, not received.
    pub(crate) sent: bool,
}

impl Captured {
    /// Its addresses and ports, where it is IP.
    pub(crate) fn flow(&self) -> Option<Flow> {
        let found = if self.bare { classify_ip(&self.bytes)? } else { classify(&self.bytes).flow()? };
        let (src_port, dst_port) = found.ports.unwrap_or((0, 0));
        Some(Flow {
            src: found.addresses.src(),
            dst: found.addresses.dst(),
            src_port,
            dst_port,
            protocol: Protocol(found.protocol.0),
            fragment: found.fragment,
        })
    }
}

/// What was in a file besides the packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Packets that were handed over.
    pub(crate) packets: u64,
    /// Packets of link types that are not read.
    pub(crate) foreign: u64,
    /// The file ends within a packet.
    pub(crate) cut: bool,
}

/// Hands over each packet of a file in order.
///
/// # Errors
/// One line that says what is wrong with the file.
pub(crate) fn read(path: &Path, each: impl FnMut(Captured)) -> anyhow::Result<Contents> {
    let opened = File::open(path).with_context(|| path.display().to_string())?;
    flowlane::written::note_read(&opened).keep();
    from(BufReader::with_capacity(1 << 16, opened), each).with_context(|| path.display().to_string())
}

fn from(mut file: impl Read, each: impl FnMut(Captured)) -> anyhow::Result<Contents> {
    let mut magic = [0; 4];
    file.read_exact(&mut magic).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => anyhow::anyhow!("empty: not a capture file"),
        _ => e.into(),
    })?;
    match u32::from_be_bytes(magic) {
        SECTION => {
            Blocks { file, big: false, interfaces: Vec::new(), contents: Contents::default() }.read(each)
        }
        0xa1b2_c3d4 | 0xa1b2_3c4d => classic(file, true, each),
        0xd4c3_b2a1 | 0x4d3c_b2a1 => classic(file, false, each),
        0x1f8b_0800..=0x1f8b_08ff | 0x28b5_2ffd => bail!("compressed: unpack it first"),
        _ => bail!("not a capture file (pcap or pcapng)"),
    }
}

fn word(bytes: &[u8], at: usize, big: bool) -> Option<u32> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
}

fn half(bytes: &[u8], at: usize, big: bool) -> Option<u16> {
    let two: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(if big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
}

/// So many bytes into `body`; whether all were there.
fn fill(file: &mut impl Read, len: u32, body: &mut Vec<u8>) -> anyhow::Result<bool> {
    body.clear();
    // Not as much memory as a number in the file says, but as there are bytes.
    file.take(u64::from(len)).read_to_end(body)?;
    Ok(body.len() == len as usize)
}

/// Classic pcap, behind its first four bytes.
fn classic(mut file: impl Read, big: bool, mut each: impl FnMut(Captured)) -> anyhow::Result<Contents> {
    let mut body = Vec::new();
    ensure!(fill(&mut file, 20, &mut body)?, "cut off in its header");
    let link = word(&body, 16, big).unwrap_or(0) & 0x0fff_ffff;
    let mut contents = Contents::default();
    loop {
        if !fill(&mut file, 16, &mut body)? {
            contents.cut = !body.is_empty();
            return Ok(contents);
        }
        let len = word(&body, 8, big).unwrap_or(0);
        ensure!(len <= LARGEST, "packet {} of {len} bytes: damaged", contents.packets + contents.foreign + 1);
        if !fill(&mut file, len, &mut body)? {
            contents.cut = true;
            return Ok(contents);
        }
        match bare(link) {
            Some(bare) => {
                body.truncate(KEPT);
                contents.packets += 1;
                each(Captured { bytes: body.clone(), bare, queue: None, hash: None, sent: false });
            }
            None => contents.foreign += 1,
        }
    }
}

/// Whether packets of a link type are bare IP; `None` for those that are not read.
fn bare(link: u32) -> Option<bool> {
    if link == ETHERNET { Some(false) } else { BARE_IP.contains(&link).then_some(true) }
}

struct Blocks<R> {
    file: R,
    /// Byte order of this section.
    big: bool,
    /// Link type of each interface of this section.
    interfaces: Vec<u32>,
    contents: Contents,
}

impl<R: Read> Blocks<R> {
    /// All blocks; the type of the first, a section header, has been read.
    fn read(mut self, mut each: impl FnMut(Captured)) -> anyhow::Result<Contents> {
        let mut body = Vec::new();
        for number in 1_u64.. {
            let kind = if number == 1 {
                SECTION
            } else if fill(&mut self.file, 4, &mut body)? {
                // The section header's type reads the same in both orders.
                word(&body, 0, self.big).unwrap_or(0)
            } else {
                self.contents.cut = !body.is_empty();
                break;
            };
            if !self.block(kind, &mut body, &mut each).with_context(|| format!("block {number}"))? {
                self.contents.cut = true;
                break;
            }
        }
        Ok(self.contents)
    }

    /// One block behind its type; whether it was whole.
    fn block(
        &mut self,
        kind: u32,
        body: &mut Vec<u8>,
        each: &mut impl FnMut(Captured),
    ) -> anyhow::Result<bool> {
        let section = kind == SECTION;
        if !fill(&mut self.file, if section { 8 } else { 4 }, body)? {
            return Ok(false);
        }
        if section {
            self.big = match word(body, 4, true) {
                Some(ORDER) => true,
                Some(order) if order.swap_bytes() == ORDER => false,
                _ => bail!("no byte order: damaged"),
            };
            self.interfaces.clear();
        }
        let len = word(body, 0, self.big).unwrap_or(0);
        let read = if section { 12 } else { 8 };
        ensure!(len >= read + 4 && len <= LARGEST && len.is_multiple_of(4), "of {len} bytes: damaged");
        if !fill(&mut self.file, len - read, body)? {
            return Ok(false);
        }
        ensure!(word(body, body.len() - 4, self.big) == Some(len), "its two lengths differ: damaged");
        body.truncate(body.len() - 4);
        match kind {
            INTERFACE => {
                ensure!(self.interfaces.len() < 65_536, "too many interfaces: damaged");
                self.interfaces.push(half(body, 0, self.big).map_or(u32::MAX, u32::from));
            }
            PACKET => self.packet(body, each).context("damaged")?,
            SIMPLE => {
                let bytes = body.get(4..).unwrap_or_default();
                self.give(0, bytes, None, None, false, each);
            }
            _ => {}
        }
        Ok(true)
    }

    fn packet(&mut self, body: &[u8], each: &mut impl FnMut(Captured)) -> anyhow::Result<()> {
        let (Some(interface), Some(len)) = (word(body, 0, self.big), word(body, 12, self.big)) else {
            bail!("a packet without header");
        };
        let len = len as usize;
        let bytes = body.get(20..20 + len).context("a packet longer than its block")?;
        let mut options = body.get(20 + len.next_multiple_of(4)..).unwrap_or_default();
        let (mut queue, mut hash, mut sent) = (None, None, false);
        while let (Some(code), Some(len)) = (half(options, 0, self.big), half(options, 2, self.big)) {
            let value = options.get(4..4 + usize::from(len)).context("an option longer than its block")?;
            match (code, value.len()) {
                (0, _) => break,
                (QUEUE, 4) => queue = word(value, 0, self.big),
                (FLAGS, 4) => sent = word(value, 0, self.big).is_some_and(|flags| flags & 3 == 2),
                (HASH, 5) if value[0] == TOEPLITZ => hash = value[1..].try_into().ok(),
                _ => {}
            }
            options = options.get(4 + usize::from(len).next_multiple_of(4)..).unwrap_or_default();
        }
        self.give(interface as usize, bytes, queue, hash, sent, each);
        Ok(())
    }

    fn give(
        &mut self,
        interface: usize,
        bytes: &[u8],
        queue: Option<u32>,
        hash: Option<[u8; 4]>,
        sent: bool,
        each: &mut impl FnMut(Captured),
    ) {
        match self.interfaces.get(interface).copied().and_then(bare) {
            Some(bare) => {
                self.contents.packets += 1;
                let bytes = bytes[..bytes.len().min(KEPT)].to_vec();
                each(Captured { bytes, bare, queue, hash, sent });
            }
            None => self.contents.foreign += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with its lengths, in one byte order.
    fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
        let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = word(12 + body.len() as u32);
        [&word(kind)[..], &len, &body, &len].concat()
    }

    /// A file of one packet on queue 3 with a hash, in one byte order.
    fn file(big: bool) -> Vec<u8> {
        let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let half = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let section = [&word(ORDER)[..], &half(1), &half(0), &[0xff; 8]].concat();
        let interface = [&half(1)[..], &half(0), &word(0)].concat();
        let options = [
            [&half(1)[..], &half(2), b"hi\0\0"].concat(),
            [&half(QUEUE)[..], &half(4), &word(3)].concat(),
            [&half(HASH)[..], &half(5), &[TOEPLITZ, 1, 2, 3, 4, 0, 0, 0]].concat(),
            [&half(FLAGS)[..], &half(4), &word(1)].concat(),
            vec![0; 4],
        ];
        let packet =
            [&word(0)[..], &[0; 8], &word(5), &word(5), &[7, 7, 7, 7, 7, 0, 0, 0], &options.concat()]
                .concat();
        let other = [&word(9)[..], &[0; 8], &word(0), &word(0)].concat();
        [
            block(SECTION, &section, big),
            block(INTERFACE, &interface, big),
            block(0xbad, &[1, 2, 3], big),
            block(PACKET, &packet, big),
            block(PACKET, &other, big),
        ]
        .concat()
    }

    fn all(bytes: &[u8]) -> anyhow::Result<(Contents, Vec<Captured>)> {
        let mut found = Vec::new();
        let contents = from(bytes, |packet| found.push(packet))?;
        Ok((contents, found))
    }

    #[test]
    fn queues_and_hashes_in_either_order() {
        for big in [false, true] {
            let (contents, packets) = all(&file(big)).unwrap();
            assert_eq!(contents, Contents { packets: 1, foreign: 1, cut: false });
            let wanted = Captured {
                bytes: vec![7; 5],
                bare: false,
                queue: Some(3),
                hash: Some([1, 2, 3, 4]),
                sent: false,
            };
            assert_eq!(packets, [wanted]);
        }
        // Two sections, each in its own order.
        let (contents, packets) = all(&[file(false), file(true)].concat()).unwrap();
        assert_eq!((contents.packets, packets[0] == packets[1]), (2, true));
    }

    #[test]
    fn classic_files() {
        for (big, magic) in [(true, 0xa1b2_c3d4_u32), (false, 0xa1b2_3c4d)] {
            let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
            let header = [word(magic), [0; 4], [0; 4], [0; 4], word(65_535), word(101)].concat();
            let packet = [word(1), word(2), word(3), word(3)].concat();
            let whole = [&header[..], &packet, &[69, 0, 0]].concat();
            let (contents, packets) = all(&whole).unwrap();
            assert_eq!((contents.packets, contents.cut), (1, false));
            assert_eq!((packets[0].bytes.as_slice(), packets[0].bare), (&[69, 0, 0][..], true));
            assert!(all(&whole[..whole.len() - 1]).unwrap().0.cut);
            assert!(all(&whole[..10]).is_err());
        }
    }

    /// Cut off anywhere, and with each byte changed: an error or what is whole, and never more memory than the file is long.
    #[test]
    fn damaged_files() {
        let good = file(false);
        for len in 0..good.len() {
            if let Ok((contents, packets)) = all(&good[..len]) {
                assert_eq!(contents.packets as usize, packets.len());
            }
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = all(&bad);
            }
        }
        for (bytes, said) in [
            (&b""[..], "empty"),
            (b"flowlane", "not a capture file"),
            (&[0x1f, 0x8b, 8, 0, 0], "compressed"),
            (&block(SECTION, &[0; 16], false), "no byte order"),
        ] {
            assert!(
                all(bytes).unwrap_err().to_string().contains(said)
                    || format!("{:#}", all(bytes).unwrap_err()).contains(said)
            );
        }
    }
}
