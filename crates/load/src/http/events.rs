//! Server-sent events: a stream of events in an answer, as the HTML standard has it (9.2.6), read as it comes.
//!
//! Lines end with CR, LF or both; an empty line ends an event; lines that begin with a colon are comments, by which servers keep a
//! connection open; a mark of UTF-8 at the very beginning is skipped. An event counts if it has data. Of its data only as much is kept as
//! tells whether it is the one that ends the stream, so however much comes, a stream needs a hundred bytes. The time of an event is that of
//! the read that brought its end.
//!
//! Not supported: `id`, `retry` and reconnecting: a load asks again when it is to ask again.

/// Most bytes of one event.
const MOST: u64 = 1 << 20;
/// Longest text of data that ends a stream, bytes.
const MOST_END: usize = 256;

/// What is known of a stream of events before it comes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventStream {
    /// The data of the event behind the last, such as `[DONE]`: it is none itself, and without it a stream has ended too early.
    pub end: Option<String>,
}

impl EventStream {
    /// A stream that ends with an event of this data.
    ///
    /// # Errors
    /// It has several lines or is too long, in one line.
    pub fn ending_with(end: Option<&str>) -> Result<Self, String> {
        let bad = |end: &&str| end.is_empty() || end.len() > MOST_END || end.contains(['\r', '\n']);
        match end.filter(bad) {
            Some(end) => Err(format!(
                "'{}': the data that ends a stream is one line of 256 bytes at most",
                end.escape_debug()
            )),
            None => Ok(Self { end: end.map(str::to_owned) }),
        }
    }
}

/// A stream that is being read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The beginning of the line that is being read.
    line: Vec<u8>,
    /// Its length.
    length: u64,
    /// The byte before was a CR: an LF belongs to it.
    after_cr: bool,
    /// Whether a line was read before.
    begun: bool,
    /// Lines of data of the event that is being read, whether the one of them ends the stream, and its bytes.
    data: u32,
    ends: bool,
    size: u64,
    /// The end has come.
    pub(super) ended: bool,
    /// Events so far, and when the last came.
    pub(super) events: u64,
    pub(super) last: u64,
}

/// An event is larger than any may be.
#[derive(Debug)]
pub(super) struct TooLarge;

impl Reading {
    /// Begins anew.
    pub(super) fn begin(&mut self) {
        let line = std::mem::take(&mut self.line);
        *self = Self { line, ..Self::default() };
        self.line.clear();
    }

    /// Reads a piece of the stream that came at `now`; returns how many events it completes.
    pub(super) fn read(&mut self, of: &EventStream, piece: &[u8], now: u64) -> Result<u64, TooLarge> {
        let (mut rest, mut found) = (piece, 0);
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|b| matches!(b, b'\r' | b'\n'));
            let part = &rest[..end.unwrap_or(rest.len())];
            // Guard: `(MOST_END + 16).saturating_sub(self.line.len())` as `usize::MAX` fails http::events
            let room = (MOST_END + 16).saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            self.length += part.len() as u64;
            self.size += part.len() as u64;
            // Guard: `self.size > MOST` as `false` fails http::events
            if self.size > MOST {
                return Err(TooLarge);
            }
            let Some(end) = end else { break };
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            found += u64::from(self.line_ends(of));
        }
        if found > 0 {
            self.events += found;
            self.last = now;
        }
        Ok(found)
    }

    /// The end of a line; whether it is that of an event.
    fn line_ends(&mut self, of: &EventStream) -> bool {
        if !std::mem::replace(&mut self.begun, true) && self.line.starts_with(b"\xef\xbb\xbf") {
            self.line.drain(..3);
            self.length -= 3;
        }
        let length = std::mem::take(&mut self.length);
        if length == 0 {
            let (data, ends) = (std::mem::take(&mut self.data), std::mem::take(&mut self.ends));
            self.size = 0;
            let is_end = data == 1 && ends;
            self.ended |= is_end;
            return data > 0 && !is_end;
        }
        let is_whole = length == self.line.len() as u64;
        let value = match self.line.strip_prefix(b"data") {
            Some([]) => Some(&b""[..]),
            Some([b':', rest @ ..]) => Some(rest.strip_prefix(b" ").unwrap_or(rest)),
            _ => None,
        };
        if let Some(value) = value {
            self.data = self.data.saturating_add(1);
            self.ends = is_whole && of.end.as_ref().is_some_and(|end| end.as_bytes() == value);
        }
        if self.line.first() == Some(&b':') && self.data == 0 {
            // A comment between events is none of them, however many there are.
            self.size = 0;
        }
        self.line.clear();
        false
    }

    /// The answer has ended.
    ///
    /// # Errors
    /// The stream has not, in words.
    pub(super) fn finish(&mut self, of: &EventStream) -> Result<(), String> {
        // Some leave out the line behind the last event.
        if self.length > 0 {
            self.line_ends(of);
        }
        self.ended |= self.data == 1 && self.ends;
        if let Some(end) = of.end.as_ref().filter(|_| !self.ended) {
            return Err(format!("the stream ended after {} events without '{end}'", self.events));
        }
        // Guard: `!self.ends` as `false` fails http::events
        if self.data > 0 && !self.ends {
            return Err(format!("the stream ended within an event, after {} whole ones", self.events));
        }
        // Guard: `self.events == 0` as `false` fails http::events
        if self.events == 0 {
            return Err("the stream had no event".to_owned());
        }
        Ok(())
    }
}

