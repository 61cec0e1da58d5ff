//! Whether output has colours: by `--color`, else by `NO_COLOR` (no-color.org), else by whether it goes to a terminal.
//!
//! clap colours help before it parses arguments, so `--color` is also looked for in the raw arguments.

use std::ffi::OsStr;

use clap::{ColorChoice, ValueEnum};

/// When to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl From<When> for ColorChoice {
    fn from(when: When) -> Self {
        match when {
            When::Auto => Self::Auto,
            When::Always => Self::Always,
            When::Never => Self::Never,
        }
    }
}

/// `--color` as found in the arguments of this process.
pub(crate) fn of_arguments() -> When {
    among(std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()))
}

fn among(arguments: impl Iterator<Item = String>) -> When {
    let mut arguments = arguments.take_while(|a| a != "--");
    let mut when = When::Auto;
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--color") {
            Some("") => arguments.next(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        // The parser refuses other values.
        when = value.and_then(|v| When::from_str(&v, false).ok()).unwrap_or(when);
    }
    when
}

/// Whether the full-screen display has colours. It runs on terminals only.
pub(crate) fn on_screen() -> bool {
    wanted(of_arguments(), std::env::var_os("NO_COLOR").as_deref())
}

/// Whether marks on standard output have colours, which is a terminal that knows them or not.
pub(crate) fn on_output(terminal: bool) -> bool {
    match of_arguments() {
        // Guard: `terminal` as `true` fails cli/doctor::what_needs_nothing
        When::Auto => terminal && wanted(When::Auto, std::env::var_os("NO_COLOR").as_deref()),
        said => wanted(said, None),
    }
}

fn wanted(when: When, no_color: Option<&OsStr>) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => no_color.is_none_or(OsStr::is_empty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_before_the_environment() {
        let of = |line: &str| among(line.split_whitespace().map(str::to_owned));
        assert_eq!(of("demo"), When::Auto);
        assert_eq!(of("--color never demo"), When::Never);
        assert_eq!(of("demo --color=always"), When::Always);
        assert_eq!(of("demo --color=blue"), When::Auto);
        assert_eq!(of("load compare a -- --color=never"), When::Auto);
        for (when, no_color, expected) in [
            (When::Auto, None, true),
            (When::Auto, Some("1"), false),
            (When::Auto, Some(""), true),
            (When::Always, Some("1"), true),
            (When::Never, None, false),
        ] {
            assert_eq!(wanted(when, no_color.map(OsStr::new)), expected, "{when:?} {no_color:?}");
        }
    }
}
