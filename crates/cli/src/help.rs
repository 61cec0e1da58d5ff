//! What the help of a command shows: `-h` the options that most people use, on one screen; `--help` all of them in groups, the
//! command's own first.
//!
//! Options that commands share are declared where they are read, in any order. Their groups are put together here.
//!
//! clap shows a text of `-h` for each option, but in the same groups as those of `--help`. So the command is built for one or the other.

use clap::{Arg, Command};

/// A command's path, and its options of `-h` with a few words for each. The option's own text, which says all, stands in `--help`.
type Brief = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const BRIEF: &[Brief] = &[
    (
        &["load", "http"],
        &[
            ("connections", "Concurrent connections"),
            ("rate", "Requests per second, at times fixed in advance"),
            ("duration", "Duration of the measurement"),
            ("requests", "Total number of requests"),
            ("method", "Request method"),
            ("header", "'Name: value', may be repeated"),
            ("http2", "HTTP/2, with so many streams a connection"),
            ("scenario", "Several targets, phases and pools"),
            ("fail", "Exit code 1 if this holds: 'p99 > 20ms'"),
            ("html", "Page with plots"),
            ("json", "JSON in place of the table"),
        ],
    ),
    (
        &["load", "udp"],
        &[
            ("rate", "Datagrams per second"),
            ("size", "Payload of a datagram in bytes"),
            ("duration", "Duration of the measurement"),
            ("flows", "Pairs of client address and port"),
            LINK,
            ADDR,
            ("clients", "Client addresses: 10.11.2.16/28"),
            ("fail", "Exit code 1 if this holds: 'loss > 0.1%'"),
            ("html", "Page with plots"),
            ("json", "JSON in place of the table"),
        ],
    ),
    (
        &["load", "tcp"],
        &[
            ("mode", "What connections do"),
            ("connections", "Concurrent connections"),
            ("rate", "Messages or connections per second"),
            ("size", "Size of a message in bytes"),
            ("duration", "Duration of the measurement"),
            LINK,
            ADDR,
            ("fail", "Exit code 1 if this holds: 'p99 > 20ms'"),
            ("html", "Page with plots"),
            ("json", "JSON in place of the table"),
        ],
    ),
    (
        &["load", "ws"],
        &[
            ("connections", "WebSockets, which stay open"),
            ("rate", "Messages per second, at times fixed in advance"),
            ("duration", "Duration of the measurement"),
            ("size", "Bytes of a message"),
            ("text", "Messages of text"),
            ("header", "'Name: value', may be repeated"),
            ("insecure", "Accept any certificate"),
            ("fail", "Exit code 1 if this holds: 'p99 > 20ms'"),
            ("html", "Page with plots"),
            ("json", "JSON in place of the table"),
        ],
    ),
    (
        &["load", "memcached"],
        &[
            ("connections", "Connections, which stay open"),
            ("rate", "Requests per second, at times fixed in advance"),
            ("duration", "Duration of the measurement"),
            ("keys", "Number of keys"),
            ("value_size", "Sizes of values: 200, 10..100, ..."),
            ("update", "Share of requests that are sets"),
            ("workload", "As published: etc, usr"),
            ("fill", "Store all items before the run"),
            ("verify", "Compare the values that come"),
            ("fail", "Exit code 1 if this holds: 'p99 > 20ms'"),
            ("html", "Page with plots"),
            ("json", "JSON in place of the table"),
        ],
    ),
    (&["serve", "udp-echo"], SERVE),
    (&["serve", "udp-discard"], SERVE),
    (&["serve", "tcp-echo"], SERVE),
    (&["serve", "tcp-discard"], SERVE),
    (&["serve", "tcp-source"], SERVE),
    (
        &["serve", "http"],
        &[
            PORT,
            ("dir", "Serve the files below this directory"),
            ("tls", "HTTPS with a certificate made at start"),
            ("cert", "HTTPS with this certificate"),
            ("key_file", "Private key of --cert"),
            LINK,
            ADDR,
            WORKERS,
            CONTROL,
            METRICS,
            WEB,
        ],
    ),
    (
        &["serve", "memcached"],
        &[
            PORT,
            ("memory", "Memory for items, in MiB"),
            ("max_connections", "Most connections"),
            ("max_item_size", "Largest item: 1m"),
            ("idle_timeout", "Close idle connections after this"),
            ("unix_socket", "Serve at this path instead of TCP"),
            ("udp_port", "Serve datagrams on this port, too"),
            ("tls", "TLS with a certificate made at start"),
            LINK,
            ADDR,
            WORKERS,
            CONTROL,
            METRICS,
        ],
    ),
    (
        &["serve", "relay"],
        &[
            PORT,
            ("to", "A target; again for more"),
            ("balance", "How a target is chosen"),
            ("health", "Ask targets whether they are there"),
            ("udp", "Relay datagrams"),
            ("via", "Where the targets are reached"),
            LINK,
            ADDR,
            WORKERS,
            CONTROL,
            METRICS,
        ],
    ),
    (
        &["epair", "up"],
        &[
            ("netns_a", "Network namespace of A"),
            ("netns_b", "Network namespace of B"),
            ("queues", "Queues of each interface"),
            ("delay", "Delay of each packet: 20ms"),
            ("rate", "Bits per second: 1M"),
            ("loss", "Share of packets that are lost: 1%"),
            ("a_to_b", "Impairments of one direction"),
            ("b_to_a", "Impairments of the other"),
        ],
    ),
    (
        &["epair", "set"],
        &[
            ("delay", "Delay of each packet: 20ms"),
            ("rate", "Bits per second: 1M"),
            ("loss", "Share of packets that are lost: 1%"),
            ("a_to_b", "Impairments of one direction"),
            ("b_to_a", "Impairments of the other"),
            ("clear", "No impairments any more"),
            ("control", "Control socket of the pair"),
        ],
    ),
    (
        &["switch", "up"],
        &[
            ("ports", "A port: NAME=LINK; again for more"),
            ("name", "Name of the switch"),
            ("workers", "Threads that forward"),
        ],
    ),
    (
        &["compare"],
        &[
            ("a", "Command A, the baseline"),
            ("b", "Command B"),
            ("metric", "Figure that is compared"),
            ("pairs", "Most pairs of runs"),
            ("json", "JSON in place of the text"),
        ],
    ),
    (
        &["rss", "plan"],
        &[
            ("to", "Destination address and port"),
            ("from", "Source addresses"),
            ("ports", "Source ports"),
            ("buckets", "Buckets to reach"),
            ("streams", "So many streams, spread evenly"),
            ("find_key", "Look for a better key"),
            ("card", "Key and table of this interface"),
            ("json", "JSON in place of the text"),
        ],
    ),
    (
        &["rss", "learn"],
        &[
            ("probe_from", "Send probes from the cable's other end"),
            ("capture", "Learn from a capture with queues or hashes"),
            ("time", "How long to look, without probes"),
            ("output", "File for what was learnt"),
            ("json", "JSON in place of the text"),
        ],
    ),
    (
        &["rss", "hash"],
        &[
            ("udp", "Take the packets as UDP"),
            ("tcp", "Take the packets as TCP"),
            ("key", "Key: microsoft, symmetric or digits"),
            ("workers", "Workers that share the buckets"),
            ("rss", "Key and table of a card, or a file"),
            ("json", "JSON in place of the text"),
        ],
    ),
    #[cfg(feature = "agents")]
    (
        &["load", "agent"],
        &[
            ("group", "Name of the group"),
            ("nats", "NATS server: nats://HOST:PORT, tls://..."),
            ("nats_creds", "Credentials for NATS: a file"),
            ("name", "Name in reports"),
            ("only", "Send there only: 10.0.0.0/8, a host"),
            ("once", "End after one run"),
        ],
    ),
    (
        &["load", "compare"],
        &[
            ("metric", "Figures that are compared"),
            ("neglect", "Difference in percent that does not count"),
            ("json", "JSON in place of the text"),
        ],
    ),
    (
        &["stat"],
        &[
            ("protocols", "Protocol counters; -ss: those not zero"),
            ("netisr", "Frames handed over between workers"),
            ("all", "Sockets and connections"),
            ("flows", "The same with hash, bucket and worker"),
            ("interval", "Rates, again and again"),
            CONTROL_OF,
            ("json", "JSON in place of the text"),
        ],
    ),
    (
        &["bench", "tcp"],
        &[
            ("rounds", "Rounds of each measurement"),
            ("only", "Parts to measure"),
            ("json", "JSON with every round"),
        ],
    ),
];

