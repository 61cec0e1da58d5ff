//! The unidirectional streams that the other side opens (RFC 9114 §6.2, RFC 9204 §4.2).

use quinn_proto::{Connection, Dir, ReadError, Side, StreamId, VarInt};

use crate::h3::{Event, Fault, Of, Reader, Settings, Varint, code, stream};

/// The one instruction that QPACK's encoder may give where there is no table: a capacity of 0 (RFC 9204 §4.3.1).
const NO_CAPACITY: u8 = 0x20;

/// What a control stream has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The peer's settings.
    Settings(Settings),
    /// A server takes no request of this stream or a later one.
    GoAway(u64),
}

enum Stream {
    /// Its type is on its way.
    Type(Varint),
    Control(Box<Reader>),
    Encoder,
    Decoder,
    /// Nobody knows its type.
    Unknown,
}

/// The other side's streams of a connection.
pub struct Peer {
    /// As many as we allow it to have.
    streams: Vec<(StreamId, Stream)>,
    /// The types that have come, a bit each.
    seen: u8,
    /// The lowest request that it does not take.
    end: u64,
    news: Vec<News>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Default for Peer {
    fn default() -> Self {
        Self { streams: Vec::new(), seen: 0, end: u64::MAX, news: Vec::new() }
    }
}

impl Peer {
    /// Takes the streams that were opened, and reads them.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn opened(&mut self, connection: &mut Connection) -> Result<(), Fault> {
        while let Some(id) = connection.streams().accept(Dir::Uni) {
            self.streams.push((id, Stream::Type(Varint::default())));
            self.read(connection, id)?;
        }
        Ok(())
    }

    /// The next thing that the control stream said.
    pub fn news(&mut self) -> Option<News> {
        if self.news.is_empty() { None } else { Some(self.news.remove(0)) }
    }

    /// Reads a stream that has become readable.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&mut self, connection: &mut Connection, id: StreamId) -> Result<(), Fault> {
        let Some(place) = self.streams.iter().position(|(known, _)| *known == id) else { return Ok(()) };
        let side = connection.side();
        let mut receiver = connection.recv_stream(id);
        let Ok(mut chunks) = receiver.read(true) else {
            self.streams.swap_remove(place);
            return Ok(());
        };
        let mut ended = false;
        let result = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    if let Err(fault) = self.take(side, place, &chunk.bytes) {
                        break Err(fault);
                    }
                }
                Err(ReadError::Blocked) => break Ok(()),
                Ok(None) | Err(ReadError::Reset(_)) => {
                    ended = true;
                    break Ok(());
                }
            }
        };
        let _ = chunks.finalize();
        result?;
        let unknown = matches!(self.streams[place].1, Stream::Unknown);
        if unknown && !ended {
            let _ = connection.recv_stream(id).stop(VarInt::from_u32(code::STREAM_CREATION));
        }
        if unknown || ended {
            let (_, stream) = self.streams.swap_remove(place);
            if matches!(stream, Stream::Control(_) | Stream::Encoder | Stream::Decoder) {
                return Err(Fault::CriticalStreamEnded);
            }
        }
        Ok(())
    }

    fn take(&mut self, side: Side, place: usize, bytes: &[u8]) -> Result<(), Fault> {
        let mut at = 0;
        while let Stream::Type(varint) = &mut self.streams[place].1 {
            let Some(byte) = bytes.get(at) else { return Ok(()) };
            at += 1;
            if let Some(kind) = varint.push(*byte) {
                self.streams[place].1 = self.of_type(side, kind)?;
            }
        }
        match &mut self.streams[place].1 {
            Stream::Type(_) | Stream::Decoder | Stream::Unknown => Ok(()),
            Stream::Encoder => {
                let fine = bytes[at..].iter().all(|byte| *byte == NO_CAPACITY);
                if fine { Ok(()) } else { Err(Fault::EncoderStream) }
            }
            Stream::Control(reader) => {
                while let (used, Some(event)) = reader.next(&bytes[at..])? {
                    at += used;
                    match event {
                        Event::Settings(settings) => {
                            self.news.push(News::Settings(Settings::read(settings)?));
                        }
                        // A client's is about pushes, of which there are none.
                        Event::GoAway(id) if side.is_client() => {
                            if id > self.end || id % 4 != 0 {
                                return Err(Fault::BadId);
                            }
                            self.end = id;
                            self.news.push(News::GoAway(id));
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
        }
    }

    fn of_type(&mut self, side: Side, kind: u64) -> Result<Stream, Fault> {
        // Nobody has allowed a push, and a client may not push at all.
        if kind == stream::PUSH {
            return Err(if side.is_client() { Fault::BadId } else { Fault::BadStream });
        }
        let made = match kind {
            stream::CONTROL => Stream::Control(Box::new(Reader::new(Of::Control, 0))),
            stream::ENCODER => Stream::Encoder,
            stream::DECODER => Stream::Decoder,
            _ => return Ok(Stream::Unknown),
        };
        let bit = 1 << kind;
        if self.seen & bit != 0 {
            return Err(Fault::BadStream);
        }
        self.seen |= bit;
        Ok(made)
    }
}
