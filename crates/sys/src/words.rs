//! Words for people: numbers in sentences, and text of others made fit to be shown.

/// So many of something: `1 queue`, `2 queues`.
#[must_use]
pub fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Whether a character does something where it is shown: control characters, with which escape sequences begin, and those that end a line or
/// change the direction of writing.
#[must_use]
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text that may be another's, for one line of a terminal, a log or a page: characters that [act](acts) are written as Rust writes them.
#[must_use]
pub fn legible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Most bytes of what somebody said that are shown.
const SAID: usize = 48;

/// The first bytes of what somebody said, in quotes and fit for one line: what is no printable ASCII is written as Rust writes it.
#[must_use]
pub fn said(bytes: &[u8]) -> String {
    let more = if bytes.len() > SAID { "..." } else { "" };
    format!("'{}{more}'", bytes[..bytes.len().min(SAID)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::{counted, legible, said};

    #[test]
    fn what_was_said_is_one_line() {
        assert_eq!(said(b"SSH-2.0-x\r\n"), "'SSH-2.0-x\\r\\n'");
        assert_eq!(said(b"\x1b[2J\xff"), "'\\x1b[2J\\xff'");
        assert_eq!(said(&[b'a'; 49]), format!("'{}...'", "a".repeat(48)));
        assert_eq!(said(b""), "''");
    }

    #[test]
    fn what_acts_is_shown() {
        assert_eq!(
            legible("a\u{1b}[2J\n\u{202e}ä \u{9b} \u{2028}"),
            "a\\u{1b}[2J\\n\\u{202e}ä \\u{9b} \\u{2028}"
        );
        assert_eq!(legible("µs, 100 % – \"x\""), "µs, 100 % – \"x\"");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            [0, 1, 2].map(|n| counted(n, "queue pair")),
            ["0 queue pairs", "1 queue pair", "2 queue pairs"]
        );
    }
}
