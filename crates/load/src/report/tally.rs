//! Counters of one recorder. Incrementing one is an addition; only the first error of each kind keeps a text.

use std::borrow::Cow;

use super::kinds::ErrorKind;
use super::model::{Counts, ErrorCount};

/// Most codes counted separately; further ones are counted together.
pub(super) const CODES: usize = 64;
/// Most characters kept of an error's text.
const EXAMPLE: usize = 200;

/// Counters of requests, bytes, connections, answers by code and errors by kind.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Requests or messages sent.
    pub sent: u64,
    /// Requests answered completely, whatever the answer.
    pub answered: u64,
    /// Requests due and not sent, since the generator did not keep up or was stopped.
    pub unsent: u64,
    /// Times that a due request waited for room or for a free connection.
    pub held_up: u64,
    /// Bytes sent: payload, heads included.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Connections opened.
    pub opened: u64,
    /// Connections that could not be opened.
    pub not_opened: u64,
    /// Connections ended, from either side.
    pub closed: u64,
    /// All errors.
    pub errors: u64,
    pub(super) codes: Vec<(u16, u64)>,
    pub(super) other_codes: u64,
    pub(super) kinds: [u64; ErrorKind::ALL.len()],
    pub(super) examples: [Option<Box<str>>; ErrorKind::ALL.len()],
    pub(super) named: Vec<(Cow<'static, str>, u64)>,
    /// The first of what some of these count, in words.
    pub(super) firsts: Vec<(Cow<'static, str>, Box<str>)>,
}

impl Tally {
    /// Counts an answer with this code, such as 200. Code 0 means none.
    #[inline]
    pub fn code(&mut self, code: u16) {
        match self.codes.iter_mut().find(|(c, _)| *c == code) {
            Some((_, count)) => *count += 1,
            None => self.new_code(code),
        }
    }

    #[cold]
    fn new_code(&mut self, code: u16) {
        if code == 0 {
            return;
        }
        if self.codes.len() < CODES {
            self.codes.push((code, 1));
            return;
        }
        self.other_codes += 1;
    }

    /// Counts an error. `why` is called for the first error of a kind only.
    #[inline]
    pub fn error<S: Into<String>>(&mut self, kind: ErrorKind, why: impl FnOnce() -> S) {
        self.errors += 1;
        let i = kind as usize;
        self.kinds[i] += 1;
        if self.examples[i].is_none() {
            let text: String = why().into();
            self.examples[i] = Some(text.chars().take(EXAMPLE).collect::<String>().into_boxed_str());
        }
    }

    /// Counts `count` errors.
    pub fn errors(&mut self, kind: ErrorKind, count: u64) {
        self.errors += count;
        self.kinds[kind as usize] += count;
    }

    /// Errors of a kind so far.
    #[must_use]
    pub fn errors_of(&self, kind: ErrorKind) -> u64 {
        self.kinds[kind as usize]
    }

    /// Adds to a counter that only some protocols have, such as `reordered`.
    #[inline]
    pub fn named(&mut self, name: &'static str, by: u64) {
        match self.named.iter_mut().find(|(n, _)| *n == name) {
            Some((_, count)) => *count += by,
            None => self.named.push((Cow::Borrowed(name), by)),
        }
    }

    /// The same, for what is worth words. `first` is called for the first of that name only.
    pub fn told(&mut self, name: &'static str, first: impl FnOnce() -> String) {
        self.named(name, 1);
        if !self.firsts.iter().any(|(n, _)| *n == name) {
            let text: String = first().chars().take(EXAMPLE).collect();
            self.firsts.push((Cow::Borrowed(name), text.into_boxed_str()));
        }
    }

    fn codes(&self) -> impl Iterator<Item = (String, u64)> {
        let other = (self.other_codes > 0).then(|| ("other".to_owned(), self.other_codes));
        self.codes.iter().map(|(code, count)| (code.to_string(), *count)).chain(other)
    }

    /// The counts of this recorder, as a report has them.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let errors = ErrorKind::ALL.into_iter().filter(|k| self.kinds[*k as usize] > 0).map(|kind| {
            let example = self.examples[kind as usize].as_deref().unwrap_or_default().to_owned();
            (kind.name().to_owned(), ErrorCount { count: self.kinds[kind as usize], example })
        });
        Counts {
            sent: self.sent,
            answered: self.answered,
            failed: self.errors,
            unsent: self.unsent,
            held_up: self.held_up,
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
            connections_opened: self.opened,
            connections_failed: self.not_opened,
            connections_closed: self.closed,
            codes: self.codes().collect(),
            errors: errors.collect(),
            firsts: self.firsts.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect(),
            more: self.named.iter().map(|(name, count)| (name.clone().into_owned(), *count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_beyond_the_table_are_counted_together() {
        let mut tally = Tally::default();
        for code in 0..200 {
            tally.code(code);
            tally.code(1);
        }
        let counts = tally.counts();
        assert_eq!(counts.codes["1"], 201);
        assert_eq!(counts.codes["64"], 1);
        assert_eq!(counts.codes["other"], 199 - 64);
        assert!(!counts.codes.contains_key("0"));
    }

    #[test]
    fn only_the_first_error_of_a_kind_keeps_its_text_and_not_all_of_it() {
        let mut tally = Tally::default();
        tally.error(ErrorKind::Reset, || "é".repeat(5000));
        tally.error(ErrorKind::Reset, || -> String { panic!("asked twice") });
        tally.error(ErrorKind::Tls, || "alert");
        let counts = tally.counts();
        assert_eq!((counts.failed, counts.errors["reset"].count), (3, 2));
        assert_eq!(counts.errors["reset"].example, "é".repeat(EXAMPLE));
        assert_eq!(counts.errors["tls"].example, "alert");
    }
}
