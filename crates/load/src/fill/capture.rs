//! What a step takes from its answer for the steps after it: by JSON pointer (RFC 6901), by regular expression, from a header field.
//!
//! The first [`MOST_CONTENT`] bytes of an answer's content are looked at, as they are on the wire: nothing is decompressed. Regular
//! expressions are those of the crate `regex`, whose time is linear in the content.

use regex::bytes::Regex;

/// Bytes of content in which something is looked for.
pub const MOST_CONTENT: usize = 1 << 20;
/// Most bytes of what is captured.
const MOST_VALUE: usize = 64 << 10;
/// Most bytes that a compiled expression may take.
const MOST_EXPRESSION: usize = 1 << 20;

/// Where something is found.
#[derive(Debug, Clone)]
pub enum From {
    /// At this place of a JSON document (RFC 6901): text as it is, numbers and true and false as they are written, all else as JSON.
    Json(String),
    /// The first match in the content: what its first group matches, if it has one.
    Content(Regex),
    /// The value of a header field, or the first match in it.
    Header(String, Option<Regex>),
}

/// Something that is captured.
#[derive(Debug, Clone)]
pub struct Capture {
    /// The name by which later steps use it.
    pub name: String,
    /// Where it is.
    pub from: From,
}

/// Why nothing can be captured so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadCapture(String);

impl Capture {
    /// What is captured by `name`, from one of these places.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn new(
        name: &str,
        json: Option<&str>,
        regex: Option<&str>,
        header: Option<&str>,
    ) -> Result<Self, BadCapture> {
        let bad = |what: String| Err(BadCapture(format!("capture '{name}': {what}")));
        let reserved = ["uuid", "counter", "number", "letters"];
        if name.is_empty() || reserved.contains(&name) || name.contains(['{', '}', '|', ':']) {
            return bad("a name has no braces, | and :, and is not that of a placeholder".into());
        }
        let expression = |text: &str| {
            regex::bytes::RegexBuilder::new(text).size_limit(MOST_EXPRESSION).build().map_err(|e| {
                // The crate draws where it is, in several lines: the last says what it is.
                let words = e.to_string();
                let last = words.lines().last().unwrap_or_default().trim();
                BadCapture(format!("capture '{name}': '{text}' is no regular expression: {last}"))
            })
        };
        let from = match (json, regex, header) {
            (Some(pointer), None, None) => {
                let good = |token: &str| !token.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1']));
                if !(pointer.is_empty() || pointer.starts_with('/')) || !pointer.split('/').all(good) {
                    return bad(format!("'{pointer}' is no JSON pointer, such as /user/id (RFC 6901)"));
                }
                From::Json(pointer.to_owned())
            }
            (None, Some(text), None) => From::Content(expression(text)?),
            (None, text, Some(header)) => {
                let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
                if header.is_empty() || !header.bytes().all(token) {
                    return bad(format!("'{header}' is no name of a header field"));
                }
                From::Header(header.to_owned(), text.map(expression).transpose()?)
            }
            (None, None, None) => return bad("from where? json, regex, or header".into()),
            _ => return bad("either json, or regex, or header, or header and regex".into()),
        };
        Ok(Self { name: name.to_owned(), from })
    }

    /// Whether it is in the content, which must be kept for it.
    #[must_use]
    pub fn is_in_content(&self) -> bool {
        !matches!(self.from, From::Header(..))
    }

    /// Finds it in the value of a header field; `None` for what is in the content.
    ///
    /// # Errors
    /// It is not there, in words.
    pub fn find_in_header(&self, field: Option<&[u8]>) -> Option<Result<Vec<u8>, String>> {
        let From::Header(header, regex) = &self.from else { return None };
        let found = match field {
            None => Err(self.not_found(&format!("the answer has no header field {header}"))),
            Some(value) => match regex {
                None => Ok(value.to_vec()),
                Some(regex) => group(regex, value)
                    .ok_or_else(|| self.not_found(&format!("{regex} does not match its field {header}"))),
            },
        };
        Some(found.and_then(|value| self.bounded(value)))
    }

    /// Finds it in the content. `cut`: there was more of it.
    ///
    /// # Errors
    /// It is not there, in words.
    pub fn find(&self, content: &[u8], cut: bool) -> Result<Vec<u8>, String> {
        let found = match &self.from {
            From::Header(..) => Ok(Vec::new()),
            From::Content(regex) => group(regex, content)
                .ok_or_else(|| self.not_found(&format!("{regex} matches nothing in the answer"))),
            From::Json(pointer) => self.in_json(content, pointer),
        };
        match found {
            Err(why) if cut => Err(format!("{why} (only the first 1 MiB of the content is looked at)")),
            found => found.and_then(|value| self.bounded(value)),
        }
    }

    fn in_json(&self, content: &[u8], pointer: &str) -> Result<Vec<u8>, String> {
        use serde_json::Value;
        let document: Value = serde_json::from_slice(content)
            .map_err(|e| self.not_found(&format!("the answer is no JSON: {e}")))?;
        match document.pointer(pointer) {
            None | Some(Value::Null) => Err(self.not_found(&format!("nothing is at {pointer}"))),
            Some(Value::String(text)) => Ok(text.clone().into_bytes()),
            Some(other) => Ok(other.to_string().into_bytes()),
        }
    }

    fn not_found(&self, why: &str) -> String {
        format!("'{}' was not captured: {why}", self.name)
    }

    /// Refuses what is too long to be kept, and what could end a header field that it is put into.
    fn bounded(&self, value: Vec<u8>) -> Result<Vec<u8>, String> {
        // Guard: `value.len() > MOST_VALUE` as `false` fails fill::capture
        if value.len() > MOST_VALUE {
            return Err(self.not_found(&format!("it has {} bytes, 64 KiB at most", value.len())));
        }
        // Guard: `value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0))` as `false` fails fill::capture
        if value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
            return Err(self.not_found("it has several lines, and no header field and no path may"));
        }
        Ok(value)
    }
}