/// Whether a content type is that of a stream of events.
pub(super) fn is_stream(kind: Option<&[u8]>) -> bool {
    let kind = kind.and_then(|kind| kind.split(|b| *b == b';').next()).unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], end: Option<&str>, cut: usize) -> (u64, Result<(), String>) {
        let of = EventStream::ending_with(end).unwrap();
        let mut reading = Reading::default();
        for piece in text.chunks(cut) {
            reading.read(&of, piece, 1).unwrap();
        }
        (reading.events, reading.finish(&of))
    }

    #[test]
    fn events_are_found_however_they_are_written_and_cut() {
        for (text, end, events) in [
            ("data: a\n\ndata: b\n\n", None, 2),
            ("data: a\r\n\r\ndata: b\r\n\r\n", None, 2),
            ("data: a\r\rdata: b\r\r", None, 2),
            ("data: a\r\n\rdata: b\n\r\n\n\n", None, 2),
            ("\u{feff}data: a\n\n", None, 1),
            (": keep\n\n:\n\ndata: a\n\n: keep\n\n", None, 1),
            ("event: x\nid: 3\n\ndata: a\nevent: y\n\n", None, 1),
            ("data: a\ndata: b\n\n", None, 1),
            ("data\n\ndata:\n\ndatax: 1\n\n", None, 2),
            ("data: a\n\ndata: [DONE]\n\n", Some("[DONE]"), 1),
            ("data: a\n\ndata:[DONE]\n\n", Some("[DONE]"), 1),
            ("data: a\n\ndata: [DONE]\n", Some("[DONE]"), 1),
            ("data: a\n\ndata: [DONE]", Some("[DONE]"), 1),
            // Two lines of data are other data.
            ("data: [DONE]\ndata: a\n\ndata: a\ndata: [DONE]\n\ndata: [DONE]\n\n", Some("[DONE]"), 2),
            ("data: [DONE]\n\n", None, 1),
        ] {
            for cut in 1..=text.len() {
                let (found, finished) = read(text.as_bytes(), end, cut);
                assert_eq!((found, finished), (events, Ok(())), "{text:?} in pieces of {cut}");
            }
        }
    }

    #[test]
    fn what_ends_early_is_said() {
        for (text, end, what) in [
            ("", None, "no event"),
            (": only\n\n: comments\n\n", None, "no event"),
            ("data: a\n\ndata: b\n", None, "within an event, after 1 whole"),
            ("data: a\n\ndata: b", None, "within an event, after 1 whole"),
            ("data: a\n\n", Some("[DONE]"), "after 1 events without '[DONE]'"),
            ("data: a\n\ndata: [DONE]x\n\n", Some("[DONE]"), "after 2 events without"),
        ] {
            for cut in 1..=text.len().max(1) {
                let (_, finished) = read(text.as_bytes(), end, cut);
                let why = finished.unwrap_err();
                assert!(why.contains(what), "{text:?} in pieces of {cut}: {why}");
            }
        }
    }

    #[test]
    fn huge_events_are_refused_and_comments_may_go_on() {
        let of = EventStream::default();
        let mut reading = Reading::default();
        let piece = vec![b'x'; 64 << 10];
        reading.read(&of, b"data: ", 0).unwrap();
        let read = (0..17).map(|_| reading.read(&of, &piece, 0)).find(Result::is_err);
        assert!(read.is_some());
        assert!(reading.line.capacity() < 2048, "{}", reading.line.capacity());
        reading.begin();
        for _ in 0..100_000 {
            assert_eq!(reading.read(&of, b": still here, still here\n", 0).unwrap(), 0);
        }
        assert_eq!(reading.read(&of, b"data: x\n\n", 7).unwrap(), 1);
        assert_eq!((reading.events, reading.last), (1, 7));
    }

    #[test]
    fn ends_are_one_line() {
        for bad in ["", "a\nb", &"x".repeat(257)] {
            assert!(EventStream::ending_with(Some(bad)).unwrap_err().contains("one line"), "{bad}");
        }
        let end = "x".repeat(256);
        let text = format!("data: a\n\ndata: {end}\n\n");
        assert_eq!(read(text.as_bytes(), Some(&end), 7), (1, Ok(())));
        assert!(is_stream(Some(b"Text/Event-Stream; charset=utf-8")));
        assert!(!is_stream(Some(b"application/json")) && !is_stream(None));
    }
}
