//! Meta commands: `mg`, `ms`, `md`, `ma`, `me`, whose behaviour is chosen by flags of one letter, some with a value behind it.

use std::borrow::Cow;

use super::words::Line;
use super::{BAD_FORMAT, Command, Parsed, Request, Words, base64, say, take, value};
use crate::number;
use crate::store::{KEY, Mode, item_size};

/// Most words of a line, the command's own included; memcached counts one more.
const MOST: usize = 19;
/// Longest opaque flag, its letter included.
const OPAQUE: usize = 32;

/// Key and flags.
#[derive(Debug, Clone, Default)]
pub struct Meta<'a> {
    /// The key, decoded if it came in base 64.
    pub key: Cow<'a, [u8]>,
    /// It came in base 64.
    pub binary: bool,
    /// All flags as they came, for answers that repeat them or stand in their order.
    pub flags: &'a [u8],
    /// `u`: not asked for.
    pub no_bump: bool,
    /// `N`: made if it is missing, with this time.
    pub vivify: Option<i32>,
    /// `T`: the time.
    pub time: Option<i32>,
    /// `R`: to be renewed if it has less time left.
    pub recache: Option<i32>,
    /// `v`: the value is wanted.
    pub value: bool,
    /// `I`: out of date.
    pub stale: bool,
    /// `C`: the number to compare with.
    pub cas: Option<u64>,
    /// `F`: the client's flags.
    pub client_flags: u32,
    /// `D`: by how much.
    pub delta: u64,
    /// `J`: the number to begin with.
    pub initial: u64,
    quiet: bool,
    mode: u8,
}

impl<'a> Meta<'a> {
    /// The flags, one by one.
    pub fn words(&self) -> Words<'a> {
        Words::of(self.flags)
    }
}

/// Reads the flags behind the first `n` words.
fn flags<'a>(tokens: &Line<'a>, n: usize) -> Result<Meta<'a>, &'static str> {
    const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
    let key = Cow::Borrowed(tokens.get(1));
    let mut meta = Meta { key, flags: tokens.after(n), delta: 1, ..Meta::default() };
    let (mut seen, mut wrong, mut why) = (0u128, false, BAD_FORMAT);
    let mut fail = |error: Option<&'static str>| {
        wrong = true;
        why = error.unwrap_or(why);
    };
    for word in meta.words() {
        let (letter, value) = (word[0], &word[1..]);
        // Guard: `seen & (1 << letter) != 0` as `false` fails answer::tests::keys_are_bounded
        if letter >= 127 || seen & (1 << letter) != 0 {
            return Err("CLIENT_ERROR duplicate flag");
        }
        seen |= 1 << letter;
        match letter {
            b'b' => {
                meta.binary = true;
                match base64::decode(&meta.key) {
                    Some(key) => meta.key = Cow::Owned(key),
                    None => fail(Some("CLIENT_ERROR error decoding key")),
                }
            }
            b'N' | b'T' | b'R' => {
                let time = number::signed_32(value);
                if time.is_none() {
                    fail(Some(BAD_TOKEN));
                }
                match letter {
                    b'N' => meta.vivify = time,
                    b'T' => meta.time = time,
                    _ => meta.recache = time,
                }
            }
            b'l' | b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'h' => {}
            b'v' => meta.value = true,
            b'u' => meta.no_bump = true,
            b'q' => meta.quiet = true,
            b'I' => meta.stale = true,
            b'F' => match number::unsigned_32(value) {
                Some(flags) => meta.client_flags = flags,
                None => fail(None),
            },
            b'C' => {
                meta.cas = number::unsigned(value);
                if meta.cas.is_none() {
                    fail(Some(BAD_TOKEN));
                }
            }
            b'M' if word.len() == 2 => meta.mode = value[0],
            b'M' => fail(Some("CLIENT_ERROR incorrect length for M token")),
            b'J' => match number::unsigned(value) {
                Some(initial) => meta.initial = initial,
                None => fail(Some("CLIENT_ERROR invalid numeric initial value")),
            },
            b'D' => match number::unsigned(value) {
                Some(delta) => meta.delta = delta,
                None => fail(Some("CLIENT_ERROR invalid numeric delta value")),
            },
            _ => return Err("CLIENT_ERROR invalid flag"),
        }
    }
    if wrong { Err(why) } else { Ok(meta) }
}

