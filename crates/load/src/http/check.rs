//! Conditions that answers must meet: status, length, digest, a substring.
//!
//! Content is checked as it arrives and is not kept. It is not decompressed: length, digest and substring are those of the bytes on the
//! wire.

use std::fmt;
use std::ops::RangeInclusive;

use rustls::crypto::hash::{Context, Hash};

use crate::report::ErrorKind;

/// Conditions that an answer must meet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// Accepted statuses; if empty, all below 400.
    pub status: Vec<RangeInclusive<u16>>,
    /// Length of the content, bytes.
    pub length: Option<u64>,
    /// SHA-256 of the content.
    pub sha256: Option<[u8; 32]>,
    /// Bytes that the content must contain.
    pub contains: Option<Vec<u8>>,
}

impl Checks {
    /// Whether the content's bytes must be examined.
    pub(super) fn content(&self) -> bool {
        self.sha256.is_some() || self.contains.as_ref().is_some_and(|c| !c.is_empty())
    }

    /// Checks status and length of an answer.
    #[inline]
    pub(super) fn judge(&self, status: u16, length: u64) -> Result<(), Wrong> {
        let right = if self.status.is_empty() {
            status < 400
        } else {
            self.status.iter().any(|range| range.contains(&status))
        };
        if !right {
            return Err(Wrong(ErrorKind::Status, format!("status {status}")));
        }
        match self.length {
            Some(expected) if expected != length => {
                Err(Wrong(ErrorKind::Length, format!("{length} bytes instead of {expected}")))
            }
            _ => Ok(()),
        }
    }
}

/// A failed check: kind and message.
#[derive(Debug)]
pub(super) struct Wrong(pub(super) ErrorKind, pub(super) String);

/// Parses a list of statuses: `200`, `200,204`, `2xx`, `200-299`, `any`.
///
/// # Errors
/// The expected syntax, in one line.
pub fn statuses(text: &str) -> Result<Vec<RangeInclusive<u16>>, String> {
    let bad = || format!("'{text}': statuses are 200, 2xx, 200-299, lists of them, or any");
    let code = |s: &str| s.parse::<u16>().ok().filter(|c| (100..=999).contains(c)).ok_or_else(bad);
    if text == "any" {
        return Ok(vec![100..=999]);
    }
    text.split(',')
        .map(|part| {
            let part = part.trim();
            if let Some(class) = part.strip_suffix("xx") {
                let class = code(&format!("{class}00"))?;
                return Ok(class..=class + 99);
            }
            match part.split_once('-') {
                None => code(part).map(|c| c..=c),
                Some((first, last)) => {
                    let (first, last) = (code(first)?, code(last)?);
                    if first <= last { Ok(first..=last) } else { Err(bad()) }
                }
            }
        })
        .collect()
}

/// Parses a SHA-256 digest of 64 hexadecimal digits.
///
/// # Errors
/// The expected syntax, in one line.
pub fn sha256(text: &str) -> Result<[u8; 32], String> {
    let bad = || format!("'{text}' is not a SHA-256 digest: 64 hexadecimal digits");
    if text.len() != 64 || !text.is_ascii() {
        return Err(bad());
    }
    let mut digest = [0; 32];
    for (i, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
    }
    Ok(digest)
}

/// Checks the content of answers, one after the other.
pub(super) struct Checker {
    digest: Option<Box<dyn Context>>,
    /// The last bytes so far, in which the substring may have begun.
    tail: Vec<u8>,
    found: bool,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("found", &self.found).finish_non_exhaustive()
    }
}

/// The hash of a cipher suite that uses SHA-256: rustls has it, so no other crate is needed.
fn provider() -> Option<&'static dyn Hash> {
    let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    suite.tls13().map(|suite| suite.common.hash_provider)
}

impl Checker {
    pub(super) fn new() -> Self {
        Self { digest: None, tail: Vec::new(), found: false }
    }

    /// A new answer begins.
    pub(super) fn begin(&mut self, checks: &Checks) {
        self.digest = checks.sha256.and_then(|_| provider()).map(Hash::start);
        self.tail.clear();
        self.found = false;
    }

