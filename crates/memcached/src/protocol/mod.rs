//! Requests of memcached's text and meta protocol, read from bytes without copying them.
//!
//! [`parse`] takes what a client has sent so far and says what stands at its front: a whole [`Request`] with its value, or that more is needed.
//! What it says depends on the bytes alone, not on how they came. Read memcached's `doc/protocol.txt`; where that is silent, this follows
//! version 1.6.18, down to the numbers that C's functions accept ([`crate::number`]).
//!
//! A request that is wrong is a request, too: [`Command::Say`] with what memcached says. Some bring bytes that are then to be skipped.
//!
//! Not here: the binary protocol, which memcached itself advises against, and commands that look into its inside (`watch`, `lru_crawler`,
//! `slabs`, `lru`, `cache_memlimit`): these get `ERROR`.

mod base64;
mod find;
mod meta;
pub mod udp;
mod words;

use std::borrow::Cow;

use crate::number;
use crate::store::{KEY, Mode, item_size};
use words::Line;

pub use base64::{decode, encode};
pub use meta::Meta;
pub use words::Words;

/// What a client without an end of line may have sent, bytes; a line of `get` may be longer.
pub const LINE: usize = 2048;
/// Longest line of `get`, bytes.
pub const GET_LINE: usize = 1 << 20;

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
const BAD_TIME: &str = "CLIENT_ERROR invalid exptime argument";
const ERROR: &str = "ERROR";
/// What `version` says: the version whose answers these are, and who gives them.
pub const VERSION: &str = "1.6.18-flowlane";

/// What stands at the front of the bytes.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// A request is not whole. It needs so many bytes, if that is known, else more than there are.
    More(usize),
    /// The line is too long: the connection ends.
    TooLong,
    /// A request, of so many bytes.
    Request(Request<'a>, usize),
}

/// A request.
#[derive(Debug)]
pub struct Request<'a> {
    /// What is asked for.
    pub command: Command<'a>,
    /// No answer is wanted (`noreply`), or none to what goes well (`q` of meta commands).
    pub quiet: bool,
    /// Bytes behind it that belong to it and are to be skipped.
    pub skip: usize,
}

