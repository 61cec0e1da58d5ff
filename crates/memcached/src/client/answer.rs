//! Answers, read from bytes as they come: what they are does not depend on where the bytes are cut.

use crate::number;

/// Longest line of an answer that is read, bytes, its end included: a key of 250 bytes and numbers need less than 400, an error less than 1024.
pub const LINE: usize = 2048;
/// Longest value that is believed, bytes: memcached's largest item (`-I`) is 1 GiB.
pub const VALUE: usize = 1 << 30;

/// A piece of what a server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// A value begins: `VALUE`, or `VA` of the meta protocol.
    Value {
        /// Its key; empty if the answer does not say, as to a [`meta_get`](super::meta_get) of one key.
        key: &'a [u8],
        /// The client's flags, 0 of the meta protocol.
        flags: u32,
        /// Bytes that follow.
        len: usize,
    },
    /// Bytes of the value that began last, not all of them as a rule, and at least one.
    Bytes(&'a [u8]),
    /// That value is whole.
    Whole,
    /// `END`: there are no more values, or lines of `STAT`.
    End,
    /// `EN`: the key is not there.
    Miss,
    /// `STORED`, or `HD` of the meta protocol.
    Stored,
    /// `NOT_STORED`, `EXISTS`, `NOT_FOUND`, `NS`, `EX`, `NF`: it was not done.
    Refused(&'a [u8]),
    /// `MN`: everything before it is answered.
    NoOp,
    /// `STAT`: name and value.
    Stat(&'a [u8], &'a [u8]),
    /// `ERROR`, `CLIENT_ERROR ...` or `SERVER_ERROR ...`, the whole line.
    Error(&'a [u8]),
}

/// Why bytes are no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// A line has more than [`LINE`] bytes.
    LineTooLong,
    /// A line that no answer has.
    Line,
    /// A value of more than [`VALUE`] bytes, or of a length that is no number.
    Length,
    /// What stands behind a value is not the end of a line.
    NoEnd,
}

impl Malformed {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::LineTooLong => "a line of the answer is too long",
            Self::Line => "a line that is no answer of memcached",
            Self::Length => "a value whose length is no number, or beyond 1 GiB",
            Self::NoEnd => "no end of line behind a value",
        }
    }
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Line,
    /// So many bytes of a value.
    Value(usize),
    /// The end of line behind it, of which so many bytes have come.
    Tail(usize),
}

/// The answers of one connection.
#[derive(Debug)]
pub struct Answers {
    next: Next,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// That line was whole, and is over.
    over: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Self { next: Next::Line, begun: Vec::new(), over: false }
    }
}

impl Answers {
    /// Whether nothing of an answer has come that is not whole. A list of values is not looked at as one answer.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.next == Next::Line && (self.begun.is_empty() || self.over)
    }

    /// Takes the next piece from the front of `input`; `None` if more bytes are needed, and then `input` is empty.
    ///
    /// # Errors
    /// See [`Malformed`].
    #[inline]
    pub fn next<'a, 'b: 'a>(&'a mut self, input: &mut &'b [u8]) -> Result<Option<Answer<'a>>, Malformed> {
        if let Next::Value(left) = self.next
            && left > 0
        {
            let (bytes, rest) = input.split_at(left.min(input.len()));
            *input = rest;
            self.next = Next::Value(left - bytes.len());
            return Ok((!bytes.is_empty()).then_some(Answer::Bytes(bytes)));
        }
        if self.next != Next::Line {
            return Ok(self.tail(input)?.then_some(Answer::Whole));
        }
        if std::mem::take(&mut self.over) {
            self.begun.clear();
        }
        let Some(end) = input.iter().position(|b| *b == b'\n') else {
            // Guard: `self.begun.len() + input.len() >= LINE` as `false` fails
            // client::tests::what_is_no_answer
            if self.begun.len() + input.len() >= LINE {
                return Err(Malformed::LineTooLong);
            }
            self.begun.extend_from_slice(input);
            *input = &[];
            return Ok(None);
        };
        // Guard: `self.begun.len() + end >= LINE` as `false` fails client::tests::what_is_no_answer
        if self.begun.len() + end >= LINE {
            return Err(Malformed::LineTooLong);
        }
        let (line, rest) = input.split_at(end + 1);
        *input = rest;
        let line = if self.begun.is_empty() {
            line
        } else {
            self.begun.extend_from_slice(line);
            self.over = true;
            &self.begun
        };
        let answer = read(&line[..line.len() - 1])?;
        if let Answer::Value { len, .. } = answer {
            self.next = Next::Value(len);
        }
        Ok(Some(answer))
    }

    /// The end of line behind a value; whether it is whole.
    fn tail(&mut self, input: &mut &[u8]) -> Result<bool, Malformed> {
        let mut seen = if let Next::Tail(seen) = self.next { seen } else { 0 };
        while let Some((first, rest)) = input.split_first() {
            // Guard: `*first != b"\r\n"[seen]` as `false` fails client::tests::what_is_no_answer
            if *first != b"\r\n"[seen] {
                return Err(Malformed::NoEnd);
            }
            *input = rest;
            seen += 1;
            if seen == 2 {
                self.next = Next::Line;
                return Ok(true);
            }
        }
        self.next = Next::Tail(seen);
        Ok(false)
    }
}

/// What a line says, without its end of `\n`.
fn read(line: &[u8]) -> Result<Answer<'_>, Malformed> {
    let line = line.strip_suffix(b"\r").ok_or(Malformed::Line)?;
    let (word, rest) = match line.iter().position(|b| *b == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &[][..]),
    };
    Ok(match word {
        b"VALUE" => value(rest)?,
        b"VA" => meta_value(rest)?,
        b"END" => Answer::End,
        b"EN" => Answer::Miss,
        b"STORED" | b"HD" => Answer::Stored,
        b"MN" => Answer::NoOp,
        b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND" | b"NS" | b"EX" | b"NF" => Answer::Refused(word),
        b"STAT" => {
            let at = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
            Answer::Stat(&rest[..at], rest.get(at + 1..).unwrap_or_default())
        }
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => Answer::Error(line),
        _ => return Err(Malformed::Line),
    })
}

/// `KEY FLAGS LENGTH`, and perhaps the number for comparison.
fn value(rest: &[u8]) -> Result<Answer<'_>, Malformed> {
    let mut words = rest.split(|b| *b == b' ');
    let (Some(key), Some(flags), Some(len)) = (words.next(), words.next(), words.next()) else {
        return Err(Malformed::Line);
    };
    let flags = number::unsigned(flags).and_then(|flags| u32::try_from(flags).ok()).ok_or(Malformed::Line)?;
    Ok(Answer::Value { key, flags, len: length(len)? })
}

/// `LENGTH FLAGS...`, of which `k` brings the key.
fn meta_value(rest: &[u8]) -> Result<Answer<'_>, Malformed> {
    let mut words = rest.split(|b| *b == b' ');
    let len = length(words.next().unwrap_or_default())?;
    let key = words.find_map(|word| word.strip_prefix(b"k")).unwrap_or_default();
    Ok(Answer::Value { key, flags: 0, len })
}

fn length(text: &[u8]) -> Result<usize, Malformed> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let len = if digits { number::unsigned(text) } else { None };
    // Guard: `*len <= VALUE` as `true` fails client::tests::what_is_no_answer
    len.and_then(|len| usize::try_from(len).ok()).filter(|len| *len <= VALUE).ok_or(Malformed::Length)
}
