//! The pages of `docs/conformance` name a test for each requirement. A test that was renamed or removed would leave its row standing
//! for nothing, so every name in a column `Test` has to be that of a test in the tree.
//!
//! How tests are named there, in code spans:
//!
//! ```text
//! `listen::a_full_accept_queue`   a test of a module of that name
//! `listen::*`                     the module, which has tests
//! `closing_a_listener`            a test of the module that the row named last
//! `rtt`, `fast_open/peers.rs`     a module, a file, which has tests
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// The tests of each source file of the workspace, by the file's path.
struct Tests(BTreeMap<PathBuf, Vec<String>>);

impl Tests {
    fn of(directory: &Path) -> Self {
        let mut all = Self(BTreeMap::new());
        all.add(directory);
        all
    }

    fn add(&mut self, path: &Path) {
        if path.is_dir() {
            for entry in fs::read_dir(path).expect("a directory").flatten() {
                if entry.file_name() != "target" {
                    self.add(&entry.path());
                }
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let names = tests(&fs::read_to_string(path).expect("text"));
            if !names.is_empty() {
                self.0.insert(path.to_owned(), names);
            }
        }
    }

    /// The tests of all files of module `name`: `name.rs`, `name/mod.rs`, `name/tests.rs`.
    fn of_module<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a String> {
        let files = self.0.iter().filter(move |(file, _)| module(file) == Some(name));
        files.flat_map(|(_, names)| names)
    }

    /// What is wrong with a name; `last` is the module that the row named last.
    fn check(&self, name: &str, last: &mut String) -> Result<(), String> {
        if name.ends_with(".rs") {
            return match self.0.keys().any(|file| file.ends_with(name)) {
                true => Ok(()),
                false => Err("there is no such file with tests".into()),
            };
        }
        let Some((module, test)) = name.rsplit_once("::") else {
            if self.of_module(last).any(|n| n == name) || self.of_module(name).next().is_some() {
                return Ok(());
            }
            return Err(format!("there is no such test in {last}, and no such module with tests"));
        };
        let module = module.rsplit("::").next().unwrap_or(module);
        module.clone_into(last);
        match self.of_module(module).any(|n| test == "*" || n == test) {
            true => Ok(()),
            false => Err("there is no such test".into()),
        }
    }
}

/// Names of the test functions of a file.
fn tests(text: &str) -> Vec<String> {
    let behind = text.split("#[test]").skip(1);
    let name = |text: &str| Some(text.split_once("fn ")?.1.split_once('(')?.0.trim().to_owned());
    behind.filter_map(name).collect()
}

fn module(file: &Path) -> Option<&str> {
    let stem = file.file_stem()?.to_str()?;
    let parent = file.parent()?.file_name()?.to_str()?;
    Some(if matches!(stem, "mod" | "tests" | "main") { parent } else { stem })
}

/// The cells of a row of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

/// What is wrong on a page.
fn faults(page: &str, tests: &Tests) -> Vec<String> {
    let (mut faults, mut column, mut last) = (Vec::new(), None, String::new());
    for (at, line) in page.lines().enumerate() {
        let Some(cells) = cells(line) else {
            column = None;
            continue;
        };
        if column.is_none() {
            // The head of a table; one without such a column says nothing about tests.
            column = Some(cells.iter().position(|cell| *cell == "Test"));
            continue;
        }
        let Some(Some(cell)) = column.map(|column| column.and_then(|n| cells.get(n))) else { continue };
        if cell.starts_with("---") {
            continue;
        }
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            faults.push(format!("line {}: no test", at + 1));
        }
        for name in names {
            if let Err(why) = tests.check(name, &mut last) {
                faults.push(format!("line {}: `{name}`: {why}", at + 1));
            }
        }
    }
    faults
}

#[test]
fn every_row_names_tests_that_there_are() {
    let root = root();
    let tests = Tests::of(&root.join("crates"));
    let (mut rows, mut all) = (0, Vec::new());
    for entry in fs::read_dir(root.join("docs/conformance")).expect("the pages").flatten() {
        let page = fs::read_to_string(entry.path()).expect("text");
        rows += page.lines().filter(|line| line.contains("::")).count();
        let file = entry.file_name().into_string().expect("a name");
        all.extend(faults(&page, &tests).into_iter().map(|fault| format!("{file}, {fault}")));
    }
    assert!(all.is_empty(), "docs/conformance:\n{}", all.join("\n"));
    assert!(rows > 80, "{rows} rows");
}

#[test]
fn a_name_that_is_no_test_is_noticed() {
    let mut tests = Tests(BTreeMap::new());
    tests.0.insert("a/listen.rs".into(), vec!["one".into(), "two".into()]);
    tests.0.insert("a/rtt/mod.rs".into(), vec!["three".into()]);
    let faults = |cell: &str| faults(&format!("| What | Test |\n|---|---|\n| x | {cell} |\n"), &tests);
    for good in [
        "`listen::one`, `two`",
        "`listen::*`",
        "`rtt` tests",
        "`listen.rs`, `rtt::three`",
        "a `a::listen::two`",
    ] {
        assert!(faults(good).is_empty(), "{good}: {:?}", faults(good));
    }
    for bad in
        ["", "`listen::three`", "`listen::one`, `three`", "`gone::*`", "`gone`", "`gone.rs`", "`rtt::one`"]
    {
        assert_eq!(faults(bad).len(), 1, "{bad}");
    }
}
