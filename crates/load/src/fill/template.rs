//! Texts with placeholders: `/users/{{id}}`, `{"name": "{{name|json}}"}`.
//!
//! | Placeholder | Stands for |
//! |---|---|
//! | `{{name}}` | a column of the file of rows, or what a step before has captured by this name |
//! | `{{counter}}`, `{{counter:1000}}` | the number of the request, or of the flow: no two of a run have the same |
//! | `{{number:1-100}}` | a random number |
//! | `{{letters:12}}` | random letters and digits |
//! | `{{uuid}}` | a random UUID (RFC 9562, version 4) |
//! | `{{{{` | two braces |
//!
//! `|url` behind a name writes what is no letter, digit, `-`, `.`, `_` or `~` as `%XX`; `|json` is for the inside of a JSON string. In a
//! path what no path may have is always written as `%XX`.

use std::fmt::Write as _;
use std::io::Write as _;

use flowlane_stack::rng::Rng;

use super::data::Data;

/// Placeholders that need no file.
const KNOWN: &str = "counter, counter:FIRST, number:FROM-TO, letters:N, uuid";
/// Most letters of one placeholder.
const LETTERS: u16 = 4096;

/// The names that a text may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// Columns of the file of rows.
    pub columns: &'a [String],
    /// What was captured before.
    pub captures: &'a [String],
}

/// What placeholders stand for in one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vars {
    /// The row of the file.
    pub row: u64,
    /// Number of the request, or of its flow.
    pub number: u64,
    /// Of random values.
    pub seed: u64,
    /// The cookies to be sent.
    pub cookies: Vec<u8>,
    /// What was captured, by the place of its name in the scope.
    pub caught: Vec<Vec<u8>>,
}

/// Where a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a path or query.
    Path,
    /// In the value of a header field.
    Field,
    /// In a body.
    Body,
}

/// A text with placeholders, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<[u8]>),
    Slot(Slot, Quote),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Column(u16),
    Caught(u16),
    Counter(u64),
    Number(u64, u64),
    Letters(u16),
    Uuid,
    /// The length of the body, which only our own text has.
    Length,
    /// The field of the cookies to be sent, which only our own text has.
    Cookies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quote {
    AsItIs,
    Url,
    Json,
}

/// Why a text cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTemplate(String);

impl Template {
    /// The placeholder of the cookies' whole line.
    pub(crate) const COOKIES: &'static str = "{{\0cookies}}";
    /// The placeholder of a body's length, for a head whose body is filled in.
    pub(crate) const LENGTH: &'static str = "{{\0length}}";