const SERVE: &[(&str, &str)] =
    &[PORT, LINK, ADDR, WORKERS, ("interval", "A line for each worker, each second"), CONTROL, METRICS, WEB];

const PORT: (&str, &str) = ("port", "Port of the service");
const LINK: (&str, &str) = ("link", "kernel, af-xdp:eth0, tap:NAME, ...");
const ADDR: (&str, &str) = ("addr", "Our addresses: 10.11.2.1/24");
const WORKERS: (&str, &str) = ("workers", "Threads, one for each processor");
const CONTROL: (&str, &str) = ("control", "Socket for 'flowlane top' and 'stat'");
const CONTROL_OF: (&str, &str) = ("control", "Control socket of the instance");
const METRICS: (&str, &str) = ("metrics", "/metrics for Prometheus");
const WEB: (&str, &str) = ("web", "Web page of lanes, rates and drops");

/// Groups of options that `serve` and `load` commands share.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Link",
        &[
            "link",
            "addr",
            "gateway",
            "follow_routers",
            "address_probes",
            "vlan",
            "tunnel",
            "reassembly",
            "clients",
            "routed",
        ],
    ),
    (
        "Steering",
        &[
            "key",
            "udp_4tuple",
            "workers",
            "rss",
            "steer",
            "buckets",
            "rebalance",
            "home_ports",
            "no_pin",
            "cpus",
            "busy_poll",
            "suspend_irqs",
            "io",
            "idle",
        ],
    ),
    (
        "Instruments",
        &[
            "interval",
            "flows",
            "ipfix",
            "flow_log",
            "control",
            "top_flows",
            "capture",
            "metrics",
            "web",
            "json",
        ],
    ),
];