/// What is asked for.
#[derive(Debug)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        /// Keys, all of a length that a key may have.
        keys: Words<'a>,
        /// With the number for comparison.
        cas: bool,
        /// A new time of expiry, as the client gives it.
        touch: Option<i32>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Put {
        /// Which.
        mode: Mode,
        /// The key.
        key: &'a [u8],
        /// The client's flags.
        flags: u32,
        /// The time of expiry, as the client gives it.
        time: i32,
        /// The number to compare with.
        cas: u64,
        /// The value.
        value: &'a [u8],
    },
    /// A value that is larger than any may be; its bytes are skipped.
    TooLarge {
        /// The key.
        key: Cow<'a, [u8]>,
        /// The item there goes, so that it is not taken for the new one.
        forget: bool,
    },
    /// `delete`.
    Delete(&'a [u8]),
    /// `touch`, with the new time.
    Touch(&'a [u8], i32),
    /// `incr` (`true`) and `decr`.
    Delta(&'a [u8], bool, u64),
    /// `mg`.
    MetaGet(Meta<'a>),
    /// `ms`, with the value.
    MetaSet(Meta<'a>, Mode, &'a [u8]),
    /// `md`.
    MetaDelete(Meta<'a>),
    /// `ma`, whether up.
    MetaDelta(Meta<'a>, bool),
    /// `me`.
    MetaDebug(Cow<'a, [u8]>),
    /// `flush_all`, in so many seconds.
    Flush(i32),
    /// `stats`, and of what.
    Stats(&'a [u8]),
    /// A fixed answer: a line without its end.
    Say(&'static str),
    /// The connection ends once everything before is answered.
    Quit,
}

impl Command<'_> {
    /// The key of a command that has one.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put { key, .. } | Self::Delete(key) | Self::Touch(key, _) | Self::Delta(key, ..) => {
                Some(key)
            }
            Self::TooLarge { key, .. } | Self::MetaDebug(key) => Some(key),
            Self::MetaGet(meta)
            | Self::MetaSet(meta, ..)
            | Self::MetaDelete(meta)
            | Self::MetaDelta(meta, _) => Some(&meta.key),
            Self::Get { .. } | Self::Flush(_) | Self::Stats(_) | Self::Say(_) | Self::Quit => None,
        }
    }
}

/// Reads what stands at the front of `bytes`. `item_max`: largest item, bytes, as [`item_size`] counts.
#[must_use]
pub fn parse(bytes: &[u8], item_max: usize) -> Parsed<'_> {
    let short = &bytes[..bytes.len().min(LINE + 1)];
    let end = match find::byte(short, b'\n') {
        Some(end) => end,
        None if bytes.len() <= LINE => return Parsed::More(bytes.len() + 1),
        // Guard: `!is_get(bytes)` as `false` fails protocol::tests::lines_are_bounded
        None if !is_get(bytes) => return Parsed::TooLong,
        None => match find::byte(&bytes[..bytes.len().min(GET_LINE)], b'\n') {
            Some(end) => end,
            // Guard: `bytes.len() >= GET_LINE` as `false` fails protocol::tests::lines_are_bounded
            None if bytes.len() >= GET_LINE => return Parsed::TooLong,
            None => return Parsed::More(bytes.len() + 1),
        },
    };
    let line = &bytes[..end];
    let line = if end > 1 && line[end - 1] == b'\r' { &line[..end - 1] } else { line };
    // C's string ends there.
    let line = find::byte(line, 0).map_or(line, |zero| &line[..zero]);
    request(line, &bytes[end + 1..], item_max, end + 1)
}

/// The key of a `get` for one key at the front of `bytes`, if the line is as clients write it: no other space, no control character, `\r\n`. What it is
/// `None` for, [`parse`] reads; where it is not, both read the same.
#[must_use]
#[inline]
pub fn one_get(bytes: &[u8]) -> Option<&[u8]> {
    let text = bytes.strip_prefix(b"get ")?;
    // Guard: `text.len().min(KEY + 1)` as `text.len()` fails protocol::tests::a_get_for_one_key
    let len = find::blank(&text[..text.len().min(KEY + 1)])?;
    (len > 0 && text[len..].starts_with(b"\r\n")).then(|| &text[..len])
}

/// Bytes of the line of [`one_get`] beside the key.
pub const ONE_GET: usize = "get \r\n".len();

/// Whether a line without an end is one that may be long.
fn is_get(bytes: &[u8]) -> bool {
    let spaces = bytes.iter().take(101).take_while(|b| **b == b' ').count();
    spaces <= 100 && (bytes[spaces..].starts_with(b"get ") || bytes[spaces..].starts_with(b"gets "))
}

fn say<'a>(text: &'static str, quiet: bool, used: usize) -> Parsed<'a> {
    Parsed::Request(Request { command: Command::Say(text), quiet, skip: 0 }, used)
}

fn take(command: Command<'_>, quiet: bool, used: usize) -> Parsed<'_> {
    Parsed::Request(Request { command, quiet, skip: 0 }, used)
}

fn request<'a>(line: &'a [u8], rest: &'a [u8], item_max: usize, used: usize) -> Parsed<'a> {
    let tokens = Line::of(line);
    let count = tokens.len();
    let name = tokens.get(0);
    // A one-letter command is none, whatever follows.
    if name.len() < 2 {
        return say(ERROR, false, used);
    }
    match name {
        b"mg" | b"md" | b"ma" | b"me" | b"ms" => meta::request(&tokens, rest, item_max, used),
        b"mn" => say("MN", false, used),
        b"get" | b"gets" | b"gat" | b"gats" | b"bget" if count >= 2 => get(&tokens, used),
        b"set" if matches!(count, 5 | 6) => put(Mode::Set, &tokens, rest, item_max, used),
        b"add" if matches!(count, 5 | 6) => put(Mode::Add, &tokens, rest, item_max, used),
        b"append" if matches!(count, 5 | 6) => put(Mode::Append, &tokens, rest, item_max, used),
        b"replace" if matches!(count, 5 | 6) => put(Mode::Replace, &tokens, rest, item_max, used),
        b"prepend" if matches!(count, 5 | 6) => put(Mode::Prepend, &tokens, rest, item_max, used),
        b"cas" if matches!(count, 6 | 7) => put(Mode::Cas, &tokens, rest, item_max, used),
        b"incr" | b"decr" if matches!(count, 3 | 4) => delta(&tokens, used),
        b"touch" if matches!(count, 3 | 4) => touch(&tokens, used),
        b"delete" if (2..=4).contains(&count) => delete(&tokens, used),
        b"flush_all" if (1..=3).contains(&count) => flush(&tokens, used),
        b"verbosity" if matches!(count, 2 | 3) => {
            let level = number::unsigned_32(tokens.get(1));
            say(if level.is_some() { "OK" } else { BAD_FORMAT }, tokens.is_quiet(), used)
        }
        b"stats" => take(Command::Stats(tokens.after(1)), false, used),
        b"version" => say("VERSION 1.6.18-flowlane", false, used),
        b"shutdown" => say("ERROR: shutdown not enabled", false, used),
        b"quit" => take(Command::Quit, false, used),
        _ if unknown(name) && tokens.get(count - 1).starts_with(b"HTTP/") => take(Command::Quit, true, used),
        _ => say(ERROR, false, used),
    }
}

/// Whether memcached looks for a request of HTTP behind a command that it does not know; it knows some by their first letter.
fn unknown(name: &[u8]) -> bool {
    !matches!(name[0], b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't')
}

fn get<'a>(tokens: &Line<'a>, used: usize) -> Parsed<'a> {
    let name = tokens.get(0);
    let (touch, first) = if name.starts_with(b"gat") {
        match number::signed_32(tokens.get(1)) {
            Some(time) => (Some(time), 2),
            None => return say("CLIENT_ERROR invalid exptime argument", false, used),
        }
    } else {
        (None, 1)
    };
    let keys = Words::of(tokens.after(first));
    // Guard: `keys.clone().any(|key| key.len() > KEY)` as `false` fails answer::tests::keys_are_bounded
    if keys.clone().any(|key| key.len() > KEY) {
        return say(BAD_FORMAT, false, used);
    }
    take(Command::Get { keys, cas: name.ends_with(b"s"), touch }, false, used)
}

