//! Guards, as they are marked in the source.
//!
//! ```text
//! // Guard: `self.left == 0` as `false` fails guards::the_lanes_challenges_are_limited
//! if self.left == 0 {
//!     return false;
//! }
//! // Guard: no `self.left -= 1;` fails guards::the_lanes_challenges_are_limited
//! // lane/hostile
//! self.left -= 1;
//! ```
//!
//! The first backticks hold the guard: the first text behind the mark that is the same, white space aside. The second hold what it becomes
//! when it is broken; with `no` it is a statement, which ends with `;` or `}` and goes. Behind `fails` stand parts of tests' names, one of
//! which has to fail; `lane/hostile` is a test of the test program `lane` instead of one beside the code. A mark may have several lines.

use std::fs;
use std::ops::Range;
use std::path::Path;

/// How a mark begins.
const MARK: &str = "// Guard: ";

/// One guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guard {
    /// From 1: what `FLOWLANE_MUTANT` is set to.
    pub(crate) number: u32,
    /// From the workspace.
    pub(crate) file: String,
    /// Line of the mark, from 1.
    pub(crate) line: usize,
    /// The guard, as the mark has it.
    pub(crate) text: String,
    /// Where it stands in the file, in bytes.
    pub(crate) at: Range<usize>,
    pub(crate) broken: String,
    /// Test program, empty for the crate's own, and part of a test's name.
    pub(crate) tests: Vec<(String, String)>,
}

impl Guard {
    pub(crate) fn mentions(&self, word: &str) -> bool {
        self.file.contains(word)
            || self.text.contains(word)
            || self.tests.iter().any(|(_, test)| test.contains(word))
    }

    /// The directory of its crate.
    pub(crate) fn package(&self) -> &str {
        self.file.split("/src/").next().unwrap_or_default()
    }

    /// File, line and guard, for a person.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}: {}", self.file, self.line, self.text)
    }
}

/// The guards of every crate below `root` but this one, whose tests have marks of nothing, in the order of their files' names.
pub(crate) fn all(root: &Path) -> Result<Vec<Guard>, String> {
    let mut files = Vec::new();
    for package in entries(&root.join("crates"))?.iter().filter(|package| !package.ends_with("mutants")) {
        below(&package.join("src"), &mut files)?;
    }
    let mut guards = Vec::new();
    let mut wrong = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        match marks(&file, &text) {
            Ok(of_file) => guards.extend(of_file),
            Err(why) => wrong.push(why),
        }
    }
    for (number, guard) in (1..).zip(&mut guards) {
        guard.number = number;
    }
    if wrong.is_empty() { Ok(guards) } else { Err(wrong.join("\n")) }
}

fn entries(directory: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let at = |e: std::io::Error| format!("{}: {e}", directory.display());
    let entries = fs::read_dir(directory).map_err(at)?.map(|entry| entry.map(|entry| entry.path()));
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(at)?;
    entries.sort();
    Ok(entries)
}