    /// Compiles a text.
    ///
    /// # Errors
    /// A placeholder that is not closed, is not known, or is not written so, in one line.
    pub fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, BadTemplate> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, behind)) = rest.split_once("{{") {
            plain.push_str(before);
            if let Some(behind) = behind.strip_prefix("{{") {
                plain.push_str("{{");
                rest = behind;
                continue;
            }
            let (inside, behind) = behind.split_once("}}").ok_or_else(|| unclosed(behind))?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain).into_bytes().into()));
            }
            pieces.push(slot(inside, scope)?);
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain.into_bytes().into()));
        }
        Ok(Self { pieces })
    }

    /// The text with something harmless in the place of each placeholder.
    ///
    /// # Errors
    /// A placeholder that is not closed.
    pub(crate) fn bare(text: &str) -> Result<String, BadTemplate> {
        let (mut bare, mut rest) = (String::new(), text);
        while let Some((before, behind)) = rest.split_once("{{") {
            bare.push_str(before);
            if let Some(behind) = behind.strip_prefix("{{") {
                bare.push_str("{{");
                rest = behind;
                continue;
            }
            let (_, behind) = behind.split_once("}}").ok_or_else(|| unclosed(behind))?;
            bare.push('x');
            rest = behind;
        }
        bare.push_str(rest);
        Ok(bare)
    }

    /// The names in a text, whatever they stand for.
    pub(crate) fn names(text: &str) -> Vec<&str> {
        let (mut names, mut rest) = (Vec::new(), text);
        while let Some((_, behind)) = rest.split_once("{{") {
            if let Some(behind) = behind.strip_prefix("{{") {
                rest = behind;
                continue;
            }
            let Some((inside, behind)) = behind.split_once("}}") else { break };
            let name = inside.strip_suffix("|url").or_else(|| inside.strip_suffix("|json"));
            names.push(name.unwrap_or(inside).trim());
            rest = behind;
        }
        names
    }

    /// The text itself, if it has no placeholder.
    #[must_use]
    pub fn literal(&self) -> Option<&[u8]> {
        match &self.pieces[..] {
            [] => Some(&[]),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The columns that it uses.
    pub(crate) fn columns(&self) -> impl Iterator<Item = u16> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Slot(Slot::Column(column), Quote::AsItIs) => Some(*column),
            _ => None,
        })
    }

    /// Whether it uses a column of the file, or has anything else that a row decides.
    pub(crate) fn uses_rows(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Slot(Slot::Column(_), _)))
    }

    /// Writes the text as it is in this request. `length`: of its body.
    pub fn write(&self, data: Option<&Data>, vars: &Vars, place: Place, length: usize, out: &mut Vec<u8>) {
        for (i, piece) in self.pieces.iter().enumerate() {
            let (slot, quote) = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Piece::Slot(slot, quote) => (*slot, *quote),
            };
            let value = match slot {
                Slot::Column(column) => data.map_or(&[][..], |data| data.field(vars.row, column)),
                Slot::Caught(i) => vars.caught.get(usize::from(i)).map_or(&[][..], |value| &value[..]),
                made => {
                    // Nothing in it needs quotes.
                    generate(made, vars, i, length, out);
                    continue;
                }
            };
            match (quote, place) {
                (Quote::Url, _) => escape(value, is_unreserved, out),
                (Quote::Json, _) => json(value, out),
                // Guard: `escape(value, is_of_a_path, out)` as `out.extend_from_slice(value)` fails
                // fill::template
                (Quote::AsItIs, Place::Path) => escape(value, is_of_a_path, out),
                (Quote::AsItIs, Place::Field | Place::Body) => out.extend_from_slice(value),
            }
        }
    }

    /// The same as text of its own.
    #[must_use]
    pub fn fill(&self, data: Option<&Data>, vars: &Vars, place: Place) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(data, vars, place, 0, &mut out);
        out
    }
}

fn unclosed(behind: &str) -> BadTemplate {
    let begin: String = behind.chars().take(20).collect();
    BadTemplate(format!(
        "'{{{{{begin}' has no }}}} behind it; two braces that are meant are written {{{{{{{{"
    ))
}

