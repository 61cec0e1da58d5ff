//! Reasons of drops that nothing counts: a view that shows one promises what never comes.

/// The variants of the enumerations that `reasons!` makes in a file.
fn declared(text: &str) -> Vec<&str> {
    let inside = text.split("\nreasons! {").skip(1).filter_map(|rest| rest.split("\n}").next());
    let variants = inside.flat_map(str::lines).filter_map(|line| line.trim().split_once(" = \""));
    variants.map(|(name, _)| name).collect()
}

/// Those that no other file of the program names.
fn uncounted(files: &[(String, String)]) -> Vec<(&str, &str)> {
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    let mut uncounted = Vec::new();
    for (path, text) in files {
        for name in declared(text) {
            let named = format!("::{name}");
            let counts = |(other, text): &&(String, String)| {
                let follows =
                    |(at, _): (usize, &str)| !text[at + named.len()..].starts_with(char::is_alphanumeric);
                other != path && !is_test(other) && text.match_indices(&named).any(follows)
            };
            if files.iter().find(counts).is_none() {
                uncounted.push((path.as_str(), name));
            }
        }
    }
    uncounted
}

#[test]
fn every_reason_is_counted() {
    let files = crate::sources("rs");
    assert!(
        files.iter().map(|(_, text)| declared(text).len()).sum::<usize>() > 50,
        "reasons are declared otherwise"
    );
    let uncounted = uncounted(&files);
    assert!(uncounted.is_empty(), "nothing counts {uncounted:?}");
}

#[test]
fn a_reason_that_nothing_counts_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = [
        file(
            "crates/a/src/stats.rs",
            "\nreasons! {\n    /// Why.\n    Short = \"short\",\n    Shorter = \"shorter\",\n    Late = \"late\",\n}\n",
        ),
        file("crates/a/src/input.rs", "stats.drop(Reason::Shorter);"),
        file("crates/a/src/tests/input.rs", "assert_eq!(stats.dropped(Reason::Late), 0);"),
    ];
    assert_eq!(uncounted(&files), [("crates/a/src/stats.rs", "Short"), ("crates/a/src/stats.rs", "Late")]);
}
