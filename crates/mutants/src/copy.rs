//! A copy of the workspace in which every guard can be broken.

use super::marks::Guard;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What every crate with guards gets at the end of its `lib.rs`, or of its `main.rs` if it has none; and the fuzz targets, which have modules of
/// other crates by path.
const SWITCH: &str = r#"
/// Whether this guard is to be broken.
#[doc(hidden)]
#[must_use]
pub fn mutant(number: u32) -> bool {
    static BROKEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let read = || std::env::var("FLOWLANE_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    *BROKEN.get_or_init(read) == number
}
"#;

/// The fuzz targets' crate.
const FUZZ: &str = "fuzz";

/// Copies what a build and the tests need; files that are the same already are left alone, so that a second build is short.
pub(crate) fn make(root: &Path, to: &Path, guards: &[Guard]) -> Result<(), String> {
    let mut changed = changed(root, guards)?;
    rename(root, &mut changed)?;
    let mut kept = BTreeSet::new();
    for name in [
        ".ci",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "Cargo.lock",
        "Cargo.toml",
        "README.md",
        "benches",
        "clippy.toml",
        "contrib",
        "crates",
        "docs",
        FUZZ,
        "scenarios",
    ] {
        copy(root, to, Path::new(name), &changed, &mut kept)?;
    }
    ["crates", FUZZ].into_iter().try_for_each(|name| remove_others(to, Path::new(name), &kept))
}

/// Gives the copy's crates a version of their own. Cargo tells what it has built of one workspace from what it has built of another by
/// names and versions, not by places: in a target directory that both use it would take the one for the other.
fn rename(root: &Path, changed: &mut BTreeMap<PathBuf, String>) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"));
    let (manifest, lock) =
        versioned(&read("Cargo.toml")?, &read("Cargo.lock")?).ok_or("Cargo.toml: no version")?;
    // Those around what can be broken.
    let manifest =
        manifest.replace("[workspace.lints.rust]\n", "[workspace.lints.rust]\nunused_parens = \"allow\"\n");
    changed.insert("Cargo.toml".into(), manifest);
    changed.insert("Cargo.lock".into(), lock);
    Ok(())
}

/// The workspace's manifest and lock file with the version of its crates made another that fits the same requirements.
fn versioned(manifest: &str, lock: &str) -> Option<(String, String)> {
    let (head, rest) = manifest.split_once("[workspace.package]")?;
    let (old, _) = rest.split_once("version = \"")?.1.split_once('"')?;
    let (front, patch) = old.rsplit_once('.')?;
    let line = |version: &str| format!("version = \"{version}\"");
    let new = format!("{front}.{}", patch.parse::<u32>().ok()? + 1000);
    let manifest = format!("{head}[workspace.package]{}", rest.replacen(&line(old), &line(&new), 1));
    // Crates of one release ask for one another exactly.
    let manifest = manifest.replace(&format!("\"={old}\""), &format!("\"={new}\""));
    let (old, new) = (line(old), line(&new));
    // What has no source is in the workspace.
    let packages = lock.split("[[package]]").map(|package| match package.contains("source = ") {
        true => package.to_owned(),
        false => package.replacen(&old, &new, 1),
    });
    Some((manifest, packages.collect::<Vec<_>>().join("[[package]]")))
}

/// Whether a crate is a library; else it is a program.
pub(crate) fn is_library(root: &Path, package: &str) -> bool {
    root.join(package).join("src/lib.rs").exists()
}

/// The files that are not as they were: with their guards, and `lib.rs` with the switch.
fn changed(root: &Path, guards: &[Guard]) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut changed = BTreeMap::new();
    let read =
        |path: &Path| fs::read_to_string(root.join(path)).map_err(|e| format!("{}: {e}", path.display()));
    let files: BTreeSet<&str> = guards.iter().map(|guard| guard.file.as_str()).collect();
    for file in files {
        let of_file = guards.iter().filter(|guard| guard.file == file).collect();
        changed.insert(PathBuf::from(file), breakable(&read(Path::new(file))?, of_file));
    }
    for package in guards.iter().map(Guard::package).chain([FUZZ]).collect::<BTreeSet<_>>() {
        let root_file =
            PathBuf::from(package).join(if is_library(root, package) { "src/lib.rs" } else { "src/main.rs" });
        let text = match changed.remove(&root_file) {
            Some(text) => text,
            None => read(&root_file)?,
        };
        changed.insert(root_file, text + SWITCH);
    }
    Ok(changed)
}

/// The text with every guard made breakable; one may stand within another.
fn breakable(text: &str, mut guards: Vec<&Guard>) -> String {
    guards.sort_by_key(|guard| (guard.at.start, std::cmp::Reverse(guard.at.end)));
    part(text, 0..text.len(), &guards)
}