fn below(directory: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<(), String> {
    if !directory.is_dir() {
        return Ok(());
    }
    for path in entries(directory)? {
        if path.is_dir() {
            below(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The guards of one file, without their numbers.
pub(crate) fn marks(file: &str, text: &str) -> Result<Vec<Guard>, String> {
    let bare = without_marks(text);
    let mut guards = Vec::new();
    let (mut at, mut number) = (0, 0);
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        (at, number) = (at + line.len(), number + 1);
        let Some(mark) = line.trim().strip_prefix(MARK) else { continue };
        let (first, mut mark) = (number, mark.to_owned());
        while let Some(more) = lines.peek().and_then(|line| continued(line)) {
            mark = mark + " " + more;
            (at, number) = (at + lines.next().map_or(0, str::len), number + 1);
        }
        let wrong = |why: &str| format!("{file}:{first}: {why}: {mark}");
        let (guard, broken, tests) = parse(&mark)
            .ok_or_else(|| wrong("not `GUARD` as `BROKEN` fails TEST, nor no `GUARD` fails TEST"))?;
        let found = places(&bare[at..], guard).next();
        let found = found.ok_or_else(|| wrong("the guard does not stand behind its mark"))?;
        let tests = tests.map(|test| match test.split_once('/') {
            Some((program, test)) => (program.to_owned(), test.to_owned()),
            None => (String::new(), test.to_owned()),
        });
        guards.push(Guard {
            number: 0,
            file: file.to_owned(),
            line: first,
            text: guard.to_owned(),
            at: at + found.start..at + found.end,
            broken: broken.to_owned(),
            tests: tests.collect(),
        });
    }
    Ok(guards)
}

/// What a line adds to the mark above it.
fn continued(line: &str) -> Option<&str> {
    let line = line.trim();
    if line.starts_with(MARK) { None } else { line.strip_prefix("// ") }
}

/// The guard, what it becomes, and its tests, of which there is one at least.
fn parse(mark: &str) -> Option<(&str, &str, impl Iterator<Item = &str>)> {
    let (gone, rest) = match mark.strip_prefix("no ") {
        Some(rest) => (true, rest),
        None => (false, mark),
    };
    let (guard, rest) = rest.strip_prefix('`')?.split_once('`')?;
    let (broken, rest) = match gone {
        true => ("", rest),
        false => rest.strip_prefix(" as `")?.split_once('`')?,
    };
    let tests = rest.strip_prefix(" fails ")?.split_whitespace();
    let ends = guard.ends_with([';', '}']) || !gone;
    (ends && !guard.trim().is_empty() && tests.clone().next().is_some()).then_some((guard, broken, tests))
}

/// The text with its marks blanked, byte for byte: a guard of several lines may have another's mark within.
fn without_marks(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut within = false;
    for line in text.split_inclusive('\n') {
        within = line.trim().starts_with(MARK) || within && continued(line).is_some();
        if within {
            bare.extend(std::iter::repeat_n(' ', line.len() - 1));
            bare.push('\n');
        } else {
            bare += line;
        }
    }
    bare
}

/// Where `wanted` stands in `text`, white space aside.
fn places<'a>(text: &'a str, wanted: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let first = wanted.trim_start().chars().next().unwrap_or(' ');
    let starts = text.char_indices().filter(move |(_, c)| *c == first);
    starts.filter_map(move |(at, _)| Some(at..at + matched(&text[at..], wanted)?))
}

/// How many bytes of `text` are `wanted`, white space aside.
fn matched(text: &str, wanted: &str) -> Option<usize> {
    let mut end = 0;
    let mut have = text.char_indices().filter(|(_, c)| !c.is_whitespace());
    for c in wanted.chars().filter(|c| !c.is_whitespace()) {
        let (at, found) = have.next()?;
        if found != c {
            return None;
        }
        end = at + c.len_utf8();
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn f() {
    // Why.
    // Guard: `x[0] == y` as `false` fails one
    // lane/two
    if x[0] ==
        y
    {
        // Guard: no `go();` fails three
        go();
    }
}
";

    #[test]
    fn marks_are_read() {
        let guards = marks("crates/a/src/b.rs", SOURCE).expect("marks");
        let [first, second] = &guards[..] else { panic!("{guards:?}") };
        assert_eq!((first.line, second.line), (3, 8));
        assert_eq!(&SOURCE[first.at.clone()], "x[0] ==\n        y");
        assert_eq!(first.tests, [(String::new(), "one".to_owned()), ("lane".to_owned(), "two".to_owned())]);
        assert_eq!((second.broken.as_str(), second.package()), ("", "crates/a"));
        assert_eq!(&SOURCE[second.at.clone()], "go();");
    }

    #[test]
    fn a_guard_may_have_anothers_mark_within() {
        let source = "// Guard: no `if a { go(); }` fails one\nif a {\n    // Guard: no `go();` fails two\n    go();\n}\n";
        let guards = marks("f", source).expect("marks");
        assert_eq!(guards.len(), 2);
        assert!(source[guards[0].at.clone()].ends_with("go();\n}"), "{guards:?}");
    }

    #[test]
    fn a_mark_that_says_nothing_is_named() {
        for wrong in [
            "`x`",
            "`x` as `y`",
            "`x` as `y` fails",
            "no `x` fails t",
            "x as y fails t",
            "`z` as `y` fails t",
        ] {
            let text = format!("// Guard: {wrong}\nx\n");
            let why = marks("f", &text).expect_err(wrong);
            assert!(why.starts_with("f:1: "), "{why}");
        }
    }
}
