//! Files that no other names: a module that is never declared compiles, tests and says nothing.

use std::collections::BTreeSet;

/// Names by which files are reached: modules, and paths in attributes, macros and manifests.
fn named(text: &str, into: &mut BTreeSet<String>) {
    for line in text.lines().map(str::trim) {
        if let Some(at) =
            line.find("mod ").filter(|at| line[..*at].chars().next_back().is_none_or(|c| c == ' '))
        {
            let name = line[at + 4..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
            into.extend(name.map(|name| format!("{name}.rs")));
        }
        let quoted = line.split('"').skip(1).step_by(2);
        into.extend(
            quoted
                .filter_map(|path| path.rsplit('/').next())
                .filter(|name| name.contains('.'))
                .map(str::to_owned),
        );
    }
}

/// Cargo finds these by their places.
fn is_a_root(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let (name, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    ["main.rs", "lib.rs", "mod.rs", "build.rs"].contains(&name)
        || ["tests", "benches", "examples", "bin", "targets"].contains(&folder)
}

fn dead<'a>(files: &'a [(String, String)], manifests: &[(String, String)]) -> Vec<&'a str> {
    let mut names = BTreeSet::new();
    files.iter().chain(manifests).for_each(|(_, text)| named(text, &mut names));
    let unreached =
        |path: &&str| !is_a_root(path) && !names.contains(path.rsplit('/').next().unwrap_or_default());
    files.iter().map(|(path, _)| path.as_str()).filter(unreached).collect()
}

#[test]
fn every_file_is_reached() {
    let (files, manifests) = (crate::sources("rs"), crate::sources("toml"));
    let dead = dead(&files, &manifests);
    assert!(dead.is_empty(), "no module or manifest names {dead:?}");
}

/// Every page of the documentation is reached from the index or the README.
#[test]
fn every_page_is_reached() {
    let pages = crate::sources("md");
    let index: String = ["README.md", "docs/index.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .iter()
        .map(|page| std::fs::read_to_string(crate::root().join(page)).unwrap())
        .collect();
    let lost: Vec<&str> = pages
        .iter()
        .filter_map(|(path, _)| path.strip_prefix("docs/"))
        .filter(|page| *page != "index.md" && !index.contains(page) && !page.contains('/'))
        .collect();
    assert!(pages.len() > 20, "the pages are found");
    assert!(lost.is_empty(), "no link leads to {lost:?}");
}

#[test]
fn a_dead_file_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = [
        file("crates/x/src/lib.rs", "pub(crate) mod a;\n#[path = \"../b/c.rs\"]\nmod d;\n"),
        file("crates/x/src/a.rs", "// mentions nothing of e\n"),
        file("crates/x/b/c.rs", ""),
        file("crates/x/src/e.rs", ""),
        file("crates/x/tests/f.rs", ""),
    ];
    assert_eq!(dead(&files, &[]), ["crates/x/src/e.rs"]);
}
