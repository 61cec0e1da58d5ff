//! Pages for a terminal: names with text, in lines of 80 columns.

use flowlane::card::Untold;
use std::fmt::Write as _;

/// Columns of a page.
pub(super) const WIDTH: usize = 80;

/// Appends a name and its text, wrapped into as many lines as needed.
pub(super) fn line(page: &mut String, name: &str, text: &str) {
    let mut first = true;
    for part in wrapped(text, WIDTH - 13) {
        let name = if first { name } else { "" };
        // Writing to a string succeeds.
        let _ = writeln!(page, "  {name:<11}{part}");
        first = false;
    }
}

/// A text in lines of at most so many columns.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().map(|last| (last.chars().count(), last));
        match last {
            Some((len, last)) if len == 0 || len + 1 + word.chars().count() <= width => {
                if len > 0 {
                    last.push(' ');
                }
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Why the driver does not report something.
pub(super) fn untold(why: Untold) -> String {
    match why {
        Untold::Unsupported => "not told by the driver".to_owned(),
        why => why.to_string(),
    }
}
