//! How a command ends: exit codes, and one line that says what went wrong.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::lost;
use crate::say::{self, say};
use crate::stdout;

/// The error of a command that ran and missed its goal: exit code 1.
#[derive(Debug)]
pub(crate) struct Missed(pub(crate) String);

/// The error of a generator that did all that it was asked, but not at the times it was asked: exit code 3, so that a loop can tell a slow
/// generator from a slow server.
#[derive(Debug)]
pub(crate) struct Slipped(pub(crate) String);

impl fmt::Display for Slipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Slipped {}

/// The error of a run that a signal ended before its end: exit code 128 and the signal's number, as a shell has it.
#[derive(Debug)]
pub(crate) struct EndedBy(pub(crate) u8, pub(crate) String);

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl std::error::Error for EndedBy {}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missed {}

/// Something that was asked for could not be written, as a line has said, and the rest went on.
static UNWRITTEN: AtomicBool = AtomicBool::new(false);

/// Notes that something that was asked for could not be written, which a line has said: a command that else did all ends with exit code 1.
pub(crate) fn note_unwritten() {
    UNWRITTEN.store(true, Relaxed);
}

/// Turns a command's result into its exit code, and prints an error in one line.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    if let Some(lost) = lost::link() {
        say!("flowlane: {lost}");
        return ExitCode::from(1);
    }
    let Err(error) = result else { return ExitCode::from(u8::from(UNWRITTEN.load(Relaxed))) };
    if let Some(e) = error.downcast_ref::<io::Error>() {
        // The reader of standard output has closed it: success.
        if e.kind() == io::ErrorKind::BrokenPipe {
            return ExitCode::SUCCESS;
        }
    }
    say!("flowlane: {}", line(&error));
    match error.downcast_ref::<EndedBy>() {
        Some(EndedBy(signal, _)) => ExitCode::from(128 + signal),
        None if error.is::<Missed>() || stdout::is_of(&error) => ExitCode::from(1),
        None if error.is::<Slipped>() => ExitCode::from(3),
        None => ExitCode::from(2),
    }
}

/// The error and its causes in one line. A cause that an error's text already contains is left out.
fn line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(std::string::ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    if let Some(mend) = mend(&line) {
        line = format!("{line}: {mend}");
    }
    line.replace('\n', " ")
}

/// How an error of the kernel's is mended, by the numbers with which it says so (`EMFILE`, `ENFILE`, `EAGAIN` of a thread, `ENOMEM`), where the error
/// does not say it; and what `-` is meant to be where it is no file.
fn mend(line: &str) -> Option<&'static str> {
    let is = |number: u8| line.contains(&format!("(os error {number})"));
    if line.contains("ulimit") {
        None
    } else if is(24) {
        Some("raise the limit with 'ulimit -n'")
    } else if is(23) {
        Some("raise the system's limit, fs.file-max")
    } else if is(11) && line.contains("thread") {
        Some("raise the limit with 'ulimit -u', or that of the control group (pids.max)")
    } else if line.contains("-: No such file") && (line.starts_with("-:") || line.contains(" -:")) {
        Some("standard input is /dev/stdin here")
    } else if is(12) {
        Some("raise the limit with 'ulimit -v', or that of the control group (memory.max)")
    } else {
        None
    }
}

/// Prints in one line what is wrong with the arguments. Help and version that were asked for are printed as a success.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Guard: `error.print()` as `error.print().or(Ok(()))` fails cli/outputs::help_that_cannot_be_printed_is_an_error
        return code(error.print().map_err(|e| stdout::named(&e).into()));
    }
    let text = error.render().to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        say::text(format_args!("{text}"));
        return ExitCode::from(2);
    }
    // After the first empty line clap prints usage and, sometimes, a tip.
    let lines: Vec<&str> = text.lines().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
    let mut line = plainly(&lines.join(" "));
    // Nobody who types an option that is not there means a value that begins with a dash.
    let tips = text.lines().filter_map(|l| l.trim().strip_prefix("tip: "));
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    // An option that is only spelt alike is no help where ours is known.
    if let Some(ours) = crate::guesses::answer(error, &arguments) {
        line = format!("{line}; {ours}");
    } else {
        for tip in tips.filter(|tip| !tip.starts_with("to pass ")) {
            line = format!("{line}; {tip}");
        }
    }
    let file =
        crate::service_file::said(error).map_or_else(String::new, |file| format!("{}: ", file.display()));
    say!("flowlane: {file}{}", line.strip_prefix("error: ").unwrap_or(&line));
    ExitCode::from(2)
}

