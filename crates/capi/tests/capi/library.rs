//! The library and C programs that are linked with it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use flowlane_testnet::{Scratch, skipped};

use crate::folder;

/// The static library that cargo has built with this test; of several builds the last before the test itself: copies of the workspace, as the
/// mutants', build theirs beside it.
pub(crate) fn static_library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let built = program.parent().unwrap().read_dir().unwrap().flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libflowlane_capi") && name.ends_with(".a")
    });
    let age = |entry: &std::fs::DirEntry| {
        entry.metadata().and_then(|about| about.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let now = program.metadata().and_then(|about| about.modified()).unwrap();
    built
        .filter(|entry| age(entry) <= now)
        .max_by_key(age)
        .expect("cargo builds the static library with its tests")
        .path()
}

/// Runs a command that has to do what it is for.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The directory in which the library is installed for the tests, below cargo's: each run writes it anew.
pub(crate) fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
        let mut install = Command::new(folder().join("install"));
        install.arg("--prefix").arg(&directory).arg("--lib").arg(static_library());
        run(&mut install);
        directory
    })
}

/// How a program is compiled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    compiler: &'static str,
    sanitized: bool,
}

/// All ways in which this machine can compile C programs. The others are said.
pub(crate) fn ways() -> &'static [Way] {
    static WAYS: OnceLock<Vec<Way>> = OnceLock::new();
    WAYS.get_or_init(|| {
        let all = ["gcc", "clang"]
            .into_iter()
            .flat_map(|compiler| [false, true].map(|sanitized| Way { compiler, sanitized }));
        all.filter(|way| way.works().map_err(skipped).is_ok()).collect()
    })
}

impl Way {
    fn name(self) -> String {
        format!("{}{}", self.compiler, if self.sanitized { "-address" } else { "" })
    }

    fn command(self) -> Command {
        let mut command = Command::new(self.compiler);
        command.args([
            "-std=c11",
            "-D_POSIX_C_SOURCE=200809L",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wpedantic",
            "-O1",
            "-g",
        ]);
        if self.sanitized {
            command.args(["-fsanitize=address", "-fno-omit-frame-pointer"]);
        }
        command
    }

    fn works(self) -> Result<(), String> {
        let name = self.name();
        let scratch = Scratch::new(&format!("capi-try-{name}"));
        std::fs::write(scratch.dir().join("a.c"), "int main(void) { return 0; }\n").unwrap();
        let tried = self.command().arg(scratch.path("a.c")).arg("-o").arg(scratch.path("a")).output();
        match tried {
            Ok(output) if output.status.success() => Ok(()),
            Ok(_) => Err(format!(
                "skipped, because {} cannot make programs with its address sanitizer",
                self.compiler
            )),
            Err(_) => Err(format!("skipped, because there is no {}", self.compiler)),
        }
    }

    /// Compiles a program of this crate, and links it with the shared object; once for all tests.
    pub(crate) fn compile(self, source: &str) -> Command {
        static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let installed = installed();
        let source = folder().join(source);
        let name = format!("{}-{}", source.file_stem().unwrap().to_string_lossy(), self.name());
        let program = installed.join(name);
        let lib = installed.join("lib");
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if !compiled.insert(program.clone()) {
            return Command::new(program);
        }
        let mut command = self.command();
        command.arg(source).arg("-o").arg(&program).arg("-I").arg(installed.join("include"));
        command
            .arg("-L")
            .arg(&lib)
            .arg(format!("-Wl,-rpath,{}", lib.display()))
            .args(["-lflowlane", "-lpthread"]);
        run(&mut command);
        Command::new(program)
    }
}
