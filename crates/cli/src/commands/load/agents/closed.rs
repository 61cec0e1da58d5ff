//! The closed set of options that go over the bus.
//!
//! A load is sent as the options of its command, and an agent parses them as the command does, so both ends understand them alike. But it admits
//! those in [`SENT`] alone: they choose what is sent, where, when and by how many. None reads or writes a file, opens a link or a socket that
//! listens, or starts anything. What belongs to a machine, such as its link, its agent is given where it is started.

use anyhow::{Context, bail, ensure};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};

use super::super::Load;
use crate::guesses;

/// Loads that agents make, and the options that are sent for each.
const SENT: &[(&str, &[&str])] = &[
    (
        "http",
        &[
            "urls",
            "connections",
            "burst",
            "rate",
            "poisson",
            "ramp",
            "warm_up",
            "duration",
            "waiting",
            "timeout",
            "request_timeout",
            "requests",
            "requests_per_connection",
            "no_keepalive",
            "fast_open",
            "connections_in_all",
            "think",
            "method",
            "header",
            "user",
            "cookies",
            "body",
            "body_size",
            "expect_status",
            "expect_length",
            "expect_sha256",
            "expect_contains",
            "max_body",
            "pipeline",
            "http2",
            "http3",
            "follow",
            "read_rate",
            "write_rate",
            "half_open",
            "connect_to",
            "resolve",
            "insecure",
            "tls_min",
            "tls_max",
            "tls_resume",
            "early_data",
            "exact",
            "slack",
            "clients",
            "routed",
            "workers",
            "seed",
        ],
    ),
    (
        "tcp",
        &[
            "named",
            "mode",
            "connections",
            "rate",
            "poisson",
            "size",
            "total",
            "opening",
            "ramp",
            "timeout",
            "nagle",
            "verify",
            "reset",
            "fast_open",
            "warm_up",
            "duration",
            "clients",
            "routed",
            "workers",
            "seed",
        ],
    ),
    (
        "udp",
        &[
            "named", "rate", "window", "poisson", "ramp", "size", "burst", "timeout", "flows", "discard",
            "warm_up", "duration", "clients", "routed", "workers", "seed",
        ],
    ),
    (
        "memcached",
        &[
            "named",
            "connections",
            "depth",
            "rate",
            "poisson",
            "by_lane",
            "fill",
            "ramp",
            "timeout",
            "workload",
            "keys",
            "key_size",
            "value_size",
            "key_prefix",
            "popularity",
            "update",
            "ratio",
            "multiget",
            "protocol",
            "verify",
            "warm_up",
            "duration",
            "clients",
            "routed",
            "workers",
            "seed",
        ],
    ),
    (
        "ws",
        &[
            "target",
            "connections",
            "depth",
            "rate",
            "poisson",
            "size",
            "text",
            "any_answer",
            "ramp",
            "timeout",
            "header",
            "protocol",
            "deflate",
            "insecure",
            "warm_up",
            "duration",
            "clients",
            "routed",
            "workers",
            "seed",
        ],
    ),
];

/// Options that stay with whoever conducts the run.
const OURS: &[&str] = &[
    "agents",
    "nats",
    "nats_creds",
    "nats_nkey",
    "nats_ca",
    "nats_cert",
    "nats_key",
    "agent_wait",
    "agent_timeout",
    "agent_loss",
    "slip_budget",
    "fail",
    "json",
    "save",
    "html",
    "csv",
    "hdr",
    "junit",
    "markdown",
    "tui",
    "lines",
    "quiet",
    "metrics",
    "push",
    "push_every",
    "push_header",
    "push_label",
    "color",
];

/// The option that stands for a scenario whose text was sent.
const SENT_SCENARIO: &str = "--scenario=(sent)";

/// An option as it is sent: its name, and the arguments.
type Given = (String, Vec<String>);

fn sent(load: &str) -> Option<&'static [&'static str]> {
    SENT.iter().find(|(name, _)| *name == load).map(|(_, options)| *options)
}

