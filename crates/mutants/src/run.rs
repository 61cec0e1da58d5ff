//! Builds the copy's tests and runs them, whole and with one guard broken.

use super::copy::is_library;
use super::marks::Guard;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For everything that is named, with nothing broken.
const WHOLE: Duration = Duration::from_secs(300);
/// A guard's tests that run longer have noticed something: without its bound a loop may not end.
const LONGEST: Duration = Duration::from_secs(60);
/// So many crates are built without the others of the workspace.
const A_FEW: usize = 2;

type Tests = BTreeMap<PathBuf, Vec<String>>;

/// Whether all were noticed.
pub(crate) fn all(copy: &Path, guards: &[&Guard], show: bool) -> Result<bool, String> {
    let copy = &fs::canonicalize(copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    let programs = build(copy, guards)?;
    let tests: Vec<Tests> =
        guards.iter().map(|guard| of_guard(copy, guard, &programs)).collect::<Result<_, _>>()?;
    whole(&tests)?;
    let begin = Instant::now();
    let noticed = |guard: &Guard| {
        let at = guards.iter().position(|other| other.number == guard.number).unwrap_or(0);
        tests[at].iter().find_map(|(program, names)| run(program, names, guard.number).err())
    };
    let missed = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    // Many a broken guard is noticed by something that does not come, so its test is idle until it gives up.
    let workers = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(guard) = guards.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begin = Instant::now();
                    let noticed = noticed(guard);
                    let took = begin.elapsed().as_secs_f32();
                    match noticed {
                        Some(by) if show => {
                            println!("{}: {by}: {took:.1} s", guard.place());
                        }
                        Some(_) => {}
                        None => missed.lock().unwrap_or_else(PoisonError::into_inner).push(*guard),
                    }
                }
            });
        }
    });
    // What is a race may need the machine for itself to be lost.
    let mut missed = missed.into_inner().unwrap_or_else(PoisonError::into_inner);
    missed.retain(|guard| noticed(guard).is_none());
    for guard in &missed {
        println!("{}: nobody noticed that it is broken", guard.place());
    }
    println!(
        "{} of {} broken guards noticed in {} s",
        guards.len() - missed.len(),
        guards.len(),
        begin.elapsed().as_secs()
    );
    Ok(missed.is_empty())
}

/// What a program's test program is called here: a library may have the same name.
fn of_program(name: &str) -> String {
    format!("{name} (program)")
}

/// The name of a crate, and that of its library's or its program's test program.
fn own(copy: &Path, package: &str) -> Result<(String, String), String> {
    let manifest =
        fs::read_to_string(copy.join(package).join("Cargo.toml")).map_err(|e| format!("{package}: {e}"))?;
    let name_in = |text: &str| {
        Some(text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))?.to_owned())
    };
    let name = name_in(&manifest).ok_or_else(|| format!("{package}: no name"))?;
    let section = |head: &str| name_in(manifest.split_once(head)?.1.split("\n[").next()?);
    if is_library(copy, package) {
        let library = section("\n[lib]\n").unwrap_or_else(|| name.replace('-', "_"));
        return Ok((name, library));
    }
    let program = section("\n[[bin]]\n");
    let program = of_program(&program.unwrap_or_else(|| name.replace('-', "_")));
    Ok((name, program))
}

/// Test programs by the directory of their crate and by name: crates may call theirs the same.
type Programs = BTreeMap<(PathBuf, String), PathBuf>;

/// The program of this name in a crate, or in another one if it has none.
fn find<'a>(programs: &'a Programs, copy: &Path, package: &str, name: &str) -> Option<&'a PathBuf> {
    let own = programs.get(&(copy.join(package), name.to_owned()));
    own.or_else(|| programs.iter().find(|((_, other), _)| other == name).map(|(_, path)| path))
}

