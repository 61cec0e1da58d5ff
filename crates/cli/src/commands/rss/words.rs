//! Pages for a terminal: names with text, in lines of 80 columns.

use crate::wrap::{WIDTH, wrapped};
use flowlane::card::Untold;
use std::fmt::Write as _;

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

/// Why the driver does not report something.
pub(super) fn untold(why: Untold) -> String {
    match why {
        Untold::Unsupported => "not told by the driver".to_owned(),
        why => why.to_string(),
    }
}
