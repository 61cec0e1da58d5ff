//! What a published crate has: a page, licences, and a word on what of it stays; and what it asks of its neighbours.

use std::fs;
use std::path::Path;

use super::root;

/// What is wrong with a crate's directory; nothing of one that is not published.
fn lacks(folder: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let mut lacks = Vec::new();
    if manifest.contains("publish = false") {
        return lacks;
    }
    for line in ["readme = ", "documentation = ", "license.workspace = true", "include.workspace = true"] {
        if !manifest.lines().any(|found| found.starts_with(line)) {
            lacks.push(line.to_owned());
        }
    }
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        // A link that is followed when the crate is packed.
        if fs::read_to_string(folder.join(file))
            .is_ok_and(|text| text.contains("Copyright") || text.contains("copyright"))
        {
            continue;
        }
        lacks.push(file.to_owned());
    }
    // The command is no library: its page is README.md of the repository.
    if let Ok(library) = fs::read_to_string(folder.join("src/lib.rs")) {
        if !folder.join("README.md").is_file() {
            lacks.push("README.md".to_owned());
        }
        if !library.contains("\n//! # Stability\n") {
            lacks.push("# Stability".to_owned());
        }
    }
    lacks
}

/// Members of the workspace whose version is asked for other than exactly: some promise nothing from one release to the next.
fn loose(manifest: &str, version: &str) -> Vec<String> {
    let members = manifest.lines().filter(|line| line.starts_with("flowlane") && line.contains("path = "));
    members.filter(|line| !line.contains(&format!("version = \"={version}\""))).map(str::to_owned).collect()
}

#[test]
fn every_published_crate_is_whole() {
    let mut published = 0;
    let mut all = Vec::new();
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        let folder = folder.unwrap().path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        published += usize::from(!manifest.contains("publish = false"));
        all.extend(lacks(&folder).iter().map(|what| format!("{}: {what}", folder.display())));
    }
    assert_eq!(all, [""; 0]);
    assert!(published > 8);
}

#[test]
fn crates_of_one_release_go_together() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version =
        manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).unwrap();
    assert_eq!(loose(&manifest, version), [""; 0]);
    assert_eq!(loose("flowlane-x = { path = \"x\", version = \"0.1.0\" }\n", "0.1.0").len(), 1);
}

/// The newest entry of the changelog is of the version that is built.
#[test]
fn the_changelog_has_this_version() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version =
        manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).unwrap();
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let newest = changelog.lines().find_map(|line| line.strip_prefix("## ")).unwrap_or_default();
    assert!(newest.starts_with(version), "CHANGELOG.md begins with '{newest}', the version is {version}");
}

#[test]
fn a_crate_that_is_not_whole_is_found() {
    let folder = flowlane_testnet::Scratch::new("published");
    fs::create_dir_all(folder.path("src")).unwrap();
    fs::write(folder.path("src/lib.rs"), "//! It.\n").unwrap();
    fs::write(folder.path("Cargo.toml"), "[package]\nlicense.workspace = true\ninclude.workspace = true\n")
        .unwrap();
    let all = ["readme = ", "documentation = ", "LICENSE-MIT", "LICENSE-APACHE", "README.md", "# Stability"];
    assert_eq!(lacks(folder.dir()), all);
    fs::write(folder.path("Cargo.toml"), "publish = false\n").unwrap();
    assert_eq!(lacks(folder.dir()), [""; 0]);
}