/// The line of an error about a value, without what only a Rust programmer reads: ranges, and the standard library's words for numbers.
fn plainly(line: &str) -> String {
    let Some((about, what)) = line.rsplit_once(": ") else { return line.to_owned() };
    let range = what.split_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
    if let Some((from, to)) = range {
        // A number of sixteen bits that is a port.
        let from = if about.contains("PORT>") && to == "65535" { "1" } else { from };
        return format!("{about}: from {from} to {to}");
    }
    let words = match what {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "a whole number is needed"
        }
        "number too large to fit in target type" => "the number is too large",
        "number too small to fit in target type" => "the number is too small",
        "invalid float literal" | "cannot parse float from empty string" => "a number is needed",
        "invalid IP address syntax" => "an address is needed, as 10.0.0.1 or fd00::1",
        "invalid IPv4 address syntax" => "an address is needed, as 10.0.0.1",
        "invalid IPv6 address syntax" => "an address is needed, as fd00::1",
        "invalid socket address syntax" => "an address and a port are needed, as 10.0.0.1:80 or [fd00::1]:80",
        _ => return line.to_owned(),
    };
    format!("{about}: {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_limited_is_mended_once() {
        let of = |context: &'static str, number| {
            line(&anyhow::Error::from(io::Error::from_raw_os_error(number)).context(context))
        };
        for (context, number, mend) in [
            ("listening for signals", 24, "'ulimit -n'"),
            ("x", 23, "fs.file-max"),
            ("starting a thread", 11, "'ulimit -u'"),
            ("frame memory", 12, "'ulimit -v'"),
        ] {
            assert!(of(context, number).contains(mend), "{}", of(context, number));
        }
        assert!(!of("reading", 11).contains("ulimit"));
        for (context, stdin) in [("--data -", true), ("-", true), ("--data a-", false)] {
            assert_eq!(of(context, 2).ends_with("standard input is /dev/stdin here"), stdin, "{context}");
        }
        let said = of("no file descriptor is free: raise the limit with 'ulimit -n'", 24);
        assert_eq!(said.matches("ulimit").count(), 1, "{said}");
    }

    #[test]
    fn errors_about_values_have_no_words_of_rust() {
        for (given, said) in [
            (
                "invalid value '0' for '--x <X>': 0 is not in 1..=1000",
                "invalid value '0' for '--x <X>': from 1 to 1000",
            ),
            (
                "invalid value '70000' for '--port <PORT>': 70000 is not in 0..=65535",
                "invalid value '70000' for '--port <PORT>': from 1 to 65535",
            ),
            ("for '<B>': invalid digit found in string", "for '<B>': a whole number is needed"),
            ("for '<B>': 'x' is no link: give kernel", "for '<B>': 'x' is no link: give kernel"),
            ("unexpected argument '-t' found", "unexpected argument '-t' found"),
        ] {
            assert_eq!(plainly(given), said);
        }
        // What the standard library says, in its own words.
        for error in [
            "x".parse::<u16>().unwrap_err().to_string(),
            "".parse::<u16>().unwrap_err().to_string(),
            "70000".parse::<u16>().unwrap_err().to_string(),
            "-200".parse::<i8>().unwrap_err().to_string(),
            "x".parse::<f64>().unwrap_err().to_string(),
            "".parse::<f64>().unwrap_err().to_string(),
            "x".parse::<std::net::IpAddr>().unwrap_err().to_string(),
            "x".parse::<std::net::Ipv4Addr>().unwrap_err().to_string(),
            "x".parse::<std::net::Ipv6Addr>().unwrap_err().to_string(),
            "x".parse::<std::net::SocketAddr>().unwrap_err().to_string(),
        ] {
            assert!(!plainly(&format!("for '<B>': {error}")).contains(&error), "{error}");
        }
    }
}