    /// A piece of content.
    pub(super) fn data(&mut self, checks: &Checks, data: &[u8]) {
        if let Some(digest) = &mut self.digest {
            digest.update(data);
        }
        let Some(wanted) = checks.contains.as_deref().filter(|w| !w.is_empty() && !self.found) else {
            return;
        };
        // Only the first bytes of the new piece, as many as the substring has, can complete a match that began before.
        // Guard: `data.len().min(wanted.len() - 1)` as `0` fails http::check
        let seam = data.len().min(wanted.len() - 1);
        self.tail.extend_from_slice(&data[..seam]);
        self.found = holds(&self.tail, wanted) || holds(data, wanted);
        if data.len() > seam {
            self.tail.clear();
            self.tail.extend_from_slice(&data[data.len() - seam..]);
        } else if self.tail.len() >= wanted.len() {
            let old = self.tail.len() + 1 - wanted.len();
            self.tail.drain(..old);
        }
    }

    /// Checks the complete content.
    pub(super) fn end(&mut self, checks: &Checks) -> Result<(), Wrong> {
        // Guard: `digest.finish().as_ref() != expected` as `{ let _ = digest; false }` fails http::check
        if let (Some(digest), Some(expected)) = (self.digest.take(), &checks.sha256)
            && digest.finish().as_ref() != expected
        {
            return Err(Wrong(ErrorKind::Content, "another digest than expected".into()));
        }
        match &checks.contains {
            Some(wanted) if !wanted.is_empty() && !self.found => Err(Wrong(
                ErrorKind::Content,
                format!("'{}' is not in the answer", String::from_utf8_lossy(wanted)),
            )),
            _ => Ok(()),
        }
    }
}

fn holds(data: &[u8], wanted: &[u8]) -> bool {
    data.windows(wanted.len()).any(|w| w == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_understood() {
        assert_eq!(statuses("200"), Ok(vec![200..=200]));
        assert_eq!(statuses("2xx, 304,500-599"), Ok(vec![200..=299, 304..=304, 500..=599]));
        for bad in ["", "20", "x", "2x", "300-200", "200,"] {
            assert!(statuses(bad).is_err(), "{bad}");
        }
        let checks = Checks { status: statuses("any").unwrap(), ..Checks::default() };
        assert!(checks.judge(500, 0).is_ok());
        assert!(Checks::default().judge(404, 0).is_err());
        assert!(Checks { length: Some(3), ..Checks::default() }.judge(200, 4).is_err());
    }

    #[test]
    fn content_is_found_however_it_is_cut() {
        let text = b"the quick brown fox jumps over the lazy dog";
        // From `printf '...' | sha256sum`.
        let digest = sha256("05c6e08f1d9fdafa03147fcb8f82f124c76d2f70e3d989dc8aadb5e7d7450bec").unwrap();
        for wanted in ["the", "fox jumps", "dog", "t"] {
            let checks = Checks { contains: Some(wanted.into()), sha256: Some(digest), ..Checks::default() };
            for cut in 1..text.len() {
                let mut checker = Checker::new();
                checker.begin(&checks);
                text.chunks(cut).for_each(|piece| checker.data(&checks, piece));
                assert!(checker.end(&checks).is_ok(), "'{wanted}' in pieces of {cut}");
            }
        }
        let checks = Checks { contains: Some("foxes".into()), ..Checks::default() };
        let mut checker = Checker::new();
        checker.begin(&checks);
        checker.data(&checks, text);
        assert!(checker.end(&checks).is_err());
        let checks = Checks { sha256: Some(digest), ..Checks::default() };
        checker.begin(&checks);
        checker.data(&checks, b"the quick");
        assert!(checker.end(&checks).is_err());
    }

    #[test]
    fn digests_are_understood() {
        for bad in ["", "05", &"x".repeat(64), &"é".repeat(32)] {
            assert!(sha256(bad).is_err(), "{bad}");
        }
    }
}
