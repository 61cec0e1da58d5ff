//! Text that may be another's, made fit for a terminal: names of files and interfaces, words of servers, of other instances and of peers.
//!
//! Everything that commands print as lines passes here: standard error by [`say!`](crate::say), standard output by
//! [`Stdout`](crate::stdout::Stdout). Line ends and tabs are ours and stay. Other control characters (escape sequences begin with one) and those
//! that change the direction of writing are shown, and do nothing.

use std::borrow::Cow;

use flowlane_load::report::text::plain;

/// Whether every byte is plain, without looking at characters.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'))
}

/// Lines of text for a terminal.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    // Guard: `is_plain(text.as_bytes())` as `true` fails legible::tests::what_could_control
    if is_plain(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let pieces = text.split_inclusive(['\n', '\t']).map(|piece| {
        let (rest, end) = piece.split_at(piece.trim_end_matches(['\n', '\t']).len());
        plain(rest) + end
    });
    Cow::Owned(pieces.collect())
}

/// The same for bytes that need not be text: what is none is shown by its numbers.
pub(crate) fn bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    if is_plain(bytes) {
        return Cow::Borrowed(bytes);
    }
    let mut shown = String::new();
    for piece in bytes.utf8_chunks() {
        shown += &lines(piece.valid());
        shown.extend(piece.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    Cow::Owned(shown.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_control_a_terminal_is_shown() {
        assert_eq!(lines("eth0\t1\nµs, 100 %\n"), "eth0\t1\nµs, 100 %\n");
        assert_eq!(lines("a\u{1b}]0;x\u{7}b\r\n"), "a\\u{1b}]0;x\\u{7}b\\r\n");
        assert_eq!(lines("\u{9b}2J \u{202e}txt \u{2066}\u{61c}"), "\\u{9b}2J \\u{202e}txt \\u{2066}\\u{61c}");
        assert_eq!(bytes(b"ok \x9b2J \xc3\xa4\n"), "ok \\x9b2J ä\n".as_bytes());
    }
}