/// What the first group of the first match matches, or all of it if it has no group.
fn group(regex: &Regex, text: &[u8]) -> Option<Vec<u8>> {
    let found = regex.captures(text)?;
    let part = if found.len() > 1 { found.get(1)? } else { found.get(0)? };
    Some(part.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(capture: Result<Capture, BadCapture>, content: &str) -> Result<String, String> {
        capture.unwrap().find(content.as_bytes(), false).map(|value| String::from_utf8(value).unwrap())
    }

    fn json(pointer: &str) -> Result<Capture, BadCapture> {
        Capture::new("x", Some(pointer), None, None)
    }

    fn regex(text: &str) -> Result<Capture, BadCapture> {
        Capture::new("x", None, Some(text), None)
    }

    #[test]
    fn pointers_are_those_of_the_standard() {
        let document =
            r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, "k": {"n": null, "t": true}, "f": 1.50}"#;
        for (pointer, value) in [
            ("/foo/0", "bar"),
            ("/foo/1", "baz"),
            ("/foo", "[\"bar\",\"baz\"]"),
            ("/", "0"),
            ("/a~1b", "1"),
            ("/m~0n", "8"),
            ("/k/t", "true"),
        ] {
            assert_eq!(found(json(pointer), document).as_deref(), Ok(value), "{pointer}");
        }
        for nothing in ["/foo/2", "/foo/01", "/foo/-", "/k/n", "/no"] {
            let why = found(json(nothing), document).unwrap_err();
            assert!(why.contains("'x' was not captured: nothing is at"), "{why}");
        }
        assert!(found(json("/a"), "<html>").unwrap_err().contains("no JSON"));
        assert!(found(json("/a"), &"[".repeat(100_000)).unwrap_err().contains("no JSON"));
        for bad in ["a", "/a~2b", "/~"] {
            assert!(json(bad).unwrap_err().to_string().contains("RFC 6901"), "{bad}");
        }
    }

    #[test]
    fn expressions_have_a_group_or_none() {
        assert_eq!(
            found(regex(r#"name="csrf" value="([^"]+)""#), r#"<i name="csrf" value="a1">"#),
            Ok("a1".into())
        );
        assert_eq!(found(regex("[0-9]+"), "id 42 43"), Ok("42".into()));
        assert!(found(regex("x(y)?"), "xz").unwrap_err().contains("matches nothing"));
        assert!(found(regex("q"), "xz").unwrap_err().contains("q matches nothing in the answer"));
        assert!(found(regex("(?s)a.b"), "a\nb").unwrap_err().contains("several lines"));
        assert!(found(regex("a*"), &"a".repeat(MOST_VALUE + 1)).unwrap_err().contains("64 KiB at most"));
        for bad in ["(", "a{1,1000}{1,1000}{1,1000}"] {
            let refused = regex(bad).unwrap_err().to_string();
            assert!(refused.contains("no regular expression") && !refused.contains('\n'), "{refused}");
        }
        let cut = regex("q").unwrap().find(b"abc", true).unwrap_err();
        assert!(cut.contains("the first 1 MiB"), "{cut}");
    }

    #[test]
    fn header_fields() {
        let location = Capture::new("id", None, Some("/users/([0-9]+)"), Some("Location")).unwrap();
        assert!(!location.is_in_content());
        let find = |value| location.find_in_header(value).unwrap();
        assert_eq!(find(Some(b"/users/17")), Ok(b"17".to_vec()));
        assert!(find(Some(b"/x")).unwrap_err().contains("does not match its field Location"));
        assert!(find(None).unwrap_err().contains("no header field Location"));
        let whole = Capture::new("id", None, None, Some("ETag")).unwrap();
        assert_eq!(whole.find_in_header(Some(b"\"a\"")), Some(Ok(b"\"a\"".to_vec())));
        assert_eq!(regex("a").unwrap().find_in_header(None), None);
        for bad in [
            Capture::new("x", None, None, Some("a b")),
            Capture::new("x", None, None, None),
            Capture::new("x", Some("/a"), Some("b"), None),
            Capture::new("uuid", Some("/a"), None, None),
            Capture::new("a}", Some("/a"), None, None),
            Capture::new("", Some("/a"), None, None),
        ] {
            bad.unwrap_err();
        }
    }
}
