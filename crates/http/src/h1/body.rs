//! Decoder of bodies: by length, chunked or until the end of the stream (RFC 9112 §6, §7.1), incrementally and without copying.

use super::{Fault, Limits};

/// How a message's body is framed (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// This many bytes.
    Length(u64),
    /// Chunks, each with its size.
    Chunked,
    /// Everything until the connection ends; responses only.
    UntilClose,
}

/// A piece of a decoded body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of the body, never empty.
    Data(&'a [u8]),
    /// The body ended; what follows belongs to the next message.
    End,
    /// All input was used, and more is needed.
    More,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Length(u64),
    UntilClose,
    /// Before the first digit of a chunk's size.
    Size,
    /// After at least one digit.
    Digits(u64),
    /// After the size, up to the end of the line.
    Extension(u64),
    /// After the carriage return of that line.
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a trailer's line.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    Done,
}

/// Decodes one body.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// Bytes that extensions, then trailers, may still have.
    spare: u32,
    limit: u32,
}

/// Sizes from here on would overflow with another digit.
const TOO_LARGE: u64 = 1 << 58;

impl BodyDecoder {
    /// A decoder for a body with this framing.
    #[must_use]
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(n) => State::Length(n),
            Framing::Chunked => State::Size,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, spare: limits.head, limit: limits.head }
    }

    /// Whether the body ended.
    #[must_use]
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the end of the stream is the end of the body.
    #[must_use]
    pub fn ends_with_stream(&self) -> bool {
        matches!(self.state, State::UntilClose | State::Done)
    }

    /// Decodes the front of `input`. Returns the number of bytes used and the piece.
    ///
    /// # Errors
    /// What is wrong with the coding. The decoder must not be used afterwards.
    #[inline]
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Piece<'a>), Fault> {
        match self.state {
            State::Done => Ok((0, Piece::End)),
            _ if input.is_empty() => Ok((0, Piece::More)),
            State::UntilClose => Ok((input.len(), Piece::Data(input))),
            State::Length(n) => {
                let (data, left) = take(input, n);
                self.state = if left == 0 { State::Done } else { State::Length(left) };
                Ok((data.len(), Piece::Data(data)))
            }
            _ => self.chunked(input),
        }
    }

    fn chunked<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Piece<'a>), Fault> {
        for (i, byte) in input.iter().enumerate() {
            if let State::Data(n) = self.state {
                let (data, left) = take(&input[i..], n);
                self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                return Ok((i + data.len(), Piece::Data(data)));
            }
            self.state = self.step(*byte)?;
            if self.state == State::Done {
                return Ok((i + 1, Piece::End));
            }
        }
        Ok((input.len(), Piece::More))
    }

    /// One byte outside a chunk's data.
    fn step(&mut self, byte: u8) -> Result<State, Fault> {
        Ok(match self.state {
            State::Size => State::Digits(digit(byte).ok_or(Fault::BadChunkSize)?),
            State::Digits(n) => match byte {
                b'\r' => State::SizeLf(n),
                b';' | b' ' | b'\t' => self.extension(n)?,
                _ => {
                    let digit = digit(byte).ok_or(Fault::BadChunkSize)?;
                    // Guard: `n >= TOO_LARGE` as `false` fails h1::
                    if n >= TOO_LARGE {
                        return Err(Fault::ChunkTooLarge);
                    }
                    State::Digits(n << 4 | digit)
                }
            },
            State::Extension(n) => match byte {
                b'\r' => State::SizeLf(n),
                // Guard: `return Err(Fault::BadChunkSize)` as `self.extension(n)?` fails h1::
                b'\n' | 0 => return Err(Fault::BadChunkSize),
                _ => self.extension(n)?,
            },
            State::SizeLf(n) => {
                expect(byte, b'\n', Fault::BadChunkSize)?;
                if n > 0 {
                    State::Data(n)
                } else {
                    self.spare = self.limit;
                    State::Trailer
                }
            }
            // Guard: `expect(byte, b'\r', Fault::BadChunkEnd)` as `Ok(())` fails h1::
            State::DataCr => expect(byte, b'\r', Fault::BadChunkEnd).map(|()| State::DataLf)?,
            State::DataLf => expect(byte, b'\n', Fault::BadChunkEnd).map(|()| State::Size)?,
            State::Trailer if byte == b'\r' => State::LastLf,
            State::Trailer | State::TrailerName => {
                self.spend(Fault::TrailersTooLong)?;
                match byte {
                    b':' if self.state == State::TrailerName => State::TrailerValue,
                    _ if is_token(byte) => State::TrailerName,
                    _ => return Err(Fault::BadTrailer),
                }
            }
            State::TrailerValue => {
                self.spend(Fault::TrailersTooLong)?;
                match byte {
                    b'\r' => State::TrailerLf,
                    b'\t' | b' '..=b'~' | 0x80.. => State::TrailerValue,
                    _ => return Err(Fault::BadTrailer),
                }
            }
            State::TrailerLf => expect(byte, b'\n', Fault::BadTrailer).map(|()| State::Trailer)?,
            State::LastLf => expect(byte, b'\n', Fault::BadTrailer).map(|()| State::Done)?,
            state @ (State::Length(_) | State::UntilClose | State::Data(_) | State::Done) => state,
        })
    }

    fn extension(&mut self, size: u64) -> Result<State, Fault> {
        self.spend(Fault::ExtensionsTooLong)?;
        Ok(State::Extension(size))
    }

    fn spend(&mut self, fault: Fault) -> Result<(), Fault> {
        // Guard: `self.spare.checked_sub(1).ok_or(fault)?` as `{ let _ = fault; self.spare }` fails h1::
        self.spare = self.spare.checked_sub(1).ok_or(fault)?;
        Ok(())
    }
}

