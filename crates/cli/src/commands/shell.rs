//! `flowlane completions` and `flowlane man`: completion scripts and manual pages, generated from the definition of the arguments.

use crate::stdout;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process;

use anyhow::{Context, bail};
use clap::Args;
use clap_complete::Shell;
use clap_complete_nushell::Nushell;
use flowlane::written;

/// Print the completion script for a shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Known,
}

/// Shells whose Tab key knows commands by a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Known {
    Bash,
    Elvish,
    Fish,
    Nushell,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
}

impl Known {
    fn write(self, script: &mut Vec<u8>) {
        let mut command = crate::command();
        let shell = match self {
            Self::Nushell => return clap_complete::generate(Nushell, &mut command, "flowlane", script),
            Self::Bash => Shell::Bash,
            Self::Elvish => Shell::Elvish,
            Self::Fish => Shell::Fish,
            Self::PowerShell => Shell::PowerShell,
            Self::Zsh => Shell::Zsh,
        };
        clap_complete::generate(shell, &mut command, "flowlane", script);
    }
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // Into memory first, since the generator panics if writing fails.
        let mut script = Vec::new();
        self.shell.write(&mut script);
        let mut out = stdout::lock();
        out.write_all(&script)?;
        Ok(out.flush()?)
    }
}

/// Show the manual page of a command, or write the pages of all commands into a directory.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command whose page is shown, as 'load http'; or a directory, such as ~/.local/share/man/man1, which is created if it does not exist.
    #[arg(value_name = "COMMAND|DIRECTORY", required = true)]
    words: Vec<OsString>,
}

impl Man {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut command = crate::command().disable_help_subcommand(true);
        command.build();
        if let Some(named) = named(&mut command, &self.words) {
            return show(named);
        }
        let [directory] = &self.words[..] else {
            let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
            bail!("'{}' is no command: 'flowlane help' lists them", words.join(" "));
        };
        let directory = Path::new(directory);
        // A command that is mistyped is no directory to be made.
        // Guard: `!directory.is_dir()` as `false` fails cli/views::a_mistyped_command_is_no_directory_of_pages
        if directory.components().count() == 1 && !directory.is_dir() && !ends_with_slash(directory) {
            let name = directory.display();
            bail!(
                "there is no command '{name}': 'flowlane help' lists them; a directory to make is ./{name}"
            );
        }
        let name = directory.display();
        std::fs::create_dir_all(directory).with_context(|| name.to_string())?;
        pages(&command, directory).with_context(|| name.to_string())
    }
}

/// Whether whoever typed it says that it is a directory: `./man1`, `man1/`.
fn ends_with_slash(directory: &Path) -> bool {
    directory.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// The command with this name: `load http`, `flowlane load http`.
fn named<'a>(command: &'a mut clap::Command, words: &[OsString]) -> Option<&'a mut clap::Command> {
    let words = if words.len() > 1 && words[0] == "flowlane" { &words[1..] } else { words };
    words.iter().try_fold(command, |command, word| command.find_subcommand_mut(word))
}

/// Shows a page by `man`, which has a terminal's width and pager; where there is none, as the help.
fn show(command: &mut clap::Command) -> anyhow::Result<()> {
    let page = page(command)?;
    let man = process::Command::new("man").args(["-l", "-"]).stdin(process::Stdio::piped()).spawn();
    if let Ok(mut man) = man {
        if let Some(mut input) = man.stdin.take() {
            // Whoever ends the pager early has read enough.
            let _ = input.write_all(&page);
        }
        if man.wait()?.success() {
            return Ok(());
        }
    }
    let help = command.render_long_help().to_string();
    let mut out = stdout::lock();
    out.write_all(help.as_bytes())?;
    Ok(out.flush()?)
}

/// The page of a command, and those of its commands: `flowlane-load-http.1` and the like.
fn pages(command: &clap::Command, directory: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        pages(inner, directory)?;
    }
    let path = directory.join(clap_mangen::Man::new(command.clone()).get_filename());
    let mut file = written::open_for_writing(&path, 0o666)?;
    file.set_len(0)?;
    file.write_all(&page(command)?)
}

/// One page.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    text.extend_from_slice(EXIT_STATUS.as_bytes());
    Ok(text)
}

/// What all commands have in common, behind each page.
const EXIT_STATUS: &str = ".SH \"EXIT STATUS\"
.TP
0
The command did what it was asked.
.TP
1
It ran and missed its goal: a threshold, a check, a comparison, its link was lost, or a result could not be written.
.TP
2
The arguments are wrong, or something that it needs is not there or not allowed.
.TP
3
A load missed nothing but its own schedule: the generator was slow.
.TP
130, 143
^C or SIGTERM ended a load before its end; its report is of what was done until then.
.SH \"SEE ALSO\"
Each command has its page: \\fBman flowlane\\-load\\-http\\fR, or \\fBflowlane man load http\\fR where none is installed.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_page_is_found_by_the_words_of_its_command() {
        let mut command = crate::command();
        command.build();
        for line in ["load http", "flowlane load http"] {
            assert_eq!(named(&mut command, &words(line)).unwrap().get_name(), "http", "{line}");
        }
        assert_eq!(named(&mut command, &words("demo")).unwrap().get_name(), "demo");
        for line in ["load nothing", "man1", "./load", "http"] {
            assert!(named(&mut command, &words(line)).is_none(), "{line}");
        }
    }

    /// Who has installed the command has no `docs/`: neither a page nor a help points there.
    #[test]
    fn nothing_points_to_files_that_come_with_the_source_alone() {
        fn every(command: &mut clap::Command, seen: &mut usize) {
            let help = command.render_long_help().to_string();
            let page = String::from_utf8(page(command).unwrap()).unwrap();
            for text in [help, page] {
                assert!(!text.contains("docs/"), "{}: {text}", command.get_name());
            }
            *seen += 1;
            command.get_subcommands_mut().for_each(|inner| every(inner, seen));
        }
        let (mut command, mut seen) = (crate::command(), 0);
        command.build();
        every(&mut command, &mut seen);
        assert!(seen > 20, "{seen}");
    }
}