/// What stands between the braces.
fn slot(inside: &str, scope: &Scope<'_>) -> Result<Piece, BadTemplate> {
    let bad = |what: String| Err(BadTemplate(what));
    // A column may be called as it likes: its whole name comes first.
    if let Some(slot) = named(inside.trim(), scope) {
        return Ok(Piece::Slot(slot, Quote::AsItIs));
    }
    let (name, quote) = match inside.rsplit_once('|') {
        None => (inside.trim(), Quote::AsItIs),
        Some((name, "url")) => (name.trim(), Quote::Url),
        Some((name, "json")) => (name.trim(), Quote::Json),
        Some((_, other)) => return bad(format!("'{{{{{inside}}}}}': '|{other}' is neither |url nor |json")),
    };
    if let Some(slot) = named(name, scope) {
        return Ok(Piece::Slot(slot, quote));
    }
    let (kind, argument) = name.split_once(':').map_or((name, None), |(kind, rest)| (kind, Some(rest)));
    let not_so = |how: &str| BadTemplate(format!("'{{{{{inside}}}}}' is not written so: {how}"));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let slot = match (kind, argument) {
        ("\0length", None) => Slot::Length,
        ("\0cookies", None) => Slot::Cookies,
        ("uuid", None) => Slot::Uuid,
        ("counter", None) => Slot::Counter(0),
        ("counter", Some(first)) => {
            Slot::Counter(number(first).ok_or_else(|| not_so("{{counter:1000}} begins with 1000"))?)
        }
        ("number", argument) => {
            let range = argument.and_then(|a| a.split_once('-')).map(|(from, to)| (number(from), number(to)));
            match range {
                Some((Some(from), Some(to))) if from <= to => Slot::Number(from, to),
                _ => return Err(not_so("{{number:1-100}} is a number from 1 to 100")),
            }
        }
        ("letters", argument) => match argument.and_then(number).and_then(|n| u16::try_from(n).ok()) {
            Some(n @ 1..=LETTERS) => Slot::Letters(n),
            _ => return Err(not_so("{{letters:12}} is twelve letters and digits, 4096 at most")),
        },
        _ => return bad(unknown(name, scope)),
    };
    Ok(Piece::Slot(slot, quote))
}

fn named(name: &str, scope: &Scope<'_>) -> Option<Slot> {
    let at = |names: &[String]| names.iter().position(|n| n == name).and_then(|at| u16::try_from(at).ok());
    at(scope.columns).map(Slot::Column).or_else(|| at(scope.captures).map(Slot::Caught))
}

fn unknown(name: &str, scope: &Scope<'_>) -> String {
    let mut words = format!("nothing is called '{name}': there are ");
    for names in [scope.columns, scope.captures].into_iter().filter(|names| !names.is_empty()) {
        // Writing to a string cannot fail.
        let _ = write!(words, "{}, ", names.join(", "));
    }
    words.push_str(KNOWN);
    if scope.columns.is_empty() {
        words.push_str(", and columns of a file of rows (data, --data)");
    }
    words
}

