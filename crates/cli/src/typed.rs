//! The tree of commands with the options of the one that is typed: those of all others, many hundred, are not put together.
//!
//! clap makes all options of all commands, in code that is as large as their number, before it looks at the first word. Who runs one command needs
//! its own; help of a family, completions and man pages need all.

use std::cell::RefCell;
use std::ffi::OsString;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

thread_local! {
    /// The words of the command that is typed, while its tree is made: clap passes nothing through [`Args::augment_args`].
    static WORDS: RefCell<Option<[String; 2]>> = const { RefCell::new(None) };
}

/// The options of a command, which are put together if it is typed, or if all are wanted.
#[derive(Debug)]
pub(crate) struct Typed<T>(pub(crate) T);

impl<T: Args> Args for Typed<T> {
    fn augment_args(command: Command) -> Command {
        if is_wanted(command.get_name()) { T::augment_args(command) } else { command }
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for Typed<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }

    fn update_from_arg_matches_mut(&mut self, matches: &mut ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches_mut(matches)
    }
}

fn is_wanted(name: &str) -> bool {
    // Guard: `words.iter().any(|word| word == name)` as `true` fails typed::tests
    WORDS.with_borrow(|words| words.as_ref().is_none_or(|words| words.iter().any(|word| word == name)))
}

/// The tree that `whole` makes, for these arguments: without the options of other commands, if they name a command with their first words.
pub(crate) fn tree(arguments: &[OsString], whole: fn() -> Command) -> Command {
    let word = |at: usize| arguments.get(at).and_then(|word| word.to_str()).unwrap_or_default().to_owned();
    let at = behind_color(arguments);
    let (first, second) = (word(at), word(at + 1));
    WORDS.set(Some([first.clone(), second.clone()]));
    let tree = whole();
    WORDS.set(None);
    let family = tree.find_subcommand(&first);
    let names_one = family.is_some_and(|f| !f.has_subcommands() || f.find_subcommand(&second).is_some());
    if names_one { tree } else { whole() }
}

/// Where the words of a command begin: behind the one option that may stand before them.
pub(crate) fn behind_color(arguments: &[OsString]) -> usize {
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("--color") => 3,
        Some(word) if word.starts_with("--color=") => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str, path: &[&str]) -> usize {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let tree = tree(&arguments, crate::command);
        let of = path.iter().fold(&tree, |command, name| command.find_subcommand(name).unwrap());
        of.get_arguments().count()
    }

    /// What is typed has what it has in the whole tree, and others have nothing; where no command is named, all have theirs.
    #[test]
    fn the_command_that_is_typed_has_its_options() {
        let all = |path: &[&str]| options("flowlane", path);
        for path in [&["load", "http"] as &[&str], &["serve", "memcached"], &["stat"], &["rss", "plan"]] {
            for before in ["flowlane", "flowlane --color never", "flowlane --color=never"] {
                let line = format!("{before} {} --json", path.join(" "));
                assert_eq!(options(&line, path), all(path), "{line}");
            }
            assert!(all(path) > 5);
        }
        assert_eq!(options("flowlane load http http://a/", &["load", "udp"]), 0);
        assert_eq!(options("flowlane stat", &["load", "udp"]), 0);
        for line in
            ["flowlane load", "flowlane load --json udp", "flowlane --help", "flowlane help load http"]
        {
            assert_eq!(options(line, &["load", "udp"]), all(&["load", "udp"]), "{line}");
        }
    }

    /// Every command reads its own options, and shows the same help, with a tree of its own.
    #[test]
    fn every_help_is_that_of_the_whole_tree() {
        fn every(command: &mut Command, path: &str) {
            let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
            for name in names.iter().filter(|name| *name != "help") {
                let path = format!("{path} {name}");
                let sub = command.find_subcommand_mut(name).unwrap();
                let help = sub.render_long_help().to_string();
                let arguments: Vec<OsString> = path.split(' ').map(OsString::from).collect();
                let mut alone = tree(&arguments, crate::command);
                alone.build();
                let mut alone = &mut alone;
                for word in path.split(' ').skip(1) {
                    alone = alone.find_subcommand_mut(word).unwrap();
                }
                assert_eq!(alone.render_long_help().to_string(), help, "{path}");
                every(sub, &path);
            }
        }
        let mut whole = crate::command();
        whole.build();
        every(&mut whole, "flowlane");
    }
}