/// The options of `flowlane load LOAD` that were given with these arguments.
fn given(load: &str, arguments: Vec<std::ffi::OsString>) -> anyhow::Result<Vec<Given>> {
    let mut command = crate::command();
    let matches = command.try_get_matches_from_mut(guesses::with_targets_apart(arguments.into_iter()))?;
    let nothing = || format!("there is no load {load}");
    let (family, matches) = matches.subcommand().with_context(nothing)?;
    let (name, matches) = matches.subcommand().with_context(nothing)?;
    ensure!(family == "load" && name == load, nothing());
    let command =
        command.find_subcommand("load").and_then(|c| c.find_subcommand(load)).with_context(nothing)?;
    Ok(given_of(command, matches))
}

fn given_of(command: &Command, matches: &ArgMatches) -> Vec<Given> {
    let mut all = Vec::new();
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let known = matches.try_contains_id(id).is_ok();
        if !known || matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let long = argument.get_long().map(|long| format!("--{long}"));
        let mut words = Vec::new();
        if argument.get_action().takes_values() {
            for value in matches.get_raw(id).into_iter().flatten() {
                let value = value.to_string_lossy();
                words.push(long.as_ref().map_or_else(|| value.to_string(), |long| format!("{long}={value}")));
            }
        } else {
            words.extend(long);
        }
        all.push((id.to_owned(), words));
    }
    all
}

/// The arguments of this process that agents get. A seed is one of them, whether it was given or not: all have to choose alike.
/// `told`: options that they are told as well.
pub(super) fn to_send(load: &str, seed: u64, told: &[String]) -> anyhow::Result<Vec<String>> {
    let admitted = sent(load).with_context(|| format!("load {load}: not with --agents"))?;
    let mut words = Vec::new();
    for (id, of_option) in given(load, std::env::args_os().collect())? {
        if admitted.contains(&id.as_str()) {
            if id != "seed" {
                words.extend(of_option);
            }
        } else if id == "scenario" {
            // Its text is sent.
        } else if !OURS.contains(&id.as_str()) {
            let option = id.replace('_', "-");
            bail!(
                "--{option}: not with --agents; what belongs to a machine its agent is given: flowlane load agent ... -- --{option} ..."
            );
        }
    }
    words.push(format!("--seed={seed}"));
    words.extend(told.iter().cloned());
    Ok(words)
}

fn line(load: &str, options: impl IntoIterator<Item = String>) -> Vec<std::ffi::OsString> {
    ["flowlane", "load", load]
        .into_iter()
        .map(Into::into)
        .chain(options.into_iter().map(Into::into))
        .collect()
}

/// The load that options from the bus are, if an agent admits all of them. `with_scenario`: the text of a scenario came with them. `own`: what the agent was given where it was started, which comes
/// first.
pub(super) fn admit(
    load: &str,
    options: &[String],
    own: &[String],
    with_scenario: bool,
) -> anyhow::Result<Load> {
    // Its text is what was sent, and no file of this machine.
    let scenario = with_scenario.then(|| SENT_SCENARIO.to_owned());
    let admitted = sent(load).with_context(|| format!("makes no load {load}"))?;
    // A help that was asked for is no error of clap's.
    let asked =
        given(load, line(load, scenario.iter().chain(options).cloned())).map_err(|e| in_one_line(&e))?;
    let mine = own_options(load, own)?;
    let mut words = Vec::new();
    for (id, of_option) in asked {
        if scenario.as_ref().is_some_and(|scenario| of_option == [scenario.as_str()]) {
            words.extend(of_option);
            continue;
        }
        // Guard: `admitted.contains(&id.as_str())` as `true` fails closed::tests::files_links_and_listeners
        // closed::tests::what_is_not_sent
        ensure!(admitted.contains(&id.as_str()), "does not take --{} from others", id.replace('_', "-"));
        if !mine.iter().any(|(own, _)| *own == id) {
            words.extend(of_option);
        }
    }
    words.extend(own.iter().cloned());
    let mut command = crate::command();
    let parsed = command
        .try_get_matches_from_mut(line(load, words))
        .and_then(|mut matches| crate::Cli::from_arg_matches_mut(&mut matches))
        .map_err(|e| in_one_line(&e.into()))?;
    match parsed.command {
        crate::commands::Command::Load(load) => Ok(load),
        _ => bail!("makes no load {load}"),
    }
}