/// At most `n` bytes of `input`, and what is left of `n`.
fn take(input: &[u8], n: u64) -> (&[u8], u64) {
    let taken = usize::try_from(n).map_or(input.len(), |n| n.min(input.len()));
    (&input[..taken], n - taken as u64)
}

fn expect(byte: u8, expected: u8, fault: Fault) -> Result<(), Fault> {
    if byte == expected { Ok(()) } else { Err(fault) }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

/// Characters of names (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body, and how many bytes were used, giving at most `cut` bytes at a time.
    fn read(framing: Framing, bytes: &[u8], cut: usize) -> Result<(Vec<u8>, usize, bool), Fault> {
        let limits = Limits { head: 32, fields: 100 };
        let mut decoder = BodyDecoder::new(framing, &limits);
        let (mut body, mut at) = (Vec::new(), 0);
        loop {
            let end = bytes.len().min(at + cut);
            let (used, piece) = decoder.decode(&bytes[at..end])?;
            assert!(used <= end - at);
            at += used;
            match piece {
                Piece::Data(data) => {
                    assert!(!data.is_empty());
                    body.extend(data);
                }
                Piece::End => return Ok((body, at, true)),
                Piece::More if at == bytes.len() => return Ok((body, at, false)),
                Piece::More => assert!(used > 0),
            }
        }
    }

    fn both(framing: Framing, bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), Fault> {
        let whole = read(framing, bytes, usize::MAX / 2);
        for cut in 1..9 {
            assert_eq!(read(framing, bytes, cut), whole, "{cut} bytes at a time");
        }
        whole
    }

    #[test]
    fn lengths() {
        assert_eq!(both(Framing::None, b"next"), Ok((vec![], 0, true)));
        assert_eq!(both(Framing::Length(4), b"bodynext"), Ok((b"body".to_vec(), 4, true)));
        assert_eq!(both(Framing::Length(5), b"body"), Ok((b"body".to_vec(), 4, false)));
        assert_eq!(both(Framing::UntilClose, b"body"), Ok((b"body".to_vec(), 4, false)));
    }

    #[test]
    fn chunks() {
        let bytes = b"4\r\nbody\r\n0A;a=\"b\"\r\n0123456789\r\n0\r\n\r\nnext";
        assert_eq!(both(Framing::Chunked, bytes), Ok((b"body0123456789".to_vec(), bytes.len() - 4, true)));
        let trailers = b"0\r\nA: b\r\nC-d:\r\n\r\n";
        assert_eq!(both(Framing::Chunked, trailers), Ok((vec![], trailers.len(), true)));
        assert_eq!(both(Framing::Chunked, b"3\r\nab"), Ok((b"ab".to_vec(), 5, false)));
    }

    #[test]
    fn each_fault_by_name() {
        for (bytes, fault) in [
            (&b"\r\n"[..], Fault::BadChunkSize),
            (b"x\r\n", Fault::BadChunkSize),
            (b"-1\r\n", Fault::BadChunkSize),
            (b"1\n", Fault::BadChunkSize),
            (b"1;a\nb", Fault::BadChunkSize),
            (b"1\r\r", Fault::BadChunkSize),
            (b"fffffffffffffffff\r\n", Fault::ChunkTooLarge),
            (b"1\r\nab\r\n", Fault::BadChunkEnd),
            (b"1\r\na\n", Fault::BadChunkEnd),
            (b"1\r\na\r\r", Fault::BadChunkEnd),
            (b"1;0123456789012345678901234567890123456789", Fault::ExtensionsTooLong),
            (b"0\r\n\n", Fault::BadTrailer),
            (b"0\r\n: b\r\n", Fault::BadTrailer),
            (b"0\r\na b\r\n", Fault::BadTrailer),
            (b"0\r\na:\x01\r\n", Fault::BadTrailer),
            (b"0\r\na: b\r\r", Fault::BadTrailer),
            (b"0\r\n\rx", Fault::BadTrailer),
            (b"0\r\na: 0123456789012345678901234567890123456789", Fault::TrailersTooLong),
        ] {
            assert_eq!(both(Framing::Chunked, bytes), Err(fault), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn extensions_of_many_chunks_count_together() {
        let bytes = b"1;abc\r\nx\r\n".repeat(9);
        assert_eq!(both(Framing::Chunked, &bytes), Err(Fault::ExtensionsTooLong));
    }
}
