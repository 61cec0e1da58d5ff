//! The list of guards.
//!
//! ```text
//! # a comment
//! @ crates/stack/src/tcp/challenge.rs
//!
//! - if [[self.left == 0]] {
//! + false
//! ! tests::guards::the_lanes_challenges_are_limited
//! ```
//!
//! `@` names the file of all that follow. `-` is text that the file has exactly once, white space aside; what stands between the
//! brackets is the guard, the rest says where it is. `+` is what it becomes; a guard that ends with `;` or `}` is a statement and
//! may become nothing. `!` names tests, by parts of their names, one of which has to fail; `lane/hostile` is a test of the test
//! program `lane` instead of one beside the code.

/// One guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guard {
    /// From 1: what `FLOWLANE_MUTANT` is set to.
    pub(crate) number: u32,
    pub(crate) file: String,
    /// Text before the guard, the guard, text behind it.
    pub(crate) text: [String; 3],
    pub(crate) broken: String,
    /// Test program, empty for the crate's own, and part of a test's name.
    pub(crate) tests: Vec<(String, String)>,
    /// Line in the list.
    pub(crate) line: usize,
}

impl Guard {
    pub(crate) fn mentions(&self, word: &str) -> bool {
        self.file.contains(word)
            || self.text.iter().any(|part| part.contains(word))
            || self.tests.iter().any(|(_, test)| test.contains(word))
    }

    /// The directory of its crate.
    pub(crate) fn package(&self) -> &str {
        self.file.split("/src/").next().unwrap_or_default()
    }
}

pub(crate) fn parse(text: &str) -> Result<Vec<Guard>, String> {
    let mut guards: Vec<Guard> = Vec::new();
    let mut file = String::new();
    for (at, line) in text.lines().enumerate() {
        let at = at + 1;
        let wrong = |why: &str| Err(format!("guards.list, line {at}: {why}"));
        let (sign, rest) = line.split_at(line.len().min(1));
        let rest = rest.trim();
        match sign {
            "" | "#" => {}
            "@" => file = rest.into(),
            "-" => {
                let parts = rest.split_once("[[").and_then(|(before, rest)| {
                    let (guard, behind) = rest.rsplit_once("]]")?;
                    Some([before, guard, behind].map(str::to_owned))
                });
                let Some(text) = parts else { return wrong("no [[guard]]") };
                let number = guards.len() as u32 + 1;
                let file = file.clone();
                guards.push(Guard { number, file, text, broken: String::new(), tests: vec![], line: at });
            }
            "+" | "!" => {
                let Some(guard) = guards.last_mut() else { return wrong("no guard before it") };
                if sign == "+" {
                    guard.broken = rest.into();
                    continue;
                }
                guard.tests.extend(rest.split_whitespace().map(|test| match test.split_once('/') {
                    Some((program, test)) => (program.to_owned(), test.to_owned()),
                    None => (String::new(), test.to_owned()),
                }));
            }
            _ => return wrong("begins with none of # @ - + !"),
        }
    }
    match guards.iter().find(|guard| guard.tests.is_empty() || guard.file.is_empty()) {
        Some(guard) => Err(format!("guards.list, line {}: no test or no file", guard.line)),
        None => Ok(guards),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read() {
        let text = "# x\n@ crates/a/src/b.rs\n\n- if [[x[0] == y]] {\n+ false\n! one lane/two\n\n- [[go();]]\n+\n! three\n";
        let guards = parse(text).expect("a list");
        assert_eq!((guards.len(), guards[1].number, guards[0].line), (2, 2, 4));
        assert_eq!(guards[0].text, ["if ", "x[0] == y", " {"]);
        assert_eq!(guards[0].tests[1], ("lane".to_owned(), "two".to_owned()));
        assert_eq!((guards[1].broken.as_str(), guards[1].package()), ("", "crates/a"));
        for wrong in ["- x\n", "+ y\n", "? z\n", "@ f\n- [[x]]\n+ y\n"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
