//! Captures: the requests of plain HTTP/1 in the packets of a file.
//!
//! ```text
//!   packet ▸ IP, TCP ▸ the stream of one direction, in order ▸ RequestReader ▸ requests, each with the time of its first byte
//! ```
//!
//! A stream is put together by sequence numbers. Directions that begin with no request (answers, other protocols) are let go at their first
//! bytes. Checksums are not looked at: a sender's are filled in by its card, behind the capture. Where bytes are missing, the request that has
//! them is counted as not whole, and the stream goes on with the next segment that begins with a request.
//!
//! **What a file can cost**: 1M connections at once, for each 1 MiB of segments that came too early, 256 MiB of these in all, and bodies of
//! 64 MiB. A connection that ends is forgotten.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;

use flowlane_http::h1::{Event, Limits, RequestReader};

use super::builder::{Body, Builder, Found, LARGEST_BODY};
use super::pcap::Packets;
use super::reason::Reason;

/// Most streams at once.
const MOST_STREAMS: usize = 1 << 20;
/// Most bytes and segments that wait for those before them, and bytes of all streams.
const MOST_EARLY: usize = 1 << 20;
const MOST_SEGMENTS: usize = 512;
const MOST_WAITING: usize = 256 << 20;
/// Most bytes of bodies that are not whole yet.
const MOST_BODIES: usize = 512 << 20;
const LIMITS: Limits = Limits { head: 64 << 10, fields: 128 };

/// Reads all packets.
pub(super) fn read(input: impl Read, builder: &mut Builder) -> Result<(), String> {
    let mut packets = Packets::new(input)?;
    let mut streams = Streams { all: HashMap::new(), waiting: 0, bodies: 0, builder };
    loop {
        let packet = match packets.next() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            // What was read before is replayed.
            Err(_) => {
                streams.builder.skip(Reason::BadPacket);
                break;
            }
        };
        match segment(packet.link, packet.data) {
            Ok(Some((key, segment))) => streams.take(packet.at, key, &segment)?,
            Ok(None) => {}
            Err(reason) => streams.builder.skip(reason),
        }
    }
    let left: Vec<Key> = streams.all.keys().copied().collect();
    for key in left {
        streams.end(&key)?;
    }
    Ok(())
}

/// From whom to whom.
type Key = (IpAddr, IpAddr, u16, u16);

/// A segment of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment<'a> {
    seq: u32,
    syn: bool,
    ack: bool,
    /// It is the last one: FIN or RST.
    last: bool,
    data: &'a [u8],
    /// Bytes of data that it had on the wire.
    length: usize,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..at + 2)?.first_chunk()?))
}

