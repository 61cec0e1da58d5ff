//! Files stay short enough to be read at once (CONTRIBUTING.md, "Files").

/// Lines that a file of source may have, and a file of tests.
const MOST: (usize, usize) = (700, 950);

fn too_long(path: &str, text: &str) -> Option<String> {
    let tests = path.contains("/tests/") || path.ends_with("tests.rs");
    let most = if tests { MOST.1 } else { MOST.0 };
    let lines = text.lines().count();
    (lines > most).then(|| format!("{path} has {lines} lines, {most} at most: it is two files"))
}

#[test]
fn no_file_is_too_long() {
    let files = crate::sources("rs");
    assert!(files.len() > 1000, "the sources are found");
    let long: Vec<String> = files.iter().filter_map(|(path, text)| too_long(path, text)).collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn a_long_file_is_found() {
    assert!(too_long("crates/x/src/y.rs", &"\n".repeat(701)).is_some());
    assert!(too_long("crates/x/src/y.rs", &"\n".repeat(700)).is_none());
    assert!(too_long("crates/x/tests/y.rs", &"\n".repeat(701)).is_none());
}
