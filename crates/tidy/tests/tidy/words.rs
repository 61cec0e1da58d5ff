//! Words that do not stand in the source: notes to oneself, tests that are switched off, waiting for time to pass.

/// A text, where it may not stand, and what is there instead.
const BANNED: &[(&str, Place, &str)] = &[
    ("TODO", Place::All, "finish it, or say in the docs what is not supported"),
    ("FIXME", Place::All, "mend it"),
    ("#[ignore", Place::All, "a test runs, or says by flowlane_testnet::skipped why it cannot"),
    ("dbg!(", Place::All, "remove it"),
    ("todo!(", Place::All, "finish it"),
    ("unimplemented!(", Place::All, "finish it"),
    ("println!(\"skip", Place::Tests, "flowlane_testnet::skipped says it where it is seen, and counts it"),
    (": skipped, because", Place::Tests, "flowlane_testnet::skipped names the test"),
];

#[derive(Clone, Copy, PartialEq)]
enum Place {
    All,
    Tests,
}

fn banned(path: &str, text: &str) -> Vec<String> {
    let tests = path.contains("/tests") || text.contains("#[cfg(test)]");
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (word, place, instead) in BANNED {
            if line.contains(word) && (*place == Place::All || tests) {
                found.push(format!("{path}:{}: `{word}`: {instead}", at + 1));
            }
        }
    }
    found
}

#[test]
fn no_banned_word() {
    let own = ["crates/tidy/", "crates/testnet/src/"];
    let files =
        crate::sources("rs").into_iter().filter(|(path, _)| !own.iter().any(|own| path.starts_with(own)));
    let found: Vec<String> = files.flat_map(|(path, text)| banned(&path, &text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_banned_word_is_found() {
    assert_eq!(banned("crates/x/src/y.rs", "// TODO: more").len(), 1);
    assert_eq!(banned("crates/x/src/y.rs", "// to do it").len(), 0);
    assert_eq!(banned("crates/x/tests/y.rs", "\nprintln!(\"skipped\")").len(), 1);
}
