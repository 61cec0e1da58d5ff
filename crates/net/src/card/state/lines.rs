//! Lines of a name and a value, and the values that a state file has.

use crate::card::{Fields, FlowKind};

/// Slots and key bytes of a card, at most.
pub(super) const SLOTS: usize = 1 << 16;
const KEY: usize = 1 << 10;

/// The lines of a file, each of which is asked for once.
pub(in super::super) struct Lines<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Lines<'a> {
    /// The lines of a text whose first is this.
    pub(in super::super) fn new(first: &str, text: &'a str) -> Result<Self, String> {
        let rest = text.strip_prefix(first).and_then(|rest| rest.strip_prefix('\n'));
        let rest = rest.ok_or_else(|| format!("does not begin with '{first}'"))?;
        if !rest.ends_with('\n') {
            return Err("is cut off".to_owned());
        }
        let split = |line: &'a str| line.split_once(' ').ok_or("has a line without a value");
        Ok(Self(rest.lines().map(split).collect::<Result<_, _>>()?))
    }

    pub(in super::super) fn take_all(&mut self, name: &str) -> Vec<&'a str> {
        let (taken, rest) = self.0.iter().partition::<Vec<_>, _>(|line| line.0 == name);
        self.0 = rest;
        taken.into_iter().map(|line| line.1).collect()
    }

    pub(in super::super) fn option(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|line| line.0 == name)?;
        Some(self.0.remove(at).1)
    }

    pub(in super::super) fn take(&mut self, name: &str) -> Result<&'a str, String> {
        self.option(name).ok_or_else(|| format!("has no line '{name}'"))
    }

    /// An unknown or repeated line is an error.
    pub(in super::super) fn finish(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().filter(char::is_ascii_graphic).take(20).collect();
                Err(format!("has a line '{name}' that does not belong there"))
            }
        }
    }
}

pub(in super::super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "has a number that is none".to_owned())
}

pub(in super::super) fn two(text: &str) -> Result<(&str, &str), String> {
    text.split_once(' ').ok_or_else(|| "has a line with one word where two belong".to_owned())
}

pub(in super::super) fn fields(lines: &[&str]) -> Result<Vec<(FlowKind, Fields)>, String> {
    let one = |line: &&str| {
        let (kind, bits) = two(line)?;
        let kind = FlowKind::named(kind).ok_or("has a kind of flow that is none")?;
        Ok((kind, Fields(number(bits)?)))
    };
    if lines.len() > FlowKind::ALL.len() {
        return Err("has a kind of flow twice".to_owned());
    }
    lines.iter().map(one).collect()
}

pub(in super::super) fn list(text: &str) -> Result<Vec<u32>, String> {
    if text == "-" {
        return Ok(Vec::new());
    }
    let slots: Vec<u32> = text.split(',').take(SLOTS + 1).map(number).collect::<Result<_, _>>()?;
    // Guard: `slots.len() > SLOTS` as `false` fails card::state::tests::torn_and_hostile
    if slots.len() > SLOTS { Err("has a table that is too long".to_owned()) } else { Ok(slots) }
}

pub(in super::super) fn numbers(list: &[u32]) -> String {
    let words: Vec<String> = list.iter().map(u32::to_string).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

pub(in super::super) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    if text == "-" {
        return Ok(Vec::new());
    }
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * KEY {
        return Err("has a key that is none".to_owned());
    }
    let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    digits.chunks_exact(2).map(byte).collect::<Option<_>>().ok_or_else(|| "has a key that is none".to_owned())
}

pub(in super::super) fn hex(bytes: &[u8]) -> String {
    let text = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    if text.is_empty() { "-".to_owned() } else { text }
}
