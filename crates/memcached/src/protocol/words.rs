//! The words of a line, which spaces part.

use super::find;

/// Words that are looked at one by one.
const MOST: usize = 23;

/// A line with its first words.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    line: &'a [u8],
    words: [(u32, u32); MOST],
    len: usize,
}

impl<'a> Line<'a> {
    pub(crate) fn of(line: &'a [u8]) -> Self {
        let mut words = [(0, 0); MOST];
        let (mut len, mut at) = (0, 0);
        while len < MOST {
            at += line[at..].iter().take_while(|b| **b == b' ').count();
            let word = find::byte(&line[at..], b' ').unwrap_or(line.len() - at);
            if word == 0 {
                break;
            }
            words[len] = (at as u32, (at + word) as u32);
            (at, len) = (at + word, len + 1);
        }
        Self { line, words, len }
    }

    /// Number of words, at most 23.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A word; empty if there is none.
    pub(crate) fn get(&self, n: usize) -> &'a [u8] {
        if n >= self.len {
            return b"";
        }
        let (from, to) = self.words[n];
        &self.line[from as usize..to as usize]
    }

    /// What stands behind the first `n` words.
    pub(crate) fn after(&self, n: usize) -> &'a [u8] {
        if n > self.len { b"" } else { &self.line[self.words[n - 1].1 as usize..] }
    }

    /// Whether the last word is `noreply`.
    pub(crate) fn is_quiet(&self) -> bool {
        self.get(self.len - 1) == b"noreply"
    }
}

/// The words of a text, one by one.
#[derive(Debug, Clone)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// Of this text.
    #[must_use]
    pub fn of(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// What is left.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|b| *b != b' ')?;
        let text = &self.0[start..];
        let end = find::byte(text, b' ').unwrap_or(text.len());
        self.0 = &text[end..];
        Some(&text[..end])
    }
}
