//! `flowlane serve --config FILE`: a service described by a file, for units and for people who write things down.
//!
//! ```toml
//! service = "http"                 # which one; may be left out behind 'flowlane serve http'
//! port = 80                        # options by the names that they have on the command line
//! addr = ["192.0.2.10/24", "2001:db8::10/64"]
//! tls = true                       # an option without a value
//! ```
//!
//! The file becomes arguments before they are parsed, so that every option, whoever adds it, can be in a file, and a value is checked where it
//! always is. What the command line says of an option takes precedence over the file. What is wrong with the file is said with its name, and
//! the number of the line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, anyhow, bail, ensure};
use clap::builder::ValueRange;
use clap::{Arg, ArgAction, Command};
use toml::{Spanned, Value};

/// The key that names the service.
const SERVICE: &str = "service";

/// The file that was read, and the options that it gave.
static GIVEN: OnceLock<(PathBuf, Vec<String>)> = OnceLock::new();

type Entries = BTreeMap<Spanned<String>, Spanned<Value>>;

/// The option, for help and completions; the parser never meets it.
pub(crate) fn option() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_hint(clap::ValueHint::FilePath)
        .global(true)
        .hide_short_help(true)
        .display_order(999)
        .help("Take the service and its options from this file of TOML: service = \"http\", and options by their names")
}

/// The file whose value an error is about.
pub(crate) fn said(error: &clap::Error) -> Option<&'static Path> {
    let (file, options) = GIVEN.get()?;
    let clap::error::ContextValue::String(about) = error.get(clap::error::ContextKind::InvalidArg)? else {
        return None;
    };
    let name = about.split([' ', '=', '[']).next().unwrap_or_default();
    options.iter().any(|option| option == name).then_some(file.as_path())
}

/// The arguments, with those of a file in the place of `--config FILE`.
///
/// # Errors
/// The file cannot be read, or says what cannot be meant.
pub(crate) fn with_files(mut arguments: Vec<OsString>, command: &Command) -> anyhow::Result<Vec<OsString>> {
    let at = crate::typed::behind_color(&arguments);
    if arguments.get(at).is_none_or(|word| word != "serve") {
        return Ok(arguments);
    }
    let Some(path) = take_file(&mut arguments, at + 1)? else { return Ok(arguments) };
    let of_file = || path.display().to_string();
    let text = crate::description::read(&path)?;
    let mut entries: Entries = toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(1, |span| line_of(&text, span.start));
        anyhow!("{}: line {line}: {}", of_file(), e.message().lines().next().unwrap_or_default())
    })?;
    let mut serve = command.find_subcommand("serve").context("serve")?.clone();
    serve.build();
    let named = arguments.get(at + 1).and_then(|word| word.to_str());
    let named = named.filter(|name| serve.find_subcommand(name).is_some());
    let service = service_of(&text, &mut entries, named, &serve).with_context(of_file)?;
    let of_service = serve.find_subcommand(&service).context("the service")?;
    let (mut added, mut options) = (Vec::new(), Vec::new());
    for (key, value) in &entries {
        let line = line_of(&text, key.span().start);
        let argument =
            known(key.get_ref(), of_service).with_context(|| format!("{}: line {line}", of_file()))?;
        options.push(format!("--{}", key.get_ref()));
        // Guard: `is_given(&arguments[at + 1..], argument)` as `false` fails
        // service_file::tests::a_file_becomes_arguments
        if is_given(&arguments[at + 1..], argument) {
            continue;
        }
        added
            .extend(words(argument, value.get_ref()).with_context(|| format!("{}: line {line}", of_file()))?);
    }
    if named.is_none() {
        arguments.insert(at + 1, service.into());
    }
    arguments.splice(at + 2..at + 2, added.into_iter().map(OsString::from));
    let _ = GIVEN.set((path, options));
    Ok(arguments)
}

/// Takes `--config FILE` out of the arguments behind the command.
fn take_file(arguments: &mut Vec<OsString>, from: usize) -> anyhow::Result<Option<PathBuf>> {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let mut found = None;
    let mut at = from;
    while at < end.min(arguments.len()) {
        let with_value =
            arguments[at].to_str().and_then(|word| word.strip_prefix("--config=")).map(PathBuf::from);
        let path = match with_value {
            Some(path) => path,
            None if arguments[at] == "--config" => {
                ensure!(at + 1 < end, "--config: give a file, as --config web.toml");
                PathBuf::from(arguments.remove(at + 1))
            }
            None => {
                at += 1;
                continue;
            }
        };
        arguments.remove(at);
        ensure!(found.is_none(), "--config: one file only");
        found = Some(path);
    }
    Ok(found)
}