/// What an agent was given where it was started, for a load.
fn own_options(load: &str, own: &[String]) -> anyhow::Result<Vec<Given>> {
    let target = match load {
        "http" => "http://127.0.0.1/",
        "ws" => "ws://127.0.0.1/",
        _ => "127.0.0.1:1",
    };
    let line = line(load, [target.to_owned()].into_iter().chain(own.iter().cloned()));
    let given = given(load, line).map_err(|e| in_one_line(&e))?;
    Ok(given
        .into_iter()
        .filter(|(id, words)| words != &[target] && !["urls", "named", "target"].contains(&id.as_str()))
        .collect())
}

/// Whether an agent was given an option where it was started, for a load.
pub(super) fn is_own(load: &str, own: &[String], id: &str) -> bool {
    own_options(load, own).is_ok_and(|options| options.iter().any(|(own, _)| own == id))
}

/// Refuses what an agent is given that is no option of any load, or not for it to have.
pub(super) fn check_own(own: &[String]) -> anyhow::Result<()> {
    let (mut taken, mut first) = (false, None);
    for (load, _) in SENT {
        match own_options(load, own) {
            Ok(options) => {
                taken = true;
                for (id, _) in options {
                    ensure!(
                        !OURS.contains(&id.as_str()),
                        "--{}: not for an agent: whoever conducts the run has it",
                        id.replace('_', "-")
                    );
                }
            }
            // It may be one of another load; what is asked of the agent is then that load alone.
            Err(e) => _ = first.get_or_insert(e),
        }
    }
    first.filter(|_| !taken).map_or(Ok(()), Err)
}

