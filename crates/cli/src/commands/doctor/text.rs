//! The list for people, 80 columns wide; what mends something is one line, to be copied.

use std::fmt::Write as _;
use std::io::IsTerminal;

use super::judge::State;
use super::{Facts, Found};
use crate::legible;
use crate::wrap::{WIDTH, wrapped};

/// Columns of a name, and before the text behind it.
const NAME: usize = 13;
const INDENT: usize = 4 + NAME;

/// Whether marks have colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    /// By `--color`; else on a terminal that has colours, unless `NO_COLOR` is set.
    pub(super) fn wanted() -> Self {
        let terminal = std::io::stdout().is_terminal() && !crate::terminal::is_dumb();
        Self(crate::color::on_output(terminal))
    }

    fn mark(self, state: State) -> String {
        let (mark, color) = match state {
            State::Fine => ('✓', 32),
            State::Missing => ('✗', 31),
            State::Note => ('·', 33),
        };
        if self.0 { format!("\x1b[{color}m{mark}\x1b[0m") } else { mark.to_string() }
    }
}

/// The page.
pub(super) fn page(facts: &Facts, found: &Found, paint: Paint) -> String {
    let mut page = String::new();
    let mut group = "";
    // Writing to a string succeeds.
    if found.named.is_empty() {
        for line in &found.checks {
            if line.group != group {
                let _ = writeln!(page, "{}{}", if group.is_empty() { "" } else { "\n" }, line.group);
                group = line.group;
            }
            item(&mut page, &paint.mark(line.state), &line.name, &line.what, &line.mend);
        }
        page += "\ncommands\n";
    }
    for row in &found.rows {
        let state = match (row.missing.is_empty(), row.decides) {
            (true, _) => State::Fine,
            (false, _) => State::Missing,
        };
        let over = if row.over.is_empty() { String::new() } else { format!(" {}", row.over) };
        let what = match row.missing.as_slice() {
            [] if row.capabilities.is_empty() => String::new(),
            [] => format!("with {}", row.capabilities.join(", ")),
            missing => format!("needs {}", missing.join("; ")),
        };
        let head = format!("{}{over}", row.commands);
        command(&mut page, &paint.mark(state), &head, &what, &row.mend);
    }
    if found.named.is_empty() && facts.user.number != 0 {
        page += "\nroot needs nothing more: sudo flowlane doctor shows what it can do.\n";
    }
    page
}

/// A mark, a name, a text behind it in as many lines as it takes, and what mends it.
fn item(page: &mut String, mark: &str, name: &str, what: &str, mend: &str) {
    // Guard: `legible::lines(name)` as `std::borrow::Cow::Borrowed(name)` fails
    // doctor::tests::the_page_is_plain
    let (name, what) = (legible::lines(name), legible::lines(what));
    let mut name = name.into_owned();
    if name.chars().count() > NAME - 1 {
        let _ = writeln!(page, "  {mark} {name}");
        name.clear();
        let _ = write!(page, "    {:NAME$}", "");
    } else {
        let _ = write!(page, "  {mark} {name:NAME$}");
    }
    for (i, part) in wrapped(&what, WIDTH - INDENT).iter().enumerate() {
        let indent = if i == 0 { 0 } else { INDENT };
        let _ = writeln!(page, "{:indent$}{part}", "");
    }
    mends(page, mend);
}

/// A mark and a command, and below it what it needs.
fn command(page: &mut String, mark: &str, head: &str, what: &str, mend: &str) {
    let _ = writeln!(page, "  {mark} {}", legible::lines(head));
    if !what.is_empty() {
        for part in wrapped(&legible::lines(what), WIDTH - 8) {
            let _ = writeln!(page, "        {part}");
        }
    }
    mends(page, mend);
}

fn mends(page: &mut String, mend: &str) {
    if !mend.is_empty() {
        let _ = writeln!(page, "        to mend: {}", legible::lines(mend));
    }
}