/// The number of the line at which a byte is, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Which service it is: the command line's, or the file's, or both if they are one.
fn service_of(
    text: &str,
    entries: &mut Entries,
    named: Option<&str>,
    serve: &Command,
) -> anyhow::Result<String> {
    let key = entries.keys().find(|key| key.get_ref() == SERVICE).cloned();
    let said = key.and_then(|key| entries.remove_entry(&key));
    let mut names: Vec<&str> =
        serve.get_subcommands().map(Command::get_name).filter(|name| *name != "help").collect();
    names.sort_unstable();
    let Some((key, value)) = said else {
        let named = named.map(str::to_owned);
        return named.with_context(|| {
            format!("it does not say which service: service = \"http\"; or {}", names.join(", "))
        });
    };
    let line = line_of(text, key.span().start);
    let Value::String(service) = value.get_ref() else {
        bail!("line {line}: {SERVICE} is a name in quotes: service = \"http\"")
    };
    if !names.contains(&service.as_str()) {
        bail!("line {line}: there is no service '{service}': {}", names.join(", "));
    }
    // Guard: `named != service` as `false` fails service_file::tests::what_is_wrong
    if let Some(named) = named.filter(|named| named != service) {
        bail!("line {line}: it is for '{service}', and not for '{named}'");
    }
    Ok(service.clone())
}

/// The option with this name.
fn known<'a>(name: &str, command: &'a Command) -> anyhow::Result<&'a Arg> {
    let names = |argument: &'a Arg| {
        argument.get_long().filter(|long| !matches!(*long, "help" | "version" | "config"))
    };
    let all = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    if let Some(found) = all().find(|argument| names(argument) == Some(name)) {
        return Ok(found);
    }
    let distance = |other: &&str| distance_between(name, other);
    let nearest = all().filter_map(names).chain([SERVICE]).min_by_key(distance);
    let nearest = nearest.map_or_else(String::new, |nearest| format!(": '{nearest}' is the nearest"));
    bail!("there is no key '{name}' of {}{nearest}", command.get_name())
}

/// How many letters are to be put in, taken out or changed to make one word of another.
fn distance_between(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Whether the command line gives this option.
fn is_given(arguments: &[OsString], argument: &Arg) -> bool {
    let long = argument.get_long().unwrap_or_default();
    let short = argument.get_short();
    arguments.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str()).any(|word| match word
        .strip_prefix("--")
    {
        Some(name) => name.split('=').next() == Some(long),
        None => short.is_some_and(|short| word.strip_prefix('-').is_some_and(|rest| rest.starts_with(short))),
    })
}

/// The arguments that say what the file says of an option.
fn words(argument: &Arg, value: &Value) -> anyhow::Result<Vec<String>> {
    let name = argument.get_long().unwrap_or_default();
    let values = argument.get_num_args().unwrap_or(ValueRange::SINGLE);
    let takes = argument.get_action().takes_values();
    let optional = !takes || values.min_values() == 0;
    let example = || match argument.get_value_names() {
        Some([first, ..]) => format!("{name} = \"{first}\""),
        _ => format!("{name} = true"),
    };
    Ok(match value {
        Value::Boolean(on) if optional => {
            if *on {
                vec![format!("--{name}")]
            } else {
                Vec::new()
            }
        }
        Value::Boolean(_) => bail!("'{name}' takes a value: {}", example()),
        _ if !takes => bail!("'{name}' is true or false"),
        Value::Array(list) => {
            let several = matches!(argument.get_action(), ArgAction::Append) || values.max_values() > 1;
            // Guard: `several` as `true` fails service_file::tests::what_is_wrong
            ensure!(several, "'{name}' takes one value, and no list");
            let plain: anyhow::Result<Vec<String>> = list.iter().map(|item| plain(name, item)).collect();
            plain?.into_iter().map(|text| format!("--{name}={text}")).collect()
        }
        value => vec![format!("--{name}={}", plain(name, value)?)],
    })
}