/// An error of clap's in one line.
fn in_one_line(error: &anyhow::Error) -> anyhow::Error {
    let text = error.to_string();
    let first: Vec<&str> = text.lines().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
    let line = first.join(" ");
    anyhow::anyhow!("{}", line.strip_prefix("error: ").unwrap_or(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    fn refused(words: &[&str], own: &[&str], word: &str) {
        let error = admit("http", &options(words), &options(own), false).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(word) && error.lines().count() == 1, "{words:?}: {error}");
    }

    /// Whoever may speak to an agent makes it send, and nothing else.
    #[test]
    fn files_links_and_listeners_are_not_for_others_to_choose() {
        let url = "http://127.0.0.1:1/";
        for (words, option) in [
            (&["--save=/tmp/x"][..], "--save"),
            (&["--html=/tmp/x"], "--html"),
            (&["--body-file=/etc/shadow"], "--body-file"),
            (&["--ca=/etc/x"], "--ca"),
            (&["--cert=/etc/x"], "--cert"),
            (&["--unix-socket=/run/x"], "--unix-socket"),
            (&["--proxy=http://a:1"], "--proxy"),
            (&["--scenario=/etc/x"], "--scenario"),
            (&["--link=tap:x"], "--link"),
            (&["--addr=10.0.0.1/8"], "--addr"),
            (&["--control"], "--control"),
            (&["--capture=x"], "--capture"),
            (&["--web=127.0.0.1:1"], "--web"),
            (&["--follow", "--follow-anywhere"], "--follow-anywhere"),
            (&["--agents=lab"], "--agents"),
            (&["--rate=fast"], "fast"),
            (&["--no-such-option"], "--no-such-option"),
            (&["--help"], ""),
        ] {
            refused(&[words, &[url][..]].concat(), &[], option);
        }
        refused(&[], &[], "URL");
        let other = admit("compare", &options(&["a.json"]), &[], false).map(|_| ()).unwrap_err().to_string();
        assert!(other.contains("no load compare"), "{other}");
    }

    /// The same of each other load: every option that is not sent is refused.
    #[test]
    fn what_is_not_sent_is_not_taken() {
        let mut command = crate::command();
        command.build();
        for (load, sent) in SENT {
            let of = command.find_subcommand("load").unwrap().find_subcommand(load).unwrap();
            let mut refused = 0;
            for option in of.get_arguments().filter(|a| !sent.contains(&a.get_id().as_str())) {
                let Some(long) = option.get_long() else { continue };
                let value = if option.get_action().takes_values() { "=1" } else { "" };
                let target = match *load {
                    "http" => "http://127.0.0.1:1/",
                    "ws" => "ws://127.0.0.1:1/",
                    _ => "127.0.0.1:1",
                };
                let words = options(&[target, &format!("--{long}{value}")]);
                assert!(admit(load, &words, &[], false).is_err(), "load {load} --{long}");
                refused += 1;
            }
            assert!(refused > 20, "{load}: {refused}");
        }
    }

    /// What only some loads have is an agent's own for these.
    #[test]
    fn an_option_of_one_load_is_for_that_load() {
        let own = options(&["--workers=1", "--udp-4tuple"]);
        assert!(check_own(&own).is_ok() && check_own(&options(&["--udp-5tuple"])).is_err());
        let to = options(&["127.0.0.1:1"]);
        assert!(admit("udp", &to, &own, false).is_ok());
        let error = admit("tcp", &to, &own, false).map(drop).unwrap_err().to_string();
        assert!(error.contains("--udp-4tuple"), "{error}");
        assert!(is_own("udp", &own, "workers") && !is_own("udp", &own, "clients"));
    }

    /// A scenario is the text that was sent, and never a file.
    #[test]
    fn a_scenario_is_a_text() {
        for words in [&[][..], &["--duration=3s"], &["http://127.0.0.1:1/"]] {
            let load = format!("{:?}", admit("http", &options(words), &[], true).unwrap());
            assert!(load.contains("(sent)"), "{load}");
        }
        for (load, words) in
            [("http", &["--scenario=/etc/x"][..]), ("http", &["--save=/tmp/x"]), ("tcp", &["127.0.0.1:1"])]
        {
            assert!(admit(load, &options(words), &[], true).is_err(), "{load} {words:?}");
        }
    }

    #[test]
    fn what_is_sent_is_understood_as_it_was_typed() {
        let typed =
            ["http://127.0.0.1:1/", "-c", "7", "-H", "A: b", "-H", "C: d", "--http2", "--follow", "--exact"];
        let sent: Vec<String> = given("http", line("http", options(&typed)))
            .unwrap()
            .into_iter()
            .flat_map(|(_, words)| words)
            .collect();
        for word in ["--connections=7", "--header=A: b", "--header=C: d", "--exact", "http://127.0.0.1:1/"] {
            assert!(sent.iter().any(|s| s == word), "{word}: {sent:?}");
        }
        assert!(admit("http", &sent, &[], false).is_ok(), "{sent:?}");
    }

    #[test]
    fn what_an_agent_was_given_comes_first() {
        let asked = options(&["http://127.0.0.1:1/", "--workers=5"]);
        let own = options(&["--workers", "2", "--link", "tap:x", "--addr", "10.0.0.2/24"]);
        let load = format!("{:?}", admit("http", &asked, &own, false).unwrap());
        assert!(load.contains("Tap") && !load.contains("Some(5)"), "{load}");
        assert!(check_own(&own).is_ok());
        for bad in [&["--save", "x"][..], &["--json"], &["--no-such"], &["http://other/"]] {
            assert!(check_own(&options(bad)).is_err() || bad == ["http://other/"], "{bad:?}");
        }
    }

    /// Every name in the lists is an option, so that none is let through or kept by mistake.
    #[test]
    fn the_lists_name_options_that_there_are() {
        let mut command = crate::command();
        command.build();
        for (load, sent) in SENT {
            let load = command.find_subcommand("load").unwrap().find_subcommand(load).unwrap();
            let ids: Vec<&str> = load.get_arguments().map(|a| a.get_id().as_str()).collect();
            for id in sent.iter().chain(OURS) {
                assert!(ids.contains(id), "{id}");
            }
        }
    }
}