fn part(text: &str, of: Range<usize>, guards: &[&Guard]) -> String {
    let (mut new, mut at, mut next) = (String::new(), of.start, 0);
    while let Some(guard) = guards.get(next) {
        let within = guards[next + 1..].iter().take_while(|inner| inner.at.end <= guard.at.end).count();
        let original = part(text, guard.at.clone(), &guards[next + 1..next + 1 + within]);
        let (broken, number) = (&guard.broken, guard.number);
        let either = format!("if crate::mutant({number}) {{ {broken} }} else {{ {original} }}");
        new += &text[at..guard.at.start];
        // A statement, an expression, or the end of a chain of calls.
        new += &match &text[guard.at.clone()] {
            guard if guard.ends_with([';', '}']) => either,
            guard if guard.starts_with(['.', '=', '<', '>']) => chained(guard, broken, number),
            _ => format!("({either})"),
        };
        (at, next) = (guard.at.end, next + 1 + within);
    }
    new + &text[at..of.end]
}

/// `.max(a)` and `.min(a)` that become `.max(b)`, and `== a` that becomes `== b`: only what is compared with differs.
fn chained(original: &str, broken: &str, number: u32) -> String {
    let split = |text: &str| {
        let at = text.find(['(', ' ']).map_or(text.len(), |at| at + 1);
        let end = text.len() - usize::from(text.ends_with(')') && text.starts_with('.'));
        [&text[..at], &text[at..end], &text[end..]].map(str::to_owned)
    };
    let ([head, ours, tail], [_, theirs, _]) = (split(original), split(broken));
    format!("{head}(if crate::mutant({number}) {{ {theirs} }} else {{ {ours} }}){tail}")
}

fn copy(
    root: &Path,
    to: &Path,
    path: &Path,
    changed: &BTreeMap<PathBuf, String>,
    kept: &mut BTreeSet<PathBuf>,
) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    let from = root.join(path);
    if !from.exists() {
        return Ok(());
    }
    if from.is_dir() {
        for entry in fs::read_dir(&from).map_err(at)? {
            let entry = entry.map_err(at)?;
            if entry.file_name() != "target" {
                copy(root, to, &path.join(entry.file_name()), changed, kept)?;
            }
        }
        return Ok(());
    }
    kept.insert(path.to_owned());
    let bytes = match changed.get(path) {
        Some(text) => text.clone().into_bytes(),
        None => fs::read(&from).map_err(at)?,
    };
    let to = to.join(path);
    if fs::read(&to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).map_err(at)?;
    }
    fs::write(&to, bytes).map_err(at)?;
    // A test may run a script.
    fs::set_permissions(&to, fs::metadata(&from).map_err(at)?.permissions()).map_err(at)
}

/// Files that an earlier copy left and that are no longer in the workspace.
fn remove_others(to: &Path, path: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    for entry in fs::read_dir(to.join(path)).map_err(at)? {
        let entry = entry.map_err(at)?;
        let path = path.join(entry.file_name());
        if entry.path().is_dir() {
            remove_others(to, &path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(entry.path()).map_err(at)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::marks::marks;
    use super::*;

    /// The source with its marks' guards made breakable, which have number 7.
    fn broken(source: &str) -> String {
        let mut guards = marks("crates/a/src/b.rs", source).expect("marks");
        guards.iter_mut().for_each(|guard| guard.number = 7);
        breakable(source, guards.iter().collect())
    }

    #[test]
    fn expressions_and_statements_become_breakable() {
        let source = |mark: &str| {
            format!(
                "fn f() {{\n    // Guard: {mark} fails t\n    if a\n        && b == 0\n    {{\n        go(x.min(7));\n    }}\n}}\n"
            )
        };
        let new = broken(&source("`b == 0` as `true`"));
        assert!(new.contains("&& (if crate::mutant(7) { true } else { b == 0 })\n    {"), "{new}");
        let new = broken(&source("no `go(x.min(7));`"));
        assert!(new.contains("if crate::mutant(7) {  } else { go(x.min(7)); }\n"), "{new}");
        let new = broken(&source("`.min(7)` as `.min(9)`"));
        assert!(new.contains("go(x.min((if crate::mutant(7) { 9 } else { 7 })));"), "{new}");
    }

    #[test]
    fn the_copy_has_a_version_of_its_own() {
        let manifest = "[workspace]\n[workspace.package]\nversion = \"0.1.7\"\n[workspace.dependencies]\na = \"0.1.7\"\nb = \"=0.1.7\"\n";
        let other = "[[package]]\nname = \"b\"\nversion = \"0.1.7\"\nsource = \"registry\"\n";
        let lock = format!("version = 4\n[[package]]\nname = \"a\"\nversion = \"0.1.7\"\n{other}");
        let (manifest, lock) = versioned(manifest, &lock).expect("a version");
        assert!(
            manifest.contains("version = \"0.1.1007\"") && manifest.contains("a = \"0.1.7\""),
            "{manifest}"
        );
        assert!(manifest.ends_with("b = \"=0.1.1007\"\n"), "{manifest}");
        assert_eq!(lock, format!("version = 4\n[[package]]\nname = \"a\"\nversion = \"0.1.1007\"\n{other}"));
        assert_eq!(versioned("[workspace]\n", ""), None);
    }

    #[test]
    fn a_guard_may_stand_within_another() {
        let marked = "// Guard: `a || b` as `true` fails t\n// Guard: `b` as `false` fails t\nx = a || b;";
        let new = broken(marked);
        let inner = "(if crate::mutant(7) { false } else { b })";
        let new = new.lines().last().expect("a line");
        assert_eq!(new, format!("x = (if crate::mutant(7) {{ true }} else {{ a || {inner} }});"));
    }
}