/// Writes a value that needs no file. Placeholder `i` of a request has random values of its own.
fn generate(slot: Slot, vars: &Vars, i: usize, length: usize, out: &mut Vec<u8>) {
    const ALPHABET: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let random = || Rng::new(vars.seed ^ (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Writing to memory cannot fail.
    let _ = match slot {
        Slot::Counter(first) => write!(out, "{}", first.wrapping_add(vars.number)),
        Slot::Length => write!(out, "{length}"),
        Slot::Number(from, to) => {
            let span = u128::from(to - from) + 1;
            let number = (u128::from(random().next_u64()) * span) >> 64;
            write!(out, "{}", u128::from(from) + number)
        }
        Slot::Letters(n) => {
            let mut rng = random();
            out.extend((0..n).map(|_| ALPHABET[rng.below(ALPHABET.len() as u32) as usize]));
            Ok(())
        }
        Slot::Uuid => {
            let mut rng = random();
            let (high, low) = (rng.next_u64(), rng.next_u64());
            let (high, low) = (high & !0xf000 | 0x4000, low & !(3 << 62) | 1 << 63);
            let [a, b, c] = [high >> 32, high >> 16 & 0xffff, high & 0xffff];
            write!(out, "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
        }
        Slot::Cookies if vars.cookies.is_empty() => Ok(()),
        Slot::Cookies => out.write_all(&[b"Cookie: ", &vars.cookies[..], b"\r\n"].concat()),
        Slot::Column(_) | Slot::Caught(_) => Ok(()),
    };
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// What a path and a query may have as it is.
fn is_of_a_path(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte)
}

fn escape(value: &[u8], stays: fn(u8) -> bool, out: &mut Vec<u8>) {
    for byte in value {
        if stays(*byte) {
            out.push(*byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// The inside of a string (RFC 8259 §7). What is no UTF-8 becomes U+FFFD.
fn json(value: &[u8], out: &mut Vec<u8>) {
    for c in String::from_utf8_lossy(value).chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            c if c < ' ' => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "{c}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::Order;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    fn filled(text: &str, place: Place, vars: &Vars) -> String {
        let data =
            Data::parse(b"id,full name,counter:9|x\n7,\"a b\"\"&/\n\xc3\xa4\",z\n8,b,z\n", Order::InOrder)
                .unwrap();
        let captures = names(&["token"]);
        let template =
            Template::parse(text, &Scope { columns: data.columns(), captures: &captures }).unwrap();
        String::from_utf8(template.fill(Some(&data), vars, place)).unwrap()
    }

    #[test]
    fn placeholders_are_filled_in() {
        let caught = vec![b"t/\"1".to_vec()];
        let vars = Vars { row: 0, number: 3, seed: 5, caught, ..Vars::default() };
        for (text, place, expected) in [
            ("/users/{{id}}?n={{ full name }}", Place::Path, "/users/7?n=a%20b%22&/%0A%C3%A4"),
            ("/{{full name|url}}", Place::Path, "/a%20b%22%26%2F%0A%C3%A4"),
            ("{\"n\": \"{{full name|json}}\"}", Place::Body, "{\"n\": \"a b\\\"&/\\u000aä\"}"),
            ("{{full name}}", Place::Body, "a b\"&/\nä"),
            ("Bearer {{token}}", Place::Field, "Bearer t/\"1"),
            ("{{counter}} {{counter:100}}", Place::Body, "3 103"),
            ("{{{{id}} } }} {{counter:9|x}}", Place::Body, "{{id}} } }} z"),
            ("", Place::Body, ""),
        ] {
            assert_eq!(filled(text, place, &vars), expected, "{text}");
        }
        assert_eq!(filled("{{id}}", Place::Body, &Vars { row: 1, ..vars }), "8");
    }

    #[test]
    fn random_values_are_in_their_range_and_are_the_same_again() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let vars = Vars { seed, ..Vars::default() };
            let text =
                "{{number:3-5}} {{letters:8}} {{letters:8}} {{uuid}} {{number:0-18446744073709551615}}";
            let once = filled(text, Place::Body, &vars);
            assert_eq!(once, filled(text, Place::Body, &vars));
            let parts: Vec<&str> = once.split(' ').collect();
            seen.insert(parts[0].to_owned());
            assert!(parts[1].len() == 8 && parts[1] != parts[2], "{once}");
            assert!(parts[1].bytes().all(|b| b.is_ascii_alphanumeric()), "{once}");
            let uuid: Vec<&str> = parts[3].split('-').collect();
            assert_eq!(uuid.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{once}");
            assert!(uuid[2].starts_with('4') && uuid[3].starts_with(['8', '9', 'a', 'b']), "{once}");
            assert!(parts[4].parse::<u64>().is_ok(), "{once}");
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["3", "4", "5"]);
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        let columns = names(&["name", "mail"]);
        let scope = Scope { columns: &columns, ..Scope::default() };
        for (text, what) in [
            ("{{nam}}", "nothing is called 'nam': there are name, mail, counter,"),
            ("{{name", "has no }} behind it"),
            ("a {{", "has no }}"),
            ("{{}}", "nothing is called ''"),
            ("{{name|upper}}", "neither |url nor |json"),
            ("{{number:5-1}}", "{{number:1-100}}"),
            ("{{number}}", "{{number:1-100}}"),
            ("{{letters:0}}", "4096 at most"),
            ("{{letters:9999}}", "4096 at most"),
            ("{{counter:x}}", "{{counter:1000}}"),
        ] {
            let refused = Template::parse(text, &scope).unwrap_err().to_string();
            assert!(refused.contains(what) && !refused.contains('\n'), "{text}: {refused}");
        }
        let none = Template::parse("{{name}}", &Scope::default()).unwrap_err().to_string();
        assert!(none.contains("--data"), "{none}");
    }
}
