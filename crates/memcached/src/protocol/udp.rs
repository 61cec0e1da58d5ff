//! The header in front of each datagram (memcached's `doc/protocol.txt`, "UDP protocol"): eight bytes, numbers in network order.
//!
//! ```text
//!   0        2         4           6          8
//!   | request | sequence | datagrams | reserved | text ...
//! ```
//!
//! A client chooses the number of a request, and finds it in every datagram of the answer. Datagrams of an answer are numbered from 0, and each says how many
//! there are. A request is one datagram: those that say otherwise are not answered, as memcached does not either.

/// Bytes of the header.
pub const HEADER: usize = 8;
/// Most bytes of a datagram of an answer, header included, as memcached has it: less than any usual path takes.
pub const DATAGRAM: usize = 1400;
/// Bytes of an answer in one datagram.
pub const TEXT: usize = DATAGRAM - HEADER;
/// Most bytes of an answer: its datagrams are counted in 16 bits.
pub const LONGEST: usize = TEXT * u16::MAX as usize;

/// What a datagram says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The request's number, of the client's choice.
    pub request: u16,
    /// Which of the datagrams this is, from 0.
    pub sequence: u16,
    /// How many there are.
    pub datagrams: u16,
}

/// Why a datagram is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRequest {
    /// There is no text behind a whole header.
    Short,
    /// It is a part of a longer request, or of none.
    Part,
}

impl Header {
    /// The header of a request, which [`HEADER`] bytes into the datagram has its text. What is reserved, and the number of the only datagram, are not looked at.
    ///
    /// # Errors
    /// See [`NoRequest`].
    pub fn of_request(datagram: &[u8]) -> Result<Self, NoRequest> {
        let Some(&[a, b, c, d, e, f, ..]) = datagram.first_chunk::<HEADER>() else {
            return Err(NoRequest::Short);
        };
        // Guard: `datagram.len() == HEADER` as `false` fails protocol::udp::tests::headers_are_read
        if datagram.len() == HEADER {
            return Err(NoRequest::Short);
        }
        let header = Self {
            request: u16::from_be_bytes([a, b]),
            sequence: u16::from_be_bytes([c, d]),
            datagrams: u16::from_be_bytes([e, f]),
        };
        // Guard: `header.datagrams == 1` as `true` fails protocol::udp::tests::headers_are_read
        if header.datagrams == 1 { Ok(header) } else { Err(NoRequest::Part) }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEADER] {
        let [a, b] = self.request.to_be_bytes();
        let [c, d] = self.sequence.to_be_bytes();
        let [e, f] = self.datagrams.to_be_bytes();
        [a, b, c, d, e, f, 0, 0]
    }
}

/// Appends the datagrams of an answer one behind the other, each of [`DATAGRAM`] bytes but for the last. What is beyond [`LONGEST`] is left out.
pub fn write(request: u16, answer: &[u8], out: &mut Vec<u8>) {
    let answer = &answer[..answer.len().min(LONGEST)];
    let datagrams = answer.len().div_ceil(TEXT) as u16;
    for (sequence, text) in answer.chunks(TEXT).enumerate() {
        out.extend_from_slice(&Header { request, sequence: sequence as u16, datagrams }.bytes());
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_memcached_does() {
        let datagram = [1, 2, 0, 9, 0, 1, 0xff, 0xff, b'x'];
        let header = Header { request: 258, sequence: 9, datagrams: 1 };
        assert_eq!(Header::of_request(&datagram), Ok(header));
        assert_eq!(header.bytes(), [1, 2, 0, 9, 0, 1, 0, 0], "what is reserved is 0");
        for len in 0..=HEADER {
            assert_eq!(Header::of_request(&datagram[..len]), Err(NoRequest::Short), "{len} bytes");
        }
        for datagrams in [0u16, 2, 256, 257, u16::MAX] {
            let mut other = datagram;
            other[4..6].copy_from_slice(&datagrams.to_be_bytes());
            assert_eq!(Header::of_request(&other), Err(NoRequest::Part), "{datagrams} datagrams");
        }
    }

    #[test]
    fn answers_are_cut_and_numbered() {
        for len in [1, TEXT - 1, TEXT, TEXT + 1, 3 * TEXT, LONGEST, LONGEST + 1] {
            let answer: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut out = Vec::new();
            write(513, &answer, &mut out);
            let mut back = Vec::new();
            let count = len.min(LONGEST).div_ceil(TEXT);
            for (n, datagram) in out.chunks(DATAGRAM).enumerate() {
                let header = Header { request: 513, sequence: n as u16, datagrams: count as u16 };
                assert_eq!(datagram[..HEADER], header.bytes());
                back.extend_from_slice(&datagram[HEADER..]);
            }
            assert_eq!(out.chunks(DATAGRAM).len(), count);
            assert!(back == answer[..len.min(LONGEST)], "{len} bytes");
        }
    }
}
