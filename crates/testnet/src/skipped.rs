//! Tests that cannot run here say so, where it is seen, and are counted for the line at the end of `cargo test`.

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::path::PathBuf;

/// Prints that the calling test does not run here, and why: a line that begins "skipped, because".
///
/// libtest keeps to itself what a test that passes prints. This is written past it, so that `cargo test` shows it. The line is kept for
/// the program `what_was_skipped`, too, which is the last of a run.
pub fn skipped(line: impl Display) {
    let thread = std::thread::current();
    let line = format!("{}: {line}\n", thread.name().unwrap_or("test"));
    // Nobody may read it, and nobody may ask for the list.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(list) = list() {
        let _ = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(list)
            .map(|mut list| list.write_all(line.as_bytes()));
    }
}

/// Where the programs that one `cargo test` starts keep what they skipped: beside them, by the number of their parent.
fn list() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.join(format!("skipped-{}", std::os::unix::process::parent_id())))
}

/// One line of what the programs of this `cargo test` skipped so far, most frequent reason first; none if nothing was. The list begins anew.
pub fn summary() -> Option<String> {
    let list = list()?;
    let text = std::fs::read_to_string(&list).ok()?;
    let _ = std::fs::remove_file(&list);
    in_one_line(&text)
}

fn in_one_line(text: &str) -> Option<String> {
    let mut reasons: Vec<(usize, &str)> = Vec::new();
    for (_, why) in text.lines().filter_map(|line| line.split_once("skipped, because ")) {
        let why = why.trim_end_matches(['.', ' ']);
        match reasons.iter_mut().find(|(_, reason)| *reason == why) {
            Some((count, _)) => *count += 1,
            None => reasons.push((1, why)),
        }
    }
    reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let all: usize = reasons.iter().map(|(count, _)| count).sum();
    let mut line = format!("{all} tests skipped");
    for (at, (count, why)) in reasons.iter().enumerate() {
        let _ = write!(line, "{}{count}: {why}", if at == 0 { ": " } else { ", " });
    }
    (all > 0).then_some(line)
}

#[cfg(test)]
mod tests {
    #[test]
    fn reasons_are_counted() {
        let text = "a: skipped, because there is no ping.\nb: other words\nc: skipped, because of this\nd: skipped, because there is no ping\n";
        let line = super::in_one_line(text);
        assert_eq!(line.as_deref(), Some("3 tests skipped: 2: there is no ping, 1: of this"));
        assert_eq!(super::in_one_line("b: other words\n"), None);
    }
}
