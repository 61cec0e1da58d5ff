//! What holds of every source file: no circles among modules, no file that nobody reads, no file that is too long, no word that says nothing.
//!
//! Each check names what it found and where, and is tried on text that it has to refuse.
#![allow(clippy::unwrap_used, reason = "a check that cannot read its files ends")]

mod circles;
mod conformance;
mod dead;
mod links;
mod messages;
mod published;
mod reasons;
mod sizes;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository. CI runs the tests of a copy whose guards can be broken, and names what it was copied from.
fn root() -> PathBuf {
    let here = || Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf();
    std::env::var_os("FLOWLANE_SOURCE").map_or_else(here, PathBuf::from)
}

/// Files of the source with this extension, each by its path from the repository and its text.
fn sources(extension: &str) -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    for folder in ["crates", "fuzz/src", "fuzz/targets", "benches", "docs"] {
        below(&root.join(folder), &mut |path| {
            if path.extension().is_some_and(|found| found == extension) {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read_to_string(path).unwrap()));
            }
        });
    }
    files.sort();
    files
}

fn below(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            below(&path, each);
        } else if path.is_file() {
            each(&path);
        }
    }
}