fn put<'a>(mode: Mode, tokens: &Line<'a>, rest: &'a [u8], item_max: usize, used: usize) -> Parsed<'a> {
    let quiet = tokens.is_quiet();
    let key = tokens.get(1);
    if key.len() > KEY {
        return say(BAD_FORMAT, quiet, used);
    }
    let numbers = (
        number::unsigned_32(tokens.get(2)),
        number::signed_32(tokens.get(3)),
        number::signed_32(tokens.get(4)),
    );
    let (Some(flags), Some(time), Some(len)) = numbers else { return say(BAD_FORMAT, quiet, used) };
    let cas = if mode == Mode::Cas { number::unsigned(tokens.get(5)) } else { Some(0) };
    let (Some(cas), Ok(len)) = (cas, usize::try_from(len)) else { return say(BAD_FORMAT, quiet, used) };
    if len > i32::MAX as usize - 2 {
        return say(BAD_FORMAT, quiet, used);
    }
    // Guard: `item_size(key.len(), flags, len) > item_max` as `false` fails
    // protocol::tests::a_value_that_is_too_large
    if item_size(key.len(), flags, len) > item_max {
        let command = Command::TooLarge { key: Cow::Borrowed(key), forget: mode == Mode::Set };
        return Parsed::Request(Request { command, quiet, skip: len + 2 }, used);
    }
    match value(rest, len) {
        Err(more) => Parsed::More(used + more),
        Ok(None) => say(BAD_CHUNK, quiet, used + len + 2),
        Ok(Some(value)) => take(Command::Put { mode, key, flags, time, cas, value }, quiet, used + len + 2),
    }
}

/// A value of so many bytes and its end of line. `None`: something else stands there. An error is the number of bytes that are needed.
fn value(rest: &[u8], len: usize) -> Result<Option<&[u8]>, usize> {
    let Some(block) = rest.get(..len + 2) else { return Err(len + 2) };
    Ok(block.ends_with(b"\r\n").then(|| &block[..len]))
}

fn delta<'a>(tokens: &Line<'a>, used: usize) -> Parsed<'a> {
    let (quiet, key) = (tokens.is_quiet(), tokens.get(1));
    if key.len() > KEY {
        return say(BAD_FORMAT, quiet, used);
    }
    match number::unsigned(tokens.get(2)) {
        Some(by) => take(Command::Delta(key, tokens.get(0) == b"incr", by), quiet, used),
        None => say("CLIENT_ERROR invalid numeric delta argument", quiet, used),
    }
}

fn touch<'a>(tokens: &Line<'a>, used: usize) -> Parsed<'a> {
    let (quiet, key) = (tokens.is_quiet(), tokens.get(1));
    if key.len() > KEY {
        return say(BAD_FORMAT, quiet, used);
    }
    match number::signed_32(tokens.get(2)) {
        Some(time) => take(Command::Touch(key, time), quiet, used),
        None => say(BAD_TIME, quiet, used),
    }
}

fn delete<'a>(tokens: &Line<'a>, used: usize) -> Parsed<'a> {
    let (count, mut quiet) = (tokens.len(), false);
    if count > 2 {
        // Once a time could be given for which the key was locked; 0 may still be.
        let zero = tokens.get(2) == b"0";
        quiet = tokens.is_quiet();
        if !(count == 3 && (zero || quiet) || count == 4 && zero && quiet) {
            return say("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]", quiet, used);
        }
    }
    let key = tokens.get(1);
    if key.len() > KEY { say(BAD_FORMAT, quiet, used) } else { take(Command::Delete(key), quiet, used) }
}

fn flush<'a>(tokens: &Line<'a>, used: usize) -> Parsed<'a> {
    let quiet = tokens.is_quiet();
    let delay =
        if tokens.len() == 1 + usize::from(quiet) { Some(0) } else { number::signed_32(tokens.get(1)) };
    match delay {
        Some(delay) => take(Command::Flush(delay), quiet, used),
        None => say(BAD_TIME, quiet, used),
    }
}

#[cfg(test)]
mod tests;