/// Puts the options of every command into groups.
pub(crate) fn arrange(command: Command) -> Command {
    let command = command.mut_subcommand("serve", |serve| serve.arg(crate::service_file::option()));
    ["serve", "load"].into_iter().fold(command, |command, family| {
        command.mut_subcommand(family, |family| family.mut_subcommands(|command| command.mut_args(grouped)))
    })
}

/// Whether these arguments ask for the short help.
pub(crate) fn is_asked_to_be_brief(mut arguments: impl Iterator<Item = String>) -> bool {
    arguments.any(|argument| argument == "-h")
}

/// What `-h` prints: no groups, no examples, a line for each of few options.
pub(crate) fn brief(command: Command) -> Command {
    let command = BRIEF
        .iter()
        .fold(command, |command, (path, shown)| at(command, path, &|command| shortened(command, shown)));
    command
        .mut_arg("color", |color| color.hide_short_help(true))
        .mut_subcommands(|sub| without_examples(sub, "flowlane"))
}

fn without_examples(command: Command, path: &str) -> Command {
    let path = format!("{path} {}", command.get_name());
    if command.has_subcommands() {
        return command.mut_subcommands(|sub| without_examples(sub, &path));
    }
    let is_short = command.get_arguments().any(Arg::is_hide_short_help_set);
    match (is_short, command.get_after_help()) {
        (true, _) => command.after_help(format!("Every option, and examples: {path} --help")),
        (false, Some(_)) => command.after_help(format!("Examples: {path} --help")),
        (false, None) => command,
    }
}