/// Finds the segment in a packet; `None` if it is of another protocol.
fn segment(link: u32, data: &[u8]) -> Result<Option<(Key, Segment<'_>)>, Reason> {
    let bad = Reason::BadPacket;
    // Where IP begins: Ethernet, raw IP, BSD loopback, Linux cooked of both versions.
    let ip = match link {
        1 => {
            let (mut at, mut kind) = (14, be16(data, 12).ok_or(bad)?);
            // Tags of VLANs.
            while matches!(kind, 0x8100 | 0x88a8) && at < 22 {
                (at, kind) = (at + 4, be16(data, at + 2).ok_or(bad)?);
            }
            if !matches!(kind, 0x0800 | 0x86dd) {
                return Ok(None);
            }
            data.get(at..)
        }
        0 | 108 => data.get(4..),
        12 | 14 | 101 | 228 | 229 => Some(data),
        113 => data.get(16..),
        276 => data.get(20..),
        _ => return Err(bad),
    };
    let ip = ip.ok_or(bad)?;
    let (from, to, tcp, length) = match ip.first().map(|b| b >> 4) {
        Some(4) => {
            let header = usize::from(ip[0] & 0xf) * 4;
            let total = usize::from(be16(ip, 2).ok_or(bad)?);
            let address = |at: usize| Some(IpAddr::from(*ip.get(at..at + 4)?.first_chunk::<4>()?));
            let (from, to) = (address(12).ok_or(bad)?, address(16).ok_or(bad)?);
            if ip[9] != 6 {
                return Ok(None);
            }
            if be16(ip, 6).ok_or(bad)? & 0x3fff != 0 {
                return Err(Reason::Fragments);
            }
            // Large segments that the card cuts have no length that fits.
            let total = if total == 0 { ip.len() } else { total };
            (from, to, ip.get(header..).ok_or(bad)?, total.checked_sub(header).ok_or(bad)?)
        }
        Some(6) => {
            let address = |at: usize| Some(IpAddr::from(*ip.get(at..at + 16)?.first_chunk::<16>()?));
            let (from, to) = (address(8).ok_or(bad)?, address(24).ok_or(bad)?);
            let payload = usize::from(be16(ip, 4).ok_or(bad)?);
            let payload = if payload == 0 { ip.len() - 40 } else { payload };
            match ip[6] {
                6 => (from, to, &ip[40..], payload),
                44 => return Err(Reason::Fragments),
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    // What is behind the packet on a short frame is no part of it.
    let tcp = &tcp[..tcp.len().min(length)];
    if tcp.len() < 20 {
        return Err(bad);
    }
    let header = usize::from(tcp[12] >> 4) * 4;
    // Guard: `header < 20 || header > length` as `false` fails replay::tests::damaged_captures_are_read_up_to
    if header < 20 || header > length {
        return Err(bad);
    }
    let flags = tcp[13];
    let segment = Segment {
        seq: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        syn: flags & 2 != 0,
        ack: flags & 16 != 0,
        last: flags & 5 != 0,
        data: tcp.get(header..).unwrap_or_default(),
        length: length - header,
    };
    let port = |at| be16(tcp, at).unwrap_or_default();
    Ok(Some(((from, to, port(0), port(2)), segment)))
}

/// A request that is being read.
#[derive(Debug)]
struct Partial {
    at: u64,
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    too_long: bool,
}

/// What a direction is.
#[derive(Debug)]
enum State {
    /// Its first bytes, or those behind a gap, have not been seen.
    Begin,
    Http(Box<RequestReader>),
    /// Not looked at.
    Other,
}

/// One direction of a connection.
#[derive(Debug)]
struct Stream {
    next: u32,
    state: State,
    partial: Option<Box<Partial>>,
    /// When the first byte came of the head that is being read.
    began: u64,
    /// Segments that came too early, and their bytes.
    early: Vec<Early>,
    early_bytes: usize,
    /// Whether bytes were lost before.
    resumes: bool,
}

#[derive(Debug)]
struct Early {
    seq: u32,
    at: u64,
    data: Vec<u8>,
    length: usize,
}

struct Streams<'a> {
    all: HashMap<Key, Stream>,
    waiting: usize,
    bodies: usize,
    builder: &'a mut Builder,
}

/// Whether a request begins so: a method and a space, as far as there are bytes.
fn begins_request(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|b| !b.is_ascii_uppercase() && *b != b'-').unwrap_or(bytes.len());
    // The first segment may end within the method.
    match bytes.get(end) {
        None => (1..=20).contains(&end),
        Some(next) => (3..=20).contains(&end) && *next == b' ',
    }
}

impl Streams<'_> {
    fn take(&mut self, at: u64, key: Key, segment: &Segment<'_>) -> Result<(), String> {
        if segment.syn {
            // A new connection of the same ports; who answers is not asked.
            self.end(&key)?;
            if !segment.ack {
                self.open(key, segment.seq.wrapping_add(1));
            }
            return Ok(());
        }
        if !self.all.contains_key(&key) {
            // The capture began in the middle of the connection.
            let asks = begins_request(segment.data) || is_hello(segment.data);
            if segment.length == 0 || !asks || !self.open(key, segment.seq) {
                return Ok(());
            }
        }
        if let Some(mut stream) = self.all.remove(&key) {
            let taken = self.put(&mut stream, at, segment);
            self.all.insert(key, stream);
            taken?;
        }
        if segment.last { self.end(&key) } else { Ok(()) }
    }

    /// Whether there was room for another stream.
    fn open(&mut self, key: Key, next: u32) -> bool {
        if self.all.len() >= MOST_STREAMS {
            self.builder.skip(Reason::ManyConnections);
            return false;
        }
        let stream = Stream {
            next,
            state: State::Begin,
            partial: None,
            began: 0,
            early: Vec::new(),
            early_bytes: 0,
            resumes: false,
        };
        self.all.insert(key, stream);
        true
    }

    /// Forgets a stream, with what came of it before something that is missing.
    fn end(&mut self, key: &Key) -> Result<(), String> {
        let Some(mut stream) = self.all.remove(key) else { return Ok(()) };
        while !stream.early.is_empty() && !matches!(stream.state, State::Other) {
            self.pass_gap(&mut stream)?;
        }
        self.cut(&mut stream);
        self.waiting -= stream.early_bytes;
        Ok(())
    }

    /// What is missing before the early segments does not come any more.
    fn pass_gap(&mut self, stream: &mut Stream) -> Result<(), String> {
        self.lose(stream);
        let next = stream.next;
        let first = stream.early.iter().map(|early| early.seq).min_by_key(|seq| seq.wrapping_sub(next));
        stream.next = first.unwrap_or(next);
        self.catch_up(stream)
    }

    /// What was begun of a request is not followed by its end.
    fn cut(&mut self, stream: &mut Stream) {
        let mid_head = matches!(&stream.state, State::Http(reader) if !reader.is_between_messages());
        if let Some(partial) = stream.partial.take() {
            self.bodies -= partial.body.len();
            self.builder.skip(Reason::Truncated);
        } else if mid_head {
            self.builder.skip(Reason::Truncated);
        }
    }

    /// A segment of a stream, in order or not.
    fn put(&mut self, stream: &mut Stream, at: u64, segment: &Segment<'_>) -> Result<(), String> {
        if matches!(stream.state, State::Other) || segment.length == 0 {
            return Ok(());
        }
        while segment.seq.wrapping_sub(stream.next) as i32 > 0 {
            let length = segment.data.len();
            // Guard: `stream.early_bytes + length > MOST_EARLY` as `false` fails
            // capture::tests::segments_that_come_too_early
            // Guard: `stream.early.len() >= MOST_SEGMENTS` as `false` fails
            // capture::tests::segments_that_come_too_early
            let full = stream.early_bytes + length > MOST_EARLY
                || stream.early.len() >= MOST_SEGMENTS
                || self.waiting + length > MOST_WAITING;
            if !full {
                (stream.early_bytes, self.waiting) = (stream.early_bytes + length, self.waiting + length);
                let early =
                    Early { seq: segment.seq, at, data: segment.data.to_vec(), length: segment.length };
                stream.early.push(early);
                return Ok(());
            }
            if stream.early.is_empty() {
                self.lose(stream);
                stream.next = segment.seq;
            } else {
                self.pass_gap(stream)?;
            }
        }
        self.deliver(stream, at, segment.seq, segment.data, segment.length)?;
        self.catch_up(stream)
    }

    /// Delivers early segments whose turn has come.
    fn catch_up(&mut self, stream: &mut Stream) -> Result<(), String> {
        while let Some(place) =
            stream.early.iter().position(|early| early.seq.wrapping_sub(stream.next) as i32 <= 0)
        {
            let early = stream.early.swap_remove(place);
            (stream.early_bytes, self.waiting) =
                (stream.early_bytes - early.data.len(), self.waiting - early.data.len());
            self.deliver(stream, early.at, early.seq, &early.data, early.length)?;
        }
        Ok(())
    }

    /// Bytes are missing: the stream goes on where a request begins.
    fn lose(&mut self, stream: &mut Stream) {
        self.cut(stream);
        (stream.state, stream.resumes) = (State::Begin, true);
    }

    /// Bytes that are next, or that were there before in part.
    fn deliver(
        &mut self,
        stream: &mut Stream,
        at: u64,
        seq: u32,
        data: &[u8],
        length: usize,
    ) -> Result<(), String> {
        let known = stream.next.wrapping_sub(seq) as usize;
        if known >= length {
            return Ok(());
        }
        stream.next = seq.wrapping_add(length as u32);
        self.feed(stream, at, data.get(known..).unwrap_or_default())?;
        if data.len() < length && !matches!(stream.state, State::Other) {
            // The capture has not the whole of the packet.
            self.lose(stream);
        }
        Ok(())
    }

    fn feed(&mut self, stream: &mut Stream, at: u64, data: &[u8]) -> Result<(), String> {
        if data.is_empty() {
            return Ok(());
        }
        if matches!(stream.state, State::Begin) {
            stream.state = match data {
                _ if data.starts_with(b"PRI ") => self.other(Reason::Http2),
                _ if begins_request(data) => State::Http(Box::new(RequestReader::new(LIMITS))),
                _ if stream.resumes => return Ok(()),
                _ if is_hello(data) => self.other(Reason::Encrypted),
                _ => self.other(Reason::OtherProtocol),
            };
        }
        let State::Http(reader) = &mut stream.state else { return Ok(()) };
        let mut used = 0;
        let after = loop {
            if reader.is_between_messages() {
                stream.began = at;
            }
            let Ok((n, event)) = reader.next(&data[used..]) else { break Some(Reason::Malformed) };
            used += n;
            match event {
                None => break None,
                Some(Event::Interim(_)) => {}
                Some(Event::Head(head)) => {
                    let field = |(name, value): (&str, &[u8])| (name.to_owned(), value.to_vec());
                    stream.partial = Some(Box::new(Partial {
                        at: stream.began,
                        method: head.method.to_owned(),
                        target: head.target.to_owned(),
                        fields: head.fields.map(field).collect(),
                        body: Vec::new(),
                        too_long: false,
                    }));
                }
                Some(Event::Data(bytes)) => {
                    let Some(partial) = &mut stream.partial else { continue };
                    if partial.body.len() + bytes.len() > LARGEST_BODY
                        || self.bodies + bytes.len() > MOST_BODIES
                    {
                        self.bodies -= partial.body.len();
                        (partial.body, partial.too_long) = (Vec::new(), true);
                    }
                    if !partial.too_long {
                        self.bodies += bytes.len();
                        partial.body.extend_from_slice(bytes);
                    }
                }
                Some(Event::End) => {
                    let Some(partial) = stream.partial.take() else { continue };
                    self.bodies -= partial.body.len();
                    let taken = whole(&partial, self.builder)?;
                    if let Err(reason) = taken {
                        self.builder.skip(reason);
                        // What follows is another protocol.
                        if matches!(reason, Reason::Upgrade | Reason::Connect) {
                            stream.state = State::Other;
                            return Ok(());
                        }
                    }
                }
            }
        };
        if let Some(reason) = after {
            if let Some(partial) = stream.partial.take() {
                self.bodies -= partial.body.len();
            }
            self.builder.skip(reason);
            (stream.state, stream.resumes) = (State::Begin, true);
        }
        Ok(())
    }

    fn other(&mut self, reason: Reason) -> State {
        self.builder.skip(reason);
        State::Other
    }
}