/// A value as it is on the command line.
fn plain(name: &str, value: &Value) -> anyhow::Result<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            bail!("'{name}' is a text in quotes or a number")
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;

    /// The command line that a file and words make.
    fn made(file: &str, line: &str) -> Result<String, String> {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("flowlane-service-{}-{number}.toml", std::process::id()));
        std::fs::write(&path, file).unwrap();
        let name = path.display().to_string();
        let words = line.replace("FILE", &name).split(' ').map(OsString::from).collect();
        let made = with_files(words, &crate::command());
        std::fs::remove_file(&path).unwrap();
        let join = |words: Vec<OsString>| {
            words.into_iter().map(|w| w.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        made.map(join).map_err(|e| format!("{e:#}").replace(&name, "FILE"))
    }

    #[test]
    fn a_file_becomes_arguments() {
        let file = "service = \"http\"\nport = 80\naddr = [\"10.0.0.1/24\", \"fd00::1/64\"]\ntls = true\nno-http2 = false\ninterval = true\n";
        let all = "flowlane serve http --addr=10.0.0.1/24 --addr=fd00::1/64 --interval --port=80 --tls";
        assert_eq!(made(file, "flowlane serve --config FILE").as_deref(), Ok(all));
        assert_eq!(made(file, "flowlane serve http --config=FILE").as_deref(), Ok(all));
        let other = made(file, "flowlane --color never serve --config FILE --port 81 --json").unwrap();
        assert_eq!(
            other,
            "flowlane --color never serve http --addr=10.0.0.1/24 --addr=fd00::1/64 --interval --tls --port 81 --json"
        );
        let short =
            made("service = \"memcached\"\nmemory = \"1Gi\"\nport = 1", "flowlane serve --config FILE -m 64");
        assert_eq!(short.as_deref(), Ok("flowlane serve memcached --port=1 -m 64"));
        let parsed = crate::command().try_get_matches_from(all.split(' '));
        assert!(parsed.is_ok(), "{parsed:?}");
    }

    #[test]
    fn without_the_option_nothing_changes() {
        for line in [
            "flowlane serve http --port 1",
            "flowlane load http --config x http://a/",
            "flowlane doctor serve --config x",
            "flowlane serve http -- --config x",
        ] {
            assert_eq!(made("nonsense", line).as_deref(), Ok(line));
        }
    }

    /// One line, which names the file, its line, and what is nearest to what was written.
    #[test]
    fn what_is_wrong_is_named() {
        for (file, line, words) in [
            (
                "prot = 1",
                "flowlane serve http --config FILE",
                "FILE: line 1: there is no key 'prot' of http: 'port' is the nearest",
            ),
            (
                "\n\nmemory = 1",
                "flowlane serve http --config FILE",
                "FILE: line 3: there is no key 'memory' of http",
            ),
            ("config = 1", "flowlane serve http --config FILE", "there is no key 'config'"),
            (
                "port = 1",
                "flowlane serve --config FILE",
                "FILE: it does not say which service: service = \"http\"; or http, memcached, relay",
            ),
            (
                "service = \"htp\"",
                "flowlane serve --config FILE",
                "FILE: line 1: there is no service 'htp': http, memcached",
            ),
            ("service = 1", "flowlane serve --config FILE", "FILE: line 1: service is a name in quotes"),
            (
                "service = \"http\"",
                "flowlane serve relay --config FILE",
                "FILE: line 1: it is for 'http', and not for 'relay'",
            ),
            (
                "port = true",
                "flowlane serve http --config FILE",
                "FILE: line 1: 'port' takes a value: port = \"PORT\"",
            ),
            ("tls = 1", "flowlane serve http --config FILE", "FILE: line 1: 'tls' is true or false"),
            (
                "port = [1, 2]",
                "flowlane serve http --config FILE",
                "FILE: line 1: 'port' takes one value, and no list",
            ),
            (
                "[port]\nx = 1",
                "flowlane serve http --config FILE",
                "FILE: line 1: 'port' is a text in quotes or a number",
            ),
            (
                "addr = [[1]]",
                "flowlane serve http --config FILE",
                "FILE: line 1: 'addr' is a text in quotes or a number",
            ),
            ("port = 1\nport = 2", "flowlane serve http --config FILE", "FILE: line 2: duplicate key"),
            ("port = ", "flowlane serve http --config FILE", "FILE: line 1: "),
            ("", "flowlane serve http --config", "--config: give a file"),
            ("", "flowlane serve http --config FILE --config FILE", "--config: one file only"),
            ("", "flowlane serve http --config /nowhere/x", "/nowhere/x: No such file"),
        ] {
            let said = made(file, line).unwrap_err();
            assert!(said.starts_with(words) || said.contains(words), "{line}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }

    #[test]
    fn words_are_as_far_apart_as_letters_differ() {
        for (a, b, far) in [
            ("port", "port", 0),
            ("prot", "port", 2),
            ("prt", "port", 1),
            ("", "ab", 2),
            ("ports", "port", 1),
        ] {
            assert_eq!(distance_between(a, b), far, "{a} {b}");
        }
    }

    #[test]
    fn an_option_is_given_by_either_of_its_names() {
        let command = crate::command();
        let memcached =
            command.find_subcommand("serve").and_then(|serve| serve.find_subcommand("memcached")).unwrap();
        let memory = memcached.get_arguments().find(|a| a.get_long() == Some("memory")).unwrap();
        let given = |line: &str| is_given(&line.split(' ').map(OsString::from).collect::<Vec<_>>(), memory);
        assert!(given("--memory 1") && given("--memory=1") && given("-m 1") && given("-m1"));
        assert!(!given("--max-connections 1") && !given("-c 1") && !given("-- -m 1"));
    }
}