/// Whether an opaque flag is longer than may be.
fn too_opaque(meta: &Meta<'_>) -> bool {
    meta.words().any(|word| word[0] == b'O' && word.len() > OPAQUE)
}

pub(super) fn request<'a>(tokens: &Line<'a>, rest: &'a [u8], item_max: usize, used: usize) -> Parsed<'a> {
    let name = tokens.get(0);
    if name == b"me" {
        return debug(tokens, used);
    }
    if tokens.len() < 2 {
        return say("ERROR", false, used);
    }
    if tokens.get(1).len() > KEY {
        return say(BAD_FORMAT, false, used);
    }
    if name == b"ms" {
        return set(tokens, rest, item_max, used);
    }
    if tokens.len() > MOST {
        let text = if name == b"mg" {
            "CLIENT_ERROR options flags are too long"
        } else {
            "CLIENT_ERROR options flags too long"
        };
        return say(text, false, used);
    }
    let meta = match flags(tokens, 2) {
        Ok(meta) => meta,
        Err(why) if name == b"mg" => return say(why, false, used),
        Err(_) => return say("CLIENT_ERROR invalid or duplicate flag", false, used),
    };
    let up = match meta.mode {
        _ if name != b"ma" => true,
        0 | b'I' | b'+' => true,
        b'D' | b'-' => false,
        _ => return say("CLIENT_ERROR invalid mode for ma M token", false, used),
    };
    if too_opaque(&meta) {
        return say("CLIENT_ERROR opaque token too long", false, used);
    }
    let quiet = meta.quiet;
    let command = match name {
        b"mg" => Command::MetaGet(meta),
        b"md" => Command::MetaDelete(meta),
        _ => Command::MetaDelta(meta, up),
    };
    take(command, quiet, used)
}

fn debug<'a>(tokens: &Line<'a>, used: usize) -> Parsed<'a> {
    let key = tokens.get(1);
    if tokens.len() < 2 || key.len() > KEY {
        return say(BAD_FORMAT, false, used);
    }
    if tokens.get(2) != b"b" {
        return take(Command::MetaDebug(Cow::Borrowed(key)), false, used);
    }
    match base64::decode(key) {
        Some(key) => take(Command::MetaDebug(Cow::Owned(key)), false, used),
        None => say(BAD_FORMAT, false, used),
    }
}

fn set<'a>(tokens: &Line<'a>, rest: &'a [u8], item_max: usize, used: usize) -> Parsed<'a> {
    if tokens.len() == 2 {
        return say(BAD_FORMAT, false, used);
    }
    if tokens.len() > MOST {
        return say("CLIENT_ERROR options flags too long", false, used);
    }
    let len = number::signed_32(tokens.get(2)).and_then(|len| usize::try_from(len).ok());
    let Some(len) = len.filter(|len| *len <= i32::MAX as usize - 2) else {
        return say(BAD_FORMAT, false, used);
    };
    let refuse = |text| {
        let command = Command::Say(text);
        Parsed::Request(Request { command, quiet: false, skip: len + 2 }, used)
    };
    let meta = match flags(tokens, 3) {
        Ok(meta) => meta,
        Err(why) => return refuse(why),
    };
    let mode = match meta.mode {
        0 | b'S' => Mode::Set,
        b'E' => Mode::Add,
        b'A' => Mode::Append,
        b'P' => Mode::Prepend,
        b'R' => Mode::Replace,
        _ => return refuse("CLIENT_ERROR invalid mode for ms M token"),
    };
    let mode = if meta.cas.is_some() && matches!(mode, Mode::Set | Mode::Replace) { Mode::Cas } else { mode };
    if too_opaque(&meta) {
        return refuse("CLIENT_ERROR opaque token too long");
    }
    // Guard: `item_size(meta.key.len(), meta.client_flags, len) > item_max` as `false` fails
    // protocol::tests::a_value_that_is_too_large
    if item_size(meta.key.len(), meta.client_flags, len) > item_max {
        let command = Command::TooLarge { key: meta.key, forget: true };
        return Parsed::Request(Request { command, quiet: false, skip: len + 2 }, used);
    }
    match value(rest, len) {
        Err(more) => Parsed::More(used + more),
        Ok(None) => say(super::BAD_CHUNK, false, used + len + 2),
        Ok(Some(value)) => {
            let quiet = meta.quiet;
            take(Command::MetaSet(meta, mode, value), quiet, used + len + 2)
        }
    }
}