/// Whether a connection begins with the hello of a TLS client.
fn is_hello(data: &[u8]) -> bool {
    matches!(data, [0x16, 3, _, _, _, 1, ..])
}

/// A request that is whole.
fn whole(partial: &Partial, builder: &mut Builder) -> Result<Result<(), Reason>, String> {
    if partial.too_long {
        return Ok(Err(Reason::LongBody));
    }
    let fields: Vec<(&str, &[u8])> = partial.fields.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
    let (method, target) = (partial.method.as_str(), partial.target.as_str());
    builder.add(
        partial.at,
        &Found { method, target, host: None, fields: &fields, body: Body::Bytes(&partial.body) },
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Wishes};
    use super::*;

    #[test]
    fn segments_that_come_too_early_are_few_and_none_is_forgotten() {
        let mut builder = Builder::new(Format::Capture, &Wishes::default());
        let mut streams = Streams { all: HashMap::new(), waiting: 0, bodies: 0, builder: &mut builder };
        let key = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1, 80);
        let get = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let segment =
            |seq, syn, data| Segment { seq, syn, ack: !syn, last: false, data, length: <[u8]>::len(data) };
        streams.take(0, key, &segment(0, true, b"")).unwrap();
        // The first byte never comes; none of the requests is next to another.
        let mut seq = 2;
        for n in 0..MOST_SEGMENTS as u32 * 3 {
            streams.take(u64::from(n), key, &segment(seq, false, get)).unwrap();
            seq += get.len() as u32 + 1;
            assert!(streams.all[&key].early.len() <= MOST_SEGMENTS);
        }
        let large = vec![b'x'; MOST_EARLY / 4];
        for _ in 0..20 {
            streams.take(0, key, &segment(seq, false, &large)).unwrap();
            seq += large.len() as u32 + 1;
            assert!(streams.waiting <= MOST_EARLY && streams.waiting == streams.all[&key].early_bytes);
        }
        streams.end(&key).unwrap();
        assert_eq!((streams.waiting, streams.bodies), (0, 0));
        let recording = builder.finish(&Wishes::default()).unwrap();
        assert_eq!(recording.requests(), MOST_SEGMENTS * 3);
    }
}