fn at(command: Command, path: &[&'static str], change: &dyn Fn(Command) -> Command) -> Command {
    match path {
        [] => change(command),
        // The tree may be that of another command.
        [first, ..] if command.find_subcommand(first).is_none() => command,
        [first, rest @ ..] => command.mut_subcommand(first, |command| at(command, rest, change)),
    }
}

fn grouped(option: Arg) -> Arg {
    // A heading of its own stands; `Steering` is what options get that are declared behind those of steering.
    if option.is_positional() || option.get_help_heading().is_some_and(|heading| heading != "Steering") {
        return option;
    }
    let id = option.get_id().as_str();
    let of = GROUPS.iter().find(|(_, ids)| ids.contains(&id)).map(|(heading, _)| *heading);
    match of {
        Some(heading) => option.help_heading(heading),
        None if id == "slots" => option,
        None => option.help_heading(None::<&str>),
    }
}

fn shortened(command: Command, shown: &[(&str, &'static str)]) -> Command {
    command.mut_args(|option| match shown.iter().find(|(id, _)| option.get_id() == *id) {
        Some((_, words)) => {
            let takes = option.get_action().takes_values();
            let option = option.help(*words).help_heading(None::<&str>);
            let option = option.hide_possible_values(takes).hide_default_value(takes);
            match value_name(option.get_id().as_str()) {
                Some(name) if takes => option.value_name(name),
                _ => option,
            }
        }
        None if option.is_positional() => option,
        None => option.hide_short_help(true),
    })
}

/// A value's name where the one of the long help would leave its line no room.
fn value_name(id: &str) -> Option<&'static str> {
    Some(match id {
        "connections" | "requests" | "http2" | "http3" | "rate" | "size" | "flows" | "pairs" | "rounds"
        | "streams" | "keys" => "N",
        "duration" | "delay" => "TIME",
        "metrics" | "web" => "ADDR",
        "clients" => "ADDRS",
        "method" | "mode" => "NAME",
        "fail" => "IF",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(mut command: Command, path: &[&str]) -> Command {
        command.build();
        path.iter().fold(command, |command, name| {
            let sub = command.find_subcommand(name);
            sub.unwrap_or_else(|| panic!("{name} is no command")).clone()
        })
    }

    /// `-h` fits a terminal of 24 lines and leaves one for the prompt; a table of commands may be longer.
    #[test]
    fn short_help_fits_a_screen() {
        fn every(command: &mut Command, path: &str, long: &mut Vec<String>) {
            let help = command.render_help().to_string();
            let lines = help.lines().count();
            if lines > 23 && command.get_subcommands().next().is_none() {
                long.push(format!("{path} -h has {lines} lines\n{help}"));
            }
            for sub in command.get_subcommands_mut() {
                let path = format!("{path} {}", sub.get_name());
                every(sub, &path, long);
            }
        }
        let mut long = Vec::new();
        every(&mut built(brief(crate::command()), &[]), "flowlane", &mut long);
        assert!(long.is_empty(), "{}", long.join("\n"));
    }

    /// `-h` names options that there are, and `--help` has all.
    #[test]
    fn long_help_has_every_option() {
        let mut wrong = Vec::new();
        for (path, shown) in BRIEF {
            let mut command = built(crate::command(), path);
            let all = command.render_long_help().to_string();
            for (id, _) in *shown {
                if !command.get_arguments().any(|a| a.get_id() == *id) {
                    wrong.push(format!("{path:?} has no {id}"));
                }
            }
            let hidden = |option: &&Arg| !option.is_hide_set();
            for option in command.get_arguments().filter(hidden).filter_map(Arg::get_long) {
                assert!(all.contains(&format!("--{option}")), "{path:?}: --help has no --{option}");
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn short_help_is_asked_for() {
        let asked = |line: &str| is_asked_to_be_brief(line.split(' ').map(str::to_owned));
        assert!(asked("flowlane load http -h"));
        assert!(!asked("flowlane load http --help"));
    }

    /// What a command alone has comes first, then what others have, too.
    #[test]
    fn groups_are_in_order() {
        let help = built(crate::command(), &["serve", "udp-echo"]).render_long_help().to_string();
        let at = |what: &str| help.find(what).unwrap_or_else(|| panic!("no {what} in {help}"));
        assert!(at("\nOptions:") < at("--port"));
        assert!(at("--grace") < at("\nLink:"));
        assert!(at("\nLink:") < at("--vlan"));
        assert!(at("--flow-log") > at("\nInstruments:"));
    }
}
