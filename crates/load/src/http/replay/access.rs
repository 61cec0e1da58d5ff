//! Access logs in the common and combined format, as nginx and Apache write them:
//!
//! ```text
//!   127.0.0.1 - - [01/Mar/2026:12:00:00 +0100] "GET /a?b HTTP/1.1" 200 612 "referer" "agent"
//! ```
//!
//! What comes before the date may be anything (Apache's `vhost_combined` has the host there). Referer and agent become header fields. Times
//! are whole seconds; the builder spreads the requests of a second evenly over it. A log has neither bodies nor hosts.
//!
//! A line that is longer than [`LONGEST`] is passed over without being held.

use std::borrow::Cow;
use std::io::BufRead;

use super::builder::{Body, Builder, Found};
use super::date;
use super::reason::Reason;

/// Longest line, bytes.
const LONGEST: usize = 64 << 10;

/// Reads all lines.
pub(super) fn read(mut input: impl BufRead, builder: &mut Builder) -> Result<(), String> {
    let (mut line, mut first) = (Vec::new(), None::<String>);
    while let Some(whole) = next(&mut input, &mut line).map_err(|e| e.to_string())? {
        if !whole {
            builder.skip(Reason::LongLine);
            continue;
        }
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        if let Err(reason) = entry(text, builder)? {
            if reason == Reason::NotALine && first.is_none() {
                first = Some(String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned());
            }
            builder.skip(reason);
        }
    }
    match first {
        Some(line) if builder.is_empty() => Err(format!(
            "it is no HAR, no capture, and no access log in the common or combined format, which has lines as \
             '127.0.0.1 - - [01/Mar/2026:12:00:00 +0100] \"GET / HTTP/1.1\" 200 612'; one of its lines is {line:?}"
        )),
        _ => Ok(()),
    }
}

/// The next line; whether it is whole. `None` at the end.
fn next(input: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<Option<bool>> {
    line.clear();
    let (mut any, mut whole) = (false, true);
    loop {
        let bytes = match input.fill_buf() {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if bytes.is_empty() {
            return Ok(any.then_some(whole));
        }
        any = true;
        let end = bytes.iter().position(|b| *b == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        // Guard: `line.len() + used <= LONGEST` as `true` fails replay::tests::hostile_logs_cost_nothing
        whole &= line.len() + used <= LONGEST;
        if whole {
            line.extend_from_slice(&bytes[..used]);
        }
        input.consume(used);
        if end.is_some() {
            return Ok(Some(whole));
        }
    }
}

/// A line. An error ends the reading; a reason is that of this line.
fn entry(line: &[u8], builder: &mut Builder) -> Result<Result<(), Reason>, String> {
    let Some((date, rest)) = split(line) else { return Ok(Err(Reason::NotALine)) };
    let Some(at) = date::of_log(date) else { return Ok(Err(Reason::NotALine)) };
    let Some((request, rest)) = quoted(rest) else { return Ok(Err(Reason::NotALine)) };
    let mut words = request.split(|b| *b == b' ');
    let (Some(method), Some(target), version, None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Ok(Err(Reason::NoRequest));
    };
    // A request of HTTP/0.9 has no version; it is a GET.
    if !version.map_or(method == b"GET", |version| version.starts_with(b"HTTP/")) {
        return Ok(Err(Reason::NoRequest));
    }
    let (Ok(method), Ok(target)) = (std::str::from_utf8(method), std::str::from_utf8(target)) else {
        return Ok(Err(Reason::NoRequest));
    };
    // Behind status and length.
    let referer = rest.iter().position(|b| *b == b'"').and_then(|at| quoted(&rest[at..]));
    let agent = referer.as_ref().and_then(|(_, rest)| quoted(rest.trim_ascii_start()));
    let fields = [("Referer", &referer), ("User-Agent", &agent)];
    let fields = fields.into_iter().filter_map(|(name, found)| Some((name, &*found.as_ref()?.0)));
    let fields: Vec<(&str, &[u8])> = fields.filter(|(_, value)| !matches!(*value, b"-" | b"")).collect();
    builder.add(at, &Found { method, target, host: None, fields: &fields, body: Body::Unknown })
}

/// The date in brackets, and what follows it from the next quotation mark on. What comes before may have brackets of its own (an IPv6 address).
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let close = line.windows(3).position(|bytes| bytes == b"] \"")?;
    let open = line[..close].iter().rposition(|b| *b == b'[')?;
    Some((&line[open + 1..close], &line[close + 2..]))
}

/// The text in quotation marks at the beginning, and what follows. nginx writes `\x22` for a quotation mark, Apache `\"`.
fn quoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let (mut at, mut escaped) = (0, false);
    loop {
        match text.get(at)? {
            b'"' => break,
            b'\\' => (at, escaped) = (at + 2, true),
            _ => at += 1,
        }
    }
    let (inside, rest) = (text.get(..at)?, text.get(at + 1..)?);
    Some((if escaped { Cow::Owned(unescaped(inside)) } else { Cow::Borrowed(inside) }, rest))
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    let digit = |at: usize| text.get(at).and_then(|b| char::from(*b).to_digit(16));
    while let Some(byte) = text.get(at) {
        let (made, used) = match (byte, text.get(at + 1)) {
            (b'\\', Some(b'x')) => match (digit(at + 2), digit(at + 3)) {
                (Some(high), Some(low)) => ((high * 16 + low) as u8, 4),
                _ => (b'\\', 1),
            },
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(other @ (b'"' | b'\\'))) => (*other, 2),
            _ => (*byte, 1),
        };
        out.push(made);
        at += used;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_end_where_they_end() {
        let words = |text: &str| quoted(text.as_bytes()).map(|(a, b)| (a.into_owned(), b.to_vec()));
        assert_eq!(words(r#""a b" c"#), Some((b"a b".to_vec(), b" c".to_vec())));
        assert_eq!(words(r#""a\x22b\"c\\" d"#), Some((b"a\"b\"c\\".to_vec(), b" d".to_vec())));
        assert_eq!(words(r#""\xc3\xa9\x0g\t""#), Some(("é\\x0g\t".as_bytes().to_vec(), Vec::new())));
        for text in ["", "a", "\"a", "\"a\\", "\"a\\\""] {
            assert_eq!(words(text), None, "{text}");
        }
    }
}
