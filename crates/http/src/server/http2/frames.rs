//! Incoming frames, observed below the HTTP/2 library (RFC 9113 §4.1).
//!
//! The library answers frames and enforces the protocol. It does not report two things that timeouts and limits need, so the nine-byte
//! frame headers are parsed here as well: whether a frame or a header block has begun and is incomplete, and how many frames without
//! content arrived, which cost work.

/// Bytes before a frame's payload.
const HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Observations on some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// Frames that carry neither a request nor a body.
    pub(super) idle: u64,
    /// Whether at some point no frame was incomplete.
    pub(super) whole: bool,
}

/// Follows the frames of one direction of one connection.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: [u8; HEADER],
    /// Bytes of `header` received.
    have: usize,
    /// Bytes of the payload not received yet.
    left: usize,
    /// Whether the current frame is DATA, which has its own timeout.
    data: bool,
    /// Whether a header block is incomplete.
    block: bool,
}

impl Frames {
    /// Observes received bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Seen {
        let mut seen = Seen::default();
        while !bytes.is_empty() {
            seen.whole |= !self.is_partial();
            if self.left > 0 {
                let n = self.left.min(bytes.len());
                self.left -= n;
                bytes = &bytes[n..];
                continue;
            }
            let n = (HEADER - self.have).min(bytes.len());
            self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if self.have == HEADER {
                self.have = 0;
                seen.idle += u64::from(self.frame());
            }
        }
        seen.whole |= !self.is_partial();
        seen
    }

    /// A frame header is complete. Returns `true` for a frame without content.
    fn frame(&mut self) -> bool {
        let [a, b, c, kind, flags, ..] = self.header;
        self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.data = kind == DATA;
        match kind {
            DATA => self.left == 0 && flags & END_STREAM == 0,
            HEADERS => {
                self.block = flags & END_HEADERS == 0;
                false
            }
            CONTINUATION => {
                self.block = flags & END_HEADERS == 0;
                true
            }
            // PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, and unknown types.
            _ => true,
        }
    }

    /// Whether a frame (except DATA) or a header block has begun and must be completed within the timeout.
    pub(super) fn is_partial(&self) -> bool {
        self.have > 0 || self.block || self.left > 0 && !self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len[1..], &[kind, flags], &[0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let all = [
            frame(4, 0, &[0; 6]), // SETTINGS: counts
            frame(HEADERS, END_HEADERS | END_STREAM, &[1; 30]),
            frame(DATA, 0, &[2; 300]),
            frame(DATA, 0, &[]), // counts
            frame(DATA, END_STREAM, &[]),
            frame(6, 0, &[0; 8]),        // PING: counts
            frame(200, 0, &[0; 20_000]), // unknown: counts
        ]
        .concat();
        for size in [1, 2, 8, 9, 10, 100, all.len()] {
            let mut frames = Frames::default();
            assert_eq!(all.chunks(size).map(|piece| frames.feed(piece).idle).sum::<u64>(), 4, "by {size}");
            assert!(!frames.is_partial());
        }
    }

    #[test]
    fn what_is_not_whole() {
        let mut frames = Frames::default();
        assert!(!frames.is_partial());
        let ping = frame(6, 0, &[0; 8]);
        for (i, byte) in ping.iter().enumerate() {
            frames.feed(&[*byte]);
            assert_eq!(frames.is_partial(), i + 1 < ping.len(), "after {i}");
        }
        // A block of header fields in three frames.
        for (kind, flags, partial) in
            [(HEADERS, 0, true), (CONTINUATION, 0, true), (CONTINUATION, END_HEADERS, false)]
        {
            frames.feed(&frame(kind, flags, b"abc"));
            assert_eq!(frames.is_partial(), partial);
        }
        // Frame after frame, each cut in the middle: every one has its own time.
        let two = [ping.clone(), ping.clone()].concat();
        frames.feed(&two[..5]);
        assert_eq!(frames.feed(&two[5..20]), Seen { idle: 1, whole: true });
        assert!(frames.is_partial());
        assert!(!frames.feed(&two[20..21]).whole);
        frames.feed(&two[21..]);
        // Data may come as slowly as bodies may.
        frames.feed(&frame(DATA, 0, &[0; 100])[..50]);
        assert!(!frames.is_partial());
    }
}