/// Builds all test programs that are named.
fn build(copy: &Path, guards: &[&Guard]) -> Result<Programs, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(copy).args(["test", "--no-run", "--locked", "--quiet", "--message-format=json"]);
    // What `cargo run` has told this program of its own package: build scripts that ask for these would run again, and all that depends on them.
    for (name, _) in std::env::vars_os() {
        let of_package = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
                .iter()
                .any(|of| name.starts_with(of))
        });
        if of_package {
            cargo.env_remove(name);
        }
    }
    let packages: BTreeSet<&str> = guards.iter().map(|guard| guard.package()).collect();
    if packages.iter().any(|package| is_library(copy, package)) {
        cargo.arg("--lib");
    }
    if packages.iter().any(|package| !is_library(copy, package)) {
        cargo.arg("--bins");
    }
    let named: BTreeSet<&str> =
        guards.iter().flat_map(|guard| &guard.tests).map(|(program, _)| program.as_str()).collect();
    let has = |package: &&str, program: &str| {
        let tests = copy.join(package).join("tests");
        program.is_empty()
            || tests.join(program).exists()
            || tests.join(program).with_extension("rs").exists()
    };
    let elsewhere = named.iter().any(|program| !packages.iter().any(|package| has(package, program)));
    // Of the whole workspace what all depend on is there from its own tests; for a few crates features differ, and it is built again.
    if packages.len() > A_FEW || elsewhere {
        cargo.arg("--workspace");
    } else {
        for package in packages {
            cargo.args(["-p", &own(copy, package)?.0]);
        }
    }
    for program in named.into_iter().filter(|program| !program.is_empty()) {
        cargo.args(["--test", program]);
    }
    let output = cargo.stderr(Stdio::inherit()).output().map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        for line in text.lines().filter(|line| line.contains("\"level\":\"error\"")) {
            eprintln!("{}", line.replace("\\n", "\n"));
        }
        return Err("the copy does not compile".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let programs = text.lines().filter_map(|line| {
        let value = |key: &str| line.split_once(&format!("\"{key}\":\""))?.1.split('"').next();
        let (path, manifest) = (value("executable")?, Path::new(value("manifest_path")?));
        let name = Path::new(path).file_name()?.to_str()?.rsplit_once('-')?.0.to_owned();
        let name = if line.contains("\"kind\":[\"bin\"]") { of_program(&name) } else { name };
        Some(((manifest.parent()?.to_owned(), name), PathBuf::from(path)))
    });
    Ok(programs.collect())
}

/// A guard's tests, for each program.
fn of_guard(copy: &Path, guard: &Guard, programs: &Programs) -> Result<Tests, String> {
    let own = own(copy, guard.package())?.1;
    let mut tests = Tests::new();
    for (program, test) in &guard.tests {
        let name = if program.is_empty() { &own } else { program };
        let path = find(programs, copy, guard.package(), name)
            .ok_or_else(|| format!("{}: no test program {name}", guard.place()))?;
        tests.entry(path.clone()).or_default().push(test.clone());
    }
    Ok(tests)
}

/// Runs everything named as it is: each name has to be there, and all have to pass.
fn whole(tests: &[Tests]) -> Result<(), String> {
    let mut together = BTreeMap::<&Path, BTreeSet<&String>>::new();
    for (program, names) in tests.iter().flatten() {
        together.entry(program).or_default().extend(names);
    }
    let mut missing = Vec::new();
    for (program, names) in &together {
        let list = Command::new(program).arg("--list").output().map_err(|e| e.to_string())?;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let is_there = |name: &str| list.lines().any(|line| line.ends_with(": test") && line.contains(name));
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        missing.extend(
            names
                .iter()
                .filter(|name| !is_there(name))
                .map(|name| format!("{program}: there is no test {name}")),
        );
    }
    if !missing.is_empty() {
        return Err(missing.join("\n"));
    }
    for (program, names) in together {
        let names: Vec<String> = names.into_iter().cloned().collect();
        run(program, &names, 0).map_err(|by| format!("with nothing broken: {by}"))?;
    }
    Ok(())
}

/// Runs tests with a guard broken, or none if its number is 0; who failed.
fn run(program: &Path, names: &[String], number: u32) -> Result<(), String> {
    let output = program.with_extension(format!("mutant-{number}"));
    let file = fs::File::create(&output).map_err(|e| e.to_string())?;
    let errors = file.try_clone().map_err(|e| e.to_string())?;
    let longest = if number == 0 { WHOLE } else { LONGEST };
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(names)
        .env("FLOWLANE_MUTANT", number.to_string())
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .map_err(|e| e.to_string())?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break Some(status);
        }
        if begin.elapsed() > longest {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = fs::read_to_string(&output).unwrap_or_default();
    let _ = fs::remove_file(&output);
    match status {
        Some(status) if status.success() => Ok(()),
        None => Err(format!("not done after {} s", longest.as_secs())),
        Some(status) => {
            let failed: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
                .collect();
            Err(if failed.is_empty() { status.to_string() } else { failed.join(" ") })
        }
    }
}
